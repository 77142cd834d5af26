"""Joint locking of a 6R robot, with and without momentum balance (A. Mueller, section 7, figures 6
to 8); surrogate parameters.

Joints 1, 2, 3 of `rx130l` lock at 0.05, 0.10, 0.15 s. Two laws: `MuellerTransition`, which balances
the momenta of the joints that stay free, and `ZeroVelocity`, which only sets the rate of the locked
joint to zero. Shown are, in motor coordinates, the rates, the angles and the momenta

    P = M(q) v                                                                                 (1)

of the unlocked motors, and where the arm stops.
"""

from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator
from xarray import Dataset

import nsdyn
from nsdyn import problems
from nsdyn.problems.geared_chain import mass, tip_position
from nsdyn.problems.rx130l import RATIO
from nsdyn.studies.lib import archive, both_laws, robot_drawing, style, tables
from nsdyn.studies.lib.both_laws import CONSISTENT, INCONSISTENT, LAWS
from nsdyn.studies.lib.limits import with_limits
from nsdyn.studies.lib.robot_drawing import ABOVE, SIDE
from nsdyn.studies.lib.schemes import write
from nsdyn.studies.lib.tables import Table

TITLES = {CONSISTENT: "momentum-consistent", INCONSISTENT: "not momentum-consistent"}
LOCKED_FROM_MODE = np.array([1, 2, 3, np.inf, np.inf, np.inf])  # the wrist never locks
ARM = 3
ROW_INTERVAL = 5e-4

CAPTIONS = """\
Joint locking of a 6R robot (Staubli RX130L, surrogate parameters). After A. Mueller, section 7, figures 6 to 8; computed
with nsdyn {version}.

Surrogate parameters: the source publishes neither the inertia parameters nor the initial state, so these figures show the
behaviour, not the numbers, of the paper. The description of the problem rx130l gives the origin of each number. Only
the gear ratio (100) and the lock times are from the source. The motors are off, the wrist is free.
Method: {integrator}, step {step:g} s. Joints 1, 2, 3 lock at t1 = {locks[0]:g} s, t2 = {locks[1]:g} s, t3 = {locks[2]:g} s.
Where a curve jumps, the open circle is its limit from the left and the filled one its limit from the right.

Figure 6. Locking that is not momentum-consistent (surrogate parameters). a) Generalised momenta P = M(q) q' of the motors that
are not locked: they jump. b) Motor rates: only the rate of the locking joint changes.
Figure 7. Momentum-consistent locking (surrogate parameters). a) Generalised momenta: continuous until the joint itself locks.
b) Motor rates: free joints jump at every lock.
Figure 8. Motor angles (surrogate parameters). a) Momentum-consistent locking. b) Locking that is not: the arm stops elsewhere.
Figure 9. The arm at the start (grey) and where it stops with (blue) and without (orange) momentum balance, a) from the side,
b) from above (surrogate parameters). Filled joints are locked. The dashed lines are the paths of the flange.
"""

TABLE = "Where the arm of the 6R robot stops (surrogate parameters): joint angles in degrees, flange in m."


def run(folder: str | Path, step: float = 1e-4, force: bool = False) -> list[Path]:
    """Compute missing data, then draw; returns the files drawn."""
    compute(folder, step, force)
    return draw(folder)


# Computing


def compute(folder: str | Path, step: float = 1e-4, force: bool = False) -> list[Path]:
    """Archive both runs. Data with the same settings and code are kept unless `force` is
    given."""
    return both_laws.compute(folder, problems.get("rx130l"), step, ROW_INTERVAL, _variables, force)


def _variables(problem: nsdyn.Problem, trajectory: nsdyn.Trajectory) -> dict[str, tuple]:
    """Arrays over time, with two rows at each lock: the limits from the left and from the right."""
    t, q, v, mode = with_limits(trajectory)
    p, events = problem.params, trajectory.events
    momentum = jax.jit(jax.vmap(lambda q, v: mass(q, p) @ v))(q, v)  # (1)
    free = np.where(mode[:, None] >= LOCKED_FROM_MODE, np.nan, momentum)
    return {
        "t": ("row", t, {"units": "s"}),
        "q": (("row", "joint"), q, {"units": "rad", "long_name": "motor angle"}),
        "v": (("row", "joint"), v, {"units": "rad/s", "long_name": "motor rate"}),
        "P": (
            ("row", "joint"),
            free,
            {"units": "kg m2/s", "long_name": "momentum of unlocked motor"},
        ),
        "tip": (("row", "xyz"), jax.jit(jax.vmap(lambda q: tip_position(q, p)))(q), {"units": "m"}),
        "energy": (
            "row",
            jax.jit(jax.vmap(lambda q, v: problem.system.energy(q, v, p)))(q, v),
            {"units": "J"},
        ),
        "mode": ("row", mode.astype(np.int32)),
        "t_lock": ("event", events.t, {"units": "s"}),
        "Lam": (
            ("event", "constraint"),
            events.Lam,
            {"units": "N m s", "long_name": "locking impulse at the motor"},
        ),
    }


# Drawing


def draw(folder: str | Path) -> list[Path]:
    """Draw the archived data; returns the files written."""
    folder = Path(folder)
    found = {name: archive.read(both_laws.data(folder), name) for name in LAWS}
    runs = {name: data for name, (data, _) in found.items()}
    described = found[CONSISTENT][1]
    with style.use():
        files = style.save(_momenta_and_rates(runs, INCONSISTENT), folder, "figure_6")
        files += style.save(_momenta_and_rates(runs, CONSISTENT), folder, "figure_7")
        files += style.save(_both_angles(runs), folder, "figure_8")
        files += style.save(_halts(runs), folder, "figure_9")
    settings = described["settings"]
    words = CAPTIONS.format(
        version=described["versions"]["nsdyn"], locks=settings["params"]["locks"], **settings
    )
    return [
        *files,
        write(folder / "captions.txt", words),
        *tables.write(folder, _table(runs)),
    ]


