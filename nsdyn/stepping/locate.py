"""Event location: on a step on which guards fall through zero, the instant of the first one.

The search starts with the full step, theta = 1: its dense output shows which guards fall, and gives
a guess of the first zero. Then Newton's method on the true step map Phi,

    theta <- theta - g_i(Phi(theta h)) / s_i                                                   (1)
    s = h (g_t + g_q q' + g_v v') + g_lam (lam_1 - lam_0)      at first                        (2)
    s = (g(theta) - g(theta_0))/(theta - theta_0)              from the iterate before         (3)

until the change is round-off. The trajectory consists of Phi, not of the interpolant, so the event
time has the order of the method. (2) is the derivative along the motion at Phi(theta h), which
differs from that of Phi itself by no more than the error of a step; (3) does the rest. The
derivative of Phi would need a second, larger copy of the step. If another guard turns out to have
crossed before the located one, the search continues with that guard.

Strongly curved guards, as on the long steps of loose tolerances, throw (1) far off. Iterates at
which g_i > 0 and g_i < 0 enclose a zero; where (1) would leave them, and in every second iteration
after the first few, the next theta is the middle

    theta <- (theta_+ + theta_-)/2                                                             (5)

The steps of a method with error control are long and their dense output is accurate. There the
guess is a zero of the dense output itself, enclosed by a and b, by the Illinois method

    x = b - g(b) (b - a)/(g(b) - g(a)),    with g(a) halved where a stays                      (6)

which needs no steps; then one step leads so near to the zero, at theta + tau, that the rest is
covered along the motion, with an error of tau^2:

    y + tau h y',    tau = -g_i/(h g_i'),    |tau| <= 1e-8                                     (7)

or further along the dense output P, moved and turned so that it leaves y with the slope y':

    y(tau) = y + tau h y' + P(theta + tau) - P(theta) - tau P'(theta)                          (8)

with tau from g_i(y(tau)) = 0 by chords, and moved onto the constraints. What (8) has wrong is of
second order in tau. What the turn alone contributes is of first order; if even that is a small part
of the error allowed in a step,

    |tau (h y' - P'(theta))| <= 0.01 (atol + rtol |y|)    in every entry                       (9)

no further step is needed.

A state x is known up to round-off only, and so is a guard: up to d_i = u |dg_i/dx| |x|
(`nsdyn.stepping.guard_rates.noise`). If g_i falls slowly, as at a soft touch with a small step,
this is far more than 1e-10 of a step in time. theta is therefore a root if

    |g_i| <= max(1e-10 |s_i|, d_i)                                                             (4)

and guards cross together if they are that close to zero, with 1e-9 instead of 1e-10. Newton's
method continues beyond (4) as long as it gains digits.
"""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nsdyn._types import Guards, Number, Params, Scalar
from nsdyn.mechanics.model import Model, Point
from nsdyn.numerics.newton import once
from nsdyn.stepping import guard_rates
from nsdyn.stepping.detect import SLACK, GuardScan, between, scan_guards
from nsdyn.stepping.integrator import State

INTERVALS = 4  # in which the guards are looked at
INTERVALS_AT_EVENTS = 16  # and where something fires
INTERVALS_OF_LONG_STEPS = 8  # of steps under error control, with and without events
ITERATIONS = 60
PATIENT = 8  # iterations before (5) takes turns with (1)
CONVERGED = 4e-15
ACCEPTED = 1e-10
REACH = 0.25  # Newton's method may move this far from its guess, in units of the step
BEYOND = 1e-6  # and this far beyond the step itself
APART = 1e-9  # iterates nearer than this give no reliable slope
NEAR = 1e-8  # of a step: a distance whose square is round-off
SECANTS = 30  # of (6) at most
SMALL_PART = 0.01  # of the error allowed in a step, for (9)
CHORDS = 2  # of (8)


class LocatedEvent(eqx.Module):
    """An event inside a step.

    theta: its time, as a fraction of the step.
    index: the guard that determines the time. fired: all guards that fire there.
    found: whether theta is a root.
    moves: whether the time depends on the state; an event at the very start of a step has the time
        of that start.
    """

    theta: Float[Array, ""]
    index: Int[Array, ""]
    fired: Bool[Array, " k"]
    found: Bool[Array, ""]
    moves: Bool[Array, ""]

    @staticmethod
    def empty(guards: int) -> "LocatedEvent":
        false = jnp.zeros((), bool)
        return LocatedEvent(
            theta=jnp.zeros(()),
            index=jnp.zeros((), int),
            fired=jnp.zeros(guards, bool),
            found=false,
            moves=false,
        )


