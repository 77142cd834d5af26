"""Impulse laws: what decides the velocities after a switch."""

from nsdyn.law import AbstractLaw, Jump, Switch
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
    "MuellerTransition",
    "NonIdeal",
    "PostSwitchGradient",
    "Restitution",
    "Switch",
    "ZeroVelocity",
]
