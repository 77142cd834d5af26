"""What an integrator is to the driver, and what a smooth method is to `EventDriven`.

Both hold settings only. They receive a state and return one; they never raise and never loop over
the time grid.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nsdyn._repr import settings_text
from nsdyn._types import Code, Flag, Number, Params
from nsdyn.constraints.base import AbstractConstraint
from nsdyn.laws.base import AbstractLaw
from nsdyn.mechanics.model import Model, Point
from nsdyn.numerics.newton import Effort
from nsdyn.status import Status
from nsdyn.stepping.log import Log


class State(eqx.Module):
    """What an integrator carries from one grid point to the next.

    point: where the mechanism is. memory: what the method keeps. guard: the values of the guards.
    own: further data that only this integrator uses.
    status: OK, or the first failure; from then on `point` is meaningless.
    t_stop, mode_stop: time and mode at that failure.
    effort: the work of Newton's method so far.
    """

    point: Point
    memory: "AbstractMemory"
    guard: Float[Array, " k"]
    own: Any
    status: Int[Array, ""]
    t_stop: Float[Array, ""]
    mode_stop: Array
    effort: Effort

    @staticmethod
    def begin(
        model: Model, point: Point, memory: "AbstractMemory", p: Params, own: Any = None
    ) -> "State":
        """The state at a point where nothing has happened yet."""
        return State(
            point=point,
            memory=memory,
            guard=model.guards(point, memory.lam, p),
            own=own,
            status=jnp.zeros((), int),
            t_stop=point.t,
            mode_stop=point.mode,
            effort=Effort.none(),
        )

    def arrived(self, model: Model, point: Point, memory: Any, p: Params) -> "State":
        """The state at another point."""
        values = (point, memory, model.guards(point, memory.lam, p))
        return eqx.tree_at(lambda x: (x.point, x.memory, x.guard), self, values)

    def with_failure(self, failed: Flag, code: Code, point: Point) -> "State":
        """The state with this failure recorded, unless there was one before."""
        first = failed & (self.status == Status.OK)
        noted = (
            jnp.where(first, code, self.status),
            jnp.where(first, point.t, self.t_stop),
            jnp.where(first, point.mode, self.mode_stop),
        )
        return eqx.tree_at(lambda x: (x.status, x.t_stop, x.mode_stop), self, noted)

    def with_effort(self, effort: Effort, started: Point) -> "State":
        """The state with the work of a step added. If Newton's method failed, the trajectory stops
        at the point where the step `started`."""
        running = self.status == Status.OK
        total = jax.tree.map(
            lambda a, b: jnp.where(running, a, b), self.effort.plus(effort), self.effort
        )
        state = eqx.tree_at(lambda x: x.effort, self, total)
        return state.with_failure(effort.failed, Status.NOT_CONVERGED, started)


class AbstractIntegrator(eqx.Module):
    """Advances a mechanism from one grid time to the next.

    `step_smooth` is fast and ignores events; it reports if a guard fired, so that the step has to
    be repeated. `step_with_events` handles all events and also returns a plan of them.
    `step_differentiable` repeats the step from that plan in a bounded number of pieces, for
    derivatives.
    """

    def __repr__(self) -> str:
        return settings_text(self)

    @property
    def holds_position(self) -> bool:
        """Whether g = 0 is enforced, so that a large residual is a failure and not a property of
        the scheme."""
        return True

    @property
    def controls_error(self) -> bool:
        """Whether an estimate of the error decides how many steps lead from one grid time to the
        next."""
        return False

    @property
    def resolves_contacts(self) -> bool:
        """Whether it finds the impulses of `Contacts`."""
        return False

    def constraints_of(self, model: Model) -> tuple[AbstractConstraint, ...]:
        """The constraints of the model of a problem as this integrator sees them."""
        return model.parts

    @property
    def max_events_in_step(self) -> int:
        """The largest number of events in one step."""
        return 1

    def incompatibility(self, law: AbstractLaw, parts: tuple) -> str | None:
        """Why a law or a constraint cannot be used with this integrator; None if they can."""
        return None

    @abstractmethod
    def start(self, model: Model, point: Point, p: Params) -> State:
        """The state at the initial point."""

    @abstractmethod
    def step_smooth(
        self, model: Model, state: State, t_next: Number, law: AbstractLaw, p: Params
    ) -> tuple[State, Bool[Array, ""]]:
        """The state at t_next if there is no event, and whether there is one."""

    def step_recording(
        self, model: Model, state: State, log: Log, t_next: Number, law: AbstractLaw, p: Params
    ) -> tuple[State, Log, Bool[Array, ""]]:
        """What `step_smooth` computes, and the log: for integrators whose fast step finds some
        events completely. These are recorded, and the step need not be repeated for them."""
        state, flag = self.step_smooth(model, state, t_next, law, p)
        return state, log, flag

    @abstractmethod
    def step_with_events(
        self, model: Model, state: State, log: Log, t_next: Number, law: AbstractLaw, p: Params
    ) -> tuple[State, Log, Any]:
        """The state at t_next, the log with the events on the way, and the plan of these events."""

    def step_without_plan(
        self, model: Model, state: State, log: Log, t_next: Number, law: AbstractLaw, p: Params
    ) -> tuple[State, Log]:
        """What `step_with_events` computes but for the plan, which only derivatives need: for
        integrators that save work without it."""
        return self.step_with_events(model, state, log, t_next, law, p)[:2]

    @abstractmethod
    def step_differentiable(
        self,
        model: Model,
        state: State,
        log: Log,
        t_next: Number,
        law: AbstractLaw,
        p: Params,
        plan: Any,
    ) -> tuple[State, Log]:
        """What `step_with_events` computes, differentiable in forward and reverse mode."""


class AbstractMemory(eqx.Module):
    """What a method keeps from one step to the next. Add fields if a method needs more than these.

    a: the acceleration v' at the end of the step.
    lam: the multipliers there.
    effort: the work of Newton's method in the step; None for an explicit method.
    """

    a: eqx.AbstractVar[Float[Array, " n"]]
    lam: eqx.AbstractVar[Float[Array, " m"]]
    effort: eqx.AbstractVar[Effort | None]


class Memory(AbstractMemory):
    """The memory of a method that keeps nothing else.

    a: the acceleration v' at the end of the step.
    lam: the multipliers there.
    effort: the work of Newton's method in the step; None for an explicit method.
    """

    a: Float[Array, " n"]
    lam: Float[Array, " m"]
    effort: Effort | None = None


class AbstractSmoothMethod(eqx.Module):
    """Integrates between events. To write a method, implement `init` and `step`; `EventDriven` does
    the rest.

    A method holds settings only; everything that changes is in the point and the memory that it
    receives and returns.
    """

    def __repr__(self) -> str:
        return settings_text(self)

    @property
    def resolves_contacts(self) -> bool:
        """Whether it takes its accelerations from `nsdyn.mechanics.formulations.lagrange`, which
        knows the forces of closed `Contacts`, and needs nothing else of the constraints."""
        return False

    @property
    def is_multistep(self) -> bool:
        """True for multistep methods, whose memory depends on earlier steps. It is rebuilt after
        each event and again at the next grid point, since the partial step in between may be too
        short to start from."""
        return False

    def by_itself(self) -> AbstractIntegrator | None:
        """The integrator that drives this method by default; None if it has to be wrapped."""
        return None

    @abstractmethod
    def init(self, model: Model, point: Point, p: Params) -> tuple[Point, Any]:
        """The point and the memory there when nothing else is known: at the start and after an
        event."""

    @abstractmethod
    def step(
        self,
        model: Model,
        point: Point,
        memory: Any,
        h: Number,
        p: Params,
        finish: Callable | None = None,
    ) -> tuple[Point, Any]:
        """One step of size h: the point at its end and the memory there. `finish`, if given, is a
        function that moves the end point (to remove drift) before the memory is computed."""


class ControlledMemory(AbstractMemory):
    """The memory of a method with error control.

    a: the acceleration v' at the end of the step.
    lam: the multipliers there.
    error: the estimated error of the step in units of what is allowed; up to 1 it is accepted.
    h_next: the size of the next step, or of the next attempt. Infinite if nothing is known.
    bend: what the dense output of the step has beyond a cubic (`nsdyn.stepping.detect`), if
        anything.
    effort: the work of Newton's method in the step; None for an explicit method. A step without
        convergence has an infinite error; `effort.failed` says that a smaller one will not help.
    """

    a: Float[Array, " n"]
    lam: Float[Array, " m"]
    error: Float[Array, ""] = eqx.field(default_factory=lambda: jnp.zeros(()))
    h_next: Float[Array, ""] = eqx.field(default_factory=lambda: jnp.full((), jnp.inf))
    bend: Float[Array, "terms size"] = eqx.field(default_factory=lambda: jnp.zeros((0, 0)))
    effort: Effort | None = None


class AbstractErrorControlled(AbstractSmoothMethod):
    """A smooth method that estimates the error of its steps and proposes their size, in a
    `ControlledMemory`. `EventDriven` repeats a step that is not accurate enough."""

    max_steps: eqx.AbstractVar[int]  # between two grid times

    def allowed(self, size: Array) -> Array:
        """The error allowed in a step for numbers of this size; zero, as here, if that is not told.
        Events are located so accurately."""
        return jnp.zeros_like(size)


IntegratorLike = AbstractIntegrator | AbstractSmoothMethod


def as_integrator(given: Any) -> AbstractIntegrator | None:
    """An integrator as it is, or the default driver of a smooth method; None for anything else."""
    if isinstance(given, AbstractSmoothMethod):
        return given.by_itself()
    return given if isinstance(given, AbstractIntegrator) else None


def first_of(*cases: tuple[Flag, Code]) -> Int[Array, ""]:
    """The code of the first (condition, code) that holds; OK if none does."""
    status = jnp.asarray(int(Status.OK))
    for holds, code in reversed(cases):
        status = jnp.where(holds, code, status)
    return status
