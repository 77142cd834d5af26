"""Studies that a file declares, or the same in Python: problems x integrators x laws x steps x
phases.

    result = study.run("corner.toml", jobs=2)       # the format: nsdyn.studies.lib.study_file
    result = study.run(study.plan({"ramp": "point_on_track"}, {"nsga": "NSGA()"}, steps=(2e-2, 1e-2)))
    print(result); result.data; result.to_latex(); result.save("out")

With a folder every cell (`study_cells`) becomes a file when it is complete, so an interrupted study
goes on where it was, and nothing is computed twice.
"""

import fnmatch
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from nsdyn import problems as library
from nsdyn.driver.processes import Processes, TookTooLong
from nsdyn.driver.workers import DEATHS, check_workers, connected, finished
from nsdyn.errors import NsdynError, ProblemError, unknown
from nsdyn.laws.base import AbstractLaw
from nsdyn.laws.post_switch import PostSwitchGradient
from nsdyn.problem import Problem
from nsdyn.reference import ClosedForm
from nsdyn.stepping.integrator import as_integrator
from nsdyn.studies.lib import archive, study_cells, study_estimate, study_file, written
from nsdyn.studies.lib.study_cells import Cell, Contents, Pair
from nsdyn.studies.lib.study_file import REFINE, SAMPLES, SHOWN, Finer, Plan
from nsdyn.studies.lib.study_result import StudyResult, collect

WORDS = ("problem", "integrator", "law")
CALLS = 40  # pairs of a process; what it has compiled stays in its memory


def plan(
    problems: Mapping[str, Problem | str],
    integrators: Mapping[str, Any],
    laws: Mapping[str, AbstractLaw | str] | None = None,
    *,
    steps: Sequence[float],
    phases: int = 1,
    reference: Any = "EventDriven(RK4())",
    refine: int = REFINE,
    metrics: Sequence[str] = SHOWN,
    samples: int = SAMPLES,
    of_span: bool = False,
    patience: float | None = None,
    closed_forms: Mapping[str, ClosedForm] = MappingProxyType({}),
    title: str = "study",
) -> Plan:
    """A study, as a file would declare it. Problems, integrators and laws are objects or texts.
    `closed_forms`: of problems that are objects."""
    laws = {"PostSwitchGradient": PostSwitchGradient()} if laws is None else laws
    made = {k: library.get(x) if isinstance(x, str) else x for k, x in problems.items()}
    texts = {k: x for k, x in problems.items() if isinstance(x, str)}
    shown = study_file.metrics_of(metrics)
    if not steps or not all(x > 0 for x in steps):
        raise ProblemError(f"steps: expected positive numbers, found {steps!r}")
    if too_long := study_file.too_long(made, max(steps), of_span):
        raise ProblemError(f"steps: {too_long}")
    return Plan(
        title=title,
        problems=made,
        integrators={k: _integrator(x) for k, x in integrators.items()},
        laws={k: written.law(x) if isinstance(x, str) else x for k, x in laws.items()},
        steps=tuple(sorted({float(x) for x in steps}, reverse=True)),
        phases=phases,
        finer=Finer(_integrator(reference), refine),
        stored={k: library.reference(x) for k, x in texts.items()},
        closed_forms={k: library.closed_form(x) for k, x in texts.items()} | dict(closed_forms),
        metrics=shown,
        figures=study_file.figures_of(made),
        samples=samples,
        of_span=of_span,
        patience=patience,
    )


def _integrator(given: Any) -> Any:
    if isinstance(given, str):
        return written.integrator(given)
    if as_integrator(given) is None:
        raise ProblemError(
            f"integrators: expected integrators such as EventDriven(RK4()), found {given!r}"
        )
    return given


class Again(NamedTuple):
    """What is computed again: what is there, and what was given up."""

    force: bool = False
    retry: bool = False


class Work(NamedTuple):
    """What is there and what is to do.

    todo: cells that are to be computed, of each pair.
    done, cells: the number of cells that are there, and of all cells, references included.
    given_up: the number of those that ended with an error or took too long.
    refused: pairs that cannot run.
    seconds: what the cells to do will take: at most so much, from those that are there, or else a
        guess from the sizes of the mechanisms.
    is_guess: whether it is one.
    """

    todo: dict[Pair, list[Cell]]
    done: int
    cells: int
    given_up: int
    refused: list[Pair]
    seconds: float
    is_guess: bool

    @property
    def missing(self) -> int:
        """The number of cells to do."""
        return sum(map(len, self.todo.values()))


