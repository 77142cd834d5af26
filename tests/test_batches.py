"""vmap over initial conditions gives what single runs give."""

import jax
import numpy as np

import nsdyn
from nsdyn import integrators, laws
from nsdyn.problems.three_r_pendulum import three_r_pendulum

RK4 = integrators.EventDriven(integrators.RK4())


def test_a_thousand_initial_conditions():
    problem = three_r_pendulum()
    q0 = problem.q0[None] + 0.2 * jax.random.normal(jax.random.key(1), (1000, 3))
    one = lambda q0: nsdyn.rollout(
        problem, RK4, step=1e-2, law=laws.MuellerTransition(), q0=q0, save_every=50
    )
    batch = jax.jit(jax.vmap(one))(q0)
    single = jax.lax.map(one, q0)
    assert np.all(np.asarray(batch.status) == 0) and np.all(np.asarray(batch.events.count) == 2)
    for name in ("q", "v", "lam", "energy"):
        a, b = np.asarray(getattr(batch, name)), np.asarray(getattr(single, name))
        assert np.abs(a - b).max() <= 1e-10 * np.abs(b).max(), name
    assert np.abs(batch.events.v_after[:, :2] - single.events.v_after[:, :2]).max() < 1e-9
