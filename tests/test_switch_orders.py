"""Orders across a switch with a velocity jump, on curved constraints, at a time that has to be
solved for."""

import functools

import numpy as np
import pytest
from mechanisms import SWING, below_peg, circle
from scipy.integrate import solve_ivp

import nsdyn
from nsdyn.integrators import (
    NSGA,
    RK4,
    DormandPrince,
    EventDriven,
    GeneralizedAlpha,
    RadauIIA,
)

T_END = 0.7
STEPS = (0.005, 0.0025)
MASS = np.array([1.0, 2.0])
AFTER = 0.02 * np.arange(24, 36)  # the rows after the switch, to the end
CENTRE, RADIUS = np.array([0.3, -0.6]), 0.5
GRAVITIES = (9.5, 9.6, 9.7, 9.8, 9.9)  # the switch falls at other places in its step


def side_circle(q, t, p):
    return 0.5 * ((q[0] - 0.3) ** 2 + (q[1] + 0.6) ** 2 - 0.25)


# From a circle about the origin to one about (0.3, -0.6): they cross at (0, -1), under the angle
# atan(3/4).
KINK = nsdyn.Switching(modes=(circle, side_circle), switches=(below_peg,))
PROBLEM = nsdyn.Problem(
    "kink", SWING, KINK, q0=[0.8, -0.6], v0=[0.0, 0.0], t_end=T_END, params={"m": 1.0, "g": 9.81}
)


def on_circle(centre, radius, g):
    """Motion on a circle in its angle from the x-axis: 1/2 d/dth(...) from T = 1/2 (t.M t) (radius
    w)^2, V = 2 g y."""

    def rate(_, y):
        th, w = y
        s, c = np.sin(th), np.cos(th)
        inertia = MASS[0] * s * s + MASS[1] * c * c
        return [w, (-MASS[1] * g * c / radius - (MASS[0] - MASS[1]) * s * c * w * w) / inertia]

    def state(th, w):
        q = centre[None] + radius * np.stack([np.cos(th), np.sin(th)], axis=-1)
        return q, radius * w[:, None] * np.stack([-np.sin(th), np.cos(th)], axis=-1)

    return rate, state


@functools.cache
def exact(g):
    """Time of the switch, q and v at the times AFTER."""
    options = {"method": "DOP853", "rtol": 1e-13, "atol": 1e-14}
    rate, state = on_circle(np.zeros(2), 1.0, g)
    bottom = lambda _, y: y[0] + np.pi / 2
    bottom.terminal = True
    first = solve_ivp(rate, (0, T_END), [np.arctan2(-0.6, 0.8), 0.0], events=bottom, **options)
    t, y = first.t_events[0][0], first.y_events[0][0]
    _, v = state(y[:1], y[1:])
    rate, state = on_circle(CENTRE, RADIUS, g)
    th = np.arctan2(-0.4, -0.3)
    tangent = np.array([-np.sin(th), np.cos(th)])
    w = (
        tangent @ (MASS * v[0]) / (tangent @ (MASS * tangent)) / RADIUS
    )  # momentum along the new tangent
    assert t < AFTER[0]
    return t, *state(*solve_ivp(rate, (t, AFTER[-1]), [th, w], t_eval=AFTER, **options).y)


def simulated(scheme, step, g, apart=0.02):
    settings = {"save_every": round(apart / step), "max_events": 4, "check": False}
    return nsdyn.simulate(PROBLEM, scheme, step=step, params={"m": 1.0, "g": g}, **settings)


def errors(scheme, step, apart=0.02):
    """The largest errors in event time, q and v over all places of the switch and all rows after
    it: at one instant an error may happen to change its sign."""
    after = np.isclose(AFTER / apart, np.round(AFTER / apart))
    found = []
    for g in GRAVITIES:
        out = simulated(scheme, step, g, apart)
        t, q, v = (x if np.ndim(x) == 0 else x[after] for x in exact(g))
        rows = [int(np.argmin(np.abs(out.t - instant))) for instant in AFTER[after]]
        assert np.abs(out.t[rows] - AFTER[after]).max() < 1e-12 and np.all(out.mode[rows] == 1)
        largest = lambda x, y, rows=rows: np.abs(x[rows] - y).max()
        found.append([abs(out.events.t[0] - t), largest(out.q, q), largest(out.v, v)])
    return np.max(found, axis=0)


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        (EventDriven(RK4()), 3.9),
        (EventDriven(GeneralizedAlpha(index=3)), 1.9),
    ],
    ids=["RK4", "index 3"],
)
def test_located_switches_keep_the_order_of_the_method(scheme, expected):
    coarse, fine = (errors(scheme, step) for step in STEPS)
    assert np.log2(coarse / fine).min() >= expected, (coarse, fine)


LOOSE = {"rtol": 1e12, "atol": 1e12}  # every step is accurate enough


@pytest.mark.parametrize(
    ("method", "order", "steps"),
    [
        (DormandPrince(5, **LOOSE), 5, (0.025, 0.0125)),
        (DormandPrince(8, **LOOSE), 8, (0.05, 0.025)),
        (RadauIIA(**LOOSE), 5, (0.025, 0.0125)),
    ],
    ids=["5(4)", "8(5,3)", "Radau IIA"],
)
def test_methods_with_error_control_keep_their_order(method, order, steps):
    """All steps are as long as `step`, but those that the switch cuts."""
    coarse, fine = (errors(EventDriven(method), step, apart=0.1) for step in steps)
    assert np.log2(coarse / fine).min() > order - 0.4, (coarse, fine)
    assert fine.max() < 1e-8


def test_captured_switches_are_of_order_one():
    coarse, fine = (errors(NSGA(), step) for step in STEPS)
    orders = np.log2(coarse / fine)
    assert orders.min() > 0.7 and orders.max() < 1.3, (coarse, fine)
    assert fine.max() < 0.02


def test_the_jump_is_there():
    event = simulated(EventDriven(RK4()), STEPS[0], 9.8).events[0]
    assert np.linalg.norm(event.v_after - event.v_before) > 0.5
