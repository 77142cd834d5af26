"""Radau IIA: orders, steps that stiffness does not shorten, constraints, derivatives, and what
happens if it cannot go on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import BALL, ball, pegged_swing, run
from references.pegged_swing import swing_reference
from scipy.integrate import solve_ivp
from test_forms import body_force, body_mass, body_rate, rotation, skate

import nsdyn
from nsdyn import laws
from nsdyn.integrators import DormandPrince, EventDriven, RadauIIA, radau_iia
from nsdyn.numerics import small
from nsdyn.status import Status
from nsdyn.studies.lib.bench.stiff import (
    CRANK,
    double_pendulum,
    followed,
    follower,
    rod,
    slider_crank,
)

LOOSE = 1e12  # every step is accurate enough, so that one step leads from sample to sample


def method(tolerance, **options):
    return EventDriven(RadauIIA(rtol=tolerance, atol=tolerance, **options))


def swing_errors(integrator, step, apart):
    """Errors in the time of the event and, after it, in q and v."""
    found = nsdyn.simulate(pegged_swing(), integrator, step=step, save_every=round(apart / step))
    after = found.t > 0.5
    t_event, q, v = swing_reference(found.t[after])
    assert len(found.events) == 1
    errors = [found.events.t[0] - t_event, found.q[after] - q, found.v[after] - v]
    return np.array([np.abs(error).max() for error in errors])


# The method itself


def test_the_table():
    """Order 5 of the quadrature, stage order 3, and the real eigenvalue."""
    c, A = radau_iia.NODES, radau_iia.A
    for k in range(1, 6):
        assert abs(A[-1] @ c ** (k - 1) - 1 / k) < 1e-15
    for k in range(1, 4):
        assert np.allclose(A @ c ** (k - 1), c**k / k, rtol=0, atol=1e-15)
    assert np.min(np.abs(np.linalg.eigvals(A) - radau_iia.GAMMA)) < 1e-14


@pytest.mark.parametrize("n", [1, 4, 9])
def test_inverse_and_factors_need_no_special_matrix(n):
    """Zeros on the diagonal, so that rows have to be exchanged."""
    rng = np.random.default_rng(n)
    a = rng.normal(size=(n, n))
    a[np.arange(n), np.arange(n)] = 0.0 if n > 1 else 2.0
    assert np.abs(small.inverse(jnp.asarray(a)) @ a - np.eye(n)).max() < 1e-12
    b = rng.normal(size=n)
    assert np.abs(a @ small.lu(jnp.asarray(a))(jnp.asarray(b)) - b).max() < 1e-12


def bent_spring(q, v, t, p):
    return -p["k"] * jnp.sin(q)


def smooth_problem():
    system = nsdyn.System(mass=BALL.mass, force=bent_spring)
    return nsdyn.Problem("smooth", system, q0=[1.0], v0=[0.0], t_end=2.0, params={"k": 4.0})


def test_order_of_a_smooth_motion():
    rate = lambda t, y: [y[1], -4 * np.sin(y[0])]
    t = np.arange(11) / 5
    options = {"t_eval": t, "method": "DOP853", "rtol": 1e-13, "atol": 1e-14}
    exact = solve_ivp(rate, (0, 2), [1.0, 0.0], **options).y
    errors = []
    for every in (1, 2):
        found = nsdyn.simulate(smooth_problem(), method(LOOSE), step=0.2 / every, save_every=every)
        errors.append(
            [np.abs(found.q[:, 0] - exact[0]).max(), np.abs(found.v[:, 0] - exact[1]).max()]
        )
    assert np.all(np.log2(np.divide(*errors)) > 4.9), errors


def test_orders_across_an_event():
    errors = [swing_errors(method(LOOSE), step, apart=0.08) for step in (0.02, 0.01)]
    assert np.all(np.log2(errors[0] / errors[1]) > 4.8), errors


def test_errors_follow_the_tolerances():
    errors = [swing_errors(method(tolerance), 0.1, apart=0.1) for tolerance in (1e-4, 1e-8)]
    assert np.all(errors[0] < 1e-3) and np.all(errors[1] < 1e-7)
    assert np.all(errors[1] < 1e-3 * errors[0])


# Stiffness


def test_a_stiff_spring_takes_at_most_a_tenth_of_the_steps():
    """Counted by the largest number of steps that is permitted, rejected ones included."""
    explicit = EventDriven(DormandPrince(rtol=1e-6, atol=1e-6, max_steps=500))
    found = run(follower(t_end=2.0), explicit, step=2.0)
    assert int(found.status) == Status.TOO_MANY_STEPS and float(found.t_stop) < 2.0
    found = run(follower(t_end=2.0), method(1e-6, max_steps=50), step=2.0)
    assert int(found.status) == Status.OK


@pytest.mark.parametrize("damping", [2e3, 20.0])
def test_stiff_motions_are_as_accurate_as_asked_for(damping):
    """Velocities too, however far the steps are beyond the period of the spring."""
    t = np.linspace(0.0, 10.0, 41)
    q, v = followed(t, 1e6, damping)
    for tolerance in (1e-4, 1e-8):
        stiff = follower(t_end=10.0, c=damping)
        found = nsdyn.simulate(stiff, method(tolerance), step=5.0, save_at=t)
        assert np.abs(found.q[:, 0] - q).max() < tolerance
        assert np.abs(found.v[:, 0] - v).max() < 5 * tolerance


def test_a_stiff_mechanism_with_a_constraint():
    """In at most a tenth of the steps, rejected ones included; against the explicit method of order
    8."""
    problem = double_pendulum(t_end=1.0)
    explicit = lambda order, tolerance, limit: EventDriven(
        DormandPrince(order, rtol=tolerance, atol=tolerance, max_steps=limit)
    )
    stopped = nsdyn.rollout(problem, explicit(5, 1e-5, 600), step=1.0)
    assert int(stopped.status) == Status.TOO_MANY_STEPS
    exact = nsdyn.simulate(problem, explicit(8, 1e-11, 10_000), step=1.0)
    found = nsdyn.simulate(problem, method(1e-5, max_steps=60), step=1.0)
    assert np.abs(found.q - exact.q).max() < 1e-6 and np.abs(found.v - exact.v).max() < 1e-4
    assert abs(float(rod(found.q[-1], 0.0, None))) < 1e-12
    assert abs(found.q[-1, :2] @ found.v[-1, :2]) < 1e-12
    assert 0 < found.iterations_worst <= radau_iia.ITERATIONS


def test_an_error_at_the_start_of_a_step_does_not_shorten_it():
    """A slider crank with a stiff rod, against one with a rigid rod, which is shorter by 1e-6 m at
    most. Velocities of the rod have errors of which a step starts, and which no shorter step makes
    smaller: without regard to this, more than 80 steps."""
    found = run(slider_crank(), method(1e-4, max_steps=75), step=10.0)
    assert int(found.status) == Status.OK
    assert int(found.iterations) <= 120
    t = np.linspace(0.0, 10.0, 11)
    tight = nsdyn.simulate(slider_crank(), method(1e-8), step=1.0)
    rigid = CRANK * np.cos(t) + np.sqrt(1 - (CRANK * np.sin(t)) ** 2)
    assert np.abs(tight.q[:, 2] - rigid).max() < 1e-6


# Other mechanisms


@pytest.mark.slow
def test_contacts_quasi_velocities_and_rolling():
    """Each against what is known of it."""
    bounce = run(ball(), method(1e-9), step=0.5, law=laws.Restitution(0.5))
    assert int(bounce.status) == 0 and abs(float(bounce.q[-1, 0])) < 1e-9
    assert np.allclose(bounce.events.t[0], np.sqrt(2 / 9.81), rtol=0, atol=1e-9)
    system = nsdyn.System(mass=body_mass, force=body_force, kinematics=body_rate)
    inertia, v0 = np.array([1.0, 2.0, 3.5]), np.array([0.3, 2.0, 0.1])
    body = nsdyn.Problem(
        "body", system, None, q0=[1.0, 0, 0, 0], v0=v0, t_end=1.0, params={"I": inertia}
    )
    turned = run(body, method(1e-9), step=0.5)
    momentum = rotation(np.asarray(turned.q[-1])) @ (inertia * np.asarray(turned.v[-1]))
    assert np.abs(momentum - inertia * v0).max() < 1e-7
    system = nsdyn.System(
        mass=lambda q, p: jnp.diag(jnp.array([1.0, 1.0, 0.2])),
        force=lambda q, v, t, p: jnp.zeros(3),
    )
    skating = nsdyn.Problem(
        "skate", system, nsdyn.Nonholonomic(skate), q0=[0.0, 0, 0], v0=[1.0, 0, 2.0], t_end=1.0
    )
    skated = run(skating, method(1e-9), step=0.5)
    exact = [np.sin(2.0) / 2, (1 - np.cos(2.0)) / 2, 2.0]
    assert np.abs(np.asarray(skated.q[-1]) - exact).max() < 1e-7


@pytest.mark.slow
@pytest.mark.parametrize("mode", [jax.jacfwd, jax.jacrev], ids=["fwd", "rev"])
def test_derivatives_through_an_event(mode):
    """Against differences; the event time depends on v0."""
    integrator = method(1e-8, max_steps=256)
    speeds = lambda speed: jnp.stack([0.6 * speed, 0.8 * speed])
    options = {"integrator": integrator, "step": 0.4}
    final = lambda s: nsdyn.rollout(pegged_swing(), v0=speeds(s), **options).q[-1]
    plain = lambda s: nsdyn.simulate(pegged_swing(), v0=speeds(s), **options).q[-1]
    found = jax.jit(mode(final))(0.5)
    d = 1e-4
    wide, narrow = (plain(0.5 + x) - plain(0.5 - x) for x in (2 * d, d))
    central = (8 * narrow - wide) / (12 * d)
    assert np.abs(found - central).max() < 1e-6 * np.abs(found).max()


def test_gradient_of_a_smooth_motion():
    """In reverse mode, with respect to the stiffness, against differences."""
    final = lambda k: nsdyn.rollout(
        smooth_problem(), method(1e-10, max_steps=256), step=1.0, params={"k": k}
    ).q[-1, 0]
    d = 1e-3
    values = jax.jit(jax.vmap(final))(4.0 + d * np.array([-2.0, -1.0, 1.0, 2.0]))
    central = np.dot([1, -8, 8, -1], values) / (12 * d)
    assert abs(jax.jit(jax.grad(final))(4.0) - central) < 1e-7


def test_a_batch_equals_single_runs():
    """Steps of different sizes and iterations of different lengths, side by side."""
    stiffness = np.array([4.0, 400.0])
    options = {"step": 1.0, "integrator": method(1e-7), "save_at": [0.1, 1.77]}
    together = nsdyn.sweep(smooth_problem(), params={"k": stiffness}, **options)
    for i, k in enumerate(stiffness):
        alone = nsdyn.simulate(smooth_problem(), params={"k": k}, **options)
        assert np.abs(together.q[i] - alone.q).max() < 1e-10


# Where it cannot go on


def cliff(q, v, t, p):
    """No force at all is known beyond q = -1."""
    return -p["g"] * jnp.sqrt(1.0 + q) / jnp.sqrt(1.0 + q)


@pytest.mark.parametrize("with_guards", [False, True])
def test_no_convergence_however_small_the_step(with_guards):
    """The ball reaches the cliff at t = sqrt(2 (1 + 1)/g) = 0.6386."""
    constraint = nsdyn.Contact(lambda q, t, p: q + 3.0) if with_guards else None
    system = nsdyn.System(mass=BALL.mass, force=cliff)
    problem = nsdyn.Problem(
        "cliff", system, constraint, q0=[1.0], v0=[0.0], t_end=1.0, params={"g": 9.81}
    )
    with pytest.raises(nsdyn.SimulationError, match="NOT_CONVERGED") as caught:
        nsdyn.simulate(problem, method(1e-6), step=0.2)
    assert abs(caught.value.t - 2 / np.sqrt(9.81)) < 1e-6
    assert caught.value.partial.t.tolist() == pytest.approx([0.0, 0.2, 0.4, 0.6])


def test_too_many_steps_are_told():
    with pytest.raises(nsdyn.SimulationError, match="max_steps") as caught:
        nsdyn.simulate(smooth_problem(), method(1e-10, max_steps=5), step=1.0)
    assert caught.value.status is Status.TOO_MANY_STEPS


def test_settings():
    assert len(jax.tree.leaves(RadauIIA())) == 3  # rtol, atol, and Newton's tolerance
    for wrong in ({"rtol": 0.0}, {"atol": -1.0}, {"max_steps": 0}):
        with pytest.raises(nsdyn.ProblemError, match=r"RadauIIA\(.*expected"):
            RadauIIA(**wrong)
