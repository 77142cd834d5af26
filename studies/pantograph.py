"""Pantograph against a wall: the printed values of Font-Llagunes and Kovecses and our results for
their mechanism (tables 2 and 3, figure 4).

Rigid model of table 1, in the coordinates (q_1, q_3); y' = A v and x' = B v are the rates of the
tip across and along the wall. The velocity before the impact has the printed T_c. Then

    xi = T_c/T,    Lam = (A M^-1 A^T)^-1 A v-,    P_c^T B^T,    P_a^T B^T                        (1)

and T_a after the impact with the measured tangential impulse beta as `NonIdeal(beta=...)` gives it.
Over the workspace, with the inertia that the tip shows, N = (J M^-1 J^T)^-1, J = (B; A), and its
direction of motion u = (cos gamma, sin gamma),

    xi = u_y^2 / ((A M^-1 A^T) u^T N u)                                                          (2)

Measured values are from the tables of the paper. Its drawings, and so its figure 4, are not
available; `nsdyn.problems.pantograph` lists what was inferred.
"""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator
from xarray import Dataset

import nsdyn
from nsdyn import laws, problems
from nsdyn._types import Configuration, Matrix, Params, Scalar, Velocity
from nsdyn.integrators import RK4, EventDriven
from nsdyn.problems.pantograph import (
    LINKS,
    MINIMAL,
    TABLE_1,
    WALL,
    links,
    loop,
    reached,
    tangent,
    tip,
    tip_of_links,
)
from nsdyn.studies.lib import archive, style, tables
from nsdyn.studies.lib.schemes import write
from nsdyn.studies.lib.tables import Table


class Case(NamedTuple):
    """An experiment: d [m], gamma [degrees]; energies [mJ] and xi of table 2, impulses [mN s] of
    table 3."""

    d: float
    gamma: int
    T_c: float
    T_a: float
    T_c_after: float
    T_a_after: float
    xi: float
    Lam: float
    beta: float


PAPER = (
    Case(0.0, 90, 9.30, 4.4e-3, 3.2e-3, 2.0e-3, 1.00, 114.74, 0.81),
    Case(0.0, 60, 9.26, 3.28, 4.9e-3, 2.81, 0.75, 113.60, -3.65),
    Case(0.1, 90, 9.34, 6.7e-4, 4.7e-3, 2.4e-4, 1.00, 116.09, 0.63),
    Case(0.1, 60, 9.10, 3.12, 1.6e-3, 2.85, 0.74, 114.02, -3.26),
    Case(0.2, 90, 9.33, 0.144, 6.6e-3, 0.130, 0.98, 121.38, 0.53),
    Case(0.2, 60, 9.30, 4.54, 2.9e-3, 4.06, 0.66, 119.28, -3.94),
)
# Printed values of P_c^T B^T and P_a^T B^T [m], from the text and (19), (20)
PROJECTIONS = {
    0.0: ((0.0, 0.0), (-0.1027, -0.1235)),
    0.1: ((-0.0027, 0.0009), (-0.0646, -0.1392)),
    0.2: ((-0.0192, -0.0027), (-0.0510, -0.1209)),
}
CLOSE = 1e-3  # m, largest difference from a printed projection
LEVELS = (0.0, 0.2, 0.4, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999, 1.0)  # of the map
BESIDE = 1.2  # ms between the line of an impact and the printed values
MU = 0.03  # ours: beta / Lam of table 3 is 0.029 to 0.033 at 60 degrees
APPROACH = 0.02  # s before the impact at which runs start
CASES, MAP, IMPACTS = "cases", "map", "impacts"
RK = EventDriven(RK4())

CAPTIONS = """\
Pantograph against a wall, after J. M. Font-Llagunes and J. Kovecses; computed with nsdyn {version}. Lengths, masses and inertias
are those of their table 1; the geometry is inferred, because the drawings are not available (see problems/pantograph.py).

Figure 1. Fraction xi = T_c/T of the kinetic energy that an ideal impact takes, over the position of the tip, for a wall parallel to
the line of the motors. The tip moves a) across it, gamma = 90 degrees, b) at gamma = 60 degrees, to the right.
Circles: the experiments, with their numbers and the printed xi. Black: the mechanism at d = 0.1 m; dashed: the wall, y =
{wall:g} m. White: out of reach. The levels are not equidistant.
Figure 2. Kinetic energy of constrained motion, T_c, and of admissible motion, T_a, over an impact: rigid wall, Coulomb friction
mu = {mu:g} (ours), step {step:g} s; later the tip may leave the wall again. Circles and squares: printed values before and after
(table 2), next to the line of the impact. While the mechanism is free, T_c and T_a vary with the configuration, but not their sum.
"""

