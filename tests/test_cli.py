"""The command line: what it prints, what it writes, and its exit codes."""

import dataclasses
import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

import nsdyn
from nsdyn import integrators, laws
from nsdyn.cli.commands import _integrator, app
from nsdyn.errors import ProblemError, SimulationError
from nsdyn.studies.lib import archive
from nsdyn.studies.lib.bench import suite
from nsdyn.studies.lib.written import integrators as _integrators
from nsdyn.studies.lib.written import laws as _laws
from nsdyn.studies.lib.written import parse_object


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_list_shows_everything():
    result = call("list")
    assert result.exit_code == 0
    for name in (
        "three_r_pendulum",
        "EventDriven(method",
        "RK4(formulation='lagrange')",
        "Restitution(e)",
        "joint_locking",
    ):
        assert name in result.stdout
    assert "AbstractLaw" not in result.stdout


def test_version_and_help():
    assert call("--version").stdout == f"nsdyn {nsdyn.__version__}\n"
    for command in ("list", "check", "run", "compare", "sweep", "figures", "bench"):
        result = call(command, "--help")
        assert result.exit_code == 0
        assert f"Example: nsdyn {command}" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("run", "three_r_pendulun"), "did you mean 'three_r_pendulum'"),
        (("run", "three_r_pendulum", "--law", "Restitutio(e=0.5)"), "did you mean 'Restitution'"),
        (("run", "three_r_pendulum", "--law", "Restitution(f=0.5)"), "Restitution(f=0.5)"),
        (("run", "three_r_pendulum", "--law", "a b"), "NAME(setting=value"),
        (("run", "three_r_pendulum", "--law", "MuellerTransition(form=wrong)"), "form"),
        (("run", "three_r_pendulum", "--integrator", "RK5"), "did you mean 'RK4'"),
        (("run", "three_r_pendulum", "--formulation", "wrong"), "formulation"),
        (("run", "three_r_pendulum", "--set", "length=2"), "its parameters are"),
        (("run", "three_r_pendulum", "--set", "m"), "NAME=VALUE"),
        (("run", "three_r_pendulum", "--set", "m=heavy"), "heavy"),
        (("run", "three_r_pendulum", "--step", "-1"), "step"),
        (("run", "three_r_pendulum", "--t-end", "-1"), "t_end"),
        (("sweep", "three_r_pendulum"), "--vary"),
        (("sweep", "three_r_pendulum", "--vary", "m=1:2"), "LOW:HIGH:N"),
        (("sweep", "three_r_pendulum", "--vary", "mm=1:2:3"), "did you mean 'm'"),
        (("sweep", "three_r_pendulum", "--vary", "m=1:2:0"), "expected NAME=LOW:HIGH:N"),
        (
            ("sweep", "three_r_pendulum", "--vary", "m=1:2:3", "--vary", "m=1:2:4"),
            "one range",
        ),
        (
            ("sweep", "three_r_pendulum", "--vary", "m=1:2:3", "--out", "nowhere/x.nc"),
            "expected a folder that exists",
        ),
        (("sweep", "three_r_pendulum", "--vary", "locks[7]=1:2:3"), "locks[7]"),
        (
            ("sweep", "three_r_pendulum", "--vary", "m=1:2:3", "--latin", "4"),
            "NAME=LOW:HIGH, found",
        ),
        (
            ("sweep", "three_r_pendulum", "--vary", "m=1:2", "--latin", "4", "--random", "4"),
            "--random and --latin",
        ),
        (("sweep", "three_r_pendulum", "--vary", "m=1:2:3", "--jobs", "0"), "jobs: expected"),
        (("figures", "joint_loking"), "did you mean 'joint_locking'"),
    ],
)
def test_bad_input_is_exit_code_2(arguments, expected):
    result = call(*arguments)
    assert result.exit_code == 2
    assert expected in result.stderr
    assert not result.stdout
    assert "Traceback" not in result.stderr


def test_a_failed_run_is_exit_code_1(monkeypatch):
    def fail(*_, **__):
        raise SimulationError("stopped at t = 0.3", status=1, t=0.3, mode=0)

    monkeypatch.setattr(nsdyn, "simulate", fail)
    result = call("run", "three_r_pendulum")
    assert result.exit_code == 1
    assert result.stderr.strip().endswith("nsdyn: stopped at t = 0.3")


def test_steps_that_are_far_too_long_are_told():
    result = call("run", "simple_pendulum", "--step", 2, "--t-end", 20)
    assert result.exit_code == 0 and "x [m]" in result.stdout
    told = [line for line in result.stderr.splitlines() if line.startswith("nsdyn: warning: ")]
    assert len(told) == 1 and "step = 2 is too long" in told[0] and "smaller step" in told[0]


def test_an_unwritable_file_is_exit_code_2(monkeypatch, tmp_path):
    monkeypatch.setattr(suite, "stages", lambda quick: {})
    blocked = tmp_path / "file"
    blocked.write_text("")
    result = call("bench", "--out", blocked / "bench.json")
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr


