"""`Contact`: one-sided constraints gap(q, t, p) >= 0 that close, rest and open. Mode 0 is open, 1
is closed, one per gap.

open:    falls through gap = 0  ->  closed, with the impact law                            (1)
impact:  gap rate after the law above the rest speed  ->  open again (it bounced)           (2)
         otherwise closed, and the rate is made zero
closed:  M v' + G^T lam = f, so -lam is the pressing force; falls through -lam = 0  ->  open (3)
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from nsdyn import _expect as expect
from nsdyn._jitted import compiled_quickly
from nsdyn._signature import label, require_function
from nsdyn._types import (
    Abstract,
    Configuration,
    GuardMask,
    Guards,
    Held,
    Mode,
    Params,
    RowMask,
    Rows,
    Time,
    Velocity,
)
from nsdyn.constraints.base import AbstractConstraint, AbstractReport, Scale, Start
from nsdyn.errors import ProblemError


class Contact(AbstractConstraint):
    """One-sided distances that close with the impact law of the run, rest, and open again.

    gap: gap(q, t, p) -> scalar or (m,): distances, positive if open. Each has its own mode, 0
        (open) or 1 (closed).
    rest_speed: a contact that leaves an impact with a gap rate of at most this speed stays closed.
        None (the default) derives it from the motion: the fraction `Tolerances.rest` of the speed
        that the forces would take away within one step, so that a hop shorter than a fifth of a
        step is no longer resolved.

    Velocities after impacts come from the law of the run: Restitution(e), or a plastic law. A
    closed contact opens when its force would have to pull.
    """

    rows_argument: ClassVar[str] = "(gap=...)"
    guards_argument: ClassVar[str] = "(gap=...)"
    holds_at_start: ClassVar[bool] = False  # closed and at rest within tolerances

    gap: Callable = eqx.field(static=True)
    rest_speed: Any

    def __init__(self, gap: Callable, rest_speed: Any = None) -> None:
        require_function("Contact", "gap", gap, 3, "gap(q, t, p) -> (m,)")
        self.gap = gap
        self.rest_speed = None if rest_speed is None else jnp.asarray(rest_speed, float)
        known = rest_speed is not None and not isinstance(self.rest_speed, jax.core.Tracer)
        if known and not self.rest_speed >= 0:
            raise ProblemError(
                f"Contact(rest_speed=...): expected a number >= 0, found {rest_speed!r}"
            )

    @property
    def mode_depends_on_impact(self) -> bool:
        return True

    @property
    def rank_always_changes(self) -> bool:
        """A gap that closes at some rate is independent of those that are closed at rest."""
        return True

    def start(
        self, q: Configuration, qdot: Configuration, t: Time, p: Params, scale: Scale
    ) -> Mode:
        gap = lambda q, t: jnp.ravel(self.gap(q, t, p))
        g, dg = jax.jvp(gap, (q, t), (qdot, jnp.ones_like(t)))
        slopes = jax.jacrev if q.shape[0] > g.shape[0] else jax.jacfwd  # a chain has few contacts
        slope = jax.lax.stop_gradient(slopes(gap)(q, t))
        touches = jnp.abs(g) <= scale.near_zero(slope, q)
        closed = touches & (jnp.abs(dg) <= self._rest_speed(scale.at_rest(slope)))
        return self._shaped(closed.astype(int))

    def _shaped(self, mode: Array) -> Mode:
        return mode[0] if mode.shape == (1,) else mode

    def rows(self, q: Configuration, t: Time, p: Params, mode: Mode, held: Held) -> Rows:
        return jnp.ravel(self.gap(q, t, p))

    def live(self, q: Configuration, t: Time, p: Params, mode: Mode) -> RowMask | None:
        return jnp.ravel(mode) == 1

    def guards(
        self, q: Configuration, v: Velocity, lam: Rows, t: Time, p: Params, mode: Mode, held: Held
    ) -> Guards:
        return jnp.where(jnp.ravel(mode) == 1, -lam, jnp.ravel(self.gap(q, t, p)))

    def after(
        self,
        fired: GuardMask,
        q: Configuration,
        qdot: Configuration,
        v: Velocity,
        t: Time,
        p: Params,
        mode: Mode,
        scale: Scale,
    ) -> Mode:
        flat = jnp.ravel(mode)
        return self._shaped(jnp.where(fired, 1 - flat, flat))  # (1), (3)

    def persists(
        self, q: Configuration, t: Time, p: Params, mode_before: Mode, mode_after: Mode
    ) -> RowMask | None:
        return (jnp.ravel(mode_before) == 1) & (jnp.ravel(mode_after) == 1)

    def _rest_speed(self, from_motion: Array) -> Array:
        return from_motion if self.rest_speed is None else self.rest_speed

    def mode_after_impact(self, rate: Rows, rest_speed: Rows, mode: Mode) -> Mode:
        bounced = (jnp.ravel(mode) == 1) & (rate > self._rest_speed(rest_speed))
        return self._shaped(jnp.where(bounced, 0, jnp.ravel(mode)))  # (2)

    def check_shapes(
        self, q: Configuration, qdot: Abstract, v: Velocity, t: Time, p: Params
    ) -> None:
        expect.vector("Contact(gap=...)", self.gap, q, t, p)

    def check_start(self, report: AbstractReport, start: Start) -> None:
        """No gap may be negative. (A contact whose force pulls at the start opens at once.)"""
        gap, slope = map(np.asarray, _gap_and_slope(self, start.q, start.t, start.p))
        name = label(self.gap)
        expect.finite("Contact(gap=...)", gap, " at q0")
        for i in np.flatnonzero(gap < -np.asarray(start.scale.near_zero(slope, start.q))):
            raise ProblemError(
                f"Contact(gap={name}): expected gaps >= 0 at q0, found {name}[{i}] = {gap[i]:.6g}: "
                f"the start penetrates by {-gap[i]:.6g}. Move q0 out by that much"
            )
        if gap.size:
            least = int(np.argmin(gap))
            report.add("gaps open or closed", f"smallest {name}[{least}] = {gap[least]:.3g}")

    def modes_to_search(self, mode: np.ndarray) -> list:
        return []  # a gap is its own constraint: the contact can close anywhere on gap = 0

    @property
    def title(self) -> str:
        return label(self.gap)

    def guard_name(self, i: int) -> str:
        return f"{label(self.gap)}[{i}]"


@compiled_quickly
def _gap_and_slope(part: Contact, q: Configuration, t: Time, p: Params) -> tuple[Array, Array]:
    gap = lambda q: jnp.ravel(part.gap(q, t, p))
    return gap(q), jax.jacfwd(gap)(q)
