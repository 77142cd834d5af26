"""The wheel over a pothole against its energy balance.

The wheel turns about its contact point with the inertia J = I + m R^2 throughout, so that between
the impacts J omega^2 / 2 + m g y is constant, and each passage of the middle multiplies omega by
the ratio r.
"""

import equinox as eqx
import jax
import numpy as np
import pytest
from mechanisms import run

import nsdyn
from nsdyn import Status, integrators, laws
from nsdyn.problems.wheel_over_pothole import (
    far_edge,
    mass,
    near_edge,
    road_again,
    wheel_over_pothole,
)

RK4 = integrators.EventDriven(integrators.RK4())
POST = laws.PostSwitchGradient()
OTHER = {"R": 0.3, "m": 4.0, "I": 0.2, "l": 0.2, "lp": 0.25, "v0": 2.5, "g": 5.0}


def wheel_run(law=POST, **parameters):
    return run(wheel_over_pothole(**parameters), RK4, step=1e-3, law=law)


def ratio(E=1.0, R=0.35, m=10.0, I=0.6125, lp=0.3, **_):
    """omega+ / omega- at position E in the mass metric."""
    psi = np.arcsin(lp / (2 * R))
    th = np.arccos((I + m * R**2 * np.cos(2 * psi)) / (I + m * R**2))
    return np.cos(E * th) / np.cos((1 - E) * th)


def gain(R=0.35, m=10.0, I=0.6125, lp=0.3, g=9.81, **_):
    """What omega^2 gains from an edge down to the middle."""
    return 2 * m * g * (R - np.sqrt(R**2 - lp**2 / 4)) / (I + m * R**2)


def final_speed(r, R=0.35, v0=3.0, **others):
    return R * np.sqrt(r**2 * ((v0 / R) ** 2 + gain(R=R, **others)) - gain(R=R, **others))


def passes(out, r, R=0.35, l=0.5, lp=0.3, **others):
    """The wheel passes the hole with three switches, of which only the middle one jumps, by the
    ratio r."""
    events = out.events.records
    assert int(out.status) == 0 and int(out.events.count) == 3
    assert np.array_equal(events.mode_after[:3], [1, 2, 3])
    assert np.allclose(events.q[:3, 0], [l, l + lp / 2, l + lp], rtol=0, atol=1e-13)
    for edge in (0, 2):
        assert np.abs(events.v_after[edge] - events.v_before[edge]).max() < 1e-12
    assert abs(events.v_after[1, 2] / events.v_before[1, 2] - r) < 1e-12
    speed = final_speed(r, R=R, lp=lp, **others)
    assert np.abs(out.v[-1] - np.array([speed, 0.0, speed / R])).max() < 1e-9


@pytest.mark.slow
def test_post_switch_gradient():
    out = wheel_run()
    assert abs(ratio() - 0.755102) < 5e-7
    passes(out, ratio())
    assert np.abs(road_again(out.q[-1], 0.0, wheel_over_pothole().params)).max() < 1e-14
    assert abs(out.v[-1, 1]) < 1e-14 and abs(out.v[-1, 0] - 0.35 * out.v[-1, 2]) < 1e-14
    # energy is constant between the switches; a row holds the state after a switch
    middle = int(np.searchsorted(out.t, out.events.t[1]))
    for part in (out.energy[:middle], out.energy[middle:]):
        assert np.ptp(part) < 1e-8 * out.energy[0]
    lost = out.events.kinetic_before[1] - out.events.kinetic_after[1]
    assert abs(out.energy[0] - out.energy[-1] - lost) < 1e-8 * lost


@pytest.mark.slow
def test_other_parameters():
    passes(wheel_run(**OTHER), ratio(**OTHER), **OTHER)


@pytest.mark.parametrize(("E", "expected"), [(1.0, 0.755102), (0.75, 0.873554), (0.5, 1.0)])
def test_intermediate_gradient(E, expected):
    law = laws.IntermediateGradient(E)
    assert abs(ratio(E) - expected) < 5e-7
    passes(wheel_run(law), ratio(E))
    passes(wheel_run(law, **OTHER), ratio(E, **OTHER), **OTHER)


@pytest.mark.parametrize(("E", "expected"), [(0.75, 0.870183), (0.5, 1.0)])
def test_euclidean_metric(E, expected):
    """By the law alone: the gradients and a velocity half-way between the edges."""
    p = {name: float(value) for name, value in wheel_over_pothole().params.items()}
    psi = np.arcsin(p["lp"] / (2 * p["R"]))
    q = np.array([p["l"] + p["lp"] / 2, p["R"] * np.cos(psi), p["l"] / p["R"] + psi])
    before, after = (jax.jacfwd(rows)(q, 0.0, p) for rows in (near_edge, far_edge))
    v = np.array([q[1], -p["lp"] / 2, 1.0])
    law = laws.IntermediateGradient(E, metric="euclidean")
    jump = eqx.filter_jit(law.jump)(mass(q, p), before, after, v)
    assert abs(jump.v_after[2] - expected) < 5e-7


def test_a_slow_wheel_rocks_in_the_hole():
    """It does not climb the far edge but comes back through the middle, again and again, ever
    sooner."""
    slow = {"l": 0.02, "v0": 0.4, "lp": 0.4, "g": 60.0}
    out = wheel_run(laws.IntermediateGradient(1.0), **slow)  # the program of the tests before
    assert int(out.status) == Status.TOO_MANY_SWITCHES and out.t_stop < 0.6
    events = out.events.records
    assert np.array_equal(events.mode_after[:6], [1, 2, 1, 2, 1, 2])
    before, after = events.v_before[1:6, 2], events.v_after[1:6, 2]
    assert np.abs(after / before - ratio(**slow)).max() < 1e-12
    assert abs(before[0] ** 2 - (0.4 / 0.35) ** 2 - gain(**slow)) < 1e-7
    assert np.abs(before[1:] + after[:-1]).max() < 1e-7  # it comes back as fast as it left


def test_problem_is_sound_and_shares_functions():
    one, two = wheel_over_pothole(), wheel_over_pothole(**OTHER)
    assert one.check().ok and two.check().ok
    assert jax.tree.structure(one) == jax.tree.structure(two)
    assert np.isclose(one.params["I"], 0.6125)
    jax.eval_shape(lambda lp: wheel_over_pothole(lp=lp), 0.3)  # traced values are taken as they are


@pytest.mark.parametrize("wrong", [{"lp": 0.7}, {"lp": 0.0}, {"l": -0.1}, {"R": 0.15}])
def test_a_hole_that_the_wheel_does_not_span(wrong):
    with pytest.raises(nsdyn.ProblemError, match="lp < 2 R"):
        wheel_over_pothole(**wrong)


def test_drawing():
    problem = wheel_over_pothole()
    line, road = map(np.asarray, problem.shape(problem.q0, problem.params))
    assert np.allclose(line[0], [0.0, 0.35]) and np.allclose(line[1], [0.0, 0.7])
    assert (
        np.allclose(np.linalg.norm(line[1:] - line[0], axis=1), 0.35)
        and abs(line[:, 1].min()) < 1e-3
    )
    assert np.allclose(road[[1, 4]], [[0.5, 0.0], [0.8, 0.0]])
