"""The native programs of a run, or of runs side by side, with arguments and results in place.

A call through `NativeProgram` takes its arguments apart and puts its result together, which costs
up to a millisecond: too much for a run of 200 us, and for each block of a long one. Here both are
done once. Only numbers that change are set anew, and `Block`s are views of the same memory.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from nsdyn._jitted import split
from nsdyn.driver.arguments import Setup, Values
from nsdyn.driver.blocks import NEVER, Block, Parts, Programs, traced
from nsdyn.driver.grid import CHUNK, Grid
from nsdyn.native.call import Call
from nsdyn.status import Status

NO_ARRAY = -1


class Places(NamedTuple):
    """The numbers of the arrays among the arguments of the programs; NO_ARRAY for what is none."""

    grid: Grid  # with a number in each field
    max_events: int
    own: Values
    shared: Values
    progress: list[int]
    kept: int
    first: int
    length: int

    @staticmethod
    def of(args: tuple) -> "Places":
        """Those of `advance`; the arguments of `begin` are the first of them."""
        leaves, structure = jax.tree.flatten(args)
        flags = [isinstance(x, jax.Array | np.ndarray) for x in leaves]
        numbers = np.cumsum(flags) - 1
        marks = [int(k) if flag else NO_ARRAY for k, flag in zip(numbers, flags, strict=True)]
        run, own, shared, progress, *rest = jax.tree.unflatten(structure, marks)
        return Places(run.grid, run.max_events, own, shared, jax.tree.leaves(progress), *rest)


class InPlace:
    """The programs with memory of their own, for one thread at a time."""

    def __init__(self, programs: Programs, run: Setup, own: Values, shared: Values):
        first = (traced(run), own, shared)
        self.size = programs.size
        self.kept = np.full(self.size + CHUNK, NEVER)
        self.wanted: tuple = (None, 0)  # what the kept steps were taken from, and after how many
        self.now = 0, CHUNK  # the first step, and steps in a chunk
        self.counts = np.array(self.now)
        numbers = (self.kept, *(np.asarray(x) for x in self.counts))
        second = (*first, programs.begin(*first), *numbers)
        advance, structure, once = programs.advance.made_for(*second)
        self.begin, self.advance = Call(programs.begin.made_for(*first)[0]), Call(advance)
        self.both = self.begin, self.advance
        self.places = Places.of(second)
        for k, array in enumerate(split(first)[1]):
            self.set(k, array)
        self.advance.set(self.places.kept, self.kept)
        self.advance.set(self.places.first, self.counts[:1])
        self.advance.set(self.places.length, self.counts[1:])
        for result, k in zip(self.begin.results, self.places.progress, strict=True):
            self.advance.set(k, result)
        results = list(self.advance.results)
        for k in once:
            results[k] = results[k][0, ...]  # a view, also of a number
        self.block: Block = jax.tree.unflatten(structure, results)[0]
        self.parts = Parts.of(self.block)
        self.status, self.step, self.count = (
            self.block.ending.status,
            self.block.step,
            self.block.count,
        )

    def set(self, number: int, array: Any) -> None:
        for call in self.both:
            call.set(number, array)

    def set_own(self, own: Values) -> None:
        """Values of other runs of the same shapes."""
        pairs = zip(jax.tree.leaves(self.places.own), jax.tree.leaves(own), strict=True)
        for number, array in pairs:
            self.set(number, array)

    def _set_kept(self, kept: np.ndarray, done: int) -> None:
        """The steps to record in a block, after so many; left as it is if it is that already."""
        before, after = self.wanted
        if kept is before and done == after and not kept.flags.writeable:
            return
        part = kept[done : done + self.size]
        self.kept[: len(part)] = part
        self.kept[len(part) :] = NEVER
        self.wanted = kept, done

    def blocks(self, kept: np.ndarray) -> Iterator[Parts]:
        """As `nsdyn.driver.blocks.blocks`, but each block is in the memory of the one before."""
        self.begin()
        done = step = 0
        length = CHUNK
        while True:
            self._set_kept(kept, done)
            if self.now != (step, length):
                self.counts[:] = self.now = step, length
            self.advance()
            yield self.parts
            done += int(self.count)
            if done >= len(kept) or np.all(self.status != Status.OK):
                return
            # More events in one chunk than the log holds: then step by step.
            length = 1 if int(self.step) == step else CHUNK
            step = int(self.step)
            last = self.advance.results[-len(self.begin.results) :]
            for result, new in zip(self.begin.results, last, strict=True):
                np.copyto(result, new)
