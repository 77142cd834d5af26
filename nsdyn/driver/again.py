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
from functools import cached_property
from operator import is_
from typing import Any

import jax
import numpy as np

from nsdyn._jitted import split
from nsdyn._version import __version__
from nsdyn.driver import backend as backends
from nsdyn.driver.arguments import Setup, Values, shown
from nsdyn.driver.grid import Grid
from nsdyn.driver.in_place import NO_ARRAY
from nsdyn.driver.workspace import PerThread, Workspace
from nsdyn.numerics.newton import Effort
from nsdyn.problem import Problem
from nsdyn.results.events import Events
from nsdyn.results.solution import Solution, plain
from nsdyn.stepping.integrator import AbstractIntegrator
from nsdyn.stepping.log import Event

MISSES = 3  # runs in a row that end early, and are repeated the long way: enough of this
REMEMBERED = 32  # combinations of problem and settings
SOUND = 64  # starts of one of them that were checked
NUMBERS = (float, int, np.float64, np.ndarray)
FLOATS = (float, int, np.float64)
INTEGERS = (int, np.int64)


class Known:
    """What is kept of a run."""

    def __init__(self, problem: Problem, run: Setup, values: Values):
        self.problem = problem
        self.own = problem.params, problem.q0, problem.v0
        self.has_contacts = has_contacts(problem)
        self.may_be_coarse = may_be_coarse(problem, run.integrator)
        self.about = run.about(problem) | shown(problem) | {"backend": "native"}
        self.about |= {"nsdyn_version": __version__, "note": ""}
        self.leaves: list[Any]
        self.tree: Any
        self.leaves, self.tree = jax.tree.flatten(values.params)
        self.is_table = type(values.params) is dict and self.tree == jax.tree.structure(
            dict.fromkeys(values.params, 0)
        )
        self.like = [(np.shape(x), getattr(x, "dtype", None)) for x in self.leaves]
        self.size = np.shape(values.q0), np.shape(values.v0)
        nothing: Any = jax.tree.map(lambda _: None, values)
        self.work = backends.work(run, nothing, values)
        self.example = run, values
        self._make_workspace()
        self.sound: OrderedDict[bytes, None] = OrderedDict()
        self.grids: OrderedDict[tuple, tuple] = OrderedDict()
        self.misses = 0

    @cached_property
    def may_be_singular(self) -> bool:
        """Whether rows can depend on each other at an event."""
        return bool(self.problem.constraint) and not self.problem.model().rows_independent

    def _make_workspace(self) -> None:
        """The programs as they are to be compiled for the work that is known of."""
        self.is_long = self.work.is_long
        self.workspace = PerThread(self.work.programs, *self.example)

    def _add_work(self, steps: int) -> None:
        """So many steps more; with those so far they may call for better compiled programs."""
        if self.is_long:
            return
        self.work.add(self.example[0].integrator, steps)
        if self.work.is_long:
            self._make_workspace()

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
            grid = Grid(t0, float(end), float(step), int(save_every))
            times, counts = (grid.t0, grid.t_end, grid.step), (grid.save_every, grid.steps)
            kept = grid.saved
            kept.setflags(write=False)  # so that it need not be read again
            found = self.grids[key] = times, counts, kept, grid.times()
            if len(self.grids) > SOUND:
                self.grids.popitem(last=False)
        return found

    def _set_values(self, space: Workspace, params: Any, q0: Any, v0: Any) -> bool:
        """Put parameters and initial state in their places; False if they are not as usual."""
        own_params, own_q0, own_v0 = self.own
        given = own_params if params is None else params
        if not (space.has(given) or self._set_tree(space, given)):
            return False
        vectors = (own_q0 if q0 is None else q0), (own_v0 if v0 is None else v0)
        for j, x in enumerate(vectors):
            if x is space.vectors[j]:
                continue
            array = _usual(x, self.size[j], np.dtype(float))
            if array is None:
                return False
            space.set(space.start[j], array)
            space.vectors[j] = x if isinstance(x, jax.Array) else None
        return True

    def _set_tree(self, space: Workspace, params: Any) -> bool:
        """The same for parameters that are not known to be in their places."""
        tree: Any
        leaves, tree = jax.tree.flatten(params)
        space.fixed_table = {}
        if tree != self.tree:
            return False
        if not (space.is_fixed and all(map(is_, leaves, space.leaves))):
            space.is_fixed = False
            if not self._set_params(space, leaves):
                return False
            space.is_fixed = all(isinstance(x, jax.Array) for x in leaves)
        if space.is_fixed and self.is_table:
            space.fixed_table, space.shown_table = dict(params), self._params(space, params)
        return True

    def _set_params(self, space: Workspace, leaves: list[Any]) -> bool:
        for j, x in enumerate(leaves):
            number = space.params[j]
            if x is space.leaves[j] and isinstance(x, jax.Array):
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
            space.arrays[j] = array.reshape(shape)
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
        grid = self._grid(step, t_end, save_every)
        usual = type(max_events) in INTEGERS and max_events > 0 and self.misses < MISSES
        if grid is None or not usual:
            return None
        times, counts, kept, t = grid
        self._add_work(counts[1])
        space = self.workspace.here
        if not self._set_values(space, *values):
            return None
        if check and self._start(space) not in self.sound:
            return None
        space.set_numbers(times, (*counts, max_events))
        samples, records = _computed(space, kept)
        if space.status():
            self.misses += 1
            return None
        self.misses = 0
        given = self.own[0] if values[0] is None else values[0]
        table = {"records": _filled(Event, records), "count": np.array(len(records["t"]))}
        fields = {
            **self.about,
            **samples,
            **space.ending.whole(),
            "t": t.copy(),
            "events": _filled(Events, table),
            "effort": _filled(Effort, space.effort.whole()),
            "params": dict(space.shown_table) if space.fixed_table else self._params(space, given),
            "step": times[2],
            "save_every": counts[0],
            "t_end": times[1],
        }
        return _filled(Solution, fields)

    def _params(self, space: Workspace, given: Any) -> Any:
        """What `plain` makes of the parameters."""
        arrays = [
            old if new is None else new for old, new in zip(self.leaves, space.arrays, strict=True)
        ]
        if self.is_table:
            found = dict(zip(sorted(given), arrays, strict=True))  # as JAX sorts them
            return {str(key): found[key] for key in given}
        return plain(jax.tree.unflatten(self.tree, arrays), other=lambda name, x: x)

    # Checks

    def _start(self, space: Workspace) -> bytes:
        """What a check of the start depends on."""
        numbers = [k for k in space.params if k != NO_ARRAY]
        return b"".join([space.held(k).tobytes() for k in (*numbers, *space.start)])

    def remember_sound(self, params: Any, q0: Any, v0: Any) -> None:
        """The start was checked."""
        space = self.workspace.here
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


