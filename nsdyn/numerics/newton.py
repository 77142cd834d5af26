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

In a step with contacts, x = f(x), f has problems of its own inside, which cost more than all else.
There (3) serves any number of unknowns, and f passes on what it found: the next evaluation starts
from there, and after the last one nothing has to be solved again.

The change cannot fall below J^-1 times the round-off of r. Usually that is `noise`, which the
caller knows from the sizes of its terms. Where rows of constraints are nearly dependent or vanish,
as near a singular position, they amplify it, and J is no longer close to the identity. So for an
iteration that did not converge the round-off rho is measured, by a few changes d that mean nothing,

    rho = max |r(x + d) - r(x) - J d|,   |d| = noise                                           (4)

and the iteration is accepted if its last change is within

    tolerance |x| + SAFETY |J^-1| rho                                                          (5)

rho beyond noise/DEPENDENT, the most that rows which count as independent can do, is no round-off.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from nsdyn._repr import settings_text
from nsdyn._types import AnyArray, Matrix, Number, Scalar, Velocity
from nsdyn.errors import ProblemError
from nsdyn.numerics import small
from nsdyn.numerics.rank import DEPENDENT

SAFETY = 10.0  # round-off is measured by a few samples
PROBES = 3  # changes d of (4)
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
        NOT_CONVERGED. Systems of more than 24 unknowns, and steps with contacts, are solved by
        Broyden's method, in up to four times as many iterations, and by Newton's where that does
        not converge.
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
        near_identity: bool = False,
    ) -> tuple[Float[Array, " n"], Effort]:
        """The solution of residual(x, args) = 0 from x0. Unknowns are compared after multiplication
        by `weights`, which give them a common unit. `noise` is the absolute tolerance on the last
        change in that unit, for unknowns that are small differences of large terms. If J is always
        `near_identity`, Broyden's method is enough for any number of unknowns."""
        fixed = _constant(args)
        x0, noise, weights, tolerance = jax.lax.stop_gradient((x0, noise, weights, self.tolerance))
        allowed = Allowed(tolerance, noise, weights)
        value = lambda x: residual(x, fixed)
        large = near_identity or x0.shape[0] > DENSE
        if near_identity:
            last = self._until(4 * self.max_iterations, *_broyden(value, x0, allowed))
        else:
            last = self._iterated(value, x0, allowed)
        solution = implicit_solution(residual, last.x, None if large else last.J, args)
        return solution, last.effort

    def solve_keeping(
        self,
        function: Callable,
        x0: Float[Array, " n"],
        first: Any,
        args: Any,
        noise: Number,
        weights: AnyArray | float = 1.0,
        by_newton: bool = True,
    ) -> tuple[Float[Array, " n"], Any, Effort]:
        """The solution of x = f(x) from x0, and what f found there, without derivatives:
        function(x, before, args) -> (f, found), where `before` is what an evaluation nearby found,
        and `first` at first. Noise and weights as in `solve`. (1) takes over `by_newton`, if there
        are few unknowns."""
        fixed = _constant(args)
        x0, noise, weights, tolerance = jax.lax.stop_gradient((x0, noise, weights, self.tolerance))
        allowed = Allowed(tolerance, noise, weights)
        value = lambda x, before: function(x, before, fixed)
        last = self._until(4 * self.max_iterations, *_broyden_keeping(value, x0, first, allowed))

        def again(c: Keeping) -> Keeping:
            new = self._iterated(lambda x: x - value(x, first)[0], x0, allowed)
            found = value(new.x, first)[1]
            tries = c.tries + new.tries
            return c._replace(x=new.x, found=found, tries=tries, change=new.change)

        if x0.shape[0] <= DENSE and by_newton:
            last = once(~(last.change <= 1.0), again, last)
        args = (args, last.found)
        residual = lambda x, args: x - function(x, args[1], args[0])[0]
        return implicit_solution(residual, last.x, None, args), last.found, last.effort

    def _iterated(self, value: Callable, x0: Velocity, allowed: "Allowed") -> "Iterate":
        """The last iterate of (1); for many unknowns that of (3), or of (1) where (3) fails."""
        limit = self.max_iterations
        newton, start = _newton(value, x0, allowed)
        if x0.shape[0] <= DENSE:
            last = self._until(limit, newton, start)
        else:
            last = self._until(4 * limit, *_broyden(value, x0, allowed))

            def again(c):
                new = self._until(limit, newton, start._replace(r=c.r))
                return new._replace(tries=c.tries + new.tries)

            last = once(~(last.change <= 1.0), again, last)
        failed = ~(last.change <= 1.0) & jnp.all(jnp.isfinite(last.x))
        return once(failed, lambda c: _forgiven(value, c, allowed), last)

    def _until(self, limit: int, iterate: Callable, start: Any) -> Any:
        going = lambda c: (c.change > 1.0) & (c.tries < limit)
        return jax.lax.while_loop(going, iterate, start)


class Allowed(NamedTuple):
    """How large the last change may be."""

    tolerance: Array
    noise: Any
    weights: Any

    def of(self, x: Array, noise: Any) -> Array:
        return self.tolerance * jnp.max(jnp.abs(self.weights * x)) + noise + TINY

    def share(self, x: Array, dx: Array) -> Array:
        """A change in units of the allowed one."""
        return jnp.max(jnp.abs(self.weights * dx)) / self.of(x, self.noise)


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

    @property
    def effort(self) -> Effort:
        return Effort(self.tries, self.tries, self.change, ~(self.change <= 1.0))