class Known(NamedTuple):
    """A full step of a method with error control."""

    end: State
    scan: GuardScan  # of its guards
    allowed: Callable  # the error allowed in a step, for numbers of some size
    finish: Callable  # moves a point onto the constraints


class EventSearch(NamedTuple):
    """One iterate of the search."""

    end: State  # of the full step
    scan: GuardScan  # of the guards on the full step
    event: LocatedEvent
    place: tuple  # (t, q, v) = Phi at the theta of the event
    theta: Float[Array, ""]  # the next to try
    which: Int[Array, ""]
    before: tuple  # theta, guards and slopes of the last iterate
    around: tuple  # the thetas of (5), the second infinite if it is not known
    tries: Int[Array, ""]
    done: Bool[Array, ""]


def locate(
    model: Model,
    start: State,
    h: Number,
    p: Params,
    advance: Callable,
    known: Known | None = None,
) -> EventSearch:
    """The full step from `start` and the first event on it, if there is one.

    advance(theta, end, first) is the step map and returns a state. The first call, with `first`
    True, makes the full step; later calls receive its state as `end`. If the full step is `known`,
    the search begins behind it, from the zero of its dense output.
    """

    def iterate(c: EventSearch) -> EventSearch:
        stop = advance(c.theta, c.end, c.tries == 0)

        def whole() -> EventSearch:
            return _begun(start, c, stop, _scanned(model, start, stop, h, p))

        def nearer() -> EventSearch:
            memory = stop.memory
            lam_rate = (c.end.memory.lam - start.memory.lam) / h
            rates = guard_rates.rates(model, stop.point, memory.a, memory.lam, p, lam_rate=lam_rate)
            along = h * rates  # (2)
            if known is None:
                return _improved(model, c, stop, along, p)
            slid = _slid(model, start, c, stop, along, h, p, known)
            return _improved(model, *slid, along, p)

        return nearer() if known is not None else jax.lax.cond(c.tries == 0, whole, nearer)

    search = _blank(model, start)
    if known is not None:
        search = _begun(start, search, known.end, known.scan)
        guess = _zero_of_dense_output(model, start, search, h, p)
        search = search._replace(theta=guess)
    return jax.lax.while_loop(lambda c: ~c.done & (c.tries <= ITERATIONS), iterate, search)


def _scanned(model: Model, start: State, end: State, h: Number, p: Params) -> GuardScan:
    """The guards on a full step: as closely as at events only if something fires, so that a step
    has the same events whether or not one was expected in it."""
    closely = lambda _: scan_guards(model, start, end, h, p, INTERVALS_AT_EVENTS)
    seen = scan_guards(model, start, end, h, p, INTERVALS)
    return once(seen.fires, closely, seen)


def _blank(model: Model, start: State) -> EventSearch:
    """The search before the full step."""
    no = jnp.zeros((), bool)
    empty = LocatedEvent.empty(model.k)
    return EventSearch(
        end=start,
        scan=GuardScan(fired=empty.fired, first_zero=jnp.zeros(model.k), fell_back=no),
        event=empty,
        place=_place(start),
        theta=jnp.ones(()),
        which=empty.index,
        before=(jnp.ones(()), start.guard, start.guard),
        around=(jnp.zeros(()), jnp.full((), jnp.inf)),
        tries=empty.index,
        done=no,
    )


def _begun(start: State, c: EventSearch, end: State, scan: GuardScan) -> EventSearch:
    """The search after the full step."""
    immediate = start.own.watched & (start.guard <= 0)
    at_once = jnp.any(immediate)
    first = jnp.argmin(scan.first_zero)
    event = LocatedEvent(
        theta=jnp.zeros(()),
        index=jnp.argmax(immediate),
        fired=immediate,
        found=at_once,
        moves=jnp.zeros((), bool),
    )
    return EventSearch(
        end=end,
        scan=scan,
        event=event,
        place=_place(start),
        theta=jnp.minimum(scan.first_zero[first], 1.0),
        which=first,
        before=(jnp.ones(()), end.guard, jnp.zeros_like(end.guard)),
        around=(jnp.zeros(()), jnp.where(end.guard[first] < 0, 1.0, jnp.inf)),
        tries=c.tries + 1,
        done=at_once | ~jnp.any(scan.fired),
    )


