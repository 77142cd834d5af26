"""Energy at a mode change with the impulse along intermediate gradients, in the mass and in the
Euclidean metric.

    M (v+ - v-) + G_E^T Lam = 0,    G+ v+ = 0,    T = 1/2 v^T M v                              (1)

Patil and Bruls ask what E = 1/2 does with more than one constraint. docs/energy_theorem.md answers:
in the mass metric it preserves T. Three data sets: random mechanisms at E = 1/2, and two mechanisms
as functions of E.

3R pendulum: joint 2 is locked and joint 3 turns; then the lock moves from joint 2 to joint 3. In
joint angles q the two gradients are orthogonal, so the Euclidean metric has no answer; in absolute
angles th it has one:

    th = A q,    M_th = A^-T M_q A^-1,    G_th = G_q A^-1,    v_th = A v_q                     (2)

Wheel: it turns about the near edge of a pothole of width 2 x and meets the far edge half-way, with
q = (x, y, phi) and

    G = [[2 x, 2 y, 0], [-y / R^2, x / R^2, 1]] before, the same with -x after; x^2 + y^2 = R^2  (3)
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator
from xarray import Dataset

from nsdyn import laws, problems
from nsdyn._types import Jacobian, Matrix, RowMask, Velocity
from nsdyn.problems.three_r_pendulum import mass
from nsdyn.status import Status
from nsdyn.studies.lib import archive, style

Metric = Literal["mass", "euclidean"]
METRICS: tuple[Metric, ...] = ("mass", "euclidean")
RANDOM, PENDULUM, WHEEL = "random", "pendulum", "wheel"
MOST_ROWS, SIZE, CONDITION, SEED = 5, 10, 100.0, 1
FLOOR = 1e-17  # where changes of exactly zero are drawn
PENDULUM_STATE = {"q": [np.pi / 6] * 3, "v": [0.0, 0.0, 1.0]}
WHEEL_PARAMETERS = {"m": 10.0, "R": 0.35, "width": 0.3}

CAPTIONS = """\
Kinetic energy at a mode change with the impulse along intermediate gradients; computed with nsdyn {version}.

