"""Which programs march the blocks of a run: native ones (`nsdyn.native`) or those of XLA.

`nsdyn.native.choice` says which are wanted, `Solution.backend` which they were.

A native program is kept by a digest of all that it depends on (`nsdyn._digest`): in a later process
it runs without anything being traced.

A program is compiled quickly for runs of few steps and well for those of many: once LONG steps are
to have gone through it in this process, in all runs and groups together. The numbers are the same,
but not the times: who compares these has all programs `compiled_well`.

With many contacts nearly all of a step is algebra of large matrices. A single run with more than
MANY_ROWS rows of contacts is left to XLA, unless native programs are asked for. A step of 16
spheres that fall into a heap, 201 rows, takes 2.1 ms there, in a native program 26 ms or, compiled
well, 3.7 ms; and with 93 rows XLA compiles in 23 s, native programs in 11 s and 33 s.

A batch is cut into groups of LANES runs that go through one native program side by side; a group of
fewer is filled up by repetition. A group shares the grid, so a block ends for all of its runs where
the event log of one of them is full.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from nsdyn._cache import cache_folder
from nsdyn._digest import Traced, Unknown, digest
from nsdyn._jitted import split, unsplit
from nsdyn._kept import keep, kept
from nsdyn._watched import is_unchanged
from nsdyn.driver.arguments import Setup, Values
from nsdyn.driver.blocks import (
    NEVER,
    PROGRAMS,
    Block,
    Parts,
    Programs,
    advance,
    begin,
    is_batch,
    traced,
)
from nsdyn.driver.grid import CHUNK
from nsdyn.driver.in_place import InPlace
from nsdyn.errors import ProblemError
from nsdyn.mechanics import contact_rows
from nsdyn.native.build import circumstances, compiler
from nsdyn.native.choice import SETTING, choice
from nsdyn.native.program import AXIS, Program, Source, reloaded, written
from nsdyn.native.unsupported import Unsupported
from nsdyn.stepping.integrator import AbstractIntegrator

LANES = 8
# Samples in a block: a run with few of them need not move the memory of many.
BLOCK_ALONE = 256
BLOCK_OF_LANES = 64
BLOCK_OF_LONG_STEPS = 32
KEPT = 32  # programs kept in memory
# Steps of a single run or of a group from which on a program is compiled well. It pays, in CPU
# time, from 50,000 steps of a robot and 300,000 to 400,000 of a small mechanism on; in groups, from
# 20,000 (the palm with NSGA) to 800,000 on. Too late costs large mechanisms more than too early
# costs small ones.
LONG = 30_000
STEPS_BETWEEN = (
    30  # steps that one from time to time counts for if a method chooses its own between
)
MANY_ROWS = 128  # of contacts, beyond which XLA marches a single run
FOLDER = "programs"  # of the cache, for those of other processes


def _alone(flag: Any) -> Any:
    return flag


def _in_all_lanes(flag: Any) -> Any:
    return jax.lax.pmin(flag.astype(int), AXIS) == 1


def _begin(run: Setup, own: Values, shared: Values) -> Any:
    nothing: Any = jax.tree.map(lambda _: None, shared, is_leaf=lambda x: x is None)
    return begin(run, nothing, eqx.combine(own, shared))


def _advance(together: Callable) -> Callable:
    def one(run: Setup, own: Values, shared: Values, progress: Any, *grid: Any) -> Any:
        nothing: Any = jax.tree.map(lambda _: None, shared, is_leaf=lambda x: x is None)
        values = eqx.combine(own, shared)
        kept, first, length = grid
        return advance(run, nothing, values, progress, kept, first, length, together)

    return one


def _is_unchanged(run: Setup) -> bool:
    return is_unchanged(run.system, run.parts) and is_unchanged(run.integrator, run.law)


class NativeProgram:
    """A function compiled natively for the arrays among its arguments, as `driver.program.Program`
    is by XLA. The arguments at the places `per_run` belong to single runs; the others are shared,
    and so are the leaves of the result that `given_once` picks. It is compiled quickly if it
    `is_quick`; `rare` as in `Source`."""

    def __init__(
        self,
        function: Callable,
        per_run: tuple[int, ...],
        lanes: int,
        given_once: Callable = lambda result: (),
        is_quick: bool = False,
        rare: bool = False,
    ):
        self.function = function
        self.per_run = per_run
        self.lanes = lanes
        self.given_once = given_once
        self.is_quick = is_quick
        self.rare = rare
        self._made: OrderedDict = OrderedDict()
        self._sources: OrderedDict = OrderedDict()
        self._lock = Lock()

    def compiled_well(self) -> "NativeProgram":
        """The same, compiled well; what was written for one need not be written for the other."""
        arguments = (self.function, self.per_run, self.lanes, self.given_once)
        twin = NativeProgram(*arguments, rare=self.rare)
        twin._sources = self._sources
        return twin

    def __call__(self, *args) -> Any:
        static, arrays = split(args)
        arrays = [np.asarray(x) for x in arrays]
        program, structure, shared = self._program(static, arrays, args)
        found = program(arrays)
        for k in shared:
            found[k] = found[k][0]
        return jax.tree.unflatten(structure, found)

    def made_for(self, *args) -> tuple[Program, Any, tuple]:
        """The program for such arguments, the structure of its result, and the numbers of the
        leaves in it that all lanes share."""
        static, arrays = split(args)
        return self._program(static, [np.asarray(x) for x in arrays], args)

    def _program(self, static: tuple, arrays: list, args: tuple) -> tuple[Program, Any, tuple]:
        key = static, tuple((x.shape, x.dtype) for x in arrays)
        with self._lock:
            found = self._made.get(key)
            if found is None:
                try:
                    found = self._kept_or_translated(key, arrays, args)
                except Unsupported as reason:  # asked again, it says so again at once
                    found = reason
                _put(self._made, key, found)
        if isinstance(found, Unsupported):
            raise found
        return found

    def _kept_or_translated(self, like: tuple, arrays: list, args: tuple) -> tuple:
        key = self._key(args)
        for entry in () if key is None else self._entries(key):
            found = kept(FOLDER, entry)
            program = None if found is None else reloaded(*found[:2])
            if program is not None:
                return self._with_structure(program, found[2])
        source, places = self._sources.get(like) or self._written(like[0], arrays, args)
        if self.is_quick:
            _put(self._sources, like, (source, places))
        program = source.program(self.is_quick)
        if key is not None and _is_unchanged(args[0]):
            keep(FOLDER, self._entries(key)[-1], (program.interface, program.name, places))
        return self._with_structure(program, places)

    def _entries(self, key: str) -> list[str]:
        """The names of what may be in the cache and serve, the best first. (What is compiled well
        serves short runs, too.)"""
        return [f"{key}-well", f"{key}-quick"] if self.is_quick else [f"{key}-well"]

    def _with_structure(self, program: Program, places: Any) -> tuple[Program, Any, tuple]:
        return program, jax.tree.structure(places), self.given_once(places)

    def _key(self, args: tuple) -> str | None:
        """The digest of what the program depends on; None if that cannot be told, or if nothing is
        kept."""
        if cache_folder(FOLDER) is None:
            return None
        settings = (self.per_run, self.lanes, self.rare)
        try:
            path = compiler()
            flags = circumstances(path, True), circumstances(path, False)
            code = (self.function, self.given_once, Source, flags)
            return digest("native", settings, code, Traced(args))
        except Unknown:
            return None

    def _written(self, static: tuple, arrays: list, args: tuple) -> tuple[Source, Any]:
        """The text, and the places of its results in the form of the function's result."""
        many = self.lanes > 1
        own = [k in self.per_run and many for k, x in enumerate(args) for _ in split((x,))[1]]
        one = [x[0] if flag else x for x, flag in zip(arrays, own, strict=True)]
        structure: Any = None

        def flat(*values):
            nonlocal structure
            leaves, structure = jax.tree.flatten(self.function(*unsplit(static, values)))
            return leaves

        source = written(flat, one, own, self.lanes, self.rare)
        return source, jax.tree.unflatten(structure, range(structure.num_leaves))


