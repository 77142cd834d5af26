"""Particle on a track whose constraint switches: classical and nonsmooth generalized-alpha (Patil
and Bruls, result slides).

The study file `switching_track.toml` has the tracks, schemes and laws; this module draws its
results. The track is flat for x < l and rises with the slope a = tan(th) for x > l. Its constraint
switches with z = x - l,

    g = (1 - s(z)) g_1 + s(z) g_2,    g_1 = y,    g_2 = y - a (x - l)                            (1)

where s is the Heaviside step, or, on the smooth tracks, its approximation (1 + tanh(sigma z))/2.
With the impulse along the gradient at position E between before (0) and after (1) the corner, the
exact motion after the corner is, with tau = t - t_s and s along the slope,

    s(tau) = u tau - g sin(th) tau^2/2,    u = v_0 cos(E th)/cos((1 - E) th)                     (2)

Residuals are those of the constraint of the current mode.

Index 2 with E < 1 spreads the impulse over its memory. Without gravity it leaves the corner with
the speed

    u_2 = u + v_0 (1/k - 1) sin(th) tan((1 - E) th),    k = gamma (1 - af)/(1 - am)              (3)

for any step.
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from xarray import Dataset

import nsdyn
from nsdyn.integrators._alpha import alpha
from nsdyn.problems.point_on_track import SHAPES
from nsdyn.studies import study
from nsdyn.studies.lib import archive, study_cells, study_file, switching_figures, tables
from nsdyn.studies.lib.schemes import NEWTON, RHO_INF, SCHEMES, plain, write
from nsdyn.studies.lib.study_cells import Pair
from nsdyn.studies.lib.study_file import RESIDUALS, Plan
from nsdyn.studies.lib.tables import Table

FILE = Path(__file__).with_suffix(".toml")
TRACK = {
    "m": 1.0,
    "a": 0.5,
    "l": 0.5,
    "v0": 4.0,
    "g": 9.81,
    "t_end": 0.5,
}  # those of the problem point_on_track: the slides give no numbers
T_SWITCH = TRACK["l"] / TRACK["v0"]
# Fraction of a step at which the corner is reached; at 0.5 the normal velocity of index 3 happens
# to be nearly right
PHASE = 0.25
LAWS = {"E_1": 1.0, "E_half": 0.5}
SLIDES = ("index_3", "index_2", "index_1", "nsga")  # in figures
SIGMAS = (2.0, 5.0, 20.0)

CAPTIONS = """\
Particle on a track with a switching constraint. After the result slides of I. Patil and O. Bruls; computed with
nsdyn {version}.

Assumed: the slides give no numbers, so all of them are ours: m = {m:g} kg, slope a = {a:g}, corner at l = {l:g} m,
v0 = {v0:g} m/s, g = {g:g} m/s2, t_end = {t_end:g} s, rho_inf = {rho:g}. In figures 3 to 5 and 7 the grid is such that the corner is reached at
the fraction {phase:g} of a step. Every scheme has the step h = {step:g} s and the Newton tolerance {newton:g}. "Exact" is the
closed-form solution.

