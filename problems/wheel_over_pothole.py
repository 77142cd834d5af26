"""Wheel that rolls over a pothole without slipping (Patil and Bruls): road, near edge, far edge,
road.

q = (x, y, phi): the centre of the wheel and its angle, clockwise. The road is at y = 0; the hole
extends from x = l to l + l_p and is narrower than the wheel, l_p < 2 R, so that the wheel never
reaches its bottom. With psi = asin(l_p / 2 R)

    M = diag(m, m, I),   V = m g y                                                               (1)
    mode 0, road:        y = R,                         phi = x / R                              (2)
    mode 1, near edge:   (x - l)^2 + y^2 = R^2,         phi = l / R + atan2(x - l, y)            (3)
    mode 2, far edge:  (x - l - l_p)^2 + y^2 = R^2,
    phi = l / R + 2 psi + atan2(x - l - l_p, y)                                                (4)
    mode 3, road:        y = R,                         phi = l / R + 2 psi + (x - l - l_p) / R  (5)
    z_0 = l - x,                             z_1 = -(x - l) (x - l - l_p / 2),                   (6)
    z_2 = -(x - l - l_p / 2) (x - l - l_p),  z_3 = x - l - l_p

The wheel turns about its contact point in all modes, with the inertia J = I + m R^2. The gradients
are continuous at x = l and l + l_p; half-way between the edges they jump, and an impulse along the
gradient at position E between before (0) and after (1), in the mass metric, gives

    omega+ = omega- cos(E th) / cos((1 - E) th),   cos th = (I + m R^2 cos 2 psi) / J            (7)

The constraints are bilateral, as in the slides: the road may pull (fast wheels would lift off at
the near edge).

The slides show results without numbers: all parameters are assumed. The constraints (2) to (5) are
derived.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import nsdyn
from nsdyn._types import (
    AnyTime,
    Configuration,
    Matrix,
    Number,
    Params,
    Rows,
    Scalar,
    Velocity,
)

ABOUT = nsdyn.About(tags=("switching", "planar"), source="Patil and Bruls")


def mass(q: Configuration, p: Params) -> Matrix:
    return jnp.diag(jnp.stack([p["m"], p["m"], p["I"]]))


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    weight = p["m"] * p["g"]
    return jnp.stack([jnp.zeros_like(weight), -weight, jnp.zeros_like(weight)])


def potential(q: Configuration, p: Params) -> Scalar:
    return p["m"] * p["g"] * q[1]


def road(q: Configuration, t: AnyTime, p: Params) -> Rows:  # (2)
    return jnp.stack([q[1] - p["R"], q[2] - q[0] / p["R"]])


def near_edge(q: Configuration, t: AnyTime, p: Params) -> Rows:  # (3)
    x = q[0] - p["l"]
    return jnp.stack(
        [x**2 + q[1] ** 2 - p["R"] ** 2, q[2] - p["l"] / p["R"] - jnp.arctan2(x, q[1])]
    )


def far_edge(q: Configuration, t: AnyTime, p: Params) -> Rows:  # (4)
    x = q[0] - p["l"] - p["lp"]
    return jnp.stack([x**2 + q[1] ** 2 - p["R"] ** 2, q[2] - _turned(p) - jnp.arctan2(x, q[1])])


def road_again(q: Configuration, t: AnyTime, p: Params) -> Rows:  # (5)
    x = q[0] - p["l"] - p["lp"]
    return jnp.stack([q[1] - p["R"], q[2] - _turned(p) - x / p["R"]])


def _turned(p: Params) -> Scalar:
    """phi above the far edge."""
    return p["l"] / p["R"] + 2 * jnp.arcsin(p["lp"] / (2 * p["R"]))


def ahead_of_hole(q: Configuration, p: Params) -> Scalar:
    return p["l"] - q[0]


def in_near_half(q: Configuration, p: Params) -> Scalar:
    x = q[0] - p["l"]
    return -x * (x - p["lp"] / 2)


def in_far_half(q: Configuration, p: Params) -> Scalar:
    x = q[0] - p["l"]
    return -(x - p["lp"] / 2) * (x - p["lp"])


def past_hole(q: Configuration, p: Params) -> Scalar:
    return q[0] - p["l"] - p["lp"]


SYSTEM = nsdyn.System(mass=mass, force=force, potential=potential)
POTHOLE = nsdyn.Switching(
    modes=(road, near_edge, far_edge, road_again),
    switches=(ahead_of_hole, in_near_half, in_far_half, past_hole),
)


def wheel_over_pothole(
    R: Number = 0.35,
    m: Number = 10.0,
    I: Number | None = None,
    l: Number = 0.5,
    lp: Number = 0.3,
    v0: Number = 3.0,
    g: Number = 9.81,
    t_end: float = 0.6,
) -> nsdyn.Problem:
    """The wheel starts at x = 0 with the speed v0. Default I: m R^2 / 2, a disc. params: R, m, I,
    l, lp, g."""
    values = {"R": R, "m": m, "I": m * R**2 / 2 if I is None else I, "l": l, "lp": lp, "g": g}
    if not any(isinstance(x, jax.core.Tracer) for x in (l, lp, R)) and not (
        l > 0 and 0 < lp < 2 * R
    ):
        raise nsdyn.ProblemError(
            "wheel_over_pothole(l=..., lp=..., R=...): expected l > 0 and 0 < lp < 2 R, a hole "
            f"ahead and narrower than the wheel, found l = {l:g}, lp = {lp:g}, R = {R:g}"
        )
    params = {name: jnp.asarray(value, float) for name, value in values.items()}
    q0 = jnp.stack([0.0, R, 0.0])
    v0 = jnp.stack([v0, 0.0, v0 / R])
    return nsdyn.Problem(
        "wheel_over_pothole",
        SYSTEM,
        POTHOLE,
        q0=q0,
        v0=v0,
        t_end=t_end,
        params=params,
        coordinates=("x [m]", "y [m]", "phi [rad]"),
        shape=shape,
    )


def shape(q: Configuration, p: Params) -> tuple[Float[Array, "points 2"], ...]:
    """Rim and one spoke of the wheel as one line; road and hole, as far behind the hole as the
    start is before it."""
    angle = q[2] + jnp.linspace(0.0, 2 * jnp.pi, 60)
    rim = q[:2][None] + p["R"] * jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=-1)
    return (jnp.concatenate([q[:2][None], rim]), ground(p, 2 * p["l"] + p["lp"] + p["R"]))


def ground(p: Params, length: Number, depth: float = 0.1) -> Float[Array, "6 2"]:
    """Road and hole from x = -R to `length` as one line, shape (6, 2), for drawing."""
    near = p["l"]
    far = p["l"] + p["lp"]
    x = jnp.stack([-p["R"], near, near, far, far, length])
    return jnp.stack([x, jnp.array([0.0, 0.0, -depth, -depth, 0.0, 0.0])], axis=-1)
