"""Constraints that fade into each other: the corner as a smooth curve, on which nothing is lost."""

import jax.numpy as jnp
import numpy as np
import pytest

import nsdyn
from nsdyn import integrators
from nsdyn.errors import ProblemError

SLOPE, CORNER = 0.75, 0.5
METHOD = integrators.EventDriven(integrators.RK4())


def mass(q, p):
    return jnp.eye(2)


def force(q, v, t, p):
    return jnp.zeros(2)


def flat(q, t, p):
    return q[1]


def ramp(q, t, p):
    return q[1] - SLOPE * (q[0] - CORNER)


def past(q, p):
    return q[0] - CORNER


def before(q, p):
    return CORNER - q[0]


def both(q, t, p):
    return q


def problem(constraint):
    system = nsdyn.System(mass=mass, force=force)
    return nsdyn.Problem("corner", system, constraint, q0=[0.0, 0.0], v0=[1.0, 0.0], t_end=1.0)


def test_the_smoothed_corner_keeps_the_energy_that_the_hard_one_takes():
    """Without forces the speed on the smooth curve stays 1, whatever sigma is; at the hard corner
    the law leaves cos(atan(SLOPE)) = 0.8 of it."""
    hard = nsdyn.simulate(
        problem(nsdyn.Switching(modes=(flat, ramp), switches=(past,))), METHOD, step=0.01
    )
    assert np.linalg.norm(hard.v[-1]) == pytest.approx(0.8)
    for sigma in (40.0, 80.0):
        soft = nsdyn.Blended(modes=(flat, ramp), switches=(past,), sigma=sigma)
        run = nsdyn.simulate(problem(soft), METHOD, step=1e-3)
        assert len(run.events) == 0
        x, y = run.q[-1]
        assert np.linalg.norm(run.v[-1]) == pytest.approx(1.0, abs=1e-5)
        assert run.v[-1, 1] / run.v[-1, 0] == pytest.approx(SLOPE, rel=1e-4)  # up the ramp
        share = 0.5 * (1 + np.tanh(sigma * (x - CORNER)))
        assert y == pytest.approx(share * SLOPE * (x - CORNER), abs=1e-9)


def test_many_modes_are_blended_by_the_product_formula():
    two = nsdyn.Blended(modes=(flat, ramp), switches=(past,), sigma=5.0)
    many = nsdyn.Blended(modes=(flat, ramp), switches=(before, past), sigma=5.0)
    s = 0.5 * (1 + np.tanh(5.0 * 0.1))
    q = jnp.array([CORNER + 0.1, 0.0])
    np.testing.assert_allclose(two.weights(q, None), [1 - s, s])
    np.testing.assert_allclose(many.weights(q, None), [(1 - s) * (1 - s), s * s])
    np.testing.assert_allclose(two.rows(q, 0.0, None, 0, ()), [-s * SLOPE * 0.1])


def test_what_cannot_be_blended_is_refused():
    for arguments, words in (
        (((flat,), (past,), 1.0), "expected two modes"),
        (((flat, ramp), (past,), 0.0), "expected a positive number"),
    ):
        with pytest.raises(ProblemError, match=words):
            nsdyn.Blended(*arguments)
    uneven = problem(nsdyn.Blended((flat, both), (past,), 10.0))
    with pytest.raises(ProblemError, match="the same number of rows"):
        nsdyn.simulate(uneven, METHOD, step=0.1)
