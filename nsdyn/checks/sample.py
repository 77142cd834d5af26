"""A mechanism evaluated at a point, and the sizes that tolerances are relative to.

One small native program (`sample`) evaluates all functions of a mechanism together, another
(`guards`) its guards; both serve every later check of the same problem. The rest is numpy.

Sizes are measured as in a run (`nsdyn.tolerances`), with the step h of the coarse run:

    length   L from `Model.length`,     speed   V = |v|_M + h |M^-1 f|_M                       (1)

With the row sizes w = |G|_(M^-1), a row is small if |g| <= tolerance w L and its rate is small if
|psi| <= tolerance w V. Roots of r(q, t) are found by damped Gauss-Newton steps of least norm,

    min |dx|_M^2 + (V dt)^2  subject to  G dx + g_t dt = -r,   q <- q + B dx,   t <- t + dt    (2)

with rows G = d psi / dv, their rates g_t = psi at v = 0, and q' = B v.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn._types import Configuration, Jacobian, Number, Params, Rows, Time, Velocity
from nsdyn.constraints.base import Scale
from nsdyn.mechanics.formulations import lagrange
from nsdyn.mechanics.model import Model, Point
from nsdyn.native.once import natively
from nsdyn.numerics import rank

STEPS = 250  # number of steps of the coarse run; h = (t_end - t0)/STEPS in (1)
ITERATIONS = 60
ROOT = 1e-10  # residual of a root, relative to w L
SINGULAR = 1e-12  # singular values of unit rows that count as zero in (2)


@dataclasses.dataclass(frozen=True)
class Sample:
    """A mechanism at a point; V is its potential, `size` the length L of (1)."""

    q: np.ndarray
    v: np.ndarray
    M: np.ndarray
    f: np.ndarray
    B: np.ndarray
    g: np.ndarray
    G: np.ndarray
    gt: np.ndarray
    live: np.ndarray
    V: np.ndarray
    solved: np.ndarray | None
    momenta: np.ndarray | None
    size: np.ndarray
    step: np.ndarray

    @property
    def psi(self) -> np.ndarray:
        with np.errstate(invalid="ignore"):  # checks look at numbers that are not finite later
            return self.G @ self.v + self.gt

    @property
    def span(self) -> float:
        """The time from t0 to t_end."""
        return STEPS * float(self.step)

    @functools.cached_property
    def length(self) -> float:
        """L of (1), or |(1, ..., 1)|_M for a mechanism at rest at the origin without forces."""
        return float(self.size) or self.norm(np.ones_like(self.v))

    @functools.cached_property
    def push(self) -> float:
        """|M^-1 f|_M, an acceleration; 0 if forces are not finite."""
        found = float(np.sqrt(self.f @ np.linalg.solve(self.M, self.f)))
        return found if np.isfinite(found) else 0.0

    @functools.cached_property
    def speed(self) -> float:
        """V of (1)."""
        return float(self.norm(self.v) + self.step * self.push) or self.length / self.span

    @functools.cached_property
    def extent(self) -> float:
        """How far away roots are searched for: the distance of the mechanism from its origin, or
        how far it may move until t_end."""
        distance = self.norm(np.linalg.lstsq(self.B, self.q, rcond=None)[0])
        moved = max(distance, self.span * self.norm(self.v))
        return moved or self.span**2 * self.push or self.length

    @functools.cached_property
    def widths(self) -> np.ndarray:
        """The largest entries of velocities with |v|_M = 1."""
        return np.sqrt(np.diagonal(np.linalg.inv(self.M)))

    @property
    def spread(self) -> np.ndarray:
        """The largest entries of q' for velocities with |v|_M = 1."""
        return np.abs(self.B) @ self.widths

    def norm(self, x: np.ndarray) -> float:
        """|x|_M."""
        return float(np.sqrt(x @ self.M @ x))

    def row_sizes(self, G: np.ndarray) -> np.ndarray:
        """w = |G|_(M^-1), 1 for a row of zeros."""
        return rank.row_lengths(rank.in_mass_metric(G, self.M))

    @property
    def rows_over_time(self) -> np.ndarray:
        """Rows [G, g_t / V] over (dx, V dt)."""
        return np.column_stack([self.G, self.gt / self.speed])


def begin(
    model: Model, q: Configuration, v: Velocity, t: Time, p: Params
) -> tuple[Model, Point, Sample]:
    """The model with the sizes of its motion, the start, and the sample there. One program, all
    that most checks of a start need."""
    scale, point, values = _begin(model, q, v, t, p)
    model = eqx.tree_at(lambda x: x.scale, model, scale)
    return model, point, Sample(**jax.tree.map(np.asarray, values))


def sample(model: Model, point: Point, p: Params) -> Sample:
    values = _sample(model, jax.tree.map(np.asarray, point), p)
    return Sample(**jax.tree.map(np.asarray, values))


@natively
def _begin(
    model: Model, q: Configuration, v: Velocity, t: Time, p: Params
) -> tuple[Scale, Point, dict[str, Any]]:
    model, point = model.begin(q, v, t, p)
    return model.scale, point, _values(model, point, p)


