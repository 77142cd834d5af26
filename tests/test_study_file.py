"""Studies that a file declares: what is in it, what it runs, what survives a kill, what it
tells."""

import csv
import dataclasses
import io
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import nsdyn
from nsdyn import integrators
from nsdyn.cli.commands import app
from nsdyn.driver import backend, batch_run
from nsdyn.errors import ProblemError
from nsdyn.laws import AbstractImpactLaw
from nsdyn.native.choice import choice
from nsdyn.studies import study
from nsdyn.studies.lib import (
    archive,
    study_cells,
    study_figures,
    study_file,
    study_summary,
    study_tables,
    written,
)
from nsdyn.studies.lib.study_result import MISSING, StudyResult
from nsdyn.studies.lib.tables import Table

ROOT = Path(__file__).resolve().parents[1]
# A corner at t = 0.125, reached with constant speed: a capturing scheme sees it at the end of its
# step, later by the phase.
STUDY = """\
title = "Two schemes at a corner"
metrics = ["error_q", "error_v", "graph_v", "error_t_switch", "residuals", "run_s"]

[problems]
ramp = { use = "point_on_track", set = { a = 0.5 }, t_end = 0.3 }
steep = { use = "point_on_track", set = { a = 1.5 }, t_end = 0.3 }

[integrators]
moreau = "MoreauJean()"
event = "EventDriven(RK4())"

[steps]
first = 5e-2
halvings = 2
phases = 4
"""


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def programs():
    """How many programs there are for the march of a batch: native ones, each of which begins and
    advances, compiled quickly or well, and those of XLA."""
    native = [len(program._made) for program in backend.GROUP.programs]
    return np.array([*native, len(batch_run._compiled)])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The study, its folder, and how many programs it compiled."""
    folder = tmp_path_factory.mktemp("study")
    backend._work.clear()  # other tests of this process may have made the same programs
    for program in backend.GROUP.programs:
        program._made.clear()
    before = programs()
    result = study.run(study_file.parse(STUDY), folder)
    return result, folder, programs() - before


def arrays(folder):
    return {file.name: file.read_bytes() for file in (folder / "data").glob("*.nc")}


def test_a_pair_is_one_program(finished):
    """2 problems x 2 integrators x 1 law x 3 steps x 4 phases, and the references. Both problems
    have the same functions, so there is even less to compile than pairs. All are compiled well,
    however few their steps: run times can be compared."""
    assert finished[2].tolist() == ([0, 0, 0, 2] if choice() == "xla" else [2, 0, 2, 0])


def test_numbers_of_the_corner(finished):
    result, _, _ = finished
    assert result.data.error_q.dims == study_cells_dims()
    assert result.data.error_q.shape == (2, 2, 1, 3, 4)
    assert result.ok.all()
    moreau = result.data.sel(integrator="moreau", problem="ramp").isel(law=0)
    for k, h in enumerate((0.05, 0.025, 0.0125)):
        ends = (np.arange(1, 40)[:, None] - (np.arange(4) + 0.5) / 4) * h  # of the steps
        late = np.min(np.where(ends >= 0.125 - 1e-12, ends, np.inf), axis=0) - 0.125
        np.testing.assert_allclose(moreau.error_t_event.values[k], late, atol=1e-9)
    assert np.all(result.data.sel(integrator="event").error_q < 1e-10)
    order = result.order("error_q", "ramp", "moreau", "PostSwitchGradient")
    assert abs(order.order - 1) < 0.25 and order.points == 3
    assert np.all(result.data.run_s > 0)
    assert "EventDriven(method=RK4()) with step 0.00156, a finer run" in str(result)


def test_medians_and_shares_stand_beside_the_worst(finished):
    """Of four phases; one that fails counts for neither."""
    result, _, _ = finished
    place = result.table.head.index("error\nt event")
    assert result.table.head[place + 1 : place + 3] == ("median", "order")
    late = result.data.error_t_event.values[0, 0, 0, -1]
    shown = [f"{np.max(late):.1e}", f"{np.median(late):.1e}"]
    assert result.table.rows[0][place : place + 2] == (*shown,) and shown[0] != shown[1]
    assert "median of error q" in study_tables.pairs(result.table).splitlines()[0]
    status = result.data.status.copy(deep=True)
    status[0, 0, 0, -1, int(np.argmax(late))] = int(nsdyn.Status.NOT_CONVERGED)
    less = dataclasses.replace(result, data=result.data.assign(status=status))
    assert less.median("error_t_event")[0, 0, 0, -1] == np.median(np.sort(late)[:-1])
    assert less.worst("error_t_event")[0, 0, 0, -1] == np.sort(late)[-2]
    assert less.failed()[0, 0, 0].tolist() == [0, 0, 0.25]


def test_the_ledger_has_the_energy_of_each_jump(finished):
    """At the corner cos^2 of the slope is left of the kinetic energy. A scheme that sees it at the
    end of a step has the work of that step in its record."""
    result, _, _ = finished
    lines = list(csv.DictReader(io.StringIO(result.ledger_csv())))
    assert len(lines) == 2 * 2 * 3 * 4  # one jump in each run
    for line in lines:
        slope = {"ramp": 0.5, "steep": 1.5}[line["problem"]]
        left = float(line["kinetic_after"]) / float(line["kinetic_before"])
        lost = float(line["kinetic_before"]) - float(line["kinetic_after"])
        if line["integrator"] == "event":
            assert left == pytest.approx(1 / (1 + slope**2), abs=1e-7)
        assert float(line["lost"]) == pytest.approx(lost, abs=1e-6)
    event = result.data.sel(integrator="event", problem="steep")
    np.testing.assert_allclose(event.energy_lost, 1 - 1 / (1 + 1.5**2), atol=1e-9)
    assert np.all(event.error_lost < 1e-12)
    assert np.all(result.data.sel(integrator="moreau").error_lost > 1e-4)


def test_profiles(finished):
    """The event-driven scheme is always the best, to round-off; a case that nobody runs is none."""
    result, _, _ = finished
    profile = result.profile("error_t_event")
    np.testing.assert_array_equal(profile.share[1], 1.0)
    assert profile.share[0, 0] == 0 and profile.share[0, -1] == 1
    status = result.data.status.copy(deep=True)
    status[0] = MISSING
    gone = result.data.error_t_event.where(status != MISSING)
    half = dataclasses.replace(result, data=result.data.assign(status=status, error_t_event=gone))
    assert half.profile("error_t_event").share[1, -1] == 1
    axes = result.plot("profile").axes
    assert [line.get_label() for line in axes[0].lines] == ["moreau", "event"]
    assert "error of $q$" in axes[0].get_xlabel() and len(axes) == 3
    first, last = axes[0].lines[0].get_data(), axes[0].get_xlim()[1]
    assert first[0][-1] == last and first[1][-1] == first[1][-2]  # nothing is piled up at the end
    with pytest.raises(ProblemError, match="figure 'profil' is not known; did you mean 'profile'"):
        result.plot("profil")


def test_one_problem_of_your_own(finished):
    """`convergence` and `work_precision` of an object: the numbers of the study."""
    result, _, _ = finished
    problem = result.plan.problems["ramp"]
    methods, steps = [integrators.MoreauJean(), "EventDriven(RK4())"], (5e-2, 2.5e-2, 1.25e-2)
    found = study.convergence(problem, methods, steps, phases=4, metrics=["error_v", "residuals"])
    assert list(found.plan.integrators) == ["MoreauJean", "EventDriven(RK4())"]
    assert found.plan.metrics[-1] == "residual_acceleration"
    np.testing.assert_array_equal(found.data.error_t_event[0], result.data.error_t_event[0])
    drawn = found.plot("convergence").axes[0].lines[0].get_xdata()
    np.testing.assert_allclose(drawn, steps)
    again = study.work_precision(problem, methods[:1], steps[:1], phases=4)
    assert again.plot().axes[0].get_xlabel() == "CPU time of a run [s]"
    assert float(again.data.run_s.max()) > 0


def study_cells_dims():
    return ("problem", "integrator", "law", "step", "phase")


def test_nothing_is_computed_twice_and_an_interrupted_study_goes_on(
    finished, tmp_path, monkeypatch
):
    """Killed after any number of files, it ends with the same bytes."""
    _, folder, _ = finished
    plan = study_file.parse(STUDY)
    write, left = archive.write, [3]

    def interrupted(*arguments):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return write(*arguments)

    monkeypatch.setattr(archive, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        study.run(plan, tmp_path)
    assert len(arrays(tmp_path)) == 3
    work = study.survey(plan, tmp_path / "data")
    assert (work.done, work.cells) == (3, 2 * 2 * 3 + 2)
    left[0] = work.cells - work.done  # not one more than is missing
    study.run(plan, tmp_path)
    assert arrays(tmp_path) == arrays(folder) and left[0] == 0
    study.run(plan, tmp_path)  # nothing is left to do
    assert study.survey(plan, tmp_path / "data").todo == {}


def test_files(finished, tmp_path):
    result, folder, _ = finished
    names = {file.name for file in result.save(tmp_path)}
    figures = {f"{name}.{kind}" for name in study_file.FIGURES for kind in ("pdf", "png")}
    tables = {"table.txt", "table.md", "table.tex", "captions.txt"}
    tables |= {"pairs.csv", "runs.csv", "ledger.csv", "study.nc"}
    assert names == figures | tables
    lines = list(csv.DictReader(io.StringIO((tmp_path / "runs.csv").read_text())))
    assert len(lines) == 2 * 2 * 1 * 3 * 4
    first = result.data.error_q.values[0, 0, 0, 0, 0]
    assert float(lines[0]["error_q"]) == pytest.approx(first, rel=1e-8)
    assert r"\toprule" in (tmp_path / "table.tex").read_text()
    index = archive.read_index(folder / "data")
    assert len(index["keys"]) == 14
    key = index["names"]["ramp event PostSwitchGradient 0.0125"]
    assert index["keys"][key]["settings"]["integrator"].startswith("EventDriven")


def test_only_and_refusals(tmp_path):
    """A refusal is a result, and is told; what was not computed is told, too."""
    text = STUDY.replace("MoreauJean()", "GeneralizedAlpha(index=2)").replace("phases = 4", "")
    text += '\n[laws]\nrebound = "Restitution(e=0.5)"\n'
    plan = study_file.parse(text)
    work = study.survey(plan, tmp_path)
    assert [(pair.problem, pair.integrator) for pair in work.refused] == [
        ("ramp", "moreau"),
        ("steep", "moreau"),
    ]
    chosen = study.survey(plan, tmp_path, only=["problem=st*", "integrator=event"])
    assert list(chosen.todo) == [
        study_cells.Pair("steep", "", "rebound"),
        study_cells.Pair("steep", "event", "rebound"),
    ]
    table = str(study.collect(plan, tmp_path))
    assert "refused (1)" in table and "(1) integrator and law: GeneralizedAlpha" in table
    assert "0% computed" in table
    with pytest.raises(ProblemError, match="only: expected problem"):
        study.survey(plan, tmp_path, only=["scheme=x"])
    with pytest.raises(ProblemError, match="only: problem 'romp' is not known; did you"):
        study.survey(plan, tmp_path, only=["problem=romp"])


@pytest.mark.parametrize(
    ("old", "new", "line", "expected"),
    [
        ("MoreauJean()", "MoreauJan()", 9, "integrators.moreau: integrator 'MoreauJan' is not"),
        ("MoreauJean()", "Restitution", 9, "integrators.moreau:"),
        ("set = { a = 0.5 }", "set = { b = 0.5 }", 5, "problems.ramp: problem point_on_track"),
        ('"point_on_track", set = { a = 0.5 }', '"none.py:x"', 5, "problems.ramp: none.py"),
        ("t_end = 0.3 }\nsteep", "t_end = -1 }\nsteep", 5, "problems.ramp.t_end: expected a time"),
        ("first = 5e-2", "first = 0", 13, "steps.first: expected a positive number, found 0"),
        ("first = 5e-2", "frist = 4e-2", 13, "steps.frist: key 'frist' is not known; did you mean"),
        ("phases = 4", "phases = 0", 15, "steps.phases: expected a whole number of at least 1"),
        ('"graph_v"', '"graph_w"', 2, "metrics: metric 'graph_w' is not known; did you mean"),
        ("[problems]", "seed = 0\n[problems]", 4, "seed: key 'seed' is not known"),
        ("[problems]", "[problem]", 4, "problem: key 'problem' is not known"),
        ("set = { a = 0.5 }", "set = 0.5", 5, "problems.ramp.set: expected a table such as"),
        ('ramp = { use = "point_on_track"', "ramp = { use = 3", 5, "problems.ramp.use: expected a"),
        ("halvings = 2", "values = [0.1]", 12, "steps: expected either first (and halvings) or"),
        ("first = 5e-2", "values = [0.1]", 14, "steps.halvings: belongs to first"),
        ("first = 5e-2", "first = 0.5", 13, "steps.first: expected at most the time span of ramp"),
        ("phases = 4", "of_span = true\nfirst = 2.0", 16, "no valid TOML"),
        ("phases = 4", "[reference]\nprefer = [{ use = 3 }]", 16, "reference.prefer: expected us"),
        ("phases = 4", '[[laws]]\nx = "ZeroVelocity"', 15, "laws: expected a table [laws]"),
        ("phases = 4", '[reference]\nprefer = ["exact"]', 16, 'reference.prefer: expected "clos'),
        ("[integrators]", "[integrators", 8, "no valid TOML"),
    ],
)
def test_errors_name_the_key_and_the_line(old, new, line, expected):
    with pytest.raises(ProblemError) as error:
        study_file.parse(STUDY.replace(old, new), "corner.toml")
    assert str(error.value).startswith(f"corner.toml, line {line}: {expected}")


def test_names_that_differ_by_case_are_all_told():
    with pytest.raises(ProblemError, match="error_lam, error_Lam, error_t_event"):
        study_file.parse(STUDY.replace("graph_v", "graph_w"))


def test_the_command(finished, tmp_path, monkeypatch):
    _, folder, _ = finished
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(study_figures, "_saved", lambda *_: [])
    (tmp_path / "corner.toml").write_text(STUDY)
    told = call("study", "corner.toml", "--dry-run", "--out", folder)
    assert "2 problems x 2 integrators x 1 laws x 3 steps x 4 phases = 48 runs" in told.stdout
    assert "14 of 14 cells" in told.stdout and "to do: 0 programs" in told.stdout
    shown = call("study", "corner.toml", "--collect", "--out", folder)
    assert shown.exit_code == 0 and "Two schemes at a corner" in shown.stdout
    nothing = call("study", "corner.toml", "--collect")
    assert nothing.exit_code == 2 and "nothing of this study" in nothing.stderr
    assert not (tmp_path / "corner").exists()
    wrong = call("study", "absent.toml")
    assert wrong.exit_code == 2 and "absent.toml" in wrong.stderr
    (tmp_path / "picture.toml").write_bytes(b"\x89PNG\xff")
    wrong = call("study", "picture.toml")
    assert wrong.exit_code == 2 and "expected a study file, a text in TOML" in wrong.stderr


def test_the_time_of_a_study_is_guessed_before_its_first_run(tmp_path, monkeypatch):
    """More programs, larger mechanisms and more steps take longer; what is there is measured."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.toml").write_text(SHORT)
    told = call("study", "short.toml", "--dry-run")
    seconds = lambda text, folder=tmp_path: study.survey(study_file.parse(text), folder).seconds
    first = seconds(SHORT)
    assert 2 * 2 < first < 2 * 5  # two small programs: the pair and the reference
    assert f"about {first:.0f} CPU s, a guess from the sizes of the mechanisms" in told.stdout
    more = SHORT.replace("[steps]", 'nsga = "NSGA()"\n[steps]')
    assert seconds(more) == pytest.approx(1.5 * first, rel=0.05)
    large = SHORT.replace("point_on_track", "andrews").replace("t_end = 0.2", "t_end = 0.03")
    assert seconds(large.replace("[0.1, 0.05]", "[0.01, 0.005]")) > 1.5 * first
    assert seconds(SHORT.replace("[0.1, 0.05]", "[1e-4, 1e-5]")) > first + 10
    assert seconds("patience = 1\n" + SHORT) == 2
    work = study.survey(study_file.parse(SHORT), tmp_path)
    (pair,) = (x for x in work.todo if x.integrator)
    cell = work.todo[pair][0]
    monkeypatch.setattr(study_cells, "is_done", lambda folder, each: each.key == cell.key)
    archive.write_json(tmp_path / f"{cell.key}.timing.json", {"cell_s": 7.0})
    left = study.survey(study_file.parse(SHORT), tmp_path)
    assert (left.missing, left.seconds, left.is_guess) == (2, 14.0, False)


