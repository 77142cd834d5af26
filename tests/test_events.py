"""Event location and what follows it: grids, several switches in a step, statuses instead of wrong
trajectories."""

import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import BALL, PARTICLE, ball, floor_gap, rolled_out, run, track, track_exact

import nsdyn
from nsdyn import Status, integrators, laws

RK4 = integrators.EventDriven(integrators.RK4())


@pytest.mark.parametrize("l", [0.5, 0.52, 0.0401, 1.2])
def test_track_equals_the_closed_form(l):
    """Switch inside a step (0.5), on a grid point (0.52 and 1.2), early."""
    problem = track()
    out = run(problem, RK4, step=1e-2, params={**problem.params, "l": l})
    ts, q, v = track_exact(0.4, l)
    assert int(out.status) == 0 and int(out.events.count) == 1
    assert abs(float(out.events.t[0]) - ts) < 4e-16 * max(1.0, 1 / ts)
    assert np.allclose(out.q[-1], q, rtol=0, atol=1e-14) and np.allclose(
        out.v[-1], v, rtol=0, atol=1e-14
    )


def test_a_row_at_a_switching_instant_holds_the_state_after():
    problem = track()
    out = run(problem, RK4, step=1e-2, params={**problem.params, "l": 0.52})
    assert np.allclose(out.v[12], [4, 0]) and np.allclose(out.v[13], [3.2, 1.6], atol=1e-13)
    assert (int(out.mode[12]), int(out.mode[13])) == (0, 1)


def dipping(q, p):
    return p["depth"] - (q[0] - 0.55) ** 2


def free_force(q, v, t, p):
    return jnp.zeros(1)


def unit_mass(q, p):
    return jnp.eye(1)


def test_two_crossings_in_one_step():
    """z > 0 only for a moment between grid points, down to a 250th of the step."""
    free = nsdyn.System(mass=unit_mass, force=free_force)
    constraint = nsdyn.Switching(modes=(None, None), switches=(dipping,))
    problem = nsdyn.Problem(
        "dip", free, constraint, q0=[0.0], v0=[1.0], t_end=1.0, params={"depth": 1e-2}
    )
    for depth in (1e-2, 1e-4, 2.5e-7):
        out = run(problem, RK4, step=0.25, params={"depth": depth})
        assert int(out.status) == 0 and int(out.events.count) == 2
        assert np.allclose(
            out.events.t[:2], 0.55 + np.sqrt(depth) * np.array([-1, 1]), rtol=0, atol=1e-12
        )
        assert np.asarray(out.events.mode_after[:2]).tolist() == [1, 0]
    assert int(run(problem, RK4, step=0.25, params={"depth": -1e-6}).events.count) == 0


def test_ball_comes_to_rest_through_its_accumulation_point():
    e = 0.8
    out = run(ball(), RK4, step=1e-2, law=laws.Restitution(e))
    n = int(out.events.count)
    fall = np.sqrt(2 / 9.81)
    exact = fall * (1 + 2 * np.concatenate([[0], np.cumsum(e ** np.arange(1, n))]))
    assert int(out.status) == 0 and n > 30
    assert np.abs(np.asarray(out.events.t[:n]) - exact).max() < 1e-12
    assert (
        np.asarray(out.events.mode_after[: n - 1]).tolist() == [0] * (n - 1)
        and int(out.events.mode_after[n - 1]) == 1
    )
    assert float(out.q[-1, 0]) == 0.0 and float(out.v[-1, 0]) == 0.0
    assert np.isclose(float(out.lam[-1, 0]), -9.81)  # the floor presses upwards
    assert np.asarray(out.q).min() > -1e-12


@pytest.mark.parametrize(
    ("start", "count"),
    [(([0.0], [3.0]), 12), (([0.0], [-3.0]), 12), (([0.0], [0.0]), 0)],
    ids=["up", "down", "rest"],
)
def test_starts_on_the_floor(start, count):
    q0, v0 = start
    out = run(ball(), RK4, step=1e-2, law=laws.Restitution(0.5), q0=q0, v0=v0)
    assert (
        int(out.status) == 0 and int(out.events.count) == count and abs(float(out.q[-1, 0])) < 1e-15
    )


@pytest.mark.parametrize("pull", np.linspace(0.1, 3.0, 7))
def test_a_contact_that_is_pulled_open_lifts_at_once(pull):
    """Closed without a bounce, opened in the same instant: the ball starts anew from rest."""
    out = run(
        ball(), RK4, step=1e-2, law=laws.Restitution(0.0), params={"g": -pull}, q0=[0.1], v0=[-1.0]
    )
    touches = (1 - np.sqrt(1 - 0.2 * pull)) / pull
    assert int(out.status) == 0 and int(out.events.count) == 2
    assert np.abs(out.events.t[:2] - touches).max() < 1e-12
    assert abs(float(out.q[-1, 0]) - pull * (5.0 - touches) ** 2 / 2) < 1e-11


