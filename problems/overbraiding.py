"""Overbraiding: bobbin carriers passed from one horn gear to the next around a ring (the process
behind Patil and Bruls).

N gears (even, at least 6) touch each other on a ring; gear i turns with s_i = +1 (i even) or -1. A
carrier rides on its gear at the radius r and is transferred where two gears touch. It travels
around the ring in the direction d = +1 or -1, alternately outside and inside of the gears:

    c_i = R_b (cos beta_i, sin beta_i),   beta_i = 2 pi i/N,   R_b = r/sin(pi/N)                 (1)
    exit from gear i at the angle  beta_i + d (pi/2 + pi/N),
    entry at  beta_i - d (pi/2 + pi/N)                                                         (2)
    arcs on the gears:  pi + 2 pi/N  where d s_i = 1 (outside),   pi - 2 pi/N  (inside)          (3)

A carrier has the coordinates (x, y, phi), mass m and inertia I; its mode is the number i of its
gear. With e(psi) = (cos psi, sin psi), p = (x, y) and the angle psi of the carrier on its gear,

    free         |p - c_i| = r,  phi = psi mod pi        each carrier moves alone                (4)
    common       p = c_i + r e(psi),  phi = psi mod pi,  psi = k_i + s_i alpha; the first coordinate
                 alpha is that of the drive, with the inertia J_G of all gears                   (5)
    prescribed   the same with alpha = Omega t                                                   (6)

phi - psi is constant modulo pi, as psi changes by pi in a transfer, so no phase is stored. The k_i
belong to a path with all transfers exactly at (2); they come from a table and are the same in every
round, since alpha advances by N pi per round. So errors of transfers do not accumulate.

The obvious switching function, along the line of centres, is tangent to the path there. We use the
one along the path, with the direction n of travel at the exit p_t, restricted to the half of the
gear that faces p_t, because its line also cuts the far side (with four gears the entry would lie on
the edge of that half):

    z = n . (p_t - p),   n = s_i (-sin, cos) of the exit angle                                   (7)

Linear velocities are continuous; the spin phi' jumps from s_i alpha' to -s_i alpha'. An impulse
along the gradient at position E, in the mass metric, multiplies all speeds by cos(E th)/cos((1 - E)
th), where for k of n carriers transferred at once

    cos th = (J_G + n m r^2 + (n - 2 k) I)/(J_G + n (m r^2 + I))                                 (8)

(free carrier: J_G = 0, n = k = 1); with a prescribed drive the speed does not change.

The slides give no numbers: all parameters are assumed, and the geometry is derived.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import nsdyn
from nsdyn._types import (
    AnyMode,
    AnyTime,
    Configuration,
    GuardMask,
    Guards,
    Held,
    Matrix,
    Mode,
    Number,
    Numbers,
    Params,
    Rows,
    Velocity,
)
from nsdyn.errors import unknown

ABOUT = nsdyn.About(tags=("switching", "many modes"), source="Patil and Bruls")

SIZE = 3  # coordinates of a carrier


def ring(gears: int) -> tuple[tuple[int, int], ...]:
    """(gear, direction) for one carrier per gear, half of them in each direction, which never
    collide."""
    return tuple((i, d) for d in (1, -1) for i in range(0, gears, 2))


def _parts(q: Configuration) -> Float[Array, "carriers 3"]:
    """The coordinates of the carriers, shape (carriers, 3), without that of a drive."""
    return q[q.shape[0] % SIZE :].reshape(-1, SIZE)


def mass(q: Configuration, p: Params) -> Matrix:
    carriers = q.shape[0] // SIZE
    each = jnp.tile(jnp.stack([p["m"], p["m"], p["I"]]), carriers)
    return jnp.diag(jnp.concatenate([p["J"][None], each]) if q.shape[0] % SIZE else each)


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    return jnp.zeros_like(q)


def _unit(angle: Float[Array, " carriers"]) -> Float[Array, "carriers 2"]:
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=-1)


def _facing(
    u: Float[Array, "carriers 2"], phi: Float[Array, " carriers"]
) -> Float[Array, " carriers"]:
    """sin(phi - psi) for vectors u = e(psi)."""
    return u[:, 0] * jnp.sin(phi) - u[:, 1] * jnp.cos(phi)


def free(q: Configuration, t: AnyTime, p: Params, gear: AnyMode, held: Held) -> Rows:
    x = _parts(q)
    out = (x[:, :2] - p["centre"][gear]) / p["r"]
    rows = jnp.stack(
        [0.5 * p["r"] * (jnp.sum(out**2, axis=1) - 1.0), _facing(out, x[:, 2])], axis=1
    )
    return rows.reshape(-1)  # (4)


def _carried(q: Configuration, alpha: Number, p: Params, gear: AnyMode) -> Rows:
    x = _parts(q)
    psi = p["phase"][p["way"], gear] + p["turn"][gear] * (alpha - p["offset"])
    u = _unit(psi)
    place = x[:, :2] - p["centre"][gear] - p["r"] * u
    return jnp.concatenate([place, _facing(u, x[:, 2])[:, None]], axis=1).reshape(-1)  # (5)


def common(q: Configuration, t: AnyTime, p: Params, gear: AnyMode, held: Held) -> Rows:
    return _carried(q, q[0], p, gear)


def prescribed(q: Configuration, t: AnyTime, p: Params, gear: AnyMode, held: Held) -> Rows:
    return _carried(q, p["Omega"] * t, p, gear)  # (6)


def exits(
    q: Configuration, v: Velocity, lam: Rows, t: AnyTime, p: Params, gear: AnyMode, held: Held
) -> Guards:
    out = _parts(q)[:, :2] - p["centre"][gear]
    u = p["exit"][p["way"], gear]  # e(exit angle)
    near = jnp.sum(u * out, axis=1) > 0
    z = p["turn"][gear] * (out[:, 0] * u[:, 1] - out[:, 1] * u[:, 0])  # (7)
    return jnp.where(near, z, p["r"])


def handed_over(
    fired: GuardMask, q: Configuration, v: Velocity, t: AnyTime, p: Params, gear: AnyMode
) -> Mode:
    return jnp.where(fired, (gear + 1 - 2 * p["way"]) % p["turn"].shape[0], gear)


SYSTEM = nsdyn.System(mass=mass, force=force)
DRIVES = {"free": free, "common": common, "prescribed": prescribed}


def _tables(gears: int, r: float) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Tables by gear, and by way (0: d = 1, 1: d = -1) and gear."""
    i = np.arange(gears)
    d = np.array([[1.0], [-1.0]])
    beta = 2 * np.pi * i / gears
    s = 1.0 - 2 * (i % 2)
    quarter = np.pi / 2 + np.pi / gears
    arc = np.pi + d * s * 2 * np.pi / gears  # (3)
    # the angle of the drive at the entry to gear i, counted from gear 0 in the direction of travel
    order = np.stack([i, -i % gears])
    reached = np.zeros((2, gears))
    for way in (0, 1):
        reached[way, order[way]] = np.concatenate([[0.0], np.cumsum(arc[way, order[way]])[:-1]])
    phase = beta - d * quarter - s * reached
    tables = {
        "centre": r / np.sin(np.pi / gears) * np.stack([np.cos(beta), np.sin(beta)], axis=-1),
        "turn": s,
    }  # (1)
    tables |= {
        "exit": np.stack([np.cos(beta + d * quarter), np.sin(beta + d * quarter)], axis=-1)
    }  # (2)
    return tables | {"phase": np.remainder(phase, 2 * np.pi)}, arc, reached


