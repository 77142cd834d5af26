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

The momenta M v, for energies, without M:

    h_i = I_i v_i + X_{i+1}^T h_{i+1},   (M v)_i = s_i . h_i + J_i q_i'                          (8)

The params of a chain as a `System` are a dict with the `Chain` under "chain" and, if there are
drives, the joint forces under "torque". `chain_system(n)` returns the faster system for n links:
`DENSE`, with (7) and a factorisation of M, for short chains, and `SYSTEM`, with (4)-(6) and (8),
for longer ones. Up to 5 links the factorisation is unrolled and the difference is small; from 6
links on it calls LAPACK, the recursion is faster, and the ratio grows with n^2 (`nsdyn bench`
measures it).
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nsdyn._types import Matrix, Params, Scalar, Time, Velocity
from nsdyn.mechanics.system import System
from nsdyn.multibody.chain import CROSS, Chain, Links, frames, links, twists
from nsdyn.numerics import small

SHORT = small.UNROLL  # links up to which the dense mass matrix is faster


def bias(chain: Chain, q: Float[Array, " n"], v: Float[Array, " n"]) -> Float[Array, " n"]:
    """The joint forces that keep all accelerations zero: M v' = applied - bias."""
    parts = links(chain, q)

    def outwards(
        carry: tuple[Array, Array], link: tuple[Array, ...]
    ) -> tuple[tuple[Array, Array], Array]:
        twist, a = carry
        X, s, inertia, rate = link
        twist = X @ twist + s * rate
        cross = CROSS @ twist  # (1)
        a = X @ a + cross @ (s * rate)  # (2)
        return (twist, a), inertia @ a - cross.T @ (inertia @ twist)

    base = (jnp.zeros(6), jnp.concatenate([-chain.gravity, jnp.zeros(3)]))
    wrench = jax.lax.scan(outwards, base, (parts.X, parts.s, parts.inertia, v))[1]

    def inwards(carried: Array, link: tuple[Array, ...]) -> tuple[Array, Array]:
        X, s, own = link
        whole = own + carried
        return X.T @ whole, s @ whole  # (3)

    return jax.lax.scan(inwards, jnp.zeros(6), (parts.X, parts.s, wrench), reverse=True)[1]


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


def mass_matrix(chain: Chain, q: Float[Array, " n"]) -> Float[Array, "n n"]:
    """The dense M(q)."""
    parts = links(chain, q)
    n = chain.n

    def inwards(
        carry: tuple[Array, Array], link: tuple[Array, ...]
    ) -> tuple[tuple[Array, Array], Array]:
        # Composite inertia and the wrenches of the columns j > i, both about the joint of link i
        C, F = carry
        X, s, inertia, i = link
        C = C + inertia
        F = F.at[:, i].set(C @ s)
        return (X.T @ C @ X, X.T @ F), s @ F

    start = (jnp.zeros((6, 6)), jnp.zeros((6, n)))
    rows = (parts.X, parts.s, parts.inertia, jnp.arange(n))
    M = jax.lax.scan(inwards, start, rows, reverse=True)[1]  # (7); zero left of the diagonal
    return M + jnp.triu(M, 1).T + jnp.diag(parts.rotor)


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
