"""Newton's method for the small nonlinear system of one implicit time step, differentiable in both
modes.

    x <- x - J(x)^-1 r(x; theta),   J = dr/dx from forward-mode derivatives                    (1)

until the change is small. Inside the loop nothing is differentiated; the derivative of the solution
is that of the implicit function theorem, with the last J:

    dx/dtheta = -J^-1 dr/dtheta                                                                (2)

So everything that theta stands for must be passed in `args`. J is one iteration old; its error is
of the size of the last change.

The systems are written so that J is the identity up to terms of the order of the step (the
saddle-point part of a step is solved inside r): no pivoting is needed while they are small, and
their condition does not depend on the step. For the same reason large ones (more than DENSE
unknowns) need no J at all: one of its columns costs as much as r itself, and Broyden's method,
started from H = I for J^-1, needs only a few more evaluations of r,

    dx = -H r(x),  y = r(x + dx) - r(x),  H <- H + (dx - H y) (dx^T H)/(dx^T H y)              (3)

J is then computed for derivatives, and where (3) did not converge: there (1) takes over.

The change cannot fall below J^-1 times the round-off of the residual, which the caller gives as
`noise`. Nearly everywhere J is close to the identity; where rows of constraints are nearly
dependent it is not, and they amplify the round-off by a factor A that the caller can tell at a
given x. An iteration that did not converge is accepted if its last change is within

    tolerance |x| + |J^-1| A noise                                                             (4)

with the row-sum norm. The factor is computed only then.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nsdyn._repr import settings_text
from nsdyn._types import AnyArray, Matrix, Number, Scalar, Velocity
from nsdyn.errors import ProblemError
from nsdyn.numerics import small

DENSE = 24  # largest number of unknowns for Newton's method; beyond it Broyden's
TINY = jnp.finfo(float).tiny
NOISE = 100 * jnp.finfo(float).eps  # relative round-off of a state


class Effort(eqx.Module):
    """The work of Newton's method.

    total, worst: all iterations, and the largest number of them in one step.
    change: the last change, in units of the allowed one.
    failed: whether it did not converge.
    """

    total: Int[AnyArray, "*batch"]
    worst: Int[AnyArray, "*batch"]
    change: Float[AnyArray, "*batch"]
    failed: Bool[AnyArray, "*batch"]

    @staticmethod
    def none() -> "Effort":
        return Effort(jnp.zeros((), int), jnp.zeros((), int), jnp.zeros(()), jnp.zeros((), bool))

    def plus(self, other: "Effort") -> "Effort":
        worst = jnp.maximum(self.worst, other.worst)
        return Effort(self.total + other.total, worst, other.change, self.failed | other.failed)


def _tolerance(x: Any) -> Scalar:
    number = jnp.asarray(x, float)
    if not isinstance(number, jax.core.Tracer) and not number > 0:
        raise ProblemError(f"Newton(tolerance=...): expected a positive number, found {x!r}")
    return number


class Newton(eqx.Module):
    """Settings of the iteration in an implicit step.

    tolerance: the iteration ends when the last change, relative to the solution, is at most this.
    max_iterations: the largest number of iterations in one step; beyond it the run stops with
        NOT_CONVERGED. Four times as many are allowed for Broyden's method, which solves systems of
        more than 24 unknowns.
    """

    tolerance: Any = eqx.field(converter=_tolerance, default=1e-10)
    max_iterations: int = eqx.field(static=True, default=16)

    def __check_init__(self) -> None:
        if self.max_iterations < 1:
            raise ProblemError(
                f"Newton(max_iterations=...): expected at least 1, found {self.max_iterations}"
            )

    def __repr__(self) -> str:
        return settings_text(self)

    def solve(
        self,
        residual: Callable,
        x0: Float[Array, " n"],
        args: Any,
        noise: Number,
        weights: AnyArray | float = 1.0,
        amplification: Callable | None = None,
    ) -> tuple[Float[Array, " n"], Effort]:
        """The solution of residual(x, args) = 0 from x0. Unknowns are compared after multiplication
        by `weights`, which give them a common unit. `noise` is the absolute tolerance on the last
        change in that unit, for unknowns that are small differences of large terms;
        `amplification(x, args)` is A of (4)."""
        constant = lambda a: jax.lax.stop_gradient(a) if eqx.is_inexact_array(a) else a
        fixed = jax.tree.map(constant, args)
        x0, noise, weights, tolerance = jax.lax.stop_gradient((x0, noise, weights, self.tolerance))

        def allowed(x, A):
            return tolerance * jnp.max(jnp.abs(weights * x)) + A * noise + TINY  # (4)

        def scaled(x, dx):
            """A change in units of the allowed one."""
            return jnp.max(jnp.abs(weights * dx)) / allowed(x, 1.0)

        value = lambda x: residual(x, fixed)
        large = x0.shape[0] > DENSE
        last = self._iterated(value, x0, scaled)
        if amplification is not None:

            def forgiven(c):
                size = _inverse_norm(c.J) * amplification(c.x, fixed)
                return c._replace(change=c.change * allowed(c.x, 1.0) / allowed(c.x, size))

            last = _once(~(last.change <= 1.0) & jnp.all(jnp.isfinite(last.x)), forgiven, last)
        solution = _implicit(residual, last.x, None if large else last.J, args)
        return solution, Effort(last.tries, last.tries, last.change, ~(last.change <= 1.0))

    def _iterated(self, value: Callable, x0: Velocity, scaled: Callable) -> "Iterate":
        """The last iterate of (1); for many unknowns that of (3), or of (1) where (3) fails."""

        def until(limit, iterate, start):
            going = lambda c: (c.change > 1.0) & (c.tries < limit)
            return jax.lax.while_loop(going, iterate, start)

        limit = self.max_iterations
        newton, start = _newton(value, x0, scaled)
        if x0.shape[0] <= DENSE:
            return until(limit, newton, start)
        last = until(4 * limit, *_broyden(value, x0, scaled))
        failed = ~(last.change <= 1.0)
        start = start._replace(r=last.r)

        def again(c):
            new = until(limit, newton, start)
            return new._replace(tries=c.tries + new.tries)

        return _once(failed, again, last)


class Iterate(NamedTuple):
    """x, its J or H (and r(x) for H), the number of iterations, and the last change in units of the
    allowed one."""

    x: Array
    J: Array
    r: Array
    tries: Array
    change: Array

    @staticmethod
    def first(x0: Float[Array, " n"], r: Array) -> "Iterate":
        """The iterate before the first iteration."""
        return Iterate(
            x=x0,
            J=jnp.eye(x0.shape[0]),
            r=r,
            tries=jnp.zeros((), int),
            change=jnp.full((), jnp.inf),
        )


def _once(wanted: Array, change: Callable, x: Any) -> Any:
    """change(x) if wanted, else x: a loop that runs once or not at all, which in a batch, unlike a
    conditional, is skipped when no trajectory wants it."""
    loop = lambda carry: (change(carry[0]), jnp.zeros((), bool))
    return jax.lax.while_loop(lambda carry: carry[1], loop, (x, wanted))[0]


def _inverse_norm(J: Matrix) -> Scalar:
    """|J^-1|, at least 1."""
    columns = jax.vmap(lambda b: small.eliminate(J, b))(jnp.eye(J.shape[0]))
    return jnp.maximum(jnp.max(jnp.sum(jnp.abs(columns), axis=0)), 1.0)


def _newton(value: Callable, x0: Velocity, scaled: Callable) -> tuple[Callable, Iterate]:
    def iterate(c: Iterate) -> Iterate:
        r, J = jax.vmap(lambda dx: jax.jvp(value, (c.x,), (dx,)), out_axes=(None, -1))(
            jnp.eye(x0.shape[0])
        )
        dx = small.eliminate(J, r)  # (1)
        return Iterate(x=c.x - dx, J=J, r=c.r, tries=c.tries + 1, change=scaled(c.x, dx))

    return iterate, Iterate.first(x0, jnp.zeros(0))


def _broyden(value: Callable, x0: Velocity, scaled: Callable) -> tuple[Callable, Iterate]:
    def iterate(c: Iterate) -> Iterate:
        dx = -c.J @ c.r
        r = value(c.x + dx)
        Hy = c.J @ (r - c.r)
        size = jnp.vdot(dx, Hy)
        usable = jnp.abs(size) > TINY
        row = jnp.where(usable, dx @ c.J / jnp.where(usable, size, 1.0), 0.0)
        H = c.J + (dx - Hy)[:, None] * row[None, :]  # (3)
        return Iterate(x=c.x + dx, J=H, r=r, tries=c.tries + 1, change=scaled(c.x, dx))

    return iterate, Iterate.first(x0, value(x0))


def _implicit(residual: Callable, x: Velocity, J: Matrix | None, args: Any) -> Velocity:
    """x, with the derivative (2); J is computed there if it is None."""
    arrays, rest = eqx.partition(args, eqx.is_array)

    @jax.custom_jvp
    def solution(x, J, arrays):
        return x

    @solution.defjvp
    def rule(primals, tangents):
        x, J, arrays = primals
        floats, others = eqx.partition(arrays, eqx.is_inexact_array)
        dots = jax.tree.map(
            lambda a, dot: dot if eqx.is_inexact_array(a) else None, arrays, tangents[2]
        )
        value = lambda floats: residual(x, eqx.combine(floats, others, rest))
        J = jax.jacfwd(lambda x: residual(x, eqx.combine(arrays, rest)))(x) if J is None else J
        return x, -small.eliminate(J, jax.jvp(value, (floats,), (dots,))[1])

    return solution(x, J, arrays)
