"""NSGA with friction: orders of convergence, where the direction of sliding is fixed and where it
turns.

Two motions that slide all the time, so that no event disturbs the orders:

bowl   a particle in a bowl with friction (`friction_bowl`), from rest at phi = -1 until t = 0.8 s. In
       the plane friction has two directions, and does not turn. With w = phi'

           w' = -(g/R) sin(phi) - mu (w^2 + (g/R) cos(phi)),   N = m (R w^2 + g cos(phi))        (1)

top    the tippe top (`tippe_top`) until t = 0.2 s, before its stem touches. The slip turns with the
       precession and the spin. Its normal force follows from gap'' = 0 (`studies.lib.sliding_top`)

Both references are integrated by DOP853, with a tolerance of 1e-12. Schemes: NSGA with friction
opposite to the mean slip of a step, NSGA with friction opposite to the slip at its end, as the
three-level scheme is published, and Moreau-Jean. In the bowl both variants of NSGA are the same
scheme.

G. Capobianco, J. Harsch, S. R. Eugster, R. I. Leine: A nonsmooth generalized-alpha method for
mechanical systems with frictional contact. Int. J. Numer. Methods Eng. 122 (2021) 6497-6526.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.integrate import solve_ivp
from xarray import Dataset

import nsdyn
from nsdyn import integrators
from nsdyn.problems.friction_bowl import friction_bowl
from nsdyn.problems.tippe_top import tippe_top
from nsdyn.studies.lib import archive, sliding_top, style, tables
from nsdyn.studies.lib.schemes import write
from nsdyn.studies.lib.tables import Table

COUNTS = (100, 200, 400, 800)  # steps of a run
# Not by name, so that keys of data cover their code.
PROBLEMS: dict[str, Callable[..., nsdyn.Problem]] = {"bowl": friction_bowl, "top": tippe_top}
ENDS = {"bowl": 0.8, "top": 0.2}  # s
MEASURES = {
    "angle": ("bowl", "angle [rad]"),
    "rate": ("bowl", "rate [rad/s]"),
    "force": ("bowl", "normal force [N]"),
    "tilt": ("top", "inclination [rad]"),
    "position": ("top", "configuration"),
    "velocity": ("top", "velocity"),
}
DRAWN = {
    "angle": "bowl: angle [rad]",
    "force": "bowl: normal force [N]",
    "tilt": "top: inclination [rad]",
}


class Scheme(NamedTuple):
    integrator: Any
    label: str
    place: int  # of colour, line and marker


SCHEMES = {
    "mean": Scheme(integrators.NSGA(), "NSGA, friction against the mean slip", 0),
    "end": Scheme(integrators.NSGA(friction="end"), "NSGA, as published", 1),
    "moreau_jean": Scheme(integrators.MoreauJean(), "Moreau-Jean", 2),
}

CAPTIONS = """\
NSGA with friction: errors against the step size. Computed with nsdyn {version}.

Assumed: the bowl (R = 1 m, mu = 0.2, from rest at -1 rad, at t = {bowl:g} s) is ours; the top has the parameters of Leine and
Glocker (2003), theta_0 = 0.1, spin 180 rad/s, at t = {top:g} s. References: DOP853, tolerance 1e-12, with the accelerations of the
sliding motion solved for by hand. rho_inf = 0.8.

