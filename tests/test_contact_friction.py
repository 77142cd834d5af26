"""Friction in event-driven runs: closed forms, orders, other constraints beside contacts, slip in
space."""

import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import G, block, carts, disc, friction

import nsdyn
from nsdyn.integrators import RK4, DormandPrince, EventDriven, RadauIIA
from nsdyn.multibody import free_bodies, surfaces
from nsdyn.problems.belt import belt, period
from nsdyn.problems.friction_oscillator import friction_oscillator
from nsdyn.problems.tippe_top import tippe_top
from nsdyn.studies.lib import sliding_top as reference

OPEN, STICK, SLIP = 0, 1, 2
EVENTS = EventDriven(RK4())


# A particle on a floor, in a bowl or on a sphere of radius 1 about the origin, on a spring.


def particle_mass(q, p):
    return jnp.eye(2)


def particle_force(q, v, t, p):
    return jnp.array([-p["k"] * q[0], -p["g"]])


def from_surface(q, t, p):
    return p["floor"] * q[1] + p["inside"] * (1.0 - jnp.sqrt(q[0] ** 2 + q[1] ** 2))


def along_surface(q, v, t, p):
    around = (q[0] * v[1] - q[1] * v[0]) / jnp.sqrt(q[0] ** 2 + q[1] ** 2)
    return p["floor"] * v[0] + (1 - p["floor"]) * around


PARTICLE = nsdyn.Problem(
    "particle",
    nsdyn.System(mass=particle_mass, force=particle_force),
    nsdyn.Contacts(from_surface, along_surface, mu=friction),
    q0=[np.sin(-1.0), -np.cos(-1.0)],
    v0=[0.0, 0.0],
    t_end=2.5,
    params={"mu": 0.2, "k": 0.0, "g": G, "floor": 0.0, "inside": 1.0},
)


def bowl_error(integrator, count):
    """In the angle, its rate and the normal force at t = 0.8 s, from
    omega^2 = C exp(-2 mu phi) + a cos phi + b sin phi."""
    found = nsdyn.simulate(PARTICLE, integrator, step=0.8 / count, t_end=0.8, check=False)
    q, v = found.q[-1], found.v[-1]
    return np.abs(
        [
            np.arctan2(q[0], -q[1]) - 0.2995259497444658,
            q[0] * v[1] - q[1] * v[0] - 1.340232895489343,
            -found.lam[-1, 0] - 11.16944841630747,
        ]
    )


def test_order_4_in_a_bowl_with_friction():
    errors = [bowl_error(EVENTS, count) for count in (40, 80, 160)]
    orders = np.log2([errors[0] / errors[1], errors[1] / errors[2]])
    assert orders == pytest.approx(4.0, abs=0.25)
    assert np.max(errors[2]) < 2e-8


def test_dormand_prince_agrees():
    integrator = EventDriven(DormandPrince(rtol=1e-10, atol=1e-12))
    assert np.max(bowl_error(integrator, 10)) < 1e-8
    found, phi = turning_points(integrator, 0.1)
    assert found.events.mode_after.tolist() == [[SLIP], [STICK]]
    np.testing.assert_allclose(phi, [0.4589515267392525, -0.0470311168989299], atol=1e-9)


@pytest.mark.slow
def test_radau_agrees():
    integrator = EventDriven(RadauIIA())
    assert np.max(bowl_error(integrator, 20)) < 1e-9
    found, phi = turning_points(integrator, 0.02)
    assert found.events.mode_after.tolist() == [[SLIP], [STICK]]
    np.testing.assert_allclose(phi, [0.4589515267392525, -0.0470311168989299], atol=1e-9)


def turning_points(integrator, step):
    found = nsdyn.simulate(PARTICLE, integrator, step=step, check=False)
    q = found.events.q
    return found, np.arctan2(q[:, 0], -q[:, 1])


