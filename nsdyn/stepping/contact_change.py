"""One event of a mechanism with contacts: jump, next modes, record.

Contacts take part that were closed, and those whose gap is zero. psi are the rates of their rows,
of each contact the normal one N and those along the surface T.

1. Other constraints that changed their mode make the velocity jump, by the law for them.
2. If a contact approaches then, or 1. happened, an impact: the impulses P come from the impact law
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
   may come back, for ever. Where contacts are redundant, one of them may leave its cone while
   others stick, so that nothing moves: it has the mode slip, is at the edge of its cone, and holds
   the direction in which it would slip. When the last of the others leaves its cone, all slip.
5. Friction may press a sliding contact harder than the load lifts it, W_NN - mu t W_NT <= 0. Then
   (2) to (4) may have no solution (Painleve). What helps is an impulse although nothing collides:
   the impact law for the velocity as it is, with e = 0, which stops the slip. If it does nothing
   the run ends with `Status.PAINLEVE`.

Impulses and next modes are found in a few rounds: the first one as a rule suffices; another one
searches from another start if the impulses were not found, or serves 5. What round-off leaves of
psi_N in closed contacts, and of psi_T in those that stick, is removed in the mass metric.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nsdyn._types import GuardMask, Params, Velocity
from nsdyn.laws.base import AbstractLaw, Jump
from nsdyn.laws.impact import AbstractImpactLaw, Impact
from nsdyn.laws.newton import impact_law
from nsdyn.mechanics import contact_rows as contacts
from nsdyn.mechanics.closed_contacts import ClosedContacts, reactions
from nsdyn.mechanics.contact_rows import Coefficients, ContactRows
from nsdyn.mechanics.model import Model, Point
from nsdyn.mechanics.saddle_point import ROUND_OFF, SaddlePoint
from nsdyn.numerics import cone, small
from nsdyn.numerics.cone_problem import OPEN, SLIP, STICK
from nsdyn.status import Status
from nsdyn.stepping.integrator import first_of
from nsdyn.stepping.log import Event
from nsdyn.stepping.mode_change import ask_law, kinetic_energy, record_of, verdict

ROUNDS = 3
STARTS = (0.0, 1.0, 2.0)  # of the search for impulses in each: times those with which all stick
ENOUGH = 1e-9  # of an acceleration, relative to the largest: less is none

PerContact = Float[Array, " c"]
ContactMask = Bool[Array, " c"]
Numbers = Float[Array, "c d"]
Directions = Float[Array, "c t"]


class Memory(eqx.Module):
    """What is known of the contacts from before an event.

    mode: their modes. r: their forces. t: the directions of slip that they hold.
    lifts: those whose normal force fell to zero. breaks: those that left their cone.
    stops: those whose slip came to an end.
    """

    mode: Int[Array, " c"]
    r: Numbers
    t: Directions
    lifts: ContactMask
    breaks: ContactMask
    stops: ContactMask

    @staticmethod
    def none(k: int, d: int) -> "Memory":
        no = jnp.zeros(k, bool)
        return Memory(jnp.full(k, OPEN), jnp.zeros((k, d)), jnp.zeros((k, d - 1)), no, no, no)

    @staticmethod
    def of(model: Model, point: Point, fired: GuardMask, r: Numbers) -> "Memory":
        """What is known where these guards fired."""
        mode = contacts.modes(model, point)
        normal, tangential = (x > 0 for x in contacts.shares_of_guards(model, fired.astype(int)))
        return Memory(
            mode=mode,
            r=r,
            t=contacts.held_directions(model, point)[0],
            lifts=normal & (mode != OPEN),
            breaks=tangential & (mode == STICK),
            stops=tangential & (mode == SLIP),
        )

    def unless(self, hit: Bool[Array, ""]) -> "Memory":
        """What still counts if there was an impact or not."""
        fired = (self.lifts & ~hit, self.breaks & ~hit, self.stops & ~hit)
        return Memory(self.mode, self.r, self.t, *fired)


class Next(NamedTuple):
    """The modes that follow: which, the directions of slip, which of them begin at rest, and
    whether there are any; if not, whether that is Painleve's paradox."""

    mode: Int[Array, " c"]
    t: Directions
    still: ContactMask
    solved: Bool[Array, ""]
    paradox: Bool[Array, ""]


