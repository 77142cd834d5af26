"""Every command that a page mentions, run or not, is one that the command line accepts."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from nsdyn import problems, studies
from nsdyn.cli.commands import app
from nsdyn.studies.lib import written

ROOT = Path(__file__).resolve().parents[1]
MADE = (ROOT / ".gitignore").read_text("utf-8").split()  # pages that are written from the code
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(x for x in sorted((ROOT / "docs").rglob("*.md")) if f"/{x.relative_to(ROOT)}" not in MADE),
]
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MENTIONED = re.compile(r"`(nsdyn [a-z][^`]*)`")
LANGUAGES = {"python", "sh", "toml", "text", "{eval-rst}", "{toctree}", "{include}"}
NAMES = ("integrator", "law", "problem", "study")


def commands():
    """(page, line, whether it is only mentioned) for the lines of blocks, and for what the text
    mentions; what is cut short there with dots or with capitals for a name is left out."""
    for page in PAGES:
        text = page.read_text("utf-8")
        lines = [x for _, body in FENCE.findall(text) for x in body.splitlines()]
        mentioned = MENTIONED.findall(" ".join(FENCE.sub("", text).split()))
        yield from ((page.name, x, False) for x in lines if x.startswith("nsdyn "))
        whole = (x for x in mentioned if "..." not in x and not re.search(r" [A-Z]+\b", x))
        yield from ((page.name, x, True) for x in whole)


def given(line, mentioned):
    """The arguments of a command; an error if it has another name or others. One that is only
    mentioned may lack some."""
    name, *rest = shlex.split(line, comments=True)[1:]
    command = get_command(app).get_command(None, name)
    assert command is not None, f"no command {name}"
    known = {x for parameter in command.params for x in parameter.opts} | {"--help"}
    assert {x.partition("=")[0] for x in rest if x.startswith("--")} <= known
    return command.make_context(name, rest, resilient_parsing=mentioned).params


def texts(value):
    """What is given for an argument, once or more often, but for what is in a file."""
    several = [value] if isinstance(value, str) else value or ()
    return [x for x in several if "." not in x.partition("(")[0]]


ALL = sorted(set(commands()))


@pytest.mark.parametrize(("page", "line", "mentioned"), ALL, ids=[f"{x}: {y}" for x, y, _ in ALL])
def test_it_is_accepted(page, line, mentioned):
    arguments = given(line, mentioned)
    found = {name: texts(arguments.get(name)) for name in NAMES}
    for text in found["integrator"]:
        written.integrator(text)
    for text in found["law"]:
        written.law(text)
    assert set(found["problem"]) <= set(problems.names())
    if not line.startswith("nsdyn redraw"):  # which takes folders, too
        assert set(found["study"]) <= set(studies.names())


def test_there_are_many():
    assert len([x for x in ALL if not x[-1]]) > 40


def test_every_block_has_a_language():
    for page in PAGES:
        for label, _ in FENCE.findall(page.read_text("utf-8")):
            assert label.split(" ")[0] in LANGUAGES, f"{page}: {label!r}"
