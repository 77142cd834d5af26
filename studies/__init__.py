"""Studies, one per file: `compute` archives data, `draw` makes figures from them, `run` does both.

studies.names(), studies.summary(name), studies.get(name). Shared code is in `studies.lib`;
`studies.compare` and `studies.gaits` are tools for your own studies.
"""

import importlib
from types import ModuleType

from nsdyn.errors import unknown

STUDIES = (
    "braiding",
    "contact_films",
    "convergence",
    "energy_theorem",
    "friction_orders",
    "impact_laws",
    "joint_locking",
    "palm",
    "pantograph",
    "pothole",
    "robot_locking",
    "stopping_distance",
    "switching_track",
    "two_links",
    "walking",
    "woodpecker",
)


def names() -> list[str]:
    """All studies, sorted, without importing them."""
    return sorted(STUDIES)


def get(name: str) -> ModuleType:
    """The study `name`: a module with compute(folder, ...), draw(folder) and run(folder, ...)."""
    if name not in STUDIES:
        raise unknown("study", name, STUDIES)
    return importlib.import_module(f"{__name__}.{name}")


def summary(name: str) -> str:
    """The first paragraph of the study's docstring."""
    return (get(name).__doc__ or "").partition("\n\n")[0].replace("\n", " ")
