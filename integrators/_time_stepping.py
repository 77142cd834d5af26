"""Event-capturing integration: steps of fixed size; events are detected at the end of a step.

How the mode of a step from point 0 to point 1 is chosen:

    make the step in the old mode; a guard that is negative at its end fires                     (1)
    repeat it into the new mode: its constraints, and the impulse law between old and new        (2)
    if a guard that fired is still negative after (2), discard (2) and keep (1). The mode change
    is tried again in the next step; if it fails twice the run stops with LEADS_BACK             (3)

(3) does not apply to a guard that is a force in the new mode, since a contact that has just closed
may be about to open.

Guards are usually evaluated at a predictor. Here (1) is the predictor: the converged step of the
old mode is more accurate, and it is the result if there is no event. After an event the memory of
the method is rebuilt in the new mode, except for the classical schemes, which have no jumps. An
event is recorded at t_1, the end of its step. Its `v_before` is the free velocity of the step, on
which the law acts.

Contacts with friction (`nsdyn.Contacts`) need no guards: a scheme that resolves them finds their
impulses in every step, by Newton's method from those of the step before. A step in which that fails
is repeated, from impulses that a more careful search found for the end of the failed step, and with
more methods for all problems in it                                                            (4)

Their impacts are recorded all the same (`nsdyn.integrators._contact_steps`), but for those that the
log has no room for: they change nothing in the run. If guards fire in the same step, there is one
record for both.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from nsdyn._types import Flag, GuardMask, Guards, Number, Params, Scalar, Velocity
from nsdyn.integrators import _contact_steps
from nsdyn.integrators._contact_steps import ContactStep
from nsdyn.laws.base import AbstractLaw, Jump
from nsdyn.mechanics.contact_rows import is_contact
from nsdyn.mechanics.model import Model, Point
from nsdyn.mechanics.saddle_point import SaddlePoint
from nsdyn.numerics.newton import Effort, once
from nsdyn.status import Status
from nsdyn.stepping import guard_rates
from nsdyn.stepping.detect import SLACK
from nsdyn.stepping.integrator import (
    AbstractIntegrator,
    AbstractMemory,
    AbstractSmoothMethod,
    State,
    first_of,
)
from nsdyn.stepping.log import Event, Log
from nsdyn.stepping.mode_change import (
    LawAnswer,
    after_impact,
    ask_law,
    record_of,
    status_of,
)

TRIES = 3  # repetitions of a step whose contacts were not solved


class NewMode(eqx.Module):
    """The mode that a step enters.

    mode, held: the new mode and its held values. law: the law that decides the jump.
    active: whether the mode changes; if not, the step has no event.
    """

    mode: Any
    held: tuple
    law: AbstractLaw
    active: jax.Array

    def enter(self, point: Point) -> Point:
        return point.replace(mode=self.mode, held=self.held)

    def ask_law(
        self, model: Model, start: Point, here: SaddlePoint, v: Velocity, p: Params
    ) -> LawAnswer:
        """Apply the law to the free velocity v, between the mode of `start` and the new one. If
        rows only disappear, the law does not act, and v is projected onto the remaining rows."""
        found = ask_law(model, start, here, v, self.law, p)
        choose = lambda a, b: jnp.where(found.acts & self.active, a, b)
        return found._replace(jump=Jump(*map(choose, found.jump, projected(here, v))))


def projected(here: SaddlePoint, v: Velocity) -> Jump:
    """The jump to the nearest velocity, in the mass metric, that satisfies the rows."""
    step, mu = here.smallest_motion(-here.psi(v))
    return Jump(v + step, mu, here.G)


def sizes(model: Model, point: Point, weights: Array, p: Params) -> tuple[Scalar, Scalar, Scalar]:
    """The weighted sizes of q, v and M^-1 f, for the absolute tolerance of Newton's method."""
    size = lambda x: jnp.max(jnp.abs(weights * x))
    system = model.system
    a = system.solver(point.q, p)(model.force(point, p))
    return size(system.about_as_motion(point.q, p)), size(point.v), size(a)


