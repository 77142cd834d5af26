"""One switch of a mechanism: new mode, law, velocity after, record.

    fired guards -> mode after -> G-, G+ -> law -> v+ -> (contacts settle) -> record

Rows that only disappear leave the velocity unchanged. A contact that bounces opens again at once;
one that comes to rest has its rate removed in the mass metric.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp

from nsdyn.constraints.base import NO_MODE
from nsdyn.laws.base import AbstractLaw, Jump, ModeChange
from nsdyn.mechanics.model import Model, Point, project_velocity
from nsdyn.mechanics.saddle_point import SaddlePoint
from nsdyn.status import Status
from nsdyn.stepping.log import Record

MEET = 1e-6
OBEY = 1e-6


class LawAnswer(NamedTuple):
    """What the law answers at a switch, whether it acts at all, its objection, what it was asked
    about, and T(v) there."""

    jump: Jump
    acts: jnp.ndarray
    failure_code: jnp.ndarray
    change: ModeChange
    kinetic: Callable


def impulse(model: Model, before: Point, here: SaddlePoint, v, law: AbstractLaw, p) -> LawAnswer:
    """The law on the velocity v, from the mode of `before` to the mode of `here`, at the
    configuration of `here`."""
    q, t = here.point.q, here.point.t
    G_before = model.jacobian(q, v, t, p, before.mode, before.held)
    on_before = model.live(q, t, p, before.mode)
    gt = here.psi(jnp.zeros_like(v))
    system = model.system
    M = system.mass(q, p)
    kinetic = (
        (lambda v: system.kinetic(q, v, p))
        if system.momentum
        else (lambda v: 0.5 * jnp.sum(v * (M @ v)))
    )
    change = ModeChange.of(
        M, G_before, here.G, v, gt, None, on_before, here.live, here.solve_mass, q, t, p, before.v
    )
    objection, jump = law.answer(change)
    # A row that stays but is driven at another speed is as good as new.
    size = jnp.abs(here.G) @ jnp.abs(v)
    moved = jnp.abs(here.G @ v + gt) > OBEY * (size + jnp.abs(gt))
    acts = jnp.any(here.live & (moved | ~change.kept))
    after = jnp.where(acts, jump.v_after, v)
    objection = jnp.where(acts, objection, Status.OK)
    return LawAnswer(
        Jump(after, jnp.where(acts, jump.Lam, 0.0), jump.direction),
        acts,
        objection,
        change,
        kinetic,
    )


def change_mode(
    model: Model, point: Point, fired, law: AbstractLaw, p
) -> tuple[Point, Record, jnp.ndarray]:
    """The point after the switch, its record and a status."""
    after = model.after(fired, point, p)
    found = impulse(model, point, SaddlePoint(model, after, p), point.v, law, p)
    landed, Lam = after_impact(model, point, after, found.jump, p)
    code = status(model, landed, p, found)
    gap = jnp.where(
        _live(model, landed, p), model.rows(point.q, point.t, p, landed.mode, landed.held), 0.0
    )
    meets = jnp.max(jnp.abs(gap), initial=0.0) <= MEET * jnp.maximum(1.0, jnp.max(jnp.abs(point.q)))
    code = jnp.where((code == Status.NO_MODE) | meets, code, Status.DO_NOT_MEET)
    return landed, record(point, landed, Lam, found), code


def after_impact(model: Model, before: Point, after: Point, jump: Jump, p):
    """The point after the impulse, with contacts settled, and all the impulse that took it
    there."""
    landed = eqx.tree_at(lambda x: x.v, after, jump.v_after)
    if not model.mode_depends_on_impact:
        return landed, jump.Lam
    landed = eqx.tree_at(
        lambda x: x.mode, landed, model.mode_after_impact(before, after, jump.v_after, p)
    )
    v, rest = project_velocity(model, landed, p)
    return eqx.tree_at(lambda x: x.v, landed, v), jump.Lam + rest


def record(before: Point, landed: Point, Lam, found: LawAnswer) -> Record:
    return Record(
        t=before.t,
        mode_before=before.mode,
        mode_after=landed.mode,
        q=before.q,
        v_before=before.v,
        v_after=landed.v,
        Lam=Lam,
        direction=found.jump.direction,
        kinetic_before=found.kinetic(before.v),
        kinetic_after=found.kinetic(landed.v),
    )


def _live(model, point, p):
    return model.live(point.q, point.t, p, point.mode)


def status(model: Model, landed: Point, p, found: LawAnswer):
    """What is wrong with a switch, apart from constraints that do not meet."""
    lost = jnp.any(landed.mode == NO_MODE)
    G, gt = (
        found.change.G_after,
        found.change.gt_after,
    )  # settling only takes rows away, so these serve for the landed point too
    speed = jnp.abs(found.change.v_before) + jnp.abs(landed.v)
    obeyed = jnp.abs(G @ landed.v + gt) <= OBEY * (jnp.abs(G) @ speed + jnp.max(speed))
    obeys = jnp.all(~_live(model, landed, p) | obeyed)
    code = jnp.where(obeys, Status.OK, Status.LAW_VIOLATES)
    return jnp.where(
        lost, Status.NO_MODE, jnp.where(found.failure_code != Status.OK, found.failure_code, code)
    )