TABLE = """\
Pantograph against a wall: values printed by Font-Llagunes and Kovecses (tables 2 and 3) and computed with the rigid model of
table 1. Energies in mJ, impulses in mN s. Speeds are chosen to give the printed T_c before the impact."""
AGREES = """\
xi: "yes" if it rounds to the printed digits. T_a/T_c and T_a after (computed with the measured beta): the printed
values are averages of measurements; "yes" within 10 %. Lam: measured against rigid."""
VERDICT = ("printed", "computed", "agrees")
IMPULSE = ("printed", "computed", "measured/rigid")
PROJECTED = "Projections printed in (19), (20) and computed, in m."
WITHIN = f"""\
"yes": both components within {CLOSE:g} m. The sum of both projections is B^T, which depends only on the geometry:
no masses would change the second components at d = 0, where symmetry makes both components of B equal, and at d = 0.2."""


def run(
    folder: str | Path, points: int = 361, step: float = 2e-4, force: bool = False
) -> list[Path]:
    """Compute missing data, then draw; returns the files drawn."""
    compute(folder, points, step, force)
    return draw(folder)


# Computing


def compute(
    folder: str | Path, points: int = 361, step: float = 2e-4, force: bool = False
) -> list[Path]:
    """Archive the six cases, the map with `points` along x, and the impacts. Data with the same
    settings and code are kept."""
    model = {"table_1": TABLE_1, "wall": WALL}
    uses = (problems.function("pantograph"),)
    wanted: dict[str, tuple[dict, Any]] = {
        CASES: (model | {"paper": PAPER}, _cases),
        MAP: (model | {"points": points}, lambda: _map(points)),
        IMPACTS: (
            model | {"paper": PAPER, "step": step, "mu": MU, "approach": APPROACH},
            lambda: _impacts(step),
        ),
    }
    return [
        archive.update(_data(folder), name, settings, variables, uses=uses, force=force)
        for name, (settings, variables) in wanted.items()
    ]


def _data(folder: str | Path) -> Path:
    return Path(folder) / "data"


@jax.jit
def _matrices(q: Configuration, p: Params) -> tuple[Matrix, Float[Array, "2 n"]]:
    """M, and J = (B; A)."""
    return MINIMAL.mass(q, p), jax.jacfwd(tip)(q, p)


def report(d: float, gamma: float, T_c: float, beta: float | None = None) -> nsdyn.TransitionReport:
    """The impact at d under gamma with this T_c before, in joules; ideal, or with the tangential
    impulse beta."""
    problem = problems.get("pantograph", d=d, gamma=gamma, distance=0.0)
    M, J = map(np.asarray, _matrices(problem.q0, problem.params))
    v = np.asarray(problem.v0)
    before = np.zeros((0, 2))
    A = J[1:]
    B = J[:1]
    unit = nsdyn.transition_report(M, before, A, v)
    v = v * np.sqrt(T_c / unit.energy_before[1])
    after = None if beta is None else laws.NonIdeal(B, beta=[beta]).jump(M, before, A, v).v_after
    return nsdyn.transition_report(M, before, A, v, after, tangents=B)


def _cases() -> dict[str, tuple]:
    ideal = [report(case.d, case.gamma, case.T_c / 1e3) for case in PAPER]
    rubbed = [report(case.d, case.gamma, case.T_c / 1e3, case.beta / 1e3) for case in PAPER]
    milli = lambda name: {"long_name": name, "units": "mJ"}
    parts = [report(d, 90, 1.0) for d in PROJECTIONS]
    B = [
        _matrices(problems.get("pantograph", d=d, distance=0.0).q0, _params())[1][0]
        for d in PROJECTIONS
    ]
    return {
        "xi": ("case", [r.xi for r in ideal]),
        "T_a": ("case", [1e3 * r.energy_before[2] for r in ideal], milli("T_a before")),
        "T_a_after": (
            "case",
            [1e3 * r.energy_after[2] for r in rubbed],
            milli("T_a after, with the measured beta"),
        ),
        "Lam": (
            "case",
            [1e3 * float(r.Lam[0]) for r in rubbed],
            {"long_name": "normal impulse", "units": "mN s"},
        ),
        "P_c_B": (
            ("place", "coordinate"),
            [r.P_c.T @ b for r, b in zip(parts, B, strict=True)],
            {"units": "m"},
        ),
        "P_a_B": (
            ("place", "coordinate"),
            [r.P_a.T @ b for r, b in zip(parts, B, strict=True)],
            {"units": "m"},
        ),
    }


