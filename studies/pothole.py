"""Wheel over a pothole with the nonsmooth generalized-alpha scheme (Patil and Bruls, last result
slide).

The wheel rolls on the road, turns about the near edge of the hole, then about the far edge, and
rolls on. Its velocity jumps only half-way between the edges. With the impulse along the gradient at
position E between those before and after, in the mass metric,

    omega+ = omega- cos(E th)/cos((1 - E) th),  cos th = (I + m R^2 cos 2 psi)/J,  sin psi = l_p/(2
    R)  (1)

with J = I + m R^2. As the wheel turns about its contact point throughout, the speed v after the
hole follows from the energy,

    omega_m^2 = (v_0/R)^2 + 2 m g R (1 - cos psi)/J,  (v/R)^2 = r^2 omega_m^2 - 2 m g R (1 - cos
    psi)/J  (2)

where r is the ratio (1). Reactions are shown as forces on the wheel, -G^T lam, and impulses as -D^T
Lam with the directions D of the law, because lam and Lam depend on the scaling of the constraints.
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator
from xarray import Dataset

import nsdyn
from nsdyn import laws, problems
from nsdyn._repr import settings_text
from nsdyn.analysis.residuals import points_of
from nsdyn.problems.wheel_over_pothole import ground, shape
from nsdyn.studies.lib import archive, style, tables
from nsdyn.studies.lib.schemes import NEWTON, RHO_INF, SCHEMES, write
from nsdyn.studies.lib.tables import Table

WHEEL = {
    "R": 0.35,
    "m": 10.0,
    "I": 0.6125,
    "l": 0.5,
    "lp": 0.3,
    "v0": 3.0,
    "g": 9.81,
    "t_end": 0.6,
}  # ours
POSITIONS = (1.0, 0.75, 0.5)
LABELS = {1.0: "$E = 1$", 0.75: r"$E = \frac{3}{4}$", 0.5: r"$E = \frac{1}{2}$"}
MIDDLE = 1  # the event half-way between the edges, of three
DEPTH = 0.1  # of the drawn hole; the wheel never reaches its bottom

CAPTIONS = """\
Wheel over a pothole under NSGA (three-level). After the last result slide of I. Patil and O. Bruls; computed with
nsdyn {version}.

Assumed: the slides give no numbers, so all of them are ours: R = {R:g} m, m = {m:g} kg, I = {I:g} kg m2, hole from l = {l:g} m
of width l_p = {lp:g} m, v0 = {v0:g} m/s, g = {g:g} m/s2, rho_inf = {rho:g}. Step h = {step:g} s, Newton tolerance {newton:g}.
G_E is interpolated in the mass metric; E = 1 is G_E = G+, as on the slide; E = 1/2 preserves energy, with NSGA up to an
error of order h. t1, t2, t3 are the times at which the run with E = 1 passes the near edge, the middle and the far
edge. Open circles are limits from the left, filled circles from the right. The constraints are bilateral, as on the slides:
the reaction may pull the wheel towards the edge (a negative vertical force); on a road that cannot pull the wheel
would lift off there.

