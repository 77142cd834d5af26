"""Accuracy per second: run time against error for nsdyn, scipy and diffrax.

The error of a run is that of its end state,

    err = max(|q - q*|/|q*|, |v - v*|/|v*|),   |x| the largest entry                             (1)

with the reference (q*, v*) by DormandPrince(8) at the tolerance REFERENCE. The time to reach an
error is the shortest of all runs whose error is at most that: methods with error control ran with
rtol = atol at a series of tolerances, RK4 with a series of steps. Compilation is not counted.
What is timed are whole calls, from numbers in Python to the end state in numpy arrays: `simulate`
without the checks of the start (check=False), since scipy and diffrax do not check either, and
without samples in between; a function that contains the calls of diffrax, compiled as a whole; and
`solve_ivp`, whose right-hand side is a compiled function of JAX, called from Python.
"""

from collections.abc import Callable
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import nsdyn
from nsdyn import integrators, problems
from nsdyn.driver.backend import compiled_well
from nsdyn.stepping.integrator import AbstractIntegrator
from nsdyn.studies.lib import archive, style
from nsdyn.studies.lib.bench.flow import Flow, diffrax_dopri8, scipy_dop853
from nsdyn.studies.lib.bench.measure import Line, fastest, line
from nsdyn.studies.lib.bench.runs import RK4

NAME = "work_precision"
LEVELS = (1e-6, 1e-9, 1e-12)
REFERENCE = 3e-15
TIGHTEST = 3e-14  # scipy accepts nothing below 100 ulp
TOLERANCES = tuple(10.0 ** -(k / 2) for k in range(8, 27)) + (TIGHTEST,)
STEPS = tuple(round(100 * 2 ** (k / 1.5)) for k in range(19))  # of RK4: up to 400,000
MOST = 100_000  # steps with error control, as for diffrax
SCIPY, DIFFRAX = "scipy DOP853", "diffrax Dopri8"
ADAPTIVE = ("nsdyn DormandPrince(5)", "nsdyn DormandPrince(8)")
FIXED = "nsdyn RK4"
FASTER_THAN = {SCIPY: 10.0, DIFFRAX: 3.0}
FASTER_THAN_FIXED = 3.0  # at the error 1e-9
TITLES = {
    "three_r_pendulum": "3R pendulum, two locks",
    "compass_walker": "compass walker, ten strikes",
    "n_four_bar": "hanging four-bar, smooth",
}

CAPTION = """\
Error of the end state against run time, computed with nsdyn {version} on {processor}. Compilation is not counted.

a) 3R pendulum whose joints lock at two times. b) Compass walker over ten heel strikes. c) Four-bar linkage that hangs and
swings, far from singular positions. Error: largest difference of q or v, relative to the largest entry. Reference:
DormandPrince(8) at rtol = atol = {reference:g}. scipy calls a compiled right-hand side from Python; diffrax runs compiled.
"""


def cases(quick: bool) -> dict[str, nsdyn.Problem]:
    """A mechanism with locks, one with impacts, and a smooth one with a closed loop: a four-bar that
    hangs, so that it swings by 52 degrees and never lies flat."""
    found = {"three_r_pendulum": problems.three_r_pendulum()}
    if not quick:
        found["compass_walker"] = problems.compass_walker(t_end=7.6)
        found["n_four_bar"] = problems.n_four_bar(windows=1, g=-9.81, v0=3.0, t_end=5.0)
    return found


def work_precision(problem: nsdyn.Problem, repeats: int) -> dict[str, Any]:
    """Errors and seconds by method."""
    reference = _end(problem, 8, REFERENCE)
    exact = reference.q[-1], reference.v[-1]
    solvers, settings = _solvers(problem, len(reference.events))
    found: dict[str, Any] = {"events": len(reference.events), "methods": {}}
    for name, solver in solvers.items():
        points = [timed(solver, value, exact, repeats) for value in settings[name]]
        errors, seconds = zip(*points, strict=True)
        found["methods"][name] = {"error": errors, "seconds": seconds}
    return found


def _solvers(problem: nsdyn.Problem, events: int) -> tuple[dict[str, Callable], dict[str, tuple]]:
    """Functions of a tolerance, or of a number of steps, that give q and v at the end; and the
    values to try."""
    flow = Flow.of(problem)
    n = len(problem.q0)
    halves = lambda solver: lambda value: np.split(solver(value), [n])
    last = lambda solution: (solution.q[-1], solution.v[-1])
    solvers: dict[str, Callable] = {FIXED: lambda steps: last(_fixed(problem, steps))}
    fifth, eighth = ADAPTIVE
    solvers[fifth] = lambda tolerance: last(_end(problem, 5, tolerance))
    solvers[eighth] = lambda tolerance: last(_end(problem, 8, tolerance))
    solvers[SCIPY] = halves(scipy_dop853(flow))
    if find_spec("diffrax"):
        solvers[DIFFRAX] = halves(diffrax_dopri8(flow, events))
    settings = dict.fromkeys(solvers, TOLERANCES) | {FIXED: STEPS}
    return solvers, settings


