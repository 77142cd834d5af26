"""What a study found: all numbers as one dataset over (problem, integrator, law, step, phase), and
tables of them.

In the tables an error is the worst over the phases, with the smallest step, and beside it the
median; an order is a fit of the worst over all steps. Errors are those of `nsdyn.analysis.metrics`, against a closed form or a finer run
(`study_references`); error_end is that of the end state against a stored reference of the problem
(`nsdyn.Reference`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from xarray import Dataset

from nsdyn.analysis import metrics
from nsdyn.analysis.metrics import Jumps, Motion, Order
from nsdyn.laws.base import as_status
from nsdyn.reference import Reference
from nsdyn.status import Status
from nsdyn.studies.lib import archive, study_cells, study_references
from nsdyn.studies.lib.study_cells import Contents, Pair
from nsdyn.studies.lib.study_file import METRICS, RESIDUALS, Plan
from nsdyn.studies.lib.study_references import Origin
from nsdyn.studies.lib.tables import Table

DIMENSIONS = ("problem", "integrator", "law", "step", "phase")
MISSING = -1  # the status of what was refused or not computed
ORDERED = ("error_q", "error_v", "error_lam", "error_Lam", "error_t_event", "graph_v", "error_end")
ERRORS = (*ORDERED, "error_energy", "error_lost")
FLOOR = 1e-14  # an error below is round-off, and as good as any other
LEDGER = ("event", "t", "kinetic_before", "kinetic_after", "lost")
HEADS = {
    "error_t_event": "error\nt event",
    "error_energy": "error\nenergy",
    "residual_position": "residual\nposition",
    "residual_velocity": "residual\nvelocity",
    "residual_acceleration": "residual\naccel.",
    "newton": "Newton\nall",
    "newton_worst": "Newton\nmost",
    "run_s": "run\nms",
}


@dataclass(frozen=True)
class StudyResult:
    """What a study found. `print` shows its table.

    plan: the study.
    data: an xarray.Dataset over (problem, integrator, law, step, phase) with all metrics and the
        status; NaN where a pair was refused, has not been computed, or has nothing to compare. `h`
        are the steps themselves, of each problem.
    refused: why pairs cannot run.
    given_up: why pairs ended with an error or took too long.
    references: where the reference of each (problem, law) comes from, with its estimated errors.
    ledger: the energy that every jump took, a row for each: the names and the step of its run, its
        phase, and LEDGER.
    """

    plan: Plan
    data: Dataset
    refused: dict[Pair, str]
    references: dict[tuple[str, str], Origin]
    given_up: dict[Pair, str] = field(default_factory=dict)
    ledger: list[tuple] = field(default_factory=list)

    def __str__(self) -> str:
        return str(self.table)

    @property
    def ok(self) -> np.ndarray:
        """Whether each run reached its end."""
        return self.data.status.values == int(Status.OK)

    @property
    def is_begun(self) -> bool:
        """Whether anything was computed, or given up."""
        return bool(self.given_up) or bool(np.any(self.data.status.values != MISSING))

    @property
    def table(self) -> Table:
        """One row for each problem, law and integrator."""
        return _table(self)

    def worst(self, metric: str) -> np.ndarray:
        """The worst over the phases, shape (problem, integrator, law, step)."""
        return metrics.over_phases(self.data[metric].values, self.ok).worst

    def median(self, metric: str) -> np.ndarray:
        """The median over the phases that reached the end, of the same shape."""
        return metrics.over_phases(self.data[metric].values, self.ok).median

    def failed(self) -> np.ndarray:
        """The share of phases that did not reach the end, of the same shape."""
        return np.mean(~self.ok, axis=-1)

    def order(self, metric: str, problem: str, integrator: str, law: str) -> Order:
        """The observed order of a metric, a fit over the steps."""
        place = _place(self.plan, Pair(problem, integrator, law))
        return metrics.observed_order(self.data.h.values[place[0]], self.worst(metric)[place])

    def profile(self, metric: str) -> metrics.Profile:
        """The performance profile over all problems, laws and steps that any integrator has run: one
        row of shares for each integrator. Errors of round-off are equally good."""
        values = np.moveaxis(np.maximum(self.worst(metric), FLOOR), 1, -1)
        was_run = np.any(self.data.status.values != MISSING, axis=(1, -1))
        return metrics.performance_profile(values[was_run])

    def ledger_csv(self) -> str:
        """The energy of every jump in a line."""
        return Table(
            "", ("problem", "integrator", "law", "h", "phase", *LEDGER), self.ledger, []
        ).csv()

    def to_latex(self) -> str:
        return self.table.latex()

    def to_markdown(self) -> str:
        return self.table.markdown()

    def to_csv(self) -> str:
        """Every run in a line."""
        frame = self.data.to_dataframe().reset_index()
        return frame.to_csv(index=False, lineterminator="\n", float_format="%.9g")

    def save(self, folder: str | Path) -> list[Path]:
        """Write tables, dataset and figures; returns the files."""
        from nsdyn.studies.lib import study_figures

        return study_figures.write(self, Path(folder))

    def plot(self, name: str = "work_precision", law: str | None = None) -> Any:
        """The figure "work_precision" or "convergence" of a law, or the "profile" over all problems
        and laws, a matplotlib Figure."""
        from nsdyn.studies.lib import study_figures

        return study_figures.figure(self, name, law or next(iter(self.plan.laws)))


# Collecting


Read = tuple[Dataset, dict[str, float]] | None  # a cell and its times, if it was computed


def collect(plan: Plan, folder: Path, contents: Contents | None = None) -> StudyResult:
    """What is archived of a study. `contents` are its cells, if they are known."""
    known = study_cells.contents(plan) if contents is None else contents
    reasons = {x.pair: why for x in known.all_cells if (why := study_cells.given_up(folder, x))}
    read = lambda cells: [study_cells.read(folder, cell) for cell in cells]
    found = ((pair, read(cells)) for pair, cells in known.cells.items())
    return _collected(plan, found, known.refused, reasons)


def by_names(plan: Plan, folder: Path) -> StudyResult:
    """What is archived under the names of a study's cells, whichever code has computed it."""

    def read(pair: Pair) -> list[Read]:
        steps = range(len(plan.steps)) if pair.integrator else range(1)
        names = [study_cells.name_of(plan, pair, k) for k in steps]
        return [(archive.read(folder, name)[0], {}) for name in names]

    chosen = ("", *plan.integrators)  # the reference first
    runs = [Pair(p, i, l) for p in plan.problems for l in plan.laws for i in chosen]
    known = archive.read_index(folder)["names"]
    there = [pair for pair in runs if study_cells.name_of(plan, pair, 0) in known]
    return _collected(plan, ((pair, read(pair)) for pair in there), {}, {})


