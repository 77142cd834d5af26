"""Robots from URDF files: the same numbers as an independent reader, and an error for each thing
that may be wrong."""

from pathlib import Path

import jax
import numpy as np
import pinocchio
import pytest
from mechanisms import run

from nsdyn import laws, problems
from nsdyn.errors import ProblemError
from nsdyn.integrators import RK4, EventDriven
from nsdyn.multibody import chain_dynamics, tree_dynamics
from nsdyn.multibody.chain import tip
from nsdyn.problems.urdf import read

ARM = Path(__file__).parent / "data" / "arm.urdf"
JOINTS = ("waist", "shoulder", "elbow", "telescope")
INERTIA = '<inertia ixx="1" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/>'
LIMIT = '<limit lower="-1" upper="1"/>'


@jax.jit
def evaluated(problem, q, v, torque):
    p = problem.params
    chain = p["chain"]
    M, a = chain_dynamics.mass_matrix(chain, q), chain_dynamics.accelerations(chain, q, v, torque)
    return M, a, tip(chain, q, p["tip"]), chain_dynamics.bias(chain, q, v)


class Oracle:
    """The same file read by `pin`, joints beside the chain held."""

    def __init__(self, path, held):
        model = pinocchio.buildModelFromUrdf(str(path))
        q = pinocchio.neutral(model)
        for name, value in held.items():
            q[model.joints[model.getJointId(name)].idx_q] = value
        self.model = pinocchio.buildReducedModel(
            model, [model.getJointId(name) for name in held], q
        )
        self.data = self.model.createData()

    def evaluated(self, q, v, torque, tip):
        model, data = self.model, self.data
        q = pinocchio.integrate(
            model, pinocchio.neutral(model), q
        )  # a continuous joint is a point on the circle there
        M = np.triu(pinocchio.crba(model, data, q))
        a = np.array(pinocchio.aba(model, data, q, v, torque))
        bias = np.array(pinocchio.rnea(model, data, q, v, np.zeros_like(v)))
        pinocchio.framesForwardKinematics(model, data, q)
        return M + np.triu(M, 1).T, a, np.array(data.oMf[model.getFrameId(tip)].translation), bias


def close(a, b, tolerance=1e-10):
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape and np.abs(a - b).max() <= tolerance * np.abs(b).max()


def test_the_arm_is_what_pin_reads():
    """Fixed joints, turned inertial frames, prismatic and continuous joints, and a gripper that
    rides along."""
    problem, oracle = problems.from_urdf(ARM, tip="tool"), Oracle(ARM, {"grip": 0.3})
    rng = np.random.default_rng(0)
    for _ in range(5):
        q, v, torque = rng.normal(size=(3, 4))
        for ours, theirs in zip(
            evaluated(problem, q, v, torque), oracle.evaluated(q, v, torque, "tool"), strict=True
        ):
            close(ours, theirs)


def test_another_base_and_another_tip():
    """From the upper arm, which now stands still, to the finger: the same masses about the same
    axes."""
    oracle = Oracle(ARM, {})
    robot = read(ARM, base="upper_arm", tip="finger")
    assert robot.joints == ("elbow", "telescope", "grip")
    q = np.array([0.4, -0.3, 0.5, 0.1, 0.6])
    M = oracle.evaluated(q, q, q, "finger")[0]
    close(chain_dynamics.mass_matrix(robot.chain(), q[2:]), M[2:, 2:])


def test_names_limits_and_start():
    robot = read(ARM, tip="tool")
    problem = problems.get("from_urdf", path=str(ARM), tip="tool", locks=((0.1, "elbow"), (0.2, 0)))
    assert robot.joints == JOINTS and problem.name == robot.name == "arm"
    assert robot.lower.tolist() == [-np.inf, -2, 0.25, -0.05] and robot.upper.tolist() == [
        np.inf,
        2.5,
        2.2,
        0.4,
    ]
    assert robot.speed.tolist() == [3, 2, 4, 0.5] and robot.effort.tolist() == [120, 100, 60, 40]
    assert np.asarray(problem.q0).tolist() == [0, 0, 0.25, 0]  # the elbow cannot be straight
    assert np.asarray(problem.params["locks"]).tolist() == [0.1, 0.2]
    assert (
        problem.constraint[0].mode_rows
        == problems.serial_chain(4, locks=((0.1, 2), (0.2, 0))).constraint[1].mode_rows
    )


