"""The response of a serial chain to an impulse on its last link, in O(N), by the recursions of
Alexiou, with his equation numbers.

Twists, wrenches, X_i, s_i and I_i as in `nsdyn.multibody.chain`; J_i is the rotor inertia of a
joint (absent from the source). The external impulse on the last link is -n J, with the wrench n of
a unit impulse; l_i is the reaction at joint i,

    l_i = I_i dv_i + X_{i+1}^T l_{i+1},   l_{N+1} = n J                                   (11), (12)

The constrained inverse inertia L_i, dv_i = -L_i X_{i+1}^T l_{i+1} (14), from the base outwards.
With D_i = s_i^T I_i s_i + J_i and W = X_i L_{i-1} X_i^T,

    Psi_i = (1 - s_i D_i^-1 s_i^T I_i) W                                                        (15)
    L_i = (1 + Psi_i I_i)^-1 (s_i D_i^-1 s_i^T + Psi_i),   L_0 = 0                  (16), (17), (18)

The law of restitution n^T (v_N + dv_N) = -e n^T v_N gives the magnitude

    J = (1 + e) n^T v_N / (n^T L_N n)                                                           (22)

The impulse is propagated inwards through the joints, and the change of velocity outwards:

    l_i = (1 - I_i L_i) X_{i+1}^T l_{i+1}                                                  (23)-(26)
    dq_i' = -D_i^-1 s_i^T (X_{i+1}^T l_{i+1} + I_i X_i dv_{i-1})                                (27)
    dv_i = X_i dv_{i-1} + s_i dq_i',   dv_0 = 0                                           (28), (29)

J is the impulse Lam of the laws: M (v+ - v-) + G^T J = 0 with the contact row G v = n^T v_N.

Differences from the paper: frames are local to the links, hence the X_i; L_0 = 0 in (15) gives the
starting values (17) and (18), whose last s_i should read s_1; and (23)-(26) propagate the wrench n
J instead of the 6 x 6 matrices Phi_i by which it is multiplied.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from nsdyn._types import Number
from nsdyn.multibody.chain import Chain, Links, at_tip, links, twists


class Response(NamedTuple):
    """Joint rates after the impact, its magnitude J, and the approach speed n^T v_N."""

    v_after: Float[Array, " n"]
    impulse: Float[Array, ""]
    approach: Float[Array, ""]


def contact_wrench(
    chain: Chain, q: Float[Array, " n"], point: ArrayLike, normal: ArrayLike
) -> Float[Array, " 6"]:
    """n, in the frame of the last link: the wrench of a unit impulse along `normal` (given in the
    world) at `point` (given in that frame)."""
    direction = at_tip(chain, q, normal)
    return jnp.concatenate([direction, jnp.cross(jnp.asarray(point, float), direction)])


def eliminate(a: Float[Array, "k k"], b: Float[Array, "k c"]) -> Float[Array, "k c"]:
    """a^-1 b by Gauss-Jordan elimination with pivoting. One LAPACK call per link would cost ten
    times as much as the whole recursion."""
    k = a.shape[0]

    def column(carry: tuple[Array, Array], j: Array) -> tuple[tuple[Array, Array], Array]:
        rows, used = carry
        entries = rows[:, j]
        i = jnp.argmax(jnp.where(used, -1.0, jnp.abs(entries)))
        pivot = rows[i] / entries[i]
        here = jnp.arange(k) == i
        rows = jnp.where(here[:, None], pivot[None, :], rows - entries[:, None] * pivot[None, :])
        return (rows, used | here), i

    start = (jnp.concatenate([a, b], axis=1), jnp.zeros(k, bool))
    (rows, _), order = jax.lax.scan(column, start, jnp.arange(k))
    return rows[order, k:]


def inverse_inertias(parts: Links) -> Float[Array, "n 6 6"]:
    """L_i for all links."""

    def outwards(L: Array, link: Links) -> tuple[Array, Array]:
        X, s, inertia, rotor = link
        momentum = inertia @ s
        scaled = s / (s @ momentum + rotor)
        W = X @ L @ X.T
        Psi = W - scaled[:, None] * (momentum @ W)[None, :]  # (15)
        free = scaled[:, None] * s[None, :] + Psi
        L = eliminate(jnp.eye(6) + Psi @ inertia, free)  # (16)
        return L, L

    return jax.lax.scan(outwards, jnp.zeros((6, 6)), parts)[1]  # (17), (18)


def joint_response(
    parts: Links, L: Float[Array, "n 6 6"], wrench: Float[Array, " 6"]
) -> Float[Array, " n"]:
    """The change of the joint rates due to the impulse -wrench on the last link: -M^-1 (jacobian^T
    wrench)."""

    def inwards(carried: Array, link: tuple[Array, ...]) -> tuple[Array, Array]:
        X, inertia, L = link
        return X.T @ (carried - inertia @ (L @ carried)), carried  # (23)-(26)

    arriving = jax.lax.scan(inwards, wrench, (parts.X, parts.inertia, L), reverse=True)[1]

    def outwards(dv: Array, link: tuple[Array, ...]) -> tuple[Array, Array]:
        X, s, inertia, rotor, arriving = link
        dv = X @ dv
        rate = -(s @ (arriving + inertia @ dv)) / (s @ (inertia @ s) + rotor)  # (27)
        return dv + s * rate, rate  # (28)

    return jax.lax.scan(outwards, jnp.zeros(6), (*parts, arriving))[1]  # (29)


def restitution(
    chain: Chain,
    q: Float[Array, " n"],
    v: Float[Array, " n"],
    point: ArrayLike,
    normal: ArrayLike,
    e: Number,
) -> Response:
    """The impact of `point` of the last link on a fixed wall with the normal `normal`, for either
    sign of the approach speed."""
    parts = links(chain, q)
    n = contact_wrench(chain, q, point, normal)
    L = inverse_inertias(parts)
    approach = n @ twists(parts, v)[-1]  # (20)
    J = (1.0 + e) * approach / (n @ L[-1] @ n)  # (22)
    return Response(v + joint_response(parts, L, n * J), J, approach)
