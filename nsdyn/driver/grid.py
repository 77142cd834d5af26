"""The time grid of a run: t_k = t_0 + k h, never accumulated; the last step is shortened to meet
t_end."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np

CHUNK = 16  # steps at most in one chunk


class Grid(eqx.Module):
    """Times and step counts of a run; all static."""

    t0: float = eqx.field(static=True)
    t_end: float = eqx.field(static=True)
    step: float = eqx.field(static=True)
    save_every: int = eqx.field(static=True)

    @property
    def steps(self) -> int:
        # A last step shorter than a billionth of a step is round-off in (t_end - t0)/step, not a
        # step.
        return max(1, int(np.ceil((self.t_end - self.t0) / self.step - 1e-9)))

    @property
    def saved(self) -> np.ndarray:
        """Step numbers of the rows."""
        numbers = np.arange(0, self.steps + 1, self.save_every)
        return numbers if numbers[-1] == self.steps else np.append(numbers, self.steps)

    def rows(self) -> np.ndarray:
        return np.where(self.saved == self.steps, self.t_end, self.t0 + self.saved * self.step)

    def time(self, k):
        return jnp.where(k >= self.steps, self.t_end, self.t0 + k * self.step)

    def layout(self) -> tuple[int, int, int]:
        """(groups, chunks per group, steps per chunk): a group ends with a row and holds `group` of
        them."""
        if self.save_every <= CHUNK:
            fits = [n for n in range(CHUNK, CHUNK // 2, -1) if n % self.save_every == 0]
            length = next((n for n in fits if self.steps % n == 0), (fits or [self.save_every])[0])
            return -(-self.steps // length), 1, length
        chunks = -(-self.save_every // CHUNK)
        return -(-self.steps // self.save_every), chunks, -(-self.save_every // chunks)
