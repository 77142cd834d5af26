"""Overbraiding: carriers on a ring of horn gears, their velocity jumps at transfers, and the braid
they weave.

One carrier under three drives, and a ring of carriers in both directions under a common drive. The
braid grows along a mandrel at the centre of the ring. With the take-up speed c, the yarn laid down
at time t lies at the angle of its carrier and the height c t; at a crossing the outer carrier lays
its yarn on top.
"""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from xarray import Dataset

import nsdyn
from nsdyn import integrators, laws, problems
from nsdyn.problems.overbraiding import ring
from nsdyn.studies.lib import archive, style, tables
from nsdyn.studies.lib.schemes import write
from nsdyn.studies.lib.tables import Table

BRAIDER = {"gears": 8, "r": 0.06, "m": 0.5, "I": 2e-4, "J": 5e-3, "Omega": 10.0}  # ours
RUNS = {
    "prescribed": ("prescribed", 1.0, "prescribed drive"),
    "common_half": ("common", 0.5, r"common drive, $E = \frac{1}{2}$"),
    "common_one": ("common", 1.0, "common drive, $E = 1$"),
}
RK4 = integrators.EventDriven(integrators.RK4())
STEP, DURATION = 5e-3, 1.5
ROUND = 2.6  # s: slightly more than one round of the ring
TRAVEL = (
    (style.PINK, style.DASHES[0]),
    (style.AMBER, style.DASHES[1]),
)  # for carriers in the two directions
SNAPSHOTS, TRAIL, BOBBIN = (
    5,
    0.15,
    0.035,
)  # images between two transfers; length of trails in s, of bobbins in m

