"""Pile of spheres: n spheres that fall into a heap, layer upon layer, and lie there.

Free bodies (`nsdyn.multibody.free_bodies`) of radius R and mass m, in the places of a pyramid whose
layers are triangles: 1, 4, 10, 20 spheres make whole pyramids. Each layer starts above the one
below it, or above the floor, by `gap` of a diameter more than it has to; the spheres fall and
settle without bouncing. Only neighbours of the pyramid, and the lowest layer with the floor, are
contacts. So a heap must not fall apart: four spheres stay, but the lowest layer of 20 rolls apart
on a flat floor, without a rim, at the default mu.

A sphere that carries another on a flat floor stays if friction does: forces at its two contacts,
whose lines make an angle alpha with the vertical and pass through it, need

    mu >= tan(alpha/2),   sin(alpha) = 1/sqrt(3) in this pyramid: mu >= 0.318                    (1)

All numbers are assumed.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import nsdyn
from nsdyn._types import Configuration, Number, Params, Scalar
from nsdyn.multibody import free_bodies, outlines, surfaces

ABOUT = nsdyn.About(tags=("contact", "friction", "spatial"), source="own")

NEAR = 1.01  # neighbours in the pyramid, in diameters


def pyramid(n: int) -> Float[np.ndarray, "n 3"]:
    """The places of n spheres of diameter 1, the lowest layers first."""
    edge = 1
    while edge * (edge + 1) * (edge + 2) // 6 < n:
        edge += 1
    found = []
    for layer in range(edge):
        side = edge - layer
        start = layer * np.array([0.5, 0.5 / np.sqrt(3), np.sqrt(2 / 3)])
        for row in range(side):
            across = row * np.array([0.5, np.sqrt(3) / 2, 0.0])
            found += [start + across + np.array([i, 0.0, 0.0]) for i in range(side - row)]
    places = np.array(found[:n])
    return places - np.append(np.mean(places[:, :2], axis=0), 0.0)


def radius(p: Params) -> Scalar:
    return p["R"]


def friction(p: Params) -> Scalar:
    return p["mu"]


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """The spheres, and the floor."""
    count = q.shape[0] // 7
    balls = [outlines.placed(q, i, outlines.ball(), p["R"]) for i in range(count)]
    wide = (1 + jnp.ceil(jnp.cbrt(6.0 * count))) * p["R"]
    floor = jnp.array([[-1.0, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0], [-1, -1, 0]])
    return *(line for ball in balls for line in ball), wide * floor


def neighbours(n: int) -> surfaces.Contacts:
    """The contacts of the pyramid: each sphere of the lowest layer with the floor, and pairs."""
    places = pyramid(n)
    lowest = [i for i in range(n) if places[i, 2] < 0.5]
    floor = [(surfaces.Ball(i, radius), surfaces.Plane()) for i in lowest]
    distance = np.linalg.norm(places[:, None] - places[None], axis=2)
    near = [(i, j) for i in range(n) for j in range(i) if distance[i, j] < NEAR]
    between = [(surfaces.Ball(i, radius), surfaces.Ball(j, radius)) for i, j in near]
    return surfaces.contacts([*floor, *between], mu=friction)


def coordinates(n: int) -> tuple[str, ...]:
    each = ("x{} [m]", "y{} [m]", "z{} [m]", "a{}_0", "a{}_1", "a{}_2", "a{}_3")
    return tuple(name.format(i) for i in range(n) for name in each)


def sphere_pile(
    n: int = 4,
    gap: Number = 0.02,
    mu: Number = 0.6,
    R: Number = 0.05,
    m: Number = 0.1,
    t_end: float = 1.0,
) -> nsdyn.Problem:
    """n spheres fall into a heap; run it with MoreauJean. params: m, J, g, R, mu."""
    if n < 1:
        raise nsdyn.ProblemError(f"sphere_pile(n=...): expected at least 1 sphere, found {n}")
    size = jnp.asarray(R, float)
    weight = jnp.asarray(m, float)
    packed = pyramid(n)
    layers = np.round(packed[:, 2] / np.sqrt(2 / 3))
    raised = 0.5 + jnp.asarray(packed[:, 2]) + jnp.asarray(gap, float) * (1 + layers)
    places = 2 * size * jnp.concatenate([jnp.asarray(packed[:, :2]), raised[:, None]], axis=1)
    upright = jnp.tile(jnp.array([1.0, 0.0, 0.0, 0.0]), (n, 1))
    params = {
        "m": jnp.broadcast_to(weight, (n,)),
        "J": jnp.broadcast_to(0.4 * weight * size**2, (n, 3)),
        "g": jnp.array([0.0, 0.0, -9.81]),
        "R": size,
        "mu": jnp.asarray(mu, float),
    }
    return nsdyn.Problem(
        "sphere_pile",
        free_bodies.SYSTEM,
        neighbours(n),
        q0=jnp.concatenate([places, upright], axis=1).ravel(),
        v0=jnp.zeros(6 * n),
        t_end=t_end,
        params=params,
        coordinates=coordinates(n),
        shape=shape,
    )
