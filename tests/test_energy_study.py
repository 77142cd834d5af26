"""The study of energy at a switch: what its data say, and that it draws."""

import numpy as np
import pytest

from nsdyn.status import Status
from nsdyn.studies import energy_theorem
from nsdyn.studies.lib import archive

pytestmark = pytest.mark.slow

CASES, POSITIONS = 8, 5  # E = 0, 1/4, 1/2, 3/4, 1


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("energy_theorem")
    energy_theorem.compute(folder, CASES, POSITIONS)
    return folder


def read(folder, name):
    return archive.read(folder / "data", name)[0]


def test_random_mechanisms(folder):
    data = read(folder, "random")
    assert np.array_equal(data.rows, np.repeat([1, 2, 3, 4, 5], CASES))
    assert np.all(data.status == Status.OK)
    mass, euclidean = data.change.values
    assert np.abs(mass).max() < 1e-12
    assert euclidean.min() < -1e-2 and euclidean.max() > 1e-2
    for rows in range(1, 6):
        assert np.abs(euclidean[data.rows == rows]).max() > 1e-2


@pytest.mark.parametrize(
    ("name", "curves"), [("pendulum", ("absolute",)), ("wheel", ("metre", "millimetre"))]
)
def test_ratios_over_position(folder, name, curves):
    data = read(folder, name)
    np.testing.assert_allclose(data.E, [0, 0.25, 0.5, 0.75, 1])
    assert np.all(np.diff(data.mass) < 0)
    assert data.mass[2] == pytest.approx(1, abs=1e-13)
    for curve in curves:  # the metric matters only between the gradients
        np.testing.assert_allclose(data[curve][[0, 4]], data.mass[[0, 4]], rtol=1e-12)
        assert np.all(np.abs(data[curve][[1, 3]] / data.mass[[1, 3]] - 1) > 1e-3)


def test_known_values(folder):
    wheel, pendulum = read(folder, "wheel"), read(folder, "pendulum")
    np.testing.assert_allclose(np.sqrt(wheel.mass[3:]), [0.873554, 0.755102], atol=5e-7)
    np.testing.assert_allclose(np.sqrt(wheel.metre[3]), 0.870183, atol=5e-7)
    np.testing.assert_allclose(wheel.metre[2], 1, atol=1e-13)
    assert pendulum.absolute[2] == pytest.approx(0.955, abs=5e-4)


def test_data_are_drawn_without_computing(folder, monkeypatch):
    monkeypatch.setattr(archive, "write", None)
    files = energy_theorem.run(folder, CASES, POSITIONS)
    expected = {f"figure_{i}.{kind}" for i in (1, 2) for kind in ("pdf", "png")} | {"captions.txt"}
    assert {file.name for file in files} == expected and all(
        file.stat().st_size > 0 for file in files
    )
    assert f"in {CASES} random mechanisms" in (folder / "captions.txt").read_text("utf-8")
    with pytest.raises(TypeError):
        energy_theorem.run(folder, CASES + 1, POSITIONS)
