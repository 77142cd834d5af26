"""Impacting stick: a rod that falls on a smooth floor with one end, and bounces.

A uniform rod of mass m and length l, I = m l^2/12, with the place (x, y) of its centre and its
angle phi to the vertical; its lower end hits the floor:

    gap = y - l/2 cos(phi),   slip = -x' - l/2 cos(phi) phi'                                     (1)

Numbers and start are those of an example of Siconos: m = l = 1, g = 10, e = 1, mu = 0.01; within
0.2 s it hits the floor twice. Friction may give energy here: with Newton's law of impact, e > 0 and
a rod that is not upright nothing forbids it.

V. Acary, F. Perignon: Siconos, INRIA technical report 340 (2007).
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import nsdyn
from nsdyn._types import AnyTime, Configuration, Matrix, Number, Params, Scalar, Velocity

ABOUT = nsdyn.About(tags=("contact", "friction", "impact", "planar"), source="Siconos")


def mass(q: Configuration, p: Params) -> Matrix:
    return p["m"] * jnp.diag(jnp.stack([jnp.ones(()), jnp.ones(()), p["l"] ** 2 / 12]))


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    return -p["m"] * p["g"] * jnp.array([0.0, 1.0, 0.0])


def potential(q: Configuration, p: Params) -> Scalar:
    return p["m"] * p["g"] * q[1]


def lower_end(q: Configuration, t: AnyTime, p: Params) -> Scalar:
    return q[1] - p["l"] / 2 * jnp.cos(q[2])  # (1)


def sliding(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Scalar:
    return -v[0] - p["l"] / 2 * jnp.cos(q[2]) * v[2]  # (1)


def friction(p: Params) -> Scalar:
    return p["mu"]


def restitution(p: Params) -> Scalar:
    return p["e"]


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """The rod, and the floor."""
    half = p["l"] / 2 * jnp.stack([jnp.sin(q[2]), jnp.cos(q[2])])
    floor = p["l"] * jnp.array([[-0.5, 0.0], [1.0, 0.0]])
    return jnp.stack([q[:2] - half, q[:2] + half]), floor


SYSTEM = nsdyn.System(mass=mass, force=force, potential=potential)
FLOOR = nsdyn.Contacts(lower_end, sliding, mu=friction, e=restitution)


def impacting_stick(
    e: Number = 1.0,
    mu: Number = 0.01,
    phi0: Number = float(np.pi / 4),
    l: Number = 1.0,
    m: Number = 1.0,
    g: Number = 10.0,
    t_end: float = 0.2,
) -> nsdyn.Problem:
    """A rod falls on its lower end, from 1 cm above the floor.
    params: m, l, mu, e, g."""
    values = {"m": m, "l": l, "mu": mu, "e": e, "g": g}
    params = {name: jnp.asarray(value, float) for name, value in values.items()}
    angle = jnp.asarray(phi0, float)
    half = params["l"] / 2
    return nsdyn.Problem(
        "impacting_stick",
        SYSTEM,
        FLOOR,
        q0=jnp.stack([half * jnp.sin(angle), half * jnp.cos(angle) + 0.01, angle]),
        v0=jnp.array([-0.5, 0.1, 0.1]),
        t_end=t_end,
        params=params,
        coordinates=("x [m]", "y [m]", "phi [rad]"),
        shape=shape,
    )