def survey(
    chosen: Plan,
    folder: Path,
    only: Iterable[str] = (),
    force: bool = False,
    retry: bool = False,
) -> Work:
    """What a run of the study would do."""
    known = study_cells.contents(chosen).only(_selection(chosen, only))
    work = _work(known, folder, Again(force, retry))
    if not work.is_guess:
        return work
    return work._replace(seconds=study_estimate.seconds(chosen, work.todo))


def _work(known: Contents, folder: Path, again: Again) -> Work:
    cells = known.all_cells
    there = {cell.key for cell in cells if study_cells.is_done(folder, cell)}
    graves = {x.key for x in cells if x.key not in there and study_cells.given_up(folder, x)}
    kept = set() if again.force else there if again.retry else there | graves
    times = [archive.read_json(folder / f"{key}.timing.json") for key in there]
    spent = [x["cell_s"] for x in times if x]
    left = {pair: [x for x in found if x.key not in kept] for pair, found in known.cells.items()}
    todo = {pair: found for pair, found in left.items() if found}
    counts = len(there), len(cells), len(graves)
    each = float(np.mean(spent)) if spent else np.nan
    missing = sum(map(len, todo.values()))
    return Work(todo, *counts, list(known.refused), each * missing, is_guess=not spent)


def _selection(chosen: Plan, only: Iterable[str]) -> Callable[[Pair], bool]:
    """Whether all these patterns match a pair. A pattern that matches nothing is an error."""
    rules = [text.partition("=") for text in only]
    tables: tuple[Iterable[str], ...] = (chosen.problems, chosen.integrators, chosen.laws)
    names = dict(zip(WORDS, tables, strict=True))
    for word, equals, pattern in rules:
        if not equals or word not in WORDS:
            found = f"{word}{equals}{pattern}"
            raise ProblemError(f"only: expected {'=..., '.join(WORDS)}=..., found {found!r}")
        if not fnmatch.filter(names[word], pattern):
            raise unknown(f"only: {word}", pattern, names[word])
    matches = lambda pair: (fnmatch.fnmatchcase(getattr(pair, a), b) for a, _, b in rules)
    return lambda pair: all(matches(pair))


def run(
    source: str | Path | Plan,
    folder: str | Path | None = None,
    *,
    jobs: int | None = None,
    client: Any = None,
    only: Iterable[str] = (),
    force: bool = False,
    retry: bool = False,
    progress: Callable[[int, int], Any] | None = None,
) -> StudyResult:
    """Run what is missing of a study, and collect all of it.

    source: a study file, or a `plan`.
    folder: where its data are kept; None keeps nothing.
    jobs: processes; None: this one. Results do not depend on their number.
    client: workers elsewhere: the address of a Dask scheduler (extra `dask`), a Dask client, or any
        executor with `submit`. The workers must have nsdyn, and see the folder.
    only: patterns such as "integrator=nsga*"; all must match.
    force: compute what is there again.
    retry: try again what was given up: pairs that ended with an error, or took too long.
    progress: progress(done, total) is called after each pair.
    """
    chosen = source if isinstance(source, Plan) else study_file.read(source)
    check_workers(jobs, client)
    again = Again(force, retry)
    report = progress or (lambda done, total: None)
    if folder is None:
        with tempfile.TemporaryDirectory() as place:
            return _run(chosen, Path(place), (jobs, client), only, again, report)
    return _run(chosen, Path(folder) / "data", (jobs, client), only, again, report)


def _run(
    chosen: Plan,
    data: Path,
    workers: tuple[int | None, Any],
    only: Iterable[str],
    again: Again,
    report: Callable[[int, int], Any],
) -> StudyResult:
    everything = _compute(chosen, data, workers, only, again, report)
    return collect(chosen, data, everything)


