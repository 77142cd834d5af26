"""The runs of a study. A cell is a problem, an integrator, a law and a step, with all phases: one
sweep, one file. Cells of one (problem, integrator, law) share a compiled program.

Steps are rounded such that they divide the time span T of the problem,

    h = T/N,    N = round(T/step)                                                                (1)

or N = round(1/step) if steps are shares of the span.

With P > 1 phases, the first step of the run j = 0, ..., P - 1 is shorter by phi_j h, so that events
fall on other places in their steps:

    t_0,  t_0 + (k - phi_j) h  for k = 1, ..., N,  t_end,     phi_j = (j + 1/2)/P                (2)

The reference of a problem and a law is a finer run, sampled at the times of all runs; the same with
twice its step tells how far it can be trusted.

A pair that ends with an error, or takes too long, is given up: `key.given_up.json` says why, and
the study goes on.
"""

import hashlib
import pickle
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from xarray import Dataset

from nsdyn._code_digest import code_digest
from nsdyn._repr import format_object, settings_text
from nsdyn.analysis.residuals import batch_residuals
from nsdyn.driver import arguments
from nsdyn.driver.arguments import batch_values, setup
from nsdyn.driver.backend import LANES, compiled_well
from nsdyn.driver.batch_run import Prepared, laid_out, prepared
from nsdyn.driver.grid import Grid
from nsdyn.driver.many_runs import sweep
from nsdyn.driver.processes import packed
from nsdyn.laws.base import AbstractLaw
from nsdyn.problem import Problem
from nsdyn.results.solution import Solution, plain
from nsdyn.studies.lib import archive
from nsdyn.studies.lib.study_file import RESIDUALS, Plan

EVENTS = ("t", "Lam", "v_before", "v_after", "kinetic_before", "kinetic_after")
KEPT = 20  # hexadecimal digits of a digest
NOT_ASKED = "its constraints never change, so no law is asked"  # why a pair need not run
LONGEST = 500  # characters of a reason
REPEATS, PATIENCE = 3, 0.5  # a cell is timed REPEATS times, or until PATIENCE seconds have passed


class Pair(NamedTuple):
    """A problem, an integrator and a law, by their names in the study: one program."""

    problem: str
    integrator: str
    law: str


class Cell(NamedTuple):
    """A pair with a step, or the reference of a problem and a law (then the integrator is empty),
    with the description that its key comes from."""

    pair: Pair
    step: int  # its number
    words: dict[str, Any]

    @property
    def key(self) -> str:
        return archive.key_of(self.words)

    @property
    def name(self) -> str:
        """What it is called in the archive."""
        return _name(self.pair, self.words["step"])

    @property
    def is_reference(self) -> bool:
        return not self.pair.integrator


# The grid


