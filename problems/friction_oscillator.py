"""Friction oscillator: a mass on a spring that rubs on the floor and comes to rest.

A force N presses the mass on the floor; no gap is modelled (`nsdyn.Friction`):

    m x'' = -k x + r,   |r| <= mu N,   r = -mu N sgn(x') where it slides                         (1)

With w^2 = k/m and d = mu N/k, each half swing from a turning point of size x_j is harmonic about
+-d and ends at a turning point of size x_j - 2 d, after pi/w; the mass rests at the first one with
|x| <= d. The numbers are those of an example of Siconos: m = k = mu N = 1 and (x, x') = (12, 6), so
that the turning points have the sizes sqrt(205) - 1 - 2 j, and it rests at x = 15 - sqrt(205) from
t = arctan(6/13) + 7 pi on.

V. Acary, F. Perignon: Siconos, INRIA technical report 340 (2007).
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import nsdyn
from nsdyn._types import AnyTime, Configuration, Matrix, Number, Params, Scalar, Velocity

ABOUT = nsdyn.About(tags=("friction",), source="Siconos")

REST_TIME = float(np.arctan(6 / 13) + 7 * np.pi)
REST_PLACE = float(15 - np.sqrt(205))


def exact(t: float) -> tuple[float, float]:
    """x and x' at the time t, for the numbers of the docstring."""
    x, v, side, start = 12.0, 6.0, 1.0, 0.0  # side: the sign of x'
    while True:
        a, b = x + side, v  # x + side = a cos + b sin
        turn = np.arctan2(b, a) if b else np.pi
        tau = t - start
        if tau < turn:
            c, s = np.cos(tau), np.sin(tau)
            return float(a * c + b * s - side), float(b * c - a * s)
        x = float(a * np.cos(turn) + b * np.sin(turn) - side)
        v, side, start = 0.0, -side, start + turn
        if abs(x) <= 1.0:
            return x, 0.0


def mass(q: Configuration, p: Params) -> Matrix:
    return p["m"] * jnp.eye(1)


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    return -p["k"] * q  # (1)


def potential(q: Configuration, p: Params) -> Scalar:
    return 0.5 * p["k"] * q[0] ** 2


def sliding(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Scalar:
    return v[0]


def pressing(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Scalar:
    return p["N"]


def friction(p: Params) -> Scalar:
    return p["mu"]


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """The mass, the spring and the floor."""
    box = jnp.array([[-1.0, 0.0], [1.0, 0.0], [1.0, 2.0], [-1.0, 2.0], [-1.0, 0.0]])
    at = jnp.stack([q[0], jnp.zeros(())])[None]
    spring = jnp.stack([jnp.array([-18.0, 1.0]), jnp.stack([q[0] - 1.0, jnp.ones(())])])
    return box + at, spring, jnp.array([[-18.0, 2.0], [-18.0, 0.0], [16.0, 0.0]])


SYSTEM = nsdyn.System(mass=mass, force=force, potential=potential)
FLOOR = nsdyn.Friction(sliding, normal=pressing, mu=friction)


def friction_oscillator(
    mu: Number = 1.0,
    x0: Number = 12.0,
    v0: Number = 6.0,
    N: Number = 1.0,
    m: Number = 1.0,
    k: Number = 1.0,
    t_end: float = 25.0,
) -> nsdyn.Problem:
    """A mass on a spring comes to rest by dry friction. params: m, k, N, mu."""
    values = {"m": m, "k": k, "N": N, "mu": mu}
    return nsdyn.Problem(
        "friction_oscillator",
        SYSTEM,
        FLOOR,
        q0=jnp.asarray(x0, float)[None],
        v0=jnp.asarray(v0, float)[None],
        t_end=t_end,
        params={name: jnp.asarray(value, float) for name, value in values.items()},
        coordinates=("x [m]",),
        shape=shape,
    )
