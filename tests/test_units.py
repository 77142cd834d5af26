"""The same mechanism in other units, and with rows multiplied by numbers, moves in the same way.

Lengths are multiplied by L, times by T, rows of the constraints by r:

    q -> L q,   t -> T t,   v -> L/T v,   f -> L/T^2 f,   lam -> f/G lam,   Lam -> T f/G Lam

where G -> r G for rows that are lengths, r L G for rows that are areas.
"""

import functools
import itertools

import jax.numpy as jnp
import numpy as np
import pytest

import nsdyn
from nsdyn import laws
from nsdyn.integrators import NSGA, RK4, EventDriven, GeneralizedAlpha, MoreauJean

SCHEMES = {
    "RK4": EventDriven(RK4()),
    "index 3": EventDriven(GeneralizedAlpha(index=3)),
    "NSGA": NSGA(),
    "Moreau-Jean": MoreauJean(),
}
UNITS = {  # L, T, r
    "mm": (1e3, 1.0, 1.0),
    "km": (1e-3, 1.0, 1.0),
    "long rows": (1.0, 1.0, 1e6),
    "short rows": (1.0, 1.0, 1e-6),
    "ms": (1.0, 1e3, 1.0),
    "mm, ms, short rows": (1e3, 1e3, 1e-6),
}


def params(L, T, r):
    return {"L": L, "r": r, "g": 9.81 * L / T**2, "t_lock": T * jnp.array([0.2])}


# A ball that bounces along a floor and comes to rest on it


def ball_mass(q, p):
    return 2.0 * jnp.eye(2)


def ball_force(q, v, t, p):
    return jnp.stack([0.0 * p["g"], -2.0 * p["g"]])


def above_floor(q, t, p):
    return p["r"] * q[1]


def ball(L, T, r):
    system = nsdyn.System(mass=ball_mass, force=ball_force)
    return nsdyn.Problem(
        "ball",
        system,
        nsdyn.Contact(above_floor),
        q0=[0.0, 0.05 * L],
        v0=[0.1 * L / T, 0.0],
        t_end=0.6 * T,
        params=params(L, T, r),
    )


# A pendulum whose string meets a peg half-way down


def swing_mass(q, p):
    return jnp.diag(jnp.array([1.0, 2.0]))


def swing_force(q, v, t, p):
    return jnp.stack([0.0 * p["g"], -2.0 * p["g"]])


def string(q, t, p):
    return p["r"] * (q[0] ** 2 + q[1] ** 2 - p["L"] ** 2)


def string_at_peg(q, t, p):
    return p["r"] * (q[0] ** 2 + (q[1] + 0.5 * p["L"]) ** 2 - 0.25 * p["L"] ** 2)


def below_peg(q, p):
    return -q[0]


def swing(L, T, r):
    system = nsdyn.System(mass=swing_mass, force=swing_force)
    return nsdyn.Problem(
        "swing",
        system,
        nsdyn.Switching(modes=(string, string_at_peg), switches=(below_peg,)),
        q0=[0.8 * L, -0.6 * L],
        v0=[0.0, 0.0],
        t_end=0.6 * T,
        params=params(L, T, r),
    )


# A double pendulum in Cartesian coordinates; the inner mass is caught in flight


def pair_mass(q, p):
    return jnp.diag(jnp.array([1.0, 1.0, 3.0, 3.0]))


def pair_force(q, v, t, p):
    return -p["g"] * jnp.array([0.0, 1.0, 0.0, 3.0])


def rods(q, t, p):
    inner = q[0] ** 2 + q[1] ** 2 - p["L"] ** 2
    outer = (q[2] - q[0]) ** 2 + (q[3] - q[1]) ** 2 - p["L"] ** 2
    return p["r"] * jnp.stack([inner, outer])


def lock_time(p):
    return p["t_lock"]


def double_pendulum(L, T, r):
    system = nsdyn.System(mass=pair_mass, force=pair_force)
    caught = nsdyn.Scheduled(times=lock_time, stages=(None, nsdyn.lock(0)))
    return nsdyn.Problem(
        "double_pendulum",
        system,
        (nsdyn.Fixed(rods), caught),
        q0=np.array([0.6, -0.8, 1.6, -0.8]) * L,
        v0=np.zeros(4),
        t_end=0.4 * T,
        params=params(L, T, r),
    )


MECHANISMS = {"contact": ball, "switch": swing, "lock": double_pendulum}
LAWS = {"contact": laws.Restitution(0.5)}


