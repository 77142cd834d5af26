"""A problem as solvers for ordinary differential equations want it: y = (q, v), its rates, a function
that falls through zero at the next event, and the state after the event.

Rates are those of the Lagrangian formulation; nothing removes the drift of constraints, so that it
counts as an error of the solver. `scipy` and `diffrax` get the same functions.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

import nsdyn
from nsdyn import laws
from nsdyn.mechanics.formulations import lagrange
from nsdyn.mechanics.model import Model, Point
from nsdyn.stepping.mode_change import change_mode

LAW = laws.PostSwitchGradient()


@dataclass(frozen=True, eq=False)
class Flow:
    """The motion of a problem between events and its jumps at events. A `Point` says in which mode
    the mechanism is; time and state are arguments of their own."""

    model: Model
    first: Point
    p: Any
    t_end: float

    @staticmethod
    def of(problem: nsdyn.Problem) -> "Flow":
        t = jnp.asarray(float(problem.t0))
        begin = jax.jit(lambda q, v: problem.model().begin(q, v, t, problem.params))
        model, first = begin(problem.q0, problem.v0)
        return Flow(model, first, problem.params, float(problem.t_end))

    def rates(self, t: Any, y: Float[Array, " size"], point: Point) -> Float[Array, " size"]:
        at = _moved(point, t, y)
        return jnp.concatenate([self.model.qdot(at, self.p), lagrange(self.model, at, self.p).a])

    def guard(self, t: Any, y: Float[Array, " size"], point: Point) -> Float[Array, ""]:
        """The lowest guard; guards that use reactions are not needed here."""
        return jnp.min(self._guards(_moved(point, t, y)), initial=jnp.inf)

    def change(self, t: Any, y: Float[Array, " size"], point: Point) -> Point:
        """The point after the event that has the lowest guard."""
        at = _moved(point, t, y)
        guards = self._guards(at)
        return change_mode(self.model, at, guards <= jnp.min(guards), LAW, self.p)[0]

    def _guards(self, at: Point) -> Float[Array, " k"]:
        return self.model.guards(at, jnp.zeros(self.model.m), self.p)


def _moved(point: Point, t: Any, y: Float[Array, " size"]) -> Point:
    n = point.q.shape[0]
    return point.replace(t=jnp.asarray(t, float), q=y[:n], v=y[n:])


def state(point: Point) -> Float[Array, " size"]:
    return jnp.concatenate([point.q, point.v])


# Solvers: each returns a function of the tolerance (rtol = atol) that gives the state at the end.


def scipy_dop853(flow: Flow) -> Callable[[float], np.ndarray]:
    """`scipy.integrate.solve_ivp` with the method DOP853 and its own event location. It calls
    compiled functions of JAX from Python."""
    from scipy.integrate import solve_ivp

    rates, guard, change = (jax.jit(f) for f in (flow.rates, flow.guard, flow.change))

    def run(tolerance: float) -> np.ndarray:
        point, t, y = flow.first, float(flow.first.t), np.asarray(state(flow.first))
        while t < flow.t_end:
            surface = lambda t, y, point=point: float(guard(t, y, point))
            surface.terminal, surface.direction = True, -1  # type: ignore[attr-defined]
            found = solve_ivp(
                lambda t, y, point=point: np.asarray(rates(t, y, point)),
                (t, flow.t_end),
                y,
                method="DOP853",
                rtol=tolerance,
                atol=tolerance,
                events=surface if flow.model.k else None,
            )
            t, y = found.t[-1], found.y[:, -1]
            if found.status == 1:
                point = change(t, y, point)
                y = np.asarray(state(point))
        return y

    return run


def diffrax_dopri8(flow: Flow, events: int) -> Callable[[float], np.ndarray]:
    """`diffrax.diffeqsolve` with Dopri8 and its own event location, compiled as a whole; `events` is
    the number of events."""
    import diffrax
    import optimistix

    where = None
    if flow.model.k:
        root: Any = optimistix.Newton(rtol=1e-14, atol=1e-14)
        surface = lambda t, y, args, **_: flow.guard(t, y, args)
        where = diffrax.Event(surface, root, direction=False)

    def stretch(carry: tuple, tolerance: Array) -> tuple:
        t, y, point = carry
        found = diffrax.diffeqsolve(
            diffrax.ODETerm(flow.rates),
            diffrax.Dopri8(),
            t0=t,
            t1=flow.t_end,
            dt0=None,
            y0=y,
            args=point,
            stepsize_controller=diffrax.PIDController(rtol=tolerance, atol=tolerance),
            event=where,
            adjoint=diffrax.ForwardMode(),
            max_steps=100_000,
            throw=False,
        )
        return found.ts[-1], found.ys[-1], point

    @jax.jit
    def whole(tolerance: Array) -> Array:
        def between(_: int, carry: tuple) -> tuple:
            t, y, point = stretch(carry, tolerance)
            point = flow.change(t, y, point)
            return t, state(point), point

        carry = (flow.first.t, state(flow.first), flow.first)
        carry = jax.lax.fori_loop(0, events, between, carry) if events else carry
        return stretch(carry, tolerance)[1]

    return lambda tolerance: np.asarray(whole(jnp.asarray(tolerance)))
