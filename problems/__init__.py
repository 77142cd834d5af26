"""Mechanisms, one per file, each made by the function of the same name.

problems.three_r_pendulum(L=0.5)                the same as
problems.get("three_r_pendulum", L=0.5)
problems.names(), problems.summary(name)        the list
problems.from_urdf("arm.urdf")                  the same as
problems.get("from_urdf", path="arm.urdf")      your own robot; not listed, as it needs a file
"""

import inspect
import sys
from collections.abc import Callable
from typing import Any

from nsdyn.errors import ProblemError, unknown
from nsdyn.problem import Problem
from nsdyn.problems.bricard import bricard
from nsdyn.problems.compass_walker import compass_walker
from nsdyn.problems.emergency_stop import emergency_stop
from nsdyn.problems.metamorphic_palm import metamorphic_palm
from nsdyn.problems.n_four_bar import n_four_bar
from nsdyn.problems.overbraiding import overbraiding
from nsdyn.problems.pantograph import pantograph
from nsdyn.problems.parallelogram import parallelogram
from nsdyn.problems.pendulum import pendulum
from nsdyn.problems.point_on_track import point_on_track
from nsdyn.problems.rimless_wheel import rimless_wheel
from nsdyn.problems.rx130l import rx130l
from nsdyn.problems.segmented_track import segmented_track
from nsdyn.problems.serial_chain import serial_chain
from nsdyn.problems.simplest_walker import simplest_walker
from nsdyn.problems.three_r_pendulum import three_r_pendulum
from nsdyn.problems.two_link_impact import two_link_impact
from nsdyn.problems.urdf import from_urdf
from nsdyn.problems.wheel_over_pothole import wheel_over_pothole

PROBLEMS: dict[str, Callable] = {
    make.__name__: make
    for make in (
        bricard,
        compass_walker,
        emergency_stop,
        metamorphic_palm,
        n_four_bar,
        overbraiding,
        pantograph,
        parallelogram,
        pendulum,
        point_on_track,
        rimless_wheel,
        rx130l,
        segmented_track,
        serial_chain,
        simplest_walker,
        three_r_pendulum,
        two_link_impact,
        wheel_over_pothole,
    )
}
IMPORTERS: dict[str, Callable] = {"from_urdf": from_urdf}  # make problems from files

__all__ = ["IMPORTERS", "PROBLEMS", "function", "get", "names", "summary", *PROBLEMS, *IMPORTERS]


def __getattr__(name: str) -> Any:
    known = ", ".join(names())
    raise AttributeError(f"nsdyn.problems has no attribute {name!r}; its problems are {known}")


def names() -> list[str]:
    """All problems, sorted."""
    return sorted(PROBLEMS)


def get(name: str, **parameters: Any) -> Problem:
    """The problem `name` with these parameters."""
    make = function(name)
    try:
        inspect.signature(make).bind(**parameters)
    except TypeError as error:
        known = ", ".join(inspect.signature(make).parameters)
        raise ProblemError(f"problem {name}: {error}; its parameters are {known}") from error
    return make(**parameters)


def function(name: str) -> Callable:
    """The function that makes the problem `name`."""
    known = PROBLEMS | IMPORTERS
    if name not in known:
        raise unknown("problem", name, known)
    return known[name]


def summary(name: str) -> str:
    """The first paragraph of the docstring of the problem's file."""
    described = sys.modules[function(name).__module__].__doc__ or ""
    return described.partition("\n\n")[0].replace("\n", " ")
