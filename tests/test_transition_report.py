"""The analysis of a transition: subspaces, energies, impulses, ranks; for matrices and for events
of a run."""

import dataclasses
import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mechanisms import PARTICLE, ball, level, track
from test_forms import body_force, body_mass, body_rate, skate

import nsdyn
from nsdyn import laws
from nsdyn.integrators import RK4 as Method
from nsdyn.integrators import EventDriven
from nsdyn.results.solution import Event

RK4 = EventDriven(Method())

seeds = st.integers(0, 2**32 - 1)
shapes = st.sampled_from(
    [(2, 0, 1), (4, 1, 2), (6, 2, 2), (7, 3, 5), (5, 0, 5)]
)  # coordinates, rows before, rows after


def mechanism(seed, n, before, after, condition=100.0):
    """Mass, rows that are exchanged, a velocity that obeys those before."""
    rng = np.random.default_rng(seed)
    turn, _ = np.linalg.qr(rng.standard_normal((n, n)))
    M = turn * np.exp(rng.uniform(0, np.log(condition), n)) @ turn.T
    G_before, G_after = rng.standard_normal((before, n)), rng.standard_normal((after, n))
    v = rng.standard_normal(n)
    return M, G_before, G_after, v - np.linalg.pinv(G_before) @ (G_before @ v)


@given(seeds, shapes)
def test_subspaces_and_energies_of_an_ideal_transition(seed, shape):
    M, before, after, v = mechanism(seed, *shape)
    found, size = nsdyn.transition_report(M, before, after, v), np.abs(M).max()
    P_c, P_a = found.P_c, found.P_a
    assert np.abs(P_a.T @ M @ P_c).max() < 1e-12 * size * np.abs(P_c).max() ** 2
    assert np.allclose(P_c @ P_c, P_c, rtol=0, atol=1e-12 * np.abs(P_c).max() ** 2)
    assert np.abs(after @ P_a).max() < 1e-12 * np.abs(after).max() * (1 + np.abs(P_a).max())
    T, T_c, T_a = found.energy_before
    assert abs(T - 0.5 * v @ M @ v) < 1e-12 * T and abs(T - T_c - T_a) < 1e-12 * T
    T_plus, T_c_plus, T_a_plus = found.energy_after
    assert (
        T_c_plus < 1e-12 * T and abs(T_a_plus - T_a) < 1e-12 * T and abs(T_plus - T_a) < 1e-12 * T
    )
    assert 2 * T_c == pytest.approx(v @ after.T @ (found.Lam + found.Lam_N), abs=1e-12 * T)  # (8)
    assert found.xi == pytest.approx(T_c / T, abs=1e-12)
    assert sum(found.ledger.values()) == pytest.approx(T_plus - T, abs=1e-12 * T)
    assert found.ledger["constraint"] == pytest.approx(-T_c, abs=1e-12 * T)
    assert found.kind == "regular" and (found.before.rank, found.after.rank) == shape[1:]


@given(seeds, shapes)
def test_stationary_values_of_xi(seed, shape):
    M, before, after, v = mechanism(seed, *shape)
    found = nsdyn.transition_report(M, before, after, v)
    values, directions = found.xi_values, found.xi_directions
    assert len(values) == shape[0] - shape[1] and np.all(np.diff(values) <= 1e-15)
    for xi, u in zip(values, directions, strict=True):
        assert np.abs(before @ u).max(initial=0.0) < 1e-11
        assert found.energies(u)[0] == pytest.approx(1.0, rel=1e-12)
        assert found.energies(u)[1] == pytest.approx(xi, abs=1e-12)
    assert values[-1] - 1e-12 <= found.xi <= values[0] + 1e-12
    sines = np.sin(found.angles) ** 2
    for xi in values[
        (values > 1e-9) & (values < 1 - 1e-9)
    ]:  # those between are of principal angles
        assert np.abs(sines - xi).min() < 1e-10
    if not shape[1]:
        assert np.allclose(values, np.arange(shape[0]) < shape[2], atol=1e-12)


def test_the_largest_xi_is_the_largest():
    M, before, after, _ = mechanism(3, 6, 2, 2)
    rng = np.random.default_rng(0)
    reports = [
        nsdyn.transition_report(M, before, after, v)
        for v in rng.standard_normal((100, 6)) @ _allowed(before)
    ]
    found = [report.xi for report in reports]
    assert 0.6 * reports[0].xi_values[0] < max(found) <= reports[0].xi_values[0]


