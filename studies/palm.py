"""Palm of a metamorphic hand: a lock, and an exchange of two locks under several laws.

The loop has two degrees of freedom until drive 1 locks, then one. In the exchange it has one before
and after, and the kinetic energy changes by a ratio that depends on the position of the impulse
between the gradients, and on the metric.
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from xarray import Dataset

import nsdyn
from nsdyn import integrators, laws, problems
from nsdyn.problems.metamorphic_palm import shape
from nsdyn.studies.lib import archive, style, tables
from nsdyn.studies.lib.schemes import write
from nsdyn.studies.lib.tables import Table

RK4 = integrators.EventDriven(integrators.RK4())
STEP = 2e-3
CASES = {
    "lock": ("lock", laws.MuellerTransition(), "lock of drive 1"),
    "exchange_1": ("exchange", laws.IntermediateGradient(1.0), "$E = 1$"),
    "exchange_half": (
        "exchange",
        laws.IntermediateGradient(0.5),
        r"$E = \frac{1}{2}$, mass metric",
    ),
    "exchange_flat": (
        "exchange",
        laws.IntermediateGradient(0.5, metric="euclidean"),
        r"$E = \frac{1}{2}$, Euclidean metric",
    ),
}
ARC = 12  # segments per drawn arc
VIEW = np.array(
    [[0.4104, 0.9119, -0.0], [-0.2406, 0.1083, 0.9646], [0.8796, -0.3958, 0.2639]]
)  # right, up, towards the viewer
EXCHANGES = tuple(name for name in CASES if name != "lock")

CAPTIONS = """\
Palm of a metamorphic hand, a spherical five-bar linkage. A. Mueller names it as an example; computed with nsdyn {version}.

Assumed: no source gives numbers, so all are ours: arcs of 70, 40, 68, 112, 70 degrees, radius 0.05 m, 0.12 kg for 70 degrees
of arc, no gravity. Step h = {step:g} s.

