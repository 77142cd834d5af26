"""Event location: from a step on which guards were seen to fall through zero to the instant of the first one.

The dense output gives a start; then Newton's method on the true step map Phi,

    theta <- theta - g_i(Phi(theta h)) / (d/dtheta) g_i(Phi(theta h))                          (1)

until the change is round-off. Phi, not the interpolant, is what the trajectory consists of, so the event time has the order
of the method. If another guard turns out to have crossed before the one located, the search goes on with that guard.

A state x is known to its last digits only, and so is a guard: to d_i = u |dg_i/dx| |x| (`nsdyn.guards.noise`). Where g_i falls
slowly, as at a soft touch with a small step, this is far more than 1e-10 of a step in time. theta is therefore a root if

    |g_i| <= max(1e-10 |g_i'|, d_i),   ' = d/dtheta                                            (2)

and guards count as crossing together if they are that close to zero, with 1e-9 in the place of 1e-10. Newton goes on beyond (2)
as long as it gains digits.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nsdyn import guards
from nsdyn.dense import SLACK, below, dips, guards_between
from nsdyn.integrator import State
from nsdyn.model import Model

SAMPLES = 16
ITERATIONS = 30
CONVERGED = 4e-15
ACCEPTED = 1e-10
REACH = 0.25  # Newton may leave its start by this part of the step


class Event(eqx.Module):
    """A located switch: the fraction of the step, the guard that sets the time, all guards that fired, and how the step map
    and that guard change with theta there."""

    theta: Float[Array, ""]
    index: Int[Array, ""]
    fired: Bool[Array, " k"]
    found: Bool[Array, ""]
    velocity: tuple  # d/dtheta of (t, q, v)
    slope: Float[Array, ""]  # d/dtheta of the guard; 0 for a switch at the very start, whose time depends on nothing


def estimates(model: Model, start: State, end: State, h, p, hit):
    """Where each guard in `hit` first falls through zero on the dense output; infinite for the others."""
    x = jnp.linspace(0.0, 1.0, SAMPLES + 1)
    inner = guards_between(model, start, end, h, p, x[1:-1])
    values = jnp.concatenate([start.guard[None], inner, end.guard[None]])
    dx = 1.0 / SAMPLES
    # (a) the first sample beyond zero, interpolated linearly, or by the rate at which a guard on its surface was left
    beyond = below(values[1:], start.floor)
    j = jnp.argmax(beyond, axis=0)
    left, right = jnp.take_along_axis(values, j[None], 0)[0], jnp.take_along_axis(values, j[None] + 1, 0)[0]
    fall = left - right
    linear = (j + jnp.where(fall > 0, left / jnp.where(fall > 0, fall, 1.0), 1.0)) * dx
    rise = start.lift * h * dx
    lifted = (start.floor > 0) & (j == 0) & (rise > right)
    arc = rise / jnp.where(lifted, rise - right, 1.0) * dx
    crossing = jnp.where(jnp.any(beyond, axis=0), jnp.where(lifted, arc, linear), jnp.inf)
    # (b) a dip between samples: the left root of the parabola
    a, b, d = values[:-2], values[1:-1], values[2:]
    dip = dips(a, b, d) & (a > 0) & (b > 0) & (d > 0)
    jd = jnp.argmax(dip, axis=0)
    a, b, d = (jnp.take_along_axis(y, jd[None], 0)[0] for y in (a, b, d))
    c = jnp.where(a - 2 * b + d > 0, a - 2 * b + d, 1.0)
    vertex = (a - d) / (2 * c)
    root = vertex - jnp.sqrt(jnp.maximum(vertex**2 - 2 * b / c, 0.0))
    dipping = jnp.where(jnp.any(dip, axis=0), (jd + 1 + root) * dx, jnp.inf)
    return jnp.where(hit, jnp.minimum(crossing, dipping), jnp.inf)


def locate(model: Model, start: State, end: State, h, p, hit, flow: Callable) -> tuple[Event, tuple]:
    """The first switch on a step from `start` to `end`, and ((t, q, v), guards) there.

    flow(theta) -> ((t, q, v), guards) is the step map.
    """
    immediate = hit & (start.floor == 0) & (start.guard <= 0)
    guess = estimates(model, start, end, h, p, hit)

    noise = guards.noise(model, start.point, start.memory.lam, p)

    def newton(carry):
        theta, i, n, last, _, _ = carry
        (x, g), (velocity, slope) = jax.jvp(flow, (theta,), (jnp.ones_like(theta),))
        falling = slope[i] < 0
        newton_step = -g[i] / jnp.where(falling, slope[i], -1.0)  # (1)
        # what is not a root is not accepted, also where Newton is held back at the edge of its reach
        change = jnp.where(falling & hit[i], jnp.abs(newton_step), jnp.inf)
        root = falling & hit[i] & (jnp.abs(g[i]) <= jnp.maximum(ACCEPTED * jnp.abs(slope[i]), noise[i]))  # (2)
        low, high = jnp.maximum(guess[i] - REACH, -1e-6), jnp.minimum(guess[i] + REACH, 1.0 + 1e-6)
        target = jnp.clip(theta + jnp.where(falling, newton_step, 0.0), low, high)
        # has another guard crossed before?
        together = jnp.maximum(SLACK * jnp.abs(slope), noise)
        late = jnp.where(hit & (slope < 0), g / jnp.where(slope < 0, -slope, 1.0), jnp.inf)
        j = jnp.argmin(late)
        earlier = root & (j != i) & (g[j] < -together[j])
        fired = (hit & (g <= together)) | (jnp.arange(hit.shape[0]) == i)
        done = root & ~earlier & ((change <= CONVERGED) | (change >= last))
        event = Event(theta, i, fired, root & ~earlier, velocity, slope[i])
        theta, i = jnp.where(earlier, theta + late[j], target), jnp.where(earlier, j, i)
        return theta, i, n + 1, jnp.where(earlier, jnp.inf, change), done, (event, (x, g))

    x = (start.point.t, start.point.q, start.point.v)
    at_once = jnp.any(immediate)
    still = jax.tree.map(jnp.zeros_like, x)
    at_start = Event(jnp.zeros(()), jnp.argmax(immediate), immediate, at_once, still, jnp.zeros(()))
    first = jnp.argmin(guess)
    begin = (
        jnp.minimum(guess[first], 1.0),
        first,
        jnp.zeros((), int),
        jnp.asarray(jnp.inf),
        at_once | ~jnp.any(hit),
        (at_start, (x, start.guard)),
    )
    *_, found = jax.lax.while_loop(lambda c: ~c[4] & (c[2] < ITERATIONS), newton, begin)
    return found