def _allowed(G):
    return np.eye(G.shape[1]) - np.linalg.pinv(G) @ G


@given(seeds, st.sampled_from([(5, 0, 1), (6, 2, 2)]), st.sampled_from([1, 2]))
def test_impulses_that_are_not_ideal(seed, shape, k):
    """(5) to (8) with a given beta."""
    M, before, after, v = mechanism(seed, *shape)
    rng = np.random.default_rng(seed + 1)
    B, beta = rng.standard_normal((k, shape[0])), rng.standard_normal(k)
    for U in (np.zeros(shape[0]), rng.standard_normal(shape[0])):
        W = np.linalg.inv(M)
        Lam = np.linalg.solve(after @ W @ after.T, after @ (v + W @ (U + B.T @ beta)))
        v_after = v + W @ (U + B.T @ beta - after.T @ Lam)
        found = nsdyn.transition_report(M, before, after, v, v_after, U=U, tangents=B)
        scale = 1e-9 * (1 + np.abs(M @ v).max())
        assert np.allclose(found.beta, beta, atol=scale) and np.allclose(found.Lam, Lam, atol=scale)
        assert np.allclose(found.non_ideal.total, B.T @ beta, atol=scale)
        assert np.allclose(
            found.constraint.admissible, 0.0, atol=scale
        )  # what constraints do is seen in their space only
        change = M @ (v_after - v)
        parts = (found.constraint, found.non_ideal, found.applied)
        assert np.allclose(
            found.P_a.T @ change, sum(x.admissible for x in parts), atol=scale
        )  # (7)
        assert np.allclose(
            found.P_c.T @ change, found.P_c.T @ U - after.T @ (found.Lam + found.Lam_N), atol=scale
        )  # (6)
        assert sum(found.ledger.values()) == pytest.approx(
            found.energy_after[0] - found.energy_before[0], abs=scale
        )
    without = nsdyn.transition_report(M, before, after, v, v_after, U=U)
    assert np.allclose(without.non_ideal.admissible, found.non_ideal.admissible, atol=scale)
    assert np.allclose(without.Lam, found.Lam + found.Lam_N, atol=scale) and np.allclose(
        without.Lam_N, 0, atol=scale
    )


@given(seeds)
def test_dependent_rows_change_nothing(seed):
    M, before, after, v = mechanism(seed, 6, 2, 2)
    mixed = np.vstack([after, after[0] - 2 * after[1], 1e3 * after[1]])
    one = nsdyn.transition_report(M, before, after, v)
    two = nsdyn.transition_report(M, np.vstack([before, before]), mixed, v)
    assert (two.before.rank, two.after.rank) == (2, 2) and two.kind == "undecided"
    assert np.allclose(one.P_c, two.P_c, atol=1e-10) and np.allclose(
        one.angles, two.angles, atol=1e-9
    )
    assert np.allclose(one.v_after, two.v_after, atol=1e-10)
    assert np.allclose(mixed.T @ two.Lam, after.T @ one.Lam, atol=1e-8)
    least = np.linalg.pinv(mixed.T) @ (after.T @ one.Lam)
    assert np.allclose(two.Lam, least, atol=1e-7 * np.abs(least).max())


def test_lengths_of_rows_do_not_count():
    rows = np.diag([1e6, 1e-6])
    report = nsdyn.transition_report(
        np.eye(2), np.zeros((0, 2)), rows, [1.0, 2.0], gt_after=[0.0, 1e-6]
    )
    assert np.allclose(report.v_after, [0.0, -1.0], rtol=0, atol=1e-12) and np.allclose(
        report.Lam, [1e-6, 3e6], rtol=1e-9
    )
    tangents = [[1e5, 0.0, 0.0], [0.0, 1e-5, 0.0]]
    slowed = nsdyn.transition_report(
        np.eye(3),
        np.zeros((0, 3)),
        [[0.0, 0.0, 1.0]],
        [1.0, 1.0, 1.0],
        v_after=[0.5, 0.0, 0.0],
        tangents=tangents,
    )
    assert np.allclose(slowed.beta, [-5e-6, -1e5], rtol=1e-9)


