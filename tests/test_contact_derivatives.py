"""Derivatives and batches of event-driven runs with contacts: multipliers of limit cycles, a block
that slides to rest."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import DISC, G, along_disc, block, disc, friction, restitution

import nsdyn
from nsdyn.integrators import RK4, EventDriven
from nsdyn.problems.woodpecker import woodpecker

STICK, SLIP = 1, 2
EVENTS = EventDriven(RK4())


# The ball of `mechanisms`, above a table that vibrates: height, x, angle.


def above_table(q, t, p):
    return q[0] - 0.1 - p["A"] * jnp.sin(20 * jnp.pi * t)


VIBRATING = nsdyn.Problem(
    "ball",
    DISC,
    nsdyn.Contacts(above_table, along_disc, mu=friction, e=restitution),
    q0=[1.1, 0.0, 0.0],
    v0=[0.0, 0.0, 0.0],
    t_end=0.1,
    params={"mu": 0.0, "e": 0.5, "A": 0.0028},
)


def breaks_loose(events):
    """The events in which the lower edge, that held the toy, begins to slip."""
    before, after = (np.asarray(x)[:, 1] for x in (events.mode_before, events.mode_after))
    return np.flatnonzero((before == STICK) & (after == SLIP))


@pytest.mark.slow
def test_the_woodpecker_has_a_stable_limit_cycle():
    """Its period is 0.146 s. The state where the sleeve breaks loose has one free number, the rate
    of the bird; the derivative of its next value by this one is the multiplier of the cycle."""
    toy = woodpecker()
    found = nsdyn.simulate(toy, EVENTS, step=2e-4, t_end=8.0, max_events=800, check=False)
    loose = breaks_loose(found.events)
    assert np.diff(found.events.t[loose])[-1] == pytest.approx(0.146, abs=2e-4)
    rates = found.events.v_after[loose, 2]
    early = np.diff(rates)[2:8]
    observed = np.mean(early[1:] / early[:-1])
    sticks = int(np.flatnonzero(found.events.mode_after[: loose[-1], 1] == STICK)[-1])
    last = found.events[sticks]

    def cycle(rate):
        run = nsdyn.rollout(
            toy,
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


@pytest.mark.slow
def test_multipliers_of_a_ball_on_a_vibrating_table():
    """One impact in each period: det = e^2, trace = 1 + e^2 - (1 + e)^2 A w^2 sin(phase)/g.
    Forward, reverse and differences."""
    A, w = VIBRATING.params["A"], 20 * np.pi
    t = 0.006018360686459337  # of the impact
    v = -G * 0.05 + G * t
    y = A * np.sin(w * t) - v * t + G * t**2 / 2

    def period(state):
        run = nsdyn.rollout(
            VIBRATING,
            EVENTS,
            step=0.01,
            q0=jnp.array([0.1, 0.0, 0.0]).at[0].add(state[0]),
            v0=jnp.zeros(3).at[0].set(state[1]),
            max_events=4,
        )
        return jnp.array([run.q[-1, 0] - 0.1, run.v[-1, 0]])

    state = jnp.array([y, v])
    np.testing.assert_allclose(period(state), state, atol=1e-13)
    forward, reverse = (jax.jit(jac(period))(state) for jac in (jax.jacfwd, jax.jacrev))
    np.testing.assert_allclose(reverse, forward, rtol=1e-12, atol=1e-12)
    once = jax.jit(period)
    sides = [[once(state + s * d) for s in (2, 1, -1, -2)] for d in 1e-4 * np.eye(2)]
    differences = [(8 * (b - c) - (a - d)) / 12e-4 for a, b, c, d in sides]
    np.testing.assert_allclose(np.transpose(differences), forward, rtol=1e-6, atol=1e-6)
    exact = 0.156985438715218 + 0.474716306894329j
    for found, rtol in ((forward, 1e-10), (reverse, 1e-10), (np.array(differences).T, 1e-6)):
        multipliers = sorted(np.linalg.eigvals(found), key=np.imag)
        np.testing.assert_allclose(multipliers, [np.conj(exact), exact], rtol=rtol)


@pytest.mark.slow
def test_derivatives_of_a_block_that_slides_to_rest():
    """x = v0^2/(2 mu g): forward, reverse and differences."""

    start = block(t_end=0.4)

    def last(values):
        run = nsdyn.rollout(
            start,
            EVENTS,
            step=0.01,
            v0=jnp.zeros(3).at[0].set(values[0]),
            params={**start.params, "mu": values[1]},
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
    many = nsdyn.sweep(disc(), EVENTS, step=0.01, v0=v0, params=params, t_end=1.1)
    for i, start in enumerate(v0):
        one = nsdyn.simulate(
            disc(),
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
