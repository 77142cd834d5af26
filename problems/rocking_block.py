"""Rocking block: a slender block that rocks from one corner of its base to the other (Housner).

G. W. Housner, "The behavior of inverted pendulum structures during earthquakes", Bull. Seism. Soc.
Am. 53 (1963). The block has the half width b, the half height h and the mass m, I = m (b^2 + h^2)/3
about its centre (x, y); theta is its angle, anticlockwise. It stands on its right corner (mode 0,
theta < 0) or its left (mode 1, theta > 0), which neither slips nor bounces:

    c_j = (x, y) + R(theta) (+-b, -h),   c_0 = (b, 0)  or  c_1 = (-b, 0)                         (1)
    z = theta                                                                                    (2)

With R = sqrt(b^2 + h^2), tan(alpha) = b/h and p^2 = 3 g/(4 R) the block is a pendulum,

    theta'' = -p^2 sin(alpha - |theta|) sign(theta)                                              (3)

and an impulse in the new corner alone keeps the angular momentum about it. The rate becomes

    theta'+ = r theta'-,   r = 1 - 3/2 sin(alpha)^2                                              (4)

which is what the default law says here. The impacts accumulate after a finite time. Corners that
hold and exchange are `Switching`; with two `Contact`s both corners would stay closed in the first
impact, and the block would stand. With `Contacts`, `rocking_block(mu=0.5)`, corners may slide and
lift off by themselves: the law of impact gives (4) for e = 0 if mu is at least 3 sin(2 alpha)/(8 -
6 sin(alpha)^2) (12/65 here), and corner 0 is the right one.

The reference is (3) and (4), integrated in theta (ours). b = 0.1 m and h = 0.4 m are assumed; the
block starts at rest at half the angle at which it would fall.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

import nsdyn
from nsdyn._types import (
    AnyTime,
    Configuration,
    Matrix,
    Number,
    Params,
    Rows,
    Scalar,
    Velocity,
)

ABOUT = nsdyn.About(tags=("switching", "impact", "planar"), source="Housner")

REFERENCE = nsdyn.Reference(
    q=(0.02178483860617, 0.40482389816825, -0.05412245000459),
    v=(-0.08198628456749, -0.01584039506695, 0.20252333159792),
    source="own: (3) and (4) by DOP853 of scipy, rtol 1e-13",
    tolerance=1e-8,
    scale_q=(0.1, 0.1, 0.1),
    scale_v=(0.4, 0.4, 0.9),
    law="PostSwitchGradient()",
    agrees=(
        nsdyn.Agreement("EventDriven(RK4())", 500, 1e-08),
        nsdyn.Agreement("EventDriven(DormandPrince(order=8, rtol=1e-11, atol=1e-13))", 50, 1e-11),
        nsdyn.Agreement("NSGA()", 16000, 5e-3),
    ),
)


def mass(q: Configuration, p: Params) -> Matrix:
    inertia = p["m"] * (p["b"] ** 2 + p["h"] ** 2) / 3
    return jnp.diag(jnp.stack([p["m"], p["m"], inertia]))


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    weight = p["m"] * p["g"]
    return jnp.stack([jnp.zeros_like(weight), -weight, jnp.zeros_like(weight)])


def potential(q: Configuration, p: Params) -> Scalar:
    return p["m"] * p["g"] * q[1]


def point(q: Configuration, x: Number, y: Number) -> Float[Array, " 2"]:
    """A point of the block."""
    c, s = jnp.cos(q[2]), jnp.sin(q[2])
    return q[:2] + jnp.stack([c * x - s * y, s * x + c * y])


def on_right(q: Configuration, t: AnyTime, p: Params) -> Rows:
    return point(q, p["b"], -p["h"]) - jnp.stack([p["b"], jnp.zeros(())])  # (1)


def on_left(q: Configuration, t: AnyTime, p: Params) -> Rows:
    return point(q, -p["b"], -p["h"]) + jnp.stack([p["b"], jnp.zeros(())])  # (1)


def leans_left(q: Configuration, p: Params) -> Scalar:
    return q[2]  # (2)


def corners_above(q: Configuration, t: AnyTime, p: Params) -> Rows:
    """The heights of both corners."""
    return jnp.stack([point(q, p["b"], -p["h"])[1], point(q, -p["b"], -p["h"])[1]])


def corners_slide(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Rows:
    """Their velocities along the ground."""
    return v[0] - (corners_above(q, t, p) - q[1]) * v[2]


def friction(p: Params) -> Scalar:
    return p["mu"]


def restitution(p: Params) -> Scalar:
    return p["e"]


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """The block, and the ground."""
    b, h = p["b"], p["h"]
    corners = [point(q, x, y) for x, y in ((b, -h), (b, h), (-b, h), (-b, -h), (b, -h))]
    return (jnp.stack(corners), 2 * b * jnp.array([[-1.0, 0.0], [1.0, 0.0]]))


SYSTEM = nsdyn.System(mass=mass, force=force, potential=potential)
CORNERS = nsdyn.Switching(modes=(on_right, on_left), switches=(leans_left,))
GROUND = nsdyn.Contacts(
    corners_above, corners_slide, mu=friction, e=restitution, names=("right", "left")
)


def rocking_block(
    b: Number = 0.1,
    h: Number = 0.4,
    m: Number = 1.0,
    g: Number = 9.81,
    lean: Number = 0.5,
    t_end: float = 1.5,
    mu: Number | None = None,
    e: Number = 0.0,
) -> nsdyn.Problem:
    """At rest on the left corner, leaning by `lean` times the angle at which it would fall. If mu
    is given the corners are `Contacts`. params: b, h, m, g and, if mu is given, mu, e."""
    values = {"b": b, "h": h, "m": m, "g": g, **({} if mu is None else {"mu": mu, "e": e})}
    params = {name: jnp.asarray(value, float) for name, value in values.items()}
    theta = lean * jnp.arctan2(params["b"], params["h"])
    flat = jnp.stack([jnp.zeros(()), jnp.zeros(()), theta])
    centre = -point(flat, -params["b"], -params["h"]) - jnp.stack([params["b"], jnp.zeros(())])
    return nsdyn.Problem(
        "rocking_block",
        SYSTEM,
        CORNERS if mu is None else GROUND,
        q0=jnp.concatenate([centre, theta[None]]),
        v0=jnp.zeros(3),
        t_end=t_end,
        params=params,
        coordinates=("x [m]", "y [m]", "theta [rad]"),
        shape=shape,
    )
