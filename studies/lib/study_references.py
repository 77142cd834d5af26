"""The references of a study: what the runs of a problem and a law are compared with, where it comes
from, and how far it can be trusted.

The finer run gives samples, multipliers and events; the same with twice its step tells its error.
Where a problem brings a closed form (`nsdyn.ClosedForm`), its q and v take the place of those of
the finer run, but for samples at an event, where round-off decides which side of it they are on.
The finer run is then itself compared with the closed form: both are checked.
"""

from typing import NamedTuple

import numpy as np
from xarray import Dataset

from nsdyn._repr import format_object
from nsdyn.laws.base import AbstractLaw, as_status
from nsdyn.problem import Problem
from nsdyn.reference import ClosedForm, ExactMotion, Reference
from nsdyn.status import Status
from nsdyn.studies.lib import study_cells, written
from nsdyn.studies.lib.study_cells import Pair
from nsdyn.studies.lib.study_file import Plan

AT_EVENT = 1e-9  # of the time span: a sample so near to an event is at the event
CLOSED_FORM, FINER_RUN = "closed form", "finer run"
NOT_COMPUTED = "not computed"


class Origin(NamedTuple):
    """Where a reference comes from.

    kind: "closed form", "finer run"; "" if there is none.
    error_q, error_v: its estimated errors.
    text: all this in words.
    """

    kind: str
    error_q: float
    error_v: float
    text: str


def made(plan: Plan, pair: Pair, finer: Dataset | None, why: str) -> tuple[Dataset | None, Origin]:
    """The reference of a problem and a law, from its finer run; `why`: that was given up."""
    if finer is None:
        text = f"none; it was given up: {why}" if why else NOT_COMPUTED
        return None, Origin("", np.nan, np.nan, text)
    text = _finer_text(plan, pair, finer)
    form, problem = plan.closed_forms.get(pair.problem), plan.problems[pair.problem]
    exact = closed(form, problem, plan.laws[pair.law], finer)
    if exact is None:
        return finer, Origin(FINER_RUN, float(finer.uncertain_q), float(finer.uncertain_v), text)
    text = f"{exact.text}. Multipliers and events: {text}. {exact.distance}"
    return exact.data, Origin(CLOSED_FORM, exact.error_q, exact.error_v, text)


class Closed(NamedTuple):
    """A finer run with q and v of a closed form, the errors of these, where they come from, and how
    far the finer run is away."""

    data: Dataset
    error_q: float
    error_v: float
    text: str
    distance: str


def closed(
    form: ClosedForm | None, problem: Problem, law: AbstractLaw, finer: Dataset
) -> Closed | None:
    """A closed form in the place of a finer run, which has t, q, v and event_t; None if there is no
    closed form, or not for this law."""
    exact = None if form is None else form.at(finer.t.values, problem, law)
    if form is None or exact is None:
        return None
    rows = ~_at_events(finer)
    errors = _most(exact.error_q[rows]), _most(exact.error_v[rows])
    far = [_most(np.abs(finer[name].values - getattr(exact, name))[rows]) for name in "qv"]
    return Closed(
        _replaced(finer, exact, rows),
        *errors,
        f"closed form, {form.source}; round-off changes q by {errors[0]:.1e}, v by {errors[1]:.1e}",
        f"The finer run is within {far[0]:.1e} of the closed form in q, {far[1]:.1e} in v",
    )


def _most(values: np.ndarray) -> float:
    return float(np.max(values, initial=0.0))


def _at_events(finer: Dataset) -> np.ndarray:
    """Which samples are at an event."""
    t = finer.t.values
    events = finer.event_t.values if "event_t" in finer else np.zeros(0)
    near = np.abs(t[:, None] - events) <= AT_EVENT * (t[-1] - t[0])
    return near.any(axis=1)


def _replaced(finer: Dataset, exact: ExactMotion, rows: np.ndarray) -> Dataset:
    """The finer run with q and v of the closed form."""
    chosen = {name: np.where(rows[:, None], getattr(exact, name), finer[name]) for name in "qv"}
    return finer.assign({name: (finer[name].dims, x) for name, x in chosen.items()})


def _finer_text(plan: Plan, pair: Pair, finer: Dataset) -> str:
    h = study_cells.grid(plan, plan.problems[pair.problem], len(plan.steps) - 1).step
    text = (
        f"{plan.finer.integrator!r} with step {h / plan.finer.refine:.3g}, a finer run; with twice "
        f"that step q changes by {float(finer.uncertain_q):.1e}, v by "
        f"{float(finer.uncertain_v):.1e}"
    )
    status = as_status(finer.status.values)
    if status is not Status.OK:
        name = status.name if isinstance(status, Status) else "an objection of the law"
        return f"{text}; it stopped at t = {float(finer.t_stop):.6g} ({name})"
    known = stored(plan, pair)
    if known is None:
        return text
    off = known.error(finer.q.values[-1], finer.v.values[-1])
    return f"{text}. It ends within {off:.1e} of the stored reference: {known.source}"


def stored(plan: Plan, pair: Pair) -> Reference | None:
    """The stored reference of a problem, if it belongs to this law."""
    known = plan.stored.get(pair.problem)
    if known is None or not known.law:
        return known
    text = lambda law: format_object(law, always="*")
    return known if text(written.law(known.law)) == text(plan.laws[pair.law]) else None
