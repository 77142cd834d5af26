"""Closures between bodies of a tree: loops against their closed forms, welds that switch against
the momentum of the bodies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import run
from scipy.integrate import solve_ivp

import nsdyn
from nsdyn import laws
from nsdyn.integrators import NSGA, RK4, EventDriven
from nsdyn.multibody import Bodies, world_momentum
from nsdyn.multibody.tree import rotation

EVENT_DRIVEN = EventDriven(RK4())
G = 9.81


# Loops of one degree of freedom: J(x) x'^2/2 + V(x), with the bodies placed by plane geometry.


class Reduced:
    """The motion of a loop from places(x) -> rows (x_C, y_C, angle) of its bodies."""

    def __init__(self, places, mass, inertia):
        weights = jnp.array([[m, m, I] for m, I in zip(mass, inertia, strict=True)])

        def acceleration(x, rate):
            J = lambda x: jnp.sum(weights * jax.jacfwd(places)(x) ** 2)
            V = lambda x: G * jnp.sum(weights[:, 0] * places(x)[:, 1])
            return -(0.5 * jax.grad(J)(x) * rate**2 + jax.grad(V)(x)) / J(x)

        self.acceleration = jax.jit(acceleration)

    def angle(self, x, rate, t):
        slope = lambda t, y: [y[1], float(self.acceleration(y[0], y[1]))]
        return solve_ivp(slope, (0, t), [x, rate], rtol=1e-11, atol=1e-11, method="DOP853").y[0, -1]


@pytest.mark.slow
def test_slider_crank():
    r, l, start, rate = 0.5, 1.3, 0.7, 3.0
    mass, inertia = (1.0, 2.0, 0.7), (0.04, 0.3, 0.0)

    def places(x):
        lean = jnp.arcsin(r / l * jnp.sin(x))
        crank = [r / 2 * jnp.cos(x), r / 2 * jnp.sin(x), x]
        rod = [r * jnp.cos(x) + l / 3 * jnp.cos(lean), (r - r / 3) * jnp.sin(x), -lean]
        return jnp.array([crank, rod, [r * jnp.cos(x) + l * jnp.cos(lean), 0.0, 0.0]])

    engine = Bodies(planar=True)
    engine.hinge("crank", mass=mass[0], com=(r / 2, 0), inertia=inertia[0])
    engine.hinge("rod", "crank", at=(r, 0), mass=mass[1], com=(l / 3, 0), inertia=inertia[1])
    engine.slide("piston", at=(r + l, 0), axis="x", mass=mass[2])
    pin = engine.connect("rod", "piston", (l, 0))
    lean = np.arcsin(r / l * np.sin(start))
    stroke = r * np.cos(start) + l * np.cos(lean) - r - l
    lean_rate = r / l * np.cos(start) / np.cos(lean) * rate
    speed = -r * np.sin(start) * rate - l * np.sin(lean) * lean_rate
    problem = engine.problem(
        "slider-crank",
        pin,
        q0={"crank": start, "rod": -lean - start, "piston": stroke},
        v0={"crank": rate, "rod": -lean_rate - rate, "piston": speed},
        t_end=0.6,
    )
    assert np.abs(pin(problem.q0, 0.0, problem.params)).max() < 1e-15
    exact = Reduced(places, mass, inertia).angle(start, rate, 0.6)
    errors = [abs(run(problem, EVENT_DRIVEN, step=h).q[-1, 0] - exact) for h in (0.02, 0.01)]
    assert errors[1] < 1e-6 and np.log2(errors[0] / errors[1]) > 3.7


def four_bar_angles(x):
    """Coupler and rocker of the links 2, 2.2, 1.9 on the ground link 2.5: the triangle over the
    diagonal."""
    B = 2.0 * jnp.array([jnp.cos(x), jnp.sin(x)])
    d = jnp.array([2.5, 0.0]) - B
    D = jnp.sqrt(d @ d)
    corner = jnp.arccos((2.2**2 + D**2 - 1.9**2) / (2 * 2.2 * D))
    coupler = jnp.arctan2(d[1], d[0]) + corner
    C = B + 2.2 * jnp.array([jnp.cos(coupler), jnp.sin(coupler)])
    return coupler, jnp.arctan2(C[1], C[0] - 2.5)


@pytest.mark.slow
def test_four_bar():
    mass, inertia = (1.0, 1.5, 0.8), (0.3, 0.6, 0.2)
    start, rate = 1.0, 0.5

    def places(x):
        coupler, rocker = four_bar_angles(x)
        turn = lambda angle: jnp.array([jnp.cos(angle), jnp.sin(angle)])
        middle = [turn(x), 2 * turn(x) + 1.1 * turn(coupler), 0.95 * turn(rocker)]
        middle[2] += jnp.array([2.5, 0.0])
        angles = jnp.stack([x, coupler, rocker])
        return jnp.concatenate([jnp.stack(middle), angles[:, None]], axis=1)

    linkage = Bodies(planar=True)
    linkage.hinge("crank", mass=mass[0], com=(1.0, 0), inertia=inertia[0])
    at = {"at": (2.0, 0), "com": (1.1, 0)}
    linkage.hinge("coupler", "crank", **at, mass=mass[1], inertia=inertia[1])
    at = {"at": (2.5, 0), "com": (0.95, 0)}
    linkage.hinge("rocker", **at, mass=mass[2], inertia=inertia[2])
    loop = linkage.connect("coupler", "rocker", point=(2.2, 0), to=(1.9, 0))
    angles = np.array([x - (start if i == 0 else 0) for i, x in enumerate(four_bar_angles(start))])
    rates = np.array(jax.jacfwd(four_bar_angles)(start)) * rate - [rate, 0.0]
    problem = linkage.problem("four-bar", loop, q0=[start, *angles], v0=[rate, *rates], t_end=0.8)
    exact = Reduced(places, mass, inertia).angle(start, rate, 0.8)
    out = run(problem, EVENT_DRIVEN, step=0.005)
    assert abs(out.q[-1, 0] - exact) < 1e-6
    assert np.abs(loop(out.q[-1], 0.0, problem.params)).max() < 1e-12
    assert np.ptp(out.energy) < 1e-6
    other = run(problem, NSGA(), step=0.01)
    assert abs(other.q[-1, 0] - exact) < 2e-3
    assert np.abs(loop(other.q[-1], 0.0, problem.params)).max() < 1e-10


def test_a_gear_couples_two_hinges():
    """q_a = -2 q_b + 0.3: one inertia I_a + I_b/4 under the torque on a."""
    gears = Bodies()
    gears.hinge("a", mass=1.0, inertia=0.2)
    gears.hinge("b", at=(1, 0, 0), mass=1.0, inertia=0.8)
    mesh = gears.couple("a", "b", ratio=-2.0, offset=0.3)
    problem = gears.problem(
        "gears", mesh, q0={"a": 0.3}, params={"torque": np.array([1.0, 0.0])}, t_end=0.5
    )
    out = run(problem, EVENT_DRIVEN, step=0.1)
    exact = 0.5 * 0.5**2 / (0.2 + 0.8 / 4)
    assert np.allclose(out.q[-1], [0.3 + exact, -exact / 2], atol=1e-13, rtol=0)


# A weld between free bodies.


def toggled(p):
    return p["toggle"]


INERTIA = {"a": (2.0, np.array([0.3, 0.4, 0.5])), "b": (1.0, np.array([0.1, 0.2, 0.25]))}


def two_bodies():
    space = Bodies(gravity=(0, 0, 0))
    for name, (mass, inertia) in INERTIA.items():
        space.free(name, mass=mass, inertia=inertia)
    grip = space.weld("a", "b", hold=True)
    return space.problem(
        "grip",
        nsdyn.Scheduled(toggled, (None, grip, None, grip)),
        q0={"b": (1, 0.5, 0.2, 0.5, 0.5, 0.5, 0.5)},
        v0={"a": (1, 0, 0, 0.5, 1, -2), "b": (-1, 0.2, 0, 1, 0.1, 0.3)},
        params={"toggle": np.array([0.3, 0.6, 0.8])},
        t_end=1.0,
    )


def as_one(q, v):
    """The velocities after two bodies have become one: momentum and inertia of both."""
    masses = np.array([mass for mass, _ in INERTIA.values()])
    turns = [np.asarray(rotation(x[3:])) for x in (q[:7], q[7:])]
    tensors = [R @ np.diag(I) @ R.T for R, (_, I) in zip(turns, INERTIA.values(), strict=True)]
    r, u = np.array([q[:3], q[7:10]]), np.array([v[:3], v[6:9]])
    spins = [R @ w for R, w in zip(turns, (v[3:6], v[9:]), strict=True)]
    middle, mean = masses @ r / masses.sum(), masses @ u / masses.sum()
    d = r - middle
    L = sum(I @ w for I, w in zip(tensors, spins, strict=True))
    L = L + np.sum(masses[:, None] * np.cross(d, u), axis=0)
    total = sum(tensors) + sum(
        m * (x @ x * np.eye(3) - np.outer(x, x)) for m, x in zip(masses, d, strict=True)
    )
    w = np.linalg.solve(total, L)
    return np.concatenate(
        [part for R, x in zip(turns, d, strict=True) for part in (mean + np.cross(w, x), R.T @ w)]
    )


def weld_rows(q):
    """G: the rates of place and turn of b in a."""
    a, b = (np.asarray(rotation(x[3:])) for x in (q[:7], q[7:]))
    d = a.T @ (q[7:10] - q[:3])
    cross = np.array([[0, -d[2], d[1]], [d[2], 0, -d[0]], [-d[1], d[0], 0]])
    o = np.zeros((3, 3))
    return np.block([[-a.T, cross, a.T, o], [o, -b.T @ a, o, np.eye(3)]])


@pytest.mark.slow
def test_a_weld_between_moving_bodies_keeps_their_momentum():
    problem = two_bodies()
    out = run(problem, EVENT_DRIVEN, step=0.01)
    momenta = jax.vmap(lambda q, v: world_momentum(problem.params["tree"], q, v))
    along = np.asarray(momenta(out.q, out.v))
    assert np.ptp(along[:, :3], axis=0).max() < 1e-12
    assert np.ptp(along[:, 3:], axis=0).max() < 1e-9  # RK4 turns with order 4
    events = out.events
    change = momenta(events.q, events.v_after) - momenta(events.q, events.v_before)
    assert np.abs(change[:3]).max() < 1e-12
    assert int(events.count) == 3 and np.allclose(events.t[:3], [0.3, 0.6, 0.8], atol=1e-14)
    M = np.diag(np.concatenate([[m, m, m, *inertia] for m, inertia in INERTIA.values()]))
    for i in (0, 2):
        q, before, after = (np.asarray(x[i]) for x in (events.q, events.v_before, events.v_after))
        assert np.abs(after - as_one(q, before)).max() < 1e-12
        rows = weld_rows(q)
        jump = laws.PostSwitchGradient().jump(M, np.zeros((0, 12)), rows, before)
        assert np.abs(after - jump.v_after).max() < 1e-12
        assert np.abs(events.Lam[i] - jump.Lam).max() < 1e-12
    assert np.abs(events.v_after[1] - events.v_before[1]).max() == 0.0
    held = np.flatnonzero((np.asarray(out.t) > 0.305) & (np.asarray(out.t) < 0.595))
    for k in held:
        assert np.abs(weld_rows(np.asarray(out.q[k])) @ np.asarray(out.v[k])).max() < 1e-12


@pytest.mark.slow
def test_derivatives_with_respect_to_the_times_of_a_weld():
    plane = Bodies(planar=True)
    plane.planar("a", mass=2.0, inertia=0.5)
    plane.slide("b", at=(1.0, 0.5), axis=(1.0, 0.4), mass=1.0)
    grip = plane.weld("a", "b", hold=True)
    problem = plane.problem(
        "grip",
        nsdyn.Scheduled(toggled, (None, grip, None)),
        v0={"a": (1, 0, 2), "b": -1.5},
        params={"toggle": np.array([0.21, 0.43])},
        t_end=1.0,
    )

    def end(times):
        p = problem.params | {"toggle": times}
        out = nsdyn.rollout(problem, EVENT_DRIVEN, step=0.05, params=p, max_events=4)
        return jnp.concatenate([out.q[-1], out.v[-1]])

    both = jax.jit(lambda times, along: jax.jvp(end, (times,), (along,)))  # one program for all
    times = problem.params["toggle"]
    h = 1e-5
    found, expected = [], []
    for e in np.eye(2):
        found.append(both(times, e)[1])
        expected.append((both(times + h * e, e)[0] - both(times - h * e, e)[0]) / (2 * h))
    found, expected = np.array(found), np.array(expected)
    assert np.abs(found - expected).max() < 1e-6 * np.abs(expected).max()
    assert np.all(np.abs(found).max(axis=1) > 0.1)


def test_a_weld_with_a_given_pose_holds_a_door():
    """A body on a hinge, welded to the world beside it: it stays, and the weld carries it."""
    house = Bodies()
    house.ball("door", mass=2.0, com=(0.5, 0, 0), inertia=(0.1, 0.2, 0.2))
    problem = house.problem("door", house.weld("world", "door", at=(0, 0, 0)), t_end=0.1)
    out = run(problem, EVENT_DRIVEN, step=0.05)
    assert np.abs(out.q[-1] - problem.q0).max() < 1e-14
    # the weight acts at the centre of mass; G^T lam = f
    assert np.allclose(out.lam[-1][3:], [0.0, 2.0 * G * 0.5, 0.0], atol=1e-11, rtol=0)
