"""Runs of several integrators and laws on one problem; `compare_table` and `compare_figures` show
them.

All runs have the same grid. Each law has a reference run, by default event-driven RK4 with a
smaller step, sampled at the same times; where the problem has a closed form for the law, its q and v
take the place of those of the finer run. Residuals of the constraints are computed at three levels
(`nsdyn.analysis.residuals`).
"""

import dataclasses
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import equinox as eqx
import jax
import numpy as np
from xarray import Dataset

from nsdyn import problems
from nsdyn._repr import format_object, settings_text
from nsdyn.analysis.residuals import residuals
from nsdyn.checks.problem_check import check_start
from nsdyn.driver import arguments
from nsdyn.driver.arguments import Setup, Values, plain_values, setup
from nsdyn.driver.single_run import computed, raise_if_failed
from nsdyn.errors import ProblemError, SimulationError
from nsdyn.integrators import NSGA, RK4, EventDriven, GeneralizedAlpha, MoreauJean
from nsdyn.laws.base import AbstractLaw, as_status
from nsdyn.problem import Problem
from nsdyn.reference import ClosedForm
from nsdyn.results.solution import Solution, plain
from nsdyn.status import Status
from nsdyn.stepping.integrator import AbstractIntegrator, IntegratorLike, as_integrator
from nsdyn.studies.lib import archive
from nsdyn.studies.lib.study_references import closed
from nsdyn.studies.lib.tables import Table

if TYPE_CHECKING:  # slow to import
    from matplotlib.figure import Figure

DEFAULTS = (
    NSGA(),
    MoreauJean(),
    *(GeneralizedAlpha(index=index) for index in (1, 2, 3)),
    EventDriven(RK4()),
    EventDriven(GeneralizedAlpha(index=2)),
)
REFERENCE = EventDriven(RK4())
REFINE = 8
REPEATS, PATIENCE = 5, 2.0  # a run is timed REPEATS times, or until PATIENCE seconds have passed
TIMES = ("compile_s", "from_cache", "run_s")
LEVELS = ("position", "velocity", "acceleration")
CACHE_HIT = "/jax/compilation_cache/cache_hits"

Entry = tuple[IntegratorLike, AbstractLaw]


class Run(NamedTuple):
    """One run. A refused pair has no data; `reason` says why it was refused or stopped early."""

    integrator: str
    law: str
    data: Dataset
    reason: str = ""

    @property
    def refused(self) -> bool:
        return "status" not in self.data

    @property
    def ok(self) -> bool:
        return not self.refused and self.status is Status.OK

    @property
    def status(self) -> Status | int:
        return as_status(self.data.status)

    @property
    def status_name(self) -> str:
        return self.status.name if isinstance(self.status, Status) else "LAW_OBJECTS"

    @property
    def has_rows(self) -> bool:
        return "t" in self.data


class Comparison(NamedTuple):
    """All runs, and the reference of each law. `print` shows its table.

    closed_forms: of laws for which q and v of the reference are those of a closed form, where it
        comes from and how far it can be trusted.
    """

    problem: str
    step: float
    span: tuple[float, float]
    runs: list[Run]
    references: dict[str, Run]
    reference_step: float
    closed_forms: Mapping[str, str] = MappingProxyType({})

    @property
    def laws(self) -> list[str]:
        return list(dict.fromkeys(run.law for run in self.runs))

    @property
    def integrators(self) -> list[str]:
        return list(dict.fromkeys(run.integrator for run in self.runs))

    @property
    def table(self) -> Table:
        """One row for each run: errors, residuals, effort, times and status, with notes."""
        from nsdyn.studies.lib import compare_table  # here: it knows this module

        return compare_table.table(self)

    def __str__(self) -> str:
        return str(self.table)

    def to_latex(self) -> str:
        return self.table.latex()

    def to_markdown(self) -> str:
        return self.table.markdown()

    def to_csv(self) -> str:
        return self.table.csv()

    def plot(self, what: str = "states", law: str | None = None) -> "Figure":
        """A matplotlib Figure of the "states", "errors" or "residuals" over time, of one law (the
        first one) if there are several; or of the "laws" side by side."""
        from nsdyn.studies.lib import compare_figures

        return compare_figures.figure(self, what, law)


class _Job(NamedTuple):
    """A run to make, and its name."""

    integrator: IntegratorLike
    law: AbstractLaw
    names: tuple[str, str]
    step: float
    save_every: int
    save_at: np.ndarray | None = None  # for the reference: the times of the runs

    @property
    def is_reference(self) -> bool:
        return self.save_at is not None

    @property
    def title(self) -> str:
        return ", ".join(("reference", *self.names[1:]) if self.is_reference else self.names)


def pairs(integrators: Iterable[Any], laws: Iterable[AbstractLaw]) -> list[Entry]:
    """All combinations, law by law."""
    integrators = list(integrators)
    return [(integrator, law) for law in laws for integrator in integrators]


