"""Event-driven runs through impacts of contacts: order 4, the laws of impact, gain of energy, and
the ledger of a run."""

import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import G, block, corners, friction, restitution

import nsdyn
from nsdyn import problems
from nsdyn.integrators import RK4, EventDriven
from nsdyn.laws import Fremond, GeneralizedNewton, Newton, Poisson, Sequential

OPEN = 0
EVENTS = EventDriven(RK4())

# A mass on two springs strikes a wall that it slides along: x'' = -x, y'' = -4 y, x >= WALL.

WALL = -0.4


def unit_mass(q, p):
    return jnp.eye(q.shape[0])


def springs(q, v, t, p):
    return -jnp.array([1.0, 4.0]) * q


def from_wall(q, t, p):
    return q[0] - WALL


def along_wall(q, v, t, p):
    return v[1]


STRIKES = nsdyn.Problem(
    "mass on springs",
    nsdyn.System(mass=unit_mass, force=springs),
    nsdyn.Contacts(from_wall, along_wall, mu=friction, e=restitution),
    q0=[1.0, 0.3],
    v0=[0.0, 1.5],
    t_end=2.7,
    params={"mu": 0.2, "e": 0.7},
)


def after_strike():
    """Time of the impact, and q, v at the end: x = cos t until then, and the slip is so fast that
    it goes on, slower by mu (1 + e) times the speed of approach."""
    t = np.arccos(WALL)
    speed = np.sin(t)
    y, slip = 0.3 * np.cos(2 * t) + 0.75 * np.sin(2 * t), 1.5 * np.cos(2 * t) - 0.6 * np.sin(2 * t)
    bounce, left = 0.7 * speed, slip - np.sign(slip) * 0.2 * 1.7 * speed
    assert left * slip > 0
    place, rate, w = np.array([WALL, y]), np.array([bounce, left]), np.array([1, 2])
    c, s = np.cos(w * (2.7 - t)), np.sin(w * (2.7 - t))
    return t, place * c + rate / w * s, rate * c - w * place * s


@pytest.mark.slow
def test_order_4_across_an_impact():
    """In q, v and the time of the impact, which falls inside a step."""
    time, q, v = after_strike()
    errors = []
    for count in (28, 56, 112):
        step = 2.7 / count
        assert 0.1 < time / step % 1 < 0.9
        found = nsdyn.simulate(STRIKES, EVENTS, step=step, check=False)
        assert len(found.events) == 1
        pairs = [(found.events.t[0], time), (found.q[-1], q), (found.v[-1], v)]
        errors.append([np.max(np.abs(x - exact)) for x, exact in pairs])
    orders = np.log2(np.divide(errors[:-1], errors[1:]))
    assert orders == pytest.approx(4.0, abs=0.2)


# The laws. A ball hits two others that touch each other, all alike.


def between(q, t, p):
    return q[1:] - q[:-1] - 1.0


def no_force(q, v, t, p):
    return jnp.zeros(q.shape)


CRADLE = nsdyn.Problem(
    "cradle",
    nsdyn.System(mass=unit_mass, force=no_force),
    nsdyn.Contacts(between, e=restitution),
    q0=[-0.05, 1.0, 2.0],
    v0=[1.0, 0.0, 0.0],
    t_end=0.1,
    params={"e": np.ones(2)},
)
WAVE = GeneralizedNewton([[0.0, 1.0], [1.0, 0.0]])


def case(law, e, after, marks=()):
    return pytest.param(law, e, after, marks=marks, id=type(law).__name__)


@pytest.mark.parametrize(
    ("law", "e", "after"),
    [
        case(Newton(), (0.3, 0.9), [2 / 15, 13 / 30, 13 / 30], pytest.mark.slow),
        case(Poisson(), (0.3, 0.9), [2 / 15, 7 / 30, 19 / 30]),
        case(Fremond(), (1.0, 1.0), [-1 / 3, 2 / 3, 2 / 3], pytest.mark.slow),
        case(Sequential(), (1.0, 1.0), [0.0, 0.0, 1.0]),
        case(WAVE, (0.0, 0.0), [0.0, 0.0, 1.0], pytest.mark.slow),
    ],
)
def test_a_ball_hits_two_that_touch(law, e, after):
    found = nsdyn.simulate(
        CRADLE, EVENTS, step=0.02, law=law, params={"e": np.array(e)}, check=False
    )
    assert found.events.t[0] == pytest.approx(0.05, rel=1e-12)
    np.testing.assert_allclose(found.events.v_after[0], after, rtol=0, atol=1e-13)
    np.testing.assert_allclose(found.v[-1], after, rtol=0, atol=1e-13)


