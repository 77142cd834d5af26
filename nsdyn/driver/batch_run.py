"""`sweep`: many trajectories of one problem, in chunks of equal size that share one program.

The size of a chunk is a power of two, so that sweeps of all sizes share a few programs; the last
chunk is filled up by repetition. Chunks are small, because in a batch every trajectory waits
wherever one of them switches, and copies its event log while it waits. They run in threads, one for
each core, unless the program calls LAPACK (systems of more than 5 unknowns): XLA shares a batched
call out to the threads that wait for it, and programs side by side can wait for ever.
"""

import dataclasses
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Lock
from typing import Any

import equinox as eqx
import jax
import numpy as np

from nsdyn.analysis.singular import warn_if_singular
from nsdyn.driver.grid import Grid
from nsdyn.driver.pure_run import MAX_EVENTS, Events, Rollout, check_names, rollout, settings
from nsdyn.driver.single_run import (
    as_floats,
    canonical_dtype,
    options,
    refuse_tracers,
    same_structure,
)
from nsdyn.errors import ProblemError
from nsdyn.laws.base import AbstractLaw, code_name, message
from nsdyn.problem import Problem, as_arrays
from nsdyn.results.solution import EVENTS, EventTable
from nsdyn.status import Status
from nsdyn.stepping.integrator import AbstractIntegrator

CHUNK = 32  # trajectories at most in one chunk
WORTH_A_THREAD = 16  # fewer trajectories than these are not split between cores
WORK = 4  # bytes in use while a chunk runs, for each byte of its results
PROGRAMS = 32  # compiled programs kept


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """Trajectories along the first axis of all arrays but `t`. Rows after a failure are NaN; see
    `status` and `failed`.

    `events` has arrays of fixed capacity, of which the first `events.count[i]` of trajectory i are
    filled.
    """

    t: np.ndarray
    q: np.ndarray
    v: np.ndarray
    lam: np.ndarray
    mode: np.ndarray
    energy: np.ndarray
    events: Events
    status: np.ndarray
    t_stop: np.ndarray
    mode_stop: np.ndarray
    law: AbstractLaw | None = None

    def __len__(self):
        return len(self.status)

    def __repr__(self):
        return (
            f"Sweep({len(self)} trajectories of {len(self.t)} rows, {int(np.sum(~self.ok))} failed)"
        )

    @property
    def ok(self) -> np.ndarray:
        """Which trajectories reached t_end."""
        return self.status == Status.OK

    @property
    def failed(self) -> str:
        """What went wrong, by kind, with the first few trajectories of each; empty if nothing
        did."""
        lines = []
        for code in np.unique(self.status[~self.ok]):
            which = np.flatnonzero(self.status == code)
            some = ", ".join(f"{i} (t = {self.t_stop[i]:.6g})" for i in which[:5]) + (
                ", ..." if len(which) > 5 else ""
            )
            lines.append(
                f"{len(which)} of {len(self)} {code_name(self.law, code)}: "
                f"{message(self.law, code)}. "
                f"Trajectories {some}"
            )
        return "\n".join(lines)


def sweep(
    problem: Problem,
    integrator: AbstractIntegrator,
    *,
    step: float,
    law: AbstractLaw | None = None,
    params: Any = None,
    q0=None,
    v0=None,
    t_end: float | None = None,
    save_every: int = 1,
    max_events: int = MAX_EVENTS,
    memory: float = 1e9,
    progress: Callable[[int, int], Any] | None = None,
) -> Sweep:
    """Simulate a batch. Leaves of `params`, and `q0`, `v0`, are one value for all or have one more,
    leading, axis.

    `memory` (bytes) bounds what runs at a time, not the results. `progress(done, total)` is called
    after each chunk. A trajectory that fails is marked in `status`; it raises nothing.
    """
    grid, law = settings(problem, integrator, step, law, t_end, save_every, max_events)
    refuse_tracers("sweep", problem, integrator, law, params, q0, v0)
    batched, shared, total = _values(problem, params, q0, v0)
    size, workers = _layout(total, WORK * _bytes(problem, grid, int(max_events)), memory)

    bare = eqx.tree_at(
        lambda x: (x.params, x.q0, x.v0), problem, (None, None, None), is_leaf=lambda x: x is None
    )
    fixed = (bare, integrator, law, grid, int(max_events), shared)
    chunk = lambda first: np.minimum(np.arange(first, first + size), total - 1)
    part = lambda first: jax.tree.map(lambda x: np.asarray(x)[chunk(first)], batched)
    program, side_by_side = _program(*fixed, part(0))
    results = _Results(total)
    with ThreadPoolExecutor(workers if side_by_side else 1) as threads:
        tasks = [
            threads.submit(lambda k: results.put(k, program(*fixed, part(k))), k)
            for k in range(0, total, size)
        ]
        try:
            done = 0
            for task in as_completed(tasks):
                done += task.result()
                if progress is not None:
                    progress(done, total)
        except BaseException:  # an interrupt, too, should not wait for what has not begun
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    names = [field.name for field in dataclasses.fields(Sweep) if field.name not in ("t", "law")]
    arrays = {name: getattr(results.out, name) for name in names}
    out = Sweep(t=grid.rows(), law=law, **arrays)
    switches, which = _all_switches(out.events)
    own = lambda k: eqx.combine(jax.tree.map(lambda x: x[which[k]], batched), shared)[0]
    warn_if_singular(problem, switches, own, lambda k: f"trajectory {which[k]}: ")
    return out


