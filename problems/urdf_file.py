"""URDF files: links and joints as written, and the tree they form. `problems.from_urdf` builds
chains from them.

Files are parsed with expat of the standard library. A chain needs only names, numbers and the tree;
URDF packages open or download meshes, depend on a renderer, and ignore errors that are reported
here. Document types are refused, and with them entities, which could grow without bound or name
other files. Meshes, materials, sensors, transmissions, damping and friction are not read.

The orientation of an origin is given by roll, pitch and yaw about fixed axes,

    R = R_z(yaw) R_y(pitch) R_x(roll)                                                            (1)

and an inertia tensor is that of a body if its principal moments are

    0 < I_1 <= I_2 <= I_3 <= I_1 + I_2                                                           (2)
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

import numpy as np
from scipy.spatial.transform import Rotation

from nsdyn.errors import ProblemError, unknown

TURNS, SLIDES, FIXED = ("revolute", "continuous"), ("prismatic",), ("fixed",)
REFUSED = ("floating", "planar")
ROUNDED = 1e-3  # relative tolerance of (2), since files have few digits
SINGULAR = 1e-9


class Body(NamedTuple):
    """Mass, centre of mass and inertia tensor about it, in some frame."""

    mass: float
    com: np.ndarray
    inertia: np.ndarray

    def seen_from(self, frame: np.ndarray) -> "Body":
        """The same body, from where its own axes have this frame (4, 4)."""
        R = frame[:3, :3]
        return Body(self.mass, R @ self.com + frame[:3, 3], R @ self.inertia @ R.T)


@dataclass(frozen=True)
class Joint:
    """A joint as written: frame (4, 4) in the parent, unit axis, limits (infinite if there are
    none)."""

    name: str
    kind: str
    parent: str
    child: str
    frame: np.ndarray
    axis: np.ndarray
    lower: float
    upper: float
    speed: float
    effort: float
    mimics: str | None
    multiplier: float
    offset: float

    @property
    def moves(self) -> bool:
        return self.kind not in FIXED

    @property
    def rest(self) -> float:
        """Zero, or the nearest value within the limits."""
        return min(max(0.0, self.lower), self.upper)

    def moved(self, q: float) -> np.ndarray:
        """The frame of the child in the parent."""
        motion = np.eye(4)
        if self.kind in TURNS:
            motion[:3, :3] = Rotation.from_rotvec(q * self.axis).as_matrix()
        elif self.kind in SLIDES:
            motion[:3, 3] = q * self.axis
        return self.frame @ motion


@dataclass(frozen=True)
class Links:
    """All links and joints of a file; a link without inertia has no body."""

    name: str
    links: dict[str, Body | None]
    joints: dict[str, Joint]

    def children(self, link: str) -> list[Joint]:
        return [joint for joint in self.joints.values() if joint.parent == link]

    def root(self) -> str:
        child = {joint.child for joint in self.joints.values()}
        return next(link for link in self.links if link not in child)

    def known(self, base: str | None) -> str:
        """The base link, by default the root."""
        if base is not None and base not in self.links:
            raise unknown("base link", base, self.links)
        return self.root() if base is None else base

    def only_leaf(self, link: str) -> str:
        """The end of the tree beyond a link; the tree must not branch."""
        while after := self.children(link):
            if len(after) > 1:
                raise ProblemError(
                    f"link {link!r}: expected a chain, found a branch into "
                    f"{_list(j.name for j in after)}; choose its end with tip=..., one of "
                    f"{_list(self.leaves(link))}"
                )
            link = after[0].child
        return link

    def leaves(self, link: str) -> list[str]:
        after = self.children(link)
        return [leaf for joint in after for leaf in self.leaves(joint.child)] if after else [link]

    def path(self, base: str, tip: str) -> list[Joint]:
        """The joints from the base link to the tip link."""
        for role, name in (("base", base), ("tip", tip)):
            if name not in self.links:
                raise unknown(f"{role} link", name, self.links)
        arriving = {joint.child: joint for joint in self.joints.values()}
        found: list[Joint] = []
        link = tip
        while link != base:
            if link not in arriving:
                raise ProblemError(
                    f"link {tip!r}: expected a tip beyond the base {base!r}, found that its path "
                    f"back ends at {link!r}"
                )
            found.insert(0, arriving[link])
            link = arriving[link].parent
        return found


# From the file to the tree


def read_links(path: str | Path) -> Links:
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ProblemError(
            f"expected a readable URDF file, found none ({error.strerror})"
        ) from error
    robot = _parsed(text)
    links = _named("link", [(_name("link", e), _body(e)) for e in robot if e.tag == "link"])
    joints = _named("joint", [(_name("joint", e), _joint(e)) for e in robot if e.tag == "joint"])
    if not links:
        raise ProblemError("robot: expected at least one <link>, found none")
    _check_tree(links, joints)
    return Links(robot.get("name", "robot"), links, joints)


def _parsed(text: bytes) -> Element:
    builder = TreeBuilder()
    parser = expat.ParserCreate()

    def refuse(*_: object) -> None:
        raise ProblemError(
            "expected plain XML, found a document type (<!DOCTYPE>), which a URDF file does not "
            "need"
        )

    def start(tag: str, attributes: dict[str, str]) -> None:
        if tag.startswith("xacro:"):
            raise ProblemError(
                f"expected URDF, found the macro <{tag}>; expand the file with xacro first"
            )
        builder.start(tag, attributes)

    parser.StartElementHandler = start
    parser.EndElementHandler = builder.end
    parser.StartDoctypeDeclHandler = refuse
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        raise ProblemError(f"expected XML, found: {error}") from None
    robot = builder.close()
    if robot.tag != "robot":
        raise ProblemError(f"expected a <robot>, found <{robot.tag}>")
    return robot


def _named(what: str, items: list) -> dict:
    twice = [name for name, count in Counter(name for name, _ in items).items() if count > 1]
    if twice:
        raise ProblemError(
            f"{what} {twice[0]!r}: expected a unique name, found several {what}s with it"
        )
    return dict(items)


def _name(what: str, element: Element) -> str:
    name = element.get("name", "")
    if not name:
        raise ProblemError(f"{what}: expected a name, found a <{what}> without one")
    return name


def _check_tree(links: dict, joints: dict) -> None:
    arriving: dict[str, Joint] = {}
    for joint in joints.values():
        for role, link in (("parent", joint.parent), ("child", joint.child)):
            if link not in links:
                raise ProblemError(
                    f"joint {joint.name!r}: expected a {role} among the links, found {link!r}"
                )
        if joint.child in arriving:
            both = _list((arriving[joint.child].name, joint.name))
            raise ProblemError(
                f"link {joint.child!r}: expected one joint that carries it, found {both}: a loop, "
                "not a tree"
            )
        arriving[joint.child] = joint
    for link in links:
        seen = [link]
        while seen[-1] in arriving:
            seen.append(arriving[seen[-1]].parent)
            if seen[-1] == link:
                raise ProblemError(
                    f"link {link!r}: expected a tree, found the loop {' <- '.join(map(repr, seen))}"
                )
            if len(seen) > len(links):
                break  # leads into a loop, which is reported for a link in it
    roots = [link for link in links if link not in arriving]
    if len(roots) > 1:
        raise ProblemError(
            f"link {roots[1]!r}: expected one tree, found a second root besides {roots[0]!r}; "
            "connect them by a joint"
        )


# Elements


def _body(link: Element) -> Body | None:
    inertial = link.find("inertial")
    if inertial is None:
        return None
    where = f"link {link.get('name')!r}: <inertial>"
    parts = {}
    for tag in ("mass", "inertia"):
        found = inertial.find(tag)
        if found is None:
            raise ProblemError(f"{where}: expected <{tag}>, found none")
        parts[tag] = found
    xx, xy, xz, yy, yz, zz = (
        _numbers(where, parts["inertia"], f"i{k}")[0] for k in ("xx", "xy", "xz", "yy", "yz", "zz")
    )
    mass = _numbers(where, parts["mass"], "value")[0]
    if mass < 0:
        raise ProblemError(f"link {link.get('name')!r}: expected a positive mass, found {mass:g}")
    if not any((mass, xx, xy, xz, yy, yz, zz)):
        return None  # a frame, not a body
    frame = _origin(where, inertial)
    own = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    R = frame[:3, :3]
    return Body(mass, frame[:3, 3], R @ own @ R.T)


def merged(bodies: list[Body]) -> Body:
    """Bodies that move together as one: (2) of `nsdyn.problems.urdf`."""
    mass = sum(body.mass for body in bodies)
    moment = sum((body.mass * body.com for body in bodies), np.zeros(3))
    com = moment / mass if mass else moment
    inertia = np.zeros((3, 3))
    for body in bodies:
        d = body.com - com
        inertia += body.inertia + body.mass * (d @ d * np.eye(3) - np.outer(d, d))  # (2)
    return Body(mass, com, inertia)


def check_body(link: str, body: Body) -> None:
    """Raise unless the body has a physical mass and inertia."""
    if not body.mass > 0:
        raise ProblemError(f"link {link!r}: expected a positive mass, found {body.mass:g}")
    moments = np.linalg.eigvalsh(body.inertia)
    printed = ", ".join(f"{moment:.6g}" for moment in moments)
    if not moments[0] > SINGULAR * abs(moments[2]):
        raise ProblemError(
            f"link {link!r}: expected a positive definite inertia, found the principal moments "
            f"{printed}"
        )
    if moments[2] > (1 + ROUNDED) * (moments[0] + moments[1]):  # (2)
        raise ProblemError(
            f"link {link!r}: expected no principal moment above the sum of the others, found "
            f"{printed}"
        )


def _joint(element: Element) -> Joint:
    name = element.get("name", "")
    where = f"joint {name!r}"
    kind = element.get("type", "")
    if kind not in TURNS + SLIDES + FIXED + REFUSED:
        raise ProblemError(
            f"{where}: expected the type {_list(TURNS + SLIDES + FIXED)}, found {kind!r}"
        )
    mimic = element.find("mimic")
    lower, upper, speed, effort = _limits(where, kind, element.find("limit"))
    return Joint(
        name=name,
        kind=kind,
        parent=_link_of(where, element, "parent"),
        child=_link_of(where, element, "child"),
        frame=_origin(where, element),
        axis=_axis(where, None if kind in FIXED else element.find("axis")),
        lower=lower,
        upper=upper,
        speed=speed,
        effort=effort,
        mimics=None if mimic is None else mimic.get("joint", ""),
        multiplier=1.0 if mimic is None else _numbers(where, mimic, "multiplier", 1, 1.0)[0],
        offset=0.0 if mimic is None else _numbers(where, mimic, "offset", 1, 0.0)[0],
    )


def _link_of(where: str, joint: Element, role: str) -> str:
    found = joint.find(role)
    if found is None or not found.get("link"):
        raise ProblemError(f'{where}: expected <{role} link="...">, found none')
    return found.get("link", "")


def _axis(where: str, element: Element | None) -> np.ndarray:
    axis = np.array([1.0, 0.0, 0.0] if element is None else _numbers(where, element, "xyz", 3))
    length = float(np.linalg.norm(axis))
    if not length > 0:
        raise ProblemError(f"{where}: <axis>: expected a direction, found a zero vector")
    return axis / length


def _limits(where: str, kind: str, element: Element | None) -> tuple[float, float, float, float]:
    """Lower, upper, largest speed, largest effort."""
    if element is None:
        if kind in ("revolute", "prismatic"):
            raise ProblemError(
                f"{where}: expected <limit>, found none; a joint without limits is 'continuous'"
            )
        return -math.inf, math.inf, math.inf, math.inf
    value = lambda name, default: _numbers(where, element, name, 1, default)[0]
    speed = value("velocity", math.inf)
    effort = value("effort", math.inf)
    if kind not in ("revolute", "prismatic"):
        return -math.inf, math.inf, speed, effort
    lower = value("lower", 0.0)
    upper = value("upper", 0.0)  # the defaults of the format
    if lower > upper:
        raise ProblemError(
            f"{where}: <limit>: expected lower <= upper, found {lower:g} and {upper:g}"
        )
    return lower, upper, speed, effort


def _origin(where: str, parent: Element) -> np.ndarray:
    frame = np.eye(4)
    element = parent.find("origin")
    if element is not None:
        frame[:3, 3] = _numbers(where, element, "xyz", 3, 0.0)
        frame[:3, :3] = Rotation.from_euler(
            "xyz", _numbers(where, element, "rpy", 3, 0.0)
        ).as_matrix()  # (1)
    return frame


def _numbers(
    where: str, element: Element, name: str, count: int = 1, default: float | None = None
) -> list[float]:
    text = element.get(name)
    if text is None and default is not None:
        return [default] * count
    what = "a number" if count == 1 else f"{count} numbers"
    place = f"{where}: <{element.tag} {name}=...>"
    if text is None:
        raise ProblemError(f"{place}: expected {what}, found none")
    try:
        values = [float(word) for word in text.split()]
    except ValueError:
        values = []
    if len(values) != count or not np.all(np.isfinite(values)):
        raise ProblemError(f"{place}: expected {what}, found {text!r}")
    return values


def _list(names: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in names)
