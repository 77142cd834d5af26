"""Nonsmooth generalized-alpha with contacts and friction: positions, velocities, accelerations.

After Capobianco, Harsch, Eugster and Leine. H = (N, T) are the gradients of the contact rows,
normal and tangential, and each contact has three reactions ON the mechanism along +H: the force r
of the smooth motion, the impulse R of the step and the correction k of positions. Rows G of other
constraints hold at the same time, as in `nsdyn.integrators.nsga`.

    M v' + G^T lam = f + H^T r,   M W + G^T Lam = H^T R,   M U + G^T nu = N^T k                (1)
    q_1 = q_0 + dx + U,   v_1 = vt + W                                                         (2)

r is averaged as v' is, (2) of `nsdyn.integrators._alpha`, and what obeys the laws of contact are
the totals over the step:

    (1 - am) rb_1 + am rb_0 = (1 - af) r_1 + af r_0                                            (3)
    P = R + c,     c = h [(1 - gamma) rb_0 + gamma rb_1]                                       (4)
    kap = k + s,   s = h^2 [(1/2 - beta) rb_N0 + beta rb_N1]                                   (5)

    positions      0 <= gap(q_1),  kap >= 0,  gap kap = 0;              A: those that press    (6)
    velocities     in A: u = psi(v_1) + s(psi(v_0)) and P obey (3) and (4) of
                   `nsdyn.constraints.contacts`, elsewhere P = 0;       B: those that press    (7)
    accelerations  in B: 0 <= psi_N',  r_N >= 0,  psi_N' r_N = 0, elsewhere r = 0;
                   r_T in the ball of radius mu r_N, opposite to psi_T' on its surface, if the
                   contact sticks in (7); r_T = -mu r_N psi_T/|psi_T|(v_1) if it slips         (8)

That the totals are one-sided, not R and k, makes persistent contact second order.

The direction of friction. In (7) the impulse P_T of a step is opposite to the slip at its END, but
c is a mean over the step; where the slip turns, P_T - c_T = O(h^2) in every step, and the scheme is
of order 1 (friction="end", as published). Let t_0 and t_1 be the directions of the slip at both
ends of the step, and Q the rotation that takes t_1 to the direction of t_0 + t_1. With

    u_T = Q [psi_T(v_1) + s_T]                                                                 (9)

in (7), P_T is opposite to the mean direction, while the contact still sticks where psi_T(v_1) = 0,
since Q is a rotation. The mean of r_T over the step has that direction up to O(h^2), so P_T - c_T =
O(h^3) and the order is 2 (friction="mean"). Where the slip turns by less than a right angle,
friction takes energy: P_T is opposite to t_0 + t_1, whose product with psi_T(v_0) + psi_T(v_1) is
positive. How much the slip may turn is known at the start of the step, from |psi_T| and its change
d = h |d/dt psi_T|:

    SLOWLY d < |psi_T|     t_1 is the direction of the slip of vt
    d < |psi_T|            t_1 is that of psi_T + h d/dt psi_T at the start of the step
    else                   it may stop or turn back, and there is no mean direction: Q = 1    (10)

as in steps near a stop the slip of vt changes so much in the iteration that this would not
converge. These are a bounded number of steps before each stop, so that the order remains. Q = 1
also where a contact did not slip before; in the plane nothing turns.

s is the shift of the impact law (`nsdyn.laws.impact`); Newton's is E psi. With restitution a body
would hop for ever, by less than a step at last. There s_N counts as 0:

    |s_N| < h/2 |gap_q| |q''|,   q'' from the forces alone                                    (11)

Where a given force N presses (`nsdyn.Friction`) there is no (6), and r_N = max(0, N) in (8), P_N =
c_N in (7). A coefficient mu(s) that follows the speed of slip is that at the end of the step in
(8), and in (7)

    mu = [mu(s_0) + mu(s_1)]/2 where the contact slips at the start, else mu(s_0)             (12)

with s_1 that of vt, so that P_T - c_T = O(h^3) again.

Redundant contacts, such as the four corners of a box, have forces r and impulses P that are not
unique; what they do is. So the unknowns of the iteration are v', u = U/(beta h^2) and, in place of
r, with the responses B of `nsdyn.mechanics.contact_rows`,

    B r,   B_N r_N,   and r_N where a given force presses                                     (13)

which is all of r that (4) and (5) need. (6), (7) and (8) are solved inside the residual, (6) with
gap(q_1) linearised at the iterate; of the solutions of (8) it takes one near r_0. Its Jacobian is
the identity up to terms of the order of h, so Broyden's method serves. For the same reason the sets
follow from what is unique, not from which of the contacts carry a force:

    A  the gap that (6) leaves is 0,   up to `Tolerances.touch`
    B  u_N = 0 in (7),   and a contact sticks if u_T = 0,   up to STILL |u| without impulses  (14)

Otherwise a corner whose P_T is on the edge of the ball by chance would slip, in a direction that is
round-off.

A contact that lands would switch on its friction at the end of the step, which through the averages
moves q_1, by O(h^2), perhaps so that it does not land; then no step exists. So in steps in which
one may land friction moves q_1 as if it stayed what it was: to s N^T in U is added

    h^2 beta k T^T (r_T1 - r_T0),   k of `nsdyn.integrators._alpha`                           (15)

In sliding this is O(h^3), in the landing O(h^2), as all that a capturing scheme does there. One may
land that is open at the start and has

    gap_0 + h psi_N,0 <= d,   d of (3) of `nsdyn.integrators._contact_steps`                  (16)

After a step in which a contact opened, closed, began to stick or to slip, or turned back,
accelerations are no longer smooth: the averages start again from a = v', rb = r.

Differences from the paper: (9), (11), (14), (15), the new start of the averages, and that R_T has
no part in U (it would add h/2 T^T R_T: O(h^3) but for impacts, where q has errors of O(h) anyway).

G. Capobianco, J. Harsch, S. R. Eugster, R. I. Leine: A nonsmooth generalized-alpha method for
mechanical systems with frictional contact. Int. J. Numer. Methods Eng. 122 (2021) 6497-6526.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from nsdyn._jitted import traced_once
from nsdyn._types import Flag, Number, Params, Rows, Scalar, Velocity
from nsdyn.integrators._alpha import Alpha, AlphaStep
from nsdyn.integrators._contact_steps import Approach, ContactStep, shifted_law
from nsdyn.integrators._time_stepping import (
    AbstractContactMemory,
    NewMode,
    Step,
    projected,
)
from nsdyn.laws.base import AbstractLaw, Jump
from nsdyn.laws.impact import AbstractShiftedLaw
from nsdyn.mechanics import contact_rows as contacts
from nsdyn.mechanics.model import Model, Point
from nsdyn.mechanics.saddle_point import ROUND_OFF, SaddlePoint
from nsdyn.numerics import cone, small
from nsdyn.numerics.cone_problem import OPEN, SLIP, STICK, Scaling
from nsdyn.numerics.newton import Effort, Newton
from nsdyn.stepping.mode_change import LawAnswer

SLOWLY = 4.0  # slip, in units of its change in a step, of (10)
STILL = 1e-9  # rates that count as 0 in (14), relative to those without impulses

Forces = Float[Array, "k d"]
PerContact = Float[Array, " k"]


class ContactAlphaMemory(AbstractContactMemory):
    """Accelerations, reactions and the offsets of their averages.

    a, lam: v' and the multipliers at the end of the step.
    drift: what the recursion adds to a_0, divided by h (`AlphaMemory`).
    r, turn: the forces of the contacts there, and (rb - r)/h.
    P: the impulses of the contacts in the step.
    effort: the work of Newton's method in the step.
    """

    a: Float[Array, " n"]
    lam: Float[Array, " m"]
    drift: Float[Array, " n"]
    r: Forces
    turn: Forces
    P: Forces
    effort: Effort


class Settings(NamedTuple):
    """Of the scheme: the parameters of the recursion, Newton's method, and the direction of
    friction in a step, opposite to the "mean" slip or to that at the "end"; and whether more than
    Newton's method is tried for contacts, as in a step that is repeated."""

    c: Alpha
    newton: Newton
    friction: str
    thorough: bool


