"""A warning where a run went through a switch at which the rank of the constraints drops (A.
Mueller, Definition 1).

An impulse law needs the rank of G+. Rows that depend on each other everywhere are redundant, and
harmless. Rows that do so only at the configuration of the switch make it singular: what they would
forbid a moment later, the law has not stopped. Few events are suspected, by numbers that their
records hold, and only for those is the neighbourhood looked at.
"""

import warnings
from collections.abc import Callable

import equinox as eqx
import numpy as np

from nsdyn.errors import SingularTransitionWarning
from nsdyn.problem import Problem
from nsdyn.results.solution import EventTable

SUSPECTED, LOOKED_AT = (
    1000,
    50,
)  # events at most: whose live rows are counted, and whose neighbourhood is looked at
VANISHING = 1e-9  # length of a row that counts as zero beside the longest one, or beside 1
DEPENDENT = 1e-6  # singular value of unit rows


def warn_if_singular(
    problem: Problem, events: EventTable, own: Callable | None = None, place: Callable | None = None
) -> None:
    """Warn of the first singular switch. In a sweep `own(k)` are the parameters of event k and
    `place(k)` its trajectory."""
    if not problem.constraint or not len(events):
        return
    model = problem.model()
    if model.rows_independent:
        return
    ranks, looked_at = _directions(events.direction), 0
    for k in np.flatnonzero(ranks < events.direction.shape[1])[:SUSPECTED]:
        event = events[k]
        mine = (
            problem
            if own is None
            else eqx.tree_at(lambda x: x.params, problem, own(k), is_leaf=lambda x: x is None)
        )
        live = np.sum(_live(model, event, mine.params))
        if ranks[k] < live and looked_at < LOOKED_AT:
            looked_at += 1
            if _singular(mine, event, place(k) if place else ""):
                return


def _live(model, event, p):
    """Which rows are live after an event."""
    t, mode = np.float64(event.t), np.asarray(event.mode_after)
    return _mask(model, t, event.q, event.v_after, mode, p)


@eqx.filter_jit
def _mask(model, t, q, v, mode, p):
    return model.live(model.point_at(t, q, v, mode, p), p)


def _directions(direction: np.ndarray) -> np.ndarray:
    """How many independent directions each impulse had."""
    lengths = np.linalg.norm(direction, axis=2)
    acts = lengths > VANISHING * np.maximum(1.0, lengths.max(axis=1, initial=0.0, keepdims=True))
    unit = np.where(acts[:, :, None], direction / np.where(acts, lengths, 1.0)[:, :, None], 0.0)
    return np.linalg.matrix_rank(unit, tol=DEPENDENT)


def _singular(problem: Problem, event, where: str) -> bool:
    from nsdyn.analysis.event_transition import (
        event_title,
        is_singular,
    )  # needs scipy, which takes a while to import

    found = is_singular(problem, event)
    if found:
        warnings.warn(
            f"{where}{event_title(problem, event)}: the rank of the constraints drops at this "
            "switch (a singular configuration),"
            " and the impulse law does not determine what follows. "
            "nsdyn.transition_report(problem, event) tells more;"
            " move the switch to another configuration",
            SingularTransitionWarning,
            stacklevel=4,
        )
    return found
