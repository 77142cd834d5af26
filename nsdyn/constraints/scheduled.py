"""`Scheduled`: constraints that change at given times (quasi-scleronomic constraints, Mueller eq.
(2)).

Stage k holds for T_k <= t < T_{k+1}; the guard of stage k is T_{k+1} - t. Times may be numbers or a
function of the parameters, so that a trajectory can be differentiated with respect to them.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from nsdyn import _expect as expect
from nsdyn._signature import label
from nsdyn.constraints.base import AbstractConstraint
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

    def __init__(self, times, stages):
        self.mode_rows = ModeRows(
            tuple(flatten(stage, "Scheduled(stages=...)") for stage in stages)
        )
        self.times_of = times if callable(times) else None
        self.times = None if callable(times) else jnp.asarray(times, float)
        if self.times is not None:
            check_times(np.asarray(self.times), len(self.mode_rows.modes))

    @property
    def drifts(self):
        return not self.mode_rows.linear

    @property
    def rows_independent(self):
        return self.mode_rows.linear

    @property
    def guards_use_lam(self):
        return False

    def switch_times(self, p):
        return self.times if self.times_of is None else jnp.asarray(self.times_of(p), float)

    def start(self, q, qdot, t, p, scale):
        return jnp.sum(self.switch_times(p) < t)

    def rows(self, q, t, p, mode, held):
        return self.mode_rows.rows(q, t, p, mode, held)

    def live(self, q, t, p, mode):
        return self.mode_rows.live(q, t, p, mode)

    def persists(self, q, t, p, mode_before, mode_after):
        return self.mode_rows.persists(q, t, p, mode_before, mode_after)

    def hold(self, q, t, p):
        return self.mode_rows.hold(q, t, p)

    def guards(self, q, v, lam, t, p, mode, held):
        times = self.switch_times(p)
        last = times.shape[0] - 1
        if last < 0:
            return jnp.zeros(0)
        return jnp.where(mode <= last, times[jnp.minimum(mode, last)] - t, 1.0)[None]

    def after(self, fired, q, qdot, v, t, p, mode, scale):
        # Stages that begin at the same instant are entered together.
        times = self.switch_times(p)
        begun = jnp.sum(times <= t + SAME_TIME * jnp.maximum(jnp.abs(t), jnp.abs(times)))
        return jnp.maximum(mode + 1, begun).astype(mode.dtype)

    def check_shapes(self, q, qdot, v, t, p):
        self.mode_rows.check_shapes("Scheduled", "stages", q, t, p)
        if self.times_of is not None:
            name = label(self.times_of)
            expect.vector("Scheduled(times=...)", self.switch_times, p, name=name)
            check_times(np.asarray(self.switch_times(p)), len(self.mode_rows.modes))

    def check_start(self, report, start):
        pass  # times are in order, and the stage at the start follows from them

    def modes_to_search(self, mode):
        return []  # the times of the mode changes are known

    def row_names(self, q, t, p, mode, m):
        return self.mode_rows.names(q, t, p, mode)

    def mode_name(self, mode):
        return self.mode_rows.mode_name(mode)


def check_times(times: np.ndarray, stages: int):
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
