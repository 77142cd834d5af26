"""Samples at arbitrary times, by dense output between the states that are known.

A time tau in the step from t_k to t_(k+1) lies between

    left:   the state at t_k, or the state after the last event of the step with t_e <= tau
    right:  the state at t_(k+1), or the state before the first event with t_e > tau             (1)

Between them the mode is that of `left`. With x = (tau - t_left)/h and h = t_right - t_left,

    q, v:   cubic Hermite interpolation (`nsdyn.stepping.detect`), with q' of the system and v' of
            the motion equations at both ends
    lam:    linear; at events the multipliers of the motion equations                            (2)

which is of order 4 in q and v: as good as the methods themselves. A time of the grid (but for a
billionth of a step) gives the state there, and one at the instant of an event the state after it.

With error control steps are too long for (2). There steps end at the times themselves, as accurate
as all others: the grid is cut (`with_cut_grid`), and samples are those of its steps.
"""

import dataclasses
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn.driver.arguments import Setup
from nsdyn.driver.grid import Grid
from nsdyn.driver.march import Sample
from nsdyn.driver.outcome import facts
from nsdyn.mechanics.formulations import lagrange
from nsdyn.mechanics.model import Model, Point
from nsdyn.stepping.detect import SLACK, hermite
from nsdyn.stepping.log import Event


class Places(NamedTuple):
    """Where times lie on a grid: the numbers of the steps before and after, and whether they are
    the time of the step before."""

    before: np.ndarray
    after: np.ndarray
    on_grid: np.ndarray

    @staticmethod
    def of(grid: Grid, times: np.ndarray) -> "Places":
        steps = (times - grid.t0) / grid.step
        before = np.minimum(np.floor(steps + SLACK), grid.steps).astype(int)
        before = np.where(times >= grid.t_end - SLACK * grid.step, grid.steps, before)
        on_grid = (before == grid.steps) | (np.abs(steps - before) <= SLACK)
        return Places(before, np.minimum(before + 1, grid.steps), on_grid)

    def kept(self, grid: Grid) -> np.ndarray:
        """The steps whose states are needed; the first and the last always are."""
        return np.unique(np.concatenate([self.before, self.after, [0, grid.steps]]))


def with_cut_grid(run: Setup) -> Setup:
    """The setup of a run whose steps end at the times `run.save_at`, if it needs that."""
    if run.save_at is None or not run.integrator.controls_error:
        return run
    return dataclasses.replace(run, grid=run.grid.cut_at(run.times))


def kept_steps(run: Setup) -> np.ndarray:
    """The numbers of the steps that a run records."""
    grid = run.grid
    if run.save_at is None:
        return grid.saved
    if grid.is_cut:
        ends = [grid.landmarks(grid.steps), [0, grid.steps]]
        return np.unique(np.concatenate([grid.number_at(run.times), *ends]))
    return Places.of(run.grid, run.times).kept(run.grid)


def rows_at_times(run: Setup) -> np.ndarray:
    """Which of the steps `kept_steps(run)` end at the times `run.save_at`, on a grid that was
    cut."""
    return np.searchsorted(kept_steps(run), run.grid.number_at(run.times))


class Bracket(eqx.Module):
    """What is known around a time, (1): the samples before and after it, the last event before and
    the first one after it, and whether these events lie between the samples. Or around many times,
    along the first axis."""

    t: Any
    on_grid: Any
    before: Sample
    after: Sample
    last: Event
    has_last: Any
    first: Event
    has_first: Any


