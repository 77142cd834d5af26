"""Particle on a track whose constraint switches: classical and nonsmooth generalized-alpha (Patil
and Bruls, result slides).

The track is flat for x < l and rises with the slope a = tan(th) for x > l. Its constraint switches
with z = x - l,

    g = (1 - s(z)) g_1 + s(z) g_2,    g_1 = y,    g_2 = y - a (x - l)                            (1)

where s is the Heaviside step. With the impulse along the gradient at position E between before (0)
and after (1) the corner, the exact motion after the corner is, with tau = t - t_s and s along the
slope,

    s(tau) = u tau - g sin(th) tau^2/2,    u = v_0 cos(E th)/cos((1 - E) th)                     (2)

Residuals are those of the constraint of the current mode; at acceleration level with the reaction
lam that a scheme reports,

    G v' + gamma,    v' = M^-1 (f - G^T lam)                                                     (3)

Index 2 with E < 1 spreads the impulse over its memory. Without gravity it leaves the corner with
the speed

    u_2 = u + v_0 (1/k - 1) sin(th) tan((1 - E) th),    k = gamma (1 - af)/(1 - am)              (4)

for any step.
"""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nsdyn
from nsdyn import laws, problems
from nsdyn._repr import settings_text
from nsdyn.analysis.residuals import residuals
from nsdyn.integrators._alpha import alpha
from nsdyn.laws import AbstractLaw
from nsdyn.problems.point_on_track import SHAPES
from nsdyn.studies.lib import archive, switching_figures
from nsdyn.studies.lib.schemes import NEWTON, RHO_INF, SCHEMES, plain, table, write

TRACK = {
    "m": 1.0,
    "a": 0.5,
    "l": 0.5,
    "v0": 4.0,
    "g": 9.81,
    "t_end": 0.5,
}  # ours: the slides give no numbers
# Fraction of a step at which the corner is reached; at 0.5 the normal velocity of index 3 happens
# to be nearly right
PHASE = 0.25
PHASES = np.linspace(0.04, 0.96, 24)
SLIDES = ("index_3", "index_2", "index_1", "nsga")
COMPARED = tuple(name for name in SCHEMES if name != "event_index_2")
LEVELS = ("position", "velocity", "acceleration")
SIGMAS = (2.0, 5.0, 20.0)

CAPTIONS = """\
Particle on a track with a switching constraint. After the result slides of I. Patil and O. Bruls; computed with
nsdyn {version}.

Assumed: the slides give no numbers, so all of them are ours: m = {m:g} kg, slope a = {a:g}, corner at l = {l:g} m,
v0 = {v0:g} m/s, g = {g:g} m/s2, t_end = {t_end:g} s, rho_inf = {rho:g}. The start is chosen so that the corner is reached at
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
"""

TABLE = """\
Residuals after the corner and error of the energy at t_end, point on track with G_E = G+; every scheme with h = {step:g} s
and Newton tolerance {newton:g}. "most" is the largest value from the event on, "end" the value at t_end. Levels: position
g in m, velocity G v in m/s, acceleration G v' + gamma in m/s2, with the v' = M^-1 (f - G^T lam) of the reaction reported. Energy:
difference to the exact energy after the corner, relative to the energy at the start. Parameters are ours; see captions.txt.

"""


def run(
    folder: str | Path, step: float = 1e-2, force: bool = False, schemes: Iterable[str] = COMPARED
) -> list[Path]:
    """Compute missing data, then draw; returns the files drawn."""
    compute(folder, step, force, schemes)
    return draw(folder)


# Computing


def compute(
    folder: str | Path, step: float = 1e-2, force: bool = False, schemes: Iterable[str] = COMPARED
) -> list[Path]:
    """Archive the geometry, the runs of each scheme (at least index_2 and nsga) and the table of
    them. Data with the same settings and code are kept unless `force` is given."""
    data = Path(folder) / "data"
    common = {"track": TRACK, "step": step, "phase": PHASE, "newton": NEWTON}
    shapes = {"track": TRACK, "sigmas": SIGMAS}
    made = [archive.update(data, "geometry", shapes, _geometry, force=force)]
    mechanism = problems.function("point_on_track")
    for name in schemes:
        integrator = SCHEMES[name].integrator
        settings = common | {
            "integrator": settings_text(integrator),
            "phases": PHASES if name in SLIDES else [],
        }
        make = partial(_runs, name, integrator, mechanism, step)
        made.append(archive.update(data, name, settings, make, force=force))
    settings = common | {
        "schemes": {name: settings_text(SCHEMES[name].integrator) for name in schemes}
    }
    make = partial(_table, data, schemes)
    made.append(archive.update(data, "table", settings, make, after=schemes, force=force))
    return made


