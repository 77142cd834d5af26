"""Derivatives and batches of the time-stepping schemes: through Newton's method, a switch, a
law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import pegged_swing
from test_derivatives import close, differences

import nsdyn
from nsdyn import laws, problems
from nsdyn.integrators import NSGA, EventDriven, GeneralizedAlpha

pytestmark = pytest.mark.slow


def track_end(x):
    """End state and event of NSGA, from slope, speed, mass, position of the law and spectral
    radius."""
    problem = problems.point_on_track(g=9.81, t_end=0.2)
    params = {**problem.params, "a": x[0], "my": x[2]}
    law, scheme = laws.IntermediateGradient(position=x[3]), NSGA(rho_inf=x[4])
    v0 = jnp.stack([x[1], 0.0])
    out = nsdyn.rollout(problem, scheme, step=0.01, law=law, params=params, v0=v0, max_events=2)
    return jnp.concatenate(
        [out.q[-1], out.v[-1], out.lam[-1], out.events.v_after[0], out.events.Lam[0]]
    )


TRACK = jnp.array([0.5, 4.3, 2.0, 0.7, 0.6])
track_run = jax.jit(track_end)


def test_a_switch_under_nsga():
    forward = jax.jit(jax.jacfwd(track_end))(TRACK)
    assert close(forward, differences(track_run, TRACK))
    weights = jnp.linspace(-1.0, 2.0, forward.shape[0])
    reverse = jax.jit(jax.grad(lambda x: jnp.vdot(weights, track_end(x))))(TRACK)
    assert close(reverse, weights @ forward, 1e-9)


def test_a_batch_is_its_single_runs():
    batch = TRACK[None] * (1 + 0.05 * jnp.sin(jnp.arange(12.0)))[:, None]
    together = jax.jit(jax.vmap(track_end))(batch)
    single = jnp.stack([track_run(x) for x in batch])
    assert np.abs(np.asarray(together - single)).max() < 1e-10 * np.abs(single).max()


def swing_end(x):
    """End state and event of event-driven generalized-alpha, whose event time moves with the
    parameters."""
    scheme = EventDriven(GeneralizedAlpha(index=3, rho_inf=0.7))
    out = nsdyn.rollout(
        pegged_swing(), scheme, step=0.01, params={"m": x[0], "g": x[1]}, max_events=2
    )
    return jnp.concatenate([out.q[-1], out.v[-1], out.events.t[:1], out.events.v_after[0]])


def test_a_located_switch_under_generalized_alpha():
    x = jnp.array([1.0, 9.81])
    found = jax.jit(jax.jacfwd(swing_end))(x)
    assert close(found, differences(jax.jit(swing_end), x))
    assert np.abs(found[4, 1]) > 0.01  # d(event time)/dg
