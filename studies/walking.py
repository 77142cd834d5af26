"""Passive walking of the compass: its gait, the return of strides to it, and its basin of
attraction.

The gait is a fixed point of the return map (`studies.gaits`); its multipliers say how fast small
deviations decay. For the basin of attraction, one sweep follows a grid of states just after a
strike (angle th and rate u of the standing leg, with the rate w of the gait) for several strides; a
state belongs to the basin if the walker is then near its gait.

The table contains the error of one stride with the step of the sweep, against a step ten times
smaller.
"""

from pathlib import Path
from time import perf_counter

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, ListedColormap
from matplotlib.figure import Figure
from xarray import Dataset

import nsdyn
from nsdyn import problems
from nsdyn.problems.compass_walker import LEGS, after_strike, shape
from nsdyn.results.events import Events
from nsdyn.studies.gaits import RK4, gait, stride
from nsdyn.studies.lib import archive, style, tables
from nsdyn.studies.lib.schemes import write
from nsdyn.studies.lib.tables import Table

GUESS = (0.27, 1.1, 0.4)
STEP, STRIDE = 5e-3, 1.2  # s: step for the gait, and an upper bound on the time of a stride
# Step of the sweep; at 0.03 the unprojected rows drift by more than a mode change tolerates
COARSE = 0.02
DURATION = 6.0  # s: eight strides
WINDOW = ((0.15, 0.45), (0.7, 1.6))  # of th [rad] and u [rad/s]
NEAR = 0.05  # largest difference from the gait, rad and rad/s, at the last strike
STRIKES = 6  # smallest number of strikes of a walker in the basin
KEPT = 16  # largest number of events per trajectory

CAPTIONS = """\
Passive walking of Goswami's compass on a slope of 3 degrees: hip 10 kg, legs 5 kg, a = b = 0.5 m. Computed with nsdyn
{version}. Scuffing of the swinging foot is ignored.

Assumed: a walker whose swinging leg is not in front of the hip at mid-stance counts as fallen; the window of states and the
bound {near:g} within which a walker is near its gait are ours.

Figure 1. a) One stride of the gait, the standing leg blue, the swinging one orange, at equal time intervals. b) Phase
portrait of one leg in the gait: it stands (blue) and swings (orange, dashed); heel strikes change its rate (dotted).
c) Distance of the state after each strike from the gait, from a perturbed start; the dashed line falls by the modulus
{modulus:.4f} of the largest multiplier in every stride.
Figure 2. States just after a strike, with the rate w = {w:.4f} rad/s of the swinging leg: the number of strikes before a fall
(grey) and the basin of attraction of the gait (blue); {size} x {size} states, followed for {duration:g} s with h = {coarse:g} s.
The cross is the gait.
"""

TABLE = "Gait of the compass just after a strike (h = {step:g} s)"
MEANINGS = {
    "th": "half the angle between the legs [rad]",
    "u": "rate of the standing leg [rad/s]",
    "w": "rate of the swinging leg [rad/s]",
}


def run(folder: str | Path, size: int = 200, force: bool = False) -> list[Path]:
    """Compute missing data, then draw; returns the files drawn."""
    compute(folder, size, force)
    return draw(folder)


# Computing


def compute(folder: str | Path, size: int = 200, force: bool = False) -> list[Path]:
    """Archive gait and basin, of size x size states. Data with the same settings and code are
    kept unless `force` is given."""
    folder = Path(folder) / "data"
    problem = problems.get("compass_walker")
    settings = archive.numbers_of(problem)
    settings |= {
        "step": STEP,
        "coarse": COARSE,
        "duration": DURATION,
        "near": NEAR,
        "window": WINDOW,
        "guess": GUESS,
    }
    made: dict = {
        "gait": lambda: _gait(problem),
        "basin": lambda: basin(problem, archive.read(folder, "gait")[0].state.values, size),
    }
    files = [archive.update(folder, "gait", settings, made["gait"], force=force)]
    own = settings | {"size": size}
    after = ("gait",)
    files.append(archive.update(folder, "basin", own, made["basin"], after=after, force=force))
    return files