class Touching(eqx.Module):
    """The contacts of a step: their law, their rates before, whether they slip at its start, the
    forces r_0 and rb_0, the impulses from which the search starts, the turn of the slip, None if
    the impulse is opposite to the slip at the end, up to which size gaps count as 0, whether a
    contact may land, (16), and whether more than Newton's method is tried for (6) to (8), as in a
    step that is repeated."""

    law: AbstractShiftedLaw
    approach: Approach
    slips: Bool[Array, " k"]
    r: Forces
    rb: Forces
    P0: Forces
    turn: "Turn | None"
    touch: PerContact
    lands: Flag
    thorough: bool = eqx.field(static=True)


class Pressed(NamedTuple):
    """Forces at acceleration level: v', lam, r, the modes, and whether they were found."""

    a: Velocity
    lam: Rows
    r: Forces
    mode: Int[Array, " k"]
    solved: Array


def begin(model: Model, point: Point, p: Params, c: Alpha) -> tuple[Point, ContactAlphaMemory]:
    """The point with the modes of its contacts, and the memory there, when only (q, v) is known."""
    closed, rests = _at_rest(model, point, p)
    mode = jnp.where(closed, jnp.where(rests, STICK, SLIP), OPEN)

    def accelerations(q: Array, v: Velocity, t: Array) -> tuple[Velocity, Forces, Pressed]:
        here = SaddlePoint(model, point.replace(t=t, q=q, v=v), p)
        rows = contacts.ContactRows(here)
        start = jnp.zeros(rows.shape)
        found = _pressed(here, rows, v, mode, start)
        return found.a, found.r, found

    here = (point.q, point.v, point.t)
    a, r, found = accelerations(*here)
    along = (model.qdot(point, p), a, jnp.ones_like(point.t))
    jerk, turn = jax.jvp(lambda *x: accelerations(*x)[:2], here, along)[1]
    memory = ContactAlphaMemory(
        a=a,
        lam=found.lam,
        drift=c.D * jerk,
        r=r,
        turn=c.D * turn,
        P=jnp.zeros_like(r),
        effort=Effort.none(),
    )
    return contacts.with_modes(model, point, found.mode), memory


