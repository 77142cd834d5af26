"""Impulse laws, one per file: what decides the velocity after a mode change.

May import: numerics.
"""

from nsdyn.laws.base import AbstractLaw, Jump, ModeChange, message, reason
from nsdyn.laws.intermediate import GrassmannMidGradient, IntermediateGradient
from nsdyn.laws.mueller import MuellerTransition
from nsdyn.laws.non_ideal import NonIdeal
from nsdyn.laws.post_switch import PostSwitchGradient
from nsdyn.laws.restitution import Restitution
from nsdyn.laws.zero_velocity import ZeroVelocity

__all__ = [
    "AbstractLaw",
    "GrassmannMidGradient",
    "IntermediateGradient",
    "Jump",
    "ModeChange",
    "MuellerTransition",
    "NonIdeal",
    "PostSwitchGradient",
    "Restitution",
    "ZeroVelocity",
    "message",
    "reason",
]
