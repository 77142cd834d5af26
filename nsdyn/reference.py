"""What others have found for a problem, kept beside it."""

from typing import NamedTuple

import numpy as np


class Reference(NamedTuple):
    """The state that a problem reaches at its end.

    q, v: configuration and velocity.
    source: who computed it, and how.
    tolerance: the largest error of an entry that a careful run may have, relative to the largest
        entry of q or v.
    """

    q: tuple[float, ...]
    v: tuple[float, ...]
    source: str
    tolerance: float

    def error(self, q: np.ndarray, v: np.ndarray) -> float:
        """The largest difference of a state, relative as for `tolerance`."""
        pairs = ((q, self.q), (v, self.v))
        return max(float(np.max(np.abs(x - y)) / np.max(np.abs(y))) for x, y in pairs)
