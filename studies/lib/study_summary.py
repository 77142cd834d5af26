"""A study of many problems in one table: how each integrator and law did over all of them.

Errors of different problems have different units, so they are compared by ratios: with e the error
of an integrator with the smallest step, on one problem with one law,

    ratio = e / min over integrators e                                                           (1)

is 1 for the best of them. Shown are medians over the problems that an integrator could run.
"""

import numpy as np

from nsdyn.status import Status
from nsdyn.studies.lib.study_cells import NOT_ASKED
from nsdyn.studies.lib.study_result import FLOOR, MISSING, StudyResult
from nsdyn.studies.lib.tables import Table

RATIOS = {"error_q": "median ratio\nof errors of q", "error_v": "median ratio\nof errors of v"}
MEDIANS = {
    "residual_position": "median residual\nposition",
    "residual_velocity": "median residual\nvelocity",
    "energy_drift": "median\nenergy drift",
}


def summary(result: StudyResult) -> Table:
    """One row for each law and integrator."""
    plan = result.plan
    ratios = {name: _ratios(result.worst(name)[..., -1]) for name in RATIOS}
    values = {name: result.worst(name)[..., -1] for name in MEDIANS}
    rows = []
    for k, law in enumerate(plan.laws):
        for j, integrator in enumerate(plan.integrators):
            numbers = [_median(table[:, j, k]) for table in (*ratios.values(), *values.values())]
            rows.append((law, integrator, *_counts(result, j, k), *numbers))
    head = ("law", "integrator", "run", "reach\nthe end", "given\nup", "refused")
    titles = (*head, *RATIOS.values(), *MEDIANS.values())
    return Table(f"{plan.title}: over the problems", titles, rows, [_note(result)], names=2)


def _counts(result: StudyResult, j: int, k: int) -> tuple[str, ...]:
    """Problems that were run, those of which all runs reached the end, those given up, and those
    refused."""
    status = result.data.status.values[:, j, k].reshape(len(result.plan.problems), -1)
    run = (status != MISSING).all(axis=1)
    good = (status == int(Status.OK)).all(axis=1)
    names = list(result.plan.integrators)[j], list(result.plan.laws)[k]
    count = lambda pairs: str(sum((pair.integrator, pair.law) == names for pair in pairs))
    refused = [pair for pair, why in result.refused.items() if not why.startswith(NOT_ASKED)]
    return str(np.sum(run)), str(np.sum(good)), count(result.given_up), count(refused)


def _ratios(errors: np.ndarray) -> np.ndarray:
    """(1) for errors over (problem, integrator, law)."""
    known = np.where(np.isfinite(errors), np.maximum(errors, FLOOR), np.nan)
    best = np.min(np.where(np.isnan(known), np.inf, known), axis=1, keepdims=True)
    return known / best


def _median(values: np.ndarray) -> str:
    good = values[np.isfinite(values)]
    return f"{np.median(good):.1e}" if len(good) else "-"


def _note(result: StudyResult) -> str:
    return (
        f"{len(result.plan.problems)} problems; of each the smallest of {len(result.plan.steps)} "
        "steps and the worst phase. run: problems that were run with this integrator and law; reach "
        "the end: those of which every run did. A ratio is the error over that of the best "
        "integrator with the same problem and law. given up: pairs that ended with an error or took "
        "too long. refused: pairs that cannot run. A law is not run where constraints never change."
    )
