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
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nsdyn import problems as library
from nsdyn.errors import NsdynError, ProblemError, unknown
from nsdyn.laws.base import AbstractLaw
from nsdyn.laws.post_switch import PostSwitchGradient
from nsdyn.problem import Problem
from nsdyn.stepping.integrator import as_integrator
from nsdyn.studies.lib import archive, study_cells, study_file, written
from nsdyn.studies.lib.study_cells import Contents, Pair
from nsdyn.studies.lib.study_file import FIGURES, REFINE, SAMPLES, SHOWN, Finer, Plan
from nsdyn.studies.lib.study_result import StudyResult, collect

WORDS = ("problem", "integrator", "law")


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
    title: str = "study",
) -> Plan:
    """A study, as a file would declare it. Problems, integrators and laws are objects or texts."""
    laws = {"PostSwitchGradient": PostSwitchGradient()} if laws is None else laws
    made = {k: library.get(x) if isinstance(x, str) else x for k, x in problems.items()}
    stored = {k: library.reference(x) if isinstance(x, str) else None for k, x in problems.items()}
    for name in metrics:
        if name not in study_file.METRICS:
            raise unknown("metric", name, study_file.METRICS)
    if not steps or not all(x > 0 for x in steps):
        raise ProblemError(f"steps: expected positive numbers, found {steps!r}")
    return Plan(
        title=title,
        problems=made,
        integrators={k: _integrator(x) for k, x in integrators.items()},
        laws={k: written.law(x) if isinstance(x, str) else x for k, x in laws.items()},
        steps=tuple(sorted({float(x) for x in steps}, reverse=True)),
        phases=phases,
        finer=Finer(_integrator(reference), refine),
        stored=stored,
        metrics=tuple(metrics),
        figures=FIGURES,
        samples=samples,
        of_span=of_span,
    )


def _integrator(given: Any) -> Any:
    if isinstance(given, str):
        return written.integrator(given)
    if as_integrator(given) is None:
        raise ProblemError(
            f"integrators: expected integrators such as EventDriven(RK4()), found {given!r}"
        )
    return given


class Work(NamedTuple):
    """What is there and what is to do.

    todo: pairs with cells that are missing.
    done, cells: the number of cells that are there, and of all cells, references included.
    refused: pairs that cannot run.
    seconds: what the missing cells will take at most, from those that are there; NaN if none is.
    """

    todo: list[Pair]
    done: int
    cells: int
    refused: list[Pair]
    seconds: float


def survey(chosen: Plan, folder: Path, only: Iterable[str] = (), force: bool = False) -> Work:
    """What a run of the study would do."""
    return _work(study_cells.contents(chosen).only(_selection(only)), folder, force)


def _work(known: Contents, folder: Path, force: bool) -> Work:
    todo, done, total = [], 0, 0
    spent: list[float] = []
    for pair, found in known.cells.items():
        there = [cell for cell in found if study_cells.is_done(folder, cell)]
        times = [archive.read_json(folder / f"{cell.key}.timing.json") for cell in there]
        spent += [x["cell_s"] for x in times if x]
        total += len(found)
        done += len(there)
        if force or len(there) < len(found):
            todo.append(pair)
    each = float(np.mean(spent)) if spent else np.nan
    missing = total - (0 if force else done)
    return Work(todo, done, total, list(known.refused), each * missing)


def _selection(only: Iterable[str]) -> Callable[[Pair], bool]:
    """Whether all these patterns match a pair."""
    rules = [text.partition("=") for text in only]
    for word, equals, pattern in rules:
        if not equals or word not in WORDS:
            found = f"{word}{equals}{pattern}"
            raise ProblemError(f"only: expected {'=..., '.join(WORDS)}=..., found {found!r}")
    matches = lambda pair: (fnmatch.fnmatchcase(getattr(pair, a), b) for a, _, b in rules)
    return lambda pair: all(matches(pair))


def run(
    source: str | Path | Plan,
    folder: str | Path | None = None,
    *,
    jobs: int = 1,
    only: Iterable[str] = (),
    force: bool = False,
    progress: Callable[[int, int], Any] | None = None,
) -> StudyResult:
    """Run what is missing of a study, and collect all of it.

    source: a study file, or a `plan`.
    folder: where its data are kept; None keeps nothing.
    jobs: processes. Results do not depend on their number.
    only: patterns such as "integrator=nsga*"; all must match.
    force: compute what is there again.
    progress: progress(done, total) is called after each pair.
    """
    chosen = source if isinstance(source, Plan) else study_file.read(source)
    if folder is None:
        with tempfile.TemporaryDirectory() as place:
            return _run(chosen, Path(place), jobs, only, force, progress)
    return _run(chosen, Path(folder) / "data", jobs, only, force, progress)


def _run(
    chosen: Plan,
    data: Path,
    jobs: int,
    only: Iterable[str],
    force: bool,
    progress: Callable[[int, int], Any] | None,
) -> StudyResult:
    if isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1:
        raise ProblemError(f"jobs: expected a positive whole number, found {jobs!r}")
    everything = study_cells.contents(chosen)
    wanted = everything.only(_selection(only))
    todo = _work(wanted, data, force).todo
    data.mkdir(parents=True, exist_ok=True)
    tasks = [(chosen, wanted.cells[pair], data, force) for pair in todo]
    _compute(tasks, jobs, progress or (lambda done, total: None))
    _write_index(everything, data)
    return collect(chosen, data, everything)


def _compute(tasks: list[tuple], jobs: int, report: Callable[[int, int], Any]) -> None:
    """Do the work of pairs, in this process or in others."""
    report(0, len(tasks))
    if jobs == 1 or len(tasks) < 2:
        for done, task in enumerate(tasks, 1):
            study_cells.work(*task)
            report(done, len(tasks))
        return
    # Spawned, since JAX in a forked process can wait for ever.
    with ProcessPoolExecutor(min(jobs, len(tasks)), mp_context=get_context("spawn")) as workers:
        started = [workers.submit(study_cells.work, *task) for task in tasks]
        try:
            for done, ended in enumerate(as_completed(started), 1):
                ended.result()
                report(done, len(tasks))
        except BrokenProcessPool as error:
            raise NsdynError(
                "a process of the study was killed; what it had completed is kept, and the next "
                "run goes on from there"
            ) from error
        except BaseException:
            workers.shutdown(wait=False, cancel_futures=True)
            raise


def _write_index(contents: Contents, data: Path) -> None:
    """index.json: the keys of this study and what they mean, beside those of other studies."""
    index = archive.read_index(data)
    for pair, cells in contents.cells.items():
        for cell in cells:
            name = " ".join((*(x or "reference" for x in pair), f"{cell.words['step']:.6g}"))
            said = {k: x for k, x in cell.words.items() if k != "code"}
            index["keys"][cell.key] = {"name": name, "settings": said}
            index["names"][name] = cell.key
    archive.write_json(data / archive.INDEX, index)


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
