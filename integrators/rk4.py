"""The classical Runge-Kutta method of order 4 for (q, v), in one of three formulations of the
motion equations.

    k_1 = F(t, y),                  k_2 = F(t + h/2, y + h/2 k_1),
    k_3 = F(t + h/2, y + h/2 k_2),  k_4 = F(t + h, y + h k_3)                                  (1)
    y_1 = y + h/6 (k_1 + 2 k_2 + 2 k_3 + k_4)                                                    (2)

y = (q, v), F = (q', v') with v' from `nsdyn.mechanics.formulations`. k_1 is the slope from the end
of the previous step, so a step costs four evaluations and yields the multipliers at its end. The
stages are a loop: unrolling makes them no faster, and users wait mostly for compilation.
"""

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from nsdyn._types import Number, Params
from nsdyn.errors import ProblemError
from nsdyn.mechanics.formulations import FORMULATIONS, Slope, choose
from nsdyn.mechanics.model import Model, Point
from nsdyn.stepping.integrator import AbstractSmoothMethod

NODES = (0.5, 0.5, 1.0, 1.0)
WEIGHTS = (1 / 3, 1 / 3, 1 / 6, 0.0)
LAST = (False, False, False, True)


class RK4(AbstractSmoothMethod):
    """The classical explicit Runge-Kutta method of order 4, used as `EventDriven(RK4())`.

    formulation: how the equations of motion are solved for the accelerations: "lagrange" (with
        multipliers; the default), "projected" (onto the admissible motions), or "minimal"
        (independent coordinates, chosen again when they become ill-conditioned). All give the same
        motion; cost and drift differ.
    """

    formulation: Literal["lagrange", "projected", "minimal"] = eqx.field(
        static=True, default="lagrange"
    )

    def __check_init__(self) -> None:
        if self.formulation not in FORMULATIONS:
            raise ProblemError(
                f"RK4(formulation=...): expected one of {tuple(FORMULATIONS)}, found "
                f"{self.formulation!r}"
            )

    @property
    def resolves_contacts(self) -> bool:
        return self.formulation == "lagrange"

    def _slope(self, model: Model, point: Point, p: Params, dependent: Bool[Array, " n"]) -> Slope:
        return FORMULATIONS[self.formulation](model, point, p, dependent)

    def _dependent(
        self, model: Model, point: Point, p: Params, previous: Bool[Array, " n"] | None = None
    ) -> Bool[Array, " n"]:
        if self.formulation == "minimal":
            return choose(model, point, p, previous)
        return jnp.zeros(point.v.shape[0], bool)

    def init(self, model: Model, point: Point, p: Params) -> tuple[Point, Any]:
        return self._at(model, point, p, self._dependent(model, point, p))

    def _at(
        self, model: Model, point: Point, p: Params, dependent: Bool[Array, " n"]
    ) -> tuple[Point, Slope]:
        slope = self._slope(model, point, p, dependent)
        return point.replace(v=slope.v), slope

    def step(
        self,
        model: Model,
        point: Point,
        memory: Any,
        h: Number,
        p: Params,
        finish: Callable | None = None,
    ) -> tuple[Point, Any]:
        rate = model.system.rate
        first = (rate(point.q, memory.v, p), memory.a)
        start = (first, (first[0] / 6, first[1] / 6), (point.q, point.v, memory))

        def stage(carry: tuple, coefficient: tuple[Array, ...]) -> tuple[tuple, None]:
            (kq, ka), (sum_q, sum_a), _ = carry
            node, weight, last = coefficient
            # The last stage evaluates the slope at the end of the step (2), so that the program
            # contains only one copy of the model.
            q = jnp.where(last, point.q + h * sum_q, point.q + node * h * kq)
            v = jnp.where(last, point.v + h * sum_a, point.v + node * h * ka)
            at = point.replace(t=point.t + node * h, q=q, v=v)
            slope = self._slope(model, at, p, memory.dependent)  # (1)
            k = (rate(at.q, slope.v, p), slope.a)
            return (k, (sum_q + weight * k[0], sum_a + weight * k[1]), (q, v, slope)), None

        table = (jnp.array(NODES), jnp.array(WEIGHTS), jnp.array(LAST))
        if finish is None and self.formulation != "minimal":
            (_, _, (q, v, slope)), _ = jax.lax.scan(stage, start, table)
            return point.replace(t=point.t + h, q=q, v=v), slope
        (_, (sum_q, sum_a), _), _ = jax.lax.scan(
            stage, start, jax.tree.map(lambda x: x[:-1], table)
        )
        end = point.replace(t=point.t + h, q=point.q + h * sum_q, v=point.v + h * sum_a)  # (2)
        end = end if finish is None else finish(end)
        return self._at(model, end, p, self._dependent(model, end, p, memory.dependent))
