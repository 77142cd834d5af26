"""A serial robot as a stick figure, seen from the side and from above."""

from typing import Any

import jax
import numpy as np
from matplotlib.axes import Axes

from nsdyn._types import Params
from nsdyn.problems.geared_chain import shape

SIDE, ABOVE = (0, 2), (0, 1)  # the two visible coordinates


def skeleton(q: np.ndarray, p: Params) -> np.ndarray:
    """Base, joints and tip in the world, shape (n + 2, 3); q are motor angles."""
    return np.asarray(_shape(q, p)[0])


_shape = jax.jit(shape)


def robot(
    ax: Axes,
    points: np.ndarray,
    view: tuple[int, int],
    colour: str,
    locked: np.ndarray | None = None,
    **look: Any,
) -> None:
    """Links as thick lines, joints as circles, filled where `locked` says so."""
    seen = np.asarray(points)[:, view]
    width = look.pop("linewidth", 4.0)
    ax.plot(
        *seen.T,
        color=colour,
        linestyle="-",
        linewidth=width,
        solid_capstyle="round",
        solid_joinstyle="round",
        **look,
    )
    locked = np.zeros(len(seen) - 2, bool) if locked is None else locked
    for joint, is_locked in sorted(
        zip(seen[1:-1], locked, strict=True), key=lambda x: x[1]
    ):  # locked ones on top
        face = "black" if is_locked else "white"
        ax.plot(
            *joint,
            "o",
            color="black",
            markerfacecolor=face,
            markeredgewidth=0.7,
            markersize=3.2,
            **look,
        )


def floor(ax: Axes, view: tuple[int, int]) -> None:
    """The ground under the robot, from the side; its base, from above."""
    if view == SIDE:
        ax.axhline(0.0, color="black", linestyle="-", linewidth=0.8, zorder=0)
    else:
        ax.plot(0.0, 0.0, "s", color="0.8", markersize=12, zorder=0)


def axes_of(
    ax: Axes, view: tuple[int, int], limits: tuple[tuple[float, float], tuple[float, float]]
) -> None:
    names = "xyz"
    ax.set(
        xlabel=f"${names[view[0]]}$ [m]",
        ylabel=f"${names[view[1]]}$ [m]",
        xlim=limits[0],
        ylim=limits[1],
    )
    ax.set_aspect("equal")
