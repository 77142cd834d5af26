"""Removal of constraint drift by projection in the mass metric.

Positions, by Newton's method with the matrix frozen at the first point (drift is small, so each
iteration reduces the error by a factor of its size):

    min (dq)^T M (dq)/2  subject to  g(q + dq) = 0:
    M dx + G^T mu = 0,  G dx = -g(q),  dq = rate(q, dx)                                        (1)

where rate maps a velocity to q' (the identity unless there are quasi-velocities). Velocities, at
the new position:

    M dv + G^T mu = 0,  G (v + dv) + psi_0 = 0                                                 (2)

Contacts that are closed along a motion are among these rows (`nsdyn.mechanics.closed_contacts`).
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from nsdyn._jitted import traced_once
from nsdyn._types import Params
from nsdyn.mechanics import contact_rows as contacts
from nsdyn.mechanics.closed_contacts import ClosedContacts
from nsdyn.mechanics.model import Model, Point
from nsdyn.mechanics.saddle_point import SaddlePoint
from nsdyn.numerics import kkt

ITERATIONS = 2


@traced_once
def project(model: Model, point: Point, p: Params) -> Point:
    """The nearest point that satisfies the live rows at position and velocity level."""
    moved = project_position(model, point, p)
    return moved.replace(v=project_velocity(model, moved, p)[0])


@traced_once
def project_position(model: Model, point: Point, p: Params) -> Point:
    """The nearest point that satisfies the live rows at position level."""
    closed = ClosedContacts(model, point, p) if contacts.have_modes(model) else None
    if closed is None and not any(part.positional for part in model.parts):
        return point
    here = SaddlePoint(model, point, p) if closed is None else closed.here
    moved = point
    for _ in range(ITERATIONS):
        dx = here.smallest_motion_of_positions(-model.rows(moved, p))  # (1)
        if closed is not None:
            dx = closed.position_step(dx, contacts.gaps(model, moved, p))
        moved = moved.replace(q=moved.q + model.system.rate(point.q, dx, p))
    return moved


@traced_once
def project_velocity(
    model: Model, point: Point, p: Params
) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
    """The nearest velocity in the mass metric that satisfies psi = 0, and the impulse that leads to
    it."""
    if contacts.have_modes(model):
        return ClosedContacts(model, point, p).velocity_step()
    solve = model.system.solver(point.q, p)
    still = jnp.zeros_like(point.v)
    system = (solve, model.jacobian(point, p), model.live(point, p), still, -model.psi(point, p))
    step, impulse = kkt.masked_kkt(*system, definite=model.rows_independent)  # (2)
    return point.v + step, impulse