def grid(plan: Plan, problem: Problem, step: int) -> Grid:
    """(1), with the sampling of the study."""
    length = problem.t_end - problem.t0
    share = plan.steps[step] if plan.of_span else plan.steps[step] / length
    count = max(1, round(1 / share))
    every = -(-count // plan.samples)
    return Grid(problem.t0, problem.t_end, length / count, every)


def phases(plan: Plan) -> np.ndarray | None:
    """phi of (2); None for a single run on the plain grid."""
    return None if plan.phases == 1 else (np.arange(plan.phases) + 0.5) / plan.phases


def times(plan: Plan, problem: Problem, step: int) -> np.ndarray:
    """The times of the samples, one row for each phase."""
    found, phi = grid(plan, problem, step), phases(plan)
    if phi is None:
        return found.times()[None]
    found = found.with_short_steps()
    return found.times_of(found.saved, phi)


def name_of(plan: Plan, pair: Pair, step: int) -> str:
    """What a cell is called in the archive; of a reference, whatever the step."""
    problem = plan.problems[pair.problem]
    if pair.integrator:
        return _name(pair, grid(plan, problem, step).step)
    return _name(pair, grid(plan, problem, len(plan.steps) - 1).step / plan.finer.refine)


def _name(pair: Pair, step: float) -> str:
    return " ".join((*(x or "reference" for x in pair), f"{step:.6g}"))


# What there is to do


def pairs(plan: Plan) -> list[Pair]:
    """All pairs, those of one problem and law together."""
    return [Pair(p, i, l) for p in plan.problems for l in plan.laws for i in plan.integrators]


def refusal(plan: Plan, pair: Pair) -> str | None:
    """Why a pair cannot, or need not, run; None if it shall."""
    problem, law = plan.problems[pair.problem], plan.laws[pair.law]
    first = next(iter(plan.laws))
    if pair.law != first and not problem.model().may_have_events:
        return f"{NOT_ASKED}; see {first}"
    return arguments.refusal(problem, plan.integrators[pair.integrator], law)


class Contents(NamedTuple):
    """All cells of a study, and why pairs cannot run. A pair without an integrator is a reference;
    it comes before those that need it."""

    cells: dict[Pair, list[Cell]]
    refused: dict[Pair, str]

    @property
    def all_cells(self) -> list[Cell]:
        return [cell for found in self.cells.values() for cell in found]

    def only(self, chosen: Callable[[Pair], bool]) -> "Contents":
        """The chosen pairs and their references."""
        pairs = [pair for pair in self.cells if pair.integrator and chosen(pair)]
        needed = {Pair(pair.problem, "", pair.law) for pair in pairs}
        cells = {k: x for k, x in self.cells.items() if k in needed or k in pairs}
        return Contents(cells, {k: x for k, x in self.refused.items() if chosen(k)})


def contents(plan: Plan) -> Contents:
    """All of a study. This reads the code of all that takes part: once for a run of the study."""
    reasons = {pair: refusal(plan, pair) for pair in pairs(plan)}
    able = [pair for pair, why in reasons.items() if why is None]
    coded = _remembered(code_digest)
    cells: dict[Pair, list[Cell]] = {}
    for pair in able:
        reference = Pair(pair.problem, "", pair.law)
        if reference not in cells:
            cells[reference] = [_reference_cell(plan, reference, coded)]
        cells[pair] = _cells(plan, pair, coded)
    return Contents(cells, {pair: why for pair, why in reasons.items() if why is not None})


def _cells(plan: Plan, pair: Pair, coded: Callable[[Any], str]) -> list[Cell]:
    """The cells of a pair, in order of the steps."""
    problem, law = plan.problems[pair.problem], plan.laws[pair.law]
    integrator = plan.integrators[pair.integrator]
    common = _described(problem, integrator, law, (_timed, coded))
    phi = phases(plan)
    found = []
    for k in range(len(plan.steps)):
        here = grid(plan, problem, k)
        words = {"step": here.step, "save_every": here.save_every}
        words["phases"] = None if phi is None else phi.tolist()
        words["run_times"] = plan.wants_times
        found.append(Cell(pair, k, common | words))
    return found


def _reference_cell(plan: Plan, pair: Pair, coded: Callable[[Any], str]) -> Cell:
    """The reference of a problem and a law."""
    chosen, rule = plan.problems[pair.problem], plan.laws[pair.law]
    finer = plan.finer.integrator
    wanted = reference_times(plan, chosen)
    words = _described(chosen, finer, rule, (_reference, coded)) | {
        "step": grid(plan, chosen, len(plan.steps) - 1).step / plan.finer.refine,
        "times": hashlib.sha256(wanted.tobytes()).hexdigest(),
    }
    return Cell(pair, len(plan.steps) - 1, words)


def reference_times(plan: Plan, problem: Problem) -> np.ndarray:
    each = [times(plan, problem, k).ravel() for k in range(len(plan.steps))]
    return np.unique(np.concatenate(each))


def _remembered(digest: Callable[[Any], str]) -> Callable[[Any], str]:
    """The digest of each object is made once, for all pairs."""
    known: dict[int, tuple[Any, str]] = {}  # with the object: an id is unique while it lives

    def find(thing: Any) -> str:
        if id(thing) not in known:
            known[id(thing)] = thing, digest(thing)
        return known[id(thing)][1]

    return find


def _described(
    problem: Problem, integrator: Any, law: AbstractLaw, made: tuple[Callable, Callable]
) -> dict[str, Any]:
    """Everything that the runs of a pair depend on. `made`: the function that makes them, and how
    to tell code by a digest."""
    maker, coded = made
    parts = (maker, problem.system, problem.constraint, integrator, law)
    return {
        "problem": problem.name,
        "system": settings_text(problem.system),
        "constraint": [settings_text(part) for part in problem.constraint],
        "params": jax.tree.map(lambda x: np.asarray(x).tolist(), plain(problem.params)),
        "start": [problem.t0, np.asarray(problem.q0).tolist(), np.asarray(problem.v0).tolist()],
        "t_end": problem.t_end,
        "integrator": format_object(integrator, always="*"),
        "law": format_object(law, always="*"),
        "code": [coded(part)[:KEPT] for part in parts],
    }


# Doing it


def is_done(folder: Path, cell: Cell) -> bool:
    return archive.exists(folder, cell.key, cell.words)


def given_up(folder: Path, cell: Cell) -> str:
    """Why a cell was given up; empty if it was not."""
    return archive.read_json(_grave(folder, cell)).get("reason", "")


def give_up(folder: Path, cells: list[Cell], reason: str) -> None:
    """Let those that are not done be given up."""
    for cell in cells:
        if not is_done(folder, cell):
            archive.write_json(_grave(folder, cell), {"reason": reason, **archive.provenance()})


def _grave(folder: Path, cell: Cell) -> Path:
    return folder / f"{cell.key}.given_up.json"


def packed_work(plan: Plan, todo: list[Cell], folder: Path) -> bytes:
    """`work` for another process, with what it needs of the study."""
    pair = todo[0].pair
    part = lambda things, name: {name: things[name]} if name else {}
    own = plan._replace(
        problems=part(plan.problems, pair.problem),
        integrators=part(plan.integrators, pair.integrator),
        laws=part(plan.laws, pair.law),
        stored={},
        closed_forms={},
    )
    return packed("study", (own, todo, folder.resolve()))


def unpacked_work(job: bytes) -> None:
    """`work` in another process. To find this function it has imported nsdyn, so the arrays in the
    job arrive with 64 bits."""
    work(*pickle.loads(job))


def work(plan: Plan, todo: list[Cell], folder: Path) -> None:
    """Compute cells of one pair. A status is a result, and so is an error: it ends the pair, not
    the study. A kill leaves nothing."""
    for k, cell in enumerate(todo):
        try:
            _write(plan, cell, folder)
        except Exception as error:  # whatever compilers and users' functions raise
            text = " ".join(str(error).split())
            give_up(folder, todo[k:], f"{type(error).__name__}: {text[:LONGEST]}")
            return
        _grave(folder, cell).unlink(missing_ok=True)


def _write(plan: Plan, cell: Cell, folder: Path) -> None:
    variables, timing = computed(plan, cell)
    archive.write(folder, cell.key, variables, cell.words)
    if timing:
        archive.write_json(folder / f"{cell.key}.timing.json", timing)


def computed(plan: Plan, cell: Cell) -> tuple[dict[str, tuple], dict[str, float]]:
    """The variables of a cell, and its times. Where run times are compared programs are compiled
    alike, whatever the number of steps."""
    with compiled_well() if plan.wants_times else nullcontext():
        if cell.is_reference:
            chosen, law = plan.problems[cell.pair.problem], plan.laws[cell.pair.law]
            return _reference(plan, chosen, law), {}
        return _timed(plan, cell)


def _timed(plan: Plan, cell: Cell) -> tuple[dict[str, tuple], dict[str, float]]:
    """The variables of a cell, and CPU seconds: of all that was done for the cell and, if they are
    wanted, of one run of the batch (the shortest of some)."""
    began = time.process_time()
    problem, law = plan.problems[cell.pair.problem], plan.laws[cell.pair.law]
    integrator, here = plan.integrators[cell.pair.integrator], grid(plan, problem, cell.step)
    found_phases = phases(plan)
    phi = np.zeros(1) if found_phases is None else found_phases
    phase = np.resize(phi, max(LANES, plan.phases))  # filled up to the lanes of a native program
    options: dict[str, Any] = {"step": here.step, "save_every": here.save_every}
    found = sweep(problem, integrator, law=law, phase=phase, **options)
    variables = _cell(problem, found, plan.phases)
    timing: dict[str, float] = {}
    if plan.wants_times:
        batch = batch_values(problem, None, None, None, phase)
        made = setup(problem, integrator, law, **options)
        timing["run_s"] = _run_time(prepared(laid_out(problem, made, batch)))
    timing["cell_s"] = time.process_time() - began
    return variables, timing


def _run_time(ready: Prepared) -> float:
    """CPU seconds of one run of a batch."""
    spent: list[float] = []
    while len(spent) < REPEATS and sum(spent) < PATIENCE:
        start = time.process_time()
        ready.chunk(0)
        spent.append(time.process_time() - start)
    return min(spent) / ready.size


def _cell(problem: Problem, found: Solution, count: int) -> dict[str, tuple]:
    """The variables of the first `count` runs of a batch. Empty ones are left out: netCDF 3 cannot
    hold them."""
    batch = found[:count]
    events = batch.events.trimmed()
    parts = tuple(f"part_{i}" for i in range(batch.mode.ndim - 2))
    t = np.broadcast_to(batch.t, (count, np.shape(batch.t)[-1]))
    row = ("phase", "row")
    variables: dict[str, tuple] = {
        "t": (row, t),
        "q": ((*row, "coordinate"), batch.q),
        "v": ((*row, "velocity"), batch.v),
        "lam": ((*row, "constraint"), batch.lam),
        "mode": ((*row, *parts), batch.mode.astype(np.int32)),
        "energy": (row, batch.energy),
        "kinetic": (row, _kinetic(problem, batch.q, batch.v)),
        "status": ("phase", batch.status.astype(np.int32)),
        "t_stop": ("phase", batch.t_stop),
        "newton": ("phase", batch.effort.total.astype(np.int32)),
        "newton_worst": ("phase", batch.effort.worst.astype(np.int32)),
        "event_count": ("phase", np.asarray(events.count).astype(np.int32)),
    }
    levels = batch_residuals(problem, batch)
    for name, values in zip(RESIDUALS, levels, strict=True):
        variables[name] = (row, np.max(np.abs(values), axis=2, initial=0.0))
    return _without_empty(variables | _events(("phase",), events))


def _events(front: tuple[str, ...], events: Any) -> dict[str, tuple]:
    inner = {"Lam": ("constraint",), "v_before": ("velocity",), "v_after": ("velocity",)}
    dims = {name: (*front, "event", *inner.get(name, ())) for name in EVENTS}
    return {f"event_{name}": (dims[name], np.asarray(getattr(events, name))) for name in EVENTS}


def _without_empty(variables: dict[str, tuple]) -> dict[str, tuple]:
    return {name: value for name, value in variables.items() if np.size(value[1])}


def _kinetic(problem: Problem, q: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Kinetic energies, in pieces of one size, so that it compiles once for a problem."""
    size = 1024
    flat = lambda x: np.asarray(x).reshape(-1, x.shape[-1])
    rows_q, rows_v = flat(q), flat(v)
    found = []
    for first in range(0, len(rows_q), size):
        some = np.minimum(np.arange(first, first + size), len(rows_q) - 1)
        found.append(np.asarray(_energies(problem, rows_q[some], rows_v[some])))
    return np.concatenate(found)[: len(rows_q)].reshape(q.shape[:-1])


def _energies(problem: Problem, q: np.ndarray, v: np.ndarray) -> jax.Array:
    key = problem.system.mass
    if key not in _compiled:
        _compiled[key] = jax.jit(
            lambda p, q, v: jax.vmap(lambda q, v: problem.system.kinetic(q, v, p))(q, v)
        )
    return _compiled[key](problem.params, q, v)


_compiled: dict = {}


def _reference(plan: Plan, problem: Problem, law: AbstractLaw) -> dict[str, tuple]:
    """The finer run at the times of all runs, and how far a run with twice its step is away."""
    step = grid(plan, problem, len(plan.steps) - 1).step / plan.finer.refine
    wanted = reference_times(plan, problem)
    same: dict[str, Any] = {
        "law": law,
        "save_at": wanted,
        "phase": np.zeros(LANES),
    }  # the program of the cells
    run, other = (
        sweep(problem, plan.finer.integrator, step=h, **same)[0].trimmed() for h in (step, 2 * step)
    )
    parts = tuple(f"part_{i}" for i in range(run.mode.ndim - 1))
    variables: dict[str, tuple] = {
        "t": ("row", run.t),
        "q": (("row", "coordinate"), run.q),
        "v": (("row", "velocity"), run.v),
        "lam": (("row", "constraint"), run.lam),
        "mode": (("row", *parts), run.mode.astype(np.int32)),
        "energy": ("row", run.energy),
        "kinetic": ("row", _kinetic(problem, run.q, run.v)),
        "status": ((), np.int32(run.status)),
        "t_stop": ((), float(run.t_stop)),
        "uncertain_q": ((), _apart(run, other, "q")),
        "uncertain_v": ((), _apart(run, other, "v")),
    }
    return _without_empty(variables | _events((), run.events))


def _apart(run: Solution, other: Solution, name: str) -> float:
    """The largest difference where both are in the same mode."""
    count = min(len(run.t), len(other.t))
    same = (run.mode[:count] == other.mode[:count]).reshape(count, -1).all(axis=1)
    gap = np.abs(getattr(run, name)[:count] - getattr(other, name)[:count])[same]
    return float(np.max(gap, initial=0.0))


def read(folder: Path, cell: Cell) -> tuple[Dataset, dict[str, float]] | None:
    """The data of a cell and its times; None if it was not computed."""
    if not is_done(folder, cell):
        return None
    return archive.read(folder, cell.key)[0], archive.read_json(folder / f"{cell.key}.timing.json")
