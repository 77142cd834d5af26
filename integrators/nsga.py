"""Nonsmooth generalized-alpha (Bruls, Acary and Cardona), for constraints with modes: position and
velocity level together.

Recursion as in `nsdyn.integrators._alpha`: v' gives the free motion dx and the free velocity vt of
the step. A position correction U and a velocity jump W make both levels hold:

    q_1 = q_0 + dx + U,    M U + G+^T nu = 0,     g+(q_1, t_1) = 0                               (1)
    v_1 = vt + W,          M W + G_E^T Lam = 0,   G+ v_1 + g_t+ = 0                              (2)

(2) is the impulse law applied to the free velocity vt; without an event it is the projection onto
the constraints. M, G and f are evaluated at the end of the step. The variants differ in the
equation that determines the smooth acceleration, M v' + GS^T lam = f:

    three-level  GS = G+,  G+ v' + gamma+ = 0 at (q_1, v_1)       (2018; all three levels hold)  (3)
    velocity     GS = G-,  G- vt + g_t- = 0 at q_1  (the constraints of the old mode)            (4)
    decoupled    GS = G-,  g-(q_0 + dx) = 0, f, M, G at q_0 + dx  (2020; then (1), then (2))     (5)

Newton's unknowns are v' and u = U/(beta h^2). As in `nsdyn.integrators.generalized_alpha` the
saddle-point part is solved inside the residual; for U this means: x is the smallest motion in the
mass metric with

    G+ x = G+ u - g+/(beta h^2),     and x = u is (1)                                            (6)

The reported lam is the total reaction, lam + Lam/h. The decoupled variant omits the residual forces
of its second and third stage (they are O(U)). Order 2 in q, v and lam for smooth motion, order 1
across events, like all capturing schemes.

Contacts with friction (`nsdyn.Contacts`) are resolved by the three-level variant, see
`nsdyn.integrators._contact_levels`.
"""

from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from nsdyn._types import Number, Params, Rows
from nsdyn.errors import ProblemError
from nsdyn.integrators import _contact_levels
from nsdyn.integrators._alpha import AlphaStep, alpha, begin, radius
from nsdyn.integrators._time_stepping import AbstractTimeStepping, NewMode, Step, projected
from nsdyn.laws.base import AbstractLaw, Jump
from nsdyn.mechanics.model import Model, Point
from nsdyn.mechanics.saddle_point import SaddlePoint
from nsdyn.numerics.newton import Newton
from nsdyn.stepping.mode_change import LawAnswer

VARIANTS = ("three-level", "velocity", "decoupled")


