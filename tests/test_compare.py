"""Integrators and laws side by side: the table, the files, what is refused, what stops; and who
goes with whom."""

import csv
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from mechanisms import PARTICLE
from typer.testing import CliRunner
from xarray import Dataset

import nsdyn
from nsdyn import Event, Events, Solution, integrators, laws
from nsdyn._repr import format_object
from nsdyn.analysis.residuals import residuals
from nsdyn.cli.commands import _integrator, app
from nsdyn.errors import ProblemError
from nsdyn.integrators import MoreauJean
from nsdyn.status import Status
from nsdyn.studies import compare, study
from nsdyn.studies.lib import archive, compare_figures, compare_table, pairs, style
from nsdyn.studies.lib.written import integrators as _integrators
from nsdyn.studies.lib.written import laws as _laws
from nsdyn.studies.lib.written import parse_object

CONCEPTS = Path(__file__).resolve().parents[1] / "docs" / "concepts"
TABLES = {"table.csv", "table.txt", "table.md", "table.tex", "captions.txt"}
TRACK = {"a": 0.5, "l": 0.5, "g": 9.81}
SCHEME, CLASSICAL = "MoreauJean", "GeneralizedAlpha(index=2)"
# The corner, at t = 0.125, falls at a quarter of a step. The reference is one that compiles fast,
# not a good one.
ARGUMENTS = (
    *("compare", "point_on_track", "--step", "0.02", "--set", "l=0.5", "--t-end", "0.3"),
    *(
        "--integrator",
        SCHEME,
        "--integrator",
        CLASSICAL,
        "--reference",
        "MoreauJean(projection=False)",
    ),
)


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    return call(*ARGUMENTS, "--out", folder), folder


def rows(text):
    """The lines of the table, cut into cells."""
    found = [re.split(r"\s{2,}", line.strip()) for line in text.splitlines()]
    heads = ("integrator", "error")
    return {cells[0]: cells[1:] for cells in found if len(cells) > 10 and cells[0] not in heads}


def test_velocities_jump_at_events_and_not_within_a_step():
    data = xr.Dataset(
        {
            "t": ("row", [0.0, 1.0, 2.0]),
            "v": (("row", "velocity"), [[4.0], [4.0], [2.0]]),
            "q": (("row", "coordinate"), [[0.0], [4.0], [7.0]]),
            "event_t": ("event", [1.5]),
            "event_v_before": (("event", "velocity"), [[4.0]]),
            "event_v_after": (("event", "velocity"), [[2.0]]),
        }
    )
    t, v = compare_figures._with_jumps(data, "v", 0)
    assert t.tolist() == [0, 1, 1.5, 1.5, 2] and v.tolist() == [4, 4, 4, 2, 2]
    assert compare_figures._with_jumps(data, "q", 0)[0].tolist() == [0, 1, 2]


def test_table(compared):
    result, _ = compared
    assert result.exit_code == 0, result.stderr
    table = rows(result.stdout)
    assert list(table) == [SCHEME, CLASSICAL]
    (
        q,
        v,
        graph,
        t_event,
        impulse,
        energy,
        drift,
        left_out,
        position,
        velocity,
        acceleration,
        newton,
        events,
        compile_time,
        run_time,
        status,
    ) = table[SCHEME]
    assert status == table[CLASSICAL][-1] == "OK"
    assert (events, left_out) == ("1", "0")
    assert 1e-6 < float(q) < 0.1 and 1e-6 < float(v) < 0.5 and 1e-6 < float(energy) < 0.1
    assert 0 < float(t_event) < 0.02 and 0 < float(graph) < 0.1
    # Moreau-Jean's impulse holds the reaction over its step, g/(1 + a^2) of it
    gap = (0.02 - 0.0025) * TRACK["g"] / (1 + TRACK["a"] ** 2)
    assert impulse == f"{gap:.1e}"
    assert float(position) < 1e-12 and float(velocity) < 1e-12
    assert 0 < float(drift) < 0.1
    assert float(table[CLASSICAL][8]) > 1e-4  # index 2 leaves a gap in its switching step
    assert float(table[CLASSICAL][10]) > 1.0 > float(acceleration)  # and its reactions ring
    assert int(newton.split(" / ")[0]) >= 15
    assert float(compile_time.rstrip("*")) > 0 and float(run_time) > 0
    for note in (
        "the reference MoreauJean(projection=False) with step 0.0025 ",
        "q and v are those of a closed form",
        "Reference for PostSwitchGradient: closed form, constant acc",
        "largest kinetic energy of the reference",
    ):
        assert note in " ".join(result.stdout.split())


