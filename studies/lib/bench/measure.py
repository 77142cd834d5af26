"""What the measurements share: lines of the table, shortest times, CPU time of other processes,
cores, the machine."""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nsdyn
from nsdyn.errors import NsdynError

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

Line = dict[str, Any]
ENOUGH = 0.1  # CPU seconds over which a mean is taken
# Not for new interpreters, which keep compiled programs elsewhere, and bytecode as usual: without
# it the import of nsdyn takes twice as long.
LEFT_OUT = ("JAX_COMPILATION_CACHE_DIR", "PYTHONDONTWRITEBYTECODE")


def line(
    quantity: str,
    value: float | None,
    at_most: float | None = None,
    at_least: float | None = None,
) -> Line:
    """A measured number, with its target if it has one; None if it could not be measured."""
    found: Line = {"quantity": quantity, "value": None if value is None else float(value)}
    if at_most is not None:
        met = value is not None and value <= at_most
        found |= {"target": f"<= {at_most:g}", "met": bool(met)}
    if at_least is not None:
        met = value is not None and value >= at_least
        found |= {"target": f">= {at_least:g}", "met": bool(met)}
    return found


def fastest(run: Callable[[], Any], repeats: int, on_one_core: bool = True) -> float:
    """The shortest time of a run, in seconds.

    By the clock, but on a busy machine a long run is interrupted: so for what runs on one core the
    mean CPU time counts too, if it is less. It is a mean because the time of a thread that has just
    finished is booked late: for single runs the smallest CPU time can be far too small.
    """
    best = float("inf")
    for _ in range(repeats):
        count, began = 0, time.process_time()
        while not count or time.process_time() - began < ENOUGH:
            clock = time.perf_counter()
            run()
            best = min(best, time.perf_counter() - clock)
            count += 1
        if on_one_core:
            best = min(best, (time.process_time() - began) / count)
    return best


def cpu_seconds(program: str, cache: str) -> float:
    """The CPU time of a program in a new interpreter, with all processes that it starts, such as
    compilers."""
    before = _of_children()
    output(program, cache)
    return _of_children() - before


def output(program: str, cache: str, **environment: str) -> str:
    """What a program prints in a new interpreter that keeps compiled programs in the folder
    `cache`."""
    root = str(Path(nsdyn.__file__).resolve().parents[1])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    inherited = {k: v for k, v in os.environ.items() if k not in LEFT_OUT}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=inherited | {"PYTHONPATH": path, "NSDYN_CACHE": cache} | environment,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise NsdynError(f"a measurement failed in a new process: {done.stderr.strip()[-1000:]}")
    return done.stdout


def _of_children() -> float:
    if resource is None:  # no account of processes on Windows
        return time.perf_counter()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@contextmanager
def cores(count: int) -> Iterator[bool]:
    """Run on at most so many cores; False where the system cannot, or has fewer."""
    if not hasattr(os, "sched_getaffinity"):
        yield False
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:count])
    try:
        yield len(before) >= count
    finally:
        os.sched_setaffinity(0, before)


def machine() -> dict[str, Any]:
    """Processor, cores, how busy they are, compiler; no names."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        model = next(
            line.partition(":")[2].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        pass
    load = round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
    return {"processor": model, "cores": os.cpu_count(), "load": load, "compiler": _compiler()}


def _compiler() -> str | None:
    try:
        told = subprocess.run(["cc", "--version"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return None
    return told.stdout.partition("\n")[0].strip() or None
