"""The studies of switching constraints, with coarse settings: what they are to show, and that they
draw it."""

import numpy as np
import pytest

from nsdyn import studies
from nsdyn._repr import settings_text
from nsdyn.studies import convergence, pothole, switching_track
from nsdyn.studies.lib import archive
from nsdyn.studies.lib.schemes import SCHEMES, plain, table

pytestmark = pytest.mark.slow

STEP = 2e-2
STEPS = (0.02, 0.01, 0.005)
SCHEMES_OF_TRACK = (
    "index_2",
    "nsga",
)  # each is a program to compile; test_capturing.py has the others
NAMES = {"switching_track": 6, "pothole": 3, "convergence": 1}  # with the number of figures


@pytest.fixture(scope="module")
def track(tmp_path_factory):
    folder = tmp_path_factory.mktemp("switching_track")
    switching_track.compute(folder, STEP, schemes=SCHEMES_OF_TRACK)
    return folder


@pytest.fixture(scope="module")
def hole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pothole")
    pothole.compute(folder, 5e-3)
    return folder


@pytest.fixture(scope="module")
def orders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("convergence")
    convergence.compute(folder, STEPS, schemes=("nsga", "event_rk4"))
    return folder


def read(folder, name):
    return archive.read(folder / "data", name)[0]


def case(folder, name, E, gravity=0.0):
    data = read(folder, name)
    chosen = np.flatnonzero((data.E.values == E) & (data.gravity.values == gravity))
    return data.isel(case=int(chosen[0]))


# Point on track


@pytest.mark.parametrize("E", [1.0, 0.5])
def test_nsga_has_the_speed_of_the_law_from_the_first_step(track, E):
    run = case(track, "nsga", E)
    after = run.mode.values == 1
    assert (
        np.abs(np.linalg.norm(run.v.values[after], axis=1) - switching_track.speed_after(E)).max()
        < 1e-12
    )
    for level in switching_track.LEVELS:
        assert np.abs(run[level].values).max() < 1e-10, level


def test_index_2_keeps_a_gap_and_has_a_wrong_speed(track):
    for E in (1.0, 0.5):
        run = case(track, "index_2", E)
        after = run.mode.values == 1
        gap = np.abs(run.position.values[after])
        assert (
            np.ptp(gap[-5:]) < 1e-2 * gap[-1] and 1e-3 < gap.min() < gap.max() < STEP * 2.0
        )  # below h |G+ v-|
        assert np.abs(run.velocity.values[after]).max() < 1e-12
        ratio = np.linalg.norm(run.v.values[-1]) / switching_track.TRACK["v0"]
        assert (
            abs(ratio - switching_track.index_2_ratio(E)) < 1e-3 * (1 - E) + 1e-12
        )  # memory fades with the steps
    assert abs(switching_track.index_2_ratio(0.5) - 1.1017) < 5e-5


def test_energy_over_the_places_of_the_corner(track):
    for name, ratio in (("index_2", switching_track.index_2_ratio(0.5) ** 2), ("nsga", 1.0)):
        np.testing.assert_allclose(
            read(track, name).ratio, ratio, rtol=1e-3 if name == "index_2" else 1e-12
        )


def test_gravity_against_the_exact_motion(track):
    run = case(track, "nsga", 1.0, switching_track.TRACK["g"])
    q, v = switching_track.exact(run.t.values, switching_track.start(STEP, switching_track.PHASE))
    assert (
        np.linalg.norm(run.q.values[-1] - q[-1]) < 2 * STEP
        and np.linalg.norm(run.v.values[-1] - v[-1]) < 5 * STEP
    )
    # the closed form itself: v = q', and the energy falls by the factor cos^2 at the corner alone
    t = np.linspace(0.2, 0.5, 7)
    ahead, behind = (switching_track.exact(t + d, 0.0)[0] for d in (1e-5, -1e-5))
    np.testing.assert_allclose((ahead - behind) / 2e-5, switching_track.exact(t, 0.0)[1], atol=1e-8)
    exact = switching_track.reference(STEP)[1.0]
    assert (
        exact["energy"][0] == 8.0
        and np.abs(exact["energy"][exact["t"] > exact["t_switch"]] - 6.4).max() < 1e-12
    )


def test_shapes_of_the_manifold(track):
    data = read(track, "geometry")
    x = data.line.values[..., 0]
    l = switching_track.TRACK["l"]
    away = np.abs(x - l) > 1e-9
    on_ramp, on_wedge = data.on_ramp.values.astype(bool), data.on_wedge.values.astype(bool)
    wanted = np.stack([x[0] < l, x[1] > l])
    assert (on_ramp[away] == wanted[away]).all()
    assert (on_wedge[away] == (x > l)[away]).all()


# Wheel


