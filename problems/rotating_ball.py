"""Rotating ball: a ball that spins and falls to the floor, slides there and begins to roll.

In the plane, with the place (x, y) of its centre, its angle phi and I = 2/5 m R^2:

    gap = y - R,   slip = x' + R phi'                                                            (1)

It falls from rest at the height y0 with the spin w. The impact at t = sqrt(2 (y0 - R)/g) is plastic
(e = 0) and has the normal impulse m g t; the tangential one stops the slip, m R w 2/7, if that is
at most mu m g t. Otherwise the ball slides until it rolls with x' = -2/7 R w.

Numbers are those of Capobianco, Harsch, Eugster and Leine (2021), section 10.1: w = 50 slides after
the impact, w = 10 rolls at once.

G. Capobianco, J. Harsch, S. R. Eugster, R. I. Leine: A nonsmooth generalized-alpha method for
mechanical systems with frictional contact. Int. J. Numer. Methods Eng. 122 (2021) 6497-6526.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import nsdyn
from nsdyn._types import AnyTime, Configuration, Matrix, Number, Params, Scalar, Velocity

ABOUT = nsdyn.About(tags=("contact", "friction", "impact", "planar"), source="Capobianco 2021")


def mass(q: Configuration, p: Params) -> Matrix:
    return p["m"] * jnp.diag(jnp.stack([jnp.ones(()), jnp.ones(()), 0.4 * p["R"] ** 2]))


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    return -p["m"] * p["g"] * jnp.array([0.0, 1.0, 0.0])


def potential(q: Configuration, p: Params) -> Scalar:
    return p["m"] * p["g"] * q[1]


def height(q: Configuration, t: AnyTime, p: Params) -> Scalar:
    return q[1] - p["R"]  # (1)


def sliding(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Scalar:
    return v[0] + p["R"] * v[2]  # (1)


def friction(p: Params) -> Scalar:
    return p["mu"]


def restitution(p: Params) -> Scalar:
    return p["e"]


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """The ball with a spoke, and the floor."""
    turn = np.linspace(0, 2 * np.pi, 37)
    circle = p["R"] * jnp.stack([jnp.cos(turn), jnp.sin(turn)], axis=1)
    spoke = p["R"] * jnp.stack([jnp.cos(q[2]), jnp.sin(q[2])])
    return q[None, :2] + circle, jnp.stack([q[:2], q[:2] + spoke]), jnp.array([[-1.0, 0], [1.0, 0]])


SYSTEM = nsdyn.System(mass=mass, force=force, potential=potential)
FLOOR = nsdyn.Contacts(height, sliding, mu=friction, e=restitution)


def rotating_ball(
    w: Number = 50.0,
    v0: Number = 0.0,
    y0: Number = 1.0,
    mu: Number = 0.2,
    e: Number = 0.0,
    R: Number = 0.1,
    m: Number = 1.0,
    g: Number = 9.81,
    t_end: float = 1.1,
) -> nsdyn.Problem:
    """A spinning ball falls on the floor. params: m, R, mu, e,
    g."""
    values = {"m": m, "R": R, "mu": mu, "e": e, "g": g}
    zero = jnp.zeros(())
    start = jnp.asarray(y0, float)
    return nsdyn.Problem(
        "rotating_ball",
        SYSTEM,
        FLOOR,
        q0=jnp.stack([zero, start, zero]),
        v0=jnp.stack([jnp.asarray(v0, float), zero, jnp.asarray(w, float)]),
        t_end=t_end,
        params={name: jnp.asarray(value, float) for name, value in values.items()},
        coordinates=("x [m]", "y [m]", "phi [rad]"),
        shape=shape,
    )
