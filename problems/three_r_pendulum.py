"""Planar 3R pendulum whose joints lock one after another (A. Mueller, section 6).

q = relative joint angles; q_1 is measured from the horizontal, all counter-clockwise; gravity acts
along -y. With the absolute angles and rates th_i = q_1 + ... + q_i, w_i = v_1 + ... + v_i, link
length L, mass m, inertia I about the centre of mass,

    T = 1/2 sum_ij A_ij w_i w_j cos(th_i - th_j),
    A_11 = I + 9/4 m L^2, A_22 = I + 5/4 m L^2, A_33 = I + 1/4 m L^2,                          (1)
        A_12 = 3/2 m L^2,  A_13 = A_23 = 1/2 m L^2
    V = m g L (5/2 sin th_1 + 3/2 sin th_2 + 1/2 sin th_3)                                       (2)

The force on th_i is Q_i = -sum_j A_ij w_j^2 sin(th_i - th_j) - dV/dth_i; in relative angles M and f
are sums of these over the links that a joint carries. Mass, inertia, lengths, initial state and
lock times are from the paper; its drawing is not available, so the angle convention and the end
time of 2 s are ours.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

import nsdyn
from nsdyn._types import (
    AnyTime,
    Configuration,
    Matrix,
    Numbers,
    Params,
    Scalar,
    Velocity,
)

ABOUT = nsdyn.About(tags=("locking", "planar"), source="Mueller")

LENGTH = 1.0
MASS = 108.0
INERTIA = 9.36
GRAVITY = 9.81
LOCK_TIMES = (0.8, 1.3)


def mass(q: Configuration, p: Params) -> Matrix:
    a = p["m"] * p["L"] ** 2
    c2 = jnp.cos(q[1])
    c3 = jnp.cos(q[2])
    c23 = jnp.cos(q[1] + q[2])
    m33 = p["I"] + 0.25 * a
    m23 = m33 + 0.5 * a * c3
    m13 = m23 + 0.5 * a * c23
    m22 = 2 * p["I"] + a * (1.5 + c3)
    m12 = m22 + a * (1.5 * c2 + 0.5 * c23)
    m11 = 3 * p["I"] + a * (3.75 + 3 * c2 + c3 + c23)
    return jnp.stack(
        [jnp.stack([m11, m12, m13]), jnp.stack([m12, m22, m23]), jnp.stack([m13, m23, m33])]
    )


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    a = p["m"] * p["L"] ** 2
    weight = p["m"] * p["g"] * p["L"]
    w1 = v[0]
    w2 = v[0] + v[1]
    w3 = v[0] + v[1] + v[2]
    s21 = 1.5 * a * jnp.sin(q[1])
    s31 = 0.5 * a * jnp.sin(q[1] + q[2])
    s32 = 0.5 * a * jnp.sin(q[2])
    th2 = q[0] + q[1]
    th3 = q[0] + q[1] + q[2]
    f3 = -(s31 * w1 * w1 + s32 * w2 * w2) - 0.5 * weight * jnp.cos(th3)
    f2 = -s21 * w1 * w1 + s32 * w3 * w3 - 1.5 * weight * jnp.cos(th2)
    f1 = s21 * w2 * w2 + s31 * w3 * w3 - 2.5 * weight * jnp.cos(q[0])
    return jnp.stack([f1 + f2 + f3, f2 + f3, f3])


def potential(q: Configuration, p: Params) -> Scalar:
    th2 = q[0] + q[1]
    th3 = q[0] + q[1] + q[2]
    return (
        p["m"] * p["g"] * p["L"] * (2.5 * jnp.sin(q[0]) + 1.5 * jnp.sin(th2) + 0.5 * jnp.sin(th3))
    )


def lock_times(p: Params) -> Float[Array, " locks"]:
    return p["locks"]


SYSTEM = nsdyn.System(mass=mass, force=force, potential=potential)
LOCKS = nsdyn.Scheduled(times=lock_times, stages=(None, nsdyn.lock(1), nsdyn.lock(1, 2)))


def three_r_pendulum(
    m: float = MASS,
    L: float = LENGTH,
    I: float = INERTIA,
    g: float = GRAVITY,
    locks: Numbers = LOCK_TIMES,
    q0: Numbers = (jnp.pi / 6,) * 3,
    v0: Numbers = (0.0, 0.0, 0.0),
    t_end: float = 2.0,
) -> nsdyn.Problem:
    """The 3R pendulum; joint 2 locks at locks[0], joint 3 at locks[1]. params: m, L, I, g,
    locks."""
    params = {
        "m": float(m),
        "L": float(L),
        "I": float(I),
        "g": float(g),
        "locks": jnp.asarray(locks, float),
    }
    return nsdyn.Problem(
        "three_r_pendulum",
        SYSTEM,
        LOCKS,
        q0=q0,
        v0=v0,
        t_end=t_end,
        params=params,
        coordinates=("q_1 [rad]", "q_2 [rad]", "q_3 [rad]"),
        shape=shape,
    )


def shape(q: Configuration, p: Params) -> tuple[Float[Array, "4 2"]]:
    """The four joint points, from base to tip, as one line."""
    angles = jnp.cumsum(jnp.asarray(q))
    links = p["L"] * jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=-1)
    return (jnp.concatenate([jnp.zeros((1, 2)), jnp.cumsum(links, axis=0)]),)
