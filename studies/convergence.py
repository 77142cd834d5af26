"""Convergence across an event: error against step size for capturing and event-driven schemes.

A particle slides on a track with a corner at (l, 0), where its direction turns by th = atan(a).
Both sides have the curvature k,

    g_i = n_i.d - k |d|^2/2,    d = q - (l, 0),    n_1 = (0, 1),  n_2 = (-sin th, cos th)        (1)

k = 0 is the point on track, whose exact motion is known in closed form (study `switching_track`); k
> 0 are two circles of radius 1/k. In the angle phi from the corner these are pendulums,

    phi'' = -g k sin(phi + th_i),    th_1 = 0,  th_2 = th                                        (2)

solved here by DOP853 in double precision. At the corner, reached with the speed v_0, phi' is
multiplied by cos th (G_E = G+). On the straight track the force is constant, so methods of order 2
and higher make errors only at the corner; the curved track shows their order.

Errors are measured in two ways. First, the largest |q - q(t)| and |v - v(t)| in the last fifth of
the run, away from the jump; at a single instant an error might just change its sign. Second, the
Hausdorff distance of the graphs of the velocity, with the jump filled in:

    {(t_k/t_end, v_k/v_0)} with the segment from (t_s, v-) to (t_s, v+)                          (3)

because v at a fixed time near the jump does not converge. Every error is the worst over several
phases, the positions of the corner within its step.
"""

from collections.abc import Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.integrate import OdeSolution, solve_ivp
from xarray import Dataset

import nsdyn
from nsdyn import laws
from nsdyn._repr import settings_text
from nsdyn._types import (
    AnyTime,
    Configuration,
    Matrix,
    Number,
    Params,
    Scalar,
    Velocity,
)
from nsdyn.analysis.metrics import graph_distance
from nsdyn.stepping.integrator import AbstractIntegrator
from nsdyn.studies import switching_track
from nsdyn.studies.lib import archive, style
from nsdyn.studies.lib.schemes import NEWTON, RHO_INF, SCHEMES, plain, table, write

TRACK = switching_track.TRACK
CURVATURES = {"straight": 0.0, "curved": 1.0}  # 1/m
T_SWITCH = 0.12  # the grid point before the corner
STEPS = (0.02, 0.01, 0.005, 0.0025)  # T_SWITCH and t_end are multiples of all
PHASES = (0.13, 0.38, 0.63, 0.88)
LATE = 0.8  # fraction of t_end from which errors count as away from the jump
MEASURES = {"q": "$q$ [m]", "v": "$v$ [m/s]", "graph": "graph of $v$ [1]"}
FAMILIES = ("index", "nsga", "moreau_jean", "event")  # columns of the legend
ROUND_OFF = 1e-11  # smaller errors do not measure an order

CAPTIONS = """\
Convergence across an event: a particle on a track with a corner, straight (the point on track of I. Patil and
O. Bruls) and curved. Computed with nsdyn {version}.

Assumed: all parameters are ours: m = {m:g} kg, slope a = {a:g} at the corner, v0 = {v0:g} m/s at the corner,
g = {g:g} m/s2, curvature {k:g} 1/m of the curved track, t_end = {t_end:g} s, rho_inf = {rho:g}, Newton tolerance {newton:g}.
G_E = G+. The corner is reached shortly after t = {t_switch:g} s, at the fractions {phases} of a step; errors are
the worst of these.

Figure 1. Error against step size, above on the straight track (closed-form solution), below on the curved one (DOP853
in angle coordinates). a), d) Position and b), e) velocity, largest error of the last fifth of the run. c), f) Hausdorff distance
between the graphs of the numerical and the exact velocity, with time in units of t_end, velocity in units of v0 and the
jump filled in. Thin lines have the slopes 1, 2 and 4. Time-stepping schemes detect the corner at the end of its
step and have order 1. Event-driven schemes keep the order of their smooth method; on the straight track they are exact up
to round-off. Index 1 never detects the corner. The velocity of index 3 rings after the corner, initially as strongly for
small steps as for large ones, so its graph does not converge.
"""

TABLE = """\
Observed orders across an event (finest pair of steps) and errors with the finest step, h = {step:g} s; worst of {phases} positions
of the corner in its step. q and v: largest error of the last fifth of the run; graph: Hausdorff distance of the graph of v.
"-" where the error is round-off. Parameters are ours; see captions.txt.
"""


