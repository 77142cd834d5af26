"""Figures drawn again as journals ask for, and files that tell where they come from."""

import json
import re
import shlex
import shutil
import struct
import sys
from types import ModuleType

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

import nsdyn
from nsdyn import studies
from nsdyn.cli.commands import app
from nsdyn.errors import FileError, ProblemError
from nsdyn.results.sweep_folder import SweepFolder
from nsdyn.studies.lib import archive, origin, redrawing, stamps, style, tables

SPOKEN = "IntermediateGradient(position=0.5)"  # a law with settings: quotes, parentheses
STUDY = "walking"  # a name of ours, with a study of one line behind it


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def values():
    return {"y": (("i",), np.array([0.0, 1.0, 4.0]))}


def compute(folder, force=False):
    archive.update(folder / "data", "squares", {"step": 0.5}, values, force=force)


def draw(folder):
    data, _ = archive.read(folder / "data", "squares")
    with style.use():
        fig, (ax,) = style.figure()
        ax.plot(data.y)
        ax.set_xlabel("number $i$")
        return style.save(fig, folder, "figure_1")


@pytest.fixture
def figures(tmp_path, monkeypatch):
    """The folder of figures, with one study in it."""
    module = ModuleType(STUDY)
    module.compute, module.draw = compute, draw
    monkeypatch.setitem(sys.modules, f"nsdyn.studies.{STUDY}", module)
    monkeypatch.setattr(studies, STUDY, module, raising=False)
    compute(tmp_path / STUDY)
    draw(tmp_path / STUDY)
    return tmp_path


def told(*arguments):
    """What `nsdyn info` says, by its words."""
    found = call("info", *arguments)
    assert found.exit_code == 0, found.stderr
    lines = [line for line in found.stdout.splitlines() if not line.startswith(" ")]
    return dict(line.split(maxsplit=1) for line in lines)


def size_of(file):
    """Of a PDF, in inches."""
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", file.read_bytes())
    return float(box[1]) / 72, float(box[2]) / 72


def test_redraw_has_the_look_of_a_journal_and_computes_nothing(figures, monkeypatch):
    folder = figures / STUDY
    before = size_of(folder / "figure_1.pdf")
    assert before == pytest.approx((style.COLUMN, 2.4))

    def fail(*_, **__):
        raise AssertionError("computed again")

    monkeypatch.setattr(archive, "write", fail)
    look = ("--width", "88mm", "--font", "DejaVu Sans", "--font-size", 7, "--format", "pdf,svg,png")
    found = call("redraw", "--folder", figures, *look)
    assert found.exit_code == 0, found.stderr
    assert {x.name for x in folder.glob("figure_*")} == {f"figure_1.{x}" for x in style.FORMATS}
    after = size_of(folder / "figure_1.pdf")
    np.testing.assert_allclose(np.divide(after, before), 88 / 25.4 / style.COLUMN, rtol=1e-3)
    with Image.open(folder / "figure_1.png") as image:
        assert image.width == pytest.approx(300 * 88 / 25.4, abs=1)
    text = (folder / "figure_1.svg").read_text()
    assert set(re.findall('font-family: ([^;"]*)', text)) == {"'DejaVu Sans'"}
    assert "font-size: 7px" in text
    first = {x: x.read_bytes() for x in folder.glob("figure_*")}
    assert call("redraw", STUDY, "--folder", figures, *look).exit_code == 0
    assert first == {x: x.read_bytes() for x in folder.glob("figure_*")}
    draw(folder)  # the look does not last
    assert size_of(folder / "figure_1.pdf") == pytest.approx(before)


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--width", "wide", "--width: expected a length such as 88mm"),
        ("--width", "900mm", "expected a column of 1 to 20 inches"),
        ("--font", "No Such Font", "font: expected one that is installed"),
        ("--format", "pdf,bmp", "format: expected some of pdf, svg, png, found 'bmp'"),
    ],
)
def test_redraw_says_what_it_cannot_do(figures, option, value, words):
    found = call("redraw", "--folder", figures, option, value)
    assert found.exit_code == 2 and words in " ".join(found.stderr.split())


def test_redraw_needs_data(tmp_path):
    found = call("redraw", "--folder", tmp_path)
    assert found.exit_code == 2 and "nsdyn figures --out" in " ".join(found.stderr.split())
    found = call("redraw", "two_links", "--folder", tmp_path)
    assert found.exit_code == 2 and "compute the study first" in " ".join(found.stderr.split())


@pytest.mark.parametrize("kind", style.FORMATS)
def test_a_figure_tells_where_it_comes_from_wherever_it_lies(figures, kind, tmp_path_factory):
    call("redraw", "--folder", figures, "--format", kind)
    file = figures / STUDY / f"figure_1.{kind}"
    found = told(file)
    assert found["figure"] == f"figure_1 of the study {STUDY}"
    assert found["data"].startswith("squares (") and nsdyn.__version__ in found["versions"]
    assert found["command"] == shlex.join(["nsdyn", "figures", STUDY, "--out", str(figures)])
    moved = shutil.copy(file, tmp_path_factory.mktemp("paper"))
    assert told(moved)["command"] == f"nsdyn figures {STUDY}"
    archive.update(figures / STUDY / "data", "squares", {"step": 0.25}, values)
    assert "newer than the figure" in told(file)["note"]


