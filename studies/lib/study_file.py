"""Study files: what a comparison consists of, written in TOML (`nsdyn study x.toml`).

    title   = "Which scheme gets the corner right?"
    metrics = ["error_q", "error_v", "graph_v", "error_Lam", "residuals", "newton", "run_s"]
    patience = 120                 # CPU seconds; a pair that takes longer is given up, with its reason
    since = 0.8                    # errors of q, v, lam and energy count from this share of the span

    [problems]                     # NAME, package:NAME, file.py:NAME or robot.urdf
    ramp = { use = "point_on_track", set = { a = 0.5 }, t_end = 0.4 }
    palm = "metamorphic_palm"

    [integrators]
    nsga = "NSGA(rho_inf=0.8)"

    [laws]                         # default: PostSwitchGradient
    after = "PostSwitchGradient()"

    [steps]
    first = 2e-2                   # or: values = [2e-2, 1e-2]
    halvings = 7
    of_span = true                 # steps are shares of the time span of each problem
    phases = 16                    # places of the grid relative to the events
    samples = 100                  # samples of a run at most, evenly spaced

    [reference]
    prefer = ["closed_form", "stored", { use = "EventDriven(RK4())", refine = 8 }]

    [figures.work_precision]
    x = "run_s"
    y = ["error_v", "graph_v"]

Every error names the file, the line and the key. Paths of files are relative to the study file.
"""

import dataclasses
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from nsdyn import problems
from nsdyn.errors import FileError, ProblemError, unknown
from nsdyn.laws.base import AbstractLaw
from nsdyn.laws.post_switch import PostSwitchGradient
from nsdyn.problem import Problem
from nsdyn.reference import ClosedForm, Reference
from nsdyn.studies.lib import written

RESIDUALS = ("residual_position", "residual_velocity", "residual_acceleration")
METRICS = (
    *("error_q", "error_v", "error_lam", "error_Lam", "error_t_event", "graph_v", "error_energy"),
    *("error_end", *RESIDUALS, "energy_drift", "energy_lost", "error_lost"),
    *("events", "events_too_many", "rows_left_out"),
    *("newton", "newton_worst", "run_s"),
)
GROUPS = {
    "residuals": RESIDUALS,
    "energy": ("error_energy", "energy_drift", "energy_lost", "error_lost"),
    "error_t_switch": ("error_t_event",),
}
SHOWN = (
    *("error_q", "error_v", "graph_v", "error_t_event", "error_Lam", *RESIDUALS),
    *("energy_drift", "newton", "run_s"),
)
KEYS = {
    "": ("title", "patience", "since", "metrics", "problems", "integrators", "laws", "steps",
         "reference", "figures"),
    "steps": ("first", "halvings", "values", "of_span", "phases", "samples"),
    "reference": ("prefer",),
    "problem": ("use", "set", "t_end"),
    "finer": ("use", "refine"),
    "figure": ("x", "y"),
    "profile": ("y",),
}  # fmt: skip
FIGURES = {
    "work_precision": {"x": "run_s", "y": ("error_q", "error_v")},
    "convergence": {"x": "step", "y": ("error_q", "error_v", "graph_v")},
}
PROFILE = {"profile": {"x": "factor", "y": ("error_q", "error_v", "run_s")}}
KINDS = FIGURES | PROFILE
MANY = 3  # problems from which on there is a summary, and a profile
KNOWN = ("closed_form", "stored")  # references that problems bring
SAMPLES = 100
ROUNDING = 1e-9  # of a step that is said to be the time span
REFINE = 8


