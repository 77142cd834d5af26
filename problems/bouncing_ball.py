"""Bouncing ball: a ball that falls on the ground and loses a part of its speed at each impact.

The first problem of nonsmooth mechanics. The ball, of mass m, is at the height q; with the law
`Restitution(e)`, whose e is that of the law and not of the problem,

    m q'' = -m g,   q >= 0,   q'+ = -e q'- at an impact                                          (1)

From rest at the height h the impacts are at

    t_1 = sqrt(2 h/g),   t_(k+1) = t_k + 2 e^k t_1                                               (2)

and the speed after the k-th is e^k g t_1: they accumulate at t_1 (1 + e)/(1 - e). The reference is
at t = 3 s, after four of them, for e = 0.9. `bouncing_ball(e=0.9)` is the same ball with
`Contacts`, to be run with MoreauJean or NSGA: then e is a parameter of the problem. h = 1 m and g =
9.81 m/s^2 are assumed, as nearly everywhere.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import nsdyn
from nsdyn._types import AnyTime, Configuration, Matrix, Number, Params, Scalar, Velocity
from nsdyn.laws import PostSwitchGradient, Restitution

ABOUT = nsdyn.About(tags=("contact", "impact"), source="folklore")

HEIGHT, GRAVITY, E, END = 1.0, 9.81, 0.9, 3.0
EPS = np.finfo(float).eps


def exact(t: float, e: float = E, h: float = HEIGHT, g: float = GRAVITY) -> tuple[float, float]:
    """Height and velocity at the time t, before the impacts accumulate."""
    first = np.sqrt(2 * h / g)
    if t < first:
        return h - g * t**2 / 2, -g * t
    start, speed = first, e * g * first
    while t > start + 2 * speed / g:  # (2)
        start, speed = start + 2 * speed / g, e * speed
    return speed * (t - start) - g * (t - start) ** 2 / 2, speed - g * (t - start)


def impacts(count: int, e: float = E, h: float = HEIGHT, g: float = GRAVITY) -> np.ndarray:
    """The times of the first impacts."""
    first = np.sqrt(2 * h / g)
    return first * (1 + 2 * np.concatenate([[0.0], np.cumsum(e ** np.arange(1, count))]))  # (2)


def motion(
    t: np.ndarray, problem: nsdyn.Problem, law: nsdyn.AbstractLaw
) -> tuple[np.ndarray, np.ndarray] | None:
    """(1) and (2) for `Restitution(e)`, e < 1, until the ball rests, and for a law by which it does
    not rebound."""
    if not isinstance(law, Restitution | PostSwitchGradient) or "e" in problem.params:
        return None
    e = float(law.e) if isinstance(law, Restitution) else 0.0
    h, g = float(problem.q0[0]), float(problem.params["g"])
    first = np.sqrt(2 * h / g)
    q, v = h - g * t**2 / 2, -g * t
    start, speed = first, e * g * first
    while start <= np.max(t):
        rests = 2 * speed / g <= EPS * start
        speed = 0.0 if rests else speed
        since, pull = t - start, 0.0 if rests else g
        q = np.where(since >= 0, speed * since - pull * since**2 / 2, q)
        v = np.where(since >= 0, speed - pull * since, v)
        if rests:
            break
        start, speed = start + 2 * speed / g, e * speed  # (2)
    return q[:, None], v[:, None]


CLOSED_FORM = nsdyn.ClosedForm(motion, "(1) and (2) of its file")
_end = exact(END)
REFERENCE = nsdyn.Reference(
    q=(float(_end[0]),),
    v=(float(_end[1]),),
    source="closed form",
    tolerance=1e-10,
    scale_q=(HEIGHT,),
    scale_v=(4.4,),  # at the first impact
    law=f"Restitution(e={E})",
    agrees=(
        nsdyn.Agreement("EventDriven(RK4())", 100, 1e-12),
        nsdyn.Agreement("EventDriven(DormandPrince(order=8, rtol=1e-11, atol=1e-13))", 50, 1e-11),
        nsdyn.Agreement("NSGA()", 16000, 2e-3),
    ),
)


def mass(q: Configuration, p: Params) -> Matrix:
    return p["m"] * jnp.eye(1)


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    return -p["m"] * p["g"] * jnp.ones(1)


def potential(q: Configuration, p: Params) -> Scalar:
    return p["m"] * p["g"] * q[0]


def height(q: Configuration, t: AnyTime, p: Params) -> Scalar:
    return q[0]


def restitution(p: Params) -> Scalar:
    return p["e"]


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """The ball, and the ground."""
    return (jnp.stack([jnp.zeros(()), q[0]])[None], jnp.array([[-0.5, 0.0], [0.5, 0.0]]))


SYSTEM = nsdyn.System(mass=mass, force=force, potential=potential)
GROUND = nsdyn.Contact(height)
FLOOR = nsdyn.Contacts(height, e=restitution)


def bouncing_ball(
    h: Number = HEIGHT,
    m: Number = 1.0,
    g: Number = GRAVITY,
    t_end: float = END,
    e: Number | None = None,
) -> nsdyn.Problem:
    """The ball falls from rest at the height h; run it with Restitution(e). If e is given the
    ground is `Contacts`. params: m, g and, if given, e."""
    values = {"m": m, "g": g} if e is None else {"m": m, "g": g, "e": e}
    params = {name: jnp.asarray(value, float) for name, value in values.items()}
    return nsdyn.Problem(
        "bouncing_ball",
        SYSTEM,
        GROUND if e is None else FLOOR,
        q0=jnp.asarray(h, float)[None],
        v0=jnp.zeros(1),
        t_end=t_end,
        params=params,
        coordinates=("y [m]",),
        shape=shape,
    )
