"""Cartesian pendulum: smooth, with a nonlinear constraint, for orders of convergence.

q = (x, y), gravity acts along -y. Unequal masses along x and y break the symmetry of the motion:

    M = diag(m_x, m_y),   V = m_y g y,   g(q) = (x^2 + y^2 - L^2) / 2                            (1)

All parameters are assumed. The particle starts at (L, 0) with the velocity (0, v0).
"""

import jax.numpy as jnp
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

ABOUT = nsdyn.About(tags=("smooth", "planar"), source="own")


def mass(q: Configuration, p: Params) -> Matrix:
    return jnp.diag(jnp.stack([p["mx"], p["my"]]))


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    weight = p["my"] * p["g"]
    return jnp.stack([jnp.zeros_like(weight), -weight])


def potential(q: Configuration, p: Params) -> Scalar:
    return p["my"] * p["g"] * q[1]


def rod(q: Configuration, t: AnyTime, p: Params) -> Scalar:
    return 0.5 * (q[0] ** 2 + q[1] ** 2 - p["L"] ** 2)


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    return (jnp.stack([jnp.zeros(2), q]), q[None])


SYSTEM = nsdyn.System(mass=mass, force=force, potential=potential)
ROD = nsdyn.Fixed(rod)


def pendulum(
    mx: Number = 1.0,
    my: Number = 2.0,
    L: Number = 1.0,
    g: Number = 9.81,
    v0: Number = 0.5,
    t_end: float = 1.0,
) -> nsdyn.Problem:
    """The pendulum, released horizontally. params: mx, my, L, g."""
    params = {
        name: jnp.asarray(value, float)
        for name, value in {"mx": mx, "my": my, "L": L, "g": g}.items()
    }
    q0 = jnp.stack([L, 0.0])
    v0 = jnp.stack([0.0, v0])
    return nsdyn.Problem(
        "pendulum",
        SYSTEM,
        ROD,
        q0=q0,
        v0=v0,
        t_end=t_end,
        params=params,
        coordinates=("x [m]", "y [m]"),
        shape=shape,
    )
