"""Dense output of a step, and the detection of guards that fall through zero on it.

Between the ends (q_0, v_0) and (q_1, v_1) of a step, with x = (t - t_0)/h, cubic Hermite
interpolation

    y(x) = (1+2x)(1-x)^2 y_0 + x(1-x)^2 h y'_0 + x^2(3-2x) y_1 - x^2(1-x) h y'_1            (1)

of q (with q') and of v (with v'); lam is interpolated linearly. A method with error control, whose
steps are long, adds terms b_j of its own, such that its dense output is nearly as accurate as its
steps:

    y(x) + x^2 (1-x)^2 (b_0 + b_1 x + b_2 x^2 + ...)                                         (3)

Guards are sampled at equal
distances. The parabola through three neighbouring samples a, b, d has the curvature c = a - 2b + d
and the lowest value b - (a-d)^2/(8c), which reveals a guard that dips below zero between samples:

    c > 0,  |a - d| <= 2c,  8 b c <= (a - d)^2                                              (2)
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from nsdyn._jitted import traced_once
from nsdyn._types import AnyArray, Number, Params, Scalar
from nsdyn.mechanics.model import Model, Point
from nsdyn.stepping.integrator import ControlledMemory, State

# In units of the step: a crossing that round-off puts just beyond the end of a step belongs to it.
SLACK = 1e-9


def hermite(x: Number, h: Number, y0: Array, d0: Array, y1: Array, d1: Array) -> Array:
    u = 1.0 - x
    return (
        (1 + 2 * x) * u * u * y0
        + x * u * u * h * d0
        + x * x * (3 - 2 * x) * y1
        - x * x * u * h * d1
    )  # (1)


def between(
    model: Model, start: State, end: State, h: Number, p: Params, x: Number
) -> tuple[Point, Array]:
    """The point and the multipliers on the dense output at the fraction x."""
    first, last = start.point, end.point
    q = hermite(x, h, first.q, model.qdot(first, p), last.q, model.qdot(last, p))
    v = hermite(x, h, first.v, start.memory.a, last.v, end.memory.a)
    if isinstance(end.memory, ControlledMemory) and len(end.memory.bend):
        more = (x * (1 - x)) ** 2 * _polynomial(end.memory.bend, x)  # (3)
        q, v = q + more[: len(q)], v + more[len(q) :]
    lam = (1 - x) * start.memory.lam + x * end.memory.lam
    return first.replace(t=first.t + x * h, q=q, v=v), lam


def _polynomial(terms: Float[Array, "terms size"], x: Number) -> Float[Array, " size"]:
    """b_0 + b_1 x + b_2 x^2 + ... by Horner's scheme."""
    total = terms[-1]
    for term in reversed([terms[k] for k in range(len(terms) - 1)]):
        total = term + x * total
    return total


def guards_between(
    model: Model, start: State, end: State, h: Number, p: Params, x: AnyArray
) -> Float[Array, "x k"]:
    """The guards on the dense output at the fractions x, shape (len(x), k)."""
    return jax.vmap(lambda x: model.guards(*between(model, start, end, h, p, x), p))(x)


class Surface(eqx.Module):
    """Which guards are zero to round-off.

    tolerance: positive for a guard that is zero within this tolerance. Such a guard is not watched
        until it has risen above its tolerance. 0 for all others.
    departure_rate: the positive rate at which it leaves zero, or 0 if it does not.
    """

    tolerance: Float[Array, " k"]
    departure_rate: Float[Array, " k"]

    @staticmethod
    def none(guards: int) -> "Surface":
        return Surface(jnp.zeros(guards), jnp.zeros(guards))

    @property
    def watched(self) -> Bool[Array, " k"]:
        return self.tolerance == 0


class GuardScan(NamedTuple):
    """The guards on one step.

    fired: which guards fall through zero.
    first_zero: the fraction of the step at which each first does so; infinite if it does not.
    fell_back: whether a guard resting at zero became negative again, before any fires: beyond an
        event the step says nothing.
    """

    fired: Bool[Array, " k"]
    first_zero: Float[Array, " k"]
    fell_back: Bool[Array, ""]

    @property
    def fires(self) -> Bool[Array, ""]:
        """Whether there is anything to look at."""
        return jnp.any(self.fired) | self.fell_back