def overbraiding(
    gears: int = 8,
    start: Numbers = ((0, 1),),
    drive: str = "prescribed",
    r: Number = 0.06,
    m: Number = 0.5,
    I: Number = 2e-4,
    J: Number = 5e-3,
    Omega: Number = 10.0,
    t_end: float = 2.0,
) -> nsdyn.Problem:
    """Carriers start in the middle of their arcs; `start` lists (gear, direction) of each carrier,
    for example ring(gears).

    drive: "free", "common" or "prescribed". params: r, m, I, J, Omega, offset and way of each
    carrier, and the tables centre, turn, exit and phase.
    """
    if drive not in DRIVES:
        raise unknown("overbraiding(drive=...)", str(drive), DRIVES)
    where = np.asarray(start, int).reshape(-1, 2)
    if (
        gears < 6
        or gears % 2
        or np.any(where[:, 0] >= gears)
        or np.any(where[:, 0] < 0)
        or np.any(abs(where[:, 1]) != 1)
    ):
        raise nsdyn.ProblemError(
            "overbraiding(gears=..., start=...): expected an even number of gears, at least 6, and "
            f"pairs (gear, 1 or -1), found {gears} and {tuple(start)}"
        )
    tables, arc, reached = _tables(gears, 1.0)
    gear = where[:, 0]
    way = (1 - where[:, 1]) // 2
    offset = -arc[way, gear] / 2 - reached[way, gear]  # alpha at the (earlier) entry to gear 0
    values = {"r": r, "m": m, "I": I, "J": J, "Omega": Omega, "offset": offset} | tables
    params = {name: jnp.asarray(value, float) for name, value in values.items()}
    params |= {"centre": params["r"] * params["centre"], "way": jnp.asarray(way)}
    q0, v0 = _start(params, jnp.asarray(gear), drive == "common")
    rows = nsdyn.Transitions(rows=DRIVES[drive], guards=exits, after=handed_over, mode0=gear)
    each = [f"{name}_{i}" for i in range(len(where)) for name in ("x", "y", "phi")]
    units = ["m", "m", "rad"] * len(where)
    names = [f"{name} [{unit}]" for name, unit in zip(each, units, strict=True)]
    return nsdyn.Problem(
        "overbraiding",
        SYSTEM,
        rows,
        q0=q0,
        v0=v0,
        t_end=t_end,
        params=params,
        coordinates=["alpha [rad]", *names] if drive == "common" else names,
        shape=shape,
    )


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """The paths of the carriers on all gears, and the carriers."""
    angle = jnp.linspace(0.0, 2 * jnp.pi, 49)
    circles = p["centre"][:, None] + p["r"] * _unit(angle)[None]
    return (*circles, *(x[None, :2] for x in _parts(q)))


def _start(p: Params, gear: AnyMode, driven: bool) -> tuple[Configuration, Velocity]:
    psi = p["phase"][p["way"], gear] - p["turn"][gear] * p["offset"]
    turn = p["turn"][gear] * p["Omega"]
    u = p["r"] * _unit(psi)
    q = jnp.concatenate([p["centre"][gear] + u, psi[:, None]], axis=1).reshape(-1)
    v = jnp.concatenate(
        [turn[:, None] * jnp.stack([-u[:, 1], u[:, 0]], axis=1), turn[:, None]], axis=1
    ).reshape(-1)
    if driven:
        q = jnp.concatenate([jnp.zeros(1), q])
        v = jnp.concatenate([p["Omega"][None], v])
    return q, v
