"""Studies compute once, draw often; registries find what lies in the folders."""

import json
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import nsdyn
from nsdyn import problems, studies
from nsdyn.errors import FileError, ProblemError
from nsdyn.integrators import NSGA
from nsdyn.studies import joint_locking
from nsdyn.studies.lib import archive, style, verify

STEP = 1e-2


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("joint_locking")
    joint_locking.compute(folder, STEP)
    return folder


def test_joint_locking_tells_the_paper_s_story(folder):
    consistent, described = archive.read(folder / "data", "consistent")
    inconsistent, _ = archive.read(folder / "data", "inconsistent")
    np.testing.assert_allclose(consistent.t_lock, [0.8, 1.3], atol=1e-12)
    left = np.flatnonzero(np.diff(consistent.t) == 0)
    left = left[consistent.mode.values[left] < consistent.mode.values[left + 1]]
    assert len(left) == 2
    jump = lambda data, name: data[name].values[left + 1] - data[name].values[left]
    free = np.array([[True, False, True], [True, False, False]])
    scale = np.nanmax(np.abs(consistent.P))
    assert (
        np.nanmax(np.abs(jump(consistent, "P"))) < 1e-10 * scale
    )  # momenta of free joints are continuous
    assert np.isfinite(jump(consistent, "P")[free]).all()
    assert np.isnan(jump(consistent, "P")[~free]).all()  # those of locked joints are not drawn
    assert np.nanmax(np.abs(jump(inconsistent, "P"))) > 0.1 * scale
    assert (jump(consistent, "energy") < -100).all()
    np.testing.assert_allclose(consistent.v.values[left + 1][~free], 0.0, atol=1e-12)
    assert described["settings"]["step"] == STEP


def test_data_are_computed_once(folder, monkeypatch):
    def fail(*_, **__):
        raise AssertionError("computed again")

    monkeypatch.setattr(archive, "write", fail)
    before = {file: file.stat().st_mtime_ns for file in (folder / "data").iterdir()}
    first = {file: file.read_bytes() for file in joint_locking.run(folder, STEP)}
    second = {file: file.read_bytes() for file in joint_locking.draw(folder)}
    assert first == second
    assert before == {file: file.stat().st_mtime_ns for file in (folder / "data").iterdir()}
    assert {file.name for file in first} == {
        f"figure_{i}.{kind}" for i in range(1, 5) for kind in ("pdf", "png")
    } | {"captions.txt"}
    assert not list(folder.rglob(".*"))
    for arguments in ((STEP / 2,), (STEP, True)):  # other settings, and force
        with pytest.raises(AssertionError, match="computed again"):
            joint_locking.compute(folder, *arguments)


def test_data_that_were_made_by_other_code_are_replaced(tmp_path):
    """And what has other settings stays."""
    made = lambda value: lambda: {"y": ((), value)}
    one, two = made(1.0), made(2.0)
    first = archive.update(tmp_path, "x", {"step": 1}, one)
    kept = archive.update(tmp_path, "x", {"step": 2}, one)
    assert archive.update(tmp_path, "x", {"step": 1}, made(1.0)) == first  # the same code
    second = archive.update(tmp_path, "x", {"step": 1}, two)
    assert second != first and not first.exists() and kept.exists()
    assert archive.read(tmp_path, "x")[0].y == 2.0 and archive.read(tmp_path, kept.stem)[0].y == 1.0
    table = archive.update(tmp_path, "table", {}, made(0.0), after=["x"])
    archive.update(tmp_path, "x", {"step": 1}, made(3.0))
    assert archive.update(tmp_path, "table", {}, made(0.0), after=["x"]) != table


def test_bytes_do_not_depend_on_when_they_were_computed(tmp_path):
    make = lambda: {"y": (("i",), np.arange(5) / 3, {"units": "m"})}
    files = [archive.update(tmp_path / name, "x", {"a": 1}, make) for name in "ab"]
    assert files[0].name == files[1].name
    assert files[0].read_bytes() == files[1].read_bytes()


