"""The look of all figures: print sizes, Okabe-Ito colours together with line styles, PDF and PNG.

Colours alone never carry meaning: the n-th line has its own colour, line style and marker.
"""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from nsdyn.studies.lib.archive import replace

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

RC: dict[Any, Any] = {
    "font.family": "serif",
    "font.serif": ["STIXGeneral"],  # comes with matplotlib, so figures are the same on all machines
    "mathtext.fontset": "stix",
    "font.size": 9,
    "axes.labelsize": 9,
    "axes.titlesize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
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


def use() -> AbstractContextManager:
    """A context in which matplotlib draws in this style."""
    return mpl.rc_context(RC)


def figure(
    panels: tuple[int, int] = (1, 1), width: float = COLUMN, height: float = 2.4
) -> tuple[Figure, list[Axes]]:
    """A figure with rows x columns of axes, without a window, so that no display is needed."""
    fig = Figure(figsize=(width, height), layout="constrained")
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
            ha="center", va="bottom", fontsize=8, color="0.25",
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
    """Save the figure as PDF and PNG; the same data give the same bytes."""
    folder = Path(folder)
    pdf = replace(
        folder / f"{name}.pdf", lambda path: fig.savefig(path, metadata={"CreationDate": None})
    )
    png = replace(
        folder / f"{name}.png", lambda path: fig.savefig(path, metadata={"Software": None})
    )
    return [pdf, png]
