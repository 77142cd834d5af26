"""A quick plot of a run: q, v, lam and energy over time."""

from typing import TYPE_CHECKING

import numpy as np

from nsdyn.errors import ProblemError
from nsdyn.results.solution import Solution

if TYPE_CHECKING:  # slow to import
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


def figure(run: Solution) -> "matplotlib.figure.Figure":
    from matplotlib.figure import Figure  # not pyplot, which keeps global state

    if run.is_batch:
        raise ProblemError("plot: this is a batch of runs; plot one of them, solution[i].plot()")
    e = run.events.trimmed()
    panels = [
        ("q", "q", *with_jumps(run.t, run.q, e.t, e.q, e.q)),
        ("v", "v", *with_jumps(run.t, run.v, e.t, e.v_before, e.v_after)),
        ("lam (forces)", "lam", run.t, run.lam),
        ("T + V" if run.has_potential else "T", "", run.t, run.energy[:, None]),
    ]
    panels = [panel for panel in panels if panel[3].shape[1]]
    figure = Figure(figsize=(7.0, 0.5 + 1.7 * len(panels)), dpi=150, layout="constrained")
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for ax, (label, name, t, values) in zip(axes, panels, strict=True):
        for when in e.t:
            ax.axvline(when, color="0.6", linewidth=0.6, zorder=0)
        for i, line in enumerate(values.T):
            style = {
                "color": COLOURS[i % len(COLOURS)],
                "linestyle": STYLES[i // len(COLOURS) % len(STYLES)],
            }
            ax.plot(t, line, linewidth=1.2, label=f"{name}[{i}]", **style)
        if name and values.shape[1] <= MOST_LABELS:
            ax.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        ax.set_ylabel(label, fontsize=9)
        ax.tick_params(labelsize=8)
        ax.spines[["top", "right"]].set_visible(False)
    figure.align_ylabels(axes)
    axes[-1].set_xlabel("t", fontsize=9)
    axes[0].set_title(
        f"{run.problem}: {run.integrator}, {run.law}", fontsize=8, loc="left", wrap=True
    )
    return figure


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
