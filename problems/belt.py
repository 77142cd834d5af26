"""Belt: a mass on a spring that a moving belt carries along until it breaks loose, again and again.

The belt moves with the velocity u; a force N presses the mass on it (`nsdyn.Friction`). Friction is
smaller in sliding than at rest (`nsdyn.SpeedDependent`), in one of two ways, with s = |x' - u|:

    m x'' = -k x + r,   |r| <= mu(s) N,   r = -mu(s) N sgn(x' - u) where it slides               (1)
    mu = mu_s at rest, mu_k in sliding                             law="static/kinetic"          (2)
    mu = mu_s/(1 + c s)                                            law="stribeck"                (3)

With (2), w^2 = k/m and D = (mu_s - mu_k) N/k the mass sticks for 2 D/u and slides for

    2/w (pi - arctan(D w/u))                                                                     (4)

which make up the period: 8.902605407814523 for m = k = N = mu_s = 1, mu_k = 1/2, u = 0.2. The
numbers are assumed, those of (3) too: c = 3.

R. I. Leine, D. H. van Campen, A. de Kraker, L. van den Steen: Stick-slip vibrations induced by
alternate friction models. Nonlinear Dynamics 16 (1998) 41-54.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import nsdyn
from nsdyn._types import AnyTime, Configuration, Matrix, Number, Params, Scalar, Velocity

ABOUT = nsdyn.About(tags=("friction", "limit cycle"), source="Leine et al. 1998")


def period(
    u: float = 0.2,
    mu_s: float = 1.0,
    mu_k: float = 0.5,
    N: float = 1.0,
    m: float = 1.0,
    k: float = 1.0,
) -> float:
    """The period of the motion with (2)."""
    drop = (mu_s - mu_k) * N / k
    w = np.sqrt(k / m)
    return float(2 * drop / u + 2 / w * (np.pi - np.arctan(drop * w / u)))  # (4)


def mass(q: Configuration, p: Params) -> Matrix:
    return p["m"] * jnp.eye(1)


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    return -p["k"] * q  # (1)


def potential(q: Configuration, p: Params) -> Scalar:
    return 0.5 * p["k"] * q[0] ** 2


def sliding(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Scalar:
    return v[0] - p["u"]


def pressing(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Scalar:
    return p["N"]


def static_kinetic(speed: Float[Array, " k"], p: Params) -> Float[Array, " k"]:
    return jnp.where(speed > 0, p["mu_k"], p["mu_s"])  # (2)


def stribeck(speed: Float[Array, " k"], p: Params) -> Float[Array, " k"]:
    return p["mu_s"] / (1 + p["c"] * speed)  # (3)


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """The mass, the spring and the belt."""
    box = jnp.array([[-0.2, 0.0], [0.2, 0.0], [0.2, 0.3], [-0.2, 0.3], [-0.2, 0.0]])
    at = jnp.stack([q[0], jnp.zeros(())])[None]
    spring = jnp.stack([jnp.array([-1.0, 0.15]), jnp.stack([q[0] - 0.2, jnp.full((), 0.15)])])
    return box + at, spring, jnp.array([[-1.0, 0.3], [-1.0, 0.0], [1.5, 0.0]])


SYSTEM = nsdyn.System(mass=mass, force=force, potential=potential)
LAWS = {
    "static/kinetic": nsdyn.Friction(sliding, pressing, nsdyn.SpeedDependent(static_kinetic)),
    "stribeck": nsdyn.Friction(sliding, pressing, nsdyn.SpeedDependent(stribeck)),
}


def belt(
    law: str = "static/kinetic",
    u: Number = 0.2,
    mu_s: Number = 1.0,
    mu_k: Number = 0.5,
    c: Number = 3.0,
    t_end: float = 30.0,
) -> nsdyn.Problem:
    """A mass on a moving belt sticks and slips in turns; it starts with the velocity of the belt.
    params: m, k, N, u, mu_s, mu_k, c."""
    if law not in LAWS:
        raise nsdyn.ProblemError(f"belt(law=...): expected one of {list(LAWS)}, found {law!r}")
    values = {"m": 1.0, "k": 1.0, "N": 1.0, "u": u, "mu_s": mu_s, "mu_k": mu_k, "c": c}
    params = {name: jnp.asarray(value, float) for name, value in values.items()}
    return nsdyn.Problem(
        "belt",
        SYSTEM,
        LAWS[law],
        q0=jnp.zeros(1),
        v0=params["u"][None],
        t_end=t_end,
        params=params,
        coordinates=("x [m]",),
        shape=shape,
    )
