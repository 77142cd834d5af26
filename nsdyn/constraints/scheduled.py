"""`Scheduled`: constraints that change at given times (quasi-scleronomic constraints, Mueller eq.
(2)).

Stage k holds for T_k <= t < T_{k+1}; the guard of stage k is T_{k+1} - t. Times may be numbers or a
function of the parameters, so that a trajectory can be differentiated with respect to them.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn import _expect as expect
from nsdyn._signature import located
from nsdyn._types import (
    Abstract,
    AnyConfiguration,
    AnyMode,
    AnyTime,
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
from nsdyn.constraints.base import AbstractConstraint, AbstractReport, Scale, Start
from nsdyn.constraints.mode_rows import ModeRows, flatten
from nsdyn.errors import ProblemError

SAME_TIME = 1e-12  # relative difference of times that are one instant


class Scheduled(AbstractConstraint):
    """Constraints that change at given times.

    times: the instants at which the next stage begins, in ascending order: numbers, or a function
        times(p) of the parameters. One less than there are stages; stage k holds from times[k - 1]
        to times[k].
    stages: for each stage None, a function g(q, t, p) -> scalar or (m,), lock(...), or a tuple of
        these. A lock holds what it finds when its stage begins.

    An event-driven run changes the mode exactly at these times; time-stepping schemes do so at the
    end of the step in which a time lies.
    """

    rows_argument: ClassVar[str] = "(stages=...)"
    guards_argument: ClassVar[str] = "(times=...)"

    times: Any
    times_of: Callable | None = eqx.field(static=True)
    mode_rows: ModeRows

    def __init__(self, times: Any, stages: Sequence) -> None:
        self.mode_rows = ModeRows(
            tuple(flatten(stage, "Scheduled(stages=...)") for stage in stages)
        )
        self.times_of = times if callable(times) else None
        self.times = None if callable(times) else jnp.asarray(times, float)
        if self.times is not None:
            check_times(np.asarray(self.times), len(self.mode_rows.modes))

    @property
    def drifts(self) -> bool:
        return not self.mode_rows.linear

    @property
    def rows_independent(self) -> bool:
        return self.mode_rows.linear

    @property
    def rank_always_changes(self) -> bool:
        return self.mode_rows.rank_changes(self._mode_changes())

    @property
    def always_brings_rows(self) -> bool:
        return self.mode_rows.brings_rows(self._mode_changes())

    def _mode_changes(self) -> list[tuple[int, int]]:
        return list(itertools.pairwise(range(len(self.mode_rows.modes))))

    @property
    def guards_use_lam(self) -> bool:
        return False

    def switch_times(self, p: Params) -> Float[Array, " times"]:
        return self.times if self.times_of is None else jnp.asarray(self.times_of(p), float)

    def start(
        self, q: Configuration, qdot: Configuration, t: Time, p: Params, scale: Scale
    ) -> Mode:
        return jnp.sum(self.switch_times(p) < t)

    def rows(self, q: Configuration, t: Time, p: Params, mode: Mode, held: Held) -> Rows:
        return self.mode_rows.rows(q, t, p, mode, held)

    def live(self, q: Configuration, t: Time, p: Params, mode: Mode) -> RowMask | None:
        return self.mode_rows.live(q, t, p, mode)

    def persists(
        self, q: Configuration, t: Time, p: Params, mode_before: Mode, mode_after: Mode
    ) -> RowMask | None:
        return self.mode_rows.persists(q, t, p, mode_before, mode_after)

    def hold(self, q: AnyConfiguration, t: AnyTime, p: Params) -> Held:
        return self.mode_rows.hold(q, t, p)

    def guards(
        self, q: Configuration, v: Velocity, lam: Rows, t: Time, p: Params, mode: Mode, held: Held
    ) -> Guards:
        times = self.switch_times(p)
        last = times.shape[0] - 1
        if last < 0:
            return jnp.zeros(0)
        return jnp.where(mode <= last, times[jnp.minimum(mode, last)] - t, 1.0)[None]

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
        # Stages that begin at the same instant are entered together.
        times = self.switch_times(p)
        begun = jnp.sum(times <= t + SAME_TIME * jnp.maximum(jnp.abs(t), jnp.abs(times)))
        return jnp.maximum(mode + 1, begun).astype(mode.dtype)

    def check_shapes(
        self, q: Configuration, qdot: Abstract, v: Velocity, t: Time, p: Params
    ) -> None:
        self.mode_rows.check_shapes("Scheduled", "stages", q, t, p)
        if self.times_of is not None:
            name = located(self.times_of)
            expect.vector("Scheduled(times=...)", self.switch_times, p, name=name)
            check_times(np.asarray(self.switch_times(p)), len(self.mode_rows.modes))

    def check_start(self, report: AbstractReport, start: Start) -> None:
        pass  # times are in order, and the stage at the start follows from them

    def modes_to_search(self, mode: np.ndarray) -> list:
        return []  # the times of the mode changes are known

    def row_names(
        self, q: AnyConfiguration, t: AnyTime, p: Params, mode: AnyMode, m: int
    ) -> list[str]:
        return self.mode_rows.names(q, t, p, mode)

    def mode_name(self, mode: AnyMode) -> str:
        return self.mode_rows.mode_name(mode)


def check_times(times: np.ndarray, stages: int) -> None:
    if times.ndim != 1 or times.shape[0] != stages - 1:
        raise ProblemError(
            f"Scheduled(times=..., stages=...): {stages} stages need {stages - 1} times between "
            "them, "
            f"found times of shape {times.shape}"
        )
    if not np.all(np.isfinite(times)):
        raise ProblemError(f"Scheduled(times=...): expected finite times, found {times.tolist()}")
    if np.any(np.diff(times) < 0):
        raise ProblemError(
            f"Scheduled(times=...): expected times in ascending order, found {times.tolist()}; "
            f"sorted they read {np.sort(times).tolist()}"
        )
