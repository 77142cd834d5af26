"""Slider-crank with clearance: a slider that rattles in a guide that is a little too wide.

Crank, connecting rod and slider have the angles th_1, th_2 and th_3 to the axis of the guide; the
slider is pinned to the end of the rod at its centre, 2 a long and 2 b high, in a guide of the
height 2 (b + c). Its four corners, two above and two below, touch the guide:

    x = l_1 cos(th_1) + l_2 cos(th_2),   y = l_1 sin(th_1) + l_2 sin(th_2)                       (1)
    gap   b + c - [y -+ a sin(th_3) + b cos(th_3)],  b + c + [y -+ a sin(th_3) - b cos(th_3)]    (2)
    slip  the velocities of the corners along the guide                                          (3)

Crank and rod are uniform, and everything has weight. Without clearance th_3 = 0 would hold. The
slider starts in the middle of the guide; impacts are those of two corners at once, the first near
2.7 ms, and they accumulate. Parameters are those of Flores, Leine and Glocker.

P. Flores, R. I. Leine, Ch. Glocker: Modeling and analysis of planar rigid multibody systems with
translational clearance joints based on the non-smooth dynamics approach. Multibody System Dynamics
23 (2010) 165-190.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import nsdyn
from nsdyn._types import AnyTime, Configuration, Number, Params, Rows, Scalar, Velocity

ABOUT = nsdyn.About(
    tags=("contact", "friction", "impact", "planar"), source="Flores, Leine and Glocker 2010"
)

PARAMS = {
    "l_1": 0.153,
    "l_2": 0.306,
    "a": 0.05,
    "b": 0.025,
    "m_1": 0.038,
    "m_2": 0.038,
    "m_3": 0.076,
    "J_1": 7.4e-5,
    "J_2": 5.9e-4,
    "J_3": 2.7e-6,
    "g": 9.81,
}
CORNERS = ((-1.0, 1.0), (1.0, 1.0), (-1.0, -1.0), (1.0, -1.0))


def along(angle: Scalar) -> Float[Array, " 2"]:
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def centres(q: Configuration, p: Params) -> Float[Array, "3 2"]:
    """The centres of mass of crank, rod and slider."""
    crank = p["l_1"] * along(q[0])
    rod = p["l_2"] * along(q[1])
    return jnp.stack([crank / 2, crank + rod / 2, crank + rod])  # (1)


def kinetic(q: Configuration, v: Velocity, p: Params) -> Scalar:
    moved = jax.jvp(lambda q: centres(q, p), (q,), (v,))[1]
    masses = jnp.stack([p["m_1"], p["m_2"], p["m_3"]])
    inertias = jnp.stack([p["J_1"], p["J_2"], p["J_3"]])
    return 0.5 * (jnp.sum(masses[:, None] * moved**2) + jnp.sum(inertias * v**2))


def potential(q: Configuration, p: Params) -> Scalar:
    masses = jnp.stack([p["m_1"], p["m_2"], p["m_3"]])
    return p["g"] * jnp.sum(masses * centres(q, p)[:, 1])


def corners(q: Configuration, p: Params) -> Float[Array, "4 2"]:
    ahead = along(q[2])
    up = jnp.stack([-ahead[1], ahead[0]])
    signs = jnp.array(CORNERS)
    return centres(q, p)[2][None] + signs @ jnp.stack([p["a"] * ahead, p["b"] * up])


def in_guide(q: Configuration, t: AnyTime, p: Params) -> Rows:
    sides = jnp.array([side for _, side in CORNERS])
    return p["b"] + p["c"] - sides * corners(q, p)[:, 1]  # (2)


def along_guide(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Rows:
    return jax.jvp(lambda q: corners(q, p)[:, 0], (q,), (v,))[1]  # (3)


def friction(p: Params) -> Scalar:
    return p["mu"]


def restitution(p: Params) -> Scalar:
    return p["e"]


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """Crank and rod, the slider, and the guide."""
    crank = p["l_1"] * along(q[0])
    pin = centres(q, p)[2]
    slider = corners(q, p)[jnp.array([0, 1, 3, 2, 0])]
    height = p["b"] + p["c"]
    guide = jnp.array([[0.08, 1.0], [0.55, 1.0]]) * jnp.stack([jnp.ones(()), height])[None]
    below = guide * jnp.array([[1.0, -1.0]])
    return jnp.stack([jnp.zeros(2), crank, pin]), slider, guide, below


SYSTEM = nsdyn.System.from_lagrangian(kinetic, potential)
GUIDE = nsdyn.Contacts(
    in_guide,
    along_guide,
    mu=friction,
    e=restitution,
    names=("upper left", "upper right", "lower left", "lower right"),
)


def clearance_slider_crank(
    c: Number = 0.001,
    e: Number = 0.4,
    mu: Number = 0.01,
    w: Number = 150.0,
    t_end: float = 0.05,
) -> nsdyn.Problem:
    """A slider rattles in its guide, with the clearance c on each side; the crank starts with the
    rate w. params: l_1, l_2, a, b, c, masses, moments of inertia, e, mu, g."""
    given = {**PARAMS, "c": c, "e": e, "mu": mu}
    params = {name: jnp.asarray(value, float) for name, value in given.items()}
    rate = jnp.asarray(w, float)
    rod = -rate * params["l_1"] / params["l_2"]
    return nsdyn.Problem(
        "clearance_slider_crank",
        SYSTEM,
        GUIDE,
        q0=jnp.zeros(3),
        v0=jnp.stack([rate, rod, jnp.zeros(())]),
        t_end=t_end,
        params=params,
        coordinates=("th_1 [rad]", "th_2 [rad]", "th_3 [rad]"),
        shape=shape,
    )
