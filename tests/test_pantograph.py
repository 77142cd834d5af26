"""The pantograph of Font-Llagunes and Kovecses: its two models, and what their paper prints."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from study_files import TABLES

import nsdyn
from nsdyn import integrators, laws, problems
from nsdyn.studies import pantograph as study
from nsdyn.studies.lib import archive

problems.pantograph()  # imports the module, whose name in the package is the function's
PANTOGRAPH = sys.modules["nsdyn.problems.pantograph"]
RK4 = integrators.EventDriven(integrators.RK4())
# Table 2: d, gamma, xi
CASES = [
    (0.0, 90, 1.00),
    (0.0, 60, 0.75),
    (0.1, 90, 1.00),
    (0.1, 60, 0.74),
    (0.2, 90, 0.98),
    (0.2, 60, 0.66),
]


@jax.jit
def matrices(q, p):
    """M, and B above A: the rates of the tip along and across the wall."""
    return PANTOGRAPH.MINIMAL.mass(q, p), jax.jacfwd(PANTOGRAPH.tip)(q, p)


def impact(d, gamma):
    problem = problems.pantograph(d=d, gamma=gamma, distance=0.0)
    M, (B, A) = map(np.asarray, matrices(problem.q0, problem.params))
    v = np.asarray(problem.v0)
    return B, nsdyn.transition_report(M, np.zeros((0, 2)), A[None], v, tangents=B[None])


@pytest.mark.parametrize(("d", "gamma", "printed"), CASES)
def test_xi_of_table_2(d, gamma, printed):
    _, found = impact(d, gamma)
    assert round(found.xi, 2) == printed


def test_printed_projections():
    B, found = impact(0.0, 90)
    assert np.abs(found.P_c.T @ B).max() < 1e-15
    B, found = impact(0.1, 90)
    assert np.abs(found.P_c.T @ B - [-0.0027, 0.0009]).max() < 1e-3  # (19)
    assert np.abs(found.P_a.T @ B - [-0.0646, -0.1392]).max() < 1e-3
    B, found = impact(0.2, 90)
    assert np.abs(found.P_c.T @ B - [-0.0192, -0.0027]).max() < 5e-4  # (20)


def turn(motor, elbow, tip):
    """Positive if the tip lies to the left of the link from motor to elbow."""
    (a, b), (c, d) = elbow - motor, tip - motor
    return a * d - b * c


def test_tip_goes_where_it_is_told():
    for d, gamma in ((0.0, 90.0), (0.2, 60.0)):
        for closed_loop in (False, True):
            problem = problems.pantograph(
                d=d, gamma=gamma, speed=0.3, distance=0.0, closed_loop=closed_loop
            )
            at, rate = jax.jvp(
                lambda q, p=problem.params: PANTOGRAPH.tip(q, p), (problem.q0,), (problem.v0,)
            )
            angle = np.radians(gamma)
            assert np.allclose(at, [d, 0.2242], atol=1e-15)
            assert np.allclose(rate, 0.3 * np.array([np.cos(angle), np.sin(angle)]), atol=1e-14)
            chain = np.asarray(PANTOGRAPH.links(problem.q0, problem.params))
            lengths = np.linalg.norm(np.diff(chain, axis=0), axis=1)
            assert np.allclose(lengths, [0.1449, 0.1984, 0.1984, 0.1449], atol=1e-15)
            side = lambda motor, elbow, chain=chain: float(
                np.cross(np.append(elbow - motor, 0), np.append(chain[2] - motor, 0))[2]
            )
            assert side(chain[0], chain[1]) > 0 > side(chain[4], chain[3])  # elbows outwards


def kinetic_of_points(q, v, p):
    """T from the velocities of the centres of mass and of the tip."""
    total = 0.0
    for side, i in ((1.0, 0), (-1.0, 2)):
        motor = side * p["l5"] / 2 * PANTOGRAPH.unit(0.0)
        near = lambda q, i=i, motor=motor: motor + p["a1"] * PANTOGRAPH.unit(q[i])
        elbow = lambda q, i=i, motor=motor: motor + p["l1"] * PANTOGRAPH.unit(q[i])
        far = lambda q, i=i, elbow=elbow: elbow(q) + p["a2"] * PANTOGRAPH.unit(q[i + 1])
        for m, point in ((p["m1"], near), (p["m2"], far)):
            total += 0.5 * m * jnp.sum(jax.jvp(point, (q,), (v,))[1] ** 2)
        total += 0.5 * p["I1"] * v[i] ** 2 + 0.5 * p["I2"] * v[i + 1] ** 2
    return total + 0.5 * p["mE"] * jnp.sum(
        jax.jvp(lambda q: PANTOGRAPH.tip_of_links(q, p), (q,), (v,))[1] ** 2
    )


def test_mass_and_force_are_those_of_the_lagrangian():
    lagrangian, p = nsdyn.System.from_lagrangian(kinetic_of_points), problems.pantograph().params
    q, v = jnp.array([0.3, 2.0, 2.2, 0.5]), jnp.array([0.7, -1.1, 0.4, 0.9])
    for ours, theirs, arguments in (
        (PANTOGRAPH.mass_of_links, lagrangian.mass, (q, p)),
        (PANTOGRAPH.force_of_links, lagrangian.force, (q, v, 0.0, p)),
    ):
        wanted = np.asarray(jax.jit(theirs)(*arguments))
        assert np.allclose(
            jax.jit(ours)(*arguments), wanted, rtol=0, atol=1e-14 * np.abs(wanted).max()
        )


@jax.jit
def motion_of_links(q, v, p):
    """M, f, loop and its rate of rate at v' = 0, and the row of the wall, for all angles."""
    loop = lambda q: PANTOGRAPH.loop(q, 0.0, p)
    rate = lambda q: jax.jvp(loop, (q,), (v,))[1]
    system, wall = PANTOGRAPH.LINKS, jax.jacfwd(PANTOGRAPH.tip)(q, p)
    return (
        system.mass(q, p),
        system.force(q, v, 0.0, p),
        jax.jacfwd(loop)(q),
        jax.jvp(rate, (q,), (v,))[1],
        wall,
    )


