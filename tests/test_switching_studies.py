"""The studies of switching constraints, with coarse settings: what they are to show, and that they
draw it."""

import re

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from study_files import TABLES

from nsdyn import studies
from nsdyn._repr import settings_text
from nsdyn.errors import NsdynError
from nsdyn.studies import convergence, pothole, switching_track
from nsdyn.studies.lib import archive, study_file
from nsdyn.studies.lib.schemes import SCHEMES, plain
from nsdyn.studies.lib.study_file import RESIDUALS
from nsdyn.studies.lib.tables import Table

pytestmark = pytest.mark.slow

STEP = 2e-2
SCHEMES_OF_TRACK = ("index_2", "nsga")  # each is a program to compile
NAMES = {"switching_track": 7, "pothole": 3, "convergence": 1}  # with the number of figures


def smaller(study, folder, schemes, steps):
    """The file of a study with fewer schemes and steps, beside its tracks."""
    text = study.FILE.read_text("utf-8")
    dropped = [name for name in study_file.read(study.FILE).integrators if name not in schemes]
    text = "\n".join(x for x in text.splitlines() if x.partition(" = ")[0] not in dropped)
    text = re.sub(r"(?ms)^(values|first) = .*?^(?=phases)", f"values = {steps}\n", text)
    text = text.replace("lib/tracks.py", str(study.FILE.parent / "lib" / "tracks.py"))
    path = folder / study.FILE.name
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def track(tmp_path_factory):
    folder = tmp_path_factory.mktemp("switching_track")
    switching_track.compute(folder, file=smaller(switching_track, folder, SCHEMES_OF_TRACK, [STEP]))
    return folder


@pytest.fixture(scope="module")
def hole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pothole")
    pothole.compute(folder, 5e-3)
    return folder


@pytest.fixture(scope="module")
def orders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("convergence")
    file = smaller(convergence, folder, ("nsga", "event_rk4"), [0.02, 0.01, 0.005])
    convergence.compute(folder, file=file)
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
    for level in RESIDUALS:
        assert np.abs(run[level].values).max() < 1e-10, level


def test_index_2_keeps_a_gap_and_has_a_wrong_speed(track):
    for E in (1.0, 0.5):
        run = case(track, "index_2", E)
        after = run.mode.values == 1
        gap = run.residual_position.values[after]
        assert (
            np.ptp(gap[-5:]) < 1e-2 * gap[-1] and 1e-3 < gap.min() < gap.max() < STEP * 2.0
        )  # below h |G+ v-|
        assert run.residual_velocity.values[after].max() < 1e-12
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
    q, v = switching_track.exact(run.t.values)
    assert (
        np.linalg.norm(run.q.values[-1] - q[-1]) < 2 * STEP
        and np.linalg.norm(run.v.values[-1] - v[-1]) < 5 * STEP
    )
    # the closed form itself: v = q', and the energy falls by the factor cos^2 at the corner alone
    t = np.linspace(0.2, 0.5, 7)
    ahead, behind = (switching_track.exact(t + d)[0] for d in (1e-5, -1e-5))
    np.testing.assert_allclose((ahead - behind) / 2e-5, switching_track.exact(t)[1], atol=1e-8)
    exact = switching_track.reference()[1.0]
    assert (
        exact["energy"][0] == 8.0
        and np.abs(exact["energy"][exact["t"] > exact["t_switch"]] - 6.4).max() < 1e-12
    )


def test_the_corner_is_where_the_figures_say(track):
    """The first sample after it is three quarters of a step late, but for half the distance of two
    of the 22 phases."""
    run = case(track, "nsga", 1.0)
    late = run.t.values[run.mode.values == 1][0] - switching_track.T_SWITCH
    wanted = (1 - switching_track.PHASE) * STEP
    assert late == pytest.approx(wanted, abs=STEP / 44 + 1e-12)


def test_a_smooth_track_loses_no_energy_if_steps_resolve_it(track):
    """Other than the hard switch, which takes a fifth of it. The steeper, the worse."""
    drift = read(track, "nsga").smooth_drift.values
    assert drift[0] < 0.05 and np.all(np.diff(drift) > 0)


