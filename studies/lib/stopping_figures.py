"""Figures of emergency stops: maps, poses, histories; surrogate parameters."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator
from xarray import Dataset

from nsdyn import problems
from nsdyn.studies.lib import robot_drawing, style
from nsdyn.studies.lib.robot_drawing import ABOVE, SIDE

ARM = 3
LIMITS = {SIDE: ((-0.3, 1.7), (-0.1, 1.4)), ABOVE: ((-0.3, 1.7), (-0.5, 1.0))}
LEVELS = ((0.05, 0.1, 0.2, 0.3, 0.5), (10, 15, 20, 30, 40, 50))  # of contours, m and mm
ENLARGED = 5
RIGHT, WRONG = "momentum-consistent", "not momentum-consistent"


def distance(right: Dataset) -> np.ndarray:
    """d, in m."""
    return np.linalg.norm(right.tip.values - right.start.values, axis=-1)


def error(right: Dataset, wrong: Dataset) -> np.ndarray:
    """e, in m."""
    return np.linalg.norm(wrong.tip.values - right.tip.values, axis=-1)


def maps(right: Dataset, wrong: Dataset, shown: tuple[float, float]) -> Figure:
    fig, axes = style.figure((1, 2), style.DOUBLE, 3.0)
    panels = (
        (distance(right), "distance to the end [m]"),
        (1e3 * error(right, wrong), "wrong by [mm]"),
    )
    kinds = (orders(right), orders(right, wrong))
    for ax, letter, (values, label), kind, levels in zip(
        axes, "ab", panels, kinds, LEVELS, strict=True
    ):
        mesh = ax.pcolormesh(
            right.speed, right.torque, values, cmap="cividis", shading="nearest", rasterized=True
        )
        for k in np.unique(kind):  # contours do not run across a jump
            part = np.where(kind == k, values, np.nan)
            lines = ax.contour(
                right.speed,
                right.torque,
                part,
                levels,
                colors="white",
                linewidths=0.6,
                linestyles="-",
            )
            ax.clabel(lines, fontsize=style.points(7), fmt="%g")
        _borders(ax, right, kind)
        fig.colorbar(mesh, ax=ax, label=label, pad=0.02).outline.set_linewidth(0.6)
        ax.plot(
            *shown, "x", color="black", markersize=6, markeredgewidth=1.5, clip_on=False, zorder=4
        )
        ax.set(xlabel="initial speed, relative $a$", ylabel="brake torque, relative $b$")
        style.panel(ax, letter)
    fig.suptitle("Emergency stops, RX130L with surrogate parameters", fontsize=style.points(8))
    return fig


def orders(*runs: Dataset) -> np.ndarray:
    """A number for each order, or pair of orders, in which joints lock."""
    order = np.concatenate([data.order.values for data in runs], axis=-1)
    _, kind = np.unique(order.reshape(-1, order.shape[-1]), axis=0, return_inverse=True)
    return kind.reshape(order.shape[:-1])


def _borders(ax: Axes, data: Dataset, kind: np.ndarray) -> None:
    """Lines between stops whose joints lock in different orders."""
    middle = lambda x: np.concatenate(
        [[1.5 * x[0] - 0.5 * x[1]], (x[1:] + x[:-1]) / 2, [1.5 * x[-1] - 0.5 * x[-2]]]
    )
    a = middle(data.speed.values)
    b = middle(data.torque.values)
    look: dict[str, Any] = {"color": style.ORANGE, "linestyle": "-", "linewidth": 1.3}
    for j, i in zip(*np.nonzero(np.diff(kind, axis=1)), strict=True):
        ax.plot([a[i + 1]] * 2, b[j : j + 2], **look)
    for j, i in zip(*np.nonzero(np.diff(kind, axis=0)), strict=True):
        ax.plot(a[i : i + 2], [b[j + 1]] * 2, **look)


def poses(right: Dataset, wrong: Dataset) -> Figure:
    fig, axes = style.figure((1, 2), style.DOUBLE, 3.3)
    p = problems.get("emergency_stop").params
    points = lambda q: robot_drawing.skeleton(q, p)
    for ax, letter, view in zip(axes, "ab", (SIDE, ABOVE), strict=True):
        robot_drawing.floor(ax, view)
        places = [ax, _inset(ax, right.tip.values[-1, view])] if view == SIDE else [ax]
        robot_drawing.robot(ax, points(right.q.values[0]), view, "0.75")
        for data, colour, width in ((wrong, style.ORANGE, 4.0), (right, style.BLUE, 2.5)):
            for place in places:
                place.plot(
                    *data.tip.values[:, view].T,
                    color=colour,
                    linestyle=style.DASHES[1],
                    linewidth=0.9,
                )
                robot_drawing.robot(
                    place,
                    points(data.q.values[-1]),
                    view,
                    colour,
                    np.ones(6, bool),
                    linewidth=width,
                )
        robot_drawing.axes_of(ax, view, LIMITS[view])
        style.panel(ax, letter)
    names(axes[0])
    fig.legend(loc="outside lower center", ncols=3)
    fig.suptitle("Emergency stop, RX130L with surrogate parameters", fontsize=style.points(8))
    return fig


def _inset(ax: Axes, centre: np.ndarray) -> Axes:
    """An inset under the arm that shows the surroundings of `centre`."""
    size = 0.6  # in the units of the axes around it
    inset = ax.inset_axes((0.2, 0.05, size, size), transform=ax.transData)
    x, y = centre
    half = size / ENLARGED / 2
    inset.set(xlim=(x - half, x + half), ylim=(y - half, y + half), xticks=[], yticks=[])
    inset.spines[:].set(visible=True, linewidth=0.6)
    ax.indicate_inset_zoom(inset, edgecolor="black", linewidth=0.6, alpha=1.0)
    return inset


def names(ax: Axes) -> None:
    """A legend for the colours of the robots."""
    for colour, label in (("0.75", "start"), (style.BLUE, RIGHT), (style.ORANGE, WRONG)):
        ax.plot([], [], color=colour, linestyle="-", linewidth=4, label=label)


def histories(right: Dataset, wrong: Dataset) -> Figure:
    fig, (rates, energies) = style.figure((1, 2), style.DOUBLE, 2.6)
    for joint in range(ARM):
        for data, dash in ((wrong, (0, (1, 1.2))), (right, "-")):
            look: dict[str, Any] = {"color": style.COLOURS[joint], "linestyle": dash}
            look |= {"label": rf"$\dot q_{joint + 1}$"} if data is right else {}
            style.jumping_line(rates, data.t.values, data.v.values[:, joint], **look)
    rates.set_ylabel("motor rate [rad/s]")
    rates.legend(loc="upper right")
    for data, colour, dash, label in (
        (wrong, style.ORANGE, (0, (1, 1.2)), WRONG),
        (right, style.BLUE, "-", RIGHT),
    ):
        style.jumping_line(
            energies,
            data.t.values,
            data.energy.values / 1e3,
            color=colour,
            linestyle=dash,
            label=label,
        )
    energies.set_ylabel("total energy [kJ]")
    energies.legend(loc="upper right")
    end = max(float(data.t_event[-1]) for data in (right, wrong))
    for ax, letter in ((rates, "a"), (energies, "b")):
        ax.set(xlabel="time $t$ [s]", xlim=(0, 1.05 * end))
        ax.xaxis.set_major_locator(MultipleLocator(0.1))
        style.panel(ax, letter)
    fig.suptitle("Emergency stop, RX130L with surrogate parameters", fontsize=style.points(8))
    return fig
