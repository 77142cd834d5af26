"""Friction with a given normal force, coefficients that follow the speed of slip, energy: closed
forms and independent solutions in scipy; bad input."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mechanisms import DISC, along_disc, below_disc
from scipy.integrate import solve_ivp

import nsdyn
from nsdyn.integrators import NSGA, RK4, EventDriven, MoreauJean
from nsdyn.multibody import free_bodies, surfaces
from nsdyn.problems.belt import SYSTEM, belt, period, sliding, stribeck
from nsdyn.problems.friction_oscillator import friction_oscillator

OPEN, STICK, SLIP = 0, 1, 2


@pytest.mark.parametrize("integrator", [NSGA(), MoreauJean()], ids=["NSGA", "MoreauJean"])
def test_friction_oscillator_comes_to_rest(integrator):
    """Order 2 until it first turns; then the time of the turn has an error of O(h)."""
    from nsdyn.problems.friction_oscillator import REST_PLACE, REST_TIME, exact

    step = 0.01
    found = nsdyn.simulate(friction_oscillator(), integrator, step=step)
    before = np.argmin(np.abs(found.t - 0.4))
    assert found.q[before, 0] == pytest.approx(exact(0.4)[0], abs=20 * step**2)
    x = np.array([exact(t)[0] for t in found.t])
    assert np.max(np.abs(found.q[:, 0] - x)) < 8 * step
    assert found.q[-1, 0] == pytest.approx(REST_PLACE, abs=step)
    rests = found.t[np.flatnonzero(found.mode[:, 0] == SLIP)[-1]]
    assert rests == pytest.approx(REST_TIME, abs=2 * step)
    assert np.max(np.abs(found.v[found.t > REST_TIME + 2 * step])) < 1e-13
    np.testing.assert_allclose(found.lam[1:, 0], -1.0, rtol=1e-12)  # the given force
    slides = (found.mode[:-1, 0] == SLIP) & (found.mode[1:, 0] == SLIP) & (np.diff(found.t) > 0)
    same = slides & (found.v[:-1, 0] * found.v[1:, 0] > 0)
    np.testing.assert_allclose(np.abs(found.lam[1:, 1][same]), 1.0, rtol=1e-9)


@pytest.mark.slow
def test_friction_oscillator_of_siconos():
    """FrictionOscillator/FrictionOscillator.ref: the same digits as with a weight that presses."""
    found = nsdyn.simulate(
        friction_oscillator(), MoreauJean(projection=False), step=0.01, t_end=100.0
    )
    np.testing.assert_allclose(found.q[-1, 0], 0.6820441351954105, rtol=0, atol=1e-11)


def loose_at(found):
    """When the mass breaks loose."""
    mode = found.mode[:, 0]
    return found.t[1:][(mode[:-1] == STICK) & (mode[1:] == SLIP)]


@pytest.mark.parametrize("integrator", [NSGA(), MoreauJean()], ids=["NSGA", "MoreauJean"])
def test_period_on_a_belt(integrator):
    """Static and kinetic friction: sticks for 5 s, slips for 3.9026 s."""
    assert period() == pytest.approx(8.902605407814523, rel=1e-15)
    step = 5e-3
    found = nsdyn.simulate(belt(), integrator, step=step)
    times = loose_at(found)
    assert len(times) == 3
    np.testing.assert_allclose(np.diff(times), period(), atol=1.5 * step)
    late = found.q[found.t > times[0] - 1]
    assert np.max(late) == pytest.approx(1.03851648071345, abs=step)
    assert np.min(late) == pytest.approx(-0.0385164807134504, abs=step)


def stribeck_period():
    """From where the mass breaks loose, at x = 1, until it sticks again, and the ride to x = 1."""
    slope = lambda t, y: [y[1], -y[0] + 1 / (1 + 3 * abs(y[1] - 0.2))]
    meets = lambda t, y: y[1] - 0.2
    meets.terminal, meets.direction = True, 1
    start = [1.0 + 1e-12, 0.2 - 1e-6]  # an unstable state of rest
    found = solve_ivp(slope, (0, 20), start, events=meets, rtol=1e-11, atol=1e-13)
    return found.t[-1], (1 - found.y[0, -1]) / 0.2


def test_stribeck_on_a_belt():
    """It sticks until x = 1, where mu(0) N = 1 holds no more, slides back, and sticks again. How
    long it takes to break loose depends on round-off, the ride does not."""
    found = nsdyn.simulate(belt("stribeck"), NSGA(), step=5e-3, t_end=40.0)
    times = loose_at(found)
    mode = found.mode[:, 0]
    caught = found.t[1:][(mode[:-1] == SLIP) & (mode[1:] == STICK)]
    caught = caught[caught > times[0]]
    _, ride = stribeck_period()
    np.testing.assert_allclose(times[1:] - caught[: len(times) - 1], ride, atol=3e-2)


# A normal force that changes and a coefficient that follows the speed, while it slides.


def pressing(q, v, t, p):
    return 1.0 + 0.3 * q[0] + 0.1 * v[0] + 0.2 * jnp.sin(t)


FALLING = nsdyn.Problem(
    "falling friction",
    SYSTEM,
    nsdyn.Friction(sliding, pressing, nsdyn.SpeedDependent(stribeck)),
    q0=[0.5],
    v0=[1.5],
    t_end=0.5,
    params=belt("stribeck").params,
)


@pytest.mark.parametrize(
    ("integrator", "order"), [(NSGA(), 2.0), (MoreauJean(), 1.0)], ids=["NSGA", "MoreauJean"]
)
def test_orders_while_force_and_coefficient_change(integrator, order):
    def slope(t, y):
        N = 1 + 0.3 * y[0] + 0.1 * y[1] + 0.2 * np.sin(t)
        s = y[1] - 0.2
        return [y[1], -y[0] - N / (1 + 3 * abs(s)) * np.sign(s)]

    exact = solve_ivp(slope, (0, 0.5), [0.5, 1.5], method="DOP853", rtol=1e-12, atol=1e-14).y[:, -1]
    errors = []
    for step in (0.02, 0.01):
        found = nsdyn.simulate(FALLING, integrator, step=step, check=False)
        assert np.all(found.mode[1:] == SLIP)
        errors.append(np.abs([found.q[-1, 0] - exact[0], found.v[-1, 0] - exact[1]]))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.15)


# Friction takes energy: a particle on an inclined plane that begins to slide across it.


def particle_mass(q, p):
    return jnp.eye(3)


def downhill(q, v, t, p):
    return jnp.stack([p["f"], jnp.zeros(()), jnp.full((), -9.81)])


def above(q, t, p):
    return q[2]


def along(q, v, t, p):
    return v[:2]


def coefficient(p):
    return p["mu"]


PARTICLE = nsdyn.Problem(
    "particle",
    nsdyn.System(mass=particle_mass, force=downhill),
    nsdyn.Contacts(above, along, mu=coefficient),
    q0=np.zeros(3),
    v0=[1.0, 0.0, 0.0],
    t_end=0.6,
    params={"f": 1.0, "mu": 0.1},
)


@settings(max_examples=20, deadline=None)
@given(st.floats(0.0, 8.0), st.floats(0.01, 0.5), st.floats(0.05, 3.0), st.floats(-3.1, 3.1))
def test_friction_takes_energy(f, mu, speed, angle):
    """NSGA with friction opposite to the mean slip: while it slides the impulse P_T of a step does
    the work P_T.(v_0 + v_1)/2 <= 0, however far the slip turns, up to a right angle."""
    step = 0.02
    found = nsdyn.simulate(
        PARTICLE,
        NSGA(friction="mean"),
        step=step,
        v0=[speed * np.cos(angle), speed * np.sin(angle), 0.0],
        params={"f": f, "mu": mu},
        check=False,
    )
    v0, v1 = found.v[:-1, :2], found.v[1:, :2]
    P = v1 - v0 - step * np.array([f, 0.0])  # the force is constant
    work = np.sum(P * (v0 + v1), axis=1) / 2
    slides = (found.mode[:-1, 0] == SLIP) & (found.mode[1:, 0] == SLIP)
    slides &= np.sum(v0 * v1, axis=1) > 0
    assert np.max(work[slides], initial=-1.0) <= 1e-12
    assert np.sum(work) <= 1e-12
    assert np.max(np.linalg.norm(P, axis=1)) <= step * mu * 9.81 * (1 + 1e-9)


# Bad input.


SCHEMES = (MoreauJean(), NSGA(), EventDriven(RK4()))


def bad(text, constraint):
    def run(integrator):
        start = {"q0": [0.1, 0, 0], "v0": np.zeros(3), "t_end": 1.0}
        nsdyn.simulate(nsdyn.Problem("bad", DISC, constraint(), **start), integrator, step=0.1)

    for integrator in SCHEMES:
        with pytest.raises(nsdyn.ProblemError, match=text):
            run(integrator)


def two(q, v, t, p):
    return v[:2]


def one(q, v, t, p):
    return 1.0


def one_force(q, v, t, p):
    return jnp.ones(1)


def three_forces(q, v, t, p):
    return jnp.ones(3)


def four_slips(q, v, t, p):
    return jnp.ones((1, 4)) * v[0]


def no_force(q, v, t, p):
    return jnp.log(q[0] - 1.0)


def table_of_forces(q, v, t, p):
    return jnp.ones((2, 2))


def scheduled(p):
    return jnp.full(2, 0.1)


def squared(q, v, t, p):
    return v[1] ** 2


def negative(speed, p):
    return 0.1 - speed


def three(speed, p):
    return jnp.ones(3)


def test_bad_input_is_named_before_the_run():
    F, C, S = nsdyn.Friction, nsdyn.Contacts, nsdyn.SpeedDependent
    bad(r"Friction\(mu=.*at least 0, found -1", lambda: F(along_disc, one, -1.0))
    bad(r"Friction\(slip=.*\(2,\).*as normal has 3 entries", lambda: F(two, three_forces, 0.1))
    bad(r"Friction\(slip=.*\(2,\), expected \(1,\)", lambda: F(two, one_force, 0.1))
    bad(r"Friction\(slip=.*expected 1 \(plane\), 2", lambda: F(four_slips, one_force, 0.1))
    bad(r"Friction\(normal=.*expected a vector", lambda: F(two, table_of_forces, 0.1))
    bad(r"Friction\(normal=.*finite numbers at q0, v0, found nan", lambda: F(two, no_force, 0.1))
    bad(r"Friction\(mu=.*shape \(2,\)", lambda: F(along_disc, one, scheduled))
    bad(r"Friction\(slip=.*affine in v", lambda: F(squared, one, 0.1))
    bad(r"Friction\(normal=.*expected a function normal\(q, v", lambda: F(two, 3.0, 0.1))
    bad(r"Friction\(mu=.*one number or 1", lambda: F(along_disc, one, [0.1, 0.2]))
    bad(r"SpeedDependent\(function=", lambda: S(0.3))
    bad(r"Contacts\(mu=.*at least 0, found -", lambda: C(below_disc, along_disc, S(negative)))
    bad(r"Contacts\(mu=.*found shape \(3,\)", lambda: C(below_disc, along_disc, S(three)))
    bad(r"Contacts\(names=.*expected 1 names", lambda: C(below_disc, names=("a", "b")))
    bad(r"Contacts\(mu=.*expected slip", lambda: C(below_disc, mu=S(negative)))
    with pytest.raises(nsdyn.ProblemError, match="does not resolve"):
        nsdyn.simulate(friction_oscillator(), EventDriven(RK4("minimal")), step=0.1)


@pytest.mark.parametrize(
    ("places", "text"),
    [
        (
            [[0, 0, 0.3], [0.25, 0, -0.2]],
            r"contact 1 \(body 0 and body 1 at \(0, 0, 0.5\)\) overlaps by 0.05 at the start",
        ),
        (
            [[0, 0, 0.08], [1, 0, 0]],
            r"\(body 0 and the plane with the normal \(0, 0, 1\)\) overlaps by 0.02",
        ),
    ],
    ids=["balls", "floor"],
)
def test_bodies_that_overlap_are_named(places, text):
    """By how much, and which pair."""
    pairs = [
        (surfaces.Ball(0, 0.1), surfaces.Plane()),
        (surfaces.Ball(0, 0.1), surfaces.Ball(1, 0.2, (0.0, 0.0, 0.5))),
    ]
    problem = nsdyn.Problem(
        "overlap",
        free_bodies.SYSTEM,
        surfaces.contacts(pairs),
        q0=free_bodies.configuration(places),
        v0=np.zeros(12),
        t_end=1.0,
        params={"m": np.ones(2), "J": np.ones((2, 3)), "g": np.zeros(3)},
    )
    for integrator in SCHEMES:
        with pytest.raises(nsdyn.ProblemError, match=text):
            nsdyn.simulate(problem, integrator, step=0.1)
