"""The robots of the package example-robot-data: dynamics against Pinocchio, and short runs."""

import re

import jax
import numpy as np
import pinocchio
import pytest
from robot_files import files

import nsdyn
from nsdyn import problems
from nsdyn.errors import ProblemError
from nsdyn.integrators import RK4, EventDriven
from nsdyn.problems.urdf import read

pytestmark = pytest.mark.slow

# What no reader could mend: joints that mimic unknown ones, masses that are missing, tensors that
# no body has, robots that do not move.
REFUSED = {
    "alex_psyonic_hands.urdf": "expected <mimic> of another moving joint, found 'index_q1'",
    "icub.urdf": "expected a positive definite inertia",
    "icub_reduced.urdf": "expected a positive definite inertia",
    "romeo.urdf": "'RThumb3Link'.*no mass in it and beyond it",
    "romeo_small.urdf": "'RElbowYawLink'.*no principal moment above the sum",
    "romeo_laas_small.urdf": "'RHipPitch_link'.*expected a positive definite inertia",
    "quadrotor_base.urdf": "expected a moving joint",
    "iris_simple.urdf": "expected a moving joint",
    "ur3.urdf": "expected at least one <link>",
}


@jax.jit
def evaluated(system, p, q, v):
    """M, bias forces, accelerations."""
    force = system.force(q, v, 0.0, p)
    solve = system.solver(q, p)
    return system.mass(q, p), -force, solve(force)


def joints_of(problem, path):
    tree = problem.params.get("tree")
    return tree.names if tree is not None else read(path).joints


def oracle(path, names):
    """M, bias forces and accelerations by Pinocchio, joints in this order."""
    text = re.sub(r"<mimic[^>]*/>|<mimic[^>]*>\s*</mimic>", "", path.read_text())
    model = pinocchio.buildModelFromXML(text)
    data = model.createData()
    assert model.nv == len(names)
    at = [model.joints[model.getJointId(name)].idx_v for name in names]

    def evaluate(q, v):
        full, rates = np.zeros(model.nv), np.zeros(model.nv)
        full[at], rates[at] = q, v
        place = pinocchio.integrate(model, pinocchio.neutral(model), full)
        M = np.triu(pinocchio.crba(model, data, place))
        M = (M + np.triu(M, 1).T)[np.ix_(at, at)]
        bias = pinocchio.rnea(model, data, place, rates, 0 * rates)[at]
        return M, bias, pinocchio.aba(model, data, place, rates, 0 * rates)[at]

    return evaluate


ROBOTS = files("example-robot-data", ".urdf")


@pytest.mark.skipif(len(ROBOTS) == 1, reason="example-robot-data is not installed")
def test_sixty_of_69_are_read():
    """Those that are refused are listed above; each other one is compared and run below."""
    refused = [robot for robot in ROBOTS if robot.values[0].name in REFUSED]
    assert (len(ROBOTS), len(refused)) == (69, 9)


@pytest.mark.parametrize("path", ROBOTS)
def test_the_dynamics_of_a_robot_are_those_of_pinocchio(path):
    if path.name in REFUSED:
        with pytest.raises(ProblemError, match=REFUSED[path.name]):
            problems.from_urdf(path)
        return
    problem = problems.from_urdf(path)
    names = joints_of(problem, path)
    theirs = oracle(path, names)
    rng = np.random.default_rng(len(names))
    for _ in range(5):
        q, v = rng.normal(size=(2, len(names)))
        found = evaluated(problem.system, problem.params, q, v)
        for ours, expected in zip(found, theirs(q, v), strict=True):
            assert np.abs(ours - expected).max() <= 1e-9 * np.abs(expected).max()


@pytest.mark.parametrize("path", ROBOTS)
def test_a_robot_runs(path):
    if path.name in REFUSED:
        pytest.skip("refused")
    problem = problems.from_urdf(path, t_end=0.1)
    out = nsdyn.simulate(problem, EventDriven(RK4()), step=5e-3)
    assert out.t[-1] == 0.1 and np.all(np.isfinite(out.q))
    # no brakes, no dampers: the energy stays
    assert np.ptp(out.energy) <= 1e-3 * np.max(np.abs(out.energy - out.energy[0]), initial=1.0)
