"""What an integrator is to the driver, and what a smooth method is to `EventDriven`.

Both hold settings only. State goes in and comes out; nothing raises, nothing loops over the time
grid.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nsdyn._repr import settings_text
from nsdyn.laws.base import AbstractLaw
from nsdyn.mechanics.model import Model, Point
from nsdyn.numerics.newton import Effort
from nsdyn.status import Status
from nsdyn.stepping.log import Log


class State(eqx.Module):
    """What an integrator carries from one grid point to the next.

    point: where the mechanism is; memory: what the method keeps; guard: the values of the guards.
    own: what only this integrator knows.
    status, t_stop, mode_stop: once `status` is not OK the point means nothing; these two say where
    the trajectory ended.
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
    def begin(model: Model, point: Point, memory: "AbstractMemory", p, own=None) -> "State":
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

    def arrived(self, model: Model, point: Point, memory, p) -> "State":
        """The state at another point."""
        values = (point, memory, model.guards(point, memory.lam, p))
        return eqx.tree_at(lambda x: (x.point, x.memory, x.guard), self, values)

    def with_failure(self, failed, code, point: Point) -> "State":
        """The state with a failure noted, unless there was one before."""
        first = failed & (self.status == Status.OK)
        noted = (
            jnp.where(first, code, self.status),
            jnp.where(first, point.t, self.t_stop),
            jnp.where(first, point.mode, self.mode_stop),
        )
        return eqx.tree_at(lambda x: (x.status, x.t_stop, x.mode_stop), self, noted)

    def with_effort(self, effort: Effort, started) -> "State":
        """The state with the work of a step added; Newton's failure stops the trajectory where the
        step `started`."""
        running = self.status == Status.OK
        total = jax.tree.map(
            lambda a, b: jnp.where(running, a, b), self.effort.plus(effort), self.effort
        )
        state = eqx.tree_at(lambda x: x.effort, self, total)
        return state.with_failure(effort.failed, Status.NOT_CONVERGED, started)


class AbstractIntegrator(eqx.Module):
    """Takes a mechanism from one grid time to the next, in two ways.

    `step_smooth` is the fast one and ignores events; it says when it cannot be trusted.
    `step_with_events` carries out whatever events there are and answers with a plan, from which
    `step_differentiable` repeats the step in bounded pieces, for derivatives.
    """

    def __repr__(self) -> str:
        return settings_text(self)

    @property
    def holds_position(self) -> bool:
        """Whether g = 0 is enforced, so that a large residual means failure and not the nature of
        the scheme."""
        return True

    @property
    def max_events_in_step(self) -> int:
        """How many events one step can have at most."""
        return 1

    def incompatibility(self, law: AbstractLaw, parts: tuple) -> str | None:
        """Why a law or one of the constraints cannot go with this integrator; None if they can."""
        return None

    @abstractmethod
    def start(self, model: Model, point: Point, p) -> State:
        """The state at the initial point."""

    @abstractmethod
    def step_smooth(self, model: Model, state: State, t_next, p) -> tuple[State, Bool[Array, ""]]:
        """The state at t_next if nothing switches, and whether something does."""

    @abstractmethod
    def step_with_events(
        self, model: Model, state: State, log: Log, t_next, law: AbstractLaw, p
    ) -> tuple[State, Log, Any]:
        """The state at t_next, the log with the switches on the way, and the plan of them."""

    @abstractmethod
    def step_differentiable(
        self, model: Model, state: State, log: Log, t_next, law: AbstractLaw, p, plan
    ) -> tuple[State, Log]:
        """What `step_with_events` computes, differentiable in both modes."""


class AbstractMemory(eqx.Module):
    """What a method keeps from one step to the next: at least the acceleration a = v' and the
    multipliers lam at the end of the step, and what Newton's method did in it (None: nothing)."""

    a: eqx.AbstractVar[Float[Array, " n"]]
    lam: eqx.AbstractVar[Float[Array, " m"]]
    effort: eqx.AbstractVar[Effort | None]


class Memory(AbstractMemory):
    """The memory of a method that needs no more than that."""

    a: Float[Array, " n"]
    lam: Float[Array, " m"]
    effort: Effort | None = None


class AbstractSmoothMethod(eqx.Module):
    """Integrates between events. An author writes `init` and `step`; `EventDriven` does the rest.

    Both hold settings only: state goes in and comes out.
    """

    def __repr__(self) -> str:
        return settings_text(self)

    @property
    def is_multistep(self) -> bool:
        """Whether the memory depends on the steps before: it is then made anew after an event, and
        once more at the next grid point, because the piece of a step between the two may be too
        short to leave a good one."""
        return False

    def by_itself(self) -> AbstractIntegrator | None:
        """What drives this method where nobody says so; None: it has to be wrapped."""
        return None

    @abstractmethod
    def init(self, model: Model, point: Point, p) -> tuple[Point, Any]:
        """The memory (at least `a` and `lam`) at a point where nothing is known yet: at the start
        and after a switch."""

    @abstractmethod
    def step(
        self, model: Model, point: Point, memory, h, p, finish: Callable | None = None
    ) -> tuple[Point, Any]:
        """One step of size h: the point at its end and the memory there. `finish`, if given, moves
        the point at the end (it projects drift away) before the memory is made."""


IntegratorLike = AbstractIntegrator | AbstractSmoothMethod


def as_integrator(given: Any) -> AbstractIntegrator | None:
    """An integrator, or what drives a smooth method by itself; None for anything else."""
    if isinstance(given, AbstractSmoothMethod):
        return given.by_itself()
    return given if isinstance(given, AbstractIntegrator) else None


def first_of(*cases):
    """The code of the first (condition, code) that holds; OK if none does."""
    status = jnp.asarray(int(Status.OK))
    for holds, code in reversed(cases):
        status = jnp.where(holds, code, status)
    return status
