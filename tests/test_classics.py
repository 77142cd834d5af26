"""Classic problems against what others found: published end states and closed forms."""

from collections.abc import Iterator

import numpy as np
import pytest

import nsdyn
from nsdyn import integrators, laws, problems
from nsdyn.integrators import NSGA, RK4, DormandPrince, EventDriven, GeneralizedAlpha
from nsdyn.mechanics.formulations import lagrange
from nsdyn.native.once import natively
from nsdyn.problems.bouncing_ball import impacts
from nsdyn.problems.knife_edge import exact
from nsdyn.problems.simple_pendulum import exact as swing

CLASSICS = ("andrews", "car_axis", "knife_edge")
SECOND_ORDER = (NSGA(), GeneralizedAlpha(index=2), GeneralizedAlpha(index=3))
FINE = EventDriven(DormandPrince(order=8, rtol=1e-11, atol=1e-13))
KNOWN = [name for name in problems.names() if problems.reference(name) is not None]
QUICK = ("bouncing_ball", "knife_edge", "flyball_governor")  # those that compile quickly


def stored() -> Iterator:
    """Every run that a problem says to agree with its reference. All with RK4 and a few others are
    quick."""
    for name in KNOWN:
        for row in problems.reference(name).agrees:
            quick = "RK4" in row.integrator or (name in QUICK and row.integrator == "NSGA()")
            marks = () if quick else (pytest.mark.slow,)
            yield pytest.param(name, row, id=f"{name}-{row.integrator}", marks=marks)


@pytest.mark.parametrize(("name", "row"), list(stored()))
def test_runs_agree_with_the_reference(name, row):
    problem, known = problems.get(name), problems.reference(name)
    integrator = eval(row.integrator, vars(integrators))
    law = eval(known.law, vars(laws)) if known.law else None
    options = {"step": problem.t_end / row.steps, "save_every": row.steps}
    run = nsdyn.simulate(problem, integrator, law=law, **options, check=False)
    assert known.error(run.q[-1], run.v[-1]) <= row.error


@pytest.mark.parametrize("name", KNOWN)
def test_references_are_complete(name):
    """Event-driven RK4, error control and NSGA agree to the tolerance; NSGA only nearly where there
    are impacts, which it meets with first order."""
    known, problem = problems.reference(name), problems.get(name)
    assert (len(known.q), len(known.v)) == (len(problem.q0), len(problem.v0))
    assert {"EventDriven(RK4())", "NSGA()"} <= {row.integrator for row in known.agrees}
    careful = [row for row in known.agrees if "EventDriven" in row.integrator or not known.law]
    assert sum("EventDriven" in row.integrator for row in careful) == 2
    assert max(row.error for row in careful) <= known.tolerance
    assert problems.about(name).source and problems.about(name).tags


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

    @natively
    def accelerations(problem):
        model, p = problem.model(), problem.params
        return lagrange(model, model.start(problem.q0, problem.v0, 0.0, p), p).a

    expected = [14222.4439199541138705911625887, -10666.8329399655854029433719415, 0, 0, 0, 0, 0]
    np.testing.assert_allclose(accelerations(problems.andrews()), expected, rtol=1e-11, atol=1e-6)


def test_knife_edge_at_all_times():
    run = nsdyn.simulate(problems.knife_edge(), FINE, step=0.1)
    q, v = exact(run.t)
    np.testing.assert_allclose(run.q, q, atol=1e-10)
    np.testing.assert_allclose(run.v, v, atol=1e-10)


def test_references_of_closed_forms():
    """Stored numbers against the closed forms they come from."""
    known = problems.reference("simple_pendulum")
    q, v = swing(np.array(10.0))
    np.testing.assert_allclose([*q, *v], [*known.q, *known.v], rtol=1e-12)
    h = 1e-5  # they solve the equation of the pendulum
    x, y = swing(np.array(2.0))[0]
    slope = (swing(np.array(2.0 + h))[1] - swing(np.array(2.0 - h))[1]) / (2 * h)
    np.testing.assert_allclose(slope @ [-y, x], -9.81 * x, rtol=1e-7)


def test_impacts_of_the_ball():
    run = nsdyn.simulate(
        problems.bouncing_ball(), EventDriven(RK4()), step=0.03, law=laws.Restitution(0.9)
    )
    np.testing.assert_allclose(run.events.t, impacts(4), rtol=1e-12)
    np.testing.assert_allclose(
        impacts(3)[:3], [0.4515236409857309, 1.264266194760047, 1.995734493156931]
    )


def test_rocking_block_loses_what_housner_says():
    run = nsdyn.simulate(problems.rocking_block(), EventDriven(RK4()), step=3e-3)
    before, after = run.events.v_before[:, 2], run.events.v_after[:, 2]
    np.testing.assert_allclose(after / before, 1 - 1.5 * 0.1**2 / 0.17, rtol=1e-12)
    np.testing.assert_allclose(run.events.t[0], 0.3123085751126223, rtol=1e-8)
    np.testing.assert_allclose(before[0], -0.8934143073025635, rtol=1e-8)


@pytest.mark.slow
def test_captured_impacts_are_of_first_order():
    """NSGA closes contacts at the end of a step: its error stays below a multiple of the step."""
    for name, rate in (("bouncing_ball", 40.0), ("rocking_block", 60.0), ("newtons_cradle", 30.0)):
        problem, known = problems.get(name), problems.reference(name)
        law = eval(known.law, vars(laws))
        for n in (4000, 8000, 16000, 32000):
            step = problem.t_end / n
            run = nsdyn.simulate(problem, NSGA(), step=step, save_every=n, law=law, check=False)
            assert known.error(run.q[-1], run.v[-1]) < rate * step
