"""Residuals of the constraints along a run, at three levels, row by row:

    g,    psi = G v + g_t,    G v' + gamma    with    v' = M^-1 (f - G^T lam)                  (1)

where lam is the reaction that the scheme reports. Rows that are not live are zero. Held values of
locks are recomputed from the recorded events, so g does not show the gap that a scheme without a
position level leaves in the step in which it locks.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn._jitted import compiled_quickly
from nsdyn._types import Held, Params, Rows
from nsdyn.mechanics.model import Model, Point
from nsdyn.problem import Problem
from nsdyn.results.solution import Solution

SAME_INSTANT = 1e-9  # relative to a step


class Residuals(NamedTuple):
    """Residuals at the samples of a run, each of shape (samples, m)."""

    position: np.ndarray
    velocity: np.ndarray
    acceleration: np.ndarray


def residuals(problem: Problem, run: Solution) -> Residuals:
    """(1) at the samples of a run."""
    points = points_of(problem, run)
    found = _levels(problem.model(), problem.params, points, jnp.asarray(run.lam))
    return Residuals(*map(np.asarray, found))


PIECE = 1024  # points of a batch that are looked at together


def batch_residuals(problem: Problem, batch: Solution) -> Residuals:
    """(1) at the samples of all runs of a batch, arrays of shape (runs, samples, m)."""
    model, runs = problem.model(), [batch[i] for i in range(len(batch))]
    parts = [points_of(problem, run) for run in runs]
    together = lambda *x: np.concatenate([np.asarray(each) for each in x])
    points, lam = jax.tree.map(together, *((a, b.lam) for a, b in zip(parts, runs, strict=True)))
    found = []
    for first in range(0, len(lam), PIECE):  # filled up, so that it compiles once
        some = np.minimum(np.arange(first, first + PIECE), len(lam) - 1)
        here = jax.tree.map(lambda x, some=some: jnp.asarray(x[some]), (points, lam))
        found.append([np.asarray(x) for x in _levels(model, problem.params, *here)])
    shape = len(runs), len(lam) // len(runs), lam.shape[1]  # without constraints there are no rows
    fold = lambda x: np.concatenate(x)[: len(lam)].reshape(shape)
    return Residuals(*map(fold, zip(*found, strict=True)))


@compiled_quickly
def _levels(
    model: Model, p: Params, points: Point, lam: Float[Array, "samples m"]
) -> tuple[Array, ...]:
    def levels(point: Point, lam: Rows) -> tuple[Rows, ...]:
        live = model.live(point, p)
        G = jnp.where(live[:, None], model.jacobian(point, p), 0.0)
        a = model.system.solver(point.q, p)(model.force(point, p) - G.T @ lam)
        three = (model.rows(point, p), model.psi(point, p), G @ a + model.gamma(point, p))  # (1)
        return tuple(jnp.where(live, x, 0.0) for x in three)

    return jax.vmap(levels)(points, lam)


def points_of(problem: Problem, run: Solution) -> Point:
    """The samples of a run as points, with the held values of the constraints."""
    model = problem.model()
    held = _held(model, problem, run)
    t, q, v, mode = (jnp.asarray(x) for x in (run.t, run.q, run.v, run.mode))
    return Point(t=t, q=q, v=v, mode=mode, held=held)


def _held(model: Model, problem: Problem, run: Solution) -> Held:
    """The held values of the constraints at each sample, from the records of the events."""
    p = problem.params
    held = [tuple(part.hold(problem.q0, jnp.asarray(run.t0), p) for part in model.parts)]
    if not jax.tree.leaves(held):
        return held[0]
    for event in run.events:
        before = model.split_mode(jnp.asarray(event.mode_before))
        after = model.split_mode(jnp.asarray(event.mode_after))
        changed = [bool(jnp.any(a != b)) for a, b in zip(before, after, strict=True)]
        parts = zip(model.parts, changed, held[-1], strict=True)
        fresh = [c.hold(event.q, event.t, p) if new else old for c, new, old in parts]
        held.append(tuple(fresh))
    stacked = jax.tree.map(lambda *values: jnp.stack([jnp.asarray(x) for x in values]), *held)
    return jax.tree.map(lambda x: x[events_before(run.t, run.events.t)], stacked)


def events_before(t: np.ndarray, event_times: np.ndarray) -> np.ndarray:
    """The number of events before each sample. A sample at the instant of an event, up to
    round-off, comes after it."""
    slack = SAME_INSTANT * np.min(np.diff(t), initial=np.inf) if len(t) > 1 else 0.0
    return np.searchsorted(event_times, t + slack, side="right")
