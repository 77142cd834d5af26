"""Which programs march the blocks of a run: native ones (`nsdyn.native`) or those of XLA.

The environment variable NSDYN_BACKEND says it: `auto` (native where the machine has a compiler and
every operation is known, else XLA), `native` or `xla`. `Solution.backend` tells which it was.

A native program is kept by a digest of all that it depends on (`nsdyn._digest`): in a later process
it runs without anything being traced.

A batch is cut into groups of LANES runs that go through one native program side by side. A group
shares the grid, so a block ends for all of its runs where the event log of one of them is full.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

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
from nsdyn.native.build import circumstances, compiler
from nsdyn.native.program import AXIS, Program, Source, reloaded, translate
from nsdyn.native.unsupported import Unsupported

SETTING = "NSDYN_BACKEND"
CHOICES = ("auto", "native", "xla")
DEFAULT = "auto"
LANES = 8
# Samples in a block: a run with few of them need not move the memory of many.
BLOCK_ALONE = 256
BLOCK_OF_LANES = 64
BLOCK_OF_LONG_STEPS = 32
KEPT = 32  # programs kept in memory
FOLDER = "programs"  # of the cache, for those of other processes


def choice() -> str:
    """The setting, checked."""
    found = os.environ.get(SETTING) or DEFAULT
    if found not in CHOICES:
        raise ProblemError(f"{SETTING}: expected one of {', '.join(CHOICES)}, found {found!r}")
    return found


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
    and so are the leaves of the result that `given_once` picks. `runs_once` and `rare` as in
    `Source`."""

    def __init__(
        self,
        function: Callable,
        per_run: tuple[int, ...],
        lanes: int,
        given_once: Callable = lambda result: (),
        runs_once: bool = False,
        rare: bool = False,
    ):
        self.function = function
        self.per_run = per_run
        self.lanes = lanes
        self.given_once = given_once
        self.runs_once = runs_once
        self.rare = rare
        self._made: OrderedDict = OrderedDict()
        self._lock = Lock()

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
                    found = self._kept_or_translated(static, arrays, args)
                except Unsupported as reason:  # asked again, it says so again at once
                    found = reason
                self._made[key] = found
                if len(self._made) > KEPT:
                    self._made.popitem(last=False)
        if isinstance(found, Unsupported):
            raise found
        return found

    def _kept_or_translated(self, static: tuple, arrays: list, args: tuple) -> tuple:
        key = self._key(args)
        if key is not None:
            found = kept(FOLDER, key)
            program = None if found is None else reloaded(*found[:2])
            if program is not None:
                return self._with_structure(program, found[2])
        program, places = self._translated(static, arrays, args)
        if key is not None and _is_unchanged(args[0]):
            keep(FOLDER, key, (program.interface, program.name, places))
        return self._with_structure(program, places)

    def _with_structure(self, program: Program, places: Any) -> tuple[Program, Any, tuple]:
        return program, jax.tree.structure(places), self.given_once(places)

    def _key(self, args: tuple) -> str | None:
        """The digest of what the program depends on; None if that cannot be told, or if nothing is
        kept."""
        if cache_folder(FOLDER) is None:
            return None
        settings = (self.per_run, self.lanes, self.runs_once, self.rare)
        try:
            code = (self.function, self.given_once, Source, circumstances(compiler()))
            return digest("native", settings, code, Traced(args))
        except Unknown:
            return None

    def _translated(self, static: tuple, arrays: list, args: tuple) -> tuple[Program, Any]:
        """The program, and the places of its results in the form of the function's result."""
        many = self.lanes > 1
        own = [k in self.per_run and many for k, x in enumerate(args) for _ in split((x,))[1]]
        one = [x[0] if flag else x for x, flag in zip(arrays, own, strict=True)]
        structure: Any = None

        def flat(*values):
            nonlocal structure
            leaves, structure = jax.tree.flatten(self.function(*unsplit(static, values)))
            return leaves

        program = translate(flat, one, own, self.lanes, self.runs_once, self.rare)
        return program, jax.tree.unflatten(structure, range(structure.num_leaves))


def _of_group(result: tuple[Block, Any]) -> tuple:
    """The numbers of a block that all runs of a group share."""
    block, _ = result
    return block.count, block.step


SINGLE = Programs(
    NativeProgram(_begin, (), 1, runs_once=True),
    NativeProgram(_advance(_alone), (), 1, rare=True),
    BLOCK_ALONE,
)
# With error control a run has few steps: its events take a good part of its time.
CONTROLLED = Programs(
    NativeProgram(_begin, (), 1, runs_once=True),
    NativeProgram(_advance(_alone), (), 1),
    BLOCK_OF_LONG_STEPS,
)
GROUP = Programs(
    NativeProgram(_begin, (1,), LANES, runs_once=True),
    NativeProgram(_advance(_in_all_lanes), (1, 3), LANES, _of_group),
    BLOCK_OF_LANES,
)


def alone(run: Setup) -> Programs:
    """The native programs of a single run."""
    return CONTROLLED if run.integrator.controls_error else SINGLE


_ready: set = set()  # arguments for which both programs were made


def make(native: Programs, run: Setup, own: Values, shared: Values) -> None:
    """Compile both programs, or raise Unsupported before anything runs; once for such arguments."""
    static, arrays = split((run, own, shared))
    key = static, tuple((np.shape(x), x.dtype) for x in arrays)
    if key in _ready:
        return
    progress = native.begin(run, own, shared)
    numbers = (np.full(native.size + CHUNK, NEVER), np.asarray(0), np.asarray(CHUNK))
    native.advance(run, own, shared, progress, *numbers)
    if len(_ready) >= KEPT:
        _ready.clear()
    _ready.add(key)


def programs(run: Setup, own: Values, shared: Values) -> tuple[Programs, str]:
    """The programs for a run, or for a group of LANES, and the name of the backend."""
    wanted = choice()
    if wanted == "xla":
        return PROGRAMS, "xla"
    native = GROUP if is_batch(own) else alone(run)
    try:
        make(native, traced(run), own, shared)
    except Unsupported as reason:
        if wanted == "native":
            raise ProblemError(
                f"{SETTING}=native: the native backend does not know {reason}"
            ) from reason
        return PROGRAMS, "xla"
    return native._replace(march=_march(native, run, own, shared)), "native"


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
