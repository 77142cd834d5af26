"""What the README prints runs as printed, from top to bottom."""

import re
from pathlib import Path

import numpy as np
import pytest

import nsdyn

README = Path(__file__).resolve().parents[1] / "README.md"
TEXT = README.read_text("utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """The names that the blocks define, run in an empty folder."""
    names = {"__name__": "readme"}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("readme"))
        for number, block in enumerate(BLOCKS):
            exec(compile(block, f"README block {number}", "exec"), names)
        names["saved"] = nsdyn.load("ramp.nc")
    return names


def test_example(names):
    (event,) = names["trajectory"].events
    assert event.t == pytest.approx(0.5)
    np.testing.assert_allclose(event.v_after, [1.6, 0.8], atol=1e-12)
    np.testing.assert_array_equal(names["saved"].q, names["trajectory"].q)


def test_report(names):
    """The corner takes what moves along its normal: sin^2(atan 1/2)."""
    assert names["report"].xi == pytest.approx(0.2, abs=1e-12)


def test_own_law(names):
    law = names["FadingRestitution"](e=0.5, speed=1.0)
    jump = law.jump(np.eye(1), np.zeros((0, 1)), np.ones((1, 1)), np.array([-3.0]))
    np.testing.assert_allclose(jump.v_after, [0.5 * 0.75 * 3.0])


def test_own_problem_and_integrator(names):
    run = names["run"]
    np.testing.assert_allclose(run.events.t, [0.4], atol=1e-12)
    assert np.ptp(run.energy[:400]) < 1e-4  # second order: h^2 times a few
    locked = run.t > 0.4
    assert np.ptp(run.q[locked, 1]) < 1e-12


def test_extension_points_are_short():
    for number in (4, 5):  # law, integrator
        assert len([line for line in BLOCKS[number].splitlines() if line.strip()]) < 15
    assert len([line for line in BLOCKS[0].splitlines() if line.strip()]) <= 22


def test_every_status_is_explained():
    for status in nsdyn.Status:
        assert f"| `{status.name}` |" in TEXT


def test_every_file_named_exists():
    for path in re.findall(
        r"`((?:nsdyn|integrators|problems|studies|tests)/[a-z_/]+\.(?:py|c))`", TEXT
    ):
        assert (README.parent / path).is_file(), path