def _at_rest(model: Model, point: Point, p: Params) -> tuple[Bool[Array, " k"], Bool[Array, " k"]]:
    """Which contacts are closed, and which of them do not slip, up to what the forces do in a
    small part of a step."""
    here = SaddlePoint(model, point, p)
    rows = contacts.ContactRows(here)
    a, _ = here.solve(here.f(point.v), -here.gamma(point.v))
    pull = jnp.abs(rows.rates(a) + contacts.padded(model, here.gamma(point.v)))
    speed = jnp.sqrt(2 * model.system.kinetic(point.q, point.v, p))
    sizes = jnp.sqrt(jnp.maximum(jnp.diagonal(rows.W), 0.0)).reshape(rows.shape)
    slow = model.tolerances.rest * model.step * pull + ROUND_OFF * sizes * speed
    psi = contacts.padded(model, here.psi(point.v))
    touch = model.scale.touch * contacts.sizes_of_gaps(model, point, p)
    closed = (contacts.gaps(model, point, p) <= touch) & (psi[:, 0] <= slow[:, 0])
    return closed, jnp.all(jnp.abs(psi[:, 1:]) <= slow[:, 1:], axis=1)


def advance(
    settings: Settings,
    model: Model,
    point: Point,
    memory: ContactAlphaMemory,
    h: Number,
    p: Params,
    law: AbstractLaw,
    new_mode: NewMode | None,
) -> Step:
    """One step of size h from `point`, in its mode or into the new one."""
    c, newton, friction, thorough = settings
    move = AlphaStep.plain(c, model, point, memory.a, memory.drift, h)
    touching = _touching(model, point, memory, move, friction, law, p, thorough)
    args = (model, point, move, touching, p, new_mode)
    n = point.v.shape[0]
    rows = contacts.ContactRows(SaddlePoint(model, point, p))
    x0 = jnp.concatenate([memory.a, jnp.zeros(n), *Effect.of(rows, memory.r, touching.lands)])
    weights = _weights(model, point, rows, p)
    noise = move.noise(model, point, weights[:n], newton.tolerance, p)
    residual = lambda x, args: x - _next(x, *args)
    x, effort = newton.solve(residual, x0, args, noise, weights, near_identity=True)
    at = _solved(x, *args)
    return Step(
        contacts.with_modes(model, at.end, at.mode),
        _remembered(model, point, memory, move, x, at, effort),
        at.found,
        move.velocity(x[:n]),
        at.contact,
    )