def test_data_tables_and_folders_tell_where_they_come_from(figures):
    folder = figures / STUDY
    (file,) = (folder / "data").glob("*.nc")
    assert told(file)["setting"].startswith("step = 0.5")
    assert told(folder)["study"] == STUDY
    (folder / "table.tex").write_text("a table")
    assert told(folder / "table.tex")["command"].startswith(f"nsdyn figures {STUDY}")
    archive.remember_command(folder / "data", "nsdyn study corner.toml")
    compute(folder, force=True)
    assert told(folder)["command"] == "nsdyn study corner.toml"


def test_a_run_tells_the_command_that_makes_it_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["run", "point_on_track", "--step", "0.02", "--set", "a=0.7", "--out", "run.nc"]
    assert call(*words).exit_code == 0
    found = told("run.nc")
    assert shlex.split(found["command"]) == ["nsdyn", *words]
    assert found["commit"] and "jax" in found["versions"]
    first = nsdyn.load("run.nc").q
    assert call(*shlex.split(found["command"])[1:]).exit_code == 0
    np.testing.assert_array_equal(nsdyn.load("run.nc").q, first)
    (tmp_path / "run.json").unlink()  # saved in Python: the command is put together
    again = told("run.nc")["command"]
    assert again.startswith("nsdyn run point_on_track --integrator 'EventDriven(method=RK4())'")
    assert "--step 0.02" in again and "with the parameters above" in again


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """What one run leaves: a plot in each format and a film."""
    folder = tmp_path_factory.mktemp("run")
    words = ["run", "point_on_track", "--step", "0.02", "--t-end", "0.3", "--law", SPOKEN]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for kind in ("pdf", "svg", "png"):
            film = ["--animate", "run.gif", "--speed", "0.5"] if kind == "png" else []
            found = call(*words, "--plot", f"run.{kind}", *film)
            assert found.exit_code == 0, found.stderr
    return folder


@pytest.mark.parametrize("kind", ["pdf", "svg", "png", "gif"])
def test_plots_and_films_tell_their_command_wherever_they_lie(written, kind, tmp_path):
    found = told(shutil.copy(written / f"run.{kind}", tmp_path))
    words = shlex.split(found["command"])
    assert words[:6] == ["nsdyn", "run", "point_on_track", "--law", SPOKEN, "--step"]
    assert ("run.gif" if kind == "gif" else f"run.{kind}") in words
    assert "jax" in found["versions"] and "platform" in found


def test_a_film_with_its_command_is_still_a_film(written):
    with Image.open(written / "run.gif") as film:
        film.seek(film.n_frames - 1)
        assert film.n_frames > 10 and film.convert("RGB").getextrema()[0][0] < 255


def test_a_film_in_mp4_keeps_its_boxes(tmp_path):
    film, about = tmp_path / "run.mp4", {"command": "nsdyn run x --step 1", "versions": {}}
    boxes = struct.pack(">I4s4s", 12, b"ftyp", b"isom")
    film.write_bytes(boxes)
    stamps.stamp_film(film, about)
    data = film.read_bytes()
    assert data.startswith(boxes) and stamps.read(film) == about
    assert struct.unpack(">I4s", data[12:20]) == (len(data) - 12, b"free")


def test_tables_tell_where_they_come_from_wherever_they_lie(figures, tmp_path_factory):
    shown = tables.Table("Squares", ("i", "y"), [("1", "1"), ("2", "4")], ["a note"])
    files = tables.write(figures / STUDY, shown)
    assert [file.suffix for file in files] == [".txt", ".md", ".tex", ".csv"]
    for file in files:
        beside = shlex.join(["nsdyn", "figures", STUDY, "--out", str(figures)])
        assert told(file)["command"] == beside
    paper = tmp_path_factory.mktemp("paper")
    for file in files[1:3]:
        found = told(shutil.copy(file, paper))
        assert found["table"] == f"table of the study {STUDY}"
        assert found["command"] == f"nsdyn figures {STUDY}"
    with pytest.raises(FileError, match="nothing that nsdyn writes"):
        origin.origin(shutil.copy(files[3], paper))


def test_the_command_is_known_where_a_folder_was_renamed(figures):
    assert call("figures", STUDY, "--out", figures).exit_code == 0
    moved = (figures / STUDY).rename(figures / "chapter_2")
    made = shlex.join(["nsdyn", "figures", STUDY, "--out", str(figures)])
    assert told(moved)["command"] == made == told(moved / "figure_1.png")["command"]


