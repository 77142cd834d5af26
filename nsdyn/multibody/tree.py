"""A tree of rigid bodies in 3D: its description, coordinates, kinematics and spatial inertias.

Twists (velocity; angular velocity), wrenches, X_i and I_i are those of `nsdyn.multibody.chain`:
about the joint of a body, in the axes of the body, X_i maps the twist of the parent to the body.
Body i hangs on the body parents[i] < i, or on the world, by one joint, which is placed in the
parent by the fixed point l_i and the fixed rotation E_i. The joint turns by R_J(q) and moves by
d_J(q); with the parent p,

    R_i = R_p E_i R_J,   r_i = r_p + R_p (l_i + E_i d_J)                                       (1)
    v_i = X_i v_p + S_i v,   X_i = [[R^T, -R^T r x], [0, R^T]],
    R = E_i R_J,  r = l_i + E_i d_J                                                            (2)

    joint    q                           v                         R_J, d_J
    hinge    angle                       q'                        rot(axis, q), 0
    slide    distance                    q'                        1, axis q
    planar   x, y, angle                 q'                        rot(z, angle), (x, y, 0)
    ball     unit quaternion             w in body axes            R(quaternion), 0
    free     position, unit quaternion   position', w in body axes R(quaternion), position

Quaternions have their scalar first; w is the angular velocity of the joint. The axes of a joint are
those of its parent after the turn E_i, so a free body on the world has its velocity in the axes of
the world. The columns of S_i are

    hinge (0; axis),  slide (axis; 0),  ball (0; e_k),
    planar and free (R_J^T e_k; 0) and (0; e_k)                                                (3)

so S_i changes with time for planar and free joints only; with the joint's own twist S_i v = (u; w),

    S_i' v = (-w x u; 0)                                                                       (4)

for all of them, since u or w is zero in the others.

A quaternion a = (s, x) enters through R only, and R does not depend on its length:

    R = 1 + 2 (s x x + x x x x) / |a|^2                                                        (5)

where x x is the matrix of the cross product. So no length can distort the motion, the rows or the
energy. The length itself is kept by the second term of

    a' = a (0, w) / 2 + |w| (1 - |a|^2) a / 4                                                  (6)

which is zero on the unit sphere, so every scheme keeps its order, and brings the length back within
a few turns. Like the first term it scales with w, so that `System.moved`, which integrates a motion
w h over a unit of time, does the same as a step h. The stages of a step leave the sphere by
(|w| h)^2, and any other factor than 1/4 leaves more of that in the length: with the step h of RK4
the length is off by about 7e-3 (|w| h / 2)^5.
"""

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn._types import AnyConfiguration, Configuration, Numbers, Scalar, Velocity
from nsdyn.errors import ProblemError, unknown
from nsdyn.multibody.chain import EARTH, EPSILON, SKEW, skew, spatial_inertia
from nsdyn.numerics import small

WORLD = -1
SHORT_PATH = 4  # bodies up to which a product of frames is written out


class Kind(NamedTuple):
    """How many coordinates and velocities a joint has, and where its quaternion begins."""

    nq: int
    nv: int
    quaternion: int | None = None


KINDS = {
    "hinge": Kind(1, 1),
    "slide": Kind(1, 1),
    "planar": Kind(3, 3),
    "ball": Kind(4, 3, 0),
    "free": Kind(7, 6, 3),
}


