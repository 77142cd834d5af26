"""What methods with error control share: y = (q, v) as one vector, and the size of the next step.

With err the estimated error of a step in units of what is allowed, and r the power of h that it
falls with,

    h_next = h min(FASTER, max(SLOWER, 0.9 err^(-1/r)))                                       (1)

A step that was cut short, because it met the next sample, does not make h_next smaller. A step
whose error is not finite is repeated with the smallest factor.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nsdyn._types import Number, Params, Scalar
from nsdyn.errors import ProblemError
from nsdyn.mechanics.model import Model, Point

SAFETY = 0.9
SLOWER = 0.2
FASTER = 10.0


def next_step(wanted: Scalar, h: Number, error: Scalar, power: int) -> Scalar:
    """The size of the next step, or of the next attempt. `wanted` was the size of this one, unless
    it was cut short."""
    factor = SAFETY * jnp.maximum(error, 1e-10) ** (-1.0 / power)
    factor = jnp.where(jnp.isfinite(error), jnp.clip(factor, SLOWER, FASTER), SLOWER)
    new = factor * h  # (1)
    return jnp.where((error <= 1) & (h < wanted), jnp.maximum(new, wanted), new)


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