def _all_switches(events: Events) -> tuple[EventTable, np.ndarray]:
    """The switches of all trajectories in one table, and which trajectory each belongs to."""
    which, slot = np.nonzero(np.arange(events.t.shape[1]) < events.count[:, None])
    return EventTable(*(getattr(events, name)[which, slot] for name in EVENTS)), which


def _batch(problem, integrator, law, grid: Grid, max_events: int, shared, batched) -> Rollout:
    def one(values):
        params, q0, v0 = eqx.combine(values, shared)
        out = rollout(
            problem, integrator, law=law, params=params, q0=q0, v0=v0, **options(grid, max_events)
        )
        return eqx.tree_at(lambda x: x.t, out, None)  # the grid is the same for all

    return jax.vmap(one)(batched)


_run: Any = eqx.filter_jit(_batch)
_programs: dict = {}


def _program(*args) -> tuple[Callable, bool]:
    """`_run` compiled for such arguments, once: threads that met it first at the same time would
    each compile it. And whether it may run in several threads at a time."""
    arrays, rest = eqx.partition(args, eqx.is_array)
    types = tuple(jax.typeof(x) for x in jax.tree.leaves(arrays))
    key = (
        jax.tree.structure(rest),
        tuple(jax.tree.leaves(rest)),
        jax.tree.structure(arrays),
        types,
    )
    if key not in _programs:
        if len(_programs) >= PROGRAMS:
            _programs.pop(next(iter(_programs)))
        lowered = _run.lower(*args)
        _programs[key] = lowered.compile(), "lapack" not in lowered.as_text()
    return _programs[key]


def _values(problem: Problem, params, q0, v0) -> tuple[tuple, tuple, int]:
    """(params, q0, v0) as arrays, split into batched and shared ones, and the size of the batch."""
    own = (problem.params, problem.q0, problem.v0)
    floats = lambda name, x, mine: mine if x is None else as_floats(name, x)
    given = (
        own[0] if params is None else as_arrays(params),
        floats("q0", q0, own[1]),
        floats("v0", v0, own[2]),
    )
    if isinstance(own[0], dict) and isinstance(given[0], dict):
        check_names(own[0], given[0])
    if not same_structure(own, given):
        raise ProblemError(
            f"params: expected the structure of problem.params, {jax.tree.structure(own[0])}, "
            f"found {jax.tree.structure(given[0])}. "
            "Lists of numbers should be arrays"
        )
    paths, _ = jax.tree_util.tree_flatten_with_path(given)
    sizes, leaves = {}, []
    for (path, x), like in zip(paths, jax.tree.leaves(own), strict=True):
        name = ("params", "q0", "v0")[path[0].idx] + jax.tree_util.keystr(path[1:])
        if eqx.is_array(like) and not eqx.is_array(x):
            raise ProblemError(f"{name}: expected numbers, found {x!r}")
        leaves.append(canonical_dtype(x, like) if eqx.is_array(like) else x)
        if eqx.is_array(like) and np.shape(x) != like.shape:
            if np.shape(x)[1:] != like.shape or np.ndim(x) != like.ndim + 1:
                wanted = f"{like.shape}, or {('B', *like.shape)} for a batch of B".replace("'", "")
                raise ProblemError(f"{name}: expected shape {wanted}, found {np.shape(x)}")
            sizes[name] = np.shape(x)[0]
    total = _total(sizes)
    mask = [
        np.ndim(x) > np.ndim(like) for x, like in zip(leaves, jax.tree.leaves(own), strict=True)
    ]
    tree = jax.tree.structure(own)
    return *eqx.partition(jax.tree.unflatten(tree, leaves), jax.tree.unflatten(tree, mask)), total


def _total(sizes: dict[str, int]) -> int:
    if not sizes:
        raise ProblemError(
            "sweep: expected params, q0 or v0 with one more, leading, axis, found none. "
            "For a single run call nsdyn.simulate"
        )
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{name}: {size}" for name, size in sizes.items())
        raise ProblemError(f"sweep: expected one batch size along the leading axes, found {found}")
    name, total = next(iter(sizes.items()))
    if total == 0:
        raise ProblemError(f"{name}: expected at least one trajectory, found a batch of none")
    return total


def _bytes(problem: Problem, grid: Grid, max_events: int) -> int:
    """The size of one trajectory's results."""
    q, v = problem.q0, problem.v0
    model = problem.model()
    mode = sum(int(np.prod(shape)) for shape in model.mode_shapes) or 1
    row = q.size + v.size + model.m + mode + 1
    record = 3 + 2 * mode + q.size + 2 * v.size + model.m * (1 + v.size)
    return 8 * (len(grid.saved) * row + (max_events if model.k else 0) * record)


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
        self.total, self.lock, self.out = total, Lock(), None

    def put(self, first: int, chunk: Rollout) -> int:
        """Take in a chunk, without what fills up the last one; how many trajectories it had."""
        chunk = jax.tree.map(np.asarray, chunk)
        with self.lock:
            if self.out is None:
                self.out = jax.tree.map(
                    lambda x: np.empty((self.total, *x.shape[1:]), x.dtype), chunk
                )
        count = min(len(chunk.status), self.total - first)
        for whole, part in zip(jax.tree.leaves(self.out), jax.tree.leaves(chunk), strict=True):
            whole[first : first + count] = part[:count]
        return count
