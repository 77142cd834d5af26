"""Contacts with friction in event-driven runs: closed forms, orders, Painleve's rod, the toy
woodpecker, derivatives, batches, other constraints beside contacts."""

import jax.numpy as jnp
import numpy as np
import pytest

import nsdyn
from nsdyn.integrators import RK4, EventDriven

G = 9.81
OPEN, STICK, SLIP = 0, 1, 2
EVENTS = EventDriven(RK4())


def friction(p):
    return p["mu"]


def restitution(p):
    return p["e"]


# A ball of radius 0.1 in the plane, above a table that vibrates: height, x, angle.


def ball_mass(q, p):
    return jnp.diag(jnp.array([1.0, 1.0, 0.4 * 0.01]))


def ball_weight(q, v, t, p):
    return jnp.array([-G, 0.0, 0.0])


def above_table(q, t, p):
    return q[0] - 0.1 - p["A"] * jnp.sin(20 * jnp.pi * t)


def along_table(q, v, t, p):
    return v[1] + 0.1 * v[2]


BALL = nsdyn.Problem(
    "ball",
    nsdyn.System(mass=ball_mass, force=ball_weight),
    nsdyn.Contacts(above_table, along_table, mu=friction, e=restitution),
    q0=[1.1, 0.0, 0.0],
    v0=[0.0, 0.0, 0.0],
    t_end=2.1,
    params={"mu": 0.2, "e": 0.0, "A": 0.0},
)


def ball(q0, v0, t_end, step=0.01, integrator=EVENTS, **values):
    params = {**BALL.params, **values}
    return nsdyn.simulate(BALL, integrator, step=step, q0=q0, v0=v0, t_end=t_end, params=params)


def test_a_ball_bounces():
    found = ball([1.1, 0, 0], [0, 0, 0], 7.6, e=0.9)
    times = [0.4515236409857309, 1.264266194760047, 1.995734493156931]
    np.testing.assert_allclose(found.events.t[:3], times, rtol=1e-13)
    assert found.events.t[19] == pytest.approx(7.481054503936919, rel=1e-12)
    first = found.events[0]
    assert first.v_after[0] == pytest.approx(-0.9 * first.v_before[0], rel=1e-13)
    assert first.Lam[0] == pytest.approx(-1.9 * G * times[0], rel=1e-12)  # pressing is negative
    assert first.mode_before.tolist() == first.mode_after.tolist() == [OPEN]


def test_a_bouncing_ball_comes_to_rest():
    """At last it would hop for less than a step; the hops before end at v (1 + e)/(g (1 - e))."""
    found = ball([1.1, 0, 0], [0, 0, 0], 2.1, e=0.5)
    assert found.mode[-1].tolist() == [STICK]
    assert found.events.t[-1] == pytest.approx(0.4515236409857309 * 3, abs=0.01)
    np.testing.assert_allclose(found.q[-1], [0.1, 0, 0], atol=1e-14)
    np.testing.assert_allclose(found.lam[-1], [-G, 0], atol=1e-12)


def test_a_sliding_ball_begins_to_roll():
    found = ball([0.1, 0, 0], [0, 1, 0], 0.3)
    assert found.mode[0].tolist() == [SLIP]
    assert found.events.t == pytest.approx([0.1456239988350080], rel=1e-13)
    assert found.events.mode_after.tolist() == [[STICK]]
    assert found.events.q[0, 1] == pytest.approx(0.1248205704300069, rel=1e-13)
    np.testing.assert_allclose(found.v[-1], [0, 5 / 7, -50 / 7], atol=1e-13)
    np.testing.assert_allclose(found.lam[0], [-G, 0.2 * G], rtol=1e-13)  # friction in its row


@pytest.mark.parametrize(
    ("omega", "vx", "after", "x", "modes"),
    [
        (50.0, -0.8404284621548701, 28.98928844612825, -0.8713428613035428, [[SLIP], [STICK]]),
        (10.0, -2 / 7, 20 / 7, -0.1918991608919659, [[STICK]]),
    ],
)
def test_a_rotating_ball_falls(omega, vx, after, x, modes):
    """Capobianco, Harsch, Eugster and Leine 2021, section 10.1."""
    found = ball([1.0, 0, 0], [0, 0, omega], 1.1)
    times = [0.4283529368781193, 0.7281199941750400][: len(modes)]
    np.testing.assert_allclose(found.events.t, times, rtol=1e-12)
    assert found.events.mode_after.tolist() == modes
    np.testing.assert_allclose(found.events.v_after[0], [0, vx, after], rtol=0, atol=1e-12)
    assert -found.events.Lam[0, 0] == pytest.approx(4.202142310774351, rel=1e-13)
    assert found.q[-1, 1] == pytest.approx(x, abs=1e-12)


def test_a_ball_that_starts_on_the_table_and_approaches_it():
    """The impact is at the start."""
    found = ball([0.1, 0, 0], [-1, 0, 0], 0.1, e=0.9)
    assert found.events.t[0] == 0.0
    assert found.events.v_after[0, 0] == pytest.approx(0.9, rel=1e-14)


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


def test_a_particle_leaves_a_sphere():
    """Where the height has fallen by a third, cos = 2/3."""
    params = {"mu": 0.0, "k": 0.0, "g": G, "floor": 0.0, "inside": -1.0}
    start = 0.1
    at = [np.sin(start), np.cos(start)]
    found = nsdyn.simulate(PARTICLE, EVENTS, step=0.005, q0=at, t_end=1.2, params=params)
    assert found.events.mode_after.tolist() == [[OPEN]]
    assert found.events.q[0, 1] == pytest.approx(2 / 3 * np.cos(start), abs=1e-8)
    assert np.all(np.linalg.norm(found.q[found.t > found.events.t[0]], axis=1) > 1)


