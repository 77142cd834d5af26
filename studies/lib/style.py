"""The look of all figures: print sizes, Okabe-Ito colours together with line styles, PDF and PNG.

Colours alone never carry meaning: the n-th line has its own colour, line style and marker. A `Look`
changes what journals ask for; while `looking` lasts, all figures have it. A file says which figure of
which study it is (`nsdyn info`).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import matplotlib.font_manager
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from numpy.typing import ArrayLike

from nsdyn.errors import ProblemError
from nsdyn.studies.lib.archive import about, replace
from nsdyn.studies.lib.stamps import metadata

COLUMN = 3.5  # inches
DOUBLE = 7.2
BLUE, ORANGE, GREEN, PINK, SKY, AMBER, YELLOW = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#E69F00",
    "#F0E442",
)  # Okabe and Ito
COLOURS = (BLUE, ORANGE, GREEN, PINK, SKY, AMBER)
DASHES = (
    "-",
    (0, (5, 1.6)),
    (0, (6, 1.5, 1, 1.5)),
    (0, (1, 1.2)),
    (0, (8, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
)
MARKERS = ("o", "s", "^", "D", "v", "P")
GREY = "0.45"
VISIBLE = 0.005  # smallest marked jump, relative to the range

FONT = "STIXGeneral"  # comes with matplotlib, so figures are the same on all machines
POINTS = 9.0
SMALLER = ("xtick.labelsize", "ytick.labelsize", "legend.fontsize")
MATH_FACES = ("rm", "sf", "tt", "cal")
FORMATS = ("pdf", "svg", "png")

RC: dict[Any, Any] = {
    "svg.hashsalt": "nsdyn",  # the same names in each file
    "legend.frameon": False,
    "legend.handlelength": 2.4,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "axes.prop_cycle": cycler(color=COLOURS, linestyle=DASHES),
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.direction": "in",
    "ytick.direction": "in",
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    "savefig.dpi": 300,
    "figure.dpi": 100,
}


class Look(NamedTuple):
    """What journals ask for.

    width: of one column [in]; figures over two columns grow with it.
    font: a family that matplotlib finds.
    points: the size of letters; ticks and legends are a ninth smaller.
    formats: of files, some of pdf, svg, png.
    """

    width: float = COLUMN
    font: str = FONT
    points: float = POINTS
    formats: tuple[str, ...] = ("pdf", "png")


PLAIN = Look()
_look: ContextVar[Look] = ContextVar("look")


@contextmanager
def looking(look: Look) -> Iterator[None]:
    """While this lasts, figures have another look."""
    if look.font not in mpl.font_manager.get_font_names():
        some = ", ".join(sorted(mpl.font_manager.get_font_names())[:8])
        raise ProblemError(
            f"font: expected one that is installed ({some}, ...), found {look.font!r}"
        )
    if unknown := [kind for kind in look.formats if kind not in FORMATS]:
        raise ProblemError(f"format: expected some of {', '.join(FORMATS)}, found {unknown[0]!r}")
    if not 1 <= look.width <= 20 or not 3 <= look.points <= 40:
        raise ProblemError(
            f"expected a column of 1 to 20 inches and letters of 3 to 40 points, found "
            f"{look.width:g} in and {look.points:g} pt"
        )
    token = _look.set(look)
    try:
        yield
    finally:
        _look.reset(token)


def points(size: float) -> float:
    """A size of letters that grows with the look; 9 is that of the text."""
    return size * _look.get(PLAIN).points / POINTS


def use() -> AbstractContextManager:
    """A context in which matplotlib draws in this style."""
    font = _look.get(PLAIN).font
    sizes = dict.fromkeys(("font.size", "axes.labelsize", "axes.titlesize"), points(POINTS))
    sizes |= dict.fromkeys(SMALLER, points(8))
    faces: dict[str, Any] = {"font.family": [font], "mathtext.fontset": "stix"}
    if font != FONT:
        faces |= {"mathtext.fontset": "custom"} | {f"mathtext.{x}": font for x in MATH_FACES}
        faces |= {"mathtext.it": f"{font}:italic", "mathtext.bf": f"{font}:bold"}
    return mpl.rc_context(RC | sizes | faces)


def figure(
    panels: tuple[int, int] = (1, 1), width: float = COLUMN, height: float = 2.4
) -> tuple[Figure, list[Axes]]:
    """A figure with rows x columns of axes, without a window, so that no display is needed."""
    scale = _look.get(PLAIN).width / COLUMN
    fig = Figure(figsize=(scale * width, scale * height), layout="constrained")
    FigureCanvasAgg(fig)
    return fig, list(fig.subplots(*panels, squeeze=False).flat)


def panel(ax: Axes, letter: str) -> None:
    """The letter of a panel, above its left corner."""
    ax.set_title(f"{letter})", loc="left", pad=5)


def mark_times(ax: Axes, times: Iterable[float], labels: Iterable[str] = ()) -> None:
    """Thin vertical lines at the given times, with labels above the axes."""
    for time in times:
        ax.axvline(float(time), color=GREY, linewidth=0.6, linestyle=(0, (2, 2)), zorder=0)
    for time, label in zip(times, labels, strict=False):
        ax.annotate(
            label, (float(time), 1.0), (0, 2), xycoords=("data", "axes fraction"), textcoords="offset points",
            ha="center", va="bottom", fontsize=points(8), color="0.25",
        )  # fmt: skip


def jumping_line(ax: Axes, t: ArrayLike, y: ArrayLike, **options: Any) -> None:
    """A line through values with two rows where they jump: open circle for the left limit, filled
    for the right one."""
    t = np.asarray(t, float)
    y = np.asarray(y, float)
    left = np.flatnonzero(np.diff(t) == 0)
    left = left[
        np.abs(y[left + 1] - y[left]) > VISIBLE * np.ptp(y[np.isfinite(y)])
    ]  # NaN compares false: no jump
    (line,) = ax.plot(np.insert(t, left + 1, np.nan), np.insert(y, left + 1, np.nan), **options)
    for rows, face in ((left, "white"), (left + 1, line.get_color())):
        ax.plot(
            t[rows],
            y[rows],
            "o",
            color=line.get_color(),
            markerfacecolor=face,
            markeredgewidth=0.8,
            zorder=3,
        )


def save(fig: Figure, folder: str | Path, name: str) -> list[Path]:
    """Save the figure in the formats of the look; the same data give the same bytes."""
    folder = Path(folder)
    said = about(folder, "figure", name)
    files = []
    for kind in _look.get(PLAIN).formats:
        told = metadata(kind, said)
        write = lambda path, told=told: fig.savefig(path, metadata=told)
        files.append(replace(folder / f"{name}.{kind}", write))
    return files


def save_plot(draw: Callable[[], Figure], path: Path, told: Mapping[str, Any]) -> list[Path]:
    """Save a plot of a run, which is over two columns, in the look and the formats that are asked
    for, under the name of the run. `told` is what the files say of themselves."""
    look = _look.get(PLAIN)
    files = []
    with use():
        fig = draw()
        scale = look.width / COLUMN
        fig.set_size_inches(scale * fig.get_figwidth(), scale * fig.get_figheight())
        for text in fig.findobj(Text):
            text.set_fontsize(points(float(text.get_fontsize())))
        for kind in look.formats:
            said = metadata(kind, told)
            write = lambda part, said=said: fig.savefig(part, metadata=said)
            files.append(replace(path.with_suffix(f".{kind}"), write))
    return files
