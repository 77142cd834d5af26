"""Quaternions keep their length in event-driven runs, and their direction has the order of the
method.

The free motion of a body with the moments of inertia (J, J, J3) has a closed form,

    a(t) = exp(L t/(2 J)) o exp(-e_3 s t/2),   L = (J w_1, J w_2, J3 w_3),  s = (J3 - J) w_3/J   (1)

with the angular momentum L of a start with a = 1."""

import jax.numpy as jnp
import numpy as np
import pytest

import nsdyn
from nsdyn.integrators import RK4, DormandPrince, EventDriven, RadauIIA
from nsdyn.multibody import free_bodies, surfaces

J, J3 = 1.0, 2.5
RATES = np.array([1.0, 3.0, -2.0])
END = 1.6


def params(g=0.0):
    return {"m": np.ones(1), "J": np.array([[J, J, J3]]), "g": np.array([0.0, 0.0, -g])}


def tumbling():
    q0, v0 = [0, 0, 0, 1, 0, 0, 0], np.append(np.zeros(3), RATES)
    numbers = {"q0": q0, "v0": v0, "t_end": END, "params": params()}
    return nsdyn.Problem("tumbling", free_bodies.SYSTEM, None, **numbers)


def turn(x):
    """The quaternion of a rotation vector."""
    angle = np.linalg.norm(x)
    return np.append(np.cos(angle / 2), np.sin(angle / 2) * x / angle)


def times(a, b):
    vector = a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:])
    return np.append(a[0] * b[0] - a[1:] @ b[1:], vector)


def exact(t):
    L = np.array([J, J, J3]) * RATES
    return times(turn(L * t / J), turn(np.array([0, 0, -(J3 - J) / J * RATES[2] * t])))  # (1)


def lengths(found):
    return np.linalg.norm(found.q[:, 3:], axis=1)


def test_runge_kutta_keeps_the_length_and_its_order():
    errors = []
    for step in (0.02, 0.01, 0.005):
        found = nsdyn.simulate(tumbling(), EventDriven(RK4()), step=step)
        np.testing.assert_allclose(lengths(found), 1.0, rtol=0, atol=5e-16)
        errors.append(np.abs(found.q[-1, 3:] - exact(END)).max())
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    np.testing.assert_allclose(orders, 4.0, atol=0.05)
    assert abs(orders[1] - 4) < abs(orders[0] - 4)


def test_without_projection_the_length_drifts():
    """And so what is tested here is seen."""
    found = nsdyn.simulate(tumbling(), EventDriven(RK4(), project=False), step=0.04)
    assert np.abs(lengths(found) - 1).max() > 1e-7


@pytest.mark.parametrize(
    "method", [DormandPrince(rtol=1e-3, atol=1e-3), RadauIIA(rtol=1e-3, atol=1e-3)]
)
def test_error_control_keeps_the_length(method):
    found = nsdyn.simulate(tumbling(), EventDriven(method), step=0.2)
    np.testing.assert_allclose(lengths(found), 1.0, rtol=0, atol=5e-16)
    np.testing.assert_allclose(found.q[-1, 3:], exact(END), atol=0.02)


@pytest.mark.slow
def test_the_length_stays_across_impacts():
    """A ball with spin that bounces and rolls off; also in the records of events."""
    floor = surfaces.contacts([(surfaces.Ball(0, 0.1), surfaces.Plane())], mu=0.3, e=0.5)
    ball = nsdyn.Problem(
        "ball",
        free_bodies.SYSTEM,
        floor,
        q0=[0, 0, 0.3, 1, 0, 0, 0],
        v0=[1.0, 0, 0, 20.0, 5.0, 30.0],
        t_end=0.6,
        params=params(9.81) | {"J": np.full((1, 3), 0.4 * 0.1**2)},
    )
    found = nsdyn.simulate(ball, EventDriven(RK4()), step=5e-3)
    assert len(found.events) > 2
    np.testing.assert_allclose(lengths(found), 1.0, rtol=0, atol=5e-16)
    np.testing.assert_allclose(lengths(found.events), 1.0, rtol=0, atol=5e-16)


def test_restoring_takes_what_retract_gives():
    q = jnp.array([1.0, 2.0, 3.0, 2.0, 0.0, 0.0, 0.0])
    restored = free_bodies.SYSTEM.restored(q, params())
    np.testing.assert_allclose(restored, [1, 2, 3, 1, 0, 0, 0], atol=1e-16)