def test_wheel_loses_speed_as_the_law_says(hole):
    for E, ratio, speed in ((1.0, 0.755102, 2.223003), (0.75, 0.873554, 2.600619), (0.5, 1.0, 3.0)):
        assert abs(pothole.ratio(E) - ratio) < 5e-7 and abs(pothole.final_speed(E) - speed) < 5e-7
        run = read(hole, f"E_{E:g}")
        turned, final, lost = pothole.measured(run)
        assert abs(turned - ratio) < 0.02 and abs(final - speed) < 0.05
        assert abs(lost - pothole.energy_lost(E)) < 2.0
        assert len(run.t_switch) == 3
        jumps = np.linalg.norm(run.v_after.values - run.v_before.values, axis=1)
        assert (
            jumps[1] > 1.0 and max(jumps[0], jumps[2]) < 0.15
        )  # the edges: of the order of the step
        # impulse and momentum
        momentum = np.array([10.0, 10.0, 0.6125]) * (run.v_after.values - run.v_before.values)[1]
        np.testing.assert_allclose(run.impulse.values[1], momentum, rtol=0, atol=1e-10)
        np.testing.assert_allclose(run.force.values[-1], [0.0, 98.1, 0.0], rtol=0, atol=1e-8)


# Convergence


def test_orders(orders):
    data = read(orders, "table")
    order = lambda scheme, track: data.order.sel(scheme=scheme, track=track).values
    for track in ("straight", "curved"):
        assert (np.abs(order("nsga", track) - 1.0) < 0.1).all(), order("nsga", track)
    assert (order("event_rk4", "curved") >= 3.9).all(), order("event_rk4", "curved")
    assert np.isnan(order("event_rk4", "straight")).all()
    assert data.error.sel(scheme="event_rk4", track="straight").max() < 1e-12


def test_the_run_is_that_of_the_other_study(track, orders):
    run = case(track, "nsga", 1.0, switching_track.TRACK["g"])
    t_switch = STEP * (np.floor(0.5 / (4.0 * STEP)) + switching_track.PHASE)
    exact = convergence.Exact(0.0, t_switch)
    t, q, v, jumps = convergence.trajectory(SCHEMES["nsga"].integrator, exact, STEP)
    for found, wanted in ((t, run.t), (q, run.q), (v, run.v)):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-12)
    np.testing.assert_allclose(jumps[0][1:], [run.v_before, run.v_after], rtol=0, atol=1e-12)


def test_curved_reference():
    """On both sides of the corner: v = q', on the circle, energy constant; continuous at the corner
    but for v."""
    exact = convergence.Exact(1.0, 0.13)
    for t in (np.linspace(0.01, 0.12, 5), np.linspace(0.14, 0.49, 5)):
        q, v = exact(t)
        slope = (exact(t + 1e-5)[0] - exact(t - 1e-5)[0]) / 2e-5
        np.testing.assert_allclose(slope, v, atol=1e-8)
        energy = 0.5 * np.sum(v**2, axis=1) + 9.81 * q[:, 1]
        assert np.ptp(energy) < 1e-11
        rows = convergence.before if t[0] < 0.13 else convergence.after
        p = convergence.PROBLEM.params | {"k": 1.0}
        assert max(abs(float(rows(x, 0.0, p))) for x in q) < 1e-12
    t_switch, before, after = exact.jump
    np.testing.assert_allclose(
        exact(np.array([t_switch - 1e-9, t_switch]))[1], [before, after], atol=1e-7
    )


# All of them


def test_studies_are_computed_once_and_drawn(track, hole, orders, monkeypatch):
    def fail(*_, **__):
        raise AssertionError("computed again")

    monkeypatch.setattr(archive, "write", fail)
    files = {
        "switching_track": switching_track.run(track, STEP, schemes=SCHEMES_OF_TRACK),
        "pothole": pothole.run(hole, 5e-3),
        "convergence": convergence.run(orders, STEPS, schemes=("nsga", "event_rk4")),
    }
    for name, count in NAMES.items():
        assert name in studies.names() and studies.summary(name)
        names = {f"figure_{i}.{kind}" for i in range(1, count + 1) for kind in ("pdf", "png")}
        assert {file.name for file in files[name]} == names | {"captions.txt", "table.txt"}
        assert all(file.stat().st_size > 0 for file in files[name])
        captions = next(file for file in files[name] if file.name == "captions.txt").read_text()
        assert "Assumed:" in captions and "ours" in captions and "{" not in captions
    for study, folder, arguments in (
        (switching_track, track, (STEP / 2,)),
        (pothole, hole, (5e-3, True)),
        (convergence, orders, ((0.02, 0.01),)),
    ):
        with pytest.raises(AssertionError, match="computed again"):
            study.compute(folder, *arguments)


def test_table_and_names():
    assert (
        table(["a", "b"], [["long name", "1"], ["x", "10"]])
        == "a           b\n---------  --\nlong name   1\nx          10\n"
    )
    assert plain("index_2") == "index-2 G-alpha"
    assert settings_text(SCHEMES["event_index_2"].integrator).count("rho_inf=0.8") == 1
