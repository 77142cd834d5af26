"""Generalized-alpha for mechanisms with constraints, of index 3, 2 or 1 (Arnold and Bruls; Jay and
Negrut).

Recursion and starting values as in `nsdyn.integrators._alpha`. The acceleration of a step solves

    M v' + G^T lam = f(q_1, v_1, t_1)                                                            (1)
    index 3:  g(q_1, t_1) = 0      index 2:  G v_1 + g_t = 0      index 1:  G v' + gamma = 0     (2)

with M, G at q_1. Newton's method has v' as its only unknown. For a given v', which fixes q_1 and
v_1, let x be the solution of

    M x + G^T lam = f,    G x = G v' - e/s                                                       (3)

where e is the residual of (2) and s = beta h^2 k, gamma h k or 1 its derivative with respect to G
v'. x = v' is equivalent to (1) and (2), and d(v' - x)/dv' = I + O(h): the system is scaled by
construction, and masked and dependent rows are handled where (3) is solved.

Without `EventDriven` the method captures events: the new constraints are imposed on the step in
which a guard falls, and their reaction acts along the directions D of the impulse law, M v' + D^T
lam = f. The classical schemes can do no more, and at a velocity jump this fails in three
instructive ways (see the study `switching_track`); the record of an event then contains v_0, v_1
and h lam. Inside `EventDriven` it is an ordinary smooth method, of order 2 across events.
"""

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx

from nsdyn._types import Number, Params, Rows, Velocity
from nsdyn.errors import ProblemError
from nsdyn.integrators._alpha import AlphaStep, alpha, begin, radius
from nsdyn.integrators._time_stepping import AbstractCapturable, NewMode, Step
from nsdyn.laws.base import Jump
from nsdyn.mechanics.model import Model, Point
from nsdyn.mechanics.saddle_point import SaddlePoint
from nsdyn.numerics.newton import Newton
from nsdyn.stepping.mode_change import LawAnswer


class GeneralizedAlpha(AbstractCapturable):
    """The implicit generalized-alpha scheme of order 2.

    Inside `EventDriven` it is an ordinary smooth method. Alone it captures events at the end of a
    step as the classical schemes do, without a velocity jump: instructive, but wrong.

    index: the level at which the constraints are imposed: 3 (positions), 2 (velocities) or
        1 (accelerations).
    rho_inf: spectral radius at infinite frequency, from 0 (most numerical damping) to 1 (none).
    newton: tolerance and largest number of iterations of the implicit step, `nsdyn.Newton(...)`.
    """

    index: Literal[1, 2, 3] = eqx.field(static=True, default=3)
    rho_inf: Any = eqx.field(converter=radius, default=0.8)
    newton: Newton = eqx.field(default_factory=Newton)

    def __check_init__(self) -> None:
        if self.index not in (1, 2, 3):
            raise ProblemError(
                f"GeneralizedAlpha(index=...): expected 1, 2 or 3, found {self.index!r}"
            )

    @property
    def holds_position(self) -> bool:
        return self.index == 3

    @property
    def is_multistep(self) -> bool:
        return True

    def init(self, model: Model, point: Point, p: Params) -> tuple[Point, Any]:
        return point, begin(model, point, p, alpha(self.rho_inf), tilt=self.index == 3)

    def advance(
        self,
        model: Model,
        point: Point,
        memory: Any,
        h: Number,
        p: Params,
        new_mode: NewMode | None = None,
    ) -> Step:
        move = AlphaStep.of(alpha(self.rho_inf), model, point, memory, h)
        args = (model, point, move, p, new_mode)
        residual = lambda dv, args: dv - self._solved(dv, *args)[0]
        weights = model.system.weights(point.q, p)
        noise = move.noise(model, point, weights, self.newton.tolerance, p)
        dv, effort = self.newton.solve(residual, memory.a, args, noise, weights)
        _, lam, found, end = self._solved(dv, *args)
        if found is not None:
            found = found._replace(jump=Jump(end.v, h * lam, found.jump.direction))
        return Step(end, move.memory(dv, lam, effort), found, point.v)

    def _solved(
        self,
        dv: Velocity,
        model: Model,
        point: Point,
        move: AlphaStep,
        p: Params,
        new_mode: NewMode | None,
    ) -> tuple[Velocity, Rows, LawAnswer | None, Point]:
        """x of (3), lam, the answer of the law (None in a step without a new mode) and the end of
        the step."""
        q = model.system.moved(point.q, move.increment(dv), p)
        v = move.velocity(dv)
        end = point.replace(t=point.t + move.h, q=q, v=v)
        end = end if new_mode is None else new_mode.enter(end)
        here = SaddlePoint(model, end, p)
        c = self._target(here, dv, v, move)
        if new_mode is None:
            return *here.solve(here.f(v), c), None, end  # (3)
        found = new_mode.ask_law(model, point, here, v, p)
        return *here.solve_along(here.f(v), c, found.jump.direction), found, end

    def _target(self, here: SaddlePoint, dv: Velocity, v: Velocity, move: AlphaStep) -> Rows:
        """The right-hand side of (3) for the rows."""
        if self.index == 1:
            return -here.gamma(v)
        return here.G @ dv - (
            move.position_error(here, v) if self.index == 3 else move.velocity_error(here, v)
        )

    def step(
        self,
        model: Model,
        point: Point,
        memory: Any,
        h: Number,
        p: Params,
        finish: Callable | None = None,
    ) -> tuple[Point, Any]:
        end, memory, *_ = self.advance(model, point, memory, h, p)
        # The order of index 3 in lam depends on its residual at velocity level, which a projection
        # would remove.
        return (end if finish is None or self.index == 3 else finish(end)), memory
