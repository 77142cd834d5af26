"""Event-driven integration: a smooth method between switches, which are located, carried out and
left inside the step.

A step from x_0 to the grid time t_1:

    x_1 = Phi(x_0, t_1 - t_0)  a straight step, all there is when no guard falls                 (1)
    if a guard falls through zero on the dense output:
        theta = first zero of g_i(Phi(x_0, theta h))  `nsdyn.stepping.locate`                    (2)
        x_e = Phi(x_0, theta h);  x_0 = change(x_e)  `nsdyn.stepping.mode_change`                (3)
        and again from there to t_1

Derivatives: theta is found under stop_gradient; one Newton step on g_i then carries its derivative,

    theta_d = theta - g_i / g_i',   x_e = Phi(theta) + Phi'(theta) (theta_d - theta)             (4)

which changes nothing in value and makes event time and state exactly differentiable. Phi includes
the projection that removes constraint drift, on by default.
"""

import equinox as eqx
import jax
import jax.numpy as jnp

from nsdyn.errors import ProblemError
from nsdyn.mechanics.model import Model, Point
from nsdyn.mechanics.projection import project
from nsdyn.numerics.newton import Effort
from nsdyn.status import Status
from nsdyn.stepping import guard_rates
from nsdyn.stepping.detect import SLACK, between, scan_guards
from nsdyn.stepping.integrator import AbstractIntegrator, AbstractSmoothMethod, State, first_of
from nsdyn.stepping.locate import LocatedEvent, locate
from nsdyn.stepping.log import put
from nsdyn.stepping.mode_change import change_mode

INTERVALS = (
    4  # in which a step is looked at for switches; one with a switch is looked at more closely
)


class EventPlan(eqx.Module):
    """The switches inside one step, for replaying it."""

    events: LocatedEvent
    count: jax.Array

    def append(self, event: LocatedEvent, wanted) -> "EventPlan":
        return EventPlan(put(self.events, event, self.count, wanted), self.count + wanted)


class EventDriven(AbstractIntegrator):
    method: AbstractSmoothMethod
    project: bool = eqx.field(static=True, default=True)
    max_switches: int = eqx.field(static=True, default=24)

    def __check_init__(self):
        if not isinstance(self.method, AbstractSmoothMethod):
            raise ProblemError(
                "EventDriven(method=...): expected a smooth method such as RK4(), found "
                f"{self.method!r}"
            )
        if self.max_switches < 1:
            raise ProblemError(
                f"EventDriven(max_switches=...): expected at least 1, found {self.max_switches}"
            )

    def start(self, model, point, step, p):
        point, memory = self.method.init(model, point, p)
        blank = jnp.zeros(model.k)
        state = State(
            point,
            memory,
            blank,
            blank,
            blank,
            jnp.zeros((), int),
            point.t,
            point.mode,
            Effort.none(),
        )
        state = self._on_surface(model, state, step, p, jnp.zeros(model.k, bool))
        falling = jnp.abs(state.guard) <= SLACK * jnp.abs(_rates(model, state, p)) * step
        # A force that is past its limit at t_0 switches at once; a position or a velocity past its
        # limit is a wrong start.
        forces = guard_rates.by_force(model, point, memory.lam, p)
        negative = jnp.any((state.surface_tolerance == 0) & (state.guard < 0) & ~falling & ~forces)
        return state.with_failure(negative, Status.GUARD_NEGATIVE, point)

    def attempt(self, model, state, t_next, p):
        h = t_next - state.point.t
        end = _smooth(self, model, state, h, p)  # (1)
        seen = scan_guards(model, state, end, h, p, INTERVALS)
        return _finish(_risen(state, end), t_next), jnp.any(seen.fired) | seen.fell_back

    def careful(self, model, state, log, t_next, law, p):
        return _careful(self, model, state, log, t_next, law, p)

    def replay(self, model, state, log, t_next, law, p, plan):
        return _replay(self, model, state, log, t_next, law, p, plan)

    def _on_surface(self, model, state, h, p, fired):
        """The guards at a point reached by a switch: those at zero to round-off are not watched
        until they have risen. One that did not fire and is falling is about to: it stays
        watched."""
        guard = model.guards(state.point, state.memory.lam, p)
        rate = _rates(model, state, p)
        surface_tolerance = SLACK * jnp.abs(rate * h) + guard_rates.noise(
            model, state.point, state.memory.lam, p
        )
        surface = (jnp.abs(guard) <= surface_tolerance) & (fired | (rate >= 0))
        departure_rate = jnp.where(surface & (rate * h > surface_tolerance), rate, 0.0)
        values = jax.lax.stop_gradient((jnp.where(surface, surface_tolerance, 0.0), departure_rate))
        return eqx.tree_at(
            lambda x: (x.guard, x.surface_tolerance, x.departure_rate), state, (guard, *values)
        )


