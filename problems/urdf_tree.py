"""Whole robots from URDF files, as trees of bodies: what `problems.from_urdf` returns for robots
that branch, stand on nothing or have joints that mimic others.

Every moving joint carries one body, named after the joint: its link and all that is fixed to it,
combined by (1) and (2) of `nsdyn.problems.urdf`. Only these combined bodies must be physical; the
frames of tools and cameras often have tensors that no body could have. A link without mass is no
body; a joint may carry none if one beyond it does. A joint that mimics another follows it by a row

    q_i = multiplier q_j + offset                                                              (1)

With floating=True the base link is a free body too, named after the link; its pose is the position
and the quaternion at the beginning of q.
"""

from collections.abc import Iterable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import nsdyn
from nsdyn._coordinates import name_of
from nsdyn._types import Numbers
from nsdyn.errors import ProblemError
from nsdyn.multibody.closures import Couple, Together
from nsdyn.multibody.skeleton import TreeShape, tree_coordinates
from nsdyn.multibody.tree import Tree, neutral
from nsdyn.multibody.tree_dynamics import tree_system
from nsdyn.problems.serial_chain import constraints
from nsdyn.problems.urdf_file import REFUSED, SLIDES, Body, Joint, Links, check_body, merged

NOTHING = Body(0.0, np.zeros(3), np.zeros((3, 3)))


class Carrier(NamedTuple):
    """A moving joint (None: the floating base), the body it moves, its parent among the carriers,
    and its frame there."""

    name: str
    joint: Joint | None
    body: Body
    parent: int
    frame: np.ndarray


def carriers(links: Links, base: str, floating: bool) -> list[Carrier]:
    """All moving bodies, parents first."""
    found: list[Carrier] = []
    if floating:
        body, after = _rigid(links, base)
        found.append(Carrier(base, None, body, -1, np.eye(4)))
        waiting = [(joint, 0, frame) for joint, frame in after]
    else:
        waiting = [(joint, -1, frame) for joint, frame in _rigid(links, base)[1]]
    while waiting:
        joint, parent, frame = waiting.pop(0)
        if joint.kind in REFUSED:
            raise ProblemError(
                f"joint {joint.name!r}: expected one degree of freedom, found the type "
                f"{joint.kind!r}"
            )
        body, after = _rigid(links, joint.child)
        found.append(Carrier(joint.name, joint, body, parent, frame))
        here = len(found) - 1
        waiting = [(other, here, place) for other, place in after] + waiting
    if not found:
        raise ProblemError(f"link {base!r}: expected a moving joint beyond it, found none")
    _check_masses(found)
    return found


def _rigid(links: Links, link: str) -> tuple[Body, list[tuple[Joint, np.ndarray]]]:
    """The body of a link with all that is fixed to it, and the moving joints on it with their
    frames."""
    bodies: list[Body] = []
    moving = []
    waiting = [(link, np.eye(4))]
    while waiting:
        name, frame = waiting.pop(0)
        if (own := links.links[name]) is not None:
            bodies.append(own.seen_from(frame))
        for joint in links.children(name):
            if joint.moves:
                moving.append((joint, frame @ joint.frame))
            else:
                waiting.append((joint.child, frame @ joint.frame))
    return merged(bodies) if bodies else NOTHING, moving


def _check_masses(found: list[Carrier]) -> None:
    carried = np.array([carrier.body.mass for carrier in found])
    for i in reversed(range(len(found))):
        carrier = found[i]
        if carrier.parent >= 0:
            carried[carrier.parent] += carried[i]
        link = carrier.name if carrier.joint is None else carrier.joint.child
        if not carried[i] > 0:
            raise ProblemError(
                f"link {link!r}: expected <inertial>, as joint {carrier.name!r} moves it, found "
                "no mass in it and beyond it"
            )
        if carrier.body.mass != 0:
            check_body(link, carrier.body)