@pytest.mark.slow
def test_the_arm_locks_in_a_simulation():
    problem = problems.from_urdf(ARM, tip="tool", locks=((0.1, "elbow"), (0.2, "waist")), t_end=0.4)
    out = run(problem, EventDriven(RK4()), law=laws.PostSwitchGradient(), step=1e-3)
    assert int(out.status) == 0 and int(out.events.count) == 2
    v, energy = np.asarray(out.v), np.asarray(out.energy)
    assert (
        np.abs(v[100:, 2]).max() < 1e-12
        and np.abs(v[200:, 0]).max() < 1e-12
        and np.abs(v[50, 2]) > 0.1
    )
    assert np.ptp(energy[:100]) < 1e-8 and energy[150] < energy[50] - 1e-4


def link(name, body='<mass value="1"/>' + INERTIA):
    return f'<link name="{name}">' + (f"<inertial>{body}</inertial>" if body else "") + "</link>"


def joint(name, parent, child, kind="revolute", inside=LIMIT):
    links = f'<parent link="{parent}"/><child link="{child}"/>'
    return f'<joint name="{name}" type="{kind}">{links}{inside}</joint>'


def robot(*parts):
    return f'<robot name="r">{"".join(parts)}</robot>'


A, B, C = link("a", ""), link("b"), link("c")
AB, BC = joint("ab", "a", "b"), joint("bc", "b", "c")
TENSOR = '<mass value="1"/><inertia ixx="{}" ixy="0" ixz="0" iyy="1" iyz="0" izz="1"/>'


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        ("no xml", {}, "expected XML"),
        ("<robot><link name='a'>", {}, "expected XML"),
        ("", {}, "expected XML"),
        ("<sdf/>", {}, "expected a <robot>, found <sdf>"),
        (
            "<!DOCTYPE robot [<!ENTITY x SYSTEM 'file:///secret'>]><robot>&x;</robot>",
            {},
            "document type",
        ),
        ("<robot><xacro:arm/></robot>", {}, "macro <xacro:arm>"),
        (robot(), {}, "at least one <link>"),
        (robot("<link/>"), {}, "link: expected a name"),
        (robot(A, A), {}, "link 'a': expected a unique name"),
        (robot(A, B, C, AB, joint("ab", "b", "c")), {}, "joint 'ab': expected a unique name"),
        (robot(A, link("b", ""), AB), {}, "link 'b': expected <inertial>, as joint 'ab' moves it"),
        (robot(A, link("b", INERTIA), AB), {}, "link 'b': <inertial>: expected <mass>, found none"),
        (
            robot(A, link("b", '<mass value="1"/>'), AB),
            {},
            "link 'b': <inertial>: expected <inertia>, found none",
        ),
        (
            robot(A, link("b", '<mass value="0"/>' + INERTIA), AB),
            {},
            "link 'b': expected a positive mass, found 0",
        ),
        (
            robot(A, link("b", '<mass value="-2"/>' + INERTIA), AB),
            {},
            "link 'b': expected a positive mass, found -2",
        ),
        (
            robot(A, link("b", TENSOR.format(0)), AB),
            {},
            "link 'b': expected a positive definite inertia",
        ),
        (
            robot(A, link("b", TENSOR.format(-1)), AB),
            {},
            "link 'b': expected a positive definite inertia",
        ),
        (
            robot(A, link("b", TENSOR.format(2.1)), AB),
            {},
            "link 'b': expected no principal moment above",
        ),
        (
            robot(A, link("b", TENSOR.format("x")), AB),
            {},
            "<inertia ixx=...>: expected a number, found 'x'",
        ),
        (
            robot(A, link("b", TENSOR.format("nan")), AB),
            {},
            "<inertia ixx=...>: expected a number, found 'nan'",
        ),
        (
            robot(A, B, C, AB, joint("ac", "a", "c")),
            {"tip": "b", "floating": True},
            "floating: expected False with a tip",
        ),
        (
            robot(A, B, C, AB, joint("ac", "a", "c")),
            {"base": "c", "tip": "b"},
            "link 'b': expected a tip beyond",
        ),
        (robot(A, B, AB), {"base": "z"}, "base link 'z' is not known"),
        (robot(A, B, AB), {"tip": "z"}, "tip link 'z' is not known"),
        (robot(A, B, AB), {"tip": "a"}, "link 'a': expected a moving joint"),
        (robot(A, B, joint("ab", "a", "b", "fixed")), {}, "link 'b': expected a moving joint"),
        (robot(A, B, C, AB), {}, "link 'c': expected one tree, found a second root besides 'a'"),
        (
            robot(A, B, C, AB, BC, joint("ca", "c", "a")),
            {},
            "link 'a': expected a tree, found the loop",
        ),
        (
            robot(A, B, C, joint("bc", "b", "c"), joint("cb", "c", "b")),
            {},
            "link 'b': expected a tree, found the loop",
        ),
        (
            robot(A, B, C, AB, joint("ac", "a", "c"), BC),
            {},
            "link 'c': expected one joint that carries it",
        ),
        (robot(A, B, joint("ab", "a", "b", "hinge")), {}, "joint 'ab': expected the type"),
        (
            robot(A, B, joint("ab", "a", "b", "floating")),
            {},
            "joint 'ab': expected one degree of freedom",
        ),
        (
            robot(A, B, joint("ab", "a", "b", "planar")),
            {},
            "joint 'ab': expected one degree of freedom",
        ),
        (
            robot(A, B, C, AB, joint("bc", "b", "c", "floating")),
            {"tip": "b"},
            "joint 'bc': expected a joint that can be",
        ),
        (
            robot(A, B, joint("ab", "a", "b", inside=LIMIT + '<mimic joint="x"/>')),
            {"tip": "b"},
            "joint 'ab': expected an independent joint",
        ),
        (
            robot(A, B, joint("ab", "a", "b", inside=LIMIT + '<mimic joint="x"/>')),
            {},
            "joint 'ab': expected <mimic> of another moving joint, found 'x'",
        ),
        (
            robot(A, B, link("c", ""), AB, joint("ac", "a", "c")),
            {},
            "link 'c': expected <inertial>, as joint 'ac' moves it",
        ),
        (
            robot(A, B, C, AB, joint("ac", "a", "c")),
            {"q0": [0.0]},
            "q0: expected one number for each of ab, ac, found shape (1,)",
        ),
        (
            robot(A, B, C, AB, joint("bc", "b", "c", inside=LIMIT + '<mimic joint="ab"/>')),
            {"tip": "b"},
            "joint 'bc': expected a joint that can be held, found <mimic> of 'ab'",
        ),
        (
            robot(A, B, joint("ab", "a", "b", inside="")),
            {},
            "joint 'ab': expected <limit>, found none",
        ),
        (
            robot(A, B, joint("ab", "a", "z")),
            {},
            "joint 'ab': expected a child among the links, found 'z'",
        ),
        (
            robot(A, B, '<joint name="ab" type="fixed"><child link="b"/></joint>'),
            {},
            "joint 'ab': expected <parent",
        ),
        (
            robot(A, B, joint("ab", "a", "b", inside=LIMIT + '<axis xyz="0 0 0"/>')),
            {},
            "joint 'ab': <axis>",
        ),
        (
            robot(A, B, joint("ab", "a", "b", inside=LIMIT + '<axis xyz="0 1"/>')),
            {},
            "expected 3 numbers, found '0 1'",
        ),
        (
            robot(A, B, joint("ab", "a", "b", inside='<limit lower="1" upper="-1"/>')),
            {},
            "expected lower <= upper",
        ),
        (
            robot(A, B, AB),
            {"locks": ((0.1, "ba"),)},
            "locks: joint 'ba' is not known; did you mean 'ab'?",
        ),
        (
            robot(A, B, AB),
            {"locks": ((0.1, 1),)},
            "locks: expected joints 0 ... 0 or their names, found 1",
        ),
        (robot(A, B, AB), {"locks": ((0.2, 0), (0.1, 0))}, "expected times in ascending order"),
        (robot(A, B, AB), {"q0": [2.0]}, "q0: joint 'ab': expected a value in [-1, 1], found 2"),
        (
            robot(A, B, AB),
            {"q0": [0.0, 0.0]},
            "q0: expected one number for each of ab, found shape (2,)",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path, text, arguments, expected):
    path = tmp_path / "robot.urdf"
    path.write_text(text)
    with pytest.raises(ProblemError) as error:
        problems.from_urdf(path, **arguments)
    assert expected in str(error.value) and "robot.urdf" in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ProblemError, match=r"nowhere\.urdf.*expected a readable URDF file"):
        problems.from_urdf(tmp_path / "nowhere.urdf")