def _values(model: Model, point: Point, p: Params) -> dict:
    system = model.system
    q, v = point.q, point.v
    B = jax.jacfwd(lambda v: system.rate(q, v, p))(v)
    g, G, gt = _rows(model, point, p, B)
    return {
        "q": q,
        "v": v,
        "M": system.mass(q, p),
        "f": model.force(point, p),
        "B": B,
        "g": g,
        "G": G,
        "gt": gt,
        "live": model.live(point, p),
        "V": jnp.zeros(()) if system.potential is None else system.potential(q, p),
        "solved": None if system.solve is None else system.solver(q, p)(columns(v.shape[0])),
        "momenta": None if system.momentum is None else system.momentum(q, jnp.ones_like(v), p),
        "size": model.length(point, p),
        "step": model.step,
    }


_sample = natively(_values)


def _rows(
    model: Model, point: Point, p: Params, B: Float[Array, "nq n"]
) -> tuple[Rows, Jacobian, Rows]:
    """g, G and g_t; by one Jacobian if all rows have a position level."""
    if model.all_positional:
        rows = lambda x: model.rows(point.replace(q=x[:-1], t=x[-1]), p)
        g, slope = _with_slope(rows, jnp.append(point.q, point.t))
        return g, slope[:, :-1] @ B, slope[:, -1]
    psi, G = _with_slope(lambda v: model.psi(point.replace(v=v), p), point.v)
    return model.rows(point, p), G, psi - G @ point.v


def _with_slope(function: Callable, x: Array) -> tuple[Array, Array]:
    twice = lambda x: (function(x),) * 2
    slope, value = jax.jacfwd(twice, has_aux=True)(x)
    return value, slope


def columns(n: int) -> Float[Array, "n columns"]:
    """Test vectors for `solve`: at most eight unit vectors and a vector of ones."""
    return jnp.concatenate([jnp.eye(n)[:, : min(n, 8)], jnp.ones((n, 1))], axis=1)


class Guards(NamedTuple):
    """The guards, their derivatives, and the multipliers lam of the motion."""

    value: np.ndarray
    by_q: np.ndarray
    by_v: np.ndarray
    by_lam: np.ndarray
    by_t: np.ndarray
    lam: np.ndarray

    @property
    def read_q(self) -> np.ndarray:
        return np.any(self.by_q != 0, axis=1)

    @property
    def read_motion(self) -> np.ndarray:
        """Which guards depend on v or lam."""
        return np.any(self.by_v != 0, axis=1) | np.any(self.by_lam != 0, axis=1)

    def sizes(self, s: Sample) -> np.ndarray:
        """The size of each guard, from the sizes of its arguments."""
        by_q = np.abs(self.by_q) @ (s.length * s.spread)
        by_v = np.abs(self.by_v) @ (s.speed * s.widths)
        by_lam = np.abs(self.by_lam) @ np.abs(self.lam)
        return by_q + by_v + by_lam + np.abs(self.by_t) * s.span

    def slope(self, n: int, s: Sample) -> np.ndarray:
        """The gradient of guard n over (dx, V dt)."""
        return np.append(self.by_q[n] @ s.B, self.by_t[n] / s.speed)


def guards(model: Model, point: Point, p: Params, more_lam: float = 0.0) -> Guards:
    found = _guards(model, jax.tree.map(np.asarray, point), np.float64(more_lam), p)
    return Guards(*map(np.asarray, found))


@natively
def _guards(model: Model, point: Point, more_lam: Number, p: Params) -> tuple[Array, ...]:
    lam = lagrange(model, point, p).lam + more_lam
    values = lambda q, v, lam, t: model.guards(point.replace(q=q, v=v, t=t), lam, p)
    at = (point.q, point.v, lam, point.t)
    return (values(*at), *jax.jacfwd(values, argnums=(0, 1, 2, 3))(*at), lam)


def nearest_root(evaluate: Callable, point: Point, free_time: bool = False) -> Point | None:
    """A root of r near a point by (2), or None. evaluate(point) gives r, its rows over (dx, V dt)
    and the sample there."""
    try:
        return _newton(evaluate, point, free_time)
    except np.linalg.LinAlgError:  # the search met an indefinite mass matrix
        return None


def _newton(evaluate: Callable, point: Point, free_time: bool) -> Point | None:
    r, J, s = evaluate(point)
    for _ in range(ITERATIONS):
        if not np.any(r) or not np.all(np.isfinite(J)):
            break
        n = len(s.M)
        A = rank.in_mass_metric(J, s.M)[:, : n + free_time]
        sizes = rank.row_lengths(A)
        x = -np.linalg.lstsq(A / sizes[:, None], r / sizes, rcond=SINGULAR)[0]  # (2)
        dq = s.B @ np.linalg.solve(np.linalg.cholesky(s.M).T, x[:n])
        dt = x[n] / s.speed if free_time else 0.0
        for cut in 0.5 ** np.arange(10):
            there = point.replace(q=point.q + cut * dq, t=point.t + cut * dt)
            new = evaluate(there)
            if np.linalg.norm(new[0] / sizes) < np.linalg.norm(r / sizes):
                break
        else:
            break
        point = there
        r, J, s = new
    small = np.abs(r) <= ROOT * s.row_sizes(J) * s.length
    return point if np.all(small) else None