Figure 1. Relative change of kinetic energy with the mid gradient (E = 1/2) in {cases} random mechanisms for each number of
constraints: {size} coordinates, mass matrices of condition up to {condition:g}, normally distributed rows before and after,
a velocity that obeys the rows before. In the mass metric the change is round-off (largest: {worst:.1e}). In the Euclidean metric
some mechanisms lose energy and others gain it (up to {gain:.2g} times the initial energy). Left out: {cut} cases with rows orthogonal to
within 0.006 degrees in one of the metrics. Changes of exactly zero are drawn at {floor:g}.
Figure 2. Kinetic energy after a mode change over the position E of the intermediate gradient: 0 is the gradient before, 1 the
gradient after. Circles: the E that preserves energy; smaller E produce energy (shaded), larger E dissipate it.
In the mass metric this is at E = 1/2, and the curve does not depend on coordinates or units.
a) 3R pendulum (parameters of A. Mueller): joint 2 locked, joint 3 at 1 rad/s, joint 1 at rest, all joint angles 30 degrees
(our choice); the lock moves from joint 2 to joint 3. The Euclidean metric is that of absolute angles; in joint angles the
two gradients are orthogonal and it gives no answer.
b) Wheel over a pothole, half-way between the edges, two constraints (after I. Patil and O. Bruls; parameters are ours:
R = {R:g} m, m = {m:g} kg, I = m R^2 / 2, width {width:g} m). Mirror symmetry makes the metrics agree at E = 1/2.
c) The same wheel: kinetic energy after the mode change in the Euclidean metric, relative to the mass metric. Whether it is larger
or smaller depends on the unit of length, metre or millimetre.
"""


def run(
    folder: str | Path, cases: int = 200, positions: int = 101, force: bool = False
) -> list[Path]:
    """Compute missing data, then draw; returns the files drawn."""
    compute(folder, cases, positions, force)
    return draw(folder)


# Computing


def compute(
    folder: str | Path, cases: int = 200, positions: int = 101, force: bool = False
) -> list[Path]:
    """Archive random mechanisms, pendulum and wheel. Data with the same settings and code are
    kept unless `force`."""
    sizes = {"rows": MOST_ROWS, "size": SIZE, "condition": CONDITION, "seed": SEED}
    params = {
        name: float(problems.get("three_r_pendulum").params[name]) for name in ("m", "L", "I")
    }
    wanted: dict[str, tuple[dict, Callable]] = {
        RANDOM: ({"cases": cases, **sizes}, _random),
        PENDULUM: ({"positions": positions, "params": params, **PENDULUM_STATE}, _pendulum),
        WHEEL: ({"positions": positions, **WHEEL_PARAMETERS}, _wheel),
    }
    return [
        archive.update(_data(folder), name, settings, partial(variables, **settings), force=force)
        for name, (settings, variables) in wanted.items()
    ]


def _data(folder: str | Path) -> Path:
    return Path(folder) / "data"


def _random(cases: int, rows: int, size: int, condition: float, seed: int) -> dict[str, tuple]:
    """One program for all numbers of constraints: surplus rows are not live."""
    rng = np.random.default_rng(seed)
    count = np.repeat(np.arange(1, rows + 1), cases)
    turn, _ = np.linalg.qr(rng.standard_normal((len(count), size, size)))
    M = (turn * np.exp(rng.uniform(0, np.log(condition), (len(count), 1, size)))) @ turn.transpose(
        0, 2, 1
    )
    live = np.arange(rows)[None, :] < count[:, None]
    before, after = rng.standard_normal((2, len(count), rows, size)) * live[:, :, None]
    v = rng.standard_normal((len(count), size, 1))
    v = (v - np.linalg.pinv(before) @ (before @ v))[:, :, 0]
    change, status = np.zeros((2, len(METRICS), len(count)))
    for i, metric in enumerate(METRICS):
        v_after, status[i] = _answers(metric, M, before, after, v, live)
        change[i] = _kinetic(M, np.asarray(v_after)) / _kinetic(M, v) - 1
    return {
        "rows": ("case", count),
        "change": (("metric", "case"), change, {"long_name": "relative change of kinetic energy"}),
        "status": (("metric", "case"), status.astype(np.int32)),
    }


@partial(jax.jit, static_argnums=0)
def _answers(metric: Metric, *arrays: Array) -> tuple[Array, Array]:
    law = laws.GrassmannMidGradient(metric)

    def answer(
        M: Matrix, before: Jacobian, after: Jacobian, v: Velocity, live: RowMask
    ) -> tuple[Velocity, Array]:
        change = laws.ModeChange.of(M, before, after, v, on_before=live, on_after=live)
        return law.decide(change).v_after, jnp.asarray(law.failure_code(change))

    return jax.vmap(answer)(*arrays)


def _kinetic(M: np.ndarray, v: np.ndarray) -> np.ndarray:
    return 0.5 * np.einsum("...i,...ij,...j", v, M, v)


def _pendulum(positions: int, params: dict, q: list, v: list) -> dict[str, tuple]:
    A = np.tril(np.ones((3, 3)))
    M = np.asarray(mass(jnp.asarray(q), params))
    G = np.eye(3)
    inverse = np.linalg.inv(A)
    absolute = inverse.T @ M @ inverse, G[1:2] @ inverse, G[2:] @ inverse, A @ v  # (2)
    curves = {
        "mass": ("mass", (M, G[1:2], G[2:], np.asarray(v))),
        "absolute": ("euclidean", absolute),
    }
    return _curves(positions, curves)


def _wheel(positions: int, m: float, R: float, width: float) -> dict[str, tuple]:
    x = width / 2
    M = np.diag([m, m, m * R**2 / 2])
    y = np.sqrt(R**2 - x**2)
    rows = lambda x: np.array([[2 * x, 2 * y, 0.0], [-y / R**2, x / R**2, 1.0]])  # (3)
    metres = M, rows(x), rows(-x), np.array([y, -x, 1.0])
    scale = np.diag([1e-3, 1e-3, 1.0])
    millimetres = (
        scale @ M @ scale,
        rows(x) @ scale,
        rows(-x) @ scale,
        np.linalg.solve(scale, metres[3]),
    )
    curves = {
        "mass": ("mass", metres),
        "metre": ("euclidean", metres),
        "millimetre": ("euclidean", millimetres),
    }
    return _curves(positions, curves)


def _curves(positions: int, curves: dict) -> dict[str, tuple]:
    """T+ / T- over E for each curve, (metric, (M, G-, G+, v-))."""
    E = np.linspace(0, 1, positions)
    out: dict[str, tuple] = {"E": ("position", E)}
    for name, (metric, change) in curves.items():
        M, _, _, v = change
        ratio = _kinetic(M, np.asarray(_velocities(E, metric, change))) / _kinetic(M, v)
        out[name] = ("position", ratio, {"long_name": "T+ / T-", "metric": metric})
    return out


@partial(jax.jit, static_argnums=1)
def _velocities(positions: Array, metric: Metric, change: tuple) -> Array:
    law = lambda E: laws.IntermediateGradient(E, metric, allow_energy_gain=True)
    return jax.vmap(lambda E: law(E).decide(laws.ModeChange.of(*change)).v_after)(positions)


# Drawing


def draw(folder: str | Path) -> list[Path]:
    """Draw the archived data; returns the files written."""
    random, described = archive.read(_data(folder), RANDOM)
    pendulum, _ = archive.read(_data(folder), PENDULUM)
    wheel, about_wheel = archive.read(_data(folder), WHEEL)
    with style.use():
        files = style.save(_figure_1(random), folder, "figure_1")
        files += style.save(_figure_2(pendulum, wheel), folder, "figure_2")
    good = _good(random)
    text = CAPTIONS.format(
        version=described["versions"]["nsdyn"],
        worst=float(np.abs(random.change.values[0, good]).max()),
        gain=float(random.change.values[1, good].max()),
        cut=int(np.sum(~good)),
        floor=FLOOR,
        **(described["settings"] | about_wheel["settings"]),
    )
    return [
        *files,
        archive.replace(Path(folder) / "captions.txt", lambda path: path.write_text(text, "utf-8")),
    ]


def _good(data: Dataset) -> np.ndarray:
    return np.all(data.status.values == Status.OK, axis=0)


def _figure_1(data: Dataset) -> Figure:
    fig, (ax,) = style.figure((1, 1), style.COLUMN, 2.9)
    good = _good(data)
    rows = data.rows.values[good]
    mass_change, change = data.change.values[:, good]
    spread = np.random.default_rng(0).uniform(-0.15, 0.15, len(rows))  # spreads overlapping points
    groups = (
        (change < 0, change, -0.19, "v", style.GREEN, "Euclidean, loss"),
        (change > 0, change, 0.19, "^", style.ORANGE, "Euclidean, gain"),
        (mass_change == mass_change, mass_change, 0.0, "o", style.BLUE, "mass metric"),
    )
    for mask, values, offset, marker, colour, label in groups:
        size = np.maximum(np.abs(values[mask]), FLOOR)
        ax.plot(rows[mask] + offset + spread[mask], size, marker, color=colour, markersize=2.2, linewidth=0,
                markeredgewidth=0, alpha=0.75, label=label)  # fmt: skip
    ax.axhline(
        np.finfo(float).eps, color=style.GREY, linewidth=0.6, linestyle=(0, (2, 2)), zorder=0
    )
    ax.text(0.58, 2 * np.finfo(float).eps, r"$\epsilon$", color="0.25", fontsize=style.points(8))
    ax.set(yscale="log", xlabel="number of constraints $m$", ylabel="$|T^+ - T^-| \\,/\\, T^-$")
    ax.set(xlim=(0.5, float(rows.max()) + 0.5), ylim=(FLOOR / 3, None))
    ax.xaxis.set_major_locator(MultipleLocator(1))
    ax.legend(
        loc="center",
        bbox_to_anchor=(0.5, 0.4),
        ncols=3,
        markerscale=2,
        handlelength=0.7,
        columnspacing=1.0,
    )
    return fig


def _figure_2(pendulum: Dataset, wheel: Dataset) -> Figure:
    fig, (left, middle, right) = style.figure((1, 3), style.DOUBLE, 2.5)
    colours = {"mass": 0, "absolute": 1, "metre": 1, "millimetre": 2}
    look: dict[str, dict[str, Any]] = {
        name: {"color": style.COLOURS[i], "linestyle": style.DASHES[i]}
        for name, i in colours.items()
    }
    _ratios(left, pendulum, {"mass": "mass metric", "absolute": "Euclidean"}, look)
    _ratios(middle, wheel, {"mass": "mass metric", "metre": "Euclidean, m"}, look)
    for name, label in (("metre", "Euclidean, m"), ("millimetre", "Euclidean, mm")):
        right.plot(wheel.E, 100 * (wheel[name] / wheel.mass - 1), label=label, **look[name])
    right.axhline(0.0, color=style.BLUE, linewidth=1.2, zorder=1, label="mass metric")
    right.set(ylabel="$T^+$ against mass metric [%]", ylim=(-1.1, 1.8))
    for ax, letter in ((left, "a"), (middle, "b"), (right, "c")):
        style.panel(ax, letter)
        ax.set(xlim=(0, 1), xlabel="position $E$")
        ax.xaxis.set_major_locator(MultipleLocator(0.5))
        ax.xaxis.set_minor_locator(MultipleLocator(0.1))
        ax.legend(loc="upper right", borderaxespad=0.1, handlelength=2.0)
    return fig


def _ratios(ax: Axes, data: Dataset, labels: dict[str, str], look: dict[str, dict]) -> None:
    """T+ / T- over E, with a circle where energy is preserved; smaller E produce energy, larger E
    dissipate it."""
    for name, label in labels.items():
        ratio, colour = data[name].values, look[name]["color"]
        ax.plot(data.E, ratio, label=label, **look[name])
        preserved = float(np.interp(-1.0, -ratio, data.E))  # the ratio falls with E
        ax.plot(preserved, 1.0, "o", color=colour, zorder=3)
        above = name == "mass"
        ax.annotate(
            f"{preserved:.2f}", (preserved, 1.0), (4, 2) if above else (-4, -3), textcoords="offset points",
            ha="left" if above else "right", va="bottom" if above else "top", fontsize=style.points(8), color=colour,
        )  # fmt: skip
    low, high = ax.get_ylim()
    ax.axhspan(1.0, high, color="0.93", zorder=0, linewidth=0)
    ax.set(ylim=(low - 0.1 * (high - low), high), ylabel="$T^+ / \\, T^-$")
    ax.text(
        0.98,
        1.0,
        "produced",
        transform=ax.get_yaxis_transform(),
        fontsize=style.points(8),
        color="0.3",
        ha="right",
        va="bottom",
    )
    ax.text(
        0.98,
        0.98,
        "dissipated",
        transform=ax.get_yaxis_transform(),
        fontsize=style.points(8),
        color="0.3",
        ha="right",
        va="top",
    )