class Step(NamedTuple):
    """The end of a step: point and memory, the answer of the law if the step entered a new mode,
    the free velocity, on which the law acts, and the contacts, if there are any."""

    point: Point
    memory: Any
    answer: LawAnswer | None
    free: jax.Array
    contact: ContactStep | None = None

    @property
    def is_solved(self) -> Bool[Array, ""]:
        """False if the contacts need another attempt, (4)."""
        if self.contact is None:
            return jnp.ones((), bool)
        return self.contact.solved & ~self.memory.effort.failed

    @property
    def has_impact(self) -> Bool[Array, ""]:
        """Whether a contact had an impact."""
        return jnp.zeros((), bool) if self.contact is None else self.contact.struck


class CapturePlan(eqx.Module):
    """Whether a step changed the mode, which guards fired, the impulses of contacts, and whether
    an impact of theirs was recorded."""

    go: jax.Array
    fired: jax.Array
    P: jax.Array | None
    noted: jax.Array


class AbstractContactMemory(AbstractMemory):
    """The memory of a scheme that resolves contacts.

    P: the impulses of the contacts (k, d), from which the next step starts; None without contacts.
    """

    P: eqx.AbstractVar[Float[Array, "k d"] | None]


class ContactMemory(AbstractContactMemory):
    """The memory of a scheme that resolves contacts and keeps nothing else.

    a: the acceleration v' at the end of the step.
    lam: the multipliers there.
    effort: the work of Newton's method in the step.
    P: the impulses of the contacts (k, d), from which the next step starts; None without contacts.
    """

    a: Float[Array, " n"]
    lam: Float[Array, " m"]
    effort: Effort | None
    P: Float[Array, "k d"] | None = None


def started_from(state: State, P: Array | None) -> State:
    """The state whose next step begins its search for the impulses of contacts at P."""
    return state if P is None else eqx.tree_at(lambda x: x.memory.P, state, P)


class Search(NamedTuple):
    """The search (4) for the impulses of contacts.

    P: where the next attempt begins; None if there are no contacts. tries: how many failed.
    again: whether the step has to be repeated.
    """

    P: Array | None
    tries: Array
    again: Array

    @staticmethod
    def begin(state: State) -> "Search":
        memory = state.memory
        P = memory.P if isinstance(memory, AbstractContactMemory) else None
        return Search(P, jnp.zeros((), int), jnp.zeros((), bool))

    def after(self, step: Step) -> "Search":
        """The search after an attempt. If that failed, the next one begins at impulses that a
        careful search finds at its end."""
        if step.contact is None:
            return self
        problem = step.contact.problem
        again = ~step.is_solved & (self.tries < TRIES)
        find = lambda c: (problem.solve(c[0], careful=True).P, jnp.zeros((), bool))
        # A loop that runs once or not at all: unlike a conditional, a batch can skip it.
        P, _ = jax.lax.while_loop(lambda c: c[1], find, (step.memory.P, again))
        return Search(P, jnp.where(again, self.tries + 1, 0), again)

    def unless_repeated(self, new: tuple, old: tuple) -> tuple:
        """What a step leads to, or what was before if it has to be repeated."""
        if self.P is None:
            return new
        *kept, _, _ = jax.tree.map(lambda a, b: jnp.where(self.again, b, a), new, old)
        return *kept, new[-2] | self.again, self


