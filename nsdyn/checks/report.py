"""What a check found, line by line, and warnings that point to the user's own line."""

from typing import NamedTuple


class Line(NamedTuple):
    """What was looked at, what was found, and the verdict: "ok", "note" (it could not be verified,
    for the reason given) or "warning"."""

    what: str
    found: str
    verdict: str


class Report:
    """What was verified, line by line; print it. What is wrong is raised, so `ok` tells whether
    there were warnings."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.lines: list[Line] = []

    def add(self, what: str, found: str, verdict: str = "ok") -> None:
        self.lines.append(Line(what, found, verdict))

    def has(self, what: str) -> bool:
        """Whether there is a line about this already: a cyclic motion comes by again and again."""
        return any(line.what == what for line in self.lines)

    @property
    def ok(self) -> bool:
        return all(line.verdict != "warning" for line in self.lines)

    def __str__(self) -> str:
        wide = max((len(line.what) for line in self.lines), default=0)
        lines = [f"  {x.verdict:<8}{x.what:<{wide}}  {x.found}" for x in self.lines]
        return "\n".join([self.title, *lines])

    __repr__ = __str__
