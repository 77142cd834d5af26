"""Metrics against closed forms: errors around a late jump, graphs, energy, orders, phases,
profiles."""

import numpy as np
import pytest

from nsdyn.analysis import metrics
from nsdyn.analysis.metrics import Jumps, Motion

T, SPEED, LOSS = 2.0, 3.0, 0.4  # a particle that loses a part of its speed at t_jump


def slowed(t_jump, times, shift=0.0):
    """A particle of mass 2 on a line: v = SPEED, and from t_jump on (1 - LOSS) SPEED + shift."""
    late = times >= t_jump
    after = (1 - LOSS) * SPEED + shift
    v = np.where(late, after, SPEED)
    q = np.where(late, SPEED * t_jump + after * (times - t_jump), SPEED * times)
    one = lambda x: np.array([[float(x)]])
    kinetic = (np.array([SPEED**2]), np.array([after**2]))
    jumps = Jumps(np.array([t_jump]), one(SPEED), one(after), one(2 * (SPEED - after)), *kinetic)
    mode = late.astype(int)
    return Motion(times, q[:, None], v[:, None], 0 * v[:, None], mode, v**2, v**2, jumps)


TIMES = np.linspace(0.0, T, 101)


def test_errors_around_a_late_jump():
    """The jump is 0.05 late, the velocity after it wrong by 0.1: both show, each in its place."""
    found = metrics.errors(slowed(1.05, TIMES, 0.1), slowed(1.0, TIMES))
    after = (1 - LOSS) * SPEED
    late = 0.05 * SPEED * LOSS  # of the position, by being late
    assert found["error_q"] == pytest.approx(late + 0.1 * (T - 1.05))
    assert found["error_v"] == pytest.approx(0.1)
    assert found["rows_left_out"] == 3  # 1.00, 1.02, 1.04
    assert found["error_energy"] == pytest.approx(((after + 0.1) ** 2 - after**2) / SPEED**2)
    assert found["error_t_event"] == pytest.approx(0.05)
    assert found["error_Lam"] == pytest.approx(0.2)
    assert found["error_lost"] == pytest.approx((after + 0.1) ** 2 - after**2)
    assert found["events_too_many"] == 0
    assert metrics.errors(slowed(1.0, TIMES), slowed(1.0, TIMES))["graph_v"] < 1e-15


def test_events_that_are_missing_have_no_errors():
    without = Jumps(*(x[:0] for x in slowed(1.0, TIMES).jumps))
    found = metrics.event_errors(without, slowed(1.0, TIMES).jumps)
    assert found["events_too_many"] == -1
    assert np.isnan(found["error_t_event"]) and np.isnan(found["error_Lam"])


def test_the_graph_of_a_late_jump_is_near():
    """Its distance is the delay, in units of the run, where samples are dense: v itself is wrong by
    the whole jump there. Samples, not the lines between them, make the graph, so their spacing is
    what it can be off."""
    times = np.linspace(0.0, T, 4001)
    found = metrics.velocity_graph_distance(slowed(1.05, times), slowed(1.0, times))
    assert found == pytest.approx(0.05 / T, rel=2e-2)


def test_graph_distance():
    jump = lambda t: np.array([[[t, 0.0], [t, 1.0]]])
    assert abs(metrics.graph_distance(jump(0.3), jump(0.31)) - 0.01) < 1e-15
    point = np.array([[[0.3, 1.2], [0.3, 1.2]]])
    both = np.concatenate([jump(0.3), point])
    assert abs(metrics.graph_distance(jump(0.3), both) - 0.2) < 1e-15
    assert metrics.graph_distance(jump(0.3), jump(0.3)) == 0.0


def test_energy_ledger():
    motion = slowed(1.0, TIMES)
    found = metrics.energy_ledger(motion._replace(energy=motion.energy + 0.01 * motion.t))
    np.testing.assert_allclose(found.lost, [SPEED**2 * (1 - (1 - LOSS) ** 2)])
    assert found.drift == pytest.approx(0.01 * T)


def test_the_order_is_a_fit_with_its_spread():
    h = 0.1 * 0.5 ** np.arange(6)
    exact = metrics.observed_order(h, 7.0 * h**2)
    assert exact.order == pytest.approx(2.0) and exact.spread < 1e-12 and exact.points == 6
    # errors that lie alternately above and below the line by a factor
    wavy = metrics.observed_order(h, 7.0 * h**2 * np.array([1.1, 1 / 1.1] * 3))
    x = np.log(h) - np.mean(np.log(h))
    noise = np.log(1.1) * np.array([1, -1] * 3)
    slope = np.sum(x * noise) / np.sum(x**2)
    rest = np.sum((noise - slope * x) ** 2)
    assert wavy.order == pytest.approx(2 + slope)
    assert wavy.spread == pytest.approx(np.sqrt(rest / 4 / np.sum(x**2)))
    assert str(wavy) == f"{2 + slope:.2f} ± {wavy.spread:.2f}"


def test_an_order_is_not_seen_in_round_off_nor_in_failures():
    h = 0.1 * 0.5 ** np.arange(4)
    assert metrics.observed_order(h, [1e-3, 1e-3 / 16, 1e-14, np.nan]).order == pytest.approx(4.0)
    assert str(metrics.observed_order(h, [1e-13] * 4)) == "-"


def test_over_phases():
    values = np.array([[1.0, 3.0, 2.0, 9.0], [1.0, 1.0, 1.0, 1.0]])
    ok = np.array([[True, True, True, False], [False] * 4])
    found = metrics.over_phases(values, ok)
    np.testing.assert_array_equal(found.worst, [3.0, np.nan])
    np.testing.assert_array_equal(found.median, [2.0, np.nan])
    np.testing.assert_array_equal(found.failed, [0.25, 1.0])


def test_performance_profile():
    """Two solvers, four problems: one is best on two and fails on one, nobody solves the last."""
    costs = np.array([[1.0, 2.0], [1.0, 4.0], [np.nan, 5.0], [np.nan, np.nan]])
    found = metrics.performance_profile(costs)
    np.testing.assert_array_equal(found.tau, [1.0, 2.0, 4.0])
    np.testing.assert_array_equal(found.share, [[0.5, 0.5, 0.5], [0.25, 0.5, 0.75]])
