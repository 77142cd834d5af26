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
        events, n = solution.events, solution.q.shape[1]
        samples = (solution.t[:, None], solution.q, solution.v, solution.v)
        places = (events.t[:, None], events.q, events.v_before, events.v_after)
        table = np.concatenate([np.concatenate(places, axis=1), np.concatenate(samples, axis=1)])
        table = table[np.isfinite(table).all(axis=1)]
        # An event before a sample at the same time.
        table = table[table[:, 0].argsort(kind="stable")]
        h = table[1:, 0] - table[:-1, 0]
        real = h > NOTHING * solution.step
        h, start, end = h[real], table[:-1][real], table[1:][real]
        middle = n + 1 + solution.v.shape[1]  # behind the velocities before an event
        return Pieces(
            h=h[:, None],
            whole=h >= WHOLE * solution.step,
            q=(start[:, 1 : n + 1], end[:, 1 : n + 1]),
            v=(start[:, middle:], end[:, n + 1 : middle]),
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
    above, below = (x * x).sum(axis=0), (size * size).sum(axis=0)
    below[below == 0] = np.inf
    return np.sqrt(above / below)


def warn_if_coarse(solution: Solution, rates_are_velocities: bool) -> None:
    """Warn of a run whose samples show that its steps are too long."""
    if solution.save_every != 1:
        return
    pieces = Pieces.of(solution)
    found = (change_ratio(pieces) > JUMPY).any()
    if rates_are_velocities:
        found |= (trapezoid_ratio(pieces) > BENT).any()
    if found:
        warn(
            f"{solution.problem}: step = {solution.step:g} is too long to follow the motion, and "
            "the result may have little to do with the mechanism. Try a smaller step, or "
            "EventDriven(DormandPrince()), which chooses its steps",
            CoarseStepWarning,
        )