def test_masks_and_moving_constraints():
    M, before, after, v = mechanism(1, 5, 1, 3)
    on, gt = np.array([True, False, True]), np.array([0.5, 7.0, -1.0])
    found = nsdyn.transition_report(M, before, after, v, gt_after=gt, on_after=on)
    jump = laws.PostSwitchGradient().jump(M, before, after, v, gt, on_after=on)
    assert np.allclose(found.v_after, jump.v_after, atol=1e-12)
    assert np.allclose(found.Lam, np.asarray(jump.Lam)[on], atol=1e-10) and len(found.after.G) == 2


def corner():
    """The switch of `track`, whose impulse has a closed form."""
    lost, v = 0.2 * 8.0, np.array([4.0, 0.0])
    return Event(
        t=0.125,
        mode_before=0,
        mode_after=1,
        q=np.array([0.5, 0.0]),
        v_before=v,
        v_after=np.array([3.2, 1.6]),
        Lam=np.array([-1.6]),
        direction=np.array([[-0.5, 1.0]]),
        kinetic_before=8.0,
        kinetic_after=8.0 - lost,
    )


def test_report_of_an_event():
    found, angle = nsdyn.transition_report(track(), corner()), np.arctan(0.5)
    assert found.xi == pytest.approx(np.sin(angle) ** 2) and found.angles == pytest.approx([angle])
    assert found.Lam == pytest.approx(corner().Lam) and found.kind == "regular"
    assert found.ledger["constraint"] == pytest.approx(-1.6)
    text = str(found)
    assert "track at t = 0.125, mode 0 -> 1" in text and "regular" in text and "26.5651" in text
    energies = next(
        line.split() for line in text.splitlines() if line.startswith("kinetic energy T")
    )
    assert [float(x) for x in energies[3:]] == pytest.approx([8.0, 6.4, -1.6])
    assert "xi = 0.2" in repr(found)


def test_a_contact_that_bounced_has_its_row():
    """It is open before and after."""
    one = np.ones(1)
    bounce = Event(0.45, 0, 0, 0 * one, -4 * one, 2 * one, -6 * one, one[None], 8.0, 2.0)
    found = nsdyn.transition_report(ball(), bounce)
    assert (
        found.after.rank == 1
        and found.xi == pytest.approx(1.0)
        and found.Lam == pytest.approx([-6.0])
    )
    assert found.energy_after[1] == pytest.approx(0.25 * found.energy_before[1])


def cross(q, t, p):
    return q[0] * q[1]


def twice(q, t, p):
    return jnp.stack([q[1], 2 * q[1] + q[1] ** 3])


@pytest.mark.parametrize(
    ("constraint", "q", "kind"),
    [
        (cross, [0.0, 0.0], "singular"),
        (cross, [1e-13, 0.0], "singular"),
        (cross, [0.3, 0.0], "regular"),
        (twice, [0.2, 0.0], "regular"),  # redundant everywhere
        (level, [0.2, 0.0], "regular"),
    ],
)
def test_regular_and_singular(constraint, q, kind):
    """Two lines that cross, of which a particle may change from one to the other; and redundant
    rows."""
    params = {"m": 1.0, "g": 0.0}
    problem = nsdyn.Problem(
        "plane", PARTICLE, nsdyn.Fixed(constraint), q0=q, v0=[1.0, 0.0], t_end=1.0, params=params
    )
    rows = np.zeros((2 if constraint is twice else 1, 2))
    here = dataclasses.replace(corner(), mode_after=0, q=np.array(q), direction=rows)
    assert nsdyn.transition_report(problem, here).kind == kind


def test_wrong_input_is_named():
    with pytest.raises(nsdyn.ProblemError, match="one event"):
        nsdyn.transition_report(track(), [corner()])
    with pytest.raises(nsdyn.ProblemError, match="expected an event of ball"):
        nsdyn.transition_report(ball(), corner())
    with pytest.raises(nsdyn.ProblemError, match="G_after"):
        nsdyn.transition_report(np.eye(2), np.zeros((0, 2)), np.ones((1, 3)), [1.0, 0.0])


# Singular transitions in runs.


def reach(q, p):
    """Distance of the tip of a stretched or bent arm from its base, squared: its gradient vanishes
    where the arm is stretched."""
    return 2.0 + 2.0 * jnp.cos(q[1])


