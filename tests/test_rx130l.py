"""The 6R robot with scheduled locks: momenta, energy, the two halting places, and its motor
coordinates."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import Either, run

from nsdyn import problems
from nsdyn.integrators import RK4, EventDriven
from nsdyn.multibody.chain_dynamics import mass_matrix
from nsdyn.problems.geared_chain import mass, potential, tip_position
from nsdyn.problems.rx130l import RATIO

SCHEME = EventDriven(RK4())
UNLOCKED = (slice(1, 6), slice(2, 6), slice(3, 6))


def simulate(consistent=True, **parameters):
    """All tests share this program: parameters and the choice of the law are traced."""
    problem = problems.rx130l(**parameters)
    out = run(problem, SCHEME, law=Either(consistent), step=2e-3, max_events=4)
    assert int(out.status) == 0 and int(out.events.count) == 3
    return problem, jax.tree.map(np.asarray, out)


@pytest.fixture(scope="module")
def runs():
    return simulate(True), simulate(False)


def momenta(problem, events):
    M = [np.asarray(mass(q, problem.params)) for q in events.q[:3]]
    return [
        (m @ before, m @ after)
        for m, before, after in zip(M, events.v_before, events.v_after, strict=False)
    ]


def test_momenta_of_unlocked_joints_are_continuous(runs):
    consistent, inconsistent = (momenta(problem, out.events) for problem, out in runs)
    for (before, after), free in zip(consistent, UNLOCKED, strict=True):
        assert np.abs(before - after)[free].max() <= 1e-10 * np.abs(before).max()
    for k in (0, 1):  # without momentum balance they jump
        before, after = inconsistent[k]
        assert np.abs(before - after)[UNLOCKED[k]].max() > 0.04 * np.abs(before).max()


def test_joints_lock_in_order_and_stay_locked(runs):
    for _, out in runs:
        np.testing.assert_allclose(out.events.t[:3], [0.05, 0.10, 0.15], rtol=0, atol=1e-15)
        for joint, time in enumerate(out.events.t[:3]):
            locked = out.t >= time - 1e-12
            assert np.ptp(out.q[locked, joint]) < 1e-12
            assert np.abs(out.v[locked, joint]).max() < 1e-11  # of rates of hundreds


def test_energy_is_kept_between_locks_and_lost_at_them(runs):
    _, out = runs[0]
    kinetic = out.events.kinetic_before[0]
    for first, last in ((0.0, 0.05), (0.05, 0.10), (0.10, 0.15), (0.15, 0.2 + 1e-3)):
        energy = out.energy[(out.t >= first - 1e-12) & (out.t < last - 1e-12)]
        assert np.ptp(energy) < 1e-8 * kinetic
    assert (out.events.kinetic_after[:3] < 0.9 * out.events.kinetic_before[:3]).all()


def test_the_robot_halts_elsewhere(runs):
    (problem, out), (_, wrong) = runs
    arm = np.abs(out.q[-1] - wrong.q[-1])[:3] / RATIO
    assert arm[0] < 1e-12  # up to the first lock there is no difference
    assert arm[2] > np.radians(5)
    tips = [np.asarray(tip_position(x.q[-1], problem.params)) for x in (out, wrong)]
    assert np.linalg.norm(tips[0] - tips[1]) > 0.1  # metres


def test_motors_that_carry_the_weight():
    """Whole compensation keeps a robot at rest where it is; without it the arm falls."""
    rest = np.zeros(6)
    _, carried = simulate(compensation=1.0, rates=rest)
    _, fallen = simulate(compensation=0.0, rates=rest)
    assert np.abs(carried.q - carried.q[0]).max() < 1e-12
    assert np.abs(fallen.q - fallen.q[0]).max() > 1.0


def test_lock_times_are_parameters():
    _, out = simulate(locks=(0.031, 0.062, 0.18))
    np.testing.assert_allclose(out.events.t[:3], [0.031, 0.062, 0.18], rtol=0, atol=1e-15)


def test_motor_coordinates():
    """Kinetic energy, power and potential are those of the joints; a rotor counts as it is at the
    motor."""
    problem = problems.rx130l()
    p, q, v = problem.params, problem.q0 + 3.0, jnp.arange(1.0, 7.0)
    joint = mass_matrix(p["chain"], q / RATIO)
    np.testing.assert_allclose(v @ mass(q, p) @ v, (v / RATIO) @ joint @ (v / RATIO), rtol=1e-13)
    solve = problem.system.solver(q, p)
    np.testing.assert_allclose(solve(mass(q, p) @ v), v, rtol=1e-11)
    weight = -jax.grad(potential)(q, p)
    np.testing.assert_allclose(problem.system.force(q, 0 * v, 0.0, p), weight, atol=1e-12)
    assert float(mass(q, p)[5, 5]) == pytest.approx(3e-5, rel=1e-3)


def test_the_surrogate():
    """The scaled upper arm, and the reach that the catalogue gives: 0.625 + 0.925 + 0.110 m."""
    p = problems.rx130l().params
    arm = p["chain"].inertia[1]
    m, y, z = float(arm[0, 0]), 0.264164, 0.26341
    assert m == pytest.approx(38.84, abs=5e-3)
    assert [float(arm[i, i]) for i in (3, 4, 5)] == pytest.approx(
        [2.2925 + m * (y**2 + z**2), 2.4073 + m * z**2, 0.3683 + m * y**2], abs=5e-4
    )
    upright = np.asarray(tip_position(jnp.zeros(6), p))
    np.testing.assert_allclose(upright, [0, 0, 0.55 + 1.66], atol=1e-15)
    level = np.asarray(tip_position(RATIO * jnp.array([0, np.pi / 2, 0, 0, 0, 0]), p))
    np.testing.assert_allclose(level, [1.66, 0, 0.55], atol=1e-15)


def test_check_passes():
    assert problems.rx130l().check().ok