def _collected(
    plan: Plan,
    cells: Iterable[tuple[Pair, list[Read]]],
    refused: dict[Pair, str],
    given_up: dict[Pair, str],
) -> StudyResult:
    """The numbers of all cells; references come before those that need them."""
    shape = plan.shape
    found = {name: np.full(shape, np.nan) for name in METRICS}
    status = np.full(shape, MISSING)
    references: dict[tuple[str, str], Origin] = {}
    wanted: dict[tuple[str, str], Dataset | None] = {}
    ledger: list[tuple] = []
    for pair, data in cells:
        named = pair.problem, pair.law
        if not pair.integrator:
            finer = None if data[0] is None else data[0][0]
            why = given_up.get(pair, "")
            wanted[named], references[named] = study_references.made(plan, pair, finer, why)
            continue
        for k, read in enumerate(data):
            if read is not None:
                place = (*_place(plan, pair), k)
                status[place] = read[0].status.values
                for name, values in _measured(plan, pair, *read, wanted[named]).items():
                    found[name][place] = values
                ledger += _ledger(plan, pair, k, read[0])
    numbers = _dataset(plan, found, status, references)
    return StudyResult(plan, numbers, refused, references, given_up, ledger)


def _ledger(plan: Plan, pair: Pair, k: int, data: Dataset) -> list[tuple]:
    """Rows of the jumps of a cell."""
    h = study_cells.grid(plan, plan.problems[pair.problem], k).step
    phi = study_cells.phases(plan)
    rows = []
    for j, count in enumerate(data.event_count.values):
        jumps = _jumps(data.isel(phase=j), int(count))
        place = (*pair, f"{h:.9g}", 0 if phi is None else f"{phi[j]:.9g}")
        numbers = zip(jumps.t, jumps.kinetic_before, jumps.kinetic_after, jumps.lost, strict=True)
        rows += [(*place, i, *(f"{x:.9g}" for x in each)) for i, each in enumerate(numbers)]
    return rows


def _place(plan: Plan, pair: Pair) -> tuple[int, int, int]:
    """Where a pair stands in arrays over (problem, integrator, law)."""
    return (
        list(plan.problems).index(pair.problem),
        list(plan.integrators).index(pair.integrator),
        list(plan.laws).index(pair.law),
    )