class Keeping(NamedTuple):
    """x, H and the next change dx of (3), r(x) and what the function found at x, the number of
    iterations, and the size of dx in units of the allowed one."""

    x: Array
    H: Array
    dx: Array
    r: Array
    found: Any
    tries: Array
    change: Array

    @property
    def effort(self) -> Effort:
        return Effort(self.tries, self.tries, self.change, ~(self.change <= 1.0))


def _constant(args: Any) -> Any:
    constant = lambda a: jax.lax.stop_gradient(a) if eqx.is_inexact_array(a) else a
    return jax.tree.map(constant, args)


def once(wanted: Array, change: Callable, x: Any) -> Any:
    """change(x) if wanted, else x: a loop that runs once or not at all, which in a batch, unlike a
    conditional, is skipped when no trajectory wants it."""
    loop = lambda carry: (change(carry[0]), jnp.zeros((), bool))
    return jax.lax.while_loop(lambda carry: carry[1], loop, (x, wanted))[0]


def _forgiven(value: Callable, c: Iterate, allowed: Allowed) -> Iterate:
    """The iterate with its change in units of (5)."""
    floor = jnp.maximum(_floor(value, c, allowed.noise, allowed.weights), allowed.noise)
    less = allowed.of(c.x, allowed.noise) / allowed.of(c.x, floor)
    return c._replace(change=c.change * less)


def _floor(value: Callable, c: Iterate, noise: Number, weights: AnyArray | float) -> Scalar:
    """SAFETY |J^-1| rho of (5), in the unit of `noise`, with the row-sum norm."""
    n = c.x.shape[0]
    w = jnp.broadcast_to(jnp.asarray(weights, float), (n,))
    signs = jnp.asarray(np.random.default_rng(0).choice([-1.0, 1.0], (PROBES, n)))
    d = jnp.concatenate([jnp.zeros((1, n)), noise * signs / w[None]])
    r = jax.lax.map(lambda d: value(c.x + d) - c.J @ d, d)
    rho = jnp.max(jnp.abs(w[None] * (r[1:] - r[:1])))  # (4)
    columns = jax.vmap(lambda b: small.eliminate(c.J, b))(jnp.diag(1 / w))
    inverse = jnp.max(jnp.sum(jnp.abs(w[None] * columns), axis=0))
    return SAFETY * inverse * jnp.where(rho <= noise / DEPENDENT, rho, 0.0)


def _newton(value: Callable, x0: Velocity, allowed: Allowed) -> tuple[Callable, Iterate]:
    def iterate(c: Iterate) -> Iterate:
        r, J = jax.vmap(lambda dx: jax.jvp(value, (c.x,), (dx,)), out_axes=(None, -1))(
            jnp.eye(x0.shape[0])
        )
        dx = small.eliminate(J, r)  # (1)
        return Iterate(x=c.x - dx, J=J, r=c.r, tries=c.tries + 1, change=allowed.share(c.x, dx))

    return iterate, Iterate.first(x0, jnp.zeros(0))


def _broyden(value: Callable, x0: Velocity, allowed: Allowed) -> tuple[Callable, Iterate]:
    def iterate(c: Iterate) -> Iterate:
        dx = -c.J @ c.r
        r = value(c.x + dx)
        H = _updated(c.J, dx, r - c.r)
        change = allowed.share(c.x, dx)
        return Iterate(x=c.x + dx, J=H, r=r, tries=c.tries + 1, change=change)

    return iterate, Iterate.first(x0, value(x0))


def _updated(H: Matrix, dx: Velocity, y: Velocity) -> Matrix:
    """H of (3); as it was if there was no change."""
    Hy = H @ y
    size = jnp.vdot(dx, Hy)
    usable = jnp.abs(size) > TINY
    row = jnp.where(usable, dx @ H / jnp.where(usable, size, 1.0), 0.0)
    return H + (dx - Hy)[:, None] * row[None, :]


def _broyden_keeping(
    value: Callable, x0: Velocity, first: Any, allowed: Allowed
) -> tuple[Callable, Keeping]:
    """(3) for r = x - f, which begins with a change of 0. The last change is not made any more."""

    def iterate(c: Keeping) -> Keeping:
        x = c.x + c.dx
        f, found = value(x, c.found)
        r = x - f
        H = _updated(c.H, c.dx, r - c.r)
        dx = -H @ r
        return Keeping(x, H, dx, r, found, c.tries + 1, allowed.share(x, dx))

    zero = jnp.zeros_like(x0)
    start = Keeping(
        x=x0,
        H=jnp.eye(x0.shape[0]),
        dx=zero,
        r=zero,
        found=first,
        tries=jnp.zeros((), int),
        change=jnp.full((), jnp.inf),
    )
    return iterate, start


def implicit_solution(
    residual: Callable,
    x: Velocity,
    J: Matrix | None,
    args: Any,
    solve: Callable = small.eliminate,
) -> Velocity:
    """The solution x of residual(x, args) = 0, with the derivative (2); J is computed there if it
    is None. solve(J, b) = J^-1 b."""
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
        return x, -solve(J, jax.jvp(value, (floats,), (dots,))[1])

    return solution(x, J, arrays)
