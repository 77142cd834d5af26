"""What README and documentation print runs as printed, page by page, in an empty folder."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import nsdyn
from nsdyn import integrators, problems, studies
from nsdyn.cli.commands import app
from nsdyn.cli.parse import signature
from nsdyn.studies.compare import compare
from nsdyn.studies.lib import study_file

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(python|sh|toml)(?: (\S+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run(page, folder):
    """The names that the blocks of a page define. A block with a file name is that file; nsdyn's
    commands must succeed, but for those that are shown only."""
    names = {"__name__": "page"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for language, name, text in BLOCK.findall((ROOT / page).read_text("utf-8")):
            if name == "shown":
                continue
            if name:
                Path(name).write_text(text)
            elif language == "python":
                exec(compile(text, page, "exec"), names)
            elif language == "toml":
                study_file.parse(text, page)
            else:
                follow(text)
    return names


def follow(text):
    for line in text.splitlines():
        result = CliRunner().invoke(app, shlex.split(line, comments=True)[1:])
        assert result.exit_code == 0, f"{line}: {result.stderr}"


def test_readme(tmp_path):
    names = run("README.md", tmp_path)
    (event,) = names["trajectory"].events
    assert event.t == pytest.approx(0.5)
    np.testing.assert_allclose(event.v_after, [1.6, 0.8], atol=1e-12)
    saved = nsdyn.load(tmp_path / "ramp.nc")
    np.testing.assert_array_equal(saved.q, names["trajectory"].q)


def test_the_example_is_short():
    code = BLOCK.findall((ROOT / "README.md").read_text("utf-8"))
    first = next(text for language, _, text in code if language == "python")
    assert len([line for line in first.splitlines() if line.strip()]) <= 22


@pytest.mark.parametrize("page", ["law", "integrator"])
def test_extension_points_are_short(page):
    text = (ROOT / "docs" / "tutorials" / f"{page}.md").read_text("utf-8")
    (body,) = re.findall(r"^class .*?(?=^(?:\S|```))", text, re.MULTILINE | re.DOTALL)
    assert len([line for line in body.splitlines() if line.strip()]) < 15


def test_ten_minutes(tmp_path):
    names = run("docs/start.md", tmp_path)
    (event,) = names["solution"].events
    slope = 0.3  # what moves along the normal of the ramp is gone
    np.testing.assert_allclose(event.v_after, np.array([2, 2 * slope]) / (1 + slope**2), atol=1e-12)
    assert (tmp_path / "run.png").is_file() and any((tmp_path / "compared").iterdir())


def test_own_mechanism(tmp_path):
    names = run("docs/tutorials/mechanism.md", tmp_path)
    run_of, slider = names["run"], names["locked"]
    np.testing.assert_allclose(run_of.events.t, [0.4], atol=1e-12)
    locked = run_of.t > 0.4
    assert np.ptp(run_of.q[locked, 1]) < 1e-12
    (event,) = slider.events
    assert abs(event.v_before[1]) < 1e-9  # energy says how high it is: v^2 / 2 + g y is kept
    speed = np.sum(event.v_before**2)
    assert speed / 2 + 9.81 * event.q[1] == pytest.approx(2.92 / 2 - 9.81 * 0.4, rel=1e-6)
    np.testing.assert_allclose(slider.q[-1], event.q, atol=1e-12)


def test_own_law(tmp_path):
    jump = run("docs/tutorials/law.md", tmp_path)["jump"]
    np.testing.assert_allclose(jump.v_after, [0.5 * 0.75 * 3.0])


def test_own_integrator(tmp_path):
    """Second order: the energy before the first lock is kept to h^2 times a few."""
    run_of = run("docs/tutorials/integrator.md", tmp_path)["run"]
    before = run_of.energy[run_of.t < run_of.events.t[0]]
    assert np.ptp(before) < 1e-4 * np.max(np.abs(before))


def test_sweep(tmp_path):
    names = run("docs/tutorials/sweep.md", tmp_path)
    assert names["batch"].q.shape[0] == 16
    assert not names["batch"].status.any()
    for kept in ("kept", "same", "later", "two"):
        np.testing.assert_array_equal(names[kept].q, names["spread"].q)
    assert len(names["figure"].axes) == 4 and names["data"].sizes["run"] == 16
    assert len(nsdyn.load(tmp_path / "heavier")) == 16


def test_settings(tmp_path):
    assert float(run("docs/concepts/accuracy.md", tmp_path)["loose"].lost) == 1e-6


@pytest.mark.slow
def test_contacts(tmp_path):
    names = run("docs/tutorials/contacts.md", tmp_path)
    assert np.max(np.abs(names["stays"].q - names["stays"].q[0])) < 1e-12
    assert names["slides"].v[-1, 0] == pytest.approx(names["acceleration"], rel=1e-9)
    assert names["rolls"].v[-1, 0] == pytest.approx(5 / 7, abs=1e-9)
    assert np.max(np.abs(names["settled"].v[-1])) < 1e-9
    np.testing.assert_allclose(np.diff(names["loose"]), 8.902605407814523, atol=2e-2)


@pytest.mark.slow
def test_compare(tmp_path, capsys):
    names = run("docs/tutorials/compare.md", tmp_path)
    assert "order" in capsys.readouterr().out
    assert [run.status for run in names["compared"].runs] == [nsdyn.Status.OK] * 2
    assert names["orders"].order == pytest.approx(1, abs=0.25) and names["orders"].points == 3


def test_what_a_newcomer_mistypes(tmp_path):
    """An integrator where a pair is wanted, and a name that is nearly right; settings that are made
    anew are shown as what they are."""
    (tmp_path / "empty.py").write_text("x = 1\n")
    with pytest.raises(
        nsdyn.ProblemError, match=r"found none; a problem is a function that returns"
    ):
        problems.get(f"{tmp_path}/empty.py")
    track, scheme = problems.get("point_on_track"), integrators.NSGA()
    with pytest.raises(nsdyn.ProblemError, match=r"found NSGA\(.*pairs\(integrators, laws\)"):
        compare(track, [scheme], step=1e-2)
    with pytest.raises(AttributeError) as mistyped:
        nsdyn.simulte  # noqa: B018
    assert (mistyped.value.name, mistyped.value.obj) == ("simulte", nsdyn)
    assert "newton=Newton(tolerance=" in signature(integrators.NSGA)


def test_study_files(tmp_path):
    run("docs/reference/study_files.md", tmp_path)


def test_every_key_of_a_study_file_is_on_its_page():
    text = (ROOT / "docs/reference/study_files.md").read_text("utf-8")
    for key in (*study_file.KEYS[""], *study_file.KEYS["steps"], *study_file.METRICS):
        short = key.replace("residual_", "..._") if key != "residual_position" else key
        assert short in text, key
    shown = CliRunner().invoke(app, ["study", "--help"], env={"COLUMNS": "200"}).stdout
    for option in re.findall(r"--[a-z-]+", shown):
        assert option in text or option in ("--out", "--help"), option


def test_clusters(tmp_path):
    assert run("docs/howto/cluster.md", tmp_path)["result"].ok.all()


def test_a_run_that_stops(tmp_path):
    stopped = run("docs/howto/stopped.md", tmp_path)["stopped"]
    assert stopped.status == nsdyn.Status.LEADS_BACK and len(stopped.partial.t) > 5


@pytest.mark.slow
def test_journal(tmp_path):
    run("docs/howto/journal.md", tmp_path)
    assert (tmp_path / "figures" / "two_links" / "figure_1.svg").is_file()


@pytest.mark.slow
def test_gradients(tmp_path):
    names = run("docs/tutorials/gradients.md", tmp_path)
    speed = names["final_speed"]
    difference = (speed(2.0 + 1e-5) - speed(2.0 - 1e-5)) / 2e-5
    assert names["slope"] == pytest.approx(float(difference), rel=1e-6)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    pytest.importorskip("sphinx")
    command = [sys.executable, "-m", "sphinx", "-W", "-q", str(ROOT / "docs"), str(tmp_path)]
    built = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert built.returncode == 0, built.stderr
    assert (tmp_path / "start.html").is_file()


def test_every_page_with_code_is_run():
    """The cookbook has a test of its own."""
    source = Path(__file__).read_text("utf-8")
    for page in PAGES:
        blocks = BLOCK.findall(page.read_text("utf-8"))
        if any(name != "shown" for _, name, _ in blocks) and page.name != "cookbook.md":
            assert f'run("{page.relative_to(ROOT).as_posix()}"' in source, page


def test_a_fresh_clone_shows_all_figures():
    """`python docs/previews.py figures` copies them from the archive."""
    folder = ROOT / "docs" / "previews"
    for name in studies.names():
        assert list((folder / name).glob("*.png")), f"{name}: make them by docs/previews.py"
    assert sum(x.stat().st_size for x in folder.rglob("*")) < 1.5e6


def test_every_page_named_exists():
    """Or is written when the site is built."""
    ignored = (ROOT / ".gitignore").read_text("utf-8").split()
    written = {ROOT / path.lstrip("/") for path in ignored if path.endswith(".md")}
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+\.md)[^)]*\)", page.read_text("utf-8")):
            path = (page.parent / target).resolve()
            assert path.is_file() or path in written, f"{page.name}: {target}"


def test_every_file_named_exists():
    pattern = r"`((?:nsdyn|integrators|problems|studies|tests|docs)/[a-z_/]+\.(?:py|c|md))`"
    for page in PAGES:
        for path in re.findall(pattern, page.read_text("utf-8")):
            assert (ROOT / path).is_file(), f"{page.name}: {path}"


def test_every_status_has_a_message():
    assert set(nsdyn.status.MESSAGES) == set(nsdyn.Status)