def compare(
    problem: Problem | str,
    entries: Sequence[Entry],
    step: float,
    *,
    t_end: float | None = None,
    save_every: int = 1,
    reference: AbstractIntegrator | None = REFERENCE,
    refine: int = REFINE,
    folder: str | Path | None = None,
    force: bool = False,
    closed_form: ClosedForm | None = None,
    progress: Callable[[list[str]], Iterable[str]] = iter,
) -> Comparison:
    """Run the (integrator, law) pairs and, for each law, the reference with the step step/refine
    (None: no reference).

    A problem given by its name, as `nsdyn run` takes it, brings its closed form; for others it may
    be given. With a `folder`, runs are archived in its subfolder data; runs archived with the same settings
    and version are computed again only with `force`. Incompatible pairs and runs that stop early
    are part of the result.
    """
    _check(entries, reference, refine)
    if isinstance(problem, str):
        closed_form = closed_form or problems.closed_form(problem)
        problem = problems.get(problem)
    grid = setup(problem, REFERENCE, None, step=step, t_end=t_end, save_every=save_every).grid
    check_start(problem)
    pairs = zip(
        entries,
        zip(*(names(column) for column in zip(*entries, strict=True)), strict=True),
        strict=True,
    )
    jobs = [_Job(*entry, names, grid.step, grid.save_every) for entry, names in pairs]
    if reference is not None:
        finer = (grid.step / refine, grid.save_every, grid.times())
        laws = {job.names[1]: job.law for job in jobs if _refusal(problem, job) is None}
        jobs = [
            _Job(reference, law, (format_object(reference), name), *finer)
            for name, law in laws.items()
        ] + jobs
    todo = {job.title: job for job in jobs}
    data = None if folder is None else Path(folder) / "data"
    done = {
        title: _made(problem, todo[title], grid.t_end, data, force)
        for title in progress(list(todo))
    }
    references = {run.law: run for title, run in done.items() if todo[title].is_reference}
    exact = {
        job.names[1]: form
        for title, job in todo.items()
        if job.is_reference and done[title].has_rows
        if (form := closed(closed_form, problem, job.law, done[title].data)) is not None
    }
    found = Comparison(
        problem=problem.name,
        step=grid.step,
        span=(grid.t0, grid.t_end),
        runs=[done[title] for title, job in todo.items() if not job.is_reference],
        references=references | {x: references[x]._replace(data=exact[x].data) for x in exact},
        reference_step=grid.step / refine,
        closed_forms={law: f"{x.text}. {x.distance}" for law, x in exact.items()},
    )
    if data is not None and data.is_dir():  # there is none if nothing ran
        from nsdyn.studies.lib import kept_comparison  # here: it knows this module

        ran = {title: run for title, run in done.items() if not run.refused}
        kept_comparison.write(data, found, {id(x): _file_name(todo[t]) for t, x in ran.items()})
    return found


def _is_pair(entry: Any) -> bool:
    if not isinstance(entry, tuple) or len(entry) != 2:
        return False
    integrator, law = entry
    return as_integrator(integrator) is not None and isinstance(law, AbstractLaw)


def _check(entries: Sequence[Entry], reference: Any, refine: int) -> None:
    if not entries:
        raise ProblemError("compare(entries=...): expected at least one pair (integrator, law)")
    for entry in entries:
        if not _is_pair(entry):
            raise ProblemError(
                f"compare(entries=...): expected pairs (integrator, law), found {entry!r}; "
                "studies.compare.pairs(integrators, laws) makes them"
            )
    if reference is not None and as_integrator(reference) is None:
        raise ProblemError(
            f"compare(reference=...): expected an integrator or None, found {reference!r}"
        )
    if isinstance(refine, bool) or not isinstance(refine, int) or refine < 1:
        raise ProblemError(
            f"compare(refine=...): expected a positive whole number, found {refine!r}"
        )


def names(modules: Sequence[eqx.Module]) -> list[str]:
    """Integrators or laws as written in Python, with the settings in which objects of one class
    differ."""
    found: dict[type, dict[str, set[str]]] = {}
    for module in modules:
        values = found.setdefault(type(module), {})
        for field in dataclasses.fields(module):
            values.setdefault(field.name, set()).add(repr(np.asarray(getattr(module, field.name))))
    differ = {
        cls: [name for name, texts in values.items() if len(texts) > 1]
        for cls, values in found.items()
    }
    return [format_object(module, differ[type(module)]) for module in modules]


# One run


def _made(problem: Problem, job: _Job, t_end: float, data: Path | None, force: bool) -> Run:
    """The run of a job, from the archive if possible."""
    refusal = _refusal(problem, job)
    if refusal is not None:
        return Run(*job.names, Dataset(), refusal)
    try:
        found = _found(problem, job, t_end, data, force)
    except ProblemError as error:  # some errors appear only during tracing
        return Run(*job.names, Dataset(), str(error))
    return Run(*job.names, found, str(found.status.attrs["message"]))