Figure 1. The Heaviside step and its smooth approximations (1 + tanh(sigma x))/2. The step itself is used, without
smoothing.
Figure 2. The switching function shapes the constraint manifold (thick lines) of the same two constraints
g1 = y and g2 = y - a (x - l). a) z = x - l: a ramp. b) z = y - a (x - l)/2: a wedge on x > l.
Figure 3. G_E = G+ with the three classical schemes and NSGA. a) Path; the inset enlarges the corner, with a marker for
each step. b), c) Velocity. d) Energy; the corner takes part of it. Index 1 does not detect the corner and leaves the
track. Index 2 runs parallel to the track, with the right speed. Index 3 stays on the track, but its velocity rings. NSGA is
on the track with the right velocity from the first step on; its only error is that it detects the corner at the end of
the step.
Figure 4. Residuals of the same runs, above with sign, below by magnitude (at least 1e-17).
a), d) Position level: index 1 drifts linearly, index 2 keeps a gap of order h.
b), e) Velocity level: index 1 keeps G+ v-, index 3 rings and decays no faster than rho_inf^n in n steps. c) Reaction
lam and f) residual G v' + gamma of the acceleration that goes with it: the classical schemes of index 2 and 3 represent the
impulse by forces of order 1/h, which ring.
Figure 5. The choice of G_E: E = 1 (dissipates) and E = 1/2 (preserves energy), a) to c) with index 2, d) to f) with
NSGA. a), d) Paths; the markers are at t_end. b), e) Speed. c), f) Energy. Index 2 with E = 1/2 leaves the corner too fast,
by an amount that does not depend on the step; it gains energy. In runs without gravity the speed is multiplied by
{ratio:.6f} (closed formula {formula:.6f}; correct is 1), with NSGA by {nonsmooth:.6f}.
Figure 6. Ratio of kinetic energies after and before the corner, for E = 1/2 without gravity and for all positions of the
corner within a step. The correct value is 1. With index 3 the result is arbitrary: it cannot represent the impact law.
Figure 7. The smoothed constraint, by RK4 with the same step, beside the hard switch with E = 1. a) Path, b) energy. A
smooth bend takes no energy, so the motion behind it is not that of the hard switch, and a larger sigma does not come nearer to
it. With sigma = 80 1/m the bend is shorter than a step: what is lost there is an error, and depends on the grid. c) Largest change
of the energy, which the exact motion on the smooth track keeps, for all positions of the grid. The second table has the numbers.
"""

TABLE = """\
Residuals after the corner and error of the energy at t_end, point on track with G_E = G+; every scheme with h = {step:g} s
and Newton tolerance {newton:g}. "most" is the largest value from the event on, "end" the value at t_end. Levels: position
g in m, velocity G v in m/s, acceleration G v' + gamma in m/s2, with the v' = M^-1 (f - G^T lam) of the reaction reported. Energy:
difference to the exact energy after the corner, relative to the energy at the start. Parameters are ours; see captions.txt."""

BENDS = """
The smoothed constraint beside the hard switch (sigma = inf) with G_E = G+; same step, the worst of all positions of the grid. energy:
largest change that is none of the exact motion (of the hard switch, besides the loss at the corner), relative to T_0. g: drift off the
constraint in m. lam: largest reaction in N; its peak in the bend is as high as the bend is sharp: stiffness. Newton: most iterations in
a step. speed: at t_end, on the smooth tracks against that of the hard switch, in m/s."""
BEND_NAMES = ("bend_energy", "bend_drift", "bend_reaction", "bend_newton", "bend_speed")


def run(folder: str | Path, force: bool = False, file: Path = FILE) -> list[Path]:
    """Compute missing data, then draw; returns the files drawn."""
    compute(folder, force, file)
    return draw(folder)


# Computing


def compute(folder: str | Path, force: bool = False, file: Path = FILE) -> list[Path]:
    """Run the study file (at least with index_2 and nsga), and archive the geometry and what is
    shown of the runs. Data with the same settings and code are kept unless `force` is given."""
    data = Path(folder) / "data"
    shapes = {"track": TRACK, "sigmas": SIGMAS}
    made = [archive.update(data, "geometry", shapes, _geometry, force=force)]
    names = study.archived(file, folder, force)
    plan = study_file.read(file)
    settings: dict[str, Any] = {"step": plan.steps[0], "phase": PHASE, "newton": NEWTON}
    for name in plan.integrators:
        make = partial(_shown, data, file, name)
        own = [x for x in names if f" {name} " in x]
        made.append(archive.update(data, name, settings, make, after=own, force=force))
    settings |= {"schemes": list(plan.integrators)}
    make = partial(_table, data, file)
    made.append(archive.update(data, "table", settings, make, after=plan.integrators, force=force))
    return made


def speed_after(E: float) -> float:
    th = np.arctan(TRACK["a"])
    return TRACK["v0"] * np.cos(E * th) / np.cos((1 - E) * th)


def index_2_ratio(E: float) -> float:
    """u_2/v_0 of (3)."""
    c = alpha(RHO_INF)
    th = np.arctan(TRACK["a"])
    return speed_after(E) / TRACK["v0"] + float(1 / (c.gamma * c.k) - 1) * np.sin(th) * np.tan(
        (1 - E) * th
    )


def exact(
    t: np.ndarray, E: float = 1.0, gravity: float = TRACK["g"]
) -> tuple[np.ndarray, np.ndarray]:
    """q and v of (2), shape (rows, 2); a row at t_s holds the state after the corner."""
    l = TRACK["l"]
    v0 = TRACK["v0"]
    th = np.arctan(TRACK["a"])
    tau = (t - T_SWITCH)[:, None]
    u = speed_after(E)
    a = gravity * np.sin(th)
    along = np.array([1.0, 0.0])
    up = np.array([np.cos(th), np.sin(th)])
    corner = np.array([l, 0.0])
    before = tau < 0
    q = np.where(before, corner + v0 * tau * along, corner + (u * tau - a * tau**2 / 2) * up)
    return q, np.where(before, v0 * along, (u - a * tau) * up)


def _geometry() -> dict[str, tuple]:
    """The step and its approximations; for both switching functions, the points of the two lines
    with g = 0."""
    x = np.linspace(-1.0, 1.0, 401)
    smooth = [(1 + np.tanh(sigma * x)) / 2 for sigma in SIGMAS]
    p = {name: jnp.asarray(TRACK[name]) for name in ("a", "l")}
    along = np.linspace(0.0, 2 * TRACK["l"], 201)
    lines = np.array([[along, 0 * along], [along, TRACK["a"] * (along - TRACK["l"])]]).transpose(
        0, 2, 1
    )
    value = lambda shape: jax.vmap(jax.vmap(lambda q: SHAPES[shape].value(q, 0.0, p)[0]))(
        jnp.asarray(lines)
    )
    return {
        "x": ("sample", x),
        "step": ("sample", np.heaviside(x, 0.5)),
        "sigma": ("approximation", np.array(SIGMAS)),
        "smooth": (("approximation", "sample"), np.array(smooth)),
        "line": (("constraint", "point", "coordinate"), lines, {"units": "m"}),
        "on_ramp": (("constraint", "point"), np.abs(value("ramp")) < 1e-12),
        "on_wedge": (("constraint", "point"), np.abs(value("wedge")) < 1e-12),
    }


def _shown(data: Path, file: Path, name: str) -> dict[str, tuple]:
    """The runs of one scheme that figures show: cases (E, gravity), and the energy ratio over the
    places of the corner in its step. The last sample ends a shorter step and is left out."""
    plan = study_file.read(file)
    phi = study_cells.phases(plan)
    if phi is None:
        raise ValueError(f"{file}: expected several phases")
    place = (phi + T_SWITCH / plan.steps[0]) % 1  # of the corner in its step
    j = int(np.argmin(np.abs(place - PHASE)))
    cases = [(law, track) for law in LAWS for track in ("ramp", "free")]
    runs = [_cell(data, plan, Pair(track, name, law)) for law, track in cases]
    rows = slice(0, -1)
    stacked = lambda key: np.stack([run[key].values[j, rows] for run in runs])
    one = lambda key: np.stack([run[f"event_{key}"].values[j, 0] for run in runs])
    found: dict[str, tuple] = {
        "E": ("case", [LAWS[law] for law, _ in cases]),
        "gravity": ("case", [TRACK["g"] * (track == "ramp") for _, track in cases]),
        "t": ("row", runs[0].t.values[j, rows], {"units": "s"}),
        "q": (("case", "row", "coordinate"), stacked("q"), {"units": "m"}),
        "v": (("case", "row", "coordinate"), stacked("v"), {"units": "m/s"}),
        "lam": (("case", "row"), stacked("lam")[..., 0], {"units": "N", "long_name": "reaction"}),
        "energy": (("case", "row"), stacked("energy"), {"units": "J"}),
        "mode": (("case", "row"), stacked("mode").reshape(len(cases), -1)),
        "v_before": (("case", "coordinate"), one("v_before"), {"units": "m/s"}),
        "v_after": (("case", "coordinate"), one("v_after"), {"units": "m/s"}),
    }
    found |= {level: (("case", "row"), stacked(level)) for level in RESIDUALS}
    free = runs[-1]  # E = 1/2, no gravity
    ratio = np.sum(np.square(free.v.values[:, -2]), axis=1) / TRACK["v0"] ** 2
    order = np.argsort(place)
    found |= {"place": ("phase", place[order]), "ratio": ("phase", ratio[order])}
    return found | _smooth(data, plan, name, j)


def _smooth(data: Path, plan: Plan, name: str, j: int) -> dict[str, tuple]:
    """The runs of one scheme on the smooth tracks, their errors of energy, and their iterations."""
    tracks = [x for x in plan.problems if x.startswith("smooth")]
    runs = [_cell(data, plan, Pair(track, name, next(iter(LAWS)))) for track in tracks]
    if not runs:
        return {}
    scale = 0.5 * TRACK["m"] * TRACK["v0"] ** 2
    drift = [np.max(np.abs(run.energy.values - run.energy.values[:, :1])) / scale for run in runs]
    parts = [part for x in tracks for part in plan.problems[x].constraint]
    sigma = [float(part.sigma) for part in parts if isinstance(part, nsdyn.Blended)]
    return {
        "sigma": ("track", sigma),
        "smooth_q": (("track", "row", "coordinate"), np.stack([x.q.values[j, :-1] for x in runs])),
        "smooth_energy": (("track", "row"), np.stack([x.energy.values[j, :-1] for x in runs])),
        "smooth_drift": ("track", drift, {"long_name": "change of energy / kinetic energy"}),
    } | _bends(runs, _cell(data, plan, Pair("ramp", name, "E_1")), sigma)


def _bends(smooth: list[Dataset], hard: Dataset, sigma: list[float]) -> dict[str, tuple]:
    """Numbers of the smooth tracks, and last of the hard switch."""
    runs = [*smooth, hard]
    most = lambda name: [float(np.max(np.abs(x[name].values))) for x in runs]
    speed = [float(np.mean(np.linalg.norm(x.v.values[:, -1], axis=1))) for x in runs]
    found = {
        "energy": [_energy_error(x) for x in runs],
        "drift": most("residual_position"),
        "reaction": most("lam"),
        "newton": most("newton_worst"),
        "speed": np.array(speed) - [*[speed[-1]] * len(smooth), 0.0],
    }
    own: dict[str, tuple] = {f"bend_{name}": ("bend", values) for name, values in found.items()}
    return own | {"bend_sigma": ("bend", [*sigma, np.inf])}


def _energy_error(run: Dataset) -> float:
    """The largest change of the energy besides what the events so far have taken, relative to
    T_0."""
    took = np.zeros_like(run.energy.values)
    if "event_t" in run:
        lost = (run.event_kinetic_before - run.event_kinetic_after).values
        happened = run.event_t.values[:, None, :] <= run.t.values[:, :, None] + 1e-12
        took = np.sum(np.where(happened, lost[:, None, :], 0.0), axis=2)
    change = run.energy.values - run.energy.values[:, :1] + took
    return float(np.max(np.abs(change))) / (0.5 * TRACK["m"] * TRACK["v0"] ** 2)


def _cell(data: Path, plan: Plan, pair: Pair) -> Dataset:
    return archive.read(data, study_cells.name_of(plan, pair, 0))[0]


def _table(data: Path, file: Path) -> dict[str, tuple]:
    """Residuals after the event and energy errors of all schemes, for E = 1 with gravity."""
    schemes = list(study_file.read(file).integrators)
    runs = [archive.read(data, name)[0].isel(case=0) for name in schemes]
    after = [run.mode.values == 1 for run in runs]
    level = lambda run, name: np.abs(run[name].values)
    right = 0.5 * TRACK["m"] * speed_after(1.0) ** 2
    both = list(zip(runs, after, strict=True))
    most = [[level(run, x)[late].max() for x in RESIDUALS] for run, late in both]
    end = [[level(run, x)[-1] for x in RESIDUALS] for run in runs]
    error = [(run.energy.values[-1] - right) / run.energy.values[0] for run in runs]
    return {
        "scheme": ("scheme", np.array(schemes)),
        "most": (("scheme", "level"), np.array(most)),
        "end": (("scheme", "level"), np.array(end)),
        "energy_error": ("scheme", np.array(error), {"long_name": "relative error of the energy"}),
    }


# Drawing


def draw(folder: str | Path) -> list[Path]:
    """Draw the archived data; returns the files written."""
    folder = Path(folder)
    read = lambda name: archive.read(folder / "data", name)
    values, described = read("table")
    settings = described["settings"]
    runs = {name: read(name)[0] for name in SCHEMES if name in settings["schemes"]}
    files = switching_figures.draw(folder, read("geometry")[0], runs, reference())
    free = lambda name: float(
        np.linalg.norm(runs[name].isel(case=3).v.values[-1]) / TRACK["v0"]
    )  # E = 1/2, no gravity
    words = CAPTIONS.format(
        version=described["versions"]["nsdyn"], rho=RHO_INF, ratio=free("index_2"), formula=index_2_ratio(0.5),
        nonsmooth=free("nsga"), **(TRACK | settings),
    )  # fmt: skip
    files += [write(folder / "captions.txt", words)]
    files += tables.write(folder, _residuals(values, TABLE.format(**settings)))
    smooth = {name: read(name)[0] for name in settings["schemes"]}
    if all("bend_sigma" in x for x in smooth.values()):
        files += tables.write(folder, _smoothed(smooth), "smoothed")
    return files


def _residuals(values: Dataset, title: str) -> Table:
    pairs = lambda k: zip(values.most.values[k], values.end.values[k], strict=True)
    rows = [
        (
            plain(str(scheme)),
            *(f"{x:.1e}" for pair in pairs(k) for x in pair),
            f"{values.energy_error.values[k]:+.1e}",
        )
        for k, scheme in enumerate(values.scheme.values)
    ]
    levels = ("g", "G v", "G v'")
    head = [f"{level} {which}" for level in levels for which in ("most", "end")]
    return Table(title, ("scheme", *head, "energy"), rows, [])


def _smoothed(runs: dict[str, Dataset]) -> Table:
    shown = {"bend_newton": "{:.0f}", "bend_reaction": "{:.0f}", "bend_speed": "{:+.3f}"}
    rows = [
        (
            plain(name),
            f"{sigma:g}",
            *(shown.get(x, "{:.1e}").format(run[x].values[k]) for x in BEND_NAMES),
        )
        for name, run in runs.items()
        for k, sigma in enumerate(run.bend_sigma.values)
    ]
    return Table(BENDS, ("scheme", "sigma", "energy", "g", "lam", "Newton", "speed"), rows, [])


def reference() -> dict[float, dict[str, Any]]:
    """The exact motion for E = 1 and 1/2, with two rows at the event."""
    found = {}
    t = np.linspace(0.0, TRACK["t_end"], 201)
    t = np.sort(np.append(t[np.abs(t - T_SWITCH) > 1e-9], [np.nextafter(T_SWITCH, 0.0), T_SWITCH]))
    for E in (1.0, 0.5):
        q, v = exact(t, E)
        shown = np.where(t == np.nextafter(T_SWITCH, 0.0), T_SWITCH, t)
        energy = TRACK["m"] * (0.5 * np.sum(v**2, axis=1) + TRACK["g"] * q[:, 1])
        found[E] = {"t": shown, "q": q, "v": v, "energy": energy, "t_switch": T_SWITCH}
    return found
