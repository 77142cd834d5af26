"""Impulses along tangential directions B while constraints are established: friction, or any other
resistance (Font-Llagunes and Kovecses):

    M (v+ - v-) + G+^T Lam = U + B^T beta,    G+ v+ = -g_t+                                      (1)

beta acts on the mechanism along +B, as U does; Lam, as everywhere, has the other sign. With v_0 and
Lam_0 the answer of `PostSwitchGradient`, which is the one for beta = 0, (1) has the solution

    v+ = v_0 + Y beta,  Lam = Lam_0 + C beta,  w = B v+ = w_0 + A beta,  A = B Y = A^T >= 0      (2)
    M Y + G+^T C = B^T,   G+ Y = 0

Coulomb's law for one contact, with the normal impulse N = n^T Lam, where n is the direction of
Lam_0 on the new rows (for one row N = |Lam|, which is an impulse if the row is a distance; if rows
depend on each other the first of them carry Lam_0, so that repeating a row changes nothing): the
contact

    sticks,    w = 0,  where |beta| <= mu N,
    or slips,  w = -kappa beta,  kappa > 0,  |beta| = mu N                                     (3)

Both are found among the impulses that oppose the tangential velocity they leave,

    beta(x) = -x (x A + a (1 - x) I)^-1 w_0,  0 <= x <= 1,  a = tr A,  kappa = a (1 - x) / x     (4)

at x = 1 if that lies in the cone, else where |beta(x)| = mu N(x). All of them have w^T w_0 >= 0, so
that none reverses the motion, and with T_0 the kinetic energy of v_0

    T+ - T_0 = (w_0 + w)^T beta / 2 = -kappa |beta|^2 - beta^T A beta / 2 <= 0                   (5)

(5) holds where g_t = 0, and T_0 <= T- if U = 0 as well: energy is never gained. For one direction
(4) is beta = -x w_0 / A, and

    x = min(1, mu |Lam_0| A / (|w_0| (1 + mu c))),   c = sign(w_0) n^T C                         (6)

if 1 + mu c > 0; otherwise friction presses the contact together more than it needs, and it sticks.
For several directions x comes from bisection and, for derivatives, one step of Newton's method.

The record of a jump has one impulse for each row. The tangential impulse is recorded with the new
rows, whose directions are

    D = G+ - Lam (B^T beta)^T / |Lam|^2,   so that   D^T Lam = G+^T Lam - B^T beta               (7)

If the new rows have no impulse there is no contact, and no tangential impulse either.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn._signature import closed_over_tracer
from nsdyn._types import AnyArray, AnyTime, Code, Flag, Jacobian, Params, Rows, Scalar, Velocity
from nsdyn.errors import ProblemError
from nsdyn.laws.base import AbstractLaw, Jump, ModeChange
from nsdyn.laws.post_switch import PostSwitchGradient
from nsdyn.numerics import kkt, small
from nsdyn.numerics.rank import SMALLEST_PIVOT
from nsdyn.status import Status

HALVINGS = 60  # of the interval of x
STEPS = 10  # of Newton's method for a function beta
SOLVED = 1e-9  # relative residual of beta = function(Lam, ...) that counts as solved


class Function(eqx.Module):
    """A function given to a law. It is fixed at compile time, whereas numbers are traced."""

    call: Callable = eqx.field(static=True)


def _numbers_or_function(x: Any) -> Any:
    if x is None or isinstance(x, Function):
        return x
    return Function(x) if callable(x) else jnp.asarray(x, float)


class NonIdeal(AbstractLaw):
    """`PostSwitchGradient` with impulses B^T beta along the `tangents` B of one contact: friction
    during an impact.

    tangents: B, shape (k, n), or a function tangents(q, t, p) -> (k, n), needed in a run if B
        depends on q.
    mu: coefficient of friction, for Coulomb's law. Give either mu or beta.
    beta: the tangential impulses themselves, shape (k,), or a function beta(Lam, v, q, t, p) ->
        (k,). Lam, shape (m,), are the impulses of the rows after, under the action of beta: the
        equation beta = beta(Lam(beta), ...) is solved by Newton's method (in one step if beta is
        linear in Lam). v is the velocity before. In a call of `jump`, q, t and p are None.

    Coulomb's law never gains energy; a given beta is applied as it is.
    """

    tangents: Any = eqx.field(converter=_numbers_or_function)
    mu: Any = eqx.field(
        converter=lambda x: None if x is None else jnp.asarray(x, float), default=None
    )
    beta: Any = eqx.field(converter=_numbers_or_function, default=None)

    def __check_init__(self) -> None:
        if (self.mu is None) == (self.beta is None):
            raise ProblemError(
                "NonIdeal: expected either mu=... (Coulomb's law) or beta=... (impulses or a "
                "function)"
            )
        if (
            self.mu is not None
            and not isinstance(self.mu, jax.core.Tracer)
            and not np.all(np.asarray(self.mu) >= 0)
        ):
            raise ProblemError(
                f"NonIdeal(mu=...): expected a number >= 0, found {np.asarray(self.mu).tolist()}"
            )
        if not isinstance(self.tangents, Function) and (
            self.tangents is None or self.tangents.ndim != 2
        ):
            shape = np.shape(self.tangents)
            raise ProblemError(
                "NonIdeal(tangents=...): expected a function or an array (k, n), found shape "
                f"{shape}"
            )
        name = closed_over_tracer((self.tangents, self.beta))
        if name is not None:
            raise ProblemError(
                f"NonIdeal: the function {name} closes over a traced value; read it from the "
                "argument p"
            )

    def decide(self, change: ModeChange) -> Jump:
        return _answer(self, change)[0]

    def failure_code(self, change: ModeChange) -> Code:
        if not isinstance(self.beta, Function):
            return Status.OK
        return jnp.where(_answer(self, change)[1], Status.OK, Status.NOT_CONVERGED)

    def rows(self, q: AnyArray | None, t: AnyTime | None, p: Params) -> Array:
        """B at a configuration."""
        B = self.tangents.call(q, t, p) if isinstance(self.tangents, Function) else self.tangents
        return jnp.asarray(B, float)


def _answer(law: NonIdeal, change: ModeChange) -> tuple[Jump, Flag]:
    """The jump, and whether its impulse was found."""
    ideal = PostSwitchGradient().decide(change)
    B = _tangents(law, change)
    new = change.live_after & ~change.kept
    Y, C = _responses(change, B)
    found: Flag = True
    if law.mu is not None:
        pressing = jnp.where(new, ideal.Lam, 0.0)
        beta = _coulomb(law.mu, change, B, ideal.v_after, pressing, Y, C)
    elif isinstance(law.beta, Function):
        beta, found = _from_function(law.beta.call, change, ideal.Lam, C)
    else:
        beta = jnp.broadcast_to(law.beta, B.shape[:1])
    pressed = jnp.any(jnp.where(new, ideal.Lam + C @ beta, 0.0) != 0.0)
    beta = jnp.where(pressed, beta, 0.0)
    Lam = ideal.Lam + C @ beta  # (2)
    direction = _directions(change.G_after, jnp.where(new, Lam, 0.0), beta @ B)
    return Jump(ideal.v_after + Y @ beta, Lam, direction), found


def _tangents(law: NonIdeal, change: ModeChange) -> Float[Array, "k n"]:
    B = law.rows(change.q, change.t, change.p)
    n = change.v_before.shape[0]
    if B.ndim != 2 or B.shape[1] != n:
        raise ProblemError(f"NonIdeal(tangents=...): expected shape (k, {n}), found {B.shape}")
    return B


def _responses(
    change: ModeChange, B: Float[Array, "k n"]
) -> tuple[Float[Array, "n k"], Float[Array, "m k"]]:
    """Y and C of (2), a column for each direction."""
    still = jnp.zeros(change.G_after.shape[0])
    rows = change.independent()
    one = lambda b: kkt.masked_kkt(change.solve, change.G_after, rows, b, still, refinements=2)
    return jax.vmap(one, out_axes=1)(B)


def _directions(G: Jacobian, pressing: Rows, tangential: Velocity) -> Jacobian:
    """(7); `pressing` is Lam on the new rows, zero elsewhere."""
    square = jnp.sum(pressing**2)
    share = jnp.where(square > 0, pressing / jnp.where(square > 0, square, 1.0), 0.0)
    return G - share[:, None] * tangential[None, :]


# Coulomb's law


class Cone(NamedTuple):
    """One contact as Coulomb's law sees it: |beta| <= mu N with N = size + slope^T beta, and w =
    w_0 + A beta."""

    mu: Float[Array, ""]
    size: Float[Array, ""]
    slope: Float[Array, " k"]
    w0: Float[Array, " k"]
    A: Float[Array, "k k"]
    a: Float[Array, ""]

    def beta(self, x: Scalar) -> Float[Array, " k"]:
        matrix = x * self.A + self.a * (1.0 - x) * jnp.eye(len(self.w0))
        return -small.factor(matrix, semidefinite=True)(x * self.w0)  # (4)

    def excess(self, x: Scalar) -> Scalar:
        """How far beta(x) lies outside the cone."""
        beta = self.beta(x)
        return _norm(beta) - self.mu * jnp.maximum(self.size + jnp.dot(self.slope, beta), 0.0)


def _coulomb(
    mu: Scalar,
    change: ModeChange,
    B: Float[Array, "k n"],
    v0: Velocity,
    pressing: Rows,
    Y: Float[Array, "n k"],
    C: Float[Array, "m k"],
) -> Float[Array, " k"]:
    A = B @ Y
    size = _norm(pressing)
    n = pressing / jnp.where(size > 0, size, 1.0)
    # The squared sine between B and the rows: without it the directions have no freedom.
    free = jnp.trace(A) > SMALLEST_PIVOT * jnp.sum(B * change.solve(B.T).T)
    cone = Cone(
        mu=mu,
        size=size,
        slope=n @ C,
        w0=B @ v0,
        A=A,
        a=jnp.where(free, jnp.trace(A), 1.0),
    )
    x = _closed_form(cone) if len(A) == 1 else _bisected(cone)
    return jnp.where(free, cone.beta(x), 0.0)


def _closed_form(cone: Cone) -> Scalar:
    w = cone.w0[0]
    reach = cone.mu * cone.size * cone.a
    needed = jnp.abs(w) * (1.0 + cone.mu * jnp.sign(w) * cone.slope[0])
    slips = reach < needed
    return jnp.where(slips, reach / jnp.where(slips, needed, 1.0), 1.0)  # (6)


def _bisected(cone: Cone) -> Scalar:
    constant = jax.lax.stop_gradient(cone)

    def halve(_: Array, ends: tuple[Scalar, Scalar]) -> tuple[Scalar, Scalar]:
        low, high = ends
        middle = 0.5 * (low + high)
        outside = constant.excess(middle) > 0
        return jnp.where(outside, low, middle), jnp.where(outside, middle, high)

    _, x = jax.lax.fori_loop(0, HALVINGS, halve, (jnp.zeros(()), jnp.ones(())))
    slope = jax.jvp(constant.excess, (x,), (jnp.ones(()),))[1]
    refined = x - jnp.where(slope > 0, cone.excess(x) / jnp.where(slope > 0, slope, 1.0), 0.0)
    return jnp.where(constant.excess(jnp.ones(())) > 0, refined, 1.0)


def _norm(x: Array) -> Scalar:
    """|x|, whose derivative at zero is zero."""
    return small.root(jnp.sum(x**2))


# A function for beta


def _from_function(
    function: Callable, change: ModeChange, Lam0: Rows, C: Float[Array, "m k"]
) -> tuple[Float[Array, " k"], Flag]:
    """beta = function(Lam_0 + C beta, v-, q, t, p), and whether it was found."""
    wanted = lambda beta: jnp.asarray(
        function(Lam0 + C @ beta, change.v_before, change.q, change.t, change.p), float
    )
    residual = lambda beta: beta - wanted(beta)
    step = lambda _, beta: beta - jnp.linalg.solve(jax.jacfwd(residual)(beta), residual(beta))
    beta = jax.lax.fori_loop(0, STEPS, step, wanted(jnp.zeros(C.shape[1])))
    left = jnp.max(jnp.abs(residual(beta)), initial=0.0)
    return beta, left <= SOLVED * jnp.maximum(
        jnp.max(jnp.abs(beta), initial=0.0), jnp.finfo(float).tiny
    )
