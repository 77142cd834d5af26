"""`transition_report`: the analysis of `nsdyn.analysis.transition` for matrices, or for an event of
a trajectory.

An event contains q, t, velocities and modes; M, G- and G+ are recomputed from the problem. A
contact that bounced is open after the event although its row acted, so rows count as live after the
event if they are live in the new mode or if the recorded impulse has a direction there. Held values
(e.g. a lock angle) are not stored in the event; they are recomputed from q at the event, where they
agree if the rows are satisfied.

Regular or singular (A. Mueller, Definition 1): a transition is regular if q is a regular point of
both configuration spaces, before and after, that is, if the rank there equals that of all
configurations nearby. To find out, the mechanism is moved slightly in several directions and
projected back onto its constraints,

    q_k = q + r y_k,    q_k <- q_k - G^+ g(q_k)                                                 (1)

where G^+ gives the smallest motion in the mass metric. Rows are scaled by their greatest length
over all q_k, so that a row that vanishes only at q is noticed (`rank.DEPENDENT` lies far above its
round-off and far below r). If no q_k has a higher rank than q, the point is regular, although
constraints may be redundant; otherwise the rank drops at q and the point is singular.
"""

from collections.abc import Iterator
from typing import Any, overload

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import ArrayLike

from nsdyn._jitted import compiled_quickly
from nsdyn._types import AnyMode, Jacobian, Params, Rows
from nsdyn.analysis import transition
from nsdyn.analysis.transition import REGULAR, SINGULAR, TransitionReport
from nsdyn.errors import ProblemError
from nsdyn.laws.base import AbstractLaw
from nsdyn.laws.non_ideal import NonIdeal
from nsdyn.mechanics.model import Model, Point
from nsdyn.numerics import rank
from nsdyn.problem import Problem, as_arrays
from nsdyn.stepping.log import Event

RADIUS = 1e-3  # r of (1), for coordinates of size 1
PROBES = 8  # directions y_k
RETURNS = 20  # largest number of steps back to the constraints
BACK = 1e-10  # residual of satisfied constraints, for coordinates of size 1


@overload
def transition_report(
    problem: Problem, event: Event, law: AbstractLaw | None = None, params: Params = None
) -> TransitionReport: ...


@overload
def transition_report(
    M: ArrayLike,
    G_before: ArrayLike,
    G_after: ArrayLike,
    v_before: ArrayLike,
    v_after: ArrayLike | None = None,
    gt_after: ArrayLike | None = None,
    U: ArrayLike | None = None,
    on_before: ArrayLike | None = None,
    on_after: ArrayLike | None = None,
    tangents: ArrayLike | None = None,
) -> TransitionReport: ...


def transition_report(*what: Any, **settings: Any) -> TransitionReport:
    """Subspaces, energies and impulses of a transition, as data that `print` shows as a table.

    transition_report(problem, event, law=None, params=None): for an event of a trajectory. Give
    `params` if the run used other parameters than the problem, and `law` if it was NonIdeal, whose
    tangents the report needs.

    transition_report(M, G_before, G_after, v_before, v_after=None, gt_after=None, U=None,
    on_before=None, on_after=None, tangents=None): for matrices. Without `v_after` the transition is
    ideal. `gt_after`, `U` and the masks have the meaning that they have in `law.jump`; `tangents`,
    shape (k, n), are the directions of non-ideal impulses.
    """
    of_event = "problem" in settings or isinstance(what[0] if what else None, Problem)
    return (_of_event if of_event else transition.report)(*what, **settings)