class Meeting:
    """The contacts of a model where something happens to them.

    touching: which of them take part. c: their accelerations without forces of contacts.
    """

    def __init__(self, here: SaddlePoint, touching: ContactMask, c: Numbers) -> None:
        model, v = here.model, here.point.v
        self.here = here
        self.model = model
        self.rows = ContactRows(here)
        self.touching = touching
        diagonal = jnp.diagonal(self.rows.W).reshape(self.rows.shape)
        speed = jnp.sqrt(2 * model.system.kinetic(here.point.q, v, here.p))
        at_start = small.matvec(jnp.abs(self.rows.H), model.scale.v).reshape(self.rows.shape)
        size = jnp.sqrt(jnp.maximum(diagonal, 0.0)) * speed + at_start
        slow = model.tolerances.rest * model.step * jnp.abs(c)
        # rates that are round-off, those at which contacts rest, and what is left of a slip that
        # stops within a step
        self.tiny = jax.lax.stop_gradient(ROUND_OFF * size)
        self.rest = jax.lax.stop_gradient(slow) + self.tiny
        self.slow = jax.lax.stop_gradient(_length(model.step * c[:, 1:] + self.tiny[:, 1:]))

    def rates(self, v: Velocity) -> Numbers:
        """psi."""
        return contacts.padded(self.model, self.here.psi(v))

    def pull(self, v: Velocity) -> Numbers:
        """c."""
        gamma = self.here.gamma(v)
        a, _ = self.here.solve(self.here.f(v), -gamma)
        point = self.here.point.replace(v=v)
        given = self.rows.given(contacts.normal_forces(self.model, point, self.here.p))
        return self.rows.rates(a) + contacts.padded(self.model, gamma) + given

    def laws(self, psi: Numbers, still: ContactMask) -> Coefficients:
        """mu and E for these rates."""
        return contacts.laws(self.model, self.here.p, psi, still)

    def pushed(self, v: Velocity, P: Numbers) -> Velocity:
        """The velocity with these impulses of contacts too."""
        return v + small.matvec(self.rows.B, P.reshape(-1))

    def stopped(self, psi: Numbers, mode: Int[Array, " c"]) -> Numbers:
        """The impulses that take away the rates which must be zero in these modes."""
        none = jnp.zeros_like(psi)
        return reactions(self.rows.W, psi, mode, none[:, 0], none[:, 1:])

    def settled(self, v: Velocity) -> Numbers:
        """The impulses for contacts that leave an impact, but no faster than their rest speed."""
        psi = self.rates(v)
        slow = self.touching & (psi[:, 0] <= self.rest[:, 0])
        still = _length(psi[:, 1:]) <= _length(self.tiny[:, 1:])
        mode = jnp.where(slow, jnp.where(still, STICK, SLIP), OPEN)
        leave = jnp.any(slow & (psi[:, 0] > self.tiny[:, 0]))
        return jnp.where(leave, self.stopped(psi, mode), 0.0)

    def next_modes(self, v: Velocity, memory: Memory) -> Next:
        """3. and 4."""
        psi = self.rates(v)
        slip = psi[:, 1:]
        speed = _length(slip)
        still = speed <= _length(self.tiny[:, 1:])
        still = still | (memory.stops & (speed <= self.slow))
        still = still & ~memory.breaks
        still = still & (self.laws(psi, still).mu > 0)
        t = jnp.where(memory.breaks[:, None], -_unit(memory.r[:, 1:]), _unit(slip))
        pull = self.pull(v)
        idle = still & (memory.mode == SLIP) & ~memory.stops
        t = jnp.where(idle[:, None], memory.t, t)
        moves = self.laws(psi, jnp.zeros_like(still)).mu
        still = jnp.where(self._go_along(pull, moves, t, idle, memory), still & ~idle, still)
        stays = self.touching & (psi[:, 0] <= self.tiny[:, 0])
        on = stays & ~memory.lifts
        W, c, mu = self._given(pull, self.laws(psi, still).mu, still, t)
        found = cone.solve(W, c, mu, on, self._starts(W, c, on, memory))
        psi_N = small.matvec(W, found.P.reshape(-1)).reshape(c.shape)[:, 0] + c[:, 0]
        stuck = jnp.diagonal(W).reshape(c.shape)[:, 0] <= 0
        # With such friction a contact cannot lift where r_N vanishes, nor stay where it must press.
        falls = stays & stuck & (memory.lifts | (psi_N < -ENOUGH * jnp.max(jnp.abs(c))))
        closed = on & (found.mode != OPEN)
        mode = jnp.where(closed, jnp.where(still, found.mode, SLIP), OPEN)
        mode = jnp.where(falls, SLIP, mode)
        t = jnp.where(still[:, None], -_unit(found.P[:, 1:]), t)
        t = jnp.where((mode == SLIP)[:, None], t, 0.0)
        paradox = jnp.any(falls) | (~found.solved & jnp.any(on & stuck))
        return Next(mode, t, still, found.solved & ~jnp.any(falls), paradox)

    def _go_along(
        self, c: Numbers, mu: PerContact, t: Directions, idle: ContactMask, memory: Memory
    ) -> Bool[Array, ""]:
        """Whether contacts that are on the edge of their cone, but could not slip as others stick,
        begin to slip with those that leave their cone."""
        mode = jnp.where(memory.breaks, SLIP, memory.mode)
        r = reactions(self.rows.W, c, mode, mu, t)
        rate = small.matvec(self.rows.W, r.reshape(-1)).reshape(c.shape) + c
        along = jnp.sum(rate[:, 1:] * t, axis=1)
        backwards = idle & (along < -ENOUGH * jnp.max(jnp.abs(c)))
        return jnp.any(memory.breaks) & ~jnp.any(backwards)

    def _given(
        self, c: Numbers, mu: PerContact, still: ContactMask, t: Directions
    ) -> tuple[Float[Array, "kd kd"], Numbers, PerContact]:
        """W, c and mu with contacts of kind (4) reduced to their normal row."""
        k, d = c.shape
        W = self.rows.W.reshape(k * d, k, d)
        drag = jnp.where(still, 0.0, mu)[:, None] * t
        normal = W[:, :, 0] - jnp.sum(W[:, :, 1:] * drag[None], axis=2)
        full = jnp.concatenate([normal[:, :, None], W[:, :, 1:]], axis=2).reshape(k * d, k * d)
        keep = (jnp.arange(d) == 0)[None, :] | still[:, None]
        rows = keep.reshape(-1)
        full = jnp.where(rows[:, None] & rows[None, :], full, 0.0)
        return full, jnp.where(keep, c, 0.0), jnp.where(still, mu, 0.0)

    def _starts(
        self, W: Float[Array, "kd kd"], c: Numbers, on: ContactMask, memory: Memory
    ) -> Float[Array, "s c d"]:
        """Where the search for r begins: the forces before, none, and those with which all stick
        that can."""
        mode = jnp.where(on, STICK, OPEN)
        stick = reactions(W, c, mode, jnp.zeros_like(c[:, 0]), jnp.zeros_like(c[:, 1:]))
        before = jnp.where(on[:, None], memory.r, 0.0)
        return jax.lax.stop_gradient(jnp.stack([before, jnp.zeros_like(c), stick]))


