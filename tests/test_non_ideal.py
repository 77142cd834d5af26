"""Impulses along tangential directions: Coulomb's law with stick and slip, given impulses,
functions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mechanisms import PARTICLE

import nsdyn
from nsdyn import integrators, laws
from nsdyn.status import Status

N, OLD = 6, 2  # coordinates, rows that persist; one row is new
seeds = st.integers(0, 2**32 - 1)
directions = st.sampled_from([1, 2])
coefficients = st.one_of(st.floats(0.0, 3.0), st.just(0.0), st.just(1e6))


def spd(rng, n, condition=100.0):
    turn, _ = np.linalg.qr(rng.standard_normal((n, n)))
    return turn * np.exp(rng.uniform(0, np.log(condition), n)) @ turn.T


def contact(seed, k):
    """Mass, rows before and after, a velocity that obeys the rows before, tangents."""
    rng = np.random.default_rng(seed)
    M, rows, B = spd(rng, N), rng.standard_normal((OLD + 1, N)), rng.standard_normal((k, N))
    v = rng.standard_normal(N)
    v = v - np.linalg.pinv(rows[:OLD]) @ (rows[:OLD] @ v)
    return M, rows[:OLD], rows, v, B


@jax.jit
def coulomb(M, before, after, v, B, mu):
    return laws.NonIdeal(B, mu=mu).jump(M, before, after, v)


@jax.jit
def ideal(M, before, after, v):
    return laws.PostSwitchGradient().jump(M, before, after, v)


def kinetic(M, v):
    return 0.5 * v @ M @ v


def tangential(M, after, v, B, jump):
    """beta out of the balance (1), B having full rank."""
    left = M @ (np.asarray(jump.v_after) - v) + after.T @ np.asarray(jump.Lam)
    beta, *_ = np.linalg.lstsq(B.T, left, rcond=None)
    assert np.abs(B.T @ beta - left).max() < 1e-9 * (1 + np.abs(M).max())
    return beta


@given(seeds, directions, coefficients)
def test_coulomb_opposes_stays_in_the_cone_and_gains_no_energy(seed, k, mu):
    M, before, after, v, B = contact(seed, k)
    jump, free = coulomb(M, before, after, v, B, mu), ideal(M, before, after, v)
    beta, w = tangential(M, after, v, B, jump), B @ np.asarray(jump.v_after)
    normal, scale = abs(float(jump.Lam[OLD])), np.abs(B).max() * np.abs(v).max()
    noise = 1e-11 * np.abs(M @ v).max()  # of beta, which is read off the balance
    assert (
        kinetic(M, jump.v_after)
        <= kinetic(M, free.v_after) * (1 + 1e-12)
        <= kinetic(M, v) * (1 + 1e-12)
    )
    wobble = noise + mu * 1e-14 * (
        np.abs(free.Lam).max() + np.linalg.norm(beta)
    )  # of mu N, where N is a small difference
    assert np.linalg.norm(beta) <= mu * normal * (1 + 1e-9) + wobble
    assert beta @ w <= noise * scale
    assert w @ (B @ np.asarray(free.v_after)) >= -1e-9 * scale**2  # never reversed
    slips = np.linalg.norm(w) > 1e-8 * scale
    if slips:
        assert np.linalg.norm(beta) == pytest.approx(mu * normal, rel=1e-9, abs=wobble)
        assert (
            np.abs(beta * np.linalg.norm(w) + np.linalg.norm(beta) * w).max()
            < 1e-9 * np.linalg.norm(beta) + noise
        )
    assert np.abs(after @ np.asarray(jump.v_after)).max() < 1e-9 * (1 + np.abs(v).max())


@given(seeds, directions, coefficients)
def test_the_record_balances(seed, k, mu):
    M, before, after, v, B = contact(seed, k)
    jump = coulomb(M, before, after, v, B, mu)
    D, Lam = np.asarray(jump.direction), np.asarray(jump.Lam)
    assert np.abs(M @ (np.asarray(jump.v_after) - v) + D.T @ Lam).max() < 1e-9 * np.abs(M).max()
    assert np.array_equal(D[:OLD], after[:OLD])  # what acts tangentially goes with the new row


def sticking(M, after, v, B):
    """v+, Lam and beta with B v+ = 0 as one more constraint."""
    rows = np.vstack([after, B])
    S = rows @ np.linalg.solve(M, rows.T)
    impulse = np.linalg.solve(S, rows @ v)
    return v - np.linalg.solve(M, rows.T @ impulse), impulse[: len(after)], -impulse[len(after) :]


@given(seeds, directions)
def test_stick_and_slip_at_the_boundary_of_the_cone(seed, k):
    M, before, after, v, B = contact(seed, k)
    stuck, Lam, beta = sticking(M, after, v, B)
    free = ideal(M, before, after, v)
    if (
        Lam[OLD] * float(free.Lam[OLD]) < 0
    ):  # friction would have to pull the contact: it never sticks
        w = B @ np.asarray(coulomb(M, before, after, v, B, 1e6).v_after)
        assert np.linalg.norm(w) > 0
        return
    critical = np.linalg.norm(beta) / abs(Lam[OLD])
    above = coulomb(M, before, after, v, B, critical * (1 + 1e-6))
    below = coulomb(M, before, after, v, B, critical * (1 - 1e-6))
    scale = np.abs(stuck).max()
    assert np.allclose(above.v_after, stuck, rtol=0, atol=1e-9 * scale)
    assert np.abs(B @ np.asarray(above.v_after)).max() < 1e-13 * np.abs(B).max() * np.abs(v).max()
    slow = np.linalg.norm(
        B @ np.asarray(below.v_after)
    )  # of the size 1e-6, less where friction presses by itself
    assert slow > 1e-12 * np.linalg.norm(B @ np.asarray(free.v_after))
    norm = np.linalg.norm(tangential(M, after, v, B, below))
    assert norm == pytest.approx(critical * (1 - 1e-6) * abs(float(below.Lam[OLD])), rel=1e-9)


@given(seeds, directions)
def test_no_friction_is_ideal_and_much_friction_sticks(seed, k):
    M, before, after, v, B = contact(seed, k)
    smooth, free = coulomb(M, before, after, v, B, 0.0), ideal(M, before, after, v)
    assert np.allclose(smooth.v_after, free.v_after, rtol=0, atol=1e-13 * np.abs(v).max())
    assert np.allclose(smooth.Lam, free.Lam, rtol=0, atol=1e-13 * np.abs(free.Lam).max())
    stuck, Lam, _ = sticking(M, after, v, B)
    if Lam[OLD] * float(free.Lam[OLD]) > 0:
        rough = coulomb(M, before, after, v, B, 1e6)
        assert np.allclose(rough.v_after, stuck, rtol=0, atol=1e-9 * np.abs(v).max())


def test_closed_form_of_a_particle():
    """A particle that hits a floor: beta = -mu Lam while it slides, -m w if it stops."""
    M, G, B = 2.0 * np.eye(2), np.array([[0.0, 1.0]]), np.array([[1.0, 0.0]])
    for mu, speed in ((0.0, 3.0), (0.5, 1.0), (2.0, 0.0)):
        jump = coulomb(M, np.zeros((0, 2)), G, np.array([3.0, -4.0]), B, mu)
        assert np.allclose(jump.v_after, [speed, 0.0], atol=1e-14)
        assert np.allclose(jump.Lam, [-8.0])
        assert np.allclose(jump.direction, [[-min(mu * 8.0, 6.0) / 8.0, 1.0]])


@pytest.mark.parametrize("k", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_derivatives_in_stick_and_slip(k):
    M, before, after, v, B = map(jnp.asarray, contact(11, k))
    after_mu = lambda mu, v: coulomb(M, before, after, v, B, mu).v_after
    _, Lam, beta = sticking(*map(np.asarray, (M, after, v, B)))
    critical = np.linalg.norm(beta) / abs(Lam[OLD])
    slope = jax.jit(jax.jacfwd(after_mu, argnums=(0, 1)))
    for mu in (0.5 * critical, 1.5 * critical):
        by_mu, by_v = slope(mu, v)
        h = 1e-6
        assert np.allclose(by_mu, (after_mu(mu + h, v) - after_mu(mu - h, v)) / (2 * h), atol=1e-6)
        step = np.eye(N)[0] * h
        assert np.allclose(
            by_v[:, 0], (after_mu(mu, v + step) - after_mu(mu, v - step)) / (2 * h), atol=1e-6
        )
    total = jax.jit(jax.grad(lambda mu: jnp.sum(after_mu(mu, v))))
    assert float(total(0.5 * critical)) == pytest.approx(
        float(jnp.sum(slope(0.5 * critical, v)[0])), rel=1e-9
    )
    assert np.all(np.isfinite(jax.jit(jax.jacrev(after_mu, argnums=1))(0.3, 0.0 * v)))
    batch = jax.jit(jax.vmap(after_mu, (0, None)))(jnp.array([0.0, 0.5 * critical]), v)
    assert np.allclose(batch[1], after_mu(0.5 * critical, v), atol=1e-13)


def test_given_impulses_and_functions():
    M, before, after, v, B = contact(7, 2)
    beta = np.array([0.3, -0.2])
    jump = laws.NonIdeal(B, beta=beta).jump(M, before, after, v)
    assert np.allclose(tangential(M, after, v, B, jump), beta, atol=1e-12)

    def rubbing(Lam, v, q, t, p):
        return -jnp.array([0.1, 0.2]) * Lam[OLD] ** 2 / (1 + jnp.abs(Lam[OLD]))

    law = laws.NonIdeal(B, beta=rubbing)
    jump = law.jump(M, before, after, v)
    assert np.allclose(
        tangential(M, after, v, B, jump), rubbing(jump.Lam, v, None, None, None), atol=1e-12
    )
    never = laws.NonIdeal(
        B, beta=lambda Lam, v, q, t, p: jnp.array([2.0, 0.0]) + jnp.sign(Lam[OLD]) * jnp.nan
    )
    with pytest.raises(nsdyn.ProblemError, match="NonIdeal asks for"):
        never.jump(M, before, after, v)


def test_without_a_normal_impulse_nothing_acts():
    still = laws.NonIdeal([[1.0, 0.0]], beta=[1.0]).jump(
        np.eye(2), np.zeros((0, 2)), [[0.0, 1.0]], [1.0, 0.0]
    )
    assert np.array_equal(still.v_after, [1.0, 0.0]) and np.array_equal(
        still.direction, [[0.0, 1.0]]
    )


def test_a_tangent_without_freedom_is_left_alone():
    """A direction that the constraints hold, and one twice."""
    M, before, after, v, B = contact(3, 1)
    held = coulomb(M, before, after, v, after[:1] + after[2:], 0.7)
    assert np.allclose(held.v_after, ideal(M, before, after, v).v_after, atol=1e-12)
    once = coulomb(M, before, after, v, B, 1e6)
    twice = coulomb(M, before, after, v, np.vstack([B, B]), 1e6)
    assert np.allclose(once.v_after, twice.v_after, atol=1e-9)


def floor(q, t, p):
    return q[1:]


def along(q, t, p):
    return p["sense"] * jnp.array([[1.0, 0.0]])


def thrown():
    params = {"m": 2.0, "g": 10.0, "sense": -1.0}
    return nsdyn.Problem(
        "thrown",
        PARTICLE,
        nsdyn.Contact(floor),
        q0=[0.0, 0.2],
        v0=[3.0, 0.0],
        t_end=0.3,
        params=params,
    )


@pytest.mark.parametrize(
    "integrator",
    [
        integrators.EventDriven(integrators.RK4()),
        pytest.param(integrators.NSGA(), marks=pytest.mark.slow),
    ],
)
def test_in_a_run(integrator):
    """A particle falls on a floor and slides on, slower by mu times the speed of its fall; tangents
    depend on q, t, p."""
    law = laws.NonIdeal(along, mu=0.5)
    run = nsdyn.simulate(thrown(), integrator, step=1e-2, law=law)
    assert "NonIdeal" in run.law and "along" in run.law
    (event,) = run.events
    fall = -event.v_before[1]
    assert fall == pytest.approx(
        2.0, rel=1e-9 if isinstance(integrator, integrators.EventDriven) else 6e-2
    )
    assert event.v_after[0] == pytest.approx(3.0 - 0.5 * fall, abs=1e-12)
    assert event.Lam[0] == pytest.approx(-2.0 * fall)
    balance = 2.0 * (event.v_after - event.v_before) + event.direction.T @ event.Lam
    assert np.abs(balance).max() < 1e-12


@pytest.mark.slow
def test_derivative_of_a_run():
    """x = 3 t - 2 mu (t - 0.2) after the fall of 0.2 s."""
    problem = thrown()

    def end(mu):
        law = laws.NonIdeal(along, mu=mu)
        return nsdyn.rollout(
            problem, integrators.EventDriven(integrators.RK4()), step=0.05, law=law
        ).q[-1, 0]

    value, slope = jax.jit(jax.value_and_grad(end))(0.5)
    assert float(value) == pytest.approx(0.8, abs=1e-12) and float(slope) == pytest.approx(
        -0.2, abs=1e-10
    )


def test_numbers_are_traced_and_functions_are_not():
    one, other = laws.NonIdeal(along, mu=0.1), laws.NonIdeal(along, mu=0.2)
    assert len(jax.tree.leaves(one)) == 1 and jax.tree.structure(one) == jax.tree.structure(other)
    assert len(jax.tree.leaves(laws.NonIdeal(np.eye(2), beta=[1.0, 2.0]))) == 2
    assert int(one.failure_code(None)) == Status.OK


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ({"tangents": np.eye(2)}, "either mu"),
        ({"tangents": np.eye(2), "mu": 0.1, "beta": [0.0, 0.0]}, "either mu"),
        ({"tangents": np.eye(2), "mu": -0.1}, ">= 0"),
        ({"tangents": np.ones(2), "mu": 0.1}, r"\(k, n\)"),
    ],
)
def test_wrong_settings_are_named(arguments, found):
    with pytest.raises(nsdyn.ProblemError, match=found):
        laws.NonIdeal(**arguments)


def test_tangents_of_the_wrong_size_are_named():
    with pytest.raises(nsdyn.ProblemError, match=r"\(k, 2\)"):
        laws.NonIdeal(np.eye(3), mu=0.1).jump(np.eye(2), np.zeros((0, 2)), [[0.0, 1.0]], [1.0, 0.0])