def _rates(model, state: State, p):
    return guard_rates.rates(model, state.point, state.memory.a, state.memory.lam, p)


def _smooth(self: EventDriven, model: Model, state: State, h, p) -> State:
    """Phi: a step of the method, drift projected away, guards evaluated."""
    finish = (lambda point: project(model, point, p)) if self.project and model.drifts else None
    point, memory = self.method.step(model, state.point, state.memory, h, p, finish)
    guard = model.guards(point, memory.lam, p)
    end = eqx.tree_at(lambda x: (x.point, x.memory, x.guard), state, (point, memory, guard))
    return end.with_effort(memory.effort, state.point) if hasattr(memory, "effort") else end


def _renewed(self: EventDriven, model: Model, state: State, p) -> State:
    """The state with its constraints satisfied and the memory of a method made anew."""
    point, memory = self.method.init(
        model, project(model, state.point, p) if model.drifts else state.point, p
    )
    guard = model.guards(point, memory.lam, p)
    return eqx.tree_at(lambda x: (x.point, x.memory, x.guard), state, (point, memory, guard))


def _risen(start: State, end: State) -> State:
    """Guards that have left their surface are watched again."""
    return eqx.tree_at(
        lambda x: x.surface_tolerance,
        end,
        jnp.where(end.guard > start.surface_tolerance, 0.0, start.surface_tolerance),
    )


def _between(self: EventDriven, model: Model, state: State, end: State, h, p, theta) -> State:
    """The dense output of the step to `end`, put back on the constraints."""
    point, lam = between(model, state, end, h, p, theta)
    point = project(model, point, p) if model.drifts else point
    a = (1 - theta) * state.memory.a + theta * end.memory.a
    values = (point, a, lam, model.guards(point, lam, p))
    return eqx.tree_at(lambda x: (x.point, x.memory.a, x.memory.lam, x.guard), end, values)


def _flow(self: EventDriven, model: Model, state: State, h, p):
    """The step map of (2), advance(theta, end, first) -> state. A method with memory lives on its
    grid: for it the dense output of the step to `end`, which is found `first`, takes the place of
    shorter steps."""
    if not self.method.is_multistep:
        return lambda theta, end, first: _smooth(self, model, state, theta * h, p)
    straight = lambda theta, end: _smooth(self, model, state, h, p)
    shorter = lambda theta, end: _between(self, model, state, end, h, p, theta)
    return lambda theta, end, first: jax.lax.cond(first, straight, shorter, theta, end)


def _switch_at(self, model, state, before: Point, fired, law, p) -> tuple:
    """Switch at the point `before` and start anew: the state after, the record, a status."""
    after, record, status = change_mode(model, before, fired, law, p)  # (3)
    point, memory = self.method.init(model, after, p)
    return eqx.tree_at(lambda x: (x.point, x.memory), state, (point, memory)), record, status