def test_tables():
    table = Table("t", ("name", "a\nb"), [("x_1", "1 ± 2"), ("y", "-")], ["note"])
    assert str(table).splitlines() == ["t", "          a", "name      b", "----  -----",
                                       "x_1   1 ± 2", "y         -", "note"]  # fmt: skip
    assert r"x\_1 & 1 $\pm$ 2 \\" in table.latex() and r"\begin{tabular}{lr}" in table.latex()
    assert "| name | a b |\n| :-- | --: |\n| x_1 | 1 ± 2 |" in table.markdown()
    assert table.csv() == "name,a b\nx_1,1 ± 2\ny,-\n"


def test_phases_are_shorter_first_steps():
    """Free fall: every grid gives the same motion, at its own times."""
    problem = nsdyn.problems.get("point_on_track", t_end=0.08)  # before the corner
    method = integrators.MoreauJean()
    found = nsdyn.sweep(problem, method, step=0.02, phase=np.resize([0.25, 0.75], 8))
    np.testing.assert_allclose(found.t[0], [0, 0.015, 0.035, 0.055, 0.075, 0.08])
    np.testing.assert_allclose(found.t[1], [0, 0.005, 0.025, 0.045, 0.065, 0.08])
    np.testing.assert_allclose(found.q[..., 0], problem.v0[0] * found.t, atol=1e-14)
    for phase, step, words in (
        ([0.5, 0.0], 0.02, "phase: expected a list of fractions"),
        ([0.5, 0.2], 0.03, "expected a step that divides"),
    ):
        with pytest.raises(ProblemError, match=words):
            nsdyn.sweep(problem, method, step=step, phase=phase)


