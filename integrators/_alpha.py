"""Shared by the generalized-alpha schemes: parameters, recursion, starting values.

With the spectral radius r = rho_inf at infinite frequency (Chung and Hulbert),

    am = (2r - 1)/(r + 1),  af = r/(r + 1),  gamma = 1/2 + af - am,  beta = (gamma + 1/2)^2/4    (1)

The pseudo-acceleration a follows the acceleration v' of the equations of motion:

    (1 - am) a_1 + am a_0 = (1 - af) v'_1 + af v'_0                                              (2)
    dx = h v_0 + h^2 (1/2 - beta) a_0 + h^2 beta a_1,
    v_1 = v_0 + h (1 - gamma) a_0 + h gamma a_1                                               (3)

so dx/dv' = beta h^2 k and dv_1/dv' = gamma h k with k = (1 - af)/(1 - am). q_1 = q_0 + dx; with
quasi-velocities, q_0 moved by the finite motion dx (`System.moved`).

Starting values that keep order 2 in the multipliers from the first step (Arnold, Bruls and Cardona;
the constants are derived and checked in tests/test_alpha_orders.py). (2) makes a_n an approximation
of v'(t_n + D h), D = am - af, so

    a_0 = v'_0 + D h v''_0                                                                       (4)

A scheme that enforces only g = 0 follows v_n = v(t_n) + C h^2 P v'', with the corresponding
residual at velocity level, where P = M^-1 G^T (G M^-1 G^T)^-1 G and C = (1 - 6 beta - 3 D)/6; it
starts from

    v_0 + C h^2 P v''_0                                                                          (5)

and if v is projected after each step, the accelerations carry this offset instead:

    a_0 = v'_0 + D h v''_0 + 2 C h P v''_0,    v'_0 + 2 C h P v''_0 in place of v'_0             (6)

Offsets are stored divided by their power of h, so the memory does not depend on the step, which may
have any size.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nsdyn._types import Configuration, Number, Params, Rows, Scalar, Time, Velocity
from nsdyn.errors import ProblemError
from nsdyn.integrators._time_stepping import sizes
from nsdyn.mechanics.formulations import lagrange
from nsdyn.mechanics.model import Model, Point
from nsdyn.mechanics.saddle_point import SaddlePoint
from nsdyn.numerics.newton import NOISE, Effort
from nsdyn.stepping.integrator import AbstractMemory

SHORTEST = 1e-10  # shortest partial step, in units of the step of the grid


def radius(x: Any) -> Scalar:
    """The converter of rho_inf: a traced number in [0, 1]."""
    if not isinstance(x, jax.Array) and not (isinstance(x, int | float) and 0.0 <= x <= 1.0):
        raise ProblemError(
            f"rho_inf: expected a number from 0 (most damping) to 1 (none), found {x!r}"
        )
    return jnp.asarray(x, float)


class Alpha(NamedTuple):
    """The parameters of (1), and the constants k, D and C derived from them."""

    am: Array
    af: Array
    beta: Array
    gamma: Array
    k: Array
    D: Array
    C: Array


def alpha(rho: Any) -> Alpha:
    """(1), and the constants k, D and C."""
    am = (2 * rho - 1) / (rho + 1)
    af = rho / (rho + 1)
    gamma = 0.5 + af - am
    beta = 0.25 * (gamma + 0.5) ** 2  # (1)
    D = am - af
    return Alpha(
        am=am,
        af=af,
        beta=beta,
        gamma=gamma,
        k=(1 - af) / (1 - am),
        D=D,
        C=(1 - 6 * beta - 3 * D) / 6,
    )


class AlphaMemory(AbstractMemory):
    """Acceleration and multipliers, and the offsets of the recursion.

    a, lam: v' and the multipliers at the end of the step.
    drift, tilt, shift: what (4), (5) and (6) add to a_0, v_0 and v'_0, divided by h, h^2 and h.
    effort: the work of Newton's method in the last step.
    """

    a: Float[Array, " n"]
    lam: Float[Array, " m"]
    drift: Float[Array, " n"]
    tilt: Float[Array, " n"]
    shift: Float[Array, " n"]
    effort: Effort


def begin(
    model: Model, point: Point, p: Params, c: Alpha, tilt: bool = False, shift: bool = False
) -> AlphaMemory:
    """The memory at a point where only (q, v) is known: at the start and after an event."""
    zero = jnp.zeros_like(point.v)

    def acceleration(q: Configuration, v: Velocity, t: Time) -> tuple[Velocity, Rows]:
        slope = lagrange(model, point.replace(t=t, q=q, v=v), p)
        return slope.a, slope.lam

    qdot = model.qdot(point, p)
    here = (point.q, point.v, point.t)
    a, lam = acceleration(*here)
    along = (qdot, a, jnp.ones_like(point.t))
    jerk = jax.jvp(lambda *x: acceleration(*x)[0], here, along)[1]
    hidden = zero
    if (tilt or shift) and model.m > 0:
        reaction = SaddlePoint(model, point, p)
        hidden = c.C * reaction.smallest_motion_of_positions(reaction.G @ jerk)
    offset = 2 * hidden if shift else zero  # (6)
    return AlphaMemory(
        a=a,
        lam=lam,
        drift=c.D * jerk + offset,  # (4), (6)
        tilt=hidden if tilt else zero,  # (5)
        shift=offset,
        effort=Effort.none(),
    )


class AlphaStep(NamedTuple):
    """One step of (2) and (3) as a function of the new acceleration v'_1."""

    c: Alpha
    h: Array
    v: Array
    dv: Array
    a: Array

    @staticmethod
    def of(c: Alpha, model: Model, point: Point, memory: AlphaMemory, h: Number) -> "AlphaStep":
        plain = AlphaStep.plain(c, model, point, memory.a, memory.drift, h)
        h = plain.h
        return plain._replace(v=point.v + h * h * memory.tilt, dv=memory.a + h * memory.shift)

    @staticmethod
    def plain(
        c: Alpha, model: Model, point: Point, a: Velocity, drift: Velocity, h: Number
    ) -> "AlphaStep":
        """The step without the offsets (5) and (6)."""
        # If an event lies at the very end of a step, no step may remain after it.
        shortest = SHORTEST * model.step
        h = jnp.where(jnp.abs(h) < shortest, shortest, h)
        return AlphaStep(c=c, h=h, v=point.v, dv=a, a=a + h * drift)

    def pseudo_acceleration(self, dv: Velocity) -> Velocity:
        c = self.c
        return ((1 - c.af) * dv + c.af * self.dv - c.am * self.a) / (1 - c.am)  # (2)

    def increment(self, dv: Velocity) -> Velocity:
        h = self.h
        beta = self.c.beta
        return h * self.v + h * h * (
            (0.5 - beta) * self.a + beta * self.pseudo_acceleration(dv)
        )  # (3)

    def velocity(self, dv: Velocity) -> Velocity:
        h = self.h
        gamma = self.c.gamma
        return self.v + h * ((1 - gamma) * self.a + gamma * self.pseudo_acceleration(dv))  # (3)

    @property
    def dq_da(self) -> Scalar:
        return self.c.beta * self.h**2 * self.c.k

    @property
    def dv_da(self) -> Scalar:
        return self.c.gamma * self.h * self.c.k

    def velocity_error(self, here: SaddlePoint, v: Velocity) -> Rows:
        """The residual psi, as an acceleration."""
        return here.psi(v) / self.dv_da

    def position_error(self, here: SaddlePoint, v: Velocity) -> Rows:
        """The residual g, as an acceleration; psi in rows without a position level."""
        gap = here.g() / self.dq_da
        if here.model.all_positional:
            return gap
        return jnp.where(here.model.positional, gap, self.velocity_error(here, v))

    def noise(
        self, model: Model, point: Point, weights: Array, tolerance: Number, p: Params
    ) -> Scalar:
        """Absolute Newton tolerance: round-off of q/h^2 and v/h, plus a fraction of |M^-1 f| in
        case the acceleration itself vanishes."""
        q, v, push = sizes(model, point, weights, p)
        return NOISE * (q / self.dq_da + v / jnp.abs(self.dv_da)) + tolerance * push

    def memory(self, dv: Velocity, lam: Rows, effort: Effort) -> AlphaMemory:
        zero = jnp.zeros_like(dv)
        return AlphaMemory(
            a=dv,
            lam=lam,
            drift=(self.pseudo_acceleration(dv) - dv) / self.h,
            tilt=zero,
            shift=zero,
            effort=effort,
        )