# Trees.

TOOL = '<mass value="0.2"/><inertia ixx="-1e-6" ixy="0" ixz="0" iyy="0" iyz="0" izz="0"/>'
BOUNDS = '<limit lower="-1" upper="1" effort="1" velocity="1"/>'
MIMIC = BOUNDS + '<mimic joint="left" multiplier="-0.5" offset="0.1"/>'
SHIFTED = '<origin xyz="0.1 0.2 0.3" rpy="0.3 -0.2 0.5"/>'
HAND = robot(
    link("torso"),
    link("arm"),
    link("knuckle", ""),
    link("left finger"),
    link("right finger"),
    link("camera", TOOL),
    joint("shoulder", "torso", "arm", inside=SHIFTED + BOUNDS + '<axis xyz="0 1 0"/>'),
    joint("wrist", "arm", "knuckle", inside=SHIFTED + BOUNDS + '<axis xyz="0 0 1"/>'),
    joint("left", "knuckle", "left finger", "prismatic", inside=SHIFTED + BOUNDS),
    joint("right", "knuckle", "right finger", inside=MIMIC),
    joint("eye", "arm", "camera", "fixed", inside=SHIFTED + '<axis xyz="0 0 0"/>'),
)


@jax.jit
def tree_evaluated(tree, q, v):
    M, bias = tree_dynamics.mass_matrix(tree, q), tree_dynamics.bias(tree, q, v)
    return M, bias, tree_dynamics.accelerations(tree, q, v)


