"""Programs for short runs are compiled quickly, those for long ones well; the bits are the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nsdyn
from nsdyn import integrators, problems
from nsdyn.driver import again, backend
from nsdyn.native import build
from nsdyn.native.program import written

RK4 = integrators.EventDriven(integrators.RK4())
STEP = 0.01


@pytest.fixture(autouse=True)
def fresh(tmp_path, monkeypatch):
    """As in a new process on a machine with a compiler and an empty cache."""
    monkeypatch.setenv("NSDYN_CACHE", str(tmp_path))
    monkeypatch.setenv("NSDYN_BACKEND", "native")
    monkeypatch.setenv("NSDYN_CXXFLAGS", "")

    def forget():
        monkeypatch.setattr(backend, "_work", type(backend._work)())
        monkeypatch.setattr(again, "_memory", again._Memory())
        for program in (*backend.SINGLE.programs, *backend.GROUP.programs):
            monkeypatch.setattr(program, "_made", type(program._made)())
            program._sources.clear()

    forget()
    return forget


def levels(patch) -> list[bool]:
    """How programs are to be compiled from now on: whether quickly. (All are, to save time.)"""
    found = []
    run = build.subprocess.run

    def log(command, **options):
        found.append("-O0" in command)
        return run([*command, "-O0"], **options)

    patch.setattr(build.subprocess, "run", log)
    return found


def equal(a, b) -> None:
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y), strict=True)


@pytest.mark.parametrize(
    ("problem", "integrator"),
    [
        (problems.three_r_pendulum, RK4),
        (problems.pendulum, integrators.NSGA()),
        pytest.param(problems.wheel_over_pothole, RK4, marks=pytest.mark.slow),
    ],
    ids=("locks", "implicit", "wheel"),
)
def test_a_run_has_the_same_bits(problem, integrator, monkeypatch):
    problem = problem()
    run = lambda: nsdyn.simulate(problem, integrator, step=STEP, check=False)
    first = run()
    backend.SINGLE.quick.advance._made.clear()
    monkeypatch.setattr(backend, "LONG", 0)
    again._memory.__init__()
    second = run()
    assert len(backend.SINGLE.well.advance._made) == 1
    equal(
        (first.q, first.v, first.lam, first.events), (second.q, second.v, second.lam, second.events)
    )


@pytest.mark.slow
def test_a_batch_has_the_same_bits(monkeypatch):
    problem = problems.pendulum()
    q0 = np.asarray(problem.q0) + np.linspace(0, 0.1, 16)[:, None]
    run = lambda: nsdyn.sweep(problem, RK4, q0=q0, step=STEP)
    first = run()
    monkeypatch.setattr(backend, "LONG", 0)
    second = run()
    assert len(backend.GROUP.quick.advance._made) == len(backend.GROUP.well.advance._made) == 1
    equal((first.q, first.v, first.lam), (second.q, second.v, second.lam))


@pytest.mark.parametrize("lanes", [1, 4])
def test_functions_of_the_c_library_have_the_same_bits(lanes):
    """Also of constants, and where there is a shorter way to nearly the same number."""

    def function(x):
        two = jnp.asarray(2.0)
        every = (jnp.tan, jnp.exp2, jnp.cbrt, jax.lax.erf, jnp.expm1, jnp.log1p)
        return [*(f(x) for f in every), *(f(two) * x for f in every), x**two, two**x, x @ x]

    x = np.random.default_rng(1).uniform(0.1, 3.0, (lanes, 40))
    source = written(function, [x[0]], None, lanes)
    args = [x if lanes > 1 else x[0]]
    equal(source.program(quick=True)(args), source.program()(args))


def test_a_long_run_is_compiled_well_and_a_short_one_quickly(monkeypatch):
    problem = problems.pendulum()
    steps = round((problem.t_end - problem.t0) / STEP)
    monkeypatch.setattr(backend, "LONG", 3 * steps)
    found = levels(monkeypatch)
    runs = [nsdyn.simulate(problem, RK4, step=STEP) for _ in range(3)]
    assert found == [True, True]  # the beginning, and the steps
    runs += [nsdyn.simulate(problem, RK4, step=STEP) for _ in range(2)]
    assert found == [True, True, False]  # four runs in all are long
    for run in runs[1:]:
        equal(runs[0].q, run.q)


def test_one_long_run_is_compiled_once(monkeypatch):
    monkeypatch.setattr(backend, "LONG", 10)
    found = levels(monkeypatch)
    nsdyn.simulate(problems.pendulum(), RK4, step=STEP)
    assert found == [True, False]


def test_groups_of_a_sweep_count(monkeypatch):
    problem = problems.pendulum()
    steps = round((problem.t_end - problem.t0) / STEP)
    monkeypatch.setattr(backend, "LONG", 2 * steps)
    found = levels(monkeypatch)
    nsdyn.sweep(problem, RK4, q0=np.tile(problem.q0, (3 * backend.LANES, 1)), step=STEP)
    assert found == [True, False]


def test_what_was_compiled_well_serves_short_runs_of_later_processes(fresh, monkeypatch):
    problem = problems.pendulum()
    with monkeypatch.context() as patch:
        patch.setattr(backend, "LONG", 10)
        nsdyn.simulate(problem, RK4, step=STEP)
    fresh()
    found = levels(monkeypatch)
    nsdyn.simulate(problem, RK4, step=STEP)
    assert found == []


def test_a_long_run_of_a_later_process_is_compiled_well(fresh, monkeypatch):
    problem = problems.pendulum()
    nsdyn.simulate(problem, RK4, step=STEP)
    fresh()
    found = levels(monkeypatch)
    monkeypatch.setattr(backend, "LONG", 10)
    nsdyn.simulate(problem, RK4, step=STEP)
    assert found == [False]


def test_what_is_unknown_is_asked_once(monkeypatch):
    asked = []
    monkeypatch.setenv("NSDYN_BACKEND", "auto")

    def refuse(*_):
        asked.append(1)
        raise backend.Unsupported("this")

    monkeypatch.setattr(backend, "written", refuse)
    monkeypatch.setattr(backend, "LONG", 20)
    problem = problems.pendulum(t_end=0.1)
    for _ in range(3):
        assert nsdyn.simulate(problem, RK4, step=STEP).backend == "xla"
    assert len(asked) == 1
