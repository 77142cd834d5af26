"""Dynamics of a tree of bodies: the recursions of `nsdyn.multibody.chain_dynamics` with a parent
for each body instead of a predecessor.

Twists, X_i, S_i as in `nsdyn.multibody.tree`; p is the parent of body i, and sums run over the
children c. Each recursion is one loop over the bodies, whatever the joints. Forces, with the twist
j_i = S_i v = (u; w) of the joint itself:

    v_i = X_i v_p + j_i                                                                        (1)
    a_i = X_i a_p + v_i x j_i + (-w x u; 0),   a_world = (-gravity; 0)                         (2)
    l_i = I_i a_i + v_i x* I_i v_i + sum X_c^T l_c,   bias = S_i^T l_i                         (3)
    f = applied - damping v - stiffness (q - rest) - bias                                      (4)

The momenta M v, and at the world the linear momentum and the angular momentum about its origin:

    h_i = I_i v_i + sum X_c^T h_c,   (M v)_i = S_i^T h_i + rotor v                             (5)

The mass matrix consists of the momenta of unit velocities.

M^-1 b by articulated bodies. A joint with k velocities is taken as k joints with one each, between
bodies of no mass and size: rows l with X_l = X_i for the first and 1 for the others, I_l = I_i for
the last and 0 for the others, s_l a column of S_i. Then (4) to (6) of the chain hold for the rows:

    A_l = I_l + sum X_c^T B_c X_c,  U_l = A_l s_l,  D_l = s_l . U_l + rotor_l,
    B_l = A_l - U_l U_l^T / D_l                                                                (6)
    p_l = sum X_c^T (p_c + U_c u_c / D_c),   u_l = b_l - s_l . p_l                             (7)
    a' = X_l a_p,   x_l = (u_l - U_l . a') / D_l,   a_l = a' + s_l x_l                         (8)

The params of a tree as a `System` are a dict with the `Tree` under "tree" and, if there are drives,
their forces under "torque", one for each velocity. `tree_system(tree)` returns the system: with a
factorisation of M for few velocities, with (6)-(8) for more.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn._types import (
    AnyConfiguration,
    AnyVelocity,
    Configuration,
    Matrix,
    Params,
    Scalar,
    Time,
    Velocity,
)
from nsdyn.mechanics.system import System
from nsdyn.multibody.chain import CROSS, EPSILON, SKEW
from nsdyn.multibody.tree import Layout, Tree, frames, joints, kinematics
from nsdyn.numerics import small

SHORT = small.UNROLL  # velocities up to which the dense mass matrix is faster


# X = ROTATED R + MOVED R^T (r x), by one product with constants each, which compiles to little
ROTATED = np.zeros((6, 6, 3, 3))
MOVED = np.zeros((6, 6, 3, 3))
for i, j in np.ndindex(3, 3):
    ROTATED[j, i, i, j] = ROTATED[3 + j, 3 + i, i, j] = 1.0
    MOVED[i, 3 + j, i, j] = -1.0
# (-w x u; 0) for the twist (u; w), as a bilinear form
TURNING = np.zeros((6, 6, 6))
TURNING[:3, 3:, :3] = -EPSILON


class Spatial(NamedTuple):
    """The data of the recursions: X_i and I_i of each body, the columns of S."""

    X: Float[Array, "N 6 6"]
    inertia: Float[Array, "N 6 6"]
    S: Float[Array, "nv 6"]


def spatial(tree: Tree, q: Configuration) -> Spatial:
    moved = joints(tree, q)
    shifted = jnp.einsum("nki,klm,nm->nil", moved.R, SKEW, moved.r)  # R^T (r x)
    X = jnp.einsum("abij,nij->nab", ROTATED, moved.R)
    X += jnp.einsum("abij,nij->nab", MOVED, shifted)
    return Spatial(X, tree.inertia, moved.S)


# One loop over the bodies, from the world outwards or from the leaves inwards.


def _outwards(step: Callable, world: Array, parents: np.ndarray, xs: Any) -> Any:
    """step(value of the parent, x) gives the value of a body and its result; returns the
    results."""
    n = len(parents)

    def one(found: Array, link: tuple) -> tuple[Array, Any]:
        i, parent, x = link
        value, result = step(_at(found, parent), x)
        return jax.lax.dynamic_update_index_in_dim(found, value, i, 0), result

    start = jnp.concatenate([jnp.zeros((n, *world.shape)), world[None]])
    order = (np.arange(n), parents, xs)
    return jax.lax.scan(one, start, order)[1]


def _inwards(step: Callable, shape: tuple, parents: np.ndarray, xs: Any) -> tuple[Array, Any]:
    """step(sum over the children, x) gives what a body passes to its parent, and its result.
    Returns the sum at the world and the results."""
    n = len(parents)

    def one(sums: Array, link: tuple) -> tuple[Array, Any]:
        i, parent, x = link
        passed, result = step(_at(sums, i), x)
        total = _at(sums, parent) + passed
        return jax.lax.dynamic_update_index_in_dim(sums, total, parent, 0), result

    order = (np.arange(n), parents, xs)
    sums, results = jax.lax.scan(one, jnp.zeros((n + 1, *shape)), order, reverse=True)
    return sums[n], results


def _at(a: Array, i: Array) -> Array:
    """a[i]. The barrier keeps the compiler from joining it with the update of another entry, for
    which it would copy the whole array in every turn of the loop."""
    return jax.lax.optimization_barrier(jax.lax.dynamic_index_in_dim(a, i, 0, keepdims=False))


def joint_twists(layout: Layout, S: Float[Array, "nv 6"], v: Velocity) -> Float[Array, "N 6"]:
    """S_i v of each body."""
    columns = S * v[:, None]
    if layout.padded.shape[1] == 1:
        return columns
    filled = jnp.concatenate([columns, jnp.zeros((1, 6))])
    return jnp.sum(filled[layout.padded], axis=1)


def twists(tree: Tree, parts: Spatial, v: Velocity) -> Float[Array, "N 6"]:
    """v_i of each body, about its joint and in its axes."""
    own = joint_twists(tree.layout, parts.S, v)

    def outwards(twist: Array, x: tuple[Array, Array]) -> tuple[Array, Array]:
        twist = x[0] @ twist + x[1]  # (1)
        return twist, twist

    return _outwards(outwards, jnp.zeros(6), tree.layout.parents, (parts.X, own))


def bias(tree: Tree, q: Configuration, v: Velocity) -> Velocity:
    """The joint forces that keep all accelerations zero, without springs and dampers."""
    parts = spatial(tree, q)
    layout = tree.layout
    own = joint_twists(layout, parts.S, v)
    turning = jnp.einsum("aij,ni,nj->na", TURNING, own, own)

    def outwards(parent: Array, x: tuple[Array, ...]) -> tuple[Array, Array]:
        X, inertia, j, turning = x
        both = X @ parent
        twist = both[:, 0] + j  # (1)
        cross = CROSS @ twist
        a = both[:, 1] + cross @ j + turning  # (2)
        wrench = inertia @ a - cross.T @ (inertia @ twist)
        return jnp.stack([twist, a], axis=1), wrench

    falling = jnp.concatenate([-tree.gravity, jnp.zeros(3)])
    world = jnp.stack([jnp.zeros(6), falling], axis=1)
    xs = (parts.X, parts.inertia, own, turning)
    return _along(tree, parts, _outwards(outwards, world, layout.parents, xs))[1]  # (3)


def _along(
    tree: Tree, parts: Spatial, wrench: Float[Array, "N 6"]
) -> tuple[Float[Array, " 6"], Velocity]:
    """The sum of the wrenches of all bodies at the world, and along each joint the sum of those
    beyond it."""
    layout = tree.layout

    def inwards(carried: Array, x: tuple[Array, Array]) -> tuple[Array, Array]:
        whole = carried + x[1]
        return x[0].T @ whole, whole

    world, whole = _inwards(inwards, (6,), layout.parents, (parts.X, wrench))
    return world, jnp.sum(parts.S * whole[layout.owner], axis=1)


def _momenta(tree: Tree, parts: Spatial, v: Velocity) -> tuple[Float[Array, " 6"], Velocity]:
    """The momentum of the whole tree at the world, and M v without the rotors."""
    own = jnp.einsum("nij,nj->ni", parts.inertia, twists(tree, parts, v))
    return _along(tree, parts, own)  # (5)


def momenta(tree: Tree, q: Configuration, v: Velocity) -> Velocity:
    """M(q) v in O(N)."""
    return _momenta(tree, spatial(tree, q), v)[1] + tree.rotor * v


def world_momentum(tree: Tree, q: AnyConfiguration, v: AnyVelocity) -> Float[Array, " 6"]:
    """The linear momentum of the bodies, and their angular momentum about the origin of the
    world."""
    return _momenta(tree, spatial(tree, jnp.asarray(q)), jnp.asarray(v))[0]


def mass_matrix(tree: Tree, q: Configuration) -> Matrix:
    """The dense M(q)."""
    parts = spatial(tree, q)
    columns = jax.vmap(lambda v: _momenta(tree, parts, v)[1])(jnp.eye(tree.nv))
    return 0.5 * (columns + columns.T) + jnp.diag(tree.rotor)


def _row_order(tree: Tree) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The parent of each row of (6), and whether it is the first and the last of its joint."""
    slices = tree.layout.v_slices
    ends = np.array([s.stop - 1 for s in slices] + [tree.nv])  # the world comes after all rows
    parents = np.arange(tree.nv) - 1
    first = np.zeros(tree.nv, bool)
    last = np.zeros(tree.nv, bool)
    for s, parent in zip(slices, tree.layout.parents, strict=True):
        parents[s.start] = ends[parent]
        first[s.start] = True
        last[s.stop - 1] = True
    return parents, first, last


