"""The theta scheme of Moreau and Jean, for constraints with modes.

    M (v_1 - v_0) - h [theta f_1 + (1 - theta) f_0] + G_E^T P = 0,   G+ v_1 + g_t+ = 0           (1)
    q_1 = q_0 + h [theta v_1 + (1 - theta) v_0] + U                                              (2)
    M U + G+^T nu = 0,  g+(q_1, t_1) = 0    with projection; without it U = 0                    (3)

f_0 and f_1 are evaluated at the ends of the step, G at q_1, and M at q_1 in products with G and at
q_theta = q_0 + theta (q_1 - q_0) in products with f. Reactions and impulses are not distinguished:
both are part of P, and P/h is reported as lam. (1) is the impulse law on the free velocity

    vf = v_0 + h M^-1 [theta f_1 + (1 - theta) f_0]                                              (4)

and, without an event, the projection of vf onto the constraints. (1) and (3) are solved together
("combined projection"), with the unknowns v_1 and u = U/h. theta = 1/2 conserves the energy of
linear systems, larger values dissipate. The scheme has order 1. The constraints hold at velocity
level and, with projection, at position level; without it every event leaves a gap of O(h).

Contacts with friction (`nsdyn.Contacts`): those that are closed, or about to close, when the step
begins,

    I = { i : gap_i(q_0, t_0) + s h psi_N,i(q_0, v_0, t_0) <= 0 },    s the forecast             (5)

take part in it with impulses P along +H that obey the laws of contact, for all of them together,
while the rows G hold:

    M (v_1 - vf) + G^T P_G - H^T P = 0,   u = psi(q_1, v_1, t_1) + s(psi(q_0, v_0, t_0))         (6)
    0 <= u_N,  P_N >= 0,  u_N P_N = 0,   P_T in the ball of radius mu P_N, opposite to u_T       (7)
    M U + G^T nu - N^T kap = 0,   y = gap(q_1) + h max(0, psi_N(v_1)),
    0 <= y,  kap >= 0,  y kap = 0                                              with projection   (8)

The projection (8) only pushes, and only out of an overlap that the contact does not leave by itself
in the next step: pushing a body that bounces would give it energy. A body then comes to rest with
gaps of 0, not within an overlap that holds it, so with projection s_N counts as 0 where a hop would
be shorter than a step,

    |s_N| < h/2 |gap_q| |q''| = c,   q'' from the forces alone                                   (9)

A contact that (5) leaves out although forces, or the reactions of others, close it within the step
would overlap, and the push out of it would open others: many bodies would never come to rest. So
with projection slow contacts within the reach d of these forces, (3) of
`nsdyn.integrators._contact_steps`, take part, too; they may close, but not overlap:

    gap_0 + s h psi_N,0 <= d  and  psi_N,0 >= -c:
    u_N = psi_N + [gap_0 + (1 - theta) h psi_N,0]/(theta h),  so  u_N = 0  is  gap_1 = 0        (10)

up to the change of the gradient in the step. This takes energy: for theta = 1/2 the mean of psi_N
over the step is -gap_0/h.

s is the shift of the impact law (`nsdyn.laws.impact`); Newton's is E psi.

Where a given force N presses (`nsdyn.Friction`) the normal impulse is

    P_N = h [theta N_1 + (1 - theta) N_0]                                                       (11)

and a coefficient of friction that follows the speed of slip is that at the start of the step. A
body at rest has gaps of 0 up to round-off, or up to the tolerance of the projection: without
projection values up to ROUND_OFF count as 0 in (5), with it up to `Tolerances.touch`.

A step with contacts is solved by Broyden's method, as the right-hand sides for (v_1, u) change by
O(h) with them. Where that fails the step is repeated by Newton's, unless there are more than DENSE
unknowns: compiling its Jacobian, with all derivatives of gaps and slips, would take minutes.

H is evaluated at q_1, or at q_0, which makes (6) linear in v_1 and is what Siconos does for bodies.
(5) is Siconos' rule too.

J. J. Moreau: Unilateral contact and dry friction in finite freedom dynamics. CISM 302 (1988) 1-82.
M. Jean: The non-smooth contact dynamics method. Comput. Methods Appl. Mech. Engrg. 177 (1999)
235-257. V. Acary, F. Perignon: Siconos, INRIA technical report 340 (2007).
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from nsdyn._types import Number, Params, Scalar, Velocity
from nsdyn.errors import ProblemError
from nsdyn.integrators._contact_steps import Approach, ContactStep, refusal, shifted_law
from nsdyn.integrators._time_stepping import (
    AbstractTimeStepping,
    ContactMemory,
    NewMode,
    Step,
    projected,
    sizes,
)
from nsdyn.laws.base import AbstractLaw, Jump
from nsdyn.laws.impact import AbstractShiftedLaw
from nsdyn.mechanics import contact_rows as contacts
from nsdyn.mechanics.model import Model, Point
from nsdyn.mechanics.saddle_point import SaddlePoint
from nsdyn.numerics.cone import Answer
from nsdyn.numerics.newton import NOISE, Effort, Newton
from nsdyn.stepping.mode_change import LawAnswer

ROUND_OFF = 1e-13  # of a gap, relative to its terms

PerContact = Float[Array, " k"]


def _theta(x: Any) -> Scalar:
    if not isinstance(x, jax.Array) and not (isinstance(x, int | float) and 0.5 <= x <= 1.0):
        raise ProblemError(f"MoreauJean(theta=...): expected a number from 1/2 to 1, found {x!r}")
    return jnp.asarray(x, float)


def _forecast(x: Any) -> Scalar:
    if not isinstance(x, jax.Array) and not (isinstance(x, int | float) and x >= 0.0):
        raise ProblemError(f"MoreauJean(forecast=...): expected a number >= 0, found {x!r}")
    return jnp.asarray(x, float)


class MoreauJean(AbstractTimeStepping):
    """The time-stepping scheme of Moreau and Jean: order 1, robust for many simultaneous events.

    theta: where in the step forces are evaluated, from 1/2 (conserves the energy of linear systems)
        to 1 (dissipates most).
    projection: whether positions are projected onto the constraints; without it every event leaves
        a gap of the order of the step.
    newton: tolerance and largest number of iterations of the implicit step, `nsdyn.Newton(...)`.
    forecast: of `Contacts`, those take part in a step that would be closed after this part of it.
    contact_rows: where in the step the gradients of `Contacts` are evaluated, at its "end" or at
        its "start".
    """

    theta: Any = eqx.field(converter=_theta, default=0.5)
    projection: bool = eqx.field(static=True, default=True)
    newton: Newton = eqx.field(default_factory=Newton)
    forecast: Any = eqx.field(converter=_forecast, default=0.5)
    contact_rows: Literal["end", "start"] = eqx.field(static=True, default="end")

    def __check_init__(self) -> None:
        if self.contact_rows not in ("end", "start"):
            raise ProblemError(
                "MoreauJean(contact_rows=...): expected 'end' or 'start', found "
                f"{self.contact_rows!r}"
            )

    @property
    def resolves_contacts(self) -> bool:
        return True

    @property
    def holds_position(self) -> bool:
        return self.projection

    def incompatibility(self, law: AbstractLaw, parts: tuple) -> str | None:
        if not self.projection and any(part.mode_depends_on_impact for part in parts):
            return (
                "a bouncing contact whose gap is still negative would count as open; use "
                "projection=True"
            )
        return refusal(law, parts)

    def init(self, model: Model, point: Point, p: Params) -> tuple[Point, Any]:
        here = SaddlePoint(model, point, p)
        a, lam = here.solve(here.f(point.v), -here.gamma(point.v))
        P = jnp.zeros(contacts.size(model)) if model.has_contacts else None
        return point, ContactMemory(a, lam, Effort.none(), P)

    def advance(
        self,
        model: Model,
        point: Point,
        memory: Any,
        h: Number,
        p: Params,
        law: AbstractLaw,
        new_mode: NewMode | None = None,
    ) -> Step:
        return self._advanced(model, point, memory, h, p, law, new_mode, by_newton=True)

    def attempt(
        self, model: Model, point: Point, memory: Any, h: Number, p: Params, law: AbstractLaw
    ) -> Step:
        return self._advanced(model, point, memory, h, p, law, None, by_newton=False)

    def _advanced(
        self,
        model: Model,
        point: Point,
        memory: Any,
        h: Number,
        p: Params,
        law: AbstractLaw,
        new_mode: NewMode | None,
        by_newton: bool,
    ) -> Step:
        """The step; of one with contacts, also by Newton's method if Broyden's fails."""
        n = point.v.shape[0]
        f0 = model.force(point, p)
        touching = None
        if model.has_contacts:
            touching = self._touching(model, point, h, law, p, by_newton)
        args = (self.theta, model, point, f0, h, p, new_mode, touching)
        x0 = jnp.concatenate([point.v + h * memory.a, jnp.zeros(n if self.projection else 0)])
        one = model.system.weights(point.q, p)
        weights = jnp.concatenate([jnp.broadcast_to(one, (n,))] * (2 if self.projection else 1))
        q, v, push = sizes(model, point, one, p)
        noise = NOISE * (v + q / h) + self.newton.tolerance * (h * push)
        if touching is None:
            residual = lambda x, args: x - _solved(x, *args).x
            x, effort = self.newton.solve(residual, x0, args, noise, weights)
            at = _solved(x, *args)
        else:
            first = Answers.first(memory.P, self.projection)
            start = (_next, x0, first, args, noise, weights)
            x, found, effort = self.newton.solve_keeping(*start, by_newton=by_newton)
            at = _solved(x, *args, found, is_known=True)
        end = at.end
        P = None
        if at.answers is not None:
            end = contacts.with_modes(model, end, at.answers.press.mode)
            P = at.answers.press.P
        memory = ContactMemory((end.v - point.v) / h, at.jump.Lam / h, effort, P)
        return Step(end, memory, at.found, at.free, at.contact)

    def _touching(
        self,
        model: Model,
        point: Point,
        h: Number,
        law: AbstractLaw,
        p: Params,
        thorough: bool,
    ) -> "Touching":
        """The contacts of the step."""
        before = contacts.padded(model, model.psi(point, p))
        gaps = contacts.gaps(model, point, p)
        ahead = gaps + self.forecast * h * before[:, 0]
        slope = contacts.gap_slopes(model, point, p)
        size = contacts.sizes_of_gaps(model, point, p, slope)
        closed = (model.scale.touch if self.projection else ROUND_OFF) * size
        on = ahead <= closed  # (5)
        rule = shifted_law(law)
        known = (rule, self.projection, h, p, slope)
        approach = Approach.of(model, point, before, on, *known)  # (9)
        if self.projection:
            lands = ~on & (ahead <= approach.reach) & (before[:, 0] >= -approach.slow)
            room = gaps + (1 - self.theta) * h * before[:, 0]
            approach = approach.with_landing(lands, room / (self.theta * h))  # (10)
            on = on | lands
        early = self.contact_rows == "start"
        return Touching(
            on=on,
            closed=closed,
            law=rule,
            approach=approach,
            normal=contacts.normal_forces(model, point, p),
            H=contacts.padded(model, model.jacobian(point, p)) if early else None,
            thorough=thorough,
        )


class Touching(eqx.Module):
    """The contacts of a step.

    on: which of them take part. closed: up to which size gaps count as 0.
    law, approach: their law, and their rates before.
    normal: the given normal forces at the start of the step.
    H: the gradients of the rows, if they are not those at the end of the step.
    thorough: whether more than Newton's method is tried for (7) and (8), as in a step that is
        repeated.
    """

    on: Bool[Array, " k"]
    closed: Float[Array, " k"]
    law: AbstractShiftedLaw
    approach: Approach
    normal: Float[Array, " k"]
    H: Float[Array, "k d n"] | None
    thorough: bool = eqx.field(static=True)


class Answers(NamedTuple):
    """What was found for (7), and for (8) with projection."""

    press: Answer
    push: Answer | None

    @staticmethod
    def first(P: Float[Array, "k d"], projection: bool) -> "Answers":
        """Where the search begins: at the impulses P."""
        push = Answer.none(jnp.zeros_like(P[:, :1])) if projection else None
        return Answers(Answer.none(P), push)


class Solved(NamedTuple):
    """The right-hand sides for (v_1, u), the jump, the end of the step, the free velocity, the
    answer of the law, and the contacts."""

    x: Array
    jump: Jump
    end: Point
    free: Array
    found: LawAnswer | None
    contact: ContactStep | None
    answers: Answers | None


def _next(
    x: Float[Array, " unknowns"], before: Answers, args: tuple
) -> tuple[Float[Array, " unknowns"], Answers | None]:
    """The right-hand sides for (v_1, u), and what was found on the way."""
    given = (*args, before)
    solved = _solved(x, *given)
    return solved.x, solved.answers


def _solved(
    x: Float[Array, " unknowns"],
    theta: Scalar,
    model: Model,
    point: Point,
    f0: Velocity,
    h: Number,
    p: Params,
    new_mode: NewMode | None,
    touching: Touching | None,
    before: Answers | None = None,
    is_known: bool = False,
) -> Solved:
    """The step with the unknowns x. What contacts need is found from what is known from before, or
    is_known already."""
    n = point.v.shape[0]
    v = x[:n]
    u = x[n:]
    dx = h * (theta * v + (1 - theta) * point.v + (u if u.shape[0] else 0.0))  # (2)
    system = model.system
    middle = system.moved(point.q, theta * dx, p)
    end = point.replace(t=point.t + h, q=system.moved(point.q, dx, p), v=v)
    f1 = model.force(end, p)
    free = point.v + h * system.solver(middle, p)(theta * f1 + (1 - theta) * f0)  # (4)
    end = end if new_mode is None else new_mode.enter(end)
    here = SaddlePoint(model, end, p)
    found = None if new_mode is None else new_mode.ask_law(model, point, here, free, p)
    jump = projected(here, free) if found is None else found.jump  # (1)
    contact = press = push = None

    def find(problem: Any, old: Any) -> Answer:
        assert touching is not None
        return problem.known(old) if is_known else problem.solve_from(old, touching.thorough)

    if touching is not None:
        assert before is not None
        forces = contacts.normal_forces(model, end, p)
        pressing = h * (theta * forces + (1 - theta) * touching.normal)  # (11)
        solve = functools.partial(find, old=before.press)
        jump, contact, press = _pressed(here, jump, point, touching, pressing, solve)
        found = None if found is None else found._replace(jump=jump)
    end = end.replace(v=jump.v_after)
    x = jump.v_after
    if u.shape[0]:
        U = here.smallest_motion_of_positions(here.G @ u - here.g() / h)  # (3)
        if touching is not None:
            assert before is not None
            solve = functools.partial(find, old=before.push)
            U, contact, push = _pushed(here, end.v, U, u, h, touching, contact, solve)
        x = jnp.concatenate([x, U])
    answers = None if press is None else Answers(press, push)
    return Solved(x, jump, end, free, found, contact, answers)


def _pressed(
    here: SaddlePoint,
    jump: Jump,
    start: Point,
    touching: Touching,
    pressing: PerContact,
    solve: Callable,
) -> tuple[Jump, ContactStep, Answer]:
    """The jump with the impulses of the contacts, (6) and (7)."""
    rows = contacts.ContactRows(here, touching.H, with_W=False)
    if touching.H is None:
        rates = contacts.padded(here.model, here.psi(jump.v_after))
    else:
        early = start.replace(v=jump.v_after, t=here.point.t)
        rates = contacts.padded(here.model, here.model.psi(early, here.p))
    approach = touching.approach
    problem = contacts.RowProblem(
        H=rows.H,
        B=rows.B,
        D=rows.D,
        b=rates + approach.shift + rows.given(pressing),
        mu=approach.mu,
        on=touching.on,
    )
    answer = solve(problem)
    jump = Jump(*rows.landed(*jump, answer.P))
    known = (rates, rows.moving(answer.P), approach, touching.law)
    step = ContactStep.of(problem, answer.solved, jump, rows, *known)
    return jump, step, answer


def _pushed(
    here: SaddlePoint,
    v: Velocity,
    U: Velocity,
    u: Velocity,
    h: Number,
    touching: Touching,
    contact: ContactStep | None,
    solve: Callable,
) -> tuple[Velocity, ContactStep, Answer]:
    """U of (8), the contacts with the verdict about it, and kap. If no overlap is deep there is
    only round-off to push out, which may be left where it is."""
    assert contact is not None
    rows = contacts.ContactRows(here, with_W=False)
    rates = contacts.padded(here.model, here.psi(v))[:, 0]
    gaps = contacts.gaps(here.model, here.point, here.p)
    left = gaps / h + jnp.where(rates > 0, rates, 0.0)
    deep = jnp.any(touching.on & (gaps < -touching.closed))
    problem = rows.push_problem(U, left - rows.normal_rates(u), touching.on)
    answer = solve(problem)
    kap = jnp.where(answer.solved | deep, answer.P[:, 0], 0.0)
    solved = contact.solved & (answer.solved | ~deep)
    contact = eqx.tree_at(lambda x: x.solved, contact, solved)
    return problem.pushed_out(U, kap), contact, answer
