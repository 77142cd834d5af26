"""Free bodies and their surfaces: distances and slips against numpy, collisions, boxes at rest."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import nsdyn
from nsdyn.integrators import NSGA, MoreauJean
from nsdyn.multibody import free_bodies, surfaces
from nsdyn.multibody.surfaces import Ball, Plane

G = 9.81
NUMBERS = st.floats(-2.0, 2.0)
PLANE = Plane(normal=(0.6, 0.0, 0.8), point=(0.1, 0.2, -0.3))
PAIRS = surfaces.contacts(
    [
        (Ball(0, 0.2, (0.1, 0.0, 0.3)), PLANE),
        (Ball(0, 0.1), Ball(1, lambda p: p["r"], (0.0, 0.2, 0.0))),
    ],
    spin=0.01,
)
P = {"m": np.array([1.0, 2.0]), "J": np.ones((2, 3)), "g": np.zeros(3), "r": 0.3}


def numbers(q, v):
    """Gaps and slips of PAIRS, and the rates of the gaps."""
    gap = lambda q: PAIRS.gap(q, 0.0, P)
    rate = jax.jvp(gap, (q,), (free_bodies.kinematics(q, v, P),))[1]
    return gap(q), rate, PAIRS.slip(q, v, 0.0, P)


NUMBERS_OF_PAIRS = jax.jit(numbers)


def turned(a, x):
    """The rotation of x by a quaternion, by the formula of Rodrigues."""
    a = a / np.linalg.norm(a)
    return x + 2 * np.cross(a[1:], np.cross(a[1:], x) + a[0] * x)


@settings(max_examples=60, deadline=None)
@given(arrays(float, 14, elements=NUMBERS), arrays(float, 12, elements=NUMBERS))
def test_distances_and_slips(q, v):
    q = q + np.tile([0, 0, 0, 3.0, 0, 0, 0], 2)  # quaternions are not zero
    q[7:10] += 9.0  # bodies apart
    q = q.reshape(2, 7)
    q[:, 3:] /= np.linalg.norm(q[:, 3:], axis=1, keepdims=True)
    gap, rate, slip = map(np.asarray, NUMBERS_OF_PAIRS(q.ravel(), v))
    (x, a), (y, b) = ((body[:3], body[3:]) for body in q)
    (vx, wx), (vy, wy) = ((body[:3], body[3:]) for body in v.reshape(2, 6))
    wx, wy = turned(a, wx), turned(b, wy)
    n = np.array(PLANE.normal)
    arm = turned(a, np.array([0.1, 0, 0.3]))
    assert gap[0] == pytest.approx(n @ (x + arm - PLANE.point) - 0.2, abs=1e-12)
    s = vx + np.cross(wx, arm - 0.2 * n)
    assert rate[0] == pytest.approx(n @ s, abs=1e-11)
    assert np.linalg.norm(slip[0, :2]) == pytest.approx(np.linalg.norm(s - n * (n @ s)), abs=1e-11)
    assert slip[0, 2] == pytest.approx(0.01 * n @ wx, abs=1e-12)
    other = turned(b, np.array([0, 0.2, 0]))
    between = x - y - other
    n = between / np.linalg.norm(between)
    assert gap[1] == pytest.approx(np.linalg.norm(between) - 0.4, abs=1e-12)
    s = vx + np.cross(wx, -0.1 * n) - vy - np.cross(wy, other + 0.3 * n)
    assert rate[1] == pytest.approx(n @ s, abs=1e-11)
    assert np.linalg.norm(slip[1, :2]) == pytest.approx(np.linalg.norm(s - n * (n @ s)), abs=1e-11)
    assert slip[1, 2] == pytest.approx(0.01 * n @ (wx - wy), abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(arrays(float, 4, elements=NUMBERS), arrays(float, 3, elements=NUMBERS))
def test_finite_rotations(a, phi):
    """They agree with scipy's, keep the length, and begin as `kinematics` says."""
    from scipy.spatial.transform import Rotation

    a = a + np.array([3.0, 0, 0, 0])
    a = a / np.linalg.norm(a)
    q = np.concatenate([np.zeros(3), a])
    end = np.asarray(free_bodies.retract(q, np.concatenate([np.ones(3), phi]), P))
    np.testing.assert_allclose(end[:3], 1.0)
    expected = Rotation.from_quat(a, scalar_first=True) * Rotation.from_rotvec(phi)
    found = np.asarray(free_bodies.rotations(jnp.asarray(end))[0])
    np.testing.assert_allclose(found, expected.as_matrix(), atol=1e-13)
    assert np.linalg.norm(end[3:]) == pytest.approx(1.0, abs=1e-15)


