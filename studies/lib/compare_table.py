"""The results of `compare` as numbers: errors against the reference (`nsdyn.analysis.metrics`), and
the table with notes."""

import numpy as np

from nsdyn.analysis.metrics import (
    LATE,
    Differences,
    Jumps,
    Motion,
    differences,
    energy_ledger,
    errors,
    largest,
)
from nsdyn.status import MESSAGES, Status
from nsdyn.studies.compare import LEVELS, Comparison, Run
from nsdyn.studies.lib.tables import Table

COUNTED = ("iterations", "iterations_worst", "compile_s", "from_cache", "run_s", "t_stop")
ERRORS = (
    *("error_q", "error_v", "error_lam", "error_Lam", "error_t_event", "graph_v", "error_energy"),
    "rows_left_out",
)
MEASURED = (
    *ERRORS,
    *(f"residual_{level}" for level in LEVELS),
    *("energy_drift", "energy_lost", "events", *COUNTED),
)
CACHED = (
    " *: loaded from the cache of compiled programs (JAX_ENABLE_COMPILATION_CACHE=false compiles)."
)
NUMBERS = {
    "error_q": "error\nq",
    "error_v": "error\nv",
    "graph_v": "graph\nv",
    "error_t_event": "error\nt event",
    "error_Lam": "error\nLam",
    "error_energy": "error\nenergy",
    "energy_drift": "drift of\nenergy",
    "rows_left_out": "rows\nleft out",
    "residual_position": "residual\nposition",
    "residual_velocity": "residual\nvelocity",
    "residual_acceleration": "residual\naccel.",
    "iterations": "Newton\nall / most",
    "events": "events",
    "compile_s": "compile\ns",
    "run_s": "run\nms",
}


# Errors


def motion(run: Run) -> Motion:
    """The run as metrics take it; variables that were empty are empty again."""
    data = run.data
    rows, events = (data.sizes.get(name, 0) for name in ("row", "event"))
    n = data.sizes.get("velocity", 0)
    shapes = {"lam": (rows, 0), "event_Lam": (events, 0), "event_v_before": (events, n)}
    shapes |= {"event_v_after": (events, n)}
    empty = lambda name: np.zeros(shapes.get(name, (events,)))
    value = lambda name: data[name].values if name in data else empty(name)
    jumps = Jumps(*(value(f"event_{name}") for name in Jumps._fields))
    return Motion(**{name: value(name) for name in Motion._fields[:-1]}, jumps=jumps)


def against(run: Run, reference: Run | None) -> Differences | None:
    """Differences at the samples; None if there is nothing to compare."""
    if reference is None or not (run.has_rows and reference.has_rows):
        return None
    return differences(motion(run), motion(reference))


def measured(run: Run, reference: Run | None) -> dict[str, float]:
    """The numbers of one run; unknown ones are NaN."""
    found = dict.fromkeys(MEASURED, np.nan)
    if run.refused:
        return found
    if reference is not None and run.has_rows and reference.has_rows:
        every = errors(motion(run), motion(reference))
        found |= {name: every[name] for name in ERRORS}
    if run.has_rows:
        found |= {
            name: largest(run.data[name].values)
            for name in (f"residual_{level}" for level in LEVELS)
        }
        found |= _energy(motion(run))
    found |= {name: float(run.data[name]) for name in COUNTED}
    return found | {"events": run.data.sizes["event"] if "event_t" in run.data else 0}


def _energy(run: Motion) -> dict[str, float]:
    """What jumps took, and what else happened to the energy, relative to the largest kinetic
    energy."""
    scale = max(largest(run.kinetic), 1e-300)
    ledger = energy_ledger(run)
    lost = float(np.sum(ledger.lost))
    return {"energy_drift": abs(ledger.drift) / scale, "energy_lost": lost / scale}


# The table


