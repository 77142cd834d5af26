"""What importing nsdyn does to a process: 64-bit floats, and nothing that stays behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
START = """
import os, warnings
import jax, jax.numpy as jnp
"""
RUN = """
problem = nsdyn.problems.get("three_r_pendulum", t_end=0.01)
"""


def process(code: str, **environment) -> list[str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "NSDYN_TUNE_XLA")}
    command = [sys.executable, "-c", START + code]
    done = subprocess.run(
        command, cwd=ROOT, env=kept | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split("\n")


def test_nothing_stays_in_the_environment():
    code = "import nsdyn, nsdyn.problems\n" + RUN + "print(os.environ.get('XLA_FLAGS'))"
    assert process(code)[0] == "None"
    assert process(code, XLA_FLAGS="--xla_cpu_enable_fast_math=false")[0] == (
        "--xla_cpu_enable_fast_math=false"
    )


def test_importing_starts_no_backend_and_sets_64_bits():
    code = """
import nsdyn
from jax._src import xla_bridge
print(xla_bridge.backends_are_initialized(), jax.config.jax_enable_x64)
"""
    assert process(code)[0] == "False True"


@pytest.mark.parametrize(("switch", "expected"), [("0", "False"), ("1", "True")])
def test_it_can_be_switched_off(switch, expected):
    code = "import nsdyn\nprint('small_while_loop' in os.environ.get('XLA_FLAGS', ''))"
    assert process(code, NSDYN_TUNE_XLA=switch)[0] == expected


def test_too_late_is_said_once():
    code = (
        "jnp.ones(3) + 1\nimport nsdyn, nsdyn.integrators, nsdyn.problems\n"
        + RUN
        + """
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    method = nsdyn.integrators.EventDriven(nsdyn.integrators.RK4())
    for _ in range(2):
        nsdyn.simulate(problem, method, step=0.01)
print([w.category.__name__ for w in seen])
"""
    )
    assert process(code)[0] == "['PerformanceWarning']"