def _params() -> dict[str, Any]:
    return problems.get("pantograph").params


@jax.jit
def _xi(point: Float[Array, " 2"], p: Params) -> Float[Array, " 2"]:
    """(2) at 90 and 60 degrees; NaN outside the workspace. In all four angles, so that every
    assembly is included."""
    q = reached(point, p)
    G = jax.jacfwd(loop)(q, 0.0, p)
    J = jax.jacfwd(tip_of_links)(q, p)
    M = LINKS.mass(q, p)
    kkt = jnp.block([[M, G.T], [G, jnp.zeros((2, 2))]])
    mobility = (
        J @ jnp.linalg.solve(kkt, jnp.concatenate([J.T, jnp.zeros((2, 2))]))[:4]
    )  # J M^-1 J^T of the closed loop
    u = jnp.stack([jnp.array([0.0, 1.0]), jnp.array([0.5, jnp.sqrt(0.75)])])
    return u[:, 1] ** 2 / (mobility[1, 1] * jnp.sum(u * jnp.linalg.solve(mobility, u.T).T, axis=1))


def _map(points: int) -> dict[str, tuple]:
    x = np.linspace(-0.36, 0.36, points)
    y = np.arange(x[1] - x[0], 0.36, x[1] - x[0])
    grid = jnp.stack(jnp.meshgrid(jnp.asarray(x), jnp.asarray(y)), axis=-1)
    xi = np.asarray(jax.vmap(jax.vmap(_xi, (0, None)), (0, None))(grid, _params()))
    words = {"long_name": "xi at gamma = 90 and 60 degrees"}
    return {
        "x": ("x", x, {"units": "m"}),
        "y": ("y", y, {"units": "m"}),
        "xi": (("y", "x", "gamma"), xi, words),
    }


def _impacts(step: float) -> dict[str, tuple]:
    """T_c and T_a on the grid and at the two limits of the impact."""
    law = laws.NonIdeal(tangent, mu=MU)
    runs = []
    for d, gamma, T_c_before, *_ in PAPER:
        problem = problems.get("pantograph", d=d, gamma=gamma, distance=0.0)
        at_wall = report(d, gamma, T_c_before / 1e3)
        speed = float(
            np.linalg.norm(np.asarray(_matrices(problem.q0, problem.params)[1]) @ at_wall.v_before)
        )
        away = speed * APPROACH * np.sin(np.radians(gamma))
        problem = problems.get(
            "pantograph", d=d, gamma=gamma, speed=speed, distance=away, t_end=2 * APPROACH
        )
        found = nsdyn.simulate(problem, RK, step=step, law=law, check=False)
        first = found.events[0]
        at = np.searchsorted(found.t, first.t - 1e-12)
        q = np.insert(found.q, at, [first.q, first.q], axis=0)
        v = np.insert(found.v, at, [first.v_before, first.v_after], axis=0)
        split = _split(jnp.asarray(q), jnp.asarray(v), problem.params)
        runs.append(
            (
                np.insert(found.t, at, [first.t, first.t]) - first.t,
                *(1e3 * np.asarray(T) for T in split),
            )
        )
    t, T_c, T_a = (np.stack(x) for x in zip(*runs, strict=True))
    units = {"units": "mJ"}
    return {
        "t": (("case", "row"), t, {"long_name": "time after the impact", "units": "s"}),
        "T_c": (("case", "row"), T_c, units),
        "T_a": (("case", "row"), T_a, units),
    }


