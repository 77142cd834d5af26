"""The impulse acts along the gradients of the constraints after the switch (Patil and Bruls, E =
1):

    M (v+ - v-) + G+^T Lam = U,    G+ v+ = -g_t+                                               (1)

The velocity component that the new constraints forbid is annihilated; kinetic energy is lost, never
gained (without U).
"""

from nsdyn.laws.base import AbstractLaw, Jump, ModeChange


class PostSwitchGradient(AbstractLaw):
    def decide(self, change: ModeChange) -> Jump:
        return change.jump_by(-change.rates(change.v_before))  # (1)
