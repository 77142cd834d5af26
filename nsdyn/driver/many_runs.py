"""`sweep`: many trajectories of one problem, in threads, in other processes or on other machines.

The chunks of a sweep (`nsdyn.driver.batch_run`) do not depend on where they are computed, so the
bits of its results do not, either.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Event
from typing import Any

import equinox as eqx
import jax
import numpy as np

from nsdyn.analysis.singular import warn_if_singular
from nsdyn.driver import sweep_parts
from nsdyn.driver.arguments import (
    MAX_EVENTS,
    Batch,
    Setup,
    batch_values,
    refuse_tracers,
    setup,
    shown,
)
from nsdyn.driver.batch_run import MEMORY, Layout, Prepared, cores, laid_out, prepared
from nsdyn.driver.collect import Collected
from nsdyn.driver.filling import Results
from nsdyn.driver.many_starts import check_starts
from nsdyn.driver.processes import TRIES, Processes
from nsdyn.driver.roomy_threads import roomy_threads
from nsdyn.driver.sweep_parts import Part
from nsdyn.driver.workers import check_workers, connected
from nsdyn.errors import LostRunsWarning, NsdynError, ProblemError, warn
from nsdyn.laws.base import AbstractLaw
from nsdyn.problem import Problem
from nsdyn.results.events import Events, warn_if_full
from nsdyn.results.solution import SAMPLES, Solution, plain
from nsdyn.results.sweep_folder import SweepFolder
from nsdyn.stepping.integrator import IntegratorLike
from nsdyn.tolerances import Tolerances

WORTH_PROCESSES = 30.0  # seconds of work, where one process cannot use all cores
SHOWN = 3  # lost parts in a warning


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
    jobs: int | None = None,
    client: Any = None,
    folder: str | Path | None = None,
) -> Solution:
    """Simulate a batch. Leaves of `params`, and `q0`, `v0`, are one value for all or have one more,
    leading, axis; `nsdyn.samples` makes grids and random samples of them. `phase` are fractions of
    the step by which the first step of each run is shorter: so the same event falls on other places
    in its step. The times `t` then have that axis, too.

    Samples are taken as in `simulate`. `memory` (bytes) bounds what runs at a time, not the
    results. `progress(done, total)` is called after each chunk or part. A trajectory that fails is
    marked in `status`; it raises nothing. Its samples from then on are NaN. Contacts that
    overlap at the start, or whose coefficients are out of their bounds, are an error that names the
    trajectory.

    The bits of the results are the same wherever they are computed:

    jobs: so many new processes on this machine. By default threads of this process; processes only
        for long sweeps whose program can use one core of a process only, as larger systems under
        XLA do, which call LAPACK.
    client: workers elsewhere: the address of a Dask scheduler (extra `dask`), a Dask client, or any
        executor with `submit`. The workers must have nsdyn, and see the folder if there is one.
    folder: where the results are kept, in parts that are complete or not there. A sweep that was
        interrupted goes on where it was when it is called again; a folder of another sweep (other
        numbers, settings or code) is refused. The arrays of the result are mapped, not read:
        `nsdyn.load(folder)` opens them later.

    A worker that dies is replaced. If what it was doing kills one worker after the other, the runs
    of this part get the status LOST, with a warning, and the sweep goes on.
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
    check_workers(jobs, client)
    batch = batch_values(problem, params, q0, v0, phase)
    check_starts(problem, batch)
    layout = laid_out(problem, run, batch, memory)
    report = (lambda *_: None) if progress is None else progress
    settings = _settings(problem, layout)
    if folder is not None:
        solution = _in_folder(problem, layout, (jobs, client, folder), settings, report)
    else:
        ready = prepared(layout)
        results = _in_memory(ready, jobs, client, report)
        solution = results.with_settings(dataclasses.replace(settings, backend=ready.backend))
    _warn_if_singular(problem, batch, solution.events)
    warn_if_full(solution.events, problem.constraint, run.max_events)
    return solution


# In memory


def _in_memory(ready: Prepared, jobs: int | None, client: Any, report: Callable) -> Collected:
    """All results. A program that one process cannot run on all cores shows with its first chunk
    whether more processes are worth it."""
    results, begin = Results(ready.layout.batch.total), 0
    if jobs is None and client is None:
        if not ready.side_by_side and cores() > 1:
            began = time.perf_counter()
            begin = ready.put(results, 0)
            report(begin, results.total)
            left = (time.perf_counter() - began) * (len(ready.firsts) - 1)
            jobs = cores() if left > WORTH_PROCESSES and _can_travel(ready) else None
        if jobs is None:
            _in_threads(ready, results, begin, report)
            return results.whole
    todo = sweep_parts.parts(ready.layout, begin)
    lost = []
    for part, found in _computed(ready, jobs, client, todo, None, report):
        if isinstance(found, Exception):
            lost.append(part)
        else:
            results.put(part.first, found)
    _warn_if_lost(ready.layout.batch, lost, len(todo))
    return results.whole


def _can_travel(ready: Prepared) -> bool:
    try:
        sweep_parts.packed_job(ready)
    except ProblemError:
        return False
    return True


