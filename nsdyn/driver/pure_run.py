"""`rollout`: initial state in, solution out; pure, so that jit, vmap, jacfwd and grad work on
it."""

from typing import Any

import jax.numpy as jnp

from nsdyn.driver.arguments import MAX_EVENTS, Setup, Values, setup, traced_values
from nsdyn.driver.march import Sample, empty_log, march
from nsdyn.driver.outcome import Verdict, ending, facts, least_norm_impulses
from nsdyn.laws.base import AbstractLaw
from nsdyn.mechanics.model import Model
from nsdyn.problem import Problem
from nsdyn.results.events import Events
from nsdyn.results.solution import Solution
from nsdyn.stepping.integrator import IntegratorLike, State
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
    max_events: int = MAX_EVENTS,
    tolerances: Tolerances | None = None,
) -> Solution:
    """Simulate, purely. `step`, `t_end`, `save_every` and `max_events` are static.

    The event table has the capacity `max_events`. Nothing raises: look at `status`.
    """
    run = setup(
        problem,
        integrator,
        law,
        step=step,
        t_end=t_end,
        save_every=save_every,
        max_events=max_events,
        tolerances=tolerances,
    )
    return solve(run, traced_values(problem, params, q0, v0), run.about(problem))


def solve(run: Setup, values: Values, about: dict[str, Any]) -> Solution:
    """The solution of a run whose arguments were checked."""
    p = values.params
    model, state = start(run, values)
    log = empty_log(run, model, state, run.max_events, run.max_events, p)
    end, log, samples = march(run, model, state, log, p)
    t = jnp.asarray(run.grid.times())
    samples = at_times(samples, t)
    found = facts(run, model, samples, p)
    verdict, good = Verdict.none(state).with_samples(samples, found)
    how = ending(end, verdict, run.grid.t_end)
    blank = lambda x: jnp.where(good[:, None], x, jnp.nan)
    records = least_norm_impulses(model, log, values.q0, p)
    return Solution(
        t=t,
        q=blank(samples.point.q),
        v=blank(samples.point.v),
        lam=blank(found.lam),
        mode=samples.point.mode,
        energy=jnp.where(good, found.energy, jnp.nan),
        events=Events(records, jnp.minimum(log.count, log.limit)),
        status=how.status,
        t_stop=how.t_stop,
        mode_stop=how.mode_stop,
        effort=end.effort,
        **about,
    )


def start(run: Setup, values: Values) -> tuple[Model, State]:
    """The model that knows how large the motion is, and the state at the beginning of a run."""
    t = jnp.asarray(run.grid.t0, float)
    model, point = run.model(values).begin(values.q0, values.v0, t, values.params)
    return model, run.integrator.start(model, point, values.params)


def at_times(samples: Sample, t) -> Sample:
    """Samples with the times of the grid: a state that failed may have kept an older one."""
    return Sample(samples.point.replace(t=t), samples.lam, samples.status)