CAPTIONS = """\
Overbraiding with horn gears, the process that motivates the switching constraints of I. Patil and O. Bruls. Computed with
nsdyn {version}.

Assumed: the slides give no numbers, so all of them are ours: {gears} gears, r = {r:g} m, carriers of m = {m:g} kg and
I = {I:g} kg m2, inertia of the gears J = {J:g} kg m2, Omega = {Omega:g} rad/s. Step h = {step:g} s.

Figure 1. a) Axes of the gears (crosses), the paths of carriers in both directions (pink, and amber, dashed) and all carriers at
one instant. b) Spin of one carrier, which reverses at every transfer. c) Its speed: continuous except for a common drive
and E = 1, where every transfer reduces it.
Figure 2. Yarns on the mandrel, unrolled: angle of the carriers over time, {gears} carriers. At a crossing the yarn of the outer
carrier is on top; the other is interrupted.
Figure 3. Carriers from one transfer of the marked carrier (star) to its next one, each with the direction of its bobbin (bar) and
the path of the last {trail:g} s. Its bobbin turns with the gear, in opposite directions on successive gears.
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
    cases: dict[str, tuple] = {
        name: (drive, E, ((0, 1),), DURATION) for name, (drive, E, _) in RUNS.items()
    }
    cases["ring"] = ("prescribed", 1.0, ring(int(BRAIDER["gears"])), ROUND)
    files = []
    for name, (drive, E, start, t_end) in cases.items():
        problem = problems.get("overbraiding", drive=drive, start=start, t_end=t_end, **BRAIDER)
        settings = archive.numbers_of(problem) | {
            "drive": drive,
            "E": E,
            "start": start,
            "step": step,
        }
        make = partial(_run, problem, laws.IntermediateGradient(E), step, drive)
        files.append(archive.update(folder, name, settings, make, force=force))
    return files


def _run(
    problem: nsdyn.Problem, law: laws.AbstractLaw, step: float, drive: str
) -> dict[str, tuple]:
    return _variables(nsdyn.simulate(problem, RK4, step=step, law=law, check=False), drive)


def _variables(out: nsdyn.Trajectory, drive: str) -> dict[str, tuple]:
    """Carriers on the grid and at transfers, without the coordinate of the drive."""
    first = int(drive == "common")
    parts = lambda x: x[:, first:].reshape(len(x), -1, 3)
    dims = ("carrier", "coordinate")
    return {
        "t": ("row", out.t, {"units": "s"}),
        "q": (("row", *dims), parts(out.q), {"long_name": "x, y, phi", "units": "m, m, rad"}),
        "v": (("row", *dims), parts(out.v), {"units": "m/s, m/s, rad/s"}),
        "mode": (
            ("row", "carrier"),
            out.mode.reshape(len(out.t), -1).astype(np.int32),
            {"long_name": "gear"},
        ),
        "t_switch": ("event", out.events.t, {"units": "s"}),
        "q_switch": (("event", *dims), parts(out.events.q)),
        "v_before": (("event", *dims), parts(out.events.v_before)),
        "v_after": (("event", *dims), parts(out.events.v_after)),
    }


# Drawing


def draw(folder: str | Path) -> list[Path]:
    """Draw the archived data; returns the files written."""
    folder = Path(folder)
    found = {name: archive.read(folder / "data", name) for name in (*RUNS, "ring")}
    runs = {name: data for name, (data, _) in found.items()}
    described = found["ring"][1]
    with style.use():
        files = style.save(_motion(runs), folder, "figure_1")
        files += style.save(_braid(runs["ring"]), folder, "figure_2")
        files += style.save(_strip(runs["ring"]), folder, "figure_3")
    step, version = described["settings"]["step"], described["versions"]["nsdyn"]
    words = CAPTIONS.format(version=version, step=step, trail=TRAIL, **BRAIDER)
    head = ("drive", "E", "transfers", "speed ratio", "spin ratio")
    rows = [(drive, f"{E:g}", *_measured(runs[name])) for name, (drive, E, _) in RUNS.items()]
    numbers = Table("One carrier: transfers and what they change", head, rows, [])
    return [
        *files,
        write(folder / "captions.txt", words),
        *tables.write(folder, numbers),
    ]


def _measured(data: Dataset) -> list[str]:
    before = data.v_before.values[:, 0]
    after = data.v_after.values[:, 0]
    speed = np.hypot(*after[:, :2].T) / np.hypot(*before[:, :2].T)
    return [str(len(before)), f"{speed.mean():.6f}", f"{(after[:, 2] / before[:, 2]).mean():.6f}"]


def _motion(runs: dict[str, Dataset]) -> Figure:
    fig, (left, middle, right) = style.figure((1, 3), style.DOUBLE, 2.6)
    _ring(left, runs["ring"])
    for k, (name, (_, _, label)) in enumerate(RUNS.items()):
        data = runs[name]
        look: dict[str, Any] = {
            "color": style.COLOURS[k],
            "linestyle": style.DASHES[k],
            "label": label,
        }
        speed = lambda v: np.hypot(v[:, 0, 0], v[:, 0, 1])
        for ax, value in ((middle, lambda v: v[:, 0, 2]), (right, speed)):
            t = data.t.values
            y = value(data.v.values)
            at = np.searchsorted(t, data.t_switch.values - 1e-12)
            limits = [value(v.values) for v in (data.v_before, data.v_after)]
            if np.abs(limits[1] - limits[0]).max() < 1e-6:  # round-off is no jump
                ax.plot(t, y, **look)
                continue
            places = np.repeat(at, 2)
            times = np.repeat(data.t_switch.values, 2)
            style.jumping_line(
                ax,
                np.insert(t, places, times),
                np.insert(y, places, np.stack(limits, 1).ravel()),
                **look,
            )
    middle.set(xlabel="time $t$ [s]", ylabel=r"spin $\dot\varphi$ [rad/s]")
    right.set(xlabel="time $t$ [s]", ylabel="speed [m/s]", ylim=(0.4, 0.65))
    handles, names = right.get_legend_handles_labels()
    fig.legend(handles, names, loc="outside upper center", ncols=3)
    for ax, letter in ((left, "a"), (middle, "b"), (right, "c")):
        style.panel(ax, letter)
    return fig


def _ring(ax: Axes, data: Dataset) -> None:
    N = BRAIDER["gears"]
    _axes_of_gears(ax)
    for carrier, (colour, dashes) in zip((0, N // 2), TRAVEL, strict=True):
        ax.plot(*data.q.values[:, carrier, :2].T, color=colour, linestyle=dashes, linewidth=1.0)
    for k, which in enumerate((slice(0, N // 2), slice(N // 2, N))):
        ax.plot(*data.q.values[40, which, :2].T, style.MARKERS[k], color=TRAVEL[k][0], markersize=4)
    ax.set(xlabel="$x$ [m]", ylabel="$y$ [m]", aspect="equal")


def _axes_of_gears(ax: Axes) -> np.ndarray:
    N, r = BRAIDER["gears"], BRAIDER["r"]
    angle = 2 * np.pi * np.arange(N) / N
    centres = r / np.sin(np.pi / N) * np.stack([np.cos(angle), np.sin(angle)])
    ax.plot(*centres, "+", color=style.GREY, markersize=4)
    return centres


def _strip(data: Dataset) -> Figure:
    """The ring between two transfers of its first carrier."""
    t = data.t.values
    first = np.flatnonzero(np.diff(data.mode.values[:, 0]))[:2]
    rows = np.linspace(first[0] + 1, first[1], SNAPSHOTS).astype(int)
    fig, axes = style.figure((1, SNAPSHOTS), style.DOUBLE, 1.75)
    for ax, row in zip(axes, rows, strict=True):
        around = np.linspace(0.0, 2 * np.pi, 60)
        for x, y in _axes_of_gears(ax).T:
            ax.plot(
                x + BRAIDER["r"] * np.cos(around),
                y + BRAIDER["r"] * np.sin(around),
                color="0.85",
                linewidth=0.6,
                ls="-",
            )
        for carrier in range(data.q.shape[1]):
            start = np.searchsorted(t, t[row] - TRAIL)
            _carrier(ax, data.q.values[start : row + 1, carrier], carrier)
        ax.set_title(f"$t$ = {t[row]:.2f} s")
        ax.set(aspect="equal")
        ax.axis("off")
    return fig


def _carrier(ax: Axes, path: np.ndarray, number: int) -> None:
    """One carrier with its bobbin at the end of its path."""
    colour, _ = TRAVEL[int(number >= BRAIDER["gears"] // 2)]
    x, y, phi = path[-1]
    along = BOBBIN * np.array([np.cos(phi), np.sin(phi)])
    ax.plot(*path[:, :2].T, color=colour, linestyle="-", linewidth=0.9)
    ax.plot(
        [x - along[0], x + along[0]],
        [y - along[1], y + along[1]],
        color="0.15",
        linestyle="-",
        linewidth=1.4,
    )
    ax.plot(
        x,
        y,
        "*" if number == 0 else "o",
        color=colour,
        markersize=6 if number == 0 else 3.5,
        markeredgecolor="0.15",
        mew=0.4,
    )


def _braid(data: Dataset) -> Figure:
    """Each yarn as segments, with a gap where it passes below another."""
    fig, (ax,) = style.figure((1, 1), style.COLUMN, 3.2)
    x = data.q.values[..., 0]
    y = data.q.values[..., 1]
    angle = np.unwrap(np.arctan2(y, x), axis=0)
    radius = np.hypot(x, y)
    t = data.t.values
    half = x.shape[1] // 2
    for carrier in range(x.shape[1]):
        others = slice(half, None) if carrier < half else slice(0, half)
        apart = np.abs(
            np.remainder(angle[:, [carrier]] - angle[:, others] + np.pi, 2 * np.pi) - np.pi
        )
        under = np.any((apart < 0.12) & (radius[:, [carrier]] < radius[:, others]), axis=1)
        turned = np.rad2deg(np.remainder(angle[:, carrier], 2 * np.pi))
        cut = under | (np.abs(np.append(np.diff(turned), 0.0)) > 180)
        k = int(carrier >= half)
        ax.plot(
            np.where(cut, np.nan, turned),
            t,
            color=TRAVEL[k][0],
            linestyle="-",
            linewidth=1.8 if k else 1.2,
        )
    ax.set(
        xlabel="angle on the mandrel [degrees]",
        ylabel="time $t$ [s]",
        xlim=(0, 360),
        ylim=(0, t[-1]),
    )
    ax.set_xticks(range(0, 361, 90))
    return fig
