"""All blocks of a run or a batch put together, in numpy arrays; samples between the steps."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np

from nsdyn.driver.arguments import Setup, Values
from nsdyn.driver.blocks import PROGRAMS, Block, Programs, blocks, is_batch, traced
from nsdyn.driver.dense import Bracket, Places, brackets, rows_at_times, sample_between
from nsdyn.driver.march import Sample
from nsdyn.driver.outcome import Ending, Facts, facts
from nsdyn.numerics.newton import Effort
from nsdyn.results.events import Events
from nsdyn.results.solution import Solution

PIECE = 64  # samples between the steps that are made at a time


class Collected(eqx.Module):
    """All samples and events of a run or a batch, and how it ended, in numpy arrays. Samples that
    are missing, because all runs had failed before, are NaN."""

    samples: Sample
    energy: np.ndarray
    events: Events
    ending: Ending
    effort: Effort

    def solution(self, t: np.ndarray, params: Any, about: dict[str, Any]) -> Solution:
        return Solution(t=t, params=params, **self.named(), **about)

    def with_settings(self, settings: Solution) -> Solution:
        """The solution with these results; `settings` says the rest."""
        return dataclasses.replace(settings, **self.named())

    def named(self) -> dict[str, Any]:
        """The results under their names in a `Solution`."""
        point = self.samples.point
        return {
            "q": point.q,
            "v": point.v,
            "lam": self.samples.lam,
            "mode": point.mode,
            "energy": self.energy,
            "events": self.events,
            "status": self.ending.status,
            "t_stop": self.ending.t_stop,
            "mode_stop": self.ending.mode_stop,
            "effort": self.effort,
        }


def collect(
    run: Setup, own: Values, shared: Values, kept: np.ndarray, programs: Programs = PROGRAMS
) -> Collected:
    """March a run or a batch to its end, and record the steps `kept`."""
    found = list(blocks(run, own, shared, kept, programs))
    axis = 1 if is_batch(own) else 0
    last = found[-1]
    counts = [int(block.count) for block in found]
    join = lambda *parts: _filled_up(_joined(parts, counts, axis), len(kept), axis)
    samples, energy = jax.tree.map(join, *((block.samples, block.energy) for block in found))
    return Collected(
        samples=samples,
        energy=energy,
        events=_all_events(found, int(run.max_events)),
        ending=last.ending,
        effort=last.effort,
    )


def _joined(parts: Sequence[np.ndarray], counts: list[int], axis: int) -> np.ndarray:
    """The first so many of each part along an axis, one after the other."""
    pairs = zip(parts, counts, strict=True)
    return np.concatenate([x[:, :n] if axis else x[:n] for x, n in pairs], axis)


def _filled_up(x: np.ndarray, size: int, axis: int) -> np.ndarray:
    """The array with missing samples put in: NaN, or the last value of modes, which no longer
    change."""
    missing = size - x.shape[axis]
    if missing == 0:
        return x
    final = np.take(x, [-1], axis)
    if x.dtype.kind == "f":
        final = np.full_like(final, np.nan)
    return np.concatenate([x, np.repeat(final, missing, axis)], axis)


def _all_events(found: list[Block], max_events: int) -> Events:
    """The events of all blocks. A batch has a table of `max_events` records for each run."""
    if found[0].event_count.ndim == 0:
        counts = [int(block.event_count) for block in found]
        join = lambda *parts: _joined(parts, counts, 0)
        return Events.of(jax.tree.map(join, *(block.records for block in found)))
    runs = len(found[0].event_count)
    most = max(block.records.t.shape[1] for block in found)  # a block without events may have none
    capacity = max_events if most else 0
    blank = lambda x: np.full((runs, capacity, *x.shape[2:]), np.nan if x.dtype.kind == "f" else -1)
    records = jax.tree.map(lambda x: blank(x).astype(x.dtype), found[0].records)
    count = np.zeros(runs, int)
    for block in found:
        slots = block.records.t.shape[1]
        i, slot = np.nonzero(np.arange(slots) < block.event_count[:, None])
        place = (i, count[i] + slot)
        pairs = zip(jax.tree.leaves(records), jax.tree.leaves(block.records), strict=True)
        for all_, part in pairs:
            all_[place] = part[i, slot]
        count += block.event_count
    return Events(records, count)


# Samples between the steps


@eqx.filter_jit
def _made(run: Setup, own: Values, shared: Values, b: Bracket) -> tuple[Sample, Facts]:
    """The samples of many brackets, each with its own parameters, and the facts about them."""

    def one(own: Values, b: Bracket) -> tuple[Sample, Facts]:
        values = eqx.combine(own, shared)
        model = run.model(values)
        sample = sample_between(model, b, values.params)
        single = jax.tree.map(lambda x: x[None], sample)
        found = facts(run, model, single, values.params)
        return sample, jax.tree.map(lambda x: x[0], found)

    return jax.vmap(one)(own, b)


def sampled(run: Setup, own: Values, shared: Values, found: Collected) -> Collected:
    """A run or a batch with its samples at the times `run.save_at` instead of those of the grid."""
    if run.grid.is_cut:
        pick = lambda x: np.take(x, rows_at_times(run), axis=1 if is_batch(own) else 0)
        picked = jax.tree.map(pick, (found.samples, found.energy))
        return eqx.tree_at(lambda x: (x.samples, x.energy), found, picked)
    places = Places.of(run.grid, run.times)
    kept = places.kept(run.grid)
    each = found if is_batch(own) else jax.tree.map(lambda x: x[None], found)
    of_run = lambda i, tree: jax.tree.map(lambda x: x[i], tree)
    rows = [
        brackets(np, run, places, kept, of_run(i, each.samples), of_run(i, each.events.records))
        for i in range(len(each.ending.status))
    ]
    items = jax.tree.map(lambda *x: np.concatenate(x), *rows)
    number = np.repeat(np.arange(len(rows)), len(run.times))
    made, about = _in_pieces(traced(run), own, shared, items, number)
    front = (len(rows), len(run.times)) if is_batch(own) else (len(run.times),)
    fold = lambda x: x.reshape(*front, *x.shape[1:])
    # Samples of the grid keep their energies, which another program would round differently.
    known = np.take(found.energy, np.searchsorted(kept, places.before), axis=-1)
    return Collected(
        samples=jax.tree.map(fold, Sample(made.point, about.lam, made.status)),
        energy=np.where(places.on_grid, known, fold(about.energy)),
        events=found.events,
        ending=found.ending,
        effort=found.effort,
    )


def _in_pieces(run: Setup, own: Values, shared: Values, items: Bracket, number: np.ndarray):
    """`_made`, for PIECE items at a time, so that it compiles once."""
    found = []
    for first in range(0, len(number), PIECE):
        some = np.minimum(np.arange(first, first + PIECE), len(number) - 1)
        pick = lambda tree, rows: jax.tree.map(lambda x: np.asarray(x)[rows], tree)
        piece = _made(run, pick(own, number[some]), shared, pick(items, some))
        found.append(jax.tree.map(np.asarray, piece))
    whole = jax.tree.map(lambda *x: np.concatenate(x), *found)
    return jax.tree.map(lambda x: x[: len(number)], whole)