def run(
    folder: str | Path,
    steps: Sequence[float] = STEPS,
    force: bool = False,
    schemes: Iterable[str] = tuple(SCHEMES),
) -> list[Path]:
    """Compute missing data, then draw; returns the files drawn."""
    compute(folder, steps, force, schemes)
    return draw(folder)


# The mechanism


def mass(q: Configuration, p: Params) -> Matrix:
    return p["m"] * jnp.eye(2)


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    weight = p["m"] * p["g"]
    return jnp.stack([jnp.zeros_like(weight), -weight])


def _arc(q: Configuration, p: Params, nx: Number, ny: Number) -> Scalar:
    x = q[0] - p["l"]
    y = q[1]
    return nx * x + ny * y - 0.5 * p["k"] * (x * x + y * y)  # (1)


def before(q: Configuration, t: AnyTime, p: Params) -> Scalar:
    return _arc(q, p, 0.0, 1.0)


def after(q: Configuration, t: AnyTime, p: Params) -> Scalar:
    th = jnp.arctan(p["a"])
    return _arc(q, p, -jnp.sin(th), jnp.cos(th))


def past_corner(q: Configuration, p: Params) -> Scalar:
    return q[0] - p["l"]


PROBLEM = nsdyn.Problem(
    "track_with_corner",
    nsdyn.System(mass=mass, force=force),
    nsdyn.Switching(modes=(before, after), switches=(past_corner,)),
    q0=[0.0, 0.0],
    v0=[1.0, 0.0],
    t_end=TRACK["t_end"],
    params={"m": TRACK["m"], "a": TRACK["a"], "l": TRACK["l"], "g": TRACK["g"], "k": 0.0},
)


# Exact motion


