"""Integrators, one scheme per file; shared code is in files whose names begin with an underscore.
`EventDriven`, which drives smooth methods, is defined in nsdyn.stepping."""

from nsdyn.integrators.dormand_prince import DormandPrince
from nsdyn.integrators.generalized_alpha import GeneralizedAlpha
from nsdyn.integrators.moreau_jean import MoreauJean
from nsdyn.integrators.nsga import NSGA
from nsdyn.integrators.radau_iia import RadauIIA
from nsdyn.integrators.rk4 import RK4
from nsdyn.stepping.event_driven import EventDriven

__all__ = [
    "NSGA",
    "RK4",
    "DormandPrince",
    "EventDriven",
    "GeneralizedAlpha",
    "MoreauJean",
    "RadauIIA",
]
