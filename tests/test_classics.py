"""Classic problems against what others found: published end states and closed forms."""

import numpy as np
import pytest

import nsdyn
from nsdyn import problems
from nsdyn.integrators import NSGA, RK4, DormandPrince, EventDriven, GeneralizedAlpha
from nsdyn.mechanics.formulations import lagrange
from nsdyn.problems.knife_edge import exact

CLASSICS = ("andrews", "car_axis", "knife_edge")
FINE = EventDriven(DormandPrince(order=8, rtol=1e-11, atol=1e-13))
SECOND_ORDER = (NSGA(), GeneralizedAlpha(index=2), GeneralizedAlpha(index=3))


def error(name: str, integrator, steps: int) -> float:
    problem = problems.get(name)
    options = {"step": problem.t_end / steps, "save_every": steps}
    run = nsdyn.simulate(problem, integrator, **options, check=False)
    return problems.reference(name).error(run.q[-1], run.v[-1])


@pytest.mark.parametrize("name", CLASSICS)
def test_error_control_meets_the_reference(name):
    assert error(name, FINE, 50) <= problems.reference(name).tolerance


@pytest.mark.parametrize(
    ("name", "steps"), [("knife_edge", 1000), ("car_axis", 16000), ("andrews", 1000)]
)
def test_fixed_steps_meet_the_reference(name, steps):
    assert error(name, EventDriven(RK4()), steps) <= problems.reference(name).tolerance


# The motion of the car axis is fast beside its road, that of the squeezer beside its 0.03 s.
STEPS = {"andrews": 4000, "car_axis": 8000, "knife_edge": 500}


@pytest.mark.parametrize(
    ("name", "scheme"),
    [
        ("knife_edge", NSGA()),
        *[
            pytest.param(name, scheme, marks=pytest.mark.slow)
            for name in CLASSICS
            for scheme in SECOND_ORDER
            if (name, scheme) != ("knife_edge", NSGA())
        ],
    ],
    ids=str,
)
def test_schemes_of_second_order_come_nearer(name, scheme):
    """Their error falls with the square of the step, and extrapolated they meet the reference."""
    problem = problems.get(name)
    steps = STEPS[name]
    ends = []
    for n in (steps, 2 * steps, 4 * steps):
        options = {"step": problem.t_end / n, "save_every": n}
        run = nsdyn.simulate(problem, scheme, **options, check=False)
        ends.append((run.q[-1], run.v[-1]))
    errors = [problems.reference(name).error(*end) for end in ends]
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    assert np.all(np.abs(orders - 2) < 0.1)
    extrapolated = [fine + (fine - coarse) / 3 for coarse, fine in zip(*ends[-2:], strict=True)]
    assert problems.reference(name).error(*extrapolated) < errors[-1] / 10


def test_start_of_the_squeezer():
    """Accelerations at the start are published to 30 digits."""
    problem = problems.andrews()
    model = problem.model()
    point = model.start(problem.q0, problem.v0, 0.0, problem.params)
    a = lagrange(model, point, problem.params).a
    expected = [14222.4439199541138705911625887, -10666.8329399655854029433719415, 0, 0, 0, 0, 0]
    np.testing.assert_allclose(a, expected, rtol=1e-11, atol=1e-6)


def test_knife_edge_at_all_times():
    run = nsdyn.simulate(problems.knife_edge(), FINE, step=0.1)
    q, v = exact(run.t)
    np.testing.assert_allclose(run.q, q, atol=1e-10)
    np.testing.assert_allclose(run.v, v, atol=1e-10)