def test_errors_are_those_against_the_closed_form(compared):
    """The reference is MoreauJean with a small step, which is not good enough to be one."""
    _, folder = compared
    with open(folder / "table.csv", newline="", encoding="utf-8") as file:
        table = {line["integrator"]: line for line in csv.DictReader(file)}
    up = np.array([1.0, TRACK["a"]]) / np.hypot(1.0, TRACK["a"])
    for name in (SCHEME, CLASSICAL):
        file = compare.slug(name) + "--PostSwitchGradient"
        run = archive.read(folder / "data", file)[0]
        tau = run.t.values[:, None] - 0.125
        along = 4.0 * up[0] * tau - TRACK["g"] * up[1] * tau**2 / 2
        q = np.where(tau < 0, [0.5, 0.0] + 4.0 * tau * [1.0, 0.0], [0.5, 0.0] + along * up)
        wanted = np.max(np.abs(run.q.values - q))
        assert float(table[name]["error_q"]) == pytest.approx(wanted, rel=1e-6)


def test_redraw_of_a_comparison_runs_nothing(compared, tmp_path, monkeypatch):
    """It has the same tables, bit by bit, and figures with another look."""
    folder = tmp_path / "copy"
    shutil.copytree(compared[1], folder)
    before = {name: (folder / name).read_bytes() for name in TABLES}
    for name in TABLES - {"captions.txt"}:
        (folder / name).unlink()
    monkeypatch.setattr(compare, "_computed", None)
    found = call("redraw", folder, "--format", "svg", "--width", "80mm")
    assert found.exit_code == 0, found.stderr
    again = {name: (folder / name).read_bytes() for name in TABLES}
    ours = lambda texts: {name: x.replace(b"compared0", b"copy") for name, x in texts.items()}
    assert ours(again) == ours(before)
    assert {file.stem for file in folder.glob("*.svg")} == {"states", "errors", "residuals"}
    (folder / "data" / "comparison.json").write_text("damaged")
    found = call("redraw", folder)
    assert found.exit_code == 2 and "cannot be read" in found.stderr


