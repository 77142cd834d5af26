"""The theta scheme of Moreau and Jean, for constraints with modes.

    M (v_1 - v_0) - h [theta f_1 + (1 - theta) f_0] + G_E^T P = 0,   G+ v_1 + g_t+ = 0           (1)
    q_1 = q_0 + h [theta v_1 + (1 - theta) v_0] + U                                              (2)
    M U + G+^T nu = 0,  g+(q_1, t_1) = 0    with projection; without it U = 0                    (3)

f_0 and f_1 are taken at the ends of the step and G at q_1; M goes with G at q_1, and with f at
q_theta = q_0 + theta (q_1 - q_0). Reactions and impulses are not distinguished: both are P, and P/h
is reported as lam. (1) is the impulse law on the free velocity

    vf = v_0 + h M^-1 [theta f_1 + (1 - theta) f_0]                                              (4)

and without an event the projection of vf onto the constraints. (1) and (3) are solved together
("combined projection"), with the unknowns v_1 and u = U/h. theta = 1/2 conserves the energy of
linear systems, larger values dissipate. The scheme has order 1. The constraints hold at velocity
level, with projection also at position level: without it a gap of O(h) remains after every event.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nsdyn._types import Number, Params, Scalar, Velocity
from nsdyn.errors import ProblemError
from nsdyn.integrators._time_stepping import AbstractTimeStepping, NewMode, Step, projected
from nsdyn.laws.base import AbstractLaw, Jump
from nsdyn.mechanics.formulations import lagrange
from nsdyn.mechanics.model import Model, Point
from nsdyn.mechanics.saddle_point import SaddlePoint
from nsdyn.numerics.newton import NOISE, Effort, Newton
from nsdyn.stepping.integrator import Memory
from nsdyn.stepping.mode_change import LawAnswer


def _theta(x: Any) -> Scalar:
    if not isinstance(x, jax.Array) and not (isinstance(x, int | float) and 0.5 <= x <= 1.0):
        raise ProblemError(f"MoreauJean(theta=...): expected a number from 1/2 to 1, found {x!r}")
    return jnp.asarray(x, float)


class MoreauJean(AbstractTimeStepping):
    """The time-stepping scheme of Moreau and Jean: order 1, robust if many events come at once.

    theta: where in the step the forces are evaluated, from 1/2 (conserves the energy of linear
        systems) to 1 (dissipates most).
    projection: whether positions are projected onto the constraints; without it a gap of the order
        of the step remains after every event.
    newton: tolerance and largest number of iterations of the implicit step, `nsdyn.Newton(...)`.
    """

    theta: Any = eqx.field(converter=_theta, default=0.5)
    projection: bool = eqx.field(static=True, default=True)
    newton: Newton = eqx.field(default_factory=Newton)

    @property
    def holds_position(self) -> bool:
        return self.projection

    def objection(self, law: AbstractLaw, parts: tuple) -> str | None:
        if not self.projection and any(part.mode_depends_on_impact for part in parts):
            return (
                "a contact that bounces with its gap still negative would be taken for open; use "
                "projection=True"
            )
        return None

    def init(self, model: Model, point: Point, p: Params) -> tuple[Point, Any]:
        slope = lagrange(model, point, p)
        return point, Memory(slope.a, slope.lam, Effort.none())

    def advance(
        self,
        model: Model,
        point: Point,
        memory: Any,
        h: Number,
        p: Params,
        new_mode: NewMode | None = None,
    ) -> Step:
        n = point.v.shape[0]
        f0 = model.force(point, p)
        args = (self.theta, model, point, f0, h, p, new_mode)
        x0 = jnp.concatenate([point.v + h * memory.a, jnp.zeros(n if self.projection else 0)])
        one = model.system.weights(point.q, p)
        weights = jnp.concatenate([jnp.broadcast_to(one, (n,))] * (2 if self.projection else 1))
        size = lambda x: jnp.max(jnp.abs(one * x))
        q = size(model.system.as_motion(point.q, p))
        v = size(point.v)
        push = h * size(model.system.solver(point.q, p)(f0))
        noise = NOISE * (v + q / h) + self.newton.tolerance * push
        residual = lambda x, args: x - _solved(x, *args)[0]
        x, effort = self.newton.solve(residual, x0, args, noise, weights)
        _, jump, end, free, found = _solved(x, *args)
        return Step(end, Memory((end.v - point.v) / h, jump.Lam / h, effort), found, free)


def _solved(
    x: Float[Array, " unknowns"],
    theta: Scalar,
    model: Model,
    point: Point,
    f0: Velocity,
    h: Number,
    p: Params,
    new_mode: NewMode | None,
) -> tuple[Array, Jump, Point, Velocity, LawAnswer | None]:
    """The right-hand sides for (v_1, u), the jump, the end of the step, the free velocity and the
    answer of the law."""
    n = point.v.shape[0]
    v = x[:n]
    u = x[n:]
    dx = h * (theta * v + (1 - theta) * point.v + (u if u.shape[0] else 0.0))  # (2)
    system = model.system
    middle = system.moved(point.q, theta * dx, p)
    end = point.replace(t=point.t + h, q=system.moved(point.q, dx, p), v=v)
    f1 = model.force(end, p)
    free = point.v + h * system.solver(middle, p)(theta * f1 + (1 - theta) * f0)  # (4)
    end = end if new_mode is None else new_mode.enter(end)
    here = SaddlePoint(model, end, p)
    found = None if new_mode is None else new_mode.ask_law(model, point, here, free, p)
    jump = projected(here, free) if found is None else found.jump  # (1)
    end = end.replace(v=jump.v_after)
    if not u.shape[0]:
        return jump.v_after, jump, end, free, found
    x = jnp.concatenate(
        [jump.v_after, here.smallest_motion_of_positions(here.G @ u - here.g() / h)]
    )  # (3)
    return x, jump, end, free, found
