"""Joint locking of the planar 3R pendulum, with and without momentum balance (A. Mueller, section
6, figures 1 to 4).

Joint 2 locks at t_1 = 0.8 s, joint 3 at t_2 = 1.3 s. RK4 with h = 1e-4 s. Two laws:
`MuellerTransition`, which balances the momenta of the joints that stay free, and `ZeroVelocity`,
which only sets the rate of the locked joint to zero. Shown are the joint angles, joint rates, total
energy and the momenta

    P = F^T M(q) v                                                                             (1)

of the unlocked joints; F has one column for each.
"""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc, Circle, FancyBboxPatch, Polygon
from matplotlib.ticker import MultipleLocator
from matplotlib.transforms import Affine2D
from xarray import Dataset

import nsdyn
from nsdyn import problems
from nsdyn.problems.three_r_pendulum import shape
from nsdyn.studies.lib import archive, both_laws, style
from nsdyn.studies.lib.both_laws import CONSISTENT, INCONSISTENT
from nsdyn.studies.lib.limits import with_limits

LOCKED_FROM_MODE = np.array([np.inf, 1, 2])  # joint 1 never locks
ROW_INTERVAL = 1e-3
WIDTH = 0.2  # of a link, in m (the paper's cross section)

CAPTIONS = """\
Joint locking of a planar 3R pendulum. After A. Mueller, section 6, figures 1 to 4; computed with nsdyn {version}.

Assumed: the paper's drawing is not available, so the angle convention and the end time are ours. q1 is measured from
the horizontal, q2 and q3 from the previous link, all counter-clockwise; gravity acts along -y; t_end = {t_end:g} s.
Method: {integrator}, step {step:g} s. Joint 2 locks at t1 = {locks[0]:g} s, joint 3 at t2 = {locks[1]:g} s.
Where a curve jumps, the open circle is its limit from the left and the filled one its limit from the right.

Figure 1. The pendulum at t = 0 and at the two locking instants, momentum-consistent run. Locked joints are filled.
Figure 2. Locking that is not momentum-consistent: the rate of the locked joint is set to zero, the others are kept.
a) Joint angles. b) Generalised momenta P = F^T M(q) q' of the joints that are not locked: they jump at t1 and t2.
Figure 3. Momentum-consistent locking. a) Joint angles. b) Joint rates: all of them jump at t1, two at t2.
Figure 4. Momentum-consistent locking. a) Generalised momenta of the joints that are not locked: they are continuous.
b) Total energy: preserved between the locking instants, lost at them.
"""


def run(folder: str | Path, step: float = 1e-4, force: bool = False) -> list[Path]:
    """Compute missing data, then draw; returns the files drawn."""
    compute(folder, step, force)
    return draw(folder)


# Computing


def compute(folder: str | Path, step: float = 1e-4, force: bool = False) -> list[Path]:
    """Archive both runs. Data with the same settings and code are kept unless `force` is
    given."""
    return both_laws.compute(
        folder, problems.get("three_r_pendulum"), step, ROW_INTERVAL, _variables, force
    )


def _variables(problem: nsdyn.Problem, trajectory: nsdyn.Trajectory) -> dict[str, tuple]:
    """Arrays over time, with two rows at each event: the limits from the left and from the
    right."""
    events = trajectory.events
    t, q, v, mode = with_limits(trajectory)
    p = problem.params
    momentum = jax.vmap(lambda q, v: problem.system.mass(q, p) @ v)(q, v)  # (1)
    free = np.where(mode[:, None] >= LOCKED_FROM_MODE, np.nan, momentum)
    return {
        "t": ("row", t, {"units": "s"}),
        "q": (("row", "joint"), q, {"units": "rad", "long_name": "joint angle"}),
        "v": (("row", "joint"), v, {"units": "rad/s", "long_name": "joint rate"}),
        "P": (
            ("row", "joint"),
            free,
            {"units": "kg m2/s", "long_name": "momentum of unlocked joint"},
        ),
        "energy": (
            "row",
            jax.vmap(lambda q, v: problem.system.energy(q, v, p))(q, v),
            {"units": "J"},
        ),
        "mode": ("row", mode.astype(np.int32)),
        "t_lock": ("event", events.t, {"units": "s"}),
        "q_lock": (("event", "joint"), events.q, {"units": "rad"}),
        "Lam": (
            ("event", "constraint"),
            events.Lam,
            {"units": "N m s", "long_name": "locking impulse"},
        ),
    }


# Drawing


def draw(folder: str | Path) -> list[Path]:
    """Draw the archived data; returns the files written."""
    consistent, described = archive.read(both_laws.data(folder), CONSISTENT)
    inconsistent, _ = archive.read(both_laws.data(folder), INCONSISTENT)
    with style.use():
        files = style.save(
            _figure_1(consistent, described["settings"]["params"]), folder, "figure_1"
        )
        files += style.save(_two_panels(inconsistent, _angles, _momenta), folder, "figure_2")
        files += style.save(_two_panels(consistent, _angles, _rates), folder, "figure_3")
        files += style.save(_two_panels(consistent, _momenta, _energy), folder, "figure_4")
    settings = described["settings"]
    text = CAPTIONS.format(
        version=described["versions"]["nsdyn"], locks=settings["params"]["locks"], **settings
    )
    return [
        *files,
        archive.replace(Path(folder) / "captions.txt", lambda path: path.write_text(text, "utf-8")),
    ]


