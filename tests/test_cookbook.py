"""The steps of docs/cookbook.md in an empty folder, as written there."""

import importlib
import re
import shlex
import sys
import tomllib
from pathlib import Path

import jax.numpy as jnp
import pytest
from typer.testing import CliRunner

from nsdyn.cli.commands import app

COOKBOOK = (Path(__file__).resolve().parents[1] / "docs" / "cookbook.md").read_text("utf-8")
FILES = dict(re.findall(r"^```python (\S+)\n(.*?)^```", COOKBOOK, re.MULTILINE | re.DOTALL))
UNNAMED = re.findall(r"^```python\n(.*?)^```", COOKBOOK, re.MULTILINE | re.DOTALL)
ARM = """<robot name="arm"><link name="wall"/><link name="tool"><inertial><mass value="1"/>
<inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="elbow" type="continuous"><parent link="wall"/><child link="tool"/></joint></robot>"""
LEG = """<mujoco><worldbody><body><joint axis="0 1 0"/><geom size="0.1"/></body></worldbody>
<keyframe><key name="home" qpos="0.25"/></keyframe></mujoco>"""
STEPS = [
    line.removeprefix("nsdyn ")
    for block in re.findall(r"^```sh\n(.*?)^```", COOKBOOK, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What each step prints, and the folder."""
    folder = tmp_path_factory.mktemp("set")
    for name, text in FILES.items():
        (folder / name).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        results = {step: CliRunner().invoke(app, shlex.split(step)) for step in STEPS}
    for step, result in results.items():
        assert result.exit_code == 0, f"{step}: {result.stderr}"
    return {shlex.split(step)[0]: result.stdout for step, result in results.items()}, folder


def test_listed_checked_run(outputs):
    printed, _ = outputs
    assert {"list", "check", "run", "sweep", "compare"} == set(printed)
    assert "mechanisms.py:crank(L=0.5, m=1.0, k=2.0, t_brake=0.3)" in printed["list"]
    assert "mechanisms.py:bead" in printed["list"]
    assert "crank at t0 = 0" in printed["check"] and "1 guards" in printed["check"]
    assert re.search(r"^OK +8 ", printed["sweep"], re.MULTILINE)


def test_how_the_crank_is_drawn():
    shown, _ = UNNAMED
    names = {"jnp": jnp}
    exec(compile(shown, "cookbook.md", "exec"), names)
    (line,) = names["crank_shape"](jnp.array([0.0, jnp.pi / 2]), {"L": 2.0})
    assert jnp.allclose(line, jnp.array([[0, 0], [0, -2], [2, -2]]))


def test_problems_from_files(outputs, monkeypatch):
    """Robots of one joint each stand in for those of the reader."""
    pytest.importorskip("mujoco")
    _, folder = outputs
    (folder / "arm.urdf").write_text(ARM)
    (folder / "cassie.xml").write_text(LEG)
    monkeypatch.chdir(folder)
    names = {}
    exec(compile(UNNAMED[1], "cookbook.md", "exec"), names)
    assert names["problem"].params["L"] == 0.3
    assert len(names["robot"].q0) == 1 and names["walker"].q0[0] == 0.25


def test_its_table_of_entry_points_is_toml():
    (text,) = re.findall(r"^```toml\n(.*?)^```", COOKBOOK, re.MULTILINE | re.DOTALL)
    points = tomllib.loads(text)["project"]["entry-points"]
    assert list(points) == ["nsdyn.problems"]  # what `nsdyn._named` asks for


def test_the_last_run_rebounds_as_its_law_says(outputs):
    """The bead meets the ramp with the law of schemes.py, not once but until it is slow."""
    printed, _ = outputs
    assert "mode 1" in printed["run"] and "3 events" in printed["run"]


def test_compared_and_kept(outputs):
    printed, folder = outputs
    assert all(name in printed["compare"] for name in ("MoreauJean", "EventDriven"))
    assert len(list((folder / "compared" / "data").glob("*.nc"))) == 3
    assert not list(folder.glob("__pycache__"))


@pytest.mark.slow
def test_its_own_tests_pass(outputs, monkeypatch):
    """In pytest they would be collected; here they are called. Other modules may be called so."""
    _, folder = outputs
    monkeypatch.syspath_prepend(folder)
    names = ("test_mechanisms", "mechanisms", "schemes")
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    try:
        module = importlib.import_module("test_mechanisms")
        tests = [value for name, value in vars(module).items() if name.startswith("test_")]
        assert len(tests) == 3
        for test in tests:
            test()
    finally:
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(before)
