"""One mode change of a mechanism: new mode, law, velocity after, record.

    fired guards -> mode after -> G-, G+ -> law -> v+ -> (mode after the impact) -> record

If rows only disappear, the velocity does not change. A contact that bounces opens again at once; if
it comes to rest, its remaining rate is removed in the mass metric.

Residuals are compared with the sizes of `nsdyn.tolerances`: with w_i = |G_i|_(M^-1),

    the constraints meet:     |g_i| <= meet w_i L                                              (1)
    the law obeys them:       |G_i v+ + g_t| <= obey (w_i (V- + V+) + |g_t|)                   (2)
    the law has work to do:   |G_i v- + g_t| > obey (|G_i| |v-| + |g_t|), or a row is new      (3)
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from nsdyn._types import (
    Configuration,
    GuardMask,
    Jacobian,
    Matrix,
    Number,
    Params,
    Rows,
    Velocity,
)
from nsdyn.constraints.base import NO_MODE
from nsdyn.laws.base import AbstractLaw, Jump, ModeChange
from nsdyn.mechanics.model import Model, Point
from nsdyn.mechanics.projection import project_velocity
from nsdyn.mechanics.saddle_point import SaddlePoint
from nsdyn.status import Status
from nsdyn.stepping.log import Event


class LawAnswer(NamedTuple):
    """The answer of a law.

    jump: its jump; no change of the velocity if it has nothing to do.
    acts: whether it has something to do: a row is new, or a velocity is forbidden.
    failure_code: why it failed, or OK.
    change: the mode change that it was asked about.
    kinetic: the kinetic energy T(v) at this configuration, a function.
    """

    jump: Jump
    acts: Bool[Array, ""]
    failure_code: Int[Array, ""]
    change: ModeChange
    kinetic: Callable


def ask_law(
    model: Model, before: Point, here: SaddlePoint, v: Velocity, law: AbstractLaw, p: Params
) -> LawAnswer:
    """Apply the law to the velocity v, from the mode of `before` to that of `here`, at the
    configuration of `here`."""
    old = before.replace(t=here.point.t, q=here.point.q, v=v)
    M = model.system.mass(old.q, p)
    change = ModeChange.of(
        M=M,
        G_before=model.jacobian(old, p),
        G_after=here.G,
        v_before=v,
        gt_after=here.psi(jnp.zeros_like(v)),
        on_before=model.live(old, p),
        on_after=here.live,
        solve=here.solve_mass,
        q=old.q,
        t=old.t,
        p=p,
        w=before.v,
    )
    declared, known = model.persists(before, here.point, p)
    change = change._replace(kept=jnp.where(known, declared, change.kept))
    code, jump = law.answer(change)
    acts = jnp.any(here.live & (_is_driven(change, model.tolerances.obey) | ~change.kept))
    return LawAnswer(
        jump=Jump(
            v_after=jnp.where(acts, jump.v_after, v),
            Lam=jnp.where(acts, jump.Lam, 0.0),
            direction=jump.direction,
        ),
        acts=acts,
        failure_code=jnp.where(acts, code, Status.OK),
        change=change,
        kinetic=kinetic_energy(model, old.q, M, p),
    )


def _is_driven(change: ModeChange, obey: Number) -> Bool[Array, " m"]:
    """Which rows have the wrong rate. A persistent row that is now driven at another speed counts
    like a new one."""
    size = jnp.abs(change.G_after) @ jnp.abs(change.v_before) + jnp.abs(change.gt_after)
    return jnp.abs(change.rates(change.v_before)) > obey * size  # (3)


def kinetic_energy(model: Model, q: Configuration, M: Matrix, p: Params) -> Callable:
    """T(v) at q."""
    system = model.system
    if system.momentum is not None:
        return lambda v: system.kinetic(q, v, p)
    return lambda v: 0.5 * jnp.sum(v * (M @ v))


def change_mode(
    model: Model, point: Point, fired: GuardMask, law: AbstractLaw, p: Params
) -> tuple[Point, Event, Int[Array, ""]]:
    """The point after the mode change, its record and a status."""
    after = model.after(fired, point, p)
    here = SaddlePoint(model, after, p)
    answer = ask_law(model, point, here, point.v, law, p)
    landed, Lam = after_impact(model, here, answer.jump, p)
    code = verdict(model, point, landed, answer, here, p)
    record = record_of(point, landed, Lam, answer.jump.direction, answer.kinetic)
    return landed, record, code


def verdict(
    model: Model, point: Point, landed: Point, answer: LawAnswer, here: SaddlePoint, p: Params
) -> Int[Array, ""]:
    """The status of a mode change from `point` to `landed`."""
    code = status_of(model, landed, answer, here, p)
    gap = jnp.where(model.live(landed, p), model.rows(landed, p), 0.0)
    small = model.tolerances.meet * here.row_sizes * model.length(point, p)
    meets = jnp.all(jnp.abs(gap) <= small)  # (1)
    return jnp.where((code == Status.NO_MODE) | meets, code, Status.DO_NOT_MEET)


def after_impact(model: Model, here: SaddlePoint, jump: Jump, p: Params) -> tuple[Point, Array]:
    """The point after the impulse, in the mode after the impact, and the total impulse that led
    there."""
    landed = here.point.replace(v=jump.v_after)
    if not model.mode_depends_on_impact:
        return landed, jump.Lam
    landed = landed.replace(mode=model.mode_after_impact(landed, here.rest_speeds(), p))
    v, rest = project_velocity(model, landed, p)
    return landed.replace(v=v), jump.Lam + rest


def record_of(
    before: Point, landed: Point, Lam: Rows, direction: Jacobian, kinetic: Callable
) -> Event:
    return Event(
        t=before.t,
        mode_before=before.mode,
        mode_after=landed.mode,
        q=before.q,
        v_before=before.v,
        v_after=landed.v,
        Lam=Lam,
        direction=direction,
        kinetic_before=kinetic(before.v),
        kinetic_after=kinetic(landed.v),
    )


def status_of(
    model: Model, landed: Point, answer: LawAnswer, here: SaddlePoint, p: Params
) -> Int[Array, ""]:
    """The status of a mode change, without the test whether the new constraints hold."""
    # The mode after the impact has no further rows, so those of `here` serve for `landed` too.
    change = answer.change
    tolerance = model.tolerances.obey
    speeds = [jnp.sqrt(2 * answer.kinetic(v)) for v in (change.v_before, landed.v)]
    bound = tolerance * (here.row_sizes * sum(speeds) + jnp.abs(change.gt_after))
    obeyed = jnp.abs(change.rates(landed.v)) <= bound  # (2)
    obeys = jnp.all(~model.live(landed, p) | obeyed)
    code = jnp.where(obeys, Status.OK, Status.LAW_VIOLATES)
    code = jnp.where(answer.failure_code != Status.OK, answer.failure_code, code)
    return jnp.where(jnp.any(landed.mode == NO_MODE), Status.NO_MODE, code)
