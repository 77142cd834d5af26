"""The impulse acts along the gradients of the constraints after the mode change (Patil and Bruls,
E = 1):

    M (v+ - v-) + G+^T Lam = U,    G+ v+ = -g_t+                                               (1)

The velocity component that the new constraints forbid is annihilated; kinetic energy is lost, never
gained (without U).
"""

from nsdyn.laws.base import AbstractLaw, Jump, ModeChange


class PostSwitchGradient(AbstractLaw):
    """The ideal, plastic law: the impulse acts along the gradients of the new constraints and
    removes exactly the velocity that they forbid.

    Of all velocities that the new constraints allow, v+ is the nearest to v- in the mass metric.
    Kinetic energy is lost, never gained (without an applied impulse). It has no settings. A good
    first choice for locks, captures and plastic impacts; `MuellerTransition("lagrange")` solves the
    same equations.
    """

    def decide(self, change: ModeChange) -> Jump:
        return change.jump_by(-change.rates(change.v_before))  # (1)
