"""A warning if the steps of a run are far too long to follow its motion.

Two ratios show it without a second run and without a scale. For each velocity, with samples after
every step, von Neumann's ratio

    r^2 = mean (v_(k+1) - v_k)^2 / mean v_k^2                                                  (1)

which is 2 |sin(w h/2)| for an oscillation of frequency w, and sqrt(2) where successive values have
nothing to do with each other. And, where q' = v, how far q is from the trapezoidal rule,

    d_k = q_(k+1) - q_k - h/2 (v_k + v_(k+1))
    s_k = |q_(k+1) - q_k| + h/2 (|v_k| + |v_(k+1)|),     d^2 = mean d_k^2 / mean s_k^2         (2)

which is (w h)^2/24 for small w h. (2) needs few steps, but is zero for schemes that use this rule
themselves. Steps with an event do not count: velocities may jump there. Neither ratio can see an
error that the samples do not show.
"""

import numpy as np

from nsdyn.errors import CoarseStepWarning, warn
from nsdyn.results.solution import Solution

JUMPY = 1.2  # of r: fewer than five steps in a period
BENT = 0.1  # of d: fewer than four
FEWEST = 8  # steps for (1), of which a few are always at the beginning of something


def change_ratio(solution: Solution) -> np.ndarray:
    """r of (1) for each velocity of a single run."""
    start, end = _smooth_steps(solution, solution.v)
    if len(start) < FEWEST:
        return np.zeros(start.shape[1])
    return _ratio(end - start, start)


def trapezoid_ratio(solution: Solution) -> np.ndarray:
    """d of (2) for each coordinate of a single run with q' = v."""
    q0, q1 = _smooth_steps(solution, solution.q)
    v0, v1 = _smooth_steps(solution, solution.v)
    half = 0.5 * np.subtract(*_smooth_steps(solution, solution.t[:, None])[::-1])
    size = np.abs(q1 - q0) + half * (np.abs(v0) + np.abs(v1))
    return _ratio(q1 - q0 - half * (v0 + v1), size)


def _smooth_steps(solution: Solution, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A quantity at the starts and the ends of all steps without an event."""
    inside = np.searchsorted(solution.t, solution.events.t, side="right") - 1
    number = np.arange(len(solution.t) - 1)
    smooth = ~np.isin(number, [inside, inside - 1])
    smooth &= np.all(np.isfinite(solution.v[1:]), axis=1)
    return x[:-1][smooth], x[1:][smooth]


def _ratio(x: np.ndarray, size: np.ndarray) -> np.ndarray:
    """The root mean square of x over that of `size`, for each column."""
    above, below = np.sum(x**2, axis=0), np.sum(size**2, axis=0)
    return np.sqrt(above / np.where(below > 0, below, np.inf))


def warn_if_coarse(solution: Solution, rates_are_velocities: bool) -> None:
    """Warn of a run whose samples show that its steps are too long."""
    if solution.save_every != 1:
        return
    found = np.max(change_ratio(solution), initial=0.0) > JUMPY
    if rates_are_velocities:
        found |= np.max(trapezoid_ratio(solution), initial=0.0) > BENT
    if found:
        warn(
            f"{solution.problem}: step = {solution.step:g} is too long to follow the motion, and "
            "the result may have little to do with the mechanism. Try a smaller step, or "
            "EventDriven(DormandPrince()), which chooses its steps",
            CoarseStepWarning,
        )
