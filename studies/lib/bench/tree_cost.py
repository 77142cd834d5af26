"""The cost of a tree of bodies against their number: forward dynamics, v' from q and v, by the
recursion over parents. Body i hangs on body (i - 1)/2, rounded down, by a hinge, so that all bodies
but the leaves branch; times and slope are those of `chain_cost`."""

import numpy as np

from nsdyn.multibody.tree import Tree
from nsdyn.multibody.tree_dynamics import accelerations
from nsdyn.studies.lib.bench.chain_cost import REPEATS, STEEPEST, slope, timed
from nsdyn.studies.lib.bench.measure import Line, line

SIZES = (16, 32, 64, 128, 256, 512)
LENGTH, MASS, RADIUS = 1.0, 1.0, 0.05


def tree_of(n: int) -> Tree:
    """Rods of equal make; each carries two others, whose axes are square to each other."""
    number = np.arange(n)
    across = (3 * RADIUS**2 + LENGTH**2) / 12
    return Tree(
        parents=[(i - 1) // 2 for i in range(n)],
        kinds=("hinge",) * n,
        place=np.where(number[:, None] > 0, [LENGTH, 0.0, 0.0], 0.0),
        axis=np.where(number[:, None] % 2 > 0, [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]),
        mass=np.full(n, MASS),
        com=np.tile([LENGTH / 2, 0.0, 0.0], (n, 1)),
        inertia=np.tile(MASS * np.diag([RADIUS**2 / 2, across, across]), (n, 1, 1)),
    )


def trees(sizes: tuple[int, ...] = SIZES, repeats: int = REPEATS) -> dict:
    """Forward dynamics of trees that branch."""
    times = [timed(accelerations, tree_of(n), n, repeats) for n in sizes]
    title = "tree that branches, forward dynamics"
    lines: list[Line] = [
        line(f"{title}, {sizes[0]} to {sizes[-1]} bodies: slope", slope(sizes, times), STEEPEST),
        line(f"{title}, {sizes[-1]} bodies [us]", 1e6 * times[-1]),
    ]
    return {"trees": {"lines": lines, "bodies": list(sizes), "forward": times}}
