"""A machine on which nsdyn has not run before, with and without a compiler: what a run leaves
there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import nsdyn
from nsdyn import problems
from nsdyn.integrators import RK4, EventDriven

found = nsdyn.simulate(problems.simple_pendulum(), EventDriven(RK4()), step=1e-2, t_end=0.1)
print(found.backend, float(found.q[-1, 0]))
"""
FOLDERS = ("home", "temporary", "here")


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("machine")
    for name in FOLDERS:
        (folder / name).mkdir()
    return folder


def run(machine: Path, cache: str, **settings: str) -> tuple[str, float]:
    """The backend and the last position of a run in a new process, which leaves nothing but in the
    cache, and there finished programs only."""
    own = ("NSDYN_BACKEND", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "CXX")
    free = lambda name: name not in own and not name.startswith("JAX_")
    kept = {name: value for name, value in os.environ.items() if free(name)}
    places = {
        "HOME": str(machine / "home"),
        "TMPDIR": str(machine / "temporary"),
        "NSDYN_CACHE": str(machine / cache),
    }
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        env={**kept, **places, **settings},
        cwd=machine / "here",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert not set().union(*(files(machine / name) for name in FOLDERS))
    assert not any("new-" in name for name in files(machine / cache))
    backend, position = done.stdout.split()
    return backend, float(position)


@pytest.fixture(scope="module")
def with_compiler(machine) -> tuple[str, float]:
    return run(machine, "cache")


def test_a_run_with_a_compiler_leaves_programs_in_the_cache_only(machine, with_compiler):
    assert with_compiler[0] == "native"
    assert any(name.endswith(".so") for name in files(machine / "cache"))


@pytest.mark.slow
@pytest.mark.parametrize("cache", ["cache", "another"])
def test_a_run_without_a_compiler(machine, with_compiler, cache):
    """With programs that were kept while there was one, and without."""
    before = files(machine / "cache" / "native")
    backend, position = run(machine, cache, PATH="")
    assert backend == "xla" and position == pytest.approx(with_compiler[1], rel=1e-13)
    assert files(machine / "cache" / "native") == before and before
    assert files(machine / cache / "jax")