def inverse_mass(tree: Tree, q: Configuration, b: Velocity) -> Velocity:
    """M(q)^-1 b in O(N)."""
    parts = spatial(tree, q)
    owner = tree.layout.owner
    parents, first, last = _row_order(tree)
    X = jnp.where(first[:, None, None], parts.X[owner], jnp.eye(6)[None])
    inertia = jnp.where(last[:, None, None], parts.inertia[owner], 0.0)

    def inwards(carried: Array, x: tuple[Array, ...]) -> tuple[Array, tuple[Array, Array]]:
        X, s, inertia, rotor, b = x
        A, p = carried[:, :6] + inertia, carried[:, 6]
        U = A @ s
        D = s @ U + rotor
        u = (b - s @ p) / D
        B = A - U[:, None] * (U / D)[None, :]
        passed = jnp.concatenate([B @ X, (p + U * u)[:, None]], axis=1)
        return X.T @ passed, (U / D, u)  # (6), (7)

    scaled = _inwards(inwards, (6, 7), parents, (X, parts.S, inertia, tree.rotor, b))[1]

    def outwards(a: Array, x: tuple[Array, ...]) -> tuple[Array, Array]:
        X, s, U, u = x
        a = X @ a
        rate = u - U @ a
        return a + s * rate, rate  # (8)

    return _outwards(outwards, jnp.zeros(6), parents, (X, parts.S, *scaled))