def _two_panels(data: Dataset, left: Callable, right: Callable) -> Figure:
    fig, axes = style.figure((1, 2), style.DOUBLE, 2.4)
    for ax, letter, plot in zip(axes, "ab", (left, right), strict=True):
        plot(ax, data)
        style.panel(ax, letter)
        style.mark_times(ax, data.t_lock.values, ("$t_1$", "$t_2$"))
        ax.set_xlabel("time $t$ [s]")
        ax.set_xlim(float(data.t[0]), float(data.t[-1]))
        ax.xaxis.set_major_locator(MultipleLocator(0.5))
    return fig


def _lines(ax: Axes, data: Dataset, values: np.ndarray, symbol: str) -> None:
    for joint in range(values.shape[1]):
        style.jumping_line(ax, data.t.values, values[:, joint], label=f"${symbol}_{joint + 1}$")
    ax.legend()


def _angles(ax: Axes, data: Dataset) -> None:
    _lines(ax, data, data.q.values, "q")
    ax.set_ylabel("joint angle [rad]")
    ax.set_ylim(-5.2, 2.2)  # the same in figures 2 and 3, for comparison


def _rates(ax: Axes, data: Dataset) -> None:
    _lines(ax, data, data.v.values, r"\dot q")
    ax.set_ylabel("joint rate [rad/s]")


def _momenta(ax: Axes, data: Dataset) -> None:
    _lines(ax, data, data.P.values, "P")
    ax.set_ylabel(r"generalised momentum [kg m$^2$/s]")


def _energy(ax: Axes, data: Dataset) -> None:
    style.jumping_line(ax, data.t.values, data.energy.values / 1000)
    ax.set_ylabel("total energy [kJ]")
    ax.set_ylim(0, None)


def _figure_1(data: Dataset, params: dict) -> Figure:
    fig, (ax,) = style.figure((1, 1), style.COLUMN, 3.45)
    shapes = [np.asarray(shape(q, params)[0]) for q in (data.q.values[0], *data.q_lock.values)]
    labels = ("$t = 0$", *(f"$t_{i + 1} = {t:g}$ s" for i, t in enumerate(data.t_lock.values)))
    places = (
        ((-8, -6), "right"),
        ((2, 8), "center"),
        ((6, -12), "left"),
    )  # offsets from the tip, in points
    _ground(ax)
    for k, (points, label, (offset, side)) in enumerate(zip(shapes, labels, places, strict=True)):
        _pendulum(ax, points, k >= LOCKED_FROM_MODE, grey=str(0.92 - 0.14 * k), zorder=2 + k)
        ax.annotate(label, points[-1], offset, textcoords="offset points", ha=side)
    _angle_arcs(ax, shapes[0])
    ax.annotate(
        "",
        (-1.5, 0.6),
        (-1.5, 1.3),
        arrowprops={"arrowstyle": "-|>", "color": "black", "linewidth": 0.8},
    )
    ax.text(-1.4, 0.9, "$g$")
    for face, label in (("white", "free joint"), ("black", "locked joint")):
        ax.plot([], [], "o", color="black", markerfacecolor=face, markeredgewidth=0.7, label=label)
    ax.legend(loc="upper left", handlelength=1.0)
    ax.set(xlabel="$x$ [m]", ylabel="$y$ [m]", xlim=(-2.3, 2.3), ylim=(-2.2, 2.6), aspect="equal")
    return fig


def _pendulum(ax: Axes, points: np.ndarray, locked: np.ndarray, grey: str, zorder: float) -> None:
    for a, b in pairwise(points):
        length = np.hypot(*(b - a))
        angle = np.arctan2(*(b - a)[::-1])
        ends = f"round,pad=0,rounding_size={WIDTH / 2}"
        box = FancyBboxPatch(
            (-WIDTH / 2, -WIDTH / 2), length + WIDTH, WIDTH, boxstyle=ends, mutation_aspect=1
        )
        box.set(facecolor=grey, edgecolor="0.25", linewidth=0.6, zorder=zorder)
        box.set_transform(Affine2D().rotate(angle).translate(*a) + ax.transData)
        ax.add_patch(box)
    for point, is_locked in zip(points[:-1], locked, strict=True):
        face = "black" if is_locked else "white"
        ax.add_patch(
            Circle(point, 0.055, facecolor=face, edgecolor="black", linewidth=0.7, zorder=6)
        )


def _ground(ax: Axes) -> None:
    ax.add_patch(
        Polygon(
            [(0, 0), (-0.22, 0.38), (0.22, 0.38)],
            facecolor="white",
            edgecolor="black",
            linewidth=0.7,
        )
    )
    ax.plot([-0.35, 0.35], [0.38, 0.38], color="black", linestyle="-", linewidth=1.0)
    for x in np.linspace(-0.28, 0.35, 6):
        ax.plot([x, x - 0.09], [0.38, 0.5], color="black", linestyle="-", linewidth=0.5)


def _angle_arcs(ax: Axes, points: np.ndarray) -> None:
    """q_1 from the horizontal, q_2 and q_3 from the extension of the previous link."""
    links = np.diff(points, axis=0)
    angles = np.degrees(np.arctan2(links[:, 1], links[:, 0]))
    before = 0.0
    for i, (start, angle) in enumerate(zip(points[:-1], angles, strict=True)):
        along = np.array([np.cos(np.radians(before)), np.sin(np.radians(before))])
        ax.plot(
            *np.stack([start, start + 0.75 * along]).T,
            color=style.GREY,
            linestyle=(0, (3, 2)),
            linewidth=0.6,
        )
        ax.add_patch(Arc(start, 1.1, 1.1, theta1=before, theta2=angle, linewidth=0.7, zorder=1))
        beside = np.radians(before + 9)  # between the extended line and the link
        x, y = start + 0.86 * np.array([np.cos(beside), np.sin(beside)])
        ax.text(x, y, f"$q_{i + 1}$", ha="center", va="center")
        before = angle