def test_verifying_computes_a_sample_again(tmp_path, monkeypatch):
    study = ModuleType("study")
    value = [1.0]

    def compute(folder):
        values = lambda: {"y": (("i",), np.array([value[0], 3.0]))}
        uses_no_list = lambda: values()  # what a list holds is data: the key does not see it
        archive.update(folder / "data", "x", {"a": 1}, uses_no_list)

    study.compute = compute
    monkeypatch.setattr(archive, "code_digest", lambda *_: "always the same")
    assert not verify.verified(study, "study", tmp_path)[0].ok
    compute(tmp_path)
    verdicts = []
    for value[0] in (1.0, 1.0 + 1e-12, 1.5):
        verdicts += verify.verified(study, "study", tmp_path)
    assert [found.ok for found in verdicts] == [True, True, False]
    assert verdicts[0].text == "identical" and "1.7e-01" in verdicts[2].text


def keys_of(folder, *names):
    """The keys of all data of these studies, which are not computed."""
    found = {}
    for name in names:
        with archive.verifying([]) as visited:
            studies.get(name).compute(folder / name)
        found |= {f"{name} {data}": key for data, key in visited.keys.items()}
    return found


@pytest.mark.parametrize(
    ("study", "problem"),
    [
        ("friction_orders", "friction_bowl"),
        ("friction_orders", "tippe_top"),
        ("woodpecker", "woodpecker"),
    ],
)
def test_an_edited_problem_concerns_the_study_that_runs_it(study, problem, tmp_path, monkeypatch):
    before = keys_of(tmp_path, study)
    assert keys_of(tmp_path, study) == before
    edited = lambda: None
    monkeypatch.setattr(problems.function(problem), "__code__", edited.__code__)
    after = keys_of(tmp_path, study)
    assert after.keys() == before.keys() and not set(after.values()) & set(before.values())


def test_an_edited_integrator_concerns_what_uses_it(tmp_path, monkeypatch):
    keys = partial(keys_of, tmp_path)
    names = ("convergence", "joint_locking", "pothole", "switching_track", "walking")
    before = keys(*names)
    again = keys("joint_locking", "pothole")
    assert again == {name: before[name] for name in again}
    monkeypatch.setattr(NSGA, "_solved", lambda self, *args: None)
    after = keys(*names)
    changed = {name for name, key in after.items() if key != before[name]}
    schemes = {"nsga", "nsga_velocity", "nsga_decoupled"}
    cells = {
        name
        for name in after
        if name.startswith(("convergence", "switching_track"))
        and schemes & set(name.split()[1:])
        and len(name.split()) > 2
    }
    assert len(cells) == 3 * (2 * 1 * 4 + 2 * 2 + 3)  # problems x laws x steps, and smooth tracks
    # drawn data depend on those cells by their keys
    assert {name for name in changed if not name.startswith("pothole")} == cells
    assert len([name for name in changed if name.startswith("pothole")]) == 3


def files_of(folder):
    """When each file of data was written, by the name of the data."""
    names = archive.read_index(folder)["names"]
    return {name: (folder / f"{key}.nc").stat().st_mtime_ns for name, key in names.items()}


@pytest.mark.slow
def test_one_line_of_an_integrator_is_edited(tmp_path):
    """In a copy of the tree, with a smaller study: `nsdyn figures` computes again what depends on
    that line, and nothing else."""
    root = Path(__file__).resolve().parents[1]
    shutil.copy(root / "pyproject.toml", tmp_path)
    for name in ("nsdyn", "integrators", "problems", "studies"):
        leave = shutil.ignore_patterns("__pycache__")
        shutil.copytree(root / name, tmp_path / name, ignore=leave)
    file = tmp_path / "studies" / "convergence.toml"
    kept = ("nsga =", "moreau_jean =", "event_rk4 =")
    lines = file.read_text().splitlines()
    start, end = lines.index("[integrators]"), lines.index("[steps]")
    chosen = [x for x in lines[start:end] if x.startswith(kept)]
    text = "\n".join([*lines[: start + 1], *chosen, *lines[end:]])
    for name in ("halvings", "phases"):
        text, count = re.subn(rf"^{name} = \d+$", f"{name} = 1", text, flags=re.MULTILINE)
        assert count == 1
    file.write_text(text)

    def figures():
        command = [sys.executable, "-m", "nsdyn", "figures", "convergence", "--out", "figures"]
        made = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        return files_of(tmp_path / "figures" / "convergence" / "data")

    before = figures()
    assert figures() == before
    integrator = tmp_path / "integrators" / "moreau_jean.py"
    old, new = "moved(point.q, theta * dx, p)", "moved(point.q, 1.0 * theta * dx, p)"
    text = integrator.read_text()
    assert text.count(old) == 1
    integrator.write_text(text.replace(old, new))
    after = figures()
    changed = {name for name in after if after[name] != before[name]}
    of_moreau = {name for name in after if " moreau_jean " in name}
    assert len(of_moreau) == 4 and changed == {*of_moreau, "table"}


