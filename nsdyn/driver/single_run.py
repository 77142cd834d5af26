"""`simulate`: a run for people. It checks first, compiles once, and turns a status into an error
that helps."""

import dataclasses
from typing import Any

import equinox as eqx
import jax

from nsdyn._compiler import warn_if_untuned
from nsdyn.analysis.singular import warn_if_singular
from nsdyn.driver import backend as backends
from nsdyn.driver.arguments import (
    MAX_EVENTS,
    Setup,
    Values,
    plain_values,
    refuse_tracers,
    setup,
)
from nsdyn.driver.collect import collect, sampled
from nsdyn.driver.dense import kept_steps
from nsdyn.errors import SimulationError
from nsdyn.laws.base import AbstractLaw, as_status
from nsdyn.problem import Problem
from nsdyn.results.solution import Solution, plain
from nsdyn.status import Status
from nsdyn.stepping.integrator import IntegratorLike
from nsdyn.tolerances import Tolerances


def simulate(
    problem: Problem,
    integrator: IntegratorLike,
    *,
    step: float,
    law: AbstractLaw | None = None,
    params: Any = None,
    q0=None,
    v0=None,
    t_end: float | None = None,
    save_every: int = 1,
    save_at: Any = None,
    max_events: int = MAX_EVENTS,
    tolerances: Tolerances | None = None,
    check: bool = True,
) -> Solution:
    """Simulate a problem. Raises ProblemError before anything is compiled, SimulationError where a
    run stops early.

    Samples are taken on the grid, after `save_every` steps each, or at the times `save_at`, in any
    order: they come sorted, by dense output between the steps (`nsdyn.driver.dense`).

    `params`, `q0` and `v0` take the place of the problem's own. Other values of these, and another
    `step`, `t_end`, `save_every`, `save_at` or `max_events`, compile nothing anew.
    """
    warn_if_untuned()
    run = setup(
        problem,
        integrator,
        law,
        step=step,
        t_end=t_end,
        save_every=save_every,
        save_at=save_at,
        max_events=max_events,
        tolerances=tolerances,
    )
    refuse_tracers("simulate", problem, run, params, q0, v0)
    values = plain_values(problem, params, q0, v0)
    if check:
        from nsdyn.checks.problem_check import check_start

        problem = eqx.tree_at(
            lambda x: (x.params, x.q0, x.v0), problem, tuple(values), is_leaf=lambda x: x is None
        )
        check_start(problem, problem.q0, problem.v0, problem.params)
    solution = raise_if_failed(computed(problem, run, values))
    if check:
        warn_if_singular(problem, solution.events)
    return solution


def computed(problem: Problem, run: Setup, values: Values) -> Solution:
    """The solution of a run whose arguments were checked, trimmed, however it ended."""
    nothing: Any = jax.tree.map(lambda _: None, values)
    kept = kept_steps(run)
    programs, backend = backends.programs(run, nothing, values)
    found = collect(run, nothing, values, kept, programs)
    params = plain(values.params, other=lambda name, x: x)
    about = {**run.about(problem), "backend": backend}
    solution = found.solution(run.grid.times_of(kept), params, about)
    solution = solution if solution.ok else solution.trimmed()
    if run.save_at is None:
        return solution
    at_times = sampled(run, nothing, values, found).solution(run.save_at, params, about).trimmed()
    return dataclasses.replace(at_times, events=solution.events, t_stop=solution.t_stop)


def raise_if_failed(solution: Solution) -> Solution:
    """The solution, or the error that its run ended with."""
    status = as_status(solution.status)
    if status is Status.OK:
        return solution
    t = float(solution.t_stop)
    mode = solution.mode_stop.tolist()
    name, words = solution.meaning(status)
    text = f"{solution.problem}: stopped at t = {t:.9g} in mode {mode} ({name}): {words}."
    if status is Status.NOT_CONVERGED:
        tries, left = solution.iterations_worst, float(solution.effort.change)
        text += f" After {tries} iterations the last change was {left:.3g} times what is allowed."
    text += f" The error's .partial holds the {len(solution.t)} samples until then"
    raise SimulationError(text, status=status, t=t, mode=mode, partial=solution)
