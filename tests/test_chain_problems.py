"""Chains in simulations: the two links of the source in closed form, impacts and locks of a 3D
chain, energy of a long one."""

from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params
from mechanisms import run

import nsdyn
from nsdyn import laws, problems
from nsdyn.errors import ProblemError
from nsdyn.integrators import RK4, EventDriven
from nsdyn.multibody.chain import links, shift, tip, twists
from nsdyn.multibody.chain_dynamics import (
    DENSE,
    SHORT,
    SYSTEM,
    chain_system,
    height_energy,
    mass_matrix,
)
from nsdyn.multibody.chain_impulse import restitution

SCHEME = EventDriven(RK4())
EXACT = 1e-13
IMPACTS = [  # e, w, m, L
    (0.0, (1.0, 0.5), 1.0, 1.0),
    (0.5, (1.0, 0.5), 1.0, 1.0),
    (1.0, (2.0, -3.0), 3.0, 0.7),
    (0.3, (0.1, 5.0), 0.05, 12.0),
    (0.8, (7.0, -0.2), 250.0, 0.01),
]
IMPACT = pytest.mark.parametrize(("e", "w", "m", "L"), IMPACTS)


def close(a, b, tolerance):
    a, b = np.asarray(a), np.asarray(b)
    assert np.abs(a - b).max() <= tolerance * np.abs(b).max()


@jax.jit
def respond(params, q, v, e):
    """Recursion and dense law, with the twists of both links about the origin before and after."""
    chain, normal = params["chain"], -params["normal"]
    response = restitution(chain, q, v, params["tip"], normal, e)
    G = jax.grad(lambda q: jnp.sum(normal * tip(chain, q, params["tip"])))(q)
    jump = laws.Restitution(e).jump(mass_matrix(chain, q), jnp.zeros((0, 2)), G[None], v)
    change = twists(links(chain, q), response.v_after - v)
    return (
        response,
        jump,
        jnp.stack([change[0], shift(-params["tip"]) @ change[1]]),
        G @ response.v_after,
    )


@IMPACT
def test_two_links_in_closed_form(e, w, m, L):
    problem = problems.two_link_impact(m=m, L=L, w=w)
    response, jump, change, bounce = respond(problem.params, problem.q0, problem.v0, e)
    speed = 2 * w[0] + w[1]
    rates = np.array(w) + (1 + e) * speed * np.array([1 / 4, -3 / 2])
    close(response.approach, L * speed, EXACT)  # (34)
    for J, after in ((response.impulse, response.v_after), (jump.Lam[0], jump.v_after)):
        close(J, (1 + e) * 7 / 24 * m * L * speed, EXACT)  # (36)
        close(after, rates, EXACT)  # (38), (39)
    scale = np.array([L, L, 1.0])  # entries in metres and in radians
    first, second = np.array([[0, 0, 1 / 4], [0, 3 * L / 2, -5 / 4]]) * (1 + e) * speed
    close(change[0, [0, 1, 5]] / scale, first / scale, EXACT)  # (38)
    close(change[1, [0, 1, 5]] / scale, second / scale, EXACT)  # (39)
    assert abs(bounce + e * L * speed) <= EXACT * L * (2 * abs(w[0]) + abs(w[1])) * 4  # (40)


@pytest.mark.slow
@IMPACT
def test_two_links_in_a_simulation(e, w, m, L):
    problem = problems.two_link_impact(t_end=0.02)
    case = problems.two_link_impact(m=m, L=L, w=w)
    out = run(problem, SCHEME, law=laws.Restitution(e), params=case.params, v0=case.v0, step=1e-3)
    speed = 2 * w[0] + w[1]
    assert int(out.status) == 0 and int(out.events.count) == 1 and float(out.events.t[0]) == 0.0
    close(-out.events.Lam[0], (1 + e) * 7 / 24 * m * L * speed, EXACT)
    close(out.events.v_after[0], np.array(w) + (1 + e) * speed * np.array([1 / 4, -3 / 2]), EXACT)
    loss = out.events.kinetic_before[0] - out.events.kinetic_after[0]
    assert (
        abs(loss - (1 - e**2) * 7 / 48 * m * (L * speed) ** 2)
        <= 1e-12 * out.events.kinetic_before[0]
    )
    rests = e * L * abs(speed) <= 1e-3
    assert int(out.mode[-1]) == rests
    close(out.energy[1:], out.energy[1], 1e-6)  # rates up to 40 rad/s