class Exact:
    """q and v at given times, for a corner reached at t_switch with the speed v_0; in closed form
    for k = 0, else from (2)."""

    def __init__(self, k: float, t_switch: float) -> None:
        self.k = k
        self.t_switch = t_switch
        self.th = np.arctan(TRACK["a"])
        if k != 0:  # from the corner backwards and forwards
            self.first = self._swing(0.0, TRACK["v0"], 0.0)
            self.second = self._swing(TRACK["t_end"], TRACK["v0"] * np.cos(self.th), self.th)

    def _swing(self, t_end: float, speed: float, th: float) -> OdeSolution:
        rate = lambda _, y: [y[1], -TRACK["g"] * self.k * np.sin(y[0] + th)]  # (2)
        options = {"method": "DOP853", "rtol": 1e-13, "atol": 1e-14, "dense_output": True}
        return solve_ivp(rate, (self.t_switch, t_end), [0.0, self.k * speed], **options).sol

    @property
    def jump(self) -> tuple:
        """Time, velocity before and velocity after."""
        up = np.array([np.cos(self.th), np.sin(self.th)])
        return self.t_switch, np.array([TRACK["v0"], 0.0]), TRACK["v0"] * np.cos(self.th) * up

    def __call__(self, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.k == 0:
            return switching_track.exact(t, TRACK["l"] - TRACK["v0"] * self.t_switch)
        late = t >= self.t_switch
        phi, w = np.where(
            late,
            self.second(np.maximum(t, self.t_switch)),
            self.first(np.minimum(t, self.t_switch)),
        )
        th = np.where(late, self.th, 0.0)
        x = np.sin(phi + th) - np.sin(th)
        y = np.cos(th) - np.cos(phi + th)
        q = np.array([TRACK["l"], 0.0]) + np.stack([x, y], axis=1) / self.k
        return q, (w / self.k)[:, None] * np.stack([np.cos(phi + th), np.sin(phi + th)], axis=1)


@cache
def solution(k: float, step: float, phase: float) -> Exact:
    """The motion that reaches the corner `phase` steps after T_SWITCH."""
    return Exact(k, T_SWITCH + phase * step)


# Errors


def graph(t: np.ndarray, v: np.ndarray, jumps: list[tuple]) -> np.ndarray:
    """The graph (3) of rows (t, v) and jumps (t, v-, v+)."""
    point = lambda t, v: np.concatenate([[t / TRACK["t_end"]], np.asarray(v) / TRACK["v0"]])
    segments = [[point(*row)] * 2 for row in zip(t, v, strict=True)]
    return np.array(segments + [[point(t, a), point(t, b)] for t, a, b in jumps])


# Computing


def compute(
    folder: str | Path,
    steps: Sequence[float] = STEPS,
    force: bool = False,
    schemes: Iterable[str] = tuple(SCHEMES),
) -> list[Path]:
    """Archive the errors of each scheme, for steps in descending order, and the table of them. Data
    with the same settings and code are kept unless `force` is given."""
    data = Path(folder) / "data"
    files = []
    common = {"track": TRACK, "curvatures": CURVATURES, "newton": NEWTON}
    common |= {"steps": steps, "phases": PHASES, "t_switch": T_SWITCH, "late": LATE}
    for name in schemes:
        integrator = SCHEMES[name].integrator
        settings = common | {"integrator": settings_text(integrator)}
        make = partial(_errors, integrator, steps)
        files.append(archive.update(data, name, settings, make, force=force))
    settings = common | {
        "schemes": {name: settings_text(SCHEMES[name].integrator) for name in schemes}
    }
    make = partial(_worst, data, schemes)
    return [*files, archive.update(data, "table", settings, make, after=schemes, force=force)]


def _worst(data: Path, schemes: Iterable[str]) -> dict[str, tuple]:
    """The worst errors of all phases and the observed order of the finest pair of steps, NaN where
    errors are round-off."""
    runs = [archive.read(data, name)[0] for name in schemes]
    errors = np.stack([[run[measure].values.max(axis=-1) for measure in MEASURES] for run in runs])
    h = runs[0].h.values
    ratio = errors[..., -2] / np.maximum(errors[..., -1], np.finfo(float).tiny)
    order = np.where(errors[..., -2] > ROUND_OFF, np.log(ratio) / np.log(h[-2] / h[-1]), np.nan)
    dims = ("scheme", "measure", "track")
    return {
        "scheme": ("scheme", np.array(list(schemes))),
        "measure": ("measure", np.array(list(MEASURES))),
        "track": ("track", np.array(list(CURVATURES))),
        "h": ("step", h, {"units": "s"}),
        "error": ((*dims, "step"), errors, {"units": "m, m/s and 1"}),
        "order": (dims, order),
    }


def _errors(integrator: AbstractIntegrator, steps: Sequence[float]) -> dict[str, tuple]:
    found = np.array(
        [
            [[_error(integrator, k, h, phase) for phase in PHASES] for h in steps]
            for k in CURVATURES.values()
        ]
    )
    dims = ("track", "step", "phase")
    errors = {name: (dims, found[..., i]) for i, name in enumerate(MEASURES)}
    return {
        "h": ("step", np.array(steps), {"units": "s"}),
        "name": ("track", np.array(list(CURVATURES))),
    } | errors


def _error(integrator: AbstractIntegrator, k: float, h: float, phase: float) -> list[float]:
    """The errors of one run: in q and v away from the jump, and of the graph."""
    exact = solution(k, h, phase)
    t, q, v, jumps = trajectory(integrator, exact, h)
    wanted_q, wanted_v = exact(t)
    graphs = graph(t, v, jumps), graph(t, wanted_v, [exact.jump])
    late = t >= (LATE - 1e-9) * TRACK["t_end"]
    most_of = lambda x, y: float(np.max(np.linalg.norm((x - y)[late], axis=1)))
    return [most_of(q, wanted_q), most_of(v, wanted_v), graph_distance(*graphs)]


def trajectory(integrator: AbstractIntegrator, exact: Exact, h: float) -> tuple:
    """t, q, v and the jumps until t_end, for the step h."""
    q0, v0 = (x[0] for x in exact(np.zeros(1)))
    run = nsdyn.simulate(
        PROBLEM,
        integrator,
        step=h,
        law=laws.PostSwitchGradient(),
        params={**PROBLEM.params, "k": exact.k},
        q0=q0,
        v0=v0,
        check=False,
    )
    jumps = [(event.t, event.v_before, event.v_after) for event in run.events]
    return run.t, run.q, run.v, jumps


# Drawing


def draw(folder: str | Path) -> list[Path]:
    """Draw the archived data; returns the files written."""
    folder = Path(folder)
    data, described = archive.read(folder / "data", "table")
    settings = described["settings"]
    with style.use():
        files = style.save(_figure(data), folder, "figure_1")
    phases = ", ".join(f"{phase:g}" for phase in settings["phases"])
    words = CAPTIONS.format(
        version=described["versions"]["nsdyn"], rho=RHO_INF, k=CURVATURES["curved"], newton=settings["newton"],
        t_switch=settings["t_switch"], phases=phases, **TRACK,
    )  # fmt: skip
    numbers = TABLE.format(step=min(settings["steps"]), phases=len(settings["phases"])) + _tables(
        data
    )
    return [*files, write(folder / "captions.txt", words), write(folder / "table.txt", numbers)]


def _tables(data: Dataset) -> str:
    parts = []
    for track in CURVATURES:
        rows = []
        for name in data.scheme.values:
            one = data.sel(scheme=name, track=track)
            orders = [
                "-" if np.isnan(x) else f"{abs(x) if abs(x) < 5e-3 else x:.2f}"
                for x in one.order.values
            ]
            rows.append([plain(str(name)), *orders, *(f"{x:.1e}" for x in one.error.values[:, -1])])
        head = [
            f"{track} track",
            *(f"order {m}" for m in MEASURES),
            *(f"error {m}" for m in MEASURES),
        ]
        parts.append("\n" + table(head, rows))
    return "".join(parts)


def _figure(data: Dataset) -> Figure:
    fig, axes = style.figure((2, 3), style.DOUBLE, 5.6)
    places = [(track, measure) for track in CURVATURES for measure in MEASURES]
    for ax, letter, (track, measure) in zip(axes, "abcdef", places, strict=True):
        chosen = data.error.sel(track=track, measure=measure)
        values = dict(zip(map(str, data.scheme.values), chosen.values, strict=True))
        for name, errors in values.items():
            if errors[-1] > ROUND_OFF:
                ax.loglog(data.h.values, errors, **_look(name))
        _slopes(ax, values, data.h.values)
        ax.set(xlabel="step $h$ [s]", ylabel=f"error: {MEASURES[measure]}")
        style.panel(ax, letter)
    for ax in axes[:3]:
        ax.set_ylim(4e-4, 4)
        ax.text(
            0.97,
            0.04,
            "event-driven: round-off",
            ha="right",
            transform=ax.transAxes,
            fontsize=style.points(7),
            color="0.25",
        )
    axes[1].set_title("straight track", loc="center", pad=5)
    axes[4].set_title("curved track", loc="center", pad=5)
    _legend(fig, [str(name) for name in data.scheme.values])
    return fig


def _legend(fig: Figure, names: list[str]) -> None:
    """One column per family; short columns are padded."""
    columns = [[name for name in names if name.startswith(family)] for family in FAMILIES]
    height = max(map(len, columns))
    handles = []
    labels = []
    for column in columns:
        handles += [Line2D([], [], **_look(name)) for name in column]
        handles += [Line2D([], [], linestyle="none")] * (height - len(column))
        labels += [SCHEMES[name].label for name in column] + [""] * (height - len(column))
    fig.legend(handles, labels, loc="outside upper center", ncols=len(FAMILIES))


def _look(name: str) -> dict[str, Any]:
    scheme = SCHEMES[name]
    face = scheme.colour if scheme.dash == "-" else "white"
    edge = {"marker": scheme.marker, "markerfacecolor": face, "markeredgewidth": 0.8}
    return {"color": scheme.colour, "linestyle": scheme.dash, **edge}


def _slopes(ax: Axes, values: dict[str, np.ndarray], h: np.ndarray) -> None:
    """Reference slopes below the curves, and ticks at the steps."""
    slopes = {
        1: (("index_2", "nsga"), 0.4),
        2: (("event_index_2",), 0.25),
        4: (("event_rk4",), 0.1),
    }
    for slope, (names, share) in slopes.items():
        at = share * min((values[name][0] for name in names if name in values), default=0.0)
        if at > ROUND_OFF:
            ax.plot(h, at * (h / h[0]) ** slope, color=style.GREY, linestyle="-", linewidth=0.6)
            label: dict[str, Any] = {
                "textcoords": "offset points",
                "va": "center",
                "fontsize": 7,
                "color": "0.25",
            }
            ax.annotate(str(slope), (h[0], at), (3, 0), **label)
    ax.set_xticks(h, [f"{x:g}" for x in h])
    ax.minorticks_off()
