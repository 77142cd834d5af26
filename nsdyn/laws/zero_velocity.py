"""Locking as it is often and wrongly done: the forbidden rates are set to zero and the others kept
(Mueller, section 6, "without momentum consistent switching"). For comparison only.

    v+ = v- - G+^T (G+ G+^T)^-1 (G+ v- + g_t+)                                                 (1)

For a locked coordinate this sets exactly its own rate to zero. The momenta of the other coordinates
jump; the impulse this would take, M (v+ - v-) + D^T Lam = 0, does not act along the constraints but
along D = G+ M.
"""

import jax.numpy as jnp

from nsdyn.laws.base import AbstractLaw, Jump, ModeChange
from nsdyn.numerics import kkt, small


class ZeroVelocity(AbstractLaw):
    def decide(self, change: ModeChange) -> Jump:
        residual = change.rates(change.v_before)
        identity = lambda b: b
        step, Lam = kkt.masked_kkt(
            identity,
            change.G_after,
            kkt.spanning_rows(identity, change.G_after, change.live_after),
            jnp.zeros_like(change.v_before),
            -residual,
            refinements=2,
        )  # (1)
        return Jump(
            change.v_before + step + change.solve(change.U),
            Lam,
            small.matmul(change.G_after, change.M),
        )
