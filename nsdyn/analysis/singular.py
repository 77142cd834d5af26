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
from nsdyn.numerics import rank
from nsdyn.problem import Problem
from nsdyn.results.events import Events

COUNTED = 1000  # events at most whose independent directions are counted
LOOKED_AT = 50  # events at most whose neighbourhood is looked at
VANISHING = 1e-9  # length of a row that counts as zero beside the longest one, or beside 1


def warn_if_singular(
    problem: Problem, events: Events, own: Callable | None = None, place: Callable | None = None
) -> None:
    """Warn of the first singular switch. In a sweep `own(k)` are the parameters of event k and
    `place(k)` its trajectory."""
    if not problem.constraint or not len(events):
        return
    model = problem.model()
    if model.rows_independent:
        return
    looked_at = 0
    for k in range(min(len(events), COUNTED)):
        event = events[k]
        mine = (
            problem
            if own is None
            else eqx.tree_at(lambda x: x.params, problem, own(k), is_leaf=lambda x: x is None)
        )
        M, live = map(np.asarray, _mass_and_live(model, event, mine.params))
        if _directions(event.direction, M) < np.sum(live):
            looked_at += 1
            if _singular(mine, event, place(k) if place else "") or looked_at == LOOKED_AT:
                return


def _mass_and_live(model, event, p):
    """The mass matrix, and which rows are live after an event."""
    t, mode = np.float64(event.t), np.asarray(event.mode_after)
    return _at_event(model, t, event.q, event.v_after, mode, p)


@eqx.filter_jit
def _at_event(model, t, q, v, mode, p):
    return model.system.mass(q, p), model.live(model.point_at(t, q, v, mode, p), p)


def _directions(direction: np.ndarray, M: np.ndarray) -> int:
    """How many independent directions an impulse had."""
    lengths = np.linalg.norm(direction, axis=1)
    acts = lengths > VANISHING * max(1.0, lengths.max(initial=0.0))
    return int(np.sum(rank.independent(direction[acts], M)))


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