def _dataset(
    plan: Plan,
    found: dict[str, np.ndarray],
    status: np.ndarray,
    references: dict[tuple[str, str], Origin],
) -> Dataset:
    steps = range(len(plan.steps))
    h = [[study_cells.grid(plan, x, k).step for k in steps] for x in plan.problems.values()]
    phi = study_cells.phases(plan)
    coords = {
        "problem": list(plan.problems),
        "integrator": list(plan.integrators),
        "law": list(plan.laws),
        "step": list(plan.steps),
        "phase": [0.0] if phi is None else phi,
    }
    variables = {name: (DIMENSIONS, values) for name, values in found.items()}
    more = {"status": (DIMENSIONS, status), "h": (("problem", "step"), np.array(h))}
    for k, name in enumerate(("reference_error_q", "reference_error_v"), 1):
        of = lambda p, l, k=k: references[p, l][k] if (p, l) in references else np.nan
        values = [[of(p, l) for l in plan.laws] for p in plan.problems]
        more[name] = (("problem", "law"), np.array(values))
    return Dataset({**variables, **more}, coords, {"title": plan.title})


def _measured(
    plan: Plan, pair: Pair, data: Dataset, timing: dict[str, float], wanted: Dataset | None
) -> dict[str, Any]:
    """All metrics of the runs of a cell, an array over the phases each."""
    count = data.sizes["phase"]
    chosen, stored = plan.problems[pair.problem], study_references.stored(plan, pair)
    since = chosen.t0 + plan.since * (chosen.t_end - chosen.t0)
    rows = [_of_run(data, j, wanted, stored, since) for j in range(count)]
    found = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    found |= {name: data[name].values.astype(float) for name in ("newton", "newton_worst")}
    found["events"] = data.event_count.values.astype(float)
    found["run_s"] = np.full(count, timing.get("run_s", np.nan))
    return found


def _of_run(
    data: Dataset, j: int, wanted: Dataset | None, stored: Reference | None, since: float
) -> dict[str, float]:
    one = data.isel(phase=j)
    good = np.isfinite(one.q.values).all(axis=1) & np.isfinite(one.v.values).all(axis=1)
    count = len(good) if good.all() else int(np.argmin(good))
    run = _motion(one, int(one.event_count)).until(count)
    ok = int(one.status) == Status.OK
    found = dict.fromkeys((*ERRORS, "events_too_many", "rows_left_out"), np.nan)
    if wanted is not None and count:
        found |= _errors(run, _at(wanted, run.t), since)
        found["error_lost"] /= max(metrics.largest(wanted.kinetic.values), 1e-300)
    for name in RESIDUALS:
        found[name] = metrics.largest(one[name].values[:count]) if count else np.nan
    scale = max(metrics.largest(run.kinetic), 1e-300) if count else np.nan
    ledger = metrics.energy_ledger(run)
    found["energy_drift"] = abs(ledger.drift) / scale if ok else np.nan
    found["energy_lost"] = float(np.sum(ledger.lost)) / scale
    if stored is not None and ok:
        found["error_end"] = stored.error(run.q[-1], run.v[-1])
    return found


def _errors(run: Motion, reference: Motion, since: float) -> dict[str, float]:
    """Errors of the samples from a time on; those of events and graphs of the whole run."""
    found = metrics.errors(run, reference)
    late = np.flatnonzero(run.t >= since)
    if len(late) in (0, len(run.t)):
        return found
    part = metrics.differences(run.at(late), reference.at(late))
    names = ("q", "v", "lam", "energy")
    return found | {f"error_{name}": metrics.largest(getattr(part, name)) for name in names}


def _motion(data: Dataset, events: int) -> Motion:
    """A run, or the reference, as metrics take it; variables that were empty are empty again."""
    rows = data.sizes["row"]
    value = lambda name: data[name].values if name in data else np.zeros((rows, 0))
    samples = {name: value(name) for name in Motion._fields[:-1]}
    return Motion(**samples, jumps=_jumps(data, events))


def _jumps(data: Dataset, events: int) -> Jumps:
    n = data.sizes["velocity"]
    empty = {"Lam": (events, 0), "v_before": (events, n), "v_after": (events, n)}
    none = lambda name: np.zeros(empty.get(name, (events,)))
    value = lambda name: data[f"event_{name}"].values if f"event_{name}" in data else none(name)
    return Jumps(*(value(name)[:events] for name in Jumps._fields))


def _at(wanted: Dataset, t: np.ndarray) -> Motion:
    """The reference at these times, as far as it goes."""
    reference = _motion(wanted, wanted.sizes.get("event", 0))
    rows = np.minimum(np.searchsorted(reference.t, t), len(reference.t) - 1)
    return reference.at(rows)


# The table


