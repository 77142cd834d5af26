"""Convergence across an event: error against step size for capturing and event-driven schemes.

The study file `convergence.toml` has the tracks, schemes, steps and phases; this module draws its
results. Both tracks have a corner at which the direction turns by atan(1/2) (`studies.lib.tracks`).
On the straight one the force is constant, so methods of order 2 and higher make errors only at the
corner; the curved one shows their order.

Errors are measured in two ways. First, the largest |q - q(t)| and |v - v(t)| in the last fifth of
the run, away from the jump. Second, the Hausdorff distance of the graphs of the velocity, with the
jump filled in, because v at a fixed time near the jump does not converge. Every error is the worst
over several phases, the positions of the corner within its step.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from xarray import Dataset

from nsdyn.analysis.metrics import Order, observed_order
from nsdyn.studies import study
from nsdyn.studies.lib import archive, study_file, study_result, style, tables
from nsdyn.studies.lib.schemes import NEWTON, SCHEMES, plain, write
from nsdyn.studies.lib.tables import Table

FILE = Path(__file__).with_suffix(".toml")
MEASURES = {"error_q": "$q$ [m]", "error_v": "$v$ [m/s]", "graph_v": "graph of $v$ [1]"}
FAMILIES = ("index", "nsga", "moreau_jean", "event")  # columns of the legend
ROUND_OFF = 1e-11  # smaller errors do not measure an order

CAPTIONS = """\
Convergence across an event: a particle on a track with a corner, straight (the point on track of I. Patil and
O. Bruls) and curved. Computed with nsdyn {version}.

Assumed: all parameters are ours: m = 1 kg, slope 0.5 at the corner, 4 m/s at the corner, g = 9.81 m/s2, curvature
1 1/m of the curved track, t_end = 0.5 s, rho_inf = 0.8, Newton tolerance {newton:g}. G_E = G+. Errors are the worst of
{phases} positions of the corner in its step. The reference is {finer}.

