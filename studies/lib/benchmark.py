"""The speed of nsdyn on this machine: the 3R pendulum against the same method in C, implicit steps,
long chains.

nsdyn and C run alternately, and the shortest of several times counts; compilation is timed
separately. The C program is compiled with the `cc` of the machine; it runs on one core and keeps
only end states. nsdyn keeps samples as stated in the results and may use all cores for a batch; its
results are compared with those of C.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

import nsdyn
from nsdyn import integrators, laws, problems
from nsdyn.results.solution import Solution
from nsdyn.stepping.integrator import AbstractIntegrator
from nsdyn.studies import walking
from nsdyn.studies.lib import chain_cost

FLAGS = ("-std=c99", "-O3")
T_END = 2.0
SINGLE_STEP, BATCH_STEP = 1e-4, 1e-3
BATCH, BATCH_ROWS = 1000, 20
MAX_EVENTS = 16
WHEEL_STEP = 1e-3
LONG_STEPS, LONG_ROWS = 10_000_000, 1000
BASIN = 200

START = """
import nsdyn
from nsdyn import integrators, laws, problems
trajectory = nsdyn.simulate(
    problems.three_r_pendulum(), integrators.EventDriven(integrators.RK4()), law=laws.MuellerTransition(), {arguments})
assert trajectory.t[-1] > 0
"""
# Linux counts the parent's memory into ru_maxrss of a new program; VmHWM is its own.
PEAK = """
import pathlib, resource, sys
status = pathlib.Path("/proc/self/status")
lines = status.read_text().splitlines() if status.exists() else []
own = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")]
unit = 1 if sys.platform == "darwin" else 1024
print(own[0] if own else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)
"""


def stages(quick: bool = False) -> dict[str, Callable[[], dict[str, Any]]]:
    """The measurements by name; each returns its part of the results."""
    repeats = 2 if quick else 5
    yardstick = Yardstick()
    found: dict[str, Callable[[], dict[str, Any]]] = {
        "one trajectory": partial(_single, yardstick, repeats),
        "a batch": partial(_batch, yardstick, repeats, "batch"),
        "start": partial(_start, 1 if quick else 2),
    }
    found["an implicit step"] = partial(_implicit, repeats)
    found["chains"] = partial(_chains, 0.1 if quick else chain_cost.SECONDS)
    if not quick:
        found |= {
            "a sweep": partial(_batch, yardstick, repeats, "sweep"),
            "memory": _memory,
            "a basin": _basin,
        }
    return found


# The C program


class Yardstick:
    """The C program, compiled on first use; `missing` says why there is none."""

    def __init__(self) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="nsdyn-bench-")
        self.program: Path | None = None
        self.missing = ""

    def compiled(self) -> Path | None:
        if self.program is None and not self.missing:
            try:
                self.program = self._compile()
            except (OSError, subprocess.SubprocessError) as error:
                self.missing = f"no comparison with C: {error}"
        return self.program

    def _compile(self) -> Path:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise OSError("this machine has no C compiler (cc)")
        program = Path(self.folder.name) / "three_r_pendulum"
        with as_file(files("nsdyn.studies.lib") / "three_r_pendulum.c") as source:
            command = [compiler, *FLAGS, str(source), "-lm", "-o", str(program)]
            subprocess.run(command, check=True, capture_output=True, timeout=120)
        return program

    def run(self, steps: int, trajectories: int, repeats: int) -> dict[str, Any] | None:
        program = self.compiled()
        if program is None:
            return None
        command = [str(program), str(steps), str(trajectories), str(repeats)]
        return json.loads(
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
        )


# One trajectory and many


@eqx.filter_jit
def _one(problem: nsdyn.Problem, q0: Array, step: float, save_every: int) -> Solution:
    method = integrators.EventDriven(integrators.RK4())
    return nsdyn.rollout(
        problem,
        method,
        q0=q0,
        step=step,
        law=laws.MuellerTransition(),
        save_every=save_every,
        max_events=MAX_EVENTS,
    )


@eqx.filter_jit
def _many(problem: nsdyn.Problem, q0: Array, step: float, save_every: int) -> Solution:
    return jax.vmap(lambda q0: _one(problem, q0, step, save_every))(q0)


def _compiled(program: Any, *arguments: Any) -> Callable[[], np.ndarray]:
    run = program.lower(*arguments).compile()
    return lambda: np.asarray(run(*arguments).q)


def _swept(
    problem: nsdyn.Problem, q0: np.ndarray, step: float, save_every: int
) -> Callable[[], np.ndarray]:
    method = integrators.EventDriven(integrators.RK4())
    options: dict[str, Any] = {
        "law": laws.MuellerTransition(),
        "save_every": save_every,
        "max_events": MAX_EVENTS,
    }
    run = lambda: nsdyn.sweep(problem, method, step=step, q0=q0, **options).q
    run()  # compiles
    return run


def _compared(
    prepare: Callable[[], Callable], yardstick: Yardstick, steps: int, count: int, repeats: int
) -> dict:
    """Prepare (compile), then time nsdyn and C alternately. A run returns q at the samples."""
    began = time.perf_counter()
    run = prepare()
    compile_time = time.perf_counter() - began
    best, c_best = np.inf, np.inf
    rows = np.zeros(0)
    c = None
    for _ in range(repeats):
        began = time.perf_counter()
        rows = run()
        best = min(best, time.perf_counter() - began)
        c = yardstick.run(steps, count, 5 if count == 1 else 1)
        c_best = min(c_best, c["seconds"]) if c else np.inf
    per_step = 1e6 / (steps * count)
    result = {
        "steps": steps,
        "trajectories": count,
        "us_per_step": best * per_step,
        "compile_s": compile_time,
    }
    if not c:
        return result | {"note": yardstick.missing}
    difference = float(np.max(np.abs(rows.reshape(count, -1, 3)[0, -1] - np.array(c["q"]))))
    return result | {
        "c_us_per_step": c_best * per_step,
        "ratio": best / c_best,
        "difference_from_c": difference,
    }


def _single(yardstick: Yardstick, repeats: int) -> dict:
    problem = problems.get("three_r_pendulum", t_end=T_END)
    prepare = partial(_compiled, _one, problem, problem.q0, SINGLE_STEP, 1)
    result = _compared(prepare, yardstick, round(T_END / SINGLE_STEP), 1, repeats)
    return {"single": result | {"step": SINGLE_STEP, "save_every": 1}}


def _batch(yardstick: Yardstick, repeats: int, name: str) -> dict:
    problem = problems.get("three_r_pendulum", t_end=T_END)
    offsets = 1e-3 * np.arange(BATCH) / BATCH  # of q_1, as in the C program
    q0 = np.asarray(problem.q0)[None] + offsets[:, None] * np.array([[1.0, 0.0, 0.0]])
    arguments = (problem, q0, BATCH_STEP, BATCH_ROWS)
    prepare = (
        partial(_compiled, _many, *arguments) if name == "batch" else partial(_swept, *arguments)
    )
    result = _compared(prepare, yardstick, round(T_END / BATCH_STEP), BATCH, repeats)
    return {name: result | {"step": BATCH_STEP, "save_every": BATCH_ROWS}}


@eqx.filter_jit
def _wheel(problem: nsdyn.Problem, scheme: AbstractIntegrator, q0: Array) -> Solution:
    return nsdyn.rollout(
        problem, scheme, step=WHEEL_STEP, q0=q0, save_every=10, max_events=MAX_EVENTS
    )


def _implicit(repeats: int) -> dict:
    """A step of NSGA against a step of event-driven RK4, alternately, for the wheel over the
    pothole."""
    problem = problems.get("wheel_over_pothole")
    schemes = {"nsga": integrators.NSGA(), "rk4": integrators.EventDriven(integrators.RK4())}
    found: dict[str, Any] = {"step": WHEEL_STEP}
    runs = {}
    for name, scheme in schemes.items():
        began = time.perf_counter()
        program: Any = _wheel
        runs[name] = program.lower(problem, scheme, problem.q0).compile()
        found[f"{name}_compile_s"] = time.perf_counter() - began
    steps = round(problem.t_end / WHEEL_STEP)
    best = dict.fromkeys(schemes, np.inf)
    for _ in range(4 * repeats):  # a run takes a millisecond
        for name, scheme in schemes.items():
            began = time.perf_counter()
            out = jax.block_until_ready(runs[name](problem, scheme, problem.q0))
            best[name] = min(best[name], time.perf_counter() - began)
            found[f"{name}_iterations"] = float(out.effort.total) / steps
    found |= {f"{name}_us_per_step": 1e6 * seconds / steps for name, seconds in best.items()}
    return {"wheel": found | {"ratio": best["nsga"] / best["rk4"]}}


def _chains(seconds: float) -> dict:
    """Recursions against the dense mass matrix; see `chain_cost`."""
    return {"chains": chain_cost.measure(seconds=seconds)}


# Whole processes


def _python(program: str, cache: str) -> tuple[float, str]:
    """Run a program in a new interpreter; its time in seconds and its output."""
    root = str(Path(nsdyn.__file__).resolve().parents[1])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {
        "PYTHONPATH": path,
        "JAX_COMPILATION_CACHE_DIR": cache,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    )
    return time.perf_counter() - began, done.stdout


def _start(repeats: int) -> dict:
    """The time from starting the interpreter to the finished trajectory, with an empty and with a
    filled cache."""
    program = START.format(arguments=f"step={SINGLE_STEP}")
    cold, warm = np.inf, np.inf
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="nsdyn-cache-") as cache:
            cold = min(cold, _python(program, cache)[0])
            warm = min(warm, _python(program, cache)[0])
    return {"start": {"cold_s": cold, "warm_s": warm, "step": SINGLE_STEP}}


def _memory() -> dict:
    if sys.platform == "win32":
        return {"memory": {"note": "peak memory is not measured on Windows"}}
    arguments = f"step={SINGLE_STEP}, t_end={LONG_STEPS * SINGLE_STEP}, save_every={LONG_ROWS}"
    with tempfile.TemporaryDirectory(prefix="nsdyn-cache-") as cache:
        seconds, printed = _python(START.format(arguments=arguments) + PEAK, cache)
    peak = float(printed.split()[-1]) / 1e9
    return {
        "memory": {
            "steps": LONG_STEPS,
            "save_every": LONG_ROWS,
            "peak_gb": peak,
            "seconds": seconds,
        }
    }


def _basin() -> dict:
    """The picture of a walker's basin of attraction; the gait itself does not matter for its
    time."""
    made = walking.basin(problems.get("compass_walker"), np.asarray(walking.GUESS), BASIN)
    return {"basin": {"size": BASIN, "seconds": float(made["seconds"][1])}}


# Showing


def rows(results: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Quantity, measured, target, aim."""
    table = []
    for key, title, target, aim in (
        ("single", "one trajectory", "<= 30", "10"),
        ("batch", f"{BATCH} trajectories in one batch", "<= 8", "2"),
        ("sweep", f"{BATCH} trajectories, nsdyn.sweep on {os.cpu_count()} cores", "", ""),
    ):
        if found := results.get(key):
            head = f"{title}, h = {found['step']:g} s"
            table.append((f"{head}: us per step", f"{found['us_per_step']:.3g}", "", ""))
            if "ratio" in found:
                table.append((f"{head}: C, us per step", f"{found['c_us_per_step']:.3g}", "", ""))
                table.append((f"{head}: ratio to C", f"{found['ratio']:.3g}", target, aim))
            table.append((f"{head}: compilation [s]", f"{found['compile_s']:.3g}", "", ""))
    if found := results.get("wheel"):
        head = f"wheel over pothole, h = {found['step']:g} s"
        for name, title in (("rk4", "event-driven RK4"), ("nsga", "NSGA")):
            table.append(
                (f"{head}: {title}, us per step", f"{found[f'{name}_us_per_step']:.3g}", "", "")
            )
            table.append(
                (f"{head}: {title}, compilation [s]", f"{found[f'{name}_compile_s']:.3g}", "", "")
            )
        table.append(
            (f"{head}: NSGA, Newton iterations per step", f"{found['nsga_iterations']:.3g}", "", "")
        )
        table.append((f"{head}: NSGA, ratio to RK4", f"{found['ratio']:.3g}", "<= 12", ""))
    if found := results.get("chains"):
        table += chain_cost.rows(found)
    if found := results.get("start"):
        table.append(
            (
                "interpreter to finished trajectory, empty cache [s]",
                f"{found['cold_s']:.3g}",
                "<= 8",
                "",
            )
        )
        table.append(
            (
                "interpreter to finished trajectory, filled cache [s]",
                f"{found['warm_s']:.3g}",
                "<= 4",
                "",
            )
        )
    if "peak_gb" in (found := results.get("memory", {})):
        head = f"{found['steps']:.0e} steps, a row every {found['save_every']}"
        table.append((f"{head}: peak memory [GB]", f"{found['peak_gb']:.3g}", "< 1", ""))
        table.append((f"{head}: time [s]", f"{found['seconds']:.3g}", "", ""))
    if found := results.get("basin"):
        head = f"compass walker, basin of attraction, {found['size']} x {found['size']} states, with compilation [s]"
        table.append((head, f"{found['seconds']:.3g}", "<= 120", ""))
    return table


def figures(results: dict[str, Any], folder: str | Path) -> list[Path]:
    """Archive and draw the results that have a figure."""
    if "chains" not in results:
        return []
    chain_cost.store(folder, results["chains"], {"processor": machine()["processor"]})
    return chain_cost.draw(folder)


def notes(results: dict[str, Any]) -> list[str]:
    """Explanations of the numbers."""
    found = list(dict.fromkeys(part["note"] for part in results.values() if "note" in part))
    for name, part in results.items():
        if part.get("difference_from_c", 0.0) > 1e-8:
            found.append(
                f"{name}: the end state differs from that of C by {part['difference_from_c']:.1e}"
            )
    return found


def machine() -> dict[str, Any]:
    """Processor and cores; no names."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        model = next(
            line.partition(":")[2].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        pass
    return {"processor": model, "cores": os.cpu_count(), "flags_of_cc": " ".join(FLAGS)}
