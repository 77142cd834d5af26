"""The 3R pendulum: what momentum-consistent locking must keep, in all formulations and forms."""

import numpy as np
import pytest

import nsdyn
from nsdyn import integrators, laws
from nsdyn.problems.three_r_pendulum import mass, three_r_pendulum


def run(law, formulation="lagrange", step=1e-3, **keywords):
    method = integrators.EventDriven(integrators.RK4(formulation))
    return nsdyn.simulate(three_r_pendulum(), method, step=step, law=law, **keywords)


@pytest.fixture(scope="module")
def locked():
    return run(laws.MuellerTransition())


def test_momenta_of_unlocked_joints_are_continuous(locked):
    params = three_r_pendulum().params
    for event, unlocked in zip(locked.events, ([0, 2], [0]), strict=True):
        M = np.asarray(mass(event.q, params))
        before, after = M @ event.v_before, M @ event.v_after
        assert np.abs(before[unlocked] - after[unlocked]).max() <= 1e-12 * np.abs(before).max()


def test_energy_is_constant_between_switches(locked):
    scale = np.abs(locked.energy).max()
    for first, last in ((0.0, 0.8), (0.8, 1.3), (1.3, 2.0)):
        # a row at a switching instant holds the state after it
        between = (locked.t >= first - 1e-12) & (locked.t < last - 1e-12)
        energy = locked.energy[between]
        assert np.ptp(energy) <= 1e-8 * scale, (first, np.ptp(energy) / scale)
    jumps = [event.kinetic_after - event.kinetic_before for event in locked.events]
    assert all(jump < -100 for jump in jumps)


def test_locked_joints_stay_locked(locked):
    for joint, time in ((1, 0.8), (2, 1.3)):
        after = locked.t >= time - 1e-12
        assert np.ptp(locked.q[after, joint]) <= 1e-12
        assert np.abs(locked.v[after, joint]).max() <= 1e-12


def test_rows_on_the_grid(locked):
    assert locked.t[0] == 0.0 and locked.t[-1] == 2.0 and len(locked.t) == 2001
    at_lock = np.argmin(np.abs(locked.t - 0.8))
    assert locked.mode[at_lock - 1] == 0 and locked.mode[at_lock] == 1
    assert np.array_equal(locked.v[at_lock], locked.events[0].v_after)
    assert np.all(locked.lam[: at_lock - 1] == 0) and np.all(locked.lam[at_lock:, 0] != 0)


@pytest.mark.parametrize("formulation", ["projected", "minimal"])
def test_formulations_agree_for_locks(locked, formulation):
    other = run(
        laws.MuellerTransition("redundant" if formulation == "projected" else "minimal"),
        formulation,
    )
    assert np.abs(other.q - locked.q).max() < 1e-10 and np.abs(other.v - locked.v).max() < 1e-10
    scale = np.abs(locked.lam).max()
    assert np.abs(other.lam - locked.lam).max() < 1e-9 * scale


def test_inconsistent_locking_ends_elsewhere(locked):
    wrong = run(laws.ZeroVelocity(), step=1e-2)
    event = wrong.events[0]
    assert np.allclose(event.v_after, event.v_before * [1, 0, 1], atol=1e-13)
    assert np.abs(wrong.q[-1] - locked.q[-1]).max() > 0.5
