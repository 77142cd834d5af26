"""Names and units of coordinates: "x [m]", "phi [rad]"."""

import re
from collections.abc import Sequence
from typing import Any

from nsdyn.errors import ProblemError

FORM = re.compile(r"\s*(?P<name>[^\[\]]*[^\[\]\s])\s*(?:\[(?P<unit>[^\[\]]*)\])?\s*")


def checked(given: Any, count: int) -> tuple[str, ...]:
    """The names, one for each coordinate; () if there are none."""
    if given is None or given == ():  # as in a problem that has no names
        return ()
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ProblemError(
            'Problem(coordinates=...): expected names such as ("x [m]", "phi [rad]"), found '
            f"{given!r}"
        )
    for text in given:
        if not isinstance(text, str) or not FORM.fullmatch(text):
            raise ProblemError(
                f'Problem(coordinates=...): expected names such as "x [m]" or "x", found {text!r}'
            )
    names = tuple(given)
    if len(names) != count:
        raise ProblemError(
            f"Problem(coordinates=...): expected {count} names, one for each entry of q0, found "
            f"{len(names)}: {', '.join(names)}"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ProblemError(
            f"Problem(coordinates=...): expected different names, found {twice[0]!r} twice"
        )
    return names


def name_of(text: str) -> str:
    """ "x" of "x [m]"."""
    return _parts(text)[0]


def unit_of(text: str) -> str:
    """ "m" of "x [m]", and "" of "x"."""
    return _parts(text)[1]


def _parts(text: str) -> tuple[str, str]:
    match = FORM.fullmatch(text)
    return (text, "") if match is None else (match["name"], match["unit"] or "")


def rates(coordinates: Sequence[str]) -> tuple[str, ...]:
    """The names of q': "x' [m/s]" for "x [m]"."""
    return tuple(
        f"{name}'" + (f" [{unit}/s]" if unit else "") for name, unit in map(_parts, coordinates)
    )


def numbered(names: Sequence[str], symbol: str, count: int) -> list[str]:
    """The names, or q[0], q[1], ... where there are none."""
    return list(names) or [f"{symbol}[{i}]" for i in range(count)]
