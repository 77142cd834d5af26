"""A serial chain of rigid bodies in 3D: its description, kinematics, twists and spatial inertias.

After J. Alexiou, "Constrained Dynamics of a 3D Serial Chain of Rigid Bodies" (2023), with his
equation numbers. Link i = 1 ... N follows joint i, which is placed in the frame of link i-1 by the
fixed point l_i and the fixed rotation E_i. The joint turns about, or slides along, the unit axis
z_i by q_i. With the rotation R_i and the origin r_i of link frame i,

    R_i = R_{i-1} E_i rot(z_i, q_i),   rot = 1 for a prismatic joint                             (1)
    r_i = r_{i-1} + R_{i-1} (l_i + E_i z_i q_i),   q_i only for a prismatic joint                (2)
    r_i^C = r_i + R_i c_i                                                                        (3)
    R_0 = 1,  r_0 = 0                                                                       (4), (5)

Twists are (velocity of the reference point; angular velocity), wrenches (force; moment about the
reference point):

    s_i = (0; z_i), for a prismatic joint (z_i; 0)                                               (6)
    v_i = X_i v_{i-1} + s_i q_i'                                                                 (7)
    I_i = [[m, -m c x], [m c x, I^C - m c x c x]]                                           (8), (9)
    v_0 = 0                                                                                     (10)

Differences from the paper:

- The reference point of a link is its joint, in the axes of the link: X_i maps a twist from link
i-1
  to link i, X_i^T maps a wrench back. In the paper all twists refer to the origin of the world; a
  long chain then loses digits (1e-9 at 100 links of 1 m), and inertias must be rotated. Here s_i
  and I_i are constants of the link, and (8) is not needed.
- Centres of mass, joints and axes may be anywhere, not only on a local x-axis, and joints may
slide.
- (2) prints L_i, the distance to the next joint, but means the distance to this one; (6) prints z_i
  but means the axis in the world, R_{i-1} z_i; (8) prints one R without its index.

A joint is the exponential of its screw; for unit axes this is a sum of three constant matrices,

    X_i = exp(-q ad(s)) X_i(0) = A + a B + b C,
     a = sin q, b = 1 - cos q; prismatic a = q, C = 0                                          (*)

and so is the 4 x 4 matrix H_i of the frame. `Chain` computes the constants once; recomputing them
in every evaluation would take two thirds of its time.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import ArrayLike

from nsdyn._types import AnyArray, Numbers
from nsdyn.errors import ProblemError

EARTH = (0.0, 0.0, -9.81)
# (a x b)_i = EPSILON_ijk a_j b_k
EPSILON = np.cross(np.eye(3)[:, None, :], np.eye(3)[None, :, :]).transpose(2, 0, 1)
# (a x)_ik = SKEW_ikj a_j
SKEW = EPSILON.transpose(0, 2, 1)
# For twists, (u; w) x (a; b) = (w x a + u x b; w x b), ad(v)_ik = CROSS_ikj v_j
CROSS = np.zeros((6, 6, 6))
CROSS[:3, :3, 3:] = CROSS[:3, 3:, :3] = CROSS[3:, 3:, 3:] = SKEW


FEW_LINKS = 64  # constants of so many are computed without compiling anything


class Chain(eqx.Module):
    """The bodies and joints of a chain, stored as the constants of the recursions. All are traced
    arrays, so a sweep compiles only once.

    All arguments except `gravity` are arrays with one entry per link.

    axis, place, turn: the axis (z), the point (l) and the rotation (E, default: none) that place a
        joint in the frame of the previous link, as in a URDF file.
    mass, com, inertia: mass, centre of mass (c) and inertia about it (I^C), in the link's own
        frame.
    slides: 1 for a prismatic joint, 0 for a revolute one (the default).
    rotor: the inertia of the drive as seen from the joint, which adds to the diagonal of the mass
        matrix; default: none.
    gravity: the acceleration of gravity, a vector in the world.

    To vary one of these, build the chain inside the function that is mapped or differentiated.
    """

    s: Float[Array, "*batch n 6"]
    slides: Float[Array, "*batch n"]
    X: Float[Array, "*batch n 3 6 6"]  # A, B, C of (*)
    H: Float[Array, "*batch n 3 4 4"]
    inertia: Float[Array, "*batch n 6 6"]
    rotor: Float[Array, "*batch n"]
    gravity: Float[Array, "*batch 3"]

    def __init__(
        self,
        axis: Numbers,
        place: Numbers,
        mass: Numbers,
        com: Numbers,
        inertia: Numbers,
        slides: Numbers | None = None,
        turn: Numbers | None = None,
        rotor: Numbers | None = None,
        gravity: Numbers = EARTH,
    ) -> None:
        axis = _array("axis", axis, None, 3)
        n = axis.shape[0]
        slides = _array("slides", np.zeros(n) if slides is None else slides, n)
        _check_joints(axis, slides)
        turn = _array(
            "turn", np.broadcast_to(np.eye(3), (n, 3, 3)) if turn is None else turn, n, 3, 3
        )
        bodies = (
            _array("mass", mass, n),
            _array("com", com, n, 3),
            _array("inertia", inertia, n, 3, 3),
        )
        self.slides = jnp.asarray(slides)
        joints = (axis, slides, _array("place", place, n, 3), turn)
        self.s, self.X, self.H = _each_link(joint_constants, *joints)
        (self.inertia,) = _each_link(_inertia, *bodies)
        self.rotor = jnp.asarray(_array("rotor", np.zeros(n) if rotor is None else rotor, n))
        self.gravity = jnp.asarray(_array("gravity", gravity, 3))

    @property
    def n(self) -> int:
        return self.s.shape[-2]

    @property
    def mass(self) -> Float[Array, "*batch n"]:
        return self.inertia[..., 0, 0]

    @property
    def moment(self) -> Float[Array, "*batch n 3"]:
        """m c, the first moment of each link."""
        return jnp.stack(
            [self.inertia[..., 5, 1], self.inertia[..., 3, 2], self.inertia[..., 4, 0]], axis=-1
        )


def _array(name: str, value: Any, *shape: int | None) -> Any:
    """The argument as an array: of numpy, for which nothing is compiled, unless it is traced."""
    traced = any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(value))
    array = jnp.asarray(value, float) if traced else np.asarray(value, float)
    wanted = tuple(array.shape[0] if size is None and array.ndim else size for size in shape)
    if array.shape != wanted or 0 in wanted:
        sizes = ", ".join("links" if size is None else str(size) for size in shape)
        raise ProblemError(
            f"Chain({name}=...): expected an array of shape ({sizes}), found {array.shape}"
        )
    return array


def _check_joints(axis: AnyArray, slides: AnyArray) -> None:
    if isinstance(axis, jax.core.Tracer) or isinstance(slides, jax.core.Tracer):
        return
    for i, (length, kind) in enumerate(
        zip(np.linalg.norm(axis, axis=1), np.asarray(slides), strict=True)
    ):
        if not length > 0:
            raise ProblemError(
                f"Chain(axis=...): expected a nonzero axis for joint {i}, found length {length:g}"
            )
        if kind not in (0.0, 1.0):
            raise ProblemError(
                f"Chain(slides=...): expected 0 (turns) or 1 (slides) for joint {i}, found {kind:g}"
            )


# `xp` is numpy or jax.numpy.


def skew(a: Float[Any, " 3"], xp: Any = jnp) -> Float[Any, "3 3"]:
    """The matrix a x."""
    return xp.matmul(SKEW, a)


def shift(r: Float[Any, " 3"], xp: Any = jnp) -> Float[Any, "6 6"]:
    """The matrix that maps the twist of a body about the origin to its twist about r; its transpose
    maps wrenches back."""
    return xp.block([[np.eye(3), -skew(r, xp)], [np.zeros((3, 3)), np.eye(3)]])


def spatial_inertia(
    mass: Any, com: Float[Any, " 3"], inertia: Float[Any, "3 3"], xp: Any = jnp
) -> Float[Any, "6 6"]:
    """I_i about the joint, in the link's axes."""
    o = np.zeros((3, 3))
    own = xp.block([[mass * np.eye(3), o], [o, inertia]])
    return shift(com, xp).T @ own @ shift(com, xp)  # (9)


