"""The time grid of a run: t_k = t_0 + k h, never accumulated; the last step is shortened to meet
t_end.

A method with error control takes as many steps between two grid times as it needs, so that a grid
can have further times at no loss. Samples at arbitrary times are taken so: the grid is cut there.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nsdyn.errors import ProblemError

CHUNK = 16  # steps at most in one chunk
WINDOW = 1024  # steps of a cut grid that a compiled program knows at a time
SLACK = 1e-9  # in units of the step: times nearer than this are the same


class Grid(eqx.Module):
    """Times and step counts of a run: plain numbers, or traced ones (`traced`), so that another
    grid runs through the same program."""

    t0: Any
    t_end: Any
    step: Any
    save_every: Any
    steps: Any
    # for a grid that was cut: the times of all steps, or those from the step `first` on
    instants: Any
    first: Any

    def __init__(self, t0: float, t_end: float, step: float, save_every: int):
        self.instants = None
        self.first = None
        self.t0 = t0
        self.t_end = t_end
        self.step = step
        self.save_every = save_every
        # A last step shorter than a billionth of a step is round-off in (t_end - t0)/step, not a
        # step.
        self.steps = max(1, int(np.ceil((t_end - t0) / step - SLACK)))

    def with_short_steps(self) -> "Grid":
        """The grid for runs whose first step is shorter, by a fraction of the step each, and whose
        last step is that fraction: one step more."""
        whole = (self.t_end - self.t0) / self.step
        if abs(whole - self.steps) > SLACK:
            raise ProblemError(
                "phase: expected a step that divides t_end - t0, since the last step takes what "
                f"the first one lacks, found {whole:.9g} steps"
            )
        return eqx.tree_at(lambda grid: grid.steps, self, self.steps + 1)

    def cut_at(self, times: np.ndarray) -> "Grid":
        """The grid with steps that end at these times too."""
        regular = self.times_of(np.arange(self.steps + 1))
        distance = np.abs(self.times_of(self._around(times)) - times)
        new = times[np.min(distance, axis=0) > self._slack]
        instants = np.sort(np.concatenate([regular, new]))
        apart = np.diff(instants, prepend=-np.inf) > self._slack
        return self._with_instants(instants[apart], first=0, steps=int(np.sum(apart)) - 1)

    @property
    def _slack(self) -> float:
        return SLACK * self.step

    def _around(self, times: np.ndarray) -> np.ndarray:
        """The numbers of the steps before and after these times."""
        before = np.clip(np.floor((times - self.t0) / self.step), 0, self.steps).astype(int)
        return np.stack([before, np.minimum(before + 1, self.steps)])

    def _with_instants(self, instants: np.ndarray, first: Any, steps: int) -> "Grid":
        fields = lambda grid: (grid.instants, grid.first, grid.steps)
        is_none = lambda x: x is None
        return eqx.tree_at(fields, self, (instants, first, steps), is_leaf=is_none)

    @property
    def is_cut(self) -> bool:
        return self.instants is not None

    def number_at(self, times: Any) -> Any:
        """The numbers of the steps that end nearest to these times."""
        if not self.is_cut:
            return np.clip(np.rint((times - self.t0) / self.step), 0, self.steps).astype(int)
        middles = 0.5 * (self.instants[1:] + self.instants[:-1])
        return np.searchsorted(middles, times)

    @property
    def saved(self) -> np.ndarray:
        """Step numbers of the samples."""
        numbers = np.arange(0, self.steps + 1, self.save_every)
        return numbers if numbers[-1] == self.steps else np.append(numbers, self.steps)

    def times(self) -> np.ndarray:
        """Times of the samples."""
        return self.times_of(self.saved)

    def times_of(self, numbers: np.ndarray, phase: Any = None) -> np.ndarray:
        """Times of the steps of these numbers; with phases, one row for each."""
        if self.is_cut:
            return self.instants[numbers]
        late = numbers if phase is None else np.maximum(numbers - np.asarray(phase)[:, None], 0.0)
        return np.where(numbers == self.steps, self.t_end, self.t0 + late * self.step)

    def time(self, k, phase: Any = None):
        """The time of the step k. With a phase, the first step is shorter by this fraction."""
        if self.is_cut:
            known = jnp.asarray(self.instants)
            return known[jnp.clip(k - self.first, 0, known.shape[0] - 1)]
        late = k if phase is None else jnp.maximum(k - phase, 0.0)
        return jnp.where(k >= self.steps, self.t_end, self.t0 + late * self.step)

    def first_step(self) -> "Grid":
        """The grid that ends after the first step."""
        return Grid(self.t0, min(self.t_end, self.t0 + self.step), self.step, 1)

    def traced(self, first: int = 0) -> "Grid":
        """The same grid as arrays, which become arguments of a compiled program. Of a grid that was
        cut it contains the WINDOW steps after `first`."""
        if not self.is_cut:
            return jax.tree.map(np.asarray, self)
        window = np.full(WINDOW + CHUNK + 1, self.t_end)
        known = self.instants[first : first + len(window)]
        window[: len(known)] = known
        return jax.tree.map(np.asarray, self._with_instants(window, first, self.steps))

    def landmarks(self, last: int) -> np.ndarray:
        """Steps up to `last` at which a run must stop, because a window ends there."""
        return np.arange(0, last, WINDOW) if self.is_cut else np.zeros(0, int)

    def layout(self) -> tuple[int, int, int]:
        """(groups, chunks per group, steps per chunk): a group ends with a sample and holds `group`
        of them."""
        if self.save_every <= CHUNK:
            fits = [n for n in range(CHUNK, CHUNK // 2, -1) if n % self.save_every == 0]
            length = next((n for n in fits if self.steps % n == 0), (fits or [self.save_every])[0])
            return -(-self.steps // length), 1, length
        chunks = -(-self.save_every // CHUNK)
        return -(-self.steps // self.save_every), chunks, -(-self.save_every // chunks)
