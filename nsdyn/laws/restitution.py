"""Newton's restitution, bilateral:

    M (v+ - v-) + G+^T Lam = U,    G v+ + g_t = -e (G v- + g_t) on new rows, = 0 on persistent ones    (1)

whatever the sign of the approach; one-sidedness belongs to `Contact`. e = 0 is `PostSwitchGradient`.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp

from nsdyn import linalg
from nsdyn.law import AbstractLaw, Jump, Switch


class Restitution(AbstractLaw):
    e: Any = eqx.field(converter=lambda x: jnp.asarray(x, float))

    @property
    def closes(self):
        return False

    def decide(self, switch: Switch) -> Jump:
        approach = linalg.matvec(switch.G, switch.v) + switch.gt
        change = -(1.0 + jnp.where(switch.kept, 0.0, self.e)) * approach
        step, Lam = linalg.masked_kkt(switch.solve, switch.G, switch.live, switch.U, change, refinements=1)  # (1)
        return Jump(switch.v + step, Lam, switch.G)
