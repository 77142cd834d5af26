"""Ball on a table: a ball that bounces on a table that vibrates, once in each period.

The table moves as A sin(w t), w = 2 pi f; the ball, at the height y, leaves it with e times the
relative speed at which it came:

    y'' = -g,   gap = y - A sin(w t)                                                             (1)

A motion that repeats after one period T = 1/f leaves with y'+ = g T/2, at the phase phi = w t of

    A w^2 cos(phi) = pi g (1 - e)/(1 + e)                                                        (2)

The ball starts in this motion, right after an impact. The map from one impact to the next has the
determinant e^2 and the trace 1 + e^2 - (1 + e)^2 A w^2 sin(phi)/g: the motion is stable for the
numbers here, which are assumed: A = 2.8 mm, f = 10 Hz, e = 1/2.

P. J. Holmes: The dynamics of repeated impacts with a sinusoidally vibrating table. J. Sound and
Vibration 84 (1982) 173-189.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import nsdyn
from nsdyn._types import AnyTime, Configuration, Matrix, Params, Scalar, Velocity

ABOUT = nsdyn.About(tags=("contact", "impact", "limit cycle"), source="Holmes 1982")


def phase(A: float = 0.0028, f: float = 10.0, e: float = 0.5, g: float = 9.81) -> float:
    """phi of (2)."""
    share = np.pi * g * (1 - e) / (1 + e) / (A * (2 * np.pi * f) ** 2)
    if share > 1:
        raise nsdyn.ProblemError(
            f"ball_on_table(A=...): expected A of at least {A * share:.4g}, with which the ball "
            f"can bounce once in each period, found {A:g}"
        )
    return float(np.arccos(share))


def mass(q: Configuration, p: Params) -> Matrix:
    return p["m"] * jnp.eye(1)


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    return -p["m"] * p["g"] * jnp.ones(1)


def potential(q: Configuration, p: Params) -> Scalar:
    return p["m"] * p["g"] * q[0]


def above_table(q: Configuration, t: AnyTime, p: Params) -> Scalar:
    return q[0] - p["A"] * jnp.sin(2 * jnp.pi * p["f"] * t)  # (1)


def restitution(p: Params) -> Scalar:
    return p["e"]


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """The ball, and the highest place of the table."""
    ball = jnp.stack([jnp.zeros(()), q[0]])[None]
    return ball, p["A"] * jnp.array([[-2.0, 1.0], [2.0, 1.0]])


SYSTEM = nsdyn.System(mass=mass, force=force, potential=potential)
TABLE = nsdyn.Contacts(above_table, e=restitution)


def ball_on_table(
    A: float = 0.0028, f: float = 10.0, e: float = 0.5, g: float = 9.81, periods: int = 10
) -> nsdyn.Problem:
    """A ball bounces on a table. params: m, g, A, f, e."""
    phi = phase(A, f, e, g)
    start = phi / (2 * np.pi * f)
    values = {"m": 1.0, "g": g, "A": A, "f": f, "e": e}
    return nsdyn.Problem(
        "ball_on_table",
        SYSTEM,
        TABLE,
        q0=[A * np.sin(phi)],
        v0=[g / (2 * f)],
        t0=start,
        t_end=start + periods / f,
        params={name: jnp.asarray(value, float) for name, value in values.items()},
        coordinates=("y [m]",),
        shape=shape,
    )
