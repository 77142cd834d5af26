"""A run whose like was made before, at the cost of its steps.

A study calls `simulate` with one problem, integrator and law thousands of times, and only numbers
change: parameters, initial state, step, times. What does not depend on numbers is kept: checked
settings, compiled programs, the places of their arguments in memory, the texts in a `Solution`.
Objects are recognised by identity, settings also by their values.

This way is only taken by what is as usual: numbers of the shapes and types of the problem, the
native backend, and runs that reach their end. For all else `run` returns None, and the caller goes
the long way, where everything is checked, refused and explained.
"""

import math
from collections import OrderedDict
from threading import local
from typing import Any, NamedTuple

import jax
import numpy as np

from nsdyn._jitted import split
from nsdyn._version import __version__
from nsdyn.driver import backend as backends
from nsdyn.driver.arguments import Setup, Values
from nsdyn.driver.blocks import BLOCK, NEVER, Block, traced
from nsdyn.driver.grid import CHUNK, Grid
from nsdyn.mechanics.model import Model
from nsdyn.native.call import Call
from nsdyn.numerics.newton import Effort
from nsdyn.problem import Problem
from nsdyn.results.events import Events
from nsdyn.results.solution import Solution, plain
from nsdyn.stepping.log import Event

NO_ARRAY = -1
MISSES = 3  # runs in a row that end early, and are repeated the long way: enough of this
REMEMBERED = 32  # combinations of problem and settings
SOUND = 64  # starts of one of them that were checked
ARRAY = type(jax.numpy.zeros(0))
NUMBERS = (float, int, np.float64, np.ndarray, ARRAY)
FLOATS = (float, int, np.float64)
INTEGERS = (int, np.int64)


class Places(NamedTuple):
    """The numbers of the arrays among the arguments of the programs."""

    grid: Grid  # with a number in each field
    max_events: int
    params: list[int]  # NO_ARRAY for what is none
    q0: int
    v0: int
    progress: list[int]
    kept: int
    first: int
    length: int


class Workspace(local):
    """The programs with their arguments, for each thread its own."""

    def __init__(self, known: "Known"):
        self.begin, self.advance = Call(known.begin), Call(known.advance)
        self.both = self.begin, self.advance
        places = known.places
        self.kept = np.full(BLOCK + CHUNK, NEVER)
        self.filled = 0
        self.times = np.zeros(3)  # t0, t_end, step
        self.counts = np.zeros(5, int)  # save_every, steps, max_events, first, length
        grid = places.grid
        for k, array in enumerate(known.settings):
            self.set(k, array)
        for j, k in enumerate((grid.t0, grid.t_end, grid.step)):
            self.set(k, self.times[j : j + 1])
        for j, k in enumerate((grid.save_every, grid.steps, places.max_events)):
            self.set(k, self.counts[j : j + 1])
        self.advance.set(places.kept, self.kept)
        self.advance.set(places.first, self.counts[3:4])
        self.advance.set(places.length, self.counts[4:5])
        for result, k in zip(self.begin.results, places.progress, strict=True):
            self.advance.set(k, result)
        self._name_results(jax.tree.unflatten(known.structure, self.advance.results)[0])
        self.leaves: list[Any] = [None] * len(places.params)
        self.vectors: list[Any] = [None, None]

    def _name_results(self, block: Block) -> None:
        """What a block leaves, in plain tables, which are faster than modules."""
        samples, point = block.samples, block.samples.point
        self.step, self.event_count = block.step, block.event_count
        self.samples = {
            "q": point.q,
            "v": point.v,
            "lam": samples.lam,
            "mode": point.mode,
            "energy": block.energy,
        }
        self.records, self.ending, self.effort = (
            dict(vars(x)) for x in (block.records, block.ending, block.effort)
        )

    def set(self, number: int, array: Any) -> None:
        for call in self.both:
            call.set(number, array)

    def keep(self, numbers: np.ndarray) -> None:
        """Let these steps be recorded."""
        self.kept[: len(numbers)] = numbers
        self.kept[len(numbers) : self.filled] = NEVER
        self.filled = len(numbers)


