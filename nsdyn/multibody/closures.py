"""Closures: what holds two bodies of a tree together beside its joints. Each is a function of rows
g(q, t, p), for `Fixed`, `Scheduled`, `Switching`, `Contact` and `Transitions`.

With the frames (R_a, r_a) and (R_b, r_b) in the world of two frames fixed to the bodies a and b,

    connect   r_b - r_a                                                                        (1)
    weld      (R_a^T (r_b - r_a);  vee(R_a^T R_b))                                             (2)
    couple    q_i - ratio q_j - offset                                                         (3)

where vee(R) is the vector of the skew part of R. The rows (2) are as many as the motions they
forbid, and well conditioned where they hold: their rate is the relative twist. A pose
that is held is not given but found when the mode begins, R_0 and d_0; then the rows are

    (R_a^T (r_b - r_a) - d_0;  vee(R_0^T R_a^T R_b))                                           (4)

so the relative rotation may be any; a difference of three angles could be singular there. A point
of a that is held in b, and coordinates that follow each other by a polynomial, have the rows

    hold      R_b^T (r_a - r_b) - d_0                                                          (5)
    follow    q_i - i_0 - sum_k c_k (q_j - j_0)^k                                              (6)

The numbers are in params["closures"], under the name of the closure: frames "a" and "b" (4, 4) for
connect and weld, "ratio" and "offset" for couple, "zero" (i_0, j_0) and "coefficients" for follow.
"""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from nsdyn._types import AnyTime, Configuration, Params, Rows
from nsdyn.multibody.chain import EPSILON
from nsdyn.multibody.tree import frames_of

SPACE = (0, 1, 2, 3, 4, 5)  # the rows of a weld
PLANE = (0, 1, 5)


class _BetweenBodies(eqx.Module):
    """Something about two bodies.

    a, b: the numbers of the bodies, -1 for the world.
    name: where its numbers are in params["closures"].
    """

    a: int = eqx.field(static=True)
    b: int = eqx.field(static=True)
    name: str = eqx.field(static=True)

    @property
    def __name__(self) -> str:
        return self.name

    def frames(self, q: Configuration, p: Params) -> tuple[Array, Array]:
        """(R_a, r_a) and (R_b, r_b) of the bodies themselves."""
        first, second = frames_of(p["tree"], q, (self.a, self.b))
        return first, second

    def fixed_frames(self, q: Configuration, p: Params) -> tuple[Array, Array]:
        """(R_a, r_a) and (R_b, r_b) of the frames fixed to the bodies."""
        own = p["closures"][self.name]
        first, second = self.frames(q, p)
        return first @ own["a"], second @ own["b"]


class _BetweenCoordinates(eqx.Module):
    """Something about two coordinates.

    i, j: the numbers of the coordinates.
    name: where its numbers are in params["closures"].
    """

    i: int = eqx.field(static=True)
    j: int = eqx.field(static=True)
    name: str = eqx.field(static=True)

    @property
    def __name__(self) -> str:
        return self.name


class Connect(_BetweenBodies):
    """A point of body a coincides with a point of body b.

    axes: the axes of the world along which this holds, (0, 1) in a planar mechanism.
    """

    axes: tuple[int, ...] = eqx.field(static=True, default=(0, 1, 2))

    def __call__(self, q: Configuration, t: AnyTime, p: Params) -> Rows:
        first, second = self.fixed_frames(q, p)
        return (second[:3, 3] - first[:3, 3])[jnp.array(self.axes)]  # (1)


class Weld(_BetweenBodies):
    """Body b has a given pose in body a.

    rows: which rows of (2), (0, 1, 5) in a planar mechanism.
    """

    rows: tuple[int, ...] = eqx.field(static=True, default=SPACE)

    def __call__(self, q: Configuration, t: AnyTime, p: Params) -> Rows:
        d, R = _relative(*self.fixed_frames(q, p))
        return jnp.concatenate([d, vee(R)])[jnp.array(self.rows)]  # (2)


class Couple(_BetweenCoordinates):
    """One coordinate follows another: a gear, or a joint that mimics another."""

    def __call__(self, q: Configuration, t: AnyTime, p: Params) -> Rows:
        own = p["closures"][self.name]
        return (q[self.i] - own["ratio"] * q[self.j] - own["offset"])[None]  # (3)


class Follow(_BetweenCoordinates):
    """One coordinate follows another by a polynomial; with i = j and one coefficient it stands
    still."""

    def __call__(self, q: Configuration, t: AnyTime, p: Params) -> Rows:
        own = p["closures"][self.name]
        x = q[self.j] - own["zero"][1]
        value = jnp.zeros(())
        for k in reversed(range(own["coefficients"].shape[0])):
            value = own["coefficients"][k] + x * value
        return (q[self.i] - own["zero"][0] - value)[None]  # (6)


# Quantities for `lock`, which holds what it finds when the mode begins.


class RelativePose(_BetweenBodies):
    """The pose of body b in body a as 12 numbers, for `lock(pose, difference=PoseDifference())`;
    its name is for messages only."""

    def __call__(self, q: Configuration, p: Params) -> Float[Array, " 12"]:
        d, R = _relative(*self.frames(q, p))
        return jnp.concatenate([d, R.ravel()])


class PoseDifference(eqx.Module):
    """The rows (4) for a pose and the one that is held.

    rows: which of them, (0, 1, 5) in a planar mechanism.
    """

    rows: tuple[int, ...] = eqx.field(static=True, default=SPACE)

    def __call__(self, pose: Float[Array, " 12"], held: Float[Array, " 12"]) -> Rows:
        turned = held[3:].reshape(3, 3).T @ pose[3:].reshape(3, 3)
        return jnp.concatenate([pose[:3] - held[:3], vee(turned)])[jnp.array(self.rows)]  # (4)


class PointWithin(_BetweenBodies):
    """Where the point of body a that the `Connect` of this name keeps is in body b: a joint that
    appears where the bodies are."""

    def __call__(self, q: Configuration, p: Params) -> Float[Array, " 3"]:
        first, second = self.frames(q, p)
        return _relative(second, first @ p["closures"][self.name]["a"])[0]  # (5)


class Offset(eqx.Module):
    """The residual of a closure of coordinates: a clutch that closes anywhere.

    closure: a `Couple` or `Follow`.
    """

    closure: Couple | Follow = eqx.field(static=True)

    @property
    def __name__(self) -> str:
        return self.closure.name

    def __call__(self, q: Configuration, p: Params) -> Rows:
        return self.closure(q, 0.0, p)


class Together(eqx.Module):
    """The rows of several closures, one after the other.

    closures: functions g(q, t, p).
    """

    closures: tuple[Callable, ...] = eqx.field(static=True)

    def __call__(self, q: Configuration, t: AnyTime, p: Params) -> Rows:
        return jnp.concatenate([closure(q, t, p) for closure in self.closures])


def vee(R: Float[Array, "3 3"]) -> Float[Array, " 3"]:
    """The vector of the skew part of a matrix."""
    return jnp.matmul((-0.5 * EPSILON).reshape(3, 9), R.ravel())


def _relative(
    first: Float[Array, "4 4"], second: Float[Array, "4 4"]
) -> tuple[Float[Array, " 3"], Float[Array, "3 3"]]:
    """The place and the rotation of the second frame in the first."""
    R = first[:3, :3].T
    return R @ (second[:3, 3] - first[:3, 3]), R @ second[:3, :3]
