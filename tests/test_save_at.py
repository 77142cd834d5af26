"""Samples at arbitrary times: as good as the method, on both sides of an event, in all three ways
to run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import pegged_swing, track, track_exact
from test_blocks import Compilations
from test_derivatives import close, differences
from test_switch_orders import AFTER, GRAVITIES
from test_switch_orders import PROBLEM as KINKED
from test_switch_orders import exact as exact_after

import nsdyn
from nsdyn import laws
from nsdyn.driver.backend import LANES
from nsdyn.integrators import NSGA, RK4, EventDriven

METHOD = EventDriven(RK4())
STEPS = (0.02, 0.01)
# Off all grids; the events of the swing are at 0.43358 s. In no order.
TIMES = np.array([0.7771, 0.0317, 0.4357, 0.1571, 0.6173, 0.4321, 0.3533])
GRAVITY = 9.81


def simulated(problem, method, **options):
    return nsdyn.simulate(problem, method, save_at=TIMES, **options)


def rolled(problem, method, **options):
    return jax.jit(lambda: nsdyn.rollout(problem, method, save_at=TIMES, **options))()


def swept(problem, method, **options):
    params = {**problem.params, "g": np.linspace(1.0, GRAVITY, LANES)}
    return nsdyn.sweep(problem, method, save_at=TIMES, params=params, **options)[LANES - 1]


@pytest.fixture(scope="module")
def exact():
    """The swing with a fine step, at these times."""
    return nsdyn.simulate(pegged_swing(), METHOD, step=2e-4, save_at=TIMES)


@pytest.mark.parametrize("way", [simulated, swept])
def test_dense_output_has_the_order_of_the_method(exact, way):
    runs = [way(pegged_swing(), METHOD, step=step) for step in STEPS]
    for run in runs:
        np.testing.assert_array_equal(run.t, np.sort(TIMES))
        np.testing.assert_array_equal(run.mode, [0, 0, 0, 0, 1, 1, 1])
    for name, bound in (("q", 3.7), ("v", 3.3)):
        errors = [np.abs(getattr(run, name) - getattr(exact, name)).max() for run in runs]
        assert np.log2(errors[0] / errors[1]) > bound, (name, errors)
        assert errors[1] < 2e-5


def test_all_ways_give_the_same():
    one, two, three = (way(pegged_swing(), METHOD, step=0.01) for way in (simulated, rolled, swept))
    for name in ("t", "q", "v", "lam", "mode", "energy"):
        for other in (two, three):
            np.testing.assert_allclose(getattr(one, name), getattr(other, name), atol=1e-12)
    assert one.save_every is None and len(one.events) == len(two.events) == 1


def test_multipliers_are_linear_between_the_states(exact):
    """Two samples in one step: of second order in the step, wherever in it they lie."""
    runs = [simulated(pegged_swing(), METHOD, step=step) for step in (0.02, 0.0025)]
    away = np.abs(exact.t - exact.events.t[0]) > 0.02
    errors = [np.abs(run.lam - exact.lam)[away].max() for run in runs]
    assert errors[1] < 0.1 and errors[1] < errors[0] / 20, errors


@pytest.mark.parametrize(
    ("scheme", "least", "most"), [(METHOD, 3.8, 4.5), (NSGA(), 0.7, 1.3)], ids=["RK4", "NSGA"]
)
def test_orders_across_a_jump_at_times_off_the_grid(scheme, least, most):
    """Against a reference that shares no code with nsdyn."""

    def error(step):
        found = []
        for g in GRAVITIES:
            run = nsdyn.simulate(
                KINKED, scheme, step=step, params={"m": 1.0, "g": g}, save_at=AFTER, check=False
            )
            _, q, v = exact_after(g)
            found.append([np.abs(run.q - q).max(), np.abs(run.v - v).max()])
        return np.max(found, axis=0)

    coarse, fine = error(0.0047), error(0.00235)
    orders = np.log2(coarse / fine)
    assert orders.min() > least and orders.max() < most, (coarse, fine)


def test_straight_motion_is_met_exactly():
    """On straight tracks with constant force a cubic has no error, also within the step of the
    event."""
    t = np.array([0.1, 0.121, 0.1249, 0.1251, 0.127, 0.3333])
    run = nsdyn.simulate(track(), METHOD, step=0.01, save_at=t)
    exact = [track_exact(time)[1:] if time > 0.125 else ([4 * time, 0], [4, 0]) for time in t]
    np.testing.assert_allclose(run.q, [q for q, _ in exact], atol=1e-13)
    np.testing.assert_allclose(run.v, [v for _, v in exact], atol=1e-12)


def test_other_times_compile_nothing(exact):
    with Compilations() as others:
        run = nsdyn.simulate(pegged_swing(), METHOD, step=0.01, save_at=np.linspace(0.0, 0.8, 150))
    assert others.count == 0 and len(run.t) == 150


def test_times_of_the_grid_give_its_samples():
    on_grid = nsdyn.simulate(pegged_swing(), METHOD, step=0.03)
    run = nsdyn.simulate(pegged_swing(), METHOD, step=0.03, save_at=on_grid.t[::-1])
    for name in ("t", "q", "v", "lam", "mode", "energy"):
        np.testing.assert_array_equal(getattr(run, name), getattr(on_grid, name))
    event = on_grid.events[0]
    at_event = nsdyn.simulate(pegged_swing(), METHOD, step=0.03, save_at=[event.t])
    assert at_event.mode.tolist() == [1] and at_event.q.shape == (1, 2)
    np.testing.assert_array_equal(at_event.v[0], event.v_after)


def test_a_run_that_stops_keeps_the_samples_until_then():
    problem = track()
    with pytest.raises(nsdyn.SimulationError) as caught:
        nsdyn.simulate(
            problem, METHOD, step=0.01, law=laws.Restitution(0.5), save_at=[0.3, 0.101, 0.111]
        )
    partial = caught.value.partial
    assert caught.value.status is nsdyn.Status.LAW_VIOLATES
    assert partial.t.tolist() == [0.101, 0.111] and 0.12 <= caught.value.t <= 0.13


@pytest.mark.parametrize(
    ("times", "words"),
    [
        ([0.1, 0.9], r"save_at: expected times from t0 = 0 to t_end = 0\.8, found 0\.9"),
        ([-0.1], "found -0.1"),
        ([0.1, np.nan], "found nan"),
        ([], "expected a list of times"),
        (0.3, "expected a list of times|expected times"),
        ("now", "expected times"),
    ],
)
def test_wrong_times(times, words):
    for way in (nsdyn.simulate, nsdyn.rollout):
        with pytest.raises(nsdyn.ProblemError, match=words):
            way(pegged_swing(), METHOD, step=0.01, save_at=times)
    with pytest.raises(nsdyn.ProblemError, match="save_at and save_every"):
        nsdyn.simulate(pegged_swing(), METHOD, step=0.01, save_at=[0.1], save_every=2)


@pytest.mark.slow
def test_samples_are_differentiable():
    """On both sides of the event, whose time moves with the parameters, and inside its step."""

    def values(x):
        times = [0.2113, 0.4313, 0.4353, 0.5931]
        out = nsdyn.rollout(
            pegged_swing(), METHOD, step=0.02, params={"m": x[0], "g": x[1]}, save_at=times
        )
        return jnp.concatenate([out.q.ravel(), out.v.ravel(), out.energy])

    x = jnp.array([1.3, GRAVITY])
    assert close(jax.jit(jax.jacfwd(values))(x), differences(jax.jit(values), x))
