"""The warning for steps that are too long."""

import warnings

import numpy as np
import pytest
from mechanisms import BALL

import nsdyn
from nsdyn import laws
from nsdyn.analysis.coarse import Pieces, change_ratio, trapezoid_ratio
from nsdyn.integrators import NSGA, RK4, EventDriven, MoreauJean
from nsdyn.problems.three_r_pendulum import three_r_pendulum

METHODS = {"RK4": EventDriven(RK4()), "NSGA": NSGA(), "MoreauJean": MoreauJean()}


def spring(q, v, t, p):
    return -p["k"] * q


OSCILLATOR = nsdyn.Problem(
    "oscillator",
    nsdyn.System(mass=BALL.mass, force=spring),
    q0=[1.0],
    v0=[0.0],
    t_end=40.0,
    params={"k": 1.0},
)


@pytest.mark.parametrize("name", METHODS)
def test_a_spring_that_oscillates_within_a_step_is_told(name):
    with pytest.warns(nsdyn.CoarseStepWarning, match=r"step = 2 is too long.*smaller step"):
        nsdyn.simulate(OSCILLATOR, METHODS[name], step=2.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nsdyn.simulate(OSCILLATOR, METHODS[name], step=0.4)


def test_the_ratios_of_an_oscillation():
    found = Pieces.of(nsdyn.simulate(OSCILLATOR, METHODS["RK4"], step=0.1))
    assert np.allclose(change_ratio(found), 2 * np.sin(0.05), rtol=0.02)
    assert np.allclose(trapezoid_ratio(found), 0.1**2 / 24, rtol=0.02)


def test_a_robot_that_turns_within_a_step_is_told():
    """Four steps and two events."""
    with pytest.warns(nsdyn.CoarseStepWarning):
        nsdyn.simulate(three_r_pendulum(), METHODS["RK4"], step=0.5, law=laws.MuellerTransition())


def test_jumps_at_events_are_no_reason():
    """A ball that bounces: its velocity changes sign at each impact."""
    contact = nsdyn.Contact(lambda q, t, p: q)
    problem = nsdyn.Problem(
        "ball", BALL, contact, q0=[0.01], v0=[0.0], t_end=2.0, params={"g": 9.81}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in (0.01, 0.2):
            nsdyn.simulate(problem, METHODS["RK4"], step=step, law=laws.Restitution(1.0))