def test_files(compared):
    result, folder = compared
    names = {file.name for file in folder.iterdir() if file.is_file()}
    figures = {
        f"{name}.{kind}" for name in ("states", "errors", "residuals") for kind in ("pdf", "png")
    }
    assert names == figures | TABLES
    assert not [name for name in names if str(folder / name) not in result.stdout]
    runs = {"MoreauJean", "GeneralizedAlpha-index=2", "reference-MoreauJean-projection=False"}
    index = archive.read_index(folder / "data")
    assert set(index["names"]) == {f"{run}--PostSwitchGradient" for run in runs}
    data = {f"{key}.{kind}" for key in index["names"].values() for kind in ("nc", "json")}
    found = {file.name for file in (folder / "data").iterdir()}
    exact = {f"closed-form-PostSwitchGradient.{kind}" for kind in ("nc", "json")}
    assert found == data | exact | {"index.json", "timing.json", "comparison.json"}
    with open(folder / "table.csv", newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert [line["integrator"] for line in table] == [SCHEME, CLASSICAL]
    shown = [rows(result.stdout)[name][0] for name in (SCHEME, CLASSICAL)]
    assert [f"{float(line['error_q']):.1e}" for line in table] == shown
    assert "those of a closed form" in (folder / "captions.txt").read_text("utf-8")


def test_what_is_refused_and_what_stops_are_rows():
    elastic = (
        "--law",
        "Restitution(e=0.5)",
        "--integrator",
        "MoreauJean(projection=False)",
        "--integrator",
        CLASSICAL,
    )
    result = call("compare", "point_on_track", "--step", "0.02", *elastic, "--reference", "none")
    assert result.exit_code == 1  # none came to its end
    table = rows(result.stdout)
    stopped = table["MoreauJean(projection=False)"]
    assert stopped[-1] == "LAW_VIOLATES at t = 0.12 (1)"
    assert (
        stopped[:6] == ["-"] * 6 and float(stopped[9]) < 1e-12
    )  # no reference; drift and residuals of the rows until then
    assert stopped[6] == "0" and table[CLASSICAL] == ["-"] * 15 + ["refused (2)"]
    assert "(1) LAW_VIOLATES: the velocity that the law gave" in result.stdout
    assert "do not go together: the classical schemes impose" in result.stdout


def test_rows_and_residuals(compared):
    _, folder = compared
    for name in ("MoreauJean--PostSwitchGradient", "GeneralizedAlpha-index=2--PostSwitchGradient"):
        run = archive.read(folder / "data", name)[0]
        a = TRACK["a"] * (run["mode"].values == 1)
        (x, y), (vx, vy), lam = run.q.values.T, run.v.values.T, run.lam.values[:, 0]
        ax, ay = a * lam, -TRACK["g"] - lam  # v' = f - G^T lam with G = (-a, 1)
        for level, value in zip(
            compare.LEVELS, (y - a * (x - TRACK["l"]), vy - a * vx, ay - a * ax), strict=True
        ):
            np.testing.assert_allclose(run[f"residual_{level}"], np.abs(value), atol=1e-12)
        np.testing.assert_allclose(run.kinetic, (vx**2 + vy**2) / 2)


def test_runs_are_computed_once(compared, monkeypatch):
    first, folder = compared

    def fail(*_):
        raise AssertionError("computed again")

    monkeypatch.setattr(archive, "write", fail)
    monkeypatch.setattr(compare_figures, "draw", lambda *_: [])
    again = call(*ARGUMENTS, "--out", folder)
    assert again.exit_code == 0
    assert rows(again.stdout) == rows(first.stdout)  # times are those of the first run
    for arguments in (("--force",), ("--set", "m=2"), ("--step", "0.01"), ("--refine", 4)):
        assert "computed again" in str(call(*ARGUMENTS, "--out", folder, *arguments).exception)
    monkeypatch.setattr(MoreauJean, "one_method_more", lambda self: None, raising=False)
    assert "computed again" in str(call(*ARGUMENTS, "--out", folder).exception)  # other code


def test_exit_code_1_if_nothing_ran(tmp_path):
    integrator = (
        "--integrator",
        "GeneralizedAlpha",
        "--integrator",
        "GeneralizedAlpha(rho_inf=0.5)",
    )
    result = call(
        "compare", "point_on_track", *integrator, "--law", "Restitution(e=0.5)", "--out", tmp_path
    )
    assert result.exit_code == 1
    assert "GeneralizedAlpha(rho_inf=0.8)" in result.stdout  # told from the other
    assert "there is no reference" in result.stdout
    assert {file.name for file in tmp_path.iterdir()} == TABLES


def test_several_steps_are_a_study_with_the_closed_form(tmp_path, monkeypatch):
    """Of a file, too, and with all that was asked for."""
    (tmp_path / "own.py").write_text(
        "from nsdyn.problems.point_on_track import CLOSED_FORM, point_on_track as rail\n"
    )
    monkeypatch.chdir(tmp_path)
    asked = []

    def stopped(plan, folder, **options):
        asked.append((plan, folder, options["force"]))
        raise ProblemError("far enough")

    monkeypatch.setattr(study, "run", stopped)
    more = ("--integrator", "NSGA", "--t-end", "0.3", "--out", "found", "--force")
    call("compare", "own.py:rail", "--step", "2e-2,1e-2,5e-3", *more)
    ((plan, folder, force),) = asked
    assert plan.steps == (2e-2, 1e-2, 5e-3) and force and str(folder) == "found"
    assert plan.closed_forms["point_on_track"].source.startswith("constant acc")
    assert plan.problems["point_on_track"].t_end == 0.3
    assert [type(x).__name__ for x in plan.integrators.values()] == ["NSGA"]
    result = call("compare", "own.py:rail", "--step", "2e-2,1e-2", "--save-every", "2")
    assert result.exit_code == 2 and "--save-every: expected one step" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("point_on_trak",), "did you mean 'point_on_track'"),
        (("point_on_track", "--integrator", "NSGB"), "did you mean 'NSGA'"),
        (("point_on_track", "--law", "Restitution"), "Write Restitution(e=...)"),
        (("point_on_track", "--reference", "RK5"), "did you mean 'RK4'"),
        (("point_on_track", "--step", "-1"), "step"),
        (("point_on_track", "--refine", "0"), "refine"),
    ],
)
def test_bad_input_is_exit_code_2(arguments, expected):
    result = call("compare", *arguments)
    assert result.exit_code == 2
    assert expected in result.stderr
    assert not result.stdout


