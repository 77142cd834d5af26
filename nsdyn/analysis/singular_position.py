"""Whether a run that stopped did so at a singular position of its mechanism.

At a singular position the rank of the constraints is lower than elsewhere: motions branch off, and
the reactions may grow without bound. Rows that depend on each other everywhere are redundant, and
make no position singular. So the rank r is that of most positions. With the rows divided by their
greatest lengths along the run, in the mass metric (a row may vanish where the rank drops), let

    s(q) = the r-th largest of the sines in (2) of `nsdyn.numerics.rank`                        (1)

where of the rows that are left the one farthest from those before it comes next; s^2 is the
smallest pivot of G M^-1 G^T for unit rows. s = 0 where the rank drops. From the last state that is
good the motion is continued by AROUND steps forwards and backwards,

    q(tau) = q + tau v + tau^2/2 a,    |tau| <= AROUND h                                        (2)

and the position is singular if s falls within these few steps to a small part, FALLS, of what it is
at their ends and along the run. A mechanism that is merely ill-conditioned, or a run that stops for
another reason, has an s that hardly changes within a few steps. And the constraints must go on
beyond it: at both ends of (2)

    |g_i| <= HOLDS |G_i|_(M^-1) |v|_M |tau|                                                     (3)

since the rank also drops where constraints that move have a solution for the last time, and no
scheme gets through there. All this is numpy, and happens only after a run has stopped.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from nsdyn._jitted import compiled_quickly
from nsdyn._types import Params
from nsdyn.mechanics.model import Model, Point
from nsdyn.numerics import rank

AROUND = 4  # steps
PLACES = 161  # positions of (2)
ALONG = 40  # samples of the run that are looked at
FALLS = 0.1
HOLDS = 0.1


class SingularPosition(NamedTuple):
    """Where the rank drops: the time, the smallest relative pivot s^2 there, and what it is along
    the run (its median)."""

    t: float
    pivot: float
    usual: float


def singular_position(
    model: Model, along: Point, last: Point, h: float, p: Params
) -> SingularPosition | None:
    """The singular position within a few steps h of the last good state; None if there is none.
    `along` and `last` hold points along their first axes: some of the run, and the last one or two
    steps, which give the acceleration."""
    if model.m == 0 or model.rows_independent or not len(last.t):
        return None
    tau = np.linspace(-AROUND, AROUND, PLACES) * h
    here = jax.tree.map(lambda x: x[-1], last)
    a = np.zeros_like(here.v)
    if len(last.t) > 1 and last.t[-1] > last.t[-2]:
        a = (here.v - last.v[-2]) / (last.t[-1] - last.t[-2])
    every = -(-len(along.t) // ALONG) if len(along.t) else 1
    some = jax.tree.map(lambda x: np.asarray(x)[::every], along)
    path = _continued(model, here, a, tau, p)
    points = jax.tree.map(lambda *x: np.concatenate(x), some, path)
    G, M, g, sizes = map(np.asarray, _rows_and_masses(model, points, p))
    s = _smallest_sines(G, M)
    ends = [len(some.t), -1]
    with np.errstate(over="ignore"):  # a state that blew up
        reach = np.sqrt(here.v @ M[len(some.t) + PLACES // 2] @ here.v) * AROUND * h
    if s is None or np.any(np.abs(g[ends]) > HOLDS * sizes[ends] * reach):  # (3)
        return None
    usual, window = s[: len(some.t)], s[len(some.t) :]
    i = int(np.argmin(window))
    size = np.median(usual) if len(usual) else np.inf
    if not window[i] <= FALLS * min(size, max(window[0], window[-1])):
        return None
    return SingularPosition(
        float(here.t + tau[i]), float(window[i] ** 2), float(min(size, max(window)) ** 2)
    )


@compiled_quickly
def _continued(model: Model, here: Point, a: Any, tau: Any, p: Params) -> Point:
    """The points (2)."""

    def one(tau):
        q = model.system.moved(here.q, tau * here.v + tau**2 / 2 * a, p)
        return jax.tree.map(jnp.asarray, here.replace(t=here.t + tau, q=q))

    return jax.vmap(one)(tau)


@compiled_quickly
def _rows_and_masses(model: Model, points: Point, p: Params) -> tuple[Array, ...]:
    """The live rows G, others zero, M, the residual g and the sizes of the rows."""

    def one(point):
        live = model.live(point, p)
        G = jnp.where(live[:, None], model.jacobian(point, p), 0.0)
        sizes = jnp.sqrt(jnp.sum(G * model.system.solver(point.q, p)(G.T).T, axis=1))
        return G, model.system.mass(point.q, p), jnp.where(live, model.rows(point, p), 0.0), sizes

    return jax.lax.map(one, points)


def _smallest_sines(G: np.ndarray, M: np.ndarray) -> np.ndarray | None:
    """s of (1) at each place; None if there is no rank to lose."""
    if not (np.all(np.isfinite(G)) and np.all(np.isfinite(M))):
        return None
    rows = np.stack([rank.in_mass_metric(*pair) for pair in zip(G, M, strict=True)])
    lengths = np.max(np.linalg.norm(rows, axis=2), axis=0)
    sines = np.stack([rank.sines(x / np.where(lengths > 0, lengths, 1.0)[:, None]) for x in rows])
    r = int(np.max(np.sum(sines > rank.DEPENDENT, axis=1)))
    return sines[:, r - 1] if r else None  # (1)