class Tree(eqx.Module):
    """The bodies and joints of a tree. What describes its structure is static; all numbers are
    traced arrays, so a sweep compiles only once.

    parents: for each body the index of its parent, or -1 for the world; parents come first.
    kinds: for each body "hinge", "slide", "planar", "ball" or "free".
    names: a name for each body.
    place, turn: the point (l) and the rotation (E) that place each joint in its parent.
    axis: the axis of each joint in its own axes; only hinges and slides have one.
    mass, com, inertia: mass, centre of mass and inertia about it, in the body's own axes.
    rotor: for each velocity, what the drive adds to the diagonal of the mass matrix.
    damping: for each velocity v, the factor d of the force -d v.
    stiffness, rest: for each velocity, k and q_0 of the force -k (q - q_0); not for ball and free.
    gravity: the acceleration of gravity, a vector in the world.

    To vary one of these, build the tree inside the function that is mapped or differentiated.
    """

    parents: tuple[int, ...] = eqx.field(static=True)
    kinds: tuple[str, ...] = eqx.field(static=True)
    names: tuple[str, ...] = eqx.field(static=True)
    place: Float[Array, "*batch N 3"]
    turn: Float[Array, "*batch N 3 3"]
    axis: Float[Array, "*batch N 3"]
    inertia: Float[Array, "*batch N 6 6"]
    rotor: Float[Array, "*batch nv"]
    damping: Float[Array, "*batch nv"]
    stiffness: Float[Array, "*batch nv"]
    rest: Float[Array, "*batch nv"]
    gravity: Float[Array, "*batch 3"]

    def __init__(
        self,
        parents: Sequence[int],
        kinds: Sequence[str],
        place: Numbers,
        mass: Numbers,
        com: Numbers,
        inertia: Numbers,
        axis: Numbers | None = None,
        turn: Numbers | None = None,
        names: Sequence[str] | None = None,
        rotor: Numbers | None = None,
        damping: Numbers | None = None,
        stiffness: Numbers | None = None,
        rest: Numbers | None = None,
        gravity: Numbers = EARTH,
    ) -> None:
        self.parents = tuple(int(parent) for parent in parents)
        self.kinds = tuple(kinds)
        N = len(self.parents)
        self.names = tuple(f"body {i}" for i in range(N)) if names is None else tuple(names)
        _check_structure(self.parents, self.kinds, self.names)
        z = np.tile([0.0, 0.0, 1.0], (N, 1))
        one = np.tile(np.eye(3), (N, 1, 1))
        self.axis = _unit(_array("axis", z if axis is None else axis, N, 3), self)
        self.place = _array("place", place, N, 3)
        self.turn = _array("turn", one if turn is None else turn, N, 3, 3)
        bodies = (
            _array("mass", mass, N),
            _array("com", com, N, 3),
            _array("inertia", inertia, N, 3, 3),
        )
        self.inertia = _spatial_inertias(*bodies)
        nv = self.nv
        given = lambda name, value: _array(name, np.zeros(nv) if value is None else value, nv)
        self.rotor = given("rotor", rotor)
        self.damping = given("damping", damping)
        self.stiffness = given("stiffness", stiffness)
        self.rest = given("rest", rest)
        self.gravity = _array("gravity", gravity, 3)

    @property
    def layout(self) -> "Layout":
        return Layout.of(self.parents, self.kinds)

    @property
    def nq(self) -> int:
        return sum(KINDS[kind].nq for kind in self.kinds)

    @property
    def nv(self) -> int:
        return sum(KINDS[kind].nv for kind in self.kinds)

    @property
    def mass(self) -> Float[Array, "*batch N"]:
        return self.inertia[..., 0, 0]

    @property
    def moment(self) -> Float[Array, "*batch N 3"]:
        """m c, the first moment of each body."""
        I = self.inertia
        return jnp.stack([I[..., 5, 1], I[..., 3, 2], I[..., 4, 0]], axis=-1)

    def index(self, name: str) -> int:
        """The number of a body; -1 for "world"."""
        if name == "world":
            return WORLD
        if name not in self.names:
            raise unknown("body", name, ("world", *self.names))
        return self.names.index(name)

    def q_of(self, name: str) -> slice:
        """The coordinates of the joint that carries a body."""
        return self.layout.q_slices[self._carried(name)]

    def v_of(self, name: str) -> slice:
        """The velocities of the joint that carries a body."""
        return self.layout.v_slices[self._carried(name)]

    def _carried(self, name: str) -> int:
        i = self.index(name)
        if i == WORLD:
            raise ProblemError("body 'world': expected a body with a joint, found the world")
        return i


@jax.jit
@jax.vmap
def _spatial_inertias(
    mass: Scalar, com: Float[Array, " 3"], inertia: Float[Array, "3 3"]
) -> Float[Array, "6 6"]:
    return spatial_inertia(mass, com, inertia)


