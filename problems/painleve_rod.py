"""Painleve's rod: a rod that slides on a rough floor, like chalk that is pushed, and jams.

A uniform rod of mass m and half length l, I = m l^2/3, with the place (x, y) of its centre and the
angle phi to the floor; its lower end touches:

    gap = y - l sin(phi),   slip = x' + l sin(phi) phi'                                          (1)
    W = H M^-1 H^T = 1/m [[1 + 3 c^2, -3 s c], [-3 s c, 1 + 3 s^2]],  c, s = cos, sin(phi)       (2)

Sliding to the left friction pushes to the right, and if mu > (1 + 3 c^2)/(3 s c) a larger normal
force presses the end harder into the floor: no force holds it there, or several do. The end stops
by an impulse, without a collision; with phi = arctan(2), m = l = 1, mu = 1.5 > 4/3 and x' = -1 by

    P_N = 0.3,   P_T = 0.4,   (x', y', phi')+ = (-0.6, 0.3, 0.670820393249937)                   (3)

Time-stepping schemes find it by themselves. Sliding to the right nothing happens. Numbers are
assumed.

P. Painleve: Sur les lois du frottement de glissement. C. R. Acad. Sci. Paris 121 (1895) 112-115.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import nsdyn
from nsdyn._types import AnyTime, Configuration, Matrix, Number, Params, Scalar, Velocity

ABOUT = nsdyn.About(tags=("contact", "friction", "planar"), source="Painleve 1895")


def mass(q: Configuration, p: Params) -> Matrix:
    return p["m"] * jnp.diag(jnp.stack([jnp.ones(()), jnp.ones(()), p["l"] ** 2 / 3]))


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    return -p["m"] * p["g"] * jnp.array([0.0, 1.0, 0.0])


def potential(q: Configuration, p: Params) -> Scalar:
    return p["m"] * p["g"] * q[1]


def lower_end(q: Configuration, t: AnyTime, p: Params) -> Scalar:
    return q[1] - p["l"] * jnp.sin(q[2])  # (1)


def sliding(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Scalar:
    return v[0] + p["l"] * jnp.sin(q[2]) * v[2]  # (1)


def friction(p: Params) -> Scalar:
    return p["mu"]


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """The rod, and the floor."""
    half = p["l"] * jnp.stack([jnp.cos(q[2]), jnp.sin(q[2])])
    floor = p["l"] * jnp.array([[-2.0, 0.0], [2.0, 0.0]])
    return jnp.stack([q[:2] - half, q[:2] + half]), floor


SYSTEM = nsdyn.System(mass=mass, force=force, potential=potential)
FLOOR = nsdyn.Contacts(lower_end, sliding, mu=friction)


def painleve_rod(
    phi0: Number = float(np.arctan(2)),
    vx: Number = -1.0,
    mu: Number = 1.5,
    l: Number = 1.0,
    m: Number = 1.0,
    g: Number = 9.81,
    t_end: float = 0.2,
) -> nsdyn.Problem:
    """A rod slides on its lower end with the velocity vx. params:
    m, l, mu, g."""
    values = {"m": m, "l": l, "mu": mu, "g": g}
    params = {name: jnp.asarray(value, float) for name, value in values.items()}
    angle = jnp.asarray(phi0, float)
    zero = jnp.zeros(())
    return nsdyn.Problem(
        "painleve_rod",
        SYSTEM,
        FLOOR,
        q0=jnp.stack([zero, params["l"] * jnp.sin(angle), angle]),
        v0=jnp.stack([jnp.asarray(vx, float), zero, zero]),
        t_end=t_end,
        params=params,
        coordinates=("x [m]", "y [m]", "phi [rad]"),
        shape=shape,
    )