def _weights(
    model: Model, point: Point, rows: contacts.ContactRows, p: Params
) -> Float[Array, " unknowns"]:
    """Factors that give the unknowns a common unit: the roots of the masses, and of W for given
    forces."""
    n = point.v.shape[0]
    one = jnp.broadcast_to(model.system.weights(point.q, p), (n,))
    given = jnp.sqrt(jnp.maximum(rows.diagonal[:, 0], 0.0))[rows.pressed]
    return jnp.concatenate([one, one, one, one, given])


def _touching(
    model: Model,
    point: Point,
    memory: ContactAlphaMemory,
    move: AlphaStep,
    friction: str,
    law: AbstractLaw,
    p: Params,
    thorough: bool,
) -> Touching:
    before = contacts.padded(model, model.psi(point, p))
    ahead = contacts.gaps(model, point, p) + move.h * before[:, 0]
    touch = model.scale.touch * contacts.sizes_of_gaps(model, point, p)
    near = ahead <= touch
    rule = shifted_law(law)
    mode = contacts.modes(model, point)
    slips = mode == SLIP
    turn = None
    if friction == "mean" and before.shape[1] > 2:  # in the plane nothing turns
        turn = _foreseen(model, point, before, memory.a, slips, move.h, p)
    approach = Approach.of(model, point, before, near, rule, True, move.h, p)  # (11)
    return Touching(
        law=rule,
        approach=approach,
        slips=slips,
        r=memory.r,
        rb=memory.r + move.h * memory.turn,
        P0=memory.P,
        turn=turn,
        touch=touch,
        lands=jnp.any((mode == OPEN) & (ahead <= touch + approach.reach)),  # (16)
        thorough=thorough,
    )


class Turn(NamedTuple):
    """The turn of the slip in a step, (10): t_0 and t_1 as foreseen at the start, zero where Q = 1,
    and where t_1 is that of vt instead."""

    start: Float[Array, "k t"]
    end: Float[Array, "k t"]
    slowly: Bool[Array, "k 1"]

    def apply(self, rates: Forces, *rows: Float[Array, "k d c"]) -> list[Float[Array, "k d c"]]:
        """Q x of (9) for all these rows; `rates` are those of vt."""
        end = jnp.where(self.slowly, _unit(rates[:, 1:]), self.end)
        mean = _unit(self.start + end)
        total = end + mean
        size = 1 + jnp.sum(end * mean, axis=1)
        found = []
        for x in rows:
            along = jnp.einsum("kt,ktc->kc", total, x[:, 1:]) / size[:, None]
            ahead = 2 * jnp.einsum("kt,ktc->kc", end, x[:, 1:])
            turned = (
                x[:, 1:] - total[:, :, None] * along[:, None] + mean[:, :, None] * ahead[:, None]
            )
            found.append(jnp.concatenate([x[:, :1], turned], axis=1))
        return found


def _foreseen(
    model: Model,
    point: Point,
    psi: Forces,
    a: Velocity,
    slips: Bool[Array, " k"],
    h: Scalar,
    p: Params,
) -> Turn:
    """The turn of the slip in the step; psi and the acceleration a are those at its start."""
    rates = lambda q, v, t: model.psi(point.replace(q=q, v=v, t=t), p)
    along = (model.qdot(point, p), a, jnp.ones_like(point.t))
    change = jax.jvp(rates, (point.q, point.v, point.t), along)[1]
    slip, change = psi[:, 1:], h * contacts.padded(model, change)[:, 1:]
    square = lambda x: jnp.sum(x * x, axis=1, keepdims=True)
    faster = lambda factor: slips[:, None] & (factor**2 * square(change) < square(slip))
    only = lambda t: jnp.where(faster(1.0), t, 0.0)  # (10)
    return Turn(only(_unit(slip)), only(_unit(slip + change)), faster(SLOWLY))