def _compute(
    chosen: Plan,
    data: Path,
    workers: tuple[int | None, Any],
    only: Iterable[str],
    again: Again,
    report: Callable[[int, int], Any],
) -> Contents:
    """Compute what is missing; returns all there is to the study."""
    everything = study_cells.contents(chosen)
    todo = _work(everything.only(_selection(chosen, only)), data, again).todo
    data.mkdir(parents=True, exist_ok=True)
    tasks = [_Task(chosen, cells, data) for cells in todo.values()]
    report(0, len(tasks))
    for done, _ in enumerate(_done(tasks, *workers), 1):
        report(done, len(tasks))
    _write_index(everything, data)
    return everything


def archived(file: str | Path, folder: str | Path, force: bool = False) -> list[str]:
    """Compute what is missing of a study file of ours, for `nsdyn figures`; returns the names of
    its data in the archive."""
    chosen, data = study_file.read(file), Path(folder) / "data"
    if archive.is_verifying():
        known = study_cells.contents(chosen)
        for cell in known.all_cells:
            make = lambda cell=cell: study_cells.computed(chosen, cell)[0]
            archive.visited(data, cell.name, cell.key, cell.words, make)
    else:
        again = Again(force, retry=True)
        known = _compute(chosen, data, (None, None), (), again, lambda *_: None)
        broken = [why for x in known.all_cells if (why := study_cells.given_up(data, x))]
        if broken:
            raise NsdynError(f"study {chosen.title}: {broken[0]}")
    return [cell.name for cell in known.all_cells]


class _Task(NamedTuple):
    """Cells of one pair that are to be computed."""

    plan: Plan
    cells: list[Cell]
    folder: Path


def _done(tasks: list[_Task], jobs: int | None, client: Any) -> Iterator[_Task]:
    """Tasks as they are done: in this process, in others of this machine, or by a client."""
    if not tasks:
        return
    patience = tasks[0].plan.patience
    if client is None and jobs is None and patience is None:
        for task in tasks:
            study_cells.work(*task)
            yield task
        return
    if client is not None:
        with connected(client) as found:
            yield from _done_by(found, tasks)
        return
    with Processes(min(jobs or 1, len(tasks)), patience=patience, calls=CALLS) as processes:
        yield from _done_by(processes, tasks)


def _done_by(client: Any, tasks: list[_Task]) -> Iterator[_Task]:
    """Tasks that were sent to others. One whose workers die of it, or take too long, is given up;
    if all do, that is an error."""
    calls = ((task, (study_cells.unpacked_work, study_cells.packed_work(*task))) for task in tasks)
    died = 0
    for task, future in finished(client, calls):
        error = future.exception()
        if error is not None and type(error).__name__ not in (*DEATHS, TookTooLong.__name__):
            raise error
        if error is not None:
            died += not isinstance(error, TookTooLong)
            study_cells.give_up(task.folder, task.cells, f"{type(error).__name__}: {error}")
        yield task
    if tasks and died == len(tasks):
        raise NsdynError(
            "study: all workers died, whatever they computed. They may need more memory than there "
            "is, or lack a package; look at what they printed"
        )


def _write_index(contents: Contents, data: Path) -> None:
    """index.json: the keys of this study and what they mean, beside those of other studies. Data
    that differ only in their code are dropped."""
    index = archive.read_index(data)
    old: list[str] = []
    for cell in contents.all_cells:
        old += archive.enter(index, cell.name, cell.key, cell.words)
    archive.write_json(data / archive.INDEX, index)
    archive.drop(data, old)


# For one problem


def convergence(
    problem: Problem | str,
    integrators: Sequence[Any],
    steps: Sequence[float],
    *,
    laws: Sequence[Any] = (PostSwitchGradient(),),
    folder: str | Path | None = None,
    **options: Any,
) -> StudyResult:
    """Errors of integrators on one problem over the steps, with observed orders:
    `.plot("convergence")`. Takes the options of `plan`."""
    name = problem if isinstance(problem, str) else problem.name
    named = lambda things: {_name(x): x for x in things}
    chosen = plan(
        {name: problem},
        named(integrators),
        named(laws),
        steps=steps,
        **({"title": name} | options),
    )
    return run(chosen, folder)


def work_precision(
    problem: Problem | str, integrators: Sequence[Any], steps: Sequence[float], **options: Any
) -> StudyResult:
    """The same runs as `convergence`: `.plot()` shows errors against run times."""
    return convergence(problem, integrators, steps, **options)


def _name(thing: Any) -> str:
    from nsdyn._repr import format_object

    return thing if isinstance(thing, str) else format_object(thing)
