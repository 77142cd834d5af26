"""Mechanisms through positions at which the rank of their constraints drops, against the pendulums
that they are; and the status of a run that stops there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nsdyn
from nsdyn import problems
from nsdyn.integrators import NSGA, RK4, EventDriven, GeneralizedAlpha, MoreauJean
from nsdyn.numerics import rank
from nsdyn.problems.n_four_bar import RODS, SYSTEM, rods
from nsdyn.status import Status
from nsdyn.studies.singular_positions import error, reference, swing

WINDOWS = problems.n_four_bar()
LOOP = problems.parallelogram()
FLAT_AT = 0.7143  # [s], two windows


def tilted(theta, windows=2):
    """The coordinates of the windows at an angle."""
    feet = np.stack([np.arange(windows + 1.0), np.zeros(windows + 1)], axis=1)
    return (feet + np.array([np.sin(theta), np.cos(theta)])).ravel()


@pytest.mark.parametrize("windows", [2, 40])
def test_windows_have_one_freedom_and_n_more_where_they_are_flat(windows):
    problem = problems.n_four_bar(windows)
    M = np.asarray(problem.system.mass(problem.q0, problem.params))
    count = lambda theta: np.sum(
        rank.independent(
            np.asarray(jax.jacfwd(rods)(tilted(theta, windows), 0.0, problem.params)), M
        )
    )
    assert len(M) - count(0.0) == len(M) - count(1.0) == 1
    assert len(M) - count(np.pi / 2) == windows + 1


@pytest.mark.parametrize("problem", [WINDOWS, LOOP], ids=lambda x: x.name)
def test_the_pendulum_is_the_mechanism(problem):
    """Its energy is that of the mechanism: E = c (theta'^2/2 + rate cos(theta))."""
    rate = swing(problem)
    energies = []
    for theta, speed in ((0.0, 1.0), (1.0, 2.0), (2.5, 0.5)):
        if problem is LOOP:
            q, v = np.array([1, -1, 1]) * theta, np.array([1.0, -1.0, 1.0]) * speed
        else:
            q, v = tilted(theta), np.tile([np.cos(theta), -np.sin(theta)], 3) * speed
        found = float(problem.system.energy(jnp.asarray(q), jnp.asarray(v), problem.params))
        energies.append(found / (speed**2 / 2 + rate * np.cos(theta)))
    np.testing.assert_allclose(energies, energies[0], rtol=1e-12)


# Errors to t = 1.5 s, past two flat positions, with h = 0.01.
SCHEMES = [
    (EventDriven(RK4()), 1e-5),
    (EventDriven(RK4("projected")), 1e-5),
    (EventDriven(RK4("minimal")), 5e-2),
    (GeneralizedAlpha(index=1), 5e-3),
    (GeneralizedAlpha(index=2), 5e-3),
    (GeneralizedAlpha(index=3), 5e-3),
    (NSGA(), 5e-3),
    (NSGA(variant="velocity"), 5e-3),
    (NSGA(variant="decoupled"), 5e-3),
    (MoreauJean(), 0.5),
    (MoreauJean(projection=False), 0.5),
]
FAST = (0, 5, 6)


@pytest.mark.parametrize(
    ("integrator", "allowed"),
    [pytest.param(*x, marks=() if i in FAST else pytest.mark.slow) for i, x in enumerate(SCHEMES)],
    ids=str,
)
def test_every_scheme_passes_two_windows(integrator, allowed):
    steps = (1e-2, 2e-3)
    errors = []
    for step in steps:
        run = nsdyn.simulate(WINDOWS, integrator, step=step, t_end=1.5, check=False)
        errors.append(error(WINDOWS, run))
    assert errors[0] < allowed and errors[1] < errors[0] / 3


@pytest.mark.slow
@pytest.mark.parametrize("integrator", [x for x, _ in SCHEMES], ids=str)
def test_every_scheme_passes_the_parallelogram(integrator):
    """Smaller steps too: they used to stop earlier."""
    errors = [
        error(LOOP, nsdyn.simulate(LOOP, integrator, step=step, t_end=1.5, check=False))
        for step in (1e-2, 1e-3, 1e-4)
    ]
    assert errors[2] < 2e-3 and errors[1] < errors[0] / 5


def landing(integrator):
    """The step of which 70 end at the flat position: from runs that step over it."""
    steps = np.array([0.01014, 0.01016, 0.01018, 0.01023, 0.01025, 0.01027])
    runs = [nsdyn.simulate(WINDOWS, integrator, step=h, t_end=75 * h, check=False) for h in steps]
    return np.polyfit([run.q[70, 1] for run in runs], steps, 3)[-1]


def test_a_step_that_ends_at_the_singular_position():
    integrator = GeneralizedAlpha(index=3)
    h = landing(integrator)
    with pytest.raises(
        nsdyn.SimulationError, match=r"singular position is at t = 0\.714"
    ) as caught:
        nsdyn.simulate(WINDOWS, integrator, step=h, t_end=1.0, check=False, save_every=7)
    found = caught.value
    assert found.status is Status.SINGULAR_POSITION and 0 <= FLAT_AT - found.t < 1.5 * h
    assert found.partial.status == Status.SINGULAR_POSITION
    assert "a percent" in str(found) and "EventDriven(RK4())" in str(found)
    assert "try a smaller step" not in str(found)
    other = nsdyn.simulate(WINDOWS, integrator, step=1.01 * h, t_end=1.0, check=False)
    assert error(WINDOWS, other) < 5e-3


def test_runge_kutta_ends_a_step_there_and_goes_on():
    integrator = EventDriven(RK4())
    h = landing(integrator)
    run = nsdyn.simulate(WINDOWS, integrator, step=h, t_end=1.5, check=False)
    assert abs(run.q[70, 1]) < 1e-6 and error(WINDOWS, run) < 1e-4


def sinking(q, t, p):
    return q[:1] ** 2 + t - 1.0


def twice(q, t, p):
    return jnp.concatenate([rods(q, t, p), rods(q, t, p)])


@pytest.mark.parametrize(
    "constraint",
    [RODS, pytest.param(nsdyn.Fixed(twice), marks=pytest.mark.slow)],
    ids=["rods", "redundant"],
)
def test_no_false_alarm_elsewhere(constraint):
    """Newton's method fails far from the flat position, with redundant rows too."""
    theta = 1.2
    v0 = np.tile([np.cos(theta), -np.sin(theta)], 3)
    start = {"q0": tilted(theta), "v0": v0, "t_end": 1.0, "params": WINDOWS.params}
    problem = nsdyn.Problem("windows", SYSTEM, constraint, **start)
    impatient = GeneralizedAlpha(index=2, newton=nsdyn.Newton(max_iterations=1))
    with pytest.raises(nsdyn.SimulationError, match="smaller step") as caught:
        nsdyn.simulate(problem, impatient, step=1e-2, check=False)
    assert caught.value.status is Status.NOT_CONVERGED


@pytest.mark.slow
@pytest.mark.parametrize("step", [1e-2, 1e-3])
def test_constraints_without_a_solution_are_no_singular_position(step):
    system = nsdyn.System(mass=lambda q, p: jnp.eye(2), force=lambda q, v, t, p: jnp.zeros(2))
    problem = nsdyn.Problem(
        "sinking", system, nsdyn.Fixed(sinking), q0=[1.0, 0.0], v0=[-0.5, 1.0], t_end=2.0
    )
    with pytest.raises(nsdyn.SimulationError) as caught:
        nsdyn.simulate(problem, NSGA(), step=step)
    assert caught.value.status is not Status.SINGULAR_POSITION


def test_sines_do_not_depend_on_the_order():
    rows = rank.unit_rows(np.array([[1.0, 0, 0], [1.0, 1e-3, 0], [0, 1.0, 0]]), np.eye(3))
    np.testing.assert_allclose(rank.sines(rows), rank.sines(rows[::-1]), atol=1e-6)
    assert rank.sines(rows)[1] > 0.9 and rank.sines(rows)[2] < 1e-12


def test_reference_is_the_pendulum_in_closed_form():
    """The energy of theta'' = k sin(theta)."""
    t = np.linspace(0, 2, 50)
    theta, speed = reference(WINDOWS, t)
    k = swing(WINDOWS)
    np.testing.assert_allclose(speed**2 / 2 + k * np.cos(theta), 0.5 + k, rtol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("integrator", "allowed"),
    [(EventDriven(RK4()), 1e-3), (GeneralizedAlpha(index=3), 5e-2), (NSGA(), 0.1)],
    ids=str,
)
def test_forty_windows_for_ten_seconds(integrator, allowed):
    problem = problems.n_four_bar(40)
    run = nsdyn.simulate(problem, integrator, step=1e-2, check=False)
    assert error(problem, run) < allowed
