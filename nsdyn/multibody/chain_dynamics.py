"""Dynamics of a serial chain in O(N): forces by the recursion of Newton and Euler, M^-1 b by
articulated bodies.

Twists, wrenches and X_i as in `nsdyn.multibody.chain`; v x for twists and v x* = -(v x)^T for
wrenches are

    (u; w) x (a; b) = (w x a + u x b; w x b),    (u; w) x* (f; t) = (w x f; w x t + u x f)       (1)

The force f follows from the joint forces that keep all q'' zero (Luh, Walker, Paul), with gravity
as an acceleration of the base:

    a_i = X_i a_{i-1} + v_i x s_i q_i',   a_0 = (-gravity; 0)                                    (2)
    l_i = I_i a_i + v_i x* I_i v_i + X_{i+1}^T l_{i+1},   f_i = applied_i - s_i . l_i            (3)

M^-1 b (Featherstone, "Rigid Body Dynamics Algorithms", ch. 7, without velocities). From the tip
inwards, J_i the rotor inertia,

    A_i = I_i + X_{i+1}^T B_{i+1} X_{i+1},  U_i = A_i s_i,
    D_i = s_i . U_i + J_i,  B_i = A_i - U_i U_i^T / D_i                                        (4)
    p_i = X_{i+1}^T (p_{i+1} + U_{i+1} u_{i+1} / D_{i+1}),   u_i = b_i - s_i . p_i               (5)

and outwards, x the answer:

    a' = X_i a_{i-1},   x_i = (u_i - U_i . a') / D_i,   a_i = a' + s_i x_i                       (6)

The dense mass matrix (Walker, Orin): with the composite inertia C_i = I_i + X_{i+1}^T C_{i+1}
X_{i+1},

    M_ij = s_i . (X_{i+1}^T ... X_j^T C_j s_j) for i <= j,   plus J_i on the diagonal            (7)

in axes of the world, but still about the joints: then X_i is a shift by d_i = r_i - r_{i-1}, and
only constants of the links are turned. With mass m, first moment c and inertia J about the joint,

    c' = c + m d,   J' = J + (e . d) 1 - (e d^T + d e^T)/2,   e = 2 c + m d = c + c'             (9)

The momenta M v, for energies, without M:

    h_i = I_i v_i + X_{i+1}^T h_{i+1},   (M v)_i = s_i . h_i + J_i q_i'                          (8)

(2), (3) and (7) are written in vectors and blocks of three, since half of the entries of X_i and
I_i are zeros or repeat others.

The params of a chain as a `System` are a dict with the `Chain` under "chain" and, if there are
drives, the joint forces under "torque". `chain_system(n)` returns the faster system for n links:
`DENSE`, with (7) and a factorisation of M, for short chains, and `SYSTEM`, with (4)-(6) and (8),
for longer ones. Up to 6 links the factorisation is unrolled, and (7) takes less arithmetic than
(4)-(6); beyond, it calls LAPACK, the recursion is faster, and the ratio grows with
n^2 (`nsdyn bench` measures it).
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn._jitted import traced_once
from nsdyn._types import Matrix, Params, Scalar, Time, Velocity
from nsdyn.mechanics.system import System
from nsdyn.multibody.chain import Chain, Links, frames, joint, links, turned, twists
from nsdyn.numerics import small

SHORT = small.UNROLL_DEFINITE  # links up to which the dense mass matrix is faster


@traced_once
def bias(chain: Chain, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " n"]:
    """The joint forces that keep all accelerations zero: M v' = applied - bias."""

    def outwards(
        carry: tuple[Array, ...], link: tuple[Array, ...]
    ) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        u, w, a, b = carry  # the twist (u; w) and its rate (a; b)
        H, s, inertia, *joint_position, rate = link
        R, r = joint(H, *joint_position)
        su, sw = s[:3] * rate, s[3:] * rate
        u, w = _into(R, u + cross(w, r)) + su, _into(R, w) + sw
        a = _into(R, a + cross(b, r)) + cross(w, su) + cross(u, sw)  # (2)
        b = _into(R, b) + cross(w, sw)
        f, t = _momentum(inertia, a, b)
        own, spin = _momentum(inertia, u, w)
        wrench = (f + cross(w, own), t + cross(w, spin) + cross(u, own))
        return (u, w, a, b), (R, r, *wrench)

    base: tuple[Array, ...] = (jnp.zeros(3), jnp.zeros(3), -chain.gravity, jnp.zeros(3))
    rows = (chain.H, chain.s, chain.inertia, *turned(chain, q), v)
    found = jax.lax.scan(outwards, base, rows)[1]

    def inwards(
        carry: tuple[Array, Array], link: tuple[Array, ...]
    ) -> tuple[tuple[Array, Array], Array]:
        R, r, f, t, s = link
        f, t = carry[0] + f, carry[1] + t
        force = small.matvec(R, f)
        here = _product(s[:3], f) + _product(s[3:], t)
        return (force, small.matvec(R, t) + cross(r, force)), here  # (3)

    start = (jnp.zeros(3), jnp.zeros(3))
    return jax.lax.scan(inwards, start, (*found, chain.s), reverse=True)[1]


