"""The limit cycle of the toy woodpecker: its period, and its stability by one derivative.

The toy (`nsdyn.problems.woodpecker`) hammers its way down a pole. In each cycle the lower edge of
its sleeve slides, jams and breaks loose; the sleeve turns over to the upper edge, the beak hits the
pole, and the sleeve turns back. Where the lower edge breaks loose, the sleeve is at rest and the
angle of the bird is that at which friction yields: besides the height, which changes nothing, one
number is free, the rate w of the bird. So the motion is a map w_(k+1) = P(w_k) from one such instant
to the next, whose fixed point w* is the limit cycle, and

    m = dP/dw,   w_(k+1) - w* = m (w_k - w*) near w*                                           (1)

has its multiplier m. The cycle is stable if |m| < 1. A run from an instant at which the lower edge
jams contains two such instants; with the derivatives of their w by the rate of the bird at the start
of this run, m is the second over the first. Two rates in a row tell w*:

    w* = (w_(k+1) - m w_k)/(1 - m)                                                             (2)

R. I. Leine, Ch. Glocker, D. H. van Campen: Nonlinear dynamics and modeling of some wooden toys with
impact and friction. J. Vibration and Control 9 (2003) 25-78.
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from xarray import Dataset

import nsdyn
from nsdyn import integrators
from nsdyn.problems.woodpecker import woodpecker
from nsdyn.results.plot import with_jumps
from nsdyn.studies.lib import archive, style
from nsdyn.studies.lib.schemes import write

STEP = 2e-4  # s
END = 12.0
SLOWER = 0.9  # the rate of the bird at the start, over that of the problem
TWO = 0.26  # s: a run that contains two of the instants
BEAK, LOWER, UPPER = range(3)  # contacts
SLEEVE, BIRD = 1, 2  # coordinates
STICK, SLIP = 1, 2  # modes
SCHEME = integrators.EventDriven(integrators.RK4())

MOST_CYCLES = 45  # that are drawn
SHADES = {SLIP: "0.91", STICK: "0.80"}

CAPTIONS = """\
The limit cycle of the toy woodpecker. Computed with nsdyn {version}, event-driven RK4 with the step {step:g} s.

Parameters are those of Leine, Glocker and van Campen (2003); the run starts with {slower:g} times the rate of the bird of the problem
`woodpecker`. Period {period:.5f} s (published: 0.146 s), multiplier {multiplier:.4f}; the toy falls by {falls:.2f} mm in each cycle.

