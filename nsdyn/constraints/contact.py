"""`Contact`: one-sided constraints gap(q, t, p) >= 0 that close, rest and open. Mode 0 is open, 1
is closed, one per gap.

open:    falls through gap = 0  ->  closed, with the impact law                            (1)
impact:  gap rate after the law above the rest speed  ->  open again (it bounced)           (2)
         otherwise closed, and the rate is made zero
closed:  M v' + G^T lam = f, so -lam is the pressing force; falls through -lam = 0  ->  open (3)
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from nsdyn._signature import label, require_function
from nsdyn.constraints.base import AbstractConstraint
from nsdyn.errors import ProblemError

TOUCHING = 1e-9


class Contact(AbstractConstraint):
    """gap(q, t, p) -> scalar or (m,): distances, positive where open; a contact that leaves an
    impact with a gap rate of at most `rest_speed` stays closed. Velocities at impacts come from the
    law of the run: Restitution(e), or a plastic one."""

    gap: Callable = eqx.field(static=True)
    rest_speed: Any

    def __init__(self, gap, rest_speed=1e-3):
        require_function("Contact", "gap", gap, 3, "gap(q, t, p) -> (m,)")
        self.gap = gap
        self.rest_speed = jnp.asarray(rest_speed, float)
        if not isinstance(self.rest_speed, jax.core.Tracer) and not self.rest_speed >= 0:
            raise ProblemError(
                f"Contact(rest_speed=...): expected a number >= 0, found {rest_speed!r}"
            )

    @property
    def mode_depends_on_impact(self):
        return True

    def start(self, q, qdot, t, p):
        gap = lambda q, t: jnp.ravel(self.gap(q, t, p))
        g, dg = jax.jvp(gap, (q, t), (qdot, jnp.ones_like(t)))
        closed = (jnp.abs(g) <= TOUCHING) & (jnp.abs(dg) <= self.rest_speed)
        return self._shaped(closed.astype(int))

    def _shaped(self, mode):
        return mode[0] if mode.shape == (1,) else mode

    def rows(self, q, t, p, mode, held):
        return jnp.ravel(self.gap(q, t, p))

    def live(self, q, t, p, mode):
        return jnp.ravel(mode) == 1

    def guards(self, q, v, lam, t, p, mode, held):
        return jnp.where(jnp.ravel(mode) == 1, -lam, jnp.ravel(self.gap(q, t, p)))

    def after(self, fired, q, qdot, v, t, p, mode):
        flat = jnp.ravel(mode)
        return self._shaped(jnp.where(fired, 1 - flat, flat))  # (1), (3)

    def mode_after_impact(self, rate, mode_before, mode):
        bounced = (jnp.ravel(mode) == 1) & (rate > self.rest_speed)
        return self._shaped(jnp.where(bounced, 0, jnp.ravel(mode)))  # (2)

    @property
    def title(self):
        return label(self.gap)
