"""`simulate`: a run for people. It checks first, compiles once, and turns a status into an error
that helps."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nsdyn._compiler import warn_if_untuned
from nsdyn._version import __version__
from nsdyn.analysis.singular import warn_if_singular
from nsdyn.driver.grid import Grid
from nsdyn.driver.pure_run import MAX_EVENTS, Rollout, check_names, rollout, settings
from nsdyn.errors import ProblemError, SimulationError
from nsdyn.laws.base import AbstractLaw
from nsdyn.problem import Problem, as_arrays
from nsdyn.results.solution import EventTable, Trajectory, plain
from nsdyn.status import MESSAGES, Status
from nsdyn.stepping.integrator import AbstractIntegrator


def simulate(
    problem: Problem,
    integrator: AbstractIntegrator,
    *,
    step: float,
    law: AbstractLaw | None = None,
    params: Any = None,
    q0=None,
    v0=None,
    t_end: float | None = None,
    save_every: int = 1,
    max_events: int = MAX_EVENTS,
    check: bool = True,
) -> Trajectory:
    """Simulate a problem. Raises ProblemError before anything is compiled, SimulationError where a
    run stops early.

    `params`, `q0` and `v0` take the place of the problem's own; other values do not compile again.
    """
    warn_if_untuned()
    grid, law = settings(problem, integrator, step, law, t_end, save_every, max_events)
    refuse_tracers("simulate", problem, integrator, law, params, q0, v0)
    values = _params(problem, params), _vector(problem, "q0", q0), _vector(problem, "v0", v0)
    problem = eqx.tree_at(
        lambda x: (x.params, x.q0, x.v0), problem, values, is_leaf=lambda x: x is None
    )
    if check:
        from nsdyn.checks.problem_check import check_start

        check_start(problem, problem.q0, problem.v0, problem.params)
    out = _run(problem, integrator, law, grid, int(max_events))
    trajectory = finished(out, problem, integrator, law, grid)
    if check:
        warn_if_singular(problem, trajectory.events)
    return trajectory


# One program for all calls with the same functions, shapes and grid; parameters and initial state
# are its arguments.
@eqx.filter_jit
def _run(problem, integrator, law, grid: Grid, max_events: int) -> Rollout:
    return rollout(problem, integrator, law=law, **options(grid, max_events))


def options(grid: Grid, max_events: int) -> dict[str, Any]:
    """What `settings` found, as arguments of `rollout`."""
    return {
        "step": grid.step,
        "t_end": grid.t_end,
        "save_every": grid.save_every,
        "max_events": max_events,
    }


def refuse_tracers(function: str, *trees):
    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(trees)):
        raise ProblemError(
            f"{function}: found traced values, expected numbers. Inside jit, vmap or grad call "
            "nsdyn.rollout"
        )


def canonical_dtype(x, like=None):
    """An array of the type of `like` where that loses nothing, else of its own: other values
    compile nothing new."""
    if jnp.issubdtype(x.dtype, jax.dtypes.extended):  # random keys are no numbers
        return x
    array = np.asarray(x)
    keep = like is not None and np.can_cast(array.dtype, like.dtype, "safe")
    return jnp.asarray(array, like.dtype if keep else array.dtype)


def same_structure(a: Any, b: Any) -> bool:
    structures: list[Any] = [jax.tree.structure(tree) for tree in (a, b)]
    return structures[0] == structures[1]


def _params(problem: Problem, params):
    own = problem.params
    given = own if params is None else as_arrays(params)
    if isinstance(own, dict) and isinstance(given, dict):
        check_names(own, given)
    cast = lambda x, like=None: canonical_dtype(x, like) if eqx.is_array(x) else x
    if same_structure(own, given):
        return jax.tree.map(
            lambda x, like: cast(x, like if eqx.is_array(like) else None), given, own
        )
    return jax.tree.map(cast, given)


def _vector(problem: Problem, name: str, value):
    own = getattr(problem, name)
    if value is None:
        return canonical_dtype(own)
    vector = as_floats(name, value)
    if vector.shape != own.shape:
        raise ProblemError(
            f"{name}: expected shape {own.shape} as in the problem, found {vector.shape}"
        )
    return vector


def as_floats(name: str, value):
    try:
        return jnp.asarray(np.asarray(value, float))
    except (TypeError, ValueError) as error:
        raise ProblemError(f"{name}: expected numbers, found {value!r}") from error


def finished(out: Rollout, problem, integrator, law, grid: Grid) -> Trajectory:
    """The trajectory of a rollout, or the error that it ended with."""
    out = jax.tree.map(np.asarray, out)
    status = Status(int(out.status))
    lost = ~np.all(np.isfinite(out.q), axis=1) | ~np.all(np.isfinite(out.v), axis=1)
    good = len(lost) if status is Status.OK else int(np.argmax(np.append(lost, True)))
    events = EventTable.of(out.events.records, out.events.count)
    # NaN is noticed some steps after it arose: the first lost row is nearer. Nothing logged from
    # then on counts.
    t = float(min([out.t_stop, *out.t[good : good + 1]]))
    trajectory = Trajectory(
        **{
            name: np.array(getattr(out, name)[:good])
            for name in ("t", "q", "v", "lam", "mode", "energy")
        },
        events=events if status is Status.OK else events[events.t <= t],
        problem=problem.name,
        integrator=repr(integrator),
        law=repr(law),
        step=grid.step,
        save_every=grid.save_every,
        t0=grid.t0,
        t_end=grid.t_end,
        params=plain(problem.params),
        has_potential=problem.system.potential is not None,
        iterations=int(out.effort.total),
        iterations_worst=int(out.effort.worst),
        nsdyn_version=__version__,
    )
    if status is Status.OK:
        return trajectory
    mode = out.mode_stop.tolist()
    text = (
        f"{problem.name}: stopped at t = {t:.9g} in mode {mode} ({status.name}): "
        f"{MESSAGES[status]}."
    )
    if status is Status.NOT_CONVERGED:
        tries, left = int(out.effort.worst), float(out.effort.change)
        text += f" After {tries} iterations the last change was {left:.3g} times what is allowed."
    text += f" The error's .partial holds the {good} rows until then"
    raise SimulationError(text, status=status, t=t, mode=mode, partial=trajectory)