def _length(x: Directions) -> PerContact:
    return small.root(jnp.sum(x * x, axis=1))


def _unit(x: Directions) -> Directions:
    length = _length(x)
    return x / jnp.where(length > 0, length, 1.0)[:, None]


def touching(model: Model, point: Point, p: Params) -> ContactMask:
    """Contacts whose gap is zero."""
    size = contacts.sizes_of_gaps(model, point, p)
    return contacts.gaps(model, point, p) <= model.scale.touch * size


def settled(model: Model, point: Point, p: Params) -> Point:
    """The point at the start of a run, with contacts that rest or slide in their modes. One that
    approaches stays open, and so falls at once."""
    closed = ClosedContacts(model, point, p)
    near = touching(model, point, p)
    meeting = Meeting(closed.here, near, closed.motion().c)
    meeting.touching = near & (meeting.rates(point.v)[:, 0] >= -meeting.tiny[:, 0])
    found = meeting.next_modes(point.v, Memory.none(*contacts.size(model)))
    return contacts.with_directions(model, contacts.with_modes(model, point, found.mode), found.t)


class Landing(NamedTuple):
    """A velocity after impulses, with what led there and what follows.

    v: the velocity. P: the impulses of contacts so far. next: the modes that follow.
    paradox: whether there are none, so that an impulse has to help. done: whether all is found.
    code: why there is no answer, or OK.
    """

    v: Velocity
    P: Numbers
    next: Next
    paradox: Bool[Array, ""]
    done: Bool[Array, ""]
    code: Int[Array, ""]


def change_contacts(
    model: Model, point: Point, fired: GuardMask, law: AbstractLaw, p: Params
) -> tuple[Point, Event, Int[Array, ""]]:
    """The point after the event, its record and a status."""
    impacts = impact_law(law)
    closed = ClosedContacts(model, point, p)
    motion = closed.motion()
    memory = Memory.of(model, point, fired, motion.r)
    after = model.after(fired, point, p)
    some = len(model.bilateral) > 0
    here = SaddlePoint(model, after, p) if some else closed.here
    answer = ask_law(model, point, here, point.v, impacts.bilateral, p) if some else None  # 1.
    jump = Jump(point.v, jnp.zeros(model.m), here.G) if answer is None else answer.jump
    acts = jnp.zeros((), bool) if answer is None else answer.acts
    gap = contacts.shares_of_guards(model, fired.astype(int))[0] > 0
    near = touching(model, after, p) | (memory.mode != OPEN) | gap
    meeting = Meeting(here, near, motion.c)
    found = _rounds(meeting, jump.v_after, acts, memory, impacts)
    mode = found.next.mode
    rest = jnp.where((mode != OPEN) & found.next.still, STICK, mode)
    left = meeting.stopped(meeting.rates(found.v), rest)
    jump = Jump(*meeting.rows.landed(*jump, found.P + left))
    landed = contacts.with_directions(model, contacts.with_modes(model, after, mode), found.next.t)
    landed = landed.replace(v=jump.v_after)
    code = found.code
    if answer is not None:
        first = verdict(model, point, landed, answer, here, p)
        code = jnp.where(first == Status.OK, code, first)
    energy = kinetic_energy(model, point.q, model.system.mass(point.q, p), p)
    return landed, record_of(point, landed, jump.Lam, jump.direction, energy), code


