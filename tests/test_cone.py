"""Contacts with friction, many at once: random families, all modes by enumeration, derivatives."""

import itertools

import contact_families as families
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nsdyn.numerics import cone
from nsdyn.numerics.cone_problem import OPEN, SLIP, STICK

SMALL = 500


@jax.jit
def solved_one_by_one(W, b, mu, on=None):
    def one(problem):
        W, b, mu, on = problem
        return cone.solve(W, b, mu, on, jnp.zeros_like(b), careful=True)

    return jax.lax.map(one, (W, b, mu, jnp.ones(mu.shape, bool) if on is None else on))


def violations(W, b, mu, P):
    """How far the impulses are from Coulomb's law, without the formulas of the solver; free of
    units: velocities are relative to the largest given one, impulses to what would stop it."""
    d = b.shape[1]
    r = np.diag(W)[::d] ** -0.5
    speed = np.max(np.abs(r[:, None] * b))
    u = (np.einsum("ij,j->i", W, P.ravel()).reshape(P.shape) + b) * r[:, None] / speed
    P = P / r[:, None] / speed
    largest = np.max(np.abs(P))
    slip = np.linalg.norm(u[:, 1:], axis=1)
    bound = mu * P[:, 0]
    friction = np.linalg.norm(P[:, 1:], axis=1)
    # maximal dissipation: -P_T . u_T = bound |u_T|
    power = np.sum(P[:, 1:] * u[:, 1:], axis=1) + bound * slip
    found = [
        np.max(np.abs(np.minimum(P[:, 0], u[:, 0]))),  # neither is negative, one is 0
        np.max(friction - bound),
        np.max(np.abs(power)) / (1 + largest),
    ]
    return max(found) / (1 + 1e-3 * largest)


def check_family(family, count):
    """Nearly all are solved to 1e-12. Of the others those that are not accepted have a status, and
    those that are obey the law as well as the error says."""
    W, b, mu = families.batch(family, count)
    found = solved_one_by_one(W, b, mu)
    error = np.asarray(found.error)
    assert np.mean(error <= 1e-12) >= 0.999
    for i in np.flatnonzero(found.solved):
        assert violations(W[i], b[i], mu[i], np.asarray(found.P[i])) < max(1e-12, 3 * error[i])


FAST = ["redundant, 4 contacts"]


@pytest.mark.parametrize("name", FAST)
def test_random_families_are_solved(name):
    check_family(families.FAMILIES[name], SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in families.FAMILIES if name not in FAST])
def test_all_random_families_are_solved(name):
    check_family(families.FAMILIES[name], SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", families.PILES)
def test_piles_are_solved(name):
    """With more rows than the balls have freedoms."""
    W, b, _ = families.batch(families.PILES[name], 1)
    contacts = int(name.split(", ")[1].split()[0])
    assert b.shape == (1, contacts, 3)
    assert np.linalg.matrix_rank(W[0]) == 6 * int(name.split()[0]) < 3 * contacts
    check_family(families.PILES[name], 60)


@pytest.mark.parametrize("careful", [False, True])
def test_turned_rows_take_part_whatever_their_diagonal_is(careful):
    """Friction against a turned slip: W is not symmetric, and its last diagonal is negative."""
    W = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.3], [0.0, 0.3, 0.1]])
    c, s = np.cos(0.7), np.sin(0.7)
    W = np.array([[1.0, 0.0, 0.0], [0.0, c, s], [0.0, -s, c]]) @ W
    assert W[2, 2] < 0
    b, mu = np.array([[-1.0, 1.0, 0.5]]), np.array([0.3])
    found = cone.solve(W, b, mu, np.ones(1, bool), np.zeros((1, 3)), careful=careful)
    assert found.solved
    assert found.mode.tolist() == [SLIP]
    assert violations(W, b, mu, np.asarray(found.P)) < 1e-12


def planar_solutions(W, b, mu):
    """All solutions of a planar problem: every contact open, sticking, or slipping to one side."""
    k = len(b)
    found = []
    for modes in itertools.product(("open", "stick", +1, -1), repeat=k):
        A, c = np.zeros((2 * k, 2 * k)), np.zeros(2 * k)
        for i, mode in enumerate(modes):
            N, T = 2 * i, 2 * i + 1
            if mode == "open":
                A[N, N] = A[T, T] = 1
                continue
            A[N], c[N] = W[N], -b[i, 0]
            if mode == "stick":
                A[T], c[T] = W[T], -b[i, 1]
            else:  # u_T has the sign `mode`
                A[T, T], A[T, N] = 1, mode * mu[i]
        try:
            P = np.linalg.solve(A, c).reshape(k, 2)
        except np.linalg.LinAlgError:
            continue
        u = (W @ P.ravel()).reshape(k, 2) + b
        good = all(
            u[i, 0] > -1e-10
            if mode == "open"
            else P[i, 0] > -1e-10
            and (abs(P[i, 1]) < mu[i] * P[i, 0] + 1e-10 if mode == "stick" else mode * u[i, 1] > 0)
            for i, mode in enumerate(modes)
        )
        if good:
            found.append(P)
    return found