def _momenta_and_rates(runs: dict[str, Dataset], name: str) -> Figure:
    fig, axes = style.figure((1, 2), style.DOUBLE, 2.6)
    _panels(axes, (runs[name], runs[name]), (_momenta, _rates))
    for ax, variable in zip(axes, ("P", "v"), strict=True):
        ax.set_ylim(*_range(runs, variable))  # the same in figures 6 and 7
    fig.suptitle(f"RX130L with surrogate parameters, {TITLES[name]}", fontsize=style.points(8))
    return fig


def _both_angles(runs: dict[str, Dataset]) -> Figure:
    fig, axes = style.figure((1, 2), style.DOUBLE, 2.6)
    _panels(axes, (runs[CONSISTENT], runs[INCONSISTENT]), (_angles, _angles))
    for ax in axes:
        ax.set_ylim(*_range(runs, "q"))
    titles = " (a), ".join(TITLES.values())
    fig.suptitle(f"RX130L with surrogate parameters, {titles} (b)", fontsize=style.points(8))
    return fig


def _range(runs: dict[str, Dataset], variable: str) -> tuple[float, float]:
    values = np.concatenate([data[variable].values[:, :ARM].ravel() for data in runs.values()])
    margin = 0.05 * np.ptp(values[np.isfinite(values)])
    return float(np.nanmin(values) - margin), float(np.nanmax(values) + margin)


def _panels(
    axes: list[Axes], data: tuple[Dataset, Dataset], plots: tuple[Callable, Callable]
) -> None:
    for ax, letter, run, plot in zip(axes, "ab", data, plots, strict=True):
        plot(ax, run)
        style.panel(ax, letter)
        style.mark_times(ax, run.t_lock.values, ("$t_1$", "$t_2$", "$t_3$"))
        ax.set(xlabel="time $t$ [s]", xlim=(float(run.t[0]), float(run.t[-1])))
        ax.xaxis.set_major_locator(MultipleLocator(0.05))


def _lines(ax: Axes, data: Dataset, variable: str, symbol: str) -> None:
    for joint in range(ARM):
        style.jumping_line(
            ax, data.t.values, data[variable].values[:, joint], label=f"${symbol}_{joint + 1}$"
        )
    ax.legend(loc="upper right")


def _angles(ax: Axes, data: Dataset) -> None:
    _lines(ax, data, "q", "q")
    ax.legend(loc="lower right", bbox_to_anchor=(1.0, 0.16))  # between the curves
    ax.set_ylabel("motor angle [rad]")


def _rates(ax: Axes, data: Dataset) -> None:
    _lines(ax, data, "v", r"\dot q")
    ax.set_ylabel("motor rate [rad/s]")


def _momenta(ax: Axes, data: Dataset) -> None:
    _lines(ax, data, "P", "P")
    ax.set_ylabel(r"generalised momentum [kg m$^2$/s]")


def _halts(runs: dict[str, Dataset]) -> Figure:
    fig, axes = style.figure((1, 2), style.DOUBLE, 3.4)
    p = problems.get("rx130l").params
    points = lambda q: robot_drawing.skeleton(q, p)
    locked = np.isfinite(LOCKED_FROM_MODE)
    start = points(runs[CONSISTENT].q.values[0])
    limits = {SIDE: ((-0.3, 1.6), (-0.1, 1.4)), ABOVE: ((-0.3, 1.6), (-0.6, 0.9))}
    for ax, letter, view in zip(axes, "ab", (SIDE, ABOVE), strict=True):
        robot_drawing.floor(ax, view)
        robot_drawing.robot(ax, start, view, "0.75")
        for name, colour in ((INCONSISTENT, style.ORANGE), (CONSISTENT, style.BLUE)):
            data = runs[name]
            ax.plot(
                *data.tip.values[:, view].T, color=colour, linestyle=style.DASHES[1], linewidth=0.9
            )
            robot_drawing.robot(ax, points(data.q.values[-1]), view, colour, locked)
        robot_drawing.axes_of(ax, view, limits[view])
        style.panel(ax, letter)
    for colour, label in (
        ("0.75", "start"),
        (style.BLUE, TITLES[CONSISTENT]),
        (style.ORANGE, TITLES[INCONSISTENT]),
    ):
        axes[0].plot([], [], color=colour, linestyle="-", linewidth=4, label=label)
    fig.legend(loc="outside lower center", ncols=3)
    fig.suptitle("RX130L with surrogate parameters: where the arm halts", fontsize=style.points(8))
    return fig


def halts(data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """The joint angles of the arm, in degrees, and the position of the flange after the last
    lock."""
    last = int(np.flatnonzero(data.mode.values == ARM)[0])
    return np.degrees(data.q.values[last, :ARM] / RATIO), data.tip.values[last]


def _table(runs: dict[str, Dataset]) -> Table:
    head = ("locking", "joint 1", "joint 2", "joint 3", "x", "y", "z")
    rows = []
    for name, data in runs.items():
        angles, tip = halts(data)
        rows.append((TITLES[name], *(f"{x:.4f}" for x in angles), *(f"{x:.5f}" for x in tip)))
    return Table(TABLE, head, rows, [])
