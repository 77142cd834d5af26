"""Palm of a metamorphic hand: a spherical five-bar linkage, its five hinge axes meeting in one
centre (Dai and Wei).

Links 1 to 4 move, link 5 is the base. With the arc angles alpha_i of the links and the hinge angles
q = (th_1 ... th_4)

    R_i = R_{i-1} Rz(th_i) Rx(alpha_i),   R_0 = 1,   z_i = R_{i-1} e_3                           (1)
    omega_i = sum_{k <= i} th_k' z_k                                                             (2)

The fifth hinge closes the loop: its axis R_4 e_3 must be the axis c = (0, sin alpha_5, cos alpha_5)
of the base. As e_1 and e_1 x c are orthogonal to c, this gives two rows:

    e_1 . R_4 e_3 = 0,   (e_1 x c) . R_4 e_3 = 0                                                 (3)

Two degrees of freedom remain. Link i is a uniform arc of radius rho and mass m_i = mu alpha_i. In
its frame, after the rotation Rz(th_i), it lies along u(s) = (0, -sin s, cos s), 0 < s < alpha, and
its inertia about the centre is

    J = m rho^2 (1 - <u u^T>),   <sin^2> = 1/2 - sin(2 a)/(4 a),   <cos^2> = 1/2 + sin(2 a)/(4 a),
    <sin cos> = sin(a)^2/(2 a)                                                                   (4)
    T = 1/2 sum_i omega_i . B_i J_i B_i^T omega_i,   B_i = R_{i-1} Rz(th_i)                      (5)
    f_k = -z_k . sum_{i >= k} (J_i eps_i + omega_i x J_i omega_i),
    eps_i = sum_{k <= i} omega_k x th_k' z_k                                                   (6)

There is no gravity. Two events are possible:

    lock
        drive 1 is locked at the time t_lock: a row is added, two degrees of freedom become one  (7)
    exchange
        drive 1 is locked, and drive 2 instead of it once th_3 falls below its value at
        (40, -60 degrees)                                                                      (8)

In (8) there are three rows before and after, so the impulse may act along intermediate gradients.

The flat palm, th = 0, possible because the arc angles add up to 360 degrees, is singular;
`problem.check()` reports it.

Mueller names the mechanism without numbers: all are assumed, including the arc angles (70, 40, 68,
112, 70 degrees).
"""

from functools import partial

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
from nsdyn.errors import unknown

ABOUT = nsdyn.About(tags=("loops", "locking"), source="Dai and Wei; Mueller")

ARCS = np.deg2rad([70.0, 40.0, 68.0, 112.0, 70.0])
DRIVES = np.deg2rad([40.0, -60.0])  # drives at the exchange, and at the start of "lock"
REST = np.deg2rad([122.4, 20.2])  # approximate th_3 and th_4 there
MOVING = 4
POINTS = 12  # of an arc that is drawn
ITERATIONS = 12  # of Newton's method, from errors of 0.02 rad (exchange: 0.4 rad) to round-off


def turns(q: Configuration, p: Params) -> Float[Array, "4 3 3"]:
    """Rz(th_i) Rx(alpha_i) of the moving links, shape (4, 3, 3); computed together, which compiles
    to less code."""
    c = jnp.cos(q)
    s = jnp.sin(q)
    a = jnp.cos(p["arcs"][:MOVING])
    b = jnp.sin(p["arcs"][:MOVING])
    return jnp.moveaxis(
        jnp.array([[c, -s * a, s * b], [s, c * a, -c * b], [jnp.zeros_like(c), b, a]]), -1, 0
    )


def frames(q: Configuration, p: Params) -> Float[Array, "5 3 3"]:
    """R_0 ... R_4, shape (5, 3, 3)."""
    R = [jnp.eye(3)]
    for turn in turns(q, p):
        R.append(R[-1] @ turn)  # (1)
    return jnp.stack(R)


def inertia(p: Params) -> Float[Array, "4 3 3"]:
    """J of the moving links in the frames R_i, shape (4, 3, 3): (4) rotated by Rx(-alpha_i) to the
    other end of the arc, where u = (0, sin s, cos s)."""
    a = p["arcs"][:MOVING]
    swing = jnp.sin(2 * a) / (4 * a)
    skew = -(jnp.sin(a) ** 2) / (2 * a)
    one = jnp.ones_like(a)
    none = jnp.zeros_like(a)
    rows = jnp.array(
        [[one, none, none], [none, 0.5 + swing, skew], [none, skew, 0.5 - swing]]
    )  # 1 - <u u^T>
    return (p["mu"] * a * p["rho"] ** 2)[:, None, None] * jnp.moveaxis(rows, -1, 0)  # (4)


def _bodies(
    q: Configuration, p: Params
) -> tuple[Float[Array, "4 3"], np.ndarray, Float[Array, "4 3 3"]]:
    """The axes z_i, shape (4, 3); which of them turn each link, shape (links, axes); and the
    inertias in the frame of the base."""
    R = frames(q, p)
    return (
        R[:MOVING, :, 2],
        np.tri(MOVING),
        jnp.einsum("kia,kab,kjb->kij", R[1:], inertia(p), R[1:]),
    )


