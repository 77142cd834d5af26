"""Balls and tops as solid bodies, seen from far away: outlines, filled, and what of their marks is
on the side that one sees.

A body is a list of `Part`s, each with its outline and its lines in the picture, and the depth that
tells which part hides which.
"""

from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Polygon
from numpy.typing import ArrayLike
from scipy.spatial import ConvexHull

from nsdyn.multibody import outlines
from nsdyn.problems.tippe_top import A1, A2, R1, R2
from nsdyn.studies.lib import style
from nsdyn.studies.lib.sliding_top import rotation

CUT = np.deg2rad(38)  # from the upper pole of the big sphere: there the stem begins (for drawing)
SEEN = 49  # points of a circle
BODY, STEM = "#A6D3EE", style.ORANGE
EDGE = "0.15"


class View:
    """A parallel projection: from a direction in the ground plane, raised by an angle [rad]."""

    def __init__(self, turned: float, raised: float) -> None:
        c, s = np.cos(turned), np.sin(turned)
        self.towards = np.array([c * np.cos(raised), s * np.cos(raised), np.sin(raised)])
        self.across = np.array([-s, c, 0.0])
        self.up = np.cross(self.towards, self.across)

    def __call__(self, points: ArrayLike) -> np.ndarray:
        """Points in space, in the picture."""
        return np.asarray(points) @ np.stack([self.across, self.up], axis=1)

    def depth(self, points: ArrayLike) -> np.ndarray:
        """Larger is nearer."""
        return np.asarray(points) @ self.towards


class Part(NamedTuple):
    outline: np.ndarray
    lines: list[np.ndarray]
    colour: str
    depth: float


def draw(ax: Axes, parts: list[Part], zorder: float = 2.0) -> list:
    """Draw the parts, the farthest first; returns what was drawn."""
    drawn: list = []
    for part in sorted(parts, key=lambda part: part.depth):
        zorder += 1e-3
        look: dict[str, Any] = {"facecolor": part.colour, "edgecolor": EDGE, "linewidth": 0.8}
        drawn.append(ax.add_patch(Polygon(part.outline, zorder=zorder, **look)))
        for line in part.lines:
            drawn += ax.plot(*line.T, color=EDGE, linestyle="-", linewidth=0.6, zorder=zorder)
    return drawn


def ball(q: ArrayLike, radius: float, view: View, colour: str) -> Part:
    """A ball with great circles, from its place and its quaternion."""
    q = np.asarray(q)
    turned = [radius * line @ rotation(q[3:]).T for line in outlines.ball()]
    lines = [line for x in turned for line in _near_side(q[:3] + x, x, view)]
    ring = radius * outlines.ring(SEEN)[:, :2]
    return Part(view(q[:3]) + ring, lines, colour, float(view.depth(q[:3])))


def top(q: ArrayLike, view: View) -> list[Part]:
    """The tippe top: the big sphere, cut off where the stem begins, and the stem."""
    q = np.asarray(q)
    R = rotation(q[3:])
    placed = lambda points: q[:3] + points @ R.T
    rim = R1 * np.cos(CUT)
    sphere = placed(_turned(np.linspace(CUT, np.pi, 25), R1, A1))
    stem = _turned(np.linspace(0, np.pi / 2, 13), R2, A2)
    foot = R2 * outlines.ring(SEEN) + np.array([0, 0, A1 + rim])
    marks = [(placed(x), normal @ R.T) for normal, x in _marks()]
    lines = [line for x, normal in marks for line in _near_side(x, normal, view)]
    # The stem stands on a plane face, behind which nothing of it is.
    above = float(view.depth(R[:, 2]))
    return [
        Part(_hull(view(sphere)), lines, BODY, 0.0),
        Part(_hull(view(placed(np.concatenate([stem, foot])))), [], STEM, above),
    ]


def _marks() -> list[tuple[np.ndarray, np.ndarray]]:
    """Lines on the big sphere, and their normals: circles of latitude, the rim of the cut (seen
    from where its face is seen), and one meridian."""
    found = []
    for angle in np.deg2rad([70.0, 110.0, 145.0]):
        circle = np.sin(angle) * outlines.ring(SEEN) + np.array([0, 0, np.cos(angle)])
        found.append((circle, R1 * circle + np.array([0, 0, A1])))
    angle = np.linspace(CUT, np.pi, 25)
    meridian = np.stack([np.sin(angle), 0 * angle, np.cos(angle)], axis=1)
    found.append((meridian, R1 * meridian + np.array([0, 0, A1])))
    rim = np.sin(CUT) * outlines.ring(SEEN) + np.array([0, 0, np.cos(CUT)])
    up = np.tile([0.0, 0.0, 1.0], (SEEN, 1))
    return [*found, (up, R1 * rim + np.array([0, 0, A1]))]


def _turned(angle: np.ndarray, radius: float, height: float) -> np.ndarray:
    """Points of a ball, at these angles from its upper pole."""
    circles = [np.sin(x) * outlines.ring(SEEN) + np.array([0, 0, np.cos(x)]) for x in angle]
    return radius * np.concatenate(circles) + np.array([0, 0, height])


def _near_side(points: np.ndarray, normals: np.ndarray, view: View) -> list[np.ndarray]:
    """The pieces of a line whose normals look at us, in the picture."""
    seen = np.flatnonzero(view.depth(normals) > 0)
    pieces = np.split(seen, np.flatnonzero(np.diff(seen) > 1) + 1)
    return [view(points[piece]) for piece in pieces if len(piece) > 1]


def _hull(points: np.ndarray) -> np.ndarray:
    return points[ConvexHull(points).vertices]
