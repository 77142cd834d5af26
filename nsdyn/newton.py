"""Newton's method for the small nonlinear system of one implicit time step, differentiable in both modes.

    x <- x - J(x)^-1 r(x; theta),   J = dr/dx from forward-mode derivatives                    (1)

until the change is small. Inside the loop nothing is differentiated; the derivative of the solution is that of the implicit
function theorem, with the last J:

    dx/dtheta = -J^-1 dr/dtheta                                                                (2)

So everything that theta stands for must come in through `args`. J is one iteration old; its error is of the size of the last
change.

The systems are written so that J is the identity up to terms of the order of the step (the saddle-point part of a step is solved
inside r): no pivoting is needed while they are small, and their condition does not depend on the step.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nsdyn import linalg

LIMIT = 16
TOLERANCE = 1e-10  # relative, of the last change; every scheme has this one
TINY = jnp.finfo(float).tiny
NOISE = 100 * jnp.finfo(float).eps


class Effort(eqx.Module):
    """What Newton's method did: iterations in all, the most in one step, the last change in units of what is allowed, and
    whether it failed."""

    total: Int[Array, ""]
    worst: Int[Array, ""]
    change: Float[Array, ""]
    failed: Bool[Array, ""]

    @staticmethod
    def none() -> "Effort":
        return Effort(jnp.zeros((), int), jnp.zeros((), int), jnp.zeros(()), jnp.zeros((), bool))

    def plus(self, other: "Effort") -> "Effort":
        worst = jnp.maximum(self.worst, other.worst)
        return Effort(self.total + other.total, worst, other.change, self.failed | other.failed)


def newton(residual: Callable, x0: Float[Array, " n"], args: Any, noise) -> tuple[Float[Array, " n"], Effort]:
    """The solution of residual(x, args) = 0 from x0. `noise` is a change of x that does not count, because
    round-off alone makes it or because what x is the balance of is so much larger."""
    fixed = jax.tree.map(lambda a: jax.lax.stop_gradient(a) if eqx.is_inexact_array(a) else a, args)
    x0, noise = jax.lax.stop_gradient((x0, noise))

    def iterate(carry):
        x, _, n, _ = carry
        push = lambda dx: jax.jvp(lambda x: residual(x, fixed), (x,), (dx,))
        r, J = jax.vmap(push, out_axes=(None, -1))(jnp.eye(x.shape[0]))
        dx = linalg.eliminate(J, r)  # (1)
        return x - dx, J, n + 1, jnp.max(jnp.abs(dx)) / (TOLERANCE * jnp.max(jnp.abs(x)) + noise + TINY)

    start = (x0, jnp.eye(x0.shape[0]), jnp.zeros((), int), jnp.full((), jnp.inf))
    x, J, count, change = jax.lax.while_loop(lambda c: (c[3] > 1.0) & (c[2] < LIMIT), iterate, start)
    return _implicit(residual, x, J, args), Effort(count, count, change, ~(change <= 1.0))


def _implicit(residual: Callable, x, J, args):
    """x, with the derivative (2)."""
    arrays, rest = eqx.partition(args, eqx.is_array)

    @jax.custom_jvp
    def solution(x, J, arrays):
        return x

    @solution.defjvp
    def rule(primals, tangents):
        x, J, arrays = primals
        floats, others = eqx.partition(arrays, eqx.is_inexact_array)
        dots = jax.tree.map(lambda a, dot: dot if eqx.is_inexact_array(a) else None, arrays, tangents[2])
        value = lambda floats: residual(x, eqx.combine(floats, others, rest))
        return x, -linalg.eliminate(J, jax.jvp(value, (floats,), (dots,))[1])

    return solution(x, J, arrays)