class AbstractTimeStepping(AbstractIntegrator):
    """A time-stepping scheme; it captures events at the end of a step. Subclasses implement `init`
    and `advance`."""

    @property
    def jumps(self) -> bool:
        """Whether the velocity jumps, as decided by the law, in a step with an event."""
        return True

    def incompatibility(self, law: AbstractLaw, parts: tuple) -> str | None:
        return _contact_steps.refusal(law, parts)

    @abstractmethod
    def init(self, model: Model, point: Point, p: Params) -> tuple[Point, Any]:
        """The point and the memory (with `effort`) at the start and after an event."""

    @abstractmethod
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
        """One step of size h from `point`, in its mode or into `new_mode`. The law is that of the
        contacts."""

    def attempt(
        self, model: Model, point: Point, memory: Any, h: Number, p: Params, law: AbstractLaw
    ) -> Step:
        """What `advance` computes in the same mode, but that it may fail more often, as the step is
        then repeated: for schemes that are compiled faster without what is seldom needed."""
        return self.advance(model, point, memory, h, p, law)

    def start(self, model: Model, point: Point, p: Params) -> State:
        point, memory = self.init(model, point, p)
        state = State.begin(model, point, memory, p)
        rate = guard_rates.rates(model, point, memory.a, memory.lam, p)
        slack = SLACK * jnp.abs(rate) * model.step + self._noise(model, state, p)
        by_force = guard_rates.by_force(model, point, memory.lam, p)
        negative = jnp.any((state.guard < -slack) & ~by_force)
        return state.with_failure(negative, Status.GUARD_NEGATIVE, point)

    def step_smooth(
        self, model: Model, state: State, t_next: Number, law: AbstractLaw, p: Params
    ) -> tuple[State, Bool[Array, ""]]:
        step, end, again = self._attempted(model, state, t_next, law, p)
        return end, again | step.has_impact

    def step_recording(
        self, model: Model, state: State, log: Log, t_next: Number, law: AbstractLaw, p: Params
    ) -> tuple[State, Log, Bool[Array, ""]]:
        """Of a model without guards, impacts of contacts: all of their step is known already."""
        step, end, again = self._attempted(model, state, t_next, law, p)
        if model.k > 0 or step.contact is None:
            return end, log, again | step.has_impact
        hit = step.has_impact & ~again & (state.status == Status.OK)
        end = _without_gain(end, step, state.point, hit)
        note = lambda log: _with_impact(log, model, state.point, step, end, True, p)
        return end, once(hit & ~log.is_full, note, log), again

    def _attempted(
        self, model: Model, state: State, t_next: Number, law: AbstractLaw, p: Params
    ) -> tuple[Step, State, Bool[Array, ""]]:
        """An attempt at a step in the mode in which it starts, the state at its end, and whether it
        has to be repeated whatever its impacts are."""
        h = t_next - state.point.t
        step = self.attempt(model, state.point, state.memory, h, p, law)
        end = _arrived(model, state, step, t_next, p)
        fell = jnp.any(_fallen(state.guard, end.guard, 0.0))
        return step, end, fell | ~step.is_solved

    def _step_in_mode(
        self, model: Model, state: State, t_next: Number, law: AbstractLaw, p: Params
    ) -> tuple[Step, State]:
        """The step in the mode in which it starts, and the state at its end."""
        step = self.advance(model, state.point, state.memory, t_next - state.point.t, p, law)
        return step, _arrived(model, state, step, t_next, p)

    def step_with_events(
        self, model: Model, state: State, log: Log, t_next: Number, law: AbstractLaw, p: Params
    ) -> tuple[State, Log, CapturePlan]:
        if model.k == 0:
            return self._step_with_contacts(model, state, log, t_next, law, p)
        start = state.point

        def take(carry: tuple) -> tuple:
            """(1), then (2) if a guard fell in (1)."""
            smooth, log, noted, fired, new_mode, _, _, search = carry
            begun = started_from(state, search.P)
            step, end, new, code = self._step_into_mode(model, begun, new_mode, fired, t_next, p)
            search = search.after(step)
            noise = self._noise(model, end, p)
            fell = _fallen(state.guard, end.guard, noise) & ~new_mode.active
            fell = fell & (end.status == Status.OK)
            depth = SLACK * (jnp.abs(state.guard) + jnp.abs(smooth.guard)) + noise
            by_force = guard_rates.by_force(model, end.point, end.memory.lam, p)
            contradicted = new_mode.active & fired & (end.guard < -depth) & ~by_force
            go = new_mode.active & ~jnp.any(contradicted)  # (3)
            # The previous step already kept the old mode.
            stuck = jnp.any(contradicted & (state.guard < -depth))
            log = log.without_last(noted & go)  # the step with that impact is discarded
            code = jnp.where(log.is_full, Status.LOG_FULL, code)
            end = end.with_failure(go & (code != Status.OK), code, start)
            end = jax.tree.map(lambda a, b: jnp.where(new_mode.active & ~go, b, a), end, smooth)
            end = end.with_failure(stuck, Status.LEADS_BACK, start)
            again = jnp.any(fell)
            hit = step.has_impact & ~new_mode.active & ~log.is_full
            log = log.append(new, go | hit)
            noted = jnp.where(new_mode.active, noted & ~go, hit)
            after = model.after(fell, end.point, p)
            new_mode = NewMode(after.mode, after.held, law, again)
            fired = jnp.where(again, fell, fired)
            taken = (end, log, noted, fired, new_mode, go, again, search)
            return search.unless_repeated(taken, carry)  # (4)

        no = jnp.zeros((), bool)
        no_guards = jnp.zeros(model.k, bool)
        stay = NewMode(start.mode, start.held, law, no)
        search = Search.begin(state)
        first = (state, log, no, no_guards, stay, no, state.status == Status.OK, search)
        end, log, noted, fired, _, go, _, _ = jax.lax.while_loop(lambda c: c[-2], take, first)
        return end, log, CapturePlan(go, fired, Search.begin(end).P, noted)

    def _step_with_contacts(
        self, model: Model, state: State, log: Log, t_next: Number, law: AbstractLaw, p: Params
    ) -> tuple[State, Log, CapturePlan]:
        """The step of a model without guards, repeated until its contacts are solved, (4)."""

        def take(carry: tuple) -> tuple:
            _, log, _, search, _ = carry
            begun = started_from(state, search.P)
            step, end = self._step_in_mode(model, begun, t_next, law, p)
            end = _without_gain(end, step, state.point)
            search = search.after(step)
            hit = step.has_impact & ~search.again & ~log.is_full
            log = _with_impact(log, model, state.point, step, end, hit, p)
            return end, log, hit, search, search.again

        no = jnp.zeros((), bool)
        first = (state, log, no, Search.begin(state), state.status == Status.OK)
        end, log, hit, _, _ = jax.lax.while_loop(lambda c: c[-1], take, first)
        return end, log, CapturePlan(no, jnp.zeros(0, bool), Search.begin(end).P, hit)

    def step_differentiable(
        self,
        model: Model,
        state: State,
        log: Log,
        t_next: Number,
        law: AbstractLaw,
        p: Params,
        plan: CapturePlan,
    ) -> tuple[State, Log]:
        state = started_from(state, plan.P)
        step, end = self._step_in_mode(model, state, t_next, law, p)
        log = _with_impact(log, model, state.point, step, end, plan.noted, p)
        if model.k == 0:
            return end, log

        def again(end: State, log: Log) -> tuple[State, Log]:
            after = model.after(plan.fired, end.point, p)
            new_mode = NewMode(after.mode, after.held, law, jnp.ones((), bool))
            _, landed, new, _ = self._step_into_mode(model, state, new_mode, plan.fired, t_next, p)
            return landed, log.append(new, True)

        return jax.lax.cond(plan.go, again, lambda *same: same, end, log)

    def _step_into_mode(
        self,
        model: Model,
        state: State,
        new_mode: NewMode,
        fired: GuardMask,
        t_next: Number,
        p: Params,
    ) -> tuple[Step, State, Event, Any]:
        """The step into a new mode, the state at its end, the record of the event and a status."""
        start = state.point
        h = t_next - start.t
        step = self.advance(model, start, state.memory, h, p, new_mode.law, new_mode)
        end = step.point
        memory = step.memory
        answer = step.answer
        assert answer is not None, "advance answers a new mode with the law's answer"
        free = end.replace(v=step.free, t=t_next)
        before = free.replace(mode=start.mode, held=start.held)
        here = SaddlePoint(model, free, p)
        landed = end
        Lam = answer.jump.Lam
        if self.jumps:
            landed, Lam = after_impact(model, here, answer.jump, p)
            landed, fresh = self.init(model, landed, p)
            fresh = _restarted(model, fresh, memory)
            choose = lambda a, b: jnp.where(new_mode.active, a, b)
            landed, memory = jax.tree.map(choose, (landed, fresh), (end, memory))
        arrived = _arrived(model, state, step._replace(point=landed, memory=memory), t_next, p)
        arrived = _without_gain(arrived, step, start)
        record = record_of(before, landed, Lam, answer.jump.direction, answer.kinetic)
        code = status_of(model, landed, answer, here, p)
        if not self.jumps:
            code = jnp.where(code == Status.LAW_VIOLATES, Status.OK, code)
            return step, arrived, record, code
        # Schedules cannot lead back, so these rates hold time fixed.
        rate = guard_rates.rates(model, landed, memory.a, memory.lam, p, clock=0.0)
        ahead = arrived.guard + h * rate
        back = jnp.any(fired & (rate < 0) & (ahead < -self._noise(model, arrived, p)))
        code = first_of((code != Status.OK, code), (back, Status.LEADS_BACK))
        return step, arrived, record, code

    def _noise(self, model: Model, state: State, p: Params) -> Guards:
        return guard_rates.noise(model, state.point, state.memory.lam, p)


