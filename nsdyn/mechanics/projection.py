"""Removal of constraint drift by projection in the mass metric.

Positions, by Newton with the matrix frozen at the first point (drift is small, so this converges by
a factor of its size):

    min (dq)^T M (dq)/2  subject to  g(q + dq) = 0:
    M dx + G^T mu = 0,  G dx = -g(q),  dq = rate(q, dx)                                        (1)

where rate maps a velocity to q' (the identity unless there are quasi-velocities). Velocities, at
the new position:

    M dv + G^T mu = 0,  G (v + dv) + psi_0 = 0                                                   (2)
"""

import equinox as eqx

from nsdyn.mechanics.model import Model, Point, project_velocity
from nsdyn.mechanics.saddle_point import SaddlePoint

ITERATIONS = 2


def project(model: Model, point: Point, p) -> Point:
    """The nearest point that satisfies the live rows at position and velocity level."""
    moved = project_position(model, point, p, ITERATIONS)
    return eqx.tree_at(lambda x: x.v, moved, project_velocity(model, moved, p)[0])  # (2)


def project_position(model: Model, point: Point, p, iterations: int) -> Point:
    if not any(part.positional for part in model.parts):
        return point
    reach, q = SaddlePoint(model, point, p).smallest_motion_of_positions, point.q
    for _ in range(iterations):
        dx = reach(-model.rows(q, point.t, p, point.mode, point.held))  # (1)
        q = q + model.system.rate(point.q, dx, p)
    return eqx.tree_at(lambda x: x.q, point, q)