def start(step: float, phase: float) -> float:
    """x_0 for which the corner is reached at this fraction of a step."""
    whole = np.floor(TRACK["l"] / (TRACK["v0"] * step))
    return TRACK["l"] - TRACK["v0"] * step * (whole + phase)


def speed_after(E: float) -> float:
    th = np.arctan(TRACK["a"])
    return TRACK["v0"] * np.cos(E * th) / np.cos((1 - E) * th)


def index_2_ratio(E: float) -> float:
    """u_2/v_0 of (4)."""
    c = alpha(RHO_INF)
    th = np.arctan(TRACK["a"])
    return speed_after(E) / TRACK["v0"] + float(1 / (c.gamma * c.k) - 1) * np.sin(th) * np.tan(
        (1 - E) * th
    )


def exact(
    t: np.ndarray, x0: float, E: float = 1.0, gravity: float = TRACK["g"]
) -> tuple[np.ndarray, np.ndarray]:
    """q and v of (2), shape (rows, 2); a row at t_s holds the state after the corner."""
    l = TRACK["l"]
    v0 = TRACK["v0"]
    th = np.arctan(TRACK["a"])
    tau = (t - (l - x0) / v0)[:, None]
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


def _law(name: str, E: float) -> AbstractLaw:
    """The general law, with E traced, or for E = 1 the simple law, which compiles faster."""
    return laws.IntermediateGradient(E) if name in SLIDES else laws.PostSwitchGradient()


def _runs(name: str, integrator: Any, mechanism: Any, step: float) -> dict[str, tuple]:
    """The cases (E, gravity) of one scheme and, for the schemes of the slides, the energy ratio
    over the phase."""
    cases = [(E, g) for E in ((1.0, 0.5) if name in SLIDES else (1.0,)) for g in (TRACK["g"], 0.0)]

    def simulate(E: float, gravity: float, phase: float) -> tuple:
        problem = mechanism(**(TRACK | {"g": gravity, "x0": start(step, phase)}))
        law = _law(name, E)
        return problem, nsdyn.simulate(problem, integrator, step=step, law=law, check=False)

    runs = [simulate(E, g, PHASE) for E, g in cases]
    stacked = lambda values: np.stack([np.asarray(value) for value in values])
    residuals = [_residuals(problem, trajectory) for problem, trajectory in runs]
    events = [trajectory.events[0] for _, trajectory in runs]
    found: dict[str, tuple] = {
        "E": ("case", [E for E, _ in cases]),
        "gravity": ("case", [g for _, g in cases], {"units": "m/s2"}),
        "t": ("row", runs[0][1].t, {"units": "s"}),
        "q": (("case", "row", "coordinate"), stacked(run.q for _, run in runs), {"units": "m"}),
        "v": (("case", "row", "coordinate"), stacked(run.v for _, run in runs), {"units": "m/s"}),
        "lam": (
            ("case", "row"),
            stacked(run.lam[:, 0] for _, run in runs),
            {"units": "N", "long_name": "reaction"},
        ),
        "energy": (("case", "row"), stacked(run.energy for _, run in runs), {"units": "J"}),
        "mode": (("case", "row"), stacked(run.mode for _, run in runs).astype(np.int32)),
        "t_switch": ("case", [event.t for event in events], {"units": "s"}),
        "v_before": (
            ("case", "coordinate"),
            stacked(event.v_before for event in events),
            {"units": "m/s"},
        ),
        "v_after": (
            ("case", "coordinate"),
            stacked(event.v_after for event in events),
            {"units": "m/s"},
        ),
        "Lam": (
            "case",
            [event.Lam[0] for event in events],
            {"units": "N s", "long_name": "impulse"},
        ),
    }
    units = dict(zip(LEVELS, ("m", "m/s", "m/s2"), strict=True))
    found |= {
        level: (("case", "row"), stacked(r[level] for r in residuals), {"units": units[level]})
        for level in LEVELS
    }
    if name in SLIDES:
        ends = [simulate(0.5, 0.0, phase)[1].v[-1] for phase in PHASES]
        ratio = np.sum(np.square(ends), axis=1) / TRACK["v0"] ** 2
        found |= {
            "phase": ("place", PHASES),
            "ratio": ("place", ratio, {"long_name": "kinetic energy after / before"}),
        }
    return found


