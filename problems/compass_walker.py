"""Compass walker: two straight legs and a hip, walking down a slope without a motor (Goswami,
Espiau and Keramane).

x points down the slope, y along its normal. q = (x, y, th_0, th_1): the hip, with mass m_h, and the
angles of the legs from the normal, positive if the hip is ahead of the foot. A leg has the length l
= a + b and the mass m at the distance a from its foot and b from the hip:

    foot_i = (x - l sin th_i, y - l cos th_i),    r_i = (x - b sin th_i, y - b cos th_i)         (1)
    T = 1/2 m_h (x'^2 + y'^2) + 1/2 m sum_i |r_i'|^2                                             (2)
    V = g (m_h h(x, y) + m sum_i h(r_i)),   h(x, y) = y cos gamma - x sin gamma                  (3)

The foot of leg i (the mode) stands at x_i, where it struck the slope:

    foot_i = (x_i, 0)                                                                            (4)

The foot of the swinging leg j is at the height 2 l sin(s/2) sin((th_j - th_i)/2), s = th_i + th_j:
legs of equal length scuff when they pass each other, which is ignored, as in the literature. A heel
strikes in front, th_i > 0, when s rises through zero. The guard

    z = max(-s, -th_i)                                                                           (5)

is positive before mid-stance, th_i = 0, and later falls through zero at a strike. Then the legs
exchange roles, with an impulse in the new foot only (the old one leaves the ground freely).

A walker falls, modes 2 and 3, when the hip meets the slope, y = 0, or when the swinging leg is not
in front of the hip at mid-stance, so that th_i rises through zero after s. A time-stepping scheme
sees z at the end of a step, when both are positive; what has passed zero last is then the one that
needs less time back to it,

    s/s' > th_i/th_i',  as a product  s th_i' > th_i s'    the leg is late                       (6)

A walker that fell swings about its foot without further strikes.

The return map takes the state (th, u, w) just after a strike (standing leg at -th, swinging leg at
th, with rates u and w) to the state after the next strike.

Masses, lengths and slope are from the source; the start is near its gait.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

import nsdyn
from nsdyn._types import (
    AnyArray,
    AnyConfiguration,
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
    Scalar,
    Velocity,
)

ABOUT = nsdyn.About(tags=("walking", "impact", "planar"), source="Goswami, Espiau, Keramane")

NAMES = ("x [m]", "y [m]", "th_0 [rad]", "th_1 [rad]")
LEGS = 2  # a walker in mode LEGS + i has fallen, standing on leg i


def _along(q: AnyConfiguration, length: Number) -> Float[AnyArray, "2 2"]:
    """The points of both legs at this distance from the hip, shape (2, 2)."""
    return q[:2][None] - length * jnp.stack([jnp.sin(q[2:]), jnp.cos(q[2:])], axis=-1)  # (1)


def mass(q: Configuration, p: Params) -> Matrix:
    """(2): the rows of the Jacobians of both leg masses, d r_i = dx - b (cos th_i, -sin th_i) d
    th_i."""
    m, b = p["m"], p["b"]
    couple = -m * b * jnp.stack([jnp.cos(q[2:]), -jnp.sin(q[2:])])
    total = (p["mh"] + 2 * m) * jnp.eye(2)
    return jnp.concatenate(
        [jnp.concatenate([total, couple], 1), jnp.concatenate([couple.T, m * b**2 * jnp.eye(2)], 1)]
    )


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    """Weights, and the inertia of the leg masses, which turn about the hip: m b th'^2 along the
    leg."""
    m, b, g = p["m"], p["b"], p["g"]
    down = g * jnp.stack([jnp.sin(p["slope"]), -jnp.cos(p["slope"])])
    direction = jnp.stack([jnp.sin(q[2:]), jnp.cos(q[2:])])
    hip = (p["mh"] + 2 * m) * down - m * b * direction @ v[2:] ** 2
    legs = -m * b * (down[0] * direction[1] - down[1] * direction[0])
    return jnp.concatenate([hip, legs])


def potential(q: Configuration, p: Params) -> Scalar:
    height = lambda r: r[..., 1] * jnp.cos(p["slope"]) - r[..., 0] * jnp.sin(p["slope"])
    return p["g"] * (p["mh"] * height(q[:2]) + p["m"] * jnp.sum(height(_along(q, p["b"]))))  # (3)


def feet(q: AnyConfiguration, p: Params) -> Float[AnyArray, "2 2"]:
    return _along(q, p["a"] + p["b"])


def standing(q: Configuration, t: AnyTime, p: Params, mode: AnyMode, held: Held) -> Rows:
    leg = mode % LEGS
    return feet(q, p)[leg] - jnp.stack([held[leg], jnp.zeros_like(held[leg])])  # (4)


def places(q: AnyConfiguration, t: AnyTime, p: Params) -> Float[AnyArray, " 2"]:
    return feet(q, p)[:, 0]


def strike_or_fall(
    q: Configuration, v: Velocity, lam: Rows, t: AnyTime, p: Params, mode: AnyMode, held: Held
) -> Guards:
    strike = jnp.maximum(-q[2] - q[3], -q[2 + mode % LEGS])  # (5)
    return jnp.where(mode < LEGS, jnp.stack([strike, q[1]]), 1.0)


def exchanged(
    fired: GuardMask, q: Configuration, v: Velocity, t: AnyTime, p: Params, mode: AnyMode
) -> Mode:
    """The other leg, or a fall if the hip is down or the swinging leg is late, (6)."""
    leg = 2 + mode % LEGS
    late = (q[2] + q[3]) * v[leg] > q[leg] * (v[2] + v[3])  # (6)
    return jnp.where(fired[1] | late, LEGS + mode, LEGS - 1 - mode)


SYSTEM = nsdyn.System(mass=mass, force=force, potential=potential)
FEET = nsdyn.Transitions(
    rows=standing, guards=strike_or_fall, after=exchanged, hold=places, guards_use_lam=False
)


class Gait(NamedTuple):
    """A state just after a strike: angle of the swinging leg, rates of the standing and the
    swinging leg."""

    th: Array
    u: Array
    w: Array


def after_strike(gait: Iterable[Array], p: Params) -> tuple[Configuration, Velocity]:
    """(q, v) just after leg 0 has struck at x = 0."""
    th, u, w = gait
    l = p["a"] + p["b"]
    q = jnp.stack([-l * jnp.sin(th), l * jnp.cos(th), -th, th])
    return q, jnp.stack([l * jnp.cos(th) * u, l * jnp.sin(th) * u, u, w])


def at_strike(records: Any, k: int) -> Gait:
    """The state after the k-th recorded event, a strike."""
    leg = records.mode_after[k]
    return Gait(
        th=records.q[k, 2 + (1 - leg)],
        u=records.v_after[k, 2 + leg],
        w=records.v_after[k, 2 + (1 - leg)],
    )


def compass_walker(
    mh: Number = 10.0,
    m: Number = 5.0,
    a: Number = 0.5,
    b: Number = 0.5,
    slope: Number = jnp.pi / 60,
    g: Number = 9.81,
    gait: Numbers = (0.27, 1.1, 0.4),
    t_end: float = 5.0,
) -> nsdyn.Problem:
    """The walker starts just after a strike, in the state `gait`. params: mh, m, a, b, slope, g."""
    values = {"mh": mh, "m": m, "a": a, "b": b, "slope": slope, "g": g}
    params = {name: jnp.asarray(value, float) for name, value in values.items()}
    q0, v0 = after_strike([jnp.asarray(x, float) for x in gait], params)
    return nsdyn.Problem(
        "compass_walker",
        SYSTEM,
        FEET,
        q0=q0,
        v0=v0,
        t_end=t_end,
        params=params,
        coordinates=NAMES,
        shape=shape,
    )


def shape(q: Configuration, p: Params) -> tuple[Float[Array, "3 2"]]:
    """Foot of leg 0, hip, foot of leg 1 as one line."""
    first, second = feet(q, p)
    return (jnp.stack([first, q[:2], second]),)
