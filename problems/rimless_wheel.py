"""Rimless wheel: a hub on n spokes that rolls down a slope from foot to foot (McGeer).

x points down the slope, y along its normal. The hub (x, y) has the mass m; the spokes of length L
are massless. Spoke k (the mode minus FIRST) stands k steps down the slope; with alpha = pi/n

    M = diag(m, m),   V = m g (y cos gamma - x sin gamma)                                        (1)
    x_k = 2 k L sin alpha                                                                        (2)
    (x - x_k)^2 + y^2 = L^2                                                                      (3)
    z = x_k + L sin alpha - x  (down the slope),   x - x_k + L sin alpha  (up)                   (4)

A wheel with inertia I has a third coordinate, its angle phi, clockwise and zero when spoke 0 is
normal to the slope; without slipping

    phi = 2 k alpha + atan2(x - x_k, y)                                                          (5)

Without inertia this coordinate is omitted, since its mass would be zero. At a heel strike the hub
is above the middle between two feet; an impulse in the new foot, E = 1, multiplies the angular
velocity by

    omega+ = omega- r,   r = (I + m L^2 cos 2 alpha) / J,   J = I + m L^2                        (6)

and the wheel rolls on indefinitely with the omega+ for which gravity replaces the energy that the
impacts take:

    omega+^2 = r^2 (omega+^2 + 4 m g L sin gamma sin alpha / J)                                  (7)

The feet are bilateral, although a fast wheel would lift off. A slow wheel falls back over its foot
and rocks until its impacts accumulate.

Eight spokes, m = L = 1, I = 0 and the slope are common in the literature; the start is assumed.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
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
    Params,
    Rows,
    Scalar,
    Velocity,
)

ABOUT = nsdyn.About(tags=("walking", "impact", "planar"), source="McGeer")

# The mode of spoke 0: modes must not be negative, and a wheel may first roll up the slope
FIRST = 100


def mass(q: Configuration, p: Params) -> Matrix:
    return jnp.diag(jnp.stack([p["m"], p["m"], p["I"]])[: q.shape[0]])  # (1)


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    weight = p["m"] * p["g"]
    pull = jnp.stack(
        [weight * jnp.sin(p["slope"]), -weight * jnp.cos(p["slope"]), jnp.zeros_like(weight)]
    )
    return pull[: q.shape[0]]


def potential(q: Configuration, p: Params) -> Scalar:
    return p["m"] * p["g"] * (q[1] * jnp.cos(p["slope"]) - q[0] * jnp.sin(p["slope"]))  # (1)


def half_step(p: Params) -> Scalar:
    """Half the distance between two feet, L sin alpha."""
    return p["L"] * jnp.sin(p["alpha"])


def ahead(q: Configuration, p: Params, mode: AnyMode) -> tuple[AnyMode, Scalar]:
    """The number of the standing spoke, and how far the hub is ahead of its foot."""
    k = mode - FIRST
    return k, q[0] - 2 * k * half_step(p)  # (2)


def spoke(q: Configuration, t: AnyTime, p: Params, mode: AnyMode, held: Held) -> Rows:
    k, x = ahead(q, p, mode)
    length = (x**2 + q[1] ** 2 - p["L"] ** 2)[None]  # (3)
    if q.shape[0] == 2:
        return length
    return jnp.concatenate(
        [length, (q[2] - 2 * k * p["alpha"] - jnp.arctan2(x, q[1]))[None]]
    )  # (5)


def strikes(
    q: Configuration, v: Velocity, lam: Rows, t: AnyTime, p: Params, mode: AnyMode, held: Held
) -> Guards:
    """Guard `mode` mod 2 is the strike between this spoke and the next, in both modes, so that the
    guard that fired is also the one that would fall if the motion led back."""
    _, x = ahead(q, p, mode)
    down = half_step(p) - x
    up = half_step(p) + x  # (4)
    return jnp.where(mode % 2 == 0, jnp.stack([down, up]), jnp.stack([up, down]))


def next_spoke(
    fired: GuardMask, q: Configuration, v: Velocity, t: AnyTime, p: Params, mode: AnyMode
) -> Mode:
    return jnp.where(fired[mode % 2], mode + 1, mode - 1)


SYSTEM = nsdyn.System(mass=mass, force=force, potential=potential)
FEET = nsdyn.Transitions(rows=spoke, guards=strikes, after=next_spoke, mode0=FIRST)


def rimless_wheel(
    spokes: int = 8,
    m: Number = 1.0,
    L: Number = 1.0,
    I: Number = 0.0,
    slope: Number = 0.08,
    g: Number = 9.81,
    theta0: Number | None = None,
    omega0: Number = 1.5,
    t_end: float = 10.0,
) -> nsdyn.Problem:
    """The wheel stands on spoke 0, which leans forward by theta0 from the normal of the slope and
    turns with omega0. By default theta0 is -pi/spokes, just after a strike. params: m, L, I, slope,
    g, alpha."""
    alpha = jnp.pi / spokes
    values = {"m": m, "L": L, "I": I, "slope": slope, "g": g, "alpha": alpha}
    params = {name: jnp.asarray(value, float) for name, value in values.items()}
    theta = -params["alpha"] if theta0 is None else jnp.asarray(theta0, float)
    q0 = jnp.stack([L * jnp.sin(theta), L * jnp.cos(theta), theta])
    v0 = omega0 * jnp.stack([L * jnp.cos(theta), -L * jnp.sin(theta), jnp.ones(())])
    n = 2 if not isinstance(I, jax.core.Tracer) and I == 0 else 3
    return nsdyn.Problem(
        "rimless_wheel",
        SYSTEM,
        FEET,
        q0=q0[:n],
        v0=v0[:n],
        t_end=t_end,
        params=params,
        coordinates=("x [m]", "y [m]", "phi [rad]")[:n],
        shape=Spokes(spokes),
    )


class Spokes(eqx.Module):
    """Hub and feet as one line, there and back. The wheel stands on the foot that is nearest to
    the hub."""

    count: int = eqx.field(static=True)

    def __call__(self, q: Configuration, p: Params) -> tuple[Float[Array, "points 2"]]:
        k = jnp.round(q[0] / (2 * half_step(p)))  # (2)
        _, x = ahead(q, p, FIRST + k)
        angle = jnp.arctan2(x, q[1]) + 2 * p["alpha"] * jnp.arange(self.count)
        feet = q[:2][None] - p["L"] * jnp.stack([jnp.sin(angle), jnp.cos(angle)], axis=-1)
        hub = jnp.broadcast_to(q[:2], feet.shape)
        return (jnp.stack([hub, feet], axis=1).reshape(2 * self.count, 2),)