def test_archive_knows_its_data(tmp_path):
    settings = {"a": np.array([1.0, 2.0]), "b": (1, 2)}
    archive.write(tmp_path, "x", {"y": (("i",), np.arange(3.0), {"units": "m"})}, settings)
    data, described = archive.read(tmp_path, "x")
    np.testing.assert_array_equal(data.y, [0.0, 1.0, 2.0])
    assert described["settings"] == {"a": [1.0, 2.0], "b": [1, 2]}
    assert described["versions"]["nsdyn"] == nsdyn.__version__
    assert archive.exists(tmp_path, "x", settings)
    assert not archive.exists(tmp_path, "x", {"a": 1})
    assert not archive.exists(tmp_path, "z", settings)
    with pytest.raises(FileError, match="compute the study first"):
        archive.read(tmp_path, "z")
    (tmp_path / "x.nc").write_bytes(b"something else")
    assert not archive.exists(tmp_path, "x", settings)
    with pytest.raises(FileError, match="not the file"):
        archive.read(tmp_path, "x")
    (tmp_path / "x.json").write_text("[")
    assert not archive.exists(tmp_path, "x", settings)


def test_interrupted_writing_leaves_what_was_there(tmp_path):
    path = archive.write_json(tmp_path / "x.json", {"a": 1})

    def interrupted(part):
        part.write_text("{")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        archive.replace(path, interrupted)
    assert json.loads(path.read_text()) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


def test_jumps_are_marked_and_ends_are_not():
    with style.use():
        _, (ax,) = style.figure()
        style.jumping_line(ax, [0, 1, 1, 2, 2, 3], [0, 0, 5, 5, np.nan, np.nan])
    line, open_circles, filled = ax.lines
    np.testing.assert_array_equal(line.get_xdata(), [0, 1, np.nan, 1, 2, 2, 3])
    np.testing.assert_array_equal(open_circles.get_ydata(), [0])
    np.testing.assert_array_equal(filled.get_ydata(), [5])


def test_problems_by_name():
    assert "three_r_pendulum" in problems.names()
    assert problems.names() == sorted(problems.names())
    assert all(problems.summary(name) for name in problems.names())
    assert float(problems.get("three_r_pendulum", m=2.0).params["m"]) == 2.0
    with pytest.raises(ProblemError, match="did you mean 'three_r_pendulum'"):
        problems.get("three-r-pendulm")
    with pytest.raises(ProblemError, match="its parameters are m, L"):
        problems.get("three_r_pendulum", mass=1.0)
    with pytest.raises(AttributeError, match="three_r_pendulum"):
        _ = problems.four_r_pendulum


def test_a_problem_is_its_function_even_after_its_module_was_imported():
    from nsdyn.problems.three_r_pendulum import three_r_pendulum

    assert problems.three_r_pendulum is three_r_pendulum
    assert problems.function("three_r_pendulum") is three_r_pendulum


@pytest.mark.parametrize("name", problems.names())
def test_every_problem_is_named_after_its_file(name):
    assert problems.get(name).name == name


def test_studies_by_name():
    assert "joint_locking" in studies.names()
    assert not {"archive", "style", "bench"} & set(studies.names())
    assert studies.get("joint_locking") is joint_locking
    assert studies.summary("joint_locking").startswith("Joint locking")
    with pytest.raises(ProblemError, match="did you mean 'joint_locking'"):
        studies.get("joint-locking")