def mass(q: Configuration, p: Params) -> Matrix:
    z, turned, J = _bodies(q, p)
    carried = jnp.einsum("kl,km,kij->lmij", turned, turned, J)  # the links that both axes turn
    return jnp.einsum("li,lmij,mj->lm", z, carried, z)  # (5)


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    z, turned, J = _bodies(q, p)
    rates = v[:, None] * z
    omega = turned @ rates  # (2)
    eps = turned @ jnp.cross(
        omega, rates
    )  # omega_i' without th'': sum of omega_{k-1} x th_k' z_k, and z_k x z_k = 0
    moment = jnp.einsum("kij,kj->ki", J, eps) + jnp.cross(omega, jnp.einsum("kij,kj->ki", J, omega))
    return -jnp.sum(z * (turned.T @ moment), axis=1)  # (6)


def closure(q: Configuration, t: AnyTime, p: Params) -> Rows:
    axis = jnp.array([0.0, 0.0, 1.0])
    for turn in turns(q, p)[::-1]:
        axis = turn @ axis
    s = jnp.sin(p["arcs"][-1])
    c = jnp.cos(p["arcs"][-1])
    return jnp.stack([axis[0], s * axis[2] - c * axis[1]])  # (3)


def lock_time(p: Params) -> Float[Array, " 1"]:
    return p["t_lock"]


def past_exchange(q: Configuration, p: Params) -> Scalar:
    return p["th3"] - q[2]


SYSTEM = nsdyn.System(mass=mass, force=force)
EVENTS = {
    "lock": (
        nsdyn.Fixed(closure),
        nsdyn.Scheduled(times=lock_time, stages=(None, nsdyn.lock(0))),
    ),  # (7)
    "exchange": (
        nsdyn.Fixed(closure),
        nsdyn.Switching(modes=(nsdyn.lock(0), nsdyn.lock(1)), switches=(past_exchange,)),
    ),  # (8)
}


def closed(drives: Float[Array, " 2"], rest: Float[Array, " 2"], p: Params) -> Configuration:
    """q with the first two angles given; the others, near `rest`, close the loop by Newton's method
    on (3)."""
    rows = lambda x: closure(jnp.concatenate([drives, x]), 0.0, p)
    x = rest
    for _ in range(ITERATIONS):
        x = x - jnp.linalg.solve(jax.jacfwd(rows)(x), rows(x))
    return jnp.concatenate([drives, x])


def carried(q: Configuration, rates: Float[Array, " 2"], p: Params) -> Velocity:
    """v with the rates of the two drives given; the others follow."""
    G = jax.jacfwd(lambda q: closure(q, 0.0, p))(q)
    return jnp.concatenate([rates, -jnp.linalg.solve(G[:, 2:], G[:, :2] @ rates)])


def metamorphic_palm(
    event: str = "lock",
    arcs: Numbers = ARCS,
    rho: Number = 0.05,
    mu: Number = 0.12 / ARCS[0],
    rates: Numbers = (2.0, 1.0),
    t_lock: Number = 0.1,
    back: Number = 0.2,
    t_end: float = 0.3,
) -> nsdyn.Problem:
    """event: "lock" starts at the drive angles (40, -60 degrees) with these `rates`; "exchange"
    starts with drive 1 locked and drive 2 `back` radians before that position. params: arcs, rho,
    mu (mass per radian), t_lock (a vector of length 1), th3."""
    if event not in EVENTS:
        raise unknown("metamorphic_palm(event=...)", str(event), EVENTS)
    values = {
        "arcs": arcs,
        "rho": rho,
        "mu": mu,
        "t_lock": jnp.reshape(jnp.asarray(t_lock, float), (1,)),
    }
    params = {name: jnp.asarray(value, float) for name, value in values.items()}
    q0, v0, params["th3"] = _start(params, jnp.asarray(rates, float), back, event == "exchange")
    return nsdyn.Problem(
        "metamorphic_palm",
        SYSTEM,
        EVENTS[event],
        q0=q0,
        v0=v0,
        t_end=t_end,
        params=params,
        coordinates=("th_1 [rad]", "th_2 [rad]", "th_3 [rad]", "th_4 [rad]"),
        shape=shape,
    )


@partial(jax.jit, static_argnums=3)
def _start(
    p: Params, rates: Float[Array, " 2"], back: Number, exchanges: bool
) -> tuple[Configuration, Velocity, Scalar]:
    """q and v at the start, and th_3 at the exchange."""
    q = place = closed(jnp.asarray(DRIVES), jnp.asarray(REST), p)
    if exchanges:
        rates = rates * jnp.array([0.0, 1.0])
        q = closed(jnp.asarray(DRIVES) - back * jnp.array([0.0, 1.0]), place[2:], p)
    return q, carried(q, rates, p), place[2]


def shape(q: Configuration, p: Params) -> tuple[Float[Array, "points 3"], ...]:
    """The arcs of the five links on the unit sphere."""
    arc = lambda s: jnp.stack([jnp.zeros(POINTS), jnp.sin(s), jnp.cos(s)], axis=-1)
    left = (
        p["arcs"][:, None] * jnp.linspace(1.0, 0.0, POINTS)[None]
    )  # of each arc, seen from its far end
    links = [arc(s) @ R.T for s, R in zip(left, frames(q, p)[1:], strict=False)]
    return (*links, arc(left[-1]))
