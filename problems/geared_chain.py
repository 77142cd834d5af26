"""A chain in motor coordinates, for a robot with gears.

With the gear ratio N_i of a joint the motor angle is q_i = N_i th_i, th the joint angles of
`nsdyn.multibody.chain`. Hence

    th = q/N,   M_ij(q) = M_ij(th)/(N_i N_j),   f_i = -b_i(th, th')/N_i,   V(q) = V(th)          (1)

with the mass matrix M(th), the bias b(th, th') and the potential V(th) of
`nsdyn.multibody.chain_dynamics`. The inertia J_i of a rotor enters the chain as N_i^2 J_i, so that
it is J_i here. If motors compensate the fraction c of the weight, the bias is that of a chain with
the gravity

    (1 - c) gravity                                                                              (2)

The potential is still that of the whole weight: for c > 0 the motors do work. params: chain, ratio
(N) and compensation (c).
"""

import equinox as eqx
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
    Scalar,
    Velocity,
)
from nsdyn.multibody.chain import Chain, tip
from nsdyn.multibody.chain_dynamics import bias, height_energy, mass_matrix
from nsdyn.multibody.skeleton import chain_coordinates, chain_shape


def mass(q: Configuration, p: Params) -> Matrix:
    N = p["ratio"]
    return mass_matrix(p["chain"], q / N) / (N[:, None] * N[None, :])  # (1)


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    N = p["ratio"]
    chain = eqx.tree_at(
        lambda x: x.gravity, p["chain"], (1.0 - p["compensation"]) * p["chain"].gravity
    )  # (2)
    return -bias(chain, q / N, v / N) / N  # (1)


def potential(q: Configuration, p: Params) -> Scalar:
    return height_energy(p["chain"], q / p["ratio"])


def tip_position(q: Configuration, p: Params) -> Float[Array, " 3"]:
    """The position in the world of the point p["tip"] of the last link."""
    return tip(p["chain"], q / p["ratio"], p["tip"])


def shape(q: Configuration, p: Params) -> tuple[Float[Array, "points 3"]]:
    """Base, joints and tip as one line, shape (n + 2, 3)."""
    (line,) = chain_shape(q / p["ratio"], p)
    return (jnp.concatenate([jnp.zeros((1, 3)), line]),)


def coordinates(n: int) -> tuple[str, ...]:
    return chain_coordinates([f"motor {i + 1}" for i in range(n)])


SYSTEM = nsdyn.System(mass=mass, force=force, potential=potential)


def parameters(chain: Chain, ratio: Numbers, point: Numbers, compensation: Number = 0.0) -> dict:
    """params of a geared chain; `point` is its tip, in the frame of the last link."""
    # by numpy, for which nothing is compiled, where it will do
    number = lambda x: jnp.asarray(x, float) if isinstance(x, jax.Array) else np.asarray(x, float)
    ratio = number(ratio)
    return {
        "chain": chain,
        "ratio": ratio if ratio.shape == (chain.n,) else jnp.broadcast_to(ratio, (chain.n,)),
        "tip": number(point),
        "compensation": number(compensation),
    }
