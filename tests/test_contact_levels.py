"""Contacts with friction in NSGA: orders against closed forms and independent references, impacts,
rest, other constraints, derivatives, batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mechanisms import block, carts, disc, rolled_out

import nsdyn
from nsdyn.integrators import NSGA, MoreauJean
from nsdyn.problems.friction_bowl import friction_bowl
from nsdyn.problems.tippe_top import tippe_top
from nsdyn.studies.lib import sliding_top as reference

G = 9.81
OPEN, STICK, SLIP = 0, 1, 2


BOWL = friction_bowl(t_end=0.8)
# angle, rate and normal force at t = 0.8 s from omega^2 = C exp(-2 mu phi) + a cos phi + b sin phi
PHI, OMEGA, NORMAL = 0.2995259497444658, 1.340232895489343, 11.16944841630747


def bowl_errors(integrator, count):
    found = nsdyn.simulate(BOWL, integrator, step=0.8 / count, check=False)
    q, v = found.q[-1], found.v[-1]
    assert found.mode[-1] == [SLIP]
    return np.abs(
        [
            np.arctan2(q[0], -q[1]) - PHI,
            q[0] * v[1] - q[1] * v[0] - OMEGA,
            -found.lam[-1, 0] - NORMAL,
        ]
    )


@pytest.mark.parametrize(("integrator", "order"), [(NSGA(), 2.0), (MoreauJean(), 1.0)])
def test_orders_in_a_bowl_with_friction(integrator, order):
    """In the angle, its rate and the normal force."""
    coarse, fine = (bowl_errors(integrator, count) for count in (200, 400))
    assert np.log2(coarse / fine) == pytest.approx(order, abs=0.02 if order == 2 else 0.1)


def test_the_particle_turns_back_and_rests():
    found = nsdyn.simulate(BOWL, NSGA(), step=1e-3, t_end=2.5, check=False)
    angle = np.arctan2(found.q[:, 0], -found.q[:, 1])
    assert np.max(angle) == pytest.approx(0.4589515267392525, abs=1e-4)
    assert angle[-1] == pytest.approx(-0.0470311168989299, abs=1e-4)
    slides = found.t[np.flatnonzero(found.mode[:, 0] == SLIP)]
    assert slides[-1] == pytest.approx(2.0291623058, abs=2e-3)
    assert np.max(np.abs(found.v[found.t > 2.1])) < 1e-12


def tilt(q):
    """The angle of the axis to the vertical."""
    return np.arccos(1 - 2 * (q[4] ** 2 + q[5] ** 2) / np.sum(q[3:] ** 2))


@pytest.mark.slow
def test_orders_where_the_slip_turns():
    """Tippe top: friction against the mean slip keeps order 2, against that at the end of the step
    (as published) it is 1."""
    top = tippe_top(t_end=0.2)
    q, v = reference.state(top.q0, top.v0, 0.2)

    def errors(friction, step):
        found = nsdyn.simulate(top, NSGA(friction=friction), step=step, check=False)
        assert found.mode[-1].tolist() == [SLIP, OPEN]
        np.testing.assert_allclose(np.linalg.norm(found.q[:, 3:], axis=1), 1.0, rtol=1e-12)
        last = found.q[-1], found.v[-1]
        each = [np.max(np.abs(a - b)) for a, b in zip(last, (q, v), strict=True)]
        return np.array([abs(tilt(last[0]) - tilt(q)), *each])

    mean = [errors("mean", step) for step in (5e-4, 2.5e-4)]
    end = [errors("end", step) for step in (5e-4, 2.5e-4)]
    assert np.log2(mean[0] / mean[1]) == pytest.approx(2.0, abs=0.05)
    assert np.log2(end[0] / end[1]) == pytest.approx(0.95, abs=0.1)
    assert end[0][0] > 50 * mean[0][0]


# A ball of mass 1 on the floor: x, y, z and turns about these axes; friction acts against its spin,
# too, so that the slip turns while it slows down.

INERTIA = np.array([1.0, 1.0, 1.0, 0.004, 0.004, 0.004])
RADIUS, SPIN = 0.1, 0.02


def ball_mass(q, p):
    return jnp.diag(jnp.asarray(INERTIA))


def given_force(q, v, t, p):
    return p["F"]


def height(q, t, p):
    return q[2]


def ball_slip(q, v, t, p):
    return jnp.stack([v[0] - RADIUS * v[4], v[1] + RADIUS * v[3], SPIN * v[5]])


def given_friction(p):
    return p["mu"]


BALL = nsdyn.Problem(
    "ball",
    nsdyn.System(mass=ball_mass, force=given_force),
    nsdyn.Contacts(height, ball_slip, mu=given_friction),
    q0=np.zeros(6),
    v0=np.zeros(6),
    t_end=0.04,
    params={"F": np.zeros(6), "mu": 0.3},
)
numbers = lambda low, high: st.floats(low, high, allow_subnormal=False)
fives = st.tuples(*[numbers(-1, 1)] * 5)


@pytest.mark.slow
@pytest.mark.parametrize("friction", ["mean", "end"])
@given(fives, fives, numbers(-2.5, 0.5), numbers(-1, 1), numbers(1, 30), numbers(0.05, 1.5))
def test_friction_takes_energy_while_it_slips(friction, v, F, fast, strong, N, mu):
    """M (v_1 - v_0) = h F + H^T P, so P_T follows from the velocities; its work in a step is P_T .
    (psi_T0 + psi_T1)/2. Every run ends, however the slip stops, turns or begins."""
    h = 5e-3
    v0 = 10**fast * np.insert(np.array(v) * [1, 1, 10, 10, 50], 2, 0.0)
    F = np.insert(10**strong * np.array(F) * [5, 5, 0.5, 0.5, 0.05], 2, -N)
    found = rolled_out(BALL, NSGA(friction=friction), {"F": F, "mu": mu}, step=h, v0=v0)
    assert found.status == 0
    velocity = np.asarray(found.v)
    impulse = INERTIA * np.diff(velocity, axis=0) - h * F
    P = impulse[:, [0, 1, 5]] / [1, 1, SPIN]
    slip = np.array([ball_slip(None, x, 0.0, None) for x in velocity])
    before, after = slip[:-1], slip[1:]
    mode = np.asarray(found.mode)[:, 0]
    slides = (mode[:-1] == SLIP) & (mode[1:] == SLIP) & (np.sum(before * after, axis=1) > 0)
    work = np.sum(P * (before + after) / 2, axis=1)
    size = np.linalg.norm(P, axis=1) * np.linalg.norm(before + after, axis=1)
    assert np.all(work[slides] <= 1e-9 * size[slides])


@pytest.mark.slow
@pytest.mark.parametrize("friction", ["mean", "end"])
def test_a_top_turns_over_and_falls(friction):
    """It rises onto its stem, loses spin and falls back, to slide on both spheres for a while, with
    cos(theta) = (r2 - r1)/(a2 - a1) = -10/13, the stem so slowly that its slip turns by a large
    angle in a step."""
    found = nsdyn.simulate(tippe_top(), NSGA(friction=friction), step=1e-3)
    both = np.flatnonzero(np.all(found.mode == SLIP, axis=1))
    assert 4.6 < found.t[both[0]] < 4.7
    assert 5.4 < found.t[both[-1]] < 5.6
    stands = (found.t > 1.5) & (found.t < 4.5)
    assert np.all(found.mode[stands] == [OPEN, SLIP])
    angle = np.array([tilt(q) for q in found.q])
    assert np.min(angle[stands]) > np.arccos(-10 / 13)
    np.testing.assert_allclose(angle[both], np.arccos(-10 / 13), rtol=1e-9)
    assert np.max(np.diff(found.energy)) < 1e-9 * found.energy[0]
    np.testing.assert_allclose(np.linalg.norm(found.q[:, 3:], axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize(
    ("omega", "x", "rolls"),
    [(50.0, -0.8713428613035428, -10 / 7), (10.0, -0.1918991608919659, -2 / 7)],
)
def test_a_rotating_ball_falls_and_rolls(omega, x, rolls):
    """Capobianco, Harsch, Eugster and Leine 2021, section 10.1."""
    found = nsdyn.simulate(disc(), NSGA(), step=1e-3, v0=[0.0, 0.0, omega])
    np.testing.assert_allclose(found.v[-1], [0, rolls, -10 * rolls], atol=1e-12)
    assert found.q[-1, 0] == pytest.approx(0.1, abs=1e-12)
    assert found.q[-1, 1] == pytest.approx(x, abs=1e-3)  # order 1: the time of the impact
    assert found.mode[-1].tolist() == [STICK]


def test_a_bouncing_ball_comes_to_rest():
    """It hops as restitution says, and ends with a gap of 0."""
    found = nsdyn.simulate(
        disc(), NSGA(), step=1e-3, t_end=3.0, v0=[0.0, 0, 0], params={"mu": 0.0, "e": 0.5}
    )
    first = 0.4283529368781193
    hits = found.t[1:][(found.v[:-1, 0] < 0) & (found.v[1:, 0] > 0)]
    np.testing.assert_allclose(hits[:3], first * np.array([1, 2, 2.5]), atol=5e-3)
    after = found.v[np.argmax(found.t > first), 0]
    assert after == pytest.approx(0.5 * 4.202142310774351, abs=G * 1e-3)
    np.testing.assert_allclose(found.q[-1, 0], 0.1, atol=1e-12)
    np.testing.assert_allclose(found.v[-1], 0.0, atol=1e-12)


def test_block_on_a_slope_stays_or_slides():
    """With both corners on the floor, which is one contact more than needed in rest."""
    mu = 0.5
    start = block()
    stays = {**start.params, "slope": np.arctan(mu) - 0.01}
    found = nsdyn.simulate(start, NSGA(), step=1e-3, params=stays)
    assert np.all(found.mode == STICK)
    assert np.max(np.abs(found.q - found.q[0])) < 1e-12
    slope = np.arctan(mu) + 0.1
    slides = {**start.params, "slope": slope}
    found = nsdyn.simulate(start, NSGA(), step=1e-3, params=slides)
    a = G * (np.sin(slope) - mu * np.cos(slope))
    np.testing.assert_allclose(found.v[:, 0], a * found.t, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.q[-1, 0], a / 2, rtol=1e-9)
    pressing, rubbing = -found.lam[-1, [0, 2]].sum(), -found.lam[-1, [1, 3]].sum()
    assert pressing == pytest.approx(G * np.cos(slope), rel=1e-9)
    assert rubbing == pytest.approx(-mu * pressing, rel=1e-9)


@pytest.mark.slow
def test_derivatives_of_a_block_that_slides_to_rest():
    """x = v0^2/(2 mu g); through sliding, the stop and rest, in both modes."""

    start = block()

    def last(v0, mu):
        found = nsdyn.rollout(
            start,
            NSGA(),
            step=4e-3,
            t_end=0.4,
            v0=jnp.array([1.0, 0.0, 0.0]) * v0,
            params={**start.params, "mu": mu},
        )
        return found.q[-1, 0]

    at = (jnp.asarray(1.0), jnp.asarray(0.5))
    forward = jax.jit(jax.jacfwd(last, argnums=(0, 1)))(*at)
    reverse = jax.jit(jax.grad(last, argnums=(0, 1)))(*at)
    np.testing.assert_allclose(forward, reverse, rtol=1e-9)
    value = jax.jit(last)
    d = 1e-5
    differences = [
        (value(1 + d, 0.5) - value(1 - d, 0.5)) / (2 * d),
        (value(1.0, 0.5 + d) - value(1.0, 0.5 - d)) / (2 * d),
    ]
    np.testing.assert_allclose(forward, differences, rtol=1e-6)


@pytest.mark.slow
def test_a_sweep_equals_single_runs():
    mus = np.linspace(0.1, 0.9, 9)
    start = {"step": 1e-3, "t_end": 0.1, "v0": [1.0, 0.0, 0.0]}
    at_rest = block()
    many = nsdyn.sweep(at_rest, NSGA(), params={**at_rest.params, "mu": mus}, **start)
    for i in (0, 4, 8):
        single = nsdyn.simulate(at_rest, NSGA(), params={**at_rest.params, "mu": mus[i]}, **start)
        np.testing.assert_allclose(many.q[i], single.q, rtol=1e-12, atol=1e-12)


def test_contacts_live_with_joints_and_locks():
    """Two carts joined by a rod, the second one rubs; at t = 0.5 s the first is locked."""
    found = nsdyn.simulate(carts(), NSGA(), step=1e-3)
    rub = 0.1 * 3 * G
    a = (10.0 - rub) / 3
    half = np.argmin(np.abs(found.t - 0.499))
    np.testing.assert_allclose(found.v[half], [a * 0.499, a * 0.499, 0], rtol=1e-9, atol=1e-12)
    assert found.lam[half, 0] == pytest.approx(-(2 * a + rub), rel=1e-9)
    assert found.lam[half, 1:3] == pytest.approx([-3 * G, rub], rel=1e-9)
    np.testing.assert_allclose(found.v[-1], 0, atol=1e-12)
    assert len(found.events) == 1


def test_settings_are_checked():
    with pytest.raises(nsdyn.ProblemError, match=r"NSGA\(friction=.*'mean' or 'end', found 'x'"):
        NSGA(friction="x")
    with pytest.raises(nsdyn.ProblemError, match="does not resolve Contacts"):
        nsdyn.simulate(disc(), NSGA(variant="velocity"), step=1e-2)