def figures_of(problems: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What is drawn unless a study says so itself."""
    return KINDS if len(problems) >= MANY else FIGURES


def metrics_of(names: Iterable[str]) -> tuple[str, ...]:
    """These metrics, once each, with those of groups in their places."""
    found: list[str] = []
    for name in names:
        if name not in METRICS and name not in GROUPS:
            raise unknown("metric", name, (*METRICS, *GROUPS))
        found += GROUPS.get(name, (name,))
    return tuple(dict.fromkeys(found))


class Finer(NamedTuple):
    """The finer run that others are compared with: its integrator, and its steps per finest step of
    the study."""

    integrator: Any
    refine: int


class Plan(NamedTuple):
    """A study: everything that is run, and what is shown of it."""

    title: str
    problems: dict[str, Problem]
    integrators: dict[str, Any]
    laws: dict[str, AbstractLaw]
    steps: tuple[float, ...]
    phases: int
    finer: Finer
    stored: dict[str, Reference | None]
    closed_forms: dict[str, ClosedForm | None]
    metrics: tuple[str, ...] = SHOWN
    figures: dict[str, dict[str, Any]] = FIGURES
    samples: int = SAMPLES
    of_span: bool = False  # steps are shares of the time span of each problem
    patience: float | None = None  # CPU seconds that a pair may take; it runs in another process
    since: float = 0.0  # the share of the time span from which on errors of samples count

    @property
    def shape(self) -> tuple[int, ...]:
        """Problems, integrators, laws, steps, phases."""
        many = (self.problems, self.integrators, self.laws, self.steps)
        return (*map(len, many), self.phases)

    @property
    def wants_times(self) -> bool:
        """Whether run times are shown. They cost: programs are then compiled well, and run again."""
        drawn = [(table["x"], *table["y"]) for table in self.figures.values()]
        return any("run_s" in shown for shown in (self.metrics, *drawn))


def read(path: str | Path) -> Plan:
    """The study in a file."""
    file = Path(path)
    try:
        text = file.read_text("utf-8")
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise FileError(f"{path}: expected a study file, a text in TOML, found no text") from error
    return parse(text, str(path), file.resolve().parent)


def parse(text: str, name: str = "study", folder: Path | None = None) -> Plan:
    """The study in a text; `name` is what errors call it."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line (\d+)", str(error))
        line = f", line {place[1]}" if place else ""
        raise ProblemError(f"{name}{line}: no valid TOML: {error}") from error
    return _Reader(content, text, name, folder or Path.cwd()).plan()


def too_long(problems: dict[str, Problem], step: float, of_span: bool) -> str:
    """Why the largest step is too long for a study; empty if it is not."""
    for name, problem in problems.items():
        span = 1.0 if of_span else problem.t_end - problem.t0
        if step > span * (1 + ROUNDING):
            said = (
                "a share of at most 1" if of_span else f"at most the time span of {name}, {span:g}"
            )
            return f"expected {said}, found {step:g}"
    return ""


