"""Event-capturing integration: time steps of fixed size that notice at their end that something switched.

Mode selection of one step from the point 0 to the point 1:

    take the step in the old mode; a guard below zero at its end fires                                              (1)
    take it again as a switching step: the constraints of the new mode, the impulse law between old and new         (2)
    if a guard that fired is below zero after that as well, keep (1): the switch comes a step later, or there is none
    at all, as where a track turns back by more than 90 degrees, and the run ends                                   (3)
    A guard that is a force in the new mode says nothing of that: a contact that has closed may be about to lift.

(1) stands for the look at the predictor that is usual; the converged step of the old mode is the better predictor, and it is
there already when nothing switches. After a switching step methods with memory start anew in the new mode, except the classical
schemes, which know of no jumps. A switch is recorded at t_1, the end of its step, with the free velocity of the step as
`v_before`: that is what the law acts on.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from nsdyn import guards
from nsdyn.dense import SLACK
from nsdyn.integrator import AbstractIntegrator, State, first_of
from nsdyn.law import AbstractLaw, Jump
from nsdyn.log import Record
from nsdyn.model import Model, Point
from nsdyn.newton import Effort
from nsdyn.reaction import Reaction
from nsdyn.status import Status
from nsdyn.switch import Impulse, impulse, record, settled, status


class Turn(eqx.Module):
    """The mode that a step goes to and the law on the way; a turn that is not active is a step without a switch."""

    mode: Any
    held: tuple
    law: AbstractLaw
    active: jax.Array

    def applied(self, point: Point) -> Point:
        return eqx.tree_at(lambda x: (x.mode, x.held), point, (self.mode, self.held))

    def impulse(self, model: Model, start: Point, here: Reaction, v, p) -> Impulse:
        """The law between the mode of `start` and the new one on the free velocity v. Where it has nothing to do, because rows
        only disappear, the velocity still has to satisfy those that stay: it is projected onto them."""
        found = impulse(model, start, here, v, self.law, p)
        choose = lambda a, b: jnp.where(found.acts & self.active, a, b)
        return found._replace(jump=Jump(*map(choose, found.jump, projected(here, v))))


def projected(here: Reaction, v) -> Jump:
    """The velocity nearest to v in the mass metric that satisfies the rows."""
    step, mu = here.reach(-here.psi(v))
    return Jump(v + step, mu, here.G)


class Step(NamedTuple):
    """The end of a step; with a turn also the impulse and the free velocity that it acted on."""

    point: Point
    memory: Any
    found: Impulse | None
    free: jax.Array


class Plan(eqx.Module):
    """Whether a step switched, and which guards made it."""

    go: jax.Array
    fired: jax.Array


class AbstractCapturing(AbstractIntegrator):
    """A time-stepping scheme; it says how one step is made."""

    @property
    def jumps(self) -> bool:
        """Whether velocities jump in a switching step, as the law says."""
        return True

    @abstractmethod
    def init(self, model: Model, point: Point, p) -> tuple[Point, Any]:
        """The memory (at least `a`, `lam` and `effort`) at a point where nothing is known yet."""

    @abstractmethod
    def advance(self, model: Model, point: Point, memory, h, p, turn: Turn | None = None) -> Step:
        """One step of size h from `point`, in its mode or into that of the `turn`."""

    def refuses(self, law, parts):
        return law.needs_consistent

    def start(self, model, point, step, p):
        point, memory = self.init(model, point, p)
        guard, blank = model.guards(point, memory.lam, p), jnp.zeros(model.k)
        state = State(point, memory, guard, blank, blank, jnp.zeros((), int), point.t, point.mode, Effort.none())
        slack = SLACK * jnp.abs(guards.rates(model, point, memory.a, memory.lam, p)) * step
        slack = slack + guards.noise(model, point, memory.lam, p)
        negative = jnp.any((guard < -slack) & ~guards.by_force(model, point, memory.lam, p))
        return state.stopped(negative, Status.GUARD_NEGATIVE, point)

    def attempt(self, model, state, t_next, p):
        step = self.advance(model, state.point, state.memory, t_next - state.point.t, p)
        end = _arrived(model, state, step.point, step.memory, t_next, p)
        return end, jnp.any(_fallen(state.guard, end.guard))

    def careful(self, model, state, log, t_next, law, p):
        start = state.point

        def take(carry):
            """(1) at first, (2) if a guard fell in it."""
            smooth, log, fired, turn, _, _ = carry
            end, new, code = self._turned(model, state, turn, fired, t_next, p)
            fell = _fallen(state.guard, end.guard) & ~turn.active & (end.status == Status.OK)
            depth = SLACK * (jnp.abs(state.guard) + jnp.abs(smooth.guard)) + guards.ZERO
            contradicted = (
                turn.active & fired & (end.guard < -depth) & ~guards.by_force(model, end.point, end.memory.lam, p)
            )
            go = turn.active & ~jnp.any(contradicted)  # (3)
            stuck = jnp.any(contradicted & (state.guard < -depth))  # the step before has kept the old mode already
            code = jnp.where(log.count >= log.capacity, Status.LOG_FULL, code)
            end = end.stopped(go & (code != Status.OK), code, start)
            end = jax.tree.map(lambda a, b: jnp.where(turn.active & ~go, b, a), end, smooth)
            end = end.stopped(stuck, Status.LEADS_BACK, start)
            again = jnp.any(fell)
            after = model.after(fell, end.point, p)
            turn = Turn(after.mode, after.held, law, again)
            return end, log.append(new, go), jnp.where(again, fell, fired), turn, go, again

        no, none = jnp.zeros((), bool), jnp.zeros(model.k, bool)
        first = (state, log, none, Turn(start.mode, start.held, law, no), no, state.status == Status.OK)
        end, log, fired, _, go, _ = jax.lax.while_loop(lambda c: c[-1], take, first)
        return end, log, Plan(go, fired)

    def replay(self, model, state, log, t_next, law, p, plan: Plan):
        end = self.attempt(model, state, t_next, p)[0]

        def again(end, log):
            after = model.after(plan.fired, end.point, p)
            turn = Turn(after.mode, after.held, law, jnp.ones((), bool))
            landed, new, _ = self._turned(model, state, turn, plan.fired, t_next, p)
            return landed, log.append(new, True)

        return jax.lax.cond(plan.go, again, lambda *same: same, end, log)

    def _turned(self, model, state: State, turn: Turn, fired, t_next, p) -> tuple[State, Record, Any]:
        """The step with a turn: the state after, its record and a status."""
        start, h = state.point, t_next - state.point.t
        step = self.advance(model, start, state.memory, h, p, turn)
        end, found, memory = step.point, step.found, step.memory
        assert found is not None, "advance answers a turn with an impulse"
        free = eqx.tree_at(lambda x: (x.v, x.t), end, (step.free, t_next))
        before = eqx.tree_at(lambda x: (x.mode, x.held), free, (start.mode, start.held))
        if self.jumps:
            landed, Lam = settled(model, before, free, found.jump, p)
            landed, fresh = self.init(model, landed, p)
            fresh = eqx.tree_at(lambda x: x.effort, fresh, memory.effort)
            choose = lambda a, b: jnp.where(turn.active, a, b)
            landed, memory = jax.tree.map(choose, (landed, fresh), (end, memory))
        else:
            landed, Lam = end, found.jump.Lam
        arrived = _arrived(model, state, landed, memory, t_next, p)
        code = status(model, landed, p, found)
        if not self.jumps:
            return arrived, record(before, landed, Lam, found), jnp.where(code == Status.LAW_VIOLATES, Status.OK, code)
        rate = guards.rates(model, landed, memory.a, memory.lam, p, clock=0.0)  # schedules do not lead back
        back = jnp.any(fired & (rate < 0) & (arrived.guard + h * rate < -guards.ZERO))
        return (
            arrived,
            record(before, landed, Lam, found),
            first_of((code != Status.OK, code), (back, Status.LEADS_BACK)),
        )


def _arrived(model, state: State, point: Point, memory, t_next, p) -> State:
    point = eqx.tree_at(lambda x: x.t, point, t_next)
    guard = model.guards(point, memory.lam, p)
    end = eqx.tree_at(lambda x: (x.point, x.memory, x.guard), state, (point, memory, guard))
    return end.worked(memory.effort, state.point)


def _fallen(before, after):
    """Guards below zero at the end of a step, or so near to it that round-off decides; not those that sit on it."""
    about = SLACK * jnp.maximum(before - after, 0.0)
    return (after < -guards.ZERO) | ((after <= about) & (before > jnp.maximum(after, guards.ZERO)))
