"""What every constraint is to the rest of nsdyn.

A constraint has a mode (integers), and for each mode rows that hold:

    g(q, t; mode, held) = 0                           position level (holonomic)       (1)
    psi(q, v, t) = g_q q' + g_t = G v + g_t = 0       velocity level                   (2)

`held` is what the constraint stored at its last mode change. A guard that falls through zero fires;
`after` then gives the new mode. Rows that are not `live` in a mode are padding. The arguments are
the same everywhere: configuration q, velocity v, time t, parameters p, mode, held.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn import _expect as expect
from nsdyn._jitted import traced_once
from nsdyn._types import (
    Abstract,
    AnyArray,
    AnyConfiguration,
    AnyMode,
    AnyTime,
    AnyVelocity,
    Configuration,
    GuardMask,
    Guards,
    Held,
    Mode,
    Params,
    RowMask,
    Rows,
    Time,
    Velocity,
)
from nsdyn.errors import ProblemError

NO_MODE = -1  # the mode that `after` returns if no mode can be entered


class Scale(eqx.Module):
    """How large a motion is at its start (`nsdyn.tolerances`). Quantities that are small compared
    with it count as zero, also later, when the motion passes through q = 0 or comes to rest.

    length: L in the mass metric.
    q, v: the change of each coordinate over this length, and of each velocity at this speed.
    push: how much of its rate each coordinate gains from the forces in one step.
    touch, rest: the tolerances of these names.
    """

    length: Float[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    push: Float[Array, " nq"]
    touch: Float[Array, ""]
    rest: Float[Array, ""]

    @staticmethod
    def unknown(q: AnyConfiguration, v: AnyVelocity) -> "Scale":
        """The scale if nothing is known about the motion: only zero counts as zero."""
        zeros = lambda x: jnp.asarray(np.zeros(np.shape(x)))  # jnp.zeros compiles a program
        zero, still = zeros(0.0), zeros(q)
        return Scale(length=zero, q=still, v=zeros(v), push=still, touch=zero, rest=zero)

    def near_zero(self, slope: Float[AnyArray, "k nq"], q: AnyConfiguration) -> Float[Array, " k"]:
        """The values at q that count as zero, for functions with these slopes."""
        return self.touch * (jnp.abs(slope) @ (self.q + jnp.abs(q)))

    def at_rest(self, slope: Float[AnyArray, "k nq"]) -> Float[Array, " k"]:
        """The rates that count as zero, for functions with these slopes."""
        return self.rest * (jnp.abs(slope) @ self.push)


@runtime_checkable
class AbstractReport(Protocol):
    """Collects the findings of a check; the verdict is "ok", "note" or "warning"."""

    def add(self, what: str, found: str, verdict: str = "ok") -> None: ...


class Start(NamedTuple):
    """Where a run begins, as one constraint sees it when it is checked.

    q, qdot, v, t, p: configuration, its rate, velocity, time and parameters.
    mode, held: the mode of this constraint, and what it holds.
    scale: how large the motion is there, and so what is small.
    guards: a function that computes the values of the guards, with the multipliers of the motion,
        and the values that count as zero.
    """

    q: Array
    qdot: Array
    v: Array
    t: Array
    p: Any
    mode: np.ndarray
    held: Any
    scale: Scale
    guards: Callable[[], tuple[np.ndarray, np.ndarray]]


class AbstractConstraint(eqx.Module):
    """One constraint, with or without mode changes.

    To write a constraint, implement `rows`; everything else has a default. A constraint with
    several modes also implements `start`, `live`, `guards` and `after`. A guard that falls through
    zero fires. One that is already negative when a mode is entered fires at once; at the start of a
    run that is an error, unless the guard is a force.

    The methods `check_...` and the names below them serve `problem.check()`, which knows no
    particular kind of constraint: each constraint brings its own checks.

    rows_argument, guards_argument: where rows and guards come from, written after the name of the
        class in messages.
    holds_at_start: whether the rows that are live at the start hold there to round-off; False if
        they are live because they nearly hold.
    """

    rows_argument: ClassVar[str] = ".rows"
    guards_argument: ClassVar[str] = ".guards"
    holds_at_start: ClassVar[bool] = True

    @property
    def positional(self) -> bool:
        """Whether the rows hold at position level too."""
        return True

    @property
    def unilateral(self) -> bool:
        """Whether the rows are those of `Contacts`, which press but do not pull. They are never
        live: only an integrator that `resolves_contacts` deals with them."""
        return False

    @property
    def drifts(self) -> bool:
        """Whether integrating the accelerations leaves an error in the rows that a projection must
        remove."""
        return True

    @property
    def mode_depends_on_impact(self) -> bool:
        """Whether the velocity after an impact decides the mode (`mode_after_impact`)."""
        return False

    @property
    def rows_independent(self) -> bool:
        """Whether it is certain that the rows never depend on each other and never vanish."""
        return False

    @property
    def keeps_mode(self) -> bool:
        """Whether it is certain that the mode never changes."""
        return False

    @property
    def rank_always_changes(self) -> bool:
        """Whether it is certain that every mode change that brings new rows changes the number of
        independent rows, and that there are such mode changes."""
        return False

    @property
    def always_brings_rows(self) -> bool:
        """Whether it is certain that every mode change brings new rows, which hold from then on
        whatever the velocity after it."""
        return False

    @property
    def guards_use_lam(self) -> bool:
        """Whether a guard uses the multipliers. True is always safe; False saves time."""
        return True

    @abstractmethod
    def rows(self, q: Configuration, t: Time, p: Params, mode: Mode, held: Held) -> Rows:
        """The position-level residual g, shape (m,)."""

    def rate(
        self,
        q: Configuration,
        qdot: Configuration,
        v: Velocity,
        t: Time,
        p: Params,
        mode: Mode,
        held: Held,
    ) -> Rows:
        """The velocity-level residual psi, shape (m,)."""
        rows = lambda q, t: rows_of(self, q, t, p, mode, held)
        return jax.jvp(rows, (q, t), (qdot, jnp.ones_like(t)))[1]  # (2)

    def live(self, q: Configuration, t: Time, p: Params, mode: Mode) -> RowMask | None:
        """Which rows hold in this mode, shape (m,); None: all of them."""
        return None

    def start(
        self, q: Configuration, qdot: Configuration, t: Time, p: Params, scale: Scale
    ) -> Mode:
        """The mode at the start of a run."""
        return jnp.zeros((), int)

    def guards(
        self, q: Configuration, v: Velocity, lam: Rows, t: Time, p: Params, mode: Mode, held: Held
    ) -> Guards:
        """The guards in this mode, shape (k,); lam are the multipliers of the rows."""
        return jnp.zeros(0)

    def after(
        self,
        fired: GuardMask,
        q: Configuration,
        qdot: Configuration,
        v: Velocity,
        t: Time,
        p: Params,
        mode: Mode,
        scale: Scale,
    ) -> Mode:
        """The mode after these guards fired, shape (k,) bool; `NO_MODE` if there is none."""
        return mode

    def persists(
        self, q: Configuration, t: Time, p: Params, mode_before: Mode, mode_after: Mode
    ) -> RowMask | None:
        """Which rows of the mode after are the same constraints as before, shape (m,). None: not
        declared; rows with the same index and the same gradient then count as the same."""
        return None

    def mode_after_impact(self, rate: Rows, rest_speed: Rows, mode: Mode) -> Mode:
        """The mode after an impact, from the rates G v+ + g_t of the rows and the speeds up to
        which they count as being at rest."""
        return mode

    def hold(self, q: AnyConfiguration, t: AnyTime, p: Params) -> Held:
        """What the constraint stores at a mode change and receives as `held` until the next one."""
        return ()

    # For `problem.check()`.

    def check_shapes(
        self, q: Configuration, qdot: Abstract, v: Velocity, t: Time, p: Params
    ) -> None:
        """Raise ProblemError unless the functions of this constraint return what they should."""
        name = type(self).__name__
        mode = expect.returned(f"{name}.start", self.start, q, qdot, t, p, Scale.unknown(q, v))
        held = expect.returned(f"{name}.hold", self.hold, q, t, p)
        moving = (q, qdot, v, t, p, mode, held)
        if self.positional:
            m = expect.vector(f"{name}.rows", self.rows, q, t, p, mode, held)
        else:
            m = expect.vector(f"{name}.rate", self.rate, *moving)
        why = f"as there are {m} rows"
        expect.shaped(f"{name}.rate", self.rate, (m,), why, *moving)
        if expect.returned(f"{name}.live", self.live, q, t, p, mode) is not None:
            expect.shaped(f"{name}.live", self.live, (m,), why, q, t, p, mode)
        lam = jnp.zeros(m)
        k = expect.vector(f"{name}.guards", self.guards, q, v, lam, t, p, mode, held)
        fired = (jnp.zeros(k, bool), q, qdot, v, t, p, mode, Scale.unknown(q, v))
        why = "the shape of the mode that `start` returns"
        expect.shaped(f"{name}.after", self.after, mode.shape, why, *fired)

    def start_margins(self, q: Configuration, v: Velocity, t: Time, p: Params) -> Array:
        """Numbers of which none is negative where a run can start, but for round-off: for many runs
        at once, what `check_start` says of one."""
        return jnp.zeros(0)

    def check_start(self, report: AbstractReport, start: Start) -> None:
        """Raise ProblemError unless a run can start like this, and add the findings to the report.
        By default: no guard may be negative."""
        values, zero = start.guards()
        name = type(self).__name__ + self.guards_argument
        expect.finite(name, values, " at the start")
        for i in np.flatnonzero(values < -zero):
            raise ProblemError(
                f"{name}: expected guards >= 0 at the start, found guard {i} = "
                f"{values[i]:.6g} in mode {start.mode.tolist()}: its fall through zero would never "
                "be seen. Start on its positive side or in another mode"
            )
        if values.size:
            report.add("guards not negative", f"smallest {np.min(values):.3g}")

    def modes_to_search(self, mode: np.ndarray) -> list:
        """The modes whose guards are searched for zeros, if a run that starts in `mode` does not
        reach any."""
        return [mode]

    def successors(
        self, q: AnyConfiguration, p: Params, mode: AnyMode, scale: Scale
    ) -> tuple[list, str] | None:
        """The modes that can follow `mode` at q, where its guard vanishes, and a text that says
        what was found if there are none. None: only the motion can tell."""
        return None

    def capture_error(self, mode: AnyMode, found: str) -> ProblemError | None:
        """The error, with its remedy, for a guard that stays zero in this mode because its own
        constraint keeps it there. None: this is as intended."""
        return None

    # Names for messages.

    @property
    def title(self) -> str:
        return type(self).__name__

    def row_names(
        self, q: AnyConfiguration, t: AnyTime, p: Params, mode: AnyMode, m: int
    ) -> list[str]:
        """A name for each of the m rows."""
        return [f"{self.title}[{i}]" for i in range(m)]

    def guard_name(self, i: int) -> str:
        return f"guard {i}"

    def mode_name(self, mode: AnyMode) -> str:
        return f"mode {np.asarray(mode).tolist()}"


@traced_once
def rows_of(
    part: AbstractConstraint, q: Configuration, t: Time, p: Params, mode: Mode, held: Held
) -> Rows:
    """part.rows(q, t, p, mode, held)."""
    return part.rows(q, t, p, mode, held)
