"""Many trajectories of one problem, in chunks of equal size that share one program.

The size of a chunk is a power of two, so that sweeps of all sizes share a few programs; the last
chunk is filled up by repetition. It does not depend on the number of cores or processes, and so the
bits of a result do not. Chunks are small, because in a batch every trajectory waits wherever one of
them has an event, and copies its event log while it waits. They may run in threads, one for each
core, unless the program calls LAPACK (systems of more than 6 unknowns under XLA): XLA shares a
batched call out to the threads that wait for it, and programs side by side can wait for ever.
"""

import dataclasses
import os
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from nsdyn.driver import backend as backends
from nsdyn.driver.arguments import (
    Batch,
    Setup,
    Values,
)
from nsdyn.driver.backend import LANES
from nsdyn.driver.blocks import ADVANCE, BEGIN, BLOCK_OF_BATCH, Programs, traced
from nsdyn.driver.collect import Collected, collect, sampled
from nsdyn.driver.dense import kept_steps, with_cut_grid
from nsdyn.driver.filling import Results
from nsdyn.driver.grid import CHUNK as STEPS
from nsdyn.errors import ProblemError
from nsdyn.problem import Problem

CHUNK = 32  # trajectories at most in one chunk
WORTH_A_THREAD = 16  # fewer trajectories than these are not split between cores
WORK = 4  # bytes in use while a chunk runs, for each byte of its results
MEMORY = 1e9  # bytes
MOST = 1 << 30  # trajectories in a chunk, whatever the memory
KEPT = 32  # compiled programs kept


class Layout(NamedTuple):
    """A sweep cut into chunks.

    kept: the numbers of the steps that are recorded.
    size: the trajectories in a chunk.
    fits: the chunks that may be under way at a time.
    each: the bytes of the results of one trajectory.
    """

    run: Setup
    batch: Batch
    kept: np.ndarray
    size: int
    fits: int
    each: int


