"""The motion with closed contacts, in the modes of `nsdyn.constraints.contact_modes`.

With the rows of other constraints eliminated (`nsdyn.mechanics.contact_rows`), the forces r on the
mechanism and the acceleration a_b that it would have without them,

    a = a_b + B r,    psi' = H a + gamma = W r + c                                             (1)

    open:   r = 0
    stick:  psi_N' = 0,  psi_T' = 0
    slip:   psi_N' = 0,  r_T + mu r_N t = 0,   t = psi_T/|psi_T|                               (2)

which are k d linear equations for r. They are not symmetric where contacts slip, and singular where
contacts are redundant, as for a table with four legs; then one of many r is taken, and a is right
all the same. Behind the instant at which psi_T vanishes (an event, whose search may look beyond it)
t stays as it was: it is turned back to the side of the direction t_0 that the contact holds.

In space t turns, the faster the slower the slip is: psi_T' has a part of the size mu r_N W_TT
across psi_T, which an explicit step of size h cannot follow where psi_T is as small as h times
that, nor can it find the instant at which psi_T vanishes. There

    t = t_0   while   |psi_T| <= 1.5 h max(mu r_N W_TT, |psi_T'|),  at the beginning of a step  (3)

which leaves an error of second order where a slip that turns comes to an end, and one of first
order where it begins. A slip that does not turn has none, and in the plane t = t_0 always.

Drift is removed in the mass metric, by the smallest motions along the rows that hold: positions by
gap = 0, velocities by psi_N = 0 and, where contacts stick, psi_T = 0. Both are (2) with mu = 0.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from nsdyn._types import Number, Params, Rows, Velocity
from nsdyn.mechanics import contact_rows as contacts
from nsdyn.mechanics.contact_rows import ContactRows
from nsdyn.mechanics.model import Model, Point
from nsdyn.mechanics.saddle_point import SaddlePoint
from nsdyn.numerics import small
from nsdyn.numerics.cone_problem import OPEN, SLIP, STICK

MARGIN = 1.5  # of (3)

Forces = Float[Array, "k d"]
Directions = Float[Array, "k t"]
Modes = Int[Array, " k"]


def reactions(
    W: Float[Array, "kd kd"], c: Forces, mode: Modes, mu: Float[Array, " k"], t: Directions
) -> Forces:
    """r of (2)."""
    k, d = c.shape
    diagonal = jnp.diagonal(W).reshape(k, d)
    some = diagonal[:, 0] > 0
    size = 1.0 / jnp.sqrt(jnp.where(some, diagonal[:, 0], 1.0))
    scale = jnp.repeat(size, d)
    A = (scale[:, None] * W * scale[None, :]).reshape(k, d, k * d)
    unit = jnp.eye(k * d).reshape(k, d, k * d)
    closed = (mode != OPEN) & some
    holds = ((jnp.arange(d) == 0)[None, :] | (mode == STICK)[:, None]) & (diagonal > 0)
    holds = holds & closed[:, None]
    drag = mu[:, None, None] * t[:, :, None] * unit[:, :1]
    drag = jnp.concatenate([jnp.zeros((k, 1, k * d)), drag], axis=1)
    slips = closed[:, None, None] & (mode != STICK)[:, None, None]
    J = jnp.where(holds[:, :, None], A, unit + jnp.where(slips, drag, 0.0))
    right = jnp.where(holds, -size[:, None] * c, 0.0)
    x = small.solve_consistent(J.reshape(k * d, k * d), right.reshape(-1))
    return size[:, None] * x.reshape(k, d)


def directions(model: Model, point: Point, psi: Forces) -> Directions:
    """t of (2) and (3)."""
    held, fixed = contacts.held_directions(model, point)
    slip = psi[:, 1:]
    if slip.shape[1] < 2:
        unknown = jnp.sum(held * held, axis=1, keepdims=True) == 0
        return jnp.where(unknown, jnp.sign(slip), held)
    square = jnp.sum(slip * slip, axis=1, keepdims=True)
    turns = ~fixed & (square > 0)
    back = jnp.sum(slip * held, axis=1, keepdims=True) < 0
    along = jnp.where(back, -1.0, 1.0) * slip / _divisor(square)
    return jnp.where(turns, along, held)


def _divisor(square: Float[Array, "k 1"]) -> Float[Array, "k 1"]:
    """The length, or 1 for none."""
    length = small.root(square)
    return jnp.where(length > 0, length, 1.0)


def turned(model: Model, point: Point, a: Velocity, lam: Rows, h: Number, p: Params) -> Point:
    """The point whose contacts hold the directions in which they slip now, but for slow ones, (3).
    a and lam are acceleration and multipliers there."""
    closed = ClosedContacts(model, point, p)
    psi = contacts.padded(model, model.psi(point, p))
    held, _ = contacts.held_directions(model, point)
    slip = psi[:, 1:]
    square = jnp.sum(slip * slip, axis=1, keepdims=True)
    fast = closed.fastest_turns(a, -contacts.padded(model, lam))
    slow = jax.lax.stop_gradient(square <= (h * fast) ** 2)  # (3)
    t = jnp.where(slow, held, slip / _divisor(square))
    slips = (closed.mode == SLIP)[:, None]
    return contacts.with_directions(model, point, jnp.where(slips, t, 0.0), slow)


class Motion(NamedTuple):
    """The acceleration, the multipliers of all rows, the forces r, and c of (1)."""

    a: Velocity
    lam: Rows
    r: Forces
    c: Forces


class ClosedContacts:
    """The contacts of a model at a point, in their modes."""

    def __init__(self, model: Model, point: Point, p: Params) -> None:
        self.here = SaddlePoint(model, point, p)
        self.rows = ContactRows(self.here)
        self.mode = contacts.modes(model, point)
        self.psi = contacts.padded(model, self.here.psi(point.v))
        self.mu = contacts.laws(model, p, self.psi, self.mode == STICK).mu

    def motion(self) -> Motion:
        """How the mechanism moves."""
        here = self.here
        v = here.point.v
        gamma = here.gamma(v)
        a, lam = here.solve(here.f(v), -gamma)
        given = self.rows.given(contacts.normal_forces(here.model, here.point, here.p))
        c = self.rows.rates(a) + contacts.padded(here.model, gamma) + given  # (1)
        t = directions(here.model, here.point, self.psi)
        r = reactions(self.rows.W, c, self.mode, self.mu, t)  # (2)
        a, lam, _ = self.rows.landed(a, lam, here.G, r)
        return Motion(a, lam, r, c)

    def fastest_turns(self, a: Velocity, r: Forces) -> Float[Array, "k 1"]:
        """What psi_T may change by in a unit of time: psi_T' itself, or by friction alone."""
        gamma = contacts.padded(self.here.model, self.here.gamma(self.here.point.v))
        rate = (self.rows.rates(a) + gamma)[:, 1:]
        diagonal = jnp.diagonal(self.rows.W).reshape(self.rows.shape)
        friction = self.mu * jnp.abs(r[:, 0]) * jnp.max(diagonal[:, 1:], axis=1)
        square = jnp.sum(rate * rate, axis=1)
        fast = jnp.sqrt(jnp.maximum(square, friction * friction))
        return MARGIN * jax.lax.stop_gradient(fast)[:, None]

    def position_step(self, dx: Velocity, gaps: Float[Array, " k"]) -> Velocity:
        """The motion dx, with what brings the gaps of closed contacts to zero."""
        d = self.rows.shape[1]
        left = gaps + self.rows.normal_rates(dx)
        none = jnp.zeros((len(gaps), 0))
        W = self.rows.W[::d, ::d]
        kap = reactions(W, left[:, None], self.mode, jnp.zeros_like(self.mu), none)
        return dx + small.matvec(self.rows.B[:, ::d], kap[:, 0])

    def velocity_step(self) -> tuple[Velocity, Rows]:
        """The nearest velocity that all constraints permit, and the impulse that leads to it."""
        here = self.here
        v = here.point.v
        step, Lam = here.smallest_motion(-here.psi(v))
        psi = contacts.padded(here.model, here.psi(v + step))
        none = jnp.zeros_like(psi[:, 1:])
        P = reactions(self.rows.W, psi, self.mode, jnp.zeros_like(self.mu), none)
        v, Lam, _ = self.rows.landed(v + step, Lam, here.G, P)
        return v, Lam
