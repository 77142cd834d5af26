"""The implicit Runge-Kutta method Radau IIA of order 5, with three stages and steps chosen by an
estimate of the error, for stiff mechanisms (Hairer, Wanner: Solving Ordinary Differential Equations
II, sections IV.5 and IV.8).

The unknowns are the accelerations x_i = v'_i of the stages i = 1, 2, 3 (with quasi-velocities also
the rates q'_i). With the motion equations v' = a(q, v, t) in the form of index 1,

    v_i = v_0 + h sum_j A_ij x_j,    q_i = q_0 + h sum_j A_ij q'_j                            (1)
    x_i = a(q_i, v_i, t_0 + c_i h)                                                            (2)

The last stage is the end of the step (the method is stiffly accurate); there `finish` moves the
point onto the constraints. (2) is solved by Newton's method from the guess that the stages of the
step before, of size h_0, lead to: with u the parabola through them, u(c_i) = x_i,

    x_i = u(1 + c_i min(h/h_0, REACH))                                                        (5)

(at the start and after events x_i = v'_0), with one matrix as long as it converges fast, made of
the derivatives J_v = da/dv and J_q = da/dq at the stages,

    W_ij = d_ij I - h A_ij J_v(i) - h^2 (A^2)_ij J_q(i)                                       (3)

With d_k the changes of q_i and v_i in iteration k and theta = d_k/d_(k-1), after the first
iteration that of the step before to the power 0.8,

    what is left = d_k theta/(1 - theta)                                                      (6)

and the iteration ends when that is round-off or far below the error that is allowed. If it does not
converge the step is repeated with a smaller h, and only if h has become tiny does the run stop.
With gamma the real eigenvalue of A, z_i = y_i - y_0, J = dy'/dy and y = (q, v), the error is

    err = |(I - h gamma J)^-1 gamma (h y'_0 + sum_i E_i z_i)|,    r = 4                       (4)

in units of atol + rtol max(|y_0|, |y_1|), its largest entry (a root mean square would let a
velocity err by more than is allowed for it). A smooth motion without stiffness is more accurate
than that: its error falls with h^6. But the velocities of stiff springs have errors of the size
of (4), which is why, other than in the program RADAU5, tolerances are not loosened. What y_0
itself has of such an error makes y'_0 large, and (4) with it, however small h is; the next
stages damp it. So when a step is repeated, (I - h gamma J)^-1 is applied twice: linearly that is
y'(y_0 + err) in place of y'_0, as in RADAU5. (Applied twice at once it hides errors: a driven mass
at the tolerance 1e-4 had an error of 1e-2.)

Guards are looked at on the quartic through values and slopes at both ends that has the slope of the
first stage at c_1.

J at the start of the step would not do for all stages: with a stiff spring that turns by an angle d
between them the iteration converges only if h^2 (k/m) d^2 is small, and with it one cannot split W
by the eigenvalues of A. J at the end of the step and at two ends before, with a parabola in
between, took half more iterations and a quarter more time (double pendulum on a spring of 1e6 N/m;
6/7 of the time for the flyball governor).

Why this one: its stage order is 3, so stiff forces spoil its order less than that of diagonally
implicit methods (stage order 2), and all stages go through one copy of the model, so that it
compiles no slower than those would. Of the time of a step in native code with four coordinates, a
half goes into the factors of W and what is solved with them, a fifth into the derivatives.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from nsdyn._types import Number, Params, Scalar
from nsdyn.integrators._error_control import (
    check_settings,
    first_step,
    moved,
    next_step,
    rates,
    vector,
)
from nsdyn.mechanics.formulations import lagrange
from nsdyn.mechanics.model import Model, Point
from nsdyn.numerics import small
from nsdyn.numerics.newton import NOISE, Effort, Newton, implicit_solution
from nsdyn.stepping.integrator import AbstractErrorControlled, ControlledMemory

ROOT = np.sqrt(6.0)
A = np.array(
    [
        [(88 - 7 * ROOT) / 360, (296 - 169 * ROOT) / 1800, (-2 + 3 * ROOT) / 225],
        [(296 + 169 * ROOT) / 1800, (88 + 7 * ROOT) / 360, (-2 - 3 * ROOT) / 225],
        [(16 - ROOT) / 36, (16 + ROOT) / 36, 1 / 9],
    ]
)
NODES = A.sum(axis=1)
STAGES = len(NODES)
GAMMA = 1 / (3 + 3 ** (2 / 3) - 3 ** (1 / 3))
E = np.array([-13 - 7 * ROOT, -13 + 7 * ROOT, -1.0]) / 3
# u of (5): its coefficients, from the values at the nodes
PARABOLA = np.linalg.inv(np.vander(NODES, increasing=True))
REACH = 2.0
POWER = 4  # of h, with which the estimate (4) falls
ITERATIONS = 12
NEGLIGIBLE = 0.01  # of the error that is allowed: a change of Newton's method that does no harm
LESS_CERTAIN = 0.8  # power of theta from one step to the next
SLOW = 0.2  # the factor from one change to the next beyond which W is made anew
SMALLEST = 1e-12  # of the distance of the samples: if this step does not converge none will


class Iterate(NamedTuple):
    """An iterate of Newton's method, its last change and the one before, in units of the allowed
    one, and the factor from one change to the next that is expected."""

    x: Float[Array, "stages size"]
    tries: Int[Array, ""]
    change: Float[Array, ""]
    before: Float[Array, ""]
    expected: Float[Array, ""]

    @staticmethod
    def first(
        x: Float[Array, "stages size"], tries: Int[Array, ""], expected: Float[Array, ""]
    ) -> "Iterate":
        never = jnp.full((), jnp.inf)
        return Iterate(x, tries, never, never, expected)

    @property
    def factor(self) -> Float[Array, ""]:
        """theta of (6)."""
        return jnp.where(jnp.isfinite(self.before), self.change / self.before, self.expected)

    @property
    def is_fast(self) -> Bool[Array, ""]:
        return self.change <= SLOW * self.before

    @property
    def left(self) -> Float[Array, ""]:
        """What is left to the solution (6); not more than the last change."""
        return self.change * jnp.minimum(self.factor / jnp.maximum(1 - self.factor, 0.5), 1.0)


class Found(NamedTuple):
    """How stages were found: J at the first of them, theta of (6), and the work."""

    jacobian: Float[Array, "size y"]
    factor: Float[Array, ""]
    effort: Effort


class RadauMemory(ControlledMemory):
    """The memory of a step, with its stages, from which the next step is guessed.

    stages: x_i of (2). h: the size of the step; infinite if there was none.
    proposed: h_next as the step left it; another h_next tells of an attempt that failed.
    factor: theta of (6) at the end.
    """

    stages: Float[Array, "stages size"] = eqx.field(default_factory=lambda: jnp.zeros((STAGES, 0)))
    h: Float[Array, ""] = eqx.field(default_factory=lambda: jnp.full((), jnp.inf))
    proposed: Float[Array, ""] = eqx.field(default_factory=lambda: jnp.zeros(()))
    factor: Float[Array, ""] = eqx.field(default_factory=lambda: jnp.ones(()))

    @property
    def expected(self) -> Float[Array, ""]:
        """theta of (6) for the next step."""
        return jnp.maximum(self.factor, NOISE) ** LESS_CERTAIN

    def guess(self, h: Number) -> Float[Array, "stages size"]:
        """(5) for the next step."""
        reach = jnp.clip(h / self.h, 0.0, REACH)
        places = 1.0 + reach * jnp.asarray(NODES)
        powers = jnp.stack([jnp.ones(STAGES), places, places**2], axis=1)
        return powers @ (jnp.asarray(PARABOLA) @ self.stages)


class RadauIIA(AbstractErrorControlled):
    """The implicit method Radau IIA of order 5 with error control, for stiff mechanisms: springs
    and dampers, however stiff, cost it no small steps as long as they follow the motion. Use it as
    `EventDriven(RadauIIA())`; `step` is then the distance of the samples, and the method takes as
    many steps in between as the tolerances require. Without stiffness `DormandPrince` is cheaper.

    rtol, atol: the error allowed in each step, for each coordinate and velocity y, is
        atol + rtol |y|.
    max_steps: the largest number of steps, rejected ones included, between two samples; beyond it
        TOO_MANY_STEPS.
    newton: largest number of iterations of a step, `nsdyn.Newton(...)`. A step that does not
        converge is repeated with a smaller size; NOT_CONVERGED if that does not help. Its tolerance
        counts only if rtol and atol are larger than the motion itself and so ask for nothing.
    """

    rtol: Scalar = eqx.field(converter=jnp.asarray, default=1e-6)
    atol: Scalar = eqx.field(converter=jnp.asarray, default=1e-9)
    max_steps: int = eqx.field(static=True, default=1000)
    newton: Newton = eqx.field(default_factory=lambda: Newton(max_iterations=ITERATIONS))

    def __check_init__(self) -> None:
        check_settings("RadauIIA", self)

    @property
    def resolves_contacts(self) -> bool:
        return True

    def allowed(self, size: Array) -> Array:
        return self.atol + self.rtol * size

    def init(self, model: Model, point: Point, p: Params) -> tuple[Point, RadauMemory]:
        slope = lagrange(model, point, p)
        return point, RadauMemory(
            a=slope.a,
            lam=slope.lam,
            h_next=first_step(self, model, point, slope.a, p, POWER),
            bend=jnp.zeros((min(model.k, 1), point.q.shape[0] + point.v.shape[0])),
            effort=Effort.none(),
            stages=jnp.tile(_unknowns(model, point, slope.a, p), (STAGES, 1)),
        )

    def step(
        self,
        model: Model,
        point: Point,
        memory: RadauMemory,
        h: Number,
        p: Params,
        finish: Callable | None = None,
    ) -> tuple[Point, RadauMemory]:
        x, found = self._solved(model, point, memory, h, p)
        z = _increments(model, point, x, h)
        end = moved(point, z[-1], h)
        end = end if finish is None else finish(end)
        slope = lagrange(model, end, p)
        first, last = rates(model, point, memory.a, p), rates(model, end, slope.a, p)
        size = jnp.maximum(jnp.abs(vector(point)), jnp.abs(vector(end)))
        again = memory.h_next != memory.proposed
        error = self._error(*_constant((found.jacobian, first, z, h, size, again)))
        effort = found.effort
        error = jnp.where(effort.failed, jnp.inf, error)
        h_next = next_step(memory, h, error, POWER)
        # Without convergence a smaller step is tried, as long as that may help.
        hopeless = effort.failed & (jnp.abs(h) <= SMALLEST * model.step)
        inner = rates(model, moved(point, z[0], NODES[0] * h), x[0, -len(point.v) :], p)
        return end, RadauMemory(
            a=slope.a,
            lam=slope.lam,
            error=error,
            h_next=h_next,
            bend=_bend(z[-1], h * first, h * inner, h * last)[: model.k],
            effort=eqx.tree_at(lambda x: x.failed, effort, hopeless),
            stages=_constant(x),
            h=jnp.asarray(h),
            proposed=h_next,
            factor=found.factor,
        )

    def _solved(
        self, model: Model, point: Point, memory: RadauMemory, h: Number, p: Params
    ) -> tuple[Float[Array, "stages size"], Found]:
        """x of (2), and how it was found."""
        args = (model, point, h, p)
        fixed = _constant(args)
        guess, expected = _constant((memory.guess(h), memory.expected))
        allowed = self._allowed(model, fixed[1], guess, fixed[2])
        going = lambda c: (c.left > 1.0) & (c.tries < self.newton.max_iterations)

        def with_one_matrix(carry: tuple[Iterate, Array]) -> tuple[Iterate, Array]:
            c, _ = carry
            J = _jacobians(c.x, fixed)
            solve = small.lu(_coupled(J, fixed[2]))
            iterate = lambda c: _iterated(c, solve, allowed, fixed)
            start = Iterate.first(c.x, c.tries, jnp.where(c.tries == 0, c.expected, 1.0))
            return jax.lax.while_loop(lambda c: going(c) & c.is_fast, iterate, start), J[0]

        nothing = jnp.zeros((guess.shape[1], len(point.q) + len(point.v)))
        start = Iterate.first(guess, jnp.zeros((), int), expected), nothing
        last, J = jax.lax.while_loop(lambda c: going(c[0]), with_one_matrix, start)
        flat = lambda x, args: _residual(x.reshape(guess.shape), args).ravel()
        solve = lambda J, b: small.inverse(J) @ b
        x = implicit_solution(flat, last.x.ravel(), None, args, solve)
        effort = Effort(last.tries, last.tries, last.left, ~(last.left <= 1.0))
        return x.reshape(guess.shape), Found(J, last.factor, effort)

    def _allowed(self, model: Model, point: Point, x: Array, h: Number) -> Float[Array, "stages y"]:
        """The distance of q_i and v_i from the solution at which the iteration ends."""
        y = vector(point)[None] + _increments(model, point, x, h)
        nq, n = len(point.q), len(point.v)
        largest = lambda y, size: jnp.full(size, jnp.max(jnp.abs(y)))
        sizes = jnp.concatenate([largest(y[:, :nq], nq), largest(y[:, nq:], n)])[None]
        usual = sizes + self.atol / self.rtol
        error = self.atol + self.rtol * jnp.abs(y)
        # A tolerance beyond the motion itself asks for nothing; Newton's own then decides.
        wanted = jnp.where(error < usual, NEGLIGIBLE * error, self.newton.tolerance * usual)
        return jnp.maximum(wanted, NOISE * sizes)

    def _error(
        self, J: Array, first: Array, z: Array, h: Number, size: Array, again: Array
    ) -> Scalar:
        r = GAMMA * (h * first + jnp.asarray(E) @ z)
        filtered = _filter(J, GAMMA * h)
        e = jax.lax.fori_loop(0, jnp.where(again, 2, 1), lambda _, e: filtered(e), r)
        return jnp.max(jnp.abs(e) / (self.atol + self.rtol * size))  # (4)


def _constant(tree: Any) -> Any:
    return jax.tree.map(lambda x: jax.lax.stop_gradient(x) if eqx.is_inexact_array(x) else x, tree)


def _unknowns(
    model: Model, point: Point, a: Float[Array, " n"], p: Params
) -> Float[Array, " size"]:
    """What (2) solves for: v' = a, or (q', v') with quasi-velocities."""
    return a if model.system.kinematics is None else rates(model, point, a, p)


