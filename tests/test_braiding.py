"""Carriers on horn gears against the geometry of their path, the ratios of the laws, and the size
of the traced program."""

import math

import jax
import numpy as np
import pytest
from mechanisms import run
from study_files import TABLES

import nsdyn
from nsdyn import integrators, laws, studies
from nsdyn.problems.overbraiding import overbraiding, ring
from nsdyn.studies import braiding
from nsdyn.studies.lib import archive

RK4 = integrators.EventDriven(integrators.RK4())
OMEGA, R, GEARS = 10.0, 0.06, 8


def transfers(out):
    """The records of the transfers of a run, as numpy arrays."""
    assert int(out.status) == 0
    count = int(out.events.count)
    return jax.tree.map(lambda x: np.asarray(x)[:count], out.events.records)


def touching(gear, gears=GEARS):
    """Where gear i and the next one touch: half-way between their centres."""
    angle = 2 * np.pi * (np.asarray(gear) + 0.5) / gears
    return R / np.tan(np.pi / gears) * np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def residuals(problem, out):
    """The largest violation of rows and of their rates on the saved rows."""
    model = problem.model()

    def both(q, v, t, mode):
        point = nsdyn.Point(t, q, v, mode, ((),))
        return model.rows(point, problem.params), model.psi(point, problem.params)

    return [float(np.abs(x).max()) for x in jax.jit(jax.vmap(both))(out.q, out.v, out.t, out.mode)]


@pytest.mark.parametrize(
    ("E", "ratio"), [pytest.param(1.0, 0.942857, marks=pytest.mark.slow), (0.5, 1.0)]
)
def test_common_drive(E, ratio):
    """Drive, speed and |spin| scale together; with E = 1/2 nothing but the spin changes, which
    turns round."""
    problem = overbraiding(drive="common")
    out = run(problem, RK4, step=5e-3, t_end=1.5, law=laws.IntermediateGradient(E))
    events = transfers(out)
    k = np.arange(len(events.t))
    assert len(k) >= 4 and np.array_equal(events.mode_after[:, 0], (k + 1) % GEARS)
    assert (
        np.abs(events.q[:, 1:3] - touching(k)).max() < 1e-12
    )  # where the geometry says, not near the place before
    before, after = events.v_before, events.v_after
    speed = lambda v: np.hypot(v[:, 1], v[:, 2])
    for found in (
        after[:, 0] / before[:, 0],
        speed(after) / speed(before),
        -after[:, 3] / before[:, 3],
    ):
        assert np.abs(found - ratio).max() < 5e-7
    assert np.abs(before[:, 3] - np.where(k % 2 == 0, 1, -1) * before[:, 0]).max() < 1e-10
    if E == 0.5:
        assert (
            np.abs(after[:, :3] - before[:, :3]).max() < 1e-10
        )  # linear velocity and drive are continuous
        assert np.abs(np.abs(after[:, 3] - before[:, 3]) - 2 * before[:, 0]).max() < 1e-12
        assert np.abs(before[:, 0] - OMEGA).max() < 1e-8
        arcs = np.diff(events.t) * OMEGA
        assert (
            np.abs(arcs - np.where(k[1:] % 2 == 1, np.pi - np.pi / 4, np.pi + np.pi / 4)).max()
            < 1e-8
        )
    assert max(residuals(problem, out)) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(("E", "ratio"), [(1.0, 0.8), (0.5, 1.0)])
def test_free_carrier(E, ratio):
    events = transfers(
        run(overbraiding(drive="free"), RK4, step=5e-3, t_end=2.0, law=laws.IntermediateGradient(E))
    )
    assert (
        len(events.t) >= 3
        and np.abs(events.q[:, :2] - touching(np.arange(len(events.t)))).max() < 1e-12
    )
    assert np.abs(-events.v_after[:, 2] / events.v_before[:, 2] - ratio).max() < 1e-12
    assert np.abs(events.v_after[:, :2] - ratio * events.v_before[:, :2]).max() < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("direction", [1, -1])
def test_prescribed_drive(direction):
    """The velocities are what the drive says, whatever the law; the exact path as a reference."""
    problem = overbraiding(start=((0, direction),))
    out = run(problem, RK4, step=5e-3, t_end=1.5, law=laws.PostSwitchGradient())
    events = transfers(out)
    k = np.arange(len(events.t))
    assert np.abs(events.q[:, :2] - touching(k if direction == 1 else -k - 1)).max() < 1e-12
    assert np.abs(events.v_after[:, :2] - events.v_before[:, :2]).max() < 1e-11
    assert np.abs(np.abs(events.v_after[:, 2] - events.v_before[:, 2]) - 2 * OMEGA).max() < 1e-10
    first = (
        np.pi / 2 + direction * np.pi / GEARS
    )  # half an arc: gear 0 is passed outside in the one direction
    assert abs(events.t[0] - first / OMEGA) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("drive", ["prescribed", "free"])