def _table(result: StudyResult) -> Table:
    plan = result.plan
    reasons: list[str] = []
    many = [len(plan.problems) > 1, len(plan.laws) > 1]
    over = {name: (result.worst(name), result.median(name)) for name in plan.metrics}
    rows = []
    for problem in plan.problems:
        for law in plan.laws:
            for integrator in plan.integrators:
                names = [x for x, shown in zip((problem, law), many, strict=True) if shown]
                pair = Pair(problem, integrator, law)
                rows.append((*names, integrator, *_cells(result, pair, over, reasons)))
    head = [x for x, shown in zip(("problem", "law"), many, strict=True) if shown]
    columns = []
    for name in plan.metrics:
        columns += [HEADS.get(name, name.replace("_", "\n", 1))]
        columns += ["median"] if name in ERRORS and plan.phases > 1 else []
        columns += ["order"] if name in ORDERED and len(plan.steps) > 1 else []
    notes = [*_notes(result), *(f"({i}) {reason}" for i, reason in enumerate(reasons, 1))]
    columns += ["reference", *(f"reference\nerror {name[-1]}" for name in _of_reference(plan))]
    titles = (*head, "integrator", *columns, "failed", "status")
    return Table(plan.title, titles, rows, notes, names=len(head) + 1)


def _cells(
    result: StudyResult,
    pair: Pair,
    over: dict[str, tuple[np.ndarray, np.ndarray]],
    reasons: list[str],
) -> list[str]:
    """A row of numbers; `over`: the worst and the median of each metric."""
    plan = result.plan
    place = _place(plan, pair)
    h = result.data.h.values[place[0]]
    found = []
    for name in plan.metrics:
        worst, median = (values[place] for values in over[name])
        found.append(_number(name, worst[-1]))
        if name in ERRORS and plan.phases > 1:
            found.append(_number(name, median[-1]))
        if name in ORDERED and len(plan.steps) > 1:
            found.append(str(metrics.observed_order(h, worst)))
    origin = result.references.get((pair.problem, pair.law))
    found.append("-" if origin is None or not origin.kind else origin.kind)
    for name in _of_reference(plan):
        found.append("-" if origin is None else _number(name, getattr(origin, name)))
    status = result.data.status.values[place]
    if pair in result.refused:
        return [*found, "-", _said("refused", result.refused[pair], reasons)]
    if pair in result.given_up:
        return [*found, "-", _said("given up", result.given_up[pair], reasons)]
    if np.any(status == MISSING):
        return [*found, "-", f"{np.mean(status != MISSING):.0%} computed"]
    share = np.mean(status != int(Status.OK))
    codes = status[status != int(Status.OK)]
    if not len(codes):
        return [*found, "0", "OK"]
    kind = as_status(np.bincount(codes).argmax())
    name = kind.name if isinstance(kind, Status) else "an objection of the law"
    return [*found, f"{share:.0%}", f"mostly {name}"]


def _of_reference(plan: Plan) -> list[str]:
    """The errors that are shown both of the runs and of the reference."""
    return [name for name in ("error_q", "error_v") if name in plan.metrics]


def _said(word: str, reason: str, reasons: list[str]) -> str:
    if reason not in reasons:
        reasons.append(reason)
    return f"{word} ({reasons.index(reason) + 1})"


def _number(name: str, x: float) -> str:
    if np.isnan(x):
        return "-"
    if name in ("events", "events_too_many", "rows_left_out", "newton", "newton_worst"):
        return f"{x:.0f}"
    if name == "run_s":
        return f"{1e3 * x:.3g}"
    return f"{x:.1e}" if x else "0"


def _notes(result: StudyResult) -> list[str]:
    plan = result.plan
    several = (
        f"the worst of {plan.phases} phases, beside them medians of those that reached the end"
    )
    phases = several if plan.phases > 1 else "of one run each"
    h = ", ".join(f"{x:.3g}" for x in dict.fromkeys(result.data.h.values[:, -1]))
    notes = [
        f"Numbers are {phases}, with the smallest step, h = {h}; orders are fits over "
        f"{len(plan.steps)} steps with their standard deviation; failed: the share of all runs that "
        "did not reach the end."
    ]
    if "run_s" in plan.metrics:
        notes.append("run: CPU time of one run in a batch, without compilation.")
    if plan.since:
        notes.append(f"Errors of samples count from {plan.since:.0%} of the time span on.")
    alike: dict[str, list[str]] = {}
    for (problem, law), origin in result.references.items():
        alike.setdefault(origin.text, []).append(f"{problem}, {law}")
    absent = alike.pop(study_references.NOT_COMPUTED, [])
    notes += [f"Reference of {'; '.join(names)}: {text}." for text, names in alike.items()]
    if absent:
        notes.append(f"References that are not computed: {len(absent)}.")
    return notes
