"""Contacts with Coulomb friction as equations: scaling, residual and Jacobian.

k contacts with d rows each, one normal (N) and d - 1 tangential ones (T). Given W, b and mu, find
the impulses P, and with them u = W P + b, such that for every contact

    0 <= u_N,  P_N >= 0,  u_N P_N = 0                                                          (1)
    P_T = the point nearest to P_T - rho u_T in the ball of radius mu P_N, for any rho > 0     (2)

(2) says that P_T is in the ball, and is opposite to u_T on its surface where u_T is not zero. W
need not be symmetric. Contacts that are not `on` have P = 0.

Units are removed, without changing the cones, by one factor for all rows of a contact:

    P = size x,  size_i = r_i c,  r_i = W_NN,ii^(-1/2),  c = max |r_i b_i|,
    u = c w / r,  w = A x + q,    A = r W r,  q = r b / c                                      (3)

so that A has a unit diagonal in its normal rows and q is of size 1. Contacts that are not on become
identity rows, with q_N = 1, which leaves x = 0 there. So do tangential rows without any entry of A,
which are padding. The residual is the natural map of Alart and Curnier,

    F_N = x_N - max(0, x_N - w_N)
    F_T = x_T - (the point nearest to x_T - rho w_T in the ball of radius mu max(0, x_N - w_N))  (4)

with 1/rho the mean size of the diagonal of A over the tangential rows of the contact. It is
piecewise smooth: with the direction t and the length l of x_T - rho w_T, and the radius r,

    dF = S dx + T dw,   S = | 1 - c     0   |   T = | c    0   |                               (5)
                            |  -g     1 - Q |       | g  rho Q |

with c = 1 where the contact is closed, x_N > w_N, else 0; where it slips, l > r,
Q = r/l (1 - t t^T) and g = c mu t, else Q = 1 and g = 0. A contact is open, sticks or slips as
the branches of (4) say. What is reported is

    max |F| / (1 + 1e-3 max |x|)                                                               (6)

Dividing by max |x| alone would accept problems without a solution, whose x grows without bound.

P. Alart, A. Curnier: A mixed formulation for frictional contact problems prone to Newton like
solution methods. Comput. Methods Appl. Mech. Engrg. 92 (1991) 353-375.
"""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from nsdyn._types import AnyArray, Number, Scalar
from nsdyn.numerics import small

OPEN, STICK, SLIP = 0, 1, 2
TINY = jnp.finfo(float).tiny
CONSTANT = 64  # rows of a matrix at most that is written out

Impulses = Float[Array, "k d"]
PerContact = Float[Array, " k"]
ContactMask = Bool[Array, " k"]


class Scaling(eqx.Module):
    """The factors of (3): r and c, 1/rho as `rho`, and which contacts and which rows take part."""

    r: PerContact
    c: Scalar
    rho: PerContact
    on: ContactMask
    rows: Bool[Array, "k d"]

    @staticmethod
    def of(W: Float[Array, "kd kd"], b: Impulses, on: ContactMask) -> "Scaling":
        k, d = b.shape
        W, b = lax.stop_gradient((W, b))
        diagonal = W.reshape(-1)[:: k * d + 1].reshape(k, d)
        on = on & (diagonal[:, 0] > 0)
        # Where W is not symmetric a row that takes part may have any number on the diagonal.
        rows = on[:, None] & jnp.any(W != 0, axis=1).reshape(k, d)
        r = 1.0 / jnp.sqrt(jnp.where(on, diagonal[:, 0], 1.0))
        c = jnp.max(jnp.where(rows, jnp.abs(r[:, None] * b), 0.0), initial=0.0)
        tangential = jnp.where(rows, jnp.abs(diagonal) * r[:, None] ** 2, 0.0)[:, 1:]
        weight = jnp.sum(tangential, axis=1) / jnp.maximum(jnp.sum(rows[:, 1:], axis=1), 1)
        rho = 1.0 / jnp.where(weight > 0, weight, 1.0)
        return Scaling(r=r, c=jnp.where(c > TINY, c, 1.0), rho=rho, on=on, rows=rows)

    @property
    def size(self) -> Float[Array, "k 1"]:
        return (self.r * self.c)[:, None]

    def apply(self, W: Float[Array, "kd kd"], b: Impulses, mu: PerContact) -> "ConeProblem":
        """The problem without units, (3)."""
        k, d = b.shape
        rows = self.rows.reshape(k * d)
        r = jnp.repeat(self.r, d)
        both = rows[:, None] & rows[None, :]
        A = jnp.where(both, r[:, None] * W * r[None, :], _unit(k * d, 1)[:, 0, :, 0])
        normal = jnp.arange(d) == 0
        idle = jnp.where(~self.on[:, None] & normal[None, :], 1.0, 0.0)
        q = jnp.where(self.rows, self.r[:, None] * b / self.c, idle)
        return ConeProblem(A=A, q=q, mu=jnp.where(self.on, mu, 0.0), rho=self.rho)