class _Reader:
    """Reads the content of a study file; errors say where they are."""

    def __init__(self, content: dict[str, Any], text: str, name: str, folder: Path):
        self.content = content
        self.lines = text.splitlines()
        self.name = name
        self.folder = folder

    def plan(self) -> Plan:
        self._check_keys((), self.content, KEYS[""])
        made = {name: self._problem(name) for name in self._table("problems")}
        steps, phases, samples = self._steps()
        kinds, finer = self._finer()
        own = {name: parts[0] for name, parts in made.items()}
        return Plan(
            title=self._typed(("title",), str, "a text", self.name),
            problems=own,
            integrators=self._objects("integrators", written.integrator),
            laws=self._objects("laws", written.law, {"PostSwitchGradient": PostSwitchGradient()}),
            steps=steps,
            phases=phases,
            samples=samples,
            of_span=self._of_span(own, steps[0]),
            finer=finer,
            stored={n: x[1] for n, x in made.items() if "stored" in kinds},
            closed_forms={n: x[2] for n, x in made.items() if "closed_form" in kinds},
            patience=self._patience(),
            since=self._since(),
            metrics=self._metrics(),
            figures=self._figures(),
        )

    # Parts

    def _problem(self, name: str) -> tuple[Problem, Reference | None, ClosedForm | None]:
        path = ("problems", name)
        entry = self._at(path)
        entry = {"use": entry} if isinstance(entry, str) else entry
        if not isinstance(entry, dict) or "use" not in entry:
            raise self._error(path, 'a text or { use = "...", set = {...}, t_end = ... }', entry)
        self._check_keys(path, entry, KEYS["problem"])
        if not isinstance(entry["use"], str):
            raise self._error((*path, "use"), "a text such as 'point_on_track'", entry["use"])
        settings = entry.get("set", {})
        if not isinstance(settings, dict):
            raise self._error((*path, "set"), "a table such as { a = 0.5 }", settings)
        with self._faults(path), _inside(self.folder):
            problem = problems.get(entry["use"], **settings)
            stored = None if settings or "t_end" in entry else problems.reference(entry["use"])
            closed_form = problems.closed_form(entry["use"])
        if "t_end" in entry:
            t_end = entry["t_end"]
            if not _is_number(t_end) or t_end <= problem.t0:
                raise self._error((*path, "t_end"), f"a time after t0 = {problem.t0:g}", t_end)
            problem = dataclasses.replace(problem, t_end=float(t_end))
        return problem, stored, closed_form

    def _objects(
        self, kind: str, make: Callable[[str], Any], default: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        if kind not in self.content and default is not None:
            return default
        found = {}
        for name, text in self._table(kind).items():
            if not isinstance(text, str):
                raise self._error((kind, name), "a text such as 'NSGA(rho_inf=0.8)'", text)
            with self._faults((kind, name)), _inside(self.folder):
                found[name] = make(text)
        return found

    def _steps(self) -> tuple[tuple[float, ...], int, int]:
        table = self._table("steps")
        self._check_keys(("steps",), table, KEYS["steps"])
        if ("first" in table) == ("values" in table):
            wanted = "either first (and halvings) or values"
            raise self._error(("steps",), wanted, ", ".join(table))
        if "values" in table and "halvings" in table:
            raise self._said(("steps", "halvings"), "belongs to first; values lists all steps")
        if "values" in table:
            steps = table["values"]
            good = isinstance(steps, list) and steps and all(_is_number(x) and x > 0 for x in steps)
            if not good:
                raise self._error(("steps", "values"), "a list of positive numbers", steps)
        else:
            first = table["first"]
            if not _is_number(first) or first <= 0:
                raise self._error(("steps", "first"), "a positive number", first)
            steps = [first / 2**k for k in range(self._whole("halvings", 0, least=0) + 1)]
        steps = tuple(sorted({float(x) for x in steps}, reverse=True))
        return steps, self._whole("phases", 1), self._whole("samples", SAMPLES, least=2)

    def _of_span(self, chosen: dict[str, Problem], largest: float) -> bool:
        """Whether steps are shares of the span; the largest must not be longer than it."""
        found = self._typed(("steps", "of_span"), bool, "true or false", False)
        if why := too_long(chosen, largest, found):
            key = "first" if "first" in self.content["steps"] else "values"
            raise self._said(("steps", key), why)
        return found

    def _whole(self, key: str, default: int, least: int = 1) -> int:
        value = self._at(("steps", key), default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self._error(("steps", key), f"a whole number of at least {least}", value)
        return value

    def _patience(self) -> float | None:
        found = self._at(("patience",))
        if found is None:
            return None
        if not _is_number(found) or found <= 0:
            raise self._error(("patience",), "a positive number of seconds", found)
        return float(found)

    def _since(self) -> float:
        found = self._at(("since",), 0.0)
        if not _is_number(found) or not 0 <= found < 1:
            raise self._error(("since",), "a number from 0 to 1, and less than 1", found)
        return float(found)

    def _finer(self) -> tuple[list[str], Finer]:
        """Which other references count, and the finer run."""
        path = ("reference", "prefer")
        table = self._table("reference") if "reference" in self.content else {}
        self._check_keys(("reference",), table, KEYS["reference"])
        prefer = table.get("prefer", [*KNOWN, {}])
        if not isinstance(prefer, list):
            raise self._error(
                path, 'a list such as ["closed_form", { use = "...", refine = 8 }]', prefer
            )
        finer: dict[str, Any] = {}
        for entry in prefer:
            if isinstance(entry, dict):
                self._check_keys(path, entry, KEYS["finer"])
                finer = entry
            elif entry not in KNOWN:
                raise self._error(path, '"closed_form", "stored" or { use = "..." }', entry)
        refine = finer.get("refine", REFINE)
        if isinstance(refine, bool) or not isinstance(refine, int) or refine < 2:
            raise self._error(path, "refine, a whole number of at least 2", refine)
        use = finer.get("use", "EventDriven(RK4())")
        if not isinstance(use, str):
            raise self._error(path, "use, a text such as 'EventDriven(RK4())'", use)
        with self._faults(path), _inside(self.folder):
            made = written.integrator(use)
        return [entry for entry in prefer if entry in KNOWN], Finer(made, refine)

    def _metrics(self, path: tuple[str, ...] = ("metrics",)) -> tuple[str, ...]:
        names = self._at(path, list(SHOWN))
        if isinstance(names, str):
            names = [names]
        if not isinstance(names, list) or not names or not all(isinstance(x, str) for x in names):
            raise self._error(path, "a list of names, at least one", names)
        with self._faults(path):
            return metrics_of(names)

    def _figures(self) -> dict[str, dict[str, Any]]:
        if "figures" not in self.content:
            return figures_of(self._table("problems"))
        found = {}
        for name, table in self._table("figures").items():
            path = ("figures", name)
            if name not in KINDS:
                raise self._said(path, str(unknown("figure", name, KINDS)))
            self._check_keys(path, table, KEYS["profile" if name in PROFILE else "figure"])
            x = table.get("x", KINDS[name]["x"])
            if "x" in table and x not in ("step", *METRICS):
                raise self._said((*path, "x"), str(unknown("metric", str(x), ("step", *METRICS))))
            y = self._metrics((*path, "y")) if "y" in table else KINDS[name]["y"]
            found[name] = {"x": x, "y": y}
        return found

    # Errors

    def _at(self, path: tuple[str, ...], default: Any = None) -> Any:
        found: Any = self.content
        for key in path:
            if not isinstance(found, dict) or key not in found:
                return default
            found = found[key]
        return found

    def _table(self, key: str) -> dict[str, Any]:
        found = self._at((key,))
        if not isinstance(found, dict) or not found:
            missing = "nothing" if found is None else found
            raise self._error((key,), f"a table [{key}] that is not empty", missing)
        return found

    def _typed(self, path: tuple[str, ...], kind: type, words: str, default: Any) -> Any:
        found = self._at(path, default)
        if not isinstance(found, kind):
            raise self._error(path, words, found)
        return found

    def _check_keys(self, path: tuple[str, ...], table: Any, known: tuple[str, ...]) -> None:
        if not isinstance(table, dict):
            raise self._error(path, "a table", table)
        for key in table:
            if key not in known:
                raise self._said((*path, key), str(unknown("key", key, known)))

    @contextmanager
    def _faults(self, path: tuple[str, ...]) -> Iterator[None]:
        try:
            yield
        except (ProblemError, FileError, TypeError, ValueError) as error:
            raise self._said(path, str(error)) from error

    def _error(self, path: tuple[str, ...], expected: str, found: Any) -> ProblemError:
        shown = found if isinstance(found, str) and found in ("nothing",) else repr(found)
        return self._said(path, f"expected {expected}, found {shown}")

    def _said(self, path: tuple[str, ...], text: str) -> ProblemError:
        line = self._line(path)
        place = f", line {line}" if line else ""
        return ProblemError(f"{self.name}{place}: {'.'.join(path)}: {text}")

    def _line(self, path: tuple[str, ...]) -> int | None:
        """The line of a key, or of the nearest key above it that stands on a line of its own."""
        table: tuple[str, ...] = ()
        known: dict[tuple[str, ...], int] = {}
        for number, line in enumerate(self.lines, 1):
            if head := re.match(r"\s*\[+\s*([^\[\]]+?)\s*\]", line):
                table = tuple(part.strip(" \"'") for part in head[1].split("."))
                known.setdefault(table, number)
            elif key := re.match(r"\s*([\w.\"'-]+)\s*=", line):
                here = tuple(part.strip("\"'") for part in key[1].split("."))
                known.setdefault((*table, *here), number)
        while path and path not in known:
            path = path[:-1]
        return known.get(path)


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool)


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Work in a folder: files that a study names lie beside it."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