def _inertia(mass: Any, com: Any, inertia: Any, xp: Any = jnp) -> tuple[Any]:
    return (spatial_inertia(mass, com, inertia, xp),)


def joint_constants(
    axis: Float[Any, " 3"],
    slides: Any,
    place: Float[Any, " 3"],
    turn: Float[Any, "3 3"],
    xp: Any = jnp,
) -> tuple[Float[Any, " 6"], Float[Any, "3 6 6"], Float[Any, "3 4 4"]]:
    """s_i and the constants of (*) for X_i (3, 6, 6) and for the frame (3, 4, 4)."""
    unit = axis / xp.sqrt(xp.sum(axis * axis))
    s = xp.concatenate([slides * unit, (1.0 - slides) * unit])  # (6)
    ad = CROSS @ s
    fixed = xp.kron(np.eye(2), turn.T) @ shift(place, xp)
    X = xp.stack([fixed, -ad @ fixed, ad @ ad @ fixed])
    below = np.eye(4)[3:]
    frame = xp.block([[turn, place[:, None]], [below]])
    screw = xp.block([[skew(s[3:], xp), s[:3, None]], [0.0 * below]])
    return s, X, xp.stack([frame, frame @ screw, frame @ screw @ screw])


def _each_link(constants: Callable, *arguments: Any) -> tuple[Array, ...]:
    """What constants(...) finds for each link, stacked: by numpy for a few links, compiled for
    many, since operations of JAX that run one by one would take a second for every new N."""
    numbers = all(isinstance(x, np.ndarray) for x in arguments)
    if numbers and len(arguments[0]) <= FEW_LINKS:
        found = [constants(*link, np) for link in zip(*arguments, strict=True)]
        return tuple(jnp.asarray(np.stack(x)) for x in zip(*found, strict=True))
    return jax.jit(jax.vmap(constants))(*arguments)