class Known:
    """What is kept of a run."""

    def __init__(self, problem: Problem, run: Setup, values: Values):
        self.problem = problem
        self.controls_error = run.integrator.controls_error
        self.about = run.about(problem) | {"backend": "native"}
        self.about |= {"nsdyn_version": __version__, "note": ""}
        nothing: Any = jax.tree.map(lambda _: None, values)
        first = (traced(run), nothing, values)
        progress = backends.SINGLE.begin(*first)
        numbers = (np.full(BLOCK + CHUNK, NEVER), np.asarray(0), np.asarray(CHUNK))
        second = (*first, progress, *numbers)
        self.begin, _ = backends.SINGLE.begin.made_for(*first)
        self.advance, self.structure = backends.SINGLE.advance.made_for(*second)
        self.places = _places(second)
        self.settings = [np.asarray(x) for x in split(first)[1]]
        self.leaves, self.tree = jax.tree.flatten(values.params)
        self.is_table = type(values.params) is dict and self.tree == jax.tree.structure(
            dict.fromkeys(values.params, 0)
        )
        self.like = [(np.shape(x), getattr(x, "dtype", None)) for x in self.leaves]
        self.size = np.shape(values.q0), np.shape(values.v0)
        self.workspace = Workspace(self)
        self.sound: OrderedDict[bytes, None] = OrderedDict()
        self.grids: OrderedDict[tuple, tuple] = OrderedDict()
        self.misses = 0
        self._model: Model | None = None

    @property
    def model(self) -> Model:
        if self._model is None:
            self._model = self.problem.model()
        return self._model

    # Arguments

    def _grid(self, step: Any, t_end: Any, save_every: Any) -> tuple | None:
        """(t0, t_end, step), (save_every, steps), step numbers and times of the samples, if the
        arguments are sound."""
        key = (step, t_end, save_every)
        found = self.grids.get(key)
        if found is None:
            t0 = self.problem.t0
            end = self.problem.t_end if t_end is None else t_end
            plain = type(step) in FLOATS and type(end) in FLOATS and type(save_every) in INTEGERS
            if not plain or not (0 < step < math.inf and t0 < end < math.inf and save_every > 0):
                return None
            if (end - t0) / step > BLOCK * save_every - 1:  # more than one block: time is no issue
                return None
            grid = Grid(t0, float(end), float(step), int(save_every))
            times, counts = (grid.t0, grid.t_end, grid.step), (grid.save_every, grid.steps)
            found = self.grids[key] = times, counts, grid.saved, grid.times()
            if len(self.grids) > SOUND:
                self.grids.popitem(last=False)
        return found

    def _set_values(self, space: Workspace, params: Any, q0: Any, v0: Any) -> bool:
        """Put parameters and initial state in their places; False if they are not as usual."""
        problem, places = self.problem, self.places
        leaves, tree = jax.tree.flatten(problem.params if params is None else params)
        if tree != self.tree:
            return False
        for j, x in enumerate(leaves):
            number = places.params[j]
            if x is space.leaves[j] and type(x) is ARRAY:
                continue
            if number == NO_ARRAY:
                if x is not self.leaves[j]:
                    return False
                continue
            shape, dtype = self.like[j]
            array = _usual(x, shape, dtype)
            if array is None:
                return False
            space.set(number, array)
            space.leaves[j] = x
        vectors = (problem.q0 if q0 is None else q0), (problem.v0 if v0 is None else v0)
        for j, (x, number) in enumerate(zip(vectors, (places.q0, places.v0), strict=True)):
            if x is space.vectors[j] and type(x) is ARRAY:
                continue
            array = _usual(x, self.size[j], np.dtype(float))
            if array is None:
                return False
            space.set(number, array)
            space.vectors[j] = x
        return True

    # Running

    def run(
        self,
        step: Any,
        values: tuple,
        t_end: Any,
        save_every: Any,
        max_events: Any,
        check: bool,
    ) -> Solution | None:
        """The solution of a run with these values of (params, q0, v0); None if there is anything
        unusual, for instance a start that must be checked and was not."""
        space = self.workspace
        grid = self._grid(step, t_end, save_every)
        usual = grid is not None and type(max_events) in INTEGERS and max_events > 0
        if not usual or self.misses >= MISSES or not self._set_values(space, *values):
            return None
        if check and self._start(space) not in self.sound:
            return None
        times, counts, kept, t = grid
        space.keep(kept)
        space.times[:] = times
        space.counts[:3] = *counts, max_events
        space.counts[3:] = 0, CHUNK
        space.begin()
        space.advance()
        if space.ending["status"] or space.step != counts[1]:
            self.misses += 1
            return None
        self.misses = 0
        given = self.problem.params if values[0] is None else values[0]
        return self._solution(space, times, counts[0], t.copy(), given)

    def _solution(
        self, space: Workspace, times: tuple, save_every: int, t: np.ndarray, params: Any
    ) -> Solution:
        count, events = len(t), int(space.event_count)
        samples = {name: x[:count].copy() for name, x in space.samples.items()}
        ending = {name: x.copy() for name, x in space.ending.items()}
        effort = {name: x.copy() for name, x in space.effort.items()}
        records = {name: x[:events].copy() for name, x in space.records.items()}
        table = {"records": _filled(Event, records), "count": np.array(events)}
        own = {
            "t": t,
            "events": _filled(Events, table),
            "effort": _filled(Effort, effort),
            "params": self._params(space, params),
            "step": times[2],
            "save_every": save_every,
            "t_end": times[1],
        }
        return _filled(Solution, self.about | samples | ending | own)

    def _params(self, space: Workspace, given: Any) -> Any:
        """What `plain` makes of the parameters."""
        arrays = [
            old if number == NO_ARRAY else space.begin.held(number).reshape(like[0])
            for number, old, like in zip(self.places.params, self.leaves, self.like, strict=True)
        ]
        if self.is_table:
            found = dict(zip(sorted(given), arrays, strict=True))  # as JAX sorts them
            return {str(key): found[key] for key in given}
        return plain(jax.tree.unflatten(self.tree, arrays), other=lambda name, x: x)

    # Checks

    def _start(self, space: Workspace) -> bytes:
        """What a check of the start depends on."""
        numbers = [k for k in self.places.params if k != NO_ARRAY]
        held = [space.begin.held(k).tobytes() for k in (*numbers, self.places.q0, self.places.v0)]
        return b"".join(held)

    def remember_sound(self, params: Any, q0: Any, v0: Any) -> None:
        """The start was checked."""
        space = self.workspace
        if self._set_values(space, params, q0, v0):
            self.sound[self._start(space)] = None
            if len(self.sound) > SOUND:
                self.sound.popitem(last=False)