def _evaluated(model: Model, point: Point, p: Params) -> Float[Array, " size"]:
    """The right-hand side of (2)."""
    return _unknowns(model, point, lagrange(model, point, p).a, p)


def _jacobians(x: Float[Array, "stages size"], args: tuple) -> Float[Array, "stages size y"]:
    """J of (3) at the stages that x leads to, column by column in a loop: all columns at once would
    run a little faster, but are twice as much code to compile."""
    model, point, h, p = args
    nq = len(point.q)
    basis = jnp.eye(nq + len(point.v))

    def one(stage: tuple) -> Array:
        at = moved(point, stage[0], stage[1] * h)
        unknowns = lambda q, v: _evaluated(model, at.replace(q=q, v=v), p)
        along = jax.linearize(unknowns, at.q, at.v)[1]
        return jax.lax.map(lambda d: along(d[:nq], d[nq:]), basis).T

    return jax.lax.map(one, (_increments(model, point, x, h), jnp.asarray(NODES)))


def _split(J: Float[Array, "*stages size y"]) -> tuple[Array, Array]:
    """J_v and J_q of (3). With quasi-velocities the first is J itself and the second is zero."""
    size, y = J.shape[-2:]
    return (J, jnp.zeros_like(J)) if size == y else (J[..., size:], J[..., :size])


