"""Pile of spheres: n spheres that fall into a heap, layer upon layer, and lie there.

Free bodies (`nsdyn.multibody.free_bodies`) of radius R and mass m, in the places of a pyramid whose
layers are triangles: 1, 4, 10, 20 spheres make whole pyramids. Each layer starts above the one
below it, or above the floor, by `gap` of a diameter more than it has to; the spheres fall and
settle without bouncing. As for a heap of cannonballs, a rim of three walls, `rim` of a diameter
away, holds the lowest layer: on a flat floor alone 20 spheres roll apart. Contacts are those of the
lowest layer with the floor, of its edges with the rim, and of neighbours in the pyramid with each
other; so a heap must not fall apart.

Without a rim a sphere that carries another stays if friction is enough: forces at its two contacts,
whose lines make an angle alpha with the vertical and pass through it, need

    mu >= tan(alpha/2),   sin(alpha) = 1/sqrt(3) in this pyramid: mu >= 0.318                    (1)

Four spheres stay without a rim. Twenty come to rest behind the rim, in their layers, within 0.15 s
with steps of 2 ms. What is left after three seconds are velocities below 1e-7, which grow slowly:
nothing resists rolling and spinning.

All numbers are assumed.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import nsdyn
from nsdyn._types import Configuration, Number, Params, Scalar
from nsdyn.multibody import free_bodies, outlines, surfaces

ABOUT = nsdyn.About(tags=("contact", "friction", "spatial"), source="own")

NEAR = 1.01  # neighbours in the pyramid, in diameters
HALF, HIGH = 0.5, float(np.sqrt(0.75))
INWARDS = ((0.0, 1.0, 0.0), (HIGH, -HALF, 0.0), (-HIGH, -HALF, 0.0))  # normals of the rim


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
    lowest = places[places[:, 2] < 0.5]
    return places - np.append(np.mean(lowest[:, :2], axis=0), 0.0)


def radius(p: Params) -> Scalar:
    return p["R"]


def friction(p: Params) -> Scalar:
    return p["mu"]


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """The spheres, and the floor within the rim."""
    count = q.shape[0] // 7
    balls = [outlines.placed(q, i, outlines.ball(), p["R"]) for i in range(count)]
    turned = 2 * np.pi / 3 * np.arange(4) - np.pi / 2
    corners = np.stack([np.sin(turned), -np.cos(turned), 0 * turned], axis=1)
    far = 2 * (_farthest(count) + 0.5 + p["rim"]) * 2 * p["R"]
    return *(line for ball in balls for line in ball), far * jnp.asarray(corners)


def _farthest(n: int) -> float:
    """How far the lowest layer reaches towards each wall of the rim, in diameters."""
    return float(np.max(pyramid(n) @ -np.array(INWARDS).T))


class ToTheRim(eqx.Module):
    """The place of a wall, along its normal; `reach` in diameters."""

    reach: float = eqx.field(static=True)

    def __call__(self, p: Params) -> Scalar:
        return -2 * p["R"] * (self.reach + 0.5 + p["rim"])


def _rim(n: int) -> list:
    """The edges of the lowest layer with the walls along them."""
    places = pyramid(n)
    reach = _farthest(n)
    found = []
    for normal in INWARDS:
        wall = surfaces.Plane(normal=normal, offset=ToTheRim(reach))
        along = -places @ np.array(normal) > reach - 0.1
        edge = np.flatnonzero(along & (places[:, 2] < 0.5))
        found += [(surfaces.Ball(int(i), radius), wall) for i in edge]
    return found


def neighbours(n: int, has_rim: bool) -> surfaces.Contacts:
    """The contacts: the lowest layer with the floor, its edges with the rim, and pairs."""
    places = pyramid(n)
    lowest = [i for i in range(n) if places[i, 2] < 0.5]
    floor = [(surfaces.Ball(i, radius), surfaces.Plane()) for i in lowest]
    floor += _rim(n) if has_rim else []
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
    rim: Number | None = 0.01,
    t_end: float = 1.0,
) -> nsdyn.Problem:
    """n spheres fall into a heap; run it with MoreauJean. `rim` is None for a floor without one.
    params: m, J, g, R, mu, rim."""
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
        "rim": jnp.asarray(0.0 if rim is None else rim, float),
    }
    return nsdyn.Problem(
        "sphere_pile",
        free_bodies.SYSTEM,
        neighbours(n, rim is not None),
        q0=jnp.concatenate([places, upright], axis=1).ravel(),
        v0=jnp.zeros(6 * n),
        t_end=t_end,
        params=params,
        coordinates=coordinates(n),
        shape=shape,
    )
