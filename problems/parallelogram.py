"""A parallelogram in three angles, through the position in which it is flat.

Two cranks of length L stand on the ground at the distance D of each other, and a coupler of length D
joins their ends; all are uniform rods of mass m. Absolute angles, from the upright for the cranks
and from the horizontal for the coupler, all clockwise:

    q = (alpha, beta, gamma),   u(alpha) = (sin alpha, cos alpha),  w(beta) = (cos beta, -sin beta)
    L u(alpha) + D w(beta) - L u(gamma) - (D, 0) = 0                                 the loop    (1)

    T = m L^2/6 (alpha'^2 + gamma'^2) + m/2 |c'|^2 + m D^2/24 beta'^2,
    c = L u(alpha) + D/2 w(beta),   V = m g (L/2 cos alpha + L/2 cos gamma + c_y)                (2)

The mechanism is a pendulum: alpha = gamma = theta and beta = 0 solve (1), and by (2)

    5/3 L theta'' = 2 g sin(theta)                                                               (3)

Where theta = 90 degrees both rows of (1) give the same condition on the velocities: L alpha' - D
beta' - L gamma' = 0 from y and nothing from x. There a second motion branches off, that of the
antiparallelogram, which the motion (3) does not take. All parameters are assumed; the start is that
of the benchmark `n_four_bar`.
"""

import jax.numpy as jnp

import nsdyn
from nsdyn.errors import ProblemError


def _up(angle):
    return jnp.stack([jnp.sin(angle), jnp.cos(angle)])


def _along(angle):
    return jnp.stack([jnp.cos(angle), -jnp.sin(angle)])


def middle(q, p):
    """c, the middle of the coupler."""
    return p["L"] * _up(q[0]) + p["D"] / 2 * _along(q[1])


def kinetic(q, v, p):
    cranks = p["m"] * p["L"] ** 2 / 6 * (v[0] ** 2 + v[2] ** 2)
    u, w = _along(q[0]), -_up(q[1])  # derivatives of the directions by their angles
    c = p["L"] * u * v[0] + p["D"] / 2 * w * v[1]
    return cranks + p["m"] / 2 * jnp.sum(c**2) + p["m"] * p["D"] ** 2 / 24 * v[1] ** 2  # (2)


def potential(q, p):
    cranks = p["L"] / 2 * (jnp.cos(q[0]) + jnp.cos(q[2]))
    return p["m"] * p["g"] * (cranks + middle(q, p)[1])  # (2)


def loop(q, t, p):
    ends = p["L"] * (_up(q[0]) - _up(q[2]))
    return ends + p["D"] * (_along(q[1]) - jnp.array([1.0, 0.0]))  # (1)


SYSTEM = nsdyn.System.from_lagrangian(kinetic, potential)
LOOP = nsdyn.Fixed(loop)


def pendulum_rate(p):
    """theta''/sin(theta) of the pendulum that the mechanism is."""
    return 6 / 5 * p["g"] / p["L"]  # (3)


def parallelogram(m=1.0, L=1.0, D=2.0, g=9.81, rate=1.0, t_end=10.0) -> nsdyn.Problem:
    """The cranks upright, turning clockwise with `rate`. params: m, L, D, g."""
    for name, value in (("m", m), ("L", L), ("D", D)):
        if isinstance(value, int | float) and not value > 0:
            raise ProblemError(
                f"parallelogram({name}=...): expected a positive number, found {value}"
            )
    params = {
        name: jnp.asarray(value, float) for name, value in (("m", m), ("L", L), ("D", D), ("g", g))
    }
    v0 = jnp.stack([rate, 0.0, rate])
    return nsdyn.Problem(
        "parallelogram", SYSTEM, LOOP, q0=jnp.zeros(3), v0=v0, t_end=t_end, params=params
    )
