"""The figures of the study `switching_track`, drawn from its archived data."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator
from xarray import Dataset

from nsdyn.studies.lib import style
from nsdyn.studies.lib.schemes import RHO_INF, SCHEMES
from nsdyn.studies.lib.study_file import RESIDUALS

FLOOR = 1e-17  # lower limit of logarithmic axes
ORDER = (
    "index_1",
    "index_3",
    "nsga",
    "index_2",
)  # index 2 is dashed, as it often coincides with NSGA
EXACT: dict[str, Any] = {
    "color": "0.8",
    "linestyle": "-",
    "linewidth": 3.5,
    "label": "exact",
    "zorder": 1,
}
CHOICES = {1.0: "$E = 1$", 0.5: r"$E = \frac{1}{2}$"}

# Runs of index_2 and nsga are required; others are drawn if they exist.
Reference = dict[float, dict[str, Any]]


def draw(folder: Path, geometry: Dataset, runs: dict[str, Dataset], exact: Reference) -> list[Path]:
    with style.use():
        figures = (
            _heaviside(geometry),
            _manifolds(geometry),
            _states(runs, exact[1.0]),
            _residuals(runs, exact[1.0]["t_switch"], _slope(geometry)),
            _choices(runs, exact),
            _phases(runs),
            _smooth(runs, exact[1.0]),
        )
        return [
            file
            for k, fig in enumerate(figures, 1)
            for file in style.save(fig, folder, f"figure_{k}")
        ]


def _shown(runs: dict[str, Dataset]) -> list[str]:
    return [name for name in ORDER if name in runs]


def _heaviside(data: Dataset) -> Figure:
    fig, (ax,) = style.figure((1, 1), style.COLUMN, 2.2)
    x = data.x.values
    jump = data.step.values == 0.5
    ax.plot(
        x,
        np.where(jump, np.nan, data.step.values),
        color="black",
        linestyle="-",
        linewidth=1.6,
        label="$s^+(x)$",
    )
    ends: dict[str, Any] = {"color": "black", "markeredgewidth": 0.8, "zorder": 3}
    ax.plot([0.0, 0.0], [0.0, 1.0], "o", markerfacecolor="white", **ends)
    ax.plot(x[jump], data.step.values[jump], "o", **ends)
    dashes = style.DASHES[1:4]
    for sigma, smooth, dash, colour in zip(
        data.sigma.values, data.smooth.values, dashes, style.COLOURS, strict=False
    ):
        ax.plot(x, smooth, color=colour, linestyle=dash, label=rf"$\sigma = {sigma:g}$")
    ax.set(
        xlabel="$x$ [1]",
        ylabel=r"$s^+(x)$ and $(1 + \tanh \sigma x)/2$",
        xlim=(-1, 1),
        ylim=(-0.08, 1.08),
    )
    ax.xaxis.set_major_locator(MultipleLocator(0.5))
    ax.legend(loc="lower right")
    return fig


def _manifolds(data: Dataset) -> Figure:
    fig, axes = style.figure((1, 2), style.DOUBLE, 2.3)
    flat, slope = data.line.values
    a, corner = _slope(data)
    xlim = (0.0, 2 * corner)
    ylim = (-0.62 * a * corner, 1.15 * a * corner)
    surfaces = (([corner, corner], ylim), (xlim, [-0.5 * a * corner, 0.5 * a * corner]))
    names = ("$z = x - l$", r"$z = y - \frac{1}{2} a (x - l)$")
    for ax, letter, members, (x, y), name in zip(
        axes, "ab", (data.on_ramp.values, data.on_wedge.values), surfaces, names, strict=True
    ):
        _half_planes(ax, letter, xlim, ylim, corner, a)
        ax.plot(x, y, color="black", linestyle=(0, (2, 2)), linewidth=0.8, label="$z = 0$")
        for line, member, colour, label in zip(
            (flat, slope),
            members.astype(bool),
            style.COLOURS,
            ("$g_1 = 0$", "$g_2 = 0$"),
            strict=False,
        ):
            ax.plot(*line.T, color=colour, linestyle="-", linewidth=0.7, label=label)
            thick: dict[str, Any] = {
                "color": colour,
                "linestyle": "-",
                "linewidth": 3.0,
                "solid_capstyle": "butt",
            }
            ax.plot(*np.where(member[:, None], line, np.nan).T, **thick)
        ax.set_title(name, loc="center", pad=5)
        style.panel(ax, letter)
        ax.set(xlabel="$x$ [m]", ylabel="$y$ [m]", xlim=xlim, ylim=ylim)
    axes[0].legend(loc="upper left", handlelength=1.6)
    return fig


def _slope(geometry: Dataset) -> tuple[float, float]:
    """The slope behind the corner, and where it begins."""
    flat, slope = geometry.line.values
    (x, y), (x_end, y_end) = slope[0], slope[-1]
    return (y_end - y) / (x_end - x), float(flat[np.argmin(np.abs(flat - slope)[:, 1]), 0])


def _half_planes(
    ax: Axes,
    letter: str,
    xlim: tuple[float, float],
    ylim: tuple[float, float],
    corner: float,
    a: float,
) -> None:
    """z > 0 is shaded; both sides are named."""
    x = np.array(xlim)
    if letter == "a":
        ax.axvspan(corner, xlim[1], color="0.93", linewidth=0, zorder=0)
        places = ((0.75 * corner, 0.35 * ylim[1], "<"), (1.5 * corner, 0.6 * ylim[0], ">"))
    else:
        ax.fill_between(x, 0.5 * a * (x - corner), ylim[1], color="0.93", linewidth=0, zorder=0)
        places = ((0.95 * corner, 0.6 * ylim[0], "<"), (0.6 * corner, 0.5 * ylim[1], ">"))
    for px, py, sign in places:
        ax.text(px, py, f"$z {sign} 0$", ha="center", va="center", color="0.3")


def _track(ax: Axes, exact: dict, **options: Any) -> None:
    ax.plot(*exact["q"].T, **(EXACT | options))
    ax.set(xlabel="$x$ [m]", ylabel="$y$ [m]")


def _exact(ax: Axes, exact: dict, values: np.ndarray) -> None:
    left = np.flatnonzero(np.diff(exact["t"]) == 0) + 1
    ax.plot(np.insert(exact["t"], left, np.nan), np.insert(values, left, np.nan), **EXACT)


def _over_time(axes: list[Axes], t_end: float) -> None:
    for ax in axes:
        ax.set_xlabel("time $t$ [s]")
        ax.set_xlim(0.0, t_end)
        ax.xaxis.set_major_locator(MultipleLocator(0.1))


def _legend_above(fig: Figure, ax: Axes, columns: int) -> None:
    fig.legend(*ax.get_legend_handles_labels(), loc="outside upper center", ncols=columns)


def _states(runs: dict[str, Dataset], exact: dict) -> Figure:
    fig, axes = style.figure((2, 2), style.DOUBLE, 4.4)
    _track(axes[0], exact)
    for ax, values in zip(
        axes[1:], (exact["v"][:, 0], exact["v"][:, 1], exact["energy"]), strict=True
    ):
        _exact(ax, exact, values)
    for name in _shown(runs):
        run = runs[name].isel(case=0)
        line = SCHEMES[name].line
        axes[0].plot(*run.q.values.T, **line)
        for ax, values in zip(
            axes[1:], (run.v.values[:, 0], run.v.values[:, 1], run.energy.values), strict=True
        ):
            ax.plot(run.t.values, values, **line)
    for ax, letter in zip(axes, "abcd", strict=True):
        style.panel(ax, letter)
    _over_time(axes[1:], exact["t"][-1])
    for ax, label in zip(
        axes[1:], ("velocity $v_x$ [m/s]", "velocity $v_y$ [m/s]", "energy [J]"), strict=True
    ):
        ax.set_ylabel(label)
    axes[3].set_ylim(0, None)
    _corner(axes[0], runs, exact)
    _legend_above(fig, axes[0], 5)
    return fig


def _corner(ax: Axes, runs: dict[str, Dataset], exact: dict) -> None:
    """The neighbourhood of the corner enlarged, with a marker at every step: the gap of index 2 is
    of the order of h."""
    x, y = exact["q"][np.flatnonzero(exact["t"] == exact["t_switch"])[0]]
    reach = 3 * float(runs["nsga"].t[2] - runs["nsga"].t[1]) * exact["v"][0, 0]
    inset = ax.inset_axes((0.05, 0.5, 0.36, 0.47))
    inset.plot(*exact["q"].T, **EXACT)
    for name in _shown(runs):
        scheme = SCHEMES[name]
        inset.plot(
            *runs[name].isel(case=0).q.values.T, marker=scheme.marker, markersize=2.5, **scheme.line
        )
    inset.set(
        xlim=(x - 0.4 * reach, x + reach),
        ylim=(y - 0.15 * reach, y + 0.5 * reach),
        xticks=[],
        yticks=[],
    )
    for spine in inset.spines.values():
        spine.set_visible(True)
    ax.indicate_inset_zoom(inset, edgecolor=style.GREY)


def _signed(run: Dataset, slope: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """g and G v of the current mode; `slope` is that behind the corner, and where it begins."""
    a, l = slope
    rises = a * (run.mode.values == 1)
    x, y = run.q.values.T
    u, w = run.v.values.T
    return y - rises * (x - l), w - rises * u


def _residuals(runs: dict[str, Dataset], t_switch: float, slope: tuple[float, float]) -> Figure:
    fig, axes = style.figure((2, 3), style.DOUBLE, 4.3)
    for name in _shown(runs):
        run = runs[name].isel(case=0)
        line = SCHEMES[name].line
        for ax, values in zip(axes[:3], (*_signed(run, slope), run.lam.values), strict=True):
            ax.plot(run.t.values, values, **line)
        for ax, variable in zip(axes[3:], RESIDUALS, strict=True):
            ax.plot(run.t.values, np.maximum(np.abs(run[variable].values), FLOOR), **line)
    labels = (
        "$g$ [m]",
        "$G v$ [m/s]",
        r"$\lambda$ [N]",
        "$|g|$ [m]",
        "$|G v|$ [m/s]",
        r"$|G \dot v + \gamma|$ [m/s$^2$]",
    )
    run = runs["nsga"]
    for ax, letter, label in zip(axes, "abcdef", labels, strict=True):
        style.panel(ax, letter)
        style.mark_times(ax, [t_switch])
        ax.set_ylabel(label)
    _over_time(axes, float(run.t[-1]))
    for ax in axes[1:3]:  # the ringing decays soon
        ax.set_xlim(t_switch - 0.03, t_switch + 0.2)
    for ax in axes[3:]:
        ax.set_yscale("log")
        ax.set_ylim(FLOOR / 3, 3e3)
        ax.set_yticks([1e-16, 1e-12, 1e-8, 1e-4, 1.0])
    if "index_3" in runs:
        _decay(axes[4], runs["index_3"].isel(case=0))
    _legend_above(fig, axes[0], 4)
    return fig


def _decay(ax: Axes, run: Dataset) -> None:
    """The factor rho_inf per step, next to the ringing of index 3."""
    t = run.t.values
    switched = int(np.argmax(run.mode.values == 1))
    line = 0.05 * run.residual_velocity.values[switched] * RHO_INF ** np.arange(len(t) - switched)
    ax.plot(t[switched:], line, color="black", linestyle="-", linewidth=0.6)
    middle = len(t) - (len(t) - switched) // 2
    ax.annotate(
        r"$\rho_\infty^{\,n}$", (t[middle], line[middle - switched]), (-2, -3), textcoords="offset points",
        ha="right", va="top",
    )  # fmt: skip


def _choices(runs: dict[str, Dataset], exact: Reference) -> Figure:
    fig, axes = style.figure((2, 3), style.DOUBLE, 4.3)
    speed = lambda v: np.linalg.norm(v, axis=1)
    colours = (style.BLUE, style.ORANGE)
    for row, name in ((axes[:3], "index_2"), (axes[3:], "nsga")):
        for E in CHOICES:
            once = "exact" if E == 1.0 else None
            _track(row[0], exact[E], label=once, marker="s", markersize=7, markevery=[-1])
            for ax, values in ((row[1], speed(exact[E]["v"])), (row[2], exact[E]["energy"])):
                _exact(ax, exact[E], values)
        for (E, label), colour, dash in zip(CHOICES.items(), colours, style.DASHES, strict=False):
            run = runs[name].isel(
                case=int(np.flatnonzero(runs[name].E.values == E)[0])
            )  # the first is with gravity
            line: dict[str, Any] = {"color": colour, "linestyle": dash, "label": label}
            row[0].plot(*run.q.values.T, marker="o", markevery=[-1], **line)
            row[1].plot(run.t.values, speed(run.v.values), **line)
            row[2].plot(run.t.values, run.energy.values, **line)
        row[1].set_ylabel("speed [m/s]")
        row[2].set_ylabel("energy [J]")
        row[1].set_title(SCHEMES[name].label, loc="center", pad=5)
        _over_time(row[1:], exact[1.0]["t"][-1])
    for ax, letter in zip(axes, "abcdef", strict=True):
        style.panel(ax, letter)
    for above, below in zip(axes[:3], axes[3:], strict=True):  # to be compared
        both = [*above.get_ylim(), *below.get_ylim()]
        for ax in (above, below):
            ax.set_ylim(min(both), max(both))
    _legend_above(fig, axes[0], 3)
    return fig


def _phases(runs: dict[str, Dataset]) -> Figure:
    fig, (ax,) = style.figure((1, 1), style.COLUMN, 2.4)
    for name in (name for name in ("index_3", "index_2", "nsga") if name in runs):
        scheme, run = SCHEMES[name], runs[name]
        ax.plot(run.place.values, run.ratio.values, marker=scheme.marker, **scheme.line)
    ax.set(xlabel="place of the corner in its step [1]", ylabel="$T^+/T^-$ [1]", xlim=(0, 1))
    ax.legend()
    return fig


def _smooth(runs: dict[str, Dataset], exact: dict) -> Figure:
    """The smooth tracks, and the hard switch."""
    fig, axes = style.figure((1, 3), style.DOUBLE, 2.6)
    name = "event_rk4" if "event_rk4" in runs else "nsga"
    run = runs[name]
    _track(axes[0], exact)
    _exact(axes[1], exact, exact["energy"])
    for k, sigma in enumerate(run.sigma.values):
        line: dict[str, Any] = {
            "color": style.COLOURS[k],
            "linestyle": style.DASHES[k + 1],
            "label": rf"$\sigma = {sigma:g}$ 1/m",
        }
        axes[0].plot(*run.smooth_q.values[k].T, **line)
        axes[1].plot(run.t.values, run.smooth_energy.values[k], **line)
    for scheme in (x for x in ("index_3", "index_2", "nsga", name) if x in runs):
        look = SCHEMES[scheme]
        own = runs[scheme]
        drift = np.maximum(own.smooth_drift.values, FLOOR)
        axes[2].loglog(own.sigma.values, drift, marker=look.marker, **look.line)
    axes[1].set_ylabel("energy [J]")
    axes[1].set_ylim(0, None)
    _over_time(axes[1:2], exact["t"][-1])
    axes[2].set(xlabel=r"$\sigma$ [1/m]", ylabel="change of energy / $T_0$ [1]")
    axes[2].set_xticks(run.sigma.values, [f"{x:g}" for x in run.sigma.values])
    axes[2].minorticks_off()
    axes[2].legend(loc="lower right", fontsize=style.points(7))
    axes[2].set_ylim(1e-7, None)
    for ax, letter in zip(axes, "abc", strict=True):
        style.panel(ax, letter)
    handles, labels = axes[0].get_legend_handles_labels()
    labels[labels.index("exact")] = "hard switch, $E = 1$"
    fig.legend(handles, labels, loc="outside upper center", ncols=4)
    return fig
