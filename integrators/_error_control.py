"""What methods with error control share: y = (q, v) as one vector, and the sizes of steps.

With err the estimated error of a step in units of what is allowed, err_0 that of the step before,
and r the power of h that it falls with,

    h_next = h min(FASTER, max(SLOWER, 0.9 err^(-(1 - 3/4 b)/r) err_0^(b/r))),    b = 0.3     (1)

The errors of two steps show a trend (Hairer, Wanner: Solving Ordinary Differential Equations II,
section IV.2): with b = 0 every fifth step was in vain. A step that was cut short, because it met
the next sample, does not make h_next smaller. A step whose error is not finite is repeated with the
smallest factor.

The first step, from the rates at the start and a little later (I, section II.4), with |x| the root
mean square in units of what is allowed,

    h = (0.01/max(|y'|, |y''|))^(1/r)                                                         (2)
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nsdyn._types import Number, Params, Scalar
from nsdyn.errors import ProblemError
from nsdyn.mechanics.formulations import lagrange
from nsdyn.mechanics.model import Model, Point
from nsdyn.stepping.integrator import ControlledMemory

SAFETY = 0.9
SLOWER = 0.2
FASTER = 10.0
TREND = 0.3  # b
LEAST_BEFORE = 1e-4  # of err_0: one that was cut short says little
USUAL = 0.5  # err_0 where there was no step before
FIRST = 0.01
PROBE = 0.01  # of |y|/|y'|: how much later


def next_step(memory: ControlledMemory, h: Number, error: Scalar, power: int) -> Scalar:
    """The size of the next step, or of the next attempt, after a step of size h that began with
    this memory."""
    wanted = memory.h_next
    before = jnp.where(memory.error > 0, jnp.maximum(memory.error, LEAST_BEFORE), USUAL)
    # Logarithms of both errors do not wait for each other and cost less than powers.
    fall = (1 - 0.75 * TREND) * jnp.log(jnp.maximum(error, 1e-10)) - TREND * jnp.log(before)
    factor = SAFETY * jnp.exp(-fall / power)
    factor = jnp.where(jnp.isfinite(error), jnp.clip(factor, SLOWER, FASTER), SLOWER)
    new = factor * h  # (1)
    return jnp.where((error <= 1) & (h < wanted), jnp.maximum(new, wanted), new)


def first_step(
    method: Any, model: Model, point: Point, a: Float[Array, " n"], p: Params, power: int
) -> Scalar:
    """The size of the first step from a point where v' = a."""
    y, rate = vector(point), rates(model, point, a, p)
    scale = method.atol + method.rtol * jnp.abs(y)
    size = lambda x: jnp.sqrt(jnp.mean((x / scale) ** 2))
    tiny = jnp.finfo(float).tiny
    later = PROBE * jnp.maximum(size(y), 1.0) / jnp.maximum(size(rate), tiny)
    later = jnp.minimum(later, model.step)
    ahead = moved(point, later * rate, later)
    change = rates(model, ahead, lagrange(model, ahead, p).a, p) - rate
    fastest = jnp.maximum(size(rate), size(change) / later)
    h = (FIRST / jnp.maximum(fastest, tiny)) ** (1.0 / power)  # (2)
    return jax.lax.stop_gradient(jnp.where(jnp.isfinite(h), h, model.step))


def check_settings(name: str, method: Any) -> None:
    """Raise ProblemError unless the tolerances and max_steps of a method make sense."""
    for setting in ("rtol", "atol"):
        value = getattr(method, setting)
        if not isinstance(value, jax.core.Tracer) and not (value.ndim == 0 and value > 0):
            raise ProblemError(f"{name}({setting}=...): expected a positive number, found {value}")
    if method.max_steps < 1:
        raise ProblemError(f"{name}(max_steps=...): expected at least 1, found {method.max_steps}")


def vector(point: Point) -> Float[Array, " size"]:
    """y = (q, v)."""
    return jnp.concatenate([point.q, point.v])


def moved(point: Point, change: Float[Array, " size"], dt: Number) -> Point:
    """The point y + change at t + dt."""
    size = point.q.shape[0]
    return point.replace(t=point.t + dt, q=point.q + change[:size], v=point.v + change[size:])


def rates(model: Model, point: Point, a: Float[Array, " n"], p: Params) -> Float[Array, " size"]:
    """y' = (q', v')."""
    return jnp.concatenate([model.qdot(point, p), a])