Figure 1. The wheel at t1, t2, t3 (thick), before and after, with the path of its centre (dashed), for E = 1.
Figure 2. a) Path of the centre. b), c), d) Velocities; they jump at t2 only. e) Total energy. f) Vertical reaction
force on the wheel; it jumps with the curvature of the path.
Figure 3. a) Horizontal reaction force on the wheel. b) Impulse of the reaction on the wheel at t2: horizontal, vertical, and
its moment about the centre divided by R. With E = 1/2 it is vertical, along the bisector of the corner.
"""

TABLE = """\
Wheel over a pothole under NSGA (three-level), h = {step:g} s: ratio omega+/omega- at the middle, speed after the hole, energy
lost there. "exact" is the closed form. Parameters are ours; see captions.txt."""


def run(folder: str | Path, step: float = 1e-3, force: bool = False) -> list[Path]:
    """Compute missing data, then draw; returns the files drawn."""
    compute(folder, step, force)
    return draw(folder)


# Computing


def compute(folder: str | Path, step: float = 1e-3, force: bool = False) -> list[Path]:
    """Archive a run for each E. Data with the same settings and code are kept unless `force` is
    given."""
    integrator = SCHEMES["nsga"].integrator
    files = []
    for E in POSITIONS:
        law = laws.IntermediateGradient(E)  # a traced number: one program for all
        problem = problems.get("wheel_over_pothole", **WHEEL)
        settings = archive.numbers_of(problem) | {"step": step, "newton": NEWTON, "E": E}
        settings |= {"integrator": settings_text(integrator), "law": settings_text(law)}
        make = partial(_run, problem, integrator, law, step)
        files.append(archive.update(_data(folder), _name(E), settings, make, force=force))
    return files


def _run(
    problem: nsdyn.Problem, integrator: Any, law: laws.AbstractLaw, step: float
) -> dict[str, tuple]:
    trajectory = nsdyn.simulate(problem, integrator, step=step, law=law, check=False)
    return _variables(problem, trajectory)


def _data(folder: str | Path) -> Path:
    return Path(folder) / "data"


def _name(E: float) -> str:
    return f"E_{E:g}"


def ratio(E: float) -> float:
    """omega+/omega- of (1)."""
    I, m, R = WHEEL["I"], WHEEL["m"], WHEEL["R"]
    th = np.arccos((I + m * R**2 * np.cos(2 * _psi())) / (I + m * R**2))
    return float(np.cos(E * th) / np.cos((1 - E) * th))


def final_speed(E: float) -> float:
    """v of (2)."""
    I, m, R = WHEEL["I"], WHEEL["m"], WHEEL["R"]
    gain = 2 * m * WHEEL["g"] * R * (1 - np.cos(_psi())) / (I + m * R**2)
    return float(R * np.sqrt(ratio(E) ** 2 * ((WHEEL["v0"] / R) ** 2 + gain) - gain))


def energy_lost(E: float) -> float:
    J = WHEEL["I"] + WHEEL["m"] * WHEEL["R"] ** 2
    return 0.5 * J * (WHEEL["v0"] ** 2 - final_speed(E) ** 2) / WHEEL["R"] ** 2


def _psi() -> float:
    return float(np.arcsin(WHEEL["lp"] / (2 * WHEEL["R"])))


def _variables(problem: nsdyn.Problem, run: nsdyn.Trajectory) -> dict[str, tuple]:
    """Samples on the grid, and the events."""
    p, events = problem.params, run.events
    model = problem.model(p)
    gradient = jax.jit(jax.vmap(lambda point: model.jacobian(point, p)))
    force = -np.einsum("kmn,km->kn", gradient(points_of(problem, run)), run.lam)
    impulse = -np.einsum("kmn,km->kn", events.direction, events.Lam)
    energy = jax.vmap(lambda q, v: problem.system.energy(q, v, p))
    switch_energy = [
        energy(jnp.asarray(events.q), jnp.asarray(v)) for v in (events.v_before, events.v_after)
    ]
    mixed = "m and m/s; rad and rad/s for the third"
    return {
        "t": ("row", run.t, {"units": "s"}),
        "q": (("row", "coordinate"), run.q, {"long_name": "x, y, phi", "units": mixed}),
        "v": (("row", "coordinate"), run.v, {"long_name": "velocity", "units": mixed}),
        "lam": (("row", "constraint"), run.lam, {"long_name": "multiplier (force)"}),
        "force": (
            ("row", "coordinate"),
            force,
            {"long_name": "reaction on the wheel", "units": "N, N, N m"},
        ),
        "mode": ("row", run.mode.astype(np.int32)),
        "energy": ("row", run.energy, {"units": "J"}),
        "t_switch": ("event", events.t, {"units": "s"}),
        "q_switch": (("event", "coordinate"), events.q, {"units": mixed}),
        "v_before": (("event", "coordinate"), events.v_before, {"units": mixed}),
        "v_after": (("event", "coordinate"), events.v_after, {"units": mixed}),
        "energy_before": ("event", np.asarray(switch_energy[0]), {"units": "J"}),
        "energy_after": ("event", np.asarray(switch_energy[1]), {"units": "J"}),
        "Lam": (("event", "constraint"), events.Lam, {"long_name": "multiplier (impulse)"}),
        "impulse": (
            ("event", "coordinate"),
            impulse,
            {"long_name": "impulse on the wheel", "units": "N s, N s, N m s"},
        ),
    }


# Drawing


def draw(folder: str | Path) -> list[Path]:
    """Draw the archived data; returns the files written."""
    folder = Path(folder)
    found = {E: archive.read(_data(folder), _name(E)) for E in POSITIONS}
    runs = {E: data for E, (data, _) in found.items()}
    described = found[1.0][1]
    settings = described["settings"]
    with style.use():
        files = style.save(_poses(runs[1.0]), folder, "figure_1")
        files += style.save(_histories(runs), folder, "figure_2")
        files += style.save(_impulses(runs), folder, "figure_3")
    words = CAPTIONS.format(
        version=described["versions"]["nsdyn"], rho=RHO_INF, **(settings | WHEEL)
    )
    numbers = _table(runs, TABLE.format(**settings))
    return [*files, write(folder / "captions.txt", words), *tables.write(folder, numbers)]


def measured(run: Dataset) -> tuple[float, float, float]:
    """omega+/omega-, the speed after the hole and the energy lost in a run."""
    turned = run.v_after.values[MIDDLE, 2] / run.v_before.values[MIDDLE, 2]
    return (
        float(turned),
        float(run.v.values[-1, 0]),
        float(run.energy.values[0] - run.energy.values[-1]),
    )


def _table(runs: dict[float, Dataset], title: str) -> Table:
    exact = lambda name: (name, f"{name}\nexact")
    head = ("E", *exact("ratio"), *exact("speed m/s"), *exact("lost J"))
    rows = []
    for E, data in runs.items():
        pairs = zip(measured(data), (ratio(E), final_speed(E), energy_lost(E)), strict=True)
        rows.append((f"{E:g}", *(f"{x + 0.0:.6f}" for pair in pairs for x in pair)))
    return Table(title, head, rows, [])


def _poses(data: Dataset) -> Figure:
    fig, (ax,) = style.figure((1, 1), style.DOUBLE, 2.8)
    p = {key: jnp.asarray(value) for key, value in WHEEL.items()}
    q = data.q.values
    length = float(q[-1, 0] + WHEEL["R"] + 0.05)
    road = np.array(ground(p, length, DEPTH))
    road[0, 0] -= 0.05
    ax.fill_between(road[:, 0], road[:, 1], -0.2, color="0.88", linewidth=0)
    ax.plot(*road.T, color="black", linestyle="-", linewidth=1.0)
    passes = np.searchsorted(data.t.values, data.t_switch.values)
    last = len(q) - 1
    for k in (0, passes[0] // 2, (passes[2] + last) // 2, last):
        _wheel(ax, q[k], p, color=style.GREY, linestyle="-", linewidth=0.5)
    for k, pose in enumerate(data.q_switch.values):
        _wheel(ax, pose, p, color=style.COLOURS[k], linestyle=style.DASHES[k], linewidth=1.3)
        label: dict[str, Any] = {"ha": "center", "va": "bottom", "color": style.COLOURS[k]}
        ax.text(pose[0], 2 * WHEEL["R"] + 0.02, f"$t_{k + 1}$", **label)
    ax.plot(*q[:, :2].T, color="black", linestyle=style.DASHES[1], linewidth=1.0)
    ax.set(
        xlabel="$x$ [m]",
        ylabel="$y$ [m]",
        xlim=(road[0, 0], length),
        ylim=(-0.2, 0.85),
        aspect="equal",
    )
    return fig


def _wheel(ax: Axes, pose: np.ndarray, p: dict, **look: Any) -> None:
    ax.plot(*np.asarray(shape(jnp.asarray(pose), p)[0]).T, **look)


def _with_jumps(
    data: Dataset, rows: np.ndarray, before: np.ndarray, after: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows with both limits inserted at the middle, the only jump."""
    t = data.t.values
    when = float(data.t_switch[MIDDLE])
    at = np.searchsorted(t, when - 1e-12)  # a sample at the event holds the state after it
    return np.insert(t, at, [when, when]), np.insert(rows, at, [before[MIDDLE], after[MIDDLE]])


