"""What others have found for a problem, kept beside it."""

from typing import NamedTuple

import numpy as np


class Reference(NamedTuple):
    """The state that a problem reaches at its end.

    q, v: configuration and velocity.
    source: who computed it, and how.
    tolerance: the largest error of an entry that a careful run may have, relative to its scale.
    scale_q, scale_v: the sizes to which errors are related, one for each entry; by default the
        largest entry of q, or of v, for all.
    law: the impulse law that it belongs to, as written in Python; "": the motion does not depend on
        the law.
    """

    q: tuple[float, ...]
    v: tuple[float, ...]
    source: str
    tolerance: float
    scale_q: tuple[float, ...] = ()
    scale_v: tuple[float, ...] = ()
    law: str = ""

    def error(self, q: np.ndarray, v: np.ndarray) -> float:
        """The largest difference of a state, relative as for `tolerance`."""
        triples = ((q, self.q, self.scale_q), (v, self.v, self.scale_v))
        return max(
            float(np.max(np.abs(np.subtract(x, y)) / (scale or np.max(np.abs(y)))))
            for x, y, scale in triples
        )
