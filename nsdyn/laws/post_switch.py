"""The impulse acts along the gradients of the constraints after the switch (Patil and Bruls, E = 1):

    M (v+ - v-) + G+^T Lam = U,    G+ v+ = -g_t+                                               (1)

The velocity component that the new constraints forbid is annihilated; kinetic energy is lost, never gained (without U).
"""

from nsdyn import linalg
from nsdyn.law import AbstractLaw, Jump, Switch


class PostSwitchGradient(AbstractLaw):
    def decide(self, switch: Switch) -> Jump:
        residual = linalg.matvec(switch.G, switch.v) + switch.gt
        step, Lam = linalg.masked_kkt(switch.solve, switch.G, switch.live, switch.U, -residual, refinements=1)  # (1)
        return Jump(switch.v + step, Lam, switch.G)