@jax.jit
def _split(
    q: Float[Array, "samples n"], v: Float[Array, "samples n"], p: Params
) -> tuple[Array, Array]:
    def one(q: Configuration, v: Velocity) -> tuple[Scalar, Scalar]:
        M = MINIMAL.mass(q, p)
        J = jax.jacfwd(tip)(q, p)
        rate = J[1] @ v
        mobility = J[1] @ jnp.linalg.solve(M, J[1])
        T_c = 0.5 * rate**2 / mobility
        return T_c, 0.5 * v @ M @ v - T_c

    return jax.vmap(one)(q, v)


# Drawing


def draw(folder: str | Path) -> list[Path]:
    """Draw the archived data; returns the files written."""
    folder = Path(folder)
    cases, described = archive.read(_data(folder), CASES)
    workspace, _ = archive.read(_data(folder), MAP)
    impacts, about = archive.read(_data(folder), IMPACTS)
    with style.use():
        files = style.save(_figure_1(workspace), folder, "figure_1")
        files += style.save(_figure_2(impacts), folder, "figure_2")
    version, settings = described["versions"]["nsdyn"], about["settings"]
    words = CAPTIONS.format(version=version, wall=WALL, mu=settings["mu"], step=settings["step"])
    files += tables.write(folder, _case_table(cases))
    files += tables.write(folder, _projection_table(cases), "projections")
    return [*files, write(folder / "captions.txt", words)]


def agreement(data: Dataset) -> list[tuple[bool, bool, bool]]:
    """For each case, whether xi, T_a/T_c and T_a after agree with the printed values."""
    near = lambda found, printed: bool(abs(found / printed - 1) <= 0.1)
    rows = zip(PAPER, data.xi.values, data.T_a.values, data.T_a_after.values, strict=True)
    return [(round(x, 2) == p.xi, near(a, p.T_a), near(b, p.T_a_after)) for p, x, a, b in rows]


def _case_table(data: Dataset) -> Table:
    compared = [f"{x}\n{y}" for x in ("xi", "T_a/T_c", "T_a after") for y in VERDICT]
    head = ("case", "d", "gamma", *compared, *(f"Lam\n{x}" for x in IMPULSE))
    rows = []
    for i, (case, agrees) in enumerate(zip(PAPER, agreement(data), strict=True)):
        said = ["yes" if yes else "no" for yes in agrees]
        found = {
            name: _zero(float(data[name].values[i])) for name in ("xi", "T_a", "T_a_after", "Lam")
        }
        rows.append((
            str(i + 1), f"{case.d:g}", str(case.gamma), f"{case.xi:.2f}", f"{found['xi']:.4f}", said[0],
            f"{case.T_a / case.T_c:.3g}", f"{found['T_a'] / case.T_c:.3g}", said[1],
            f"{case.T_a_after:.3g}", f"{found['T_a_after']:.3g}", said[2],
            f"{case.Lam:.2f}", f"{found['Lam']:.2f}", f"{case.Lam / found['Lam']:.3f}",
        ))  # fmt: skip
    return Table(TABLE, head, rows, [AGREES])


def _zero(x: float) -> float:
    return x if abs(x) > 1e-12 else 0.0


def _projection_table(data: Dataset) -> Table:
    pairs = [f"{x}\n{k}" for x in ("printed", "computed", "difference") for k in (1, 2)]
    head = ("projection", "d", *pairs, "agrees")
    rows = []
    for i, (d, printed) in enumerate(PROJECTIONS.items()):
        for name, variable, values in (
            ("P_c^T B^T", "P_c_B", printed[0]),
            ("P_a^T B^T", "P_a_B", printed[1]),
        ):
            found = data[variable].values[i]
            off = np.abs(found - values)
            wrong = " and ".join(str(k + 1) for k in np.flatnonzero(off > CLOSE))
            numbers = [f"{x:.4f}" for x in (*values, *(_zero(x) for x in found), *off)]
            rows.append((name, f"{d:g}", *numbers, f"no, component {wrong}" if wrong else "yes"))
    return Table(PROJECTED, head, rows, [WITHIN])