def cross(a: Float[Array, " 3"], b: Float[Array, "3 *columns"]) -> Float[Array, "3 *columns"]:
    """a x b, or a x each column of b."""
    return jnp.stack(
        [a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]]
    )


def _product(a: Float[Array, " 3"], b: Float[Array, "3 *columns"]) -> Float[Array, "*columns"]:
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def _into(R: Float[Array, "3 3"], x: Float[Array, " 3"]) -> Float[Array, " 3"]:
    """R^T x: a vector in the axes of the next link."""
    return small.matvec(R.T, x)


def _moments(inertia: Float[Array, "6 6"]) -> tuple[Array, Array, Array]:
    """Mass, first moment m c and inertia about the joint of I_i."""
    c = jnp.stack([inertia[5, 1], inertia[3, 2], inertia[4, 0]])
    return inertia[0, 0], c, inertia[3:, 3:]


def _momentum(inertia: Float[Array, "6 6"], u: Array, w: Array) -> tuple[Array, Array]:
    """I_i (u; w)."""
    m, c, J = _moments(inertia)
    return m * u - cross(c, w), cross(c, u) + small.matvec(J, w)


def solve_links(parts: Links, b: Float[Array, " n"]) -> Float[Array, " n"]:
    """M^-1 b."""

    def inwards(
        carry: tuple[Array, Array], link: tuple[Array, ...]
    ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
        A, p = carry
        X, s, inertia, rotor, b = link
        A = A + inertia
        U = A @ s
        D = s @ U + rotor
        u = b - s @ p
        B = A - U[:, None] * (U / D)[None, :]
        return (X.T @ B @ X, X.T @ (p + U * (u / D))), (U / D, u / D)  # (4), (5)

    def outwards(a: Array, link: tuple[Array, ...]) -> tuple[Array, Array]:
        X, s, U, u = link
        a = X @ a
        x = u - U @ a
        return a + s * x, x  # (6)

    start = (jnp.zeros((6, 6)), jnp.zeros(6))
    scaled = jax.lax.scan(inwards, start, (*parts, b), reverse=True)[1]
    return jax.lax.scan(outwards, jnp.zeros(6), (parts.X, parts.s, *scaled))[1]


def inverse_mass(chain: Chain, q: Float[Array, " n"], b: Float[Array, " n"]) -> Float[Array, " n"]:
    """M(q)^-1 b in O(N)."""
    return solve_links(links(chain, q), b)


def accelerations(
    chain: Chain,
    q: Float[Array, " n"],
    v: Float[Array, " n"],
    torque: Velocity | float,
) -> Float[Array, " n"]:
    """Forward dynamics: v' under the joint forces `torque`, in O(N)."""
    return inverse_mass(chain, q, torque - bias(chain, q, v))


@traced_once
def mass_matrix(chain: Chain, q: Float[Array, " n"]) -> Float[Array, "n n"]:
    """The dense M(q)."""
    n = chain.n

    def outwards(
        turn: Float[Array, "3 3"], link: tuple[Array, ...]
    ) -> tuple[Array, tuple[Array, ...]]:
        H, s, inertia, *joint_position = link
        R, r = joint(H, *joint_position)
        d, turn = small.matvec(turn, r), small.matmul(turn, R)
        m, c, J = _moments(inertia)
        J = small.matmul(small.matmul(turn, J), turn.T)
        u, w, c = (small.matvec(turn, x) for x in (s[:3], s[3:], c))
        return turn, (d, u, w, m, c, J)

    rows = (chain.H, chain.s, chain.inertia, *turned(chain, q))
    found = jax.lax.scan(outwards, jnp.eye(3), rows)[1]

    def inwards(
        carry: tuple[Array, ...], link: tuple[Array, ...]
    ) -> tuple[tuple[Array, ...], Array]:
        # Composite inertia and the wrenches of the columns j >= i, both about the joint of link i
        d, u, w, *own, here = link
        m, c, J = (x + y for x, y in zip(carry[:3], own, strict=True))
        f = jnp.where(here, (m * u - cross(c, w))[:, None], carry[3])
        t = jnp.where(here, (cross(c, u) + small.matvec(J, w))[:, None], carry[4])
        e = 2.0 * c + m * d
        both = e[:, None] * d[None, :]
        J = J + _product(e, d) * np.eye(3) - 0.5 * (both + both.T)  # (9)
        return (m, c + m * d, J, f, t + cross(d, f)), _product(u, f) + _product(w, t)

    shapes = (), (3,), (3, 3), (3, n), (3, n)
    start: tuple[Array, ...] = tuple(jnp.zeros(shape) for shape in shapes)
    columns: tuple[Array, ...] = (*found, jnp.eye(n, dtype=bool))
    M = jax.lax.scan(inwards, start, columns, reverse=True)[1]
    return M + jnp.triu(M, 1).T + jnp.diag(chain.rotor)  # (7); zero left of the diagonal


def momenta(chain: Chain, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " n"]:
    """M(q) v in O(N)."""
    parts = links(chain, q)
    own = jnp.einsum("nij,nj->ni", parts.inertia, twists(parts, v))

    def inwards(carried: Array, link: tuple[Array, ...]) -> tuple[Array, Array]:
        X, s, own = link
        whole = own + carried
        return X.T @ whole, s @ whole  # (8)

    links_only = jax.lax.scan(inwards, jnp.zeros(6), (parts.X, parts.s, own), reverse=True)[1]
    return links_only + parts.rotor * v


def height_energy(chain: Chain, q: Float[Array, " n"]) -> Scalar:
    """The potential energy of gravity."""
    own = jnp.concatenate([chain.moment, chain.mass[:, None]], axis=1)
    inwards = lambda outer, link: (link[0] @ (outer + link[1]), None)
    # The sum of (m r^C; m)
    moment, _ = jax.lax.scan(inwards, jnp.zeros(4), (frames(chain, q), own), reverse=True)
    return -jnp.sum(chain.gravity * moment[:3])


def mass(q: Float[Array, " n"], p: Params) -> Matrix:
    return mass_matrix(p["chain"], q)


def force(q: Float[Array, " n"], v: Float[Array, " n"], t: Time, p: Params) -> Float[Array, " n"]:
    return p.get("torque", 0.0) - bias(p["chain"], q, v)


def potential(q: Float[Array, " n"], p: Params) -> Scalar:
    return height_energy(p["chain"], q)


def solve(q: Float[Array, " n"], b: Float[Array, " n"], p: Params) -> Float[Array, " n"]:
    return inverse_mass(p["chain"], q, b)


def momentum(q: Float[Array, " n"], v: Float[Array, " n"], p: Params) -> Float[Array, " n"]:
    return momenta(p["chain"], q, v)


SYSTEM = System(mass=mass, force=force, potential=potential, solve=solve, momentum=momentum)
DENSE = System(mass=mass, force=force, potential=potential)


def chain_system(n: int) -> System:
    """The faster system for a chain of n links."""
    return DENSE if n <= SHORT else SYSTEM
