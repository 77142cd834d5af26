"""From the start of Python to a result: CPU seconds of a new process and of the compilers that it
calls, over those of importing JAX and compiling one sine. And the memory of a long run."""

import sys
import tempfile

from nsdyn.studies.lib.bench.measure import Line, cpu_seconds, line, output

SINE = """
import jax
jax.jit(jax.numpy.sin)(1.0).block_until_ready()
"""
RUN = """
import nsdyn
from nsdyn import integrators, problems
problem = problems.get({name!r})
for step in {steps}:
    nsdyn.simulate(problem, integrators.EventDriven(integrators.RK4()), step=step)
"""
LONG_RUN = """
import nsdyn
from nsdyn import integrators, problems
method = integrators.EventDriven(integrators.RK4())
problem = problems.three_r_pendulum(t_end={t_end})
nsdyn.simulate(problem, method, step={step}, save_every={save_every})
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
TARGETS = {
    "three_r_pendulum": 4.0,
    "wheel_over_pothole": 6.0,
    "metamorphic_palm": 8.0,
    "emergency_stop": 10.0,
}
WARM, EIGHT = 3.0, 1.3
STEP = 1e-3
LONG_STEPS, LONG_STEP, LONG_ROWS = 10_000_000, 1e-4, 1000


def start(repeats: int) -> dict:
    """Cold and warm starts, and eight step sizes against one."""
    sine = min(_cold(SINE) for _ in range(repeats + 1))
    lines: list[Line] = [line("import jax, one compiled sine [CPU s]", sine)]
    first = 0.0
    for name, target in TARGETS.items():
        cold, warm = _cold_and_warm(RUN.format(name=name, steps=[STEP]), repeats)
        first = first or cold
        lines += [
            line(f"{name}, empty cache [CPU s]", cold),
            line(f"{name}, empty cache: over the sine", cold / sine, target),
            line(f"{name}, filled cache: over the sine", warm / sine, WARM),
        ]
    steps = [STEP * (1 + k / 8) for k in range(8)]
    eight = min(_cold(RUN.format(name="three_r_pendulum", steps=steps)) for _ in range(repeats))
    lines.append(line("three_r_pendulum, eight step sizes over one", eight / first, EIGHT))
    return {"start": {"lines": lines, "step": STEP}}


def memory() -> dict:
    """The largest memory of a long run with few samples."""
    if sys.platform == "win32":
        return {"memory": {"lines": [], "note": "peak memory is not measured on Windows"}}
    program = LONG_RUN.format(t_end=LONG_STEPS * LONG_STEP, step=LONG_STEP, save_every=LONG_ROWS)
    with tempfile.TemporaryDirectory(prefix="nsdyn-cache-") as cache:
        peak = float(output(program + PEAK, cache).split()[-1]) / 1e9
    title = f"three_r_pendulum, {LONG_STEPS:.0e} steps, a sample every {LONG_ROWS}: memory [GB]"
    return {"memory": {"lines": [line(title, peak, 1.0)]}}


def _cold(program: str) -> float:
    with tempfile.TemporaryDirectory(prefix="nsdyn-cache-") as cache:
        return cpu_seconds(program, cache)


def _cold_and_warm(program: str, repeats: int) -> tuple[float, float]:
    cold, warm = [], []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="nsdyn-cache-") as cache:
            cold.append(cpu_seconds(program, cache))
            warm.append(cpu_seconds(program, cache))
    return min(cold), min(warm)
