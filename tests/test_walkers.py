"""Walkers against energy balances, published gaits and finite differences."""

import jax
import numpy as np
import pytest
from mechanisms import run

from nsdyn import Status, integrators
from nsdyn.problems.rimless_wheel import FIRST, outline, rimless_wheel

RK4 = integrators.EventDriven(integrators.RK4())


# Rimless wheel


def wheel_run(**parameters):
    return run(rimless_wheel(**parameters), RK4, step=5e-3, t_end=32.0, save_every=16)


def omega(v):
    """Of a wheel with L = 1: the speed of its hub."""
    return np.hypot(v[..., 0], v[..., 1])


def test_steady_rolling_of_a_rimless_wheel():
    out = wheel_run()
    count, events = int(out.events.count), out.events.records
    assert int(out.status) == 0 and count > 30
    assert np.array_equal(events.mode_after[:count], FIRST + 1 + np.arange(count))
    ratio = omega(events.v_after[:count]) / omega(events.v_before[:count])
    assert np.abs(ratio - np.cos(np.pi / 4)).max() < 1e-12
    assert abs(omega(events.v_after[count - 1]) - 1.0954628396) < 1e-9
    # feet stand on the slope where geometry says, however many strikes there were
    assert abs(events.q[count - 1, 0] - (2 * count - 1) * np.sin(np.pi / 8)) < 1e-12


def test_a_slow_rimless_wheel_rocks_on_two_feet():
    out = wheel_run(omega0=0.5)
    events = out.events.records
    assert int(out.status) == Status.TOO_MANY_SWITCHES
    assert np.array_equal(events.mode_after[:4], FIRST - np.array([1, 0, 1, 0]))
    assert np.abs(omega(events.v_after[:4]) / omega(events.v_before[:4]) - np.cos(np.pi / 4)).max() < 1e-12


@pytest.mark.slow
def test_a_rimless_wheel_with_inertia():
    """(6) and (7) for other numbers, none of them 1."""
    I, m, L, slope, g, alpha = 0.3, 2.0, 0.8, 0.25, 5.0, np.pi / 6
    problem = rimless_wheel(spokes=6, m=m, L=L, I=I, slope=slope, g=g, omega0=3.0)
    assert problem.check().ok
    out = run(problem, RK4, step=5e-3, t_end=20.0, save_every=16)
    J, count = I + m * L**2, int(out.events.count)
    r = (I + m * L**2 * np.cos(2 * alpha)) / J
    before, after = (np.asarray(v)[:count, 2] for v in (out.events.v_before, out.events.v_after))
    assert int(out.status) == 0 and np.abs(after / before - r).max() < 1e-12
    gain = 4 * m * g * L * np.sin(slope) * np.sin(alpha) / J
    assert np.abs(before[1:] ** 2 - after[:-1] ** 2 - gain).max() < 1e-8
    assert abs(after[-1] - r * np.sqrt(gain / (1 - r**2))) < 1e-6


def test_rimless_wheel_is_sound_and_shares_functions():
    one = rimless_wheel()
    assert one.check().ok
    assert jax.tree.structure(one) == jax.tree.structure(rimless_wheel(L=0.5, slope=0.1))
    line = np.asarray(outline(one.q0, one.params, FIRST))
    assert line.shape == (16, 2) and np.allclose(line[1], 0.0) and np.allclose(line[::2], one.q0)
    assert np.allclose(line[3], [-2 * np.sin(np.pi / 8), 0.0])  # the foot that has just left
