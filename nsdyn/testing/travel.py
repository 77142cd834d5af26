"""Problems in a fresh process: they must be pickled, found again, and give the same bits.

There, as here, M, f, the rows and the guards are evaluated at the start.
"""

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from nsdyn.mechanics.model import Model, Point
from nsdyn.problem import Problem
from nsdyn.testing.findings import Findings

# What multiprocessing does for a process it starts: the same paths, the same settings.
CHILD = """
import pickle, sys
with open(sys.argv[1], "rb") as file:
    sys.path[:] = pickle.load(file)
    import nsdyn.testing.travel as travel
    problems = pickle.load(file)
with open(sys.argv[2], "wb") as file:
    pickle.dump([travel.evaluated(problem) for problem in problems], file)
"""


def check_travels(*problems: Problem) -> Findings:
    """Send problems to one fresh process and compare what they evaluate to."""
    findings = Findings(", ".join(problem.name for problem in problems))
    for problem in problems:
        try:
            pickle.dumps(problem)
        except Exception as error:
            found = f"{type(error).__name__}: {error}; define its functions at module level"
            findings.require(f"pickle of {problem.name}", False, found, "one")
    there = _evaluated_elsewhere(findings, list(problems))
    for problem, far in zip(problems, there, strict=True):
        for name, value in evaluated(problem).items():
            other = far[name]
            same = value.dtype == other.dtype and value.tobytes() == other.tobytes()
            text = "the same bits" if same else f"{other.tolist()} instead of {value.tolist()}"
            findings.require(f"{problem.name}: {name} in a fresh process", same, text, "the same")
    return findings


def _evaluated_elsewhere(findings: Findings, problems: list[Problem]) -> list[dict]:
    with tempfile.TemporaryDirectory(prefix="nsdyn-") as folder:
        sent, answer = Path(folder) / "sent", Path(folder) / "answer"
        paths = [path or os.getcwd() for path in sys.path]
        sent.write_bytes(pickle.dumps(paths) + pickle.dumps(problems))
        command = [sys.executable, "-c", CHILD, str(sent), str(answer)]
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(paths))
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        last = (done.stderr.strip().splitlines() or ["nothing said"])[-1]
        findings.require("fresh process", done.returncode == 0, last, "an answer")
        return pickle.loads(answer.read_bytes())


def evaluated(problem: Problem) -> dict[str, np.ndarray]:
    """M, f, rows and guards at the start."""
    found = _functions(problem.model(), problem.q0, problem.v0, problem.t0, problem.params)
    return {name: np.asarray(x) for name, x in found.items()}


@eqx.filter_jit
def _functions(model: Model, q: Any, v: Any, t: Any, p: Any) -> dict[str, Any]:
    point: Point = model.start(q, v, jnp.asarray(t, float), p)
    guards = model.guards(point, jnp.zeros(model.m), p)
    force = model.force(point, p)
    return {
        "M": model.system.mass(q, p),
        "f": force,
        "rows": model.rows(point, p),
        "guards": guards,
    }