def _careful(self, model, state, log, t_next, law, p):
    """The step with its switches, and the plan of them."""
    carry = (state, state.status != Status.OK, log, _empty_plan(self, model))

    def piece(carry):
        start, _, log, plan = carry
        h = t_next - start.point.t
        end, seen, event, place, *_ = locate(
            model, start, h, p, _flow(self, model, start, h, p)
        )  # (2)
        end = _risen(start, end)
        finite = jnp.all(jnp.isfinite(end.point.q)) & jnp.all(jnp.isfinite(end.point.v))
        hit, back = jnp.any(seen.fired), seen.fell_back
        found = hit & event.found & finite
        full = log.count >= log.capacity
        crowded = plan.count >= self.max_switches
        go = found & ~full & ~crowded & ~back
        before = eqx.tree_at(lambda x: (x.t, x.q, x.v), start.point, place)
        landed, record, switched = _switch_at(self, model, start, before, event.fired, law, p)
        landed = self._on_surface(model, landed, h, p, event.fired)
        grazes = jnp.all(end.guard >= -SLACK * jnp.abs(start.guard))
        code = first_of(
            (~finite, Status.NONFINITE),
            (back, Status.LEADS_BACK),
            (hit & ~found & ~grazes, Status.NOT_LOCATED),
            (found & crowded, Status.TOO_MANY_SWITCHES),
            (found & full, Status.LOG_FULL),
            (go & (switched != Status.OK), switched),
        )
        failed = code != Status.OK
        where = eqx.tree_at(lambda x: x.t, start.point, jnp.where(go, record.t, start.point.t))
        state = jax.tree.map(lambda a, b: jnp.where(go, a, b), landed, end).with_failure(
            failed, code, where
        )
        return state, ~go | failed, log.append(record, go & ~failed), plan.append(event, go)

    state, _, log, plan = jax.lax.while_loop(lambda c: ~c[1], piece, carry)
    if self.method.is_multistep:
        fresh = _renewed(self, model, state, p)
        state = jax.tree.map(lambda a, b: jnp.where(plan.count > 0, a, b), fresh, state)
    return _finish(state, t_next), log, plan


def _empty_plan(self, model) -> EventPlan:
    no = jnp.zeros((), bool)
    blank = LocatedEvent(jnp.zeros(()), jnp.zeros((), int), jnp.zeros(model.k, bool), no, no)
    return EventPlan(
        jax.tree.map(lambda x: jnp.broadcast_to(x, (self.max_switches, *x.shape)), blank),
        jnp.zeros((), int),
    )


def _finish(state: State, t_next) -> State:
    return eqx.tree_at(lambda x: x.point.t, state, t_next)


def _replay(self, model, state, log, t_next, law, p, plan: EventPlan):
    """The same step, built of a bounded number of pieces. What only decides about switches is left
    as it was."""

    def piece(carry, step):
        event, wanted = step

        def go(state, log):
            before = _at_event(self, model, state, t_next - state.point.t, p, event)
            landed, record, _ = _switch_at(self, model, state, before, event.fired, law, p)
            return landed, log.append(record, True)

        return jax.lax.cond(wanted, go, lambda *same: same, *carry), None

    def pieces(state, log):
        wanted = jnp.arange(self.max_switches) < plan.count
        return jax.lax.scan(piece, (state, log), (plan.events, wanted))[0]

    state, log = jax.lax.cond(plan.count > 0, pieces, lambda *same: same, state, log)
    end = _smooth(self, model, state, t_next - state.point.t, p)
    if self.method.is_multistep:
        anew = lambda state: _renewed(self, model, state, p)
        end = jax.lax.cond(plan.count > 0, anew, lambda same: same, end)
    return _finish(eqx.tree_at(lambda x: x.guard, end, state.guard), t_next), log


def _at_event(self, model: Model, state: State, h, p, event: LocatedEvent) -> Point:
    """The point at a located event, with the derivative of (4)."""

    def phi(theta, model, state, h, p):
        if self.method.is_multistep:
            stop = _between(self, model, state, _smooth(self, model, state, h, p), h, p, theta)
        else:
            stop = _smooth(self, model, state, theta * h, p)
        return (stop.point.t, stop.point.q, stop.point.v), stop.guard[event.index]

    theta, args = jax.lax.stop_gradient(event.theta), (model, state, h, p)
    frozen = jax.tree.map(
        lambda x: jax.lax.stop_gradient(x) if eqx.is_inexact_array(x) else x, args
    )
    velocity, slope = jax.jvp(lambda theta: phi(theta, *frozen), (theta,), (jnp.ones_like(theta),))[
        1
    ]
    x, g = phi(theta, *args)
    change = jnp.where(event.moves, -g / jnp.where(event.moves, slope, 1.0), 0.0)
    moved = [y + rate * change for y, rate in zip(x, velocity, strict=True)]  # (4)
    return eqx.tree_at(lambda y: (y.t, y.q, y.v), state.point, tuple(moved))
