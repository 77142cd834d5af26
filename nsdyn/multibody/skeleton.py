"""Chains and trees as stick figures, and the names of their coordinates."""

from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn._types import Configuration, Params
from nsdyn.multibody.chain import poses, tip
from nsdyn.multibody.tree import WORLD, Tree, frames

PARTS = {
    "hinge": ("",),
    "slide": ("",),
    "planar": (".x", ".y", ".angle"),
    "ball": (".w", ".i", ".j", ".k"),
    "free": (".x", ".y", ".z", ".w", ".i", ".j", ".k"),
}
TURNING = ("hinge", "ball")  # joints whose point stays where it is in the parent
UNITS = {"hinge": "rad", "slide": "m", ".x": "m", ".y": "m", ".z": "m", ".angle": "rad"}


def chain_shape(q: Configuration, p: Params) -> tuple[Float[Array, "points 3"]]:
    """Joints and tip of p["chain"] as one line."""
    joints = poses(p["chain"], q)[1]
    return (jnp.concatenate([joints, tip(p["chain"], q, p["tip"])[None]]),)


def chain_coordinates(names: Sequence[str], slides: Sequence[float] = ()) -> tuple[str, ...]:
    """Names of joints with their units; `slides` is not zero for those that slide."""
    sliding = list(slides) or [0.0] * len(names)
    return tuple(
        f"{_plain(name)} [{'m' if slide else 'rad'}]"
        for name, slide in zip(names, sliding, strict=True)
    )


def tree_coordinates(tree: Tree) -> tuple[str, ...]:
    """Names of all coordinates: those of the bodies, and of the parts of their motion."""
    found = []
    for name, kind in zip(tree.names, tree.kinds, strict=True):
        for part in PARTS[kind]:
            unit = UNITS.get(part or kind)
            found.append(f"{_plain(name)}{part}" + (f" [{unit}]" if unit else ""))
    return tuple(found)


def _plain(name: str) -> str:
    """A name without the brackets that stand for units."""
    return name.replace("[", "(").replace("]", ")")


class TreeShape(eqx.Module):
    """A tree drawn body by body: from its joint to the joints of its children and to the points at
    which it is held; one that has neither, to its centre of mass. The frame, or the trunk that
    stands still, is drawn from its middle to all points of the world at which something is held.

    held: (body, closure, side) for each frame in params["closures"] that belongs to a body.
    planar: whether only x and y are drawn.
    """

    held: tuple[tuple[int, str, str], ...] = eqx.field(static=True, default=())
    planar: bool = eqx.field(static=True, default=False)

    def __call__(self, q: Configuration, p: Params) -> tuple[Float[Array, "points d"], ...]:
        tree = p["tree"]
        pose = _poses(tree, q)
        place = pose[:, :3, 3]
        ends: dict[int, list[Array]] = {i: [] for i in range(len(tree.parents))}
        for i, parent in enumerate(tree.parents):
            if parent != WORLD:
                ends[parent].append(place[i])
        for body, name, side in self.held:
            if body != WORLD:
                ends[body].append((pose[body] @ p["closures"][name][side])[:3, 3])
        fixed = self._fixed(tree, place, p)
        com = tree.moment / jnp.where(tree.mass > 0, tree.mass, 1.0)[:, None]
        lines = []
        for i, reached in ends.items():
            middle = place[i] + pose[i, :3, :3] @ com[i]
            lines += [jnp.stack([place[i], end]) for end in reached or [middle]]
        if len(fixed) > 1:
            lines += [jnp.stack([sum(fixed) / len(fixed), point]) for point in fixed]
        return tuple(line[:, : 2 if self.planar else 3] for line in lines)

    def _fixed(self, tree: Tree, place: Array, p: Params) -> list[Array]:
        """The points of the world about which bodies turn, and at which closures hold them."""
        joints = enumerate(zip(tree.parents, tree.kinds, strict=True))
        turning = [i for i, (parent, kind) in joints if parent == WORLD and kind in TURNING]
        held = [p["closures"][name][side][:3, 3] for i, name, side in self.held if i == WORLD]
        return [*(place[i] for i in turning), *held]


def _poses(tree: Tree, q: Configuration) -> Float[Array, "N 4 4"]:
    """The frames of all bodies in the world, each by that of its parent, which comes first."""
    N = len(tree.parents)
    parents = np.array([N if parent == WORLD else parent for parent in tree.parents])
    world = jnp.broadcast_to(jnp.eye(4), (N + 1, 4, 4))

    def outwards(pose: Array, link: tuple[Array, ...]) -> tuple[Array, None]:
        i, parent, H = link
        return pose.at[i].set(pose[parent] @ H), None

    return jax.lax.scan(outwards, world, (jnp.arange(N), jnp.asarray(parents), frames(tree, q)))[0][
        :N
    ]
