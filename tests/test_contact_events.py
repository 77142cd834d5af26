"""Contacts with friction in event-driven runs: closed forms, orders, Painleve's rod, the toy
woodpecker, derivatives, batches, other constraints beside contacts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import G, along_disc, disc_mass, disc_weight, friction, restitution

import nsdyn
from nsdyn.integrators import RK4, DormandPrince, EventDriven, GeneralizedAlpha, RadauIIA
from nsdyn.multibody import free_bodies, surfaces
from nsdyn.problems.belt import belt, period
from nsdyn.problems.friction_oscillator import friction_oscillator
from nsdyn.problems.tippe_top import tippe_top
from nsdyn.studies.lib import sliding_top as reference

OPEN, STICK, SLIP = 0, 1, 2
EVENTS = EventDriven(RK4())

# The ball of `mechanisms`, above a table that vibrates: height, x, angle.


def above_table(q, t, p):
    return q[0] - 0.1 - p["A"] * jnp.sin(20 * jnp.pi * t)


BALL = nsdyn.Problem(
    "ball",
    nsdyn.System(mass=disc_mass, force=disc_weight),
    nsdyn.Contacts(above_table, along_disc, mu=friction, e=restitution),
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


def body(q0, v0, t_end, step=0.01, law=None, **values):
    start = {"q0": q0, "v0": v0, "params": {**BODY.params, **values}}
    return nsdyn.simulate(BODY, EVENTS, law=law, step=step, t_end=t_end, **start)


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
    # a law for which only contacts that approach collide has no impulse here
    with pytest.raises(nsdyn.SimulationError, match="Painleve") as error:
        body(start, [-1, 0, 0], 0.02, step=0.001, law=nsdyn.laws.Sequential(), **rod)
    assert error.value.status is nsdyn.Status.PAINLEVE
    assert error.value.t == 0.0


# Other constraints beside contacts: two carts joined by a rod, the second loaded.


def cart_mass(q, p):
    return jnp.diag(jnp.array([1.0, 2.0, 3.0]))


def pulled(q, v, t, p):
    return jnp.array([p["pull"], 0.0, -3 * G])


def joined(q, t, p):
    return q[1] - q[0] - 1.0


def floor(q, t, p):
    return q[2]


def trailer_slides(q, v, t, p):
    return v[1]


def test_contacts_live_with_joints_and_locks():
    """The load's weight makes friction. At t = 0.5 the first cart is locked while it slides."""
    problem = nsdyn.Problem(
        "carts",
        nsdyn.System(mass=cart_mass, force=pulled),
        (
            nsdyn.Fixed(joined),
            nsdyn.Contacts(floor, trailer_slides, mu=0.1),
            nsdyn.Scheduled(times=(0.5,), stages=(None, nsdyn.lock(0))),
        ),
        q0=[0.0, 1.0, 0.0],
        v0=np.zeros(3),
        t_end=1.0,
        params={"pull": 10.0},
    )
    found = nsdyn.simulate(problem, EVENTS, step=0.01)
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


# The toy woodpecker (Glocker; Leine, Glocker and van Campen 2001): height and angle of the sleeve,
# angle of the bird. The beak hits the pole, the sleeve jams at its lower or upper edge.


TOY = {
    "r_O": 0.0025,
    "r_M": 0.0031,
    "h_M": 0.0058,
    "l_M": 0.01,
    "l_G": 0.015,
    "h_S": 0.02,
    "l_S": 0.0201,
    "m_M": 0.0003,
    "m_S": 0.0045,
    "J_M": 5e-9,
    "J_S": 7e-7,
    "c": 0.0056,
}


def toy_mass(q, p):
    m, l, g = p["m_S"], p["l_M"], p["l_G"]
    return jnp.array(
        [
            [m + p["m_M"], m * l, m * g],
            [m * l, p["J_M"] + m * l**2, m * l * g],
            [m * g, m * l * g, p["J_S"] + m * g**2],
        ]
    )


def toy_force(q, v, t, p):
    weight = -G * jnp.array([p["m_S"] + p["m_M"], p["m_S"] * p["l_M"], p["m_S"] * p["l_G"]])
    return weight + p["c"] * (q[1] - q[2]) * jnp.array([0.0, -1.0, 1.0])


def toy_gaps(q, t, p):
    beak = p["l_M"] + p["l_G"] - p["l_S"] - p["r_O"] - p["h_S"] * q[2]
    play = p["r_M"] - p["r_O"]
    return jnp.array([beak, play + p["h_M"] * q[1], play - p["h_M"] * q[1]])


def toy_slips(q, v, t, p):
    edge = v[0] + p["r_M"] * v[1]
    beak = v[0] + p["l_M"] * v[1] + (p["l_G"] - p["l_S"]) * v[2]
    return jnp.array([beak, edge, edge])


WOODPECKER = nsdyn.Problem(
    "woodpecker",
    nsdyn.System(mass=toy_mass, force=toy_force),
    nsdyn.Contacts(toy_gaps, toy_slips, mu=0.3, e=np.array([0.5, 0.0, 0.0])),
    q0=[0.0, -0.1036, -0.2788],
    v0=[-0.3411, 0.0, -7.4583],
    t_end=1.0,
    params=TOY,
)


def breaks_loose(events):
    """The events in which the lower edge, that held the toy, begins to slip."""
    before, after = (np.asarray(x)[:, 1] for x in (events.mode_before, events.mode_after))
    return np.flatnonzero((before == STICK) & (after == SLIP))