@pytest.mark.slow
def test_a_chain_falls_locks_and_bounces():
    """Joint 1 locks at 0.1 s, then the tip hits the floor: each impulse obeys its law, and between
    them energy is kept."""
    e, n = 0.6, 3
    problem = problems.serial_chain(n, offset=-0.8, locks=((0.1, 1),), t_end=0.6)
    out = run(problem, SCHEME, law=laws.Restitution(e), step=1e-3)
    count = int(out.events.count)
    assert int(out.status) == 0 and count >= 2
    events = [
        jax.tree.map(lambda x, k=k: np.asarray(x[k]), out.events.records) for k in range(count)
    ]
    p, chain = problem.params, problem.params["chain"]
    row = jax.jit(jax.grad(lambda q: jnp.sum(p["normal"] * tip(chain, q, p["tip"]))))
    mass = jax.jit(lambda q: mass_matrix(chain, q))
    brake, impact = events[0], events[1]
    momentum = np.asarray(mass(brake.q)) @ (brake.v_after - brake.v_before)
    assert brake.t == 0.1 and brake.mode_after.tolist() == [0, 1]
    assert np.abs(momentum[[0, 2]]).max() < 1e-12 * np.abs(momentum).max()
    assert abs(brake.v_after[1]) < 1e-14
    G = np.asarray(row(impact.q))
    assert abs(float(tip(chain, impact.q, p["tip"])[2]) + 0.8) < 1e-12
    close(G @ impact.v_after, -e * (G @ impact.v_before), 1e-12)
    close(
        np.asarray(mass(impact.q)) @ (impact.v_before - impact.v_after),
        impact.direction.T @ impact.Lam,
        1e-12,
    )
    times = np.array([0.0, *(float(event.t) for event in events), 0.6])
    for start, end in pairwise(times):
        energy = np.asarray(out.energy)[
            (np.asarray(out.t) >= start) & (np.asarray(out.t) < end - 1e-9)
        ]
        assert np.ptp(energy) < 1e-6  # joules; the impact takes several
    assert np.abs(np.asarray(out.v)[np.asarray(out.t) > 0.1, 1]).max() < 1e-12


def test_energy_of_a_hundred_links():
    """100 links of 1 m, crumpled and moving, 1 s at h = 1e-3: energy is kept to 1e-6 of the largest
    kinetic energy."""
    n = 100
    rng = np.random.default_rng(0)
    q0, v0 = 0.3 * rng.normal(size=n), 0.2 * rng.normal(size=n)
    problem = problems.serial_chain(n, offset=None, q0=q0, v0=v0)
    out = run(problem, SCHEME, step=1e-3)
    potential = jax.jit(jax.vmap(lambda q: height_energy(problem.params["chain"], q)))(out.q)
    kinetic = np.max(out.energy - potential)
    assert int(out.status) == 0 and kinetic > 1e4
    assert np.max(np.abs(out.energy - out.energy[0])) < 1e-6 * kinetic


@pytest.mark.slow
def test_a_tip_that_bounces_to_rest_is_located():
    """The last bounces approach with a few mm/s: the gap of 12 m of chain is known to 1e-15 m, 1e-9
    of a step of 2e-4 s."""
    problem = problems.serial_chain(12, rest_speed=1e-3)
    out = run(problem, SCHEME, law=laws.Restitution(0.5), step=2e-4, save_every=10)
    count = int(out.events.count)
    gaps = np.asarray(
        jax.vmap(lambda q: problem.constraint[0].gap(q, 0.0, problem.params))(out.events.q[:count])
    )
    assert int(out.status) == 0 and count > 7 and np.abs(gaps).max() < 1e-13


def shapes(jaxpr):
    """The shapes of all values that a traced program computes, loops included."""
    for equation in jaxpr.eqns:
        yield from (
            variable.aval.shape for variable in equation.outvars if hasattr(variable.aval, "shape")
        )
        for inner in jaxprs_in_params(equation.params):
            yield from shapes(inner)


def test_a_long_chain_never_forms_its_mass_matrix():
    """Nor any other n x n; with the dense system, which has the same functions otherwise, it
    does."""
    n = 13
    free = problems.serial_chain(n, offset=None, t_end=0.02)

    def largest(system):
        problem = eqx.tree_at(lambda x: x.system, free, system)
        traced = jax.make_jaxpr(lambda q: nsdyn.rollout(problem, SCHEME, step=1e-3, q0=q).energy)(
            free.q0
        )
        return max(shape.count(n) for shape in shapes(traced.jaxpr))

    assert largest(SYSTEM) == 1 and largest(DENSE) == 2
    assert free.system == chain_system(SHORT + 1) == SYSTEM and chain_system(SHORT) == DENSE
    assert problems.two_link_impact().system == DENSE


@pytest.mark.slow
def test_a_long_chain_with_a_wall_never_forms_its_mass_matrix():
    """The law is offered M; one that needs M^-1 b only leaves it to the compiler to drop."""
    n = 13
    problem = problems.serial_chain(n, t_end=0.02)
    rollout = lambda q: nsdyn.rollout(problem, SCHEME, law=laws.Restitution(0.5), step=1e-3, q0=q)
    assert f"[{n},{n}]" not in jax.jit(rollout).lower(problem.q0).compile().as_text()


def test_wrong_locks_are_refused():
    with pytest.raises(ProblemError, match=r"expected joints 0 \.\.\. 2, found 3"):
        problems.serial_chain(3, locks=((0.1, 3),))