def test_help_has_an_example():
    assert "Example: nsdyn compare" in call("compare", "--help").stdout


def test_entries_are_checked():
    problem = nsdyn.problems.get("point_on_track")
    for entries in ([], [(integrators.RK4(), laws.ZeroVelocity())]):
        with pytest.raises(ProblemError, match="entries"):
            compare.compare(problem, entries, 1e-2)


# Without a simulation


def run_of(v, mode, event_t, status=Status.OK, names=("x", "y")):
    """A run of rows t = 0, 1, 2, ... with the velocities v."""
    v = np.asarray(v, float)
    columns = {
        "t": np.arange(float(len(v))),
        "energy": v**2 / 2,
        "kinetic": v**2 / 2,
        "mode": np.asarray(mode),
    }
    data = {name: ("row", values) for name, values in columns.items()}
    data |= {"q": (("row", "coordinate"), v[:, None]), "v": (("row", "velocity"), v[:, None])}
    return compare.Run(
        *names, Dataset(data | {"event_t": ("event", event_t), "status": ((), int(status))})
    )


def numbered(run):
    """With all that a table and figures need."""
    run.data.update(dict.fromkeys(compare_table.COUNTED, 0.5))
    levels = (f"residual_{level}" for level in compare.LEVELS)
    run.data.update(dict.fromkeys(levels, ("row", 0 * run.data.t.values)))
    run.data["energy"].attrs["long_name"] = "T + V"
    return run


@pytest.fixture(scope="module")
def fake():
    """Two integrators with two laws: A takes a half of the velocity, B nothing. The second
    integrator gains energy behind the jump."""
    laws = {"A": [2, 2, 1, 1.0], "B": [2, 2, 2, 2.0]}

    def make(name, law, add):
        run = numbered(run_of(np.add(laws[law], add), [0, 0, 1, 1], [], names=(name, law)))
        return run._replace(data=run.data.drop_vars("event_t"))  # as it is in files

    runs = [
        make(name, law, add)
        for law in laws
        for name, add in (("one", [0, 0, 0, 0]), ("two", [0, 0, 0, 0.1]))
    ]
    references = {law: make("finer", law, [0, 0, 0, 0]) for law in laws}
    return compare.Comparison("p", 1.0, (0.0, 3.0), runs, references, 0.125, {"B": "from a book"})


def test_a_comparison_prints_and_has_tables(fake):
    assert (fake.laws, fake.integrators) == (["A", "B"], ["one", "two"])
    table = fake.table
    assert str(fake) == str(table) and "two         B" in str(fake)
    assert fake.to_latex() == table.latex() and r"\toprule" in fake.to_latex()
    assert fake.to_markdown().startswith("p, t = 0 to 3, step 1\n\n| integrator | law | error q |")
    lines = list(csv.reader(fake.to_csv().splitlines()))
    assert lines[0][:3] == ["integrator", "law", "error q"] and len(lines) == 5
    drift = lines[0].index("drift of energy")
    # of fake motions, whose energies are v^2/2, relative to the largest of them
    wanted = ["7.5e-01", "7.0e-01", "0", "9.3e-02"]
    assert [line[drift] for line in lines[1:]] == wanted
    assert "Reference for B: from a book." in table.notes
    assert "it is a finer run, not the exact solution" in table.notes[0]  # that for A is