class Branches(NamedTuple):
    """The terms of (4): x_N - w_N, the radius of the ball, x_T - rho w_T and its length."""

    normal: PerContact
    radius: PerContact
    trial: Float[Array, "k t"]
    length: PerContact

    @property
    def closed(self) -> ContactMask:
        return self.normal > 0

    @property
    def slips(self) -> ContactMask:
        return self.length > self.radius

    @property
    def direction(self) -> Float[Array, "k t"]:
        return self.trial / jnp.where(self.length > 0, self.length, 1.0)[:, None]


class ConeProblem(eqx.Module):
    """The problem without units: w = A x + q."""

    A: Float[Array, "kd kd"]
    q: Impulses
    mu: PerContact
    rho: PerContact

    @property
    def shape(self) -> tuple[int, int]:
        k, d = self.q.shape
        return k, d

    def velocity(self, x: Impulses) -> Impulses:
        return self.response(x) + self.q

    def response(self, x: Impulses) -> Impulses:
        """A x."""
        return (self.A @ x.reshape(-1)).reshape(self.shape)

    def branches(self, x: Impulses, w: Impulses) -> Branches:
        normal = x[:, 0] - w[:, 0]
        trial = x[:, 1:] - self.rho[:, None] * w[:, 1:]
        radius = self.mu * jnp.where(normal > 0, normal, 0.0)
        return Branches(normal, radius, trial, _length(trial))

    def residual(self, x: Impulses, w: Impulses) -> Impulses:
        """F of (4)."""
        at = self.branches(x, w)
        normal = jnp.where(at.closed, at.normal, 0.0)
        nearest = jnp.where(at.slips[:, None], at.radius[:, None] * at.direction, at.trial)
        return jnp.concatenate([(x[:, 0] - normal)[:, None], x[:, 1:] - nearest], axis=1)

    def error(self, x: Impulses, w: Impulses) -> Scalar:
        """(6)."""
        size = 1.0 + 1e-3 * jnp.max(jnp.abs(x), initial=0.0)
        return jnp.max(jnp.abs(self.residual(x, w)), initial=0.0) / size

    def jacobian(self, x: Impulses, w: Impulses, eps: Number = 0.0) -> Float[Array, "kd kd"]:
        """dF/dx + eps, on the branch that x is on: S dx + T dw for each contact, (5)."""
        k, d = self.shape
        S, T = self._slopes(self.branches(x, w))
        S = S + eps * np.eye(d)[None]
        A = jnp.einsum("kij,kjm->kim", T, self.A.reshape(k, d, k * d))
        J = A.reshape(k, d, k, d) + _unit(k, d) * S[:, :, None, :]
        return J.reshape(k * d, k * d)

    def _slopes(self, at: Branches) -> tuple[Float[Array, "k d d"], Float[Array, "k d d"]]:
        """S and T of (5)."""
        t = at.direction
        closed = jnp.where(at.closed, 1.0, 0.0)[:, None, None]
        unit = np.eye(t.shape[1])[None]
        stretch = (at.radius / jnp.where(at.length > 0, at.length, 1.0))[:, None, None]
        turn = stretch * (unit - t[:, :, None] * t[:, None, :])
        slips = at.slips[:, None, None]
        Q = jnp.where(slips, turn, unit)
        grow = jnp.where(slips, closed * self.mu[:, None, None] * t[:, :, None], 0.0)
        block = lambda a, b, c: jnp.concatenate(
            [jnp.pad(a, ((0, 0), (0, 0), (0, t.shape[1]))), jnp.concatenate([b, c], axis=2)], axis=1
        )
        rho = self.rho[:, None, None]
        return block(1.0 - closed, -grow, unit - Q), block(closed, grow, rho * Q)

    def modes(self, x: Impulses) -> Int[Array, " k"]:
        """OPEN, STICK or SLIP, as the branches of (4) say."""
        at = self.branches(x, self.velocity(x))
        return jnp.where(at.closed, jnp.where(at.slips, SLIP, STICK), OPEN)

    def shifted(self, alpha: Scalar, x: Impulses) -> "ConeProblem":
        """The problem with A + alpha and q - alpha x: near x it is nearly the same, and regular."""
        k, d = self.shape
        A = self.A + alpha * jnp.eye(k * d)
        return dataclasses.replace(self, A=A, q=self.q - alpha * x)


def _unit(k: int, d: int) -> Float[AnyArray, "k d k d"]:
    """1 within the blocks of single contacts, else 0: a constant, unless it is so large that a
    native program should not contain it."""
    if k * d <= CONSTANT:
        return np.kron(np.eye(k), np.ones((d, d))).reshape(k, d, k, d)
    return jnp.broadcast_to(jnp.eye(k)[:, None, :, None], (k, d, k, d))


def _length(x: Float[Array, "k t"]) -> PerContact:
    """|x| row by row, with the derivative 0 where x = 0."""
    return small.root(jnp.sum(x * x, axis=1))
