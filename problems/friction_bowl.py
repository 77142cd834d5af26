"""Friction bowl: a particle that slides in a bowl, turns back and comes to rest on its side.

The bowl is a circle of radius R about the origin; with the angle phi from the lowest point,

    gap = R - |(x, y)|,   slip = R phi'                                                          (1)

While it slides to the right, with w = phi',

    w^2 = C exp(-2 mu phi) + (2 g/R) [(1 - 2 mu^2) cos(phi) - 3 mu sin(phi)]/(1 + 4 mu^2)        (2)

and the normal force is m (R w^2 + g cos(phi)). It never leaves the bowl, and rests where |tan(phi)|
<= mu. R = 1 m, mu = 0.2 and the start at rest at phi = -1 are assumed. Turning points are 0.45895
and -0.04703, where it stays.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import nsdyn
from nsdyn._types import AnyTime, Configuration, Matrix, Number, Params, Scalar, Velocity

ABOUT = nsdyn.About(tags=("contact", "friction", "planar"), source="own")


def speed(phi: float, start: float, R: float = 1.0, mu: float = 0.2, g: float = 9.81) -> float:
    """|w| at the angle phi, from rest at the angle `start` < phi, (2)."""
    share = lambda x: (1 - 2 * mu**2) * np.cos(x) - 3 * mu * np.sin(x)
    drive = 2 * g / (R * (1 + 4 * mu**2))
    lost = np.exp(-2 * mu * (phi - start)) * share(start)
    return float(np.sqrt(drive * (share(phi) - lost)))


def mass(q: Configuration, p: Params) -> Matrix:
    return p["m"] * jnp.eye(2)


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    return -p["m"] * p["g"] * jnp.array([0.0, 1.0])


def potential(q: Configuration, p: Params) -> Scalar:
    return p["m"] * p["g"] * q[1]


def inside(q: Configuration, t: AnyTime, p: Params) -> Scalar:
    return p["R"] - jnp.sqrt(q[0] ** 2 + q[1] ** 2)  # (1)


def around(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Scalar:
    return (q[0] * v[1] - q[1] * v[0]) / jnp.sqrt(q[0] ** 2 + q[1] ** 2)  # (1)


def friction(p: Params) -> Scalar:
    return p["mu"]


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """The particle, and the bowl."""
    turn = np.linspace(-np.pi / 2, np.pi / 2, 61)
    return q[None], p["R"] * jnp.stack([jnp.sin(turn), -jnp.cos(turn)], axis=1)


SYSTEM = nsdyn.System(mass=mass, force=force, potential=potential)
BOWL = nsdyn.Contacts(inside, around, mu=friction)


def friction_bowl(
    phi0: Number = -1.0,
    mu: Number = 0.2,
    R: Number = 1.0,
    m: Number = 1.0,
    g: Number = 9.81,
    t_end: float = 2.5,
) -> nsdyn.Problem:
    """A particle slides in a bowl from rest at the angle phi0.
    params: m, R, mu, g."""
    values = {"m": m, "R": R, "mu": mu, "g": g}
    params = {name: jnp.asarray(value, float) for name, value in values.items()}
    angle = jnp.asarray(phi0, float)
    return nsdyn.Problem(
        "friction_bowl",
        SYSTEM,
        BOWL,
        q0=params["R"] * jnp.stack([jnp.sin(angle), -jnp.cos(angle)]),
        v0=jnp.zeros(2),
        t_end=t_end,
        params=params,
        coordinates=("x [m]", "y [m]"),
        shape=shape,
    )