def _gait(problem: nsdyn.Problem) -> dict[str, tuple]:
    found = gait(problem, GUESS, STEP, STRIDE)
    q0, v0 = after_strike(jnp.asarray(found.state), problem.params)
    two = nsdyn.simulate(problem, RK4, step=STEP, q0=q0, v0=v0, t_end=2 * found.period)
    states = [np.asarray(GUESS)]
    for _ in range(16):
        states.append(stride(problem, states[-1], STEP, STRIDE).state)
    coarse, fine = (stride(problem, GUESS, h, STRIDE).state for h in (COARSE, COARSE / 10))
    return {
        "state": (
            "component",
            found.state,
            {"long_name": "th, u, w", "units": "rad, rad/s, rad/s"},
        ),
        "period": ((), found.period, {"units": "s"}),
        "residual": ((), found.residual),
        "multipliers": (
            ("component", "part"),
            np.stack([found.multipliers.real, found.multipliers.imag], axis=1),
        ),
        "strides": (("stride", "component"), np.stack(states)),
        "error": (
            (),
            np.abs(coarse - fine).max(),
            {"long_name": "of a stride with the step of the sweep"},
        ),
        "t": ("row", two.t, {"units": "s"}),
        "q": (("row", "coordinate"), two.q, {"long_name": "x, y, th_0, th_1", "units": "m, rad"}),
        "v": (("row", "coordinate"), two.v),
        "mode": ("row", two.mode.astype(np.int32)),
    }


def basin(problem: nsdyn.Problem, x: np.ndarray, size: int) -> dict[str, tuple]:
    """The map about the gait x, size x size states in one sweep."""
    th, u = (np.linspace(*span, size) for span in WINDOW)
    grid = np.meshgrid(th, u, indexing="ij")
    place = jax.jit(
        jax.vmap(lambda th, u: after_strike((th, u, jnp.asarray(x[2])), problem.params))
    )
    q0, v0 = place(*(jnp.asarray(values.ravel()) for values in grid))
    begun = perf_counter()
    out = nsdyn.sweep(
        problem,
        RK4,
        step=COARSE,
        q0=q0,
        v0=v0,
        t_end=DURATION,
        save_every=round(DURATION / COARSE),
        max_events=KEPT,
    )
    seconds = perf_counter() - begun
    strikes, inside = classified(out.events, x)
    return {
        "th": ("th", th, {"units": "rad"}),
        "u": ("u", u, {"units": "rad/s"}),
        "strikes": (
            ("th", "u"),
            strikes.reshape(size, size).astype(np.int32),
            {"long_name": "before a fall or the end"},
        ),
        "inside": (("th", "u"), (inside & out.ok).reshape(size, size).astype(np.int8)),
        "seconds": ((), seconds, {"long_name": "of the sweep, compilation included"}),
    }