def test_plots_of_runs_and_sweeps_are_drawn_again(tmp_path, monkeypatch):
    """With a look, beside their files, with the origin of the run if that is known."""
    monkeypatch.chdir(tmp_path)
    words = ["run", "point_on_track", "--step", "0.02", "--t-end", "0.3", "--out", "run.nc"]
    assert call(*words).exit_code == 0
    one = nsdyn.load("run.nc")
    look = ("--width", "60mm", "--format", "pdf,png")
    assert call("redraw", "run.nc", *look).exit_code == 0
    width, _ = size_of(tmp_path / "run.pdf")
    assert width == pytest.approx(7.0 * 60 / 25.4 / style.COLUMN, rel=1e-3)
    assert shlex.split(told("run.png")["command"]) == ["nsdyn", *words]
    one.save("python.nc")
    assert call("redraw", "python.nc", "--format", "svg").exit_code == 0
    assert told("python.svg")["command"] == "nsdyn redraw python.nc"
    (tmp_path / "broken.nc").write_text("none")
    assert call("redraw", "broken.nc").exit_code == 2


def test_a_page_tells_its_command(figures, tmp_path):
    words = ["report", str(figures / STUDY), "--out", str(tmp_path / "page.html"), "--no-player"]
    (figures / STUDY / "captions.txt").write_text("Figure 1.")
    assert call(*words).exit_code == 0
    assert shlex.split(told(tmp_path / "page.html")["command"]) == ["nsdyn", *words]


def test_folders_of_sweeps_and_tables_tell_where_they_come_from(tmp_path):
    """A complete sweep is in the tests of the command line."""
    sweep, listed = tmp_path / "kept", tmp_path / "tables"
    SweepFolder(sweep).claim({"settings": {"problem": "ball"}, "versions": {"jax": "1"}})
    found = told(sweep)
    assert "not complete" in found["sweep"] and found["setting"] == "problem = ball"
    assert found["versions"] == "jax 1" and found["command"].startswith("unknown")
    archive.write_json(listed / "origin.json", {"command": "nsdyn study x.toml"})
    (listed / "pairs.csv").write_text("a,b\n")
    for file in (listed, listed / "pairs.csv"):
        assert told(file)["command"] == "nsdyn study x.toml"


def test_what_is_not_ours_is_said(tmp_path):
    with pytest.raises(FileError, match="does not exist"):
        origin.origin(tmp_path / "none.pdf")
    (tmp_path / "other.pdf").write_bytes(b"%PDF-1.4")
    with pytest.raises(FileError, match="nothing that nsdyn writes"):
        origin.origin(tmp_path / "other.pdf")
    (tmp_path / "other.json").write_text(json.dumps({}))
    with pytest.raises(FileError, match="nothing that nsdyn writes"):
        origin.origin(tmp_path / "other.json")


def test_figures_are_verified_by_a_command(figures, monkeypatch):
    """Nothing is drawn or written; the exit code tells whether all is well."""
    monkeypatch.setattr(archive, "code_digest", lambda *_: "always the same")
    compute(figures / STUDY)
    verify = lambda: call("figures", STUDY, "--verify", "--out", figures)
    before = {file: file.stat().st_mtime_ns for file in figures.rglob("*")}
    good = verify()
    assert good.exit_code == 0 and "identical" in good.stdout
    monkeypatch.setitem(globals(), "values", lambda: {"y": (("i",), np.array([0.0, 1.0, 5.0]))})
    bad = verify()
    assert bad.exit_code == 1 and "largest difference 2.0e-01" in bad.stdout
    monkeypatch.setattr(archive, "code_digest", lambda *_: "other code")
    old = verify()
    assert old.exit_code == 1 and "no data for this code" in old.stdout
    assert before == {file: file.stat().st_mtime_ns for file in figures.rglob("*")}


def test_a_look_that_makes_no_sense_is_refused():
    with (
        pytest.raises(ProblemError, match="letters of 3 to 40 points"),
        style.looking(style.Look(points=100)),
    ):
        pass


# Figures that are what would be drawn are not drawn again.


def draw_once(folder):
    file = folder / "figure.txt"
    file.write_text("once" + file.read_text() if file.exists() else "once")
    return [file]


def draw_twice(folder):
    file = folder / "figure.txt"
    file.write_text("twice")
    return [file]


def study_of(draw, number):
    study = ModuleType("small")
    study.draw = draw
    study.compute = lambda folder, force=False: archive.update(
        folder / "data",
        "numbers",
        {"number": number},
        lambda: {"x": ("x", np.full(2, number))},
        force=force,
    )
    return study


def test_figures_are_drawn_if_data_or_code_changed(tmp_path):
    made = lambda draw, number, force=False: redrawing.made(study_of(draw, number), tmp_path, force)
    (file,) = made(draw_once, 1.0)
    assert made(draw_once, 1.0) == [file] and file.read_text() == "once"
    made(draw_once, 2.0)
    assert file.read_text() == "onceonce"
    made(draw_twice, 2.0)
    assert file.read_text() == "twice"
    file.unlink()
    made(draw_twice, 2.0)
    assert file.is_file()
    file.write_text("by hand")
    made(draw_twice, 2.0, force=True)
    assert file.read_text() == "twice"
