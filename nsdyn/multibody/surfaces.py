"""Distances between balls and planes on free bodies, and the slip between them, for `Contacts`.

A ball is a point c of a body with a radius R; R = 0 is a corner. With the plane through o with the
unit normal n, or with another ball,

    gap = n.(c - o) - s - R,   s the distance of the plane from o                                (1)
    gap = |c_a - c_b| - R_a - R_b,   n = (c_a - c_b)/|c_a - c_b|                                 (2)

The points that touch are c - R n of the ball and, in (2), c_b + R_b n of the other. Their relative
velocity s has the two components of slip along directions e_1, e_2 that complete n to a basis. With
spin friction (Coulomb-Contensou, Leine and Glocker 2003) there is a third, rho n.w of the relative
angular velocity w, with the radius rho of friction.

A box is its eight corners, a capsule the two balls at its ends.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn._types import AnyArray, AnyTime, Configuration, Params, Velocity
from nsdyn.constraints.contacts import Contacts
from nsdyn.errors import ProblemError
from nsdyn.multibody import free_bodies

Size = float | Callable  # a number, or a function of p for one that is swept or differentiated
Place = tuple[float, float, float]


class Ball(eqx.Module):
    """A ball, or with radius 0 a corner, of a free body.

    body: its number. radius: a number, or a function of p. at: its centre in body axes.
    """

    body: int = eqx.field(static=True)
    radius: Size = eqx.field(static=True, default=0.0)
    at: Place = eqx.field(static=True, default=(0.0, 0.0, 0.0), converter=tuple)

    @property
    def title(self) -> str:
        """What it is called in messages."""
        place = f" at {_listed(self.at)}" if any(self.at) else ""
        return f"body {self.body}{place}"


class Plane(eqx.Module):
    """A plane at rest.

    normal: to the side where bodies may be; of any length. point: a point of it, or with `offset`
    one that the plane is this far away from along its normal: a number, or a function of p.
    """

    normal: Place = eqx.field(static=True, default=(0.0, 0.0, 1.0), converter=tuple)
    point: Place = eqx.field(static=True, default=(0.0, 0.0, 0.0), converter=tuple)
    offset: Size = eqx.field(static=True, default=0.0)

    @property
    def title(self) -> str:
        """What it is called in messages."""
        return f"the plane with the normal {_listed(self.normal)}"


def _listed(place: Place) -> str:
    return f"({', '.join(f'{x:g}' for x in place)})"


def box(body: int, half: Place) -> tuple[Ball, ...]:
    """The corners of a box with these half lengths."""
    signs = product((-1.0, 1.0), repeat=3)
    return tuple(Ball(body, at=tuple(np.multiply(s, half).tolist())) for s in signs)


def capsule(body: int, half_length: float, radius: Size) -> tuple[Ball, ...]:
    """The balls at the ends of a capsule along the third body axis."""
    return tuple(Ball(body, radius, (0.0, 0.0, z)) for z in (-half_length, half_length))


class Pairs(eqx.Module):
    """Which balls may touch what; the planes' pairs come first.

    on_planes: (ball, plane) each. between: (ball, ball) each. spin: the radius of spin friction, a
    number or a function of p; None for none.
    """

    on_planes: tuple[tuple[Ball, Plane], ...] = eqx.field(static=True)
    between: tuple[tuple[Ball, Ball], ...] = eqx.field(static=True)
    spin: Size | None = eqx.field(static=True, default=None)

    def gaps(self, q: Configuration, p: Params) -> Float[Array, " k"]:
        found = []
        if self.on_planes:
            centres, _ = _centres([ball for ball, _ in self.on_planes], q)
            normals, points = _planes(self.on_planes)
            radii = _sizes([ball.radius for ball, _ in self.on_planes], p)
            offsets = _sizes([plane.offset for _, plane in self.on_planes], p)
            heights = jnp.sum(normals * (centres - points), axis=1)
            found.append(heights - offsets - radii)  # (1)
        if self.between:
            difference, _, _ = _differences(self.between, q)
            first = _sizes([a.radius for a, _ in self.between], p)
            second = _sizes([b.radius for _, b in self.between], p)
            distance = jnp.sqrt(jnp.sum(difference**2, axis=1))
            found.append(distance - first - second)  # (2)
        return jnp.concatenate(found)

    def slips(self, q: Configuration, v: Velocity, p: Params) -> Float[Array, "k t"]:
        found = []
        w = free_bodies.spins(q, v)
        if self.on_planes:
            found.append(self._along_planes(q, v, w, p))
        if self.between:
            found.append(self._between_balls(q, v, w, p))
        return jnp.concatenate(found)

    def _along_planes(
        self, q: Configuration, v: Velocity, w: Array, p: Params
    ) -> Float[Array, "k t"]:
        balls = [ball for ball, _ in self.on_planes]
        _, arms = _centres(balls, q)
        normals, _ = _planes(self.on_planes)
        radii = _sizes([ball.radius for ball in balls], p)
        touching = arms - radii[:, None] * normals
        slip = free_bodies.velocities(v, w, _bodies(balls), touching)
        return self._components(slip, normals, w[_bodies(balls)], p)

    def _between_balls(
        self, q: Configuration, v: Velocity, w: Array, p: Params
    ) -> Float[Array, "k t"]:
        difference, arms_a, arms_b = _differences(self.between, q)
        normals = difference / jnp.sqrt(jnp.sum(difference**2, axis=1, keepdims=True))
        first = [a for a, _ in self.between]
        second = [b for _, b in self.between]
        outer_a = arms_a - _sizes([x.radius for x in first], p)[:, None] * normals
        outer_b = arms_b + _sizes([x.radius for x in second], p)[:, None] * normals
        velocity = lambda balls, arms: free_bodies.velocities(v, w, _bodies(balls), arms)
        slip = velocity(first, outer_a) - velocity(second, outer_b)
        return self._components(slip, normals, w[_bodies(first)] - w[_bodies(second)], p)

    def _components(
        self, slip: Array, normals: AnyArray, w: Array, p: Params
    ) -> Float[Array, "k t"]:
        found = [jnp.sum(slip * e, axis=1) for e in _basis(normals)]
        if self.spin is not None:
            found.append(_sizes([self.spin], p) * jnp.sum(normals * w, axis=1))
        return jnp.stack(found, axis=1)


class Gap(eqx.Module):
    """gap(q, t, p) of pairs."""

    pairs: Pairs = eqx.field(static=True)

    @property
    def __name__(self) -> str:
        return "distance"

    def __call__(self, q: Configuration, t: AnyTime, p: Params) -> Float[Array, " k"]:
        return self.pairs.gaps(q, p)


class Slip(eqx.Module):
    """slip(q, v, t, p) of pairs."""

    pairs: Pairs = eqx.field(static=True)

    @property
    def __name__(self) -> str:
        return "slip"

    def __call__(self, q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Float[Array, "k t"]:
        return self.pairs.slips(q, v, p)


def contacts(
    pairs: Sequence[tuple[Ball, Ball | Plane]],
    mu: Any = 0.0,
    e: Any = 0.0,
    e_T: Any = 0.0,
    spin: Size | None = None,
) -> Contacts:
    """`Contacts` between these pairs of surfaces of free bodies: first those with planes, then
    those between balls, each in the given order. mu, e and e_T as in `Contacts`; spin is the radius
    of spin friction."""
    for pair in pairs:
        if len(pair) != 2 or not isinstance(pair[0], Ball) or not isinstance(pair[1], Ball | Plane):
            raise ProblemError(
                f"contacts(pairs=...): expected pairs (Ball, Plane) or (Ball, Ball), found {pair!r}"
            )
    on_planes = tuple((a, b) for a, b in pairs if isinstance(b, Plane))
    between = tuple((a, b) for a, b in pairs if isinstance(b, Ball))
    found = Pairs(on_planes, between, spin)
    titles = [(ball.title, plane.title) for ball, plane in on_planes]
    titles += [(ball.title, other.title) for ball, other in between]
    names = [f"{first} and {second}" for first, second in titles]
    return Contacts(Gap(found), Slip(found), mu=mu, e=e, e_T=e_T, names=names)


def _bodies(balls: Sequence[Ball]) -> np.ndarray:
    return np.array([ball.body for ball in balls])


def _centres(balls: Sequence[Ball], q: Configuration) -> tuple[Array, Array]:
    """Centres of balls, and the arms to them from the centres of mass."""
    at = np.array([ball.at for ball in balls])
    return free_bodies.places(q, _bodies(balls), at)


def _differences(pairs: Sequence[tuple[Ball, Ball]], q: Configuration) -> tuple[Array, ...]:
    """c_a - c_b and both arms."""
    first, arms_a = _centres([a for a, _ in pairs], q)
    second, arms_b = _centres([b for _, b in pairs], q)
    return first - second, arms_a, arms_b


def _planes(pairs: Sequence[tuple[Ball, Plane]]) -> tuple[np.ndarray, np.ndarray]:
    normals = np.array([plane.normal for _, plane in pairs], float)
    normals = normals / np.linalg.norm(normals, axis=1, keepdims=True)
    return normals, np.array([plane.point for _, plane in pairs], float)


def _sizes(sizes: Sequence[Size], p: Params) -> Float[Array, " k"]:
    """Each kind of size is computed once."""
    kinds = list(dict.fromkeys(sizes))
    found = jnp.stack([jnp.asarray(x(p) if callable(x) else x, float) for x in kinds])
    return found[np.array([kinds.index(x) for x in sizes])]


def _basis(n: Float[AnyArray, "k 3"]) -> tuple[Array, Array]:
    """Two directions that complete unit vectors to right-handed bases, smooth in each half space
    n_3 > 0 and n_3 < 0. Which ones does not matter, as friction is the same in all directions."""
    x, y, z = n[:, 0], n[:, 1], n[:, 2]
    sign = jnp.where(z >= 0, 1.0, -1.0)
    a = -1.0 / (sign + z)
    b = x * y * a
    first = jnp.stack([1 + sign * x * x * a, sign * b, -sign * x], axis=1)
    return first, jnp.stack([b, sign + y * y * a, -y], axis=1)
