"""Knife edge on an inclined plane: a blade that slides along itself and not sideways.

The classic of nonholonomic mechanics (A. M. Bloch, "Nonholonomic Mechanics and Control", section
1.6). The point of contact (x, y), x downhill, and the heading phi:

    M = diag(m, m, J),   V = -m g sin(alpha) x                                                   (1)
    x' sin(phi) - y' cos(phi) = 0                                                                (2)

A blade that starts at rest with the turning rate w does not slide away: it moves along a cycloid,

    phi = w t,  x = a sin(w t)^2,  y = a (w t - sin(2 w t)/2),  a = g sin(alpha) / (2 w^2)       (3)

All parameters are assumed; m and J do not matter.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import nsdyn
from nsdyn._types import AnyTime, Configuration, Matrix, Number, Params, Scalar, Velocity

ABOUT = nsdyn.About(tags=("smooth", "nonholonomic"), source="Bloch")

PULL, TURN, END = 9.81 * 0.5, 2.0, 3.0
LENGTH = 0.4  # of the blade, for drawing


def exact(t: np.ndarray, pull: Number = PULL, w: Number = TURN) -> tuple[np.ndarray, np.ndarray]:
    """q and v of (3) at the times t, shapes (k, 3); pull = g sin(alpha)."""
    a = pull / (2 * w**2)
    q = np.stack([a * np.sin(w * t) ** 2, a * (w * t - np.sin(2 * w * t) / 2), w * t], axis=-1)
    rates = [a * w * np.sin(2 * w * t), a * w * (1 - np.cos(2 * w * t)), w * np.ones_like(t)]
    return q, np.stack(rates, axis=-1)


def motion(
    t: np.ndarray, problem: nsdyn.Problem, law: nsdyn.AbstractLaw
) -> tuple[np.ndarray, np.ndarray]:
    return exact(t, float(problem.params["pull"]), float(problem.v0[2]))


CLOSED_FORM = nsdyn.ClosedForm(motion, "A. M. Bloch, (3) of its file")
_end = exact(np.array(END))
REFERENCE = nsdyn.Reference(
    q=tuple(_end[0].tolist()),
    v=tuple(_end[1].tolist()),
    source="closed form",
    tolerance=1e-9,
    agrees=(
        nsdyn.Agreement("EventDriven(RK4())", 1000, 1e-10),
        nsdyn.Agreement("EventDriven(DormandPrince(order=8, rtol=1e-11, atol=1e-13))", 50, 1e-11),
        nsdyn.Agreement("NSGA()", 128000, 1e-9),
        nsdyn.Agreement("GeneralizedAlpha(index=2)", 128000, 1e-9),
        nsdyn.Agreement("GeneralizedAlpha(index=3)", 128000, 1e-9),
    ),
)


def mass(q: Configuration, p: Params) -> Matrix:
    return jnp.diag(jnp.stack([p["m"], p["m"], p["J"]]))


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    return jnp.stack([p["m"] * p["pull"], jnp.zeros(()), jnp.zeros(())])


def potential(q: Configuration, p: Params) -> Scalar:
    return -p["m"] * p["pull"] * q[0]


def sideways(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Scalar:
    return v[0] * jnp.sin(q[2]) - v[1] * jnp.cos(q[2])  # (2)


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """The blade, and its point of contact."""
    half = LENGTH / 2 * jnp.stack([jnp.cos(q[2]), jnp.sin(q[2])])
    return (jnp.stack([q[:2] - half, q[:2] + half]), q[None, :2])


SYSTEM = nsdyn.System(mass=mass, force=force, potential=potential)
BLADE = nsdyn.Nonholonomic(sideways)


def knife_edge(
    m: Number = 1.0, J: Number = 0.1, pull: Number = PULL, w: Number = TURN, t_end: float = END
) -> nsdyn.Problem:
    """The knife edge, at rest but turning. params: m, J, pull (g sin(alpha))."""
    params = {n: jnp.asarray(x, float) for n, x in {"m": m, "J": J, "pull": pull}.items()}
    v0 = jnp.stack([jnp.zeros(()), jnp.zeros(()), jnp.asarray(w, float)])
    return nsdyn.Problem(
        "knife_edge",
        SYSTEM,
        BLADE,
        q0=jnp.zeros(3),
        v0=v0,
        t_end=t_end,
        params=params,
        coordinates=("x [m]", "y [m]", "phi [rad]"),
        shape=shape,
    )