def _look(E: float) -> dict[str, Any]:
    k = POSITIONS.index(E)
    return {"color": style.COLOURS[k], "linestyle": style.DASHES[k], "label": LABELS[E]}


def _histories(runs: dict[float, Dataset]) -> Figure:
    fig, axes = style.figure((2, 3), style.DOUBLE, 4.3)
    for E, data in reversed(runs.items()):  # E = 1 on top
        axes[0].plot(*data.q.values[:, :2].T, **_look(E))
        for i, ax in enumerate(axes[1:4]):
            values = (data.v.values[:, i], data.v_before.values[:, i], data.v_after.values[:, i])
            style.jumping_line(ax, *_with_jumps(data, *values), **_look(E))
        energy = (data.energy.values, data.energy_before.values, data.energy_after.values)
        style.jumping_line(axes[4], *_with_jumps(data, *energy), **_look(E))
        _force(axes[5], data, 1, **_look(E))
    labels = (
        "$y$ [m]",
        "$v_x$ [m/s]",
        "$v_y$ [m/s]",
        r"$\omega$ [rad/s]",
        "energy [J]",
        "reaction $F_y$ [N]",
    )
    for ax, letter, label in zip(axes, "abcdef", labels, strict=True):
        style.panel(ax, letter)
        ax.set_ylabel(label)
    _over_time(axes[1:], runs[1.0])
    axes[0].set(xlabel="$x$ [m]", xlim=(WHEEL["l"] - 0.1, WHEEL["l"] + WHEEL["lp"] + 0.1))
    handles, names = axes[0].get_legend_handles_labels()
    fig.legend(handles[::-1], names[::-1], loc="outside upper center", ncols=3)
    return fig