def _of_group(result: tuple[Block, Any]) -> tuple:
    """The numbers of a block that all runs of a group share."""
    block, _ = result
    return block.count, block.step


class Levels(NamedTuple):
    """The programs of runs or groups, compiled quickly and well; they share the beginning, which
    runs once."""

    quick: Programs
    well: Programs

    @property
    def programs(self) -> tuple[NativeProgram, ...]:
        """All of them."""
        return self.quick.begin, self.quick.advance, self.well.advance

    @staticmethod
    def of(begin: NativeProgram, advance: NativeProgram, size: int) -> "Levels":
        return Levels(
            Programs(begin, advance, size), Programs(begin, advance.compiled_well(), size)
        )


SINGLE = Levels.of(
    NativeProgram(_begin, (), 1, is_quick=True),
    NativeProgram(_advance(_alone), (), 1, is_quick=True, rare=True),
    BLOCK_ALONE,
)
# With error control a run has few steps: its events take a good part of its time.
CONTROLLED = Levels.of(
    NativeProgram(_begin, (), 1, is_quick=True),
    NativeProgram(_advance(_alone), (), 1, is_quick=True),
    BLOCK_OF_LONG_STEPS,
)
GROUP = Levels.of(
    NativeProgram(_begin, (1,), LANES, is_quick=True),
    NativeProgram(_advance(_in_all_lanes), (1, 3), LANES, _of_group, is_quick=True),
    BLOCK_OF_LANES,
)


