"""Impacts in event-driven runs: a ball that bounces, blocks that rock and land, Painleve's rod."""

import numpy as np
import pytest
from mechanisms import G, block, disc

import nsdyn
from nsdyn.integrators import RK4, EventDriven, GeneralizedAlpha

OPEN, STICK, SLIP = 0, 1, 2
EVENTS = EventDriven(RK4())


def ball(q0, v0, t_end, **values):
    return nsdyn.simulate(disc(q0, v0, t_end, **values), EVENTS, step=0.01)


def body(q0, v0, t_end, step=0.01, law=None, **values):
    return nsdyn.simulate(block(q0, v0, t_end, **values), EVENTS, law=law, step=step)


def test_a_ball_bounces():
    found = ball([1.1, 0, 0], [0, 0, 0], 7.6, e=0.9)
    times = [0.4515236409857309, 1.264266194760047, 1.995734493156931]
    np.testing.assert_allclose(found.events.t[:3], times, rtol=1e-13)
    assert found.events.t[19] == pytest.approx(7.481054503936919, rel=1e-12)
    first = found.events[0]
    assert first.v_after[0] == pytest.approx(-0.9 * first.v_before[0], rel=1e-13)
    assert first.Lam[0] == pytest.approx(-1.9 * G * times[0], rel=1e-12)  # pressing is negative
    assert first.mode_before.tolist() == first.mode_after.tolist() == [OPEN]


def test_a_bouncing_ball_comes_to_rest():
    """At last it would hop for less than a step; the hops before end at v (1 + e)/(g (1 - e))."""
    found = ball([1.1, 0, 0], [0, 0, 0], 2.1, e=0.5)
    assert found.mode[-1].tolist() == [STICK]
    assert found.events.t[-1] == pytest.approx(0.4515236409857309 * 3, abs=0.01)
    np.testing.assert_allclose(found.q[-1], [0.1, 0, 0], atol=1e-14)
    np.testing.assert_allclose(found.lam[-1], [-G, 0], atol=1e-12)


@pytest.mark.parametrize(
    ("omega", "vx", "after", "x", "modes"),
    [
        (50.0, -0.8404284621548701, 28.98928844612825, -0.8713428613035428, [[SLIP], [STICK]]),
        (10.0, -2 / 7, 20 / 7, -0.1918991608919659, [[STICK]]),
    ],
)
def test_a_rotating_ball_falls(omega, vx, after, x, modes):
    """Capobianco, Harsch, Eugster and Leine 2021, section 10.1."""
    found = ball([1.0, 0, 0], [0, 0, omega], 1.1)
    times = [0.4283529368781193, 0.7281199941750400][: len(modes)]
    np.testing.assert_allclose(found.events.t, times, rtol=1e-12)
    assert found.events.mode_after.tolist() == modes
    np.testing.assert_allclose(found.events.v_after[0], [0, vx, after], rtol=0, atol=1e-12)
    assert -found.events.Lam[0, 0] == pytest.approx(4.202142310774351, rel=1e-13)
    assert found.q[-1, 1] == pytest.approx(x, abs=1e-12)


def test_a_ball_that_starts_on_the_table_and_approaches_it():
    """The impact is at the start."""
    found = ball([0.1, 0, 0], [-1, 0, 0], 0.1, e=0.9)
    assert found.events.t[0] == 0.0
    assert found.events.v_after[0, 0] == pytest.approx(0.9, rel=1e-14)


def tilted(b, c, angle):
    """The block on its left corner."""
    x = -b * np.cos(angle) + c * np.sin(angle)
    return [-x, b * np.sin(angle) + c * np.cos(angle), angle]


def test_rocking_block_loses_what_housner_says():
    """omega+/omega- = 31/34: the corner on which it stood lifts off and does not pull."""
    b, c = 0.1, 0.4
    start = tilted(b, c, np.arctan(b / c) / 2)
    found = body(start, np.zeros(3), 6.0, step=0.005, b=b, c=c)
    first = found.events[0]
    assert first.t == pytest.approx(0.3123085751126223, abs=1e-8)
    assert first.v_before[2] == pytest.approx(-0.8934143073025635, abs=1e-8)
    assert first.v_after[2] / first.v_before[2] == pytest.approx(31 / 34, rel=1e-9)
    assert (first.mode_before.tolist(), first.mode_after.tolist()) == ([STICK, OPEN], [OPEN, STICK])
    masses = np.array([1.0, 1.0, (b * b + c * c) / 3])
    jump = masses * (first.v_after - first.v_before)
    np.testing.assert_allclose(jump + first.direction.T @ first.Lam, 0, atol=1e-12)
    # it rocks faster and faster, and stands at last
    assert found.mode[-1].tolist() == [STICK, STICK]
    np.testing.assert_allclose(found.v[-1], 0, atol=1e-14)


def test_two_corners_land_at_once():
    found = body([0, 0.6, 0], [0.5, 0, 0], 0.5)
    assert len(found.events) == 1
    assert found.events.t[0] == pytest.approx(np.sqrt(2 * 0.5 / G), rel=1e-13)
    # mu P_N > m v_x: both stick at once
    assert found.events.mode_after[0].tolist() == [STICK, STICK]


def test_painleves_rod():
    """Sliding towards its tip it digs in: an impulse though nothing collides. The other way nothing
    happens."""
    phi = np.arctan(2)
    rod = {"b": 1.0, "c": 0.0, "mu": 1.5}
    start = [0, np.sin(phi), phi]
    found = body(start, [-1, 0, 0], 0.02, step=0.001, **rod)
    event = found.events[0]
    assert event.t == 0.0
    np.testing.assert_allclose(-event.Lam[:2], [0.3, 0.4], rtol=1e-12)
    np.testing.assert_allclose(event.v_after, [-0.6, 0.3, 0.670820393249937], rtol=1e-12)
    assert event.mode_before[0] == SLIP
    found = body(start, [1, 0, 0], 0.02, step=0.001, **rod)
    assert len(found.events) == 0
    assert np.all(found.mode[:, 0] == SLIP)
    # a law for which only contacts that approach collide has no impulse here
    with pytest.raises(nsdyn.SimulationError, match="Painleve") as error:
        body(start, [-1, 0, 0], 0.02, step=0.001, law=nsdyn.laws.Sequential(), **rod)
    assert error.value.status is nsdyn.Status.PAINLEVE
    assert error.value.t == 0.0


def test_what_event_driven_runs_cannot_do_is_named():
    for method in (RK4("minimal"), GeneralizedAlpha(index=2)):
        with pytest.raises(nsdyn.ProblemError, match="does not resolve Contacts"):
            nsdyn.simulate(disc(), EventDriven(method), step=0.01)
