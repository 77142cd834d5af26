"""`sweep`: many trajectories of one problem, in chunks of equal size that share one program.

The size of a chunk is a power of two, so that sweeps of all sizes share a few programs; the last
chunk is filled up by repetition. Chunks are small, because in a batch every trajectory waits
wherever one of them has an event, and copies its event log while it waits. They run in threads, one
for each core, unless the program calls LAPACK (systems of more than 6 unknowns): XLA shares a
batched call out to the threads that wait for it, and programs side by side can wait for ever.
"""

import dataclasses
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Lock
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from nsdyn.analysis.singular import warn_if_singular
from nsdyn.driver import backend as backends
from nsdyn.driver.arguments import (
    MAX_EVENTS,
    Batch,
    Setup,
    Values,
    batch_values,
    refuse_tracers,
    setup,
    shown,
)
from nsdyn.driver.backend import LANES
from nsdyn.driver.blocks import ADVANCE, BEGIN, BLOCK_OF_BATCH, Programs, traced
from nsdyn.driver.collect import Collected, collect, sampled
from nsdyn.driver.dense import kept_steps, with_cut_grid
from nsdyn.driver.grid import CHUNK as STEPS
from nsdyn.errors import ProblemError
from nsdyn.laws.base import AbstractLaw
from nsdyn.problem import Problem
from nsdyn.results.events import Events
from nsdyn.results.solution import Solution, plain
from nsdyn.stepping.integrator import IntegratorLike
from nsdyn.tolerances import Tolerances

CHUNK = 32  # trajectories at most in one chunk
WORTH_A_THREAD = 16  # fewer trajectories than these are not split between cores
WORK = 4  # bytes in use while a chunk runs, for each byte of its results
MEMORY = 1e9  # bytes
KEPT = 32  # compiled programs kept


def sweep(
    problem: Problem,
    integrator: IntegratorLike,
    *,
    step: float,
    law: AbstractLaw | None = None,
    params: Any = None,
    q0=None,
    v0=None,
    phase: Any = None,
    t_end: float | None = None,
    save_every: int = 1,
    save_at: Any = None,
    max_events: int = MAX_EVENTS,
    tolerances: Tolerances | None = None,
    memory: float = MEMORY,
    progress: Callable[[int, int], Any] | None = None,
) -> Solution:
    """Simulate a batch. Leaves of `params`, and `q0`, `v0`, are one value for all or have one more,
    leading, axis. `phase` are fractions of the step by which the first step of each run is shorter:
    so the same event falls on other places in its step. The times `t` then have that axis, too.

    Samples are taken as in `simulate`. `memory` (bytes) bounds what runs at a time, not the
    results. `progress(done, total)` is called after each chunk. A trajectory that fails is marked
    in `status`; it raises nothing. Its samples from then on are NaN.
    """
    run = setup(
        problem,
        integrator,
        law,
        step=step,
        t_end=t_end,
        save_every=save_every,
        save_at=save_at,
        max_events=max_events,
        tolerances=tolerances,
    )
    refuse_tracers("sweep", problem, run, params, q0, v0)
    ready = prepared(problem, run, batch_values(problem, params, q0, v0, phase), memory)
    run, batch = ready.run, ready.batch
    results = _Results(batch.total)
    compute = lambda first: results.put(first, ready.chunk(first))
    with ThreadPoolExecutor(ready.workers) as threads:
        tasks = [threads.submit(compute, first) for first in ready.firsts]
        try:
            done = 0
            for task in as_completed(tasks):
                done += task.result()
                if progress is not None:
                    progress(done, batch.total)
        except BaseException:  # an interrupt, too, should not wait for what has not begun
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    params = plain(batch.params(), other=lambda name, x: x)
    about = {**run.about(problem), **shown(problem), "backend": ready.backend}
    solution = results.whole.solution(_times(run, batch), params, about)
    _warn_if_singular(problem, batch, solution.events)
    return solution