class Effect(NamedTuple):
    """What forces of the contacts, or impulses, do: the unknowns (13).

    full: B r. pushed: the part of it that kap takes over, B_N r_N, or B r where contacts may land.
    given: r_N where given forces press.
    """

    full: Velocity
    pushed: Velocity
    given: Float[Array, " pressed"]

    @staticmethod
    def of(rows: contacts.ContactRows, r: Forces, lands: Flag) -> "Effect":
        full = small.matvec(rows.B, r.reshape(-1))
        normal = small.matvec(rows.B[:, :: rows.shape[1]], r[:, 0])
        return Effect(full, jnp.where(lands, full, normal), r[rows.pressed, 0])

    @staticmethod
    def among(x: Float[Array, " effects"], n: int) -> "Effect":
        return Effect(x[:n], x[n : 2 * n], x[2 * n :])


class Solved(NamedTuple):
    """The right-hand sides for the unknowns, the multipliers, the end of the step, the answer of
    the law, and the contacts: forces, impulses, modes, and what the step knows of them."""

    x: Array
    lam: Rows
    end: Point
    found: LawAnswer | None
    r: Forces
    P: Forces
    mode: Int[Array, " k"]
    contact: ContactStep


@traced_once
def _next(x: Float[Array, " unknowns"], *args: Any) -> Float[Array, " unknowns"]:
    """The right-hand sides for the unknowns."""
    return _solved(x, *args).x


def _solved(
    x: Float[Array, " unknowns"],
    model: Model,
    point: Point,
    move: AlphaStep,
    touching: Touching,
    p: Params,
    new_mode: NewMode | None,
) -> Solved:
    n = point.v.shape[0]
    dv = x[:n]
    length = move.c.beta * move.h**2
    U = length * x[n : 2 * n]
    effect = Effect.among(x[2 * n :], n)
    free = move.velocity(dv)
    q = model.system.moved(point.q, move.increment(dv) + U, p)  # (2)
    end = point.replace(t=point.t + move.h, q=q, v=free)
    end = end if new_mode is None else new_mode.enter(end)
    here = SaddlePoint(model, end, p)
    rows = contacts.ContactRows(here)
    c, given, s = _totals(rows, effect, touching, move)
    U, pushed, left = _pushed(here, rows, U, s, touching, move.h)
    found = None if new_mode is None else new_mode.ask_law(model, point, here, free, p)
    jump = projected(here, free) if found is None else found.jump
    other = jump.v_after - c
    on = (pushed.mode != OPEN) | (left <= touching.touch) | rows.pressed  # (14)
    problem, rates = _velocities(here, rows, jump.v_after, other, given, touching, on)
    answer = problem.solve(touching.P0, thorough=touching.thorough)
    end = end.replace(v=other + small.matvec(rows.B, answer.P.reshape(-1)))  # (1), (4)
    mode = _modes(problem, answer)
    at = _pressed(here, rows, end.v, mode, touching.r, touching.thorough)
    R = answer.P - _impulses(at.r, touching, move)
    jump = Jump(*rows.landed(*jump, R))._replace(v_after=end.v)
    found = None if found is None else found._replace(jump=jump)
    solved = pushed.solved & answer.solved & at.solved
    known = (jump, rows, rates, rows.moving(answer.P), touching.approach, touching.law)
    return Solved(
        x=jnp.concatenate([at.a, U / length, *Effect.of(rows, at.r, touching.lands)]),
        lam=at.lam + jump.Lam / move.h,
        end=end,
        found=found,
        r=at.r,
        P=answer.P,
        mode=mode,
        contact=ContactStep.of(problem, solved, *known),
    )