def _zero_of_dense_output(
    model: Model, start: State, c: EventSearch, h: Number, p: Params
) -> Scalar:
    """The guess of the search improved by (6), where the guard changes its sign in that interval of
    the scan."""
    value = lambda x: model.guards(*between(model, start, c.end, h, p, x), p)[c.which]
    count = INTERVALS_OF_LONG_STEPS
    left = jnp.floor(c.theta * count) / count
    right = jnp.minimum(left + 1 / count, 1.0)
    ends = jax.vmap(value)(jnp.stack([left, right]))
    encloses = (ends[0] > 0) & (ends[1] < 0) & ~c.done

    def nearer(c: tuple) -> tuple:
        a, g_a, b, g_b, _, tries = c
        x = b - g_b * (b - a) / (g_b - g_a)  # (6)
        g = value(x)
        stays = (g > 0) == (g_b > 0)
        a, g_a = jnp.where(stays, a, b), jnp.where(stays, 0.5 * g_a, g_b)
        return a, g_a, x, g, jnp.abs(x - b), tries + 1

    going = lambda c: encloses & (c[3] != 0) & (c[4] > NEAR) & (c[5] < SECANTS)
    begin = (left, ends[0], right, ends[1], jnp.ones(()), jnp.zeros((), int))
    found = jax.lax.while_loop(going, nearer, begin)
    return jnp.where(encloses, found[2], c.theta)


def _slid(
    model: Model,
    start: State,
    c: EventSearch,
    stop: State,
    along: Guards,
    h: Number,
    p: Params,
    known: Known,
) -> tuple[EventSearch, State]:
    """The iterate and its state, moved along the motion if the zero is that near; `along` are the
    rates of the guards over a step. Not for a guard on reactions, whose rate is known roughly."""
    i, point, lam = c.which, stop.point, stop.memory.lam
    forces = guard_rates.by_force(model, point, lam, p)
    slope = jnp.where((along[i] < 0) & ~forces[i], along[i], -jnp.inf)
    path, turn = _turned(model, start, c, stop, h, p)
    tau = -stop.guard[i] / slope
    for _ in range(CHORDS):
        tau = tau - model.guards(path(tau), lam, p)[i] / slope
    place = known.finish(path(tau))  # (8)
    guard = jnp.where(forces, stop.guard + tau * along, model.guards(place, lam, p))
    rest = -guard[i] / slope
    q = place.q + rest * h * model.qdot(point, p)
    v = place.v + rest * h * stop.memory.a  # (7)
    size = jnp.abs(jnp.concatenate([point.q, point.v]))
    small = jnp.all(jnp.abs(tau) * turn <= SMALL_PART * known.allowed(size))  # (9)
    near = ((jnp.abs(tau) <= NEAR) | small) & (jnp.abs(rest) <= NEAR)
    theta = c.theta + tau + rest
    values = (place.replace(t=point.t + (tau + rest) * h, q=q, v=v), guard + rest * along)
    moved = eqx.tree_at(lambda x: (x.point, x.guard), stop, values)
    choose = lambda a, b: jnp.where(near, a, b)
    moved, theta = jax.tree.map(choose, (moved, theta), (stop, c.theta))
    return c._replace(theta=theta), moved


def _turned(
    model: Model, start: State, c: EventSearch, stop: State, h: Number, p: Params
) -> tuple[Callable, Array]:
    """The points y(tau) of (8), and how much the slope at y differs from that of the dense output,
    over a step."""
    point = stop.point

    def dense(x: Scalar) -> Array:
        found = between(model, start, c.end, h, p, x)[0]
        return jnp.concatenate([found.q, found.v])

    here, slope = jax.jvp(dense, (c.theta,), (jnp.ones_like(c.theta),))
    y = jnp.concatenate([point.q, point.v])
    turn = h * jnp.concatenate([model.qdot(point, p), stop.memory.a]) - slope

    def along(tau: Scalar) -> Point:
        q, v = jnp.split(y + dense(c.theta + tau) - here + tau * turn, [len(point.q)])
        return point.replace(t=point.t + tau * h, q=q, v=v)

    return along, jnp.abs(turn)


def _place(state: State) -> tuple:
    return state.point.t, state.point.q, state.point.v


