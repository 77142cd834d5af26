"""A parallelogram in three angles, through the position in which it is flat.

Two cranks of length L stand on the ground, D apart, and a coupler of length D joins their ends; all
are uniform rods of mass m. Seen as a chain of three hinges whose last rod ends on the ground, it
has the joint angles q, clockwise, each from the rod before; they add up to the angles alpha and
gamma of the cranks from the upright and beta of the coupler from the horizontal:

    (alpha, beta, gamma) = (q_1, q_1 + q_2, q_1 + q_2 + q_3),
    u(x) = (sin x, cos x),   w(x) = (cos x, -sin x),
    L u(alpha) + D w(beta) - L u(gamma) - (D, 0) = 0                                 the loop    (1)

    T = m L^2/6 (alpha'^2 + gamma'^2) + m/2 |c'|^2 + m D^2/24 beta'^2,
    c = L u(alpha) + D/2 w(beta),   V = m g (L/2 cos alpha + L/2 cos gamma + c_y)                (2)

The mechanism is a pendulum: alpha = gamma = theta and beta = 0, that is q = (theta, -theta, theta),
solve (1), and by (2)

    5/3 L theta'' = 2 g sin(theta)                                                               (3)

Where theta = 90 degrees only one condition on the velocities is left of (1), L alpha' + D beta' =
L gamma' from y and nothing from x: a second motion branches off, that of the antiparallelogram,
which (3) does not take. The reactions stay bounded, because both cranks carry the same load. All
parameters are assumed; the start is that of the benchmark `n_four_bar`.
"""

import jax.numpy as jnp

import nsdyn
from nsdyn.errors import ProblemError

ABOUT = nsdyn.About(tags=("smooth", "loops", "singular"), source="own")


def _up(angle):
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)])


def _along(angle):
    return jnp.stack([jnp.cos(angle), -jnp.sin(angle)])


def kinetic(q, v, p):
    alpha, beta, _ = jnp.cumsum(q)
    rates = jnp.cumsum(v)
    cranks = p["m"] * p["L"] ** 2 / 6 * (rates[0] ** 2 + rates[2] ** 2)
    # the derivatives of u and w by their angles are w and -u
    c = p["L"] * _along(alpha) * rates[0] - p["D"] / 2 * _up(beta) * rates[1]
    return cranks + p["m"] / 2 * jnp.sum(c**2) + p["m"] * p["D"] ** 2 / 24 * rates[1] ** 2  # (2)


def potential(q, p):
    alpha, beta, gamma = jnp.cumsum(q)
    cranks = p["L"] / 2 * (jnp.cos(alpha) + jnp.cos(gamma))
    coupler = p["L"] * _up(alpha) + p["D"] / 2 * _along(beta)
    return p["m"] * p["g"] * (cranks + coupler[1])  # (2)


def loop(q, t, p):
    alpha, beta, gamma = jnp.cumsum(q)
    ends = p["L"] * (_up(alpha) - _up(gamma))
    return ends + p["D"] * (_along(beta) - jnp.array([1.0, 0.0]))  # (1)


def shape(q, p):
    """Crank, coupler and crank as one line, and the ground between them."""
    alpha, beta, gamma = jnp.cumsum(q)
    first = p["L"] * _up(alpha)
    second = first + p["D"] * _along(beta)
    line = jnp.stack([jnp.zeros(2), first, second, second - p["L"] * _up(gamma)])
    return (line, p["D"] * jnp.array([[0.0, 0.0], [1.0, 0.0]]))


SYSTEM = nsdyn.System.from_lagrangian(kinetic, potential)
LOOP = nsdyn.Fixed(loop)


def pendulum_rate(p):
    """theta''/sin(theta) of the pendulum that the mechanism is."""
    return 6 / 5 * p["g"] / p["L"]  # (3)


def parallelogram(m=1.0, L=1.0, D=2.0, g=9.81, rate=1.0, t_end=10.0) -> nsdyn.Problem:
    """The cranks upright, turning clockwise with `rate` [rad/s]. params: m, L, D, g."""
    for name, value in (("m", m), ("L", L), ("D", D)):
        if isinstance(value, int | float) and not value > 0:
            raise ProblemError(
                f"parallelogram({name}=...): expected a positive number, found {value}"
            )
    params = {
        name: jnp.asarray(value, float) for name, value in (("m", m), ("L", L), ("D", D), ("g", g))
    }
    v0 = rate * jnp.array([1.0, -1.0, 1.0])
    return nsdyn.Problem(
        "parallelogram",
        SYSTEM,
        LOOP,
        q0=jnp.zeros(3),
        v0=v0,
        t_end=t_end,
        params=params,
        coordinates=("q_1 [rad]", "q_2 [rad]", "q_3 [rad]"),
        shape=shape,
    )