def _modes(problem: contacts.ContactProblem, answer: cone.Answer) -> Int[Array, " k"]:
    """The modes of (7), by (14)."""
    scaling = Scaling.of(problem.W, problem.b, problem.on)
    b = problem.b
    u = small.matvec(problem.W, answer.P.reshape(-1)).reshape(b.shape) + b
    u = scaling.r[:, None] * u
    still = STILL * scaling.c
    closed = (answer.mode != OPEN) | (scaling.on & (u[:, 0] <= still))
    rests = jnp.sum(u[:, 1:] ** 2, axis=1) <= still**2
    return jnp.where(closed, jnp.where(rests, STICK, SLIP), OPEN)


def _averaged(c: Alpha, r: Forces, r0: Forces, rb0: Forces) -> Forces:
    """rb_1 of (3)."""
    return ((1 - c.af) * r + c.af * r0 - c.am * rb0) / (1 - c.am)


def _totals(
    rows: contacts.ContactRows, r: Effect, touching: Touching, move: AlphaStep
) -> tuple[Velocity, Float[Array, " pressed"], Velocity]:
    """B c and the given normal forces in c, (4), and B_N s of (5) with (15). Of the forces at the
    end only r is known; what the others add is that of r_1 = 0."""
    h = move.h
    k = move.c.k
    beta = move.c.beta
    late = h * move.c.gamma * k
    c = Effect.of(rows, _impulses(jnp.zeros_like(touching.r), touching, move), touching.lands)
    rb = _averaged(move.c, jnp.zeros_like(touching.r), touching.r, touching.rb)
    s = h * h * ((0.5 - beta) * touching.rb + beta * rb)
    kept = jnp.where(touching.lands, -h * h * beta * k * touching.r, 0.0)
    s = jnp.concatenate([s[:, :1], kept[:, 1:]], axis=1).reshape(-1)
    s = small.matvec(rows.B, s) + h * h * beta * k * r.pushed  # (5), (15)
    return c.full + late * r.full, c.given + late * r.given, s  # (4)


def _impulses(r: Forces, touching: Touching, move: AlphaStep) -> Forces:
    """c of (4)."""
    gamma = move.c.gamma
    rb = _averaged(move.c, r, touching.r, touching.rb)
    return move.h * ((1 - gamma) * touching.rb + gamma * rb)


def _pushed(
    here: SaddlePoint,
    rows: contacts.ContactRows,
    U: Velocity,
    s: Velocity,
    touching: Touching,
    h: Scalar,
) -> tuple[Velocity, cone.Answer, PerContact]:
    """The next U, kap of (6), and the gaps that it leaves; s is B_N s."""
    d = rows.shape[1]
    B = rows.B[:, ::d]
    other = here.smallest_motion_of_positions(small.matvec(here.G, U) - here.g())
    gaps = contacts.gaps(here.model, here.point, here.p)
    b = gaps + rows.normal_rates(other - U - s)
    start = 0.5 * h * h * touching.r[:, :1]
    on = jnp.ones(b.shape, bool)
    given = (rows.W[::d, ::d], b[:, None], jnp.zeros_like(b), on, start)
    found = cone.solve(*given, thorough=touching.thorough)
    left = small.matvec(rows.W[::d, ::d], found.P[:, 0]) + b
    return other + small.matvec(B, found.P[:, 0]) - s, found, left  # (5)


def _velocities(
    here: SaddlePoint,
    rows: contacts.ContactRows,
    v: Velocity,
    other: Velocity,
    given: Float[Array, " pressed"],
    touching: Touching,
    on: Bool[Array, " k"],
) -> tuple[contacts.ContactProblem, Forces]:
    """The problem (7), with (9), and the rates without impulses of the contacts; v is the velocity
    that the other constraints leave, with the forces of the contacts, and `other` without them;
    `given` are the impulses where given forces press."""
    rates = contacts.padded(here.model, here.psi(v))
    pressing = jnp.zeros(on.shape).at[np.flatnonzero(rows.pressed)].set(given)
    free = contacts.padded(here.model, here.psi(other)) + rows.given(pressing)
    b = free + touching.approach.shift
    W = rows.W
    if touching.turn is not None:
        turned = touching.turn.apply(rates, W.reshape(*rows.shape, -1), b[:, :, None])
        W, b = turned[0].reshape(W.shape), turned[1][:, :, 0]
    mu = _mean_friction(here, rates, touching)
    return contacts.ContactProblem(W=W, b=b, mu=mu, on=on), free