def test_endless_bouncing_is_a_status():
    endless = ball(rest_speed=0.0)
    out = rolled_out(endless, RK4, step=1e-2, law=laws.Restitution(0.5))
    assert int(out.status) == Status.TOO_MANY_SWITCHES
    assert abs(float(out.t_stop) - 3 * np.sqrt(2 / 9.81)) < 1e-2
    assert np.all(np.isnan(out.q[-1])) and np.all(np.isfinite(out.q[: int(1.3 / 1e-2)]))


def test_a_full_log_is_a_status_and_an_exactly_full_one_is_not():
    """With e = 0.1 there are 4 impacts to rest, with e = 0.8 more than 30."""
    out = run(ball(), RK4, step=1e-2, law=laws.Restitution(0.8), max_events=4)
    assert int(out.status) == Status.LOG_FULL and int(out.events.count) == 4
    out = run(ball(), RK4, step=1e-2, law=laws.Restitution(0.1), max_events=4)
    assert int(out.status) == 0 and int(out.events.count) == 4 and abs(float(out.q[-1, 0])) < 1e-15


def test_a_start_beyond_a_guard_is_a_status():
    assert (
        int(run(ball(), RK4, step=1e-2, law=laws.Restitution(0.5), q0=[-1.0], v0=[0.0]).status)
        == Status.GUARD_NEGATIVE
    )


def lean_corner(q, p):
    return q[0] - p["l"] - 2 * q[1]


def test_a_velocity_that_leads_straight_back_is_a_status():
    """z falls again along the new track: Z v+ < 0."""
    constraint = nsdyn.Switching(
        modes=track().constraint[0].mode_rows.modes, switches=(lean_corner,)
    )
    problem = nsdyn.Problem(
        "back",
        PARTICLE,
        constraint,
        q0=[0.0, 0.0],
        v0=[4.0, 0.0],
        t_end=0.4,
        params={"m": 1.0, "g": 0.0, "a": 1.0, "l": 0.5},
    )
    out = run(problem, RK4, step=1e-2)
    assert int(out.status) == Status.LEADS_BACK and abs(float(out.t_stop) - 0.125) < 1e-2
    with pytest.raises(nsdyn.SimulationError, match=r"t = 0\.12.*mode 0|straight back"):
        nsdyn.simulate(problem, RK4, step=1e-2, check=False)


def blow_up(q, v, t, p):
    return 4.0 * v**3


@pytest.mark.parametrize("lock", [0.2, 5.0])
def test_infinite_states_are_a_status_and_log_nothing(lock):
    """v = (1 - 8 t)^(-1/2): infinite at 1/8, also when a lock follows within a few steps."""
    system = nsdyn.System(mass=unit_mass, force=blow_up)
    constraint = nsdyn.Scheduled(times=lambda p: p, stages=(None, nsdyn.lock(0)))
    problem = nsdyn.Problem(
        "blow", system, constraint, q0=[0.0], v0=[1.0], t_end=1.0, params=np.array([0.2])
    )
    out = rolled_out(problem, RK4, step=0.01, params=np.array([lock]))
    assert int(out.status) == Status.NONFINITE and int(out.events.count) == 0
    first = int(np.argmax(np.isnan(out.q[:, 0])))
    assert 0.12 < float(out.t_stop) <= float(out.t[first]) < 0.19 and np.all(
        np.isnan(out.q[first:])
    )


def test_a_law_that_leaves_a_lock_moving_is_a_status():
    """Restitution belongs to contacts; on a lock the joint would go on turning."""
    problem = track()
    out = run(problem, RK4, step=1e-2, law=laws.Restitution(0.5))
    assert int(out.status) == Status.LAW_VIOLATES
    assert int(run(problem, RK4, step=1e-2, law=laws.Restitution(0.0)).status) == 0


def rising_floor(q, t, p):
    return q - 0.1 * jnp.sin(3.0 * t)


