"""How fast guards change along the motion, and how large their round-off is."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from nsdyn._jitted import traced_once
from nsdyn._types import Guards, Number, Params, Rows, Velocity
from nsdyn.mechanics.model import Model, Point
from nsdyn.numerics import small

ROUND_OFF = 1e-13  # relative to the terms that a guard consists of


@traced_once
def rates(
    model: Model,
    point: Point,
    a: Velocity,
    lam: Rows,
    p: Params,
    clock: Number = 1.0,
    lam_rate: Rows | None = None,
) -> Float[Array, " k"]:
    """d/dt of the guards with v' = a and t' = clock; the multipliers are treated as constant unless
    their rate is given."""
    guards = lambda q, v, t, lam: model.guards(point.replace(q=q, v=v, t=t), lam, p)
    still = jnp.zeros_like(lam)
    along = (
        model.qdot(point, p),
        a,
        jnp.full_like(point.t, clock),
        still if lam_rate is None else lam_rate,
    )
    return jax.jvp(guards, (point.q, point.v, point.t, lam), along)[1]


@traced_once
def noise(model: Model, point: Point, lam: Rows, p: Params) -> Float[Array, " k"]:
    """The round-off of the guards: |dg/dx| |x| times a few units in the last place, for
    x = (q, v, t) and the multipliers, with |x| not less than at the start. Each multiplier has the
    round-off of the largest one, since all of them balance the same forces."""
    if model.k == 0:
        return jnp.zeros(0)
    x = (point.q, point.v, point.t)
    guards = lambda x: model.guards(point.replace(q=x[0], v=x[1], t=x[2]), lam, p)
    # For a long chain an n x n matrix may not fit into memory.
    slopes = jax.jacrev if point.q.shape[0] > 8 * model.k else jax.jacfwd
    start = (model.scale.q, model.scale.v, jnp.zeros(()))
    known = [jnp.abs(y) + at_start for y, at_start in zip(x, start, strict=True)]
    sizes = [_size(c, y) for c, y in zip(slopes(guards)(x), known, strict=True)]
    if model.guards_use_lam:
        by_lam = jax.jacfwd(lambda lam: model.guards(point, lam, p))(lam)
        sizes.append(_size(by_lam, jnp.full_like(lam, jnp.max(jnp.abs(lam), initial=0.0))))
    return ROUND_OFF * small.total(sizes)


def _size(slope: Array, x: Array) -> Guards:
    return jnp.sum(jnp.abs(slope) * x[None], axis=range(1, slope.ndim))


@traced_once
def by_force(model: Model, point: Point, lam: Rows, p: Params) -> Bool[Array, " k"]:
    """Which guards depend on the multipliers."""
    if not model.guards_use_lam:
        return jnp.zeros(model.k, bool)
    return jnp.any(jax.jacfwd(lambda lam: model.guards(point, lam, p))(lam) != 0, axis=1)