@traced_once
def scan_guards(
    model: Model, start: State, end: State, h: Number, p: Params, intervals: int
) -> GuardScan:
    """The guards on the dense output of a step, sampled in this many intervals."""
    inner = guards_between(model, start, end, h, p, np.arange(1, intervals) / intervals)
    values = jnp.concatenate([start.guard[None], inner, end.guard[None]])
    surface: Surface = start.own
    each = jax.vmap(_scan_one, in_axes=(1, 0, 0))
    fired, first_zero, back = each(values, surface.tolerance, surface.departure_rate * h)
    return GuardScan(fired, first_zero, jnp.any(back < jnp.min(first_zero, initial=jnp.inf)))


def _scan_one(values: Array, tolerance: Scalar, rise: Scalar) -> tuple[Array, Array, Array]:
    """Whether and where one guard fires, and where it is seen to have fallen back, else infinite.
    If it starts at zero (tolerance > 0) it can fire only after it has risen above its tolerance;
    `rise` is its departure rate times the step."""
    n = values.shape[0] - 1
    number = np.arange(1.0, n + 1)
    earliest = lambda which, of: jnp.min(jnp.where(which, of, jnp.inf))
    beyond = below(values[1:], tolerance)
    dip = dips(values)
    risen = jnp.where(
        (tolerance == 0) | (rise > 0),
        0.0,
        earliest(values[1:] > tolerance, number),
    )
    watched = tolerance == 0
    fired = jnp.any(beyond & (number > risen)) | (watched & (jnp.any(dip) | (values[0] <= 0)))
    crossing = earliest(beyond, number - 1 + _crossings(values, tolerance, rise / n))
    dipping = earliest(dip, number[:-1] + _roots(values, dip))
    first_zero = jnp.where(fired, jnp.minimum(crossing, dipping) / n, jnp.inf)
    fall = earliest(beyond, number)
    return fired, first_zero, jnp.where(fall < risen, fall / n, jnp.inf)


def _crossings(values: Float[Array, " samples_and_one"], tolerance: Scalar, rise: Scalar) -> Array:
    """Where in each interval a guard that is negative at its end crossed zero, as a fraction of the
    interval: by linear interpolation, or in the first interval, for a guard that started at zero,
    from its departure rate."""
    left, right = values[:-1], values[1:]
    fall = left - right
    linear = jnp.where(fall > 0, left / jnp.where(fall > 0, fall, 1.0), 1.0)
    linear = jnp.maximum(linear, 0.0)  # one that begins below zero has no crossing before it
    lifted = (tolerance > 0) & (rise > right) & (np.arange(right.shape[0]) == 0)
    return jnp.where(lifted, rise / jnp.where(lifted, rise - right, 1.0), linear)


def dips(values: Array) -> Array:
    """Where the parabola through three neighbouring positive samples reaches zero."""
    a, b, d = values[:-2], values[1:-1], values[2:]
    c = a - 2 * b + d
    return (
        (c > 0)
        & (jnp.abs(a - d) <= 2 * c)
        & (8 * b * c <= (a - d) ** 2)
        & (a > 0)
        & (b > 0)
        & (d > 0)
    )  # (2)


def _roots(values: Array, dip: Array) -> Array:
    """The left root of those parabolas, counted from the middle sample."""
    a, b, d = values[:-2], values[1:-1], values[2:]
    c = jnp.where(dip, a - 2 * b + d, 1.0)
    vertex = (a - d) / (2 * c)
    return vertex - jnp.sqrt(jnp.maximum(vertex**2 - 2 * b / c, 0.0))


def below(samples: Float[Array, " samples"], tolerance: Scalar) -> Bool[Array, " samples"]:
    """Which samples count as below zero; the last one already if it is about to cross."""
    about = SLACK * jnp.maximum(samples[-2] - samples[-1], 0.0)
    last = np.arange(samples.shape[0]) == samples.shape[0] - 1
    return samples <= jnp.where(tolerance > 0, -tolerance, jnp.where(last, about, 0.0))
