"""Woodpecker toy: a sleeve on a pole, with a woodpecker on a spring, that hammers its way down.

y is the height of the sleeve, phi_M its angle and phi_S that of the woodpecker, all small:

    M q'' = (-(m_M + m_S) g, -c (phi_M - phi_S) - m_S g l_M, -c (phi_S - phi_M) - m_S g l_G)     (1)
    M = [[m_M + m_S, m_S l_M, m_S l_G], [., J_M + m_S l_M^2, m_S l_M l_G], [., ., J_S + m_S l_G^2]]

Three contacts with the pole, of radius r_O: the beak, the lower and the upper edge of the sleeve:

    gap   l_M + l_G - l_S - r_O - h_S phi_S,   r_M - r_O + h_M phi_M,   r_M - r_O - h_M phi_M    (2)
    slip  y' + l_M phi_M' + (l_G - l_S) phi_S',   y' + r_M phi_M',   y' + r_M phi_M'             (3)

The beak bounces with e = 1/2, the edges do not. The motion repeats after about 0.146 s. Parameters
are Glocker's; the start is a state of the limit cycle to four digits, with the lower edge on the
pole exactly.

R. I. Leine, Ch. Glocker, D. H. van Campen: Nonlinear dynamics and modeling of some wooden toys with
impact and friction. J. Vibration and Control 9 (2003) 25-78.
"""

import jax.numpy as jnp
from jaxtyping import Array

import nsdyn
from nsdyn._types import AnyTime, Configuration, Matrix, Number, Params, Rows, Scalar, Velocity

ABOUT = nsdyn.About(
    tags=("contact", "friction", "impact", "limit cycle", "planar"), source="Leine et al. 2003"
)

PARAMS = {
    "r_O": 0.0025,
    "r_M": 0.0031,
    "h_M": 0.0058,
    "l_M": 0.010,
    "l_G": 0.015,
    "h_S": 0.02,
    "l_S": 0.0201,
    "m_M": 0.0003,
    "m_S": 0.0045,
    "J_M": 5e-9,
    "J_S": 7e-7,
    "c": 0.0056,
    "g": 9.81,
}


def mass(q: Configuration, p: Params) -> Matrix:
    m = p["m_S"]
    y_M, y_S, M_S = m * p["l_M"], m * p["l_G"], m * p["l_M"] * p["l_G"]
    rows = (
        (p["m_M"] + m, y_M, y_S),
        (y_M, p["J_M"] + m * p["l_M"] ** 2, M_S),
        (y_S, M_S, p["J_S"] + m * p["l_G"] ** 2),
    )
    return jnp.stack([jnp.stack(row) for row in rows])


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    weight = p["m_S"] * p["g"]
    twist = p["c"] * (q[1] - q[2])
    total = (p["m_M"] + p["m_S"]) * p["g"]
    return jnp.stack([-total, -twist - weight * p["l_M"], twist - weight * p["l_G"]])  # (1)


def potential(q: Configuration, p: Params) -> Scalar:
    lifted = p["m_M"] * q[0] + p["m_S"] * (q[0] + p["l_M"] * q[1] + p["l_G"] * q[2])
    return p["g"] * lifted + 0.5 * p["c"] * (q[1] - q[2]) ** 2


def to_pole(q: Configuration, t: AnyTime, p: Params) -> Rows:
    beak = p["l_M"] + p["l_G"] - p["l_S"] - p["r_O"] - p["h_S"] * q[2]
    play = p["r_M"] - p["r_O"]
    return jnp.stack([beak, play + p["h_M"] * q[1], play - p["h_M"] * q[1]])  # (2)


def along_pole(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Rows:
    beak = v[0] + p["l_M"] * v[1] + (p["l_G"] - p["l_S"]) * v[2]
    edge = v[0] + p["r_M"] * v[1]
    return jnp.stack([beak, edge, edge])  # (3)


def friction(p: Params) -> Scalar:
    return p["mu"]


def restitution(p: Params) -> Rows:
    return p["e"]


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """The pole, the sleeve from edge to edge, and the woodpecker from its pivot over its centre to
    the beak."""
    y, turned, bent = q[0], q[1], q[2]
    place = lambda x, up, angle: jnp.stack([x - up * angle, y + up + x * angle])
    r, h = p["r_M"], p["h_M"]
    corners = ((r, -h), (r, h), (-r, h), (-r, -h), (r, -h))
    sleeve = jnp.stack([place(x, up, turned) for x, up in corners])
    pivot = place(p["l_M"], jnp.zeros(()), turned)
    arm = lambda x, up: pivot + jnp.stack([x - up * bent, up + x * bent])
    centre = arm(p["l_G"], jnp.zeros(()))
    head = arm(p["l_G"], p["h_S"])
    beak = arm(p["l_G"] - p["l_S"], p["h_S"])
    pole = p["r_O"] * jnp.array([[1.0, 0.0]])
    ends = jnp.array([[0.0, 0.03], [0.0, -0.06]])
    return ends + pole, ends - pole, sleeve, jnp.stack([pivot, centre, head, beak])


SYSTEM = nsdyn.System(mass=mass, force=force, potential=potential)
POLE = nsdyn.Contacts(
    to_pole, along_pole, mu=friction, e=restitution, names=("beak", "lower edge", "upper edge")
)


def woodpecker(mu: Number = 0.3, e: Number = 0.5, t_end: float = 0.5) -> nsdyn.Problem:
    """A toy woodpecker goes down its pole; e is that of the beak.
    params: the lengths, masses and the spring of the docstring, mu, e."""
    params = {name: jnp.asarray(value) for name, value in PARAMS.items()}
    edge = -(params["r_M"] - params["r_O"]) / params["h_M"]
    params["mu"] = jnp.asarray(mu, float)
    params["e"] = jnp.stack([jnp.asarray(e, float), jnp.zeros(()), jnp.zeros(())])
    return nsdyn.Problem(
        "woodpecker",
        SYSTEM,
        POLE,
        q0=jnp.stack([jnp.zeros(()), edge, jnp.full((), -0.2788)]),
        v0=jnp.array([-0.3411, 0.0, -7.4583]),
        t_end=t_end,
        params=params,
        coordinates=("y [m]", "phi_M [rad]", "phi_S [rad]"),
        shape=shape,
    )
