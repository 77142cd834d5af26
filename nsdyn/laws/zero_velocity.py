"""Locking as it is often and wrongly done: the forbidden rates are set to zero and the others kept (Mueller, section 6,
"without momentum consistent switching"). For comparison only.

    v+ = v- - G+^T (G+ G+^T)^-1 (G+ v- + g_t+)                                                 (1)

For a locked coordinate this sets exactly its own rate to zero. The momenta of the other coordinates jump; the impulse this
would take, M (v+ - v-) + D^T Lam = 0, does not act along the constraints but along D = G+ M.
"""

import jax.numpy as jnp

from nsdyn import linalg
from nsdyn.law import AbstractLaw, Jump, Switch


class ZeroVelocity(AbstractLaw):
    def decide(self, switch: Switch) -> Jump:
        residual = linalg.matvec(switch.G, switch.v) + switch.gt
        identity = lambda b: b
        step, Lam = linalg.masked_kkt(
            identity, switch.G, switch.live, jnp.zeros_like(switch.v), -residual, refinements=1
        )  # (1)
        return Jump(switch.v + step + switch.solve(switch.U), Lam, linalg.matmul(switch.G, switch.M))