class _Memory:
    """What is known of which objects; these are kept, so that no others get their identities."""

    def __init__(self) -> None:
        self.by_identity: OrderedDict[tuple, tuple[tuple, Known]] = OrderedDict()
        self.by_value: OrderedDict[tuple, Known] = OrderedDict()

    def find(self, problem: Any, settings: tuple) -> Known | None:
        found = self.by_identity.get((id(problem), *map(id, settings)))
        if found is not None:
            return found[1]
        if not isinstance(problem, Problem):
            return None
        known = self.by_value.get(_key(problem, settings))
        if known is not None:
            self._put(problem, settings, known)
        return known

    def keep(self, problem: Problem, settings: tuple, known: Known) -> None:
        kinds = split((problem.system, problem.constraint, settings))[1]
        if any(isinstance(x, np.ndarray) for x in kinds):  # could be changed in place
            return
        self.by_value[_key(problem, settings)] = known
        self._put(problem, settings, known)
        if len(self.by_value) > REMEMBERED:
            gone = self.by_value.popitem(last=False)[1]
            for key in [k for k, (_, x) in self.by_identity.items() if x is gone]:
                del self.by_identity[key]

    def _put(self, problem: Problem, settings: tuple, known: Known) -> None:
        objects = (problem, *settings)
        self.by_identity[tuple(map(id, objects))] = objects, known
        if len(self.by_identity) > 2 * REMEMBERED:
            self.by_identity.popitem(last=False)


_memory = _Memory()


def _key(problem: Problem, settings: tuple) -> tuple:
    static, arrays = split(settings)
    values = ((x.dtype, x.shape, np.asarray(x).tobytes()) for x in arrays)
    return id(problem), static, *values


def find(problem: Any, *settings: Any) -> Known | None:
    """What is known of runs of this problem with these settings: integrator, law, tolerances."""
    return None if backends.choice() == "xla" else _memory.find(problem, settings)


def remember(problem: Problem, run: Setup, values: Values, *settings: Any) -> Known:
    """Keep what a run with the native backend has shown."""
    known = Known(problem, run, values)
    _memory.keep(problem, settings, known)
    return known


def _places(args: tuple) -> Places:
    """Where the arrays among the arguments of `advance` are; those of `begin` come first."""
    leaves, structure = jax.tree.flatten(args)
    flags = [isinstance(x, jax.Array | np.ndarray) for x in leaves]
    numbers = np.cumsum(flags) - 1
    marks = [int(k) if flag else NO_ARRAY for k, flag in zip(numbers, flags, strict=True)]
    run, _, values, progress, kept, first, length = jax.tree.unflatten(structure, marks)
    return Places(
        grid=run.grid,
        max_events=run.max_events,
        params=jax.tree.leaves(values.params),
        q0=values.q0,
        v0=values.v0,
        progress=jax.tree.leaves(progress),
        kept=kept,
        first=first,
        length=length,
    )


def _usual(x: Any, shape: tuple, dtype: Any) -> np.ndarray | None:
    """The array of a number or an array of this shape, if its type can become this one."""
    if type(x) not in NUMBERS:
        return None
    array = np.asarray(x)
    if array.shape != shape or not np.can_cast(array.dtype, dtype, "safe"):
        return None
    return np.array(array, dtype) if type(x) is np.ndarray else array.astype(dtype, copy=False)


def _filled(cls: type, fields: dict[str, Any]) -> Any:
    """An object of an equinox class, made from its fields as JAX does it: these have been checked
    and converted before."""
    made = object.__new__(cls)
    vars(made).update(fields)
    return made
