"""Event-driven integration: a smooth method between switches, which are located, carried out and left inside the step.

A step from x_0 to the grid time t_1:

    x_1 = Phi(x_0, t_1 - t_0)                                  a straight step, all there is when no guard falls    (1)
    if a guard falls through zero on the dense output:
        theta = first zero of g_i(Phi(x_0, theta h))           `nsdyn.locate`                                       (2)
        x_e = Phi(x_0, theta h);  x_0 = switch(x_e)            `nsdyn.switch`                                       (3)
        and again from there to t_1

Derivatives: theta is found under stop_gradient; one Newton step on g_i then carries its derivative,

    theta_d = theta - g_i / g_i',   x_e = Phi(theta) + Phi'(theta) (theta_d - theta)                                 (4)

which changes nothing in value and makes event time and state exactly differentiable. Phi includes the projection that removes
constraint drift, on by default.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from nsdyn import guards
from nsdyn.dense import SLACK, below, between, dips, guards_between
from nsdyn.errors import ProblemError
from nsdyn.integrator import AbstractIntegrator, AbstractSmoothMethod, State, first_of
from nsdyn.locate import Event, locate
from nsdyn.log import put
from nsdyn.model import Model
from nsdyn.newton import Effort
from nsdyn.projection import project
from nsdyn.status import Status
from nsdyn.switch import switch

QUARTERS = (0.25, 0.5, 0.75)


class Attempt(NamedTuple):
    """A straight step: its end, the guards that fell through zero on it, whether it leaves through the old side."""

    end: State
    hit: jax.Array
    back: jax.Array


class Plan(eqx.Module):
    """The switches inside one step, for replaying it."""

    events: Event
    count: jax.Array

    def append(self, event: Event, wanted) -> "Plan":
        return Plan(put(self.events, event, self.count, wanted), self.count + wanted)


class EventDriven(AbstractIntegrator):
    method: AbstractSmoothMethod
    project: bool = eqx.field(static=True, default=True)
    max_switches: int = eqx.field(static=True, default=24)

    def __check_init__(self):
        if not isinstance(self.method, AbstractSmoothMethod):
            raise ProblemError(
                f"EventDriven(method=...): expected a smooth method such as RK4(), found {self.method!r}"
            )
        if self.max_switches < 1:
            raise ProblemError(f"EventDriven(max_switches=...): expected at least 1, found {self.max_switches}")

    def start(self, model, point, step, p):
        point, memory = self.method.init(model, point, p)
        blank = jnp.zeros(model.k)
        state = State(point, memory, blank, blank, blank, jnp.zeros((), int), point.t, point.mode, Effort.none())
        state = self._on_surface(model, state, step, p, jnp.zeros(model.k, bool))
        falling = jnp.abs(state.guard) <= SLACK * jnp.abs(_rates(model, state, p)) * step
        # A force that is past its limit at t_0 switches at once; a position or a velocity past its limit is a wrong start.
        forces = guards.by_force(model, point, memory.lam, p)
        negative = jnp.any((state.floor == 0) & (state.guard < 0) & ~falling & ~forces)
        return state.stopped(negative, Status.GUARD_NEGATIVE, point)

    def attempt(self, model, state, t_next, p):
        end, hit, back = _attempt(self, model, state, t_next - state.point.t, p)
        return _finish(end, t_next), jnp.any(hit) | back

    def careful(self, model, state, log, t_next, law, p):
        return _careful(self, model, state, log, t_next, law, p)

    def replay(self, model, state, log, t_next, law, p, plan):
        return _replay(self, model, state, log, t_next, law, p, plan)

    def _on_surface(self, model, state, h, p, fired):
        """The guards at a point reached by a switch: those at zero to round-off are not watched until they have risen. One that
        did not fire and is falling is about to: it stays watched."""
        guard = model.guards(state.point, state.memory.lam, p)
        rate = _rates(model, state, p)
        floor = SLACK * jnp.abs(rate * h) + guards.noise(model, state.point, state.memory.lam, p)
        surface = (jnp.abs(guard) <= floor) & (fired | (rate >= 0))
        lift = jnp.where(surface & (rate * h > floor), rate, 0.0)
        values = jax.lax.stop_gradient((jnp.where(surface, floor, 0.0), lift))
        return eqx.tree_at(lambda x: (x.guard, x.floor, x.lift), state, (guard, *values))


def _rates(model, state: State, p):
    return guards.rates(model, state.point, state.memory.a, state.memory.lam, p)


def _smooth(self: EventDriven, model: Model, state: State, h, p) -> State:
    """Phi: a step of the method, drift projected away, guards evaluated."""
    finish = (lambda point: project(model, point, p)) if self.project and model.drifts else None
    point, memory = self.method.step(model, state.point, state.memory, h, p, finish)
    guard = model.guards(point, memory.lam, p)
    end = eqx.tree_at(lambda x: (x.point, x.memory, x.guard), state, (point, memory, guard))
    return end.worked(memory.effort, state.point) if hasattr(memory, "effort") else end


def _renewed(self: EventDriven, model: Model, state: State, p) -> State:
    """The state with its constraints satisfied and the memory of a method made anew."""
    point, memory = self.method.init(model, project(model, state.point, p) if model.drifts else state.point, p)
    guard = model.guards(point, memory.lam, p)
    return eqx.tree_at(lambda x: (x.point, x.memory, x.guard), state, (point, memory, guard))


def _attempt(self, model, state, h, p) -> Attempt:
    end = _smooth(self, model, state, h, p)  # (1)
    inner = guards_between(model, state, end, h, p, jnp.array(QUARTERS))
    samples = jnp.concatenate([inner, end.guard[None]])
    armed = state.floor == 0
    beyond = below(samples, state.floor)
    risen = (state.lift > 0)[None] | jax.lax.cummax((samples > state.floor[None]).astype(int)).astype(bool)
    all_samples = jnp.concatenate([state.guard[None], samples])
    dip = jnp.any(dips(all_samples[:-2], all_samples[1:-1], all_samples[2:]) & (all_samples[1:-1] > 0), axis=0)
    hit = jnp.where(armed, jnp.any(beyond, axis=0) | dip | (state.guard <= 0), jnp.any(beyond & risen, axis=0))
    back = ~armed & jnp.any(beyond & ~risen, axis=0)
    floor = jnp.where(end.guard > state.floor, 0.0, state.floor)
    end = eqx.tree_at(lambda x: x.floor, end, floor)
    return Attempt(end, hit, jnp.any(back))


def _flow(self, model, state, end, h, p):
    """The step map theta -> ((t, q, v), guards) of (2). A method with memory lives on its grid: for it the dense output of the
    step to `end`, put back on the constraints, takes the place of shorter steps."""

    def flow(theta):
        stop = _smooth(self, model, state, theta * h, p)
        return (stop.point.t, stop.point.q, stop.point.v), stop.guard

    def interpolated(theta):
        point, lam = between(model, state, end, h, p, theta)
        point = project(model, point, p) if model.drifts else point
        return (point.t, point.q, point.v), model.guards(point, lam, p)

    return interpolated if self.method.remembers else flow


def _switch_at(self, model, state, law, p, event: Event, arrived) -> tuple:
    """Switch where the step map `arrived` and start anew: the state after, the record, a status."""
    x, values = arrived
    moves = event.slope != 0
    correction = jnp.where(moves, -values[event.index] / jnp.where(moves, event.slope, 1.0), 0.0)  # (4)
    t, q, v = (x + velocity * correction for x, velocity in zip(x, event.velocity, strict=True))
    before = eqx.tree_at(lambda y: (y.t, y.q, y.v), state.point, (t, q, v))
    after, record, status = switch(model, before, event.fired, law, p)  # (3)
    point, memory = self.method.init(model, after, p)
    return eqx.tree_at(lambda x: (x.point, x.memory), state, (point, memory)), record, status


def _careful(self, model, state, log, t_next, law, p):
    """The step with its switches, and the plan of them."""
    carry = (state, state.status != Status.OK, log, _empty_plan(self, model, state.point))

    def piece(carry):
        start, _, log, plan = carry
        h = t_next - start.point.t
        end, hit, back = _attempt(self, model, start, h, p)
        event, arrived = locate(model, start, end, h, p, hit, _flow(self, model, start, end, h, p))  # (2)
        finite = jnp.all(jnp.isfinite(end.point.q)) & jnp.all(jnp.isfinite(end.point.v))
        seen = jnp.any(hit)
        found = seen & event.found & finite
        full = log.count >= log.capacity
        crowded = plan.count >= self.max_switches
        go = found & ~full & ~crowded & ~back
        landed, record, switched = _switch_at(self, model, start, law, p, event, arrived)
        landed = self._on_surface(model, landed, h, p, event.fired)
        grazes = jnp.all(end.guard >= -SLACK * jnp.abs(start.guard))
        code = first_of(
            (~finite, Status.NONFINITE),
            (back, Status.LEADS_BACK),
            (seen & ~found & ~grazes, Status.NOT_LOCATED),
            (found & crowded, Status.TOO_MANY_SWITCHES),
            (found & full, Status.LOG_FULL),
            (go & (switched != Status.OK), switched),
        )
        failed = code != Status.OK
        state = jax.tree.map(lambda a, b: jnp.where(go, a, b), landed, end).stopped(failed, code, start.point)
        return state, ~go | failed, log.append(record, go), plan.append(event, go)

    state, _, log, plan = jax.lax.while_loop(lambda c: ~c[1], piece, carry)
    if self.method.remembers:
        fresh = _renewed(self, model, state, p)
        state = jax.tree.map(lambda a, b: jnp.where(plan.count > 0, a, b), fresh, state)
    return _finish(state, t_next), log, plan


def _empty_plan(self, model, point) -> Plan:
    velocity = (jnp.zeros(()), jnp.zeros_like(point.q), jnp.zeros_like(point.v))
    no = jnp.zeros((), bool)
    blank = Event(jnp.zeros(()), jnp.zeros((), int), jnp.zeros(model.k, bool), no, velocity, jnp.zeros(()))
    return Plan(jax.tree.map(lambda x: jnp.broadcast_to(x, (self.max_switches, *x.shape)), blank), jnp.zeros((), int))


def _finish(state: State, t_next) -> State:
    return eqx.tree_at(lambda x: x.point.t, state, t_next)


def _replay(self, model, state, log, t_next, law, p, plan: Plan):
    """The same step, built of a bounded number of pieces. What only decides about switches is left as it was."""

    def piece(carry, step):
        event, wanted = step

        def go(state, log):
            h = t_next - state.point.t
            event_ = jax.lax.stop_gradient(event)
            end = _smooth(self, model, state, h, p) if self.method.remembers else None
            arrived = _flow(self, model, state, end, h, p)(event_.theta)
            landed, record, _ = _switch_at(self, model, state, law, p, event_, arrived)
            return landed, log.append(record, True)

        return jax.lax.cond(wanted, go, lambda *same: same, *carry), None

    def pieces(state, log):
        wanted = jnp.arange(self.max_switches) < plan.count
        return jax.lax.scan(piece, (state, log), (plan.events, wanted))[0]

    state, log = jax.lax.cond(plan.count > 0, pieces, lambda *same: same, state, log)
    end = _smooth(self, model, state, t_next - state.point.t, p)
    if self.method.remembers:
        anew = lambda state: _renewed(self, model, state, p)
        end = jax.lax.cond(plan.count > 0, anew, lambda same: same, end)
    return _finish(eqx.tree_at(lambda x: x.guard, end, state.guard), t_next), log
