"""Derivatives of rollouts through switches, against central differences of fourth order."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import pegged_swing

import nsdyn
from nsdyn import integrators, laws
from nsdyn.problems.three_r_pendulum import three_r_pendulum

RK4 = integrators.EventDriven(integrators.RK4())


def differences(function, x, h=1e-4):
    columns = []
    for i in range(x.shape[0]):
        d = jnp.zeros_like(x).at[i].set(h * max(1.0, abs(float(x[i]))))
        slope = 8 * (function(x + d) - function(x - d)) - (
            function(x + 2 * d) - function(x - 2 * d)
        )
        columns.append(slope / (12 * jnp.sum(d)))
    return jnp.stack(columns, axis=-1)


def close(a, b, tolerance=1e-6):
    """Entry by entry, not relative to the largest one. Below 1e-3 the bound is absolute: the
    differences of numbers of order ten over steps of 1e-4 carry some 1e-11 of round-off, also where
    the derivative vanishes."""
    return np.all(np.abs(a - b) <= tolerance * np.maximum(np.abs(b), 1e-3))


def pendulum_end(x):
    """End state, second event and its time, from masses, lock times and initial angles."""
    problem = three_r_pendulum()
    params = {**problem.params, "m": x[0], "locks": x[1:3]}
    out = nsdyn.rollout(
        problem,
        RK4,
        step=1e-3,
        law=laws.MuellerTransition(),
        params=params,
        q0=x[3:],
        save_every=100,
    )
    return jnp.concatenate(
        [out.q[-1], out.v[-1], out.events.v_after[1], out.events.t[:2], out.energy[-1:] / 1e3]
    )


compiled_end = jax.jit(pendulum_end)
OFF_GRID = jnp.array([108.0, 0.8037, 1.2951, 0.5, 0.55, 0.6])
ON_GRID = OFF_GRID.at[1:3].set(jnp.array([0.8, 1.3]))


@pytest.fixture(scope="module")
def jacobian():
    return jax.jit(jax.jacfwd(pendulum_end))


@pytest.mark.slow
@pytest.mark.parametrize("x", [OFF_GRID, ON_GRID], ids=["off the grid", "on the grid"])
def test_masses_angles_and_lock_times_forward(jacobian, x):
    """A tie between a lock time and a grid time must not halve the derivative."""
    assert close(jacobian(x), differences(compiled_end, x))


@pytest.mark.slow
def test_masses_angles_and_lock_times_reverse(jacobian):
    weights = jnp.linspace(-1.0, 2.0, 12)
    gradient = jax.jit(jax.grad(lambda x: jnp.vdot(weights, pendulum_end(x))))(OFF_GRID)
    assert close(gradient, weights @ jacobian(OFF_GRID), 1e-10)


def swing_end(x):
    problem = pegged_swing()
    out = nsdyn.rollout(problem, RK4, step=0.01, params={"m": x[0], "g": x[1]}, q0=x[2:4], v0=x[4:])
    return jnp.concatenate(
        [out.q[-1], out.v[-1], out.events.t[:1], out.events.v_after[0], out.lam[-1]]
    )


def test_across_a_state_triggered_switch():
    """The switching time moves with every parameter; its derivative is part of all others."""
    x = jnp.array([1.3, 9.81, 0.8, -0.6, 0.06, 0.08])
    # motions along the circle only: the start must stay consistent
    along = jnp.array([[1, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0.6, 0.8]], float)
    end = lambda s: swing_end(x + s @ along)
    s = jnp.zeros(3)
    forward = jax.jit(jax.jacfwd(end))(s)
    assert abs(forward[4, 1]) > 1e-3  # the event time does depend on g
    assert close(forward, differences(jax.jit(end), s))


@pytest.mark.slow
def test_across_a_state_triggered_switch_in_reverse():
    x = jnp.array([1.3, 9.81, 0.8, -0.6, 0.06, 0.08])
    forward, reverse = (jax.jit(jacobian(swing_end))(x) for jacobian in (jax.jacfwd, jax.jacrev))
    assert np.all(np.abs(reverse - forward) <= 1e-10 * np.maximum(np.abs(forward), 1e-3))
