"""One problem with locking joints under both laws, momentum-consistent and not, archived for
drawing."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import nsdyn
from nsdyn import integrators, laws
from nsdyn.studies.lib import archive

CONSISTENT, INCONSISTENT = "consistent", "inconsistent"
LAWS = {CONSISTENT: laws.MuellerTransition(), INCONSISTENT: laws.ZeroVelocity()}


def data(folder: str | Path) -> Path:
    return Path(folder) / "data"


def compute(
    folder: str | Path,
    problem: nsdyn.Problem,
    step: float,
    interval: float,
    variables: Callable,
    force: bool,
) -> list[Path]:
    """Archive variables(problem, trajectory) of both runs, with rows every `interval` seconds. Data
    with the same settings and code are kept unless `force` is given."""
    integrator = integrators.EventDriven(integrators.RK4())
    files = []
    for name, law in LAWS.items():
        settings = archive.numbers_of(problem) | {
            "integrator": "EventDriven(RK4())",
            "law": type(law).__name__,
            "step": step,
        }
        every = max(1, round(interval / step))
        make = partial(_run, problem, integrator, law, step, every, variables)
        files.append(archive.update(data(folder), name, settings, make, force=force))
    return files


def _run(
    problem: nsdyn.Problem,
    integrator: Any,
    law: laws.AbstractLaw,
    step: float,
    every: int,
    variables: Callable,
) -> dict[str, tuple]:
    run = nsdyn.simulate(problem, integrator, step=step, law=law, save_every=every)
    return variables(problem, run)
