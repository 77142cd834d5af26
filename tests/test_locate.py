"""Events on the long steps of error control, along the dense output, moved and turned: equations
(8) and (9) of `nsdyn.stepping.locate`, against the closed form of an oscillator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import BALL

import nsdyn
from nsdyn.driver.arguments import plain_values, setup
from nsdyn.driver.march import start
from nsdyn.integrators import DormandPrince, EventDriven
from nsdyn.stepping import guard_rates, locate
from nsdyn.stepping.detect import scan_guards

LEVEL = 0.3
LATE = np.arccos(LEVEL)  # the phase at which q = cos(phase) falls through LEVEL


def spring(q, v, t, p):
    return -q


def above(q, v, lam, t, p, mode, held):
    """Of no interest after its first zero."""
    return jnp.where(mode == 0, q - LEVEL, 1.0)


def count(fired, q, v, t, p, mode):
    return mode + 1


WATCHED = nsdyn.Transitions(rows=lambda q, t, p, mode, held: q[:0], guards=above, after=count)


def oscillator():
    """q = cos(t + phase)."""
    system = nsdyn.System(mass=BALL.mass, force=spring)
    return nsdyn.Problem("watched", system, WATCHED, q0=[1.0], v0=[0.0], t_end=3.0)


@pytest.mark.parametrize("order", [5, 8])
def test_times_of_events_are_as_accurate_as_the_tolerance(order):
    """Whatever part of a step it is at which the guard vanishes."""
    phases = np.random.default_rng(5).uniform(-1.2, LATE - 0.1, 40)
    begin = {"q0": np.cos(phases)[:, None], "v0": -np.sin(phases)[:, None]}
    for tolerance in (1e-4, 1e-7, 1e-10):
        method = EventDriven(DormandPrince(order, rtol=tolerance, atol=tolerance))
        found = nsdyn.sweep(oscillator(), method, step=3.0, **begin)
        assert found.ok.all() and np.all(found.events.count == 1)
        at = found.events.records
        assert np.abs(at.t[:, 0] - (LATE - phases)).max() < 10 * tolerance
        assert np.abs(at.v_before[:, 0, 0] + np.sin(LATE)).max() < 10 * tolerance
        # the guard itself vanishes to round-off
        assert np.abs(at.q[:, 0, 0] - LEVEL).max() < 1e-14


class Step:
    """One step of order 5, so long that its dense output is visibly wrong, across the event; and
    the search for the event when it has come to the fraction `tau` of the step before it."""

    def __init__(self, h=0.8, before=0.37):
        self.h, self.theta = h, before
        self.integrator = EventDriven(DormandPrince(5, rtol=1e12, atol=1e12))
        problem, phase = oscillator(), LATE - before * h
        values = plain_values(problem, None, np.array([np.cos(phase)]), np.array([-np.sin(phase)]))
        run = setup(problem, self.integrator, None, step=3.0)
        self.model, self.begin = start(run, values)
        self.p = values.params
        self._slid = jax.jit(self._slid_by, static_argnums=1)

    def slid(self, tau, allowed):
        """Where the search is then: theta, t, q and v; `allowed` is the error allowed in a step."""
        return [float(np.squeeze(x)) for x in self._slid(tau, allowed)]

    def _slid_by(self, tau, allowed):
        model, begin, h, p = self.model, self.begin, self.h, self.p
        end = self.integrator._smooth(model, begin, h, p)
        scan = scan_guards(model, begin, end, h, p, locate.INTERVALS_OF_LONG_STEPS)
        search = locate._begun(begin, locate._blank(model, begin), end, scan)
        search = search._replace(theta=self.theta - tau)
        stop = self.integrator._smooth(model, begin, search.theta * h, p)
        rates = guard_rates.rates(model, stop.point, stop.memory.a, stop.memory.lam, p)
        known = locate.Known(end, scan, lambda size: allowed + 0.0 * size, lambda point: point)
        moved, state = locate._slid(model, begin, search, stop, h * rates, h, p, known)
        return moved.theta, state.point.t, state.point.q, state.point.v

    def exact(self, tau):
        """The zero of q - LEVEL on the true motion through the step of this size, and v there."""
        theta, _, q, v = self.slid(tau, allowed=0.0)  # refused: the search stays where it is
        size, phase = np.hypot(q, v), np.arctan2(-v, q)
        t = theta * self.h + np.arccos(LEVEL / size) - phase
        return t, -np.sqrt(size**2 - LEVEL**2)


def test_the_turned_dense_output_leads_to_the_event_with_an_error_of_second_order():
    step = Step()
    errors = []
    for tau in (2e-3, 1e-3, 5e-4):
        theta, t, q, v = step.slid(tau, allowed=1.0)
        exact = step.exact(tau)
        assert abs(q - LEVEL) < 1e-14 and t == pytest.approx(theta * step.h, abs=1e-15)
        errors.append(np.abs(np.array([t, v]) - exact))
    errors = np.array(errors)
    assert np.all(np.log2(errors[:-1] / errors[1:]) > 1.8), errors
    assert errors[-1].max() < 1e-9


def test_a_turn_that_is_too_large_is_refused():
    """(9): what the turn contributes over tau is 0.01 of what is allowed, or less."""
    step, tau = Step(), 1e-3
    turn = dense_turn(step, tau)
    limit = tau * turn / locate.SMALL_PART
    for allowed, moves in ((1.1 * limit, True), (0.9 * limit, False)):
        theta, _, q, _ = step.slid(tau, float(allowed))
        assert (abs(theta - step.theta) < 1e-4) == moves, (allowed, theta)
        assert (abs(q - LEVEL) < 1e-14) == moves
        assert moves or theta == step.theta - tau


def dense_turn(step, tau):
    """How much the slope of the motion at the end of the shorter step differs from that of the
    dense output, over a step: by differences."""
    model, begin, h, p = step.model, step.begin, step.h, step.p
    end = step.integrator._smooth(model, begin, h, p)
    x, d = step.theta - tau, 1e-3

    def dense(x):
        point = locate.between(model, begin, end, h, p, x)[0]
        return np.concatenate([point.q, point.v])

    slope = (8 * (dense(x + d) - dense(x - d)) - (dense(x + 2 * d) - dense(x - 2 * d))) / (12 * d)
    stop = step.integrator._smooth(model, begin, x * h, p)
    return np.abs(h * np.concatenate([stop.point.v, stop.memory.a]) - slope).max()
