"""Trees of bodies: recursions against an independent library, and rotations against the known
motions of tops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import run
from references.random_trees import KINDS, Pin, random_state, random_tree

import nsdyn
from nsdyn.errors import ProblemError
from nsdyn.integrators import NSGA, RK4, EventDriven, GeneralizedAlpha
from nsdyn.multibody import Bodies, Tree, tree_dynamics
from nsdyn.multibody.tree import frame, kinematics, rotation

TOLERANCE = 1e-11
EVENT_DRIVEN = EventDriven(RK4())


def close(a, b, tolerance=TOLERANCE):
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    assert np.abs(a - b).max() <= tolerance * np.abs(b).max()


@jax.jit
def everything(tree, q, v, torque):
    energy = lambda q: tree_dynamics.potential_energy(tree, q)
    return {
        "M": tree_dynamics.mass_matrix(tree, q),
        "bias": tree_dynamics.bias(tree, q, v),
        "a": tree_dynamics.accelerations(tree, q, v, torque),
        "potential": energy(q),
        "power": jax.jvp(energy, (q,), (kinematics(tree, q, v),))[1],
        "rest": tree_dynamics.joint_forces(tree, q, jnp.zeros_like(v)),
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
        close(found["power"], -found["rest"] @ v)
        close(found["momenta"], M @ v)


def test_springs_and_dampers_act_on_their_own_velocity():
    kinds = ("slide", "hinge", "hinge")
    arrays = random_tree(kinds, 0)
    q, v, torque = random_state(kinds, 0)
    plain = everything(Tree(**arrays), q, v, torque)
    d, k, q_0 = np.array([[0.1, 0.2, 0.3], [2.0, 0.0, 3.0], [0.5, 0.6, 0.7]])
    found = everything(Tree(**arrays, damping=d, stiffness=k, rest=q_0), q, v, torque)
    close(found["M"] @ (found["a"] - plain["a"]), -d * v - k * (q - q_0), 1e-9)
    close(found["potential"] - plain["potential"], 0.5 * np.sum(k * (q - q_0) ** 2))
    close(found["power"], -found["rest"] @ v)


def pendulum(length, mass):
    """A ball joint, a hinge and a box on it, with numbers that may be traced."""
    robot = Bodies()
    robot.ball("arm", mass=mass, com=jnp.stack([0.5 * length, 0.0, 0.0]), inertia=0.1 * mass)
    at = jnp.stack([length, 0.0, 0.0])
    robot.hinge("box", "arm", at=at, axis="y", mass=2.0, com=(0.1, 0, 0), inertia=(0.1, 0.2, 0.3))
    return robot


def test_derivatives_with_respect_to_lengths_and_masses():
    q = np.array([0.5, 0.5, 0.5, 0.5, 0.3])
    v = np.array([1.0, -2.0, 0.5, 0.7])

    @jax.jit
    def acceleration(x):
        return tree_dynamics.accelerations(pendulum(x[0], x[1]).tree, q, v)

    x = jnp.array([0.8, 1.3])
    forward = jax.jit(jax.jacfwd(acceleration))(x)
    backward = jax.jit(jax.jacrev(acceleration))(x)
    h = 1e-6
    steps = [acceleration(x + h * e) - acceleration(x - h * e) for e in np.eye(2)]
    close(forward, np.stack(steps, axis=1) / (2 * h), 1e-7)
    close(backward, forward)
    several = jax.vmap(acceleration)(jnp.stack([x, 2 * x]))
    close(several[1], acceleration(2 * x))


# Tops.


def top(inertia, com=(0.0, 0.0, 0.0), t_end=1.0, **start):
    robot = Bodies()
    robot.ball("top", mass=1.0, com=com, inertia=inertia)
    return robot.problem("top", t_end=t_end, **start)


def turned(vector):
    """The quaternion of a rotation vector."""
    angle = np.linalg.norm(vector)
    return np.concatenate([[np.cos(angle / 2)], np.sin(angle / 2) * np.asarray(vector) / angle])


def product(a, b):
    vector = a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:])
    return np.concatenate([[a[0] * b[0] - a[1:] @ b[1:]], vector])


@pytest.mark.parametrize(
    ("integrator", "order", "bound"),
    [
        (EVENT_DRIVEN, 4, 1e-6),
        pytest.param(NSGA(), 2, 1e-3, marks=pytest.mark.slow),
        pytest.param(EventDriven(GeneralizedAlpha()), 2, 1e-3, marks=pytest.mark.slow),
    ],
)
def test_order_of_the_attitude_of_a_free_symmetric_top(integrator, order, bound):
    """It turns uniformly about its angular momentum L, and about its axis relative to that:
    a(t) = turn(L t / I_1) turn(e_3 (1 - I_3 / I_1) w_3 t)."""
    across, along = 1.0, 1.8
    w = np.array([0.6, -0.8, 2.0])
    L = np.array([across, across, along]) * w
    problem = top((across, across, along), v0={"top": w})
    spin = np.array([0.0, 0.0, (1 - along / across) * w[2]])
    exact = product(turned(L / across), turned(spin))
    rate = np.asarray(rotation(jnp.asarray(turned(-spin)))) @ w
    errors = []
    for step in (0.02, 0.01):
        out = run(problem, integrator, step=step)
        q, v = np.asarray(out.q[-1]), np.asarray(out.v[-1])
        assert abs(np.linalg.norm(q) - 1) < 1e-8
        errors.append([np.abs(q / np.linalg.norm(q) - exact).max(), np.abs(v - rate).max()])
    errors = np.array(errors)
    assert np.all(errors[1] < bound)
    assert np.all(np.abs(np.log2(errors[0] / errors[1]) - order) < 0.25)
    assert np.ptp(out.energy) < bound


def test_a_heavy_top_precesses_steadily():
    """m g l = (I_3 w_3 - I_1 W cos(tilt)) W keeps the tilt, with I_1 about the fixed point."""
    across, along, l, tilt, W = 0.4, 0.9, 0.3, 0.7, 1.1
    w_3 = (9.81 * l / W + (across + l**2) * W * np.cos(tilt)) / along
    w = np.array([0.0, W * np.sin(tilt), w_3])
    start = {"q0": {"top": turned([tilt, 0.0, 0.0])}, "v0": {"top": w}}
    problem = top((across, across, along), com=(0, 0, l), **start)
    out = run(problem, EVENT_DRIVEN, step=0.01)
    axes = np.array([np.asarray(rotation(q))[:, 2] for q in out.q])
    azimuth = W * np.asarray(out.t)
    exact = [np.sin(tilt) * np.sin(azimuth), -np.sin(tilt) * np.cos(azimuth)]
    assert np.abs(axes - np.stack([*exact, np.full_like(azimuth, np.cos(tilt))], 1)).max() < 1e-7
    assert np.ptp(out.energy) < 1e-7


def test_the_length_of_a_quaternion_does_not_matter_and_is_restored():
    start = turned([0.3, -0.2, 0.5])
    arguments = {"inertia": (1.0, 1.0, 1.8), "v0": {"top": (1, 2, 3)}}
    unit = run(top(q0={"top": start}, **arguments), EVENT_DRIVEN, step=0.01)
    long = run(top(q0={"top": 1.01 * start}, **arguments), EVENT_DRIVEN, step=0.01)
    lengths = np.linalg.norm(np.asarray(long.q), axis=1)
    assert np.abs(np.asarray(long.v) - np.asarray(unit.v)).max() < 1e-6
    # (|a|^2)' = |w| (1 - |a|^2) |a|^2 / 2, and |w| is constant
    odds = 1.01**2 / (1.01**2 - 1) * np.exp(0.5 * np.sqrt(14.0) * np.asarray(long.t))
    assert np.abs(lengths**2 - odds / (odds - 1)).max() < 1e-8
    bound = 1e-2 * (0.5 * np.sqrt(14.0) * 0.01) ** 5
    assert np.abs(np.linalg.norm(np.asarray(unit.q), axis=1) - 1).max() < bound


@pytest.mark.slow
def test_the_length_of_a_quaternion_after_a_million_steps():
    problem = top((1.0, 2.0, 3.0), v0={"top": (0.3, 2.0, 0.1)}, t_end=1000.0)
    out = nsdyn.simulate(problem, EVENT_DRIVEN, step=1e-3, save_every=1000)
    assert np.abs(np.linalg.norm(np.asarray(out.q), axis=1) - 1).max() < 1e-12
    assert np.ptp(out.energy) < 1e-9


# What may be wrong.


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parents": [0, -1]}, ("parents", "body 0", "found 0")),
        ({"kinds": ["hinge", "hing"]}, ("'hing'", "hinge")),
        ({"kinds": ["hinge"]}, ("kinds", "2 bodies", "found 1")),
        ({"names": ["a", "a"]}, ("names", "different")),
        ({"axis": [[0, 0, 1], [0, 0, 0]]}, ("axis", "'body 1'")),
        ({"mass": [1.0]}, ("mass", "(2,)", "(1,)")),
        ({"rotor": [1.0]}, ("rotor", "(2,)", "(1,)")),
    ],
)
def test_errors_of_a_tree(change, words):
    arrays = {
        "parents": [-1, 0],
        "kinds": ["hinge", "slide"],
        "place": np.zeros((2, 3)),
        "mass": np.ones(2),
        "com": np.zeros((2, 3)),
        "inertia": np.tile(np.eye(3), (2, 1, 1)),
    }
    tree = Tree(**arrays)
    assert tree.nq == tree.nv == 2
    with pytest.raises(ProblemError) as error:
        Tree(**(arrays | change))
    assert all(word in str(error.value) for word in words)


@pytest.mark.parametrize(
    ("add", "words"),
    [
        (lambda b: b.hinge("arm", mass=1), ("hinge('arm', ...)", "taken")),
        (lambda b: b.hinge("x", "amr", mass=1), ("hinge('x', ...)", "'amr'", "'arm'")),
        (lambda b: b.hinge("x"), ("hinge('x', ...)", "mass", "found none")),
        (lambda b: b.hinge("x", mass=-1), ("mass", ">= 0", "-1")),
        (lambda b: b.hinge("x", mass=1, at=(1, 2)), ("hinge('x', ...): at", "(3,)", "(2,)")),
        (lambda b: b.hinge("x", mass=1, axis="w"), ("axis", "'w'")),
        (lambda b: b.hinge("x", mass=1, inertia=(1, 2)), ("inertia", "(2,)")),
        (lambda b: b.hinge("x", mass=1, inertia=-1), ("inertia", "negative")),
        (lambda b: b.hinge("x", mass=1, spring=1), ("'spring'", "stiffness")),
        (lambda b: b.ball("x", mass=1, stiffness=1), ("stiffness", "motor")),
        (lambda b: b.ball("x", mass=1, damping=(1, 2)), ("damping", "3 numbers", "(2,)")),
        (lambda b: b.connect("arm", "leg", (0, 0, 0)), ("connect('arm', 'leg', ...)", "'leg'")),
        (lambda b: b.weld("arm", "world", at=(0, 0, 0), hold=True), ("weld", "both")),
        (lambda b: b.couple("arm", "ball"), ("couple", "'ball'")),
        (lambda b: b.problem("x", q0={"leg": 1.0}), ("q0", "'leg'")),
        (lambda b: b.problem("x", q0={"ball": 1.0}), ("q0", "'ball'", "(4,)", "(1,)")),
    ],
)
def test_errors_of_the_builder(add, words):
    robot = Bodies()
    robot.hinge("arm", mass=1.0, inertia=1.0)
    robot.ball("ball", mass=1.0, inertia=1.0)
    with pytest.raises(ProblemError) as error:
        add(robot)
    assert all(word in str(error.value) for word in words), str(error.value)
    assert robot.tree.nv == 4  # what was refused is no part of it


def test_frames_by_name():
    """Place, turn and joint of a parent act on its children."""
    robot = Bodies(planar=True)
    robot.hinge("arm", at=(1.0, 2.0), turn=np.pi / 2, mass=1.0)
    robot.slide("rod", "arm", at=(3.0, 0.0), axis="x", mass=1.0)
    tree = robot.tree
    q = robot.coordinates({"arm": np.pi / 2, "rod": 0.5})
    assert np.allclose(frame(tree, q, tree.index("rod"))[:3, 3], [1.0 - 3.5, 2.0, 0.0])
    assert tree.q_of("rod") == slice(1, 2) and tree.v_of("arm") == slice(0, 1)