class AbstractCapturable(AbstractSmoothMethod):
    """A smooth method that can also step into another mode, without a jump."""

    @property
    @abstractmethod
    def holds_position(self) -> bool:
        """Whether g = 0 is enforced."""

    @abstractmethod
    def advance(
        self,
        model: Model,
        point: Point,
        memory: Any,
        h: Number,
        p: Params,
        new_mode: NewMode | None = None,
    ) -> Step:
        """One step of size h from `point`, in its mode or into the new one."""

    def by_itself(self) -> AbstractIntegrator:
        return Captured(self)


class Captured(AbstractTimeStepping):
    """A smooth method that captures events as the classical schemes do: the constraints of the new
    mode are imposed on the step with the event, and velocities do not jump.

    method: the smooth method. `simulate` wraps a method of this kind that comes without a driver.
    """

    method: AbstractCapturable

    def __repr__(self) -> str:
        return repr(self.method)

    @property
    def jumps(self) -> bool:
        return False

    @property
    def holds_position(self) -> bool:
        return self.method.holds_position

    def incompatibility(self, law: AbstractLaw, parts: tuple) -> str | None:
        if not law.satisfies_new_constraints:
            return (
                "the classical schemes impose the new constraints on the step in which the mode "
                "changes; nothing rebounds"
            )
        if any(part.mode_depends_on_impact for part in parts):
            return "without a velocity jump, contacts do not open and close correctly"
        return None

    def init(self, model: Model, point: Point, p: Params) -> tuple[Point, Any]:
        return self.method.init(model, point, p)

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
        return self.method.advance(model, point, memory, h, p, new_mode)