class Robot(NamedTuple):
    """A tree as arrays, with the names of its joints, the start and its limits (one for each
    coordinate), and the joints that mimic others as (coordinate, coordinate, multiplier, offset).
    """

    name: str
    tree: Tree
    rest: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    mimics: dict[str, tuple[int, int, float, float]]

    @property
    def coordinates(self) -> tuple[str, ...]:
        """A name for each coordinate: that of the joint, and the parts of the base."""
        return tuple(name_of(text) for text in tree_coordinates(self.tree))


def robot(links: Links, base: str, floating: bool, gravity: Numbers) -> Robot:
    found = carriers(links, base, floating)
    mass, com, inertia = (np.stack(part) for part in zip(*(c.body for c in found), strict=True))
    frames = np.stack([carrier.frame for carrier in found])
    z = np.array([0.0, 0.0, 1.0])
    tree = Tree(
        parents=[carrier.parent for carrier in found],
        kinds=[_kind(carrier.joint) for carrier in found],
        names=[carrier.name for carrier in found],
        place=frames[:, :3, 3],
        turn=frames[:, :3, :3],
        axis=np.stack([z if c.joint is None else c.joint.axis for c in found]),
        mass=mass,
        com=com,
        inertia=inertia,
        gravity=gravity,
    )
    rest = neutral(tree)
    lower, upper = np.full(tree.nq, -np.inf), np.full(tree.nq, np.inf)
    for carrier in found:
        if (joint := carrier.joint) is not None:
            at = tree.q_of(carrier.name)
            rest[at], lower[at], upper[at] = joint.rest, joint.lower, joint.upper
    mimics = _mimics(tree, found)
    for _ in mimics:  # as often as one may mimic another that mimics a third
        for i, j, ratio, offset in mimics.values():
            rest[i] = ratio * rest[j] + offset
            lower[i], upper[i] = -np.inf, np.inf
    return Robot(links.name, tree, rest, lower, upper, mimics)


def _kind(joint: Joint | None) -> str:
    if joint is None:
        return "free"
    return "slide" if joint.kind in SLIDES else "hinge"


def _mimics(tree: Tree, found: list[Carrier]) -> dict[str, tuple[int, int, float, float]]:
    mimics = {}
    for carrier in found:
        joint = carrier.joint
        if joint is None or joint.mimics is None:
            continue
        if joint.mimics not in tree.names or joint.mimics == joint.name:
            raise ProblemError(
                f"joint {joint.name!r}: expected <mimic> of another moving joint, found "
                f"{joint.mimics!r}"
            )
        i, j = tree.q_of(joint.name).start, tree.q_of(joint.mimics).start
        mimics[f"{joint.name} : {joint.mimics}"] = (i, j, joint.multiplier, joint.offset)
    return mimics


def problem(
    robot: Robot, locks: Iterable[tuple[float, int]], q0: np.ndarray, v0: Numbers, t_end: float
) -> nsdyn.Problem:
    """The robot at q0 with brakes that lock coordinates one after another."""
    locks = tuple(locks)
    rows = tuple(Couple(i, j, name) for name, (i, j, _, _) in robot.mimics.items())
    numbers = {
        name: {"ratio": ratio, "offset": offset}
        for name, (_, _, ratio, offset) in robot.mimics.items()
    }
    parts = (nsdyn.Fixed(Together(rows)),) if rows else ()
    params = {
        "tree": robot.tree,
        "torque": jnp.zeros(robot.tree.nv),
        "closures": numbers,
        "locks": jnp.asarray([time for time, _ in locks], float),
    }
    return nsdyn.Problem(
        robot.name,
        tree_system(robot.tree),
        (*parts, *constraints(None, tuple(index for _, index in locks))),
        q0=q0,
        v0=jnp.zeros(robot.tree.nv) if v0 is None else v0,
        t_end=t_end,
        params=params,
        coordinates=tree_coordinates(robot.tree),
        shape=TreeShape(),
    )
