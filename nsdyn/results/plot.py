"""A quick plot of a run: q, v, lam and energy over time; what has different units on axes of its
own."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nsdyn._coordinates import name_of, numbered, unit_of
from nsdyn.results.solution import Solution

if TYPE_CHECKING:  # slow to import
    import matplotlib.axes
    import matplotlib.figure

COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#E69F00",
    "#56B4E9",
    "#000000",
)  # Okabe and Ito: distinguishable for colour-blind readers
STYLES = ("-", "--", "-.", ":")
MOST_LABELS = 8  # with more lines there is no legend
MOST_RUNS = 100  # of a batch that are drawn


class Panel(NamedTuple):
    """Lines over one pair of axes."""

    label: str
    names: Sequence[str]  # of the lines, for the legend; none: no legend
    t: np.ndarray
    values: np.ndarray  # shape (times, lines)


def figure(run: Solution) -> "matplotlib.figure.Figure":
    """Of a batch, lines of some of its runs, without events."""
    from matplotlib.figure import Figure  # not pyplot, which keeps global state

    runs = _some(run) if run.is_batch else [run]
    drawn = [panels(one) for one in runs]
    count = len(drawn[0])
    figure = Figure(figsize=(7.0, 0.5 + 1.7 * count), dpi=150, layout="constrained")
    axes = figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0]
    for ax, *lines in zip(axes, *drawn, strict=True):
        for when in () if run.is_batch else run.events.trimmed().t:
            ax.axvline(when, color="0.6", linewidth=0.6, zorder=0)
        _draw(ax, lines)
    figure.align_ylabels(axes)
    axes[-1].set_xlabel("t [s]" if any(map(unit_of, run.coordinates)) else "t", fontsize=9)
    number = f", {len(runs)} of {len(run)} runs" if run.is_batch else ""
    title = f"{run.problem}: {run.integrator}, {run.law}{number}{_end(run)}"
    axes[0].set_title(title, fontsize=8, loc="left", wrap=True)
    return figure


def _end(run: Solution) -> str:
    """How the run, or runs of a batch, stopped early."""
    if run.is_batch:
        stopped = int(np.sum(~run.ok))
        return f"; {stopped} of all {len(run)} stopped early" if stopped else ""
    if run.ok:
        return ""
    return f"; stopped at t = {float(run.t_stop):.6g}: {run.meaning(run.status)[0]}"


def _some(batch: Solution) -> list[Solution]:
    """All runs of a batch, or MOST_RUNS of them."""
    which = np.linspace(0, len(batch) - 1, min(len(batch), MOST_RUNS)).round().astype(int)
    return [batch[int(i)] for i in which]


def panels(run: Solution) -> list[Panel]:
    """What is drawn, from top to bottom; panels without lines are left out."""
    e = run.events.trimmed()
    q = with_jumps(run.t, run.q, e.t, e.q, e.q)
    v = with_jumps(run.t, run.v, e.t, e.v_before, e.v_after)
    energy = "T + V" if run.has_potential else "T"
    found = [
        *_by_unit("q", run.coordinates, *q),
        *_by_unit("v", run.velocities, *v),
        Panel("lam (forces)", numbered((), "lam", run.lam.shape[1]), run.t, run.lam),
        Panel(energy, (), run.t, run.energy[:, None]),
    ]
    return [panel for panel in found if panel.values.shape[1]]


def _by_unit(symbol: str, names: Sequence[str], t: np.ndarray, values: np.ndarray) -> list[Panel]:
    """A panel for each unit, in the order in which they occur."""
    if not any(map(unit_of, names)):
        return [Panel(symbol, numbered(names, symbol, values.shape[1]), t, values)]
    found = []
    for unit in dict.fromkeys(map(unit_of, names)):
        own = [i for i, name in enumerate(names) if unit_of(name) == unit]
        label = f"{symbol} [{unit}]" if unit else symbol
        found.append(Panel(label, [name_of(names[i]) for i in own], t, values[:, own]))
    return found


def _draw(ax: "matplotlib.axes.Axes", runs: Sequence[Panel]) -> None:
    """The same lines of one run or of several; one legend for all."""
    first, alone = runs[0], len(runs) == 1
    for panel in runs:
        for i, line in enumerate(panel.values.T):
            style: dict[str, Any] = {
                "color": COLOURS[i % len(COLOURS)],
                "linestyle": STYLES[i // len(COLOURS) % len(STYLES)],
                "linewidth": 1.2 if alone else 0.5,
                "alpha": 1.0 if alone else 0.5,
            }
            name = first.names[i] if first.names and panel is first else None
            ax.plot(panel.t, line, label=name, **style)
    if first.names and len(first.names) <= MOST_LABELS:
        ax.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    ax.set_ylabel(first.label, fontsize=9)
    ax.tick_params(labelsize=8)
    ax.spines[["top", "right"]].set_visible(False)


def with_jumps(
    t: np.ndarray, rows: np.ndarray, when: np.ndarray, before: np.ndarray, after: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Samples with the states before and after each event inserted, so that jumps are drawn
    vertically at any sample spacing."""
    times = np.concatenate([t, when, when])
    # A sample at the instant of an event holds the state after it, so it comes last; simultaneous
    # events keep their order.
    rank = np.concatenate(
        [np.full(len(t), 2 * len(when)), 2 * np.arange(len(when)), 2 * np.arange(len(when)) + 1]
    )
    order = np.lexsort((rank, times))
    return times[order], np.concatenate([rows, before, after])[order]