def _of_event(
    problem: Problem, event: Any, law: AbstractLaw | None = None, params: Params = None
) -> TransitionReport:
    transition.require_event(event)
    p = problem.params if params is None else as_arrays(params)
    if np.shape(event.q) != problem.q0.shape or np.shape(event.v_before) != problem.v0.shape:
        raise ProblemError(
            f"transition_report(problem, event): expected an event of {problem.name}, with q of "
            f"shape {problem.q0.shape}, found {np.shape(event.q)}"
        )
    model = problem.model(p)
    before, after = (_point(model, event, m, p) for m in (event.mode_before, event.mode_after))
    M, (G_before, G_after), (on_before, on_after) = map(
        np.asarray, _matrices(model, before, after, p)
    )
    on_after = on_after | np.any(event.direction != 0, axis=1)
    tangents = np.asarray(law.rows(after.q, after.t, p)) if isinstance(law, NonIdeal) else None
    sides = ((before, on_before), (after, on_after))
    singular = any(rank_drops(model, point, p, live) for point, live in sides if np.any(live))
    return transition.report(
        M=M,
        G_before=G_before,
        G_after=G_after,
        v_before=event.v_before,
        v_after=event.v_after,
        on_before=on_before,
        on_after=on_after,
        tangents=tangents,
        kind=SINGULAR if singular else REGULAR,
        title=event_title(problem, event),
    )


def is_singular(problem: Problem, event: Event) -> bool:
    """Whether the rank of the constraints of the new mode drops at an event."""
    p = problem.params
    model = problem.model(p)
    point = _point(model, event, event.mode_after, p)
    return rank_drops(model, point, p, np.asarray(model.live(point, p)))


def _point(model: Model, event: Event, mode: AnyMode, p: Params) -> Point:
    """An event in one of its two modes, with held values of the mode as if entered here."""
    t, q, v = (jnp.asarray(x, float) for x in (event.t, event.q, event.v_before))
    return model.point_at(t, q, v, jnp.asarray(mode), p)


def event_title(problem: Problem, event: Event) -> str:
    modes = (np.asarray(mode).tolist() for mode in (event.mode_before, event.mode_after))
    return f"{problem.name} at t = {event.t:.9g}, mode {' -> '.join(map(str, modes))}"


@compiled_quickly
def _matrices(model: Model, before: Point, after: Point, p: Params) -> tuple[Array, Array, Array]:
    """M, G before and after, live rows before and after."""
    G = [model.jacobian(point, p) for point in (before, after)]
    live = [model.live(point, p) for point in (before, after)]
    return model.system.mass(after.q, p), jnp.stack(G), jnp.stack(live)


@compiled_quickly
def _rows(model: Model, point: Point, p: Params) -> tuple[Rows, Jacobian]:
    """g and G."""
    return model.rows(point, p), model.jacobian(point, p)


def rank_drops(model: Model, point: Point, p: Params, live: np.ndarray) -> bool:
    """Whether the rank at a point is less than at nearby points that satisfy the constraints."""

    def at(q: ArrayLike) -> Iterator[np.ndarray]:
        found = _rows(model, point.replace(q=jnp.asarray(q)), p)
        return (np.asarray(x)[live] for x in found)

    q = np.asarray(point.q)
    M = np.asarray(model.system.mass(point.q, p))
    size = max(1.0, float(np.abs(q).max()))
    nearby = []
    for y in np.random.default_rng(0).standard_normal((PROBES, len(point.v))):
        x = _moved(model, q, RADIUS * size * y / np.linalg.norm(y), p)
        for _ in range(RETURNS):
            g, G = at(x)
            if np.abs(g).max() <= BACK * size:
                nearby.append(G)
                break
            x = _moved(model, x, -rank.least_change(G, M, g), p)  # (1)
    _, G = at(q)
    here, *around = (rank.in_mass_metric(rows, M) for rows in (G, *nearby))
    lengths = np.max([np.linalg.norm(rows, axis=1) for rows in (here, *around)], axis=0)
    count = lambda rows: len(rank.row_space(rows / np.where(lengths > 0, lengths, 1.0)[:, None]))
    return any(count(rows) > count(here) for rows in around)


def _moved(model: Model, q: ArrayLike, dx: ArrayLike, p: Params) -> np.ndarray:
    return np.asarray(model.system.moved(jnp.asarray(q), jnp.asarray(dx), p))