def levels_alone(run: Setup) -> Levels:
    """The programs of a single run."""
    return CONTROLLED if run.integrator.controls_error else SINGLE


_well: ContextVar[bool] = ContextVar("well", default=False)


@contextmanager
def compiled_well() -> Iterator[None]:
    """While this lasts programs are compiled well, however few steps go through them."""
    token = _well.set(True)
    try:
        yield
    finally:
        _well.reset(token)


class Work:
    """The steps that go through the programs of such arguments: these decide how the programs are
    compiled."""

    def __init__(self, levels: Levels):
        self.levels = levels
        self.steps = 0
        self.made: set[bool] = set()  # levels at which both programs were made
        self.refused: Unsupported | None = None  # why there are none
        self.many_rows: bool | None = None  # whether XLA takes less time; None if not asked yet

    def add(self, integrator: AbstractIntegrator, steps: int) -> None:
        """So many steps are about to be taken."""
        self.steps += steps * (STEPS_BETWEEN if integrator.controls_error else 1)

    @property
    def is_long(self) -> bool:
        return self.steps > LONG or _well.get()

    @property
    def programs(self) -> Programs:
        return self.levels.well if self.is_long else self.levels.quick


_work: OrderedDict[tuple, Work] = OrderedDict()


def work(run: Setup, own: Values, shared: Values) -> Work:
    """What is done, and is to be done, with such arguments."""
    static, arrays = split((traced(run), own, shared))
    key = static, tuple((np.shape(x), x.dtype) for x in arrays)
    if key not in _work:
        _put(_work, key, Work(GROUP if is_batch(own) else levels_alone(run)))
    return _work[key]


def _put(table: OrderedDict, key: Any, thing: Any) -> None:
    """Enter something into a table that forgets the oldest."""
    table[key] = thing
    if len(table) > KEPT:
        table.popitem(last=False)


def make(known: Work, run: Setup, own: Values, shared: Values) -> None:
    """Compile both programs, or raise Unsupported before anything runs; once for such arguments."""
    if known.refused is not None:
        raise known.refused
    if known.is_long in known.made:
        return
    native = known.programs
    numbers = (np.full(native.size + CHUNK, NEVER), np.asarray(0), np.asarray(CHUNK))
    try:
        progress = native.begin(run, own, shared)
        native.advance(run, own, shared, progress, *numbers)
    except Unsupported as reason:
        known.refused = reason
        raise
    known.made.add(known.is_long)


def programs(run: Setup, own: Values, shared: Values, groups: int = 1) -> tuple[Programs, str]:
    """The programs for a run, or for so many groups of LANES, and the name of the backend."""
    wanted = choice()
    if wanted == "xla":
        return PROGRAMS, "xla"
    known = work(run, own, shared)
    if wanted == "auto" and _has_many_rows(known, run, own, shared):
        return PROGRAMS, "xla"
    known.add(run.integrator, groups * int(run.grid.steps))
    try:
        make(known, traced(run), own, shared)
    except Unsupported as reason:
        if wanted == "native":
            raise ProblemError(
                f"{SETTING}=native: there is no native program for this, because of {reason}"
            ) from reason
        return PROGRAMS, "xla"
    native = known.programs
    return native._replace(march=_march(native, run, own, shared)), "native"


def _has_many_rows(known: Work, run: Setup, own: Values, shared: Values) -> bool:
    """Whether this is a single run with more than MANY_ROWS rows of contacts."""
    if known.many_rows is None:
        known.many_rows = not is_batch(own) and has_many_rows(run, shared)
    return known.many_rows


def may_be_native() -> bool:
    """Whether native programs are asked for, or wanted and possible on this machine."""
    if choice() != "auto":
        return choice() == "native"
    try:
        return bool(compiler())
    except Unsupported:
        return False


def has_many_rows(run: Setup, values: Values) -> bool:
    """Whether a run with these values has more than MANY_ROWS rows of contacts."""
    if not any(part.unilateral for part in run.parts):
        return False
    return math.prod(contact_rows.size(run.model(values))) > MANY_ROWS


def _march(native: Programs, run: Setup, own: Values, shared: Values) -> Callable:
    """The blocks of runs that have values of their own. Several threads may ask for them: there are
    as many places as are needed at a time."""
    free = [InPlace(native, run, own, shared)]

    def march(own: Values, kept: np.ndarray) -> Iterator[Parts]:
        try:
            place = free.pop()
        except IndexError:
            place = InPlace(native, run, own, shared)
        place.set_own(own)
        yield from place.blocks(kept)
        free.append(place)

    return march
