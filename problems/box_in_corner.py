"""Box in a corner: a box that slides into the corner of a room and stays there.

A free body (`nsdyn.multibody.free_bodies`), a uniform box with the half lengths (0.15, 0.1, 0.05)
m. Its four lower corners may touch the floor, and of its corners towards each of two walls four may
touch that wall: twelve contacts, where three would hold it. It starts on the floor, turned by a few
degrees about the vertical, and slides towards the corner. All numbers are assumed.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import nsdyn
from nsdyn._types import Configuration, Number, Params, Scalar
from nsdyn.multibody import free_bodies, outlines, surfaces

ABOUT = nsdyn.About(tags=("contact", "friction", "impact", "spatial"), source="own")

HALF = (0.15, 0.1, 0.05)
WALLS = (
    surfaces.Plane(normal=(0.0, 0.0, 1.0)),
    surfaces.Plane(normal=(1.0, 0.0, 0.0)),
    surfaces.Plane(normal=(0.0, 1.0, 0.0)),
)


def friction(p: Params) -> Scalar:
    return p["mu"]


def restitution(p: Params) -> Scalar:
    return p["e"]


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """The box, and the edges of the room."""
    ends = np.diag([0.8, 0.6, 0.3])
    edges = [jnp.asarray(np.stack([np.zeros(3), end])) for end in ends]
    return *outlines.placed(q, 0, outlines.box(), jnp.array(HALF)[None]), *edges


def pairs() -> list:
    """Corners and the plane that they may touch."""
    found = []
    for plane, axis in zip(WALLS, (2, 0, 1), strict=True):
        towards = [c for c in surfaces.box(0, HALF) if c.at[axis] < 0]
        found += [(corner, plane) for corner in towards]
    return found


ROOM = surfaces.contacts(pairs(), mu=friction, e=restitution)
COORDINATES = ("x [m]", "y [m]", "z [m]", "a0", "a1", "a2", "a3")


def box_in_corner(
    v: tuple[float, float] = (-2.0, -1.5),
    turn: Number = 0.1,
    mu: Number = 0.3,
    e: Number = 0.2,
    m: Number = 1.0,
    t_end: float = 1.0,
) -> nsdyn.Problem:
    """A box slides into the corner of a room; v is its velocity and `turn` its angle at the start.
    params: m, J, g, mu, e."""
    weight = jnp.asarray(m, float)
    square = jnp.array(HALF) ** 2
    half = jnp.asarray(turn, float) / 2
    params = {
        "m": weight[None],
        "J": (weight / 3 * (jnp.sum(square) - square))[None],
        "g": jnp.array([0.0, 0.0, -9.81]),
        "mu": jnp.asarray(mu, float),
        "e": jnp.asarray(e, float),
    }
    turned = jnp.stack([jnp.cos(half), jnp.zeros(()), jnp.zeros(()), jnp.sin(half)])
    return nsdyn.Problem(
        "box_in_corner",
        free_bodies.SYSTEM,
        ROOM,
        q0=jnp.concatenate([jnp.array([0.6, 0.45, HALF[2]]), turned]),
        v0=jnp.zeros(6).at[:2].set(jnp.asarray(v, float)),
        t_end=t_end,
        params=params,
        coordinates=COORDINATES,
        shape=shape,
    )
