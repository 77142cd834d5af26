"""Interior point method for contacts with friction (`nsdyn.numerics.cone_problem`).

With s = w_N, y = w_T and one more unknown h per contact, the conditions are products of two cones,

    x_N s = kap                                                                                (1)
    m x_N h + x_T . y = kap                                                                    (2)
    m x_N y + h x_T = 0                      ((m x_N, x_T) o (h, y) = (kap, 0), Jordan product)  (3)

with m = mu, and kap -> 0. Normal contact and maximal dissipation are two separate conditions, so
the limit is Coulomb's law itself; contacts without friction have x_T = 0 in place of (2), (3).
Linearised, with ds, dy = A dx + (w - (s, y)) and dh from (2), each contact has d rows

    K_w (A dx)_i + K_x dx_i = right-hand side                                                  (4)

    K_w = diag(x_N, m x_N 1 - x_T x_T^T/(m x_N))
    K_x = [[s, 0], [m y - h x_T/x_N, h 1 - x_T y^T/(m x_N)]]

Mehrotra: first the direction for kap = 0, then, with the same matrix, the one for

    kap = sigma gap,  sigma = (gap after the first direction / gap)^3                          (5)

and with the products of the first direction subtracted; gap is the mean of (1) and (2). After a
step shorter than 0.1, sigma = 0.9 and no products.

S. Mehrotra: On the implementation of a primal-dual interior point method. SIAM J. Optim. 2 (1992)
575-601. T. Howell, S. Le Cleac'h, J. Bruedigam, Z. Kolter, M. Schwager, Z. Manchester: Dojo: a
differentiable physics engine for robotics (2022), for contacts by interior points.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from nsdyn._jitted import traced_once
from nsdyn._types import Code, Flag, Number, Scalar
from nsdyn.numerics import small
from nsdyn.numerics.cone_problem import ConeProblem, Impulses, PerContact

LAST_KAP = 1e-15
SHORT = 0.1  # step below which the next direction is cautious
TINY = 1e-300


class Inner(NamedTuple):
    """A point inside the cones, or a direction there."""

    x: Array
    s: Array
    y: Array
    h: Array

    def moved(self, t: Scalar, by: "Inner") -> "Inner":
        return Inner(*(a + t * da for a, da in zip(self, by, strict=True)))

    @property
    def is_finite(self) -> Array:
        return jnp.all(jnp.stack([jnp.all(jnp.isfinite(a)) for a in self]))


class Products(NamedTuple):
    """The left-hand sides of (1), (2) and (3)."""

    normal: PerContact
    scalar: PerContact
    vector: Float[Array, "k t"]


class Friction(NamedTuple):
    """mu, with 1 where there is no friction, and whether there is any."""

    m: PerContact
    some: Array

    def products(self, a: Inner, b: Inner) -> Products:
        """Those of x, and m x_N, of `a` with the others of `b`."""
        mx = self.m * a.x[:, 0]
        scalar = mx * b.h + jnp.sum(a.x[:, 1:] * b.y, axis=1)
        vector = mx[:, None] * b.y + b.h[:, None] * a.x[:, 1:]
        return Products(
            normal=a.x[:, 0] * b.s,
            scalar=jnp.where(self.some, scalar, 0.0),
            vector=jnp.where(self.some[:, None], vector, 0.0),
        )

    def gap(self, found: Products) -> Scalar:
        count = found.normal.shape[0] + jnp.sum(self.some)
        return (jnp.sum(found.normal) + jnp.sum(found.scalar)) / count

    def length(self, z: Inner, dz: Inner, share: Number) -> Scalar:
        """`share` of the way along dz to the boundary of the cones, at most 1."""
        t = jnp.minimum(_line(z.x[:, 0], dz.x[:, 0]), _line(z.s, dz.s))
        balls = jnp.minimum(
            _ball(self.m * z.x[:, 0], z.x[:, 1:], self.m * dz.x[:, 0], dz.x[:, 1:]),
            _ball(z.h, z.y, dz.h, dz.y),
        )
        t = jnp.minimum(t, jnp.where(self.some, balls, jnp.inf))
        return jnp.minimum(1.0, share * jnp.min(t))


class Progress(NamedTuple):
    z: Inner
    rounds: Array
    error: Array
    step: Array


@traced_once
def interior_point(
    problem: ConeProblem, wanted: Flag, limit: Code = 80, tolerance: Number = 1e-12
) -> Impulses:
    """x near the solution, if wanted; zero otherwise."""
    k, d = problem.shape
    some = (problem.mu > 0) & (d > 1)
    friction = Friction(jnp.where(some, problem.mu, 1.0), some)
    one = jnp.ones(k)
    start = Inner(jnp.zeros((k, d)).at[:, 0].set(1.0), one, jnp.zeros((k, d - 1)), one)

    def going(c: Progress) -> Any:
        return wanted & (c.error > tolerance) & (c.rounds < limit)

    def iterate(c: Progress) -> Progress:
        dz, gap = _direction(problem, friction, c.z, c.step)
        t = friction.length(c.z, dz, jnp.clip(1 - gap, 0.95, 0.9999))
        new = c.z.moved(t, dz)
        usable = new.is_finite
        new = Inner(*(jnp.where(usable, a, b) for a, b in zip(new, c.z, strict=True)))
        error = jnp.where(usable, _error(problem, friction, new), -1.0)
        return Progress(new, c.rounds + 1, error, t)

    first = Progress(start, jnp.zeros((), int), jnp.full((), jnp.inf), jnp.ones(()))
    return jnp.where(wanted, lax.while_loop(going, iterate, first).z.x, 0.0)


class Linearised(NamedTuple):
    """(1) to (3) linearised at z: the matrix L of (4) with its rows scaled, what the products are,
    and what s and y lack of w."""

    problem: ConeProblem
    friction: Friction
    z: Inner
    at: Products
    L: Array
    scale: Array
    Kw: Array
    missing: Array

    @staticmethod
    def of(problem: ConeProblem, friction: Friction, z: Inner) -> "Linearised":
        k, d = problem.shape
        Kw, Kx = _blocks(friction, z)
        A = problem.A.reshape(k, d, k * d)
        own = (Kx[:, :, None, :] * jnp.eye(k)[:, None, :, None]).reshape(k, d, k * d)
        L = (jnp.einsum("kij,kjm->kim", Kw, A) + own).reshape(k * d, k * d)  # (4)
        scale = 1.0 / jnp.max(jnp.abs(L), axis=1)
        missing = problem.velocity(z.x) - jnp.concatenate([z.s[:, None], z.y], axis=1)
        at = friction.products(z, z)
        return Linearised(problem, friction, z, at, scale[:, None] * L, scale, Kw, missing)

    def direction(self, kap: Scalar, less: Products) -> Inner:
        """The direction to the products kap, with `less` subtracted."""
        z, friction = self.z, self.friction
        m, some = friction
        mx = m * z.x[:, 0]
        c1 = kap - self.at.normal - less.normal
        c2 = kap - self.at.scalar - less.scalar
        c3 = -self.at.vector - less.vector - z.x[:, 1:] * (c2 / mx)[:, None]
        c3 = jnp.where(some[:, None], c3, -z.x[:, 1:])
        right = jnp.concatenate([c1[:, None], c3], axis=1)
        right = right - jnp.einsum("kij,kj->ki", self.Kw, self.missing)
        dx = small.solve_pivoted(self.L, self.scale * right.reshape(-1)).reshape(z.x.shape)
        dw = self.problem.response(dx) + self.missing
        turned = jnp.sum(z.x[:, 1:] * dw[:, 1:] + z.y * dx[:, 1:], axis=1)
        dh = (c2 - m * z.h * dx[:, 0] - turned) / mx  # (2)
        return Inner(dx, dw[:, 0], dw[:, 1:], jnp.where(some, dh, 0.0))


def _direction(
    problem: ConeProblem, friction: Friction, z: Inner, last_step: Scalar
) -> tuple[Inner, Scalar]:
    """Mehrotra's direction and the gap before it."""
    here = Linearised.of(problem, friction, z)
    gap = friction.gap(here.at)
    cautious = last_step < SHORT

    def aim(_, carry):
        kap, less, _ = carry
        dz = here.direction(kap, less)
        t = friction.length(z, dz, 1.0)
        there = z.moved(t, dz)
        after = jnp.maximum(friction.gap(friction.products(there, there)), 0.0)
        sigma = jnp.where(cautious, 0.9, jnp.clip((after / gap) ** 3, 0.0, 1.0))  # (5)
        trust = jnp.where((t > SHORT) & ~cautious, 1.0, 0.0)
        less = jax.tree.map(lambda x: trust * x, friction.products(dz, dz))
        return jnp.maximum(sigma * gap, LAST_KAP), less, dz

    nothing = jax.tree.map(jnp.zeros_like, here.at)
    return lax.fori_loop(0, 2, aim, (jnp.zeros(()), nothing, z))[2], gap