@pytest.mark.parametrize("integrator", [RK4, integrators.NSGA()], ids=["event-driven", "nsga"])
def test_a_thousand_transfers_leave_no_error_in_the_constraints(integrator, drive):
    problem = overbraiding(drive=drive)
    law = laws.PostSwitchGradient() if drive == "prescribed" else laws.GrassmannMidGradient()
    out = run(problem, integrator, step=5e-3, t_end=320.0, law=law, save_every=16, max_events=1100)
    events = transfers(out)
    assert len(events.t) >= 1000 and max(residuals(problem, out)) < 1e-9
    if (
        drive == "prescribed"
    ):  # and the last transfer is when it should be; what captures is up to a step late
        k = len(events.t) - 1
        late = events.t[-1] - (np.pi / 2 + np.pi / 8 + k * np.pi - (k % 2) * np.pi / 4) / OMEGA
        assert -1e-9 < late < (1e-9 if integrator is RK4 else 5e-3)


@pytest.mark.slow
def test_a_ring_of_carriers_in_both_directions():
    """Those that are handed over at the same instant are one event; carriers never meet."""
    gears = 6
    problem = overbraiding(gears=gears, start=ring(gears), drive="common", t_end=0.7)
    assert problem.check().ok
    out = run(problem, RK4, step=5e-3, law=laws.IntermediateGradient(1.0), save_every=2)
    events = transfers(out)
    moved = np.sum(events.mode_after != events.mode_before, axis=1)
    assert np.array_equal(moved, np.full(len(moved), gears // 2)) and len(moved) >= 3
    assert np.array_equal(
        np.sign(events.mode_after - events.mode_before)[0], [0, 0, 0, 1, -1, -1]
    )  # inside first
    J, mr2, I, n, k = 5e-3, 0.5 * R**2, 2e-4, gears, gears // 2
    ratio = (J + n * mr2 + (n - 2 * k) * I) / (J + n * (mr2 + I))
    assert np.abs(events.v_after[:, 0] / events.v_before[:, 0] - ratio).max() < 1e-12
    places = np.asarray(out.q)[:, 1:].reshape(-1, gears, 3)[..., :2]
    apart = np.linalg.norm(places[:, :, None] - places[:, None], axis=-1) + 10 * np.eye(gears)
    assert apart.min() > 0.5 * R and max(residuals(problem, out)) < 1e-9


def size(jaxpr) -> tuple[int, int]:
    """Operations of a traced program, loops and branches inside included, and the numbers that they
    produce."""
    operations = numbers = 0
    for equation in jaxpr.eqns:
        operations += 1
        numbers += sum(math.prod(getattr(x.aval, "shape", ())) for x in equation.outvars)
        for part in jax.tree.leaves(
            equation.params, is_leaf=lambda x: hasattr(x, "eqns") or hasattr(x, "jaxpr")
        ):
            inner = getattr(part, "jaxpr", part)
            if hasattr(inner, "eqns"):
                more = size(inner)
                operations, numbers = operations + more[0], numbers + more[1]
    return operations, numbers


def test_a_step_costs_the_same_for_any_number_of_gears():
    def traced(gears):
        problem = overbraiding(gears=gears, drive="common")
        follow = lambda p, q, v: nsdyn.rollout(
            problem, RK4, step=1e-2, t_end=0.16, params=p, q0=q, v0=v, max_events=4
        )
        return size(jax.make_jaxpr(follow)(problem.params, problem.q0, problem.v0).jaxpr)

    few, many = traced(8), traced(64)
    assert few[0] > 1000 and many[0] == few[0]
    assert many[1] < 1.5 * few[1]


@pytest.mark.slow
def test_problem_is_sound():
    for drive in ("free", "common", "prescribed"):
        assert overbraiding(drive=drive, start=((1, -1),)).check().ok
    a, b = overbraiding(), overbraiding(r=0.05, Omega=3.0, start=((2, -1),))
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for wrong in (
        {"gears": 7},
        {"gears": 4},
        {"start": ((8, 1),)},
        {"start": ((0, 2),)},
        {"drive": "belt"},
    ):
        with pytest.raises(nsdyn.ProblemError):
            overbraiding(**wrong)


@pytest.mark.slow
def test_study_of_braiding(tmp_path):
    files = braiding.run(tmp_path, step=1e-2)
    names = {f"figure_{i}.{kind}" for i in (1, 2, 3) for kind in ("pdf", "png")}
    assert {file.name for file in files} == names | {"captions.txt", *TABLES}
    assert "braiding" in studies.names() and "Assumed:" in (tmp_path / "captions.txt").read_text()
    data = archive.read(tmp_path / "data", "common_one")[0]
    assert (
        np.abs(-data.v_after.values[:, 0, 2] / data.v_before.values[:, 0, 2] - 0.942857).max()
        < 5e-7
    )
    woven = archive.read(tmp_path / "data", "ring")[0]
    angle = np.unwrap(np.arctan2(woven.q.values[..., 1], woven.q.values[..., 0]), axis=0)
    turned = angle[-1] - angle[0]
    assert (turned[:4] > 2 * np.pi).all() and (
        turned[4:] < -2 * np.pi
    ).all()  # a round, in both directions