def _array(name: str, value: Any, *shape: int) -> Array:
    traced = isinstance(value, jax.Array)
    array = jnp.asarray(value if traced else np.asarray(value, float), float)
    if array.shape != shape:
        raise ProblemError(
            f"Tree({name}=...): expected an array of shape {shape}, found {array.shape}"
        )
    return array


def _check_structure(
    parents: tuple[int, ...], kinds: tuple[str, ...], names: tuple[str, ...]
) -> None:
    if not parents:
        raise ProblemError("Tree(parents=...): expected at least one body, found none")
    for argument, values in (("kinds", kinds), ("names", names)):
        if len(values) != len(parents):
            raise ProblemError(
                f"Tree({argument}=...): expected one entry for each of {len(parents)} bodies, "
                f"found {len(values)}"
            )
    for i, (parent, kind) in enumerate(zip(parents, kinds, strict=True)):
        if not WORLD <= parent < i:
            raise ProblemError(
                f"Tree(parents=...): expected a body before body {i}, or -1 for the world, found "
                f"{parent}; list parents before their children"
            )
        if kind not in KINDS:
            raise unknown(f"joint of body {names[i]!r}", kind, KINDS)
    if len(set(names)) < len(names) or "world" in names:
        raise ProblemError(
            f"Tree(names=...): expected different names, none of them 'world', found {names}"
        )


def _unit(axis: Float[Array, "N 3"], tree: Tree) -> Float[Array, "N 3"]:
    """Axes of length 1, where there are any."""
    xp = jnp if isinstance(axis, jax.core.Tracer) else np
    squared = xp.sum(xp.square(axis), axis=1)
    if xp is np:
        for name, kind, length in zip(tree.names, tree.kinds, np.sqrt(squared), strict=True):
            if kind in ("hinge", "slide") and not length > 0:
                raise ProblemError(
                    f"Tree(axis=...): expected a nonzero axis for {name!r}, found length {length:g}"
                )
    length = xp.sqrt(xp.where(squared > 0, squared, 1.0))
    return jnp.asarray(axis / length[:, None])


class Layout:
    """Where the coordinates and velocities of each body lie, and the order of the recursions: all
    constants of the structure.

    q_slices, v_slices: for each body.
    groups: for each kind of joint that occurs, the coordinates (k, nq) and velocities (k, nv) of
        the k bodies with it, and which bodies these are.
    bodies: puts what is stacked by groups into the order of the bodies.
    columns: puts columns of S that are stacked by groups into the order of the velocities.
    owner: the body of each velocity.
    padded: for each body its velocities, filled up to the largest number with the index nv.
    coordinate: the coordinate whose rate a velocity is, or -1.
    parents: with N for the world.
    """

    def __init__(self, parents: tuple[int, ...], kinds: tuple[str, ...]) -> None:
        N = len(kinds)
        q_ends = np.cumsum([0, *(KINDS[kind].nq for kind in kinds)])
        v_ends = np.cumsum([0, *(KINDS[kind].nv for kind in kinds)])
        self.nq, self.nv = int(q_ends[-1]), int(v_ends[-1])
        self.q_slices = [slice(int(a), int(b)) for a, b in itertools.pairwise(q_ends)]
        self.v_slices = [slice(int(a), int(b)) for a, b in itertools.pairwise(v_ends)]
        self.parents = np.array([N if parent == WORLD else parent for parent in parents])
        self.groups = {}
        for kind in dict.fromkeys(kinds):
            members = np.flatnonzero([kind == other for other in kinds])
            at_q = q_ends[members][:, None] + np.arange(KINDS[kind].nq)
            at_v = v_ends[members][:, None] + np.arange(KINDS[kind].nv)
            self.groups[kind] = (at_q, at_v, members)
        self.bodies = np.argsort(np.concatenate([group[2] for group in self.groups.values()]))
        self.columns = np.argsort(
            np.concatenate([group[1].ravel() for group in self.groups.values()])
        )
        self.owner = np.repeat(np.arange(N), np.diff(v_ends))
        width = max(KINDS[kind].nv for kind in kinds)
        self.padded = np.array(
            [[*range(*s.indices(self.nv)), *[self.nv] * width][:width] for s in self.v_slices]
        )
        self.coordinate = np.full(self.nv, -1)
        for kind, (at_q, at_v, _) in self.groups.items():
            k = KINDS[kind].nq if KINDS[kind].quaternion is None else KINDS[kind].quaternion
            self.coordinate[at_v[:, :k]] = at_q[:, :k]
        self.path_of = functools.cache(lambda body: _path(parents, body))

    @staticmethod
    @functools.lru_cache(maxsize=64)
    def of(parents: tuple[int, ...], kinds: tuple[str, ...]) -> "Layout":
        return Layout(parents, kinds)

    @property
    def has_quaternions(self) -> bool:
        return any(KINDS[kind].quaternion is not None for kind in self.groups)


