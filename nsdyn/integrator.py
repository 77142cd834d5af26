"""What an integrator is to the driver, and what a smooth method is to `EventDriven`.

Both hold settings only. State goes in and comes out; nothing raises, nothing loops over the time grid.
"""

from abc import abstractmethod
from typing import Any

import equinox as eqx
from jaxtyping import Array, Float, Int

from nsdyn.law import AbstractLaw
from nsdyn.log import Log
from nsdyn.model import Model, Point


class State(eqx.Module):
    """What an integrator carries from one grid point to the next. `memory` has at least `a` (v') and `lam`.

    A guard with `floor` > 0 sits on its surface, zero to within that floor: it is watched again once it has risen above it.
    `lift` is the rate at which it leaves, if it does.
    """

    point: Point
    memory: Any
    guard: Float[Array, " k"]
    floor: Float[Array, " k"]
    lift: Float[Array, " k"]
    status: Int[Array, ""]


class AbstractIntegrator(eqx.Module):
    """Takes a mechanism from one grid time to the next, switches included."""

    @abstractmethod
    def start(self, model: Model, point: Point, step, p) -> State:
        """The state at the initial point."""

    @abstractmethod
    def advance(self, model: Model, state: State, log: Log, t_next, law: AbstractLaw, p) -> tuple[State, Log]:
        """The state at the grid time t_next, and the log with the switches on the way."""


class AbstractSmoothMethod(eqx.Module):
    """Integrates between switches."""

    @abstractmethod
    def init(self, model: Model, point: Point, p) -> tuple[Point, Any]:
        """The memory (at least `a` and `lam`) at a point where nothing is known yet: at the start and after a switch."""

    @abstractmethod
    def step(self, model: Model, point: Point, memory, h, p, *, compact: bool) -> tuple[Point, Any]:
        """One step of size h. `compact` asks for little code rather than speed: such calls are rare."""

    @abstractmethod
    def refresh(self, model: Model, point: Point, memory, p) -> tuple[Point, Any]:
        """The memory at the end of a step, after drift was projected away."""
