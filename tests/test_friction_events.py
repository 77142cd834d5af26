"""Friction in event-driven runs: coefficients that follow the speed of slip, friction in space, and
derivatives, against closed forms and independent solutions in scipy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import nsdyn
from nsdyn.integrators import RK4, DormandPrince, EventDriven
from nsdyn.problems.belt import belt, stribeck
from nsdyn.problems.friction_oscillator import friction_oscillator

OPEN, STICK, SLIP = 0, 1, 2
EVENTS = EventDriven(RK4())
EXACT = {"method": "DOP853", "rtol": 1e-13, "atol": 1e-14}

# Stribeck: mu = 1/(1 + 3 s) on a belt with the velocity 0.2, m = k = N = 1.


def stribeck_cycle():
    """From where the mass breaks loose, x = 1, with the velocity of the belt: how long it slides,
    and how long the belt then carries it to x = 1 again."""
    slope = lambda t, y: [y[1], -y[0] + 1 / (1 + 3 * (0.2 - y[1]))]
    caught = lambda t, y: y[1] - 0.2
    caught.terminal, caught.direction = True, 1
    found = solve_ivp(slope, (0, 20), [1.0, 0.2], events=caught, max_step=0.05, **EXACT)
    return found.t[-1], (1 - found.y[0, -1]) / 0.2


def belt_times(problem, step):
    """When it breaks loose and is caught, in turns."""
    found = nsdyn.simulate(problem, EVENTS, step=step, t_end=24.0, check=False)
    assert found.events.mode_after.ravel().tolist() == [SLIP, STICK] * 2
    return found.events.t


def test_stribeck_on_a_belt():
    """It sticks until x = 1; there friction falls with the speed as soon as it slides."""
    slides, rides = stribeck_cycle()
    exact = np.cumsum([5.0, slides, rides, slides])
    errors = [np.abs(belt_times(belt("stribeck"), h) - exact) for h in (0.04, 0.02, 0.01)]
    assert np.max([error[0] for error in errors]) < 1e-12
    orders = np.log2(np.divide(errors[:-1], errors[1:]))[:, 1:]
    assert orders == pytest.approx(4.0, abs=0.4)
    assert np.max(errors[-1]) < 2e-7


# The same with a contact that the weight closes: x and the height.


def carried_mass(q, p):
    return jnp.eye(2)


def spring_and_weight(q, v, t, p):
    return jnp.stack([-q[0], -jnp.ones(())])


def height(q, t, p):
    return q[1]


def over_belt(q, v, t, p):
    return v[0] - p["u"]


def test_stribeck_in_a_contact():
    """Whether a given force presses or the weight, makes no difference."""
    weighed = nsdyn.Problem(
        "weighed",
        nsdyn.System(mass=carried_mass, force=spring_and_weight),
        nsdyn.Contacts(height, over_belt, mu=nsdyn.SpeedDependent(stribeck)),
        q0=[0.0, 0.0],
        v0=[0.2, 0.0],
        t_end=24.0,
        params=belt("stribeck").params,
    )
    times = belt_times(weighed, 0.02)
    np.testing.assert_allclose(times, belt_times(belt("stribeck"), 0.02), rtol=1e-11)


# Friction in space: a particle on a turntable that presses it with the force N = 1.


def table_mass(q, p):
    return jnp.eye(2)


def no_force(q, v, t, p):
    return jnp.zeros(2)


def over_table(q, v, t, p):
    rate = p["w"] + p["a"] * t
    return v - rate * jnp.stack([-q[1], q[0]])


def pressing(q, v, t, p):
    return p["N"]


def friction(p):
    return p["mu"]


def over_plane(q, v, t, p):
    return v - jnp.stack([p["w"], p["a"]])


def slowing(speed, p):
    return p["mu"] / (1 + 3 * speed)


def turntable(slip=over_table, mu=friction, **values):
    params = {"mu": 0.2, "w": 1.0, "a": 0.0, "N": 1.0, **values}
    return nsdyn.Problem(
        "turntable",
        nsdyn.System(mass=table_mass, force=no_force),
        nsdyn.Friction(slip, pressing, mu),
        q0=[0.5, 0.0],
        v0=[0.0, 0.0],
        t_end=2.0,
        params=params,
    )


def sliding_on_turntable(mu, t):
    """The state at t of a particle that slides all the time; mu(s)."""

    def slope(_, y):
        slip = y[2:] - np.array([-y[1], y[0]])
        s = np.linalg.norm(slip)
        return [*y[2:], *(-mu(s) * slip / s)]

    return solve_ivp(slope, (0, t), [0.5, 0.0, 0.0, 0.0], **EXACT).y[:, -1]


@pytest.mark.parametrize(
    ("law", "mu"),
    [(friction, lambda s: 0.2), (nsdyn.SpeedDependent(slowing), lambda s: 0.2 / (1 + 3 * s))],
    ids=["Coulomb", "Stribeck"],
)
def test_a_slip_that_turns_on_a_turntable(law, mu):
    """Order 4 while it slides, though the direction turns."""
    exact = sliding_on_turntable(mu, 2.0)
    errors = []
    for step in (0.05, 0.025, 0.0125):
        found = nsdyn.simulate(turntable(mu=law), EVENTS, step=step, check=False)
        assert np.all(found.mode == SLIP)
        errors.append(np.max(np.abs(np.concatenate([found.q[-1], found.v[-1]]) - exact)))
    assert np.log2(np.divide(errors[:-1], errors[1:])) == pytest.approx(4.0, abs=0.3)
    assert errors[-1] < 1e-8


def test_a_particle_lands_on_a_belt_in_space():
    """The slip keeps its direction and ends after |s|/(mu N); from then on the belt carries it."""
    problem = turntable(over_plane, w=0.3, a=-0.4, N=2.0)
    found = nsdyn.simulate(problem, EVENTS, step=0.05)
    ends = 0.5 / (0.2 * 2.0)
    assert found.events.mode_after.tolist() == [[STICK]]
    np.testing.assert_allclose(found.events.t, [ends], rtol=1e-12)
    np.testing.assert_allclose(found.v[-1], [0.3, -0.4], atol=1e-14)
    place = np.array([0.5, 0.0]) + np.array([0.3, -0.4]) * (2.0 - ends / 2)
    np.testing.assert_allclose(found.q[-1], place, atol=1e-13)
    np.testing.assert_allclose(found.lam[0], [-2.0, -0.24, 0.32], atol=1e-13)


def breaks_loose(mu, a, r=0.5):
    """When a particle that turns with the table at the radius r, w = a t, leaves its cone:
    (a r)^2 + (a t)^4 r^2 = mu^2."""
    return ((mu / (a * r)) ** 2 - 1) ** 0.25 / a**0.5


def test_a_turntable_that_starts_carries_a_particle_along():
    """It sticks in both directions until the radial and the tangential share of friction together
    reach mu N."""
    found = nsdyn.simulate(turntable(w=0.0, a=0.3), EVENTS, step=0.02, t_end=4.0)
    begins = breaks_loose(0.2, 0.3)
    assert found.events.mode_after.tolist() == [[SLIP]]
    np.testing.assert_allclose(found.events.t, [begins], atol=1e-9)
    sticks = found.t < begins
    turned = 0.15 * found.t[sticks] ** 2
    circle = 0.5 * np.stack([np.cos(turned), np.sin(turned)], axis=1)
    np.testing.assert_allclose(found.q[sticks], circle, atol=1e-9)
    forces = -found.lam[~sticks]
    np.testing.assert_allclose(np.linalg.norm(forces[:, 1:], axis=1), 0.2, rtol=1e-9)
    slips = found.v - 0.3 * found.t[:, None] * np.stack([-found.q[:, 1], found.q[:, 0]], axis=1)
    assert np.all(np.sum(forces[:, 1:] * slips[~sticks], axis=1) < 0)


def test_error_control_agrees_on_a_turntable():
    integrator = EventDriven(DormandPrince(rtol=1e-10, atol=1e-12))
    found = nsdyn.simulate(turntable(), integrator, step=0.1, check=False)
    exact = sliding_on_turntable(lambda s: 0.2, 2.0)
    np.testing.assert_allclose([*found.q[-1], *found.v[-1]], exact, atol=1e-8)


# Derivatives.


@pytest.mark.slow
def test_derivatives_of_the_place_of_rest():
    """x'' = -x - F sgn x' from (12, 6): R^2 = (12 + F)^2 + 36, and it rests at 15 F - R after seven
    turns."""
    problem = friction_oscillator()

    def rest(values):
        run = nsdyn.rollout(
            problem,
            EVENTS,
            step=0.05,
            q0=values[:1],
            v0=values[1:2],
            params={**problem.params, "mu": values[2]},
            max_events=12,
        )
        return run.q[-1, 0]

    values = jnp.array([12.0, 6.0, 1.0])
    R = np.sqrt(205)
    exact = [-13 / R, -6 / R, 15 - 13 / R]
    forward = jax.jit(jax.jacfwd(rest))(values)
    np.testing.assert_allclose(forward, exact, rtol=1e-5)
    np.testing.assert_allclose(jax.jit(jax.grad(rest))(values), forward, rtol=1e-10)
    plain = jax.jit(rest)
    for i, d in enumerate(1e-5 * np.eye(3)):
        difference = (plain(values + d) - plain(values - d)) / 2e-5
        assert difference == pytest.approx(float(forward[i]), rel=1e-6)