def _in_threads(ready: Prepared, results: Results, begin: int, report: Callable) -> None:
    """The chunks from the run `begin` on. Each thread takes the next one that is left; what it has
    done is told in this thread."""
    left = iter([first for first in ready.firsts if first >= begin])  # threads may share it
    told: SimpleQueue[int] = SimpleQueue()
    done = begin
    stopped = Event()

    def work() -> None:
        try:
            for first in left:
                if stopped.is_set():
                    return
                told.put(ready.put(results, first))
        except BaseException:
            stopped.set()
            raise
        finally:
            told.put(0)  # this thread is at its end

    with roomy_threads(ready.threads) as threads:
        tasks = [threads.submit(work) for _ in range(ready.threads)]
        at_work = len(tasks)
        try:
            while at_work:
                count = told.get()
                if count:
                    done += count
                    report(done, results.total)
                else:
                    at_work -= 1
        finally:  # an error, or an interrupt, should not wait for what has not begun
            stopped.set()
        for task in tasks:
            task.result()


# In parts


def _computed(
    ready: Prepared,
    jobs: int | None,
    client: Any,
    todo: list[Part],
    folder: str | None,
    report: Callable,
) -> Iterator[tuple[Part, Any]]:
    """Parts with their results, or with the error of a worker that died."""
    total = ready.layout.batch.total
    done = total - sum(part.size for part in todo)
    report(done, total)
    if not todo:
        return
    with _workers(ready, jobs, client, len(todo)) as (pool, call):
        for part, found in sweep_parts.finished(pool, call, ready.layout, todo, folder):
            yield part, found
            done += part.size
            report(done, total)


@contextmanager
def _workers(
    ready: Prepared, jobs: int | None, client: Any, most: int
) -> Iterator[tuple[Any, tuple]]:
    """Something with `submit`, and a function, with its first arguments, that computes a part."""
    if jobs is None and client is None:
        with roomy_threads(ready.threads) as threads:
            yield threads, (sweep_parts.Work(ready).part,)
        return
    call = (sweep_parts.compute, sweep_parts.packed_job(ready))
    if jobs is not None:
        with Processes(min(jobs, ready.layout.fits, most)) as processes:
            yield processes, call
        return
    with connected(client) as found:
        yield found, call


def _in_folder(
    problem: Problem, layout: Layout, workers: tuple, settings: Solution, report: Callable
) -> Solution:
    """All results, from the files of a folder."""
    jobs, client, folder = workers
    place = SweepFolder(folder)
    parts = sweep_parts.parts(layout)
    place.claim(sweep_parts.described(problem, layout, parts[0].size))
    if not place.is_complete:
        ready = prepared(layout)
        todo = [part for part in parts if not place.has(part.first)]
        found = _computed(ready, jobs, client, todo, str(place.path.resolve()), report)
        lost = [part for part, error in found if error is not None]
        _warn_if_lost(layout.batch, lost, len(parts))
        settings = dataclasses.replace(settings, backend=ready.backend)
        place.finish(
            settings, layout.batch.total, [x.first for x in parts], [x.first for x in lost]
        )
    names = ("params", "drawing", "law_reasons")  # files do not hold them, or not as they are
    return dataclasses.replace(
        place.solution(), **{name: getattr(settings, name) for name in names}
    )


def _warn_if_lost(batch: Batch, lost: list[Part], count: int) -> None:
    if not lost:
        return
    if len(lost) == count:
        raise NsdynError(
            "sweep: all workers died, whatever they computed. They may need more memory than there "
            "is, or lack a package; look at what they printed"
        )
    some = "; ".join(
        f"runs {part.first} to {part.first + part.size - 1}, the first with "
        f"{sweep_parts.values_text(batch, part.first)}"
        for part in lost[:SHOWN]
    )
    more = f"; and {len(lost) - SHOWN} parts more" if len(lost) > SHOWN else ""
    warn(
        f"sweep: {len(lost)} of {count} parts were given up, each after the deaths of {TRIES} "
        f"workers or more: {some}{more}. Their status is LOST",
        LostRunsWarning,
    )


# What is said about the whole


def _settings(problem: Problem, layout: Layout) -> Solution:
    """A solution without results."""
    run, batch = layout.run, layout.batch
    about = run.about(problem) | shown(problem)
    params = plain(batch.params(), other=lambda name, x: x)
    samples: dict[str, Any] = dict.fromkeys(SAMPLES)
    samples["t"] = _times(run, batch)
    return Solution(**samples, events=Events.none(), params=params, **about)


def _times(run: Setup, batch: Batch) -> np.ndarray:
    if not batch.has_short_steps:
        return run.times
    return run.grid.times_of(run.grid.saved, batch.own.phase)


def _warn_if_singular(problem: Problem, batch: Batch, events: Events) -> None:
    """Warn of the first singular event, with the number of its trajectory."""
    parts = problem.constraint
    if len(parts) == 1 and parts[0].rows_independent:
        return
    which, slot = np.nonzero(np.arange(events.t.shape[1]) < events.count[:, None])
    table = Events.of(jax.tree.map(lambda x: x[which, slot], events.records))
    own = lambda k: jax.tree.map(lambda x: x[which[k]], batch.own.params)
    params = lambda k: eqx.combine(own(k), batch.shared.params)
    warn_if_singular(problem, table, params, lambda k: f"trajectory {which[k]}: ")
