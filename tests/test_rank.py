"""One test of rank, in the mass metric and with one bound, gives steps, laws, checks and reports
the same answer."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mechanisms import run

import nsdyn
from nsdyn import laws
from nsdyn.integrators import RK4, EventDriven
from nsdyn.laws import ModeChange
from nsdyn.numerics import kkt, rank, small
from nsdyn.numerics.null_space import complement
from nsdyn.status import Status

N = 8
seeds = st.integers(0, 2**32 - 1)


def nearly_dependent(seed, m, sine):
    """M of condition 1e4, and m rows of any length, of which the last makes this angle with the
    others."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((N, N)))[0][:m]
    mixed = rng.standard_normal(m - 1)
    mixed = mixed / np.linalg.norm(mixed)
    last = np.sqrt(1 - sine**2) * mixed @ basis[:-1] + sine * basis[-1]
    rows = np.vstack([basis[:-1], last]) * np.exp(rng.uniform(-7, 7, m))[:, None]
    turn = np.linalg.qr(rng.standard_normal((N, N)))[0]
    L = np.linalg.cholesky(turn * np.geomspace(1.0, 1e4, N) @ turn.T)
    return L @ L.T, rows @ L.T


@jax.jit
def found_and_dependent(M, G):
    """The rows that are found to be independent, and the number of coordinates that follow."""
    found = kkt.independent_rows(small.factor(M), G, jnp.ones(len(G), bool))
    return found, jnp.sum(complement(G, found, jnp.ones(N, bool)).dependent)


@pytest.mark.parametrize("m", [*(pytest.param(m, marks=pytest.mark.slow) for m in (2, 4)), 7])
@given(seeds, st.sampled_from([0.0, 1e-9, 0.9, 1.1, 10.0, 1e4]))
def test_everybody_gives_the_same_answer(m, seed, times):
    M, G = nearly_dependent(seed, m, times * rank.DEPENDENT)
    expected = np.arange(m) < m - (times < 1)
    assert np.array_equal(rank.independent(G, M), expected)
    assert rank.left_null(G, M).shape[1] == m - expected.sum()
    assert nsdyn.transition_report(M, G, G, np.ones(N)).after.rank == expected.sum()
    found, dependent = found_and_dependent(M, G)
    assert np.array_equal(found, expected)
    assert int(dependent) == expected.sum()
    law, change = laws.GrassmannMidGradient(), ModeChange.of(M, G, G[expected], np.ones(N))
    assert int(law.failure_code(change)) == Status.OK


@given(seeds)
def test_what_is_found_of_the_rows_is_right(seed):
    M, G = nearly_dependent(seed, 4, 0.0)
    unit = G / rank.row_lengths(G)[:, None]
    null, free = rank.left_null(G, M), rank.free_directions(G, M)
    assert null.shape == (4, 1) and np.abs(null.T @ unit).max() < 1e-9
    assert np.abs(free @ unit.T).max() < 1e-9
    assert np.abs(free @ M @ free.T - np.eye(N - 3)).max() < 1e-9
    x = np.random.default_rng(seed).standard_normal(N)
    least = rank.least_change(G, M, G @ x)
    assert np.abs(unit @ (least - x)).max() < 1e-9 and np.abs(free @ M @ least).max() < 1e-9
    lam = rank.least_multipliers(unit, M, unit.T @ np.ones(4))
    assert np.abs(unit.T @ (lam - 1)).max() < 1e-9 and abs(null.T @ lam)[0] < 1e-9


def test_a_row_of_zeros_is_dependent():
    M, G = np.eye(3), np.array([[0.0, 0.0, 0.0], [1.0, 2.0, 0.0]])
    assert rank.independent(G, M).tolist() == [False, True]
    assert kkt.independent_rows(lambda b: b, jnp.asarray(G), jnp.ones(2, bool)).tolist() == [
        False,
        True,
    ]
    assert rank.independent(G[:0], M).shape == (0,) and rank.left_null(G[:0], M).shape == (0, 0)


def tilted(q, t, p):
    """Two planes at a small angle, one of them in other units."""
    return jnp.stack([q[2], 1e3 * (q[2] + p["slope"] * q[1])])


@pytest.mark.parametrize(("slope", "moves"), [(1e-8, True), (1e-4, False)])
def test_formulations_agree_about_the_rank(slope, moves):
    """Between 1e-10 and 1e-6 the one had two constraints, the other one."""
    system = nsdyn.System(
        mass=lambda q, p: jnp.eye(3), force=lambda q, v, t, p: jnp.array([0.0, 1.0, 0.0])
    )
    problem = nsdyn.Problem(
        "tilted",
        system,
        nsdyn.Fixed(tilted),
        q0=[0.0, 0.0, 0.0],
        v0=[1.0, 0.0, 0.0],
        t_end=1.0,
        params={"slope": slope},
    )
    for form in ("lagrange", "projected", "minimal"):
        out = run(problem, EventDriven(RK4(form)), step=0.1)
        assert int(out.status) == 0
        assert np.allclose(out.q[-1], [1.0, 0.5 * moves, 0.0], atol=1e-7), form


def test_contradictory_rates_are_told_from_dependent_rows():
    M, G = nearly_dependent(1, 4, 0.0)
    law = laws.PostSwitchGradient()
    rates = G @ np.arange(N)
    law.jump(M, np.zeros((0, N)), G, np.ones(N), gt_after=rates)
    with pytest.raises(nsdyn.ProblemError, match="contradict"):
        law.jump(M, np.zeros((0, N)), G, np.ones(N), gt_after=rates * [1.0, 1.0, 1.0, 1.1])