def _path(parents: tuple[int, ...], body: int) -> np.ndarray:
    """The bodies from the world to this one."""
    found: list[int] = []
    while body != WORLD:
        found.insert(0, body)
        body = parents[body]
    return np.array(found, int)


# (5) and (6) as products with constants, which compile to little:
# R |a|^2 = ROTATION a a,   a (0, w) = SPIN w a
ROTATION = np.zeros((3, 3, 4, 4))
SPIN = np.zeros((4, 4, 3))
for i in range(3):
    ROTATION[i, i] += np.diag([1.0, -1.0, -1.0, -1.0])
    for j in range(3):
        ROTATION[i, j, i + 1, j + 1] += 2.0
    SPIN[0, i + 1, i] = -1.0
ROTATION[:, :, 0, 1:] += 2.0 * SKEW
SPIN[1:, 0] = np.eye(3)
SPIN[1:, 1:] = EPSILON

# Joints, one of each kind: R_J and d_J, and the columns of S from the axis and R_J.


def rotation(a: Float[Array, " 4"]) -> Float[Array, "3 3"]:
    """The rotation of a quaternion of any length."""
    square = a[:, None] * a[None, :]
    return jnp.matmul(ROTATION.reshape(9, 16), square.ravel()).reshape(3, 3) / jnp.sum(a * a)  # (5)


def turned(axis: Float[Array, " 3"], angle: Scalar) -> Float[Array, "3 3"]:
    """The rotation about a unit axis."""
    x = skew(axis)
    return jnp.eye(3) + jnp.sin(angle) * x + (1.0 - jnp.cos(angle)) * (x @ x)


def _hinge(axis: Array, q: Array) -> tuple[Array, Array]:
    return turned(axis, q[0]), jnp.zeros(3)


def _slide(axis: Array, q: Array) -> tuple[Array, Array]:
    return jnp.eye(3), axis * q[0]


def _planar(axis: Array, q: Array) -> tuple[Array, Array]:
    return turned(jnp.array([0.0, 0.0, 1.0]), q[2]), jnp.array([q[0], q[1], 0.0])


def _ball(axis: Array, q: Array) -> tuple[Array, Array]:
    return rotation(q), jnp.zeros(3)


def _free(axis: Array, q: Array) -> tuple[Array, Array]:
    return rotation(q[3:]), q[:3]


MOTION = {"hinge": _hinge, "slide": _slide, "planar": _planar, "ball": _ball, "free": _free}


def _moving(axis: Array, R: Array) -> Float[Array, "6 6"]:
    """The columns (R^T e_k; 0) and (0; e_k), as rows."""
    turns = np.eye(6)[3:]
    return jnp.concatenate([R @ np.eye(3, 6), turns])


COLUMNS = {  # (3)
    "hinge": lambda axis, R: jnp.concatenate([jnp.zeros(3), axis])[None],
    "slide": lambda axis, R: jnp.concatenate([axis, jnp.zeros(3)])[None],
    "planar": lambda axis, R: _moving(axis, R)[np.array([0, 1, 5])],
    "ball": lambda axis, R: jnp.eye(6)[3:],
    "free": _moving,
}


class Joints(NamedTuple):
    """R_i and r_i of each body relative to its parent, and the columns of all S_i, one for each
    velocity."""

    R: Float[Array, "N 3 3"]
    r: Float[Array, "N 3"]
    S: Float[Array, "nv 6"]


