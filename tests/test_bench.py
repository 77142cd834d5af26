"""`nsdyn bench`: what is timed against each other computes the same, and numbers become lines,
tables and a page."""

import json
import re
import shutil

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import nsdyn
from nsdyn import integrators, problems
from nsdyn.cli import app
from nsdyn.studies.lib import archive
from nsdyn.studies.lib.bench import chain_cost, measure, peers, precision, stiff, suite, tree_cost
from nsdyn.studies.lib.bench.flow import Flow, diffrax_dopri8, scipy_dop853
from nsdyn.studies.lib.bench.yardstick import LANES, Yardstick

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def made_up_costs():
    """The recursion costs 1 us a link; the dense path less up to 16 links."""
    n = np.array([8.0, 16.0, 32.0, 64.0])
    dense = {"forward_dense": 1e-6 * n**2 / 20, "impulse_dense": 1e-6 * n**2}
    times = {name: dense.get(name, 1e-6 * n).tolist() for name in chain_cost.PATHS}
    return {"links": n.astype(int).tolist(), **times}


def made_up_case():
    """Error control is 20 times faster than scipy; RK4 never reaches 1e-9."""
    errors = [1e-5, 1e-7, 1e-10]
    times = {"nsdyn RK4": [2.0, 3.0], precision.SCIPY: [40.0, 60.0, 80.0]}
    times |= {name: [2.0, 3.0, 4.0] for name in precision.ADAPTIVE}
    methods = {k: {"error": errors[: len(t)], "seconds": t} for k, t in times.items()}
    return {"events": 2, "methods": methods}


def made_up_stages(quick):
    chains, case = made_up_costs(), made_up_case()
    compared = precision._compared("three_r_pendulum", case["methods"], 1e-9)
    return {
        "one": lambda: {
            "one trajectory": {
                "lines": [measure.line("a step over scalar C", 2.0, 1.5)],
                "difference_from_c": 1e-3,
            }
        },
        "accuracy": lambda: {
            "accuracy": {"lines": compared, "cases": {"three_r_pendulum": case}, "note": ""}
        },
        "chains": lambda: {"chains": {"lines": chain_cost.lines(chains), **chains}},
    }


def test_table_file_figures_and_page(monkeypatch, tmp_path):
    monkeypatch.setattr(suite, "stages", made_up_stages)
    out, page = tmp_path / "bench.json", tmp_path / "docs" / "speed.md"
    result = CliRunner().invoke(app, ["bench", "--quick", "--out", str(out), "--page", str(page)])
    assert result.exit_code == 0, result.output
    assert re.search(r"a step over scalar C +2 +<= 1\.5 +no\b", result.stdout)
    assert re.search(r"forward dynamics.*slope +1 +<= 1\.15 +yes\b", result.stdout)
    assert re.search(r"forward dynamics: dense M is slower from N = +32\b", result.stdout)
    assert re.search(r"to 1e-09: times faster than scipy DOP853 +20 +>= 10 +yes\b", result.stdout)
    assert re.search(r"to 1e-09: times faster than nsdyn RK4 +- +>= 3 +yes\b", result.stdout)
    assert "differs from that of C by 1.0e-03" in result.stdout
    written = json.loads(out.read_text())
    assert written["results"]["one trajectory"]["lines"][0]["value"] == 2.0
    assert {"python", "jax", "nsdyn", "numpy"} <= set(written["versions"])
    data, _ = archive.read(tmp_path / "bench" / "data", "chain_cost")
    assert data.links[-1] == 64
    drawn = {file.name for file in (tmp_path / "bench").iterdir()}
    assert {"chain_cost.pdf", "chain_cost.png", "work_precision.pdf", "work_precision.png"} < drawn
    text = page.read_text()
    assert "| a step over scalar C | 2 | <= 1.5 | no |" in text
    assert written["machine"]["processor"] in text and written["date"] in text
    assert "(speed.png)" in text and page.with_suffix(".png").exists()


@pytest.mark.parametrize(
    ("value", "bound", "met"),
    [
        (1.0, {"at_most": 1.0}, True),
        (1.1, {"at_most": 1.0}, False),
        (10.0, {"at_least": 10.0}, True),
        (9.9, {"at_least": 10.0}, False),
        (None, {"at_most": 1.0}, False),
    ],
)
def test_targets(value, bound, met):
    assert measure.line("x", value, **bound)["met"] is met
    assert "met" not in measure.line("x", value)


def test_time_to_an_error_is_the_shortest_that_reaches_it():
    points = {"error": [1e-3, None, 1e-7, 1e-10, 1e-8], "seconds": [1.0, 0.1, 3.0, 5.0, 4.0]}
    assert [precision.time_to(points, x) for x in (1e-2, 1e-6, 1e-8, 1e-12)] == [1, 3, 4, None]


def test_a_target_that_we_alone_or_nobody_reaches():
    never, soon = {"error": [1e-3], "seconds": [1.0]}, {"error": [1e-9], "seconds": [6.0]}
    gain = lambda points, own: precision._gain("x", points, 1e-6, own, 3.0)
    assert gain(soon, 2.0)["value"] == 3.0 and gain(soon, 2.0)["met"]
    assert gain(never, 2.0)["value"] is None and gain(never, 2.0)["met"]
    assert gain(soon, None)["value"] is None and not gain(soon, None)["met"]


# What is timed against each other is the same quantity.


