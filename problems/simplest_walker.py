"""Simplest walker: the compass with a mass at the hip and vanishing masses at the feet (Garcia,
Chatterjee, Ruina and Coleman).

The compass walker with a = 0, b = l and the ratio eps = m/m_h of foot mass to hip mass. For eps ->
0 the standing leg becomes an inverted pendulum that does not depend on the other leg,

    theta'' = sin(theta - gamma),
    phi'' = theta'' + theta'^2 sin phi - cos(theta - gamma) sin phi                            (1)

in the time unit sqrt(l/g), where theta = -th_i is the angle of the standing leg from the normal and
phi = th_j - th_i the angle between the legs. A strike, phi = 2 theta, gives

    theta+ = -theta-,   theta'+ = cos(2 theta-) theta'-,   phi'+ = (1 - cos(2 theta-)) theta'+   (2)

(2) follows from the impulse in the new foot if eps is negligible; the mechanism needs eps > 0. Its
gait differs from the published one by a multiple of eps.

The slope 0.009 and the gait theta = 0.2003, theta' = -0.1998 after a strike are from the source;
eps is ours.
"""

import jax.numpy as jnp

import nsdyn
from nsdyn._types import Number, Numbers, Scalar
from nsdyn.problems.compass_walker import FEET, NAMES, SYSTEM, after_strike, shape

ABOUT = nsdyn.About(
    tags=("walking", "impact", "planar"), source="Garcia, Chatterjee, Ruina, Coleman"
)


def gait_of(theta: Number, rate: Number) -> tuple[Number, Number, Scalar]:
    """The state (th, u, w) after a strike of light feet: the rate of the swinging leg follows from
    (2)."""
    return theta, -rate, -rate * jnp.cos(2 * theta)


def simplest_walker(
    eps: Number = 1e-3,
    slope: Number = 0.009,
    l: Number = 1.0,
    g: Number = 1.0,
    mh: Number = 1.0,
    gait: Numbers | None = None,
    t_end: float = 20.0,
) -> nsdyn.Problem:
    """The walker starts just after a strike, by default in the published gait. params: mh, m, a, b,
    slope, g."""
    values = {"mh": mh, "m": eps * mh, "a": 0.0, "b": l, "slope": slope, "g": g}
    params = {name: jnp.asarray(value, float) for name, value in values.items()}
    start = gait_of(0.2003, -0.1998 * jnp.sqrt(g / l)) if gait is None else gait
    q0, v0 = after_strike([jnp.asarray(x, float) for x in start], params)
    return nsdyn.Problem(
        "simplest_walker",
        SYSTEM,
        FEET,
        q0=q0,
        v0=v0,
        t_end=t_end,
        params=params,
        coordinates=NAMES,
        shape=shape,
    )
