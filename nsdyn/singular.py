"""A warning where a run went through a switch at which the rank of the constraints drops (A. Mueller, Definition 1).

An impulse law needs the rank of G+. Rows that depend on each other everywhere are redundant, and harmless. Rows that do so only
at the configuration of the switch make it singular: what they would forbid a moment later, the law has not stopped. Few events
are suspected, by numbers that their records hold, and only for those is the neighbourhood looked at.
"""

import warnings

import equinox as eqx
import numpy as np

from nsdyn.errors import SingularTransitionWarning
from nsdyn.model import Model
from nsdyn.problem import Problem

LOOKED_AT = 50  # events of a run, from the first
VANISHING = 1e-9  # length of a row that counts as zero beside the longest one, or beside 1
DEPENDENT = 1e-6  # singular value of unit rows


def warn_if_singular(problem: Problem, events) -> None:
    suspects = [event for event in events[:LOOKED_AT] if _directions(event) < event.Lam.shape[0]]
    if not suspects:
        return
    p, first = problem.params, suspects[0]
    model = Model.of(problem.system, problem.constraint, first.q, first.v_after, np.float64(first.t), p)
    if not model.may_depend:
        return
    for event in suspects:
        live = np.sum(_live(model, event.q, np.float64(event.t), p, np.asarray(event.mode_after)))
        if _directions(event) < live and _singular(problem, event):
            return


@eqx.filter_jit
def _live(model, q, t, p, mode):
    return model.live(q, t, p, mode)


def _directions(event) -> int:
    """How many independent directions the impulse had."""
    lengths = np.linalg.norm(event.direction, axis=1)
    acts = lengths > VANISHING * max(1.0, lengths.max(initial=0.0))
    return np.linalg.matrix_rank(event.direction[acts] / lengths[acts, None], tol=DEPENDENT) if acts.any() else 0


def _singular(problem: Problem, event) -> bool:
    from nsdyn.transition_event import event_title, is_singular  # needs scipy, which takes a while to import

    found = is_singular(problem, event)
    if found:
        warnings.warn(
            f"{event_title(problem, event)}: the rank of the constraints drops at this switch (a singular configuration), and the"
            " impulse law does not determine what follows. nsdyn.transition_report(problem, event) tells more;"
            " move the switch to another configuration",
            SingularTransitionWarning,
            stacklevel=4,
        )
    return found
