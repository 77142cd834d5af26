"""From a text to a problem. The text is one of

name                    a problem of nsdyn
file.py:name            a function, or a Problem, in a Python file; :name may be left out if the
                        file has only one
package:name            the same in an installed package, see `nsdyn._named`
robot.urdf              a robot, read by `from_urdf`
model.xml               a mechanism in MuJoCo's format, read by `from_mjcf`
"""

import functools
import importlib
import inspect
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType
from typing import Any

from nsdyn import _named
from nsdyn._user_file import defined_at, faults_in, folder_of
from nsdyn.errors import FileError, ProblemError, unknown
from nsdyn.problem import Problem
from nsdyn.reference import About, ClosedForm, Reference

BUILT_IN = (
    "andrews",
    "ball_on_table",
    "belt",
    "bouncing_ball",
    "box_in_corner",
    "bricard",
    "car_axis",
    "clearance_slider_crank",
    "compass_walker",
    "emergency_stop",
    "flyball_governor",
    "four_legged_table",
    "friction_bowl",
    "friction_oscillator",
    "impacting_stick",
    "knife_edge",
    "metamorphic_palm",
    "n_four_bar",
    "newtons_cradle",
    "overbraiding",
    "painleve_rod",
    "pantograph",
    "parallelogram",
    "pendulum",
    "point_on_track",
    "rimless_wheel",
    "rocking_block",
    "rotating_ball",
    "rx130l",
    "segmented_track",
    "serial_chain",
    "simple_pendulum",
    "simplest_walker",
    "slider_crank",
    "sphere_pile",
    "three_r_pendulum",
    "tippe_top",
    "two_link_impact",
    "wheel_over_pothole",
    "woodpecker",
)
MODULES = {name: name for name in BUILT_IN} | {
    "from_mjcf": "mjcf",
    "from_urdf": "urdf",
}  # where each function lies
READERS = {".urdf": "from_urdf", ".xml": "from_mjcf", ".mjcf": "from_mjcf"}
REFUSED = {
    ".sdf": "SDF files cannot be read; write the robot as URDF or MJCF",
    ".xacro": "expand it first: xacro robot.urdf.xacro > robot.urdf",
}


def made(text: str, settings: dict[str, Any]) -> Problem:
    """The problem that a text names, with these settings."""
    make = function(text)
    if isinstance(make, Problem):
        if settings:
            raise ProblemError(
                f"problem {text}: expected no settings, as it is a Problem and not a function "
                f"that makes one, found {', '.join(settings)}"
            )
        return make
    place = defined_at(make)
    title = f"problem {text}" if place is None else f"{place}: {make.__name__}"
    _check_settings(title, make, settings)
    folder = folder_of(make)
    with nullcontext() if folder is None else faults_in(folder):
        problem = make(**settings)
    if not isinstance(problem, Problem):
        raise ProblemError(
            f"{title}: expected a function that returns nsdyn.Problem(...), found that it "
            f"returned {type(problem).__name__}"
        )
    return problem


def _check_settings(title: str, make: Callable, settings: dict[str, Any]) -> None:
    signature = inspect.signature(make)
    try:
        signature.bind(**settings)
    except TypeError as error:
        known = ", ".join(signature.parameters) or "none"
        raise ProblemError(f"{title}: {error}; its parameters are {known}") from error


def function(text: str) -> Callable | Problem:
    """What makes the problem that a text names: a function, or a Problem that is there already."""
    suffix = Path(text).suffix.lower()
    if suffix in REFUSED:
        raise FileError(f"{text}: {REFUSED[suffix]}")
    if suffix in READERS:
        return functools.partial(built_in(READERS[suffix]), text)
    if ":" in text or suffix == ".py":
        found = _named.find("problems", text, _makes_problem)
        if callable(found) or isinstance(found, Problem):
            return found
        raise ProblemError(
            f"{text}: expected a function that returns nsdyn.Problem(...), found "
            f"{type(found).__name__}"
        )
    if text not in MODULES:
        raise _unknown(text)
    return built_in(text)


def _unknown(text: str) -> ProblemError:
    if text in _named.installed("problems"):
        return ProblemError(f"problem {text!r} is a package; {', '.join(names(text))} are in it")
    if Path(f"{text}.py").is_file():
        return ProblemError(f"problem {text!r} is not known; for the file write {text}.py")
    return unknown("problem", text, MODULES)


def built_in(name: str) -> Callable:
    """The function of a problem of nsdyn; its module is imported now."""
    return getattr(importlib.import_module(f"nsdyn.problems.{MODULES[name]}"), name)


def names(source: str | None = None) -> list[str]:
    """The problems of nsdyn, or those of a file or a package, as "file.py:name"."""
    if source is None:
        return sorted(BUILT_IN)
    shown = _named.public(_named.module_of("problems", source))
    return [f"{source}:{name}" for name, thing in shown.items() if _makes_problem(thing)]


def _makes_problem(thing: Any) -> bool:
    """Whether something counts as a problem: a Problem, a function that is annotated to return one
    or, without annotation, mentions it. It is not called: nobody knows what else it does."""
    if not inspect.isfunction(thing):
        return isinstance(thing, Problem)
    returns = inspect.get_annotations(thing).get("return")
    if returns is None:
        return "Problem" in thing.__code__.co_names
    return returns is Problem or str(returns).split(".")[-1] == "Problem"


def reference(text: str) -> Reference | None:
    """`REFERENCE` in the file of a problem, if it has one."""
    return getattr(_module(text), "REFERENCE", None)


def closed_form(text: str) -> ClosedForm | None:
    """`CLOSED_FORM` in the file of a problem, if it has one."""
    found = getattr(_module(text), "CLOSED_FORM", None)
    if found is None or isinstance(found, ClosedForm):
        return found
    raise ProblemError(
        f"{text}: CLOSED_FORM: expected nsdyn.ClosedForm(motion, source), found {found!r}"
    )


def about(text: str) -> About:
    """`ABOUT` in the file of a problem."""
    return getattr(_module(text), "ABOUT", About())


def _module(text: str) -> ModuleType | None:
    return sys.modules.get(getattr(function(text), "__module__", ""))


def summary(text: str) -> str:
    """What a problem is, in a sentence or two: the first paragraph of its docstring, or of its
    file."""
    make = function(text)
    if isinstance(make, Problem):
        return make.name
    described = make.__doc__ or ""
    if text in MODULES or not described:
        described = sys.modules[make.__module__].__doc__ or ""
    return " ".join(inspect.cleandoc(described).partition("\n\n")[0].split())
