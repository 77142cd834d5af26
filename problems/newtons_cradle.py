"""Newton's cradle: equal balls on threads, the first of which swings against the others.

n balls of mass m hang side by side; u_i is how far ball i is from where it hangs at rest, to the
right. For small swings, and with a small distance d between neighbours at rest,

    m u_i'' = -m (g/L) u_i,   gap_i = d + u_(i+1) - u_i >= 0                                     (1)

With the law `Restitution(1)` two balls that meet exchange their velocities, so the impact runs
through the row ball by ball and the last one swings out. The distance d matters: of balls that
touch at rest, an impact of all at once with Newton's law would not move the last one alone (that
needs a law for multiple impacts). After the impact the other balls are left swinging with
amplitudes of about d. `newtons_cradle(e=1.0)` has `Contacts` instead of `Contact`, with one number
e or one for each pair, also for balls that touch (d = 0), which then leave together.

Between impacts all motions are harmonic; impacts located by bisection on these closed forms give
the reference (ours). All numbers are assumed. Balls are drawn on threads of length L.
"""

import jax.numpy as jnp
from jaxtyping import Array

import nsdyn
from nsdyn._types import AnyTime, Configuration, Matrix, Number, Params, Rows, Scalar, Velocity

ABOUT = nsdyn.About(tags=("contact", "impact"), source="folklore")

REFERENCE = nsdyn.Reference(
    q=(
        -0.0910686906018531,
        0.00183732576898066,
        0.00183980214795060,
        0.00184157297532260,
        0.00184263657624188,
    ),
    v=(
        0.2317667115756693,
        0.0202354306023181,
        0.0202640857957824,
        0.0202845809894322,
        0.0202968925259130,
    ),
    source="own: harmonic motions, impacts located by bisection",
    tolerance=1e-9,
    scale_v=(0.57,) * 5,  # the speed of the first ball when it hits
    law="Restitution(e=1.0)",
    agrees=(
        nsdyn.Agreement("EventDriven(RK4())", 1000, 1e-09),
        nsdyn.Agreement("EventDriven(DormandPrince(order=8, rtol=1e-11, atol=1e-13))", 50, 1e-11),
        nsdyn.Agreement("NSGA()", 16000, 2e-3),
    ),
)
RADIUS = 0.1  # of a ball, in lengths of the thread, for drawing


def mass(q: Configuration, p: Params) -> Matrix:
    return p["m"] * jnp.eye(q.shape[0])


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    return -p["m"] * p["g"] / p["L"] * q  # (1)


def potential(q: Configuration, p: Params) -> Scalar:
    return 0.5 * p["m"] * p["g"] / p["L"] * jnp.sum(q**2)


def gaps(q: Configuration, t: AnyTime, p: Params) -> Rows:
    return p["d"] + q[1:] - q[:-1]  # (1)


def restitution(p: Params) -> Array:
    return p["e"]


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """Threads and balls."""
    turn = jnp.linspace(0.0, 2 * jnp.pi, 25)
    circle = RADIUS * p["L"] * jnp.stack([jnp.cos(turn), jnp.sin(turn)], axis=1)
    lines = []
    for i, u in enumerate(q):
        pivot = jnp.stack([i * (2 * RADIUS * p["L"] + p["d"]), p["L"]])
        ball = pivot + jnp.stack([u, -jnp.sqrt(p["L"] ** 2 - u**2)])
        lines += [jnp.stack([pivot, ball]), ball[None] + circle]
    return tuple(lines)


SYSTEM = nsdyn.System(mass=mass, force=force, potential=potential)
ROW = nsdyn.Contact(gaps)
BALLS = nsdyn.Contacts(gaps, e=restitution)


def newtons_cradle(
    n: int = 5,
    d: Number = 0.002,
    A: Number = 0.1,
    m: Number = 0.1,
    L: Number = 0.3,
    g: Number = 9.81,
    t_end: float = 1.2,
    e: Number | None = None,
) -> nsdyn.Problem:
    """n balls, the first pulled aside by A; run it with Restitution(1). If e is given the balls are
    `Contacts`. params: m, L, g, d and, if given, e."""
    if n < 2:
        raise nsdyn.ProblemError(f"newtons_cradle(n=...): expected at least 2 balls, found {n}")
    values = {"m": m, "L": L, "g": g, "d": d, **({} if e is None else {"e": e})}
    params = {name: jnp.asarray(value, float) for name, value in values.items()}
    return nsdyn.Problem(
        "newtons_cradle",
        SYSTEM,
        ROW if e is None else BALLS,
        q0=jnp.zeros(n).at[0].set(-A),
        v0=jnp.zeros(n),
        t_end=t_end,
        params=params,
        coordinates=[f"u_{i + 1} [m]" for i in range(n)],
        shape=shape,
    )
