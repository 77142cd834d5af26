"""The command line: what it prints, what it writes, and its exit codes."""

import json
import re

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import nsdyn
from nsdyn import integrators, laws, problems
from nsdyn.cli.commands import _integrator, _integrators, _laws, app
from nsdyn.cli.parse import parse_object
from nsdyn.errors import ProblemError, SimulationError
from nsdyn.studies.lib import archive, benchmark, chain_cost


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
        (("sweep", "three_r_pendulum", "--vary", "locks[7]=1:2:3"), "locks[7]"),
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


def test_an_unwritable_file_is_exit_code_2(monkeypatch, tmp_path):
    monkeypatch.setattr(benchmark, "stages", lambda quick: {})
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
    assert [row[1:] for row in rows[2:]] == [
        [f"{q:.9g}", f"{v:.9g}"] for q, v in zip(loaded.q[-1], loaded.v[-1], strict=True)
    ]
    assert picture.stat().st_size > 0


def test_sweep_shows_and_saves(tmp_path):
    out = tmp_path / "sweep.nc"
    ranges = ("--vary", "m=100:110:2", "--vary", "locks[0]=0.2:0.3:3")
    options = ("--step", "1e-2", "--t-end", "0.4", "--save-every", 20, "--out", out)
    result = call("sweep", "three_r_pendulum", *ranges, *options)
    assert result.exit_code == 0, result.stderr
    assert re.search(r"^OK +6 ", result.stdout, re.MULTILINE)
    data, described = archive.read(tmp_path, "sweep")
    np.testing.assert_allclose(data["param_m"], [100, 100, 100, 110, 110, 110])
    np.testing.assert_allclose(data["param_locks[0]"], [0.2, 0.25, 0.3] * 2)
    assert data.q.shape == (6, 3, 3)
    np.testing.assert_array_equal(data.events, 1)
    assert described["settings"]["vary"] == ["m=100:110:2", "locks[0]=0.2:0.3:3"]
    assert np.ptp(data.q[:, -1, 1].values) > 0.1


def test_settings_in_words():
    assert isinstance(parse_object("law", "zerovelocity", _laws()), laws.ZeroVelocity)
    assert float(parse_object("law", "Restitution(0.25)", _laws()).e) == 0.25
    assert parse_object("law", "MuellerTransition(form=minimal)", _laws()).form == "minimal"
    method = parse_object(
        "integrator", "EventDriven(RK4('projected'), project=False)", _integrators()
    )
    assert (method.method.formulation, method.project) == ("projected", False)
    assert isinstance(_integrator("RK4", ""), integrators.EventDriven)
    with pytest.raises(ProblemError):
        _integrator("EventDriven(RK4)", "minimal")


def made_up_costs():
    """The recursion costs 1 us a link; the dense path less up to 16 links."""
    n = np.array([8.0, 16.0, 32.0, 64.0])
    dense = {"forward_dense": 1e-6 * n**2 / 20, "impulse_dense": 1e-6 * n**2}
    times = {name: dense.get(name, 1e-6 * n).tolist() for name in chain_cost.PATHS}
    return {"links": n.astype(int).tolist(), **times}


def test_bench_table_and_file(monkeypatch, tmp_path):
    single = {
        "trajectories": 1,
        "step": 1e-4,
        "us_per_step": 5.0,
        "c_us_per_step": 0.5,
        "ratio": 10.0,
        "compile_s": 3.0,
    }
    fake = {
        "one": lambda: {"single": single | {"difference_from_c": 1e-3}},
        "start": lambda: {"start": {"cold_s": 7.0, "warm_s": 3.0}},
        "chains": lambda: {"chains": made_up_costs()},
    }
    monkeypatch.setattr(benchmark, "stages", lambda quick: fake)
    out = tmp_path / "bench.json"
    result = call("bench", "--quick", "--out", out)
    assert result.exit_code == 0
    assert "<= 30" in result.stdout
    assert "differs from that of C" in result.stdout
    written = json.loads(out.read_text())
    assert written["results"]["single"]["ratio"] == 10.0
    assert {"python", "jax", "nsdyn", "numpy"} <= set(written["versions"])
    assert written["machine"]["cores"] >= 1
    assert re.search(r"forward dynamics.*slope +1 +<= 1\.15", result.stdout)
    assert re.search(r"forward dynamics: dense M is slower from N = +32\b", result.stdout)
    data, _ = archive.read(tmp_path / "bench" / "data", "chain_cost")
    assert data.links[-1] == 64 and {"chain_cost.pdf", "chain_cost.png"} < {
        f.name for f in (tmp_path / "bench").iterdir()
    }


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
    """What is timed against each other is the same quantity."""
    n = 3
    chain = problems.serial_chain(n).params["chain"]
    q, v = np.random.default_rng(1).normal(size=(2, n))
    found = jax.jit(
        lambda q, v: {name: path(chain, q, v) for name, path in chain_cost.PATHS.items()}
    )(q, v)
    for name, value in found.items():
        np.testing.assert_allclose(value, found[name.split("_")[0]], rtol=1e-11)
    assert chain_cost.timed(chain_cost.PATHS["forward"], n, 0.0) > 0


def test_c_program_or_the_reason_why_not(monkeypatch):
    yardstick = benchmark.Yardstick()
    answer = yardstick.run(20, 1, 1)
    assert (answer is None) == bool(yardstick.missing)
    assert answer is None or np.isfinite(answer["q"]).all()
    monkeypatch.setattr("shutil.which", lambda name: None)
    without = benchmark.Yardstick()
    assert without.run(20, 1, 1) is None
    assert "no C compiler" in without.missing


def test_provenance_without_git(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert archive.provenance()["commit"] is None
