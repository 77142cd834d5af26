"""An animation of an emergency stop, from the side and from above, with both laws; surrogate
parameters."""

from pathlib import Path

import numpy as np
from matplotlib.animation import PillowWriter
from matplotlib.axes import Axes
from xarray import Dataset

from nsdyn import problems
from nsdyn.problems.emergency_stop import HELD
from nsdyn.studies.lib import robot_drawing, style
from nsdyn.studies.lib.archive import replace
from nsdyn.studies.lib.robot_drawing import ABOVE, SIDE
from nsdyn.studies.lib.stopping_figures import LIMITS, names

RATE = 20  # frames per second
SLOWER = 5.0  # than reality
REST = 1.5  # s of animation after the last lock
DPI = 100


def save(right: Dataset, wrong: Dataset, path: Path) -> Path:
    """Write the stops with momentum balance (`right`) and without as a GIF."""
    end = max(float(data.t_event[-1]) for data in (right, wrong))
    times = np.minimum(np.arange(0.0, end + REST / SLOWER, 1 / (RATE * SLOWER)), float(right.t[-1]))
    return replace(path, lambda part: _write(right, wrong, times, part))


def _write(right: Dataset, wrong: Dataset, times: np.ndarray, path: Path) -> None:
    p = problems.get("emergency_stop").params
    fig, axes = style.figure((1, 2), style.DOUBLE, 3.6)
    names(axes[0])
    fig.legend(loc="outside lower center", ncols=3)
    title = fig.suptitle("0", fontsize=style.points(9))
    for ax, view in zip(axes, (SIDE, ABOVE), strict=True):
        robot_drawing.floor(ax, view)
        robot_drawing.robot(
            ax, robot_drawing.skeleton(right.q.values[0], p), view, "0.85", zorder=1
        )
        robot_drawing.axes_of(ax, view, LIMITS[view])
    fig.canvas.draw()
    fig.set_layout_engine("none")  # keeps fixed parts in place
    writer = PillowWriter(fps=RATE)
    with writer.saving(fig, path, DPI):
        for t in times:
            title.set_text(f"Emergency stop, RX130L with surrogate parameters: $t$ = {t:.2f} s")
            drawn = [
                x
                for ax, view in zip(axes, (SIDE, ABOVE), strict=True)
                for x in _frame(ax, view, right, wrong, t, p)
            ]
            writer.grab_frame()
            for artist in drawn:
                artist.remove()


def _frame(
    ax: Axes, view: tuple[int, int], right: Dataset, wrong: Dataset, t: float, p: dict
) -> list:
    """Both robots at the time t; returns what was drawn."""
    before = len(ax.lines)
    for data, colour, width in ((wrong, style.ORANGE, 4.0), (right, style.BLUE, 2.5)):
        row = int(np.searchsorted(data.t.values, t, side="right")) - 1
        points = robot_drawing.skeleton(data.q.values[row], p)
        ax.plot(
            *data.tip.values[: row + 1, view].T,
            color=colour,
            linestyle=style.DASHES[1],
            linewidth=0.9,
        )
        robot_drawing.robot(
            ax, points, view, colour, data.mode.values[row] == HELD, linewidth=width, zorder=3
        )
    return list(ax.lines)[before:]
