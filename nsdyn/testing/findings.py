"""What a suite has found: lines of a report, and the error that ends it."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from nsdyn.checks.report import Report
from nsdyn.errors import NsdynError


class ConformanceError(NsdynError, AssertionError):
    """A property that a problem, an integrator or a law must have, and has not."""


class Findings(Report):
    """The properties that were verified, with numbers; print it. What fails is raised."""

    def at_most(self, what: str, found: Any, bound: float) -> None:
        """The largest of these numbers must not exceed the bound; NaN does."""
        largest = float(np.max(np.abs(found), initial=0.0))
        self.require(what, largest <= bound, f"{largest:.3g}", f"at most {bound:.3g}")

    def at_least(self, what: str, found: Any, bound: float) -> None:
        """The smallest of these numbers must reach the bound."""
        smallest = float(np.min(found))
        self.require(what, smallest >= bound, f"{smallest:.4g}", f"at least {bound:.4g}")

    def require(self, what: str, holds: bool, found: str, expected: str) -> None:
        """Add a line, or raise."""
        if not holds:
            raise ConformanceError(f"{self.title}: {what}: expected {expected}, found {found}")
        self.add(what, f"{found} ({expected})")

    def skip(self, what: str, reason: str) -> None:
        """Say what was not verified, and why."""
        self.add(what, reason, "note")

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Errors of nsdyn, in a run say, are findings too."""
        try:
            yield
        except ConformanceError:
            raise
        except NsdynError as error:
            raise ConformanceError(f"{self.title}: {what}: {error}") from error


def relative(a: Any, b: Any) -> float:
    """The largest difference of two arrays in units of the second's largest entry."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    size = np.max(np.abs(b), initial=0.0)
    return float(np.max(np.abs(a - b), initial=0.0) / (size if size > 0 else 1.0))