class NSGA(AbstractTimeStepping):
    """The nonsmooth generalized-alpha scheme: order 2 between events; captures events with the jump
    of the law.

    rho_inf: spectral radius at infinite frequency, from 0 (most numerical damping) to 1 (none).
    variant: which levels of the constraints the smooth part satisfies: "three-level" (positions,
        velocities and accelerations), "velocity", or "decoupled" (positions and velocities one
        after the other).
    newton: tolerance and largest number of iterations of the implicit step, `nsdyn.Newton(...)`.
    friction: the direction of friction in a step, of `Contacts`: opposite to the "mean" slip (order
        2 also where the slip turns) or to that at the "end" (as published; order 1 there).
    """

    rho_inf: Any = eqx.field(converter=radius, default=0.8)
    variant: Literal["three-level", "velocity", "decoupled"] = eqx.field(
        static=True, default="three-level"
    )
    newton: Newton = eqx.field(default_factory=Newton)
    friction: Literal["mean", "end"] = eqx.field(static=True, default="mean")

    def __check_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise ProblemError(
                f"NSGA(variant=...): expected one of {VARIANTS}, found {self.variant!r}"
            )
        if self.friction not in ("mean", "end"):
            raise ProblemError(
                f"NSGA(friction=...): expected 'mean' or 'end', found {self.friction!r}"
            )

    @property
    def resolves_contacts(self) -> bool:
        return self.variant == "three-level"

    def init(self, model: Model, point: Point, p: Params) -> tuple[Point, Any]:
        if model.has_contacts:
            return _contact_levels.begin(model, point, p, alpha(self.rho_inf))
        return point, begin(model, point, p, alpha(self.rho_inf), shift=self.variant == "decoupled")

    def advance(
        self,
        model: Model,
        point: Point,
        memory: Any,
        h: Number,
        p: Params,
        law: AbstractLaw,
        new_mode: NewMode | None = None,
    ) -> Step:
        if model.has_contacts:
            settings = self._with_contacts(thorough=True)
            return _contact_levels.advance(settings, model, point, memory, h, p, law, new_mode)
        move = AlphaStep.of(alpha(self.rho_inf), model, point, memory, h)
        args = (model, point, move, p, new_mode)
        n = point.v.shape[0]
        # Otherwise g(q_0 + dx) = 0, so U = 0.
        corrected = self.variant != "decoupled" or new_mode is not None
        x0 = jnp.concatenate([memory.a, jnp.zeros(n if corrected else 0)])
        residual = lambda x, args: x - self._solved(x, *args)[0]
        one = model.system.weights(point.q, p)
        noise = move.noise(model, point, one, self.newton.tolerance, p)
        weights = jnp.concatenate([jnp.broadcast_to(one, (n,))] * (2 if corrected else 1))
        x, effort = self.newton.solve(residual, x0, args, noise, weights)
        _, lam, jump, end, found = self._solved(x, *args)
        free = move.velocity(x[:n])
        return Step(end, move.memory(x[:n], lam + jump.Lam / move.h, effort), found, free)

    def attempt(
        self, model: Model, point: Point, memory: Any, h: Number, p: Params, law: AbstractLaw
    ) -> Step:
        if model.has_contacts:
            settings = self._with_contacts(thorough=False)
            return _contact_levels.advance(settings, model, point, memory, h, p, law, None)
        return self.advance(model, point, memory, h, p, law)

    def _with_contacts(self, thorough: bool) -> _contact_levels.Settings:
        c = alpha(self.rho_inf)
        return _contact_levels.Settings(c, self.newton, self.friction, thorough)

    def _solved(
        self,
        x: Float[Array, " unknowns"],
        model: Model,
        point: Point,
        move: AlphaStep,
        p: Params,
        new_mode: NewMode | None,
    ) -> tuple[Array, Rows, Jump, Point, LawAnswer | None]:
        """The right-hand sides for (v', u), lam, the jump, the end of the step and the answer of
        the law."""
        n = point.v.shape[0]
        dv = x[:n]
        u = x[n:]
        free = move.velocity(dv)
        U = move.c.beta * move.h**2 * u if u.shape[0] else 0.0
        moved = lambda dx: model.system.moved(point.q, dx, p)
        at = lambda dx: point.replace(t=point.t + move.h, q=moved(dx), v=free)
        old = at(move.increment(dv) + U)
        end = old if new_mode is None else new_mode.enter(old)
        here = SaddlePoint(model, end, p)
        found = None if new_mode is None else new_mode.ask_law(model, point, here, free, p)
        jump = projected(here, free) if found is None else found.jump  # (2)
        end = end.replace(v=jump.v_after)
        if self.variant == "three-level":
            a, lam = here.solve(here.f(end.v), -here.gamma(end.v))  # (3)
        elif self.variant == "velocity":
            before = here if new_mode is None else SaddlePoint(model, old, p)
            a, lam = before.solve(
                before.f(end.v), before.G @ dv - move.velocity_error(before, free)
            )  # (4)
        else:
            before = here if new_mode is None else SaddlePoint(model, at(move.increment(dv)), p)
            a, lam = before.solve(
                before.f(free), before.G @ dv - move.position_error(before, free)
            )  # (5)
        if not u.shape[0]:
            return a, lam, jump, end, found
        gap = here.g() / (move.c.beta * move.h**2)
        return (
            jnp.concatenate([a, here.smallest_motion_of_positions(here.G @ u - gap)]),
            lam,
            jump,
            end,
            found,
        )  # (6)