@pytest.mark.parametrize("floating", [False, True])
def test_a_tree_is_what_pin_reads(tmp_path, floating):
    """A branch, a link without mass between two joints, and a camera with an impossible tensor that
    is fixed to an arm."""
    path = tmp_path / "hand.urdf"
    path.write_text(HAND)
    problem = problems.from_urdf(path, floating=floating)
    tree = problem.params["tree"]
    base = [pinocchio.JointModelFreeFlyer()] if floating else []
    plain = HAND.replace(MIMIC, BOUNDS)  # `pin` would remove the joint
    model = pinocchio.buildModelFromXML(plain, *base)
    data = model.createData()
    names = ("shoulder", "wrist", "left", "right")
    at = [tree.v_of(name).start for name in names]
    theirs = [model.joints[model.getJointId(name)].idx_v for name in names]
    rng = np.random.default_rng(1)
    for _ in range(3):
        q, v = np.array(problem.q0), np.zeros(tree.nv)
        q[-4:], v[at] = rng.normal(size=(2, 4))
        M, bias, a = tree_evaluated(tree, q, v)
        full, rates = pinocchio.neutral(model), np.zeros(model.nv)
        full[-4:] = q[-4:]
        rates[theirs] = v[at]
        mass = np.triu(pinocchio.crba(model, data, full))
        mass = (mass + np.triu(mass, 1).T)[np.ix_(theirs, theirs)]
        close(M[np.ix_(at, at)], mass)
        close(bias[np.array(at)], pinocchio.rnea(model, data, full, rates, 0 * rates)[theirs])
        close(a[np.array(at)], pinocchio.aba(model, data, full, rates, 0 * rates)[theirs], 1e-9)


@pytest.mark.slow
def test_a_joint_that_mimics_another_follows_it(tmp_path):
    path = tmp_path / "hand.urdf"
    path.write_text(HAND)
    problem = problems.from_urdf(path, locks=((0.05, "wrist"),), t_end=0.1)
    left, right = (problem.params["tree"].q_of(name).start for name in ("left", "right"))
    assert problem.q0[right] == 0.1
    out = run(problem, EventDriven(RK4()), step=0.01)
    q = np.asarray(out.q)
    assert np.abs(q[:, right] + 0.5 * q[:, left] - 0.1).max() < 1e-12
    assert np.abs(q[-1, left]) > 1e-3
    wrist = problem.params["tree"].q_of("wrist").start
    assert np.abs(np.asarray(out.v)[-1, wrist]) < 1e-12


def test_a_chain_from_a_robot_that_branches_needs_a_tip(tmp_path):
    path = tmp_path / "hand.urdf"
    path.write_text(HAND)
    with pytest.raises(ProblemError, match="expected a chain, found a branch into"):
        read(path)
    assert read(path, tip="arm").joints == ("shoulder",)