@pytest.mark.slow
def test_the_woodpecker_has_a_stable_limit_cycle():
    """Its period is 0.146 s. The state where the sleeve breaks loose has one free number, the rate
    of the bird; the derivative of its next value by this one is the multiplier of the cycle."""
    found = nsdyn.simulate(WOODPECKER, EVENTS, step=2e-4, t_end=8.0, max_events=800, check=False)
    loose = breaks_loose(found.events)
    assert np.diff(found.events.t[loose])[-1] == pytest.approx(0.146, abs=2e-4)
    rates = found.events.v_after[loose, 2]
    early = np.diff(rates)[2:8]
    observed = np.mean(early[1:] / early[:-1])
    sticks = int(np.flatnonzero(found.events.mode_after[: loose[-1], 1] == STICK)[-1])
    last = found.events[sticks]

    def cycle(rate):
        run = nsdyn.rollout(
            WOODPECKER,
            EVENTS,
            step=2e-4,
            t_end=0.26,
            q0=last.q,
            v0=jnp.asarray(last.v_after).at[2].set(rate),
            max_events=24,
        )
        return run.events.v_after[:, 2], run.events

    rate = jnp.asarray(last.v_after[2])
    _, slopes, events = jax.jit(lambda x: jax.jvp(cycle, (x,), (jnp.ones(()),), has_aux=True))(rate)
    first, second = breaks_loose(events)[:2]
    multiplier = float(slopes[second] / slopes[first])
    assert multiplier == pytest.approx(-0.839, abs=5e-3)
    assert multiplier == pytest.approx(observed, abs=0.02)


# Derivatives and batches.


@pytest.mark.slow
def test_multipliers_of_a_ball_on_a_vibrating_table():
    """One impact in each period: det = e^2, trace = 1 + e^2 - (1 + e)^2 A w^2 sin(phase)/g."""
    A, e, w = 0.0028, 0.5, 20 * np.pi
    t = 0.006018360686459337  # of the impact
    v = -G * 0.05 + G * t
    y = A * np.sin(w * t) - v * t + G * t**2 / 2

    def period(state):
        run = nsdyn.rollout(
            BALL,
            EVENTS,
            step=0.01,
            t_end=0.1,
            q0=jnp.array([0.1, 0.0, 0.0]).at[0].add(state[0]),
            v0=jnp.zeros(3).at[0].set(state[1]),
            params={"mu": 0.0, "e": e, "A": A},
            max_events=4,
        )
        return jnp.array([run.q[-1, 0] - 0.1, run.v[-1, 0]])

    state = jnp.array([y, v])
    np.testing.assert_allclose(period(state), state, atol=1e-13)
    found = np.linalg.eigvals(jax.jit(jax.jacfwd(period))(state))
    exact = 0.156985438715218 + 0.474716306894329j
    np.testing.assert_allclose(sorted(found, key=np.imag), [np.conj(exact), exact], rtol=1e-10)


@pytest.mark.slow
def test_derivatives_of_a_block_that_slides_to_rest():
    """x = v0^2/(2 mu g): forward, reverse and differences."""

    def last(values):
        run = nsdyn.rollout(
            BODY,
            EVENTS,
            step=0.01,
            v0=jnp.zeros(3).at[0].set(values[0]),
            params={**BODY.params, "mu": values[1]},
            max_events=4,
        )
        return run.q[-1, 0]

    values = jnp.array([1.0, 0.5])
    exact = [1 / (0.5 * G), -1 / (2 * 0.25 * G)]
    forward = jax.jit(jax.jacfwd(last))(values)
    np.testing.assert_allclose(forward, exact, rtol=1e-11)
    np.testing.assert_allclose(jax.jit(jax.grad(last))(values), forward, rtol=1e-12)
    plain = jax.jit(last)
    for i, d in enumerate(1e-5 * np.eye(2)):
        difference = (plain(values + d) - plain(values - d)) / 2e-5
        assert difference == pytest.approx(exact[i], rel=1e-6)


@pytest.mark.slow
def test_a_sweep_equals_single_runs():
    v0 = np.array([[0.0, 0.0, 50.0], [0.0, 0.0, 10.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 5.0]])
    params = {"mu": np.array([0.2, 0.2, 0.4, 0.1]), "e": np.array([0.0, 0.0, 0.5, 0.9])}
    params["A"] = np.zeros(4)
    many = nsdyn.sweep(BALL, EVENTS, step=0.01, v0=v0, params=params, t_end=1.1)
    for i, start in enumerate(v0):
        one = nsdyn.simulate(
            BALL,
            EVENTS,
            step=0.01,
            v0=start,
            params={name: x[i] for name, x in params.items()},
            t_end=1.1,
        )
        np.testing.assert_allclose(many[i].q, one.q, rtol=1e-12, atol=1e-13)
        assert np.array_equal(many[i].mode, one.mode)
        count = len(one.events)
        assert many.events.count[i] == count > 0
        np.testing.assert_allclose(many.events.t[i, :count], one.events.t, rtol=1e-12)


def test_what_event_driven_runs_cannot_do_is_named():
    for method in (RK4("minimal"), GeneralizedAlpha(index=2)):
        with pytest.raises(nsdyn.ProblemError, match="does not resolve Contacts"):
            nsdyn.simulate(BALL, EventDriven(method), step=0.01)
