"""Event-driven integration: a smooth method between events, which are located and handled inside
the step.

A step from x_0 to the grid time t_1:

    x_1 = Phi(x_0, t_1 - t_0)                            the full step; done if no guard
                                                         falls                                 (1)
    if a guard falls through zero on the dense output:
        theta = first zero of g_i(Phi(x_0, theta h))     `nsdyn.stepping.locate`               (2)
        x_e = Phi(x_0, theta h);  x_0 = change(x_e)      `nsdyn.stepping.mode_change`          (3)
        and repeat from there to t_1

Derivatives: theta is found under stop_gradient; one Newton step on g_i then supplies its
derivative,

    theta_d = theta - g_i / g_i',   x_e = Phi(theta) + Phi'(theta) (theta_d - theta)           (4)

which does not change the value and makes event time and state exactly differentiable. Phi includes
the projection that removes constraint drift (on by default).

A method with error control (`AbstractErrorControlled`) goes from x_0 to t_1 in pieces of the size
that it proposes; (1) to (4) then hold for each piece that is accurate enough. Its pieces are long
and the last one before an event is not thrown away, so events are handled where they are met.
Derivatives repeat the accepted pieces, whose sizes are constants.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nsdyn._jitted import traced_once
from nsdyn._types import Flag, GuardMask, Guards, Number, Params
from nsdyn.constraints.base import AbstractConstraint
from nsdyn.constraints.contact_modes import ContactModes
from nsdyn.constraints.contacts import AbstractContacts
from nsdyn.errors import ProblemError
from nsdyn.laws.base import AbstractLaw
from nsdyn.mechanics.closed_contacts import turned
from nsdyn.mechanics.contact_rows import size as contact_size
from nsdyn.mechanics.model import Model, Point
from nsdyn.mechanics.projection import project
from nsdyn.numerics.newton import once
from nsdyn.status import Status
from nsdyn.stepping import guard_rates
from nsdyn.stepping.contact_change import change_contacts, settled
from nsdyn.stepping.detect import SLACK, Surface, between, scan_guards
from nsdyn.stepping.integrator import (
    AbstractErrorControlled,
    AbstractIntegrator,
    AbstractSmoothMethod,
    ControlledMemory,
    State,
    first_of,
)
from nsdyn.stepping.locate import (
    INTERVALS,
    INTERVALS_OF_LONG_STEPS,
    EventSearch,
    Known,
    LocatedEvent,
    locate,
)
from nsdyn.stepping.log import Log, put
from nsdyn.stepping.mode_change import change_mode

LAST_PIECE = 0.99  # of the rest of a step: such a piece is stretched to meet the grid time
SLOW_PIECE = 0.01  # of the distance of samples: shorter steps need not follow a slip that turns


class EventPlan(eqx.Module):
    """The pieces of one step that are known by a search; with them the step can be repeated without
    one. A piece ends with an event or, under error control, without (`has_event`).

    h: the size of the step attempted; an event ends it early.
    """

    events: LocatedEvent
    h: Float[Array, " pieces"]
    has_event: Bool[Array, " pieces"]
    count: Int[Array, ""]

    @staticmethod
    def empty(guards: int, capacity: int) -> "EventPlan":
        repeat = lambda x: jnp.broadcast_to(x, (capacity, *x.shape))
        return EventPlan(
            events=jax.tree.map(repeat, LocatedEvent.empty(guards)),
            h=jnp.zeros(capacity),
            has_event=jnp.zeros(capacity, bool),
            count=jnp.zeros((), int),
        )

    def append(self, event: LocatedEvent, h: Number, has_event: Flag, wanted: Flag) -> "EventPlan":
        known = (self.events, self.h, self.has_event)
        events, sizes, flags = put(known, (event, h, has_event), self.count, wanted)
        return EventPlan(events=events, h=sizes, has_event=flags, count=self.count + wanted)


class Pieces(NamedTuple):
    """The pieces of a step so far: where they led, how many there were, rejected ones included, and
    how many events. `plan` is None if nobody wants to know."""

    state: State
    log: Log
    plan: EventPlan | None
    done: Bool[Array, ""]
    tries: Int[Array, ""]
    events: Int[Array, ""]


class EventDriven(AbstractIntegrator):
    """Drives a smooth method: stops at every event, changes the mode there, and continues.

    method: the smooth method, such as RK4() or GeneralizedAlpha(index=2).
    project: whether the drift of constraints, and of quaternions, is removed after each step.
    max_switches: the largest number of events within one step; beyond it TOO_MANY_SWITCHES.
    """

    method: AbstractSmoothMethod
    project: bool = eqx.field(static=True, default=True)
    max_switches: int = eqx.field(static=True, default=24)

    def __check_init__(self) -> None:
        if not isinstance(self.method, AbstractSmoothMethod):
            raise ProblemError(
                "EventDriven(method=...): expected a smooth method such as RK4(), found "
                f"{self.method!r}"
            )
        if self.max_switches < 1:
            raise ProblemError(
                f"EventDriven(max_switches=...): expected at least 1, found {self.max_switches}"
            )

    @property
    def controls_error(self) -> bool:
        return isinstance(self.method, AbstractErrorControlled)

    @property
    def resolves_contacts(self) -> bool:
        return self.method.resolves_contacts

    def constraints_of(self, model: Model) -> tuple[AbstractConstraint, ...]:
        each = zip(model.parts, model.mode_shapes, strict=True)
        return tuple(
            ContactModes(part, shape[0]) if isinstance(part, AbstractContacts) else part
            for part, shape in each
        )

    @property
    def max_events_in_step(self) -> int:
        return self.max_switches

    def start(self, model: Model, point: Point, p: Params) -> State:
        if model.has_contacts:
            point = settled(model, point, p)
        point, memory = self.method.init(model, point, p)
        state = State.begin(model, point, memory, p, own=Surface.none(model.k))
        state = self._on_surface(model, state, model.step, p, jnp.zeros(model.k, bool))
        falling = jnp.abs(state.guard) <= SLACK * jnp.abs(_rates(model, state, p)) * model.step
        # A guard on a force that is negative at t_0 fires at once; a negative guard on positions or
        # velocities is a wrong start.
        forces = guard_rates.by_force(model, point, memory.lam, p)
        negative = state.own.watched & (state.guard < 0) & ~falling & ~forces
        return state.with_failure(jnp.any(negative), Status.GUARD_NEGATIVE, point)

    def step_smooth(
        self, model: Model, state: State, t_next: Number, law: AbstractLaw, p: Params
    ) -> tuple[State, Bool[Array, ""]]:
        if not self.controls_error:
            return self._attempt(model, state, t_next, p)

        return self._attempts(model, state, t_next, p, None)[:2]

    def step_with_events(
        self, model: Model, state: State, log: Log, t_next: Number, law: AbstractLaw, p: Params
    ) -> tuple[State, Log, EventPlan]:
        plan = EventPlan.empty(model.k, self._most_pieces)
        state, log, plan = self._pieces(model, state, log, t_next, law, p, plan)
        return state, log, plan

    def step_without_plan(
        self, model: Model, state: State, log: Log, t_next: Number, law: AbstractLaw, p: Params
    ) -> tuple[State, Log]:
        return self._pieces(model, state, log, t_next, law, p, None)[:2]

    def _pieces(
        self,
        model: Model,
        state: State,
        log: Log,
        t_next: Number,
        law: AbstractLaw,
        p: Params,
        plan: EventPlan | None,
    ) -> tuple[State, Log, Any]:
        """The step, with its events, and the plan, if there is one, with what became of it."""
        if model.k == 0:
            state, _, plan = self._attempts(model, state, t_next, p, plan)
            return state, log, plan

        none = jnp.zeros((), int)
        carry = Pieces(state, log, plan, state.status != Status.OK, none, none)
        piece = self._controlled_piece if self.controls_error else self._piece
        go = lambda carry: piece(model, carry, t_next, law, p)
        found = jax.lax.while_loop(lambda c: ~c.done, go, carry)
        state = found.state
        if self.method.is_multistep:
            state = _where(found.events > 0, self._renewed(model, state, p), state)
        return _at_time(state, t_next), found.log, found.plan

    def step_differentiable(
        self,
        model: Model,
        state: State,
        log: Log,
        t_next: Number,
        law: AbstractLaw,
        p: Params,
        plan: EventPlan,
    ) -> tuple[State, Log]:
        """The same step, made of a bounded number of pieces. The guards in the state, which only
        serve to detect events, are not updated."""
        begun = lambda state: self._turned(model, state, p)
        rest = lambda state: self._smooth(model, begun(state), t_next - state.point.t, p)

        def piece(carry, step):
            number, event, h, has_event = step
            last = number == plan.count - 1

            def smooth(state, log):
                state = begun(state)
                size = jnp.where(last, t_next - state.point.t, h)
                return self._smooth(model, state, size, p), log

            def go(state, log):
                state = begun(state)
                size = h if self.controls_error else t_next - state.point.t
                before = self._at_event(model, state, size, p, event)
                landed, record, _ = self._change_at(model, state, before, event.fired, law, p)
                return landed, log.append(record, True)

            def planned(state, log):
                if not self.controls_error:
                    return go(state, log)
                if model.k == 0:
                    return smooth(state, log)
                return jax.lax.cond(has_event, go, smooth, state, log)

            return jax.lax.cond(number < plan.count, planned, lambda *same: same, *carry), None

        def pieces(state, log):
            numbers = jnp.arange(self._most_pieces)
            planned = (numbers, plan.events, plan.h, plan.has_event)
            return jax.lax.scan(piece, (state, log), planned)[0]

        guard = state.guard
        state, log = jax.lax.cond(plan.count > 0, pieces, lambda *same: same, state, log)
        end = state if self.controls_error else rest(state)
        if self.method.is_multistep:
            renew = lambda state: self._renewed(model, state, p)
            end = jax.lax.cond(plan.count > 0, renew, lambda same: same, end)
        return _at_time(eqx.tree_at(lambda x: x.guard, end, guard), t_next), log

    # Pieces of a step.

    @property
    def _most_pieces(self) -> int:
        """How many pieces of one step are planned."""
        if isinstance(self.method, AbstractErrorControlled):
            return self.method.max_steps
        return self.max_switches

    @property
    def _most_tries(self) -> int | float:
        """How many pieces may be tried; fixed steps end by themselves."""
        return self._most_pieces if self.controls_error else jnp.inf

    def _length(self, state: State, t_next: Number) -> Number:
        """The size of the next piece: as far as the grid time, or as the method proposes."""
        rest = t_next - state.point.t
        if not self.controls_error:
            return rest
        memory: Any = state.memory
        wanted = memory.h_next
        return jnp.where(wanted >= LAST_PIECE * rest, rest, wanted)

    def _piece(
        self, model: Model, carry: Pieces, t_next: Number, law: AbstractLaw, p: Params
    ) -> Pieces:
        """From one event to the next, or to the end of the step."""
        start = self._turned(model, carry.state, p)
        carry = carry._replace(state=start)
        h = self._length(start, t_next)
        search = locate(model, start, h, p, self._flow(model, start, h, p))  # (2)
        handled = lambda _: self._handled(model, carry, search, h, t_next, law, p)
        plain = self._smooth_piece(model, carry, search.end, h, t_next)
        return once(search.scan.fires, handled, plain)

    def _controlled_piece(
        self, model: Model, carry: Pieces, t_next: Number, law: AbstractLaw, p: Params
    ) -> Pieces:
        """As far as error control permits; if a guard fires on it, to the event."""
        start = self._turned(model, carry.state, p)
        carry = carry._replace(state=start)
        h = self._length(start, t_next)
        end = self._smooth(model, start, h, p)  # (1)
        scan = scan_guards(model, start, end, h, p, INTERVALS_OF_LONG_STEPS)

        def careful(_: Pieces) -> Pieces:
            flow = self._flow(model, start, h, p)
            method: Any = self.method
            known = Known(end, scan, method.allowed, self._finish(model, p))
            search = locate(model, start, h, p, flow, known)  # (2)
            return self._handled(model, carry, search, h, t_next, law, p)

        plain = self._smooth_piece(model, carry, end, h, t_next)
        return once(_is_accurate(end) & scan.fires, careful, plain)

    def _smooth_piece(
        self, model: Model, carry: Pieces, end: State, h: Number, t_next: Number
    ) -> Pieces:
        """After a piece without an event, which is repeated if it was not accurate."""
        start = carry.state
        accurate = _is_accurate(end)
        end = _at_time(_risen(start, end), _time_after(start, h, t_next))
        code = first_of(
            (end.status != Status.OK, end.status),
            (~_is_finite(end.point) & accurate, Status.NONFINITE),
            (carry.tries >= self._most_tries, Status.TOO_MANY_STEPS),
        )
        failed = code != Status.OK
        state = _repeat_unless(accurate, end, start).with_failure(failed, code, start.point)
        no_event = LocatedEvent.empty(model.k)
        plan, planned = carry.plan, accurate & self.controls_error
        return carry._replace(
            state=state,
            plan=None if plan is None else plan.append(no_event, h, False, planned),
            done=((end.point.t >= t_next) & accurate) | failed,
            tries=carry.tries + 1,
        )

    def _handled(
        self,
        model: Model,
        carry: Pieces,
        search: EventSearch,
        h: Number,
        t_next: Number,
        law: AbstractLaw,
        p: Params,
    ) -> Pieces:
        """After a piece on which an event was searched for: at the event, or at its end."""
        start, log, plan = carry.state, carry.log, carry.plan
        event = search.event
        end = _at_time(_risen(start, search.end), _time_after(start, h, t_next))
        accurate = _is_accurate(search.end)
        finite = _is_finite(end.point)
        seen = jnp.any(search.scan.fired) & accurate
        back = search.scan.fell_back & accurate
        found = seen & event.found & finite
        full = log.is_full
        crowded = carry.events >= self.max_switches
        go = found & ~full & ~crowded & ~back
        t, q, v = search.place
        before = start.point.replace(t=t, q=q, v=v)
        landed, record, changed = self._change_at(model, start, before, event.fired, law, p)
        landed = self._on_surface(model, landed, h, p, event.fired)
        grazes = jnp.all(end.guard >= -SLACK * jnp.abs(start.guard))
        code = first_of(
            (end.status != Status.OK, end.status),
            (~finite & accurate, Status.NONFINITE),
            (back, Status.LEADS_BACK),
            (seen & ~found & ~grazes, Status.NOT_LOCATED),
            (found & crowded, Status.TOO_MANY_SWITCHES),
            (found & full, Status.LOG_FULL),
            (go & (changed != Status.OK), changed),
            (carry.tries >= self._most_tries, Status.TOO_MANY_STEPS),
        )
        failed = code != Status.OK
        where = start.point.replace(t=jnp.where(go, record.t, start.point.t))
        state = _where(go, landed, _repeat_unless(accurate, end, start))
        planned = go | (accurate & self.controls_error)
        return Pieces(
            state=state.with_failure(failed, code, where),
            log=log.append(record, go & ~failed),
            plan=None if plan is None else plan.append(event, h, go, planned),
            done=(~go & (end.point.t >= t_next) & accurate) | failed,
            tries=carry.tries + 1,
            events=carry.events + go,
        )

    def _attempts(
        self, model: Model, state: State, t_next: Number, p: Params, plan: EventPlan | None
    ) -> tuple[State, Bool[Array, ""], Any]:
        """Pieces under error control, as far as t_next or to one on which a guard fired; whether
        one did; and the plan, if there is one, with the accepted pieces."""
        no_event = LocatedEvent.empty(model.k)

        def attempt(carry):
            state, _, plan, tries = carry
            h = self._length(state, t_next)
            end, seen = self._attempt(model, state, t_next, p)
            accurate = _is_accurate(end)
            plan = None if plan is None else plan.append(no_event, h, False, accurate)
            return _repeat_unless(accurate, end, state), accurate & seen, plan, tries + 1

        goes_on = lambda state: (state.point.t < t_next) & (state.status == Status.OK)
        going = lambda c: ~c[1] & goes_on(c[0]) & (c[3] < self._most_pieces)
        carry = (state, jnp.zeros((), bool), plan, jnp.zeros((), int))
        state, seen, plan, _ = jax.lax.while_loop(going, attempt, carry)
        short = ~seen & (state.point.t < t_next)
        state = state.with_failure(short, Status.TOO_MANY_STEPS, state.point)
        return _at_time(state, t_next), seen, plan

    def _attempt(
        self, model: Model, state: State, t_next: Number, p: Params
    ) -> tuple[State, Bool[Array, ""]]:
        """One piece, and whether a guard fired on it."""
        state = self._turned(model, state, p)
        h = self._length(state, t_next)
        end = self._smooth(model, state, h, p)  # (1)
        intervals = INTERVALS_OF_LONG_STEPS if self.controls_error else INTERVALS
        seen = scan_guards(model, state, end, h, p, intervals)
        end = _at_time(_risen(state, end), _time_after(state, h, t_next))
        return end, seen.fires

    def _turned(self, model: Model, state: State, p: Params) -> State:
        """The state whose contacts hold the directions in which they slip now, with its guards. In
        the plane these change at events only."""
        if not model.has_contacts or contact_size(model)[1] < 3:
            return state
        h = model.step * (SLOW_PIECE if self.controls_error else 1.0)
        point = turned(model, state.point, state.memory.a, state.memory.lam, h, p)
        guard = model.guards(point, state.memory.lam, p)
        return eqx.tree_at(lambda x: (x.point, x.guard), state, (point, guard))

    def _finish(self, model: Model, p: Params) -> Callable[[Point], Point]:
        """What removes the drift of a step."""
        if self._removes_drift(model):
            return lambda point: _restored(model, point, p)
        return lambda point: point

    def _removes_drift(self, model: Model) -> bool:
        return self.project and (model.drifts or model.system.retract is not None)

    def _smooth(self, model: Model, state: State, h: Number, p: Params) -> State:
        # With error control a step is long, and so is its text: it is written once.
        advance = _smooth_once if self.controls_error else _smooth
        return advance(self, model, state, h, p)

    def _renewed(self, model: Model, state: State, p: Params) -> State:
        """The state with its constraints satisfied and the memory of the method rebuilt."""
        point = _restored(model, state.point, p)
        point, memory = self.method.init(model, point, p)
        return state.arrived(model, point, memory, p)

    def _flow(self, model: Model, state: State, h: Number, p: Params) -> Callable:
        """The step map of (2), advance(theta, end, first) -> state. A multistep method needs its
        grid: instead of shorter steps it uses the dense output of the full step, which is computed
        when `first` is True and passed as `end` from then on."""
        if not self.method.is_multistep:
            return lambda theta, end, first: self._smooth(model, state, theta * h, p)
        full = lambda theta, end: self._smooth(model, state, h, p)
        shorter = lambda theta, end: self._between(model, state, end, h, p, theta)
        return lambda theta, end, first: jax.lax.cond(first, full, shorter, theta, end)

    def _between(
        self, model: Model, state: State, end: State, h: Number, p: Params, theta: Number
    ) -> State:
        """The dense output of the step to `end`, projected onto the constraints."""
        point, lam = between(model, state, end, h, p, theta)
        point = _restored(model, point, p)
        a = (1 - theta) * state.memory.a + theta * end.memory.a
        values = (point, a, lam, model.guards(point, lam, p))
        return eqx.tree_at(lambda x: (x.point, x.memory.a, x.memory.lam, x.guard), end, values)

    def _change_at(
        self,
        model: Model,
        state: State,
        before: Point,
        fired: GuardMask,
        law: AbstractLaw,
        p: Params,
    ) -> tuple:
        """Change the mode at the point `before` and restart the method: the state after, the
        record, a status."""
        change = change_contacts if model.has_contacts else change_mode
        after, record, status = change(model, before, fired, law, p)  # (3)
        point, memory = self.method.init(model, after, p)
        if self.controls_error:
            known: Any = state.memory
            memory = eqx.tree_at(lambda x: x.h_next, memory, known.h_next)
        return eqx.tree_at(lambda x: (x.point, x.memory), state, (point, memory)), record, status

    def _on_surface(
        self, model: Model, state: State, h: Number, p: Params, fired: GuardMask
    ) -> State:
        """The guards just after an event: those that are zero to round-off are not watched until
        they have risen. A guard that is falling and did not fire is about to fire, so it stays
        watched; one that falls by less than its round-off in a step is not falling."""
        guard = model.guards(state.point, state.memory.lam, p)
        rate = _rates(model, state, p)
        noise = guard_rates.noise(model, state.point, state.memory.lam, p)
        tolerance = SLACK * jnp.abs(rate * h) + noise
        surface = (jnp.abs(guard) <= tolerance) & (fired | (rate * h >= -noise))
        departure = jnp.where(surface & (rate * h > tolerance), rate, 0.0)
        # A tolerance of 0 means that a guard is watched, so a guard at zero needs at least a tiny
        # one.
        tiny = jnp.finfo(float).tiny
        tolerance = jnp.where(surface, jnp.maximum(tolerance, tiny), 0.0)
        on = jax.lax.stop_gradient(Surface(tolerance, departure))
        return eqx.tree_at(lambda x: (x.guard, x.own), state, (guard, on))

    def _at_event(
        self, model: Model, state: State, h: Number, p: Params, event: LocatedEvent
    ) -> Point:
        """The point at a located event, with the derivative of (4)."""

        def phi(theta, model, state, h, p):
            if self.method.is_multistep:
                end = self._smooth(model, state, h, p)
                stop = self._between(model, state, end, h, p, theta)
            else:
                stop = self._smooth(model, state, theta * h, p)
            return (stop.point.t, stop.point.q, stop.point.v), stop.guard[event.index]

        theta = jax.lax.stop_gradient(event.theta)
        args = (model, state, h, p)
        frozen = jax.tree.map(
            lambda x: jax.lax.stop_gradient(x) if eqx.is_inexact_array(x) else x, args
        )
        along = jax.jvp(lambda theta: phi(theta, *frozen), (theta,), (jnp.ones_like(theta),))
        velocity, slope = along[1]
        x, g = phi(theta, *args)
        change = jnp.where(event.moves, -g / jnp.where(event.moves, slope, 1.0), 0.0)
        t, q, v = (y + rate * change for y, rate in zip(x, velocity, strict=True))  # (4)
        return state.point.replace(t=t, q=q, v=v)


def _smooth(driver: EventDriven, model: Model, state: State, h: Number, p: Params) -> State:
    """Phi: a step of the method with drift removed and guards evaluated."""
    method = driver.method
    finish = driver._finish(model, p) if driver._removes_drift(model) else None
    point, memory = method.step(model, state.point, state.memory, h, p, finish)
    end = state.arrived(model, point, memory, p)
    return end if memory.effort is None else end.with_effort(memory.effort, state.point)


_smooth_once = traced_once(_smooth)


def _restored(model: Model, point: Point, p: Params) -> Point:
    """The point without the drift of a step: on the configuration manifold, then on the
    constraints."""
    point = point.replace(q=model.system.restored(point.q, p))
    return project(model, point, p) if model.drifts else point


def _rates(model: Model, state: State, p: Params) -> Guards:
    return guard_rates.rates(model, state.point, state.memory.a, state.memory.lam, p)


def _is_finite(point: Point) -> Bool[Array, ""]:
    return jnp.all(jnp.isfinite(point.q)) & jnp.all(jnp.isfinite(point.v))


def _risen(start: State, end: State) -> State:
    """Guards that have risen above their tolerance are watched again."""
    left = end.guard > start.own.tolerance
    tolerance = jnp.where(left, 0.0, start.own.tolerance)
    return eqx.tree_at(lambda x: x.own.tolerance, end, tolerance)


def _is_accurate(end: State) -> Bool[Array, ""]:
    if isinstance(end.memory, ControlledMemory):
        return end.memory.error <= 1
    return jnp.ones((), bool)


def _repeat_unless(accurate: Flag, end: State, start: State) -> State:
    """The end of a piece if it is accurate; else its start, with a smaller step in mind."""
    if not isinstance(end.memory, ControlledMemory):
        return end
    kept = lambda x: (x.memory.h_next, x.effort, x.status, x.t_stop, x.mode_stop)
    again = eqx.tree_at(kept, start, kept(end))
    return _where(accurate, end, again)


def _where(condition: Flag, a: State, b: State) -> State:
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


def _time_after(start: State, h: Number, t_next: Number) -> Number:
    """The time at the end of a piece; exactly t_next for the last one."""
    return jnp.where(h >= t_next - start.point.t, t_next, start.point.t + h)


def _at_time(state: State, t: Number) -> State:
    return eqx.tree_at(lambda x: x.point.t, state, t)
