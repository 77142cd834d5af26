"""Integrators, one method per file."""

from nsdyn.integrators.event_driven import EventDriven
from nsdyn.integrators.rk4 import RK4

__all__ = ["RK4", "EventDriven"]