def _residuals(problem: nsdyn.Problem, run: nsdyn.Trajectory) -> dict[str, np.ndarray]:
    """The residual of the constraint of the current mode at the three levels, over the rows."""
    found = residuals(problem, run)._asdict()  # (3)
    return {level: found[level][:, 0] for level in LEVELS}


def _table(data: Path, schemes: Iterable[str]) -> dict[str, tuple]:
    """Residuals after the event and energy errors of all schemes, for E = 1 with gravity."""
    most = []
    end = []
    error = []
    right = 0.5 * TRACK["m"] * speed_after(1.0) ** 2
    for name in schemes:
        run = archive.read(data, name)[0].isel(case=0)
        after = run.mode.values == 1
        most.append([np.abs(run[level].values[after]).max() for level in LEVELS])
        end.append([np.abs(run[level].values[-1]) for level in LEVELS])
        error.append((run.energy.values[-1] - right) / run.energy.values[0])
    return {
        "scheme": ("scheme", np.array([plain(name) for name in schemes])),
        "most": (("scheme", "level"), np.array(most)),
        "end": (("scheme", "level"), np.array(end)),
        "energy_error": (
            "scheme",
            np.array(error),
            {"long_name": "relative error of the energy at t_end"},
        ),
    }


# Drawing


def draw(folder: str | Path) -> list[Path]:
    """Draw the archived data; returns the files written."""
    folder = Path(folder)
    read = lambda name: archive.read(folder / "data", name)
    values, described = read("table")
    runs = {name: read(name)[0] for name in SLIDES if name in described["settings"]["schemes"]}
    files = switching_figures.draw(
        folder, read("geometry")[0], runs, reference(described["settings"]["step"])
    )
    settings = described["settings"]
    free = lambda name: float(
        np.linalg.norm(runs[name].isel(case=3).v.values[-1]) / TRACK["v0"]
    )  # E = 1/2, no gravity
    words = CAPTIONS.format(
        version=described["versions"]["nsdyn"], rho=RHO_INF, ratio=free("index_2"), formula=index_2_ratio(0.5),
        nonsmooth=free("nsga"), **(TRACK | settings),
    )  # fmt: skip
    rows = [
        [
            str(scheme),
            *(f"{x:.1e}" for pair in zip(most, end, strict=True) for x in pair),
            f"{error:+.1e}",
        ]
        for scheme, most, end, error in zip(
            values.scheme.values,
            values.most.values,
            values.end.values,
            values.energy_error.values,
            strict=True,
        )
    ]
    head = [
        "scheme",
        *(f"{level} {which}" for level in ("g", "G v", "G v'") for which in ("most", "end")),
        "energy",
    ]
    numbers = TABLE.format(**settings) + table(head, rows)
    return [*files, write(folder / "captions.txt", words), write(folder / "table.txt", numbers)]


def reference(step: float) -> dict[float, dict[str, Any]]:
    """The exact motion for E = 1 and 1/2, with two rows at the event."""
    x0 = start(step, PHASE)
    found = {}
    t_switch = (TRACK["l"] - x0) / TRACK["v0"]
    t = np.linspace(0.0, TRACK["t_end"], 201)
    t = np.sort(np.append(t[np.abs(t - t_switch) > 1e-9], [np.nextafter(t_switch, 0.0), t_switch]))
    for E in (1.0, 0.5):
        q, v = exact(t, x0, E)
        shown = np.where(t == np.nextafter(t_switch, 0.0), t_switch, t)
        energy = TRACK["m"] * (0.5 * np.sum(v**2, axis=1) + TRACK["g"] * q[:, 1])
        found[E] = {"t": shown, "q": q, "v": v, "energy": energy, "t_switch": t_switch}
    return found