def test_laws_stand_side_by_side(fake):
    figure = fake.plot("laws")
    assert [ax.get_title() for ax in figure.axes[:2]] == ["A", "B"]
    for law, ax in zip("AB", figure.axes[2:4], strict=True):  # velocities
        wanted = [run.data.v.values[:, 0] for run in fake.runs if run.law == law]
        drawn = [line.get_ydata() for line in ax.lines if line.get_label() in ("one", "two")]
        np.testing.assert_array_equal(drawn, wanted)
    low, high = figure.axes[2].get_ylim()
    assert figure.axes[3].get_ylim() == (low, high) and low < 1.0 and high > 2.1  # all is in view


def test_figures_are_of_one_law(fake):
    labels = lambda figure: figure.legends[0].get_title().get_text()
    assert labels(fake.plot()) == labels(fake.plot("states", "A")) == "A"
    assert labels(fake.plot("residuals", "B")) == "B"
    errors = fake.plot("errors", law="B").axes[1].lines[1]
    np.testing.assert_allclose(errors.get_ydata(), [1e-16, 1e-16, 1e-16, 0.1])
    with pytest.raises(ProblemError, match="figure 'law' is not known; did you mean 'laws'"):
        fake.plot("law")
    with pytest.raises(ProblemError, match="law 'C' is not known"):
        fake.plot("states", "C")


