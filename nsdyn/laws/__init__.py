"""Impulse laws, one per file: what decides the velocity after a mode change.

May import: numerics.
"""

from nsdyn.laws.base import AbstractLaw, Jump, ModeChange, message, reason
from nsdyn.laws.fremond import Fremond
from nsdyn.laws.generalized_newton import GeneralizedNewton
from nsdyn.laws.impact import AbstractImpactLaw, AbstractShiftedLaw, Collision, Impact, Pressed
from nsdyn.laws.intermediate import GrassmannMidGradient, IntermediateGradient
from nsdyn.laws.mueller import MuellerTransition
from nsdyn.laws.newton import Newton, impact_law
from nsdyn.laws.non_ideal import NonIdeal
from nsdyn.laws.poisson import Poisson
from nsdyn.laws.post_switch import PostSwitchGradient
from nsdyn.laws.restitution import Restitution
from nsdyn.laws.sequential import Sequential
from nsdyn.laws.zero_velocity import ZeroVelocity

__all__ = [
    "AbstractImpactLaw",
    "AbstractLaw",
    "AbstractShiftedLaw",
    "Collision",
    "Fremond",
    "GeneralizedNewton",
    "GrassmannMidGradient",
    "Impact",
    "IntermediateGradient",
    "Jump",
    "ModeChange",
    "MuellerTransition",
    "Newton",
    "NonIdeal",
    "Poisson",
    "PostSwitchGradient",
    "Pressed",
    "Restitution",
    "Sequential",
    "ZeroVelocity",
    "impact_law",
    "message",
    "reason",
]
