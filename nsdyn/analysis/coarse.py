"""A warning if the steps of a run are far too long to follow its motion.

Two ratios show it without a second run and without a scale. For each velocity, with samples after
every step, von Neumann's ratio

    r^2 = mean (v_(k+1) - v_k)^2 / mean v_k^2                                                  (1)

which is 2 |sin(w h/2)| for an oscillation of frequency w, and sqrt(2) where successive values have
nothing to do with each other. And, where q' = v, how far q is from the trapezoidal rule,

    d_k = q_(k+1) - q_k - h/2 (v_k + v_(k+1))
    s_k = |q_(k+1) - q_k| + h/2 (|v_k| + |v_(k+1)|),     d^2 = mean d_k^2 / mean s_k^2         (2)

which is (w h)^2/24 for small w h. (2) needs few steps, but is zero for schemes that use this rule
themselves. Events, where velocities jump, cut steps into pieces; (1) leaves those out. Neither
ratio can see an error that the samples do not show.
"""

from typing import NamedTuple

import numpy as np

from nsdyn.errors import CoarseStepWarning, warn
from nsdyn.results.solution import Solution

JUMPY = 1.2  # of r: fewer than five steps in a period
BENT = 0.1  # of d: fewer than four
FEWEST = 8  # pieces for (1): a motion that has just begun changes much
WHOLE = 0.99  # of a step: (1) leaves out what events cut off, such as flights between impacts
NOTHING = 1e-9  # of a step: a piece this short is none


class Pieces(NamedTuple):
    """The motion between neighbouring samples and events: durations, which are whole
    steps, and coordinates and velocities at both ends."""

    h: np.ndarray
    whole: np.ndarray
    q: tuple[np.ndarray, np.ndarray]
    v: tuple[np.ndarray, np.ndarray]

    @staticmethod
    def of(solution: Solution) -> "Pieces":
        good = np.all(np.isfinite(solution.v), axis=1)
        events = solution.events
        t = np.concatenate([events.t, solution.t[good]])
        order = np.argsort(t, kind="stable")  # an event before a sample at the same time
        sorted_ = lambda *x: np.concatenate(x)[order]
        q = sorted_(events.q, solution.q[good])
        arriving = sorted_(events.v_before, solution.v[good])
        leaving = sorted_(events.v_after, solution.v[good])
        h = np.diff(t[order])
        real = h > NOTHING * solution.step
        return Pieces(
            h=h[real, None],
            whole=h[real] >= WHOLE * solution.step,
            q=(q[:-1][real], q[1:][real]),
            v=(leaving[:-1][real], arriving[1:][real]),
        )


def change_ratio(pieces: Pieces) -> np.ndarray:
    """r of (1) for each velocity."""
    start, end = (v[pieces.whole] for v in pieces.v)
    if len(start) < FEWEST:
        return np.zeros(start.shape[1])
    return _ratio(end - start, start)


def trapezoid_ratio(pieces: Pieces) -> np.ndarray:
    """d of (2) for each coordinate, where q' = v."""
    (q0, q1), (v0, v1) = pieces.q, pieces.v
    half = 0.5 * pieces.h
    size = np.abs(q1 - q0) + half * (np.abs(v0) + np.abs(v1))
    return _ratio(q1 - q0 - half * (v0 + v1), size)


def _ratio(x: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The root mean square of x over that of `size`, for each column."""
    above, below = np.sum(x**2, axis=0), np.sum(size**2, axis=0)
    return np.sqrt(above / np.where(below > 0, below, np.inf))


def warn_if_coarse(solution: Solution, rates_are_velocities: bool) -> None:
    """Warn of a run whose samples show that its steps are too long."""
    if solution.save_every != 1:
        return
    pieces = Pieces.of(solution)
    found = np.max(change_ratio(pieces), initial=0.0) > JUMPY
    if rates_are_velocities:
        found |= np.max(trapezoid_ratio(pieces), initial=0.0) > BENT
    if found:
        warn(
            f"{solution.problem}: step = {solution.step:g} is too long to follow the motion, and "
            "the result may have little to do with the mechanism. Try a smaller step, or "
            "EventDriven(DormandPrince()), which chooses its steps",
            CoarseStepWarning,
        )