def test_files_of_several_laws(fake, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(style, "save", lambda figure, folder, name: made.append(name) or [])
    compare_figures.write(fake, tmp_path)
    kinds = ("states", "residuals", "errors")
    assert made == [f"{kind}_{law}" for law in "AB" for kind in kinds] + ["laws"]
    assert "laws: the laws side by side" in (tmp_path / "captions.txt").read_text()


def test_a_late_jump_is_left_out_and_counted():
    reference = run_of([2, 2, 1, 1, 1], [0, 0, 1, 1, 1], [1.5])
    late = compare_table.against(run_of([2, 2, 2, 1.1, 1.1], [0, 0, 0, 1, 1], [3.0]), reference)
    assert late.left_out == 1
    assert np.nanmax(late.v) == pytest.approx(0.1)
    assert late.q.max() == 1.0  # positions have no jumps: nothing is left out
    np.testing.assert_allclose(np.nanmax(late.energy), (1.1**2 - 1) / 2 / 2)
    bounces = [
        run_of(v, [0] * 5, [t]) for v, t in (([-1, -1, 1, 1, 1], 1.5), ([-1, -1, -1, 1, 1], 2.5))
    ]
    assert (
        compare_table.against(*bounces).left_out == 1
    )  # no mode tells them apart, but the count of switches
    assert np.nanmax(compare_table.against(*bounces).v) == 0.0


def test_a_run_that_is_elsewhere_is_not_called_late():
    reference = run_of([1] * 10, [0] + [1] * 9, [0.5])
    never = compare_table.against(run_of([2] * 10, [0] * 10, []), reference)
    assert never.left_out == 0
    assert never.v.max() == 1.0


def test_a_reference_that_stops_is_told():
    runs = [run_of([2, 2], [0, 0], []), run_of([2], [0], [], Status.LEADS_BACK)]
    for run in runs:
        numbered(run)
    table = compare_table.table(
        compare.Comparison("p", 1.0, (0.0, 1.0), runs[:1], {"y": runs[1]}, 0.125)
    )
    assert (
        "The reference for y stopped at t = 0.5 (LEADS_BACK); errors are up to then." in table.notes
    )
    assert table.rows[0][:3] == ("x", "0", "0")


def test_shorter_runs_are_compared_as_far_as_they_go():
    found = compare_table.against(run_of([2, 2], [0, 0], []), run_of([2, 2, 1], [0, 0, 1], [1.5]))
    assert len(found.t) == 2 and found.v.max() == 0.0
    assert compare_table.against(run_of([2], [0], []), None) is None


def test_locks_are_measured_from_where_they_took_hold():
    constraint = nsdyn.Scheduled(times=(0.5,), stages=(None, nsdyn.lock(0)))
    problem = nsdyn.Problem(
        "p",
        PARTICLE,
        constraint,
        q0=[0.0, 0.0],
        v0=[1.0, 0.0],
        t_end=1.0,
        params={"m": 1.0, "g": 0.0},
    )
    one = {
        "t": 0.5,
        "mode_before": 0,
        "mode_after": 1,
        "q": [0.5, 0.0],
        "v_before": [1.0, 0.0],
        "v_after": [0.0, 0.0],
    }
    one |= {"Lam": [1.0], "direction": [[1.0, 0.0]], "kinetic_before": 0.5, "kinetic_after": 0.0}
    q = np.array([[0.0, 0.0], [0.4, 0.0], [0.5, 0.0], [0.53, 0.0]])
    run = Solution(
        t=np.array([0.0, 0.4, 0.5, 1.0]),
        q=q,
        v=np.zeros((4, 2)),
        lam=np.zeros((4, 1)),
        mode=np.array([0, 0, 1, 1]),
        energy=np.zeros(4),
        events=Events.of(Event(**{name: np.array([value]) for name, value in one.items()})),
        problem="p",
        integrator="",
        law="",
        step=0.1,
        save_every=1,
        t0=0.0,
        t_end=1.0,
        params=None,
        has_potential=True,
        nsdyn_version="",
    )
    np.testing.assert_allclose(
        residuals(problem, run).position[:, 0], [0.0, 0.0, 0.0, 0.03], atol=1e-15
    )


# Integrators, laws, and which go together


def test_written_is_the_reverse_of_built():
    for what, known in (("integrator", _integrators()), ("law", _laws())):
        for variant in (variant for cls in known.values() for variant in pairs.variants(cls)):
            for always in ((), ("*",)):
                text = format_object(variant, always)
                assert format_object(parse_object(what, text, known), "*") == format_object(
                    variant, "*"
                )
    assert (
        format_object(integrators.EventDriven(integrators.GeneralizedAlpha(2)))
        == "EventDriven(GeneralizedAlpha(index=2))"
    )
    assert format_object(laws.Restitution(0.5)) == "Restitution(e=0.5)"


def test_an_integrator_on_its_own_is_not_wrapped():
    assert isinstance(
        _integrator("GeneralizedAlpha", ""), integrators.GeneralizedAlpha
    )  # it captures; RK4 cannot
    assert isinstance(_integrator("RK4", ""), integrators.EventDriven)


@pytest.fixture(scope="module")
def tables():
    return pairs.pairs(), pairs.switches(), pairs.impacts()


def test_capability_tables_of_the_documentation(tables):
    hint = "print it with: python -c 'from nsdyn.studies.lib import pairs; print(pairs.markdown())'"
    for table, page in zip(tables, ("schemes.md", "laws.md", "laws.md"), strict=True):
        assert table.markdown() in (CONCEPTS / page).read_text("utf-8"), hint


def is_for_impacts(cls):
    return issubclass(cls, laws.AbstractImpactLaw)


def is_for_modes(cls):
    return not is_for_impacts(cls)


def test_capability_table_is_complete(tables, monkeypatch):
    known = {format_object(law, "*") for cls in _laws().values() for law in pairs.variants(cls)}
    assert {"MuellerTransition(form='minimal')", "GrassmannMidGradient(metric='euclidean')"} < known
    methods = [format_object(x) for x in pairs.variants(integrators.EventDriven)]
    assert {
        "EventDriven(RK4(formulation='minimal'))",
        "EventDriven(GeneralizedAlpha(index=1), project=False)",
    } < set(methods)
    for table, is_listed in zip(tables, (is_for_modes, is_for_modes, is_for_impacts), strict=True):
        shown = "\n".join(row[0] for row in table.rows)
        listed = [name for name, cls in _laws().items() if is_listed(cls)]
        assert not [name for name in listed if f"`{name}" not in shown]
    assert {cell for row in tables[0].rows for cell in row[1:]} >= {"yes", "switching only (1)"}
    monkeypatch.setattr(pairs, "switches", lambda: tables[1])
    result = call("list", "--pairs")
    assert result.exit_code == 0
    assert re.search(r"^Restitution +LAW_VIOLATES +LAW_VIOLATES +yes", result.stdout, re.MULTILINE)
    assert "nothing rebounds" in result.stdout
    assert re.search(r"^Fremond +yes +no *$", result.stdout, re.MULTILINE)
