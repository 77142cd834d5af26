"""The memory in which a run is repeated: the programs with their arguments in place, and quick
copies of what they leave.

A repeated run takes little longer than its steps, so what is done around them counts in hundreds of
nanoseconds: views of the results are made once for each number of samples or events, and `Copies`
holds their `copy` methods.
"""

from operator import is_
from threading import local
from typing import Any

import jax
import numpy as np

from nsdyn.driver.arguments import Setup, Values
from nsdyn.driver.blocks import Programs
from nsdyn.driver.in_place import InPlace

Table = dict[str, np.ndarray]


class Copies:
    """Copies of arrays, by name: of all of them, or of their first entries."""

    def __init__(self, arrays: Table):
        self.arrays = arrays
        self._first: dict[int, list] = {}
        self._none = {name: x[:0].copy() for name, x in arrays.items() if x.ndim}
        self._whole = [(name, x.copy) for name, x in arrays.items()]

    def whole(self) -> Table:
        return {name: copy() for name, copy in self._whole}

    def first(self, number: int) -> Table:
        """So many entries. (Nobody can change an array that has none.)"""
        if number == 0:
            return self._none.copy()
        methods = self._first.get(number)
        if methods is None:
            methods = [(name, x[:number].copy) for name, x in self.arrays.items()]
            self._first[number] = methods
        return {name: copy() for name, copy in methods}


class Workspace:
    """The programs in their places, and which values they were given. For one thread."""

    def __init__(self, programs: Programs, run: Setup, values: Values):
        nothing: Any = jax.tree.map(lambda _: None, values)
        self.programs = InPlace(programs, run, nothing, values)
        self.set, self.blocks = self.programs.set, self.programs.blocks
        places = self.programs.places
        self.params = jax.tree.leaves(places.shared.params)
        self.start = places.shared.q0, places.shared.v0
        self.leaves: list[Any] = [None] * len(self.params)
        self.arrays: list[Any] = [None] * len(self.params)  # those of the leaves
        self.is_fixed = False  # whether the leaves can only change by becoming others
        self.fixed_table: dict = {}  # parameters that are such leaves, by name
        self.shown_table: dict = {}  # the same in numpy arrays
        self.vectors: list[Any] = [None, None]  # q0 and v0 if they cannot change
        self.times = np.zeros(3)  # t0, t_end, step
        self.counts = np.zeros(3, int)  # save_every, steps, max_events
        self.numbers: tuple = ()  # times and counts
        grid = places.grid
        for j, k in enumerate((grid.t0, grid.t_end, grid.step)):
            self.set(k, self.times[j : j + 1])
        for j, k in enumerate((grid.save_every, grid.steps, places.max_events)):
            self.set(k, self.counts[j : j + 1])
        self._name_results()

    def _name_results(self) -> None:
        """What a block leaves."""
        block = self.programs.block
        samples, point = block.samples, block.samples.point
        self.status, self.count, self.event_count = (
            x.item for x in (block.ending.status, block.count, block.event_count)
        )
        names = {"q": point.q, "v": point.v, "lam": samples.lam, "mode": point.mode}
        self.samples = Copies({**names, "energy": block.energy})
        self.records, self.ending, self.effort = (
            Copies(dict(vars(x))) for x in (block.records, block.ending, block.effort)
        )

    def set_numbers(self, times: tuple, counts: tuple) -> None:
        """t0, t_end, step; save_every, steps, max_events."""
        numbers = (times, counts)
        if numbers != self.numbers:
            self.times[:], self.counts[:] = times, counts
            self.numbers = numbers

    def has(self, params: Any) -> bool:
        """Whether these parameters are the table whose entries are in their places already."""
        known = self.fixed_table
        return (
            bool(known)
            and type(params) is dict
            and list(params) == list(known)
            and all(map(is_, params.values(), known.values()))
        )

    def held(self, number: int) -> np.ndarray:
        return self.programs.begin.held(number)


class PerThread(local):
    """A workspace for each thread, as it first asks for it."""

    def __init__(self, programs: Programs, run: Setup, values: Values):
        self.here = Workspace(programs, run, values)
