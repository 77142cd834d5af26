"""The tree and the closures of an MJCF file.

Every joint carries one body of the tree, so coordinates and velocities are in the order and the
axes of MuJoCo's qpos and qvel. Of several joints on one body all but the last carry bodies of no
mass; bodies without joints are merged into those that carry them, by (1) and (2) of
`nsdyn.problems.urdf`. With the frame H of a body in the one that carries it, where no joint has
moved, and the anchor l_k of its joint k in its own axes, the frames of its joints are

    H (1, l_0) J_0,   (1, l_k - l_{k-1}) J_k                                                   (1)

each in the one before, where J_k undoes the coordinate at which the file draws the joint, `ref`:

    hinge (rot(axis, -ref), 0),   slide (1, -axis ref)                                         (2)

A free joint has its pose in the world.

Closures that hold from the start have the poses of the file. One that is switched on later holds
what it finds then: a weld the pose, a connect the point of its second body that its first body's
anchor has reached, a joint closure the difference of its coordinates.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation

from nsdyn._types import Numbers
from nsdyn.constraints.mode_rows import Lock, lock
from nsdyn.multibody.closures import (
    Connect,
    Follow,
    Offset,
    PointWithin,
    PoseDifference,
    RelativePose,
    Weld,
)
from nsdyn.multibody.tree import Tree
from nsdyn.problems.mjcf_file import File, named
from nsdyn.problems.urdf_file import Body, merged

KINDS = ("free", "ball", "slide", "hinge")  # the numbers of MuJoCo's joints


class Place(NamedTuple):
    """Where a body of the file is: the number of the body of the tree that it is part of, -1 for
    the world, and its frame there."""

    carrier: int
    frame: np.ndarray


class Closure(NamedTuple):
    """Rows with the pose of the file, rows that hold what they find, their numbers, and whether
    it holds at the start."""

    given: Callable
    held: tuple[Lock, ...]
    numbers: dict[str, np.ndarray]
    active: bool


class Mechanism(NamedTuple):
    """The tree, where the bodies of the file are in it, and the closures by their names."""

    tree: Tree
    places: list[Place]
    closures: dict[str, Closure]


def mechanism(file: File, gravity: Numbers | None) -> Mechanism:
    parents, frames, places = _placed(file)
    bodies = _carried(file, places)
    mass, com, inertia = (np.stack(part) for part in zip(*bodies, strict=True))
    m = file.model
    flags = file.mujoco.mjtDisableBit
    on = lambda flag: float(not m.opt.disableflags & flag)
    springs = on(flags.mjDSBL_SPRING) * m.jnt_stiffness[m.dof_jntid]
    weight = on(flags.mjDSBL_GRAVITY) * m.opt.gravity
    tree = Tree(
        parents=parents,
        kinds=[KINDS[kind] for kind in m.jnt_type],
        names=joint_names(file),
        place=frames[:, :3, 3],
        turn=frames[:, :3, :3],
        axis=m.jnt_axis,
        mass=mass,
        com=com,
        inertia=inertia,
        rotor=m.dof_armature,
        damping=on(flags.mjDSBL_DAMPER) * m.dof_damping,
        stiffness=np.where(_linear(file), springs, 0.0),
        rest=_rest(file),
        gravity=weight if gravity is None else gravity,
    )
    return Mechanism(tree, places, _closures(file, places))


def joint_names(file: File) -> list[str]:
    """Those of the joints; a joint without one is called like its body."""
    m = file.model
    found: list[str] = []
    for i, body in enumerate(m.jnt_bodyid):
        name = named(file, "JOINT", i) or named(file, "BODY", body) or f"joint {i}"
        while name in found or name == "world":
            name += "'"
        found.append(name)
    return found


def _frame(place: np.ndarray, quaternion: np.ndarray | None = None) -> np.ndarray:
    H = np.eye(4)
    H[:3, 3] = place
    if quaternion is not None:
        H[:3, :3] = Rotation.from_quat(quaternion, scalar_first=True).as_matrix()
    return H


def _placed(file: File) -> tuple[list[int], np.ndarray, list[Place]]:
    """The parent and the frame in it of each joint, and the places of all bodies of the file."""
    m = file.model
    parents: list[int] = []
    frames: list[np.ndarray] = []
    places = [Place(-1, np.eye(4))]
    for body in range(1, m.nbody):
        parent, here = places[m.body_parentid[body]]
        here = here @ _frame(m.body_pos[body], m.body_quat[body])
        first = m.body_jntadr[body]
        for joint in range(first, first + m.body_jntnum[body]):
            if KINDS[m.jnt_type[joint]] == "free":
                here = np.eye(4)
            anchored = here @ _frame(m.jnt_pos[joint])
            parents.append(parent)
            frames.append(anchored @ _undone(file, joint))  # (1)
            parent, here = joint, _frame(-m.jnt_pos[joint])
        places.append(Place(parent, here))
    return parents, np.array(frames), places


def _undone(file: File, joint: int) -> np.ndarray:
    """(2)"""
    m = file.model
    back = -m.jnt_axis[joint] * m.qpos0[m.jnt_qposadr[joint]]
    match KINDS[m.jnt_type[joint]]:
        case "hinge":
            H = np.eye(4)
            H[:3, :3] = Rotation.from_rotvec(back).as_matrix()
            return H
        case "slide":
            return _frame(back)
    return np.eye(4)


def _carried(file: File, places: list[Place]) -> list[Body]:
    """The body that each joint carries."""
    m = file.model
    parts: list[list[Body]] = [[] for _ in range(m.njnt)]
    for body in range(1, m.nbody):
        carrier, frame = places[body]
        if carrier < 0 or not m.body_mass[body] > 0:
            continue
        R = Rotation.from_quat(m.body_iquat[body], scalar_first=True).as_matrix()
        own = Body(m.body_mass[body], m.body_ipos[body], R @ np.diag(m.body_inertia[body]) @ R.T)
        parts[carrier].append(own.seen_from(frame))
    return [merged(bodies) for bodies in parts]


def _linear(file: File) -> np.ndarray:
    """Which velocities are those of a hinge or slide."""
    return np.isin(file.model.jnt_type[file.model.dof_jntid], (2, 3))


def _rest(file: File) -> np.ndarray:
    m = file.model
    return np.where(_linear(file), m.qpos_spring[m.jnt_qposadr[m.dof_jntid]], 0.0)


# Closures.


def _closures(file: File, places: list[Place]) -> dict[str, Closure]:
    m = file.model
    kinds = file.mujoco.mjtEq
    makers = {kinds.mjEQ_CONNECT: _connect, kinds.mjEQ_WELD: _weld, kinds.mjEQ_JOINT: _follow}
    make = {int(kind): maker for kind, maker in makers.items()}
    found: dict[str, Closure] = {}
    for i in range(m.neq):
        if int(m.eq_type[i]) not in make:
            continue  # one that the user ignores
        name = _closure_name(file, i)
        while name in found:
            name += "'"
        found[name] = make[int(m.eq_type[i])](file, places, i, name)
    return found


def _closure_name(file: File, i: int) -> str:
    """The name of a closure; one without is called after what it connects."""
    m = file.model
    own = named(file, "EQUALITY", i)
    if own:
        return own
    kinds, objects = file.mujoco.mjtEq, file.mujoco.mjtObj
    if m.eq_type[i] == kinds.mjEQ_JOINT:
        what, between = "JOINT", " : "
    else:
        what = "SITE" if m.eq_objtype[i] == objects.mjOBJ_SITE else "BODY"
        between = " - " if m.eq_type[i] == kinds.mjEQ_CONNECT else " + "
    pair = [j for j in (m.eq_obj1id[i], m.eq_obj2id[i]) if j >= 0]
    return between.join(named(file, what, j) or f"{what.lower()} {j}" for j in pair)


def _active(file: File, i: int) -> bool:
    m = file.model
    disabled = m.opt.disableflags & file.mujoco.mjtDisableBit.mjDSBL_EQUALITY
    return bool(m.eq_active0[i]) and not disabled


def _ends(file: File, places: list[Place], i: int) -> tuple[Place, Place, bool]:
    """The two bodies or sites of a closure, and whether they are sites."""
    m = file.model
    ends = (m.eq_obj1id[i], m.eq_obj2id[i])
    if m.eq_objtype[i] != file.mujoco.mjtObj.mjOBJ_SITE:
        return places[ends[0]], places[ends[1]], False
    found = []
    for site in ends:
        carrier, frame = places[m.site_bodyid[site]]
        found.append(Place(carrier, frame @ _frame(m.site_pos[site], m.site_quat[site])))
    return found[0], found[1], True


def _connect(file: File, places: list[Place], i: int, name: str) -> Closure:
    a, b, sites = _ends(file, places, i)
    data = file.model.eq_data[i]
    numbers = {"a": a.frame, "b": b.frame}
    if not sites:
        numbers = {"a": a.frame @ _frame(data[:3]), "b": b.frame @ _frame(data[3:6])}
    given = Connect(a.carrier, b.carrier, name)
    held = lock(PointWithin(a.carrier, b.carrier, name))
    return Closure(given, held, numbers, _active(file, i))


def _weld(file: File, places: list[Place], i: int, name: str) -> Closure:
    """Of bodies, the numbers are the same point in the second and in the first, and the rotation
    of the second in the first."""
    a, b, sites = _ends(file, places, i)
    data = file.model.eq_data[i]
    numbers = {"a": a.frame, "b": b.frame}
    if not sites:
        numbers = {"a": a.frame @ _frame(data[3:6], data[6:10]), "b": b.frame @ _frame(data[:3])}
    held = lock(RelativePose(a.carrier, b.carrier, name), difference=PoseDifference())
    return Closure(Weld(a.carrier, b.carrier, name), held, numbers, _active(file, i))


def _follow(file: File, places: list[Place], i: int, name: str) -> Closure:
    m = file.model
    first, second = m.eq_obj1id[i], m.eq_obj2id[i]
    alone = second < 0
    at = m.jnt_qposadr[[first, first if alone else second]]
    coefficients = m.eq_data[i, :1] if alone else np.trim_zeros(m.eq_data[i, :5], "b")
    given = Follow(int(at[0]), int(at[1]), name)
    numbers = {"zero": m.qpos0[at], "coefficients": np.atleast_1d(coefficients)}
    return Closure(given, lock(Offset(given)), numbers, _active(file, i))