@jax.jit
def motion(q, v, p):
    angles, rates = jax.jvp(lambda q: PANTOGRAPH.all_angles(q, p), (q,), (v,))
    return PANTOGRAPH.MINIMAL.mass(q, p), PANTOGRAPH.MINIMAL.force(q, v, 0.0, p), angles, rates


@pytest.mark.parametrize("d", [0.0, 0.1, 0.2])
def test_models_agree_in_accelerations_and_impacts(d):
    problem = problems.pantograph(d=d, distance=0.01)
    q, v, p = problem.q0, 3 * problem.v0, problem.params
    M, f, angles, rates = map(np.asarray, motion(q, v, p))
    M4, f4, G, gamma, (B4, A4) = map(np.asarray, motion_of_links(angles, rates, p))
    assert rates @ M4 @ rates == pytest.approx(np.asarray(v) @ M @ np.asarray(v), rel=1e-12)
    kkt = np.block([[M4, G.T], [G, np.zeros((2, 2))]])
    accelerations = np.linalg.solve(kkt, np.concatenate([f4, -gamma]))[:4]
    assert np.allclose(accelerations[[0, 2]], np.linalg.solve(M, f), rtol=1e-10)
    B, A = np.asarray(matrices(q, p)[1])
    one = nsdyn.transition_report(M, np.zeros((0, 2)), A[None], v, tangents=B[None])
    two = nsdyn.transition_report(M4, G, np.vstack([G, A4]), rates, tangents=B4[None])
    assert np.allclose(two.v_after[[0, 2]], one.v_after, atol=1e-12) and two.Lam[
        2
    ] == pytest.approx(one.Lam[0])
    assert two.xi == pytest.approx(one.xi, rel=1e-12) and np.allclose(
        two.xi_values, one.xi_values, atol=1e-12
    )


@pytest.fixture(scope="module")
def runs():
    """Both models through an impact with friction and on along the wall."""
    law = laws.NonIdeal(PANTOGRAPH.tangent, mu=0.03)
    found = []
    for closed_loop in (False, True):
        problem = problems.pantograph(closed_loop=closed_loop)
        found.append((problem, nsdyn.simulate(problem, RK4, step=1e-3, law=law, check=False)))
    return law, found


