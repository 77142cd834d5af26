"""Integrators, one method per file."""

from nsdyn.integrators.event_driven import EventDriven
from nsdyn.integrators.generalized_alpha import GeneralizedAlpha
from nsdyn.integrators.moreau_jean import MoreauJean
from nsdyn.integrators.nsga import NSGA
from nsdyn.integrators.rk4 import RK4

__all__ = ["NSGA", "RK4", "EventDriven", "GeneralizedAlpha", "MoreauJean"]
