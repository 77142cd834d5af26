"""nsdyn: mechanisms whose constraints switch. Any integrator, any impulse law, any mechanism.

Importing nsdyn switches JAX to 64-bit floats: constraints, impulses and event times need them. It also asks the compiler, where
XLA_FLAGS does not say otherwise, to turn small loops into one function each instead of a schedule of small kernels: a time step
of a few bodies then runs three to four times as fast. Import nsdyn before the first computation with JAX for this to take effect.
"""

import os
from pathlib import Path

import jax

jax.config.update("jax_enable_x64", True)
if "xla_backend_extra_options" not in (_flags := os.environ.get("XLA_FLAGS", "")):
    _small = "--xla_backend_extra_options=xla_cpu_small_while_loop_byte_threshold=100000"
    os.environ["XLA_FLAGS"] = f"{_flags} {_small}".strip()

_here = Path(__file__).resolve().parent
if (_here.parent / "pyproject.toml").is_file() and (_here.parent / "integrators").is_dir():
    __path__.append(str(_here.parent))  # a source tree: nsdyn.integrators and its siblings are folders beside this one

from nsdyn.blocks import lock  # noqa: E402
from nsdyn.constraint import Fixed, Nonholonomic  # noqa: E402
from nsdyn.contact import Contact  # noqa: E402
from nsdyn.errors import (  # noqa: E402
    FileError,
    NsdynError,
    ProblemError,
    RedundancyWarning,
    SimulationError,
    SingularTransitionWarning,
)
from nsdyn.problem import Problem  # noqa: E402
from nsdyn.rollout import rollout  # noqa: E402
from nsdyn.scheduled import Scheduled  # noqa: E402
from nsdyn.simulate import simulate  # noqa: E402
from nsdyn.status import Status  # noqa: E402
from nsdyn.storage import load  # noqa: E402
from nsdyn.sweep import sweep  # noqa: E402
from nsdyn.switching import Switching  # noqa: E402
from nsdyn.system import System  # noqa: E402
from nsdyn.trajectory import Trajectory  # noqa: E402
from nsdyn.transitions import Transitions  # noqa: E402

__version__ = "0.1.0"

__all__ = [
    "Contact",
    "FileError",
    "Fixed",
    "Nonholonomic",
    "NsdynError",
    "Problem",
    "ProblemError",
    "RedundancyWarning",
    "Scheduled",
    "SimulationError",
    "SingularTransitionWarning",
    "Status",
    "Switching",
    "System",
    "Trajectory",
    "TransitionReport",
    "Transitions",
    "load",
    "lock",
    "rollout",
    "simulate",
    "sweep",
    "transition_report",
]


def __getattr__(name: str):
    """What needs scipy is imported when it is asked for: a run starts without."""
    if name in ("TransitionReport", "transition_report"):
        from nsdyn import transition, transition_event

        return getattr(transition_event if name == "transition_report" else transition, name)
    raise AttributeError(f"module 'nsdyn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
