"""The integrators that the studies of switching constraints compare, with the same name and style
in all figures and tables.

All have the same spectral radius rho_inf, the same Newton tolerance, and in one study the same
step.
"""

from pathlib import Path
from typing import Any, Literal, NamedTuple

from nsdyn.integrators import NSGA, RK4, EventDriven, GeneralizedAlpha, MoreauJean
from nsdyn.numerics.newton import Newton
from nsdyn.studies.lib import archive, style

RHO_INF = 0.8  # ours: not given on the slides
NEWTON = float(Newton().tolerance)  # the same for all schemes


class Scheme(NamedTuple):
    integrator: Any
    label: str
    colour: str
    dash: Any
    marker: str

    @property
    def line(self) -> dict[str, Any]:
        """The style of its curve."""
        return {"color": self.colour, "linestyle": self.dash, "label": self.label}


def _alpha(index: Literal[1, 2, 3]) -> GeneralizedAlpha:
    return GeneralizedAlpha(index=index, rho_inf=RHO_INF)


def _nsga(variant: Literal["three-level", "velocity", "decoupled"]) -> NSGA:
    return NSGA(rho_inf=RHO_INF, variant=variant)


_SOLID, _DASHED, _DASH_DOT, _DOTTED = style.DASHES[:4]

# Colours distinguish families, line styles and markers their members.
SCHEMES = {
    "index_3": Scheme(_alpha(3), r"index-3 G-$\alpha$", style.ORANGE, _DASHED, "s"),
    "index_2": Scheme(_alpha(2), r"index-2 G-$\alpha$", style.GREEN, _DASH_DOT, "^"),
    "index_1": Scheme(_alpha(1), r"index-1 G-$\alpha$", style.PINK, _DOTTED, "D"),
    "nsga": Scheme(_nsga("three-level"), "NSGA three-level", style.BLUE, _SOLID, "o"),
    "nsga_velocity": Scheme(_nsga("velocity"), "NSGA velocity", style.BLUE, _DASHED, "v"),
    "nsga_decoupled": Scheme(_nsga("decoupled"), "NSGA decoupled", style.BLUE, _DOTTED, "P"),
    "moreau_jean": Scheme(MoreauJean(projection=False), "Moreau-Jean", style.AMBER, _DASHED, "<"),
    "moreau_jean_projected": Scheme(
        MoreauJean(), "Moreau-Jean, projected", style.AMBER, _SOLID, ">"
    ),
    "event_rk4": Scheme(EventDriven(RK4()), "event-driven RK4", "black", _SOLID, "o"),
    "event_index_2": Scheme(
        EventDriven(_alpha(2)), r"event-driven index-2 G-$\alpha$", "black", _DASH_DOT, "^"
    ),
    "event_index_3": Scheme(
        EventDriven(_alpha(3)), r"event-driven index-3 G-$\alpha$", "black", _DASHED, "s"
    ),
}


def plain(name: str) -> str:
    """The label of a scheme without formulas, for text files."""
    return SCHEMES[name].label.replace(r"G-$\alpha$", "G-alpha")


def write(path: Path, content: str) -> Path:
    """Write a text file atomically."""
    return archive.replace(path, lambda part: part.write_text(content, "utf-8"))
