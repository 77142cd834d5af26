"""The study with films: bodies in space, drawn as solids."""

import numpy as np
import pytest
from PIL import Image

from nsdyn import problems
from nsdyn.problems.tippe_top import A1, A2, R1, R2
from nsdyn.studies import contact_films
from nsdyn.studies.lib import archive, solid_drawing
from nsdyn.studies.lib.solid_drawing import View

SIDE = View(-np.pi / 2, 0.0)  # x to the right, z upwards
UPRIGHT, TURNED_OVER = np.array([1.0, 0, 0, 0]), np.array([0.0, 1.0, 0, 0])
MOST_BYTES = 1_000_000


def at(place, quaternion):
    return np.concatenate([place, quaternion])


def test_a_view_is_a_parallel_projection():
    view = View(0.7, 0.3)
    axes = np.stack([view.across, view.up, view.towards])
    np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=1e-15)
    np.testing.assert_allclose(SIDE([[1.0, 2.0, 3.0]]), [[1.0, 3.0]], atol=1e-15)
    assert SIDE.depth([0.0, -1.0, 0.0]) > SIDE.depth([0.0, 1.0, 0.0])


def test_a_ball_shows_the_near_half_of_its_circles():
    part = solid_drawing.ball(at([1.0, 5.0, 2.0], UPRIGHT), 0.5, SIDE, "red")
    from_centre = part.outline - [1.0, 2.0]
    np.testing.assert_allclose(np.linalg.norm(from_centre, axis=1), 0.5, rtol=1e-12)
    turned = View(-np.pi / 2, 0.4)
    lines = solid_drawing.ball(at(np.zeros(3), UPRIGHT), 1.0, turned, "red").lines
    equator = lines[0]
    assert len(lines) >= 3 and np.all(equator[:, 1] < 0)  # from above its near half is lower


@pytest.mark.parametrize(("turned", "sign"), [(UPRIGHT, 1), (TURNED_OVER, -1)])
def test_the_top_is_drawn_with_its_stem_at_the_right_end(turned, sign):
    sphere, stem = solid_drawing.top(at([0.0, 0.0, 0.0], turned), SIDE)
    far, near = sign * stem.outline[:, 1].max(), sign * sphere.outline[:, 1].min()
    if sign < 0:
        far, near = -stem.outline[:, 1].min(), -sphere.outline[:, 1].max()
    assert far == pytest.approx(A2 + R2, abs=1e-12)
    assert near == pytest.approx(A1 - R1, abs=1e-12)


def test_of_two_parts_the_nearer_one_hides_the_other():
    from matplotlib.figure import Figure

    ax = Figure().add_subplot()
    near, far = (
        solid_drawing.ball(at([0.0, y, 0.0], UPRIGHT), 1.0, SIDE, colour)
        for y, colour in ((-3.0, "red"), (3.0, "blue"))
    )
    solid_drawing.draw(ax, [near, far])
    first, second = ax.patches
    assert first.get_facecolor()[2] == 1.0 and first.zorder < second.zorder


def keys_in(folder):
    with archive.verifying([]) as visited:
        contact_films.compute(folder)
    return visited.keys


def test_an_edited_problem_concerns_its_own_film(tmp_path, monkeypatch):
    before = keys_in(tmp_path)
    assert keys_in(tmp_path) == before
    monkeypatch.setattr(problems.function("sphere_pile"), "__code__", (lambda: None).__code__)
    after = keys_in(tmp_path)
    assert after["top"] == before["top"] and after["pile"] != before["pile"]


@pytest.mark.slow
def test_the_films(tmp_path):
    """The top turns over and stands on its stem; the balls come to rest in their layers; each film
    shows its motion from the first sample to the last."""
    files = {file.name: file for file in contact_films.run(tmp_path)}
    assert {"figure_1.pdf", "figure_2.png", "top.gif", "pile.gif", "captions.txt"} <= files.keys()
    top, _ = archive.read(tmp_path / "data", "top")
    assert top.tilt[0] == pytest.approx(0.1) and np.all(top.tilt[-100:] > np.deg2rad(165))
    assert np.all(top.mode.values[0] == [2, 0]) and np.all(top.mode.values[-100:] == [0, 2])
    pile, _ = archive.read(tmp_path / "data", "pile")
    assert float(pile.kinetic[-1]) < 1e-12 < 1e-2 < float(pile.kinetic[0])
    heights = np.sort(pile.q.values[-1].reshape(-1, 7)[:, 2]) / (2 * float(pile.radius))
    layers = 0.5 + np.sqrt(2 / 3) * np.repeat([0.0, 1.0, 2.0], [6, 3, 1])
    np.testing.assert_allclose(heights, layers, atol=0.02)
    for name, data in (("top", top), ("pile", pile)):
        assert files[f"{name}.gif"].stat().st_size < MOST_BYTES
        with Image.open(files[f"{name}.gif"]) as film:
            assert film.n_frames >= len(data.t) // contact_films.EVERY[name]
