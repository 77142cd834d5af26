"""Bodies in space that touch, as films: a tippe top that turns over, and balls that fall into a pile.

top    the tippe top (`tippe_top`) with NSGA. Friction at its big sphere raises it; its stem touches,
       and it stands on its stem while the spin lasts. Its inclination theta is the angle between its
       axis and the vertical
pile   ten balls (`sphere_pile`) with Moreau-Jean, whose layers start well apart and spin. They fall
       within a rim, strike and rub against each other, and lie there

    T = sum_i (m_i |v_i|^2 + w_i . J_i w_i)/2                                                  (1)
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.animation import PillowWriter
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import MultipleLocator
from xarray import Dataset

import nsdyn
from nsdyn import integrators
from nsdyn.problems.sphere_pile import sphere_pile
from nsdyn.problems.tippe_top import R1, tippe_top
from nsdyn.studies.lib import archive, solid_drawing, style
from nsdyn.studies.lib.archive import replace
from nsdyn.studies.lib.schemes import write
from nsdyn.studies.lib.solid_drawing import View

TOP_STEP, TOP_END = 1e-3, 3.4  # s
PILE_STEP, PILE_END = 2e-3, 1.0
ROW = 5  # steps from one sample to the next
BALLS = 10
SPIN = 15.0  # rad/s, the largest about each axis
SPHERE, STEM = range(2)  # contacts of the top

RATE = 20  # pictures per second of film
EVERY = {"top": 6, "pile": 1}  # samples from one picture to the next
LINGER = 20  # pictures more of the end
DPI = 80
TOP_VIEW = View(-np.pi / 2, np.deg2rad(14))
PILE_VIEW = View(np.deg2rad(-66), np.deg2rad(22))
TOP_SHOWN = (0.0, 0.6, 0.9, 1.16, 1.36, 3.0)  # s
PILE_SHOWN = (0.0, 0.1, 0.24, 1.0)
LAYERS = ("#56B4E9", "#E69F00", "#F0E442")  # from below; Okabe and Ito
FLOOR = "0.93"
LEAST = 1e-8  # J that are drawn

CAPTIONS = """\
Bodies in space that touch. Computed with nsdyn {version}.

Tippe top: parameters of Leine and Glocker (2003), NSGA with the step {top_step:g} s. Pile: all numbers are assumed; Moreau-Jean with the
step {pile_step:g} s, {balls} balls of 10 cm that start with spins of up to {spin:g} rad/s about each axis (random), mu = 0.6, e = 0.

