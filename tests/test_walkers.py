"""Walkers against energy balances, published gaits and finite differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import run
from scipy.integrate import solve_ivp
from study_files import TABLES

import nsdyn
from nsdyn import Status, integrators, studies
from nsdyn.problems.compass_walker import compass_walker, feet, force, mass, potential
from nsdyn.problems.rimless_wheel import FIRST, rimless_wheel
from nsdyn.problems.simplest_walker import gait_of, simplest_walker
from nsdyn.studies import gaits, walking
from nsdyn.studies.lib import archive

RK4 = integrators.EventDriven(integrators.RK4())


# Rimless wheel


def wheel_run(**parameters):
    return run(rimless_wheel(**parameters), RK4, step=5e-3, t_end=32.0, save_every=16)


def omega(v):
    """Of a wheel with L = 1: the speed of its hub."""
    return np.hypot(v[..., 0], v[..., 1])


def test_steady_rolling_of_a_rimless_wheel():
    out = wheel_run()
    count, events = int(out.events.count), out.events.records
    assert int(out.status) == 0 and count > 30
    assert np.array_equal(events.mode_after[:count], FIRST + 1 + np.arange(count))
    ratio = omega(events.v_after[:count]) / omega(events.v_before[:count])
    assert np.abs(ratio - np.cos(np.pi / 4)).max() < 1e-12
    assert abs(omega(events.v_after[count - 1]) - 1.0954628396) < 1e-9
    # feet stand on the slope where geometry says, however many strikes there were
    assert abs(events.q[count - 1, 0] - (2 * count - 1) * np.sin(np.pi / 8)) < 1e-12


def test_a_slow_rimless_wheel_rocks_on_two_feet():
    out = wheel_run(omega0=0.5)
    events = out.events.records
    assert int(out.status) == Status.TOO_MANY_SWITCHES
    assert np.array_equal(events.mode_after[:4], FIRST - np.array([1, 0, 1, 0]))
    assert (
        np.abs(omega(events.v_after[:4]) / omega(events.v_before[:4]) - np.cos(np.pi / 4)).max()
        < 1e-12
    )


@pytest.mark.slow
def test_a_rimless_wheel_with_inertia():
    """(6) and (7) for other numbers, none of them 1."""
    I, m, L, slope, g, alpha = 0.3, 2.0, 0.8, 0.25, 5.0, np.pi / 6
    problem = rimless_wheel(spokes=6, m=m, L=L, I=I, slope=slope, g=g, omega0=3.0)
    assert problem.check().ok
    out = run(problem, RK4, step=5e-3, t_end=20.0, save_every=16)
    J, count = I + m * L**2, int(out.events.count)
    r = (I + m * L**2 * np.cos(2 * alpha)) / J
    before, after = (np.asarray(v)[:count, 2] for v in (out.events.v_before, out.events.v_after))
    assert int(out.status) == 0 and np.abs(after / before - r).max() < 1e-12
    gain = 4 * m * g * L * np.sin(slope) * np.sin(alpha) / J
    assert np.abs(before[1:] ** 2 - after[:-1] ** 2 - gain).max() < 1e-8
    assert abs(after[-1] - r * np.sqrt(gain / (1 - r**2))) < 1e-6


def test_rimless_wheel_is_sound_and_shares_functions():
    one = rimless_wheel()
    assert one.check().ok
    assert jax.tree.structure(one) == jax.tree.structure(rimless_wheel(L=0.5, slope=0.1))
    line = np.asarray(one.shape(one.q0, one.params)[0])
    assert line.shape == (16, 2) and np.allclose(line[1], 0.0) and np.allclose(line[::2], one.q0)
    assert np.allclose(line[3], [-2 * np.sin(np.pi / 8), 0.0])  # the foot that has just left


# Compass. All strides run through one program: the simplest walker, too, takes about 0.75 s where
# g/l = 25 (1/s)^2.

STEP, LONG = 5e-3, 1.2
TICK = 0.2  # its unit of time, sqrt(l/g)


@pytest.fixture(scope="module")
def goswami():
    return gaits.gait(compass_walker(), (0.27, 1.1, 0.4), STEP, LONG)


def test_gait_of_the_compass(goswami):
    assert goswami.residual < 1e-10
    # Public simulations of this compass quote, with angles from the vertical, 0.218669 (standing)
    # and 0.323389 (swinging), and the rates 1.092386 and 0.377377.
    assert np.abs(goswami.state - [(0.218669 + 0.323389) / 2, 1.092386, 0.377377]).max() < 5e-6
    assert 0.3 < np.abs(goswami.multipliers[0]) < 1.0
    again = gaits.gait(compass_walker(), (0.28, 1.08, 0.36), STEP, LONG)
    assert np.abs(again.state - goswami.state).max() < 1e-10


def test_multipliers_against_finite_differences(goswami):
    after = lambda x: gaits.stride(compass_walker(), x, STEP, LONG).state
    e = 1e-5
    slope = np.stack(
        [
            (after(goswami.state + e * d) - after(goswami.state - e * d)) / (2 * e)
            for d in np.eye(3)
        ],
        axis=1,
    )
    found = np.linalg.eigvals(slope)
    found = found[np.argsort(-np.abs(found))]
    key = lambda x: (np.round(np.abs(x), 6), x.imag)
    assert (
        np.abs(np.array(sorted(found, key=key)) - sorted(goswami.multipliers, key=key)).max() < 1e-6
    )


def test_light_feet_lead_to_the_simplest_walker():
    guess, scale = gait_of(0.2003, -0.1998 / TICK), np.array([1.0, TICK, TICK, 1 / TICK])

    def found(eps):
        gait = gaits.gait(simplest_walker(eps=eps, g=TICK**-2), guess, STEP, LONG)
        assert gait.residual < 1e-10 and np.abs(gait.multipliers).max() < 1.0
        return scale * np.append(gait.state, gait.period)

    coarse, middle, fine = found(1e-2), found(1e-3), found(1e-4)
    ratio = (coarse - middle) / (middle - fine)  # 10 in the limit
    assert np.abs(ratio - 10).max() < 0.2
    theta, rate, swing, period = limit = (10 * fine - middle) / 9
    assert abs(theta - 0.2003) < 5e-5 and abs(rate - 0.1998) < 5e-5 and abs(period - 3.882) < 5e-4
    # the same by the equations of the limit, integrated by another method
    rates = lambda t, y: [y[1], np.sin(y[0] - 0.009), y[3], pendulum(y)]
    pendulum = lambda y: np.sin(y[0] - 0.009) + np.sin(y[2]) * (y[1] ** 2 - np.cos(y[0] - 0.009))
    end = solve_ivp(
        rates, (0, period), [theta, -rate, 2 * theta, swing - rate], rtol=1e-11, atol=1e-12
    ).y[:, -1]
    turned = -np.cos(2 * end[0]) * end[1]
    assert np.abs(np.array([-end[0], turned, turned * np.cos(2 * end[0])]) - limit[:3]).max() < 2e-6
    assert abs(end[2] - 2 * end[0]) < 2e-6


@pytest.mark.parametrize(
    "state", [(0.27, 0.3, 0.4), (0.27, 3.0, 0.4)], ids=["too slow", "too fast for the other leg"]
)
def test_a_walker_may_fall(state):
    assert not gaits.stride(compass_walker(), state, STEP, 1.2).struck
    with pytest.raises(nsdyn.ProblemError, match="no heel strike"):
        gaits.gait(compass_walker(), state, STEP, LONG)


@pytest.mark.slow
def test_compass_is_sound_and_is_what_its_energies_say():
    problem = compass_walker()
    p = problem.params
    assert problem.check().ok and simplest_walker().check().ok
    assert jax.tree.structure(problem.constraint) == jax.tree.structure(
        simplest_walker().constraint
    )
    assert np.allclose(feet(problem.q0, p), [[0.0, 0.0], [-2 * np.sin(0.27), 0.0]])

    def kinetic(q, v, p):
        legs = lambda q: q[:2][None] - p["b"] * jnp.stack([jnp.sin(q[2:]), jnp.cos(q[2:])], axis=-1)
        speeds = jax.jvp(legs, (q,), (v,))[1]
        return 0.5 * p["mh"] * jnp.sum(v[:2] ** 2) + 0.5 * p["m"] * jnp.sum(speeds**2)

    system = nsdyn.System.from_lagrangian(kinetic, potential)
    both = lambda mass, force: jax.jit(lambda q, v: (mass(q, p), force(q, v, 0.0, p)))
    state = jnp.array([0.1, 0.9, -0.3, 0.4]), jnp.array([0.3, -0.2, 1.1, -0.7])
    for found, wanted in zip(
        both(mass, force)(*state), both(system.mass, system.force)(*state), strict=True
    ):
        assert np.abs(found - wanted).max() < 1e-12


# Study


@pytest.mark.slow
def test_study_of_walking(tmp_path):
    files = walking.run(tmp_path, size=9)
    names = {f"figure_{i}.{kind}" for i in (1, 2) for kind in ("pdf", "png")}
    assert {file.name for file in files} == names | {"captions.txt", *TABLES}
    assert "walking" in studies.names() and "Assumed:" in (tmp_path / "captions.txt").read_text()
    found, basin = (archive.read(tmp_path / "data", name)[0] for name in ("gait", "basin"))
    distance = np.linalg.norm(found.strides.values - found.state.values[None], axis=1)
    modulus = np.hypot(*found.multipliers.values[0])
    assert (
        abs((distance[16] / distance[4]) ** (1 / 12) - modulus) < 0.05
    )  # strides return as the multiplier says
    assert float(found.error) < 1e-5
    inside, strikes = basin.inside.values == 1, basin.strikes.values
    assert (
        0 < inside.sum() < inside.size / 2
        and strikes[inside].min() >= walking.STRIKES
        and strikes.min() == 0
    )
    near = np.unravel_index(
        np.argmin(np.abs(basin.th.values - 0.27)[:, None] + np.abs(basin.u.values - 1.09)[None]),
        (9, 9),
    )
    assert inside[near]


@pytest.mark.parametrize(
    "scheme", [integrators.NSGA(), integrators.MoreauJean()], ids=["NSGA", "MoreauJean"]
)
def test_steps_that_end_after_a_strike_see_it_as_a_strike(scheme):
    """A scheme that looks at guards at the end of its steps finds both legs past the hip. (Times of
    events have order 1.)"""
    strikes = nsdyn.simulate(compass_walker(), scheme, step=2e-3, t_end=1.6).events
    assert strikes.mode_after.tolist() == [1, 0]
    np.testing.assert_allclose(strikes.t, [0.7258, 1.4700], atol=2e-2)