def _coupled(J: Float[Array, "stages size y"], h: Number) -> Float[Array, "unknowns unknowns"]:
    """W of (3)."""
    by_v, by_q = _split(J)
    blocks = lambda a, J: a[:, None, :, None] * J[:, :, None, :]
    coupled = blocks(h * A, by_v) + blocks(h * h * (A @ A), by_q)
    unknowns = STAGES * J.shape[1]
    return jnp.eye(unknowns) - coupled.reshape(unknowns, unknowns)


def _filter(J: Float[Array, "size y"], step: Number) -> Callable:
    """The function r -> (I - step dy'/dy)^-1 r."""
    n = J.shape[0]
    by_v, by_q = _split(J)
    solve = small.lu(jnp.eye(n) - step * by_v - step**2 * by_q)

    def filtered(r: Float[Array, " y"]) -> Float[Array, " y"]:
        if n == len(r):
            return solve(r)
        r_q, r_v = r[:n], r[n:]
        e_v = solve(r_v + step * (by_q @ r_q))
        return jnp.concatenate([r_q + step * e_v, e_v])

    return filtered


def _increments(
    model: Model, point: Point, x: Float[Array, "stages size"], h: Number
) -> Float[Array, "stages y"]:
    """z_i = y_i - y_0 of (1)."""
    step = h * jnp.asarray(A)
    n = len(point.v)
    z_v = step @ x[:, -n:]
    rate = point.v[None] + z_v if model.system.kinematics is None else x[:, :-n]
    return jnp.concatenate([step @ rate, z_v], axis=1)


