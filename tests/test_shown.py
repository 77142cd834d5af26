"""How problems and runs are shown: names and units, shapes, films; and that nothing is computed
otherwise because of them."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.animation import FFMpegWriter
from PIL import Image
from typer.testing import CliRunner

import nsdyn
from nsdyn import laws, problems
from nsdyn.cli.commands import app
from nsdyn.driver import backend, blocks, pure_run
from nsdyn.integrators import RK4, EventDriven
from nsdyn.multibody import Bodies
from nsdyn.results import film, plot
from nsdyn.results.drawing import Drawing
from nsdyn.results.solution import plain
from nsdyn.studies.compare import _described, _Job
from nsdyn.testing import mechanisms

METHOD = EventDriven(RK4())
NAMES = ("x [m]", "phi [rad]")
STEP = 0.05


def particle(q, p):
    return (q[None], jnp.stack([jnp.zeros(2), jnp.stack([p["l"], 0.0 * p["l"]])]))


def corner(**shown):
    own = mechanisms.corner()
    start = {"q0": own.q0, "v0": own.v0, "t_end": own.t_end, "params": own.params}
    return nsdyn.Problem("corner", own.system, own.constraint, **start, **shown)


@pytest.fixture(scope="module")
def run():
    return nsdyn.simulate(corner(coordinates=NAMES, shape=particle), METHOD, step=STEP)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (("x [m]",), "expected 2 names, one for each entry of q0, found 1"),
        ("xy", "expected names such as"),
        (("x", 3), "found 3"),
        (("x [m", "y"), r"found 'x \[m'"),
        (("x", "x"), "expected different names, found 'x' twice"),
    ],
)
def test_names_that_are_wrong(names, words):
    with pytest.raises(nsdyn.ProblemError, match=words):
        corner(coordinates=names)


def test_names_of_a_run(run):
    assert run.coordinates == NAMES and run.velocities == ("x' [m/s]", "phi' [rad/s]")
    labels = [panel.label for panel in plot.panels(run)]
    assert labels[:4] == ["q [m]", "q [rad]", "v [m/s]", "v [rad/s]"]
    axes = run.plot().axes
    assert [text.get_text() for text in axes[1].get_legend().get_texts()] == ["phi"]
    dataset = run.to_xarray()
    np.testing.assert_array_equal(dataset.q.sel(coordinate="phi"), run.q[:, 1])
    assert dataset.velocity_unit.values.tolist() == ["m/s", "rad/s"]


def test_a_problem_with_or_without_names_can_be_changed():
    for problem in (corner(), corner(coordinates=NAMES)):
        longer = dataclasses.replace(problem, t_end=3.0)
        assert longer.t_end == 3.0 and longer.coordinates == problem.coordinates


def test_names_in_messages(run):
    named = corner(coordinates=NAMES)
    with pytest.raises(nsdyn.ProblemError, match=r"as in the problem \(x \[m\], phi \[rad\]\)"):
        nsdyn.simulate(named, METHOD, step=STEP, q0=[0.0])
    light = nsdyn.System(
        mass=lambda q, p: jnp.diag(jnp.array([1.0, 0.0])), force=named.system.force
    )
    start = {"q0": named.q0, "v0": named.v0, "t_end": 1.0, "params": named.params}
    with pytest.raises(nsdyn.ProblemError, match=r"eigenvalue 0 for phi' \[rad/s\]. Give"):
        nsdyn.Problem("light", light, **start, coordinates=NAMES).check()


def test_names_are_saved_and_shapes_are_not(run, tmp_path):
    run.save(tmp_path / "run.nc")
    again = nsdyn.load(tmp_path / "run.nc")
    assert again.coordinates == NAMES and again.velocities == run.velocities
    with pytest.raises(nsdyn.ProblemError, match=r"animate\(path, problem=...\)"):
        again.animate(tmp_path / "run.gif")
    with pytest.raises(nsdyn.ProblemError, match=r"Problem\(shape=shape\)"):
        again.animate(tmp_path / "run.gif", corner())
    drawing, params = film._drawing(again, corner(shape=particle))
    dots, track = drawing.polylines(again.q, params)
    np.testing.assert_array_equal(dots[:, 0], run.q)
    np.testing.assert_array_equal(track[0], [[0.0, 0.0], [0.5, 0.0]])


def programs() -> int:
    jitted = (blocks.BEGIN, blocks.ADVANCE, pure_run.SOLVE)
    native = backend.SINGLE.programs
    return sum(x._jitted._cache_size() for x in jitted) + sum(len(x._made) for x in native)


def test_nothing_is_compiled_or_archived_anew(run):
    shown = corner(coordinates=("a", "b"), shape=lambda q, p: (q[None],))
    kept = nsdyn.rollout(shown, METHOD, step=STEP)
    before = programs()
    other = nsdyn.simulate(shown, METHOD, step=STEP)
    bare = nsdyn.simulate(corner(), METHOD, step=STEP)
    pure = nsdyn.rollout(corner(coordinates=NAMES), METHOD, step=STEP)
    assert programs() == before
    assert (kept.coordinates, pure.coordinates) == (("a", "b"), NAMES)
    assert (other.coordinates, bare.coordinates) == (("a", "b"), ())
    np.testing.assert_array_equal(bare.q, run.q)
    job = _Job(METHOD, laws.PostSwitchGradient(), ("a", "b"), STEP, 1)
    first, second = (_described(x, job, 0.3) for x in (corner(), shown))
    assert str(first) == str(second)


def test_film(run, tmp_path):
    told = []
    path = tmp_path / "run.gif"
    run.animate(path, speed=0.3, rate=10, progress=lambda *x: told.append(x))
    with Image.open(path) as image:
        assert image.n_frames == 11 and told[-1] == (11, 11)
        assert image.info["duration"] == 100
        colours = []
        for k in (3, 5, 9):  # t = 0.09, 0.15, 0.27; the corner is reached at 0.125
            image.seek(k)
            pixels = np.asarray(image.convert("RGB"), int).reshape(-1, 3)
            orange = np.abs(pixels - [213, 94, 0]).max(axis=1) < 40
            colours.append(orange.sum() > 10)
    assert colours == [False, True, False]
    assert not list(tmp_path.glob(".*"))
    late = film.poses(run, np.array([0.125, 0.2]))
    np.testing.assert_allclose(late[0], [0.5, 0.0], atol=1e-9)


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("run.avi", {}, "ends in .gif or .mp4"),
        ("run.gif", {"speed": 0.0}, r"speed=...\): expected a positive number"),
        ("run.gif", {"speed": 1e-5}, "at most 5000 frames"),
        ("none/run.gif", {}, "cannot write"),
    ],
)
def test_films_that_are_refused(run, tmp_path, name, options, words):
    with pytest.raises(nsdyn.NsdynError, match=words):
        run.animate(tmp_path / name, **options)


def test_mp4_needs_ffmpeg(run, tmp_path, monkeypatch):
    monkeypatch.setattr(FFMpegWriter, "isAvailable", classmethod(lambda cls: False))
    with pytest.raises(nsdyn.FileError, match="needs the program ffmpeg"):
        run.animate(tmp_path / "run.mp4")


@pytest.mark.slow
def test_film_from_the_command_line(tmp_path):
    path = tmp_path / "run.gif"
    options = ["--step", "0.02", "--t-end", "0.2", "--speed", "0.5", "--animate", str(path)]
    found = CliRunner().invoke(app, ["run", "serial_chain", *options])
    assert found.exit_code == 0, found.output
    assert "q_1 [rad]" in found.output
    with Image.open(path) as image:
        assert image.n_frames == 11


@pytest.mark.parametrize("name", problems.names())
def test_all_problems_have_names_and_shapes(name):
    problem = problems.get(name)
    assert len(problem.coordinates) == len(problem.q0)
    run = Drawing.of(problem)
    lines = run.polylines(np.asarray(problem.q0)[None], plain(problem.params))
    assert lines and all(np.all(np.isfinite(line)) for line in lines)


def test_bodies_are_drawn_to_their_closures():
    four = Bodies(planar=True)
    four.hinge("crank", mass=1.0, com=(0.5, 0.0), inertia=0.1)
    four.hinge("coupler", "crank", at=(1.0, 0.0), mass=1.0, com=(1.0, 0.0), inertia=0.1)
    pin = four.connect("coupler", "world", (2.0, 0.0))
    problem = four.problem("loop", pin, q0={"crank": 0.4, "coupler": -0.4})
    assert problem.coordinates == ("crank [rad]", "coupler [rad]")
    crank, coupler, *frame = problem.shape(problem.q0, problem.params)
    elbow = [np.cos(0.4), np.sin(0.4)]
    np.testing.assert_allclose(crank, [[0.0, 0.0], elbow], atol=1e-12)
    np.testing.assert_allclose(coupler, [elbow, np.add(elbow, [2.0, 0.0])], atol=1e-12)
    np.testing.assert_allclose(frame, [[[1.5, 0.0], [0.0, 0.0]], [[1.5, 0.0], [3.0, 0.0]]])
    box = Bodies()
    box.free("box", mass=1.0, inertia=1.0, com=(0.0, 0.0, 0.2))
    names = box.problem("box").coordinates
    assert names == ("box.x [m]", "box.y [m]", "box.z [m]", "box.w", "box.i", "box.j", "box.k")
