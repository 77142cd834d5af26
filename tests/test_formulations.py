"""The three formulations of the motion equations on nonlinear constraints, and projection."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from mechanisms import SWING, circle, pegged_swing, run

import nsdyn
from nsdyn import integrators, laws

RK4 = integrators.EventDriven(integrators.RK4())


def solve_particle(q, b, p):
    return b / jnp.stack([p["m"], 2.0 * p["m"]])


def test_own_mass_solve_and_formulations_agree_on_a_nonlinear_constraint():
    """The same trajectory to the order of the method, switch included."""
    problem = pegged_swing()
    reference = run(problem, RK4, step=2e-3)
    own = nsdyn.System(mass=SWING.mass, force=SWING.force, solve=solve_particle)
    same = run(eqx.tree_at(lambda x: x.system, problem, own), RK4, step=2e-3)
    assert np.abs(np.asarray(same.q - reference.q)).max() < 1e-12
    for formulation, law in (("projected", "redundant"), ("minimal", "minimal")):
        method = integrators.EventDriven(integrators.RK4(formulation))
        gaps = []
        for step in (0.02, 0.01):
            settings = {"law": laws.MuellerTransition(law), "check": False}
            q = nsdyn.simulate(problem, method, step=step, **settings).q[-1]
            gaps.append(np.abs(q - reference.q[-1]).max())
            assert abs(q[0] ** 2 + (q[1] + 0.5) ** 2 - 0.25) < 1e-13
        assert gaps[1] < 1e-5 and np.log2(gaps[0] / gaps[1]) > 3.4, (formulation, gaps)


def test_projection_can_be_turned_off():
    problem = pegged_swing()
    plain = run(problem, integrators.EventDriven(integrators.RK4(), project=False), step=0.02)
    drift = abs(float(plain.q[-1, 0] ** 2 + (plain.q[-1, 1] + 0.5) ** 2 - 0.25))
    assert 1e-12 < drift < 1e-3


def test_minimal_coordinates_are_chosen_anew():
    """A full turn of a Cartesian pendulum: neither x nor y is independent all the way round."""
    problem = nsdyn.Problem(
        "turn",
        SWING,
        nsdyn.Fixed(circle),
        q0=[0.0, -1.0],
        v0=[12.0, 0.0],
        t_end=1.5,
        params={"m": 1.0, "g": 9.81},
    )
    minimal = run(
        problem, integrators.EventDriven(integrators.RK4("minimal")), step=2e-3, save_every=10
    )
    lagrange = run(problem, RK4, step=2e-3, save_every=10)
    turns = np.unwrap(np.arctan2(lagrange.q[:, 1], lagrange.q[:, 0]))
    assert np.ptp(turns) > 2 * np.pi
    assert (
        np.abs(np.asarray(minimal.q - lagrange.q)).max() < 5e-6
    )  # two methods of order 4 at 12 rad/s, h = 2 ms
