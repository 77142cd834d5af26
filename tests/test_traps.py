"""Inputs on which a wrong answer would look right."""

import jax.numpy as jnp
import numpy as np
from mechanisms import run

import nsdyn
from nsdyn import Status, integrators, laws

RK4 = integrators.EventDriven(integrators.RK4())


def plane_unit(q, p):
    return jnp.eye(2)


def no_force(q, v, t, p):
    return jnp.zeros(2)


PLANE = nsdyn.System(mass=plane_unit, force=no_force)


def hill(q, t, p):
    """Above zero all along y = 0, but the parabola through quarter-step samples dips below."""
    x = q[0]
    return q[1:] + 0.015 + 60 * jnp.maximum(0.55 - x, 0) ** 4 + 10 * jnp.maximum(x - 0.55, 0) ** 3


def test_a_false_alarm_of_one_guard_does_not_fire_another():
    parts = (nsdyn.Scheduled((2.5,), (None, nsdyn.lock(0))), nsdyn.Contact(hill))
    problem = nsdyn.Problem("hill", PLANE, parts, q0=[0.0, 0.0], v0=[1.0, 0.0], t_end=2.0)
    out = run(problem, RK4, step=1.0)
    assert (
        int(out.status) == 0
        and int(out.events.count) == 0
        and np.allclose(out.q[-1], [2.0, 0.0], atol=1e-14)
    )


def vanishing(q, t, p):
    return jnp.stack([q[0] ** 2 + q[1] ** 2 - 1, q[0] - 0.5 * t])


def test_constraints_without_a_solution_are_a_status():
    problem = nsdyn.Problem(
        "gone", PLANE, nsdyn.Fixed(vanishing), q0=[0.0, 1.0], v0=[0.5, 0.0], t_end=3.0
    )
    out = run(problem, RK4, step=1e-2)
    assert (
        int(out.status) in (Status.CONSTRAINTS_LOST, Status.NONFINITE)
        and 1.9 < float(out.t_stop) < 2.3
    )


def full_mass(q, p):
    return jnp.array([[2.0, 0.5, 0.1], [0.5, 1.0, 0.3], [0.1, 0.3, 1.5]])


def steady_force(q, v, t, p):
    return jnp.array([1.0, -0.5, 0.2])


def dependent_rows(q, t, p):
    first, second = jnp.sin(q[0]) + 0.3 * q[1], 0.7 * q[1] - jnp.sin(q[2])
    return jnp.stack([first, second, first + second])


def test_minimal_form_with_a_dependent_row():
    system = nsdyn.System(mass=full_mass, force=steady_force)
    problem = nsdyn.Problem(
        "rows", system, nsdyn.Fixed(dependent_rows), q0=[0.0] * 3, v0=[-0.3, 1.0, 0.7], t_end=1.0
    )
    for formulation in ("lagrange", "minimal"):
        out = run(problem, integrators.EventDriven(integrators.RK4(formulation)), step=0.05)
        assert np.allclose(out.q[-1], [-0.24650, 0.81337, 0.60573], atol=2e-4), formulation


def test_redundant_locks_that_stop_the_mechanism():
    system = nsdyn.System(mass=full_mass, force=steady_force)
    parts = (
        nsdyn.Scheduled((0.5,), (None, nsdyn.lock(0, 1, 2))),
        nsdyn.Scheduled((0.25,), (None, nsdyn.lock(0))),
    )
    problem = nsdyn.Problem("stop", system, parts, q0=[0.0] * 3, v0=[-0.3, 1.0, 0.7], t_end=1.0)
    for seed in range(5):
        out = run(problem, RK4, step=0.07, v0=np.random.default_rng(seed).standard_normal(3))
        assert int(out.status) == 0 and np.abs(out.v[-1]).max() < 1e-12


def still(q, t, p):
    return q[0]


def driven(q, t, p):
    return q[0] - 0.5 * (t - 0.305)


def test_a_row_that_starts_to_be_driven():
    """The same gradient before and after, another prescribed speed."""
    constraint = nsdyn.Scheduled((0.305,), (still, driven))
    problem = nsdyn.Problem("drive", PLANE, constraint, q0=[0.0, 0.0], v0=[0.0, 1.0], t_end=1.0)
    out = run(problem, RK4, step=0.01)
    assert int(out.status) == 0 and np.allclose(out.q[-1], [0.3475, 1.0], atol=1e-12)
    assert np.allclose(out.events.Lam[0], -0.5)


def both_gaps(q, t, p):
    return q - 1.0


def test_contacts_that_close_almost_together():
    problem = nsdyn.Problem(
        "pair", PLANE, nsdyn.Contact(both_gaps), q0=[1.00005, 1.00005], v0=[-1.0, -1.0], t_end=1e-4
    )
    for offset in (0.0, 5e-15, 2e-14, 1e-13, 1e-9):
        out = run(
            problem, RK4, step=1e-5, law=laws.Restitution(0.5), q0=[1.00005, 1.00005 + offset]
        )
        assert int(out.status) == 0 and np.allclose(out.v[-1], 0.5, atol=1e-12), offset
