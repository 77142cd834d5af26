"""How large the error of a run with a fixed step is, by step doubling.

With y_1, y_2, y_4 the same samples from runs with the steps h, h/2 and h/4, and |.| the root mean
square over the samples, each variable shows the order with which its error falls,

    p = log2(|y_1 - y_2| / |y_2 - y_4|)                                                        (1)

and the error of the run with the step h is, as far as its leading term C h^p goes,

    |y_1 - y| = |y_1 - y_4| / (1 - 4^-p)                                                       (2)

Orders below LEAST are taken for LEAST: there (2) is no more than a guess, and a warning says so.
The samples between the times at which two runs change the mode say nothing about the order, since
velocities jump there; (1) leaves them out.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from nsdyn.driver.single_run import simulate
from nsdyn.errors import CoarseStepWarning, ProblemError, warn
from nsdyn.problem import Problem
from nsdyn.results.solution import Solution
from nsdyn.stepping.integrator import IntegratorLike, as_integrator

LEAST = 0.5
ROUND_OFF = 1e-10  # of a variable: smaller differences show no order


@dataclass(frozen=True)
class ErrorEstimate:
    """The estimated error of a run.

    solution: the run.
    q, v, lam: the errors of its samples, in arrays of the same shapes.
    event_times: the errors of its event times; None if runs with smaller steps have other events.
    orders: the observed order of each column of q, v and lam, and of the event times, by name. NaN
        where there is no error to observe.
    """

    solution: Solution
    q: np.ndarray
    v: np.ndarray
    lam: np.ndarray
    event_times: np.ndarray | None
    orders: dict[str, np.ndarray]

    def __str__(self) -> str:
        lines = [f"{self.solution.problem}: estimated errors with step = {self.solution.step:g}"]
        for name, orders in self.orders.items():
            error, order = np.max(getattr(self, name), initial=0.0), _lowest(orders)
            observed = "no order" if np.isnan(order) else f"order {order:.1f}"
            lines.append(f"  {name:<12} at most {error:8.2g}, observed {observed}")
        return "\n".join(lines)


def error_estimate(
    problem: Problem, integrator: IntegratorLike, *, step: float, **options: Any
) -> ErrorEstimate:
    """The error of `simulate(problem, integrator, step=step, ...)`, estimated by two more runs with
    a half and a quarter of the step: seven times the work, and nothing to compile anew. Takes the
    options of `simulate`.

    With error control `step` is not the step of the method, so such methods are refused: compare
    with a run of smaller tolerances instead.
    """
    driven = as_integrator(integrator)
    if driven is not None and driven.controls_error:
        raise ProblemError(
            f"integrator: expected one with a fixed step, found {integrator!r}. Error control "
            "estimates the error of each step; compare with a run of smaller rtol and atol"
        )
    runs = [simulate(problem, integrator, step=step, **options)]
    every = options.pop("save_every", 1)
    for divisor in (2, 4):
        more = {} if options.get("save_at") is not None else {"save_every": divisor * every}
        again = {**options, "step": step / divisor, "check": False, **more}
        runs.append(simulate(problem, integrator, **again))
    return _compared(runs)


def _compared(runs: list[Solution]) -> ErrorEstimate:
    first = runs[0]
    modes = [run.mode.reshape(len(run.t), -1) for run in runs]
    alike = np.all([np.all(mode == modes[0], axis=1) for mode in modes], axis=0)
    errors, orders = {}, {}
    for name in ("q", "v", "lam"):
        values = [getattr(run, name) for run in runs]
        errors[name], orders[name] = _estimated(values, alike)
    times: np.ndarray | None = None
    if len({len(run.events) for run in runs}) == 1:
        columns = [run.events.t[:, None] for run in runs]
        found, orders["event_times"] = _estimated(columns, np.ones(len(first.events), bool))
        times = found[:, 0]
    _warn_if_not_falling(first, orders)
    return ErrorEstimate(solution=first, **errors, event_times=times, orders=orders)


def _estimated(values: list[np.ndarray], alike: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The errors (2), and the orders (1) of the columns, from the rows that are alike."""
    size = lambda x: np.sqrt(np.mean(x[alike] ** 2, axis=0)) if np.any(alike) else x[:0].sum(axis=0)
    coarse, fine = size(values[0] - values[1]), size(values[1] - values[2])
    seen = (fine > 0) & (coarse > ROUND_OFF * size(values[0]))
    ratio = np.where(seen, coarse, 1.0) / np.where(seen, fine, 1.0)
    order = np.where(seen, np.log2(ratio), np.nan)  # (1)
    rest = np.where(seen, 4.0 ** -np.maximum(np.where(seen, order, LEAST), LEAST), 0.0)
    return np.abs(values[0] - values[2]) / (1 - rest), order  # (2)


def _lowest(order: np.ndarray) -> float:
    known = order[np.isfinite(order)]
    return float(np.min(known)) if len(known) else np.nan


def _warn_if_not_falling(solution: Solution, orders: dict[str, np.ndarray]) -> None:
    slow = {name: _lowest(order) for name, order in orders.items()}
    slow = {name: order for name, order in slow.items() if order < LEAST}
    if slow:
        found = ", ".join(f"{name} {order:.2g}" for name, order in slow.items())
        warn(
            f"{solution.problem}: errors hardly fall with the step (observed orders: {found}), so "
            f"their estimates are no more than guesses. Try a step smaller than {solution.step:g}",
            CoarseStepWarning,
        )