class Prepared(NamedTuple):
    """A sweep whose programs are compiled: what each chunk of `size` trajectories goes through."""

    run: Setup
    batch: Batch
    kept: np.ndarray
    programs: Programs
    size: int
    workers: int
    backend: str

    @property
    def firsts(self) -> range:
        """The numbers of the first trajectories of all chunks."""
        return range(0, self.batch.total, self.size)

    def chunk(self, first: int) -> Collected:
        """The trajectories from `first` on; the last chunk is filled up."""
        own, shared = _part(self.batch, first, self.size), self.batch.shared
        found = collect(self.run, own, shared, self.kept, self.programs)
        return found if self.run.save_at is None else sampled(self.run, own, shared, found)


def prepared(problem: Problem, run: Setup, batch: Batch, memory: float = MEMORY) -> Prepared:
    """The sweep of a batch, laid out and compiled."""
    run = with_cut_grid(_with_phases(run, batch))
    kept = kept_steps(run)
    each = WORK * _bytes(problem, len(kept), run.max_events)
    size, workers = _layout(batch.total, each, memory)
    if backends.choice() != "xla" and size >= LANES:
        size = LANES
    programs, side_by_side, backend = _programs(run, _part(batch, 0, size), batch.shared)
    return Prepared(run, batch, kept, programs, size, workers if side_by_side else 1, backend)


def _part(batch: Batch, first: int, size: int) -> Values:
    which = np.minimum(np.arange(first, first + size), batch.total - 1)
    return jax.tree.map(lambda x: np.asarray(x)[which], batch.own)


def _with_phases(run: Setup, batch: Batch) -> Setup:
    if not batch.has_short_steps:
        return run
    if run.save_at is not None:
        raise ProblemError("phase and save_at: expected one of the two, found both")
    return dataclasses.replace(run, grid=run.grid.with_short_steps())


def _times(run: Setup, batch: Batch) -> np.ndarray:
    if not batch.has_short_steps:
        return run.times
    return run.grid.times_of(run.grid.saved, batch.own.phase)


def _warn_if_singular(problem: Problem, batch: Batch, events: Events) -> None:
    """Warn of the first singular event, with the number of its trajectory."""
    which, slot = np.nonzero(np.arange(events.t.shape[1]) < events.count[:, None])
    table = Events.of(jax.tree.map(lambda x: x[which, slot], events.records))
    own = lambda k: jax.tree.map(lambda x: x[which[k]], batch.own.params)
    params = lambda k: eqx.combine(own(k), batch.shared.params)
    warn_if_singular(problem, table, params, lambda k: f"trajectory {which[k]}: ")


_compiled: dict = {}


def _programs(run: Setup, own: Values, shared: Values) -> tuple[Programs, bool, str]:
    """The programs compiled for such arguments, once: threads that met them first at the same time
    would each compile them. Whether they may run in several threads at a time, and which backend it
    is."""
    if len(jax.tree.leaves(own)[0]) == LANES:
        native, backend = backends.programs(run, own, shared)
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
    return 8 * (samples * sample + (events if model.k else 0) * record)


def _layout(total: int, each: int, memory) -> tuple[int, int]:
    """Trajectories in a chunk and chunks at a time, such that they stay within `memory`."""
    if not isinstance(memory, int | float | np.number) or not memory > 0:
        raise ProblemError(f"memory: expected a positive number of bytes, found {memory!r}")
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    fits = int(min(memory / each, cores * CHUNK))
    if fits < 1:
        raise ProblemError(
            f"memory: one trajectory needs about {each:.3g} bytes, found {memory:.3g}. "
            "Raise memory or save_every, or lower max_events"
        )
    workers = max(1, min(cores, fits, total // WORTH_A_THREAD))
    needed = 1 << (-(-total // workers) - 1).bit_length()
    return min(CHUNK, needed, 1 << (fits // workers).bit_length() - 1), workers


class _Results:
    """The arrays of a sweep, filled chunk by chunk."""

    def __init__(self, total: int):
        self.total = total
        self.lock = Lock()
        self.whole: Any = None

    def put(self, first: int, chunk: Collected) -> int:
        """Take in a chunk, without what fills up the last one; how many trajectories it had."""
        with self.lock:
            if self.whole is None:
                empty = lambda x: np.empty((self.total, *x.shape[1:]), x.dtype)
                self.whole = jax.tree.map(empty, chunk)
        count = min(len(chunk.ending.status), self.total - first)
        for whole, part in zip(jax.tree.leaves(self.whole), jax.tree.leaves(chunk), strict=True):
            whole[first : first + count] = part[:count]
        return count