def deflection(tree: Tree, q: Configuration) -> Velocity:
    """q - rest for each velocity that is the rate of a coordinate, else 0."""
    at = tree.layout.coordinate
    return jnp.where(at >= 0, q[at] - tree.rest, 0.0)


def joint_forces(tree: Tree, q: Configuration, v: Velocity) -> Velocity:
    """f without drives."""
    springs = tree.stiffness * deflection(tree, q)
    return -tree.damping * v - springs - bias(tree, q, v)  # (4)


def accelerations(
    tree: Tree, q: Configuration, v: Velocity, torque: Velocity | float = 0.0
) -> Velocity:
    """Forward dynamics in O(N)."""
    return inverse_mass(tree, q, torque + joint_forces(tree, q, v))


def potential_energy(tree: Tree, q: Configuration) -> Scalar:
    """The potential energy of gravity and springs."""
    own = jnp.concatenate([tree.moment, tree.mass[:, None]], axis=1)

    def inwards(outer: Array, x: tuple[Array, Array]) -> tuple[Array, None]:
        return x[0] @ (outer + x[1]), None

    layout = tree.layout
    xs = (frames(tree, q), own)
    moment, _ = _inwards(inwards, (4,), layout.parents, xs)  # the sum of (m r^C; m)
    springs = 0.5 * jnp.sum(tree.stiffness * deflection(tree, q) ** 2)
    return springs - jnp.sum(tree.gravity * moment[:3])


# As a `System`.


def mass(q: Configuration, p: Params) -> Matrix:
    return mass_matrix(p["tree"], q)


def force(q: Configuration, v: Velocity, t: Time, p: Params) -> Velocity:
    return p.get("torque", 0.0) + joint_forces(p["tree"], q, v)


def potential(q: Configuration, p: Params) -> Scalar:
    return potential_energy(p["tree"], q)


def solve(q: Configuration, b: Velocity, p: Params) -> Velocity:
    return inverse_mass(p["tree"], q, b)


def momentum(q: Configuration, v: Velocity, p: Params) -> Velocity:
    return momenta(p["tree"], q, v)


def rate(q: Configuration, v: Velocity, p: Params) -> Configuration:
    return kinematics(p["tree"], q, v)


class Driven(eqx.Module):
    """The force with drives added."""

    motor: Callable = eqx.field(static=True)

    def __call__(self, q: Configuration, v: Velocity, t: Time, p: Params) -> Velocity:
        return self.motor(q, v, t, p) + force(q, v, t, p)


def tree_system(tree: Tree, motor: Callable | None = None) -> System:
    """The faster system for a tree of this size.

    motor: motor(q, v, t, p) -> one force for each velocity, added to all others.
    """
    large = tree.nv > SHORT
    return System(
        mass=mass,
        force=force if motor is None else Driven(motor),
        potential=potential,
        solve=solve if large else None,
        momentum=momentum if large else None,
        kinematics=rate if tree.layout.has_quaternions else None,
    )