def brackets(
    xp: Any, run: Setup, places: Places, kept: np.ndarray, samples: Sample, records: Event
) -> Bracket:
    """The brackets of the times `run.save_at`. `xp` is numpy or jax.numpy; `samples` are those of
    the steps `kept`."""
    t = run.times
    pick = lambda tree, rows: jax.tree.map(lambda x: x[rows], tree)
    before = pick(samples, np.searchsorted(kept, places.before))
    after = pick(samples, np.searchsorted(kept, places.after))
    # One record more stands for none at all.
    blank = lambda x: xp.full((1, *x.shape[1:]), np.nan if x.dtype.kind == "f" else -1, x.dtype)
    records = jax.tree.map(lambda x: xp.concatenate([x, blank(x)]), records)
    nobody = len(records.t) - 1
    times = xp.where(xp.isnan(records.t), np.inf, records.t)
    slack = SLACK * run.grid.step
    number = xp.sum(times[None, :] <= t[:, None] + slack, axis=1)
    last = pick(records, xp.where(number > 0, number - 1, nobody))
    first = pick(records, xp.minimum(number, nobody))
    return Bracket(
        t=xp.asarray(t),
        on_grid=xp.asarray(places.on_grid),
        before=before,
        after=after,
        last=last,
        has_last=(last.t > before.point.t) & ~places.on_grid,
        first=first,
        has_first=first.t <= after.point.t + slack,
    )


def sample_between(model: Model, b: Bracket, p) -> Sample:
    """The sample at the time of a bracket."""
    left = _left(model, b, p)
    right = _right(b, left)
    ends = (lagrange(model, left, p), lagrange(model, right, p))
    h = right.t - left.t
    inside = ~b.on_grid & (h > 0)
    # an event at tau may have a time that is larger by round-off
    x = jnp.maximum(jnp.where(inside, (b.t - left.t) / jnp.where(inside, h, 1.0), 0.0), 0.0)
    q = hermite(x, h, left.q, model.qdot(left, p), right.q, model.qdot(right, p))
    v = hermite(x, h, left.v, ends[0].a, right.v, ends[1].a)
    lam_left = jnp.where(b.has_last, ends[0].lam, b.before.lam)
    lam_right = jnp.where(b.has_first, ends[1].lam, b.after.lam)
    lam = (1 - x) * lam_left + x * lam_right  # (2)
    choose = lambda here, there: jnp.where(inside, there, here)
    point = left.replace(t=b.t, q=choose(left.q, q), v=choose(left.v, v))
    return Sample(point, choose(lam_left, lam), b.before.status)


def _left(model: Model, b: Bracket, p) -> Point:
    """The state at the left end of (1)."""
    grid, event = b.before.point, b.last
    choose = lambda x, y: jnp.where(b.has_last, x, y)
    t = choose(event.t, grid.t)
    q = choose(event.q, grid.q)
    # What constraints hold changes at events. If none follows it is that of the grid point after.
    modes = zip(
        model.split_mode(event.mode_before), model.split_mode(event.mode_after), strict=True
    )
    parts = zip(model.parts, modes, grid.held, strict=True)
    fresh = tuple(
        _where(jnp.any(old != new), part.hold(q, t, p), held) for part, (old, new), held in parts
    )
    held = _where(b.has_first, fresh, b.after.point.held)
    return Point(
        t=t,
        q=q,
        v=choose(event.v_after, grid.v),
        mode=choose(event.mode_after, grid.mode),
        held=_where(b.has_last, held, grid.held),
    )


def _right(b: Bracket, left: Point) -> Point:
    """The state at the right end of (1), in the mode of the left one."""
    grid, event = b.after.point, b.first
    choose = lambda x, y: jnp.where(b.has_first, x, y)
    return left.replace(
        t=choose(event.t, grid.t), q=choose(event.q, grid.q), v=choose(event.v_before, grid.v)
    )


def _where(condition, a, b):
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


def samples_between(
    run: Setup, model: Model, samples: Sample, energy: Float[Array, " n"], records: Event, p
) -> tuple[Sample, Float[Array, " n"]]:
    """The samples at the times `run.save_at` from those of the steps `kept_steps(run)`, and their
    energies."""
    if run.grid.is_cut:
        return jax.tree.map(lambda x: x[rows_at_times(run)], (samples, energy))
    places = Places.of(run.grid, run.times)
    found = brackets(jnp, run, places, places.kept(run.grid), samples, records)
    made = jax.vmap(lambda b: sample_between(model, b, p))(found)
    about = facts(run, model, made, p)
    return Sample(made.point, about.lam, made.status), about.energy
