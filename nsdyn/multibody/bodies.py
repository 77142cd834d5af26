"""Mechanisms written by hand: bodies, joints and closures by name.

    robot = Bodies()
    robot.free("base", mass=4.0, inertia=0.3)
    robot.hinge("arm", "base", at=(0.2, 0, 0), axis="y", mass=1.0, com=(0.5, 0, 0), inertia=0.1)
    grip = robot.weld("arm", "box", hold=True)
    problem = robot.problem("robot", nsdyn.Scheduled((0.4,), (None, grip)), t_end=1.0)

In a planar mechanism, `Bodies(planar=True)`, places have two coordinates, inertias are numbers,
hinges turn about z, and bodies that are free are `planar`. How joints count their coordinates and
velocities is in `nsdyn.multibody.tree`, what closures are in `nsdyn.multibody.closures`.

All numbers may be traced: build the mechanism inside a function to differentiate with respect to
them.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypedDict, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from nsdyn._types import AnyArray, Number, Numbers, Params
from nsdyn.constraints.fixed import Fixed
from nsdyn.constraints.mode_rows import Lock, lock
from nsdyn.errors import ProblemError, unknown
from nsdyn.mechanics.system import System
from nsdyn.multibody.chain import EARTH
from nsdyn.multibody.closures import (
    PLANE,
    SPACE,
    Connect,
    Couple,
    PoseDifference,
    RelativePose,
    Weld,
)
from nsdyn.multibody.skeleton import TreeShape, tree_coordinates
from nsdyn.multibody.tree import KINDS, Tree, frame, neutral, turned
from nsdyn.multibody.tree_dynamics import tree_system
from nsdyn.problem import Problem

AXES = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}
ELASTIC = ("hinge", "slide", "planar")  # joints that may have springs


class Body(TypedDict, total=False):
    """What a body and its joint may have; all but the mass may be left out.

    mass, com: the mass, and the centre of mass in the body's axes, from its joint.
    inertia: about the centre of mass: a number (the same about all axes), three principal moments,
        or a matrix.
    turn: a rotation matrix that turns the joint in its parent, see `about`; an angle in the plane.
    rotor, damping, stiffness, rest: as in `Tree`, a number for all velocities of the joint or one
        for each.
    """

    mass: Number
    com: Numbers
    inertia: Numbers
    turn: Numbers
    rotor: Numbers
    damping: Numbers
    stiffness: Numbers
    rest: Numbers


def about(axis: str | Numbers, angle: Number) -> AnyArray:
    """The rotation matrix about an axis, "x", "y", "z" or a vector."""
    vector = jnp.asarray(_axis("about", axis, planar=False), float)
    return turned(vector / jnp.linalg.norm(vector), jnp.asarray(angle, float))


class Bodies:
    """A mechanism under construction.

    gravity: the acceleration of gravity, by default 9.81 m/s^2 along -z, in the plane along -y.
    planar: whether all moves in the x-y plane.

    Every method that adds a body returns its name, for use as a parent. What it is made of are the
    settings of `Body`: mass, com, inertia, turn, rotor, damping, stiffness, rest.
    """

    def __init__(self, gravity: Numbers | None = None, planar: bool = False) -> None:
        self._flat = bool(planar)
        default = (0.0, -9.81) if planar else EARTH
        self._gravity = self._place("gravity", default if gravity is None else gravity)
        self._parents: list[int] = []
        self._names: list[str] = []
        self._kinds: list[str] = []
        self._parts: list[dict[str, AnyArray]] = []
        self._closures: dict[str, dict[str, AnyArray]] = {}
        self._held: list[tuple[int, str, str]] = []  # for the drawing

    # Bodies.

    def hinge(
        self,
        name: str,
        parent: str = "world",
        at: Numbers | None = None,
        axis: str | Numbers = "z",
        **body: Unpack[Body],
    ) -> str:
        """A body that turns about an axis through the point `at` of its parent."""
        return self._add("hinge", name, parent, at, axis, body)

    def slide(
        self,
        name: str,
        parent: str = "world",
        at: Numbers | None = None,
        axis: str | Numbers = "x",
        **body: Unpack[Body],
    ) -> str:
        """A body that slides along an axis through the point `at` of its parent."""
        return self._add("slide", name, parent, at, axis, body)

    def planar(
        self, name: str, parent: str = "world", at: Numbers | None = None, **body: Unpack[Body]
    ) -> str:
        """A body that moves in the x-y plane of its parent and turns about z."""
        return self._add("planar", name, parent, at, "z", body)

    def ball(
        self, name: str, parent: str = "world", at: Numbers | None = None, **body: Unpack[Body]
    ) -> str:
        """A body that turns in any way about the point `at` of its parent."""
        return self._add("ball", name, parent, at, "z", body)

    def free(
        self, name: str, parent: str = "world", at: Numbers | None = None, **body: Unpack[Body]
    ) -> str:
        """A body that moves in any way."""
        return self._add("free", name, parent, at, "z", body)

    def _add(
        self, kind: str, name: str, parent: str, at: Any, axis: Any, body: Mapping[str, Any]
    ) -> str:
        where = f"{kind}({name!r}, ...)"
        if name in self._names or name == "world":
            raise ProblemError(f"{where}: expected a new name, found one that is taken")
        if self._flat and kind in ("ball", "free"):
            raise ProblemError(
                f"{where}: expected a joint in the plane, found {kind!r}; use planar(...) or hinge"
            )
        for key in body:
            if key not in Body.__annotations__:
                raise unknown(f"{where}: argument", key, Body.__annotations__)
        if "stiffness" in body and kind not in ELASTIC:
            raise ProblemError(
                f"{where}: stiffness: expected none, as the attitude is no vector; write the "
                "torque as a motor"
            )
        before = self._index(where, parent)
        nv = KINDS[kind].nv
        each = lambda key: self._each(f"{where}: {key}", body.get(key, 0.0), nv)
        turn_axis = (0.0, 0.0, 1.0) if self._flat and kind == "hinge" else axis
        self._parts.append(
            {
                "place": self._place(f"{where}: at", at),
                "axis": _axis(where, turn_axis, self._flat),
                "turn": self._turn(f"{where}: turn", body.get("turn")),
                "mass": _mass(where, body),
                "com": self._place(f"{where}: com", body.get("com")),
                "inertia": _inertia(f"{where}: inertia", body.get("inertia", 0.0)),
                **{key: each(key) for key in ("rotor", "damping", "stiffness", "rest")},
            }
        )
        self._parents.append(before)
        self._kinds.append(kind)
        self._names.append(name)
        return name

    def _index(self, where: str, name: str) -> int:
        if name == "world":
            return -1
        if name not in self._names:
            raise unknown(f"{where}: body", name, ("world", *self._names))
        return self._names.index(name)

    def _place(self, where: str, value: Any) -> AnyArray:
        size = 2 if self._flat else 3
        array = _numbers(where, np.zeros(size) if value is None else value, (size,))
        return _of(array).concatenate([array, np.zeros(3 - size)])

    def _turn(self, where: str, value: Any) -> AnyArray:
        if value is None:
            return np.eye(3)
        if self._flat:
            return about("z", jnp.asarray(_numbers(where, value, ())))
        return _numbers(where, value, (3, 3))

    def _each(self, where: str, value: Any, count: int) -> AnyArray:
        array = _numbers(where, value)
        if array.shape not in ((), (count,)):
            raise ProblemError(
                f"{where}: expected a number or {count} numbers, found shape {array.shape}"
            )
        return _of(array).broadcast_to(array, (count,))

    # Closures.

    def connect(
        self, a: str, b: str, point: Numbers, to: Numbers | None = None, name: str | None = None
    ) -> Connect:
        """The rows that keep a point of body a at a point of body b.

        point, to: the points in the axes of a and of b; without `to` the point of b that lies there
            when all joints are at zero.
        name: where the points are in params["closures"], by default "a - b".
        """
        where = f"connect({a!r}, {b!r}, ...)"
        first, second = self._index(where, a), self._index(where, b)
        in_a = _framed(self._place(f"{where}: point", point))
        if to is None:
            in_b = self._pose(second, first) @ in_a
        else:
            in_b = _framed(self._place(f"{where}: to", to))
        key = self._named(where, name or f"{a} - {b}", {"a": in_a, "b": in_b})
        self._held += [(first, key, "a"), (second, key, "b")]
        return Connect(first, second, key, (0, 1) if self._flat else (0, 1, 2))

    def weld(
        self,
        a: str,
        b: str,
        at: Numbers | None = None,
        turn: Numbers | None = None,
        hold: bool = False,
        name: str | None = None,
    ) -> Weld | tuple[Lock, ...]:
        """The rows that keep body b fixed to body a.

        at, turn: place and rotation of b in a; by default those that it has when all joints are at
            zero.
        hold: keep b as it is when the mode begins, as `lock` holds a coordinate; for the stages of
            `Scheduled` and the modes of `Switching`.
        name: where the pose is in params["closures"], by default "a + b".
        """
        where = f"weld({a!r}, {b!r}, ...)"
        first, second = self._index(where, a), self._index(where, b)
        rows = PLANE if self._flat else SPACE
        name = name or f"{a} + {b}"
        if hold:
            if at is not None or turn is not None:
                raise ProblemError(f"{where}: expected either a pose or hold=True, found both")
            return lock(RelativePose(first, second, name), difference=PoseDifference(rows))
        if at is None and turn is None:
            in_a = self._pose(first, second)
        else:
            in_a = _framed(self._place(f"{where}: at", at), self._turn(f"{where}: turn", turn))
        return Weld(first, second, self._named(where, name, {"a": in_a, "b": np.eye(4)}), rows)

    def couple(
        self, i: str, j: str, ratio: Number = 1.0, offset: Number = 0.0, name: str | None = None
    ) -> Couple:
        """The row q_i = ratio q_j + offset for the hinges or slides that carry two bodies.

        name: where the numbers are in params["closures"], by default "i : j".
        """
        where = f"couple({i!r}, {j!r}, ...)"
        first, second = (self._coordinate(where, body) for body in (i, j))
        numbers = {
            "ratio": _numbers(f"{where}: ratio", ratio, ()),
            "offset": _numbers(f"{where}: offset", offset, ()),
        }
        return Couple(first, second, self._named(where, name or f"{i} : {j}", numbers))

    def _coordinate(self, where: str, body: str) -> int:
        """The coordinate of the hinge or slide that carries a body."""
        index = self._index(where, body)
        kind = "world" if index < 0 else self._kinds[index]
        if kind not in ("hinge", "slide"):
            raise ProblemError(f"{where}: expected a hinge or slide for {body!r}, found {kind!r}")
        return sum(KINDS[kind].nq for kind in self._kinds[:index])

    def _named(self, where: str, name: str, numbers: dict[str, AnyArray]) -> str:
        if name in self._closures:
            raise ProblemError(f"{where}: expected a new name=..., found {name!r} twice")
        self._closures[name] = numbers
        return name

    def _pose(self, a: int, b: int) -> AnyArray:
        """The frame of body b in body a when all joints are at zero."""
        tree = self.tree
        zero = jnp.asarray(neutral(tree))
        return jnp.linalg.inv(frame(tree, zero, a)) @ frame(tree, zero, b)

    # The whole.

    @property
    def tree(self) -> Tree:
        """The bodies as a `Tree`."""
        if not self._names:
            raise ProblemError("Bodies(): expected at least one body, found none")
        stack = lambda key: _joined("stack", [part[key] for part in self._parts])
        chain = lambda key: _joined("concatenate", [part[key] for part in self._parts])
        return Tree(
            parents=self._parents,
            kinds=self._kinds,
            names=self._names,
            **{key: stack(key) for key in ("place", "axis", "turn", "mass", "com", "inertia")},
            **{key: chain(key) for key in ("rotor", "damping", "stiffness", "rest")},
            gravity=self._gravity,
        )

    @property
    def system(self) -> System:
        """The equations of motion."""
        return tree_system(self.tree)

    @property
    def params(self) -> dict:
        """tree, torque (a force for each velocity, zero), closures (the numbers of each)."""
        tree = self.tree
        closures = {name: dict(numbers) for name, numbers in self._closures.items()}
        return {"tree": tree, "torque": np.zeros(tree.nv), "closures": closures}

    def coordinates(self, values: Mapping[str, Numbers] | ArrayLike | None = None) -> AnyArray:
        """q, with the values of these bodies and zero for the others."""
        tree = self.tree
        return self._filled("q0", values, neutral(tree), tree.q_of)

    def velocities(self, values: Mapping[str, Numbers] | ArrayLike | None = None) -> AnyArray:
        """v, with the values of these bodies and zero for the others."""
        tree = self.tree
        return self._filled("v0", values, np.zeros(tree.nv), tree.v_of)

    def _filled(self, argument: str, values: Any, start: np.ndarray, of: Callable) -> AnyArray:
        if values is None:
            return start
        if not isinstance(values, Mapping):
            return _numbers(argument, values, start.shape)
        pieces = {name: start[of(name)] for name in self._names}
        for name, value in values.items():
            if name not in pieces:
                raise unknown(f"{argument}: body", name, self._names)
            own = _numbers(f"{argument}: {name!r}", value).reshape(-1)
            pieces[name] = _numbers(f"{argument}: {name!r}", own, pieces[name].shape)
        return _joined("concatenate", list(pieces.values()))

    def problem(
        self,
        name: str,
        constraint: Any = None,
        q0: Mapping[str, Numbers] | ArrayLike | None = None,
        v0: Mapping[str, Numbers] | ArrayLike | None = None,
        t_end: float = 1.0,
        motor: Callable | None = None,
        params: Params = None,
    ) -> Problem:
        """The mechanism as a `Problem`.

        constraint: as in `Problem`; a closure by itself holds always.
        q0, v0: vectors, or values for some bodies by their names, zero for the others.
        motor: motor(q, v, t, p) -> a force for each velocity, added to all others.
        params: further parameters, a dict.
        """
        tree = self.tree
        return Problem(
            name,
            tree_system(tree, motor),
            _parts(constraint),
            q0=self.coordinates(q0),
            v0=self.velocities(v0),
            t_end=t_end,
            params=self.params | dict(params or {}),
            coordinates=tree_coordinates(tree),
            shape=TreeShape(tuple(self._held), self._flat),
        )


def _parts(constraint: Any) -> tuple:
    """The constraints, with `Fixed` around closures that stand by themselves."""
    if constraint is None:
        return ()
    parts = constraint if isinstance(constraint, tuple | list) else (constraint,)
    return tuple(Fixed(part) if callable(part) else part for part in parts)


# Numbers as they come.


def _of(array: AnyArray) -> Any:
    """numpy for plain numbers, which then need no compiler; jax.numpy for traced ones."""
    return jnp if isinstance(array, jax.Array) else np


def _numbers(where: str, value: Any, shape: tuple[int, ...] | None = None) -> AnyArray:
    traced = any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(value))
    try:
        array = jnp.asarray(value, float) if traced else np.asarray(value, float)
    except (TypeError, ValueError):
        raise ProblemError(f"{where}: expected numbers, found {value!r}") from None
    if shape is not None and array.shape != shape:
        what = f"an array of shape {shape}" if shape else "a number"
        raise ProblemError(f"{where}: expected {what}, found shape {array.shape}")
    if not traced and not np.all(np.isfinite(array)):
        raise ProblemError(f"{where}: expected finite numbers, found {value!r}")
    return array


def _joined(how: str, arrays: list) -> AnyArray:
    traced = any(isinstance(array, jax.Array) for array in arrays)
    return getattr(jnp if traced else np, how)(arrays)


def _axis(where: str, axis: Any, planar: bool) -> AnyArray:
    if isinstance(axis, str):
        if axis not in AXES:
            raise unknown(f"{where}: axis", axis, AXES)
        return np.array(AXES[axis])
    array = _numbers(f"{where}: axis", axis)
    if planar and array.shape == (2,):
        return _of(array).concatenate([array, np.zeros(1)])
    return _numbers(f"{where}: axis", array, (3,))


def _mass(where: str, body: Mapping[str, Any]) -> AnyArray:
    if "mass" not in body:
        raise ProblemError(f"{where}: mass: expected a number, found none")
    mass = _numbers(f"{where}: mass", body["mass"], ())
    if not isinstance(mass, jax.Array) and not mass >= 0:
        raise ProblemError(f"{where}: mass: expected a number >= 0, found {mass:g}")
    return mass


def _inertia(where: str, value: Any) -> AnyArray:
    array = _numbers(where, value)
    if array.shape not in ((), (3,), (3, 3)):
        raise ProblemError(
            f"{where}: expected a number, three principal moments or a matrix, found shape "
            f"{array.shape}"
        )
    xp = _of(array)
    tensor = array if array.ndim == 2 else xp.diag(xp.broadcast_to(array, (3,)))
    if xp is np and np.linalg.eigvalsh(tensor)[0] < 0:
        raise ProblemError(
            f"{where}: expected no negative principal moment, found "
            f"{np.linalg.eigvalsh(tensor).tolist()}"
        )
    return tensor


def _framed(place: AnyArray, turn: AnyArray | None = None) -> AnyArray:
    """[[turn, place], [0, 1]]."""
    R = np.eye(3) if turn is None else turn
    traced = isinstance(place, jax.Array) or isinstance(R, jax.Array)
    xp = jnp if traced else np
    top = xp.concatenate([R, xp.reshape(place, (3, 1))], axis=1)
    return xp.concatenate([top, np.array([[0.0, 0.0, 0.0, 1.0]])])
