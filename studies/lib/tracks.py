"""Tracks with a corner for the study files `convergence` and `switching_track`.

At the corner (l, 0) the direction turns by th = atan(a). With curvature k on both sides,

    g_i = n_i.d - k |d|^2/2,    d = q - (l, 0),    n_1 = (0, 1),  n_2 = (-sin th, cos th)        (1)

k = 0 is the straight track of `nsdyn.problems.point_on_track`; k > 0 are two circles of radius 1/k.
The particle starts at the arc length s_0 = -l before the corner, with the speed that makes it v_0
there,

    v^2 = v_0^2 - 2 g (1 - cos(k s_0))/k                                                         (2)

The smooth track has the constraints of the point on track, which fade into each other instead of
switching (`nsdyn.Blended`). It starts where (1 + tanh(-sigma l))/2 of the slope belongs to its
constraint.
"""

import jax.numpy as jnp
import numpy as np

import nsdyn
from nsdyn._types import AnyTime, Configuration, Number, Params, Scalar
from nsdyn.problems.point_on_track import SYSTEM, flat, past_corner, slope

L, A, V0, G = 0.5, 0.5, 4.0, 9.81  # as in point_on_track


def _arc(q: Configuration, p: Params, nx: Number, ny: Number) -> Scalar:
    x = q[0] - p["l"]
    y = q[1]
    return nx * x + ny * y - 0.5 * p["k"] * (x * x + y * y)  # (1)


def before(q: Configuration, t: AnyTime, p: Params) -> Scalar:
    return _arc(q, p, 0.0, 1.0)


def after(q: Configuration, t: AnyTime, p: Params) -> Scalar:
    th = jnp.arctan(p["a"])
    return _arc(q, p, -jnp.sin(th), jnp.cos(th))


CORNER = nsdyn.Switching(modes=(before, after), switches=(past_corner,))


def with_corner(k: float = 0.0) -> nsdyn.Problem:
    """Two arcs of curvature k that meet in a corner."""
    start = -k * L  # the angle from the corner
    x = -L if k == 0 else np.sin(start) / k
    y = 0.0 if k == 0 else (1 - np.cos(start)) / k
    speed = np.sqrt(V0**2 - 2 * G * y)  # (2)
    return nsdyn.Problem(
        "track_with_corner",
        SYSTEM,
        CORNER,
        q0=[L + x, y],
        v0=[speed * np.cos(start), speed * np.sin(start)],
        t_end=0.5,
        params={"m": 1.0, "my": 1.0, "a": A, "l": L, "g": G, "k": k},
    )


def smooth(sigma: float = 20.0) -> nsdyn.Problem:
    """The point on track with constraints that fade into each other over a length of 1/sigma."""
    share = (1 + np.tanh(-sigma * L)) / 2
    rise = share * A - sigma * (1 - np.tanh(sigma * L) ** 2) / 2 * A * L  # of the blended track
    return nsdyn.Problem(
        "smooth_track",
        SYSTEM,
        nsdyn.Blended(modes=(flat, slope), switches=(past_corner,), sigma=sigma),
        q0=[0.0, -share * A * L],
        v0=[V0, V0 * rise],
        t_end=0.5,
        params={"m": 1.0, "my": 1.0, "a": A, "l": L, "g": G},
    )
