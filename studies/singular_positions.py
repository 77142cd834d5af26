"""Every scheme through singular positions: a parallelogram, two and forty four-bar windows.

The mechanisms are pendulums (`nsdyn.problems.parallelogram`, `nsdyn.problems.n_four_bar`),

    theta'' = k sin(theta),    theta(0) = 0,  theta'(0) = 1 rad/s                                (1)

which is what runs are measured against, over all samples until they end:

    error = max |x - x_pendulum|,    drift = max |E - E_0| / E_0                                 (2)

with x the angles of the rods [rad], or the places of the tops [m], and E_0 the energy above that of
the lowest position. A tool, not one of the figures: `python -m nsdyn.studies.singular_positions`
prints the table of docs/singular_positions.md; names of mechanisms as arguments choose a part of it.
"""

import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import nsdyn
from nsdyn.integrators import NSGA, RK4, EventDriven, GeneralizedAlpha, MoreauJean
from nsdyn.problem import Problem
from nsdyn.problems import n_four_bar, parallelogram
from nsdyn.problems.n_four_bar import pendulum_rate as rate_of_windows
from nsdyn.problems.parallelogram import pendulum_rate as rate_of_parallelogram
from nsdyn.results.solution import Solution

SAMPLES = 1000
MINIMAL = EventDriven(RK4("minimal"))
SCHEMES: tuple[Any, ...] = (
    EventDriven(RK4()),
    EventDriven(RK4("projected")),
    MINIMAL,
    *(GeneralizedAlpha(index=index) for index in (1, 2, 3)),
    *(EventDriven(GeneralizedAlpha(index=index)) for index in (1, 2, 3)),
    *(NSGA(variant=variant) for variant in ("three-level", "velocity", "decoupled")),
    *(MoreauJean(projection=projection) for projection in (True, False)),
)
CASES = {
    "parallelogram": (parallelogram(), (1e-2, 1e-3)),
    "two_windows": (n_four_bar(windows=2), (1e-2, 1e-3)),
    "forty_windows": (n_four_bar(windows=40), (1e-2,)),
}
TOO_LONG = {("forty_windows", repr(MINIMAL))}  # minutes


def swing(problem: Problem) -> float:
    """k of (1)."""
    if problem.name == "parallelogram":
        return float(rate_of_parallelogram(problem.params))
    return float(rate_of_windows(len(problem.q0) // 2 - 1, problem.params))


def reference(problem: Problem, t: np.ndarray) -> np.ndarray:
    """theta and theta' of (1) at the times t."""
    from scipy.integrate import solve_ivp  # slow to import

    k = swing(problem)
    found = solve_ivp(
        lambda t, y: [y[1], k * np.sin(y[0])],
        (0.0, t[-1]),
        [0.0, 1.0],
        t_eval=t,
        method="DOP853",
        rtol=1e-12,
        atol=1e-12,
    )
    return found.y


def error(problem: Problem, run: Solution) -> float:
    """The error of (2)."""
    theta, _ = reference(problem, run.t)
    if problem.name == "parallelogram":
        exact = np.stack([theta, 0 * theta, theta], axis=1)
        return float(np.max(np.abs(np.cumsum(run.q, axis=1) - exact)))
    tops = run.q.reshape(len(run.t), -1, 2)
    feet = np.stack([np.arange(tops.shape[1]), np.zeros(tops.shape[1])], axis=1)
    exact = np.stack([np.sin(theta), np.cos(theta)], axis=1)
    return float(np.max(np.abs(tops - feet - exact[:, None])))


def drift(problem: Problem, run: Solution) -> float:
    """The drift of (2)."""
    highest = float(problem.system.energy(problem.q0, 0 * problem.v0, problem.params))
    return float(np.max(np.abs(run.energy - run.energy[0])) / (run.energy[0] + highest))


def rows(names: list[str]) -> Iterator[tuple[str, ...]]:
    """Lines of the table, one for each mechanism, scheme and step."""
    for name in names:
        problem, steps = CASES[name]
        for scheme in SCHEMES:
            for h in steps:
                if (name, repr(scheme)) in TOO_LONG:
                    yield name, repr(scheme), f"{h:g}", "not run", "", "", ""
                else:
                    yield name, repr(scheme), f"{h:g}", *_measured(problem, scheme, h)


def _measured(problem: Problem, scheme: Any, h: float) -> tuple[str, ...]:
    """Outcome, error, drift and seconds (with compilation)."""
    every = max(1, round(problem.t_end / h) // SAMPLES)
    began = time.perf_counter()
    outcome = "OK"
    try:
        run = nsdyn.simulate(problem, scheme, step=h, save_every=every, check=False)
    except nsdyn.SimulationError as stopped:
        run = stopped.partial
        outcome = f"{stopped.status.name}, t = {stopped.t:.4g}"
    seconds = time.perf_counter() - began
    return outcome, f"{error(problem, run):.1e}", f"{drift(problem, run):.1e}", f"{seconds:.0f}"


def main(names: list[str]) -> None:
    """Print the table as Markdown, line by line."""
    unknown = [name for name in names if name not in CASES]
    if unknown:
        raise SystemExit(f"expected some of {', '.join(CASES)}, found {unknown[0]!r}")
    print("| mechanism | scheme | step [s] | outcome | error | drift | time [s] |")
    print("|---|---|---|---|---|---|---|")
    for line in rows(names or list(CASES)):
        name, scheme, *rest = line
        print(f"| {name} | `{scheme}` | {' | '.join(rest)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
