"""The time grid of a run: t_k = t_0 + k h, never accumulated; the last step is shortened to meet
t_end."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

CHUNK = 16  # steps at most in one chunk


class Grid(eqx.Module):
    """Times and step counts of a run: plain numbers, or traced ones (`traced`), so that another
    grid runs through the same program."""

    t0: Any
    t_end: Any
    step: Any
    save_every: Any
    steps: Any

    def __init__(self, t0: float, t_end: float, step: float, save_every: int):
        self.t0 = t0
        self.t_end = t_end
        self.step = step
        self.save_every = save_every
        # A last step shorter than a billionth of a step is round-off in (t_end - t0)/step, not a
        # step.
        self.steps = max(1, int(np.ceil((t_end - t0) / step - 1e-9)))

    @property
    def saved(self) -> np.ndarray:
        """Step numbers of the samples."""
        numbers = np.arange(0, self.steps + 1, self.save_every)
        return numbers if numbers[-1] == self.steps else np.append(numbers, self.steps)

    def times(self) -> np.ndarray:
        """Times of the samples."""
        return self.times_of(self.saved)

    def times_of(self, numbers: np.ndarray) -> np.ndarray:
        """Times of the steps of these numbers."""
        return np.where(numbers == self.steps, self.t_end, self.t0 + numbers * self.step)

    def time(self, k):
        return jnp.where(k >= self.steps, self.t_end, self.t0 + k * self.step)

    def first_step(self) -> "Grid":
        """The grid that ends after the first step."""
        return Grid(self.t0, min(self.t_end, self.t0 + self.step), self.step, 1)

    def traced(self) -> "Grid":
        """The same grid as arrays, which become arguments of a compiled program."""
        return jax.tree.map(np.asarray, self)

    def layout(self) -> tuple[int, int, int]:
        """(groups, chunks per group, steps per chunk): a group ends with a sample and holds `group`
        of them."""
        if self.save_every <= CHUNK:
            fits = [n for n in range(CHUNK, CHUNK // 2, -1) if n % self.save_every == 0]
            length = next((n for n in fits if self.steps % n == 0), (fits or [self.save_every])[0])
            return -(-self.steps // length), 1, length
        chunks = -(-self.save_every // CHUNK)
        return -(-self.steps // self.save_every), chunks, -(-self.save_every // chunks)
