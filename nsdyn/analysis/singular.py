"""A warning if the rank of the constraints drops at an event of a run (A. Mueller, Definition 1).

An impulse law needs the rank of G+. Rows that are dependent everywhere are redundant and harmless.
Rows that are dependent only at the configuration of the event make it singular: the law cannot
remove a velocity that the constraints forbid only after the event. Events whose recorded directions
are rank-deficient are candidates; the neighbourhood is examined only for these.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from nsdyn._jitted import compiled_quickly
from nsdyn._types import Configuration, Matrix, Mode, Params, RowMask, Time, Velocity
from nsdyn.errors import SingularTransitionWarning, warn
from nsdyn.mechanics.model import Model
from nsdyn.numerics import rank
from nsdyn.problem import Problem
from nsdyn.results.events import Events
from nsdyn.stepping.log import Event

COUNTED = 1000  # largest number of events whose independent directions are counted
EXAMINED = 50  # largest number of events whose neighbourhood is examined
VANISHING = 1e-9  # length of a row that counts as zero, relative to the longest one or to 1


def warn_if_singular(
    problem: Problem, events: Events, own: Callable | None = None, place: Callable | None = None
) -> bool:
    """Warn of the first singular event, and say whether there is one. In a sweep, `own(k)` returns
    the parameters of event k and `place(k)` the name of its run."""
    if not problem.constraint or not len(events):
        return False
    model = problem.model()
    if model.rows_independent:
        return False
    examined = 0
    for k in range(min(len(events), COUNTED)):
        event = events[k]
        mine = problem if own is None else _with_params(problem, own(k))
        t = jnp.asarray(event.t, float)
        mode = jnp.asarray(event.mode_after)
        found = _mass_and_live(model, t, event.q, event.v_after, mode, mine.params)
        M, live = map(np.asarray, found)
        if _directions(event.direction, M) < np.sum(live):
            examined += 1
            if _singular(mine, event, place(k) if place else ""):
                return True
            if examined == EXAMINED:
                return False
    return False


def _with_params(problem: Problem, p: Params) -> Problem:
    return eqx.tree_at(lambda x: x.params, problem, p, is_leaf=lambda x: x is None)


@compiled_quickly
def _mass_and_live(
    model: Model, t: Time, q: Configuration, v: Velocity, mode: Mode, p: Params
) -> tuple[Matrix, RowMask]:
    """The mass matrix, and the rows that are live in a mode."""
    return model.system.mass(q, p), model.live(model.point_at(t, q, v, mode, p), p)


def _directions(direction: np.ndarray, M: np.ndarray) -> int:
    """The number of independent directions of an impulse."""
    lengths = np.linalg.norm(direction, axis=1)
    acts = lengths > VANISHING * max(1.0, lengths.max(initial=0.0))
    return int(np.sum(rank.independent(direction[acts], M)))


def _singular(problem: Problem, event: Event, where: str) -> bool:
    # Needs scipy, which is slow to import.
    from nsdyn.analysis.event_transition import event_title, is_singular

    found = is_singular(problem, event)
    if found:
        warn(
            f"{where}{event_title(problem, event)}: the rank of the constraints drops at this "
            "event (a singular configuration), and the impulse law does not determine what "
            "follows. nsdyn.transition_report(problem, event) shows the details; move the event to "
            "another configuration",
            SingularTransitionWarning,
        )
    return found