def _blocks(friction: Friction, z: Inner) -> tuple[Array, Array]:
    """K_w and K_x of (4), shape (k, d, d)."""
    xN, xT = z.x[:, 0], z.x[:, 1:]
    mx = (friction.m * xN)[:, None, None]
    unit = jnp.eye(xT.shape[1])[None]
    some = friction.some[:, None, None]
    outer = lambda a, b: a[:, :, None] * b[:, None, :]
    Kw = jnp.where(some, mx * unit - outer(xT, xT) / mx, 0.0)
    Kx = jnp.where(some, z.h[:, None, None] * unit - outer(xT, z.y) / mx, unit)
    column = friction.m[:, None] * z.y - xT * (z.h / xN)[:, None]
    column = jnp.where(friction.some[:, None], column, 0.0)
    corner = lambda a, b, column: jnp.concatenate(
        [
            jnp.concatenate([a[:, None, None], jnp.zeros_like(xT)[:, None, :]], axis=2),
            jnp.concatenate([column[:, :, None], b], axis=2),
        ],
        axis=1,
    )
    return corner(xN, Kw, jnp.zeros_like(xT)), corner(z.s, Kx, column)


def _error(problem: ConeProblem, friction: Friction, z: Inner) -> Scalar:
    at = friction.products(z, z)
    w = problem.velocity(z.x)
    parts = (w[:, 0] - z.s, w[:, 1:] - z.y, *at)
    worst = jnp.max(jnp.stack([jnp.max(jnp.abs(part), initial=0.0) for part in parts]))
    return worst / (1.0 + jnp.max(jnp.abs(z.x)))


def _line(a: PerContact, da: PerContact) -> PerContact:
    """How far along da the number a stays positive."""
    falls = da < 0
    return jnp.where(falls, -a / jnp.where(falls, da, -1.0), jnp.inf)


def _ball(a: PerContact, z: Array, da: PerContact, dz: Array) -> PerContact:
    """How far along (da, dz) the point (a, z) stays in |z| <= a: the root of a quadratic."""
    A = da * da - jnp.sum(dz * dz, axis=1)
    B = a * da - jnp.sum(z * dz, axis=1)
    C = jnp.maximum(a * a - jnp.sum(z * z, axis=1), TINY)
    root = B * B - A * C
    below = -B + jnp.sqrt(jnp.maximum(root, 0.0))
    leaves = (root >= 0) & (below > 0) & ((B < 0) | (A < 0))
    t = jnp.where(leaves, C / jnp.where(below > 0, below, 1.0), jnp.inf)
    return jnp.minimum(t, _line(a, da))
