"""Mechanisms, one per file, each made by the function of the same name.

problems.three_r_pendulum(L=0.5)                the same as
problems.get("three_r_pendulum", L=0.5)
problems.get("mechanisms.py:crank", L=0.3)      your own, in a file
problems.get("cranks:slotted")                  of an installed package, `problems.packages()`
problems.get("arm.urdf", tip="tool")            a robot; the same as problems.from_urdf
problems.get("hand.xml", keyframe="open")       a mechanism; the same as problems.from_mjcf
problems.names(), problems.summary(name)        the list; names("mechanisms.py") of a file
problems.reference("andrews")                   what others found, `REFERENCE` of its file
problems.closed_form("knife_edge")              its exact motion, `CLOSED_FORM` of its file
problems.about("andrews")                       tags and source, `ABOUT` of its file

Nothing is imported before it is used.
"""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from nsdyn import _named
from nsdyn.problem import Problem
from nsdyn.problems import resolver
from nsdyn.reference import About, ClosedForm, Reference

if TYPE_CHECKING:  # at run time they come by __getattr__; a test compares with resolver.MODULES
    from nsdyn.problems.andrews import andrews
    from nsdyn.problems.ball_on_table import ball_on_table
    from nsdyn.problems.belt import belt
    from nsdyn.problems.bouncing_ball import bouncing_ball
    from nsdyn.problems.box_in_corner import box_in_corner
    from nsdyn.problems.bricard import bricard
    from nsdyn.problems.car_axis import car_axis
    from nsdyn.problems.clearance_slider_crank import clearance_slider_crank
    from nsdyn.problems.compass_walker import compass_walker
    from nsdyn.problems.emergency_stop import emergency_stop
    from nsdyn.problems.flyball_governor import flyball_governor
    from nsdyn.problems.four_legged_table import four_legged_table
    from nsdyn.problems.friction_bowl import friction_bowl
    from nsdyn.problems.friction_oscillator import friction_oscillator
    from nsdyn.problems.impacting_stick import impacting_stick
    from nsdyn.problems.knife_edge import knife_edge
    from nsdyn.problems.metamorphic_palm import metamorphic_palm
    from nsdyn.problems.mjcf import from_mjcf
    from nsdyn.problems.n_four_bar import n_four_bar
    from nsdyn.problems.newtons_cradle import newtons_cradle
    from nsdyn.problems.overbraiding import overbraiding
    from nsdyn.problems.painleve_rod import painleve_rod
    from nsdyn.problems.pantograph import pantograph
    from nsdyn.problems.parallelogram import parallelogram
    from nsdyn.problems.pendulum import pendulum
    from nsdyn.problems.point_on_track import point_on_track
    from nsdyn.problems.rimless_wheel import rimless_wheel
    from nsdyn.problems.rocking_block import rocking_block
    from nsdyn.problems.rotating_ball import rotating_ball
    from nsdyn.problems.rx130l import rx130l
    from nsdyn.problems.segmented_track import segmented_track
    from nsdyn.problems.serial_chain import serial_chain
    from nsdyn.problems.simple_pendulum import simple_pendulum
    from nsdyn.problems.simplest_walker import simplest_walker
    from nsdyn.problems.slider_crank import slider_crank
    from nsdyn.problems.sphere_pile import sphere_pile
    from nsdyn.problems.three_r_pendulum import three_r_pendulum
    from nsdyn.problems.tippe_top import tippe_top
    from nsdyn.problems.two_link_impact import two_link_impact
    from nsdyn.problems.urdf import from_urdf
    from nsdyn.problems.wheel_over_pothole import wheel_over_pothole
    from nsdyn.problems.woodpecker import woodpecker

__all__ = [
    "about",
    "andrews",
    "ball_on_table",
    "belt",
    "bouncing_ball",
    "box_in_corner",
    "bricard",
    "car_axis",
    "clearance_slider_crank",
    "closed_form",
    "compass_walker",
    "emergency_stop",
    "flyball_governor",
    "four_legged_table",
    "friction_bowl",
    "friction_oscillator",
    "from_mjcf",
    "from_urdf",
    "function",
    "get",
    "impacting_stick",
    "knife_edge",
    "metamorphic_palm",
    "n_four_bar",
    "names",
    "newtons_cradle",
    "overbraiding",
    "packages",
    "painleve_rod",
    "pantograph",
    "parallelogram",
    "pendulum",
    "point_on_track",
    "reference",
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
    "summary",
    "three_r_pendulum",
    "tippe_top",
    "two_link_impact",
    "wheel_over_pothole",
    "woodpecker",
]


def get(name: str, /, **settings: Any) -> Problem:
    """The problem `name` with these settings: "name", "package:name", "file.py:name" (a file with
    one problem needs no name), "robot.urdf" or "model.xml"."""
    return resolver.made(name, settings)


def names(source: str | None = None) -> list[str]:
    """All problems of nsdyn, sorted, or those of a file or a package."""
    return resolver.names(source)


def packages() -> list[str]:
    """The installed packages that bring problems."""
    return sorted(_named.installed("problems"))


def function(name: str) -> Callable | Problem:
    """The function that makes the problem `name`, or the Problem itself if a file has it ready."""
    return resolver.function(name)


def summary(name: str) -> str:
    """What the problem `name` is, in a sentence or two."""
    return resolver.summary(name)


def reference(name: str) -> Reference | None:
    """What is known of the end of the problem `name` with its own parameters; None: nothing."""
    return resolver.reference(name)


def closed_form(name: str) -> ClosedForm | None:
    """The motion of the problem `name` in closed form; None: it is not known."""
    return resolver.closed_form(name)


def about(name: str) -> About:
    """Tags and source of the problem `name`."""
    return resolver.about(name)


def __getattr__(name: str) -> Any:
    if name not in resolver.MODULES:
        known = ", ".join(names())
        raise AttributeError(f"nsdyn.problems has no attribute {name!r}; its problems are {known}")
    return resolver.built_in(name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Problems(ModuleType):
    """Importing a module makes it an attribute of its package. Here the function of the same name
    takes its place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in resolver.MODULES and isinstance(value, ModuleType):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Problems