def _figure_1(data: Dataset) -> Figure:
    fig, axes = style.figure((1, 2), style.DOUBLE, 2.6)
    look: dict[str, Any] = {"cmap": "cividis", "norm": BoundaryNorm(LEVELS, 256)}
    for k, (ax, letter, gamma) in enumerate(zip(axes, "ab", (90, 60), strict=True)):
        xi = np.ma.masked_invalid(data.xi.values[:, :, k])
        filled = ax.contourf(data.x, data.y, xi, LEVELS, **look)
        ax.contour(data.x, data.y, xi, LEVELS[1:-1], colors="white", linewidths=0.4)
        ax.contour(
            data.x,
            data.y,
            _margin(data.x.values, data.y.values),
            [0.0],
            colors="0.2",
            linewidths=1.0,
        )
        _mechanism(ax)
        _experiments(ax, gamma)
        style.panel(ax, letter)
        ax.set(xlabel="$x$ [m]", xlim=(-0.36, 0.36), ylim=(-0.03, 0.36), aspect="equal")
        ax.xaxis.set_major_locator(MultipleLocator(0.1))
        ax.yaxis.set_major_locator(MultipleLocator(0.1))
    axes[0].set_ylabel("$y$ [m]")
    bar = fig.colorbar(filled, ax=axes, shrink=0.95, pad=0.015, ticks=LEVELS, format="%g")
    bar.ax.tick_params(labelsize=7, direction="out")
    bar.set_label(r"$\xi = T_c / \, T$")
    return fig


def _margin(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """How far a point is inside the workspace; negative outside."""
    shift = TABLE_1["l5"] / 2
    near = TABLE_1["l2"] - TABLE_1["l1"]
    far = TABLE_1["l2"] + TABLE_1["l1"]
    reach = np.stack([np.hypot(x[None, :] - side, y[:, None]) for side in (shift, -shift)])
    return np.minimum(far - reach.max(axis=0), reach.min(axis=0) - near)


def _mechanism(ax: Axes) -> None:
    problem = problems.get("pantograph", d=0.1, distance=0.0)
    line = np.asarray(links(problem.q0, problem.params))
    ax.axhline(WALL, color="black", linewidth=0.8, linestyle=(0, (4, 2)))
    ax.plot(
        *line.T,
        color="black",
        linewidth=1.4,
        linestyle="-",
        marker="o",
        markersize=3,
        markerfacecolor="white",
    )
    ax.plot(line[[0, -1], 0], line[[0, -1], 1], "s", color="black", markersize=4)


def _experiments(ax: Axes, gamma: int) -> None:
    for i, case in enumerate(PAPER):
        if case.gamma == gamma:
            ax.plot(
                case.d, WALL, "o", color="white", markeredgecolor="black", markersize=4.5, zorder=4
            )
            ax.annotate(
                f"{i + 1}: {case.xi:.2f}", (case.d, WALL), (0, 6), textcoords="offset points", ha="center", fontsize=style.points(7.5),
                bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.85},
            )  # fmt: skip


def _figure_2(data: Dataset) -> Figure:
    fig, axes = style.figure((2, 3), style.DOUBLE, 3.9)
    for i, case in enumerate(PAPER):
        ax = axes[3 * (i % 2) + i // 2]
        t = 1e3 * data.t.values[i]
        left = int(np.flatnonzero(np.diff(t) == 0)[0])
        for name, k, printed in (
            ("T_c", 0, (case.T_c, case.T_c_after)),
            ("T_a", 1, (case.T_a, case.T_a_after)),
        ):
            look: dict[str, Any] = {
                "color": style.COLOURS[k],
                "linestyle": style.DASHES[k],
                "label": f"${name}$",
            }
            ax.plot(t, data[name].values[i], **look)
            mark: dict[str, Any] = {
                "color": style.COLOURS[k],
                "markerfacecolor": "white",
                "zorder": 3,
            }
            ax.plot(
                t[left] + np.array([-BESIDE, BESIDE]),
                printed,
                style.MARKERS[k],
                linewidth=0,
                markersize=4,
                **mark,
            )
        ax.set_title(
            rf"case {i + 1}: $d$ = {case.d:g} m, $\gamma$ = {case.gamma}$^\circ$", loc="left", pad=4
        )
        ax.set(xlim=(-1e3 * APPROACH, 1e3 * APPROACH), ylim=(-0.4, 10.8))
        ax.xaxis.set_major_locator(MultipleLocator(10))
        ax.yaxis.set_major_locator(MultipleLocator(5))
    for ax in axes[3:]:
        ax.set_xlabel("time after the impact [ms]")
    for ax in axes[::3]:
        ax.set_ylabel("kinetic energy [mJ]")
    handles, names = axes[0].get_legend_handles_labels()
    fig.legend(handles, names, loc="outside upper center", ncols=2)
    return fig