def test_a_particle_in_a_bowl_turns_back_and_rests():
    """Order 4 also across the turning point."""
    found, phi = turning_points(EVENTS, 0.01)
    assert found.events.mode_after.tolist() == [[SLIP], [STICK]]
    np.testing.assert_allclose(found.events.t, [1.03149595955, 2.0291623058], atol=1e-7)
    exact = [0.4589515267392525, -0.0470311168989299]
    np.testing.assert_allclose(phi, exact, atol=1e-7)
    np.testing.assert_allclose(found.q[-1], found.events.q[-1], atol=1e-14)
    errors = [turning_points(EVENTS, 2.5 / count)[1] - exact for count in (640, 1280)]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(4.0, abs=0.15)
    assert np.max(np.abs(errors[1])) < 1e-11


def test_dry_friction_oscillator():
    """x'' = -x - sgn x': turning points sqrt(205) - 1 - 2 k."""
    params = {"mu": 1.0, "k": 1.0, "g": 1.0, "floor": 1.0, "inside": 0.0}
    found = nsdyn.simulate(
        PARTICLE, EVENTS, step=0.02, q0=[12.0, 0.0], v0=[6.0, 0.0], t_end=24.0, params=params
    )
    turns = (-1.0) ** np.arange(8) * (np.sqrt(205) - 1 - 2 * np.arange(8))
    np.testing.assert_allclose(found.events.q[:, 0], turns, atol=1e-6)
    assert found.events.t[-1] == pytest.approx(np.arctan(6 / 13) + 7 * np.pi, abs=1e-6)
    assert found.mode[-1].tolist() == [STICK]
    assert found.q[-1, 0] == pytest.approx(15 - np.sqrt(205), abs=1e-6)


# Friction where a given force presses.


def test_friction_oscillator_with_a_given_force():
    """Turning points sqrt(205) - 1 - 2 k; it rests at 15 - sqrt(205)."""
    found = nsdyn.simulate(friction_oscillator(), EVENTS, step=0.01, check=False)
    assert found.events.mode_after.ravel().tolist() == [SLIP] * 7 + [STICK]
    assert found.events.t[-1] == pytest.approx(np.arctan(6 / 13) + 7 * np.pi, abs=1e-8)
    assert found.q[-1, 0] == pytest.approx(15 - np.sqrt(205), abs=1e-9)
    np.testing.assert_allclose(found.lam[-1], [-1, np.sqrt(205) - 15], atol=1e-9)


def test_stick_and_slip_on_a_belt():
    """mu(0) while it sticks, the limit mu(0+) where slip begins; the period is known."""
    found = nsdyn.simulate(belt(), EVENTS, step=0.01, check=False)
    assert found.events.mode_after.ravel().tolist() == [SLIP, STICK] * 3
    assert found.events.t[0] == pytest.approx(5.0, abs=1e-10)
    np.testing.assert_allclose(np.diff(found.events.t[::2]), period(), atol=1e-8)


def unit_mass(q, p):
    return jnp.eye(1)


def no_force(q, v, t, p):
    return jnp.zeros(1)


def speed(q, v, t, p):
    return v[0]


def wave(q, v, t, p):
    return jnp.cos(t)


def test_a_force_that_presses_now_and_then():
    """Nothing rubs while cos t < 0. v = v0 - mu sin t until pi/2, v0 - mu until 3 pi/2, then
    v0 - mu (2 + sin t), until it rests."""
    problem = nsdyn.Problem(
        "brake",
        nsdyn.System(mass=unit_mass, force=no_force),
        nsdyn.Friction(speed, wave, mu=0.5),
        q0=[0.0],
        v0=[1.25],
        t_end=7.0,
    )
    found = nsdyn.simulate(problem, EVENTS, step=0.02, check=False)
    assert found.events.mode_after.ravel().tolist() == [OPEN, SLIP, STICK]
    times = np.pi * np.array([1 / 2, 3 / 2, 2 + 1 / 6])
    np.testing.assert_allclose(found.events.t, times, atol=1e-8)
    late = found.t > times[1]
    exact = np.where(found.t < times[2], 1.25 - 0.5 * (2 + np.sin(found.t)), 0.0)[late]
    np.testing.assert_allclose(found.v[late, 0], exact, atol=1e-8)