def two_balls(e):
    touching = surfaces.contacts([(Ball(0, 0.1), Ball(1, 0.1))], mu=0.3, e=e)
    return nsdyn.Problem(
        "balls",
        free_bodies.SYSTEM,
        touching,
        q0=free_bodies.configuration([[0, 0, 0], [0.25, 0.05, 0]]),
        v0=np.array([1.0, 0, 0, 0, 0, 20.0] + [0.0] * 6),
        t_end=0.2,
        params={"m": np.array([1.0, 2.0]), "J": 0.004 * np.ones((2, 3)), "g": np.zeros(3)},
    )


@pytest.mark.slow
@pytest.mark.parametrize("integrator", [MoreauJean(), NSGA()], ids=["MoreauJean", "NSGA"])
def test_balls_collide(integrator):
    """Linear and angular momentum stay, the normal velocity turns by e; friction takes energy."""
    problem = two_balls(0.8)
    run = nsdyn.simulate(problem, integrator, step=1e-3)
    m = np.asarray(problem.params["m"])
    v = run.v.reshape(len(run.t), 2, 6)
    x = run.q.reshape(len(run.t), 2, 7)[:, :, :3]
    momentum = np.einsum("b,tbi->ti", m, v[:, :, :3])
    np.testing.assert_allclose(momentum, momentum[:1].repeat(len(run.t), 0), atol=1e-12)
    orbital = np.einsum("b,tbi->ti", m, np.cross(x, v[:, :, :3]))
    # balls: the angular velocity in the world is that of the body axes, which turn about it
    total = orbital[:, 2] + 0.004 * v[:, :, 5].sum(axis=1)
    np.testing.assert_allclose(total[[0, -1]], total[0], atol=2e-3)  # the time of the impact
    assert run.energy[-1] < run.energy[0]
    hit = np.argmax(np.abs(np.diff(v[:, 1, 0])) > 1e-3)
    n = x[hit + 1, 0] - x[hit + 1, 1]
    n = n / np.linalg.norm(n)
    approach = (v[hit, 0, :3] - v[hit, 1, :3]) @ n
    leaving = (v[hit + 1, 0, :3] - v[hit + 1, 1, :3]) @ n
    assert leaving == pytest.approx(-0.8 * approach, rel=1e-2)


@pytest.mark.slow
def test_a_box_lands_on_four_corners_and_stays():
    """Four corners carry it, one more than needed."""
    half = (0.1, 0.15, 0.05)
    floor = surfaces.contacts([(c, Plane()) for c in surfaces.box(0, half)], mu=0.4)
    problem = nsdyn.Problem(
        "box",
        free_bodies.SYSTEM,
        floor,
        q0=free_bodies.configuration([[0, 0, 0.06]]),
        v0=[0.5, 0, 0, 0, 0, 0],
        t_end=0.6,
        params={"m": np.ones(1), "J": np.full((1, 3), 0.01), "g": np.array([0, 0, -G])},
    )
    run = nsdyn.simulate(problem, MoreauJean(), step=2e-3)
    np.testing.assert_allclose(run.v[-1], 0.0, atol=1e-10)
    assert run.q[-1, 2] == pytest.approx(0.05, abs=1e-9)
    fall = np.sqrt(2 * 0.01 / G)
    impact = 0.5 - 0.4 * G * fall  # the impact takes mu times the normal impulse
    expected = 0.5 * fall + impact**2 / (2 * 0.4 * G)
    assert run.q[-1, 0] == pytest.approx(expected, abs=2e-3)
    np.testing.assert_allclose(run.q[-1, 3:], [1, 0, 0, 0], atol=1e-3)


def test_wrong_pairs_are_named():
    with pytest.raises(nsdyn.ProblemError, match=r"contacts\(pairs=.*found \(Plane"):
        surfaces.contacts([(Plane(), Ball(0))])