def classified(events: Events, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of strikes of each trajectory, and whether it is near the gait x at the last
    one."""
    records = events.records
    count = np.asarray(events.count)
    mode = np.asarray(records.mode_after)
    seen = np.arange(mode.shape[1])[None] < count[:, None]
    strikes = np.sum(seen & (mode < LEGS), axis=1)
    i = np.arange(len(count))
    last = np.maximum(count - 1, 0)
    leg = mode[i, last] % LEGS
    standing = mode[i, last] < LEGS
    q = np.asarray(records.q)[i, last]
    v = np.asarray(records.v_after)[i, last]
    state = np.stack([q[i, 3 - leg], v[i, 2 + leg], v[i, 3 - leg]], axis=1)
    return strikes, standing & (strikes >= STRIKES) & (np.abs(state - x[None]).max(axis=1) < NEAR)


# Drawing


def draw(folder: str | Path) -> list[Path]:
    """Draw the archived data; returns the files written."""
    folder = Path(folder)
    (found, described), (basin, _) = (
        archive.read(folder / "data", name) for name in ("gait", "basin")
    )
    modulus = np.hypot(*found.multipliers.values.T)
    with style.use():
        files = style.save(_strides(found, modulus[0]), folder, "figure_1")
        files += style.save(_map(basin, found.state.values), folder, "figure_2")
    x = found.state.values
    size = len(basin.th)
    words = CAPTIONS.format(
        version=described["versions"]["nsdyn"],
        near=NEAR,
        modulus=modulus[0],
        w=x[2],
        size=size,
        duration=DURATION,
        coarse=COARSE,
    )
    numbers = _table(found, basin)
    return [*files, write(folder / "captions.txt", words), *tables.write(folder, numbers)]


def _table(found: Dataset, basin: Dataset) -> Table:
    state = zip(MEANINGS.items(), found.state.values, strict=True)
    rows = [(name, meaning, f"{x:.10f}") for (name, meaning), x in state]
    rows += [
        ("T", "period [s]", f"{float(found.period):.10f}"),
        ("|P(x) - x|", "residual of the return map", f"{float(found.residual):.1e}"),
    ]
    rows += [("multiplier", "", f"{a:.6f} {b:+.6f}i") for a, b in found.multipliers.values]
    coarse = f"of one stride with the step of the sweep, h = {COARSE:g} s [rad, rad/s]"
    rows += [
        ("error", coarse, f"{float(found.error):.1e}"),
        ("basin", "states that end in the gait", str(int(basin.inside.sum()))),
        ("states", "of the map", str(basin.inside.size)),
    ]
    return Table(TABLE.format(step=STEP), ("quantity", "meaning", "value"), rows, [], names=2)


def _strides(found: Dataset, modulus: float) -> Figure:
    fig, (left, middle, right) = style.figure((1, 3), style.DOUBLE, 2.5)
    p = problems.get("compass_walker").params
    one = np.flatnonzero(found.t.values <= float(found.period))
    for k in one[:: max(1, len(one) // 9)]:
        foot, hip, other = np.asarray(shape(jnp.asarray(found.q.values[k]), p)[0])
        left.plot(*np.stack([hip, other]).T, color=style.ORANGE, linestyle="-", linewidth=0.8)
        left.plot(*np.stack([foot, hip]).T, color=style.BLUE, linestyle="-", linewidth=1.0)
        left.plot(*hip, "o", color="black", markersize=2.5)
    left.axhline(0.0, color="black", linewidth=0.8, linestyle="-")
    left.set(xlabel="along the slope [m]", ylabel="above it [m]", aspect="equal")
    _portrait(middle, found)
    x = found.state.values
    distance = np.linalg.norm(found.strides.values - x[None], axis=1)
    number = np.arange(len(distance))
    right.semilogy(number, distance, "o", color=style.BLUE)
    right.semilogy(
        number, distance[1] * modulus ** (number - 1.0), color=style.GREY, linestyle=style.DASHES[1]
    )
    right.set(xlabel="strikes", ylabel="distance from the gait")
    for ax, letter in ((left, "a"), (middle, "b"), (right, "c")):
        style.panel(ax, letter)
    return fig


def _portrait(ax: Axes, found: Dataset) -> None:
    """Leg 0: it stands in the first stride, swings in the second."""
    angle = found.q.values[:, 2]
    rate = found.v.values[:, 2]
    mode = found.mode.values
    stands = np.flatnonzero(mode == 0)
    stands = stands[stands < np.argmax(mode == 1)]
    swings = np.flatnonzero(mode == 1)
    ax.plot(angle[stands], rate[stands], color=style.BLUE, linestyle="-", label="stands")
    ax.plot(
        angle[swings], rate[swings], color=style.ORANGE, linestyle=style.DASHES[1], label="swings"
    )
    for a, b in ((stands[-1], swings[0]), (swings[-1], stands[0])):
        ax.plot(angle[[a, b]], rate[[a, b]], color=style.GREY, linestyle=style.DASHES[3])
    ax.set(xlabel=r"angle $\vartheta_0$ [rad]", ylabel=r"rate $\dot\vartheta_0$ [rad/s]")
    ax.legend(loc="center")


def _map(basin: Dataset, x: np.ndarray) -> Figure:
    fig, (ax,) = style.figure((1, 1), style.COLUMN, 2.9)
    levels = np.where(
        basin.inside.values == 1, STRIKES, np.minimum(basin.strikes.values, STRIKES - 1)
    )
    colours = ListedColormap(
        [*(str(grey) for grey in np.linspace(0.95, 0.45, STRIKES)), style.BLUE]
    )
    norm = BoundaryNorm(np.arange(STRIKES + 2) - 0.5, STRIKES + 1)
    image = ax.pcolormesh(
        basin.th.values, basin.u.values, levels.T, cmap=colours, norm=norm, rasterized=True
    )
    bar = fig.colorbar(image, ax=ax, ticks=range(STRIKES + 1))
    bar.ax.set_yticklabels([*map(str, range(STRIKES - 1)), f"{STRIKES - 1}+", "gait"])
    bar.set_label("strikes before a fall")
    ax.plot(x[0], x[1], "x", color="white", markersize=6, markeredgewidth=1.5)
    ax.set(
        xlabel=r"half the angle between the legs $\vartheta$ [rad]",
        ylabel="rate of the standing leg $u$ [rad/s]",
    )
    return fig
