"""`rollout`: initial state in, solution out; pure, so that jit, vmap, jacfwd and grad work on
it."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from nsdyn.driver.arguments import MAX_EVENTS, Setup, Values, setup, shown, traced_values
from nsdyn.driver.dense import kept_steps, samples_between, with_cut_grid
from nsdyn.driver.march import empty_log, march, start
from nsdyn.driver.outcome import Verdict, at_times, ending, facts, known, least_norm_impulses
from nsdyn.driver.program import Program
from nsdyn.laws.base import AbstractLaw
from nsdyn.problem import Problem
from nsdyn.results.events import Events
from nsdyn.results.solution import Solution
from nsdyn.stepping.integrator import IntegratorLike
from nsdyn.tolerances import Tolerances


def rollout(
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
) -> Solution:
    """Simulate, purely: `jit`, `vmap`, `grad` and `jacfwd` work on it. The arguments are those of
    `simulate`; `step`, `t_end`, `save_every`, `save_at` and `max_events` are static.

    The event table has the capacity `max_events`, `events.count` of its records are used. With
    `save_at` the states of all steps are in memory for a while. Nothing raises: look at `status`.
    """
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
    args = (run, traced_values(problem, params, q0, v0), run.about(problem))
    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(args)):
        return dataclasses.replace(solve(*args), **shown(problem))
    return dataclasses.replace(SOLVE(*args), **shown(problem))


def solve(run: Setup, values: Values, about: dict[str, Any]) -> Solution:
    """The solution of a run whose arguments were checked."""
    run = with_cut_grid(run)
    p = values.params
    model, state = start(run, values)
    log = empty_log(run, model, state, run.max_events, run.max_events, p)
    end, log, samples = march(run, model, state, log, p)
    kept = kept_steps(run)
    if run.save_at is not None:
        samples = jax.tree.map(lambda x: x[kept], samples)
    samples = at_times(samples, jnp.asarray(run.grid.times_of(kept)))
    found = facts(run, model, samples, p)
    verdict, good = Verdict.none(state).with_samples(samples, found)
    samples, energy = known(samples, found, good)
    records = least_norm_impulses(model, log, values.q0, p)
    if run.save_at is not None:
        samples, energy = samples_between(run, model, samples, energy, records, p)
    how = ending(end, verdict, run.grid.t_end)
    return Solution(
        t=samples.point.t,
        q=samples.point.q,
        v=samples.point.v,
        lam=samples.lam,
        mode=samples.point.mode,
        energy=energy,
        events=Events(records, jnp.minimum(log.count, log.limit)),
        status=how.status,
        t_stop=how.t_stop,
        mode_stop=how.mode_stop,
        effort=end.effort,
        **about,
    )


SOLVE = Program(solve)  # outside jit: compiled once, not at every call