@functools.cache
def motion(kind, scheme, L=1.0, T=1.0, r=1.0):
    """The run in units of metre and second."""
    problem = MECHANISMS[kind](L, T, r)
    law = LAWS.get(kind, laws.PostSwitchGradient())
    settings = {"step": 0.005 * T, "law": law, "save_every": 5, "check": False}
    run = nsdyn.simulate(problem, SCHEMES[scheme], **settings)
    fixed = 2 if kind == "lock" else None  # the row of a lock is a length that r does not reach
    force = L / T**2 / (r if kind == "contact" else r * L)
    return {
        "q": run.q / L,
        "v": run.v * T / L,
        "lam": (run.lam / force)[:, :fixed],
        "event times": run.events.t / T,
        "velocities after": run.events.v_after * T / L,
        "impulses": (run.events.Lam / (T * force))[:, :fixed],
        "modes": run.mode,
    }


# Schemes with each kind of event, and kinds with each scheme, are among the others.
LONG = {("lock", "index 3"), ("lock", "Moreau-Jean")}
PAIRS = [
    pytest.param(*pair, marks=[pytest.mark.slow] * (pair in LONG))
    for pair in itertools.product(MECHANISMS, SCHEMES)
]


@pytest.mark.parametrize(("kind", "scheme"), PAIRS)
def test_the_same_motion_in_all_units(kind, scheme):
    expected = motion(kind, scheme)
    assert len(expected["event times"]) >= 1
    for units in UNITS.values():
        found = motion(kind, scheme, *units)
        for name, value in expected.items():
            size = max(1.0, np.abs(value).max())
            assert found[name].shape == value.shape, (units, name)
            error = np.abs(found[name] - value).max() / size
            assert error < 1e-9, (units, name, error)


def flat(q, t, p):
    return p["r"] * q[1]


def step_up(q, t, p):
    return p["r"] * (q[1] - p["height"])


def edge(q, p):
    return q[0]


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("r", [1e-6, 1.0, 1e6])
def test_constraints_that_do_not_meet_are_refused_in_every_unit(size, r):
    """A step of a hundredth of the mechanism, in a mechanism of a millimetre too."""
    numbers = {"r": r, "height": 0.01 * size, "g": 0.0}
    problem = nsdyn.Problem(
        "step",
        nsdyn.System(mass=ball_mass, force=ball_force),
        nsdyn.Switching(modes=(flat, step_up), switches=(edge,)),
        q0=[-size, 0.0],
        v0=[size, 0.0],
        t_end=2.0,
        params=numbers,
    )
    with pytest.raises(nsdyn.SimulationError) as caught:
        nsdyn.simulate(problem, EventDriven(RK4()), step=0.1)
    assert caught.value.status is nsdyn.Status.DO_NOT_MEET
    low = {**numbers, "height": 1e-9 * size}
    assert nsdyn.simulate(problem, EventDriven(RK4()), step=0.1, params=low).mode[-1] == 1


def test_tolerances_can_be_set():
    problem = swing(1.0, 1.0, 1.0)
    method = EventDriven(RK4(), project=False)  # drifts
    strict = nsdyn.Tolerances(lost=1e-12)
    with pytest.raises(nsdyn.SimulationError) as caught:
        nsdyn.simulate(problem, method, step=0.02, tolerances=strict)
    assert caught.value.status is nsdyn.Status.CONSTRAINTS_LOST
    assert len(nsdyn.simulate(problem, method, step=0.02).events) == 1
    with pytest.raises(nsdyn.ProblemError, match="Tolerances: expected numbers >= 0, found -1"):
        nsdyn.Tolerances(meet=-1)


def test_newton_can_be_set():
    problem = swing(1.0, 1.0, 1.0)
    loose, tight = (NSGA(newton=nsdyn.Newton(tolerance=x)) for x in (1e-3, 1e-12))
    runs = [nsdyn.simulate(problem, scheme, step=0.02) for scheme in (loose, tight)]
    assert runs[0].iterations < runs[1].iterations
    assert 1e-12 < np.abs(runs[0].q[-1] - runs[1].q[-1]).max() < 1e-2
    with pytest.raises(nsdyn.SimulationError) as caught:
        nsdyn.simulate(problem, NSGA(newton=nsdyn.Newton(max_iterations=1)), step=0.02)
    assert caught.value.status is nsdyn.Status.NOT_CONVERGED
    with pytest.raises(nsdyn.ProblemError, match=r"Newton\(tolerance=...\): expected a positive"):
        nsdyn.Newton(tolerance=0.0)
