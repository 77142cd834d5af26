"""Outlines of free bodies for films: lines in body axes, and where they are.

`Problem(shape=...)` wants polylines in the world. A ball is drawn as great circles, which turn with
it, so that one sees it roll; a box as its edges.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn._types import Configuration, Number
from nsdyn.multibody import free_bodies

Lines = tuple[np.ndarray, ...]


def ring(points: int = 25) -> Float[np.ndarray, "k 3"]:
    """A circle of radius 1 about the third axis."""
    angle = np.linspace(0, 2 * np.pi, points)
    return np.stack([np.cos(angle), np.sin(angle), np.zeros(points)], axis=1)


def ball() -> Lines:
    """Great circles of a ball of radius 1."""
    circle = ring()
    return circle, circle[:, [2, 0, 1]], circle[:, [1, 2, 0]]


def box() -> Lines:
    """The edges of a box with the half lengths 1: two faces, and what joins them."""
    face = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]], float)
    at = lambda z: np.column_stack([face, np.full(5, z)])
    posts = [np.stack([at(-1.0)[i], at(1.0)[i]]) for i in range(4)]
    return at(-1.0), at(1.0), *posts


def placed(
    q: Configuration, body: int, lines: Sequence[np.ndarray], size: Number | Array = 1.0
) -> tuple[Array, ...]:
    """Lines of a body, stretched by `size` (a number, or one for each body axis), in the world."""
    x = free_bodies.bodies_of(q)[0][body]
    R = free_bodies.rotations(q)[body]
    stretch = jnp.broadcast_to(jnp.asarray(size, float), (1, 3))
    return tuple(x[None] + (jnp.asarray(line) * stretch) @ R.T for line in lines)
