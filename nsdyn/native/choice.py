"""Which backend is wanted: the environment variable NSDYN_BACKEND says `auto` (native where the
machine has a compiler and every operation is known, else XLA), `native` or `xla`."""

import os

from nsdyn.errors import ProblemError

SETTING = "NSDYN_BACKEND"
CHOICES = ("auto", "native", "xla")
DEFAULT = "auto"


def choice() -> str:
    """The setting, checked."""
    found = os.environ.get(SETTING) or DEFAULT
    if found not in CHOICES:
        raise ProblemError(f"{SETTING}: expected one of {', '.join(CHOICES)}, found {found!r}")
    return found
