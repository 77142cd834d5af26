"""Where a robot ends up after an emergency stop, for initial speeds, brake torques and two laws;
surrogate parameters.

The robot of `emergency_stop`, with brakes that catch a joint at the motor rate c. All initial rates
are multiplied by a, all brake torques by b. At the end of each stop, with the position x of the
flange in the world,

    d = |x_end - x_0|,   e = |x_end(ZeroVelocity) - x_end(MuellerTransition)|                    (1)

d is the distance that the flange travels with momentum-consistent locking, e the error of its
position without it. For c = 0 brakes only rub, no impulse acts and e = 0. One stop, (a, b) = SHOWN,
is kept in full, for figures and an animation.
"""

from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import ArrayLike
from xarray import Dataset

import nsdyn
from nsdyn import Solution, integrators, laws, problems
from nsdyn.problems.emergency_stop import HELD
from nsdyn.problems.geared_chain import tip_position
from nsdyn.studies.lib import archive, stopping_figures, stopping_movie, style, tables
from nsdyn.studies.lib.limits import with_limits
from nsdyn.studies.lib.schemes import write
from nsdyn.studies.lib.tables import Table

CONSISTENT, INCONSISTENT = "consistent", "inconsistent"
LAWS = {CONSISTENT: laws.MuellerTransition(), INCONSISTENT: laws.ZeroVelocity()}
CATCH = 40.0  # c, rad/s at the motor; assumed
GRID = (40, 25)  # initial speeds, brake torques
SPEEDS, TORQUES = (0.4, 1.15), (1.0, 2.5)  # a and b; assumed
SHOWN = (1.15, 1.0)
T_END = 0.5  # s; the slowest stop takes 0.33 s
ROW_INTERVAL = 5e-3
INTEGRATOR = integrators.EventDriven(integrators.RK4())

CAPTIONS = """\
Emergency stops of a 6R robot (Staubli RX130L, surrogate parameters); computed with nsdyn {version}.

Surrogate parameters: lengths, masses, rotors, brake torques and initial rates are assumed; see the descriptions of the
problems rx130l and emergency_stop. The motors are off. Each brake rubs, then catches its joint when the motor has slowed down to
{catch:g} rad/s (assumed), and holds it. The impulse of catching acts on all joints (momentum-consistent) or, wrongly,
on the caught joint only (not momentum-consistent). For brakes that only rub there is no impulse, and both agree.
Method: {integrator}, step {step:g} s. {count} stops with each law; {lost} of them did not come to rest within {t_end:g} s.

Figure 1. Maps over initial speed and brake torque, relative to those of the problem (surrogate parameters). a) Distance of
the end position of the flange from its position when the brakes engage, momentum-consistent. b) Distance between the end
positions with and without momentum-consistent locking. At an orange line the order in which joints lock changes, in b) with
one of the laws, and the error may jump. The cross is the stop of the other figures.
Figure 2. The robot when the brakes engage (grey) and at the end, with and without momentum balance (surrogate
parameters). a) From the side, b) from above. Dashed: paths of the flange. All joints are held at the end. Inset: the two
end positions of the flange, enlarged five times.
Figure 3. The same stops (surrogate parameters). a) Rates of the motors of the arm; solid: momentum-consistent, dotted: not.
b) Total energy: it never increases with momentum-consistent locking.
stop.gif. The same stops, {slower:g} times slower than in reality (surrogate parameters); a joint is filled while it is held,
shoulder and elbow, where two joints coincide, while either is held.
"""

TABLE = """\
Emergency stops of a 6R robot (surrogate parameters), {count} pairs of initial speeds and brake torques, brakes that catch at
{catch:g} rad/s."""


def run(
    folder: str | Path, step: float = 1e-2, force: bool = False, grid: tuple[int, int] = GRID
) -> list[Path]:
    """Compute missing data, then draw; returns the files drawn."""
    compute(folder, step, force, grid)
    return draw(folder)


# Computing


def compute(
    folder: str | Path, step: float = 1e-2, force: bool = False, grid: tuple[int, int] = GRID
) -> list[Path]:
    """Archive a sweep and one whole stop for each law. Data with the same settings and code are
    kept unless `force`."""
    problem = problems.get("emergency_stop", catch=CATCH, t_end=T_END)
    files = []
    for name, law in LAWS.items():
        settings = archive.numbers_of(problem) | {
            "catch": CATCH,
            "speeds": np.linspace(*SPEEDS, grid[0]),
            "torques": np.linspace(*TORQUES, grid[1]),
            "shown": SHOWN,
            "integrator": "EventDriven(RK4())",
            "law": type(law).__name__,
            "step": step,
        }
        for kind, variables in (("map", _map), ("stop", _stop)):
            make = partial(variables, problem, law, settings)
            files.append(
                archive.update(_data(folder), f"{kind}_{name}", settings, make, force=force)
            )
    return files


def _data(folder: str | Path) -> Path:
    return Path(folder) / "data"


def _changed(
    problem: nsdyn.Problem, speed: ArrayLike, torque: ArrayLike
) -> tuple[dict, np.ndarray]:
    """params and v0 with speed and torques multiplied by these factors; numbers, or arrays for a
    sweep."""
    each = lambda part, whole: np.asarray(part)[..., None] * np.asarray(whole)
    return problem.params | {"brake": each(torque, problem.params["brake"])}, each(
        speed, problem.v0
    )