def _residual(x: Float[Array, "stages size"], args: tuple) -> Float[Array, "stages size"]:
    """x_i - a(q_i, v_i, t_i) of (2)."""
    model, point, h, p = args
    at = lambda stage: _evaluated(model, moved(point, stage[0], stage[1] * h), p)
    return x - jax.lax.map(at, (_increments(model, point, x, h), jnp.asarray(NODES)))


def _iterated(
    c: Iterate, solve: Callable, allowed: Float[Array, "stages y"], args: tuple
) -> Iterate:
    """One iteration of Newton's method with W^-1."""
    model, point, h, _ = args
    dx = -solve(_residual(c.x, args).ravel()).reshape(c.x.shape)
    still = point.replace(q=jnp.zeros_like(point.q), v=jnp.zeros_like(point.v))
    change = jnp.max(jnp.abs(_increments(model, still, dx, h)) / allowed)
    return c._replace(x=c.x + dx, tries=c.tries + 1, change=change, before=c.change)


def _bend(change: Array, first: Array, inner: Array, last: Array) -> Float[Array, "1 y"]:
    """b_0 of `nsdyn.stepping.detect` (3), from y_1 - y_0 and from h y' at the start, at c_1 and at
    the end."""
    c = NODES[0]
    cubic = 6 * c * (1 - c) * change + (1 - c) * (1 - 3 * c) * first - c * (2 - 3 * c) * last
    return ((inner - cubic) / (2 * c * (1 - c) * (1 - 2 * c)))[None]
