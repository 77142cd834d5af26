"""The impulse acts along gradients between those before and after the mode change (Patil and
Bruls):

    M (v+ - v-) + G_E^T Lam = U,    G+ v+ = -g_t+                                              (1)

G_E lies at position E on the geodesic from the row space of G- (E = 0) to that of G+ (E = 1); see
`nsdyn.laws.grassmann`. In the mass metric, and with constraints that do not depend on time, the
velocity in each principal plane, of angle th, is multiplied by

    cos(E th) / cos((1 - E) th)                                                                (2)

so that E = 1/2 preserves kinetic energy, E > 1/2 dissipates and E < 1/2 produces it
(docs/energy_theorem.md). In the Euclidean metric none of this holds in general, and the units of
the coordinates matter.

In the mass metric the rows D of G_E are such that G+ M^-1 D^T = G+ M^-1 G+^T: Lam is that of
`PostSwitchGradient` for every E.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from nsdyn._types import AnyArray, Code, Solve
from nsdyn.errors import ProblemError
from nsdyn.laws import grassmann
from nsdyn.laws.base import AbstractLaw, Jump, ModeChange
from nsdyn.numerics import small
from nsdyn.numerics.rank import DEPENDENT
from nsdyn.status import MESSAGES, Status

METRICS = ("mass", "euclidean")


class IntermediateGradient(AbstractLaw):
    """The impulse acts along gradients between those of the old and of the new constraints, on the
    shortest path from one row space to the other.

    position: E, from 0 (the old gradients) to 1 (the new ones, as in `PostSwitchGradient`). In the
        mass metric E = 1/2 preserves kinetic energy, E > 1/2 dissipates it and E < 1/2 produces it.
    metric: "mass" (the default) measures angles between gradients in the mass metric; the result
        does not depend on the choice of coordinates. "euclidean" measures them in the coordinates
        as they are: the statements about energy then do not hold in general, and units matter.
    allow_energy_gain: must be True for E < 1/2.

    Old and new constraints must have the same rank (RANK_CHANGES otherwise) and no principal angle
    of 90 degrees between them (CUT_LOCUS).
    """

    position: Any = eqx.field(converter=lambda x: jnp.asarray(x, float))
    metric: Literal["mass", "euclidean"] = eqx.field(static=True, default="mass")
    allow_energy_gain: bool = eqx.field(static=True, default=False)

    def __check_init__(self) -> None:
        _check_metric(self)
        if isinstance(self.position, jax.core.Tracer):
            return
        codes = _refusal(np.asarray(self.position), self.allow_energy_gain, np)
        if np.any(codes != Status.OK):
            found = np.asarray(self.position).tolist()
            raise ProblemError(
                f"IntermediateGradient(position={found}): {MESSAGES[Status(np.max(codes))]}"
            )

    @property
    def needs_equal_rank(self) -> bool:
        """Not with the new gradients, E = 1."""
        known = not isinstance(self.position, jax.core.Tracer)
        return known and bool(np.all(np.asarray(self.position) != 1.0))

    def decide(self, change: ModeChange) -> Jump:
        return _along(change, self.metric, grassmann.between(self.position))

    def failure_code(self, change: ModeChange) -> Code:
        refusal = _refusal(self.position, self.allow_energy_gain, jnp)
        undefined = jnp.where(self.position == 1.0, Status.OK, _undefined(change, self.metric))
        return jnp.where(refusal != Status.OK, refusal, undefined)


class GrassmannMidGradient(AbstractLaw):
    """`IntermediateGradient(1/2)`, which preserves kinetic energy, by simpler formulas.

    metric: "mass" (the default) or "euclidean": how angles between the old and the new gradients
        are measured. Energy is preserved in the mass metric; see `IntermediateGradient`.
    """

    metric: Literal["mass", "euclidean"] = eqx.field(static=True, default="mass")

    def __check_init__(self) -> None:
        _check_metric(self)

    @property
    def needs_equal_rank(self) -> bool:
        return True

    def decide(self, change: ModeChange) -> Jump:
        return _along(change, self.metric, grassmann.midway)

    def failure_code(self, change: ModeChange) -> Code:
        return _undefined(change, self.metric)


def _check_metric(law: "IntermediateGradient | GrassmannMidGradient") -> None:
    if law.metric not in METRICS:
        raise ProblemError(
            f"{type(law).__name__}(metric=...): expected one of {METRICS}, found {law.metric!r}"
        )


def _refusal(E: AnyArray, allow_energy_gain: bool, xp: ModuleType) -> AnyArray:
    """The status of a position that the law does not accept; `xp` is numpy, or jax.numpy for traced
    positions."""
    gains = (E < 0.5) & (not allow_energy_gain)
    inside = (E >= 0) & (E <= 1)
    return xp.where(inside, xp.where(gains, Status.ENERGY_GAIN, Status.OK), Status.BAD_POSITION)


def _metric(change: ModeChange, metric: str) -> Solve:
    return change.solve if metric == "mass" else lambda b: b


def _stacked(change: ModeChange) -> Float[Array, "2 r n"]:
    """G- and G+, padded to the same number of rows, at least one."""
    rows = max(len(change.G_before), len(change.G_after), 1)
    return jnp.stack(
        [jnp.pad(G, ((0, rows - len(G)), (0, 0))) for G in (change.G_before, change.G_after)]
    )


def _independent(change: ModeChange, metric: str, G: Float[Array, "2 r n"]) -> Bool[Array, "2 r"]:
    """Independent rows of G- and of G+ that span them, in the mass metric; in another metric only
    those that are independent in it too."""
    each = lambda solve, G: jnp.stack([small.spanning(rows @ solve(rows.T)) for rows in G])
    found = each(change.solve, G)
    if metric == "mass":
        return found
    return each(_metric(change, metric), jnp.where(found[:, :, None], G, 0.0))


def _undefined(change: ModeChange, metric: str) -> Code:
    """The status of a mode change for which no gradients between old and new are defined. If the
    rows after are contained in those before, none are needed."""
    G = _stacked(change)
    frame = grassmann.frame(_metric(change, metric), G, _independent(change, metric, G))
    contained = jnp.max(frame.sines) <= DEPENDENT
    changes = (frame.ranks[0] != frame.ranks[1]) & ~contained
    cut = jnp.where(jnp.min(frame.cosines) < grassmann.CUT, Status.CUT_LOCUS, Status.OK)
    return jnp.where(changes, Status.RANK_CHANGES, cut)


def _along(change: ModeChange, metric: str, T: Callable) -> Jump:
    """(1) for combinations H+ = P G+ of the rows, orthonormal up to round-off; if x are their
    impulses, Lam = P^T x."""
    G = _stacked(change)
    found = grassmann.pair(_metric(change, metric), G, _independent(change, metric, G))
    F = grassmann.geodesic(found, T)
    H = found.after
    P = found.frame.P[1, :, : len(change.G_after)]
    turned = F @ found.H
    if metric == "mass":  # the products of D = H+ + turned with H+ are those of H+: the identity
        Y = found.dual_after + found.dual @ F.T
        inverse = lambda b: b
    else:
        Y = change.solve((H + turned).T)
        missing = jnp.diag(jnp.where(found.frame.missing[1], 1.0, 0.0))
        constant = jnp.linalg.inv(jax.lax.stop_gradient(H @ Y + missing))
        inverse = lambda b: constant @ b
    v = change.v_before + change.solve(change.U)
    x = jnp.zeros(len(H))
    for _ in range(1 + grassmann.ORDERS):  # first the values, then round-off and derivatives
        more = inverse(H @ v + P @ change.gt_after)
        v = v - Y @ more  # (1)
        x = x + more
    return Jump(v, P.T @ x, change.G_after + found.coordinates(change.G_after) @ turned)