def test_a_particle_leaves_a_sphere():
    """Where the height has fallen by a third, cos = 2/3."""
    params = {"mu": 0.0, "k": 0.0, "g": G, "floor": 0.0, "inside": -1.0}
    start = 0.1
    at = [np.sin(start), np.cos(start)]
    found = nsdyn.simulate(PARTICLE, EVENTS, step=0.005, q0=at, t_end=1.2, params=params)
    assert found.events.mode_after.tolist() == [[OPEN]]
    assert found.events.q[0, 1] == pytest.approx(2 / 3 * np.cos(start), abs=1e-8)
    assert np.all(np.linalg.norm(found.q[found.t > found.events.t[0]], axis=1) > 1)


# In space.


def space_mass(q, p):
    return jnp.eye(3)


def space_force(q, v, t, p):
    return jnp.array([G * jnp.sin(p["slope"]), 0.0, -G * jnp.cos(p["slope"])])


def above_slope(q, t, p):
    return q[2]


def over_slope(q, v, t, p):
    return v[None, :2]


@pytest.mark.slow
def test_a_slip_in_space_turns_and_stops():
    """Thrown across a slope a particle turns downhill, the faster the slower it is."""
    problem = nsdyn.Problem(
        "slope",
        nsdyn.System(mass=space_mass, force=space_force),
        nsdyn.Contacts(above_slope, over_slope, mu=0.5),
        q0=np.zeros(3),
        v0=[0.0, 1.0, 0.0],
        t_end=0.5,
        params={"slope": 0.3},
    )
    accurate = EventDriven(DormandPrince(rtol=1e-10, atol=1e-12))
    exact = nsdyn.simulate(problem, accurate, step=0.01).q[-1]
    found = [nsdyn.simulate(problem, EVENTS, step=h) for h in (0.01, 0.005, 0.0025)]
    errors = [np.max(np.abs(run.q[-1] - exact)) for run in found]
    assert np.all(np.log2(np.divide(errors[:-1], errors[1:])) > 1.9)
    assert errors[-1] < 1e-6
    for run in found:
        assert run.events.mode_after.tolist() == [[STICK]]
        np.testing.assert_allclose(run.v[-1], 0, atol=1e-14)


def tilt(q):
    """The angle of the axis of a top to the vertical."""
    return np.arccos(1 - 2 * (q[4] ** 2 + q[5] ** 2) / np.sum(q[3:] ** 2))


@pytest.mark.slow
def test_order_4_where_the_slip_turns():
    """Tippe top, against an index-reduced reference."""
    top = tippe_top(t_end=0.2)
    q, v = reference.state(top.q0, top.v0, 0.2)
    errors = []
    for step in (1e-3, 5e-4, 2.5e-4):
        found = nsdyn.simulate(top, EVENTS, step=step, check=False)
        assert found.mode[-1].tolist() == [SLIP, OPEN]
        last = found.q[-1], found.v[-1]
        each = [np.max(np.abs(a - b)) for a, b in zip(last, (q, v), strict=True)]
        errors.append([abs(tilt(last[0]) - tilt(q)), *each])
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert orders == pytest.approx(4.0, abs=0.25)
    assert errors[-1][0] < 2e-9


LEGS = [surfaces.Ball(0, at=(x, y, -0.2)) for x in (-0.5, 0.5) for y in (-0.4, 0.4)]


def pushed_table(q, v, t, p):
    return free_bodies.force(q, v, t, p) + p["push"] * t * jnp.eye(6)[0]


