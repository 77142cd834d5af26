"""Free rigid bodies in space: their motion, and where their points are.

Each body has a position x of its centre of mass, a unit quaternion a from its principal axes to the
world, and the velocities x' and w, the angular velocity in its own axes:

    m x'' = m g,   J w' = -w x J w,   a' = a o (0, w)/2                                          (1)

A finite motion (d, phi) leads to

    x + d,   a o (cos(|phi|/2), sin(|phi|/2) phi/|phi|), brought to length 1                     (2)

so quaternions keep their length in implicit and time-stepping schemes. Event-driven runs return to
length 1 after each step; the direction of a follows (1) whatever its length. Rotations are those of
a/|a|. params: "m" (n,) masses, "J" (n, 3) principal moments of inertia, "g" (3,) gravity.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn._types import AnyTime, Configuration, Matrix, Params, Scalar, Velocity
from nsdyn.mechanics.system import System
from nsdyn.multibody.tree import SPIN, rotation

NEAR = 1e-8  # squared angle up to which (2) is a series


def bodies_of(q: Configuration) -> tuple[Float[Array, "n 3"], Float[Array, "n 4"]]:
    """Positions and quaternions of all bodies."""
    each = q.reshape(-1, 7)
    return each[:, :3], each[:, 3:]


def rates_of(v: Velocity) -> tuple[Float[Array, "n 3"], Float[Array, "n 3"]]:
    """Velocities and angular velocities of all bodies."""
    each = v.reshape(-1, 6)
    return each[:, :3], each[:, 3:]


def configuration(
    positions: Float[Array, "n 3"], quaternions: Float[Array, "n 4"] | None = None
) -> np.ndarray:
    """q of bodies at these places; not turned if no quaternions are given."""
    x = np.atleast_2d(np.asarray(positions, float))
    upright = np.tile([1.0, 0.0, 0.0, 0.0], (len(x), 1))
    a = upright if quaternions is None else np.atleast_2d(np.asarray(quaternions, float))
    return np.concatenate([x, a], axis=1).ravel()


def rotations(q: Configuration) -> Float[Array, "n 3 3"]:
    """From body axes to the world."""
    return jax.vmap(rotation)(bodies_of(q)[1])


def places(
    q: Configuration, body: np.ndarray, at: Float[np.ndarray, "k 3"]
) -> tuple[Float[Array, "k 3"], Float[Array, "k 3"]]:
    """Where the points `at` of the bodies are, and the arms to them from the centres of mass."""
    centres = bodies_of(q)[0][body]
    if not np.any(at):
        return centres, jnp.zeros(at.shape)
    arms = jnp.einsum("kij,kj->ki", rotations(q)[body], at)
    return centres + arms, arms


def spins(q: Configuration, v: Velocity) -> Float[Array, "n 3"]:
    """Angular velocities in the world."""
    return jnp.einsum("nij,nj->ni", rotations(q), rates_of(v)[1])


def velocities(
    v: Velocity, spins: Float[Array, "n 3"], body: np.ndarray, arms: Float[Array, "k 3"]
) -> Float[Array, "k 3"]:
    """Velocities, in the world, of points of bodies that have these `spins`; arms are those from
    the centres of mass."""
    return rates_of(v)[0][body] + jnp.cross(spins[body], arms)


def _masses(p: Params) -> Velocity:
    m = jnp.asarray(p["m"])[:, None]
    return jnp.concatenate([jnp.repeat(m, 3, axis=1), jnp.asarray(p["J"])], axis=1).ravel()


def mass(q: Configuration, p: Params) -> Matrix:
    return jnp.diag(_masses(p))


def solve(q: Configuration, b: Array, p: Params) -> Array:
    """M^-1 b."""
    masses = _masses(p)
    return b / (masses if b.ndim == 1 else masses[:, None])


def momentum(q: Configuration, v: Velocity, p: Params) -> Velocity:
    return _masses(p) * v


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    """Weight and gyroscopic moments, (1)."""
    _, w = rates_of(v)
    J = jnp.asarray(p["J"])
    weight = jnp.asarray(p["m"])[:, None] * jnp.asarray(p["g"])[None, :]
    return jnp.concatenate([weight, -jnp.cross(w, J * w)], axis=1).ravel()


def potential(q: Configuration, p: Params) -> Scalar:
    x, _ = bodies_of(q)
    return -jnp.sum(jnp.asarray(p["m"])[:, None] * x * jnp.asarray(p["g"])[None, :])


def kinematics(q: Configuration, v: Velocity, p: Params) -> Configuration:
    """q' of (1)."""
    _, a = bodies_of(q)
    x, w = rates_of(v)
    turning = 0.5 * jnp.einsum("ijk,nk,nj->ni", SPIN, w, a)
    return jnp.concatenate([x, turning], axis=1).ravel()


def retract(q: Configuration, dx: Velocity, p: Params) -> Configuration:
    """(2)"""
    x, a = bodies_of(q)
    d, phi = rates_of(dx)
    square = jnp.sum(phi * phi, axis=1, keepdims=True)
    some = square > NEAR
    angle = jnp.sqrt(jnp.where(some, square, NEAR))
    cosine = jnp.where(some, jnp.cos(angle / 2), 1.0 - square / 8)
    share = jnp.where(some, jnp.sin(angle / 2) / angle, 0.5 - square / 48)
    turned = cosine * a + share * jnp.einsum("ijk,nk,nj->ni", SPIN, phi, a)
    turned = turned / jnp.sqrt(jnp.sum(turned * turned, axis=1, keepdims=True))
    return jnp.concatenate([x + d, turned], axis=1).ravel()


SYSTEM = System(
    mass=mass,
    force=force,
    potential=potential,
    solve=solve,
    momentum=momentum,
    kinematics=kinematics,
    retract=retract,
)
