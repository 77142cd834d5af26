"""Semismooth Newton method for contacts with friction (`nsdyn.numerics.cone_problem`), with a
proximal term, and the method of proximal points around it.

    (J + eps) dx = -F,   eps = error within [1e-10, 0.1]                                       (1)
    x <- x + t dx,       t = 1, 1/2, ..., 1/32, the first that reduces the error; else t = 1   (2)

J = dF/dx on the branch that x is on. Where contacts are redundant J is singular; eps, of the size
of the residual, makes that harmless. Without friction eps also falls by LESS in each iteration:
where masses differ much, eps would hold back the motions that they have in common, for 0.1/s
iterations if s is the smallest eigenvalue of A (of stacks of boxes with masses 1 to 1000 half were
not solved within ten iterations, now 99 %; with friction it would do harm). After three full steps
in a row that did not reduce the error the iteration ends.

Proximal points: solve, by (1) from x_j, the problem with A + alpha and q - alpha x_j for x_(j+1).
At a fixed point alpha has no effect. It falls by 5 where the inner iteration converges and rises by
5 where it does not, from 0.1.

V. Acary, M. Bremond, O. Huber: On solving contact problems with Coulomb friction: formulations and
numerical comparisons. Springer 2018, 375-457.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from nsdyn._jitted import traced_once
from nsdyn._types import Code, Flag, Number
from nsdyn.numerics import small
from nsdyn.numerics.cone_problem import ConeProblem, Impulses

EPS = (1e-10, 0.1)  # smallest and largest proximal term of (1)
LESS = 0.3
SHORTEST = 1 / 32
DECREASE = 1e-4  # of the error, relative to the step, that (2) asks for
STALLED = 3  # steps in a row without decrease
ALPHA = (0.1, 1e-9, 10.0)  # first, smallest and largest
INNER = 12  # iterations for each proximal point
WORTHLESS = 1e30  # an error that any other is smaller than


class Iterate(NamedTuple):
    """x and its w, their error, the factor of eps in the next iteration, and how many iterations
    were made in all and in a row without decrease."""

    x: Array
    w: Array
    error: Array
    factor: Array
    rounds: Array
    stalled: Array


class Trial(NamedTuple):
    """A point of the line search (2)."""

    t: Array
    x: Array
    w: Array
    error: Array

    def falls(self, error: Array) -> Array:
        """Whether the error falls enough."""
        return self.error < (1 - DECREASE * self.t) * error


@traced_once
def newton(
    problem: ConeProblem, x0: Impulses, wanted: Flag, limit: Code, tolerance: Number
) -> Iterate:
    """(1) and (2) from x0, if wanted: until the error is at most `tolerance`, or no longer falls,
    or `limit` iterations were made."""
    k, d = problem.shape
    less = jnp.where(jnp.any(problem.mu > 0), 1.0, LESS)

    def going(c: Iterate) -> Any:
        return wanted & (c.error > tolerance) & (c.rounds < limit) & (c.stalled < STALLED)

    def iterate(c: Iterate) -> Iterate:
        eps = jnp.clip(c.error * c.factor, *EPS)
        J = problem.jacobian(c.x, c.w, eps)
        F = problem.residual(c.x, c.w).reshape(-1)
        dx = -small.solve_pivoted(J, F).reshape(k, d)  # (1)
        new, some = _searched(problem, c, dx)  # (2)
        usable = jnp.isfinite(new.error)
        return Iterate(
            x=jnp.where(usable, new.x, c.x),
            w=jnp.where(usable, new.w, c.w),
            error=jnp.where(usable, new.error, c.error),
            factor=c.factor * less,
            rounds=c.rounds + 1,
            stalled=jnp.where(some, 0, c.stalled + 1),
        )

    return lax.while_loop(going, iterate, begin(problem, x0))


def _searched(problem: ConeProblem, c: Iterate, dx: Impulses) -> tuple[Trial, Array]:
    """x of (2), and whether it reduces the error. Nearly always t = 1 does."""

    def at(t: Array) -> Trial:
        x = c.x + t * dx
        w = problem.velocity(x)
        return Trial(t, x, w, problem.error(x, w))

    full = at(jnp.ones(()))
    going = lambda trial: ~trial.falls(c.error) & (trial.t > SHORTEST)
    last = lax.while_loop(going, lambda trial: at(trial.t / 2), full)
    some = last.falls(c.error)
    return jax.tree.map(lambda a, b: jnp.where(some, a, b), last, full), some


def begin(problem: ConeProblem, x0: Impulses) -> Iterate:
    w = problem.velocity(x0)
    error = problem.error(x0, w)
    usable = jnp.isfinite(error)
    zero = jnp.zeros((), int)
    return Iterate(
        x=jnp.where(usable, x0, 0.0),
        w=jnp.where(usable, w, problem.q),
        error=jnp.where(usable, error, WORTHLESS),
        factor=jnp.ones(()),
        rounds=zero,
        stalled=zero,
    )


class Proximal(NamedTuple):
    x: Array
    error: Array
    alpha: Array
    rounds: Array


@traced_once
def proximal_points(
    problem: ConeProblem, x0: Impulses, wanted: Flag, limit: Code, tolerance: Number
) -> Impulses:
    """Proximal points from x0, if wanted, at most `limit` of them."""
    first, *bounds = ALPHA

    def going(c: Proximal) -> Any:
        return wanted & (c.error > tolerance) & (c.rounds < limit)

    def one(c: Proximal) -> Proximal:
        near = problem.shifted(c.alpha, c.x)
        inner = newton(near, c.x, True, INNER, tolerance)
        converged = inner.error < 1e-2 * jnp.minimum(c.error, 1e-3) + 1e-12
        x = jnp.where(converged, inner.x, c.x)
        alpha = jnp.clip(jnp.where(converged, 0.2, 5.0) * c.alpha, *bounds)
        return Proximal(x, problem.error(x, problem.velocity(x)), alpha, c.rounds + 1)

    start = begin(problem, x0)
    carry = Proximal(start.x, start.error, jnp.full((), first), jnp.zeros((), int))
    return lax.while_loop(going, one, carry).x