@pytest.mark.slow
def test_killed_at_any_moment(finished, tmp_path):
    """SIGKILL at three random moments, then two processes: the same bytes."""
    _, folder, _ = finished
    (tmp_path / "corner.toml").write_text(STUDY)
    command = [sys.executable, "-m", "nsdyn", "study", "corner.toml"]
    pauses = random.Random(0)
    for _ in range(3):
        process = subprocess.Popen(
            command, cwd=tmp_path, start_new_session=True, stdout=subprocess.DEVNULL
        )
        before = len(arrays(tmp_path / "corner"))
        deadline = time.monotonic() + 120
        while len(arrays(tmp_path / "corner")) == before and time.monotonic() < deadline:
            time.sleep(0.01)
            if process.poll() is not None:
                break
        time.sleep(pauses.uniform(0, 0.2))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    again = subprocess.run([*command, "--jobs", "2"], cwd=tmp_path, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert arrays(tmp_path / "corner") == arrays(folder)


SHORT = """\
title = "Short"
[problems]
ramp = { use = "point_on_track", t_end = 0.2 }
[integrators]
event = "EventDriven(RK4())"
[steps]
values = [0.1, 0.05]
"""


def test_workers_elsewhere_give_the_same_bytes(tmp_path):
    """Anything with `submit`."""
    plan = study_file.parse(SHORT)
    study.run(plan, tmp_path / "here")
    with ThreadPoolExecutor(1) as threads:
        result = study.run(plan, tmp_path / "there", client=threads)
    assert result.ok.all() and len(arrays(tmp_path / "here")) == 3
    assert arrays(tmp_path / "there") == arrays(tmp_path / "here")
    with pytest.raises(ProblemError, match="jobs and client: expected one of the two"):
        study.run(plan, jobs=2, client=threads)
    with pytest.raises(ProblemError, match="client: expected the address of a Dask scheduler"):
        study.run(plan, client=3)


def test_force_computes_everything_again(tmp_path, monkeypatch):
    monkeypatch.setattr(study_figures, "_saved", lambda *_: [])
    write, cells = study_cells._write, []
    counted = lambda plan, cell, folder: (cells.append(cell), write(plan, cell, folder))[1]
    monkeypatch.setattr(study_cells, "_write", counted)
    (tmp_path / "short.toml").write_text(SHORT)
    words = ("study", tmp_path / "short.toml", "--out", tmp_path)
    counts = []
    for options in ((), (), ("--force",)):
        cells.clear()
        found = call(*words, *options)
        assert found.exit_code == 0, found.stderr
        counts.append(len(cells))
    assert counts == [3, 0, 3]  # two steps and their reference


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_bytes(finished, tmp_path, monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(study_figures, "_saved", lambda *_: [])
    (tmp_path / "corner.toml").write_text(STUDY)
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address
        told = call("study", tmp_path / "corner.toml", "--client", address, "--out", tmp_path)
    assert told.exit_code == 0, told.stderr
    assert arrays(tmp_path) == arrays(finished[1])


def test_an_error_ends_a_pair_and_not_the_study(tmp_path, monkeypatch):
    """It is a result: told with its reason, kept, and tried again only if that is asked for."""
    plan = study_file.parse(STUDY.replace("phases = 4", ""))
    write, tried, mended = study_cells._write, [], []

    def faulty(plan, cell, folder):
        tried.append(cell.pair.integrator)
        if cell.pair.integrator == "moreau" and not mended:
            raise ValueError("a stone\nin the gears")
        write(plan, cell, folder)

    monkeypatch.setattr(study_cells, "_write", faulty)
    result = study.run(plan, tmp_path)
    assert tried.count("moreau") == 2  # of two problems the first step each, and no other
    assert result.ok[:, 1].all() and not result.ok[:, 0].any()
    assert result.given_up[study_cells.Pair("ramp", "moreau", "PostSwitchGradient")] == (
        "ValueError: a stone in the gears"
    )
    table = str(result)
    assert "given up (1)" in table and "(1) ValueError: a stone in the gears" in table
    work = study.survey(plan, tmp_path / "data")
    assert (work.todo, work.given_up) == ({}, 6)
    mended.append(True)
    assert study.run(plan, tmp_path, retry=True).ok.all()
    assert study.survey(plan, tmp_path / "data", retry=True).missing == 0


def test_a_pair_that_takes_too_long_is_given_up(tmp_path):
    plan = study_file.parse("patience = 0.05\n" + SHORT)
    result = study.run(plan, tmp_path)
    (pair,) = (pair for pair in result.given_up if pair.integrator)
    assert result.given_up[pair] == "TookTooLong: took more than 0.05 CPU s"
    assert "none; it was given up: TookTooLong" in str(result)
    assert not list((tmp_path / "data").glob("*.nc"))
    assert study.run(plan, tmp_path).given_up == result.given_up  # nothing is left to do
    with pytest.raises(ProblemError, match="line 1: patience: expected a positive number of"):
        study_file.parse("patience = 0\n" + SHORT)


def test_tables_that_tell_where_they_come_from(finished, tmp_path):
    result, _, _ = finished
    given_up = {study_cells.Pair("ramp", "moreau", "PostSwitchGradient"): "ValueError: a, b"}
    files = study_tables.write(dataclasses.replace(result, given_up=given_up), tmp_path, "nsdyn x")
    assert {file.name for file in files} == {
        *("summary.md", "summary.csv", "pairs.csv", "counts.md", "origin.json")
    }
    rows = list(csv.DictReader(io.StringIO((tmp_path / "pairs.csv").read_text())))
    assert len(rows) == 4
    assert (rows[0]["status"], rows[0]["reason"]) == ("given up", "ValueError: a, b")
    assert (rows[1]["status"], rows[1]["reason"]) == ("OK", "")
    assert "Written by `nsdyn x` on 20" in (tmp_path / "summary.md").read_text()
    nothing = study.collect(result.plan, tmp_path)
    assert len(study_tables.pairs(nothing.table).splitlines()) == 1


LIBRARY = """\
title = "Three problems"
metrics = ["error_q", "error_v", "residuals"]
[problems]
swing = "pendulum"
ramp = "point_on_track"
fall = { use = "point_on_track", t_end = 0.1 }
[integrators]
event = "EventDriven(RK4())"
moreau = "MoreauJean()"
[laws]
after = "PostSwitchGradient()"
zero = "ZeroVelocity()"
[steps]
first = 0.05
of_span = true
"""


def test_steps_as_shares_of_the_span():
    plan = study_file.parse(LIBRARY)
    found = [study_cells.grid(plan, problem, 0).step for problem in plan.problems.values()]
    np.testing.assert_allclose(found, [0.05, 0.025, 0.005])


def test_a_law_that_is_never_asked_is_not_run():
    found = study_cells.contents(study_file.parse(LIBRARY))
    never = {pair for pair, why in found.refused.items() if "no law is asked; see after" in why}
    assert never == {study_cells.Pair("swing", name, "zero") for name in ("event", "moreau")}
    assert study_cells.Pair("swing", "event", "after") in found.cells
    assert study_cells.Pair("swing", "", "zero") not in found.cells  # no reference without a run
    chosen = found.only(lambda pair: pair.integrator == "moreau" and pair.law == "zero")
    assert [pair.problem for pair in chosen.cells if pair.integrator] == ["ramp", "fall"]
    assert all(pair.law == "zero" for pair in (*chosen.cells, *chosen.refused))


def test_contacts_ask_for_a_law():
    """They have no guards, and impacts all the same."""
    text = LIBRARY.replace("PostSwitchGradient()", "Newton()").replace(
        "ZeroVelocity()", "Fremond()"
    )
    plan = study_file.parse(text.replace('"pendulum"', '"impacting_stick"'))
    pair = study_cells.Pair("swing", "moreau", "zero")
    assert study_cells.refusal(plan, pair) is None


def test_the_study_of_contacts_runs_all_its_pairs_in_a_minute():
    """Also under the second law, and by the guess of a dry run."""
    file = ROOT / "studies" / "contacts.toml"
    plan = study_file.read(file)
    assert all(problem.model().has_contacts for problem in plan.problems.values())
    found = study_cells.contents(plan)
    assert not found.refused and len(found.cells) == 3 * 3 * 2 + 3 * 2
    assert study.survey(plan, file.parent / "nothing").seconds < 90


def test_the_library_study_holds_everything():
    """All problems, integrators and laws; NonIdeal needs numbers of a mechanism, and the problems
    with contacts are a study of their own; impact laws are for them."""
    plan = study_file.read(ROOT / "studies" / "library.toml")
    parts = {name: nsdyn.problems.get(name).constraint for name in nsdyn.problems.names()}
    contacts = {name for name, each in parts.items() if any(part.unilateral for part in each)}
    assert "tippe_top" in contacts
    assert set(plan.problems) == set(parts) - contacts
    used = repr(list(plan.integrators.values()))
    assert all(f"{name}(" in used for name in integrators.__all__)
    laws = {type(law).__name__ for law in plan.laws.values()}
    others = {n for n, c in written.laws().items() if issubclass(c, AbstractImpactLaw)}
    assert laws == set(written.laws()) - {"NonIdeal"} - others


def test_a_summary_over_the_problems():
    plan = study_file.parse(LIBRARY)
    shape = plan.shape
    errors = np.array([[1e-6, 2e-6], [1e-3, 5e-3], [np.nan, 1e-2]])  # problem, integrator
    values = np.broadcast_to(errors[:, :, None, None, None], shape)
    status = np.where(np.isnan(values), int(nsdyn.Status.NOT_CONVERGED), int(nsdyn.Status.OK))
    names = (*study_summary.RATIOS, *study_summary.MEDIANS)
    dims = study_cells_dims()
    data = xr.Dataset(dict.fromkeys(names, (dims, values)) | {"status": (dims, status)})
    pair = study_cells.Pair("swing", "event", "zero")
    table = study_summary.summary(StudyResult(plan, data, {pair: "why not"}, {}))
    rows = {row[:2]: row[2:] for row in table.rows}
    assert rows["after", "event"][:5] == ("3", "2", "0", "0", "1.0e+00")
    assert rows["after", "moreau"][:5] == ("3", "3", "0", "0", "2.0e+00")  # of 2, 5, 1
    assert rows["zero", "event"][3] == "1" and rows["after", "moreau"][6] == "5.0e-03"
