"""Locking as it is often done, wrongly: the forbidden rates are set to zero and the others are kept
(Mueller, section 6, "without momentum consistent switching"). For comparison only.

    v+ = v* - G+^T (G+ G+^T)^-1 (G+ v* + g_t+),     v* = v- + M^-1 U                           (1)

For a locked coordinate this sets its own rate to zero and nothing else. The momenta of the other
coordinates jump; the impulse that this would need, M (v+ - v-) + D^T Lam = U, acts along D = G+ M
and not along the constraints.
"""

import jax.numpy as jnp

from nsdyn.laws.base import AbstractLaw, Jump, ModeChange
from nsdyn.numerics import kkt, small


class ZeroVelocity(AbstractLaw):
    """Sets the forbidden rates to zero and ignores momentum. Wrong, and meant for comparison only.

    A locked coordinate loses its rate, and all other rates stay. A general row loses its rate by
    the shortest change of v in the Euclidean metric of the coordinates, not in the mass metric, so
    the result depends on the choice and the units of the coordinates. Kinetic energy may grow. It
    has no settings.
    """

    def decide(self, change: ModeChange) -> Jump:
        pushed = change.v_before + change.solve(change.U)
        residual = change.rates(pushed)
        identity = lambda b: b
        step, Lam = kkt.masked_kkt(
            identity,
            change.G_after,
            kkt.spanning_rows(identity, change.G_after, change.live_after),
            jnp.zeros_like(change.v_before),
            -residual,
            refinements=2,
        )  # (1)
        return Jump(pushed + step, Lam, small.matmul(change.G_after, change.M))
