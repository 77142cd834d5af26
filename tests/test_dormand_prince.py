"""The methods of Dormand and Prince: orders across an event, errors that follow the tolerances,
derivatives, batches, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import BALL, ball, pegged_swing, run
from references.pegged_swing import swing_reference
from references.three_r import solve
from test_blocks import Compilations

import nsdyn
from nsdyn import laws
from nsdyn.driver.arguments import plain_values, setup
from nsdyn.driver.backend import LANES
from nsdyn.driver.march import start
from nsdyn.integrators import RK4, DormandPrince, EventDriven, dormand_prince
from nsdyn.problems.three_r_pendulum import three_r_pendulum
from nsdyn.status import Status
from nsdyn.stepping.detect import between

LOOSE = 1e12  # every step is accurate enough, so that one step leads from sample to sample


def method(order, tolerance, **options):
    return EventDriven(DormandPrince(order, rtol=tolerance, atol=tolerance, **options))


def swing_errors(integrator, step, apart=0.1):
    """Errors in the time of the event and, after it, in q and v."""
    found = nsdyn.simulate(pegged_swing(), integrator, step=step, save_every=round(apart / step))
    after = found.t > 0.5
    t_event, q, v = swing_reference(found.t[after])
    assert len(found.events) == 1
    return np.array(
        [
            abs(found.events.t[0] - t_event),
            np.abs(found.q[after] - q).max(),
            np.abs(found.v[after] - v).max(),
        ]
    )


@pytest.mark.parametrize(("order", "steps"), [(5, (0.02, 0.01)), (8, (0.05, 0.025))])
def test_orders_across_an_event(order, steps):
    errors = [swing_errors(method(order, LOOSE), step) for step in steps]
    assert np.all(np.log2(errors[0] / errors[1]) > order - 0.4), errors


@pytest.mark.parametrize("order", [5, 8])
def test_errors_follow_the_tolerances(order):
    errors = [swing_errors(method(order, tolerance), 0.1) for tolerance in (1e-4, 1e-7, 1e-10)]
    for tolerance, found in zip((1e-4, 1e-7, 1e-10), errors, strict=True):
        assert np.all(found < 20 * tolerance), (tolerance, found)
    assert np.all(errors[2] < 1e-3 * errors[0])


def test_three_r_pendulum_with_both_locks():
    q, v = solve().at(2.0)
    settings = {"step": 0.25, "law": laws.MuellerTransition()}  # the second lock is between samples
    found = nsdyn.simulate(three_r_pendulum(), method(8, 1e-11), **settings)
    assert np.allclose(found.events.t, [0.8, 1.3], rtol=0, atol=1e-13)
    assert np.abs(found.q[-1] - q).max() < 1e-9 and np.abs(found.v[-1] - v).max() < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev], ids=["fwd", "rev"])
def test_derivatives_by_replay_of_the_accepted_steps(mode):
    """Against differences; the event time depends on v0."""
    integrator = method(5, 1e-9, max_steps=64)
    speeds = lambda speed: jnp.stack([0.6 * speed, 0.8 * speed])
    final = lambda s: nsdyn.rollout(pegged_swing(), integrator, step=0.4, v0=speeds(s)).q[-1]
    plain = lambda s: nsdyn.simulate(pegged_swing(), integrator, step=0.4, v0=speeds(s)).q[-1]
    found = jax.jit(mode(final))(0.5)
    d = 1e-4
    wide, narrow = (plain(0.5 + x) - plain(0.5 - x) for x in (2 * d, d))
    central = (8 * narrow - wide) / (12 * d)
    assert np.abs(found - central).max() < 1e-6 * np.abs(found).max()


def spring(q, v, t, p):
    return -p["k"] * q


def oscillator(k=1.0, t_end=0.8):
    """Nothing ever switches."""
    system = nsdyn.System(mass=BALL.mass, force=spring)
    return nsdyn.Problem("spring", system, q0=[1.0], v0=[0.0], t_end=t_end, params={"k": k})


@pytest.mark.parametrize("order", [5, 8])
@pytest.mark.parametrize("mode", [jax.grad, jax.jacfwd])
def test_derivatives_where_there_are_no_guards(mode, order):
    """d/dk cos(sqrt(k) t) = -t sin(sqrt(k) t)/(2 sqrt(k)), at a time off the grid of samples."""
    integrator = method(order, 1e-10, max_steps=32)
    final = lambda k: nsdyn.rollout(oscillator(), integrator, step=0.3, params={"k": k}).q[-1, 0]
    w = np.sqrt(2.0)
    assert abs(jax.jit(mode(final))(2.0) + 0.8 * np.sin(w * 0.8) / (2 * w)) < 1e-8


def test_a_batch_equals_single_runs():
    speeds = np.linspace(0.0, 0.5, LANES)[:, None] * [0.6, 0.8]
    options = {"step": 0.2, "integrator": method(5, 1e-8)}
    together = nsdyn.sweep(pegged_swing(), v0=speeds, **options)
    for i in (0, LANES - 1):
        alone = nsdyn.simulate(pegged_swing(), v0=speeds[i], **options)
        assert np.abs(together.q[i] - alone.q).max() < 1e-12


def test_a_bouncing_ball_comes_to_rest():
    """Many events between two samples; the ball rests at 1.35 s after the first impact."""
    found = run(ball(), method(5, 1e-9), step=0.5, law=laws.Restitution(0.5))
    assert int(found.status) == 0 and abs(float(found.q[-1, 0])) < 1e-9
    assert np.allclose(found.events.t[0], np.sqrt(2 / 9.81), atol=1e-9)


def test_too_many_steps_are_told():
    with pytest.raises(nsdyn.SimulationError, match="max_steps") as caught:
        nsdyn.simulate(pegged_swing(), method(5, 1e-12, max_steps=5), step=0.4)
    assert caught.value.status is Status.TOO_MANY_STEPS


def test_too_many_steps_are_told_where_there_are_no_guards():
    found = run(oscillator(k=1e8), method(5, 1e-6, max_steps=5), step=0.5)
    assert int(found.status) == Status.TOO_MANY_STEPS and float(found.t_stop) < 0.5


def test_another_tolerance_is_a_number_of_the_program():
    assert len(jax.tree.leaves(DormandPrince())) == 2
    for wrong, words in (
        ({"order": 4}, "expected 5 or 8"),
        ({"rtol": 0.0}, "expected a positive number"),
        ({"atol": -1.0}, "expected a positive number"),
        ({"max_steps": 0}, "expected at least 1"),
    ):
        with pytest.raises(nsdyn.ProblemError, match=words):
            DormandPrince(**wrong)


# Samples at arbitrary times: steps end there. The event is at 0.43358 s.

TIMES = np.array([0.7771, 0.0317, 0.4357, 0.1571, 0.6173, 0.4321, 0.3533])


@pytest.mark.parametrize("order", [5, 8])
def test_samples_at_arbitrary_times_are_as_good_as_the_tolerance(order):
    times = np.sort(TIMES)
    for tolerance in (1e-5, 1e-10):
        found = nsdyn.simulate(pegged_swing(), method(order, tolerance), step=0.5, save_at=TIMES)
        np.testing.assert_array_equal(found.t, times)
        np.testing.assert_array_equal(found.mode, times > 0.43358)
        _, q, v = swing_reference(times[4:])
        assert np.abs(found.q[4:] - q).max() < 20 * tolerance
        assert np.abs(found.v[4:] - v).max() < 20 * tolerance
        fine = nsdyn.simulate(pegged_swing(), EventDriven(RK4()), step=2e-4, save_at=TIMES)
        assert np.abs(found.q - fine.q).max() < 20 * tolerance
        assert np.abs(found.v - fine.v).max() < 20 * tolerance


def test_other_times_of_samples_compile_nothing(monkeypatch):
    monkeypatch.setenv("NSDYN_BACKEND", "xla")
    options = {"step": 0.5, "integrator": method(5, 1e-7)}
    few = nsdyn.simulate(pegged_swing(), save_at=TIMES, **options)
    with Compilations() as others:
        # more than a program knows at a time, and times of the grid, and some twice
        times = np.concatenate([TIMES, np.linspace(0.0, 0.8, 3001), TIMES])
        many = nsdyn.simulate(pegged_swing(), save_at=times, **options)
    assert others.count == 0
    np.testing.assert_array_equal(many.t, np.sort(times))
    assert len(many.events) == 1 and not np.any(np.isnan(many.q))
    at = np.searchsorted(many.t, few.t)
    np.testing.assert_array_equal(many.q[at], many.q[at + 1])
    assert np.abs(many.q[at] - few.q).max() < 1e-5


@pytest.mark.slow
def test_samples_of_a_batch_and_of_a_pure_run():
    options = {"step": 0.5, "integrator": method(5, 1e-8), "save_at": TIMES}
    alone = nsdyn.simulate(pegged_swing(), **options)
    pure = nsdyn.rollout(pegged_swing(), **options)
    batch = nsdyn.sweep(pegged_swing(), v0=np.zeros((2, 2)), **options)
    for name in ("t", "q", "v", "lam", "mode", "energy"):
        for other in (pure, batch[1]):
            np.testing.assert_allclose(getattr(other, name), getattr(alone, name), atol=1e-10)


def test_samples_at_arbitrary_times_are_differentiable():
    times = np.array([0.2113, 0.737])
    integrator = method(5, 1e-11, max_steps=64)
    options = {"step": 0.4, "save_at": times}
    place = lambda k: nsdyn.rollout(oscillator(), integrator, params={"k": k}, **options).q[:, 0]
    w = np.sqrt(2.0)
    for mode in (jax.jacfwd, jax.jacrev):
        exact = -times * np.sin(w * times) / (2 * w)
        assert np.abs(jax.jit(mode(place))(2.0) - exact).max() < 1e-9


def test_a_run_that_stops_keeps_the_samples_until_then():
    stop = method(5, 1e-9, max_steps=200)
    options = {"step": 0.1, "params": {"k": 1e8}, "save_at": [0.0001, 0.0005, 0.09]}
    with pytest.raises(nsdyn.SimulationError, match="max_steps") as caught:
        nsdyn.simulate(oscillator(), stop, **options)
    assert caught.value.partial.t.tolist() == [0.0001, 0.0005]


# Guards between the ends of long steps


def trees(size):
    """All rooted trees with so many vertices, as sorted tuples of the trees at the root."""
    forests = lambda left, largest: (
        [()]
        if left == 0
        else [
            (tree, *rest)
            for k in range(1, left + 1)
            for tree in trees(k)
            if largest is None or tree <= largest
            for rest in forests(left - k, tree)
        ]
    )
    return sorted({tuple(sorted(forest)) for forest in forests(size - 1, None)})


def vertices(tree):
    return 1 + sum(map(vertices, tree))


def density(tree):
    return vertices(tree) * np.prod([density(branch) for branch in tree])


def weight(tree, A):
    """The elementary weights of all stages."""
    return np.prod([A @ weight(branch, A) for branch in tree], axis=0) * np.ones(len(A))


@pytest.mark.parametrize(("order", "expected"), [(5, 4), (8, 6)])
def test_conditions_of_the_dense_output(order, expected):
    """sum_i b_i(x) Phi_i = x^n/gamma for all trees of n <= order vertices, and not beyond."""
    table = dormand_prince._table(order, True)
    A, last = table.A, len(table.A) - 1
    first, end = np.eye(last + 1)[[0, last]]
    assert [len(trees(n)) for n in range(1, 8)] == [1, 1, 2, 4, 9, 20, 48]
    worst = np.zeros(expected + 1)
    for x in (0.1, 0.37, 0.5, 0.9):
        bend = (x * (1 - x)) ** 2 * (x ** np.arange(len(table.bend)) @ table.bend)
        ends = x * (1 - x) ** 2 * first + x**2 * (3 - 2 * x) * A[last] - x**2 * (1 - x) * end
        for n in range(1, expected + 2):
            for tree in trees(n):
                miss = abs((ends + bend) @ weight(tree, A) - x**n / density(tree))
                worst[n - 1] = max(worst[n - 1], miss)
    assert np.all(worst[:-1] < 1e-13) and worst[-1] > 1e-8, worst


@pytest.mark.parametrize(("order", "expected"), [(5, 5), (8, 7)])
def test_dense_output_is_nearly_as_accurate_as_the_steps(order, expected):
    """In one step of the swing, away from its start, against two shorter ones."""
    problem, integrator = pegged_swing(), method(order, LOOSE)
    values = plain_values(problem, None, None, None)
    run = setup(problem, integrator, None, step=0.1)
    model, state = start(run, values)
    p = values.params
    walk = jax.jit(lambda state, t: integrator.step_smooth(model, state, t, run.law, p)[0])
    state = walk(state, 0.15)
    x, errors = 0.37, []
    for h in (0.1, 0.05):
        end = walk(state, 0.15 + h)
        found, _ = between(model, state, end, h, values.params, x)
        exact = walk(walk(state, 0.15 + x * h / 2), 0.15 + x * h).point
        errors.append([np.abs(found.q - exact.q).max(), np.abs(found.v - exact.v).max()])
    errors = np.array(errors)
    assert np.all(np.log2(errors[0] / errors[1]) > expected - 0.2), errors
    assert np.all(errors[1] < (1e-6, 2e-9)[order == 8])


def four_waves(q, v, lam, t, p, mode, held):
    """0.8 + cos(4 arccos q): along q = cos t it is below zero near pi/4 and 3 pi/4. In every
    second mode it is watched from below."""
    return (1 - 2 * (mode % 2)) * (0.8 + 8 * q**4 - 8 * q**2 + 1)


def count(fired, q, v, t, p, mode):
    return mode + 1


COUNTED = nsdyn.Transitions(rows=lambda q, t, p, mode, held: q[:0], guards=four_waves, after=count)


@pytest.mark.parametrize("order", [5, 8])
def test_a_guard_that_dips_twice_within_a_long_step_is_found(order):
    """Without events a tolerance of 1e-3 leads through all three seconds in few steps."""
    system = nsdyn.System(mass=BALL.mass, force=spring)
    problem = nsdyn.Problem(
        "waves", system, COUNTED, q0=[1.0], v0=[0.0], t_end=3.0, params={"k": 1.0}
    )
    zero, turn = np.arccos(-0.8), 2 * np.pi
    exact = np.array([zero, turn - zero, turn + zero, 2 * turn - zero]) / 4
    for tolerance in (1e-3, 1e-9):
        found = nsdyn.simulate(problem, method(order, tolerance), step=3.0)
        assert len(found.events) == 4
        assert np.abs(found.events.t - exact).max() < 5 * tolerance
