"""Verification of a problem before any large program is compiled.

`check_start`, called by `simulate`, verifies what a run needs at its start:

    shapes,  M = M^T > 0,  solve = M^-1 b,  momentum = M v,
    g(q0, t0) = 0,  G v0 + g_t = 0,  and the requirements of each constraint                   (1)

`check` verifies this and the conditions of mode changes (`nsdyn.checks.switching`).
"""

import functools
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np

from nsdyn._expect import finite
from nsdyn._types import Configuration, Mode, Params, Time, Velocity
from nsdyn.checks.inputs import check_inputs
from nsdyn.checks.report import Report
from nsdyn.checks.sample import STEPS, Sample, begin, guards
from nsdyn.checks.start import StartRows, mass_matrix, mass_product, mass_solve, retraction
from nsdyn.checks.switching import check_mode_changes
from nsdyn.constraints.base import AbstractConstraint, Start
from nsdyn.errors import ProblemError
from nsdyn.mechanics.model import Model, Point, split
from nsdyn.problem import Problem


def check_start(problem: Problem) -> Report:
    """Verify a problem at its start."""
    return _start(problem)[0]


def check(problem: Problem, attempt: Callable) -> Report:
    """Verify a problem at its start and at its mode changes. `attempt` makes a run; it comes
    from the driver, which this room cannot import."""
    report, model, start = _start(problem)
    check_mode_changes(report, problem, model, start, attempt)
    return report


def _start(problem: Problem) -> tuple[Report, Model, Point]:
    if not isinstance(problem, Problem):
        raise ProblemError(f"problem: expected nsdyn.Problem(...), found {problem!r}")
    report = Report(f"{problem.name} at t0 = {problem.t0:g}")
    check_inputs(problem)
    q, v, p = problem.q0, problem.v0, problem.params
    t = jnp.asarray(np.float64(problem.t0))
    model = _model(problem, q, v, t, p)
    sizes = f"{q.shape[0]} coordinates, {v.shape[0]} velocities"
    report.add("shapes", f"{sizes}, {model.m} rows, {model.k} guards")
    model, point, s = begin(model, q, v, t, p)
    mass_matrix(report, s.M, problem.velocities)
    mass_solve(report, s)
    mass_product(report, s)
    retraction(report, problem.system, s, p)
    finite("System(force=...)", s.f, " at q0, v0")
    finite("System(potential=...)", s.V, " at q0")
    names = _row_names(model, point, p)
    rows = StartRows(model=model, point=point, p=p, s=s, names=names)
    rows.check_finite()
    for part, start in zip(model.parts, _starts(model, point, p, s), strict=True):
        part.check_start(report, start)
    rows.check(report)
    return report, model, point


def check_shapes(problem: Problem) -> None:
    """Raise ProblemError if a function of a problem returns a wrong shape."""
    q, v, p = problem.q0, problem.v0, problem.params
    t = jnp.asarray(np.float64(problem.t0))
    system = problem.system
    system.check_shapes(q, v, t, p)
    qdot = jax.eval_shape(system.rate, q, v, p)
    for part in problem.constraint:
        part.check_shapes(q, qdot, v, t, p)


def _model(problem: Problem, q: Configuration, v: Velocity, t: Time, p: Params) -> Model:
    """The model of a problem; raises ProblemError if a function returns a wrong shape."""
    check_shapes(problem)
    system = problem.system
    step = (problem.t_end - problem.t0) / STEPS
    try:
        model = problem.model(p, step=step)
    except ProblemError:
        raise
    except Exception as error:
        raise ProblemError(
            f"Problem(constraint=...): expected rows that can be differentiated, found {error}"
        ) from error
    first = lambda: model.join_modes([jnp.zeros(shape, int) for shape in model.mode_shapes])
    system.check_force(q, v, t, p, jax.eval_shape(first))
    return model


def _starts(model: Model, point: Point, p: Params, s: Sample) -> Iterator[Start]:
    """The start as each constraint sees it."""
    for k, mode in enumerate(model.split_mode(point.mode)):
        yield Start(
            q=point.q,
            qdot=s.B @ s.v,
            v=point.v,
            t=point.t,
            p=p,
            mode=np.asarray(mode),
            held=point.held[k],
            scale=model.scale,
            guards=functools.partial(_guard_values, model, point, p, s, k),
        )


def _guard_values(
    model: Model, point: Point, p: Params, s: Sample, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Guards of constraint k, and the bounds below which they count as zero."""
    if not model.guard_counts[k]:
        return np.zeros(0), np.zeros(0)
    at = guards(model, point, p)
    zero = float(model.tolerances.touch) * at.sizes(s)
    value, bound = (split(x, model.guard_counts)[k] for x in (at.value, zero))
    return value, bound


def _row_names(model: Model, point: Point, p: Params) -> list[str]:
    names: list[str] = []
    each = zip(model.parts, model.split_mode(point.mode), model.row_counts, strict=True)
    for k, (part, mode, count) in enumerate(each):
        prefix = f"constraint[{k}] " if len(model.parts) > 1 else ""
        names += [prefix + name for name in _named(part, point, p, mode, count)]
    return names


def _named(part: AbstractConstraint, point: Point, p: Params, mode: Mode, count: int) -> list[str]:
    names = part.row_names(point.q, point.t, p, mode, count)
    if len(names) != count:
        raise ProblemError(
            f"{type(part).__name__}.row_names: expected {count} names, one per row, found {names}"
        )
    return names
