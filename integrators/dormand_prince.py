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

A step with err <= 1 is accepted; the sizes of steps are chosen by `_error_control`, with the order
of the method for r.

Between its ends a step is a polynomial of degree 4 or 6, on which guards are looked at: the cubic
through values and slopes at both ends, and

    b = h D k,    for order 5 one term, the coefficient of x^4; for order 8 three              (5)

(`nsdyn.stepping.detect` (3)), which needs no further stages. For order 8 these are the weights that
fulfil all conditions up to order 6, for every x, with the smallest error of order 7. (The usual
dense output of order 7 costs three stages in each step. Events are located on the steps themselves,
so that their order is that of the method.) Where there are no guards none of this is computed.

All other tables are those of scipy. The stages are a loop with one copy of the model in it, since
users wait mostly for compilation.
"""

import functools
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn._types import Number, Params, Scalar
from nsdyn.errors import ProblemError
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
from nsdyn.stepping.integrator import AbstractErrorControlled, ControlledMemory

ORDERS = (5, 8)
# D of (5) for order 8: the factors of 1, x and x^2, by stage. The stages 2 to 5 do not occur: they
# are of lower order.
BEND_8 = {
    1: (-3.7445256843367014, 5.452776666895171, -2.3360982307718854),
    6: (-84.06192525925161, 685.9533807873423, -828.3212023461375),
    7: (15.312965886146156, 83.66249784803979, -150.35240697823522),
    8: (62.47189257297766, -714.2355209308635, 914.1208422757808),
    9: (-31.769051711476543, 162.67463122414665, -178.43164994244754),
    10: (39.94558258051261, -216.8071081546481, 241.2005902100827),
    11: (1.0606295555669523, -7.251153688794215, 1.4261129807439819),
    12: (1.1177653931906377, -3.338392641004914, -0.4172990801237107),
    13: (-0.33333333332913173, 3.8888888888865005, 3.1111111111087753),
}


class _Table(NamedTuple):
    """Stage i is at c_i and A_i; the last one is the end of the step."""

    A: np.ndarray
    c: np.ndarray
    bend: np.ndarray  # D of (5); no rows if it is not wanted


@functools.cache
def _known(order: int) -> Any:
    from scipy import integrate  # slow to import, and most runs need none of it

    return integrate.RK45 if order == 5 else integrate.DOP853


def _bend_8(stages: int) -> np.ndarray:
    nothing = (0.0, 0.0, 0.0)
    return np.array([BEND_8.get(i + 1, nothing) for i in range(stages)]).T


@functools.cache
def _table(order: int, dense: bool) -> _Table:
    known = _known(order)
    last = len(known.B)
    A = np.zeros((last + 1, last + 1))
    A[:last, : known.A.shape[1]] = known.A
    A[last, :last] = known.B
    bend = known.P[:, -1:].T if order == 5 else _bend_8(last + 1)
    return _Table(A=A, c=np.append(known.C, 1.0), bend=bend if dense else bend[:0])


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
        check_settings("DormandPrince", self)

    @property
    def resolves_contacts(self) -> bool:
        return True

    def allowed(self, size: Array) -> Array:
        return self.atol + self.rtol * size

    def init(self, model: Model, point: Point, p: Params) -> tuple[Point, ControlledMemory]:
        slope = lagrange(model, point, p)
        table = _table(self.order, dense=model.k > 0)
        bend = jnp.zeros((len(table.bend), point.q.shape[0] + point.v.shape[0]))
        h = first_step(self, model, point, slope.a, p, self.order)
        return point, ControlledMemory(a=slope.a, lam=slope.lam, h_next=h, bend=bend)

    def step(
        self,
        model: Model,
        point: Point,
        memory: ControlledMemory,
        h: Number,
        p: Params,
        finish: Callable | None = None,
    ) -> tuple[Point, ControlledMemory]:
        table = _table(self.order, dense=model.k > 0)
        last = len(table.c) - 1
        before = rates(model, point, memory.a, p)
        k = jnp.zeros((last + 1, len(before))).at[0].set(before)
        A, c = jnp.asarray(table.A), jnp.asarray(table.c)
        place = lambda i, k: moved(point, h * (A[i] @ k), c[i] * h)

        def stage(i, k):
            at = place(i, k)
            return k.at[i].set(rates(model, at, lagrange(model, at, p).a, p))  # (1)

        k = jax.lax.fori_loop(1, last, stage, k)
        end = place(last, k)  # (2)
        end = end if finish is None else finish(end)
        slope = lagrange(model, end, p)
        k = k.at[last].set(rates(model, end, slope.a, p))
        size = jnp.maximum(jnp.abs(vector(point)), jnp.abs(vector(end)))
        # The root in it has no derivative where the error is zero, and none is needed.
        error = jax.lax.stop_gradient(self._error(k, h, size))
        return end, ControlledMemory(
            a=slope.a,
            lam=slope.lam,
            error=error,
            h_next=next_step(memory, h, error, self.order),
            bend=h * (table.bend @ k),  # (5)
        )

    def _error(self, k: Float[Array, "stages size"], h: Number, size: Array) -> Scalar:
        """err, the error in units of what is allowed."""
        table = _known(self.order)
        scale = self.allowed(size)
        mean_square = lambda weights: jnp.mean(((weights @ k[: len(weights)]) / scale) ** 2)
        if self.order == 5:
            return jnp.abs(h) * jnp.sqrt(mean_square(table.E))  # (3)
        fifth, third = mean_square(table.E5), mean_square(table.E3)
        both = fifth + 0.01 * third
        return jnp.abs(h) * fifth / jnp.sqrt(jnp.where(both > 0, both, 1.0))  # (4)
