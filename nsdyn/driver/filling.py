"""The results of a batch, filled chunk by chunk.

Chunks come whole (`put`), or as the blocks that a native program leaves in its memory, from which
samples and events go straight to their rows (`put_blocks`). Chunks have rows of their own, so
threads fill them side by side. No row is written before its results are known; those that never
are, because a worker died, are LOST.
"""

from collections.abc import Iterable
from threading import Lock
from typing import Any

import jax
import numpy as np

from nsdyn.driver.blocks import Parts
from nsdyn.driver.collect import Collected
from nsdyn.results.events import Events
from nsdyn.status import Status


def _blank(dtype: np.dtype) -> Any:
    return np.nan if dtype.kind == "f" else -1


class Results:
    """Rows for so many runs. Tables of events are made when there is an event to put in."""

    def __init__(self, total: int):
        self.total = total
        self.lock = Lock()
        self.known = np.zeros(total, bool)  # rows that are filled
        self.count = np.zeros(total, int)  # events of each run
        self.samples: list[np.ndarray] = []  # and energy
        self.records: list[np.ndarray] = []
        self.totals: list[np.ndarray] = []  # ending and effort
        self.example: Any = None  # of what a chunk is made: samples and energy, records, totals

    def put(self, first: int, chunk: Collected) -> int:
        """Take in a chunk, without what fills up the last one; how many trajectories it had."""
        records = chunk.events.records
        trees = (chunk.samples, chunk.energy), records, (chunk.ending, chunk.effort)
        samples, tables, totals = map(jax.tree.leaves, trees)
        rows = slice(first, min(first + len(chunk.events.count), self.total))
        count = rows.stop - first
        self._make_room(trees, samples[0].shape[1])
        for whole, part in zip((*self.samples, *self.totals), (*samples, *totals), strict=True):
            whole[rows] = part[:count]
        capacity = records.t.shape[1]
        if capacity:
            self._make_tables(tables, capacity)
            for whole, part in zip(self.records, tables, strict=True):
                whole[rows] = part[:count]
        self.count[rows] = chunk.events.count[:count]
        self.known[rows] = True
        return count

    def put_blocks(self, first: int, blocks: Iterable[Parts], samples: int, max_events: int) -> int:
        """Take in the blocks of a chunk whose runs record so many samples."""
        done, count, rows = 0, 0, slice(0)
        for block, parts, records, totals in blocks:
            if not done:
                self._make_room(_trees(block), samples)
                rows = slice(first, min(first + len(block.event_count), self.total))
                count = rows.stop - first
            new = int(block.count)
            for whole, part in zip(self.samples, parts, strict=True):
                whole[rows, done : done + new] = part[:count, :new]
            done += new
            self._put_events(first, block.event_count[:count], records, max_events)
            for whole, part in zip(self.totals, totals, strict=True):
                whole[rows] = part[:count]
        if done < samples:  # all runs had failed before
            self._fill_up(rows, done)
        self.known[rows] = True
        return count

    def _put_events(
        self, first: int, found: np.ndarray, records: list[np.ndarray], max_events: int
    ) -> None:
        """Append the events of a block, so many of each run."""
        most = int(found.max(initial=0))
        if not most:
            return
        self._make_tables(records, max_events)
        rows = slice(first, first + len(found))
        before = self.count[rows]
        if not before.any():
            for whole in self.records:
                whole[rows] = _blank(whole.dtype)
        run, slot = np.nonzero(np.arange(most) < found[:, None])
        place = run + first, before[run] + slot
        for whole, part in zip(self.records, records, strict=True):
            whole[place] = part[run, slot]
        self.count[rows] += found

    def _fill_up(self, rows: slice, done: int) -> None:
        """Samples that are missing: NaN, or the last value of modes, which no longer change."""
        for whole in self.samples:
            is_float = whole.dtype.kind == "f"
            whole[rows, done:] = np.nan if is_float else whole[rows, done - 1 : done]

    def _make_room(self, trees: tuple, samples: int) -> None:
        """Arrays for all runs, like those of a chunk."""
        if self.example is not None:
            return
        with self.lock:
            if self.example is None:
                front = (self.total, samples)
                leaves = jax.tree.leaves(trees[0])
                self.samples = [np.empty((*front, *x.shape[2:]), x.dtype) for x in leaves]
                leaves = jax.tree.leaves(trees[2])
                self.totals = [np.empty((self.total, *x.shape[1:]), x.dtype) for x in leaves]
                self.example = trees

    def _make_tables(self, like: list[np.ndarray], capacity: int) -> None:
        if self.records:
            return
        with self.lock:
            if not self.records:
                front = (self.total, capacity)
                self.records = [np.empty((*front, *x.shape[2:]), x.dtype) for x in like]

    @property
    def whole(self) -> Collected:
        """All results, when there will be no more."""
        lost = ~self.known
        for x in (*self.samples, *self.totals):
            x[lost] = _blank(x.dtype)
        like = self.example[1]
        for x in self.records:
            x[self.count == 0] = _blank(x.dtype)
        none = [np.empty((self.total, 0, *x.shape[2:]), x.dtype) for x in jax.tree.leaves(like)]
        fill = lambda tree, leaves: jax.tree.unflatten(jax.tree.structure(tree), leaves)
        samples, energy = fill(self.example[0], self.samples)
        ending, effort = fill(self.example[2], self.totals)
        ending.status[lost] = Status.LOST
        return Collected(
            samples=samples,
            energy=energy,
            events=Events(fill(like, self.records or none), self.count),
            ending=ending,
            effort=effort,
        )


def _trees(block: Any) -> tuple:
    return (block.samples, block.energy), block.records, (block.ending, block.effort)