def test_run_shows_and_saves(tmp_path):
    out, picture = tmp_path / "run.nc", tmp_path / "run.png"
    arguments = (
        "run",
        "three_r_pendulum",
        "--law",
        "MuellerTransition",
        "--step",
        "1e-2",
        "--set",
        "locks=0.3,0.5",
    )
    result = call(*arguments, "--t-end", "0.8", "--events", "--out", out, "--plot", picture)
    assert result.exit_code == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines() if re.match(r"\s*\d+  ", line)]
    assert [row[:5] for row in rows[:2]] == [
        ["0", "0.3", "0", "->", "1"],
        ["1", "0.5", "1", "->", "2"],
    ]
    assert (
        result.stdout.count("xi = T_c/T before") == 2
        and "event 1: three_r_pendulum at t = 0.5" in result.stdout
    )
    loaded = nsdyn.load(out)
    last = zip(loaded.coordinates, loaded.q[-1], loaded.v[-1], strict=True)
    end = [line.split("  ") for line in result.stdout.splitlines() if "[rad]" in line]
    assert [[x.strip() for x in line if x] for line in end] == [
        [name, f"{q:.9g}", f"{v:.9g}"] for name, q, v in last
    ]
    assert picture.stat().st_size > 0


def test_sweep_shows_and_saves(tmp_path):
    out = tmp_path / "sweep.nc"
    ranges = ("--vary", "m=100:110:2", "--vary", "locks[0]=0.2:0.3:3")
    options = ("--step", "1e-2", "--t-end", "0.4", "--save-every", 20, "--out", out)
    result = call("sweep", "three_r_pendulum", *ranges, *options)
    assert result.exit_code == 0, result.stderr
    assert re.search(r"^OK +6 ", result.stdout, re.MULTILINE)
    data = nsdyn.load(out)
    described = json.loads(out.with_suffix(".json").read_text())
    np.testing.assert_allclose(data.params["m"], [100, 100, 100, 110, 110, 110])
    np.testing.assert_allclose(data.params["locks"][:, 0], [0.2, 0.25, 0.3] * 2)
    assert data.q.shape == (6, 3, 3)
    np.testing.assert_array_equal(data.events.count, 1)
    np.testing.assert_allclose(data.events.t[:, 0], [0.2, 0.25, 0.3] * 2)
    assert np.all(np.any(data.events.Lam[:, 0] != 0, axis=1))
    assert "--vary m=100:110:2 --vary 'locks[0]=0.2:0.3:3'" in described["command"]
    assert np.ptp(data.q[:, -1, 1]) > 0.1


def test_sweep_of_samples_in_a_folder(tmp_path):
    """A second call opens what is there; another seed is another sweep."""
    ranges = ("--vary", "m=100:110", "--vary", "q0[1]=0:0.1", "--latin", 6)
    options = ("--step", "1e-2", "--t-end", "0.4", "--save-every", 20, "--folder", tmp_path / "s")
    for _ in range(2):
        result = call("sweep", "three_r_pendulum", *ranges, *options)
        assert result.exit_code == 0, result.stderr
    data = nsdyn.load(tmp_path / "s")
    assert sorted(np.floor((data.params["m"] - 100) / (10 / 6))) == list(range(6))
    assert sorted(np.floor(data.q[:, 0, 1] / (0.1 / 6))) == list(range(6))
    assert (tmp_path / "s" / "log.txt").read_text().count("part") == 1
    told = call("info", tmp_path / "s" / "q.npy").stdout
    assert "s, complete" in told and "--latin 6" in told and "problem = three_r_pendulum" in told
    other = call("sweep", "three_r_pendulum", *ranges, *options, "--seed", 1)
    assert other.exit_code == 2 and "holds another sweep: other numbers" in other.stderr


def test_a_run_that_stops_early_writes_what_it_has(tmp_path):
    out, picture = tmp_path / "run.nc", tmp_path / "run.png"
    arguments = ("point_on_track", "--law", "Restitution(e=0.5)", "--integrator", "MoreauJean")
    result = call("run", *arguments, "--step", "0.02", "--out", out, "--plot", picture)
    assert result.exit_code == 1 and "LAW_VIOLATES" in result.stderr
    loaded = nsdyn.load(out)
    assert not loaded.ok and loaded.t[-1] == pytest.approx(0.12)
    assert picture.stat().st_size > 0
    title = loaded.plot().axes[0].get_title("left")
    assert title.endswith("; stopped at t = 0.12: LAW_VIOLATES")
    assert "stopped" not in dataclasses.replace(loaded, status=0).plot().axes[0].get_title("left")


def test_settings_in_words():
    assert isinstance(parse_object("law", "zerovelocity", _laws()), laws.ZeroVelocity)
    assert float(parse_object("law", "Restitution(0.25)", _laws()).e) == 0.25
    assert parse_object("law", "MuellerTransition(form=minimal)", _laws()).form == "minimal"
    impact = parse_object("law", "Newton(bilateral=Restitution(0.5))", _laws())
    assert isinstance(impact, laws.Newton) and float(impact.bilateral.e) == 0.5
    method = parse_object(
        "integrator", "EventDriven(RK4('projected'), project=False)", _integrators()
    )
    assert (method.method.formulation, method.project) == ("projected", False)
    assert isinstance(_integrator("RK4", ""), integrators.EventDriven)
    with pytest.raises(ProblemError):
        _integrator("EventDriven(RK4)", "minimal")


def test_provenance_without_git(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(archive, "commit", archive.commit.__wrapped__)  # it asks git once
    assert archive.provenance()["commit"] is None
