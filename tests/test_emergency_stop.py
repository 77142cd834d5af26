"""Emergency stop: joints lock in the order that the dynamics decide, energy only falls, overloaded
joints break loose. All runs but the derivative are one program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import Either
from references.braked_arm import locks
from references.random_chains import Pin

import nsdyn
from nsdyn import problems
from nsdyn.errors import ProblemError
from nsdyn.integrators import RK4, EventDriven
from nsdyn.multibody.chain import Chain
from nsdyn.problems.emergency_stop import (
    BACKWARD,
    BRAKES,
    FORWARD,
    FREE,
    HELD,
    RATES,
    SLIPS_BACKWARD,
    SLIPS_FORWARD,
)
from nsdyn.problems.geared_chain import mass as motor_mass
from nsdyn.problems.geared_chain import tip_position
from nsdyn.problems.rx130l import ANGLES, AXES, BODIES, PLACES, RATIO, ROTORS, symmetric

SCHEME = EventDriven(RK4())
STEP, T_END = 5e-3, 2.24
X, Y, Z = np.eye(3)


def simulate(problem, consistent=True, step=STEP):
    settings = {"law": Either(consistent), "max_events": 16, "check": False}
    return nsdyn.simulate(problem, SCHEME, step=step, **settings)


def stop(step=STEP, consistent=True, **parameters):
    problem = problems.emergency_stop(t_end=T_END, **parameters)
    return problem, simulate(problem, consistent, step)


@pytest.fixture(scope="module")
def stops():
    """Brakes that rub, brakes that catch at 20 rad/s, the latter without momentum balance."""
    return {
        "rub": stop()[1],
        "catch": stop(catch=20.0)[1],
        "wrong": stop(catch=20.0, consistent=False)[1],
    }


def events(out):
    return list(out.events)


@pytest.mark.parametrize("name", ["rub", "catch"])
def test_energy_never_increases(stops, name):
    out = stops[name]
    assert np.diff(out.energy).max() <= 0.0
    for event in events(out):
        assert event.kinetic_after <= event.kinetic_before * (1 + 1e-14)
    assert (
        out.energy[0] - out.energy[-1] > events(out)[0].kinetic_before
    )  # all that moves, and what it gains in falling


def test_impulses_of_catching_brakes_take_energy_and_keep_momenta(stops):
    params = problems.emergency_stop().params
    lost = []
    for event in events(stops["catch"])[1:]:
        change = np.asarray(motor_mass(event.q, params)) @ (event.v_after - event.v_before)
        moves = event.mode_after != HELD
        assert np.abs(change[moves]).max(initial=0.0) <= 1e-10 * np.abs(change).max()
        lost.append(event.kinetic_before - event.kinetic_after)
    assert min(lost) > 0.0 and max(lost) > 0.5  # joules


@pytest.mark.parametrize("name", ["rub", "catch", "wrong"])
def test_the_robot_is_at_rest_after_the_last_lock(stops, name):
    out = stops[name]
    last = events(out)[-1]
    assert (last.mode_after == HELD).all() and last.t < 0.6
    rest = out.t > last.t
    assert (out.mode[rest] == HELD).all()
    assert np.abs(out.v[rest]).max() < 1e-20 and np.ptp(out.q[rest], axis=0).max() < 1e-15


def lock_events(out):
    """[(time, joint), ...] of the locks; the first event is the brakes coming on."""
    return [
        (float(e.t), int(np.flatnonzero(e.mode_before != e.mode_after)[0])) for e in events(out)[1:]
    ]


def reference(brake):
    mass, com, inertia = zip(*BODIES, strict=True)
    links = {
        "mass": mass,
        "com": np.array(com),
        "inertia": np.array([symmetric(*x) for x in inertia]),
    }
    joints = {
        "axis": np.array(AXES),
        "place": np.array(PLACES),
        "turn": [np.eye(3)] * 6,
        "slides": np.zeros(6),
    }
    drives = {"rotor": RATIO**2 * np.array(ROTORS), "gravity": np.array([0.0, 0.0, -9.81])}
    arm = Pin(links | joints | drives, np.zeros(3))
    return locks(arm, np.array(ANGLES), np.array(RATES), RATIO * np.array(brake))


@pytest.mark.parametrize(
    "brake", [BRAKES, (1.5, 14.0, 2.42, 0.58, 0.29, 0.29)], ids=["default", "weak at the base"]
)
def test_joints_lock_in_the_order_and_at_the_times_of_an_independent_simulation(stops, brake):
    out = stops["rub"] if brake is BRAKES else stop(brake=brake)[1]
    start = events(out)[0]
    assert start.t == 0.0 and (start.mode_before == FREE).all()
    assert start.mode_after.tolist() == [FORWARD, FORWARD, FORWARD, FORWARD, BACKWARD, FORWARD]
    times, order = zip(*lock_events(out), strict=True)
    expected_times, expected_order = zip(*reference(brake), strict=True)
    assert order == expected_order and sorted(order) == list(range(6))
    assert np.abs(np.array(times) - expected_times).max() < 1e-6


def test_brakes_that_rub_need_no_impulse(stops):
    """Locked at rate zero, the robot stops at the same place whatever the law; a brake that catches
    makes a difference."""
    p = problems.emergency_stop().params
    place = lambda out: np.asarray(tip_position(out.q[-1], p))
    assert np.abs(place(stop(consistent=False)[1]) - place(stops["rub"])).max() < 1e-12
    assert np.linalg.norm(place(stops["wrong"]) - place(stops["catch"])) > 1e-3  # metres
    for event in events(stops["rub"]):
        assert np.abs(event.v_after - event.v_before).max() < 1e-10


def test_lock_times_converge_at_order_four(stops):
    runs = [stops["rub"], stop(STEP / 2)[1], stop(STEP / 4)[1]]
    modes = [[e.mode_after.tolist() for e in events(out)] for out in runs]
    assert modes[0] == modes[1] == modes[2]
    times = [out.events.t[1:7] for out in runs]
    coarse, fine = np.abs(times[0] - times[1]), np.abs(times[1] - times[2])
    assert coarse.max() > 1e-11  # far above round-off
    assert 3.7 < np.log2(coarse.max() / fine.max()) < 4.3
    assert 3.7 < np.log2(np.linalg.norm(coarse) / np.linalg.norm(fine)) < 4.3


def test_a_joint_that_starts_at_rest_is_held():
    _, out = stop(rates=(2.0, 1.5, 2.0, 0.0, 0.0, 0.0))
    assert events(out)[0].mode_after.tolist() == [FORWARD] * 3 + [HELD] * 3
    assert len(events(out)) == 4 and np.ptp(out.q[:, 3:]) < 1e-12


def test_brakes_that_come_on_later():
    """Until then nothing takes energy from a joint."""
    on = [0.1, 0.1, 0.1, 0.05, 0.052, 0.053]
    _, out = stop(on=on)
    for joint, time in enumerate(on):
        assert ((out.mode[:, joint] == FREE) == (out.t < time - 1e-12)).all()
    assert np.ptp(out.energy[out.t < 0.05]) < 1e-8 * out.energy[0]
    assert np.diff(out.energy[out.t >= 0.1 - 1e-12]).max() <= 0.0


# Two joints with closed forms. Four more, of no consequence, lie behind them, so that these runs
# share the program.


def table(axes, slides, mass, com=(0.0, 0.0, 0.0), g=0.0):
    """Joints along or about `axes`; the masses are points, the second at `com`."""
    still = [(0.0, 0.0, 0.0)] * 4
    return Chain(
        axis=[*axes, *[Z] * 4],
        place=np.zeros((6, 3)),
        mass=[*mass, *[0.0] * 4],
        com=[(0.0, 0.0, 0.0), com, *still],
        inertia=np.zeros((6, 3, 3)),
        slides=[*slides, *[0.0] * 4],
        rotor=[0.0, 0.0, *[1.0] * 4],
        gravity=(0.0, 0.0, -g),
    )


def two_joints(chain, brake, rates, angles=(0.0, 0.0), on=(0.0, 0.0), grip=1.2):
    more = (0.0,) * 4
    problem = problems.emergency_stop(
        chain,
        1.0,
        (*brake, *(1.0,) * 4),
        grip,
        on=(*on, *more),
        angles=(*angles, *more),
        rates=(*rates, *more),
        t_end=T_END,
    )
    return simulate(problem)


def test_joints_that_stop_together():
    """A mass on a cross table, t = m v/B for both joints: one event, with both."""
    out = two_joints(table((X, Y), (1, 1), (1.0, 2.0)), (3.0, 2.0), (0.77, 0.77))
    start, both = events(out)
    assert both.t == pytest.approx(0.77, rel=1e-13)
    assert (
        start.mode_after[:2].tolist() == [FORWARD] * 2
        and both.mode_after[:2].tolist() == [HELD] * 2
    )
    np.testing.assert_allclose(out.q[-1, :2], 0.77**2 / 2, rtol=1e-12)


def test_a_joint_that_sticks_and_breaks_loose_at_once():
    """Thrown upwards, its weight beyond the grip: v = v0 - (g + B/m) t, then v' = -(g - B/m)
    without a rest."""
    g, m, B, v0 = 10.0, 2.0, 12.0, 4.0
    out = two_joints(table((Z, X), (1, 1), (0.5 * m, 0.5 * m), g=g), (B, 1.0), (v0, 0.0))
    modes = [int(event.mode_after[0]) for event in events(out)]
    assert modes == [FORWARD, HELD, SLIPS_BACKWARD]
    turn = v0 / (g + B / m)
    assert [e.t for e in events(out)[1:]] == pytest.approx([turn, turn], rel=1e-13)
    down = out.t > turn
    np.testing.assert_allclose(out.v[down, 0], -(g - B / m) * (out.t[down] - turn), atol=1e-11)
    assert (out.mode[:, 1][1:] == HELD).all()


def test_a_load_within_the_grip_is_held():
    """The same throw with a grip beyond the weight."""
    out = two_joints(
        table((Z, X), (1, 1), (1.0, 1.0), g=10.0), (12.0, 1.0), (4.0, 0.0), grip=20.1 / 12.0
    )
    assert [int(event.mode_after[0]) for event in events(out)] == [FORWARD, HELD]
    assert out.lam[-1, 0] == pytest.approx(-20.0, rel=1e-13)  # the weight, along -z


@pytest.mark.parametrize(
    ("start", "mode"), [(-np.pi / 2, SLIPS_FORWARD), (np.pi / 2, SLIPS_BACKWARD)]
)
def test_a_held_joint_breaks_loose_when_overloaded(start, mode):
    """A mass turns at the rate w, unbraked, on a slide whose brake holds k B: the load m r w^2
    cos(th) reaches it at |cos th| = k B/(m r w^2). From then on x' is the sum of the load less B
    and the recoil."""
    m, r, w, B, k = 2.0, 0.5, 2.0, 2.5, 1.2
    angle = np.pi / 2 - np.arccos(k * B / (m * r * w**2))
    chain = table((X, Z), (1, 0), (1.0, m), com=(r, 0.0, 0.0))
    out = two_joints(chain, (B, 1.0), (0.0, w), (0.0, start), on=(0.0, 1e3), grip=k)
    held, loose = events(out)[:2]
    assert held.mode_after[0] == HELD and loose.mode_after[0] == mode
    assert loose.t == pytest.approx(
        angle / w, abs=1e-9
    )  # RK4 turns the mass with an error of this order at most
    assert np.sign(out.v[np.argmax(out.t > loose.t + 0.1), 0]) == (
        1 if mode == SLIPS_FORWARD else -1
    )
    bears = out.mode[:, 0] == HELD
    assert np.abs(out.lam[bears, 0]).max() <= k * B * (1 + 1e-9)


def test_wrong_numbers_of_brakes_are_refused():
    with pytest.raises(ProblemError, match="expected 1 or 6 numbers, found shape \\(3,\\)"):
        problems.emergency_stop(brake=(1.0, 2.0, 3.0))


@pytest.mark.slow
def test_check_passes():
    assert problems.emergency_stop().check().ok


@pytest.mark.slow
def test_derivatives_through_a_stop():
    """Where the tip ends, by brake torques, the rate at which they catch and initial rates, against
    central differences."""
    problem = problems.emergency_stop(t_end=0.6)

    @jax.jit
    @jax.value_and_grad
    def reach(x):
        p = problem.params | {"brake": x[:6], "catch": x[6] * jnp.ones(6)}
        out = nsdyn.rollout(problem, SCHEME, step=2e-2, params=p, v0=x[7:], max_events=8)
        return jnp.sum(jnp.array([1.0, 2.0, 3.0]) * tip_position(out.q[-1], p))

    x = jnp.concatenate([problem.params["brake"], jnp.array([20.0]), problem.v0])
    gradient = reach(x)[1]
    for i in (0, 1, 2, 6, 7, 8):
        h = 1e-4 * float(x[i])
        difference = (reach(x.at[i].add(h))[0] - reach(x.at[i].add(-h))[0]) / (2 * h)
        assert float(gradient[i]) == pytest.approx(float(difference), rel=1e-6, abs=1e-9)
