"""Starts of a sweep that contacts refuse: looked for in all runs at once.

A program gives margins for every run, numbers of which none should be negative
(`AbstractConstraint.start_margins`). Where one is, the run in which it is least is checked as
`simulate` checks it: round-off is none of its errors.
"""

from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from nsdyn._jitted import compiled_quickly
from nsdyn._types import Time
from nsdyn.checks import problem_check
from nsdyn.constraints.base import AbstractConstraint
from nsdyn.driver.arguments import Batch, Values
from nsdyn.driver.batch_run import own_values
from nsdyn.errors import ProblemError
from nsdyn.problem import Problem

AT_A_TIME = 4096  # runs


def check_starts(problem: Problem, batch: Batch) -> None:
    """Raise ProblemError, with the number of the run, if a run of the sweep cannot start."""
    for part in problem.constraint:
        if part.unilateral:
            for run in _suspects(problem, part, batch):
                _check(problem, batch, run)


def _suspects(problem: Problem, part: AbstractConstraint, batch: Batch) -> list[int]:
    """The runs in which one of the margins is least, if it is negative there."""
    margins = np.concatenate(list(_margins(problem, part, batch)))[: batch.total]
    margins = np.where(np.isnan(margins), -np.inf, margins)
    wrong = margins.min(axis=0) < 0
    return sorted(set(margins.argmin(axis=0)[wrong].tolist()))


def _margins(problem: Problem, part: AbstractConstraint, batch: Batch) -> Iterator[np.ndarray]:
    t = jnp.asarray(np.float64(problem.t0))
    size = min(AT_A_TIME, 1 << (batch.total - 1).bit_length())
    for first in range(0, batch.total, size):
        own = own_values(batch, first, size)
        yield np.asarray(_margins_of_many(part, own, batch.shared, t))


@compiled_quickly
def _margins_of_many(part: AbstractConstraint, own: Values, shared: Values, t: Time) -> Array:
    def margins(own: Values) -> Array:
        start = eqx.combine(own, shared)
        return part.start_margins(start.q0, start.v0, t, start.params)

    return jax.vmap(margins)(own)


def _check(problem: Problem, batch: Batch, run: int) -> None:
    own = jax.tree.map(lambda x: np.asarray(x)[run], batch.own)
    start = jax.tree.map(jnp.asarray, eqx.combine(own, batch.shared))
    places = lambda x: (x.params, x.q0, x.v0)
    started = eqx.tree_at(places, problem, start[:3], is_leaf=lambda x: x is None)
    try:
        problem_check.check_start(started)
    except ProblemError as error:
        raise ProblemError(f"trajectory {run}: {error}") from error