def _restarted(model: Model, fresh: Any, memory: Any) -> Any:
    """The memory at the start of a new mode, with what it takes over from the step before."""
    fresh = eqx.tree_at(lambda x: x.effort, fresh, memory.effort)
    if not model.has_contacts:
        return fresh
    lam = jnp.where(is_contact(model), memory.lam, fresh.lam)
    return eqx.tree_at(lambda x: (x.lam, x.P), fresh, (lam, memory.P))


def _arrived(model: Model, state: State, step: Step, t_next: Number, p: Params) -> State:
    started = state.point
    if step.contact is not None:
        state = state.with_failure(~step.contact.solved, Status.CONTACT_UNSOLVED, started)
    end = state.arrived(model, step.point.replace(t=t_next), step.memory, p)
    return end.with_effort(step.memory.effort, started)


def _without_gain(end: State, step: Step, start: Point, hit: Flag = True) -> State:
    """The state, or a failure if contacts created energy in an impact. The other steps need not
    look."""
    if step.contact is None:
        return end
    return end.with_failure(hit & step.contact.gained, Status.ENERGY_GAIN, start)


def _with_impact(
    log: Log, model: Model, start: Point, step: Step, end: State, wanted: Flag, p: Params
) -> Log:
    """The log with the record of a step in which contacts had an impact, if that is `wanted`."""
    if step.contact is None:
        return log
    jump = step.contact.jump
    point = end.point
    record = Event(
        t=point.t,
        mode_before=start.mode,
        mode_after=point.mode,
        q=point.q,
        v_before=step.free,
        v_after=point.v,
        Lam=jump.Lam,
        direction=jump.direction,
        kinetic_before=model.system.kinetic(point.q, step.free, p),
        kinetic_after=model.system.kinetic(point.q, point.v, p),
    )
    return log.append(record, wanted)


def _fallen(before: Guards, after: Guards, noise: Guards | float) -> GuardMask:
    """Guards that are negative beyond their `noise` at the end of a step, or that fell to zero up
    to round-off."""
    about = SLACK * jnp.maximum(before - after, 0.0)
    reaches = (after <= about) & (before > jnp.maximum(after, noise))
    return (after < -noise) | reaches
