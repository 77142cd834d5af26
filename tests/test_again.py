"""Runs whose like was made before: the same answers as the first time; nothing is overlooked."""

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import jax
import numpy as np
import pytest

import nsdyn
from nsdyn import integrators, problems
from nsdyn.driver import again

RK4 = integrators.EventDriven(integrators.RK4())
PROBLEM = problems.three_r_pendulum()


@pytest.fixture(autouse=True, scope="module")
def native():
    """The first run, which all others repeat."""
    if nsdyn.simulate(PROBLEM, RK4, step=0.01).backend != "native":
        pytest.skip("no native backend")


def fresh(**values) -> nsdyn.Solution:
    """A run that is recognised by nothing: of a problem with these values as its own."""
    problem = PROBLEM
    for name, x in values.items():
        problem = dataclasses.replace(problem, **{name: x})
    return nsdyn.simulate(problem, RK4, step=0.01)


def long_way(monkeypatch, **options) -> nsdyn.Solution:
    with monkeypatch.context() as patch:
        patch.setattr(again.Known, "run", lambda *_: None)
        return nsdyn.simulate(PROBLEM, RK4, **options)


def equal(a, b) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        assert type(x) is type(y) and x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


OPTIONS = (
    {"step": 0.01},
    {"step": 0.01, "save_every": 7, "t_end": 1.0},
    {"step": 0.003, "check": False, "max_events": 5},
    {"step": 0.01, "params": {**PROBLEM.params, "m": 2.0}},
    {"step": 0.01, "q0": [0.1, 0.2, 0.3], "v0": np.array([0, 1, 0])},
)


@pytest.mark.parametrize("options", OPTIONS)
def test_the_same_as_the_first_time(options, monkeypatch):
    expected = long_way(monkeypatch, **options)
    found = again.find(PROBLEM, RK4, None, None)
    assert found is not None
    solutions = [nsdyn.simulate(PROBLEM, RK4, **options) for _ in range(2)]
    assert found.misses == 0
    for solution in solutions:
        equal(solution, expected)
    assert repr(solutions[0]) == repr(expected)


def test_it_is_taken(monkeypatch):
    """Also with equal settings in other objects."""
    nsdyn.simulate(PROBLEM, RK4, step=0.01)
    monkeypatch.setattr("nsdyn.driver.single_run.setup", None)  # the long way would call it
    nsdyn.simulate(PROBLEM, RK4, step=0.01)
    nsdyn.simulate(PROBLEM, integrators.EventDriven(integrators.RK4()), step=0.02, check=False)


def test_other_values():
    """Each run has its own values: those of the runs before leave nothing behind."""
    changes = ({"q0": np.array([0.3, -0.2, 0.1])}, {"params": {**PROBLEM.params, "m": 3.0}}, {})
    runs = [nsdyn.simulate(PROBLEM, RK4, step=0.01, **change) for change in changes * 2]
    for run, change in zip(runs, changes * 2, strict=True):
        np.testing.assert_array_equal(run.q, fresh(**change).q)


def test_results_belong_to_the_caller():
    first = nsdyn.simulate(PROBLEM, RK4, step=0.01)
    q, params = first.q.copy(), dict(first.params)
    first.q[:], first.t[:] = np.nan, np.nan
    first.params.clear()
    second = nsdyn.simulate(PROBLEM, RK4, step=0.01)
    np.testing.assert_array_equal(second.q, q)
    assert list(second.params) == list(params) and np.isfinite(second.t).all()


WRONG = (
    ({"q0": [0.0, 1.0]}, r"q0: expected shape \(3,\)"),
    ({"v0": "fast"}, "v0: expected numbers"),
    ({"params": {**PROBLEM.params, "m": [1.0, 2.0]}}, r"params: expected the structure"),
    ({"params": {**PROBLEM.params, "m": np.ones(2)}}, r"params\['m'\]: expected shape \(\)"),
    ({"params": {"m": 1.0}}, "params: expected the names"),
    ({"step": -0.1}, "step: expected a positive number"),
    ({"step": np.inf}, "step: expected a finite number"),
    ({"t_end": 0.0}, "t_end: expected a time after"),
    ({"save_every": 1.5}, "save_every: expected a positive whole number"),
    ({"max_events": 0}, "max_events: expected a positive whole number"),
)


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_what_is_wrong_is_still_refused(options, message):
    with pytest.raises(nsdyn.ProblemError, match=message):
        nsdyn.simulate(PROBLEM, RK4, **{"step": 0.01} | options)


def test_traced_values_are_refused():
    run = lambda q0: nsdyn.simulate(PROBLEM, RK4, step=0.01, q0=q0).q
    with pytest.raises(nsdyn.ProblemError, match=r"call nsdyn\.rollout"):
        jax.jit(run)(PROBLEM.q0)


def test_a_failure_is_told_as_the_first_time():
    with pytest.raises(nsdyn.SimulationError, match="LOG_FULL"):
        nsdyn.simulate(PROBLEM, RK4, step=0.01, max_events=1)


def test_a_wrong_start_is_found():
    """A start is sound by itself, not because another one was."""
    problem = problems.n_four_bar(windows=1, t_end=0.02)
    nsdyn.simulate(problem, RK4, step=0.01)
    with pytest.raises(nsdyn.ProblemError, match="q0: expected a state that satisfies"):
        nsdyn.simulate(problem, RK4, step=0.01, q0=np.asarray(problem.q0) + 0.1)


def test_threads():
    """Each has memory of its own."""
    starts = [np.array([0.1 * k, 0.0, 0.0]) for k in range(8)]
    run = lambda q0: nsdyn.simulate(PROBLEM, RK4, step=1e-3, q0=q0, check=False).q[-1]
    expected = [run(q0) for q0 in starts]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(run, starts * 4))
    np.testing.assert_array_equal(found, expected * 4)