Figure 1. Errors at the end of the run. a), b) A particle in a bowl, whose slip keeps its direction: both variants of NSGA
are the same scheme. c) Tippe top, whose slip turns. Thin lines have the slopes 1 and 2. Friction opposite to the slip at
the end of each step costs NSGA one order where the slip turns; opposite to the mean slip it has order 2 in both.
"""

TABLE = """\
Observed orders (finest pair of steps) and errors with the finest step: {bowl_step:g} s in the bowl, {top_step:g} s for the top."""


def run(folder: str | Path, counts: Sequence[int] = COUNTS, force: bool = False) -> list[Path]:
    """Compute missing data, then draw; returns the files drawn."""
    compute(folder, counts, force)
    return draw(folder)


# References


@cache
def bowl_exact() -> tuple[float, float, float]:
    """Angle, rate and normal force, (1)."""
    g, mu = 9.81, 0.2

    def slope(_: float, y: np.ndarray) -> list[float]:
        phi, w = y
        return [w, -g * np.sin(phi) - mu * (w * w + g * np.cos(phi))]

    options = {"method": "DOP853", "rtol": 1e-12, "atol": 1e-14}
    phi, w = solve_ivp(slope, (0, ENDS["bowl"]), [-1.0, 0.0], **options).y[:, -1]
    return float(phi), float(w), float(w * w + g * np.cos(phi))


@cache
def top_exact() -> tuple[np.ndarray, np.ndarray]:
    """Configuration and velocity."""
    top = tippe_top()
    return sliding_top.state(top.q0, top.v0, ENDS["top"])


def tilt(q: np.ndarray) -> float:
    """The angle of the axis of the top to the vertical."""
    return float(np.arccos(1 - 2 * (q[4] ** 2 + q[5] ** 2) / np.sum(q[3:] ** 2)))


# Computing


def compute(folder: str | Path, counts: Sequence[int] = COUNTS, force: bool = False) -> list[Path]:
    """Archive the errors, for numbers of steps in ascending order. Data with the same settings and
    code are kept unless `force` is given."""
    settings = {"counts": counts, "ends": ENDS, "schemes": list(SCHEMES)}
    make = partial(_variables, counts)
    return [archive.update(_data(folder), "errors", settings, make, force=force)]


def _data(folder: str | Path) -> Path:
    return Path(folder) / "data"


def _variables(counts: Sequence[int]) -> dict[str, tuple]:
    found = [
        [{**_bowl(scheme, count), **_top(scheme, count)} for count in counts]
        for scheme in SCHEMES.values()
    ]
    errors = np.array([[[one[name] for one in row] for name in MEASURES] for row in found])
    order = np.log2(errors[:, :, -2] / errors[:, :, -1]) / np.log2(counts[-1] / counts[-2])
    return {
        "scheme": ("scheme", np.array(list(SCHEMES))),
        "measure": ("measure", np.array(list(MEASURES))),
        "count": ("step", np.array(counts)),
        "error": (("scheme", "measure", "step"), errors, {"units": "rad, rad/s, N, SI"}),
        "order": (("scheme", "measure"), order),
    }


def _run(name: str, scheme: Scheme, count: int) -> nsdyn.Solution:
    problem = PROBLEMS[name](t_end=ENDS[name])
    step = problem.t_end / count
    return nsdyn.simulate(problem, scheme.integrator, step=step, check=False)


def _bowl(scheme: Scheme, count: int) -> dict[str, float]:
    found = _run("bowl", scheme, count)
    (x, y), v = found.q[-1], found.v[-1]
    values = np.arctan2(x, -y), x * v[1] - y * v[0], -found.lam[-1, 0]
    names = ("angle", "rate", "force")
    each = zip(names, values, bowl_exact(), strict=True)
    return {name: abs(float(a - b)) for name, a, b in each}


def _top(scheme: Scheme, count: int) -> dict[str, float]:
    found = _run("top", scheme, count)
    q, v = top_exact()
    return {
        "tilt": abs(tilt(found.q[-1]) - tilt(q)),
        "position": float(np.max(np.abs(found.q[-1] - q))),
        "velocity": float(np.max(np.abs(found.v[-1] - v))),
    }


# Drawing


def draw(folder: str | Path) -> list[Path]:
    """Draw the archived data; returns the files written."""
    folder = Path(folder)
    data, described = archive.read(_data(folder), "errors")
    with style.use():
        files = style.save(_figure(data), folder, "figure_1")
    words = CAPTIONS.format(version=described["versions"]["nsdyn"], **ENDS)
    finest = int(data["count"].values[-1])
    steps = {f"{name}_step": end / finest for name, end in ENDS.items()}
    return [
        *files,
        write(folder / "captions.txt", words),
        *tables.write(folder, _table(data, TABLE.format(**steps))),
    ]


def _figure(data: Dataset) -> Figure:
    fig, axes = style.figure((1, 3), style.DOUBLE, 2.9)
    for ax, letter, (measure, label) in zip(axes, "abc", DRAWN.items(), strict=True):
        h = ENDS[MEASURES[measure][0]] / data["count"].values
        for name, scheme in SCHEMES.items():
            errors = data.error.sel(scheme=name, measure=measure).values
            ax.loglog(h, errors, label=scheme.label, **_look(scheme))
        _slopes(ax, h, data.error.sel(measure=measure).values)
        ax.set(xlabel="step $h$ [s]", ylabel=f"error, {label}")
        ax.set_xticks(h, [f"{x:g}" for x in h], rotation=30, ha="right")
        ax.minorticks_off()
        style.panel(ax, letter)
    handles, labels = axes[0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside upper center", ncols=len(SCHEMES))
    return fig


def _look(scheme: Scheme) -> dict[str, Any]:
    k = scheme.place
    return {
        "color": style.COLOURS[k],
        "linestyle": style.DASHES[k],
        "marker": style.MARKERS[k],
        "markersize": 5.5 if k == 0 else 3.5,
        "markerfacecolor": "white",
        "markeredgewidth": 0.8,
    }


def _slopes(ax: Axes, h: np.ndarray, errors: np.ndarray) -> None:
    """Slopes 1 and 2: above the largest errors, and below the smallest."""
    for slope, at in ((1, 2.2 * np.max(errors[:, 0])), (2, 0.4 * np.min(errors[:, 0]))):
        ax.plot(h, at * (h / h[0]) ** slope, color=style.GREY, linestyle="-", linewidth=0.6)
        ax.annotate(
            str(slope), (h[0], at), (3, 0), textcoords="offset points", va="center",
            fontsize=style.points(7), color="0.25",
        )  # fmt: skip


def _table(data: Dataset, title: str) -> Table:
    head = ("scheme", "", *(f"{where} {name}" for name, (where, _) in MEASURES.items()))
    rows = []
    for name, scheme in SCHEMES.items():
        one = data.sel(scheme=name)
        rows.append((scheme.label, "order", *(f"{x:.2f}" for x in one.order.values)))
        rows.append((scheme.label, "error", *(f"{x:.1e}" for x in one.error.values[:, -1])))
    return Table(title, head, rows, [], names=2)
