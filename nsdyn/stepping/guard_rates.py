"""How guards change along the motion, and how large they may be by round-off alone."""

import equinox as eqx
import jax
import jax.numpy as jnp

from nsdyn.mechanics.model import Model, Point

ROUND_OFF = 1e-13
ZERO = 1e-15  # guards, of order one, that differ from zero by no more sit on it


def _with(point: Point, q, v, t) -> Point:
    return eqx.tree_at(lambda x: (x.q, x.v, x.t), point, (q, v, t))


def rates(model: Model, point: Point, a, lam, p, clock=1.0, lam_rate=None):
    """d/dt of the guards with v' = a and t' = clock; multipliers count as constant unless their
    rate is given."""
    guards = lambda q, v, t, lam: model.guards(_with(point, q, v, t), lam, p)
    qdot = model.system.rate(point.q, point.v, p)
    along = (
        qdot,
        a,
        jnp.full_like(point.t, clock),
        jnp.zeros_like(lam) if lam_rate is None else lam_rate,
    )
    return jax.jvp(guards, (point.q, point.v, point.t, lam), along)[1]


def noise(model: Model, point: Point, lam, p):
    """|dg/dx| |x| times a few units in the last place."""
    if model.k == 0:
        return jnp.zeros(0)
    x = (point.q, point.v, point.t)
    slopes = (
        jax.jacrev if point.q.shape[0] > 8 * model.k else jax.jacfwd
    )  # a long chain has no room for n x n
    columns = slopes(lambda x: model.guards(_with(point, *x), lam, p))(x)
    sizes = [
        jnp.sum(jnp.abs(c) * jnp.abs(y)[None], axis=range(1, c.ndim))
        for c, y in zip(columns, x, strict=True)
    ]
    return ROUND_OFF * sum(sizes) + ZERO


def by_force(model: Model, point: Point, lam, p):
    """Which guards look at the multipliers."""
    if not model.guards_use_lam:
        return jnp.zeros(model.k, bool)
    return jnp.any(jax.jacfwd(lambda lam: model.guards(point, lam, p))(lam) != 0, axis=1)