def _mean_friction(here: SaddlePoint, rates: Forces, touching: Touching) -> PerContact:
    """mu of (7): that at the start of the step or, where a contact slips, (12)."""
    before = touching.approach.mu
    speeds = contacts.speeds(here.model, rates, jnp.full(before.shape, SLIP))
    if speeds is None:
        return before
    mu = contacts.coefficients(here.model, here.p, speeds).mu
    return jnp.where(touching.slips, 0.5 * (before + mu), before)


def _pressed(
    here: SaddlePoint,
    rows: contacts.ContactRows,
    v: Velocity,
    mode: Int[Array, " k"],
    start: Forces,
    thorough: bool = False,
) -> Pressed:
    """The forces of (8), with the modes of (7)."""
    k, d = rows.shape
    model = here.model
    psi = contacts.padded(model, here.psi(v))
    mu = contacts.coefficients(model, here.p, contacts.speeds(model, psi, mode)).mu
    gamma = here.gamma(v)
    a, lam = here.solve(here.f(v), -gamma)
    pressing = contacts.normal_forces(model, here.point.replace(v=v), here.p)
    b = rows.rates(a) + contacts.padded(model, gamma) + rows.given(pressing)
    slips = mode == SLIP
    t = _unit(psi[:, 1:])
    follow = jnp.where(slips[:, None], -mu[:, None] * t, 0.0)  # r_T = follow r_N where it slips
    columns = rows.W.reshape(k * d, k, d)
    normal = columns[:, :, 0] + jnp.einsum("ikt,kt->ik", columns[:, :, 1:], follow)
    W = jnp.concatenate([normal[:, :, None], columns[:, :, 1:]], axis=2).reshape(k * d, k * d)
    given = jnp.concatenate([jnp.zeros((k, 1), bool), jnp.repeat(slips[:, None], d - 1, 1)], axis=1)
    given = given.reshape(-1)
    W = jnp.where(given[:, None] | given[None, :], 0.0, W)
    on = mode != OPEN
    found = cone.solve(W, b, jnp.where(slips, 0.0, mu), on, start, thorough=thorough)
    r = found.P.at[:, 1:].add(follow * found.P[:, :1])
    flat = r.reshape(-1)
    lam = lam + small.matvec(rows.C, flat) - contacts.spread(here.model, r)
    sets = jnp.where(slips & (found.mode != OPEN), SLIP, found.mode)
    return Pressed(a + small.matvec(rows.B, flat), lam, r, sets, found.solved)


def _unit(x: Float[Array, "k t"]) -> Float[Array, "k t"]:
    """x/|x| row by row; zero, with derivative zero, where x = 0."""
    square = jnp.sum(x * x, axis=1, keepdims=True)
    some = square > 0
    return jnp.where(some, x / jnp.sqrt(jnp.where(some, square, 1.0)), 0.0)


def _remembered(
    model: Model,
    point: Point,
    memory: ContactAlphaMemory,
    move: AlphaStep,
    x: Float[Array, " unknowns"],
    at: Solved,
    effort: Effort,
) -> ContactAlphaMemory:
    """The memory at the end of a step; the averages start again where accelerations jumped."""
    n = point.v.shape[0]
    kept = move.memory(x[:n], at.lam, effort)
    r = at.r
    rb = _averaged(move.c, r, memory.r, memory.r + move.h * memory.turn)
    back = jnp.sum(r[:, 1:] * memory.r[:, 1:], axis=1) < 0
    jumped = jnp.any(back | (at.mode != contacts.modes(model, point)))
    return ContactAlphaMemory(
        a=kept.a,
        lam=at.lam,
        drift=jnp.where(jumped, 0.0, kept.drift),
        r=r,
        turn=jnp.where(jumped, 0.0, (rb - r) / move.h),
        P=at.P,
        effort=effort,
    )
