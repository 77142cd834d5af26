"""Observed orders of event-driven RK4 across switches, against references that share no code with
nsdyn."""

import numpy as np
import pytest
from mechanisms import pegged_swing
from references.pegged_swing import swing_reference
from references.three_r import solve

import nsdyn
from nsdyn import integrators, laws
from nsdyn.problems.three_r_pendulum import three_r_pendulum

RK4 = integrators.EventDriven(integrators.RK4())


def order(errors, ratio=2.0):
    return np.log(errors[0] / errors[1]) / np.log(ratio)


# 0.8 and 1.3 s lie on the grids of 190 and 380 steps a second, and between the grid points of 192
# and 384
@pytest.fixture(scope="module", params=[190, 192], ids=["on the grid", "off the grid"])
def pendulum_runs(request):
    steps = (1 / request.param, 0.5 / request.param)
    return {
        h: nsdyn.simulate(three_r_pendulum(), RK4, step=h, law=laws.MuellerTransition())
        for h in steps
    }


def test_three_r_pendulum_across_both_locks(pendulum_runs):
    reference = solve()
    q, v = reference.at(2.0)
    errors_q = [np.abs(run.q[-1] - q).max() for run in pendulum_runs.values()]
    errors_v = [np.abs(run.v[-1] - v).max() for run in pendulum_runs.values()]
    assert errors_q[1] < 1e-5
    assert order(errors_q) >= 3.9 and order(errors_v) >= 3.9, (errors_q, errors_v)


def test_the_velocities_at_the_locks(pendulum_runs):
    reference = solve()
    runs = list(pendulum_runs.values())
    assert np.allclose(runs[1].events.t, [0.8, 1.3], rtol=0, atol=1e-15)
    for k, (_, q, before, after) in enumerate(reference.events):
        for name, exact in (("q", q), ("v_before", before), ("v_after", after)):
            errors = [np.abs(getattr(run.events, name)[k] - exact).max() for run in runs]
            assert order(errors) >= 3.8, (k, name, errors)


def test_state_triggered_switch_with_gravity():
    """Order 4 in q, v and in the switching time, which has to be solved for."""
    problem = pegged_swing()
    steps = (0.005, 0.0025)
    runs = [nsdyn.simulate(problem, RK4, step=h, save_every=round(0.02 / h)) for h in steps]
    after = runs[0].t > 0.5
    # the largest error over all rows after the switch: at a single instant an error may happen to
    # change its sign
    t_switch, q, v = swing_reference(runs[0].t[after])
    assert t_switch < 0.5
    assert [len(run.events) for run in runs] == [1, 1]
    for name, errors in {
        "time": [abs(run.events.t[0] - t_switch) for run in runs],
        "q": [np.abs(run.q[after] - q).max() for run in runs],
        "v": [np.abs(run.v[after] - v).max() for run in runs],
    }.items():
        assert order(errors) >= 3.9, (name, errors)
        assert errors[1] < 1e-6, (name, errors)
    # on the manifold of the new mode at both levels, by projection
    x, y = runs[1].q[-1]
    assert abs(x**2 + (y + 0.5) ** 2 - 0.25) < 1e-14
    assert abs(x * runs[1].v[-1][0] + (y + 0.5) * runs[1].v[-1][1]) < 1e-14
