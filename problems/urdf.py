"""Robots from URDF files: your own robot as a problem.

    problem = problems.from_urdf("arm.urdf", tip="tool", locks=((0.1, "elbow"),))
    problem = problems.from_urdf("dog.urdf", floating=True)

Robots that branch are trees, see `nsdyn.problems.urdf_tree`. A chain is the path from the base link
to the tip link; both may be omitted if nothing branches. The base is fixed; its frame is the world.
Fixed joints are merged: if a link has the frame H = (R, r) in the moving link that carries it, its
body in the frame of that link is

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
from nsdyn.multibody.skeleton import chain_coordinates, chain_shape
from nsdyn.problems.serial_chain import constraints
from nsdyn.problems.urdf_file import (
    REFUSED,
    SLIDES,
    Body,
    Joint,
    Links,
    check_body,
    merged,
    read_links,
)
from nsdyn.problems.urdf_tree import Robot as TreeRobot
from nsdyn.problems.urdf_tree import problem as tree_problem
from nsdyn.problems.urdf_tree import robot as tree_robot


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
    floating: bool = False,
) -> nsdyn.Problem:
    """The robot of a URDF file; locks=((time, joint), ...) in ascending order, joints by name, or
    coordinates by number.

    With a tip, or if nothing branches, the chain between two links; else the whole tree beyond the
    base. floating=True: the base is a free body instead of the world, q begins with its position
    and quaternion. The motion starts at rest at zero, or at the nearest position within the limits.

    params: chain or tree, torque (joint forces, zero), locks (the times); of a chain tip (in the
    frame of the last link), of a tree closures (the numbers of joints that mimic others). `read`
    and `read_robot` return names and limits.
    """
    if tip is None and (floating or not _is_chain(path, base)):
        whole = read_robot(path, base, floating, gravity)
        at = {name: whole.tree.q_of(name).start for name in whole.tree.names}
        with _naming(path):
            times, joints = _locks(at, whole.tree.nq, locks)
            q0 = _start(whole.coordinates, whole, q0)
        return tree_problem(whole, zip(times, joints, strict=True), q0, v0, t_end)
    if floating:
        raise ProblemError(
            f"from_urdf({str(path)!r}): floating: expected False with a tip, found True; a chain "
            "has a fixed base, leave out the tip"
        )
    robot = read(path, base, tip)
    n = len(robot.joints)
    with _naming(path):
        at = {name: i for i, name in enumerate(robot.joints)}
        times, joints = _locks(at, n, locks)
        q0 = _start(robot.joints, robot, q0)
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
        coordinates=chain_coordinates(robot.joints, robot.slides.tolist()),
        shape=chain_shape,
    )


def _is_chain(path: str | Path, base: str | None) -> bool:
    """Whether nothing branches or mimics another joint beyond the base."""
    with _naming(path):
        links = read_links(path)
        link = links.known(base)
    while after := links.children(link):
        if len(after) > 1 or after[0].mimics is not None:
            return False
        link = after[0].child
    return True


def read_robot(
    path: str | Path,
    base: str | None = None,
    floating: bool = False,
    gravity: Numbers = EARTH,
) -> TreeRobot:
    """The tree beyond a link of a URDF file."""
    with _naming(path):
        links = read_links(path)
        return tree_robot(links, links.known(base), floating, gravity)


def read(path: str | Path, base: str | None = None, tip: str | None = None) -> Robot:
    """The chain between two links of a URDF file."""
    with _naming(path):
        tree = read_links(path)
        base = tree.known(base)
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


def _carried(tree: Links, joint: Joint, moving: set[str]) -> Body:
    """The body that a joint moves, with all links welded to it."""
    found: list[Body] = []
    waiting = [(joint.child, np.eye(4))]
    while waiting:
        link, frame = waiting.pop()
        if (own := tree.links[link]) is not None:
            found.append(own.seen_from(frame))  # (1)
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
    whole = merged(found)  # (2)
    check_body(joint.child, whole)
    return whole


def _locks(
    at: dict[str, int], count: int, locks: Iterable[tuple[float, str | int]]
) -> tuple[list[float], tuple[int, ...]]:
    """Times and coordinates, from the coordinate of each joint and the number of coordinates."""
    times = []
    joints = []
    for time, joint in locks:
        index = at.get(joint, joint) if isinstance(joint, str) else joint
        if isinstance(index, str):
            raise unknown("locks: joint", index, at)
        if not 0 <= index < count:
            raise ProblemError(
                f"locks: expected joints 0 ... {count - 1} or their names, found {index}"
            )
        times.append(float(time))
        joints.append(int(index))
    check_times(np.array(times), len(times) + 1)
    return times, tuple(joints)


def _start(names: tuple[str, ...], robot: Robot | TreeRobot, q0: Numbers | None) -> np.ndarray:
    """q0, or where the limits let the robot start; `names` has one name for each coordinate."""
    if q0 is None:
        return robot.rest
    q = np.asarray(q0, float)
    if q.shape != robot.rest.shape:
        raise ProblemError(
            f"q0: expected one number for each of {', '.join(names)}, found shape {q.shape}"
        )
    for name, value, low, high in zip(names, q, robot.lower, robot.upper, strict=True):
        if not low <= value <= high:
            raise ProblemError(
                f"q0: joint {name!r}: expected a value in [{low:g}, {high:g}], found {value:g}"
            )
    return q