@cache
def _controlled(order: Literal[5, 8], tolerance: float) -> AbstractIntegrator:
    """Made once, as a user would."""
    allowed = jnp.asarray(tolerance)
    method = integrators.DormandPrince(order=order, rtol=allowed, atol=allowed, max_steps=MOST)
    return integrators.EventDriven(method)


def _end(problem: nsdyn.Problem, order: Literal[5, 8], tolerance: float) -> nsdyn.Solution:
    method = _controlled(order, tolerance)
    return nsdyn.simulate(problem, method, step=problem.t_end, check=False)


def _fixed(problem: nsdyn.Problem, steps: int) -> nsdyn.Solution:
    step = problem.t_end / steps
    return nsdyn.simulate(problem, RK4, step=step, save_every=steps, check=False)


def timed(
    solver: Callable, value: float, exact: tuple, repeats: int
) -> tuple[float | None, float | None]:
    """Error (1) and time of a run; None if it fails, as coarse steps may."""
    with compiled_well():
        try:
            end = solver(value)  # compiles
        except nsdyn.SimulationError:
            return None, None
        seconds = fastest(partial(solver, value), repeats)
    size = lambda x: np.max(np.abs(x))
    error = max(size(x - y) / size(y) for x, y in zip(end, exact, strict=True))  # (1)
    return (float(error), seconds) if np.isfinite(error) else (None, None)


# Showing


def accuracy(quick: bool, repeats: int) -> dict:
    """All cases: data and lines."""
    found = {name: work_precision(case, repeats) for name, case in cases(quick).items()}
    return {"accuracy": {"lines": lines(found), "cases": found, "note": _note(found)}}


def lines(found: dict[str, Any]) -> list[Line]:
    """The lines of the table."""
    made: list[Line] = []
    for name, measured in found.items():
        for level in LEVELS:
            made += _compared(name, measured["methods"], level)
        doubt = measured["methods"][SCIPY]["error"][-1]
        made.append(line(f"{name}: reference and {SCIPY} at {TIGHTEST:g} differ by", doubt))
    return made


def _note(found: dict[str, Any]) -> str:
    """What was not measured, and which runs failed."""
    told = [] if find_spec("diffrax") else ["no comparison with diffrax: not installed"]
    for name, measured in found.items():
        for method, points in measured["methods"].items():
            lost = points["error"].count(None)
            if lost:
                total = len(points["error"])
                told.append(f"{name}: {lost} of {total} runs of {method} stopped early")
    return "; ".join(told)


def time_to(points: dict[str, list], level: float) -> float | None:
    """The shortest time of a run whose error is at most this; None if there is none."""
    pairs = zip(points["error"], points["seconds"], strict=True)
    return min((s for e, s in pairs if e is not None and e <= level), default=None)


def _compared(name: str, methods: dict, level: float) -> list[Line]:
    own = min(filter(None, (time_to(methods[key], level) for key in ADAPTIVE)), default=None)
    head = f"{name} to {level:g}"
    made = [line(f"{head}: error control [ms]", None if own is None else 1e3 * own)]
    targets = {**FASTER_THAN, FIXED: FASTER_THAN_FIXED if level == 1e-9 else None}
    for other, target in targets.items():
        if other in methods:
            made.append(
                _gain(f"{head}: times faster than {other}", methods[other], level, own, target)
            )
    return made


def _gain(
    title: str, points: dict[str, list], level: float, own: float | None, target: float | None
) -> Line:
    """How many times faster than another method."""
    other = time_to(points, level)
    if own is None or other is None:
        found = line(title, None, at_least=target)
        beaten = own is not None  # by us alone
        return found | ({"met": beaten} if "met" in found else {})
    return line(title, other / own, at_least=target)


def figure(cases: dict[str, Any]) -> Figure:
    """Error against time, one panel for each case."""
    fig, axes = style.figure((1, len(cases)), style.DOUBLE, 3.0)
    for ax, letter, (name, found) in zip(axes, "abc", cases.items(), strict=False):
        style.panel(ax, letter)
        ax.set_title(TITLES[name])
        _lines(ax, found["methods"])
    axes[0].set_ylabel("error of the end state")
    marks, labels = axes[0].get_legend_handles_labels()
    fig.legend(marks, labels, loc="outside lower center", ncols=3)
    return fig


def draw(cases: dict[str, Any], processor: str, folder: str | Path) -> list[Path]:
    """Save the figure and its caption; returns the files written."""
    with style.use():
        files = style.save(figure(cases), folder, NAME)
    text = CAPTION.format(version=nsdyn.__version__, processor=processor, reference=REFERENCE)
    words = lambda path: path.write_text(text, "utf-8")
    return [*files, archive.replace(Path(folder) / f"{NAME}.txt", words)]


def _lines(ax: Axes, methods: dict[str, dict]) -> None:
    for k, (name, points) in enumerate(methods.items()):
        pairs = zip(points["error"], points["seconds"], strict=True)
        known = [(1e3 * s, e) for e, s in pairs if e]
        ax.loglog(*np.array(known).T, marker=style.MARKERS[k], label=name)
    ax.set_xlabel("run time [ms]")
    ax.grid(True, which="major", color="0.9", linewidth=0.5)
