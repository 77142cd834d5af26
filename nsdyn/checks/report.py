"""The report of a check, one line per property."""

from typing import NamedTuple


class Line(NamedTuple):
    """The property checked, the finding, and the verdict: "ok", "note" (not verified, for the
    reason given) or "warning"."""

    what: str
    found: str
    verdict: str


class Report:
    """The properties that were verified; print it. Errors are raised, so `ok` is False only if
    there are warnings."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.lines: list[Line] = []

    def add(self, what: str, found: str, verdict: str = "ok") -> None:
        self.lines.append(Line(what, found, verdict))

    def has(self, what: str) -> bool:
        """Whether there is already a line about this; a periodic motion repeats its events."""
        return any(line.what == what for line in self.lines)

    @property
    def ok(self) -> bool:
        return all(line.verdict != "warning" for line in self.lines)

    def __str__(self) -> str:
        wide = max((len(line.what) for line in self.lines), default=0)
        lines = [f"  {x.verdict:<8}{x.what:<{wide}}  {x.found}" for x in self.lines]
        return "\n".join([self.title, *lines])

    __repr__ = __str__
