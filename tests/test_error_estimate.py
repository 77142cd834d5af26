"""The estimated error of a run with a fixed step against its true error, and advice for steps that
are far too long."""

import warnings

import numpy as np
import pytest
from mechanisms import pegged_swing
from references.pegged_swing import swing_reference
from test_coarse import OSCILLATOR

import nsdyn
from nsdyn import problems
from nsdyn.integrators import NSGA, RK4, DormandPrince, EventDriven

METHOD = EventDriven(RK4())


def rms(x):
    return np.sqrt(np.mean(x**2, axis=0))


@pytest.mark.parametrize("options", [{}, {"save_every": 4}, {"save_at": 0.5 + 0.03 * np.arange(8)}])
def test_the_estimate_is_the_true_error(options):
    """Across an event, for every variable, and for the time of the event."""
    found = nsdyn.error_estimate(pegged_swing(), METHOD, step=0.01, **options)
    run = found.solution
    after = run.t > 0.48
    t_event, q, v = swing_reference(run.t[after])
    for estimate, true in ((found.q, run.q[after] - q), (found.v, run.v[after] - v)):
        assert estimate.shape == run.q.shape
        assert np.allclose(rms(estimate[after]), rms(true), rtol=0.1)
    assert np.allclose(found.event_times, np.abs(run.events.t - t_event), rtol=0.1)
    for name in ("q", "v", "event_times"):
        assert np.all(np.abs(found.orders[name] - 4) < 0.4), found.orders
    assert "observed order 3." in str(found) or "observed order 4." in str(found)


def test_the_run_itself_is_that_of_simulate():
    found = nsdyn.error_estimate(pegged_swing(), METHOD, step=0.03).solution
    same = nsdyn.simulate(pegged_swing(), METHOD, step=0.03)
    np.testing.assert_array_equal(found.q, same.q)


def test_a_scheme_of_low_order():
    """Events at the ends of steps: velocities jump at other samples, and orders are about one."""
    found = nsdyn.error_estimate(pegged_swing(), NSGA(), step=0.004)
    fine = nsdyn.simulate(pegged_swing(), METHOD, step=0.004)
    true = rms(found.solution.q - fine.q)
    assert np.all(rms(found.q) > 0.4 * true) and np.all(rms(found.q) < 2.5 * true)


def test_variables_without_an_error_have_no_order():
    """Free flight is a parabola, which the method follows exactly."""
    ball = nsdyn.Problem(
        "flight",
        nsdyn.System(mass=OSCILLATOR.system.mass, force=lambda q, v, t, p: -9.81 + 0.0 * q),
        q0=[0.0],
        v0=[1.0],
        t_end=1.0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = nsdyn.error_estimate(ball, METHOD, step=0.1)
    assert np.all(found.q < 1e-13) and np.all(np.isnan(found.orders["q"]))
    assert len(found.event_times) == 0


def test_errors_that_do_not_fall_are_told():
    with pytest.warns(nsdyn.CoarseStepWarning, match=r"hardly fall.*smaller than 20"):
        nsdyn.error_estimate(OSCILLATOR, NSGA(), step=20.0, t_end=1e3, check=False)


def test_error_control_is_refused():
    with pytest.raises(nsdyn.ProblemError, match="smaller rtol"):
        nsdyn.error_estimate(OSCILLATOR, EventDriven(DormandPrince()), step=0.1)


# A run that stops because its step is too long says so.


def test_a_step_that_loses_the_constraints_is_told():
    with pytest.raises(nsdyn.SimulationError, match="CONSTRAINTS_LOST") as caught:
        nsdyn.simulate(problems.pendulum(), METHOD, step=1.0)
    assert "With step = 0.0625 the run gets past this point" in str(caught.value)
    assert "try a smaller step" in str(caught.value)


def shrinking(q, t, p):
    """A circle that is gone at t = 0.5."""
    return q[0] ** 2 + q[1] ** 2 - 1.0 + 2.0 * t


def test_what_no_step_can_help_is_not_blamed_on_the_step():
    problem = nsdyn.Problem(
        "shrinking",
        pegged_swing().system,
        nsdyn.Fixed(shrinking),
        q0=[1.0, 0.0],
        v0=[-1.0, 0.0],
        t_end=1.0,
        params={"m": 1.0, "g": 9.81},
    )
    with pytest.raises(nsdyn.SimulationError) as caught:
        nsdyn.simulate(problem, METHOD, step=0.01)
    assert "gets past this point" not in str(caught.value)
