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

until the change of q_i and v_i is round-off or far below the error that is allowed. If it does not
converge the step is repeated with a smaller h, and only if h has become tiny does the run stop.
With gamma the real eigenvalue of A, z_i = y_i - y_0, J = dy'/dy and y = (q, v), the error is

    err = |(I - h gamma J)^-1 gamma (h y'_0 + sum_i E_i z_i)|,    r = 4                       (4)

in units of atol + rtol max(|y_0|, |y_1|), root mean square. A smooth motion without stiffness is
more accurate than that: its error falls with h^6. But the velocities of stiff springs have errors
of the size of (4), which is why, other than in the program RADAU5, tolerances are not loosened.

Guards are looked at on the quartic through values and slopes at both ends that has the slope of the
first stage at c_1.

J at the start of the step would not do for all stages: with a stiff spring that turns by an angle d
between them the iteration converges only if h^2 (k/m) d^2 is small.

Why this one: its stage order is 3, so stiff forces spoil its order less than that of diagonally
implicit methods (stage order 2), and all stages go through one copy of the model, so that it
compiles no slower than those would. To invert W costs little beside the forces of a mechanism.
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
SLOW = 0.2  # the factor from one change to the next beyond which W is made anew
SMALLEST = 1e-12  # of the distance of the samples: if this step does not converge none will


class RadauMemory(ControlledMemory):
    """The memory of a step, with its stages, from which the next step is guessed.

    stages: x_i of (2). h: the size of the step; infinite if there was none.
    """

    stages: Float[Array, "stages size"] = eqx.field(default_factory=lambda: jnp.zeros((STAGES, 0)))
    h: Float[Array, ""] = eqx.field(default_factory=lambda: jnp.full((), jnp.inf))

    def guess(self, h: Number) -> Float[Array, "stages size"]:
        """(5) for the next step."""
        reach = jnp.clip(h / self.h, 0.0, REACH)
        places = 1.0 + reach * jnp.asarray(NODES)
        powers = jnp.stack([jnp.ones(STAGES), places, places**2], axis=1)
        return powers @ (jnp.asarray(PARABOLA) @ self.stages)


class Jacobians(NamedTuple):
    """J_v and J_q of (3) at all stages. With quasi-velocities the first is J itself and the second
    is zero."""

    first: Float[Array, "stages size size"]
    second: Float[Array, "stages size size"]

    @staticmethod
    def at(x: Float[Array, "stages size"], args: tuple) -> "Jacobians":
        """At the stages that x leads to."""
        model, point, h, p = args

        def one(stage: tuple) -> tuple[Array, Array]:
            at = moved(point, stage[0], stage[1] * h)
            unknowns = lambda q, v: _evaluated(model, at.replace(q=q, v=v), p)
            by_q, by_v = _columns(unknowns, at.q, at.v)
            if model.system.kinematics is None:
                return by_v, by_q
            both = jnp.concatenate([by_q, by_v], axis=1)
            return both, jnp.zeros_like(both)

        stages = (_increments(model, point, x, h), jnp.asarray(NODES))
        return Jacobians(*jax.lax.map(one, stages))

    @property
    def size(self) -> int:
        return self.first.shape[1]

    def inverse(self, h: Number) -> Float[Array, "unknowns unknowns"]:
        """W^-1 of (3)."""
        blocks = lambda a, J: a[:, None, :, None] * J[:, :, None, :]
        coupled = h * blocks(A, self.first) + h * h * blocks(A @ A, self.second)
        unknowns = STAGES * self.size
        return small.inverse(jnp.eye(unknowns) - coupled.reshape(unknowns, unknowns))

    def filtered(self, r: Float[Array, " y"], h: Number) -> Float[Array, " y"]:
        """(I - h gamma J)^-1 r, with J at the first stage."""
        n = self.size
        step = GAMMA * h
        first, second = self.first[0], self.second[0]
        inverse = small.inverse(jnp.eye(n) - step * first - step**2 * second)
        if n == len(r):
            return inverse @ r
        r_q, r_v = r[:n], r[n:]
        e_v = inverse @ (r_v + step * (second @ r_q))
        return jnp.concatenate([r_q + step * e_v, e_v])


class Iterate(NamedTuple):
    """An iterate of Newton's method, its last change and the one before, in units of the allowed
    one, and the derivatives in W."""

    x: Float[Array, "stages size"]
    tries: Int[Array, ""]
    change: Float[Array, ""]
    before: Float[Array, ""]
    jacobians: Jacobians

    @staticmethod
    def first(x: Float[Array, "stages size"]) -> "Iterate":
        zero = jnp.zeros((STAGES, x.shape[1], x.shape[1]))
        never = jnp.full((), jnp.inf)
        return Iterate(x, jnp.zeros((), int), never, never, Jacobians(zero, zero))

    @property
    def is_fast(self) -> Bool[Array, ""]:
        return self.change <= SLOW * self.before


class RadauIIA(AbstractErrorControlled):
    """The implicit method Radau IIA of order 5 with error control, for stiff mechanisms: springs
    and dampers, however stiff, cost it no small steps as long as they follow the motion. Use it as
    `EventDriven(RadauIIA())`; `step` is then the distance of the samples, and the method takes as
    many steps in between as the tolerances require. Without stiffness `DormandPrince` is cheaper.

    rtol, atol: the error allowed in each step, for each coordinate and velocity y, is
        atol + rtol |y|.
    max_steps: the largest number of steps, rejected ones included, between two samples; beyond it
        TOO_MANY_STEPS.
    newton: tolerance and largest number of iterations of a step, `nsdyn.Newton(...)`. A step that
        does not converge is repeated with a smaller size; NOT_CONVERGED if that does not help.
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
        x, jacobians, effort = self._solved(model, point, memory.guess(h), h, p)
        z = _increments(model, point, x, h)
        end = moved(point, z[-1], h)
        end = end if finish is None else finish(end)
        slope = lagrange(model, end, p)
        first, last = rates(model, point, memory.a, p), rates(model, end, slope.a, p)
        size = jnp.maximum(jnp.abs(vector(point)), jnp.abs(vector(end)))
        error = _constant(self._error(jacobians, first, z, h, size))
        error = jnp.where(effort.failed, jnp.inf, error)
        # Without convergence a smaller step is tried, as long as that may help.
        hopeless = effort.failed & (jnp.abs(h) <= SMALLEST * model.step)
        inner = rates(model, moved(point, z[0], NODES[0] * h), x[0, -len(point.v) :], p)
        return end, RadauMemory(
            a=slope.a,
            lam=slope.lam,
            error=error,
            h_next=next_step(memory, h, error, POWER),
            bend=_bend(z[-1], h * first, h * inner, h * last)[: model.k],
            effort=eqx.tree_at(lambda x: x.failed, effort, hopeless),
            stages=_constant(x),
            h=jnp.asarray(h),
        )

    def _solved(
        self, model: Model, point: Point, guess: Array, h: Number, p: Params
    ) -> tuple[Float[Array, "stages size"], Jacobians, Effort]:
        """x of (2), the derivatives with which it was found, and the work that it took."""
        args = (model, point, h, p)
        fixed = _constant(args)
        going = lambda c: (c.change > 1.0) & (c.tries < self.newton.max_iterations)

        def with_one_matrix(c: Iterate) -> Iterate:
            jacobians = Jacobians.at(c.x, fixed)
            inverse = jacobians.inverse(fixed[2])
            iterate = lambda c: self._iterated(c, inverse, fixed)
            start = Iterate.first(c.x)._replace(tries=c.tries, jacobians=jacobians)
            return jax.lax.while_loop(lambda c: going(c) & c.is_fast, iterate, start)

        found = jax.lax.while_loop(going, with_one_matrix, Iterate.first(_constant(guess)))
        flat = lambda x, args: _residual(x.reshape(found.x.shape), args).ravel()
        solve = lambda J, b: small.inverse(J) @ b
        x = implicit_solution(flat, found.x.ravel(), None, args, solve)
        effort = Effort(found.tries, found.tries, found.change, ~(found.change <= 1.0))
        return x.reshape(found.x.shape), found.jacobians, effort

    def _iterated(self, c: Iterate, inverse: Array, args: tuple) -> Iterate:
        model, point, h, _ = args
        dx = -(inverse @ _residual(c.x, args).ravel()).reshape(c.x.shape)
        still = point.replace(q=jnp.zeros_like(point.q), v=jnp.zeros_like(point.v))
        change = jnp.abs(_increments(model, still, dx, h))
        change = jnp.max(change / self._allowed(model, point, c.x + dx, h))
        return c._replace(x=c.x + dx, tries=c.tries + 1, change=change, before=c.change)

    def _allowed(self, model: Model, point: Point, x: Array, h: Number) -> Float[Array, "stages y"]:
        """The change of q_i and v_i at which the iteration ends."""
        y = vector(point)[None] + _increments(model, point, x, h)
        nq, n = len(point.q), len(point.v)
        largest = lambda y, size: jnp.full(size, jnp.max(jnp.abs(y)))
        sizes = jnp.concatenate([largest(y[:, :nq], nq), largest(y[:, nq:], n)])[None]
        fine = self.newton.tolerance * (sizes + self.atol / self.rtol)
        harmless = NEGLIGIBLE * (self.atol + self.rtol * jnp.abs(y))
        return jnp.maximum(jnp.minimum(fine, harmless), NOISE * sizes)

    def _error(
        self, jacobians: Jacobians, first: Array, z: Array, h: Number, size: Array
    ) -> Scalar:
        r = GAMMA * (h * first + jnp.asarray(E) @ z)
        scaled = jacobians.filtered(r, h) / (self.atol + self.rtol * size)
        return jnp.sqrt(jnp.mean(scaled**2))  # (4)


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


def _columns(function: Callable, q: Array, v: Array) -> tuple[Array, Array]:
    """The derivatives with respect to q and v, column by column in a loop: all columns at once
    would run a little faster, but are twice as much code to compile."""
    nq = len(q)
    along = lambda d: jax.jvp(function, (q, v), (d[:nq], d[nq:]))[1]
    columns = jax.lax.map(along, jnp.eye(nq + len(v))).T
    return columns[:, :nq], columns[:, nq:]


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


def _bend(change: Array, first: Array, inner: Array, last: Array) -> Float[Array, "1 y"]:
    """b_0 of `nsdyn.stepping.detect` (3), from y_1 - y_0 and from h y' at the start, at c_1 and at
    the end."""
    c = NODES[0]
    cubic = 6 * c * (1 - c) * change + (1 - c) * (1 - 3 * c) * first - c * (2 - 3 * c) * last
    return ((inner - cubic) / (2 * c * (1 - c) * (1 - 2 * c)))[None]