def test_agrees_with_the_enumeration_of_all_modes():
    """One or two contacts, with low and with high friction."""
    count = 300
    W, b, mu = families.batch(lambda rng: families.full(rng, 2, 2), count, seed=1)
    mu = np.where(np.arange(count)[:, None] % 2, 4 * mu, mu)
    on = np.stack([np.ones(count, bool), np.arange(count) % 3 > 0], axis=1)
    found = solved_one_by_one(W, b, mu, on)
    for i in range(count):
        k = np.sum(on[i])
        every = planar_solutions(W[i][: 2 * k, : 2 * k], b[i][:k], mu[i])
        P = np.asarray(found.P[i])
        assert np.all(P[k:] == 0)
        if found.solved[i]:
            nearest = min(np.max(np.abs(other - P[:k])) for other in every)
            assert nearest < 1e-9 * (1 + np.max(np.abs(P)))
        else:
            assert not every
    assert np.mean(found.solved) > 0.99


def test_a_mass_between_closing_walls_has_no_solution():
    W = np.array([[1.0, 0, -1, 0], [0, 1, 0, 1], [-1, 0, 1, 0], [0, 1, 0, 1]])
    b = np.array([[-1.0, 0.5], [-1.0, 0.5]])  # opposite normals
    same = (np.stack([x] * 300) for x in (W, b, np.full(2, 0.3), np.ones(2, bool)))
    found = solved_one_by_one(*same)
    assert not np.any(found.solved)


def test_modes_mask_and_padding():
    """Three unit masses in the plane: one sticks, one slips, one is not on; the third row of each
    contact is padding."""
    W = jnp.diag(jnp.array([1.0, 1, 0] * 3))
    b = jnp.array([[-1.0, 0.1, 0], [-1.0, 3.0, 0], [-1.0, 0.1, 0]])
    mu = jnp.full(3, 0.5)
    on = jnp.array([True, True, False])
    found = cone.solve(W, b, mu, on, jnp.zeros((3, 3)))
    np.testing.assert_allclose(found.P, [[1, -0.1, 0], [1, -0.5, 0], [0, 0, 0]], atol=1e-13)
    assert found.mode.tolist() == [STICK, SLIP, OPEN]
    assert found.solved


def test_units_do_not_matter():
    W, b, mu = families.batch(families.FAMILIES[FAST[0]], SMALL)
    some = slice(0, 50)
    quick = jax.jit(
        jax.vmap(lambda W, b, mu: cone.solve(W, b, mu, jnp.ones(4, bool), jnp.zeros_like(b)))
    )
    found = quick(W[some], b[some], mu[some])
    other = quick(2.0**-20 * W[some], 2.0**10 * b[some], mu[some])
    assert np.array_equal(other.P, 2.0**30 * found.P)


@pytest.fixture(scope="module")
def velocity_after():
    """u = W P + b as a function of all numbers of a problem with full rank."""

    def u(W, b, mu):
        found = cone.solve(W, b, mu, jnp.ones(len(b), bool), jnp.zeros_like(b))
        return (W @ found.P.reshape(-1)).reshape(b.shape) + b + found.P

    return u


def test_derivatives_in_both_modes_and_by_differences(velocity_after):
    W, b, mu = families.batch(families.FAMILIES["full rank, 4 contacts"], 20, seed=5)
    dots = [np.random.default_rng(6).normal(size=x.shape) for x in (W, b, mu)]
    cotangent = np.random.default_rng(7).normal(size=b.shape)

    def forward(args, dots):
        return jax.jvp(velocity_after, args, dots)[1]

    def both(args, dots, cotangent):
        back = jax.vjp(velocity_after, *args)[1](cotangent)
        products = jax.tree.map(lambda x, y: jnp.sum(x * y), back, dots)
        return forward(args, dots), sum(products)

    along, reverse = jax.jit(lambda *x: jax.lax.map(lambda y: both(*y), x))(
        (W, b, mu), tuple(dots), cotangent
    )
    np.testing.assert_allclose(np.sum(along * cotangent, (1, 2)), reverse, rtol=1e-11)
    h = 1e-6
    sides = [
        jax.jit(lambda x: jax.lax.map(lambda y: velocity_after(*y), x))(
            tuple(x + s * h * dx for x, dx in zip((W, b, mu), dots, strict=True))
        )
        for s in (2, 1, -1, -2)
    ]
    differences = (8 * (sides[1] - sides[2]) - (sides[0] - sides[3])) / (12 * h)
    np.testing.assert_allclose(along, differences, rtol=1e-8, atol=1e-8)


def test_a_batch_equals_single_problems_and_a_warm_start_needs_no_iteration():
    W, b, mu = families.batch(families.FAMILIES["full rank, 4 contacts"], 50, seed=8)
    solve = jax.jit(jax.vmap(lambda W, b, mu, P0: cone.solve(W, b, mu, jnp.ones(4, bool), P0)))
    together = solve(W, b, mu, np.zeros_like(b))
    full = lambda x: np.concatenate([x] * (SMALL // 50))
    single = jax.tree.map(lambda x: x[:50], solved_one_by_one(full(W), full(b), full(mu)))
    good = np.asarray(together.solved)
    assert np.mean(good) > 0.9
    assert together.mode[good].tolist() == single.mode[good].tolist()
    np.testing.assert_allclose(together.P[good], single.P[good], rtol=1e-9, atol=1e-10)
    again = solve(W, b, mu, together.P)
    unchanged = np.asarray(together.error) <= 1e-14
    assert np.all(again.iterations[unchanged] == 0)
