"""Bodies and joints: chains and trees of rigid bodies, their O(N) dynamics, impulses, and closures
between bodies.

`Bodies` builds a mechanism by names; `Tree` and `tree_system` take arrays.

May import: numerics, mechanics, constraints, problem.
"""

from nsdyn.multibody.bodies import Bodies, about
from nsdyn.multibody.closures import (
    Connect,
    Couple,
    Follow,
    Offset,
    PointWithin,
    PoseDifference,
    RelativePose,
    Weld,
)
from nsdyn.multibody.tree import Tree, frame
from nsdyn.multibody.tree_dynamics import tree_system, world_momentum

__all__ = [
    "Bodies",
    "Connect",
    "Couple",
    "Follow",
    "Offset",
    "PointWithin",
    "PoseDifference",
    "RelativePose",
    "Tree",
    "Weld",
    "about",
    "frame",
    "tree_system",
    "world_momentum",
]
