"""LocatedEvent location: from a step on which guards fall through zero to the instant of the first
one.

The first look is at the straight step, theta = 1: on its dense output guards are seen to fall, and
the first zero is guessed. Then Newton's method on the true step map Phi,

    theta <- theta - g_i(Phi(theta h)) / s_i                                                   (1)
    s = h (g_t + g_q q' + g_v v') + g_lam (lam_1 - lam_0)      at first                        (2)
    s = (g(theta) - g(theta_0))/(theta - theta_0)              from the iterate before         (3)

until the change is round-off. Phi, not the interpolant, is what the trajectory consists of, so the
event time has the order of the method. (2) is the derivative along the motion at Phi(theta h),
which differs from that of Phi itself by no more than the error of a step; (3) does the rest. The
derivative of Phi would need a second, larger copy of the step. If another guard turns out to have
crossed before the one located, the search goes on with that guard.

A state x is known to its last digits only, and so is a guard: to d_i = u |dg_i/dx| |x|
(`nsdyn.stepping.guard_rates.noise`). Where g_i falls slowly, as at a soft touch with a small step,
this is far more than 1e-10 of a step in time. theta is therefore a root if

    |g_i| <= max(1e-10 |s_i|, d_i)                                                             (4)

and guards cross together if they are that close to zero, with 1e-9 in the place of 1e-10. Newton
goes on beyond (4) as long as it gains digits.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nsdyn.mechanics.model import Model
from nsdyn.stepping import guard_rates
from nsdyn.stepping.detect import SLACK, GuardScan, scan_guards
from nsdyn.stepping.integrator import State

INTERVALS = 16
ITERATIONS = 30
CONVERGED = 4e-15
ACCEPTED = 1e-10
REACH = 0.25  # Newton may leave its start by this part of the step
APART = 1e-9  # iterates nearer than this say nothing about a slope


class LocatedEvent(eqx.Module):
    """A located switch: the fraction of the step, the guard that sets the time, all guards that
    fired, whether it is a good root, and whether its time moves with the state: a switch at the
    very start of a step has the time of that."""

    theta: Float[Array, ""]
    index: Int[Array, ""]
    fired: Bool[Array, " k"]
    found: Bool[Array, ""]
    moves: Bool[Array, ""]


class EventSearch(NamedTuple):
    end: State  # of the straight step
    scan: GuardScan  # at the guards on it
    event: LocatedEvent
    place: tuple  # (t, q, v) = Phi at the theta of the event
    theta: Float[Array, ""]  # the next to try
    which: Int[Array, ""]
    before: tuple  # theta, guards and slopes of the last iterate
    tries: Int[Array, ""]
    done: Bool[Array, ""]


def locate(model: Model, start: State, h, p, advance: Callable) -> EventSearch:
    """The straight step from `start` and the first switch on it, if there is one.

    advance(theta, end, first) is the step map, as a state; `end` is that of the straight step once
    it was made, `first` of all.
    """
    nobody, none = jnp.zeros((), bool), jnp.zeros(model.k, bool)
    blank = LocatedEvent(jnp.zeros(()), jnp.zeros((), int), none, nobody, nobody)
    immediate = (start.surface_tolerance == 0) & (start.guard <= 0)

    def begun(c: EventSearch, stop: State) -> EventSearch:
        seen = scan_guards(model, start, stop, h, p, INTERVALS)
        at_once = jnp.any(immediate)
        event = LocatedEvent(jnp.zeros(()), jnp.argmax(immediate), immediate, at_once, nobody)
        place = _place(start)
        first = jnp.argmin(seen.first_zero)
        before = (jnp.ones(()), stop.guard, jnp.zeros(model.k))
        done = at_once | ~jnp.any(seen.fired)
        return EventSearch(
            stop,
            seen,
            event,
            place,
            jnp.minimum(seen.first_zero[first], 1.0),
            first,
            before,
            c.tries + 1,
            done,
        )

    def iterate(c: EventSearch) -> EventSearch:
        first = c.tries == 0
        stop = advance(c.theta, c.end, first)
        lam_rate = (c.end.memory.lam - start.memory.lam) / h
        along = h * guard_rates.rates(
            model, stop.point, stop.memory.a, stop.memory.lam, p, lam_rate=lam_rate
        )  # (2)
        new, nearer = begun(c, stop), _improved(model, c, stop, along, p)
        return jax.tree.map(lambda a, b: jnp.where(first, a, b), new, nearer)

    unseen = GuardScan(none, jnp.zeros(model.k), nobody)
    one, zero, before = jnp.ones(()), blank.index, (jnp.ones(()), start.guard, start.guard)
    search = EventSearch(start, unseen, blank, _place(start), one, zero, before, zero, nobody)
    return jax.lax.while_loop(lambda c: ~c.done & (c.tries <= ITERATIONS), iterate, search)


def _place(state: State) -> tuple:
    return state.point.t, state.point.q, state.point.v


def _improved(model: Model, c: EventSearch, stop: State, along, p) -> EventSearch:
    """One iteration of (1), at the state `stop` = Phi(theta h)."""
    theta, i, hit, guess, g = c.theta, c.which, c.scan.fired, c.scan.first_zero, stop.guard
    theta_0, g_0, slope_0 = c.before
    noise = guard_rates.noise(model, stop.point, stop.memory.lam, p)
    apart = (jnp.abs(theta - theta_0) > APART) & (
        jnp.abs(g - g_0) > noise
    )  # else the secant is one through round-off
    secant = jnp.where(apart, (g - g_0) / jnp.where(apart, theta - theta_0, 1.0), slope_0)  # (3)
    slope = jnp.where(c.tries == 1, along, secant)
    falling = slope[i] < 0
    step = -g[i] / jnp.where(falling, slope[i], -1.0)  # (1)
    # what is not a root is not accepted, also where Newton is held back at the edge of its reach
    change = jnp.where(falling & hit[i], jnp.abs(step), jnp.inf)
    accepted = (
        falling & hit[i] & (jnp.abs(g[i]) <= jnp.maximum(-ACCEPTED * slope[i], noise[i]))
    )  # (4)
    low, high = jnp.maximum(guess[i] - REACH, -1e-6), jnp.minimum(guess[i] + REACH, 1.0 + 1e-6)
    target = jnp.clip(theta + jnp.where(falling, step, 0.0), low, high)
    # has another guard crossed before?
    together = jnp.maximum(SLACK * jnp.abs(slope), noise)
    late = jnp.where(hit & (slope < 0), g / jnp.where(slope < 0, -slope, 1.0), jnp.inf)
    j = jnp.argmin(late)
    earlier = accepted & (j != i) & (g[j] < -together[j])
    fired = (hit & (g <= together)) | (jnp.arange(hit.shape[0]) == i)
    event = LocatedEvent(theta, i, fired, accepted & ~earlier, jnp.ones((), bool))
    theta_1, i_1 = jnp.where(earlier, theta + late[j], target), jnp.where(earlier, j, i)
    gains = (c.tries == 1) | (change < jnp.abs(theta - theta_0))  # the guess is the first iterate
    done = accepted & ~earlier & ((change <= CONVERGED) | ~gains)
    return EventSearch(
        c.end, c.scan, event, _place(stop), theta_1, i_1, (theta, g, slope), c.tries + 1, done
    )
