"""One switch of a mechanism: new mode, law, velocity after, record.

    fired guards -> mode after -> G-, G+ -> law -> v+ -> (contacts settle) -> record

Rows that only disappear leave the velocity unchanged. A contact that bounces opens again at once; one that comes to rest has
its rate removed in the mass metric.
"""

import equinox as eqx
import jax.numpy as jnp

from nsdyn.constraint import NO_MODE
from nsdyn.law import AbstractLaw, persistent
from nsdyn.log import Record
from nsdyn.model import Model, Point, project_velocity
from nsdyn.status import Status

MEET = 1e-6
OBEY = 1e-6


def switch(model: Model, point: Point, fired, law: AbstractLaw, p) -> tuple[Point, Record, jnp.ndarray]:
    """The point after the switch, its record and a status."""
    after = model.after(fired, point, p)
    args = (point.q, point.v, point.t, p)
    G_before = model.jacobian(*args, point.mode, point.held)
    G_after = model.jacobian(*args, after.mode, after.held)
    on_before = model.live(point.q, point.t, p, point.mode)
    on_after = model.live(point.q, point.t, p, after.mode)
    gt = model.psi(point.q, jnp.zeros_like(point.v), point.t, p, after.mode, after.held)
    M = model.system.mass(point.q, p)
    solve = model.system.solver(point.q, p)
    jump = law.jump(M, G_before, G_after, point.v, gt, None, on_before, on_after, solve)
    # A row that stays but is driven at another speed is as good as new.
    residual = jnp.abs(G_after @ point.v + gt)
    moved = residual > OBEY * (jnp.abs(G_after) @ jnp.abs(point.v) + jnp.abs(gt))
    acts = jnp.any(on_after & (moved | ~persistent(G_before, G_after, on_before, on_after)))
    v = jnp.where(acts, jump.v_after, point.v)
    Lam = jnp.where(acts, jump.Lam, 0.0)
    landed = eqx.tree_at(lambda x: x.v, after, v)
    if model.settles:
        landed = eqx.tree_at(lambda x: x.mode, landed, model.settle(point, after, v, p))
        v, rest = project_velocity(model, landed, p)
        landed, Lam = eqx.tree_at(lambda x: x.v, landed, v), Lam + rest
    kinetic = lambda v: 0.5 * jnp.sum(v * (M @ v))
    record = Record(
        t=point.t,
        mode_before=point.mode,
        mode_after=landed.mode,
        q=point.q,
        v_before=point.v,
        v_after=v,
        Lam=Lam,
        direction=jump.direction,
        kinetic_before=kinetic(point.v),
        kinetic_after=kinetic(v),
    )
    # Settling only takes rows away, so G_after serves for the landed point too.
    allowed = OBEY * (jnp.abs(G_after) @ (jnp.abs(point.v) + jnp.abs(v)) + jnp.max(jnp.abs(point.v) + jnp.abs(v)))
    return landed, record, _status(model, landed, p, jnp.abs(G_after @ v + gt) <= allowed)


def _status(model, point, p, obeyed):
    live = model.live(point.q, point.t, p, point.mode)
    gap = jnp.where(live, model.rows(point.q, point.t, p, point.mode, point.held), 0.0)
    meets = jnp.max(jnp.abs(gap), initial=0.0) <= MEET * jnp.maximum(1.0, jnp.max(jnp.abs(point.q)))
    lost = jnp.any(point.mode == NO_MODE)
    obeys = jnp.all(~live | obeyed)
    code = jnp.where(obeys, Status.OK, Status.LAW_VIOLATES)
    return jnp.where(lost, Status.NO_MODE, jnp.where(meets, code, Status.DO_NOT_MEET))
