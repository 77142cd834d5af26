"""`transition_report`: the analysis of `nsdyn.analysis.transition` for matrices, or for an event of
a trajectory.

An event contains q, t, velocities and modes; M, G- and G+ are computed again from the problem. A
contact that bounced is open afterwards, but its row acted: rows count as live after the event if
the mode says so or if the recorded impulse has a direction there. Held values (e.g. a lock angle)
are not stored in the event; they are recomputed from q at the event, where they agree if the rows
are satisfied.

Regular or singular (A. Mueller, Definition 1): a transition is regular if q is a regular point of
both configuration spaces, before and after, that is, if the rank there equals that of all
configurations nearby. So the mechanism is moved a little in several directions and projected back
onto its constraints,

    q_k = q + r y_k,    q_k <- q_k - G^+ g(q_k)                                                 (1)

with the G^+ of smallest motion in the mass metric. Rows are measured by their greatest length at
the q_k, so that a row which vanishes at q only is noticed (`rank.DEPENDENT` is far above the
round-off that is left of it, and far below r). If no q_k has a higher rank than q, the point is
regular, although constraints may be redundant; otherwise the rank drops at q, and the point is
singular.
"""

from collections.abc import Iterator
from typing import Any, overload

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from numpy.typing import ArrayLike

from nsdyn._types import Configuration, Mode, Params, Time, Velocity
from nsdyn.analysis import transition
from nsdyn.analysis.transition import REGULAR, SINGULAR, TransitionReport
from nsdyn.errors import ProblemError
from nsdyn.laws.non_ideal import NonIdeal
from nsdyn.numerics import rank
from nsdyn.problem import Problem, as_arrays

RADIUS = 1e-3  # r of (1), for coordinates of size 1
PROBES = 8  # directions y_k
RETURNS = 20  # largest number of steps back to the constraints
BACK = 1e-10  # residual, for coordinates of size 1, up to which the constraints count as satisfied


@overload
def transition_report(
    problem: Problem, event: Any, law: Any = None, params: Any = None
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
    `params` if the run had other parameters than the problem, and `law` if it was NonIdeal, whose
    tangents are the directions of its impulses.

    transition_report(M, G_before, G_after, v_before, v_after=None, gt_after=None, U=None,
    on_before=None, on_after=None, tangents=None): for matrices. Without `v_after` the transition is
    ideal. `gt_after`, `U` and the masks are those of `law.jump`; `tangents` are the directions
    (k, n) of non-ideal impulses.
    """
    of_event = "problem" in settings or isinstance(what[0] if what else None, Problem)
    return (_of_event if of_event else transition.report)(*what, **settings)


def _of_event(
    problem: Problem, event: Any, law: Any = None, params: Any = None
) -> TransitionReport:
    transition.require_event(event)
    p = problem.params if params is None else as_arrays(params)
    q = jnp.asarray(event.q)
    t = jnp.asarray(event.t, float)
    modes = [jnp.asarray(mode) for mode in (event.mode_before, event.mode_after)]
    v = jnp.asarray(event.v_before)
    if q.shape != problem.q0.shape or v.shape != problem.v0.shape:
        raise ProblemError(
            f"transition_report: the event is not one of {problem.name}: q has shape {q.shape}"
        )
    M, (G_before, G_after), (on_before, on_after) = map(
        np.asarray, _matrices(problem, p, q, v, t, jnp.stack(modes))
    )
    on_after = on_after | np.any(event.direction != 0, axis=1)
    tangents = np.asarray(law.rows(q, t, p)) if isinstance(law, NonIdeal) else None
    sides = zip(modes, (on_before, on_after), strict=True)
    singular = any(
        rank_drops(problem, p, q, v, t, mode, live) for mode, live in sides if np.any(live)
    )
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


def is_singular(problem: Problem, event: Any) -> bool:
    """Whether the rank of the constraints after an event drops there."""
    q = jnp.asarray(event.q)
    t = jnp.asarray(event.t, float)
    v = jnp.asarray(event.v_after)
    mode = jnp.asarray(event.mode_after)
    p = problem.params
    model = problem.model(p)
    live = np.asarray(model.live(model.point_at(t, q, v, mode, p), p))
    return rank_drops(problem, p, q, v, t, mode, live)


def event_title(problem: Problem, event: Any) -> str:
    modes = (np.asarray(mode).tolist() for mode in (event.mode_before, event.mode_after))
    return f"{problem.name} at t = {event.t:.9g}, mode {' -> '.join(map(str, modes))}"


@eqx.filter_jit
def _matrices(
    problem: Problem, p: Params, q: Configuration, v: Velocity, t: Time, modes: Array
) -> tuple[Array, Array, Array]:
    """M, G before and after, live rows before and after."""
    model = problem.model(p)
    points = [model.point_at(t, q, v, mode, p) for mode in modes]
    G = [model.jacobian(point, p) for point in points]
    live = [model.live(point, p) for point in points]
    return problem.system.mass(q, p), jnp.stack(G), jnp.stack(live)


@eqx.filter_jit
def _residual(
    problem: Problem,
    p: Params,
    q0: Configuration,
    q: Configuration,
    v: Velocity,
    t: Time,
    mode: Mode,
) -> tuple[Array, Array]:
    """g and G at q, with the held values of q0."""
    model = problem.model(p)
    point = model.point_at(t, q0, v, mode, p).replace(q=q)
    return model.rows(point, p), model.jacobian(point, p)


def rank_drops(
    problem: Problem,
    p: Params,
    q: Configuration,
    v: Velocity,
    t: Time,
    mode: Mode,
    live: np.ndarray,
) -> bool:
    """Whether the rank at q is less than at configurations nearby that satisfy the constraints."""

    def at(x: ArrayLike) -> Iterator[np.ndarray]:
        return (np.asarray(y)[live] for y in _residual(problem, p, q, jnp.asarray(x), v, t, mode))

    M = np.asarray(problem.system.mass(jnp.asarray(q), p))
    size = max(1.0, float(np.abs(q).max()))
    nearby = []
    for y in np.random.default_rng(0).standard_normal((PROBES, len(v))):
        x = _moved(problem, q, RADIUS * size * y / np.linalg.norm(y), p)
        for _ in range(RETURNS):
            g, G = at(x)
            if np.abs(g).max() <= BACK * size:
                nearby.append(G)
                break
            x = _moved(problem, x, -rank.least_change(G, M, g), p)  # (1)
    _, G = at(q)
    here, *around = (rank.in_mass_metric(rows, M) for rows in (G, *nearby))
    lengths = np.max([np.linalg.norm(rows, axis=1) for rows in (here, *around)], axis=0)
    count = lambda rows: len(rank.row_space(rows / np.where(lengths > 0, lengths, 1.0)[:, None]))
    return any(count(rows) > count(here) for rows in around)


def _moved(problem: Problem, q: ArrayLike, dx: ArrayLike, p: Params) -> np.ndarray:
    return np.asarray(problem.system.moved(jnp.asarray(q), jnp.asarray(dx), p))