@pytest.mark.slow
def test_minimal_and_closed_loop_agree(runs):
    _, ((_, minimal), (problem, loop)) = runs
    assert np.abs(loop.q[:, [0, 2]] - minimal.q).max() < 1e-9
    assert np.abs(loop.v[:, [0, 2]] - minimal.v).max() < 1e-8
    assert np.allclose(loop.energy, minimal.energy, rtol=0, atol=1e-12)
    assert len(loop.events) == len(minimal.events) and np.allclose(
        loop.events.t, minimal.events.t, atol=1e-11
    )
    assert loop.events.Lam[0, 2] == pytest.approx(minimal.events.Lam[0, 0], rel=1e-8)
    closure = jax.vmap(lambda q: PANTOGRAPH.loop(q, 0.0, problem.params))(jnp.asarray(loop.q))
    assert np.abs(closure).max() < 1e-12


@pytest.mark.slow
def test_reports_of_both_models_agree(runs):
    law, found = runs
    one, two = (nsdyn.transition_report(problem, run.events[0], law) for problem, run in found)
    assert one.xi == pytest.approx(two.xi, rel=1e-9)
    assert (
        one.beta == pytest.approx(two.beta, rel=1e-7) and one.beta[0] < 0
    )  # the tip moves along +x
    assert abs(one.beta[0]) == pytest.approx(0.03 * abs(one.Lam[0]), rel=1e-9)  # it slips
    assert one.ledger == pytest.approx(two.ledger, rel=1e-7, abs=1e-12)
    assert (
        one.energy_after[1] < 1e-12 * one.energy_before[0]
        and one.energy_after[2] < one.energy_before[2]
    )
    assert one.kind == two.kind == "regular" and (two.before.rank, two.after.rank) == (2, 3)


@pytest.mark.slow
def test_study(tmp_path, monkeypatch):
    study.compute(tmp_path, points=25, step=1e-3)
    cases = archive.read(tmp_path / "data", "cases")[0]
    assert [xi for xi, _, _ in study.agreement(cases)] == [True] * 6
    assert [ratio for _, ratio, _ in study.agreement(cases)] == [
        False,
        True,
    ] * 3  # at 90 degrees T_a is noise
    measured = np.array([case.Lam for case in study.PAPER]) / cases.Lam.values
    assert measured.min() > 1.16 and measured.max() < 1.23
    impacts = archive.read(tmp_path / "data", "impacts")[0]
    for t, T_c, T_a, printed in zip(
        impacts.t.values, impacts.T_c.values, impacts.T_a.values, study.PAPER, strict=True
    ):
        left = np.flatnonzero(np.diff(t) == 0)[0]
        assert T_c[left] == pytest.approx(printed.T_c, rel=0.03) and T_c[left + 1] < 1e-9
        assert np.ptp((T_c + T_a)[: left + 1]) < 1e-9 and T_a[left + 1] <= T_a[left] + 1e-12
    workspace = archive.read(tmp_path / "data", "map")[0].xi.values
    inside = workspace[np.isfinite(workspace)]
    assert inside.min() >= 0 and inside.max() <= 1 + 1e-12 and np.isnan(workspace).any()
    monkeypatch.setattr(archive, "write", None)
    files = study.run(tmp_path, points=25, step=1e-3)
    figures = {f"figure_{i}.{kind}" for i in (1, 2) for kind in ("pdf", "png")}
    projections = {name.replace("table", "projections") for name in TABLES}
    assert {file.name for file in files} == figures | {"captions.txt"} | TABLES | projections
    assert (tmp_path / "projections.txt").read_text("utf-8").count("no, component") == 2
    assert (tmp_path / "table.csv").read_text("utf-8").startswith("case,d,gamma,xi printed,")


def test_map_has_the_experiments():
    """(2) of the study is xi of the report."""
    p = problems.pantograph().params
    for d in (0.0, 0.1, 0.2):
        xi = study._xi(jnp.array([d, 0.2242]), p)
        assert np.allclose(xi, [impact(d, gamma)[1].xi for gamma in (90, 60)], atol=1e-12)


def test_registered():
    assert (
        "pantograph" in problems.names()
        and "inferred" in sys.modules["nsdyn.problems.pantograph"].__doc__.lower()
    )
