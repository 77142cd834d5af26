"""One event of a mechanism with contacts: jump, next modes, record.

Contacts take part that were closed, and those whose gap is zero. psi are the rates of their rows,
of each contact the normal one N and those along the surface T.

1. Other constraints that changed their mode make the velocity jump, by the law for them.
2. If a contact approaches then, or (1) happened, an impact: the impulses P come from the impact law
   (`nsdyn.laws.impact`). e counts as 0 where the contact would leave with less than its rest speed,

       e |psi_N| <= rest h |c_N|,  c = psi' without forces of contacts, rest of `Tolerances`   (1)

   Contacts that leave no faster than that do not leave: their rate is removed in the mass metric.
3. Contacts that do not leave may stay closed. Their next modes follow from the same laws of contact
   for forces r and accelerations psi' = W r + c:

       0 <= psi_N',  r_N >= 0,  psi_N' r_N = 0                                                 (2)
       psi_T = 0:   r_T in the ball of radius mu r_N, opposite to psi_T' on its surface        (3)
       else:        r_T = -mu r_N t,  t = psi_T/|psi_T|                                        (4)

   A contact of kind (4) has one unknown, r_N, which acts along N - mu t T.
4. Where two modes are consistent memory decides, not (2) and (3): a contact whose r_N fell to zero
   opens; one that left its cone slips, along t = -r_T/|r_T|. Without this rule the mode just left
   may come back, for ever.
5. Friction may press a sliding contact harder than the load lifts it, W_NN - mu t W_NT <= 0. Then
   (2) to (4) may have no solution (Painleve). What helps is an impulse although nothing collides:
   the impact law for the velocity as it is, with e = 0, which stops the slip. If it does nothing
   the run ends with `Status.PAINLEVE`.

What is left of psi_N in closed contacts, and of psi_T in those that stick, is removed in the mass
metric.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nsdyn._types import GuardMask, Params, Velocity
from nsdyn.laws.base import AbstractLaw, Jump
from nsdyn.laws.impact import AbstractImpactLaw, Impact
from nsdyn.laws.newton import impact_law
from nsdyn.mechanics import contact_rows as contacts
from nsdyn.mechanics.closed_contacts import ClosedContacts, reactions
from nsdyn.mechanics.contact_rows import ContactRows
from nsdyn.mechanics.model import Model, Point
from nsdyn.mechanics.projection import project_velocity
from nsdyn.mechanics.saddle_point import ROUND_OFF, SaddlePoint
from nsdyn.numerics import cone, small
from nsdyn.numerics.cone_problem import OPEN, SLIP, STICK
from nsdyn.status import Status
from nsdyn.stepping.integrator import first_of
from nsdyn.stepping.log import Event
from nsdyn.stepping.mode_change import ask_law, record_of, status_of

ROUNDS = 2  # of impulse and next modes: the second one for (5)
ENOUGH = 1e-9  # of an acceleration, relative to its terms: less is none

PerContact = Float[Array, " k"]
ContactMask = Bool[Array, " k"]
Numbers = Float[Array, "k d"]


class Memory(NamedTuple):
    """What is known of the contacts from before an event.

    mode: their modes. r: their forces.
    left_N: those whose normal force fell to zero. left_T: those that left their cone, or whose slip
        came to an end.
    """

    mode: Int[Array, " k"]
    r: Numbers
    left_N: ContactMask
    left_T: ContactMask

    def forgotten_if(self, happened: Bool[Array, ""]) -> "Memory":
        """What still counts if there was an impact."""
        return self._replace(left_N=self.left_N & ~happened, left_T=self.left_T & ~happened)


class Next(NamedTuple):
    """The modes that follow: which, the directions of slip, and whether there are any."""

    mode: Int[Array, " k"]
    t: Float[Array, "k t"]
    solved: Bool[Array, ""]


class Meeting:
    """The contacts of a model where something happens to them."""

    def __init__(self, here: SaddlePoint, touching: ContactMask) -> None:
        model = here.model
        self.here = here
        self.model = model
        self.rows = ContactRows(here)
        self.laws = contacts.coefficients(model, here.p)
        self.touching = touching
        k, d = self.rows.shape
        diagonal = jnp.diagonal(self.rows.W).reshape(k, d)
        self.sizes = jnp.sqrt(jnp.maximum(diagonal, 0.0))

    def rates(self, v: Velocity) -> Numbers:
        """psi."""
        return contacts.padded(self.model, self.here.psi(v))

    def pull(self, v: Velocity) -> Numbers:
        """c of (1)."""
        gamma = self.here.gamma(v)
        a, _ = self.here.solve(self.here.f(v), -gamma)
        return self.rows.rates(a) + contacts.padded(self.model, gamma)

    def round_off(self, v: Velocity) -> Numbers:
        """The rates that are round-off of this motion, or of that at the start."""
        speed = jnp.sqrt(2 * self.model.system.kinetic(self.here.point.q, v, self.here.p))
        at_start = small.matvec(jnp.abs(self.rows.H), self.model.scale.v)
        size = self.sizes * speed + at_start.reshape(self.sizes.shape)
        return jax.lax.stop_gradient(ROUND_OFF * size)

    def rest_speeds(self, v: Velocity, c: Numbers) -> Numbers:
        """The rates that the forces take away in a part of the step, and round-off."""
        slow = self.model.tolerances.rest * self.model.step * jnp.abs(c)
        return jax.lax.stop_gradient(slow) + self.round_off(v)

    def next_modes(self, v: Velocity, memory: Memory) -> Next:
        """3. and 4."""
        c = self.pull(v)
        psi = self.rates(v)
        rest = self.rest_speeds(v, c)
        mu = self.laws.mu
        slip = psi[:, 1:]
        speed = _length(slip)
        still = speed <= _length(self.round_off(v)[:, 1:])
        ends = memory.left_T & (memory.mode == SLIP) & (speed <= _length(rest[:, 1:]))
        begins = memory.left_T & (memory.mode == STICK)
        still = (still | ends) & ~begins & (mu > 0)
        t = jnp.where(begins[:, None], -_unit(memory.r[:, 1:]), _unit(slip))
        may_stay = self.touching & (psi[:, 0] <= self.round_off(v)[:, 0])
        on = may_stay & ~memory.left_N
        W, c, mu = self._given(c, still, t)
        r0 = jnp.where(on[:, None], memory.r, 0.0)
        found = cone.solve(W, c, mu, on, r0)
        psi_N = small.matvec(W, found.P.reshape(-1)).reshape(c.shape)[:, 0] + c[:, 0]
        stuck = jnp.diagonal(W).reshape(c.shape)[:, 0] <= 0
        # A contact with stuck friction neither opens nor stays closed where its r_N vanished.
        falls = may_stay & stuck & (memory.left_N | (psi_N < -ENOUGH * jnp.max(jnp.abs(c))))
        closed = on & (found.mode != OPEN)
        mode = jnp.where(closed, jnp.where(still, found.mode, SLIP), OPEN)
        mode = jnp.where(falls, SLIP, mode)
        t = jnp.where(still[:, None], -_unit(found.P[:, 1:]), t)
        t = jnp.where((mode == SLIP)[:, None], t, 0.0)
        return Next(mode, jax.lax.stop_gradient(t), found.solved & ~jnp.any(falls))

    def settle(self, jump: Jump, hit: Bool[Array, ""]) -> Jump:
        """Contacts that leave an impact with no more than their rest speed do not leave."""
        v = jump.v_after
        psi = self.rates(v)
        small_rates = self.round_off(v)
        slow = self.touching & (psi[:, 0] <= self.rest_speeds(v, self.pull(v))[:, 0])
        still = _length(psi[:, 1:]) <= _length(small_rates[:, 1:])
        mode = jnp.where(slow, jnp.where(still, STICK, SLIP), OPEN)
        zero = jnp.zeros_like(psi)
        P = reactions(self.rows.W, psi, mode, zero[:, 0], zero[:, 1:])
        leaves = jnp.any(slow & (psi[:, 0] > small_rates[:, 0]))
        P = jnp.where(hit & leaves, P, 0.0)
        return Jump(*self.rows.landed(*jump, P))

    def _given(
        self, c: Numbers, still: ContactMask, t: Float[Array, "k t"]
    ) -> tuple[Float[Array, "kd kd"], Numbers, PerContact]:
        """W, c and mu with contacts of kind (4) reduced to their normal row."""
        k, d = c.shape
        W = self.rows.W.reshape(k * d, k, d)
        given = ~still
        along = W[:, :, 0] - jnp.einsum("mkt,kt->mk", W[:, :, 1:], self.laws.mu[:, None] * t)
        normal = jnp.where(given[None, :], along, W[:, :, 0])
        full = jnp.concatenate([normal[:, :, None], W[:, :, 1:]], axis=2).reshape(k * d, k * d)
        keep = (jnp.arange(d) == 0)[None, :] | still[:, None]
        rows = keep.reshape(-1)
        full = jnp.where(rows[:, None] & rows[None, :], full, 0.0)
        return full, jnp.where(keep, c, 0.0), jnp.where(given, 0.0, self.laws.mu)


def _length(x: Float[Array, "k t"]) -> PerContact:
    square = jnp.sum(x * x, axis=1)
    some = square > 0
    return jnp.where(some, jnp.sqrt(jnp.where(some, square, 1.0)), 0.0)


def _unit(x: Float[Array, "k t"]) -> Float[Array, "k t"]:
    length = _length(x)
    return x / jnp.where(length > 0, length, 1.0)[:, None]


def touching(model: Model, point: Point, p: Params) -> ContactMask:
    """Contacts whose gap is zero."""
    size = contacts.sizes_of_gaps(model, point, p)
    return contacts.gaps(model, point, p) <= model.scale.touch * size


def settled(model: Model, point: Point, p: Params) -> Point:
    """The point at the start of a run, with contacts that rest or slide in their modes. One that
    approaches stays open, and so falls at once."""
    k, d = contacts.size(model)
    meeting = Meeting(SaddlePoint(model, point, p), touching(model, point, p))
    approaches = meeting.rates(point.v)[:, 0] < -meeting.round_off(point.v)[:, 0]
    meeting.touching = meeting.touching & ~approaches
    none = jnp.zeros(k, bool)
    memory = Memory(jnp.zeros(k, int), jnp.zeros((k, d)), none, none)
    found = meeting.next_modes(point.v, memory)
    return contacts.with_directions(model, contacts.with_modes(model, point, found.mode), found.t)


class Landing(NamedTuple):
    """A velocity after impulses, with what led there and what follows.

    jump: velocity and impulses. next: the modes that follow.
    code: why there was no answer, or OK.
    """

    jump: Jump
    next: Next
    code: Int[Array, ""]


def change_contacts(
    model: Model, point: Point, fired: GuardMask, law: AbstractLaw, p: Params
) -> tuple[Point, Event, Int[Array, ""]]:
    """The point after the event, its record and a status."""
    impacts = impact_law(law)
    after = model.after(fired, point, p)
    here = SaddlePoint(model, after, p)
    answer = ask_law(model, point, here, point.v, impacts.bilateral, p)  # 1.
    mode = contacts.modes(model, point)
    fired_N, fired_T = contacts.shares_of_guards(model, fired)
    fired_N, fired_T = fired_N.astype(bool), fired_T.astype(bool)
    memory = Memory(
        mode=mode,
        r=ClosedContacts(model, point, p).motion()[2],
        left_N=fired_N & (mode != OPEN),
        left_T=fired_T & (mode != OPEN),
    )
    meeting = Meeting(here, touching(model, after, p) | (mode != OPEN) | fired_N)
    found = _rounds(meeting, answer.jump, point.v, answer.acts, memory, impacts)
    landed = contacts.with_modes(model, after, found.next.mode)
    landed = contacts.with_directions(model, landed, found.next.t)
    landed = landed.replace(v=found.jump.v_after)
    v, rest = project_velocity(model, landed, p)
    landed = landed.replace(v=v)
    answer = answer._replace(jump=found.jump)
    code = status_of(model, landed, answer, here, p)
    code = jnp.where(code == Status.OK, found.code, code)
    return landed, record_of(point, landed, found.jump.Lam + rest, answer), code


def _rounds(
    meeting: Meeting,
    jump: Jump,
    v_before: Velocity,
    acts: Bool[Array, ""],
    memory: Memory,
    law: AbstractImpactLaw,
) -> Landing:
    """2. to 5.: an impact if there is one, the next modes, and if there are none once more with an
    impulse."""

    def one(found: Landing, first: Bool[Array, ""]) -> tuple[Landing, None]:
        wanted = jnp.where(first, True, ~found.next.solved)
        jump, hit, code = _impact(meeting, found.jump, v_before, acts, memory, law, first)
        next_modes = meeting.next_modes(jump.v_after, memory.forgotten_if(hit))
        paradox = ~next_modes.solved & ~first
        code = first_of(
            (found.code != Status.OK, found.code),
            (code != Status.OK, code),
            (paradox, jnp.asarray(int(Status.PAINLEVE))),
        )
        new = Landing(jump, next_modes, code)
        return jax.tree.map(lambda a, b: jnp.where(wanted, a, b), new, found), None

    k, d = meeting.rows.shape
    nothing = Next(memory.mode, jnp.zeros((k, d - 1)), jnp.zeros((), bool))
    start = Landing(jump, nothing, jnp.zeros((), int))
    return jax.lax.scan(one, start, jnp.arange(ROUNDS) == 0)[0]


def _impact(
    meeting: Meeting,
    jump: Jump,
    v_before: Velocity,
    acts: Bool[Array, ""],
    memory: Memory,
    law: AbstractImpactLaw,
    first: Bool[Array, ""],
) -> tuple[Jump, Bool[Array, ""], Int[Array, ""]]:
    """2., or the impulse of 5.: the jump, whether there is an impulse, and a status."""
    v = jump.v_after
    free = meeting.rates(v)
    small_rates = meeting.round_off(v)
    approaches = meeting.touching & (free[:, 0] < -small_rates[:, 0])
    hit = jnp.where(first, acts | jnp.any(approaches), True)
    before = jnp.where(first, meeting.rates(v_before), free)
    c = meeting.pull(v)
    E = meeting.laws.E
    slow = jnp.abs(E[:, 0] * before[:, 0]) <= meeting.rest_speeds(v, c)[:, 0]  # (1)
    E = E.at[:, 0].set(jnp.where(slow, 0.0, E[:, 0]))
    E = jnp.where(first, E, 0.0)
    all_stick = jnp.full(memory.mode.shape, STICK)
    P0 = reactions(meeting.rows.W, free, all_stick, meeting.laws.mu, free[:, 1:])
    impact = Impact(
        W=meeting.rows.W,
        before=before,
        free=free,
        mu=meeting.laws.mu,
        E=E,
        on=meeting.touching,
        kept=memory.mode != OPEN,
        P0=jnp.where(first, 0.0, P0),
    )
    pressed = law.impulses(impact)
    P = jnp.where(hit, pressed.P, 0.0)
    gain = law.gain_code(impact, P)
    code = first_of((hit & ~pressed.solved, jnp.asarray(int(Status.CONTACT_UNSOLVED))), (hit, gain))
    return meeting.settle(Jump(*meeting.rows.landed(*jump, P)), hit), hit, code
