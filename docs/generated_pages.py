"""Pages of the documentation that are written from the code: commands, statuses, problems.

A page is generated when the build begins, and only if its text has changed, so that a second build
is quick.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

import nsdyn
from nsdyn import problems
from nsdyn.cli.commands import app as commands
from nsdyn.status import MESSAGES

PLAIN = {"COLUMNS": "100", "TERMINAL_WIDTH": "100", "NO_COLOR": "1", "TERM": "dumb"}
NOTE = "<!-- Written by docs/generated_pages.py when the site is built; do not edit. -->"


def command_page() -> str:
    """The help of every command, as the terminal shows it."""
    parts = ["# Command line", "What `nsdyn COMMAND --help` prints."]
    for command in sorted(commands.registered_commands, key=name_of):
        name = name_of(command)
        asked = [name, "--help"]
        shown = CliRunner().invoke(commands, asked, env=PLAIN, prog_name="nsdyn").stdout
        lines = [line.rstrip() for line in shown.strip().splitlines()]
        parts += [f"## nsdyn {name}", "\n".join(["```text", *lines, "```"])]
    return "\n\n".join(parts)


def name_of(command: Any) -> str:
    return command.name or command.callback.__name__.removesuffix("_command").replace("_", "-")


def status_page() -> str:
    """What each status means and what to try."""
    parts = [
        "# When a run stops early",
        "Inside a run nothing raises. `rollout` and `sweep` return a status; `simulate` turns it "
        "into a `SimulationError` with `.status`, `.t`, `.mode` and, in `.partial`, the samples "
        "until then. If a much smaller step gets past that point, it says so.",
    ]
    for status in nsdyn.Status:
        text = MESSAGES[status]
        parts += [f"## `{status.name}`", text[0].upper() + text[1:] + "."]
    return "\n\n".join(parts)


def problem_page() -> str:
    """The problems that come with nsdyn, by their first sentence."""
    rows = ["| problem | what it is |", "|---|---|"]
    for name in problems.names():
        about = (problems.function(name).__doc__ or "").strip().split("\n\n")[0]
        rows.append(f"| `{name}` | {' '.join(about.split())} |")
    text = "# Problems\n\n`nsdyn list --long` adds sizes, references and settings."
    return text + "\n\n" + "\n".join(rows)


PAGES: dict[str, Callable[[], str]] = {
    "commands": command_page,
    "statuses": status_page,
    "problems": problem_page,
}


def write_pages(sphinx: Any) -> None:
    for name, text in PAGES.items():
        path = Path(sphinx.srcdir) / "reference" / f"{name}.md"
        new = f"{NOTE}\n\n{text()}\n"
        if not path.exists() or path.read_text("utf-8") != new:
            path.write_text(new, "utf-8")


def setup(sphinx: Any) -> dict[str, bool]:
    sphinx.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True}
