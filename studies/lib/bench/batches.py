"""Many trajectories: `sweep` on one core and on two, over scalar C for each step of each trajectory;
a robot on two cores; larger sweeps against XLA, compilation included."""

import tempfile
import time
from collections.abc import Callable
from functools import partial

import numpy as np

import nsdyn
from nsdyn import problems
from nsdyn.studies import walking
from nsdyn.studies.lib.bench.measure import Line, cores, fastest, line, output
from nsdyn.studies.lib.bench.runs import RK4
from nsdyn.studies.lib.bench.yardstick import Ratio

BATCH, STEP = 1000, 1e-3
TARGETS = {1: 0.6, 2: 0.3}  # by the number of cores
ROBOTS = 1000
BOTH_CORES = 1.7  # at least how many times faster than on one
BASIN = 200
STOPS = 1000
WHEN = ("with compilation", "again")
SPREAD = 0.2  # of the initial rates of the stops, relative
LARGE = {  # function below, title, at least how many times faster than under XLA: at once, again
    "basin_seconds": (f"basin of attraction of compass_walker, {BASIN} x {BASIN}", 4.0, None),
    "stops_seconds": (f"{STOPS} emergency stops", None, 5.0),
}


def batch(ratio: Ratio, repeats: int) -> dict:
    """1000 pendulums, all locks included."""
    problem = problems.three_r_pendulum()
    steps = round(problem.t_end / STEP)
    q0 = np.asarray(problem.q0)[None] + np.zeros((BATCH, 1))
    q0[:, 0] += 1e-3 * np.arange(BATCH) / BATCH  # as in the C program
    run = partial(nsdyn.sweep, problem, RK4, step=STEP, q0=q0, save_every=steps)
    backend = run().backend  # compiles
    lines: list[Line] = []
    for count, target in TARGETS.items():
        with cores(count) as possible:
            if not possible:
                continue
            us = 1e6 * fastest(run, repeats, count == 1) / (steps * BATCH)
        title = f"three_r_pendulum, {BATCH} trajectories on {count} core{'s' * (count > 1)}"
        lines.append(line(f"{title}: step [us]", us))
        lines.append(line(f"{title}: step over scalar C", ratio.to_c(us), target))
    return {"batch": {"lines": lines, "backend": backend, "step": STEP}}


def robot(repeats: int) -> dict:
    """Robots with six joints on one core and on two."""
    problem = problems.rx130l()
    q0 = np.asarray(problem.q0) + np.linspace(0.0, 1e-2, ROBOTS)[:, None]
    steps = round(problem.t_end / STEP)
    run = partial(nsdyn.sweep, problem, RK4, step=STEP, q0=q0, save_every=steps)
    backend = run().backend  # compiles
    seconds = {}
    for count in TARGETS:
        with cores(count) as possible:
            seconds[count] = fastest(run, 4 * repeats, False) if possible else None
    one, two = seconds.values()
    gain = None if one is None or two is None else one / two
    title = f"rx130l, {ROBOTS} trajectories: times faster on 2 cores"
    return {"robot": {"lines": [line(title, gain, at_least=BOTH_CORES)], "backend": backend}}


def large() -> dict:
    """Sweeps in new processes with empty caches, with the backend that is chosen by itself and under
    XLA: at once, which includes the compilation, and again. The two backends are the same where the
    native one refuses."""
    lines: list[Line] = []
    for function, (title, *targets) in LARGE.items():
        program = f"from nsdyn.studies.lib.bench import batches\nprint(*batches.{function}())"
        seconds = {}
        for backend in ("auto", "xla"):
            with tempfile.TemporaryDirectory(prefix="nsdyn-cache-") as cache:
                printed = output(program, cache, NSDYN_BACKEND=backend).splitlines()[-1]
                seconds[backend] = [float(x) for x in printed.split()]
        pairs = zip(WHEN, targets, seconds["auto"], seconds["xla"], strict=True)
        for when, target, own, xla in pairs:
            lines.append(line(f"{title}, {when} [s]", own))
            lines.append(line(f"{title}, {when} under XLA [s]", xla))
            head = f"{title}, {when}: times faster than XLA"
            lines.append(line(head, xla / own, at_least=target))
    return {"large": {"lines": lines}}


def _twice(run: Callable[[], float]) -> tuple[float, float]:
    return run(), run()


def basin_seconds() -> tuple[float, float]:
    """The gait itself does not matter for the time of its basin."""
    gait = np.asarray(walking.GUESS)
    problem = problems.compass_walker()
    return _twice(lambda: float(walking.basin(problem, gait, BASIN)["seconds"][1]))


def stops_seconds() -> tuple[float, float]:
    """Stops from random rates."""
    problem = problems.emergency_stop()
    random = np.random.default_rng(0).uniform(-SPREAD, SPREAD, (STOPS, len(problem.v0)))
    v0 = np.asarray(problem.v0) * (1 + random)
    steps = round(problem.t_end / STEP)

    def seconds() -> float:
        began = time.perf_counter()
        found = nsdyn.sweep(problem, RK4, step=STEP, v0=v0, save_every=steps)
        if not found.ok.all():
            raise RuntimeError(f"emergency_stop: {np.sum(~found.ok)} of {STOPS} stops ended early")
        return time.perf_counter() - began

    return _twice(seconds)
