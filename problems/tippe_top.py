"""Tippe top: a spinning top on the floor that turns upside down and comes to stand on its stem.

A body with the moments of inertia J1 = J2, J3 and two spheres on its axis: the big one, of radius
r1, whose centre is a1 above the centre of mass G, and the stem, of radius r2, a2 above it. Friction
at the floor has two directions and spin (Coulomb-Contensou friction): at each of the two contacts

    gap = z + a cos(theta) - r,   |(slip, rho w_z)| is what friction acts against                (1)

with the angle theta of the axis to the vertical and rho = 3 pi/16 R, R the radius of the patch of
contact. It starts inclined by theta0 with the spin w0 about its axis.

Parameters are those of Leine and Glocker (2003) and of Capobianco, Harsch, Eugster and Leine
(2021). The height at the start is r1 - a1 cos(theta0) exactly; the printed 1.2015e-2 m leaves a gap
of 1.2e-8 m.

R. I. Leine, Ch. Glocker: A set-valued force law for spatial Coulomb-Contensou friction. Eur. J.
Mech. A 22 (2003) 193-216.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import nsdyn
from nsdyn._types import Configuration, Number, Params, Scalar
from nsdyn.multibody import free_bodies, outlines, surfaces

ABOUT = nsdyn.About(tags=("contact", "friction", "spatial"), source="Leine and Glocker 2003")

A1, A2, R1, R2 = 3e-3, 1.6e-2, 1.5e-2, 5e-3


def friction_radius(p: Params) -> Scalar:
    return 3 * jnp.pi / 16 * p["R"]


def friction(p: Params) -> Scalar:
    return p["mu"]


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """The axis from the lowest point of the big sphere to the stem, and rings around it."""
    heights = ((A1, R1), (A1 + 0.8 * R1, 0.6 * R1), (A1 - 0.8 * R1, 0.6 * R1), (A2, R2))
    rings = [r * outlines.ring() + np.array([0, 0, z]) for z, r in heights]
    axis = np.array([[0, 0, A1 - R1], [0, 0, A2 + R2]])
    return outlines.placed(q, 0, (axis, *rings))


FLOOR = surfaces.contacts(
    [
        (surfaces.Ball(0, R1, (0.0, 0.0, A1)), surfaces.Plane()),
        (surfaces.Ball(0, R2, (0.0, 0.0, A2)), surfaces.Plane()),
    ],
    mu=friction,
    spin=friction_radius,
)
COORDINATES = ("x [m]", "y [m]", "z [m]", "a0", "a1", "a2", "a3")


def tippe_top(
    theta0: Number = 0.1, w0: Number = 180.0, mu: Number = 0.3, t_end: float = 8.0
) -> nsdyn.Problem:
    """A top that turns over. params: m, J, g, mu, R."""
    half = jnp.asarray(theta0, float) / 2
    params = {
        "m": jnp.array([6e-3]),
        "J": jnp.array([[8e-7, 8e-7, 7e-7]]),
        "g": jnp.array([0.0, 0.0, -9.81]),
        "mu": jnp.asarray(mu, float),
        "R": jnp.asarray(5e-4),
    }
    place = jnp.stack([jnp.zeros(()), jnp.zeros(()), R1 - A1 * jnp.cos(2 * half)])
    turned = jnp.stack([jnp.cos(half), jnp.sin(half), jnp.zeros(()), jnp.zeros(())])
    return nsdyn.Problem(
        "tippe_top",
        free_bodies.SYSTEM,
        FLOOR,
        q0=jnp.concatenate([place, turned]),
        v0=jnp.zeros(6).at[5].set(w0),
        t_end=t_end,
        params=params,
        coordinates=COORDINATES,
        shape=shape,
    )