Figure 1. The tippe top turns over. a) The top at six times (in its own place each time; the meridian turns with it). b) Inclination
of its axis, with these times. Grey: the stem slides on the floor (dark) or the big sphere does (light).
Figure 2. {balls} balls fall into a pile. a) The balls at four times; colours are layers, circles turn with the balls. b) Kinetic
energy, at least {least:g} J, below which all balls are at rest; dotted: impacts.
top.gif. The tippe top, {top_slower:.3g} times slower than in reality; the line is the path of its centre of mass over the floor. It
spins by up to {turn:.1f} rad between pictures, so the meridian seems to jump.
pile.gif. The pile, {pile_slower:.3g} times slower than in reality.
"""


def run(folder: str | Path, force: bool = False) -> list[Path]:
    """Compute missing data, then draw; returns the files drawn."""
    compute(folder, force)
    return draw(folder)


# Computing


def compute(folder: str | Path, force: bool = False) -> list[Path]:
    """Archive both motions. Data with the same settings and code are kept unless `force`."""
    top = {"step": TOP_STEP, "t_end": TOP_END, "row": ROW}
    pile = {"step": PILE_STEP, "t_end": PILE_END, "row": ROW, "balls": BALLS, "spin": SPIN}
    each = {"top": (top, partial(_top, TOP_END)), "pile": (pile, partial(_pile, BALLS))}
    return [
        archive.update(_data(folder), name, settings, make, force=force)
        for name, (settings, make) in each.items()
    ]


def _data(folder: str | Path) -> Path:
    return Path(folder) / "data"


def _top(t_end: float) -> dict[str, tuple]:
    problem = tippe_top(t_end=t_end)
    options: dict[str, Any] = {"step": TOP_STEP, "save_every": ROW, "check": False}
    found = nsdyn.simulate(problem, integrators.NSGA(), **options)
    _, x, y, _ = (found.q[:, 3:] / np.linalg.norm(found.q[:, 3:], axis=1, keepdims=True)).T
    tilt = np.arccos(np.clip(1 - 2 * (x**2 + y**2), -1.0, 1.0))
    return _motion(found) | {"tilt": ("sample", tilt, {"units": "rad"})}


def _pile(balls: int) -> dict[str, tuple]:
    problem = sphere_pile(n=balls, gap=0.4, t_end=PILE_END)
    v0 = np.zeros((balls, 6))
    v0[:, 3:] = np.random.default_rng(1).uniform(-SPIN, SPIN, (balls, 3))
    options: dict[str, Any] = {"step": PILE_STEP, "save_every": ROW, "check": False}
    found = nsdyn.simulate(problem, integrators.MoreauJean(), v0=v0.ravel(), **options)
    v = found.v.reshape(-1, balls, 6)
    weights = np.concatenate([np.tile(problem.params["m"][:, None], 3), problem.params["J"]], 1)
    return _motion(found) | {
        "kinetic": ("sample", np.sum(weights * v**2, axis=(1, 2)) / 2, {"units": "J"}),  # (1)
        "radius": ((), float(problem.params["R"]), {"units": "m"}),
    }


def _motion(found: nsdyn.Solution) -> dict[str, tuple]:
    return {
        "t": ("sample", found.t, {"units": "s"}),
        "q": (("sample", "coordinate"), found.q),
        "v": (("sample", "velocity"), found.v),
        "mode": (("sample", "contact"), found.mode.reshape(len(found.t), -1)),
        "t_event": ("event", found.events.t, {"units": "s"}),
    }


# Drawing


def draw(folder: str | Path) -> list[Path]:
    """Draw the archived data; returns the files written."""
    folder = Path(folder)
    top, described = archive.read(_data(folder), "top")
    pile, _ = archive.read(_data(folder), "pile")
    with style.use():
        files = style.save(_top_figure(top), folder, "figure_1")
        files += style.save(_pile_figure(pile), folder, "figure_2")
        for name, data, scene in (("top", top, _top_scene), ("pile", pile, _pile_scene)):
            files.append(_film(folder / f"{name}.gif", data, EVERY[name], *scene(data)))
    words = CAPTIONS.format(
        version=described["versions"]["nsdyn"],
        top_step=TOP_STEP,
        pile_step=PILE_STEP,
        balls=BALLS,
        spin=SPIN,
        least=LEAST,
        top_slower=1 / (RATE * _interval(top, "top")),
        pile_slower=1 / (RATE * _interval(pile, "pile")),
        turn=float(np.abs(top.v.values[:, 5]).max()) * _interval(top, "top"),
    )
    return [*files, write(folder / "captions.txt", words)]


def _interval(data: Dataset, name: str) -> float:
    """From one picture of a film to the next [s]."""
    return float(data.t[EVERY[name]] - data.t[0])


def _at(data: Dataset, time: float) -> int:
    return int(np.argmin(np.abs(data.t.values - time)))


def _figure(shown: int, height: float, heights: tuple[float, float]) -> tuple[Figure, list[Axes]]:
    """Pictures side by side, and below them one that is as wide as all."""
    fig, (whole,) = style.figure((1, 1), style.DOUBLE, height)
    whole.remove()
    grid = GridSpec(2, shown, fig, height_ratios=heights)
    above = [fig.add_subplot(grid[0, k]) for k in range(shown)]
    return fig, [*above, fig.add_subplot(grid[1, :])]


def _scenery(ax: Axes, corners: np.ndarray, view: View) -> None:
    """A floor, in an empty picture."""
    ax.fill(*view(corners).T, color=FLOOR, linewidth=0, zorder=0)
    ax.set_aspect("equal")
    ax.set_axis_off()


def _square(x: tuple[float, float], y: tuple[float, float]) -> np.ndarray:
    return np.array(
        [[a, b, 0.0] for a, b in ((x[0], y[0]), (x[1], y[0]), (x[1], y[1]), (x[0], y[1]))]
    )


# The top.


def _tilt(ax: Axes, data: Dataset) -> None:
    t, tilt = data.t.values, np.rad2deg(data.tilt.values)
    stem = data.mode.values[:, STEM] > 0
    everywhere: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "linewidth": 0}
    ax.axvspan(0, t[-1], color="0.93", linewidth=0, zorder=0)
    ax.fill_between(t, 0, 1, where=stem, color="0.82", **everywhere)
    ax.plot(t, tilt, color=style.BLUE, linestyle="-")
    ax.set(xlim=(0, t[-1]), ylim=(0, 190), xlabel="$t$ [s]", ylabel=r"inclination [$^\circ$]")
    ax.yaxis.set_major_locator(MultipleLocator(45))
    for words, at in (("slides on its sphere", 0.02), ("slides on its stem", 0.45)):
        ax.annotate(words, (at, 0.72), xycoords="axes fraction", fontsize=style.points(8))


def _top_figure(data: Dataset) -> Figure:
    fig, (*above, below) = _figure(len(TOP_SHOWN), 3.4, (1.0, 1.2))
    wide = 1.7 * R1
    for ax, time in zip(above, TOP_SHOWN, strict=True):
        k = _at(data, time)
        q = data.q.values[k].copy()
        q[:2] = 0
        _scenery(ax, _square((-wide, wide), (-wide, wide)), TOP_VIEW)
        solid_drawing.draw(ax, solid_drawing.top(q, TOP_VIEW))
        ax.set(xlim=(-wide, wide), ylim=(-0.5 * R1, 2.8 * R1))
        ax.set_title(f"{float(data.t[k]):.2f} s", fontsize=style.points(8), y=-0.16)
    _tilt(below, data)
    style.mark_times(below, [float(data.t[_at(data, time)]) for time in TOP_SHOWN])
    for ax, letter in ((above[0], "a"), (below, "b")):
        ax.annotate(
            f"{letter})", (0, 1), (0, 4), xycoords="axes fraction", textcoords="offset points"
        )
    return fig


def _top_scene(data: Dataset) -> tuple[Figure, Callable[[int], list]]:
    """The figure of a film, and what draws its k-th picture."""
    fig, (ax, below) = _figure(1, 3.6, (1.5, 1.0))
    q = data.q.values
    low, high = q[:, :2].min(axis=0) - 2 * R1, q[:, :2].max(axis=0) + 2 * R1
    _scenery(ax, _square((low[0], high[0]), (low[1], high[1])), TOP_VIEW)
    floor = np.column_stack([q[:, :2], 0 * q[:, 0]])
    ax.set(xlim=(low[0], high[0]), ylim=(TOP_VIEW(floor)[:, 1].min() - R1, 2.6 * R1))
    _tilt(below, data)

    def show(k: int) -> list:
        path = ax.plot(*TOP_VIEW(floor[: k + 1]).T, color=style.GREY, linestyle="-", linewidth=0.7)
        now = below.plot(data.t[k], np.rad2deg(data.tilt[k]), "o", color=style.ORANGE, markersize=5)
        ax.set_title(f"Tippe top: $t$ = {float(data.t[k]):.2f} s", loc="left")
        return [*path, *now, *solid_drawing.draw(ax, solid_drawing.top(q[k], TOP_VIEW))]

    return fig, show


# The pile.


def _balls(data: Dataset, k: int) -> list[solid_drawing.Part]:
    radius = float(data.radius)
    each = data.q.values[k].reshape(-1, 7)
    layer = np.unique(np.round(data.q.values[0].reshape(-1, 7)[:, 2], 6), return_inverse=True)[1]
    return [
        solid_drawing.ball(q, radius, PILE_VIEW, LAYERS[i])
        for q, i in zip(each, layer, strict=True)
    ]


def _floor_of_pile(ax: Axes, data: Dataset) -> None:
    each = data.q.values[0].reshape(-1, 7)
    reach = np.abs(each[:, :2]).max() + 2.2 * float(data.radius)
    _scenery(ax, _square((-reach, reach), (-reach, reach)), PILE_VIEW)
    high = each[:, 2].max() + 1.5 * float(data.radius)
    wide = 1.35 * reach
    ax.set(xlim=(-wide, wide), ylim=(-0.55 * reach, 0.95 * high))


def _kinetic(ax: Axes, data: Dataset) -> None:
    t = data.t.values
    ax.semilogy(t, np.maximum(data.kinetic, LEAST), color=style.BLUE, linestyle="-")
    for time in data.t_event.values:
        ax.axvline(time, color=style.GREY, linewidth=0.6, linestyle=(0, (1, 2)), zorder=0)
    ax.set(xlim=(0, t[-1]), xlabel="$t$ [s]", ylabel="kinetic energy [J]")


def _pile_figure(data: Dataset) -> Figure:
    fig, (*above, below) = _figure(len(PILE_SHOWN), 3.8, (1.4, 1.0))
    for ax, time in zip(above, PILE_SHOWN, strict=True):
        k = _at(data, time)
        _floor_of_pile(ax, data)
        solid_drawing.draw(ax, _balls(data, k))
        ax.set_title(f"{float(data.t[k]):.2f} s", fontsize=style.points(8), y=-0.1)
    _kinetic(below, data)
    for ax, letter in ((above[0], "a"), (below, "b")):
        ax.annotate(
            f"{letter})", (0, 1), (0, 4), xycoords="axes fraction", textcoords="offset points"
        )
    return fig


def _pile_scene(data: Dataset) -> tuple[Figure, Callable[[int], list]]:
    """The figure of a film, and what draws its k-th picture."""
    fig, (ax, below) = _figure(1, 4.4, (2.6, 1.0))
    _floor_of_pile(ax, data)
    _kinetic(below, data)

    def show(k: int) -> list:
        ax.set_title(f"{BALLS} balls fall into a pile: $t$ = {float(data.t[k]):.2f} s", loc="left")
        energy = max(float(data.kinetic[k]), LEAST)
        now = below.plot(data.t[k], energy, "o", color=style.ORANGE, markersize=5)
        return [*now, *solid_drawing.draw(ax, _balls(data, k))]

    return fig, show


def _film(path: Path, data: Dataset, every: int, fig: Figure, show: Callable[[int], list]) -> Path:
    """Some samples as pictures; the last one stays for a moment."""
    shown = range(0, len(data.t), every)

    def written(part: Path) -> None:
        writer = PillowWriter(fps=RATE)
        _cleared(show(0))  # what will stand there takes part in the layout
        fig.canvas.draw()
        fig.set_layout_engine("none")  # keeps fixed parts in place
        with writer.saving(fig, part, DPI):
            for k in [*shown, *[shown[-1]] * LINGER]:
                drawn = show(k)
                writer.grab_frame()
                _cleared(drawn)

    return replace(path, written)


def _cleared(drawn: list) -> None:
    for artist in drawn:
        artist.remove()
