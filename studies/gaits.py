"""Gaits of the compass walker: its return map, fixed points by Newton's method with the exact
Jacobian, and multipliers.

The return map P takes the state x = (th, u, w) just after a heel strike to the state after the next
one (`problems.compass_walker`). Its derivative, by differentiating the rollout, includes event time
and impulse:

    x = P(x):    x <- x - (P'(x) - 1)^-1 (P(x) - x),    multipliers: the eigenvalues of P'(x)    (1)
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

import nsdyn
from nsdyn import integrators
from nsdyn.problems.compass_walker import LEGS, after_strike, at_strike

# Without projection: a stride is too short to drift, and the program of its derivative is half as
# large.
RK4 = integrators.EventDriven(integrators.RK4(), project=False)
ITERATIONS = 12
ROUND_OFF = 1e-13


class Stride(NamedTuple):
    """The state after the next strike, the time of the strike, whether there was one, and the
    derivative of the state."""

    state: Any
    time: Any
    struck: Any
    slope: Any


@eqx.filter_jit
def _along(
    problem: nsdyn.Problem, x: Float[Array, " 3"], dx: Float[Array, " 3"], step: float, t_end: float
) -> Stride:
    """P(x) and P'(x) dx."""

    def follow(x: Float[Array, " 3"]) -> tuple[Array, tuple[Array, Array]]:
        q, v = after_strike(x, problem.params)
        out = nsdyn.rollout(
            problem, RK4, q0=q, v0=v, step=step, t_end=t_end, save_every=16, max_events=2
        )
        events = out.events
        struck = (events.count > 0) & (events.records.mode_after[0] < LEGS)
        return jnp.stack(at_strike(events.records, 0)), (events.records.t[0], struck)

    state, slope, (time, struck) = jax.jvp(follow, (x,), (dx,), has_aux=True)
    return Stride(state, time, struck, slope)


def stride(problem: nsdyn.Problem, x: ArrayLike, step: float, t_end: float) -> Stride:
    """P(x) and P'(x), column by column from one program; t_end is long enough for one stride."""
    # one name, so that all walkers share the program
    problem = nsdyn.Problem(
        "stride",
        problem.system,
        problem.constraint,
        problem.q0,
        problem.v0,
        t_end=t_end,
        params=problem.params,
    )
    columns = [_along(problem, jnp.asarray(x), jnp.asarray(dx), step, t_end) for dx in np.eye(3)]
    state, time, struck = (np.asarray(value) for value in columns[0][:3])
    return Stride(
        state, float(time), bool(struck), np.stack([found.slope for found in columns], axis=1)
    )


class Gait(NamedTuple):
    """A fixed point of the return map: state, period, multipliers (largest first) and |P(x) -
    x|."""

    state: np.ndarray
    period: float
    multipliers: np.ndarray
    residual: float


def gait(problem: nsdyn.Problem, guess: ArrayLike, step: float, t_end: float) -> Gait:
    """The fixed point near a guess."""
    x = np.asarray(guess, float)
    for _ in range(ITERATIONS):
        found = stride(problem, x, step, t_end)
        if not found.struck:
            raise nsdyn.ProblemError(
                f"gait: no heel strike within {t_end:g} s from the state {x.tolist()}"
            )
        residual = found.state - x
        if np.abs(residual).max() < ROUND_OFF:
            break
        x = x - np.linalg.solve(found.slope - np.eye(3), residual)  # (1)
    values = np.linalg.eigvals(found.slope)
    return Gait(x, found.time, values[np.argsort(-np.abs(values))], float(np.abs(residual).max()))