def test_a_moving_floor_throws_and_catches():
    """A rheonomic contact: resting on it until it falls away faster than gravity would need."""
    contact = nsdyn.Contact(lambda q, t, p: rising_floor(q, t, p))
    problem = nsdyn.Problem(
        "floor", BALL, contact, q0=[0.0], v0=[0.3], t_end=2.0, params={"g": 9.81}
    )
    out = run(problem, RK4, step=1e-2, law=laws.PostSwitchGradient())
    assert int(out.status) == 0 and int(out.events.count) == 0  # 0.9 m/s^2 < g: never leaves
    assert np.abs(np.asarray(out.q[:, 0]) - 0.1 * np.sin(3 * np.asarray(out.t))).max() < 1e-12
    assert (
        np.abs(np.asarray(out.lam[:, 0]) + 9.81 - 0.9 * np.sin(3 * np.asarray(out.t))).max() < 1e-9
    )


def test_simultaneous_impacts_are_one_event():
    two = nsdyn.System(
        mass=lambda q, p: jnp.diag(jnp.array([1.0, 3.0])),
        force=lambda q, v, t, p: -9.81 * jnp.array([1.0, 3.0]),
    )
    problem = nsdyn.Problem(
        "two", two, nsdyn.Contact(floor_gap), q0=[1.0, 1.0], v0=[0.0, 0.0], t_end=0.6
    )
    out = run(problem, RK4, step=1e-2, law=laws.Restitution(0.5))
    assert int(out.events.count) == 1
    speed = np.sqrt(2 * 9.81)
    assert np.allclose(out.events.v_after[0], 0.5 * speed) and np.allclose(
        out.events.Lam[0], [-1.5 * speed, -4.5 * speed]
    )


FAR = 1000.0  # neighbouring numbers lie 1.1e-13 apart there


def far_gaps(q, t, p):
    return (q - FAR) - p


def still(q, v, t, p):
    return jnp.zeros(2)


def test_a_guard_that_round_off_keeps_from_zero_is_located():
    """No position makes these gaps less than 3e-14; at this speed that is 6e-10 of a step, and they
    close together."""
    pair = nsdyn.System(mass=lambda q, p: jnp.eye(2), force=still)
    start, speed, miss = FAR + 0.05 / 300, 0.05, np.array([3e-14, -4e-14])
    problem = nsdyn.Problem(
        "far", pair, nsdyn.Contact(far_gaps), [start] * 2, [-speed] * 2, t_end=0.01, params=miss
    )
    out = run(problem, RK4, step=1e-3, law=laws.Restitution(0.5))
    assert int(out.status) == 0 and int(out.events.count) == 1
    assert (
        abs(float(out.events.t[0]) - 1 / 300) < 3e-13 / speed
    )  # few steps, each of which rounds q
    assert np.allclose(out.v[-1], 0.5 * speed, rtol=1e-12) and np.asarray(
        out.mode[-1]
    ).tolist() == [0, 0]


def test_last_step_is_shortened_and_rows_are_thinned():
    out = run(track(), RK4, step=0.03, save_every=4)
    assert np.allclose(out.t, [0.0, 0.12, 0.24, 0.36, 0.4], rtol=0, atol=1e-15)
    _, q, _ = track_exact(0.4)
    assert np.allclose(out.q[-1], q, rtol=0, atol=1e-13)
    whole = run(track(), RK4, step=0.03, save_every=20)
    assert np.allclose(whole.t, [0.0, 0.4]) and np.allclose(whole.q[-1], q, rtol=0, atol=1e-13)


def curved(q, v, lam, t, p, mode, held):
    """A guard that is nearly constant on both sides of q = c, or steep beyond it."""
    x = q[0] - p["c"]
    z = jnp.where(p["steep"], 1.0 - jnp.exp(40.0 * x), -jnp.arctan(1e3 * x))
    return jnp.where(mode == 0, z, 1.0)[None]


@pytest.mark.parametrize("method", [integrators.RK4(), integrators.DormandPrince(8)])
def test_strongly_curved_guards_are_located(method):
    """On steps so long that Newton's method alone does not find the zero."""
    part = nsdyn.Transitions(
        rows=lambda q, t, p, mode, held: 0.0 * q,
        live=lambda mode, p: jnp.zeros(1, bool),
        guards=curved,
        after=lambda fired, q, v, t, p, mode: mode + 1,
        mode0=0,
    )
    system = nsdyn.System(mass=lambda q, p: jnp.eye(1), force=lambda q, v, t, p: jnp.zeros(1))
    params = {"c": 0.5, "steep": True}
    problem = nsdyn.Problem("curved", system, part, q0=[0.0], v0=[1.0], t_end=1.0, params=params)
    c = np.tile(np.linspace(0.1, 0.9, 24), 2)
    params = {"c": c, "steep": np.repeat([True, False], 24)}
    found = nsdyn.sweep(problem, integrators.EventDriven(method), step=1.0, params=params)
    assert found.ok.all(), found.failed
    np.testing.assert_allclose(found.events.t[:, 0], c, rtol=0, atol=1e-9)