def _improved(model: Model, c: EventSearch, stop: State, along: Guards, p: Params) -> EventSearch:
    """One iteration of (1), at the state `stop` = Phi(theta h)."""
    i = c.which
    g = stop.guard
    seen = c.scan.fired
    theta_0, g_0, slope_0 = c.before
    noise = guard_rates.noise(model, stop.point, stop.memory.lam, p)
    # Iterates that are not apart would give a secant through round-off.
    apart = (jnp.abs(c.theta - theta_0) > APART) & (jnp.abs(g - g_0) > noise)
    secant = jnp.where(apart, (g - g_0) / jnp.where(apart, c.theta - theta_0, 1.0), slope_0)  # (3)
    slope = jnp.where(c.tries == 1, along, secant)
    falling = slope[i] < 0
    step = -g[i] / jnp.where(falling, slope[i], -1.0)  # (1)
    # Only a root is accepted, even if Newton's method is held back at the edge of its reach.
    change = jnp.where(falling & seen[i], jnp.abs(step), jnp.inf)
    small = jnp.abs(g[i]) <= jnp.maximum(-ACCEPTED * slope[i], noise[i])  # (4)
    accepted = falling & seen[i] & small
    other, t_other, earlier = _crossed_before(c, g, slope, noise)
    earlier = accepted & earlier
    together = jnp.maximum(SLACK * jnp.abs(slope), noise)
    around = _enclosed(c, g[i])
    onward = _within_reach(c, jnp.where(falling, step, 0.0))
    onward = jnp.where(accepted, onward, _inside(around, onward, c.tries))
    gains = (c.tries == 1) | (change < jnp.abs(c.theta - theta_0))  # the guess is the first iterate
    return EventSearch(
        end=c.end,
        scan=c.scan,
        event=LocatedEvent(
            theta=c.theta,
            index=i,
            fired=(seen & (g <= together)) | (jnp.arange(seen.shape[0]) == i),
            found=accepted & ~earlier,
            moves=jnp.ones((), bool),
        ),
        place=_place(stop),
        theta=jnp.where(earlier, t_other, onward),
        which=jnp.where(earlier, other, i),
        before=(c.theta, g, slope),
        around=(jnp.where(earlier, 0.0, around[0]), jnp.where(earlier, c.theta, around[1])),
        tries=c.tries + 1,
        done=accepted & ~earlier & ((change <= CONVERGED) | ~gains),
    )


def _enclosed(c: EventSearch, g: Scalar) -> tuple[Scalar, Scalar]:
    """The thetas of (5) with the present one, at which the guard is g."""
    low, high = c.around
    low = jnp.where((g > 0) & (c.theta < high), jnp.maximum(low, c.theta), low)
    return low, jnp.where((g < 0) & (c.theta > low), jnp.minimum(high, c.theta), high)


def _inside(around: tuple[Scalar, Scalar], theta: Scalar, tries: Int[Array, ""]) -> Scalar:
    """The next theta, or (5)."""
    low, high = around
    enclosed = jnp.isfinite(high)
    halve = (theta <= low) | (theta >= high) | ((tries > PATIENT) & (tries % 2 == 0))
    middle = 0.5 * (low + jnp.where(enclosed, high, low))  # (5)
    return jnp.where(enclosed & halve, middle, theta)


def _within_reach(c: EventSearch, step: Scalar) -> Scalar:
    """The next theta, not too far from where the scan saw the guard cross."""
    guess = c.scan.first_zero[c.which]
    low = jnp.maximum(guess - REACH, -BEYOND)
    high = jnp.minimum(guess + REACH, 1.0 + BEYOND)
    return jnp.clip(c.theta + step, low, high)


def _crossed_before(
    c: EventSearch, g: Guards, slope: Guards, noise: Guards
) -> tuple[Int[Array, ""], Scalar, Bool[Array, ""]]:
    """The guard that crossed first, by linear extrapolation from here: its index, where it crossed,
    and whether it is another guard than the one being located."""
    falls = c.scan.fired & (slope < 0)
    late = jnp.where(falls, g / jnp.where(slope < 0, -slope, 1.0), jnp.inf)
    j = jnp.argmin(late)
    together = jnp.maximum(SLACK * jnp.abs(slope[j]), noise[j])
    return j, c.theta + late[j], (j != c.which) & (g[j] < -together)
