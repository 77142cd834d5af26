"""Errors and warnings that users can meet. Each message names the argument, what was expected, what
was found, and how to fix it."""

import difflib
import sys
import warnings
from collections.abc import Iterable
from types import FrameType
from typing import Any

PASSED_THROUGH = ("nsdyn", "equinox", "jax")  # packages between the user's line and a warning


class NsdynError(Exception):
    """Base of all errors raised by nsdyn."""


class ProblemError(NsdynError, ValueError):
    """A problem, an argument or a setting that cannot be simulated as it stands."""


class SimulationError(NsdynError, RuntimeError):
    """A run that stopped early. `status`, `t` and `mode` say why, when and in which mode; `partial`
    holds the samples up to then."""

    def __init__(
        self,
        message: str,
        *,
        status: Any = None,
        t: float | None = None,
        mode: Any = None,
        partial: Any = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.t = t
        self.mode = mode
        self.partial = partial


class FileError(NsdynError, ValueError):
    """A file that is missing, damaged, or not in the expected format."""


class SingularTransitionWarning(UserWarning):
    """The rank of the constraints drops at an event: the impulse law does not determine what
    follows."""


class CoarseStepWarning(UserWarning):
    """The steps are too long to follow the motion."""


class FullTableWarning(UserWarning):
    """The table of events had no room for some impacts of contacts; the motion is not affected."""


class LeftOutWarning(UserWarning):
    """A file says more than is used of it."""


class LostRunsWarning(UserWarning):
    """Runs of a sweep that killed one worker after the other, and were given up."""


class PerformanceWarning(UserWarning):
    """Something works, but much more slowly than it could."""


class RedundancyWarning(UserWarning):
    """Dependent but consistent constraint rows: the motion is unique, the multipliers are not."""


def unknown(what: str, name: str, known: Iterable[str]) -> ProblemError:
    """The error for an unknown name: its message suggests the nearest known name and lists all of
    them."""
    known = list(known)
    by_lower = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower().replace("-", "_"), by_lower, n=1, cutoff=0.5)
    hint = f"did you mean {by_lower[close[0]]!r}? There" if close else "there"
    return ProblemError(f"{what} {name!r} is not known; {hint} are: {', '.join(known)}")


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line that called into nsdyn, however deep inside we are."""
    level = 1
    frame = sys._getframe(0)
    while frame.f_back is not None and _package(frame) in PASSED_THROUGH:
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


def _package(frame: FrameType) -> str:
    return frame.f_globals.get("__name__", "").split(".")[0]
