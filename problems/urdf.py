"""Chains from URDF files: your own robot as a problem.

    problem = problems.from_urdf("arm.urdf", tip="tool", locks=((0.1, "elbow"),))

The chain is the path from the base link to the tip link; both may be omitted if the tree does not
branch. The base is fixed; its frame is the world. Fixed joints are merged: if a link has the frame
H = (R, r) in the moving link that carries it, its body in the frame of that link is

    c' = R c + r,   I' = R I^C R^T                                                               (1)

and bodies that move together are combined about their common centre of mass c,

    m = sum m_k,  m c = sum m_k c'_k,  I^C = sum I'_k + m_k (|d_k|^2 1 - d_k d_k^T),
    d_k = c'_k - c                                                                             (2)

Links that branch off the path or lie beyond the tip, such as a gripper, are welded to the chain,
their joints held at zero or at the nearest value within the limits. Other links on the base are
left out. Limits restrict only the start; nothing stops a joint that reaches one.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import nsdyn
from nsdyn._types import Numbers
from nsdyn.constraints.scheduled import check_times
from nsdyn.errors import ProblemError, unknown
from nsdyn.multibody.chain import EARTH, Chain
from nsdyn.multibody.chain_dynamics import chain_system
from nsdyn.problems.serial_chain import constraints
from nsdyn.problems.urdf_file import REFUSED, SLIDES, Body, Joint, Tree, check_body, read_tree


class Robot(NamedTuple):
    """A chain as arrays, one entry per joint, with names, limits (infinite if there are none) and
    the tip in the frame of the last link."""

    name: str
    joints: tuple[str, ...]
    frame: np.ndarray
    axis: np.ndarray
    slides: np.ndarray
    bodies: tuple[Body, ...]
    tip: np.ndarray
    rest: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    speed: np.ndarray
    effort: np.ndarray

    def chain(self, gravity: Numbers = EARTH) -> Chain:
        mass, com, inertia = (np.stack(part) for part in zip(*self.bodies, strict=True))
        place = self.frame[:, :3, 3]
        turn = self.frame[:, :3, :3]
        return Chain(
            axis=self.axis,
            place=place,
            mass=mass,
            com=com,
            inertia=inertia,
            slides=self.slides,
            turn=turn,
            gravity=gravity,
        )


def from_urdf(
    path: str | Path,
    base: str | None = None,
    tip: str | None = None,
    locks: Iterable[tuple[float, str | int]] = (),
    gravity: Numbers = EARTH,
    q0: Numbers | None = None,
    v0: Numbers | None = None,
    t_end: float = 1.0,
) -> nsdyn.Problem:
    """The robot of a URDF file between two links; locks=((time, joint), ...) in ascending order,
    joints by name or number.

    The motion starts at rest at zero, or at the nearest position within the limits. params: chain,
    torque (joint forces, zero), tip (in the frame of the last link), locks (the times). `read`
    returns names and limits.
    """
    robot = read(path, base, tip)
    with _naming(path):
        times, joints = _locks(robot, locks)
        q0 = _start(robot, q0)
    n = len(robot.joints)
    params = {
        "chain": robot.chain(gravity),
        "torque": jnp.zeros(n),
        "tip": jnp.asarray(robot.tip),
        "locks": jnp.asarray(times, float),
    }
    v0 = jnp.zeros(n) if v0 is None else v0
    return nsdyn.Problem(
        robot.name,
        chain_system(n),
        constraints(None, joints),
        q0=q0,
        v0=v0,
        t_end=t_end,
        params=params,
    )


def read(path: str | Path, base: str | None = None, tip: str | None = None) -> Robot:
    """The chain between two links of a URDF file."""
    with _naming(path):
        tree = read_tree(path)
        base = tree.root() if base is None else base
        way = tree.path(base, tree.only_leaf(base) if tip is None else tip)
        frames, tip_frame = _merged_frames(way)
        moving = [joint for joint in way if joint.moves]
        _check_moving(moving, base, way[-1].child if way else base)
        bodies = tuple(_carried(tree, joint, {j.name for j in moving}) for joint in moving)
        column = lambda name: np.array([getattr(joint, name) for joint in moving])
        slides = np.array([float(joint.kind in SLIDES) for joint in moving])
        limits = {name: column(name) for name in ("rest", "lower", "upper", "speed", "effort")}
        return Robot(
            name=tree.name,
            joints=tuple(joint.name for joint in moving),
            frame=frames,
            axis=column("axis"),
            slides=slides,
            bodies=bodies,
            tip=tip_frame[:3, 3],
            **limits,
        )


@contextmanager
def _naming(path: str | Path) -> Iterator[None]:
    """Add the file name to every error."""
    try:
        yield
    except ProblemError as error:
        raise ProblemError(f"from_urdf({str(path)!r}): {error}") from error


def _check_moving(moving: list[Joint], base: str, tip: str) -> None:
    if not moving:
        raise ProblemError(
            f"link {tip!r}: expected a moving joint between it and the base {base!r}, found none"
        )
    for joint in moving:
        if joint.kind in REFUSED:
            raise ProblemError(
                f"joint {joint.name!r}: expected one degree of freedom, found the type "
                f"{joint.kind!r}"
            )
        if joint.mimics is not None:
            raise ProblemError(
                f"joint {joint.name!r}: expected an independent joint, found <mimic> of "
                f"{joint.mimics!r}"
            )


def _merged_frames(way: list[Joint]) -> tuple[np.ndarray, np.ndarray]:
    """The frame of each moving joint in the previous moving link, and of the tip in the last."""
    frames = []
    here = np.eye(4)
    for joint in way:
        here = here @ joint.frame
        if joint.moves:
            frames.append(here)
            here = np.eye(4)
    return np.array(frames), here


def _carried(tree: Tree, joint: Joint, moving: set[str]) -> Body:
    """The body that a joint moves, with all links welded to it."""
    found: list[Body] = []
    waiting = [(joint.child, np.eye(4))]
    while waiting:
        link, frame = waiting.pop()
        R = frame[:3, :3]
        r = frame[:3, 3]
        if (own := tree.links[link]) is not None:
            check_body(link, own)
            found.append(Body(own.mass, R @ own.com + r, R @ own.inertia @ R.T))  # (1)
        for other in tree.children(link):
            if other.kind in REFUSED:
                raise ProblemError(
                    f"joint {other.name!r}: expected a joint that can be held, found the type "
                    f"{other.kind!r}"
                )
            if other.mimics in moving:
                raise ProblemError(
                    f"joint {other.name!r}: expected a joint that can be held, found <mimic> of "
                    f"{other.mimics!r}"
                )
            if other.name not in moving:
                waiting.append((other.child, frame @ other.moved(other.rest)))
    if not found:
        raise ProblemError(
            f"link {joint.child!r}: expected <inertial>, as joint {joint.name!r} moves it, found "
            "none"
        )
    return merged(found)


def merged(bodies: list[Body]) -> Body:
    mass = sum(body.mass for body in bodies)
    com = sum((body.mass * body.com for body in bodies), np.zeros(3)) / mass
    inertia = np.zeros((3, 3))
    for body in bodies:
        d = body.com - com
        inertia += body.inertia + body.mass * (d @ d * np.eye(3) - np.outer(d, d))  # (2)
    return Body(mass, com, inertia)


def _locks(
    robot: Robot, locks: Iterable[tuple[float, str | int]]
) -> tuple[list[float], tuple[int, ...]]:
    times = []
    joints = []
    for time, joint in locks:
        index = robot.joints.index(joint) if joint in robot.joints else joint
        if isinstance(index, str):
            raise unknown("locks: joint", index, robot.joints)
        if not 0 <= index < len(robot.joints):
            raise ProblemError(
                f"locks: expected joints 0 ... {len(robot.joints) - 1} or their names, found "
                f"{index}"
            )
        times.append(float(time))
        joints.append(int(index))
    check_times(np.array(times), len(times) + 1)
    return times, tuple(joints)


def _start(robot: Robot, q0: Numbers | None) -> np.ndarray:
    if q0 is None:
        return robot.rest
    q = np.asarray(q0, float)
    if q.shape != robot.rest.shape:
        raise ProblemError(
            f"q0: expected one number for each of {', '.join(robot.joints)}, found shape {q.shape}"
        )
    for name, value, low, high in zip(robot.joints, q, robot.lower, robot.upper, strict=True):
        if not low <= value <= high:
            raise ProblemError(
                f"q0: joint {name!r}: expected a value in [{low:g}, {high:g}], found {value:g}"
            )
    return q