def _computed(space: Workspace, kept: np.ndarray) -> tuple[dict, dict]:
    """Samples and records of a run, in memory of their own."""
    taken = lambda: (space.samples.first(space.count()), space.records.first(space.event_count()))
    parts = [taken() for _ in space.blocks(kept)]
    return parts[0] if len(parts) == 1 else _joined(parts)


def _joined(parts: list[tuple[dict, dict]]) -> tuple[dict, dict]:
    """Samples and records of several blocks."""
    join = lambda tables: {name: np.concatenate([x[name] for x in tables]) for name in tables[0]}
    return join([samples for samples, _ in parts]), join([records for _, records in parts])


def may_be_coarse(problem: Problem, integrator: AbstractIntegrator) -> bool:
    """Whether the look at steps that are too long applies. It reads smooth velocities, and those of
    contacts jump without an event."""
    return not integrator.controls_error and not has_contacts(problem)


def has_contacts(problem: Problem) -> bool:
    return any(part.unilateral for part in problem.constraint)


def _usual(x: Any, shape: tuple, dtype: Any) -> np.ndarray | None:
    """The array of a number or an array of this shape, if its type can become this one."""
    known = isinstance(x, jax.Array) and not isinstance(x, jax.core.Tracer)
    if not known and type(x) not in NUMBERS:
        return None
    array = np.asarray(x)
    if array.shape != shape or not np.can_cast(array.dtype, dtype, "safe"):
        return None
    return np.array(array, dtype) if type(x) is np.ndarray else array.astype(dtype, copy=False)


def _filled(cls: type, fields: dict[str, Any]) -> Any:
    """An object of an equinox class that keeps this table of its fields, made as JAX does it: these
    have been checked and converted before."""
    made: Any = object.__new__(cls)
    object.__setattr__(made, "__dict__", fields)
    return made
