"""Andrews' squeezing mechanism: seven bodies in a plane, three loops, driven by a constant torque.

Problem A03 of the IFToMM benchmark library, and of the test set for initial value problems (CWI,
Bari), after G. C. Andrews and W. Schiehlen; equations in E. Hairer and G. Wanner, "Solving Ordinary
Differential Equations II", section VII.7. The motion is fast: 2.5 turns of the crank in 0.03 s.

Angles q = (beta, Theta, gamma, Phi, delta, Omega, epsilon). The crank OF turns by beta about O, the
rod FE by beta + Theta; the plate BCD turns by gamma about B; AH by delta and AG by epsilon about A,
HE by delta + Phi, GE by epsilon + Omega. All three loops close in E:

    E = (rr cos(beta) - d cos(beta + Theta), rr sin(beta) - d sin(beta + Theta))                 (1)
      = B + ss (sin(gamma), -cos(gamma))                                                         (2)
      = A + zt (cos(delta), sin(delta)) + e (sin(Phi + delta), -cos(Phi + delta))                (3)
      = A + u (sin(epsilon), -cos(epsilon)) + zf (cos(Omega + epsilon), sin(Omega + epsilon))    (4)

The kinetic energy is that of the centres of mass and of the turning; the potential is that of a
spring between the point D of the plate and the fixed point C:

    V = c0/2 (|D - C| - l0)^2,   D = B + R(gamma) (sd, -sc)                                      (5)
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

import nsdyn
from nsdyn._types import AnyTime, Configuration, Number, Params, Rows, Scalar, Velocity

ABOUT = nsdyn.About(tags=("smooth", "loops", "planar"), source="IFToMM A03; IVP test set")

A = (-0.06934, -0.00227)
B = (-0.03635, 0.03273)
C = (0.014, 0.072)
MASSES = (0.04325, 0.00365, 0.02373, 0.00706, 0.07050, 0.00706, 0.05498)
INERTIAS = (2.194e-6, 4.410e-7, 5.255e-6, 5.667e-7, 1.169e-5, 5.667e-7, 1.912e-5)
LENGTHS = {
    "rr": 0.007,
    "ra": 0.00092,
    "d": 0.028,
    "da": 0.0115,
    "ss": 0.035,
    "sa": 0.01874,
    "sb": 0.01043,
    "sc": 0.018,
    "sd": 0.02,
    "zt": 0.04,
    "ta": 0.02308,
    "tb": 0.00916,
    "e": 0.02,
    "ea": 0.01421,
    "u": 0.04,
    "ua": 0.01228,
    "ub": 0.00449,
    "zf": 0.02,
    "fa": 0.01421,
}
NAMES = tuple(
    f"{name} [rad]" for name in ("beta", "Theta", "gamma", "Phi", "delta", "Omega", "epsilon")
)
START = (
    -0.0617138900142764496358948458001,
    0.0,
    0.455279819163070380255912382449,
    0.222668390165885884674473185609,
    0.487364979543842550225598953530,
    -0.222668390165885884674473185609,
    1.23054744454982119249735015568,
)
REFERENCE = nsdyn.Reference(
    q=(
        0.1581077119629904e2,
        -0.1575637105984298e2,
        0.4082224013073101e-1,
        -0.5347301163226948,
        0.5244099658805304,
        0.5347301163226948,
        0.1048080741042263e1,
    ),
    v=(
        0.1139920302151208e4,
        -0.1424379294994111e4,
        0.1103291221937134e2,
        0.1929337464421385e2,
        0.5735699284790808,
        -0.1929337464421385e2,
        0.3231791658026955,
    ),
    source="test set for IVP solvers, PSIDE with tolerances 1e-14",
    tolerance=1e-8,
    agrees=(
        nsdyn.Agreement("EventDriven(RK4())", 1000, 1e-08),
        nsdyn.Agreement("EventDriven(DormandPrince(order=8, rtol=1e-11, atol=1e-13))", 50, 1e-09),
        nsdyn.Agreement("NSGA()", 160000, 1e-8),
        nsdyn.Agreement("GeneralizedAlpha(index=2)", 160000, 1e-8),
        nsdyn.Agreement("GeneralizedAlpha(index=3)", 160000, 1e-8),
    ),
)


def along(angle: Scalar) -> Array:
    return jnp.stack([jnp.cos(angle), jnp.sin(angle)])


def across(angle: Scalar) -> Array:
    """`along`, turned back by a right angle."""
    return jnp.stack([jnp.sin(angle), -jnp.cos(angle)])


def centres(q: Configuration, p: Params) -> Array:
    """The centres of mass, shape (7, 2)."""
    beta, theta, gamma, phi, delta, omega, epsilon = q
    to_f = p["rr"] * along(beta)
    to_h = p["zt"] * along(delta)
    to_g = p["u"] * across(epsilon)
    return jnp.stack(
        [
            p["ra"] * along(beta),
            to_f - p["da"] * along(beta + theta),
            p["B"] + p["sa"] * across(gamma) + p["sb"] * along(gamma),
            p["A"] + to_h + (p["e"] - p["ea"]) * across(phi + delta),
            p["A"] + p["ta"] * across(delta) + p["tb"] * along(delta),
            p["A"] + to_g + (p["zf"] - p["fa"]) * along(omega + epsilon),
            p["A"] + p["ua"] * across(epsilon) - p["ub"] * along(epsilon),
        ]
    )


def turning(v: Velocity) -> Array:
    """The angular velocities of the seven bodies."""
    beta, theta, gamma, phi, delta, omega, epsilon = v
    return jnp.stack([beta, beta + theta, gamma, phi + delta, delta, omega + epsilon, epsilon])


def kinetic(q: Configuration, v: Velocity, p: Params) -> Scalar:
    speeds = jnp.sum(jnp.square(_rates(q, v, p)), axis=1)
    return 0.5 * jnp.sum(p["mass"] * speeds + p["inertia"] * jnp.square(turning(v)))


def _rates(q: Configuration, v: Velocity, p: Params) -> Array:
    return jax.jvp(lambda q: centres(q, p), (q,), (v,))[1]


def potential(q: Configuration, p: Params) -> Scalar:
    gamma = q[2]
    d = p["B"] + p["sd"] * along(gamma) + p["sc"] * across(gamma)
    length = jnp.sqrt(jnp.sum(jnp.square(d - p["C"])))
    return 0.5 * p["c0"] * (length - p["l0"]) ** 2  # (5)


def torque(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    return jnp.zeros(7).at[0].set(p["torque"])


def loops(q: Configuration, t: AnyTime, p: Params) -> Rows:
    beta, theta, gamma, phi, delta, omega, epsilon = q
    end = p["rr"] * along(beta) - p["d"] * along(beta + theta)  # (1)
    ways = (
        p["B"] + p["ss"] * across(gamma),  # (2)
        p["A"] + p["zt"] * along(delta) + p["e"] * across(phi + delta),  # (3)
        p["A"] + p["u"] * across(epsilon) + p["zf"] * along(omega + epsilon),  # (4)
    )
    return jnp.concatenate([end - way for way in ways])


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """Crank and rod O F E, plate B D E, the arms A H E and A G E, the spring C D."""
    beta, theta, gamma, _, delta, _, epsilon = q
    f = p["rr"] * along(beta)
    end = f - p["d"] * along(beta + theta)  # (1)
    d = p["B"] + p["sd"] * along(gamma) + p["sc"] * across(gamma)
    h = p["A"] + p["zt"] * along(delta)
    g = p["A"] + p["u"] * across(epsilon)
    arms = [jnp.stack([p["A"], h, end]), jnp.stack([p["A"], g, end])]
    plate = jnp.stack([p["B"], d, end, p["B"]])
    return (jnp.stack([jnp.zeros(2), f, end]), plate, *arms, jnp.stack([p["C"], d]))


SYSTEM = nsdyn.System.from_lagrangian(kinetic, potential, torque)
LOOPS = nsdyn.Fixed(loops)


def andrews(torque: Number = 0.033, t_end: float = 0.03) -> nsdyn.Problem:
    """The mechanism, at rest at the start. params: the lengths by their names, A, B, C, mass,
    inertia, c0, l0, torque."""
    numbers = {
        **LENGTHS,
        "A": A,
        "B": B,
        "C": C,
        "mass": MASSES,
        "inertia": INERTIAS,
        "c0": 4530.0,
        "l0": 0.07785,
        "torque": torque,
    }
    params = {name: jnp.asarray(value, float) for name, value in numbers.items()}
    return nsdyn.Problem(
        "andrews",
        SYSTEM,
        LOOPS,
        q0=jnp.asarray(START),
        v0=jnp.zeros(7),
        t_end=t_end,
        params=params,
        coordinates=NAMES,
        shape=shape,
    )