def _found(problem: Problem, job: _Job, t_end: float, data: Path | None, force: bool) -> Dataset:
    if data is None:
        variables = _computed(problem, job, t_end)
        return Dataset(
            {
                name: (value[0], np.asarray(value[1]), *value[2:])
                for name, value in variables.items()
            }
        )
    times: dict[str, float] = {}

    def make() -> dict[str, tuple]:
        variables = _computed(problem, job, t_end)
        times.update({name: float(variables.pop(name)[1]) for name in TIMES})
        return variables

    uses = (problem.system, problem.constraint, job.integrator, job.law)
    words = _described(problem, job, t_end)
    file = archive.update(data, _file_name(job), words, make, uses=uses, force=force)
    if times:
        archive.write_timing(data, file.stem, times)
    times = dict.fromkeys(TIMES, np.nan) | archive.read_timing(data, file.stem)
    return archive.read(data, file.stem)[0].assign(times)


def _refusal(problem: Problem, job: _Job) -> str | None:
    return arguments.refusal(problem, job.integrator, job.law)


def _file_name(job: _Job) -> str:
    return f"{'reference-' * job.is_reference}{slug(format_object(job.integrator))}--{slug(format_object(job.law))}"


def slug(text: str) -> str:
    """A text as part of a file name."""
    return re.sub(r"[^\w.=]+", "-", text.replace("'", "")).strip("-")


def _described(problem: Problem, job: _Job, t_end: float) -> dict[str, Any]:
    """All settings that a run depends on."""
    return {
        "problem": problem.name,
        "system": settings_text(problem.system),
        "constraint": [settings_text(part) for part in problem.constraint],
        "params": plain(problem.params),
        "start": [problem.t0, problem.q0, problem.v0],
        "t_end": t_end,
        "step": job.step,
        "save_every": job.save_every,
        "integrator": format_object(job.integrator, always="*"),
        "law": format_object(job.law, always="*"),
    }


def _computed(problem: Problem, job: _Job, t_end: float) -> dict[str, tuple]:
    """Compile, run, time and evaluate."""
    samples: dict[str, Any] = {"save_every": job.save_every}
    if job.is_reference:
        samples = {"save_at": job.save_at}
    run = setup(problem, job.integrator, job.law, step=job.step, t_end=t_end, **samples)
    values = plain_values(problem, None, None, None)
    compile_time, hits = _compiled(problem, run, values)
    times: list[float] = []
    while len(times) < (1 if job.is_reference else REPEATS) and sum(times) < PATIENCE:
        began = time.perf_counter()
        solution = computed(problem, run, values)
        times.append(time.perf_counter() - began)
    message = ""
    try:
        raise_if_failed(solution)
    except SimulationError as error:
        message = str(error).partition(" The error's .partial")[0]
    numbers = {
        "t_stop": float(solution.t_stop),
        "iterations": solution.iterations,
        "iterations_worst": solution.iterations_worst,
        "compile_s": compile_time,
        "from_cache": hits,
        "run_s": min(times),
    }
    return {
        "status": ((), int(solution.status), {"message": message}),
        **{name: ((), value) for name, value in numbers.items()},
        **_rows(problem, solution),
    }


def _compiled(problem: Problem, run: Setup, values: Values) -> tuple[float, int]:
    """Compile the programs of a run by a run of one step, which uses the same programs. Returns the
    time and the number of programs found in the compilation cache."""
    hits: list[str] = []
    listen = lambda event, **_: hits.append(event) if event == CACHE_HIT else None
    jax.monitoring.register_event_listener(listen)
    began = time.perf_counter()
    try:
        computed(problem, eqx.tree_at(lambda x: x.grid, run, run.grid.first_step()), values)
    finally:
        compile_time = time.perf_counter() - began
        jax.monitoring.unregister_event_listener(listen)
    return compile_time, len(hits)


def _rows(problem: Problem, run: Solution) -> dict[str, tuple]:
    """Values at each sample. Empty arrays are left out: netCDF 3 cannot hold them."""
    parts = tuple(f"part_{i}" for i in range(run.mode.ndim - 1))
    found: dict[str, tuple] = {
        "t": ("row", run.t),
        "q": (("row", "coordinate"), run.q),
        "v": (("row", "velocity"), run.v),
        "lam": (("row", "constraint"), run.lam, {"long_name": "reaction lam (a force)"}),
        "mode": (("row", *parts), run.mode),
        "energy": ("row", run.energy, {"long_name": run.energy_name}),
        "event_t": ("event", run.events.t, {"long_name": "times of the events"}),
        "event_Lam": (("event", "constraint"), run.events.Lam, {"long_name": "impulses"}),
        "event_v_before": (("event", "velocity"), run.events.v_before),
        "event_v_after": (("event", "velocity"), run.events.v_after),
        "event_kinetic_before": ("event", run.events.kinetic_before),
        "event_kinetic_after": ("event", run.events.kinetic_after),
    }
    if len(run.t):
        levels = residuals(problem, run)._asdict()
        most = lambda values: np.max(np.abs(values), axis=1, initial=0.0)
        found |= {f"residual_{level}": ("row", most(levels[level])) for level in LEVELS}
        found["kinetic"] = ("row", _kinetic(problem, run))
    return {name: value for name, value in found.items() if np.size(value[1])}


def _kinetic(problem: Problem, run: Solution) -> np.ndarray:
    kinetic = lambda q, v: problem.system.kinetic(q, v, problem.params)
    return np.asarray(jax.jit(jax.vmap(kinetic))(run.q, run.v))