@needs_cc
@pytest.mark.parametrize("lanes", [1, LANES])
def test_c_does_what_nsdyn_does(lanes):
    """The same RK4 steps and locks: equal up to round-off, also in the last, partly filled group
    of lanes."""
    problem = problems.three_r_pendulum()
    step = problem.t_end / 200
    rk4 = integrators.EventDriven(integrators.RK4())
    ours = nsdyn.simulate(problem, rk4, step=step, save_every=200)
    found = Yardstick(lanes).run(200, LANES + 3, 1)
    np.testing.assert_allclose(found["q"], ours.q[-1], rtol=0, atol=1e-11)
    np.testing.assert_allclose(found["v"], ours.v[-1], rtol=0, atol=1e-11)
    scalar = Yardstick().run(200, LANES + 3, 1)
    assert abs(found["mean_q1"] - scalar["mean_q1"]) < 1e-12


def test_without_a_compiler_the_reason_is_told(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    without = Yardstick()
    assert without.run(20, 1, 1) is None
    assert "no C compiler" in without.missing


def test_other_solvers_follow_the_same_motion():
    """The pendulum with both locks: the solvers' own event location and our jumps, against our own
    error control."""
    problem = problems.three_r_pendulum()
    ours = precision._end(problem, 8, 1e-12)
    exact = np.concatenate([ours.q[-1], ours.v[-1]])
    flow = Flow.of(problem)
    np.testing.assert_allclose(scipy_dop853(flow)(1e-10), exact, rtol=0, atol=1e-8)
    pytest.importorskip("diffrax")
    found = diffrax_dopri8(flow, len(ours.events))(1e-10)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", ["mujoco", "pinocchio"])
def test_other_programs_have_the_same_chain(name):
    pytest.importorskip(name)
    rates = np.array([0.5, -0.3, 0.2])
    problem = problems.serial_chain(
        3, peers.LENGTH, peers.MASS, peers.RADIUS, peers.TWIST, peers.G, offset=None
    )
    _, found, _ = getattr(peers, f"_{name}")(3, rates)
    np.testing.assert_allclose(found, peers._accelerations(problem, rates), rtol=1e-10)


def test_where_the_dense_path_loses():
    """For good, not by chance once."""
    links, recursion = [2, 4, 8, 16], [2.0, 4.0, 8.0, 16.0]
    for dense, n in (
        ([3, 3, 9, 17], 8),
        ([3, 5, 9, 17], 2),
        ([1, 1, 1, 1], None),
        ([1, 1, 1, 17], 16),
    ):
        assert chain_cost.loses_from(links, dense, recursion) == n


def test_paths_of_a_chain_agree():
    n = 3
    chain = problems.serial_chain(n).params["chain"]
    q, v = np.random.default_rng(1).normal(size=(2, n))
    found = jax.jit(
        lambda q, v: {name: path(chain, q, v) for name, path in chain_cost.PATHS.items()}
    )(q, v)
    for name, value in found.items():
        np.testing.assert_allclose(value, found[name.split("_")[0]], rtol=1e-11)
    assert chain_cost.timed(chain_cost.PATHS["forward"], chain, n, 1) > 0


def test_trees_that_branch():
    """Times of a few bodies make the lines of the table; every body but the leaves carries two."""
    tree = tree_cost.tree_of(7)
    assert tree.parents == (-1, 0, 0, 1, 1, 2, 2)
    found = tree_cost.trees((16, 32), 1)["trees"]
    assert [row.get("target") for row in found["lines"]] == ["<= 1.15", None]
    assert min(found["forward"]) > 0


def test_steps_beside_those_of_mujoco(monkeypatch):
    monkeypatch.setattr(peers, "BATCH_STEPS", 3)
    problem = problems.serial_chain(3, offset=None)
    alone, batch, together = peers._beside(problem, step=3.0, mujoco=2.0, repeats=1)
    assert (alone["value"], alone["target"], alone["met"]) == (1.5, "<= 1.5", True)
    assert batch["value"] > 0 and together["value"] == batch["value"] / 2
    assert together["target"] == "<= 1"


def test_lines_of_stiff_mechanisms():
    """The implicit method takes a twentieth of the time to 1e-4, and never reaches 1e-6."""
    slow = {"error": [1e-3, 1e-5, 1e-7], "seconds": [1.0, 2.0, 3.0]}
    fast = {"error": [1e-3, 1e-5, None], "seconds": [0.05, 0.1, None]}
    methods = {stiff.IMPLICIT: fast, **dict.fromkeys(stiff.EXPLICIT, slow)}
    found = {row[0]: row[1:] for row in map(suite.row, stiff.lines({"mass": methods}))}
    title = "mass to {}: RadauIIA over DormandPrince"
    assert found[title.format("0.0001")] == ("0.05", "<= 0.1", "yes")
    assert found[title.format("1e-06")] == ("-", "<= 0.1", "no")


def test_stiff_mechanisms_begin_without_oscillations():
    """Where they did, accelerations would change by a tenth of their size within 1e-4 s."""
    for problem in (stiff.follower(), stiff.slider_crank(), stiff.double_pendulum()):
        stiffly = integrators.EventDriven(integrators.DormandPrince(8, rtol=1e-12, atol=1e-12))
        found = nsdyn.simulate(problem, stiffly, step=1e-4, t_end=2e-3)
        assert np.abs(np.diff(found.v, 2, axis=0)).max() < 1e-6
