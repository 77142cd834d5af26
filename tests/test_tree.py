"""Trees of bodies: recursions against an independent library, rotations that last, closures that
switch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from references.random_trees import KINDS, Pin, random_state, random_tree

from nsdyn.errors import ProblemError
from nsdyn.multibody import tree_dynamics
from nsdyn.multibody.tree import Tree, frame, kinematics

TOLERANCE = 1e-11


def close(a, b, tolerance=TOLERANCE):
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    assert np.abs(a - b).max() <= tolerance * np.abs(b).max()


@jax.jit
def everything(tree, q, v, torque):
    return {
        "M": tree_dynamics.mass_matrix(tree, q),
        "bias": tree_dynamics.bias(tree, q, v),
        "a": tree_dynamics.accelerations(tree, q, v, torque),
        "potential": tree_dynamics.potential_energy(tree, q),
        "momenta": tree_dynamics.momenta(tree, q, v),
    }


@pytest.mark.parametrize(
    "kinds", [(*KINDS, *KINDS[::-1], "hinge", "hinge"), ("slide", "hinge", "hinge"), ("free",)]
)
def test_recursions_dense_matrices_and_pin_agree(kinds):
    """The velocities of `pin` for planar and free joints are in other axes: M and the bias differ
    by the transformation and its rate."""
    for seed in range(5):
        arrays = random_tree(kinds, seed)
        q, v, torque = random_state(kinds, seed)
        found = everything(Tree(**arrays), q, v, torque)
        M, bias, a, height = Pin(arrays).evaluated(q, v, torque)
        close(found["M"], M)
        close(found["bias"], bias)
        close(found["a"], a, 1e-9)
        close(found["potential"], height)
        close(found["momenta"], M @ v)