def arm_kinetic(q, v, p):
    w = jnp.stack([v[0], v[0] + v[1]])
    return 0.5 * (2 * w[0] ** 2 + w[1] ** 2 + 2 * w[0] * w[1] * jnp.cos(q[1]))


def arm_potential(q, p):
    return 0.0 * q[0]


ARM = nsdyn.System.from_lagrangian(arm_kinetic, arm_potential)


@pytest.mark.parametrize(("bend", "warns"), [(0.0, True), (0.4, False)])
def test_a_run_through_a_singular_switch_warns(bend, warns):
    """The tip is to keep its distance from the time 0.1 on; at that time the arm is stretched, or
    bent."""
    hold = nsdyn.Scheduled(times=(0.1,), stages=(None, nsdyn.lock(reach)))
    problem = nsdyn.Problem("arm", ARM, hold, q0=[0.3, bend], v0=[1.0, 0.0], t_end=0.2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = nsdyn.simulate(problem, RK4, step=1e-2)
    found = [w for w in caught if issubclass(w.category, nsdyn.SingularTransitionWarning)]
    assert len(run.events) == 1 and len(found) == warns
    if warns:
        assert "t = 0.1" in str(found[0].message)


@pytest.mark.slow
def test_a_sweep_through_a_singular_switch_warns():
    hold = nsdyn.Scheduled(times=(0.1,), stages=(None, nsdyn.lock(reach)))
    problem = nsdyn.Problem("arm", ARM, hold, q0=[0.3, 0.4], v0=[1.0, 0.0], t_end=0.2)
    with pytest.warns(
        nsdyn.SingularTransitionWarning, match="trajectory 1: arm at t = 0.1"
    ) as caught:
        nsdyn.sweep(problem, RK4, step=1e-2, q0=[[0.3, 0.4], [0.3, 0.0]])
    assert caught[0].filename == __file__


# Velocities that are not rates of coordinates, and constraints without a position level.


def test_a_skate_that_is_stopped_from_turning():
    """The blade stays; the new row takes the energy of turning and nothing else."""
    system = nsdyn.System(
        mass=lambda q, p: jnp.diag(jnp.array([1.0, 1.0, 0.2])),
        force=lambda q, v, t, p: jnp.zeros(3),
    )
    parts = (nsdyn.Nonholonomic(skate), nsdyn.Scheduled(times=(0.1,), stages=(None, nsdyn.lock(2))))
    problem = nsdyn.Problem(
        "skate", system, parts, q0=[0.0, 0.0, 0.0], v0=[1.0, 0.0, 2.0], t_end=0.2
    )
    run = nsdyn.simulate(problem, RK4, step=1e-2)
    report = nsdyn.transition_report(problem, run.events[0])
    assert (report.before.rank, report.after.rank, report.kind) == (1, 2, "regular")
    T, T_c, T_a = report.energy_before
    assert T_c == pytest.approx(0.5 * 0.2 * 4.0, rel=1e-10) and T_a == pytest.approx(0.5, rel=1e-10)
    assert report.xi == pytest.approx(T_c / T) and run.v[-1, 2] == pytest.approx(0.0, abs=1e-12)


def spin(q, p):
    """Twice the third component of a unit quaternion; near 1 its rate is that of turning about
    z."""
    return 2.0 * q[3]


def test_a_body_in_quasi_velocities_that_is_stopped():
    inertia, v0 = np.array([1.0, 2.0, 3.5]), np.array([0.0, 0.0, 2.0])
    system = nsdyn.System(mass=body_mass, force=body_force, kinematics=body_rate)
    stop = nsdyn.Scheduled(times=(0.1,), stages=(None, nsdyn.lock(spin)))
    problem = nsdyn.Problem(
        "body", system, stop, q0=[1.0, 0, 0, 0], v0=v0, t_end=0.2, params={"I": inertia}
    )
    run = nsdyn.simulate(problem, RK4, step=1e-2)
    report = nsdyn.transition_report(problem, run.events[0])
    assert report.after.G.shape == (1, 3)  # rows over v, not over q
    assert report.xi == pytest.approx(1.0, abs=1e-9) and np.abs(run.v[-1]).max() < 1e-9
