"""Studies of robots: what their data say, and that drawing repeats without computing."""

import numpy as np
import pytest
from matplotlib.image import imread
from PIL import Image
from study_files import TABLES

import nsdyn
from nsdyn.problems.emergency_stop import HELD
from nsdyn.studies import robot_locking, stopping_distance, two_links
from nsdyn.studies.lib import archive, stopping_figures

ARM = 3


def drawn_again(study, folder, monkeypatch):
    """Draw twice, with nothing that could compute: the same bytes both times."""

    def fail(*_, **__):
        raise AssertionError("computed again")

    monkeypatch.setattr(nsdyn, "simulate", fail)
    monkeypatch.setattr(nsdyn, "sweep", fail)
    first = {file: file.read_bytes() for file in study.draw(folder)}
    assert first == {file: file.read_bytes() for file in study.draw(folder)}
    return {file.name for file in first}


def test_two_links_agree_with_their_closed_form(tmp_path, monkeypatch):
    two_links.compute(tmp_path, 50)
    data, _ = archive.read(tmp_path / "data", "impacts")
    assert data.difference.shape == (2, 50) and data.difference.max() < 1e-13
    np.testing.assert_allclose(data.recursion, data.exact, rtol=0, atol=1e-13)
    np.testing.assert_allclose(
        data.exact[-1], 2.5 * np.array([7 / 12, 1 / 2, -3, -1]), rtol=1e-15
    )  # e = 1
    assert drawn_again(two_links, tmp_path, monkeypatch) == {
        "figure_1.pdf",
        "figure_1.png",
        "captions.txt",
        *TABLES,
    }


@pytest.mark.slow
def test_robot_locking_tells_the_paper_s_story(tmp_path, monkeypatch):
    robot_locking.compute(tmp_path, 2e-3)
    runs = {name: archive.read(tmp_path / "data", name)[0] for name in robot_locking.LAWS}
    jumps = {}
    for name, data in runs.items():
        np.testing.assert_allclose(data.t_lock, [0.05, 0.10, 0.15], atol=1e-12)
        left = np.flatnonzero(np.diff(data.t) == 0)
        left = left[np.diff(data.mode)[left] > 0]
        assert len(left) == ARM
        jumps[name] = {
            key: data[key].values[left + 1] - data[key].values[left] for key in ("P", "v", "energy")
        }
        assert np.isnan(data.P.values[-1, :ARM]).all()  # momenta of locked motors are not shown
    scale = np.nanmax(np.abs(runs["consistent"].P))
    assert np.nanmax(np.abs(jumps["consistent"]["P"])) < 1e-10 * scale
    assert np.nanmax(np.abs(jumps["inconsistent"]["P"])) > 0.1 * scale
    assert (jumps["consistent"]["energy"] < -1.0).all()
    others = ~np.eye(ARM, 6, dtype=bool)
    assert (
        np.abs(jumps["inconsistent"]["v"][others]).max() < 1e-10
    )  # the rate of the locked joint alone
    assert np.abs(jumps["consistent"]["v"][others]).max() > 100.0
    halts = [robot_locking.halts(data) for data in runs.values()]
    assert np.linalg.norm(halts[0][1] - halts[1][1]) > 0.1
    figures = {f"figure_{i}.{kind}" for i in (6, 7, 8, 9) for kind in ("pdf", "png")}
    assert drawn_again(robot_locking, tmp_path, monkeypatch) == figures | {
        "captions.txt",
        *TABLES,
    }
    assert (tmp_path / "captions.txt").read_text().count("surrogate parameters") >= 5


@pytest.mark.slow
def test_stopping_distances(tmp_path, monkeypatch):
    stopping_distance.compute(tmp_path, 1e-2, grid=(4, 2))
    read = lambda name: archive.read(tmp_path / "data", name)[0]
    right, wrong = read("map_consistent"), read("map_inconsistent")
    distance = stopping_figures.distance(right)
    assert distance.shape == (2, 4) and np.isfinite(distance).all()
    assert (np.diff(distance, axis=1) > 0).all()  # a faster robot goes further
    assert (np.diff(distance, axis=0) < 0).all()  # stronger brakes stop it earlier
    assert (stopping_figures.error(right, wrong) > 1e-3).all()
    stop, speed = read("stop_consistent"), stopping_distance.SHOWN
    assert (
        right.speed[-1],
        right.torque[0],
    ) == speed  # the stop that is shown is a corner of the map
    np.testing.assert_allclose(stop.tip[-1], right.tip[0, -1], atol=1e-6)
    assert (stop.mode.values[-1] == HELD).all() and np.diff(stop.energy).max() <= 1e-9
    files = drawn_again(stopping_distance, tmp_path, monkeypatch)
    assert {
        "stop.gif",
        "figure_1.png",
        "figure_2.png",
        "figure_3.png",
        "captions.txt",
        *TABLES,
    } <= files
    with Image.open(tmp_path / "stop.gif") as picture:
        assert picture.n_frames > 20
    assert np.ptp(imread(tmp_path / "figure_1.png")) == 1.0  # not blank
    assert "surrogate parameters" in (tmp_path / "captions.txt").read_text()
