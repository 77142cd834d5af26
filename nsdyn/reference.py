"""Where a problem comes from and what others have found for it, kept beside it."""

from typing import NamedTuple

import numpy as np


class About(NamedTuple):
    """What a problem is for, and where it comes from: `ABOUT` in its file.

    tags: words to find it by.
    source: who posed it, in a few words; "own" if nobody else did.
    """

    tags: tuple[str, ...] = ()
    source: str = ""


class Agreement(NamedTuple):
    """A run that agrees with a reference.

    integrator: as written in Python.
    steps: the number of equal steps; with error control, of intervals between samples.
    error: what its error stays below.
    """

    integrator: str
    steps: int
    error: float


class Reference(NamedTuple):
    """The state that a problem reaches at its end.

    q, v: configuration and velocity.
    source: who computed it, and how.
    tolerance: the largest error of an entry that a careful run may have, relative to its scale.
    scale_q, scale_v: the sizes to which errors are related, one for each entry; by default the
        largest entry of q, or of v, for all.
    law: the impulse law that it belongs to, as written in Python; "": there are no impulses.
    agrees: runs that come near it.
    """

    q: tuple[float, ...]
    v: tuple[float, ...]
    source: str
    tolerance: float
    scale_q: tuple[float, ...] = ()
    scale_v: tuple[float, ...] = ()
    law: str = ""
    agrees: tuple[Agreement, ...] = ()

    def error(self, q: np.ndarray, v: np.ndarray) -> float:
        """The largest difference of a state, relative as for `tolerance`."""
        triples = ((q, self.q, self.scale_q), (v, self.v, self.scale_v))
        return max(
            float(np.max(np.abs(np.subtract(x, y)) / (scale or np.max(np.abs(y)))))
            for x, y, scale in triples
        )
