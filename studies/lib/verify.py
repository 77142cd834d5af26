"""Whether archived data are what the code computes: a sample of them, computed again."""

import random
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from nsdyn.studies.lib import archive


class Verdict(NamedTuple):
    """What was found out about the data of a name."""

    study: str
    name: str
    text: str
    ok: bool


def verified(study: ModuleType, title: str, folder: Path) -> list[Verdict]:
    """Compute one of the data of a study again, chosen at random, and compare; also tell of data
    that other code or settings have made."""
    names = sorted(archive.read_index(folder / "data")["names"])
    if not names:
        return [Verdict(title, "", f"nothing is archived in {folder}", False)]
    with archive.verifying([random.choice(names)]) as found:
        study.compute(folder)
    return [Verdict(title, *row) for row in found.found]