def _force(ax: Axes, data: Dataset, component: int, **look: Any) -> None:
    """The reaction jumps with the curvature of the path, so no line crosses an event."""
    breaks = np.flatnonzero(np.diff(data.mode.values)) + 1
    ax.plot(
        np.insert(data.t.values, breaks, np.nan),
        np.insert(data.force.values[:, component], breaks, np.nan),
        **look,
    )


def _over_time(axes: list[Axes], data: Dataset) -> None:
    for ax in axes:
        ax.set(xlabel="time $t$ [s]", xlim=(0.1, 0.4))
        ax.xaxis.set_major_locator(MultipleLocator(0.1))
        style.mark_times(ax, data.t_switch.values, ("$t_1$", "$t_2$", "$t_3$"))


def _impulses(runs: dict[float, Dataset]) -> Figure:
    fig, (left, right) = style.figure((1, 2), style.DOUBLE, 2.4)
    scale = np.array([1.0, 1.0, WHEEL["R"]])
    hatches = ("", "////", "....")
    for E, data in reversed(runs.items()):
        _force(left, data, 0, **_look(E))
    for k, (E, data) in enumerate(runs.items()):
        colour = style.COLOURS[k]
        bars: dict[str, Any] = {
            "color": "white" if k else colour,
            "edgecolor": colour,
            "hatch": hatches[k],
            "linewidth": 1.0,
        }
        right.bar(
            np.arange(3) + 0.26 * (k - 1),
            data.impulse.values[MIDDLE] / scale,
            0.22,
            label=LABELS[E],
            **bars,
        )
    handles, names = left.get_legend_handles_labels()
    left.legend(handles[::-1], names[::-1], loc="upper right")
    _over_time([left], runs[1.0])
    left.set_ylabel("reaction $F_x$ [N]")
    right.axhline(0.0, color="black", linewidth=0.6, linestyle="-")
    right.set_xticks(range(3), ["horizontal", "vertical", "moment / $R$"])
    right.set_ylabel("impulse [N s]")
    right.tick_params(axis="x", length=0)
    right.legend()
    for ax, letter in ((left, "a"), (right, "b")):
        style.panel(ax, letter)
    return fig