# A rigid body in the plane with two points that may touch a slope: x along it, y from it, angle.


def body_mass(q, p):
    return jnp.diag(jnp.array([1.0, 1.0, 0.0])) + p["I"] * jnp.diag(jnp.array([0.0, 0.0, 1.0]))


def body_weight(q, v, t, p):
    return G * jnp.array([jnp.sin(p["slope"]), -jnp.cos(p["slope"]), 0.0])


def places(q, p):
    """Both points, relative to the centre."""
    s, c = jnp.sin(q[2]), jnp.cos(q[2])
    x, y = p["points"]
    return x * c - y * s, x * s + y * c


def from_slope(q, t, p):
    return q[1] + places(q, p)[1]


def along_slope(q, v, t, p):
    return v[0] - places(q, p)[1] * v[2]


def block(b, c):
    """A block of half width b and half height c: its lower corners, and its inertia."""
    return {"points": np.array([[-b, b], [-c, -c]]), "I": (b * b + c * c) / 3}


BODY = nsdyn.Problem(
    "body",
    nsdyn.System(mass=body_mass, force=body_weight),
    nsdyn.Contacts(from_slope, along_slope, mu=friction, e=restitution),
    q0=[0.0, 0.1, 0.0],
    v0=[1.0, 0.0, 0.0],
    t_end=0.4,
    params={"mu": 0.5, "e": 0.0, "slope": 0.0, **block(0.4, 0.1)},
)


def body(q0, v0, t_end, step=0.01, **values):
    params = {**BODY.params, **values}
    return nsdyn.simulate(BODY, EVENTS, step=step, q0=q0, v0=v0, t_end=t_end, params=params)


def test_a_block_slides_to_rest():
    """Both corners at once; friction is shared by them."""
    found = body([0.0, 0.1, 0.0], [1.0, 0.0, 0.0], 0.4)
    assert found.events.t == pytest.approx([1 / (0.5 * G)], rel=1e-13)
    assert found.events.mode_after.tolist() == [[STICK, STICK]]
    np.testing.assert_allclose(found.q[-1], [1 / G, 0.1, 0], atol=1e-14)


def test_block_on_a_slope_stays_or_slides():
    stays = body([0, 0.1, 0], np.zeros(3), 1.0, slope=np.arctan(0.5) - 0.01)
    assert np.all(stays.mode == STICK) or np.all(np.sum(stays.mode == STICK, axis=1) >= 1)
    assert np.max(np.abs(stays.q - stays.q[0])) < 1e-13
    slope = np.arctan(0.5) + 0.1
    slides = body([0, 0.1, 0], np.zeros(3), 1.0, slope=slope)
    a = G * (np.sin(slope) - 0.5 * np.cos(slope))
    assert np.all(slides.mode == SLIP)
    np.testing.assert_allclose(slides.q[:, 0], a * slides.t**2 / 2, rtol=1e-11, atol=1e-14)


def tilted(b, c, angle):
    """The block on its left corner."""
    x = -b * np.cos(angle) + c * np.sin(angle)
    return [-x, b * np.sin(angle) + c * np.cos(angle), angle]


def test_rocking_block_loses_what_housner_says():
    """omega+/omega- = 31/34: the corner on which it stood lifts off and does not pull."""
    b, c = 0.1, 0.4
    start = tilted(b, c, np.arctan(b / c) / 2)
    found = body(start, np.zeros(3), 6.0, step=0.005, **block(b, c))
    first = found.events[0]
    assert first.t == pytest.approx(0.3123085751126223, abs=1e-8)
    assert first.v_before[2] == pytest.approx(-0.8934143073025635, abs=1e-8)
    assert first.v_after[2] / first.v_before[2] == pytest.approx(31 / 34, rel=1e-9)
    assert (first.mode_before.tolist(), first.mode_after.tolist()) == ([STICK, OPEN], [OPEN, STICK])
    masses = np.array([1.0, 1.0, (b * b + c * c) / 3])
    jump = masses * (first.v_after - first.v_before)
    np.testing.assert_allclose(jump + first.direction.T @ first.Lam, 0, atol=1e-12)
    # it rocks faster and faster, and stands at last
    assert found.mode[-1].tolist() == [STICK, STICK]
    np.testing.assert_allclose(found.v[-1], 0, atol=1e-14)


def test_two_corners_land_at_once():
    found = body([0, 0.6, 0], [0.5, 0, 0], 0.5)
    assert len(found.events) == 1
    assert found.events.t[0] == pytest.approx(np.sqrt(2 * 0.5 / G), rel=1e-13)
    # mu P_N > m v_x: both stick at once
    assert found.events.mode_after[0].tolist() == [STICK, STICK]


def test_painleves_rod():
    """Sliding towards its tip it digs in: an impulse though nothing collides. The other way nothing
    happens."""
    phi = np.arctan(2)
    rod = {"points": np.array([[-1.0, 1.0], [0.0, 0.0]]), "I": 1 / 3, "mu": 1.5}
    start = [0, np.sin(phi), phi]
    found = body(start, [-1, 0, 0], 0.02, step=0.001, **rod)
    event = found.events[0]
    assert event.t == 0.0
    np.testing.assert_allclose(-event.Lam[:2], [0.3, 0.4], rtol=1e-12)
    np.testing.assert_allclose(event.v_after, [-0.6, 0.3, 0.670820393249937], rtol=1e-12)
    assert event.mode_before[0] == SLIP
    found = body(start, [1, 0, 0], 0.02, step=0.001, **rod)
    assert len(found.events) == 0
    assert np.all(found.mode[:, 0] == SLIP)
