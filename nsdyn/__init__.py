"""nsdyn: mechanisms whose constraints switch. Any integrator, any impulse law, any mechanism.

Importing nsdyn switches JAX to 64-bit floats: constraints, impulses and event times need them. It
also asks the compiler for fast small loops, see `tune_xla`.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import jax

from nsdyn._compiler import tune_xla
from nsdyn._source_tree import find_folders_beside
from nsdyn._user_file import find_user_folders

jax.config.update("jax_enable_x64", True)
tune_xla()
find_folders_beside(Path(__file__).resolve().parent)
find_user_folders()

from nsdyn._version import __version__  # noqa: E402
from nsdyn.analysis.accumulated_impacts import accumulation  # noqa: E402
from nsdyn.analysis.contact_ledger import Ledger, ledger  # noqa: E402
from nsdyn.constraints.base import AbstractConstraint  # noqa: E402
from nsdyn.constraints.blended import Blended  # noqa: E402
from nsdyn.constraints.contact import Contact  # noqa: E402
from nsdyn.constraints.contacts import Contacts, SpeedDependent  # noqa: E402
from nsdyn.constraints.fixed import Fixed, Nonholonomic  # noqa: E402
from nsdyn.constraints.friction import Friction  # noqa: E402
from nsdyn.constraints.mode_rows import lock  # noqa: E402
from nsdyn.constraints.scheduled import Scheduled  # noqa: E402
from nsdyn.constraints.switching import Switching  # noqa: E402
from nsdyn.constraints.transitions import Transitions  # noqa: E402
from nsdyn.driver.many_runs import sweep  # noqa: E402
from nsdyn.driver.pure_run import rollout  # noqa: E402
from nsdyn.driver.single_run import simulate  # noqa: E402
from nsdyn.driver.step_doubling import ErrorEstimate, error_estimate  # noqa: E402
from nsdyn.errors import (  # noqa: E402
    CoarseStepWarning,
    FileError,
    FullTableWarning,
    LeftOutWarning,
    LostRunsWarning,
    NsdynError,
    PerformanceWarning,
    ProblemError,
    RedundancyWarning,
    SimulationError,
    SingularTransitionWarning,
)
from nsdyn.laws.base import AbstractLaw  # noqa: E402
from nsdyn.mechanics.formulations import lagrange  # noqa: E402
from nsdyn.mechanics.model import Model, Point  # noqa: E402
from nsdyn.mechanics.system import System  # noqa: E402
from nsdyn.numerics.newton import Newton  # noqa: E402
from nsdyn.problem import Problem  # noqa: E402
from nsdyn.reference import About, Agreement, ClosedForm, Reference  # noqa: E402
from nsdyn.results.events import Events  # noqa: E402
from nsdyn.results.netcdf import load  # noqa: E402
from nsdyn.results.solution import Solution  # noqa: E402
from nsdyn.status import Status  # noqa: E402
from nsdyn.stepping.integrator import (  # noqa: E402
    AbstractIntegrator,
    AbstractMemory,
    AbstractSmoothMethod,
    Memory,
)
from nsdyn.stepping.log import Event  # noqa: E402
from nsdyn.tolerances import Tolerances  # noqa: E402

Trajectory = Solution  # its name before it also held batches

__all__ = [
    "About",
    "AbstractConstraint",
    "AbstractIntegrator",
    "AbstractLaw",
    "AbstractMemory",
    "AbstractSmoothMethod",
    "Agreement",
    "Blended",
    "ClosedForm",
    "CoarseStepWarning",
    "Contact",
    "Contacts",
    "ErrorEstimate",
    "Event",
    "Events",
    "FileError",
    "Fixed",
    "Friction",
    "FullTableWarning",
    "Ledger",
    "LeftOutWarning",
    "LostRunsWarning",
    "Memory",
    "Model",
    "Newton",
    "Nonholonomic",
    "NsdynError",
    "PerformanceWarning",
    "Point",
    "Problem",
    "ProblemError",
    "RedundancyWarning",
    "Reference",
    "Scheduled",
    "SimulationError",
    "SingularTransitionWarning",
    "Solution",
    "SpeedDependent",
    "Status",
    "Switching",
    "System",
    "Tolerances",
    "Trajectory",
    "TransitionReport",
    "Transitions",
    "__version__",
    "accumulation",
    "error_estimate",
    "lagrange",
    "ledger",
    "load",
    "lock",
    "rollout",
    "simulate",
    "sweep",
    "transition_report",
    "tune_xla",
]


_PACKAGES = ("integrators", "laws", "problems", "samples", "studies", "testing")


def __getattr__(name: str) -> Any:
    """Imported on first use: packages, `samples`, and names that need scipy, so that a run starts
    without it."""
    if name in _PACKAGES:
        return importlib.import_module(f"nsdyn.{name}")
    if name in ("TransitionReport", "transition_report"):
        from nsdyn.analysis import event_transition, transition

        return getattr(event_transition if name == "transition_report" else transition, name)
    message = f"module 'nsdyn' has no attribute {name!r}"
    raise AttributeError(message, name=name, obj=sys.modules[__name__])  # Python adds the nearest


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
