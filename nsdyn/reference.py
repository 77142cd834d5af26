"""Where a problem comes from and what is known of its motion, kept beside it.

A closed form x(t) is evaluated in floating point. Rounding of its result and of its argument change
it by about

    eps |x| + |x(t + eps |t|) - x(t)|                                                            (1)

which is taken as its error.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nsdyn.errors import ProblemError

EPS = float(np.finfo(float).eps)
AT_START = 1e-9  # how near a closed form comes to the start of its problem, relative to its size


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


class ExactMotion(NamedTuple):
    """A closed form at some times: q and v, shapes (k, n), and the error (1) of each row."""

    q: np.ndarray
    v: np.ndarray
    error_q: np.ndarray
    error_v: np.ndarray


class ClosedForm(NamedTuple):
    """The motion of a problem in closed form: `CLOSED_FORM` in its file.

    motion: motion(t, problem, law) -> (q, v), shapes (k, n), for times t of shape (k,); at the time
        of an event the state after it. None where it does not hold, such as for another law.
    source: who found it, or where it is derived.
    """

    motion: Callable
    source: str

    def at(self, t: np.ndarray, problem: Any, law: Any) -> ExactMotion | None:
        """The motion at these times; None if it is not known for this problem and law."""
        times = np.asarray(t, float)
        start = self._state(np.array([problem.t0]), problem, law)
        here = self._state(times, problem, law)
        if start is None or here is None:
            return None
        self._check_start(start, problem)
        later = self._state(times + EPS * np.abs(times), problem, law)
        gaps = (_rounding(x, y) for x, y in zip(here, later or here, strict=True))
        return ExactMotion(*here, *gaps)

    def _state(self, t: np.ndarray, problem: Any, law: Any) -> tuple | None:
        found = self.motion(t, problem, law)
        if found is None:
            return None
        q, v = (np.asarray(x, float) for x in found)
        wanted = (len(t), len(problem.q0)), (len(t), len(problem.v0))
        if (q.shape, v.shape) != wanted:
            raise ProblemError(
                f"closed form of {problem.name}: expected q and v of shapes {wanted[0]} and "
                f"{wanted[1]}, a row for each time, found {q.shape} and {v.shape}"
            )
        return q, v

    def _check_start(self, start: tuple, problem: Any) -> None:
        for name, found, wanted in zip("qv", start, (problem.q0, problem.v0), strict=True):
            if np.max(np.abs(found[0] - wanted)) > AT_START * (1 + np.max(np.abs(wanted))):
                raise ProblemError(
                    f"closed form of {problem.name}: expected {name} = "
                    f"{np.asarray(wanted).tolist()} at t0 = {problem.t0:g}, found "
                    f"{found[0].tolist()}; return None for settings for which it does not hold"
                )


def _rounding(x: np.ndarray, later: np.ndarray) -> np.ndarray:
    return np.max(EPS * np.abs(x) + np.abs(later - x), axis=1, initial=0.0)  # (1)
