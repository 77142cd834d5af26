"""Slider-crank mechanism with a flexible connecting rod, driven at a constant rate.

From the test set for initial value problems (CWI, Bari), after B. Simeon, "Modelling a flexible
slider crank mechanism by a mixed system of DAEs and PDEs", Math. Modelling of Systems 2 (1996):
7 coordinates, 3 constraints, one of them moving. The crank turns by phi_1, the rod by phi_2, the
slider is at x_3. In the frame of the rod, a point at the distance x = l_2 xi moves by u along it
and by w across:

    u = q_3 4 xi (1 - xi) + q_4 (2 xi^2 - xi),   w = q_1 sin(pi xi) + q_2 sin(2 pi xi)           (1)

With the section A = b h and D = phi_1 - phi_2 the motion of the rod has the kinetic energy
rho A/2 times the integral over x of

    |r'|^2 = l_1^2 phi_1'^2 + ((x + u)^2 + w^2) phi_2'^2 + u'^2 + w'^2
      + 2 l_1 phi_1' (phi_2' ((x + u) cos D + w sin D) + w' cos D - u' sin D)
      + 2 phi_2' ((x + u) w' - w u')                                                             (2)

whose integrals of (1) are the vectors c_1, c_2, c_12, c_21 (of u, w, x u and x w) and the matrices
M_q (u^2 + w^2) and B (u w' - w u'). Crank, slider and the stiffness of the rod complete it,

    T = 1/2 J_1 phi_1'^2 + 1/2 m_3 x_3'^2 + T_rod,   V = 1/2 q^T K_q q                           (3)

and the constraints close the loop and drive the crank:

    l_1 sin phi_1 + (l_2 + q_4) sin phi_2 = 0                                                    (4)
    x_3 - l_1 cos phi_1 - (l_2 + q_4) cos phi_2 = 0                                              (5)
    phi_1 - omega t = 0                                                                          (6)

The test set prints a matrix M_q whose longitudinal block is 15 times what (1) gives, and computes
with pi = 3.1415927; we do as it does, since its solution belongs to these numbers.
`consistent=True` takes the block that belongs to (1). There is neither gravity nor damping.

The start is close to the smooth motion. Of the printed values x_3 and phi_2' are taken from (4) and
(5), which the nine digits of the others leave open.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

import nsdyn
from nsdyn._types import AnyTime, Configuration, Params, Rows, Scalar, Velocity

ABOUT = nsdyn.About(
    tags=("smooth", "loops", "flexible", "moving rows"), source="IVP test set; Simeon"
)

PI = 3.1415927  # of the test set
NUMBERS = {
    "J1": 0.002727,
    "J2": 0.0045339259,
    "m2": 0.151104,
    "m3": 0.075552,
    "l1": 0.15,
    "l2": 0.30,
    "omega": 150.0,
    "E": 0.20e12,
    "rho": 7870.0,
    "b": 0.0080,
    "h": 0.0080,
}
ELASTIC = (0.0, 0.0, 0.103339863e-4, 0.169327969e-4)  # q_1 ... q_4 at the start
ELASTIC_RATES = (0.444896105, 0.463434311e-2, -0.178591076e-5, -0.268938672e-5)
REFERENCE = nsdyn.Reference(
    q=(
        15.0,
        -3.311734987910881e-01,
        1.697373326718410e-01,
        1.893192460247178e-04,
        2.375751865617931e-05,
        -5.323907988763734e-06,
        -8.363283141616840e-06,
    ),
    v=(
        150.0,
        6.025346682645789e01,
        -8.753116989887888e00,
        -3.005536801092212e-02,
        -5.500488291932075e-03,
        4.978243404809343e-04,
        1.104933470696396e-03,
    ),
    source="test set for IVP solvers",
    tolerance=2e-4,
    scale_q=(15.0, 0.5, 0.4, 5e-4, 5e-4, 2e-5, 2e-5),
    scale_v=(150.0, 75.0, 30.0, 0.4, 0.4, 5e-3, 5e-3),
    agrees=(
        nsdyn.Agreement("EventDriven(RK4())", 16000, 0.0002),
        nsdyn.Agreement("EventDriven(DormandPrince(order=8, rtol=1e-11, atol=1e-13))", 50, 0.0002),
        nsdyn.Agreement("NSGA()", 300000, 2e-4),
        nsdyn.Agreement("GeneralizedAlpha(index=2)", 300000, 2e-4),
        nsdyn.Agreement("GeneralizedAlpha(index=3)", 300000, 2e-4),
    ),
)


def integrals(p: Params) -> dict[str, Array]:
    """c_1, c_2, c_12, c_21, M_q / rho and B, over the volume of the rod."""
    volume = p["b"] * p["h"] * p["l2"]
    l2 = p["l2"]
    longitudinal = p["longitudinal"] * jnp.array([[8.0, 1.0], [1.0, 2.0]])
    M = jnp.zeros((4, 4)).at[:2, :2].set(0.5 * jnp.eye(2)).at[2:, 2:].set(longitudinal)
    far = 8 / PI**3 - 1 / PI
    B = jnp.zeros((4, 4)).at[:2, 2:].set(jnp.array([[-16 / PI**3, far], [0.0, 0.5 / PI]]))
    return {
        "c1": volume * jnp.array([0.0, 0.0, 2 / 3, 1 / 6]),
        "c2": volume * jnp.array([2 / PI, 0.0, 0.0, 0.0]),
        "c12": volume * l2 * jnp.array([0.0, 0.0, 1 / 3, 1 / 6]),
        "c21": volume * l2 * jnp.array([1 / PI, -0.5 / PI, 0.0, 0.0]),
        "M": volume * M,
        "B": volume * (B - B.T),
    }


def kinetic(q: Configuration, v: Velocity, p: Params) -> Scalar:
    e, de = q[3:], v[3:]
    crank, rod, slide = v[:3]
    x = integrals(p)
    rho, l1 = p["rho"], p["l1"]
    c, s = jnp.cos(q[0] - q[1]), jnp.sin(q[0] - q[1])
    own = (p["J1"] + p["m2"] * l1**2) * crank**2 + p["m3"] * slide**2  # (3)
    turning = p["J2"] + rho * (e @ x["M"] @ e + 2 * x["c12"] @ e)
    reach = c * (p["m2"] * p["l2"] / 2 + rho * x["c1"] @ e) + s * rho * x["c2"] @ e
    carried = crank * l1 * (rod * reach + rho * (c * x["c2"] @ de - s * x["c1"] @ de))
    inner = rho * rod * (x["c21"] @ de + e @ x["B"] @ de)
    return 0.5 * (own + turning * rod**2 + rho * de @ x["M"] @ de) + carried + inner  # (2)


def potential(q: Configuration, p: Params) -> Scalar:
    return 0.5 * q[3:] @ stiffness(p) @ q[3:]  # (3)


def stiffness(p: Params) -> Float[Array, "4 4"]:
    slender = PI**4 * (p["h"] / p["l2"]) ** 2
    lateral = jnp.diag(slender * jnp.array([1 / 24, 2 / 3]))
    longitudinal = jnp.array([[16.0, -8.0], [-8.0, 7.0]]) / 3
    K = jnp.zeros((4, 4)).at[:2, :2].set(lateral).at[2:, 2:].set(longitudinal)
    return p["E"] * p["b"] * p["h"] / p["l2"] * K


def loop(q: Configuration, t: AnyTime, p: Params) -> Rows:
    reach = p["l2"] + q[6]
    across = p["l1"] * jnp.sin(q[0]) + reach * jnp.sin(q[1])  # (4)
    along = q[2] - p["l1"] * jnp.cos(q[0]) - reach * jnp.cos(q[1])  # (5)
    return jnp.stack([across, along, q[0] - p["omega"] * t])  # (6)


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """Crank, rod and slider. The rod is bent a thousandth of its length: too little to be seen."""
    pin = p["l1"] * jnp.stack([jnp.cos(q[0]), jnp.sin(q[0])])
    slider = jnp.stack([q[2], jnp.zeros(())])
    xi = jnp.linspace(0.0, 1.0, 21)
    u = q[5] * 4 * xi * (1 - xi) + q[6] * (2 * xi**2 - xi)
    w = q[3] * jnp.sin(jnp.pi * xi) + q[4] * jnp.sin(2 * jnp.pi * xi)  # (1)
    c, s = jnp.cos(q[1]), jnp.sin(q[1])
    x = p["l2"] * xi + u
    rod = pin[None] + jnp.stack([c * x - s * w, s * x + c * w], axis=1)
    return (jnp.stack([jnp.zeros(2), pin]), rod, slider[None])


SYSTEM = nsdyn.System.from_lagrangian(kinetic, potential)
LOOP = nsdyn.Fixed(loop)


def slider_crank(consistent: bool = False, t_end: float = 0.1) -> nsdyn.Problem:
    """The mechanism of the test set. params: J1, J2, m2, m3, l1, l2, omega, E, rho, b, h,
    longitudinal (the factor of the matrix [[8, 1], [1, 2]])."""
    values = NUMBERS | {"longitudinal": 1 / 15 if consistent else 1.0}
    params = {name: jnp.asarray(value, float) for name, value in values.items()}
    e, de = jnp.array(ELASTIC), jnp.array(ELASTIC_RATES)
    reach = params["l2"] + e[3]
    rod_rate = -params["l1"] * params["omega"] / reach
    q0 = jnp.concatenate([jnp.stack([0.0, 0.0, params["l1"] + reach]), e])
    v0 = jnp.concatenate([jnp.stack([params["omega"], rod_rate, de[3]]), de])
    names = ("phi_1 [rad]", "phi_2 [rad]", "x_3 [m]", *(f"q_{i} [m]" for i in range(1, 5)))
    return nsdyn.Problem(
        "slider_crank",
        SYSTEM,
        LOOP,
        q0=q0,
        v0=v0,
        t_end=t_end,
        params=params,
        coordinates=names,
        shape=shape,
    )
