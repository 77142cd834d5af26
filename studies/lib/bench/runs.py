"""One trajectory: the time of a step of `simulate`, over that of a step of the 3R pendulum in C.

A run has STEPS steps and eleven samples, all events included; the time of a run of 16 steps, that
is of everything but the loop, is subtracted, and stands in a line of its own.
"""

from functools import partial

import numpy as np

import nsdyn
from nsdyn import integrators, problems
from nsdyn.stepping.integrator import AbstractIntegrator
from nsdyn.studies.lib.bench.measure import Line, fastest, line
from nsdyn.studies.lib.bench.yardstick import LANES, Ratio, Yardstick

STEPS = 100_000
SHORT = 16  # steps of a run without a loop worth the name
TARGETS = {
    "three_r_pendulum": 1.5,
    "wheel_over_pothole": 1.5,
    "compass_walker": 4.0,
    "metamorphic_palm": 5.0,
    "rx130l": 15.0,
}
NSGA_TARGET, NSGA_STEP = 4.0, 1e-4
C_STEPS = 2000
RK4 = integrators.EventDriven(integrators.RK4())


def step_seconds(
    problem: nsdyn.Problem, method: AbstractIntegrator, steps: int, repeats: int
) -> tuple[float, str]:
    """The time of one step, and the backend that made it."""
    h = problem.t_end / steps
    run = partial(nsdyn.simulate, problem, method, step=h, check=False)
    whole = partial(run, save_every=max(1, steps // 10))
    backend = whole().backend  # compiles
    long = fastest(whole, repeats)
    short = fastest(partial(run, t_end=SHORT * h, save_every=SHORT), repeats)
    return (long - short) / (steps - SHORT), backend


def one_trajectory(ratio: Ratio, repeats: int) -> dict:
    """RK4 steps of several problems, NSGA steps, and what a call costs besides."""
    lines: list[Line] = []
    backends = {}
    for name, target in TARGETS.items():
        seconds, backends[name] = step_seconds(problems.get(name), RK4, STEPS, repeats)
        us = 1e6 * seconds
        lines.append(line(f"{name}: RK4 step [us]", us))
        lines.append(line(f"{name}: RK4 step over scalar C", ratio.to_c(us), target))
    call = fastest(partial(nsdyn.simulate, problems.three_r_pendulum(), RK4, step=0.1), repeats)
    lines.append(line("three_r_pendulum: a call of simulate, without its loop [ms]", 1e3 * call))
    difference = _difference(ratio.c)
    found: dict = {"lines": lines, "backends": backends, "difference_from_c": difference}
    return {"one trajectory": found | ({"note": ratio.c.missing} if ratio.c.missing else {})}


def implicit(repeats: int) -> dict:
    """A step of NSGA over a step of RK4 of the same problem, with the same step size."""
    lines: list[Line] = []
    for name in ("three_r_pendulum", "wheel_over_pothole"):
        problem = problems.get(name)
        steps = round(problem.t_end / NSGA_STEP)
        rk4, nsga = (
            step_seconds(problem, method, steps, repeats)[0] for method in (RK4, integrators.NSGA())
        )
        title = f"{name}, h = {NSGA_STEP:g} s"
        lines.append(line(f"{title}: NSGA step [us]", 1e6 * nsga))
        lines.append(line(f"{title}: NSGA step over RK4 step", nsga / rk4, NSGA_TARGET))
    return {"implicit": {"lines": lines}}


def hardware(repeats: int) -> dict:
    """C with one trajectory at a time and with eight in the lanes of a vector."""
    scalar, vector = Yardstick(), Yardstick(LANES)
    one, eight = scalar.us_per_step(5 * repeats), vector.us_per_step(5 * repeats)
    if one is None or eight is None:
        return {"hardware": {"lines": [], "note": scalar.missing or vector.missing}}
    lines = [
        line("three_r_pendulum: RK4 step in scalar C [us]", one),
        line(f"three_r_pendulum: RK4 step in C, {LANES} lanes, over scalar C", eight / one),
    ]
    return {"hardware": {"lines": lines, "flags": [*scalar.flags, "|", *vector.flags]}}


def _difference(c: Yardstick) -> float:
    """Between the end states of nsdyn and of C with the same steps: they must do the same."""
    found = c.run(C_STEPS, 1, 1)
    if found is None:
        return 0.0
    problem = problems.three_r_pendulum()
    end = nsdyn.simulate(problem, RK4, step=problem.t_end / C_STEPS, save_every=C_STEPS).q[-1]
    return float(np.max(np.abs(end - np.array(found["q"]))))
