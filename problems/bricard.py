"""Bricard's mechanism: six bars along the edges of a cube, hinged at right angles; it moves
although the count of constraints says that it cannot.

Problem A04 of the IFToMM benchmark library of multibody dynamics: five moving bars and the ground
as the sixth form the closed path P_0 ... P_5 along edges of a cube of side L,

    P = (0,0,0), (L,0,0), (L,-L,0), (L,-L,L), (0,-L,L), (0,0,L)                                  (1)

with a hinge in every corner, its axis normal to the two bars that meet there. Gravity acts along
-y; the start is at rest. By the count of constraints nothing could move, but with these axes one
constraint follows from the others wherever all of them hold.

Natural coordinates, twelve per bar: the position r of its middle and the matrix A that rotates it
from its position in (1),

    T = 1/2 sum_i (m |r_i'|^2 + tr(A_i' J_i A_i'^T)),   V = sum_i m g y_i                        (2)
    A_i^T A_i = 1                                      6 rows for each of 5 bars                 (3)
    r_i + A_i s_i = r_k + A_k s_k'                     3 rows for each of 6 hinges               (4)
    (A_i a) . (A_k b) = (A_i a) . (A_k b') = 0  2 rows for each, a the axis, b, b' across it     (5)

with J_i the second moments of mass of the bar: m L^2/12 along it, m w^2/12 across. That is 60
coordinates and 60 constraints of rank 59. The library prints m = 1 kg, L = 1 m and the square
section w = 0.1 m; g = 9.81 m/s^2.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import nsdyn
from nsdyn._types import (
    AnyTime,
    Configuration,
    Matrix,
    Number,
    Params,
    Rows,
    Scalar,
    Velocity,
)
from nsdyn.errors import ProblemError

ABOUT = nsdyn.About(tags=("smooth", "loops", "redundant"), source="IFToMM A04")

CORNERS = np.array(
    [[0, 0, 0], [1, 0, 0], [1, -1, 0], [1, -1, 1], [0, -1, 1], [0, 0, 1]], float
)  # (1), in units of L
MIDDLES = (CORNERS[:-1] + CORNERS[1:]) / 2
ALONG = np.abs(CORNERS[1:] - CORNERS[:-1])  # the direction of each bar
AXES = np.array([[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]], float)
ACROSS = np.stack([np.roll(AXES, 1, axis=1), np.roll(AXES, 2, axis=1)], axis=1)
PAIRS = np.triu_indices(3)
BARS = 5
NAMES = tuple(
    name
    for i in range(1, BARS + 1)
    for name in (
        *(f"{axis}_{i} [m]" for axis in "xyz"),
        *(f"A_{i}{j}{k}" for j in "123" for k in "123"),
    )
)


def _unpack(q: Configuration) -> tuple[Float[Array, "5 3"], Float[Array, "5 3 3"]]:
    bars = q.reshape(BARS, 12)
    return bars[:, :3], bars[:, 3:].reshape(BARS, 3, 3)


def second_moments(p: Params) -> Float[Array, "5 3"]:
    """J_i, diagonal in the axes of (1), shape (5, 3)."""
    return p["m"] / 12 * (p["L"] ** 2 * ALONG + p["w"] ** 2 * (1 - ALONG))


def mass(q: Configuration, p: Params) -> Matrix:
    turning = jnp.broadcast_to(second_moments(p)[:, None, :], (BARS, 3, 3)).reshape(BARS, 9)
    return jnp.diag(
        jnp.concatenate([jnp.full((BARS, 3), 1.0) * p["m"], turning], axis=1).ravel()
    )  # (2)


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    return jnp.zeros((BARS, 12)).at[:, 1].set(-p["m"] * p["g"]).ravel()


def potential(q: Configuration, p: Params) -> Scalar:
    return p["m"] * p["g"] * jnp.sum(_unpack(q)[0][:, 1])


def solve(q: Configuration, b: Array, p: Params) -> Array:
    """M is diagonal."""
    entries = jnp.diagonal(mass(q, p))
    return b / (entries if b.ndim == 1 else entries[:, None])


def hinges(q: Configuration, p: Params) -> tuple[Array, Array, Array, Array]:
    """For each hinge: its position on the bar before and on the bar behind it, and the rotations of
    both bars; the ground is the first and the last bar."""
    r, A = _unpack(q)
    reach = lambda corners: r + jnp.einsum("bij,bj->bi", A, p["L"] * (corners - MIDDLES))
    ground = p["L"] * CORNERS[[0, -1]]
    before = jnp.concatenate([ground[:1], reach(CORNERS[1:])])
    behind = jnp.concatenate([reach(CORNERS[:-1]), ground[1:]])
    one = jnp.eye(3)[None]
    return before, behind, jnp.concatenate([one, A]), jnp.concatenate([A, one])


def closure(q: Configuration, t: AnyTime, p: Params) -> Rows:
    _, A = _unpack(q)
    rigid = (jnp.einsum("bij,bik->bjk", A, A) - jnp.eye(3)[None])[:, PAIRS[0], PAIRS[1]]  # (3)
    before, behind, turn, next_turn = hinges(q, p)
    axes = jnp.einsum("hij,hj->hi", turn, AXES)
    across = jnp.einsum("hij,hkj->hki", next_turn, ACROSS)
    aligned = jnp.einsum("hi,hki->hk", axes, across)  # (5)
    return jnp.concatenate([rigid.ravel(), (before - behind).ravel(), aligned.ravel()])  # (4)


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """The loop, and the ground bar; y, along which gravity acts, is drawn upwards."""
    upright = lambda points: jnp.stack([points[:, 0], -points[:, 2], points[:, 1]], axis=1)
    loop = hinges(q, p)[0]
    return (upright(loop), upright(loop[jnp.array([0, -1])]))


SYSTEM = nsdyn.System(mass=mass, force=force, potential=potential, solve=solve)
CLOSED = nsdyn.Fixed(closure)


def bricard(
    m: Number = 1.0, L: Number = 1.0, w: Number = 0.1, g: Number = 9.81, t_end: float = 10.0
) -> nsdyn.Problem:
    """At rest along the edges of the cube. params: m, L, w, g."""
    for name, value in (("m", m), ("L", L), ("w", w)):
        if isinstance(value, int | float) and not value > 0:
            raise ProblemError(f"bricard({name}=...): expected a positive number, found {value}")
    params = {
        name: jnp.asarray(value, float) for name, value in (("m", m), ("L", L), ("w", w), ("g", g))
    }
    turns = jnp.broadcast_to(jnp.eye(3).ravel(), (BARS, 9))
    q0 = jnp.concatenate([params["L"] * MIDDLES, turns], axis=1).ravel()
    return nsdyn.Problem(
        "bricard",
        SYSTEM,
        CLOSED,
        q0=q0,
        v0=jnp.zeros(60),
        t_end=t_end,
        params=params,
        coordinates=NAMES,
        shape=shape,
    )
