"""A problem: system, constraints, initial state, time span and parameters."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn import _coordinates
from nsdyn._cache import keep_compiled
from nsdyn._compiler import leave_environment
from nsdyn._signature import closed_over_tracer
from nsdyn._types import Number, Params
from nsdyn.constraints.base import AbstractConstraint
from nsdyn.errors import ProblemError
from nsdyn.mechanics.model import Model
from nsdyn.mechanics.system import System
from nsdyn.tolerances import Tolerances

if TYPE_CHECKING:
    from nsdyn.checks.report import Report


def as_arrays(tree: Any) -> Any:
    """Numbers and numpy arrays as JAX arrays, so that a new value never causes a compilation."""
    # Through numpy: JAX would compile a program to convert a plain number.
    numbers = bool | int | float | np.ndarray | np.generic
    convert = lambda x: jnp.asarray(np.asarray(x)) if isinstance(x, numbers) else x
    return jax.tree.map(convert, tree)


class Problem(eqx.Module):
    """A mechanism with its constraints, its start, its time span and its parameters: all that is
    simulated.

    name: for titles and messages.
    system: the mechanism without its constraints, a `System`.
    constraint: None, one constraint, or a tuple of constraints that hold together.
    q0, v0: configuration and velocity at the start; they must satisfy the constraints.
    t0, t_end: the time span.
    params: any pytree of numbers and arrays; every function receives it as its argument `p`.
    coordinates: a name for each entry of q, with its unit, ("x [m]", "phi [rad]"), for plots,
        tables, files and messages.
    shape: shape(q, p) -> polylines, how the mechanism is drawn: a tuple of arrays of points, shapes
        (k, 2) or (k, 3); a single point is drawn as a dot.

    Names and shape take no part in the computation: with others nothing is compiled anew.
    """

    name: str = eqx.field(static=True)
    system: System
    constraint: tuple[AbstractConstraint, ...]
    q0: Any
    v0: Any
    t0: float = eqx.field(static=True)
    t_end: float = eqx.field(static=True)
    params: Any
    coordinates: tuple[str, ...] = eqx.field(static=True)
    shape: Callable | None = eqx.field(static=True)

    def __init__(
        self,
        name: str,
        system: System,
        constraint: AbstractConstraint | Sequence[AbstractConstraint] | None = None,
        q0: Any = None,
        v0: Any = None,
        t0: Any = 0.0,
        t_end: Any = None,
        params: Params = None,
        coordinates: Sequence[str] | None = None,
        shape: Callable | None = None,
    ) -> None:
        leave_environment()  # the first arrays are made here
        keep_compiled()
        if not isinstance(system, System):
            raise ProblemError(f"Problem(system=...): expected nsdyn.System(...), found {system!r}")
        self.name = str(name)
        self.system = system
        self.constraint = _parts(constraint)
        self.q0 = _vector("q0", q0)
        self.v0 = _vector("v0", v0)
        if system.kinematics is None and self.q0.shape != self.v0.shape:
            raise ProblemError(
                "Problem(q0=..., v0=...): expected the same size, since q' = v, found "
                f"{len(self.q0)} and {len(self.v0)} entries; for quasi-velocities give "
                "System(kinematics=...)"
            )
        self.t0 = _time("t0", t0)
        self.t_end = _time("t_end", t_end)
        if not self.t_end > self.t0:
            raise ProblemError(
                f"Problem(t_end=...): expected a time after t0 = {self.t0:g}, found {self.t_end:g}"
            )
        self.params = as_arrays(params)
        self.coordinates = _coordinates.checked(coordinates, len(self.q0))
        self.shape = _drawing(shape)
        function = closed_over_tracer((system, self.constraint))
        if function is not None:
            raise ProblemError(
                f"Problem: the function {function} closes over a traced value, whose derivative "
                "would be lost. Put the value into params and read it from the argument p"
            )

    def model(
        self, params: Params = None, tolerances: Tolerances | None = None, step: Number = 0.0
    ) -> Model:
        """System and constraints as one `Model`, for states and parameters of these shapes."""
        p = self.params if params is None else params
        t = jnp.asarray(np.float64(self.t0))
        return Model.of(self.system, self.constraint, self.q0, self.v0, t, p, tolerances, step)

    @property
    def velocities(self) -> tuple[str, ...]:
        """Names and units of v, which follow from those of q; () where v is not q'."""
        is_rate = self.system.kinematics is None
        return _coordinates.rates(self.coordinates) if is_rate else ()

    def check(self) -> "Report":
        """Verify the problem at its start and, in a coarse run, at its mode changes. Returns a
        report, line by line; raises ProblemError or warns if something is wrong."""
        from nsdyn.checks.problem_check import check
        from nsdyn.driver.single_run import attempt

        return check(self, attempt)


def _parts(constraint: Any) -> tuple[AbstractConstraint, ...]:
    if constraint is None:
        return ()
    parts = constraint if isinstance(constraint, tuple | list) else (constraint,)
    for part in parts:
        if not isinstance(part, AbstractConstraint):
            raise ProblemError(
                "Problem(constraint=...): expected None, Fixed, Nonholonomic, Switching, "
                "Scheduled, Contact, Contacts, Friction, Transitions or a tuple of these, found "
                f"{part!r}"
            )
    return tuple(parts)


def _drawing(shape: Any) -> Callable | None:
    if shape is not None and not callable(shape):
        raise ProblemError(
            f"Problem(shape=...): expected a function shape(q, p) -> polylines, found {shape!r}"
        )
    return shape


def _vector(name: str, value: Any) -> Float[Array, " size"]:
    if value is None:
        raise ProblemError(f"Problem({name}=...): expected a vector, found nothing")
    try:
        traced = any(isinstance(x, jax.Array) for x in jax.tree.leaves(value))
        array = jnp.asarray(value if traced else np.asarray(value, float), float)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"Problem({name}=...): expected numbers, found {value!r}") from error
    if array.ndim != 1:
        raise ProblemError(f"Problem({name}=...): expected a vector, found shape {array.shape}")
    return array


def _time(name: str, value: Any) -> float:
    if isinstance(value, jax.core.Tracer):
        raise ProblemError(
            f"Problem({name}=...): expected a plain number, found a traced value; the grid is "
            "static"
        )
    if (
        value is None
        or (not np.isscalar(value) and np.ndim(value) != 0)
        or not np.isfinite(float(value))
    ):
        raise ProblemError(f"Problem({name}=...): expected a finite number, found {value!r}")
    return float(value)
