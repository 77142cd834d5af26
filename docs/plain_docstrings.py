"""Docstrings of nsdyn are plain text; this turns them into the markup that Sphinx reads.

A paragraph is one of three: indented lines (formulas, examples), a list of settings `name: what it
means` whose further lines are indented, or text.
"""

import itertools
import re
from typing import Any

SETTING = re.compile(r"^([A-Za-z_]\w*(?:, [A-Za-z_]\w*)*): (.*)")
CODE = re.compile(r"(`[^`]*`)")


def marked_up(lines: list[str]) -> list[str]:
    """The lines of a docstring, as reStructuredText."""
    result: list[str] = []
    for blank, paragraph in itertools.groupby(lines, key=lambda line: not line.strip()):
        if not blank:
            result += [*_paragraph(list(paragraph)), ""]
    return result


def _paragraph(lines: list[str]) -> list[str]:
    if all(line.startswith("    ") for line in lines):
        return ["::", "", *lines]
    if SETTING.match(lines[0]):
        return _settings(lines)
    return [_escaped(line.strip()) for line in lines]


def _settings(lines: list[str]) -> list[str]:
    items: list[str] = []
    for line in lines:
        found = SETTING.match(line)
        if found and not line.startswith(" "):
            items.append(f"* **{found[1]}**: {_escaped(found[2])}")
        else:
            items.append(f"  {_escaped(line.strip())}")
    return items


def _escaped(text: str) -> str:
    """Signs that would be markup stand for themselves, but for those in `code`."""
    parts = CODE.split(text)
    parts[::2] = [re.sub(r"([|*_\\])", r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [f"`{part}`" for part in parts[1::2]]
    return "".join(parts)


def _process(sphinx: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    lines[:] = marked_up(list(lines))


def setup(sphinx: Any) -> dict[str, bool]:
    sphinx.connect("autodoc-process-docstring", _process)
    return {"parallel_read_safe": True}
