"""Planar five-bar pantograph whose tip hits a stiff wall (Font-Llagunes and Kovecses): 2
coordinates, or 4 with a closed loop.

The motors are at (+c, 0) and (-c, 0), c = l_5/2. Links 1 and 2 connect the first to the tip, links
3 and 4 the second; q_i are absolute angles from the x-axis, u(q) = (cos q, sin q). Link i has
length l_i, mass m_i, and inertia I_i about its centre of mass, at the distance a_i from the joint
nearer to the motor; links 3 and 4 are like 1 and 2. The end effector is a mass m_E at the tip.
There is no gravity.

    tip = (c, 0) + l_1 u(q_1) + l_2 u(q_2) = (-c, 0) + l_1 u(q_3) + l_2 u(q_4)                   (1)
    T = sum over both arms [1/2 n q_1'^2 + 1/2 f q_2'^2 + k cos(q_1 - q_2) q_1' q_2'],           (2)
        n = I_1 + m_1 a_1^2 + m_2 l_1^2,   f = I_2 + m_2 a_2^2,   k = m_2 l_1 a_2,
        plus m_E l_1^2, m_E l_2^2, m_E l_1 l_2 in the first arm, which carries the end effector
    forces: -k sin(q_1 - q_2) q_2'^2 on q_1,  +k sin(q_1 - q_2) q_1'^2 on q_2                    (3)

Closed loop: q = (q_1, q_2, q_3, q_4), and (1) are two constraints. Minimal: q = (q_1, q_3), the
angles of the motors; the elbows are e_1 = (c, 0) + l_1 u(q_1) and e_3 = (-c, 0) + l_1 u(q_3), the
tip lies at the distance l_2 from both, on the far side,

    tip = (e_1 + e_3)/2 + h n,  h^2 = l_2^2 - |e_1 - e_3|^2/4,
    n normal to e_1 - e_3, to its left                                                         (4)

and q_2, q_4 are the angles of tip - e_1 and tip - e_3. With W = d(q_1, ..., q_4)/d(q_1, q_3), M_4
of (2) and f_4 of (3)

    M = W^T M_4 W,    f = W^T (f_4 - M_4 W' v)                                                   (5)

The wall is the line y = wall, gap = wall - y of the tip; `tangent` is along x. A run starts at the
distance `distance` from the wall, the tip moving at the angle gamma to the wall so that it arrives
near x = d, without drives.

Table 1 of the paper gives lengths, masses and inertias. Its drawings are not available. Inferred,
because all printed values of xi then agree: both elbows point outwards, the line of the motors is
parallel to the wall at the distance 0.2242 m, d is measured from the axis of symmetry towards link
1, one set of links and one end effector count, and at gamma = 60 degrees the tip moves away from
the axis. x points from link 3 to link 1.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import nsdyn
from nsdyn._types import (
    AnyTime,
    Configuration,
    Matrix,
    Number,
    Numbers,
    Params,
    Rows,
    Scalar,
    Velocity,
)

ABOUT = nsdyn.About(tags=("contact", "loops", "planar"), source="Font-Llagunes and Kovecses")

TABLE_1 = {
    "l1": 0.1449,
    "l2": 0.1984,
    "a1": 0.0519,
    "a2": 0.1081,
    "l5": 0.0445,
    "m1": 0.1202,
    "m2": 0.1084,
    "mE": 0.3144,
    "I1": 0.0004,
    "I2": 0.0007,
}
WALL = 0.2242  # inferred
SPEED = 0.219  # of the tip, ours: at d = 0.1 m and 60 degrees T_c is the 9.3 mJ of the experiments


def unit(angle: Number) -> Float[Array, " 2"]:
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def tip_of_links(q: Configuration, p: Params) -> Float[Array, " 2"]:
    """The tip at the end of links 1 and 2, from q = (q_1, ..., q_4)."""
    return (
        jnp.stack([p["l5"] / 2, jnp.zeros_like(p["l5"])])
        + p["l1"] * unit(q[0])
        + p["l2"] * unit(q[1])
    )  # (1)


def loop(q: Configuration, t: AnyTime, p: Params) -> Rows:
    return tip_of_links(q, p) - (
        p["l1"] * unit(q[2]) + p["l2"] * unit(q[3]) - p["l5"] / 2 * unit(0.0)
    )  # (1)


def arms(p: Params) -> tuple[tuple[Array, Array, Array], tuple[Array, Array, Array]]:
    """n, f and k of (2) for both arms."""
    n = p["I1"] + p["m1"] * p["a1"] ** 2 + p["m2"] * p["l1"] ** 2
    f = p["I2"] + p["m2"] * p["a2"] ** 2
    k = p["m2"] * p["l1"] * p["a2"]
    carried = p["mE"] * p["l1"] ** 2, p["mE"] * p["l2"] ** 2, p["mE"] * p["l1"] * p["l2"]
    return (n + carried[0], f + carried[1], k + carried[2]), (n, f, k)


def mass_of_links(q: Configuration, p: Params) -> Matrix:
    blocks = []
    for (n, f, k), (near, far) in zip(arms(p), (q[:2], q[2:]), strict=True):
        c = k * jnp.cos(near - far)
        blocks.append(jnp.stack([jnp.stack([n, c]), jnp.stack([c, f])]))
    return jax.scipy.linalg.block_diag(*blocks)  # (2)


def force_of_links(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    parts = []
    for (_, _, k), i in zip(arms(p), (0, 2), strict=True):
        s = k * jnp.sin(q[i] - q[i + 1])
        parts += [-s * v[i + 1] ** 2, s * v[i] ** 2]  # (3)
    return jnp.stack(parts)


def all_angles(q: Configuration, p: Params) -> Float[Array, " 4"]:
    """(q_1, ..., q_4) from the angles (q_1, q_3) of the motors."""
    e1 = p["l1"] * unit(q[0]) + p["l5"] / 2 * unit(0.0)
    e3 = p["l1"] * unit(q[1]) - p["l5"] / 2 * unit(0.0)
    across = e1 - e3
    height = jnp.sqrt(p["l2"] ** 2 / jnp.dot(across, across) - 0.25)  # in lengths of `across`
    tip = 0.5 * (e1 + e3) + height * jnp.stack([-across[1], across[0]])  # (4)
    angle = lambda x: jnp.arctan2(x[1], x[0])
    return jnp.stack([q[0], angle(tip - e1), q[1], angle(tip - e3)])


def mass(q: Configuration, p: Params) -> Matrix:
    W = jax.jacfwd(all_angles)(q, p)
    return W.T @ mass_of_links(all_angles(q, p), p) @ W  # (5)


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    rates = lambda q: jax.jvp(lambda q: all_angles(q, p), (q,), (v,))
    (angles, s), (_, bias) = jax.jvp(rates, (q,), (v,))  # W v and W' v
    free = force_of_links(angles, s, t, p) - mass_of_links(angles, p) @ bias
    return jax.jacfwd(all_angles)(q, p).T @ free  # (5)


def tip(q: Configuration, p: Params) -> Float[Array, " 2"]:
    """The tip, from either set of coordinates."""
    return tip_of_links(all_angles(q, p) if q.shape[0] == 2 else q, p)


def gap(q: Configuration, t: AnyTime, p: Params) -> Rows:
    return (p["wall"] - tip(q, p)[1])[None]


def tangent(q: Configuration, t: AnyTime, p: Params) -> Float[Array, "1 n"]:
    """B, shape (1, n): the velocity of the tip along the wall is B v."""
    return jax.jacfwd(tip)(q, p)[:1]


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """Both arms, from motor to tip, and the wall."""
    angles = all_angles(q, p) if q.shape[0] == 2 else q
    lines = []
    for side, near, far in ((1.0, *angles[:2]), (-1.0, *angles[2:])):
        motor = side * p["l5"] / 2 * unit(0.0)
        elbow = motor + p["l1"] * unit(near)
        lines.append(jnp.stack([motor, elbow, elbow + p["l2"] * unit(far)]))
    wall = jnp.stack([p["l2"] * jnp.array([-1.0, 1.0]), p["wall"] * jnp.ones(2)], axis=1)
    return (*lines, wall)


MINIMAL = nsdyn.System(mass=mass, force=force)
LINKS = nsdyn.System(mass=mass_of_links, force=force_of_links)
LOOP, CONTACT = nsdyn.Fixed(loop), nsdyn.Contact(gap)


def pantograph(
    d: float = 0.1,
    gamma: float = 60.0,
    speed: float = SPEED,
    distance: float = 0.005,
    closed_loop: bool = False,
    t_end: float = 0.06,
) -> nsdyn.Problem:
    """The tip meets the wall near x = d, gamma in degrees. params: those of table 1, wall."""
    params = {name: jnp.asarray(value) for name, value in (TABLE_1 | {"wall": WALL}).items()}
    start = np.array([d - distance / np.tan(np.radians(gamma)), WALL - distance])
    motion = speed * np.array([np.cos(np.radians(gamma)), np.sin(np.radians(gamma))])
    angles = reached(start, params)
    q0, system = (angles, LINKS) if closed_loop else (angles[jnp.array([0, 2])], MINIMAL)
    constraint = (LOOP, CONTACT) if closed_loop else CONTACT
    v0 = moving(q0, motion, params)
    names = ("q_1 [rad]", "q_2 [rad]", "q_3 [rad]", "q_4 [rad]")
    return nsdyn.Problem(
        "pantograph",
        system,
        constraint,
        q0=q0,
        v0=v0,
        t_end=t_end,
        params=params,
        coordinates=names if closed_loop else names[::2],
        shape=shape,
    )


def reached(point: Numbers, p: Params) -> Float[Array, " 4"]:
    """(q_1, ..., q_4) with the tip at a point, both elbows outwards."""

    def arm(side: float) -> tuple[Scalar, Scalar]:
        x = jnp.asarray(point) - side * p["l5"] / 2 * unit(0.0)
        r = jnp.sqrt(jnp.dot(x, x))
        cosine = (p["l1"] ** 2 + r**2 - p["l2"] ** 2) / (2 * p["l1"] * r)
        near = jnp.arctan2(x[1], x[0]) - side * jnp.arccos(cosine)
        rest = x - p["l1"] * unit(near)
        return near, jnp.arctan2(rest[1], rest[0])

    return jnp.stack([*arm(1.0), *arm(-1.0)])


def moving(q: Configuration, velocity: Numbers, p: Params) -> Velocity:
    """v for this velocity of the tip, in either set of coordinates."""
    rows = jax.jacfwd(tip)(q, p)
    if q.shape[0] == 4:
        rows = jnp.concatenate([rows, jax.jacfwd(loop)(q, 0.0, p)])
    return jnp.linalg.solve(
        rows, jnp.concatenate([jnp.asarray(velocity, float), jnp.zeros(rows.shape[0] - 2)])
    )


def links(q: Configuration, p: Params) -> Float[Array, "5 2"]:
    """Motor 1, elbow 1, tip, elbow 3, motor 3 as one line, shape (5, 2), for drawing."""
    angles = all_angles(q, p) if q.shape[0] == 2 else q
    motor = p["l5"] / 2 * unit(0.0)
    elbows = motor + p["l1"] * unit(angles[0]), -motor + p["l1"] * unit(angles[2])
    return jnp.stack([motor, elbows[0], tip_of_links(angles, p), elbows[1], -motor])