def _motions(tree: Tree, q: Configuration) -> dict[str, tuple[Array, Array]]:
    """R_J and d_J of the joints of each kind."""
    groups = tree.layout.groups.items()
    moved = lambda kind, at_q, members: jax.vmap(MOTION[kind])(tree.axis[members], q[at_q])
    return {kind: moved(kind, at_q, members) for kind, (at_q, _, members) in groups}


def _placed(tree: Tree, motions: dict[str, tuple[Array, Array]]) -> tuple[Array, Array]:
    """R_i and r_i of all bodies."""
    R, d = (_joined([part[k] for part in motions.values()], tree.layout.bodies) for k in (0, 1))
    return tree.turn @ R, tree.place + jnp.einsum("nij,nj->ni", tree.turn, d)  # (1)


def _joined(parts: list[Array], order: np.ndarray) -> Array:
    """What is stacked by groups, in the order of all."""
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)[order]


def joints(tree: Tree, q: Configuration) -> Joints:
    layout = tree.layout
    motions = _motions(tree, q)
    columns = [
        jax.vmap(COLUMNS[kind])(tree.axis[members], motions[kind][0]).reshape(-1, 6)
        for kind, (_, _, members) in layout.groups.items()
    ]
    return Joints(*_placed(tree, motions), _joined(columns, layout.columns))


def frames(tree: Tree, q: Configuration) -> Float[Array, "N 4 4"]:
    """H_i = [[R, r], [0, 1]]: the frame of each body relative to its parent."""
    R, r = _placed(tree, _motions(tree, q))
    top = jnp.concatenate([R, r[:, :, None]], axis=2)
    return jnp.pad(top, ((0, 0), (0, 1), (0, 0))) + np.diag([0.0, 0.0, 0.0, 1.0])[None]


def frame(tree: Tree, q: AnyConfiguration, body: int) -> Float[Array, "4 4"]:
    """The frame of one body in the world; -1 is the world."""
    return frames_of(tree, q, (body,))[0]


def frames_of(
    tree: Tree, q: AnyConfiguration, bodies: tuple[int, ...]
) -> tuple[Float[Array, "4 4"], ...]:
    """The frames of some bodies in the world."""
    relative = frames(tree, jnp.asarray(q))
    return tuple(_product(relative, tree.layout.path_of(body)) for body in bodies)


def _product(relative: Float[Array, "N 4 4"], path: np.ndarray) -> Float[Array, "4 4"]:
    """The frame at the end of a path from the world: (1)."""
    if len(path) > SHORT_PATH:
        along = relative[path]
        return jax.lax.scan(lambda pose, H: (pose @ H, None), along[0], along[1:])[0]
    pose = jnp.eye(4)
    for k, body in enumerate(path):
        pose = relative[body] if k == 0 else pose @ relative[body]
    return pose


def kinematics(tree: Tree, q: Configuration, v: Velocity) -> Configuration:
    """q'."""
    layout = tree.layout
    rates = []
    order = []
    for kind, (at_q, at_v, _) in layout.groups.items():
        start = KINDS[kind].quaternion
        plain = KINDS[kind].nq if start is None else start
        if plain:
            rates.append(v[at_v[:, :plain]].ravel())
            order.append(at_q[:, :plain].ravel())
        if start is not None:
            turning = jax.vmap(quaternion_rate)(q[at_q[:, start:]], v[at_v[:, start:]])
            rates.append(turning.ravel())
            order.append(at_q[:, start:].ravel())
    return jnp.concatenate(rates)[np.argsort(np.concatenate(order))]


def quaternion_rate(a: Float[Array, " 4"], w: Float[Array, " 3"]) -> Float[Array, " 4"]:
    """(6)"""
    spin = jnp.matmul(jnp.matmul(SPIN, w), a)
    speed = small.root(jnp.sum(w * w))
    return 0.5 * spin + 0.25 * speed * (1.0 - jnp.sum(a * a)) * a


def neutral(tree: Tree) -> np.ndarray:
    """The coordinates at which no joint has moved."""
    q = np.zeros(tree.nq)
    for kind, (at_q, _, _) in tree.layout.groups.items():
        if (start := KINDS[kind].quaternion) is not None:
            q[at_q[:, start]] = 1.0
    return q
