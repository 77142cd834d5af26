"""Dense output of a step and the first look for sign changes of the guards on it.

Between the ends (q_0, v_0) and (q_1, v_1) of a step, with x = (t - t_0)/h, cubic Hermite interpolation

    y(x) = (1+2x)(1-x)^2 y_0 + x(1-x)^2 h y'_0 + x^2(3-2x) y_1 - x^2(1-x) h y'_1            (1)

of q (with q') and of v (with v'); lam is interpolated linearly. Guards are sampled at equal distances; through three
neighbouring samples a, b, d runs a parabola with curvature c = a - 2b + d, whose lowest value b - (a-d)^2/(8c) shows a guard
that dips below zero between samples:

    c > 0,  |a - d| <= 2c,  8 b c <= (a - d)^2                                              (2)
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array

from nsdyn.integrator import State
from nsdyn.model import Model, Point

SLACK = 1e-9  # in units of the step: a crossing that round-off puts just beyond the end of a step belongs to it


def hermite(x, h, y0, d0, y1, d1):
    u = 1.0 - x
    return (1 + 2 * x) * u * u * y0 + x * u * u * h * d0 + x * x * (3 - 2 * x) * y1 - x * x * u * h * d1  # (1)


def between(model: Model, start: State, end: State, h, p, x) -> tuple[Point, Array]:
    """The point and the multipliers on the dense output at the fraction x."""
    rate = model.system.rate
    first, last = start.point, end.point
    q = hermite(x, h, first.q, rate(first.q, first.v, p), last.q, rate(last.q, last.v, p))
    v = hermite(x, h, first.v, start.memory.a, last.v, end.memory.a)
    lam = (1 - x) * start.memory.lam + x * end.memory.lam
    return Point(first.t + x * h, q, v, first.mode, first.held), lam


def guards_between(model: Model, start: State, end: State, h, p, x):
    """The guards on the dense output at the fractions x, shape (len(x), k)."""
    return jax.vmap(lambda x: model.guards(*between(model, start, end, h, p, x), p))(x)


def dips(a, b, d):
    """Whether the parabola through three samples reaches zero between them."""
    c = a - 2 * b + d
    return (c > 0) & (jnp.abs(a - d) <= 2 * c) & (8 * b * c <= (a - d) ** 2)  # (2)


def below(samples, floor):
    """Which samples count as beyond the surface; the last one already when it is about to cross."""
    about = SLACK * jnp.maximum(samples[-2] - samples[-1], 0.0)
    limit = jnp.where(floor > 0, -floor, 0.0)
    ends = jnp.where(floor > 0, limit, about)
    return jnp.concatenate([samples[:-1] <= limit[None], (samples[-1] <= ends)[None]])
