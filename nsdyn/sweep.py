"""`sweep`: many trajectories of one problem, in chunks of equal size that share one program.

A chunk is a power of two, so that sweeps of all sizes share a few programs; the last one is filled up by repetition. It is
kept small: in a batch every trajectory waits wherever one of them switches, and carries its event log through the wait.
Chunks run in threads, one for each core, which is where the speed of larger sweeps comes from.
"""

import dataclasses
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import lru_cache
from threading import Lock
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nsdyn.errors import ProblemError
from nsdyn.integrator import AbstractIntegrator
from nsdyn.law import AbstractLaw
from nsdyn.march import Grid
from nsdyn.model import Model
from nsdyn.problem import Problem, as_arrays
from nsdyn.rollout import MAX_EVENTS, Events, Rollout, rollout, settings
from nsdyn.simulate import as_floats, check_names, refuse_tracers, strong
from nsdyn.status import MESSAGES, Status

CHUNK = 64  # trajectories at most in one chunk
WORK = 4  # bytes in use while a chunk runs, for each byte of its results


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Sweep:
    """Trajectories along the first axis of all arrays but `t`. Rows after a failure are NaN; see `status` and `failed`.

    `events` has arrays of fixed capacity, of which the first `events.count[i]` of trajectory i are filled.
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

    def __len__(self):
        return len(self.status)

    def __repr__(self):
        return f"Sweep({len(self)} trajectories of {len(self.t)} rows, {int(np.sum(~self.ok))} failed)"

    @property
    def ok(self) -> np.ndarray:
        """Which trajectories reached t_end."""
        return self.status == Status.OK

    @property
    def failed(self) -> str:
        """What went wrong, by kind, with the first few trajectories of each; empty if nothing did."""
        lines = []
        for code in np.unique(self.status[~self.ok]):
            which = np.flatnonzero(self.status == code)
            some = ", ".join(f"{i} (t = {self.t_stop[i]:.6g})" for i in which[:5]) + (", ..." if len(which) > 5 else "")
            lines.append(f"{len(which)} of {len(self)} {Status(code).name}: {MESSAGES[Status(code)]}. Trajectories {some}")
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
    """Simulate a batch. Leaves of `params`, and `q0`, `v0`, are one value for all or have one more, leading, axis.

    `memory` (bytes) bounds what runs at a time, not the results. `progress(done, total)` is called after each chunk. A
    trajectory that fails is marked in `status`; it raises nothing.
    """
    grid, law = settings(problem, integrator, step, law, t_end, save_every, max_events)
    refuse_tracers("sweep", problem, integrator, law, params, q0, v0)
    values, mask = _values(problem, params, q0, v0)
    batched, shared = eqx.partition(values, mask)
    total = _total(values, mask)
    size, workers = _layout(total, WORK * _bytes(problem, grid, int(max_events)), memory)

    bare = eqx.tree_at(lambda x: (x.params, x.q0, x.v0), problem, (None, None, None), is_leaf=lambda x: x is None)
    fixed = (bare, integrator, law, grid, int(max_events), shared)
    part = lambda first: jax.tree.map(lambda x: x[np.minimum(np.arange(first, first + size), total - 1)], batched)
    program = _program(*fixed, part(0))
    results = _Results(total)
    with ThreadPoolExecutor(workers) as threads:
        tasks = [threads.submit(lambda k: results.put(k, program(*fixed, part(k))), k) for k in range(0, total, size)]
        try:
            for done, task in enumerate(as_completed(tasks), start=1):
                task.result()
                if progress is not None:
                    progress(min(done * size, total), total)
        except BaseException:  # an interrupt, too, should not wait for what has not begun
            threads.shutdown(wait=False, cancel_futures=True)
            raise
    return results.sweep()


@eqx.filter_jit
def _run(problem, integrator, law, grid: Grid, max_events: int, shared, batched) -> Rollout:
    options = {"step": grid.step, "t_end": grid.t_end, "save_every": grid.save_every, "max_events": max_events}

    def one(values):
        params, q0, v0 = eqx.combine(values, shared)
        return rollout(problem, integrator, law=law, params=params, q0=q0, v0=v0, **options)

    return jax.vmap(one)(batched)


_programs: dict = {}


def _program(*args) -> Callable:
    """`_run` compiled for these arguments, once: threads that call it for the first time together would each compile it."""
    arrays, rest = eqx.partition(args, eqx.is_array)
    leaves, structure = jax.tree.flatten(rest)
    types = tuple(jax.typeof(x) for x in jax.tree.leaves(arrays))
    key = (structure, tuple(leaves), jax.tree.structure(arrays), types)
    if key not in _programs:
        if len(_programs) >= PROGRAMS:
            _programs.pop(next(iter(_programs)))
        _programs[key] = _run.lower(*args).compile()
    return _programs[key]


# What is batched.


def _values(problem: Problem, params, q0, v0):
    """(params, q0, v0) as arrays, and of the same structure which of them are batched."""
    own = problem.params
    given = own if params is None else as_arrays(params)
    if isinstance(own, dict) and isinstance(given, dict):
        check_names(own, given)
    if jax.tree.structure(given) != jax.tree.structure(own):
        raise ProblemError(
            f"params: expected the structure of problem.params, {jax.tree.structure(own)}, found {jax.tree.structure(given)}"
        )
    paths, structure = jax.tree_util.tree_flatten_with_path(given)
    pairs = zip(paths, jax.tree.leaves(own), strict=True)
    leaves = [_leaf(f"params{jax.tree_util.keystr(path)}", x, like) for (path, x), like in pairs]
    values, mask = (structure.unflatten(column) for column in (zip(*leaves, strict=True) if leaves else ((), ())))
    for name, given in (("q0", q0), ("v0", v0)):
        like = getattr(problem, name)
        value, batched = _leaf(name, like if given is None else as_floats(name, given), like)
        values, mask = (values, value) if name == "q0" else (*values, value), (mask, batched) if name == "q0" else (*mask, batched)
    return values, mask
