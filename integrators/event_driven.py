"""Event-driven integration: a smooth method between switches, which are located, carried out and left inside the step.

A step from x_0 to the grid time t_1:

    x_1 = Phi(x_0, t_1 - t_0)                                  a straight step, all there is when no guard falls    (1)
    while a guard falls through zero on the dense output:
        theta = first zero of g_i(Phi(x_0, theta h))           `nsdyn.locate`                                       (2)
        x_e = Phi(x_0, theta h);  x_0 = switch(x_e)            `nsdyn.switch`                                       (3)
        x_1 = Phi(x_0, t_1 - t_e)                              the rest of the step

Derivatives: theta is found under stop_gradient; one Newton step on g_i then carries its derivative,

    theta_d = theta - g_i / g_i',   x_e = Phi(theta) + Phi'(theta) (theta_d - theta)                                 (4)

which changes nothing in value and makes event time and state exactly differentiable. Phi includes the projection that removes
constraint drift, on by default.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from nsdyn.dense import SLACK, below, dips, guards_between
from nsdyn.errors import ProblemError
from nsdyn.integrator import AbstractIntegrator, AbstractSmoothMethod, State
from nsdyn.locate import Event, locate
from nsdyn.model import Model
from nsdyn.projection import project
from nsdyn.replay import with_replay
from nsdyn.status import Status
from nsdyn.switch import switch

QUARTERS = (0.25, 0.5, 0.75)
ROUND_OFF = 1e-13


class Attempt(NamedTuple):
    """A straight step: its end, the guards that fell through zero on it, whether it leaves through the old side."""

    end: State
    hit: jax.Array
    back: jax.Array


class Plan(NamedTuple):
    """The switches inside one step, for replaying it."""

    events: Event
    count: jax.Array


class EventDriven(AbstractIntegrator):
    method: AbstractSmoothMethod
    project: bool = eqx.field(static=True, default=True)
    max_switches: int = eqx.field(static=True, default=32)

    def __check_init__(self):
        if not isinstance(self.method, AbstractSmoothMethod):
            raise ProblemError(f"EventDriven(method=...): expected a smooth method such as RK4(), found {self.method!r}")
        if self.max_switches < 1:
            raise ProblemError(f"EventDriven(max_switches=...): expected at least 1, found {self.max_switches}")

    def start(self, model, point, step, p):
        point, memory = self.method.init(model, point, p)
        state = self._on_surface(model, State(point, memory, *_no_guards(model), jnp.zeros((), int)), step, p)
        # On its surface and falling: that is a switch at t_0, not one that was just carried out.
        falling = (state.floor > 0) & (_guard_rates(model, state, p) < 0)
        state = eqx.tree_at(lambda x: x.floor, state, jnp.where(falling, 0.0, state.floor))
        negative = jnp.any((state.floor == 0) & (state.guard < 0) & ~falling)
        return eqx.tree_at(lambda x: x.status, state, jnp.where(negative, Status.GUARD_NEGATIVE, Status.OK))

    def advance(self, model, state, log, t_next, law, p):
        args = (self, model, state, log, t_next, law, p)
        if model.k == 0:
            return _finish(_smooth(self, model, state, t_next - state.point.t, p, False), t_next), log
        return with_replay(_advance, _replay, args)

    def _on_surface(self, model, state, h, p):
        """The guards at a point reached by a switch: those at zero to round-off are not watched until they have risen."""
        guard = model.guards(state.point, state.memory.lam, p)
        rate = _guard_rates(model, state, p)
        floor = SLACK * jnp.abs(rate * h) + _guard_noise(model, state, p)
        surface = jnp.abs(guard) <= floor
        lift = jnp.where(surface & (rate * h > floor), rate, 0.0)
        values = jax.lax.stop_gradient((jnp.where(surface, floor, 0.0), lift))
        return eqx.tree_at(lambda x: (x.guard, x.floor, x.lift), state, (guard, *values))


def _no_guards(model: Model):
    return jnp.zeros(model.k), jnp.zeros(model.k), jnp.zeros(model.k)


def _guard_rates(model, state, p):
    """d/dt of the guards along the motion; multipliers count as constant."""
    point = state.point
    guards = lambda q, v, t: model.guards(
        eqx.tree_at(lambda x: (x.q, x.v, x.t), point, (q, v, t)), state.memory.lam, p
    )
    qdot = model.system.rate(point.q, point.v, p)
    return jax.jvp(guards, (point.q, point.v, point.t), (qdot, state.memory.a, jnp.ones_like(point.t)))[1]


def _guard_noise(model, state, p):
    """How large the guards may be by round-off alone: |dg/dx| |x| times a few units in the last place."""
    point = state.point
    x = (point.q, point.v, point.t)
    guards = lambda x: model.guards(eqx.tree_at(lambda y: (y.q, y.v, y.t), point, x), state.memory.lam, p)
    columns = jax.jacfwd(guards)(x)
    sizes = [jnp.abs(c).reshape(model.k, -1) @ jnp.abs(jnp.ravel(y)) for c, y in zip(columns, x, strict=True)]
    return ROUND_OFF * sum(sizes) + jnp.finfo(float).tiny


def _smooth(self: EventDriven, model: Model, state: State, h, p, compact: bool) -> State:
    """Phi: a step of the method, drift projected away, guards evaluated."""
    point, memory = self.method.step(model, state.point, state.memory, h, p, compact=compact)
    if self.project and model.drifts:
        point = project(model, point, p)
    point, memory = self.method.refresh(model, point, memory, p)
    guard = model.guards(point, memory.lam, p) if model.k else state.guard
    return State(point, memory, guard, state.floor, state.lift, state.status)


def _attempt(self, model, state, h, p, compact) -> Attempt:
    end = _smooth(self, model, state, h, p, compact)  # (1)
    inner = guards_between(model, state, end, h, p, jnp.array(QUARTERS))
    samples = jnp.concatenate([inner, end.guard[None]])
    armed = state.floor == 0
    beyond = below(samples, state.floor)
    risen = (state.lift > 0)[None] | (jnp.cumsum(samples > state.floor, axis=0) > 0)
    all_samples = jnp.concatenate([state.guard[None], samples])
    dip = jnp.any(dips(all_samples[:-2], all_samples[1:-1], all_samples[2:]) & (all_samples[1:-1] > 0), axis=0)
    hit = jnp.where(armed, jnp.any(beyond, axis=0) | dip | (state.guard <= 0), jnp.any(beyond & risen, axis=0))
    back = ~armed & jnp.any(beyond & ~risen, axis=0)
    floor = jnp.where(end.guard > state.floor, 0.0, state.floor)
    end = eqx.tree_at(lambda x: x.floor, end, floor)
    return Attempt(end, hit, jnp.any(back))


def _switch_at(self, model, state, h, law, p, event: Event) -> tuple:
    """Go to the event, switch, start anew: the state after, the record, a status."""

    def flow(theta):
        end = _smooth(self, model, state, theta * h, p, True)
        return (end.point.t, end.point.q, end.point.v), end.guard[event.index]

    theta = jax.lax.stop_gradient(event.theta)
    (x, g), (dx, dg) = jax.jvp(flow, (theta,), (jnp.ones_like(theta),))
    correction = jnp.where(event.immediate, 0.0, -g / jnp.where(event.immediate, 1.0, dg))  # (4)
    t, q, v = jax.tree.map(lambda x, dx: x + dx * correction, x, dx)
    before = eqx.tree_at(lambda y: (y.t, y.q, y.v), state.point, (t, q, v))
    after, record, status = switch(model, before, event.fired, law, p)  # (3)
    point, memory = self.method.init(model, after, p)
    landed = State(point, memory, state.guard, state.floor, state.lift, state.status)
    return self._on_surface(model, landed, h, p), record, status


def _advance(self, model, state, log, t_next, law, p):
    """The step as it is computed, and the plan of its switches."""
    h = t_next - state.point.t
    running = state.status == Status.OK
    attempt = _attempt(self, model, state, h, p, False)
    blank = Event(jnp.zeros(()), jnp.zeros((), int), jnp.zeros(model.k, bool), jnp.zeros((), bool), jnp.zeros((), bool))
    events = jax.tree.map(lambda x: jnp.broadcast_to(x, (self.max_switches, *x.shape)), blank)
    flags = (running & jnp.any(attempt.hit) & ~attempt.back, jnp.where(attempt.back, Status.LEADS_BACK, Status.OK))
    carry = (state, attempt.end, attempt.hit, flags, log, Plan(events, jnp.zeros((), int)))

    def body(carry):
        start, end, hit, (_, status), log, plan = carry
        h = t_next - start.point.t
        guards = lambda theta: _smooth(self, model, start, theta * h, p, True).guard
        event = locate(model, start, end, h, p, hit, guards)  # (2)
        full = log.count >= log.capacity
        crowded = plan.count >= self.max_switches
        grazes = ~event.found & jnp.all(end.guard > 0)
        go = event.found & ~full & ~crowded
        landed, record, switched = _switch_at(self, model, start, h, law, p, event)
        log = log.append(record, go)
        events = jax.tree.map(lambda all_, one: all_.at[plan.count].set(one, mode="drop"), plan.events, event)
        plan = Plan(events, plan.count + go)
        rest = _attempt(self, model, landed, t_next - landed.point.t, p, True)
        pick = lambda new, old: jax.tree.map(lambda a, b: jnp.where(go, a, b), new, old)
        status = _first(
            (~event.found & ~grazes, Status.NOT_LOCATED),
            (event.found & crowded, Status.TOO_MANY_SWITCHES),
            (event.found & full, Status.LOG_FULL),
            (go & (switched != Status.OK), switched),
            (go & rest.back, Status.LEADS_BACK),
        )
        pending = go & jnp.any(rest.hit) & (status == Status.OK)
        return pick(landed, start), pick(rest.end, end), rest.hit, (pending, status), log, plan

    start, end, _, (_, status), log, plan = jax.lax.while_loop(lambda c: c[3][0], body, carry)
    end = _finish(end, t_next)
    out = jax.tree.map(lambda a, b: jnp.where(running & (status == Status.OK), a, b), end, start)
    out = eqx.tree_at(lambda x: x.status, out, jnp.where(running, status, state.status))
    return (out, log), plan


def _first(*cases):
    """The code of the first case that holds."""
    status = jnp.asarray(int(Status.OK))
    for holds, code in reversed(cases):
        status = jnp.where(holds, code, status)
    return status


def _finish(state: State, t_next) -> State:
    return eqx.tree_at(lambda x: x.point.t, state, t_next)


def _replay(self, model, state, log, t_next, law, p, plan: Plan):
    """The same step, built of a bounded number of pieces."""

    def straight(state, log):
        return _finish(_smooth(self, model, state, t_next - state.point.t, p, False), t_next), log

    def pieces(state, log):
        def piece(carry, step):
            event, wanted = step

            def go(state, log):
                landed, record, _ = _switch_at(self, model, state, t_next - state.point.t, law, p, event)
                return landed, log.append(record, True)

            return jax.lax.cond(wanted, go, lambda state, log: (state, log), *carry), None

        wanted = jnp.arange(self.max_switches) < plan.count
        (state, log), _ = jax.lax.scan(piece, (state, log), (plan.events, wanted))
        end = _smooth(self, model, state, t_next - state.point.t, p, True)
        return _finish(end, t_next), log

    return jax.lax.cond(plan.count > 0, pieces, straight, state, log)
