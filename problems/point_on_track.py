"""Particle on a track with a corner (Patil and Bruls): a ramp or, with another switching function,
a wedge.

q = (x, y); gravity acts along -y. The masses along x and y are equal unless m_y is given; with
unequal masses the metrics differ.

    M = diag(m, m_y),   V = m_y g y                                                              (1)
    g_1 = y,   g_2 = y - a (x - l)                                                               (2)
    ramp:    z = x - l                  flat for x < l, slope a for x > l                        (3)
    wedge:
        z = y - a (x - l) / 2  both lines for x > l, if a > 0: the particle comes from there   (4)

Let th = atan(a), m_y = m, and let the impulse act along the gradient at position E between before
(0) and after (1). Then the velocity u along the lines, positive in the direction of x, becomes

    u+ = u- cos(E th) / cos((1 - E) th)                                                          (5)

On the ramp the particle continues. In the wedge it would have to turn by pi - th, more than a right
angle. But gradients define lines, not directions: for every E the particle continues towards -x,
where the lines are not part of the wedge, and every run into the corner ends with
Status.LEADS_BACK.

The slides give no numbers: all parameters are assumed.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import nsdyn
from nsdyn._types import (
    AnyTime,
    Configuration,
    Matrix,
    Number,
    Params,
    Scalar,
    Velocity,
)
from nsdyn.errors import unknown
from nsdyn.laws import (
    AbstractLaw,
    GrassmannMidGradient,
    IntermediateGradient,
    MuellerTransition,
    PostSwitchGradient,
)

ABOUT = nsdyn.About(tags=("switching", "planar"), source="Patil and Bruls")


def mass(q: Configuration, p: Params) -> Matrix:
    return jnp.diag(jnp.stack([p["m"], p["my"]]))


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    weight = p["my"] * p["g"]
    return jnp.stack([jnp.zeros_like(weight), -weight])


def potential(q: Configuration, p: Params) -> Scalar:
    return p["my"] * p["g"] * q[1]


def flat(q: Configuration, t: AnyTime, p: Params) -> Scalar:
    return q[1]


def slope(q: Configuration, t: AnyTime, p: Params) -> Scalar:
    return q[1] - p["a"] * (q[0] - p["l"])


def past_corner(q: Configuration, p: Params) -> Scalar:
    return q[0] - p["l"]


def above_bisector(q: Configuration, p: Params) -> Scalar:
    return q[1] - 0.5 * p["a"] * (q[0] - p["l"])


def on_ramp(q: Configuration, p: Params) -> tuple[Array, ...]:
    """The ramp, one length l before the corner and two behind it, and the particle."""
    x = p["l"] * jnp.array([0.0, 1.0, 3.0])
    return (jnp.stack([x, p["a"] * jnp.maximum(x - p["l"], 0.0)], axis=1), q[None])


def in_wedge(q: Configuration, p: Params) -> tuple[Array, ...]:
    """Both lines of the wedge, one length l behind the corner, and the particle."""
    x = p["l"] * jnp.array([2.0, 1.0, 2.0])
    rise = p["a"] * p["l"] * jnp.array([0.0, 0.0, 1.0])
    return (jnp.stack([x, rise], axis=1), q[None])


SYSTEM = nsdyn.System(mass=mass, force=force, potential=potential)
SHAPES = {
    "ramp": nsdyn.Switching(modes=(flat, slope), switches=(past_corner,)),  # (3)
    "wedge": nsdyn.Switching(modes=(flat, slope), switches=(above_bisector,)),  # (4)
}


def motion(
    t: np.ndarray, problem: nsdyn.Problem, law: AbstractLaw
) -> tuple[np.ndarray, np.ndarray] | None:
    """The ramp from its flat side, with equal masses, until the particle is back at the corner:
    constant speed, (5), constant deceleration g sin(th)."""
    a, l, g, m, my = (float(problem.params[name]) for name in ("a", "l", "g", "m", "my"))
    x0, u, E = float(problem.q0[0]), float(problem.v0[0]), position(law)
    if E is None or m != my or x0 >= l or u <= 0 or problem.constraint[0] is not SHAPES["ramp"]:
        return None
    th = np.arctan(a)
    after = u * np.cos(E * th) / np.cos((1 - E) * th)  # (5)
    tau = t - (l - x0) / u
    if a > 0 and np.max(tau) >= 2 * after / (g * np.sin(th)):
        return None
    along = np.where(tau < 0, u * tau, after * tau - g * np.sin(th) * tau**2 / 2)
    speed = np.where(tau < 0, u, after - g * np.sin(th) * tau)
    turn = np.where(tau < 0, 0.0, th)
    line = np.stack([np.cos(turn), np.sin(turn)], axis=-1)
    return [l, 0.0] + along[:, None] * line, speed[:, None] * line


def position(law: AbstractLaw) -> float | None:
    """E of (5); None for a law that is not along a gradient."""
    if isinstance(law, IntermediateGradient):
        return float(law.position) if np.ndim(law.position) == 0 else None
    if isinstance(law, GrassmannMidGradient):
        return 0.5
    return 1.0 if isinstance(law, MuellerTransition | PostSwitchGradient) else None


CLOSED_FORM = nsdyn.ClosedForm(motion, "constant accelerations, (5) of its file")


def point_on_track(
    m: Number = 1.0,
    a: Number = 0.5,
    l: Number = 0.5,
    v0: Number = 4.0,
    g: Number = 9.81,
    x0: Number | None = None,
    shape: str = "ramp",
    my: Number | None = None,
    t_end: float = 0.5,
) -> nsdyn.Problem:
    """The particle starts at x0, by default 0 on the ramp and 2 l in the wedge, with the speed v0
    towards the corner.

    On the ramp it may start on either side of the corner; in the wedge it starts on the flat line,
    at x0 > l for a > 0. params: m, my (None: m), a, l, g.
    """
    if shape not in SHAPES:
        raise unknown("point_on_track(shape=...)", str(shape), SHAPES)
    values = {"m": m, "my": m if my is None else my, "a": a, "l": l, "g": g}
    params = {name: jnp.asarray(value, float) for name, value in values.items()}
    if x0 is None:
        x0 = 0.0 if shape == "ramp" else 2 * l
    rise = jnp.where((x0 > params["l"]) & (shape == "ramp"), params["a"], 0.0)
    ahead = jnp.sign(params["l"] - x0) * v0 / jnp.hypot(1.0, rise)
    q0 = jnp.stack([x0, rise * (x0 - params["l"])])
    v0 = jnp.stack([ahead, ahead * rise])
    return nsdyn.Problem(
        "point_on_track",
        SYSTEM,
        SHAPES[shape],
        q0=q0,
        v0=v0,
        t_end=t_end,
        params=params,
        coordinates=("x [m]", "y [m]"),
        shape=on_ramp if shape == "ramp" else in_wedge,
    )
