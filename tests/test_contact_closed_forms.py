"""Closed forms of contacts, with the schemes that other files of tests leave out; statics with
NSGA; each contact with its own numbers; capsules."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from mechanisms import G, block, disc, friction, restitution
from test_contact_problems import BOXES, MASSES, STACK, roller
from test_contacts import exponential, spatial_ball

import nsdyn
from nsdyn import problems
from nsdyn.integrators import NSGA, RK4, EventDriven, MoreauJean
from nsdyn.multibody import surfaces
from nsdyn.studies import friction_orders
from nsdyn.studies.lib import archive

OPEN, STICK, SLIP = 0, 1, 2
EVENTS = EventDriven(RK4())


# Impacts


@pytest.mark.parametrize(
    ("omega", "after", "mode"), [(50.0, 28.98928844612825, SLIP), (10.0, 20 / 7, STICK)]
)
def test_spin_of_a_rotating_ball_after_its_impact(omega, after, mode):
    """Capobianco, Harsch, Eugster and Leine 2021, section 10.1, with Moreau-Jean: it hits the floor
    with the speed of the end of a step, to which the change of the spin is in proportion if it
    slips; if it sticks the spin is the same at any speed."""
    step = 0.4283529368781193 / 500
    found = nsdyn.simulate(
        disc(), MoreauJean(), step=step, t_end=503 * step, v0=[0, 0, omega], check=False
    )
    hit = int(np.argmax(found.mode[:, 0] != OPEN))
    assert found.mode[hit].tolist() == [mode]
    faster = G * found.t[hit] / 4.202142310774351 if mode == SLIP else 1.0
    assert found.v[hit, 2] == pytest.approx(omega + (after - omega) * faster, rel=1e-12)


def test_housner_with_nsga():
    """omega+/omega- = 31/34 when the block lands on its other corner, and leaves the first."""
    b, c = 0.1, 0.4
    angle, omega = 1e-9, -1.0
    x = -b * np.cos(angle) + c * np.sin(angle)
    y = -b * np.sin(angle) - c * np.cos(angle)
    start = block([0.0, -y, angle], [y * omega, -x * omega, omega], 1e-3, b=b, c=c)
    found = nsdyn.simulate(start, NSGA(), step=1e-6, t_end=3e-6, check=False)
    assert found.v[-1, 2] / omega == pytest.approx(31 / 34, rel=1e-4)  # the weight acts for 3e-6 s
    assert found.mode[-1].tolist() == [OPEN, STICK]


# Motions


@pytest.mark.slow
@pytest.mark.parametrize(("mu", "near"), [(1e2, 2e-4), (1e5, 2e-6)])
def test_a_rolling_ball_leaves_a_sphere(mu, near):
    """Event-driven, where cos(th) = 10/17: with so much friction it slips only just before. With
    mu = 1e5 both events lie in one interval in which guards are looked at."""
    found = nsdyn.simulate(roller(mu), EVENTS, step=2e-3, check=False)
    x, y = found.events.q[:, :2].T
    assert found.events.mode_after.tolist() == [[SLIP], [OPEN]]
    assert np.arctan2(x, y)[1] == pytest.approx(np.arccos(10 / 17), abs=near)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", [EVENTS, NSGA()], ids=["EventDriven", "NSGA"])
def test_a_ball_in_space_begins_to_roll(integrator):
    """v = (5 v0 + 2 R omega0 x n)/7 after 2 |s0|/(7 mu g), with the slip s0 at the start."""
    found = nsdyn.simulate(spatial_ball(exponential), integrator, step=1e-3)
    np.testing.assert_allclose(found.v[-1, :3], [2, -2 / 7, 0], atol=1e-11)
    if integrator is EVENTS:
        assert found.events.t == pytest.approx([0.09708266589], abs=1e-10)
    else:
        rolls = found.t[1 + np.argmax(found.mode[1:, 0] == STICK)]
        assert abs(rolls - 0.09708266589) < 2e-3


# Statics with NSGA


@pytest.mark.slow
def test_a_table_stands_with_nsga():
    table = problems.four_legged_table()
    found = nsdyn.simulate(table, NSGA(), step=2e-3, v0=np.zeros(6))
    assert np.max(np.abs(found.q - found.q[0])) < 1e-11
    assert np.all(found.mode[1:] == STICK)
    np.testing.assert_allclose(-found.lam[-1, ::3].sum(), 10 * G, rtol=1e-10)


@pytest.mark.slow
def test_a_stack_of_boxes_does_not_sink_with_nsga():
    """Ten boxes with the mass ratio 1000."""
    found = nsdyn.simulate(STACK, NSGA(), step=2e-3, t_end=0.4)
    assert np.max(np.abs(found.q - np.asarray(STACK.q0))) < 1e-9
    pressing = -found.lam[-1].reshape(BOXES, 2, 2)[:, :, 0].sum(axis=1)
    np.testing.assert_allclose(pressing, G * np.cumsum(MASSES[::-1])[::-1], rtol=1e-8)


# Each contact with its own numbers. Two particles fall on one floor: x, y, x, y.


def four(q, p):
    return jnp.eye(4)


def both_fall(q, v, t, p):
    return jnp.array([0.0, -G, 0.0, -G])


def heights(q, t, p):
    return q[1::2]


def sideways(q, v, t, p):
    return v[::2]


MU, E = np.array([0.1, 0.4]), np.array([0.8, 0.3])
TWO = nsdyn.Problem(
    "two particles",
    nsdyn.System(mass=four, force=both_fall),
    nsdyn.Contacts(heights, sideways, mu=friction, e=restitution),
    q0=[0.0, 0.05, 0.0, 0.05],
    v0=[3.0, -1.0, 3.0, -1.0],
    t_end=0.06,
    params={"mu": MU, "e": E},
)


def leaves(speed):
    """Each with e_i times its speed, and slower along the floor by mu_i (1 + e_i) times it."""
    return np.stack([3 - MU * (1 + E) * speed, E * speed], axis=1).ravel()


def test_contacts_have_numbers_of_their_own():
    found = nsdyn.simulate(TWO, EVENTS, step=0.01, check=False)
    speed = np.sqrt(1 + 2 * G * 0.05)
    np.testing.assert_allclose(found.events.v_after[0], leaves(speed), rtol=1e-12)


def test_contacts_have_numbers_of_their_own_in_time_steps():
    """The step of the impact contains gravity, which adds at most g h to the speed."""
    step = 1e-3
    found = nsdyn.simulate(TWO, MoreauJean(), step=step, check=False)
    hit = int(np.argmax(found.v[:, 1] > 0))
    before = -found.v[hit - 1, 1]
    np.testing.assert_allclose(found.v[hit], leaves(before), rtol=0, atol=1.0 * G * step)
    np.testing.assert_allclose(found.v[hit, 1::2], E * before, rtol=1e-12)  # of the step before


def minus(p):
    return -p["e"]


@pytest.mark.parametrize("integrator", [MoreauJean(), EVENTS], ids=["MoreauJean", "EventDriven"])
def test_a_negative_restitution_is_named(integrator):
    text = r"Contacts\(e=.*from 0 to 1, found -0.1"
    for e in (-0.1, [0.5, -0.1]):
        with pytest.raises(nsdyn.ProblemError, match=text):
            nsdyn.Contacts(heights, sideways, e=e)
    problem = dataclasses.replace(
        TWO, constraint=nsdyn.Contacts(heights, sideways, e=minus), params={"e": 0.1}
    )
    with pytest.raises(nsdyn.ProblemError, match=text):
        nsdyn.simulate(problem, integrator, step=0.1)


# Capsules

NUMBERS = st.floats(-2.0, 2.0)
PLANE = surfaces.Plane(normal=(0.6, 0.0, 0.8), point=(0.1, 0.2, -0.3))
CAPSULE = surfaces.contacts([(end, PLANE) for end in surfaces.capsule(0, 0.7, 0.15)])
ENDS = jax.jit(lambda q: CAPSULE.gap(q, 0.0, {}))


@settings(max_examples=60, deadline=None)
@given(arrays(float, 3, elements=NUMBERS), arrays(float, 4, elements=NUMBERS))
def test_a_capsule_is_as_near_to_a_plane_as_the_nearest_of_its_points(place, turn):
    """Points of its surface, on a cylinder and two half spheres about the third body axis."""
    from scipy.spatial.transform import Rotation

    turn = turn + np.array([3.0, 0, 0, 0])
    turn = turn / np.linalg.norm(turn)
    round_, high = np.meshgrid(np.linspace(0, 2 * np.pi, 241), np.linspace(0, np.pi, 121))
    ball = np.stack(
        [np.sin(high) * np.cos(round_), np.sin(high) * np.sin(round_), np.cos(high)], axis=-1
    ).reshape(-1, 3)
    along = np.where(ball[:, 2:] >= 0, 0.7, -0.7) * [0.0, 0.0, 1.0]
    points = 0.15 * ball + along
    ring = 0.15 * ball[np.abs(ball[:, 2]) < 1e-9]
    middle = (ring[:, None] + np.linspace(-0.7, 0.7, 29)[None, :, None] * [0, 0, 1.0]).reshape(
        -1, 3
    )
    surface = np.concatenate([points, middle])
    world = place + Rotation.from_quat(turn, scalar_first=True).apply(surface)
    nearest = np.min((world - PLANE.point) @ PLANE.normal)
    gap = float(np.min(ENDS(np.concatenate([place, turn]))))
    assert gap <= nearest + 1e-12
    assert gap == pytest.approx(nearest, abs=1e-4)  # points are 1.5 degrees apart


# The study of orders


@pytest.mark.slow
def test_the_study_of_orders_with_friction(tmp_path):
    friction_orders.compute(tmp_path, (400, 800))
    data, _ = archive.read(tmp_path / "data", "errors")
    order = {
        str(name): dict(zip(data.measure.values, row, strict=True))
        for name, row in zip(data.scheme.values, data.order.values, strict=True)
    }
    bowl, top = ("angle", "rate", "force"), ("tilt", "position", "velocity")
    for scheme, where, wanted, tolerance in (
        ("mean", bowl, 2.0, 0.02),
        ("end", bowl, 2.0, 0.02),
        ("mean", top, 2.0, 0.1),
        ("end", top, 0.95, 0.1),
        ("moreau_jean", bowl, 1.0, 0.1),
        ("moreau_jean", top, 1.0, 0.1),
    ):
        found = [order[scheme][name] for name in where]
        assert found == pytest.approx([wanted] * 3, abs=tolerance), (scheme, where)
