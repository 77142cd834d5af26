"""Flyball governor: a turning shaft with two balls on rods, and springs and dampers, very stiff,
between the rods and a slider.

Problem A05 of the IFToMM benchmark library of multibody dynamics. Shaft and rods are prisms
of 1 x 0.01 x 0.01 m, the slider is a cube of 0.1 m, all of 3000 kg/m^3; a ball of 5 kg sits at the
end of each rod. Springs have K = 8e5 N/m, C = 4e4 N s/m and the rest length 0.5 m. At the start the
rods point 30 degrees below the horizontal, the slider is 0.5 m above the foot of the shaft, and all
turns at 2 pi rad/s.

q = (phi, s, a_1, a_2): the angle of the shaft, the height of the slider, the angles of the rods
below the horizontal. The rods, of length L, mass m and width w, hang on pins at the height H and
the distance d from the axis; the springs join their middles to points of the slider at the same
distance. With c_i = cos(a_i), s_i = sin(a_i), the ball's mass m_b and the slider's m_s

    T = 1/2 J phi'^2 + 1/2 m_s s'^2 + sum_i (T_rod + T_ball),
    T_rod = 1/2 (m L^2/4 + I) a_i'^2 + 1/2 (m (d + L/2 c_i)^2 + I c_i^2 + I_l s_i^2) phi'^2,     (1)
    I = m (L^2 + w^2)/12,   I_l = m w^2/6
    T_ball = 1/2 m_b L^2 a_i'^2 + 1/2 m_b (d + L c_i)^2 phi'^2                                   (2)
    V = m_s g s - sum_i g (m L/2 + m_b L) s_i + 1/2 K (l_i - l_0)^2                              (3)
    l_i^2 = (L/2 c_i)^2 + (H - L/2 s_i - s)^2,   damping:  f = -C l_i' dl_i/dq                   (4)

The springs are so stiff and damped so strongly that an explicit method needs steps below 0.1 ms,
although the slider moves within seconds.

The library gives a time history of s, which we could not read: the reference is ours. Dimensions
and numbers are those of its implementation in OpenSim (L. Tagliapietra et al.); d = 0.05 m is
theirs too.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

import nsdyn
from nsdyn._types import AnyTime, Configuration, Number, Params, Scalar, Velocity

ABOUT = nsdyn.About(tags=("smooth", "stiff"), source="IFToMM A05")

DENSITY = 3000.0
REFERENCE = nsdyn.Reference(
    q=(55.935409909102, 0.61962291706135, 0.39007370184466, 0.39007370184466),
    v=(5.5482036226550, -0.74760335416454, 0.80846705134580, 0.80846705134580),
    source="own: two coordinates and the angular momentum, Radau and DOP853 of scipy, rtol 1e-12",
    tolerance=1e-8,
    scale_q=(2.0, 1.0, 1.0, 1.0),
    agrees=(
        nsdyn.Agreement("EventDriven(RK4())", 50000, 1e-09),
        nsdyn.Agreement("EventDriven(RadauIIA(rtol=1e-9, atol=1e-11))", 50, 1e-09),
        nsdyn.Agreement("NSGA()", 800000, 1e-8),
        nsdyn.Agreement("GeneralizedAlpha(index=2)", 800000, 1e-8),
        nsdyn.Agreement("GeneralizedAlpha(index=3)", 800000, 1e-8),
    ),
)


def kinetic(q: Configuration, v: Velocity, p: Params) -> Scalar:
    c, s = jnp.cos(q[2:]), jnp.sin(q[2:])
    L, m, ball = p["L"], p["m"], p["ball"]
    across = m * (L**2 + p["w"] ** 2) / 12
    along = m * p["w"] ** 2 / 6
    swing = m * L**2 / 4 + across + ball * L**2
    spin = m * (p["d"] + L / 2 * c) ** 2 + across * c**2 + along * s**2  # (1)
    spin = spin + ball * (p["d"] + L * c) ** 2  # (2)
    rods = 0.5 * jnp.sum(swing * v[2:] ** 2 + spin * v[0] ** 2)
    return rods + 0.5 * p["J"] * v[0] ** 2 + 0.5 * p["slider"] * v[1] ** 2


def lengths(q: Configuration, p: Params) -> Float[Array, " 2"]:
    half = p["L"] / 2
    return jnp.sqrt(
        (half * jnp.cos(q[2:])) ** 2 + (p["H"] - half * jnp.sin(q[2:]) - q[1]) ** 2
    )  # (4)


def potential(q: Configuration, p: Params) -> Scalar:
    hanging = (p["m"] / 2 + p["ball"]) * p["L"] * jnp.sum(jnp.sin(q[2:]))
    springs = 0.5 * p["K"] * jnp.sum((lengths(q, p) - p["l0"]) ** 2)
    return p["g"] * (p["slider"] * q[1] - hanging) + springs  # (3)


def damping(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    slopes = jax.jacfwd(lengths)(q, p)
    return -p["C"] * (slopes @ v) @ slopes  # (4)


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """Shaft, rods, springs and slider in space."""
    out = jnp.stack([jnp.cos(q[0]), jnp.sin(q[0]), jnp.zeros(())])
    up = jnp.array([0.0, 0.0, 1.0])
    lines = [jnp.stack([0.0 * up, p["H"] * up])]
    for side, a in ((1.0, q[2]), (-1.0, q[3])):
        point = lambda r, side=side, a=a: (
            side * (p["d"] + r * jnp.cos(a)) * out + (p["H"] - r * jnp.sin(a)) * up
        )
        foot = side * p["d"] * out + q[1] * up
        lines += [jnp.stack([point(0.0), point(p["L"])]), jnp.stack([foot, point(p["L"] / 2)])]
        lines.append(point(p["L"])[None])
    slider = jnp.stack([-p["d"] * out + q[1] * up, p["d"] * out + q[1] * up])
    return (*lines, slider)


SYSTEM = nsdyn.System.from_lagrangian(kinetic, potential, damping)


def flyball_governor(
    K: Number = 8e5,
    C: Number = 4e4,
    omega: Number = 2 * jnp.pi,
    alpha: Number = jnp.pi / 6,
    g: Number = 9.81,
    t_end: float = 10.0,
) -> nsdyn.Problem:
    """Turning at `omega`, the rods `alpha` below the horizontal, the springs at rest. params: J, m,
    ball, slider, L, w, d, H, l0, K, C, g."""
    w, cube, L, H = 0.01, 0.1, 1.0, 1.0
    rod, slider = DENSITY * L * w**2, DENSITY * cube**3
    values = {
        "J": rod * w**2 / 6 + slider * cube**2 / 6,
        "m": rod,
        "ball": 5.0,
        "slider": slider,
        "L": L,
        "w": w,
        "d": 0.05,
        "H": H,
        "l0": 0.5,
        "K": K,
        "C": C,
        "g": g,
    }
    params = {name: jnp.asarray(value, float) for name, value in values.items()}
    alpha, omega = jnp.asarray(alpha, float), jnp.asarray(omega, float)
    zero = jnp.zeros(())
    drop = jnp.sqrt(params["l0"] ** 2 - (params["L"] / 2 * jnp.cos(alpha)) ** 2)
    height = params["H"] - params["L"] / 2 * jnp.sin(alpha) - drop
    return nsdyn.Problem(
        "flyball_governor",
        SYSTEM,
        None,
        q0=jnp.stack([zero, height, alpha, alpha]),
        v0=jnp.stack([omega, zero, zero, zero]),
        t_end=t_end,
        params=params,
        coordinates=("phi [rad]", "s [m]", "a_1 [rad]", "a_2 [rad]"),
        shape=shape,
    )