Figure 1. Error against step size, above on the straight track, below on the curved one. a), d) Position and b), e)
velocity, largest error of the last fifth of the run. c), f) Hausdorff distance
between the graphs of the numerical and the exact velocity, with time in units of t_end, velocity in units of the largest
speed and the jump filled in. Thin lines have the slopes 1, 2 and 4. Time-stepping schemes detect the corner at the end of its
step and have order 1. Event-driven schemes keep the order of their smooth method; on the straight track they are exact up
to round-off. Index 1 never detects the corner. The velocity of index 3 rings after the corner, initially as strongly for
small steps as for large ones, so its graph does not converge.
"""

TABLE = """\
Observed orders across an event (fits over {steps} steps, with their standard deviation) and errors with the finest step,
h = {step:g} s; worst of {phases} positions of the corner in its step. q and v: largest error of the last fifth of the run; graph: Hausdorff
distance of the graph of v. "-" where the error is round-off. Parameters are ours; see captions.txt."""


def run(folder: str | Path, force: bool = False, file: Path = FILE) -> list[Path]:
    """Compute missing data, then draw; returns the files drawn."""
    compute(folder, force, file)
    return draw(folder)


def compute(folder: str | Path, force: bool = False, file: Path = FILE) -> list[Path]:
    """Run the study file, and archive the table of its errors. Data with the same settings and code
    are kept unless `force` is given."""
    data = Path(folder) / "data"
    names = study.archived(file, folder, force)
    plan = study_file.read(file)
    settings = {
        "newton": NEWTON,
        "phases": plan.phases,
        "steps": plan.steps,
        "finer": f"{plan.finer.integrator!r} with 1/{plan.finer.refine} of the smallest step",
    }
    make = partial(_worst, data, file)
    return [archive.update(data, "table", settings, make, after=names, force=force)]


def _worst(data: Path, file: Path) -> dict[str, tuple]:
    """The worst errors of all phases, and the observed orders with their spread."""
    plan = study_file.read(file)
    found = study_result.by_names(plan, data)
    errors = np.stack([found.worst(measure)[:, :, 0] for measure in MEASURES])
    errors = np.moveaxis(errors, (2, 0, 1), (0, 1, 2))  # scheme, measure, track, step
    h = found.data.h.values[0]
    orders = [[[_order(h, x) for x in row] for row in rows] for rows in errors]
    dims = ("scheme", "measure", "track")
    return {
        "scheme": ("scheme", np.array(list(plan.integrators))),
        "measure": ("measure", np.array(list(MEASURES))),
        "track": ("track", np.array(list(plan.problems))),
        "h": ("step", h, {"units": "s"}),
        "error": ((*dims, "step"), errors, {"units": "m, m/s and 1"}),
        "order": ((*dims, "fit"), np.array(orders)),
    }


def _order(h: np.ndarray, errors: np.ndarray) -> tuple[float, float]:
    found = observed_order(h, errors, ROUND_OFF)
    return found.order, found.spread


# Drawing


def draw(folder: str | Path) -> list[Path]:
    """Draw the archived data; returns the files written."""
    folder = Path(folder)
    data, described = archive.read(folder / "data", "table")
    settings = described["settings"]
    with style.use():
        files = style.save(_figure(data), folder, "figure_1")
    words = CAPTIONS.format(version=described["versions"]["nsdyn"], **settings)
    steps = settings["steps"]
    title = TABLE.format(step=min(steps), steps=len(steps), phases=settings["phases"])
    numbers = _shown(data, title)
    return [*files, write(folder / "captions.txt", words), *tables.write(folder, numbers)]


def _shown(data: Dataset, title: str) -> Table:
    rows = []
    for track in map(str, data.track.values):
        for name in map(str, data.scheme.values):
            one = data.sel(scheme=name, track=track)
            orders = [str(Order(order, spread, 0)) for order, spread in one.order.values]
            errors = (f"{x:.1e}" for x in one.error.values[:, -1])
            rows.append((track, plain(name), *orders, *errors))
    short = [name.removeprefix("error_").removesuffix("_v") for name in MEASURES]
    head = (*(f"order {m}" for m in short), *(f"error {m}" for m in short))
    return Table(title, ("track", "scheme", *head), rows, [], names=2)


def _figure(data: Dataset) -> Figure:
    fig, axes = style.figure((2, 3), style.DOUBLE, 5.6)
    places = [(track, measure) for track in data.track.values for measure in MEASURES]
    for ax, letter, (track, measure) in zip(axes, "abcdef", places, strict=True):
        chosen = data.error.sel(track=track, measure=measure)
        values = dict(zip(map(str, data.scheme.values), chosen.values, strict=True))
        for name, errors in values.items():
            if errors[-1] > ROUND_OFF:
                ax.loglog(data.h.values, errors, **_look(name))
        _slopes(ax, values, data.h.values)
        ax.set(xlabel="step $h$ [s]", ylabel=f"error: {MEASURES[measure]}")
        style.panel(ax, letter)
    for ax in axes[:3]:
        _note_round_off(ax)
    axes[1].set_title("straight track", loc="center", pad=5)
    axes[4].set_title("curved track", loc="center", pad=5)
    _legend(fig, [str(name) for name in data.scheme.values])
    return fig


def _note_round_off(ax: Axes) -> None:
    ax.set_ylim(2e-4, 4)
    small: dict[str, Any] = {"fontsize": style.points(7), "color": "0.25"}
    ax.text(0.97, 0.04, "event-driven: round-off", ha="right", transform=ax.transAxes, **small)


def _legend(fig: Figure, names: list[str]) -> None:
    """One column per family; short columns are padded."""
    columns = [[name for name in names if name.startswith(family)] for family in FAMILIES]
    height = max(map(len, columns))
    handles = []
    labels = []
    for column in columns:
        handles += [Line2D([], [], **_look(name)) for name in column]
        handles += [Line2D([], [], linestyle="none")] * (height - len(column))
        labels += [SCHEMES[name].label for name in column] + [""] * (height - len(column))
    fig.legend(handles, labels, loc="outside upper center", ncols=len(FAMILIES))


def _look(name: str) -> dict[str, Any]:
    scheme = SCHEMES[name]
    face = scheme.colour if scheme.dash == "-" else "white"
    edge = {"marker": scheme.marker, "markerfacecolor": face, "markeredgewidth": 0.8}
    return {"color": scheme.colour, "linestyle": scheme.dash, **edge}


def _slopes(ax: Axes, values: dict[str, np.ndarray], h: np.ndarray) -> None:
    """Reference slopes below the curves, and ticks at the steps."""
    slopes = {
        1: (("index_2", "nsga"), 0.4),
        2: (("event_index_2",), 0.25),
        4: (("event_rk4",), 0.1),
    }
    for slope, (names, share) in slopes.items():
        at = share * min((values[name][0] for name in names if name in values), default=0.0)
        if at > ROUND_OFF:
            ax.plot(h, at * (h / h[0]) ** slope, color=style.GREY, linestyle="-", linewidth=0.6)
            label: dict[str, Any] = {
                "textcoords": "offset points",
                "va": "center",
                "fontsize": 7,
                "color": "0.25",
            }
            ax.annotate(str(slope), (h[0], at), (3, 0), **label)
    ax.set_xticks(h, [f"{x:g}" for x in h])
    ax.minorticks_off()
