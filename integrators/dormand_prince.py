"""The explicit Runge-Kutta methods of Dormand and Prince of orders 5 and 8, with steps chosen by an
estimate of the error (Hairer, Norsett, Wanner: Solving Ordinary Differential Equations I, sections
II.4, II.5 and II.10).

With y = (q, v), F = (q', v') from the equations of motion, and stages i = 1 ... s:

    k_i = F(t + c_i h, y + h sum_(j<i) A_ij k_j)                                               (1)
    y_1 = y + h sum_i b_i k_i                                                                  (2)

y_1 is then moved onto the constraints (`finish`), and k_(s+1) = F(y_1) is the first stage of the
next step. With scale_i = atol + rtol max(|y_i|, |y_1i|), and |x| the root mean square of
x_i/scale_i,

    order 5:  err = h |sum_i E_i k_i|                                                          (3)
    order 8:  err = h e5^2 / sqrt(e5^2 + e3^2/100),   e5 = |sum E5_i k_i|, e3 = |sum E3_i k_i| (4)

A step with err <= 1 is accepted. The next one is, with the order r of the method (5 or 8),

    h_next = h min(FASTER, max(SLOWER, 0.9 err^(-1/r)))                                       (5)

A step that was cut short, because it met the next sample, does not make h_next smaller.

The tables are those of scipy. The stages are a loop with one copy of the model in it, since users
wait mostly for compilation.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn._types import Number, Params, Scalar
from nsdyn.errors import ProblemError
from nsdyn.mechanics.formulations import lagrange
from nsdyn.mechanics.model import Model, Point
from nsdyn.stepping.integrator import AbstractErrorControlled, ControlledMemory

SAFETY = 0.9
SLOWER = 0.2
FASTER = 10.0
ORDERS = (5, 8)


@functools.cache
def _table(order: int) -> Any:
    from scipy import integrate  # slow to import, and most runs need none of it

    return integrate.RK45 if order == 5 else integrate.DOP853


class DormandPrince(AbstractErrorControlled):
    """The Runge-Kutta methods of Dormand and Prince with error control. Use it as
    `EventDriven(DormandPrince())`; `step` is then the distance of the samples, and the method takes
    as many steps in between as the tolerances require.

    order: 5 (seven stages, the default) or 8 (twelve stages, for small tolerances).
    rtol, atol: the error allowed in each step, for each coordinate and velocity y, is
        atol + rtol |y|.
    max_steps: the largest number of steps, rejected ones included, between two samples; beyond it
        TOO_MANY_STEPS.
    """

    order: Literal[5, 8] = eqx.field(static=True, default=5)
    rtol: Scalar = eqx.field(converter=jnp.asarray, default=1e-6)
    atol: Scalar = eqx.field(converter=jnp.asarray, default=1e-9)
    max_steps: int = eqx.field(static=True, default=1000)

    def __check_init__(self) -> None:
        if self.order not in ORDERS:
            raise ProblemError(f"DormandPrince(order=...): expected 5 or 8, found {self.order!r}")
        for name in ("rtol", "atol"):
            value = getattr(self, name)
            if not isinstance(value, jax.core.Tracer) and not (value.ndim == 0 and value > 0):
                raise ProblemError(
                    f"DormandPrince({name}=...): expected a positive number, found {value}"
                )
        if self.max_steps < 1:
            raise ProblemError(
                f"DormandPrince(max_steps=...): expected at least 1, found {self.max_steps}"
            )

    def init(self, model: Model, point: Point, p: Params) -> tuple[Point, ControlledMemory]:
        slope = lagrange(model, point, p)
        return point, ControlledMemory(a=slope.a, lam=slope.lam)

    def step(
        self,
        model: Model,
        point: Point,
        memory: ControlledMemory,
        h: Number,
        p: Params,
        finish: Callable | None = None,
    ) -> tuple[Point, ControlledMemory]:
        k = self._stages(model, point, memory, h, p)
        end = _moved(point, h * (_table(self.order).B @ k[:-1]), h)  # (2)
        end = end if finish is None else finish(end)
        slope = lagrange(model, end, p)
        k = k.at[-1].set(_rates(model, end, slope.a, p))
        error = self._error(k, h, jnp.maximum(jnp.abs(_vector(point)), jnp.abs(_vector(end))))
        h_next = self._h_next(memory.h_next, h, error)
        return end, ControlledMemory(a=slope.a, lam=slope.lam, error=error, h_next=h_next)

    def _stages(
        self, model: Model, point: Point, memory: ControlledMemory, h: Number, p: Params
    ) -> Float[Array, "stages size"]:
        """k_1 ... k_s of (1), and room for one more."""
        table = _table(self.order)
        first = _rates(model, point, memory.a, p)
        k = jnp.zeros((len(table.B) + 1, len(first))).at[0].set(first)
        weights = np.zeros((len(table.B), len(table.B) + 1))
        weights[:, : table.A.shape[1]] = table.A

        def stage(i, k):
            at = _moved(point, h * (jnp.asarray(weights)[i] @ k), jnp.asarray(table.C)[i] * h)
            return k.at[i].set(_rates(model, at, lagrange(model, at, p).a, p))  # (1)

        return jax.lax.fori_loop(1, len(table.B), stage, k)

    def _error(self, k: Float[Array, "stages size"], h: Number, size: Array) -> Scalar:
        """err, the error in units of what is allowed."""
        table = _table(self.order)
        scale = self.atol + self.rtol * size
        mean_square = lambda weights: jnp.mean(((weights @ k) / scale) ** 2)
        if self.order == 5:
            return jnp.abs(h) * jnp.sqrt(mean_square(table.E))  # (3)
        fifth, third = mean_square(table.E5), mean_square(table.E3)
        both = fifth + 0.01 * third
        return jnp.abs(h) * fifth / jnp.sqrt(jnp.where(both > 0, both, 1.0))  # (4)

    def _h_next(self, wanted: Scalar, h: Number, error: Scalar) -> Scalar:
        """The size of the next step, or of the next attempt. `wanted` was the size of this one,
        unless it was cut short."""
        exponent = -1.0 / self.order
        factor = SAFETY * jnp.maximum(error, 1e-10) ** exponent
        factor = jnp.where(jnp.isfinite(error), jnp.clip(factor, SLOWER, FASTER), SLOWER)
        new = factor * h  # (5)
        return jnp.where((error <= 1) & (h < wanted), jnp.maximum(new, wanted), new)


def _vector(point: Point) -> Float[Array, " size"]:
    return jnp.concatenate([point.q, point.v])


def _moved(point: Point, change: Float[Array, " size"], dt: Number) -> Point:
    size = point.q.shape[0]
    return point.replace(t=point.t + dt, q=point.q + change[:size], v=point.v + change[size:])


def _rates(model: Model, point: Point, a: Float[Array, " n"], p: Params) -> Float[Array, " size"]:
    """F = (q', v')."""
    return jnp.concatenate([model.qdot(point, p), a])
