"""Orders on smooth motion of every time-stepping scheme, in q, v and lam, from the first step
on."""

import functools

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import nsdyn
from nsdyn import problems
from nsdyn.integrators import NSGA, GeneralizedAlpha, MoreauJean

STEPS = (1 / 400, 1 / 800)
RADII = (0.0, 0.5, 0.8)
MX, MY, GRAVITY, SPEED = 1.0, 2.0, 9.81, 0.5


def angular(_, y):
    """The same pendulum in its angle: (M_x sin^2 + M_y cos^2) th'' + ... = -M_y g cos th."""
    th, w = y
    s, c = np.sin(th), np.cos(th)
    return [w, (-MY * GRAVITY * c - (MX - MY) * s * c * w * w) / (MX * s * s + MY * c * c)]


@functools.cache
def _reference(count):
    t = np.linspace(0.0, 1.0, count)
    options = {"method": "DOP853", "rtol": 1e-13, "atol": 1e-14}
    th, w = solve_ivp(angular, (0.0, 1.0), [0.0, SPEED], t_eval=t, **options).y
    s, c = np.sin(th), np.cos(th)
    turning = np.array([angular(0, y)[1] for y in zip(th, w, strict=True)])
    a = np.stack([-c * w * w - s * turning, -s * w * w + c * turning], axis=1)
    q = np.stack([c, s], axis=1)
    balance = np.array([0.0, -MY * GRAVITY]) - np.array([MX, MY]) * a  # = G^T lam
    return q, np.stack([-s * w, c * w], axis=1), np.sum(balance * q, axis=1, keepdims=True)


def errors(make, step):
    """Largest errors, shape (radii, 2 intervals, 3 variables)."""
    problem = problems.pendulum(mx=MX, my=MY, g=GRAVITY, v0=SPEED)
    found = []
    for rho in RADII:
        out = nsdyn.simulate(problem, make(rho), step=step, t_end=1.0, check=False)
        pairs = zip((out.q, out.v, out.lam), _reference(len(out.t)), strict=True)
        differences = [np.abs(x - exact).max(axis=1) for x, exact in pairs]
        found.append([[d[out.t <= end + 1e-9].max() for d in differences] for end in (0.4, 1.0)])
    return np.array(found)


def index(i):
    return lambda rho: GeneralizedAlpha(index=i, rho_inf=rho)


def nsga(variant):
    return lambda rho: NSGA(rho_inf=rho, variant=variant)


SCHEMES = {f"index {i}": index(i) for i in (1, 2, 3)} | {
    v: nsga(v) for v in ("three-level", "velocity", "decoupled")
}


@pytest.mark.parametrize("name", SCHEMES)
def test_order_two_in_q_v_and_lam_without_a_transient(name):
    """Over [0, 0.4], where a wrong start shows, and over [0, 1]; for three spectral radii."""
    coarse, fine = (errors(SCHEMES[name], step) for step in STEPS)
    orders = np.log2(coarse / fine)
    assert orders.min() >= 1.95, orders
    assert fine[:, :, 0].max() < 2e-4


def test_moreau_jean_is_of_order_one():
    make = lambda rho: MoreauJean(theta=0.5 + 0.5 * rho)
    coarse, fine = (errors(make, step) for step in STEPS)
    orders = np.log2(coarse / fine)
    assert orders.min() > 0.9 and orders.max() < 1.1, orders