@pytest.mark.slow
def test_a_table_on_four_legs():
    """It stands, begins to slide where the push exceeds all friction though the legs carry
    different loads, and stops."""
    free = free_bodies
    system = nsdyn.System(
        mass=free.mass, force=pushed_table, kinematics=free.kinematics, retract=free.retract
    )
    params = {
        "m": np.array([1.0]),
        "J": np.array([[0.1, 0.1, 0.1]]),
        "g": np.array([0.0, 0.0, -G]),
        "push": 0.0,
    }
    table = nsdyn.Problem(
        "table",
        system,
        surfaces.contacts([(leg, surfaces.Plane()) for leg in LEGS], mu=0.5),
        q0=[0, 0, 0.2, 1, 0, 0, 0],
        v0=np.zeros(6),
        t_end=1.0,
        params=params,
    )
    stands = nsdyn.simulate(table, EVENTS, step=0.01)
    assert len(stands.events) == 0
    assert np.all(stands.mode == STICK)
    np.testing.assert_allclose(stands.lam[-1].reshape(4, 3)[:, 0], -G / 4, rtol=1e-12)
    push = 7.0
    slides = nsdyn.simulate(table, EVENTS, step=0.01, params={**params, "push": push})
    begin = 0.5 * G / push
    assert slides.events.t[-1] == pytest.approx(begin, rel=1e-12)
    assert slides.mode[-1].tolist() == [SLIP] * 4
    after = 1.0 - begin
    speed = push * (1.0 - begin**2) / 2 - 0.5 * G * after
    assert slides.v[-1, 0] == pytest.approx(speed, rel=1e-10)
    stops = nsdyn.simulate(table, EVENTS, step=0.01, v0=[1.0, 0.5, 0, 0, 0, 0])
    np.testing.assert_allclose(stops.events.t, np.sqrt(1.25) / (0.5 * G), rtol=1e-12)
    assert stops.mode[-1].tolist() == [STICK] * 4


# The ball, the block and the carts of `mechanisms`.


def test_a_sliding_ball_begins_to_roll():
    found = nsdyn.simulate(disc([0.1, 0, 0], [0, 1, 0], 0.3), EVENTS, step=0.01)
    assert found.mode[0].tolist() == [SLIP]
    assert found.events.t == pytest.approx([0.1456239988350080], rel=1e-13)
    assert found.events.mode_after.tolist() == [[STICK]]
    assert found.events.q[0, 1] == pytest.approx(0.1248205704300069, rel=1e-13)
    np.testing.assert_allclose(found.v[-1], [0, 5 / 7, -50 / 7], atol=1e-13)
    np.testing.assert_allclose(found.lam[0], [-G, 0.2 * G], rtol=1e-13)  # friction in its row


def test_a_block_slides_to_rest():
    """Both corners at once; friction is shared by them."""
    found = nsdyn.simulate(block(v0=[1.0, 0.0, 0.0], t_end=0.4), EVENTS, step=0.01)
    assert found.events.t == pytest.approx([1 / (0.5 * G)], rel=1e-13)
    assert found.events.mode_after.tolist() == [[STICK, STICK]]
    np.testing.assert_allclose(found.q[-1], [1 / G, 0.1, 0], atol=1e-14)


def test_block_on_a_slope_stays_or_slides():
    stays = nsdyn.simulate(block(slope=np.arctan(0.5) - 0.01), EVENTS, step=0.01)
    assert np.all(stays.mode == STICK) or np.all(np.sum(stays.mode == STICK, axis=1) >= 1)
    assert np.max(np.abs(stays.q - stays.q[0])) < 1e-13
    slope = np.arctan(0.5) + 0.1
    slides = nsdyn.simulate(block(slope=slope), EVENTS, step=0.01)
    a = G * (np.sin(slope) - 0.5 * np.cos(slope))
    assert np.all(slides.mode == SLIP)
    np.testing.assert_allclose(slides.q[:, 0], a * slides.t**2 / 2, rtol=1e-11, atol=1e-14)


def test_contacts_live_with_joints_and_locks():
    """The load's weight makes friction. At t = 0.5 the first cart is locked while it slides."""
    found = nsdyn.simulate(carts(), EVENTS, step=0.01)
    rub = 0.1 * 3 * G
    a = (10.0 - rub) / 3
    np.testing.assert_allclose(found.v[49], [a * 0.49, a * 0.49, 0], rtol=1e-12, atol=1e-14)
    # the rod pulls, the floor presses and rubs
    np.testing.assert_allclose(found.lam[49, :3], [-(2 * a + rub), -3 * G, rub], rtol=1e-12)
    assert len(found.events) == 1
    event = found.events[0]
    assert (event.t, event.mode_after.tolist()) == (0.5, [0, STICK, 1])
    jump = np.array([1.0, 2.0, 3.0]) * (event.v_after - event.v_before)
    np.testing.assert_allclose(jump + event.direction.T @ event.Lam, 0, atol=1e-13)
    np.testing.assert_allclose(found.v[-1], 0, atol=1e-14)