def turned(chain: Chain, q: Float[Array, " n"]) -> tuple[Float[Array, " n"], Float[Array, " n"]]:
    """a and b of (*) for every joint."""
    return jnp.where(chain.slides > 0.5, q, jnp.sin(q)), 1.0 - jnp.cos(q)


def _exponential(
    chain: Chain, constants: Float[Array, "n 3 d d"], q: Float[Array, " n"]
) -> Float[Array, "n d d"]:
    """(*)"""
    a, b = (x[:, None, None] for x in turned(chain, q))
    return constants[:, 0] + a * constants[:, 1] + b * constants[:, 2]


def joint(
    H: Float[Array, "3 4 4"], a: Float[Array, ""], b: Float[Array, ""]
) -> tuple[Float[Array, "3 3"], Float[Array, " 3"]]:
    """The rotation and the place of a link frame relative to the previous one: (*) for H_i, without
    its last row. Taken apart, no array of zeros and ones has to be multiplied."""
    R = H[0, :3, :3] + a * H[1, :3, :3] + b * H[2, :3, :3]
    return R, H[0, :3, 3] + a * H[1, :3, 3] + b * H[2, :3, 3]


class Links(NamedTuple):
    """The data of the recursions, stacked over the links: X_i, s_i, I_i and the inertia of the
    rotor."""

    X: Float[Array, "n 6 6"]
    s: Float[Array, "n 6"]
    inertia: Float[Array, "n 6 6"]
    rotor: Float[Array, " n"]


def links(chain: Chain, q: Float[Array, " n"]) -> Links:
    return Links(_exponential(chain, chain.X, q), chain.s, chain.inertia, chain.rotor)


def frames(chain: Chain, q: Float[Array, " n"]) -> Float[Array, "n 4 4"]:
    """H_i = [[R, r], [0, 1]]: the frame of each link relative to the previous one."""
    return _exponential(chain, chain.H, q)


def poses(chain: Chain, q: Float[Array, " n"]) -> tuple[Float[Array, "n 3 3"], Float[Array, "n 3"]]:
    """R_i (n, 3, 3) and r_i (n, 3) in the world."""

    def outwards(pose: Float[Array, "4 4"], frame: Float[Array, "4 4"]) -> tuple[Array, Array]:
        pose = pose @ frame  # (1), (2)
        return pose, pose

    found = jax.lax.scan(outwards, jnp.eye(4), frames(chain, q))[1]  # (4), (5)
    return found[:, :3, :3], found[:, :3, 3]


def centres(chain: Chain, q: Float[Array, " n"]) -> Float[Array, "n 3"]:
    """r_i^C (n, 3) in the world."""
    R, r = poses(chain, q)
    return r + jnp.einsum("nij,nj->ni", R, chain.moment / chain.mass[:, None])  # (3)


def tip(chain: Chain, q: Float[Array, " n"], point: ArrayLike) -> Float[Array, " 3"]:
    """The position in the world of a point of the last link, by a recursion from the tip inwards,
    which transforms only this point."""
    start = jnp.concatenate([jnp.asarray(point, float), jnp.ones(1)])
    inwards = lambda x, frame: (frame @ x, None)
    end, _ = jax.lax.scan(inwards, start, frames(chain, q), reverse=True)
    return end[:3]


def at_tip(chain: Chain, q: Float[Array, " n"], direction: ArrayLike) -> Float[Array, " 3"]:
    """A direction given in the world, in the axes of the last link."""
    rotations = frames(chain, q)[:, :3, :3]
    return jax.lax.scan(lambda x, R: (R.T @ x, None), jnp.asarray(direction, float), rotations)[0]


def twists(parts: Links, v: Float[Array, " n"]) -> Float[Array, "n 6"]:
    """v_i of every link, about its joint and in its axes."""

    def outwards(twist: Float[Array, " 6"], link: tuple[Array, ...]) -> tuple[Array, Array]:
        X, s, rate = link
        twist = X @ twist + s * rate  # (7)
        return twist, twist

    return jax.lax.scan(outwards, jnp.zeros(6), (parts.X, parts.s, v))[1]  # (10)