Figure 1. a) Angles of sleeve and bird over one period, from the instant at which the lower edge of the sleeve breaks loose. Grey: an
edge slides on the pole (light) or sticks to it (dark); it is the upper one after the stroke of the beak (dotted), otherwise the
lower one. b) The bird on its limit cycle: rate over angle. Open and filled circles are before and after an impact; the diamond is
where the lower edge breaks loose, with the rate w*. c) Distance of the rates w_k of such instants from w*, in a motion that comes near
to the limit cycle; filled: above w*, open: below. The slope of the line is the multiplier m, one derivative of one run.
"""


def run(
    folder: str | Path, step: float = STEP, t_end: float = END, force: bool = False
) -> list[Path]:
    """Compute missing data, then draw; returns the files drawn."""
    compute(folder, step, t_end, force)
    return draw(folder)


# Computing


def compute(
    folder: str | Path, step: float = STEP, t_end: float = END, force: bool = False
) -> list[Path]:
    """Archive the last cycle, the rates of all cycles and the multiplier. Data with the same
    settings and code are kept unless `force` is given."""
    settings = {"step": step, "t_end": t_end, "slower": SLOWER}
    make = partial(_variables, step, t_end)
    return [archive.update(_data(folder), "cycle", settings, make, force=force)]


def _data(folder: str | Path) -> Path:
    return Path(folder) / "data"


def breaks_loose(events: nsdyn.Events) -> np.ndarray:
    """The numbers of the events in which the lower edge, that held the toy, begins to slip."""
    before, after = (np.asarray(x)[:, LOWER] for x in (events.mode_before, events.mode_after))
    return np.flatnonzero((before == STICK) & (after == SLIP))


def multiplier(start: nsdyn.Event, step: float) -> float:
    """m of (1), from an event in which the lower edge jams."""
    toy = woodpecker(t_end=TWO)

    def rates(rate: Any) -> tuple[Any, nsdyn.Events]:
        v0 = jnp.asarray(start.v_after).at[BIRD].set(rate)
        found = nsdyn.rollout(toy, SCHEME, step=step, q0=start.q, v0=v0, max_events=32)
        return found.events.v_after[:, BIRD], found.events

    by_rate = jax.jit(lambda rate: jax.jvp(rates, (rate,), (jnp.ones(()),), has_aux=True))
    _, slopes, events = by_rate(jnp.asarray(start.v_after[BIRD]))
    first, second = breaks_loose(events)[:2]
    return float(slopes[second] / slopes[first])  # (1)


def _variables(step: float, t_end: float) -> dict[str, tuple]:
    toy = woodpecker(t_end=t_end)
    slower = toy.v0.at[BIRD].multiply(SLOWER)
    found = nsdyn.simulate(toy, SCHEME, step=step, v0=slower, max_events=2000, check=False)
    events = found.events
    loose = breaks_loose(events)
    jams = np.flatnonzero(events.mode_after[: loose[-1], LOWER] == STICK)[-1]
    begin, end = events.t[loose[-2:]]
    return {
        **_between(found, begin, end),
        "rate": ("cycle", events.v_after[loose, BIRD], {"units": "rad/s"}),
        "period": ((), end - begin, {"units": "s"}),
        "falls": ((), -np.diff(events.q[loose[-2:], 0])[0], {"units": "m"}),
        "multiplier": ((), multiplier(events[int(jams)], step)),
    }


def _between(found: nsdyn.Solution, begin: float, end: float) -> dict[str, tuple]:
    """Samples and events of a part of a run."""
    some = (found.t > begin) & (found.t < end)
    e = found.events
    which = (e.t >= begin) & (e.t <= end)
    return {
        "t": ("sample", found.t[some] - begin, {"units": "s"}),
        "q": (("sample", "coordinate"), found.q[some]),
        "v": (("sample", "coordinate"), found.v[some]),
        "mode": (("sample", "contact"), found.mode[some]),
        "t_event": ("event", e.t[which] - begin, {"units": "s"}),
        "q_event": (("event", "coordinate"), e.q[which]),
        "v_before": (("event", "coordinate"), e.v_before[which]),
        "v_after": (("event", "coordinate"), e.v_after[which]),
        "mode_before": (("event", "contact"), e.mode_before[which]),
        "mode_after": (("event", "contact"), e.mode_after[which]),
        "strikes": ("event", np.abs(e.Lam[which, BEAK]) > 0, {"long_name": "the beak strikes"}),
    }


# Drawing


def draw(folder: str | Path) -> list[Path]:
    """Draw the archived data; returns the files written."""
    folder = Path(folder)
    data, described = archive.read(_data(folder), "cycle")
    with style.use():
        files = style.save(_figure(data), folder, "figure_1")
    words = CAPTIONS.format(
        version=described["versions"]["nsdyn"],
        step=described["settings"]["step"],
        slower=described["settings"]["slower"],
        period=float(data.period),
        multiplier=float(data.multiplier),
        falls=1e3 * float(data.falls),
    )
    return [*files, write(folder / "captions.txt", words)]


def _figure(data: Dataset) -> Figure:
    fig, axes = style.figure((1, 3), style.DOUBLE, 2.5)
    time, phase, cycles = axes
    _angles(time, data)
    _limit_cycle(phase, data)
    _approach(cycles, data.rate.values, float(data.multiplier))
    for ax, letter in zip(axes, "abc", strict=True):
        style.panel(ax, letter)
    return fig


def _rows(data: Dataset, of: str, before: str, after: str) -> tuple[np.ndarray, np.ndarray]:
    """Times and values, with two rows at each event."""
    names = ("t", of, "t_event", before, after)
    return with_jumps(*(data[name].values for name in names))


def _angles(ax: Axes, data: Dataset) -> None:
    t, q = _rows(data, "q", "q_event", "q_event")
    _, mode = _rows(data, "mode", "mode_before", "mode_after")
    _shade(ax, 1e3 * t, mode)
    stroke = 1e3 * data.t_event.values[data.strikes.values][0]
    style.mark_times(ax, [stroke])
    ax.annotate(
        "beak", (stroke, 0.04), (4, 0), xycoords=("data", "axes fraction"),
        textcoords="offset points", fontsize=style.points(8), color="0.25",
    )  # fmt: skip
    for k, label, at in ((SLEEVE, "sleeve", (0.62, 0.70)), (BIRD, "bird", (0.47, 0.36))):
        look: dict[str, Any] = {"color": style.COLOURS[k - 1]}
        ax.plot(1e3 * t, q[:, k], linestyle=style.DASHES[2 - k], **look)
        ax.annotate(label, at, xycoords="axes fraction", fontsize=style.points(8), **look)
    ax.set(xlabel="$t$ [ms]", ylabel="angle [rad]", xlim=(0, 1e3 * t[-1]))


def _shade(ax: Axes, t: np.ndarray, mode: np.ndarray) -> None:
    """Where an edge of the sleeve slides on the pole, and where it sticks."""
    everywhere: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "linewidth": 0}
    edges = mode[:, [LOWER, UPPER]]
    for state, shade in SHADES.items():
        is_so = np.any(edges == state, axis=1)
        ax.fill_between(t, 0.0, 1.0, where=is_so, color=shade, **everywhere)


def _limit_cycle(ax: Axes, data: Dataset) -> None:
    angle, rate = data.q_event.values[0, BIRD], data.v_after.values[0, BIRD]
    x = _rows(data, "q", "q_event", "q_event")[1][:, BIRD]
    y = _rows(data, "v", "v_before", "v_after")[1][:, BIRD]
    ax.plot(x, y, color=style.GREY, linestyle=(0, (1, 2)), linewidth=0.6, zorder=0)  # jumps
    style.jumping_line(ax, x, y, color=style.BLUE, linestyle="-")
    ax.plot(angle, rate, "D", color=style.ORANGE, markersize=4.5, zorder=4)
    ax.annotate(
        "$w^*$", (angle, rate), (0, -5), textcoords="offset points", ha="center", va="top",
        fontsize=style.points(8), color=style.ORANGE,
    )  # fmt: skip
    ax.set(xlabel="angle of the bird [rad]", ylabel="rate of the bird [rad/s]")


def _approach(ax: Axes, rate: np.ndarray, m: float) -> None:
    """Distances from the limit cycle, and the line that the multiplier tells."""
    limit = (rate[-1] - m * rate[-2]) / (1 - m)  # (2)
    off = rate[:MOST_CYCLES] - limit
    k = np.arange(len(off))
    line = np.abs(off[-1]) * np.abs(m) ** (k - k[-1])  # (1)
    ax.semilogy(k, line, color=style.ORANGE, linestyle="-", linewidth=0.9, zorder=3)
    for side, face in ((off > 0, style.BLUE), (off < 0, "white")):
        look: dict[str, Any] = {"color": style.BLUE, "markerfacecolor": face}
        ax.semilogy(k[side], np.abs(off[side]), "o", markersize=3, markeredgewidth=0.7, **look)
    ax.annotate(
        f"slope of $|m|^k$,\n$m = {m:.3f}$", (0.97, 0.95), xycoords="axes fraction", ha="right",
        va="top", fontsize=style.points(8), color=style.ORANGE,
    )  # fmt: skip
    ax.set(xlabel="cycle $k$", ylabel="$|w_k - w^*|$ [rad/s]")