BOX = block([0.0, 0.5, 0.3], [1.0, 0.0, 2.0], 0.5, mu=0.3, e=0.4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("law", "alone"),
    [
        (Poisson(), Poisson()),
        (Fremond(), Fremond()),
        (Sequential(), Sequential()),
        (GeneralizedNewton(0.4 * np.eye(2)), Newton()),
    ],
    ids=lambda law: type(law).__name__,
)
def test_a_box_that_bounces_by_any_law(law, alone):
    """With friction: each impact is that of the corner which touches, by itself."""
    found = nsdyn.simulate(BOX, EVENTS, step=0.01, law=law, check=False)
    assert len(found.events) >= 3
    masses = np.diag([1.0, 1.0, (0.4**2 + 0.1**2) / 3])
    for event in found.events:
        x, y = map(np.asarray, corners(event.q, BOX.params))
        i = int(np.argmin(np.abs(event.q[1] + y)))
        assert abs(event.q[1] + y[i]) < 1e-12
        rows = np.array([[[0.0, 1.0, x[i]], [1.0, 0.0, -y[i]]]])
        hit = alone.collide(masses, rows, event.v_before, mu=0.3, e=0.4)
        np.testing.assert_allclose(event.v_after, hit.v_after, rtol=0, atol=1e-12)


# Gain of energy. A rod falls on its tip, with the velocity (0.483, -1, 0) when it touches.

HEIGHT = 0.02
ROD = block(
    [0.0, np.sin(0.9) + HEIGHT, 0.9],
    [0.4830550656165783, -np.sqrt(1 - 2 * G * HEIGHT), 0.0],
    0.05,
    b=1.0,
    c=0.0,
    mu=0.6,
    e=1.0,
)


@pytest.mark.slow
def test_an_impact_that_gains_energy_stops_a_run_unless_it_may():
    with pytest.raises(nsdyn.SimulationError, match="allow_energy_gain=True") as error:
        nsdyn.simulate(ROD, EVENTS, step=0.01)
    assert error.value.status is nsdyn.Status.ENERGY_GAIN
    found = nsdyn.simulate(ROD, EVENTS, step=0.01, law=Newton(allow_energy_gain=True))
    assert found.ok
    event = found.events[0]
    np.testing.assert_allclose(event.v_before, [0.4830550656165783, -1.0, 0.0], atol=1e-12)
    ratio = event.kinetic_after / event.kinetic_before
    assert ratio == pytest.approx(1.18393807473, abs=2e-12)
    entry = nsdyn.ledger(ROD, event)
    assert entry.gain[0] == pytest.approx(event.kinetic_after - event.kinetic_before, rel=1e-12)
    found = nsdyn.simulate(ROD, EVENTS, step=0.01, law=Fremond())
    event = found.events[0]
    assert event.kinetic_after == pytest.approx(event.kinetic_before, rel=1e-12)


# The ledger of a run.


def test_the_ledger_of_a_box_that_bounces():
    """It flies between its impacts, which alone change its energy."""
    found = nsdyn.simulate(BOX, EVENTS, step=0.01)
    assert len(found.events) == 4 and np.all(found.mode == OPEN)
    entries = nsdyn.ledger(BOX, found.events)
    assert np.max(np.abs(entries.missing)) < 1e-14
    loss, rubbed, gain = (
        np.sum(x) for x in (entries.normal_loss, entries.friction_loss, entries.gain)
    )
    assert min(loss, rubbed, gain) > 0.1
    masses = np.array([1.0, 1.0, (0.4**2 + 0.1**2) / 3])
    energy = found.v**2 @ masses / 2 + G * found.q[:, 1]
    assert energy[-1] - energy[0] == pytest.approx(gain - loss - rubbed, abs=1e-12)


def test_the_ledger_of_a_ball_on_a_vibrating_table():
    """In each period the table brings what the ball loses: P times the velocity of the table, and
    (1 - e^2) u^2/2 with the speed of approach u."""
    ball = problems.ball_on_table(periods=3)
    found = nsdyn.simulate(ball, EVENTS, step=0.01)
    entries = nsdyn.ledger(ball, found.events)
    assert len(found.events) == 3
    table = 0.0028 * 20 * np.pi * np.cos(20 * np.pi * found.events.t)
    u = table - found.events.v_before[:, 0]
    np.testing.assert_allclose(entries.moving, 1.5 * u * table, rtol=1e-11)
    np.testing.assert_allclose(entries.normal_loss[:, 0], 0.75 * u**2 / 2, rtol=1e-11)
    # the motion repeats
    np.testing.assert_allclose(entries.moving, entries.normal_loss[:, 0], rtol=1e-9)
    change = np.sum(entries.moving - entries.normal_loss[:, 0])
    assert found.energy[-1] - found.energy[0] == pytest.approx(change, abs=1e-12)
    assert np.all(entries.friction_loss == 0) and np.all(entries.gain == 0)
    assert np.max(np.abs(entries.missing)) < 1e-14