def _rounds(
    meeting: Meeting,
    v: Velocity,
    acts: Bool[Array, ""],
    memory: Memory,
    law: AbstractImpactLaw,
) -> Landing:
    """2. to 5."""

    def one(found: Landing, start: Array) -> tuple[Landing, None]:
        again = lambda found: _round(meeting, found, acts, memory, law, start)
        return jax.lax.cond(found.done, lambda same: same, again, found), None

    k, d = meeting.rows.shape
    no = jnp.zeros((), bool)
    nothing = Next(memory.mode, jnp.zeros((k, d - 1)), jnp.zeros(k, bool), no, no)
    begin = Landing(v, jnp.zeros((k, d)), nothing, no, no, jnp.zeros((), int))
    return jax.lax.scan(one, begin, jnp.array(STARTS))[0]


def _round(
    meeting: Meeting,
    found: Landing,
    acts: Bool[Array, ""],
    memory: Memory,
    law: AbstractImpactLaw,
    start: Array,
) -> Landing:
    """One round: an impact if there is one, or the impulse of 5., and the next modes."""
    free = meeting.rates(found.v)
    approach = jnp.any(meeting.touching & (free[:, 0] < -meeting.tiny[:, 0]))
    hit = found.paradox | acts | approach
    impact = _impact(meeting, free, memory, found.paradox, start)
    pressed = law.impulses(impact)
    P = jnp.where(hit, pressed.P, 0.0)
    settle = jnp.where(hit, meeting.settled(meeting.pushed(found.v, P)), 0.0)
    v = meeting.pushed(found.v, P + settle)
    follows = meeting.next_modes(v, memory.unless(hit))
    unsolved = hit & ~pressed.solved
    nothing = found.paradox & jnp.all(jnp.abs(free - impact.after(P)) <= meeting.tiny)
    gain = jnp.asarray(law.gain_code(impact, P))
    code = first_of(
        (unsolved, jnp.asarray(int(Status.CONTACT_UNSOLVED))),
        (hit & (gain != Status.OK), gain),
        (nothing | follows.paradox, jnp.asarray(int(Status.PAINLEVE))),
        (~follows.solved, jnp.asarray(int(Status.CONTACT_UNSOLVED))),
    )
    fresh = Landing(
        v=v,
        P=found.P + P + settle,
        next=follows,
        paradox=~follows.solved,
        done=follows.solved | nothing,
        code=code,
    )
    repeat = found._replace(code=code)
    return jax.tree.map(lambda a, b: jnp.where(unsolved, b, a), fresh, repeat)


def _impact(
    meeting: Meeting,
    free: Numbers,
    memory: Memory,
    paradox: Bool[Array, ""],
    start: Array,
) -> Impact:
    """The impact of 2., or that of 5."""
    W = meeting.rows.W
    before = jnp.where(paradox, free, meeting.rates(meeting.here.point.v))
    still = _length(free[:, 1:]) <= _length(meeting.tiny[:, 1:])
    laws = meeting.laws(free, still)
    E = laws.E
    rests = jnp.abs(before[:, 0]) <= meeting.tiny[:, 0]
    kept = (memory.mode != OPEN) | rests
    slow = ~kept & (jnp.abs(E[:, 0] * before[:, 0]) <= meeting.rest[:, 0])  # (1)
    first = (jnp.arange(E.shape[1]) == 0)[None, :]
    E = jnp.where(first & slow[:, None], 0.0, E)
    all_stick = jnp.where(meeting.touching, STICK, OPEN)
    P0 = reactions(W, free, all_stick, laws.mu, jnp.zeros_like(free[:, 1:]))
    return Impact(
        W=W,
        before=before,
        free=free,
        mu=laws.mu,
        E=jnp.where(paradox, 0.0, E),
        on=meeting.touching,
        kept=kept,
        P0=jax.lax.stop_gradient(start * P0),
    )