def _map(
    problem: nsdyn.Problem, law: laws.AbstractLaw, settings: dict[str, Any]
) -> dict[str, tuple]:
    """The end of each stop, over torques x speeds."""
    shape = (len(settings["torques"]), len(settings["speeds"]))
    torque, speed = (
        x.ravel() for x in np.meshgrid(settings["torques"], settings["speeds"], indexing="ij")
    )
    params, v0 = _changed(problem, speed, torque)
    steps = round(T_END / settings["step"])
    out = nsdyn.sweep(
        problem,
        INTEGRATOR,
        step=settings["step"],
        law=law,
        params=params,
        v0=v0,
        save_every=steps,
        max_events=32,
    )
    rests = out.ok & (out.mode[:, -1] == HELD).all(axis=1)
    tip = np.asarray(jax.jit(jax.vmap(lambda q: tip_position(q, problem.params)))(out.q[:, -1]))
    last = out.events.t[np.arange(len(out)), np.maximum(out.events.count - 1, 0)]
    grid = lambda x: np.where(rests.reshape(-1, *[1] * (x.ndim - 1)), x, np.nan).reshape(
        *shape, *x.shape[1:]
    )
    return {
        "speed": ("a", settings["speeds"], {"long_name": "initial speed, relative"}),
        "torque": ("b", settings["torques"], {"long_name": "brake torque, relative"}),
        "start": (
            "xyz",
            tip_position(problem.q0, problem.params),
            {"units": "m", "long_name": "flange at the start"},
        ),
        "tip": (("b", "a", "xyz"), grid(tip), {"units": "m", "long_name": "flange at the end"}),
        "t_stop": (("b", "a"), grid(last), {"units": "s", "long_name": "time of the last lock"}),
        "order": (
            ("b", "a", "joint"),
            grid(lock_order(out)),
            {"long_name": "place of each joint in the order of locking"},
        ),
    }


def lock_order(out: Solution) -> np.ndarray:
    """For each trajectory, the number of the event at which each joint stopped for the last
    time."""
    held = (out.events.mode_after == HELD) & (out.events.mode_before != HELD)
    filled = np.arange(held.shape[1]) < out.events.count[:, None]
    numbers = np.arange(held.shape[1])[None, :, None]
    return np.max(np.where(held & filled[..., None], numbers, 0), axis=1).astype(float)


def _stop(
    problem: nsdyn.Problem, law: laws.AbstractLaw, settings: dict[str, Any]
) -> dict[str, tuple]:
    """The stop that is shown, with both limits at every event."""
    params, v0 = _changed(problem, *SHOWN)
    step = min(settings["step"], ROW_INTERVAL)
    every = max(1, round(ROW_INTERVAL / step))
    trajectory = nsdyn.simulate(
        problem,
        INTEGRATOR,
        step=step,
        law=law,
        params=params,
        v0=v0,
        save_every=every,
        max_events=32,
    )
    t, q, v, mode = with_limits(trajectory)
    p = problem.params
    return {
        "t": ("row", t, {"units": "s"}),
        "q": (("row", "joint"), q, {"units": "rad", "long_name": "motor angle"}),
        "v": (("row", "joint"), v, {"units": "rad/s", "long_name": "motor rate"}),
        "mode": (("row", "joint"), mode.astype(np.int32)),
        "tip": (("row", "xyz"), jax.jit(jax.vmap(lambda q: tip_position(q, p)))(q), {"units": "m"}),
        "energy": (
            "row",
            jax.jit(jax.vmap(lambda q, v: problem.system.energy(q, v, p)))(q, v),
            {"units": "J"},
        ),
        "t_event": ("event", trajectory.events.t, {"units": "s"}),
    }


# Drawing


def draw(folder: str | Path) -> list[Path]:
    """Draw the archived data; returns the files written."""
    folder = Path(folder)
    found = {
        key: archive.read(_data(folder), key)
        for kind in ("map", "stop")
        for key in (f"{kind}_{x}" for x in LAWS)
    }
    data = {key: value[0] for key, value in found.items()}
    described = found[f"map_{CONSISTENT}"][1]
    maps, stops = (
        (data[f"{kind}_{CONSISTENT}"], data[f"{kind}_{INCONSISTENT}"]) for kind in ("map", "stop")
    )
    with style.use():
        files = style.save(stopping_figures.maps(*maps, SHOWN), folder, "figure_1")
        files += style.save(stopping_figures.poses(*stops), folder, "figure_2")
        files += style.save(stopping_figures.histories(*stops), folder, "figure_3")
        files.append(stopping_movie.save(*stops, folder / "stop.gif"))
    lost = int(sum(np.isnan(x.t_stop.values).sum() for x in maps))
    settings = described["settings"] | {
        "count": maps[0].t_stop.size,
        "lost": lost,
        "slower": stopping_movie.SLOWER,
    }
    words = CAPTIONS.format(version=described["versions"]["nsdyn"], **settings)
    numbers = _table(*maps, TABLE.format(**settings))
    return [*files, write(folder / "captions.txt", words), *tables.write(folder, numbers)]


def _table(right: Dataset, wrong: Dataset, title: str) -> Table:
    distance = stopping_figures.distance(right)
    error = stopping_figures.error(right, wrong)
    values = {
        "distance of the flange, m": (distance, "{:.4f}"),
        "time of the last lock, s": (right.t_stop, "{:.4f}"),
        "wrong by (zero rates), mm": (1e3 * error, "{:.2f}"),
    }
    rows = [
        (name, *(shown.format(float(f(x))) for f in (np.nanmin, np.nanmedian, np.nanmax)))
        for name, (x, shown) in values.items()
    ]
    return Table(title, ("", "smallest", "median", "largest"), rows, [])