Figure 1. The palm on the unit sphere before, at and after the exchange of locks, for E = 1: base (grey), links 1 to 4 (blue,
orange, green, pink), hinges (circles), the locked one (square), and the paths of the hinges that move (dotted). Parts behind
the sphere are pale.
Figure 2. a) Rates of the four hinges through a lock of drive 1 at t = 0.1 s. b) Kinetic energy through the exchange of the
locks of drives 1 and 2.
"""


def run(folder: str | Path, step: float = STEP, force: bool = False) -> list[Path]:
    """Compute missing data, then draw; returns the files drawn."""
    compute(folder, step, force)
    return draw(folder)


# Computing


def compute(folder: str | Path, step: float = STEP, force: bool = False) -> list[Path]:
    """Archive all runs. Data with the same settings and code are kept unless `force` is
    given."""
    folder = Path(folder) / "data"
    files = []
    for name, (event, law, _) in CASES.items():
        problem = problems.get("metamorphic_palm", event=event)
        settings = archive.numbers_of(problem) | {"event": event, "law": name, "step": step}
        make = partial(_run, problem, law, step)
        files.append(archive.update(folder, name, settings, make, force=force))
    return files


def _run(problem: nsdyn.Problem, law: laws.AbstractLaw, step: float) -> dict[str, tuple]:
    return _variables(nsdyn.simulate(problem, RK4, step=step, law=law, check=False))


def _variables(out: nsdyn.Trajectory) -> dict[str, tuple]:
    events = out.events
    return {
        "t": ("row", out.t, {"units": "s"}),
        "q": (("row", "coordinate"), out.q, {"long_name": "hinge angles", "units": "rad"}),
        "v": (("row", "coordinate"), out.v, {"units": "rad/s"}),
        "energy": ("row", out.energy, {"units": "J"}),
        "t_switch": ("event", events.t, {"units": "s"}),
        "q_switch": (("event", "coordinate"), events.q),
        "v_before": (("event", "coordinate"), events.v_before),
        "v_after": (("event", "coordinate"), events.v_after),
        "energy_before": ("event", events.kinetic_before),
        "energy_after": ("event", events.kinetic_after),
    }


# Drawing


def draw(folder: str | Path) -> list[Path]:
    """Draw the archived data; returns the files written."""
    folder = Path(folder)
    found = {name: archive.read(folder / "data", name) for name in CASES}
    runs = {name: data for name, (data, _) in found.items()}
    described = found["lock"][1]
    with style.use():
        files = style.save(_poses(runs["exchange_1"]), folder, "figure_1")
        files += style.save(_histories(runs), folder, "figure_2")
    words = CAPTIONS.format(
        version=described["versions"]["nsdyn"], step=described["settings"]["step"]
    )
    rows = [
        (name, f"{float(data.energy_after[0] / data.energy_before[0]):.6f}")
        for name, data in runs.items()
    ]
    numbers = Table("Kinetic energy after and before the event", ("run", "ratio"), rows, [])
    return [*files, write(folder / "captions.txt", words), *tables.write(folder, numbers)]


def _poses(data: Dataset) -> Figure:
    """The palm at instants before, at and after the exchange of locks."""
    p = problems.get("metamorphic_palm").params
    t = data.t.values
    when = float(data.t_switch[0])
    poses = np.insert(data.q.values, np.searchsorted(t, when), data.q_switch.values[0], axis=0)
    arcs = jax.vmap(lambda q: shape(q, p))(jnp.asarray(poses))
    lines = np.concatenate(arcs, axis=1) @ VIEW.T
    rows = [*np.linspace(0, np.searchsorted(t, when), 3).astype(int), len(poses) - 1]
    times = np.insert(t, np.searchsorted(t, when), when)[rows]
    fig, axes = style.figure((1, len(rows)), style.DOUBLE, 2.1)
    for ax, row, time in zip(axes, rows, times, strict=True):
        _pose(ax, lines[: row + 1], locked=0 if time < when else 1)
        ax.set_title(f"$t$ = {time:.2f} s" + (", exchange" if time == when else ""))
    return fig


def _pose(ax: Axes, lines: np.ndarray, locked: int) -> None:
    """The last pose, with the paths of its hinges; parts behind the sphere are pale."""
    turn = np.linspace(0, 2 * np.pi, 100)
    line = lines[-1]
    ax.plot(np.cos(turn), np.sin(turn), color="0.8", linestyle="-", linewidth=0.6)
    for hinge in (2, 3):
        ax.plot(
            *lines[:, ARC * hinge, :2].T, color=style.GREY, linestyle=style.DASHES[3], linewidth=0.8
        )
    for link in range(5):
        arc = line[ARC * link : ARC * (link + 1) + 1]
        colour, width = (style.GREY, 2.6) if link == 4 else (style.COLOURS[link], 1.6)
        front = np.where(arc[:, 2:] >= 0, arc[:, :2], np.nan)
        for shown, alpha in ((arc[:, :2], 0.35), (front, 1.0)):
            ax.plot(*shown.T, color=colour, linestyle="-", linewidth=width, alpha=alpha)
    for hinge in range(5):
        filled = "0.1" if hinge == locked else "white"
        ax.plot(
            *line[ARC * hinge, :2],
            "s" if hinge == locked else "o",
            color="0.1",
            markerfacecolor=filled,
            markersize=4,
        )
    ax.set(aspect="equal", xlim=(-1.08, 1.08), ylim=(-1.08, 1.08))
    ax.axis("off")


def _jump(ax: Axes, data: Dataset, y: np.ndarray, before: float, after: float, **look: Any) -> None:
    t = data.t.values
    when = float(data.t_switch[0])
    at = np.searchsorted(t, when - 1e-12)
    style.jumping_line(
        ax, np.insert(t, at, [when, when]), np.insert(y, at, [before, after]), **look
    )


def _histories(runs: dict[str, Dataset]) -> Figure:
    fig, (left, right) = style.figure((1, 2), style.DOUBLE, 2.6)
    data = runs["lock"]
    for i in range(4):
        values = data.v.values[:, i], data.v_before.values[0, i], data.v_after.values[0, i]
        _jump(
            left,
            data,
            *values,
            color=style.COLOURS[i],
            linestyle=style.DASHES[i],
            label=rf"$\dot\vartheta_{i + 1}$",
        )
    for k, name in enumerate(EXCHANGES):
        data = runs[name]
        values = (
            1e6 * data.energy.values,
            1e6 * data.energy_before.values[0],
            1e6 * data.energy_after.values[0],
        )
        _jump(
            right,
            data,
            *values,
            color=style.COLOURS[k],
            linestyle=style.DASHES[k],
            label=CASES[name][2],
        )
    left.set(xlabel="time $t$ [s]", ylabel="rate [rad/s]")
    right.set(xlabel="time $t$ [s]", ylabel=r"kinetic energy [$\mu$J]")
    left.legend(ncols=2)
    right.legend(loc="lower left")
    for ax, letter in ((left, "a"), (right, "b")):
        style.panel(ax, letter)
    return fig