def table(found: Comparison) -> Table:
    """One row per run; further information is in notes."""
    laws = found.laws
    rows = []
    reasons: list[str] = []
    for run in found.runs:
        values = measured(run, found.references.get(run.law))
        names = (run.integrator, run.law) if len(laws) > 1 else (run.integrator,)
        rows.append(
            (*names, *(_number(name, values) for name in NUMBERS), _status(run, values, reasons))
        )
    names = ("integrator", "law") if len(laws) > 1 else ("integrator",)
    title = f"{found.problem}, t = {found.span[0]:g} to {found.span[1]:g}, step {found.step:g}"
    title += f", law {laws[0]}" if len(laws) == 1 else ""
    notes = [*_notes(found), *(f"({i}) {reason}" for i, reason in enumerate(reasons, 1))]
    return Table(title, (*names, *NUMBERS.values(), "status"), rows, notes, len(names))


def _status(run: Run, values: dict[str, float], reasons: list[str]) -> str:
    if run.ok:
        return "OK"
    reason = run.reason if run.refused else f"{run.status_name}: {_words(run)}"
    if reason not in reasons:
        reasons.append(reason)
    number = f"({reasons.index(reason) + 1})"
    return (
        f"refused {number}"
        if run.refused
        else f"{run.status_name} at t = {values['t_stop']:.6g} {number}"
    )


def _words(run: Run) -> str:
    """The meaning of the status; reasons of a law follow the place in the message of the run."""
    if isinstance(run.status, Status):
        return MESSAGES[run.status]
    return run.reason.partition("): ")[2].rstrip(".")


def _notes(found: Comparison) -> list[str]:
    """Explanations of the numbers."""
    notes = [_reference(found)]
    notes += [f"Reference for {law}: {text}." for law, text in found.closed_forms.items()]
    for law, run in found.references.items():
        if run.refused:
            notes.append(f"There is no reference for {law}: {run.reason}.")
        elif not run.ok:
            stop = f"{float(run.data.t_stop):.6g} ({run.status_name})"
            notes.append(f"The reference for {law} stopped at t = {stop}; errors are up to then.")
    cached = any(float(run.data.from_cache) > 0 for run in found.runs if not run.refused)
    return [
        *notes,
        "residual: largest |g|, |G v + g_t| and |G v' + gamma| over all samples, of the constraints "
        "of the current mode; v' = M^-1 (f - G^T lam) with the reported lam.",
        "drift of energy: its change besides the losses at events, relative to the largest kinetic "
        "energy; where forces without a potential act, their work is part of it.",
        "compile: tracing and compiling, once; run: the shortest of several runs, without "
        "compilation." + (CACHED if cached else ""),
    ]


def _reference(found: Comparison) -> str:
    if not found.references:
        return "error: there is no reference."
    integrator = next(iter(found.references.values())).integrator
    exact = set(found.references) <= set(found.closed_forms)
    kind = (
        "q and v are those of a closed form"
        if exact
        else "it is a finer run, not the exact solution"
    )
    return (
        f"error: largest difference over all samples from the reference {integrator} with step "
        f"{found.reference_step:g} and the same law; {kind}. "
        "Energy relative to the largest kinetic energy of the reference. Samples at which only one "
        f"of the two has changed its mode, if at most {LATE} per event, are left out of v and "
        "energy, and counted. graph v: distance of the graphs of v with jumps filled in, relative "
        "to the length of the run and the largest speed. t event, Lam: times and impulses of the "
        "events, if there are equally many."
    )


def _number(name: str, values: dict[str, float]) -> str:
    x = values[name]
    if np.isnan(x) or (name == "iterations" and x == 0):  # explicit methods have no iterations
        return "-"
    match name:
        case "rows_left_out" | "events":
            return f"{x:.0f}"
        case "iterations":
            return f"{x:.0f} / {values['iterations_worst']:.0f}"
        case "compile_s":
            return f"{x:.1f}{'*' if values['from_cache'] else ''}"
        case "run_s":
            return f"{1e3 * x:.3g}"
    return f"{x:.1e}" if x else "0"