def laid_out(problem: Problem, run: Setup, batch: Batch, memory: float = MEMORY) -> Layout:
    """The chunks of a sweep; nothing is compiled."""
    run = with_cut_grid(_with_phases(run, batch))
    kept = kept_steps(run)
    each = _bytes(problem, len(kept), run.max_events)
    size, fits = _layout(batch.total, WORK * each, memory)
    if _is_for_lanes(run, batch, size, memory / (WORK * each)):
        size, fits = LANES, max(1, fits * size // LANES)
    return Layout(run, batch, kept, size, fits, each)


def _is_for_lanes(run: Setup, batch: Batch, size: int, fitting: float) -> bool:
    """Whether a chunk shall be what a native program takes, where XLA would have so many runs in
    it, and so many fit into memory. One of few runs is filled up, which costs less than XLA takes
    to compile, unless its steps are long."""
    wanted = backends.choice()
    if wanted == "native" and fitting < LANES:
        raise ProblemError(
            f"memory: native programs take {LANES} trajectories at a time, found room for "
            f"{int(fitting)}. Raise memory or save_every, or lower max_events"
        )
    if not backends.may_be_native() or fitting < LANES:
        return False
    if wanted == "native" or size >= LANES:
        return True
    first = jax.tree.map(lambda x: x[0], batch.own)
    return not backends.has_many_rows(run, eqx.combine(first, batch.shared))


class Prepared(NamedTuple):
    """A sweep whose programs are compiled: what each chunk goes through.

    side_by_side: whether chunks may run in several threads of one process.
    """

    layout: Layout
    programs: Programs
    side_by_side: bool
    backend: str

    @property
    def size(self) -> int:
        return self.layout.size

    @property
    def firsts(self) -> range:
        """The numbers of the first trajectories of all chunks."""
        return range(0, self.layout.batch.total, self.size)

    @property
    def threads(self) -> int:
        """In how many threads the chunks run."""
        return min(cores(), self.layout.fits) if self.side_by_side else 1

    def of(self, batch: Batch) -> "Prepared":
        """The same for other values of the same shapes."""
        return self._replace(layout=self.layout._replace(batch=batch))

    def chunk(self, first: int) -> Collected:
        """The trajectories from `first` on; the last chunk is filled up."""
        run, batch, kept = self.layout[:3]
        own, shared = own_values(batch, first, self.size), batch.shared
        found = collect(run, own, shared, kept, self.programs)
        return found if run.save_at is None else sampled(run, own, shared, found)

    def put(self, results: Results, first: int) -> int:
        """Take the trajectories from `first` on into the results; how many there were."""
        run, batch, kept = self.layout[:3]
        march = self.programs.march
        if march is None or run.save_at is not None:
            return results.put(first, self.chunk(first))
        own = own_values(batch, first, self.size)
        return results.put_blocks(first, march(own, kept), len(kept), int(run.max_events))


def prepared(layout: Layout) -> Prepared:
    """A sweep with its programs, compiled."""
    run, batch = layout.run, layout.batch
    groups = -(-batch.total // layout.size)
    own = own_values(batch, 0, layout.size)
    return Prepared(layout, *_programs(run, own, batch.shared, groups))


def own_values(batch: Batch, first: int, size: int) -> Values:
    """The values of so many trajectories from `first` on; the last one is repeated."""
    which: Any = slice(first, first + size)
    if first + size > batch.total:
        which = np.minimum(np.arange(first, first + size), batch.total - 1)
    return jax.tree.map(lambda x: np.asarray(x)[which], batch.own)


def _with_phases(run: Setup, batch: Batch) -> Setup:
    if not batch.has_short_steps:
        return run
    if run.save_at is not None:
        raise ProblemError("phase and save_at: expected one of the two, found both")
    return dataclasses.replace(run, grid=run.grid.with_short_steps())


_compiled: dict = {}


def _programs(run: Setup, own: Values, shared: Values, groups: int) -> tuple[Programs, bool, str]:
    """The programs compiled for so many groups of such arguments, once: threads that met them first
    at the same time would each compile them. Whether they may run in several threads at a time, and
    which backend it is."""
    if len(jax.tree.leaves(own)[0]) == LANES:
        native, backend = backends.programs(run, own, shared, groups)
        if backend == "native":
            return native, True, backend
    found, side_by_side = _compiled_by_xla(run, own, shared)
    return found, side_by_side, "xla"


def _compiled_by_xla(run: Setup, own: Values, shared: Values) -> tuple[Programs, bool]:
    run = traced(run)
    arrays, rest = eqx.partition((run, own, shared), eqx.is_array_like)
    types = tuple(jax.typeof(np.asarray(x)) for x in jax.tree.leaves(arrays))
    statics = (jax.tree.structure(rest), tuple(jax.tree.leaves(rest)))
    key = (statics, jax.tree.structure(arrays), types)
    if key not in _compiled:
        if len(_compiled) >= KEPT:
            _compiled.pop(next(iter(_compiled)))
        numbers = (np.zeros(BLOCK_OF_BATCH + STEPS, int), np.asarray(0), np.asarray(STEPS))
        begin, first_text = BEGIN.compiled(run, own, shared)
        progress = begin(run, own, shared)
        advance, second_text = ADVANCE.compiled(run, own, shared, progress, *numbers)
        calls_lapack = "lapack" in first_text + second_text
        _compiled[key] = Programs(begin, advance), not calls_lapack
    return _compiled[key]


def _bytes(problem: Problem, samples: int, events: int) -> int:
    """The size of so many samples and events of one trajectory."""
    q, v = problem.q0, problem.v0
    model = problem.model()
    mode = sum(int(np.prod(shape)) for shape in model.mode_shapes) or 1
    sample = q.size + v.size + model.m + mode + 1
    record = 3 + 2 * mode + q.size + 2 * v.size + model.m * (1 + v.size)
    return 8 * (samples * sample + (events if model.may_have_events else 0) * record)


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _layout(total: int, each: int, memory) -> tuple[int, int]:
    """Trajectories in a chunk, and chunks that may run at a time within `memory`. Two chunks at
    least, if that is worth the trouble."""
    if not isinstance(memory, int | float | np.number) or not memory > 0:
        raise ProblemError(f"memory: expected a positive number of bytes, found {memory!r}")
    fits = int(min(memory / each, MOST))
    if fits < 1:
        raise ProblemError(
            f"memory: one trajectory needs about {each:.3g} bytes, found {memory:.3g}. "
            "Raise memory or save_every, or lower max_events"
        )
    worth = total // WORTH_A_THREAD
    pieces = min(2, max(1, worth), fits)
    needed = 1 << (-(-total // pieces) - 1).bit_length()
    size = min(CHUNK, needed, 1 << (fits // pieces).bit_length() - 1)
    return size, max(1, min(fits // size, worth))
