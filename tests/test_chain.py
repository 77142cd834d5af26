"""Serial chains: the O(N) recursions against dense matrices, the printed recursion and an
independent library."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from references import serial_chain as printed
from references.random_chains import Pin, random_chain, random_state

from nsdyn import laws
from nsdyn.errors import ProblemError
from nsdyn.multibody import chain_dynamics
from nsdyn.multibody.chain import Chain, centres, links, shift, tip
from nsdyn.multibody.chain_impulse import inverse_inertias, restitution

TOLERANCE = 1e-10
SIZES = range(1, 13)


@jax.jit
def everything(arrays, q, v, torque, point, normal, e):
    """One program per number of links."""
    chain = Chain(**arrays)
    height = lambda q: jnp.sum(normal * tip(chain, q, point))
    M, G = chain_dynamics.mass_matrix(chain, q), jax.grad(height)(q)
    switch = (M, jnp.zeros((0, q.shape[0])), G[None], v)
    solve = chain_dynamics.SYSTEM.solver(q, {"chain": chain})
    return {
        "M": M,
        "bias": chain_dynamics.bias(chain, q, v),
        "a": chain_dynamics.accelerations(chain, q, v, torque),
        "potential": chain_dynamics.height_energy(chain, q),
        "tip": tip(chain, q, point),
        "G": G,
        "response": restitution(chain, q, v, point, normal, e),
        "jump": laws.Restitution(e).jump(*switch),
        "fast": laws.Restitution(e).jump(*switch, solve=solve),
        "momenta": chain_dynamics.momenta(chain, q, v),
    }


def close(a, b, tolerance=TOLERANCE):
    a, b = np.asarray(a), np.asarray(b)
    assert np.abs(a - b).max() <= tolerance * np.abs(b).max()


@pytest.mark.parametrize("n", SIZES)
def test_recursions_dense_law_and_pin_agree(n):
    for seed in range(5):
        arrays = random_chain(n, seed)
        q, v, torque, point, normal, e = state = random_state(n, seed)
        found = everything(arrays, *state)
        oracle = Pin(arrays, point)
        close(found["M"], oracle.mass(q))
        close(found["momenta"], oracle.mass(q) @ v)
        close(found["bias"], oracle.bias(q, v))
        close(found["a"], oracle.accelerations(q, v, torque))
        close(found["potential"], oracle.potential(q))
        close(found["tip"], oracle.position(q))
        close(found["G"], oracle.row(q, normal))
        after, impulse = oracle.impact(q, v, oracle.row(q, normal), e)
        change, J = printed.impact(arrays, q, v, point, normal, e)
        response, jump, fast = found["response"], found["jump"], found["fast"]
        for rates in (response.v_after, jump.v_after, fast.v_after, v + change):
            close(rates, after)
        for size in (response.impulse, jump.Lam[0], fast.Lam[0], J):
            close(size, -impulse)
        close(response.approach, oracle.row(q, normal) @ v)


def test_energy_is_what_the_bodies_have():
    """The potential falls with the centres of mass; without drives the power of all forces is
    zero."""
    n = 5
    chain, (q, v, *_) = Chain(**random_chain(n, 7)), random_state(n, 7)

    @jax.jit
    def powers(q, v):
        weight = lambda q: -jnp.sum(chain.mass * (centres(chain, q) @ chain.gravity))
        kinetic = lambda q: 0.5 * v @ chain_dynamics.mass_matrix(chain, q) @ v
        rate = jax.jvp(lambda q: kinetic(q) + weight(q), (q,), (v,))[1]
        return (
            rate,
            v @ chain_dynamics.bias(chain, q, v),
            weight(q),
            chain_dynamics.height_energy(chain, q),
        )

    rate, power, weight, potential = powers(q, v)
    close(potential, weight)
    close(power, rate)  # d/dt (T + V) at v' = 0 is the power of what holds v' = 0


def test_link_local_frames_keep_the_digits_of_a_long_chain():
    """100 links: recursion and articulated bodies are different algorithms; about the world's
    origin they differ by 1e-9."""
    n = 100
    rng = np.random.default_rng(0)
    arrays = random_chain(n, 0) | {"place": np.tile([1.0, 0, 0], (n, 1)), "slides": np.zeros(n)}
    arrays |= {"rotor": np.zeros(n), "turn": np.tile(np.eye(3), (n, 1, 1))}
    chain, q, v = Chain(**arrays), 0.1 * rng.normal(size=n), rng.normal(size=n)
    point, normal = np.array([1.0, 0, 0]), np.array([0.0, 0, 1])

    @jax.jit
    def both(chain, q, v):
        response = restitution(chain, q, v, point, normal, 0.5)
        G = jax.grad(lambda q: jnp.sum(normal * tip(chain, q, point)))(q)
        Y = chain_dynamics.inverse_mass(chain, q, G)
        J = 1.5 * (G @ v) / (G @ Y)
        return response, v - Y * J, J

    response, after, J = both(chain, q, v)
    close(response.v_after, after, 1e-11)
    close(response.impulse, J, 1e-11)


@pytest.mark.parametrize(("m", "L"), [(1.0, 1.0), (3.7, 0.45), (0.02, 12.0)])
def test_inverse_inertia_of_the_two_links(m, L):
    """(35) of the source, whose unreadable last entry is 48/(7 m L^2)."""
    rod = m * L**2 / 12 * np.diag([0.0, 1.0, 1.0])
    along = np.array([L, 0.0, 0.0])
    chain = Chain(
        axis=[(0, 0, 1)] * 2,
        place=[np.zeros(3), along],
        mass=[m, m],
        com=[along / 2] * 2,
        inertia=[rod, rod],
    )
    first, second = np.asarray(inverse_inertias(links(chain, jnp.zeros(2))))
    to_origin = np.asarray(shift(-along))
    second = to_origin @ second @ to_origin.T
    planar = np.ix_((0, 1, 5), (0, 1, 5))
    exact = (
        np.array([[0, 0, 0], [0, 96 / 7, -66 / (7 * L)], [0, -66 / (7 * L), 48 / (7 * L**2)]]) / m
    )
    close(first[planar], np.diag([0, 0, 3 / (m * L**2)]), 1e-13)
    close(
        second[planar] * np.outer((1, 1, L), (1, 1, L)),
        exact * np.outer((1, 1, L), (1, 1, L)),
        1e-13,
    )


def test_transformations_of_forward_dynamics():
    """jit, vmap over descriptions and states, both derivative modes, against finite differences."""
    n = 3
    arrays, (q, v, torque, *_) = random_chain(n, 3), random_state(n, 3)
    slides = arrays.pop("slides")

    def total(x):
        arrays, q, v = x
        chain = Chain(slides=slides, **arrays)
        return jnp.sum(chain_dynamics.accelerations(chain, q, v, torque) * jnp.arange(1.0, n + 1))

    x = jax.tree.map(jnp.asarray, (arrays, q, v))
    rng = np.random.default_rng(5)
    direction = jax.tree.map(lambda a: jnp.asarray(rng.normal(size=a.shape)), x)
    moved = lambda h: jax.tree.map(lambda a, d: a + h * d, x, direction)
    values = jax.jit(jax.vmap(lambda h: total(moved(h))))(jnp.array([2e-3, 1e-3, -1e-3, -2e-3]))
    difference = (8 * (values[1] - values[2]) - (values[0] - values[3])) / 12e-3
    forward = jax.jit(lambda h: jax.jvp(lambda h: total(moved(h)), (h,), (1.0,))[1])(0.0)
    gradient = jax.jit(jax.grad(total))(x)
    reverse = sum(
        np.sum(a * b)
        for a, b in zip(jax.tree.leaves(gradient), jax.tree.leaves(direction), strict=True)
    )
    close(forward, difference, 1e-7)
    close(reverse, forward, 1e-11)


def test_impulse_response_is_differentiable():
    n = 3
    arrays, (q, v, _, point, normal, e) = random_chain(n, 4), random_state(n, 4)
    chain, along, h = Chain(**arrays), np.array([0.3, -0.2, 0.5]), 1e-4

    @jax.jit
    def slopes(q, e):
        J = lambda q, e: restitution(chain, q, v, point, normal, e).impulse
        quotient = (J(q + h * along, e + h) - J(q - h * along, e - h)) / (2 * h)
        return jax.jvp(J, (q, e), (along, 1.0))[1], jax.grad(J, argnums=(0, 1))(q, e), quotient

    forward, (by_q, by_e), quotient = slopes(q, e)
    close(forward, by_q @ along + by_e, 1e-12)
    close(forward, quotient, 1e-6)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"mass": [1.0]}, "Chain(mass=...): expected an array of shape (2), found (1,)"),
        ({"axis": [0.0, 0.0, 1.0]}, "Chain(axis=...)"),
        (
            {"axis": [[0.0, 0.0, 0.0]] * 2},
            "Chain(axis=...): expected a nonzero axis for joint 0",
        ),
        ({"slides": [0.0, 0.5]}, "Chain(slides=...)"),
    ],
)
def test_wrong_descriptions_are_refused(change, text):
    with pytest.raises(ProblemError) as error:
        Chain(**(random_chain(2, 0) | change))
    assert text in str(error.value)