def test_what_smoothing_costs(track):
    """Energy, stiffness, iterations and drift, beside the hard switch (the last). A bend that steps
    resolve turns the velocity by m v_0^2 a sigma, besides the weight."""
    run, index_2 = read(track, "nsga"), read(track, "index_2")
    p = switching_track.TRACK
    assert run.bend_sigma.values.tolist() == [5, 20, 80, np.inf]
    reaction = run.bend_reaction.values
    assert reaction[0] == pytest.approx(p["v0"] ** 2 * p["a"] * 5 + p["g"], rel=0.15)
    assert reaction[3] < p["g"] * 1.01 < reaction[0] < reaction[1]
    assert run.bend_newton.values[3] < run.bend_newton.values[:3].min()
    assert run.bend_energy.values[2] > 10 * run.bend_energy.values[3]
    assert run.bend_drift.values.max() < 1e-11 < 1e-4 < index_2.bend_drift.values.min()
    # what the hard switch takes is kept on a smooth track
    kept = p["v0"] ** 2 - 2 * p["g"] * run.smooth_q.values[0, -1, 1]
    speed = np.linalg.norm(case(track, "nsga", 1.0, p["g"]).v.values[-1])
    assert run.bend_speed.values[0] == pytest.approx(np.sqrt(kept) - speed, abs=0.2)
    assert run.bend_speed.values[0] > 0.3


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
    order = lambda scheme, track: data.order.sel(scheme=scheme, track=track).values[:, 0]
    for track, most in (("straight", 0.03), ("curved", 0.1)):
        assert (np.abs(order("nsga", track) - 1.0) < most).all(), order("nsga", track)
    errors = data.error.sel(scheme="event_rk4", track="curved").values
    finest = np.log2(errors[:, -2] / errors[:, -1])
    assert (finest >= 3.9).all(), finest
    assert np.isnan(order("event_rk4", "straight")).all()
    assert data.error.sel(scheme="event_rk4", track="straight").max() < 1e-12


def test_schemes_of_the_files_are_those_of_the_legends():
    for study in (convergence, switching_track):
        for name, integrator in study_file.read(study.FILE).integrators.items():
            assert settings_text(integrator) == settings_text(SCHEMES[name].integrator)


def test_the_reference_on_the_curved_track(orders):
    """In the angle phi from the corner the two arcs are pendulums, phi'' = -g k sin(phi + th)."""
    data = next(
        archive.read(orders / "data", name)[0]
        for name in archive.read_index(orders / "data")["names"]
        if name.startswith("curved reference")
    )
    th, g, (t_switch,) = np.arctan(0.5), 9.81, data.event_t.values
    rate = lambda _, y: [y[1], -g * np.sin(y[0] + th)]
    options = {"method": "DOP853", "rtol": 1e-13, "atol": 1e-14, "dense_output": True}
    swing = solve_ivp(rate, (t_switch, 0.5), [0.0, 4 * np.cos(th)], **options).sol
    late = data.t.values > t_switch
    phi, w = swing(data.t.values[late])
    q = np.stack([np.sin(phi + th) - np.sin(th), np.cos(th) - np.cos(phi + th)], axis=1)
    np.testing.assert_allclose(data.q.values[late], q + [0.5, 0.0], rtol=0, atol=1e-10)
    v = w[:, None] * np.stack([np.cos(phi + th), np.sin(phi + th)], axis=1)
    np.testing.assert_allclose(data.v.values[late], v, rtol=0, atol=1e-9)


# All of them


def test_studies_are_computed_once_and_drawn(track, hole, orders, monkeypatch):
    def fail(*_, **__):
        raise AssertionError("computed again")

    data = lambda: {
        file: file.stat().st_mtime_ns
        for folder in (track, hole, orders)
        for file in (folder / "data").glob("*.nc")
    }
    before = data()
    files = {
        "switching_track": switching_track.run(track, file=track / "switching_track.toml"),
        "pothole": pothole.run(hole, 5e-3),
        "convergence": convergence.run(orders, file=orders / "convergence.toml"),
    }
    assert data() == before
    monkeypatch.setattr(archive, "write", fail)
    for name, count in NAMES.items():
        assert name in studies.names() and studies.summary(name)
        names = {f"figure_{i}.{kind}" for i in range(1, count + 1) for kind in ("pdf", "png")}
        more = {x.replace("table", "smoothed") for x in TABLES if name == "switching_track"}
        assert {file.name for file in files[name]} == names | {"captions.txt", *TABLES} | more
        assert all(file.stat().st_size > 0 for file in files[name])
        captions = next(file for file in files[name] if file.name == "captions.txt").read_text()
        assert "Assumed:" in captions and "ours" in captions and "{" not in captions
    with pytest.raises(AssertionError, match="computed again"):
        pothole.compute(hole, 5e-3, True)
    other = smaller(convergence, orders, ("event_rk4",), [0.02, 0.01])
    with pytest.raises(NsdynError, match="AssertionError: computed again"):
        convergence.compute(orders, file=other)


def test_table_and_names():
    shown = str(Table("Two rows", ("a", "b"), [("long name", "1"), ("x", "10")], ["noted"]))
    assert shown.splitlines() == [
        *("Two rows", "a           b", "---------  --"),
        *("long name   1", "x          10", "noted"),
    ]
    assert plain("index_2") == "index-2 G-alpha"
    assert settings_text(SCHEMES["event_index_2"].integrator).count("rho_inf=0.8") == 1
