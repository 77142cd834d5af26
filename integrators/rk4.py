"""The classical Runge-Kutta method of order 4 for (q, v), in one of three formulations of the motion equations.

    k_1 = F(t, y),  k_2 = F(t + h/2, y + h/2 k_1),  k_3 = F(t + h/2, y + h/2 k_2),  k_4 = F(t + h, y + h k_3)   (1)
    y_1 = y + h/6 (k_1 + 2 k_2 + 2 k_3 + k_4)                                                                  (2)

y = (q, v), F = (q', v') with v' from `nsdyn.formulations`. k_1 is the slope kept from the end of the step before, so a step
costs four evaluations and the multipliers at its end are known.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from nsdyn.errors import ProblemError
from nsdyn.formulations import FORMULATIONS, Slope, choose
from nsdyn.integrator import AbstractSmoothMethod
from nsdyn.model import Model, Point

NODES = (0.5, 0.5, 1.0)
WEIGHTS = (1 / 3, 1 / 3, 1 / 6)


class RK4(AbstractSmoothMethod):
    formulation: Literal["lagrange", "projected", "minimal"] = eqx.field(static=True, default="lagrange")

    def __check_init__(self):
        if self.formulation not in FORMULATIONS:
            raise ProblemError(f"RK4(formulation=...): expected one of {tuple(FORMULATIONS)}, found {self.formulation!r}")

    def _slope(self, model: Model, point: Point, p, dependent) -> Slope:
        return FORMULATIONS[self.formulation](model, point, p, dependent)

    def _dependent(self, model, point, p, previous=None):
        if self.formulation == "minimal":
            return choose(model, point, p, previous)
        return jnp.zeros(point.v.shape[0], bool)

    def init(self, model, point, p):
        return self._at(model, point, p, self._dependent(model, point, p))

    def refresh(self, model, point, memory, p):
        return self._at(model, point, p, self._dependent(model, point, p, memory.dependent))

    def _at(self, model, point, p, dependent):
        slope = self._slope(model, point, p, dependent)
        return eqx.tree_at(lambda x: x.v, point, slope.v), slope

    def step(self, model, point, memory, h, p, *, compact):
        rate = model.system.rate

        def stage(carry, coefficient):
            (kq, ka), (sum_q, sum_a) = carry
            node, weight = coefficient
            at = Point(point.t + node * h, point.q + node * h * kq, point.v + node * h * ka, point.mode, point.held)
            slope = self._slope(model, at, p, memory.dependent)  # (1)
            k = (rate(at.q, slope.v, p), slope.a)
            return (k, (sum_q + weight * k[0], sum_a + weight * k[1])), None

        first = (rate(point.q, memory.v, p), memory.a)
        carry = (first, (first[0] / 6, first[1] / 6))
        if compact:
            carry, _ = jax.lax.scan(stage, carry, (jnp.array(NODES), jnp.array(WEIGHTS)))
        else:
            for coefficient in zip(NODES, WEIGHTS, strict=True):
                carry, _ = stage(carry, coefficient)
        sum_q, sum_a = carry[1]
        end = Point(point.t + h, point.q + h * sum_q, point.v + h * sum_a, point.mode, point.held)  # (2)
        return end, memory
