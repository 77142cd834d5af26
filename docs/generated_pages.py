"""Pages of the documentation that are written from the code (commands, statuses, problems), from
the tables in docs/library, and from the archive that `make figures` makes in figures/ or, where
that is missing, from docs/previews (gallery, papers).

A page is generated when the build begins, and only if its text has changed, so that a second build
is quick.
"""

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import previews
from PIL import Image
from typer.testing import CliRunner

import nsdyn
from nsdyn import problems, studies
from nsdyn._files import read_json
from nsdyn.cli.commands import app as commands
from nsdyn.status import MESSAGES
from nsdyn.studies.lib import study_tables
from nsdyn.studies.lib.report.collect import Study
from nsdyn.studies.lib.report.collect import studies as archived_in
from nsdyn.studies.lib.tables import Table

HERE = Path(__file__).resolve().parent
LIBRARY = HERE / "library"
FIGURES = HERE.parent / "figures"
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
        "# Statuses",
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


# Studies that compute what a paper prints or draws, and what is to be compared there.
PAPERS = {
    "joint_locking": "A. Müller, section 6: figures 1 to 4 are drawn again.",
    "robot_locking": "A. Müller, section 7: figures 6 to 9, with surrogate parameters.",
    "two_links": "J. Alexiou: closed forms of the impact beside the recursion and the dense law.",
    "pantograph": "J. M. Font-Llagunes and J. Kövecses: tables 2 and 3 beside computed values.",
    "switching_track": "I. Patil and O. Brüls: which scheme rings and which drifts at a corner.",
    "pothole": "I. Patil and O. Brüls: the wheel over a pothole; impulses of the laws.",
    "walking": "McGeer, Goswami et al., Garcia et al.: gaits and their multipliers.",
    "woodpecker": "R. I. Leine, Ch. Glocker and D. H. van Campen: the period of the limit cycle.",
}


def archived() -> dict[str, Study]:
    """The studies in figures/, and the previews of the others."""
    found = archived_in(previews.FOLDER)
    if FIGURES.is_dir() and any(FIGURES.glob("*/captions.txt")):
        found += archived_in(FIGURES)
    newest = {study.name: study for study in found}
    return {name: newest[name] for name in studies.names() if name in newest}


def shown_of(study: Study) -> str:
    """The command that makes what is shown, and where that is from if it was not made here."""
    command = f"`nsdyn figures {study.name}`"
    if not study.figures[0].is_relative_to(previews.FOLDER):
        return command
    told = read_json(previews.FOLDER / previews.ORIGIN)[study.name]
    return f"{command} (shown: a small copy of {told['date'][:10]}, {told['version']})"


def gallery_page() -> str:
    """All figures of the archive, small, with their captions."""
    parts = [
        "# Gallery",
        "All figures of `make figures`, which computes and draws them; `nsdyn redraw` draws them "
        "again, [for a journal](../howto/journal.md) for example.",
    ]
    for name, study in archived().items():
        parts += [f"## {name}", studies.summary(name), shown_of(study)]
        parts += [picture(name, x) for x in study.figures]
        parts.append(as_page(study.captions))
    return "\n\n".join(parts)


def picture(study: str, figure: Path) -> str:
    """A small copy of a figure, as wide on the page as it is in print."""
    path = preview(study, figure)
    with Image.open(HERE / path) as image:
        share = min(100, round(100 * image.width / previews.WIDTH))
    options = [f":alt: {study}, {figure.stem}", f":width: {share}%"]
    return "\n".join([f"```{{image}} ../{path}", *options, "```"])


def preview(study: str, figure: Path) -> str:
    """Where the small copy of a figure is; one of `figures/` is made beside the page."""
    if figure.is_relative_to(previews.FOLDER):
        return figure.relative_to(HERE).as_posix()
    source = figure.with_suffix(".png") if figure.with_suffix(".png").exists() else figure
    target = HERE / "reference" / "gallery" / f"{study}-{source.stem}.png"
    target.parent.mkdir(exist_ok=True)
    if not target.exists() or target.stat().st_mtime < source.stat().st_mtime:
        previews.shrink(source, target)
    return target.relative_to(HERE).as_posix()


def paper_page() -> str:
    """What papers print, beside what nsdyn computes."""
    parts = ["# Papers reproduced", "Printed values beside computed ones, and where they differ."]
    found = archived()
    for name, source in PAPERS.items():
        study = found[name]
        parts += [f"## {name}", f"{source} {studies.summary(name)}", shown_of(study)]
        parts += [x.read_text("utf-8") for x in sorted(study.folder.glob("*.md"))]
        parts += [as_page(x) for x in study.texts.values()]
        parts += [picture(name, x) for x in study.figures]
        parts.append(as_page(study.captions))
    closing = "End states of test sets, closed forms and references: [classics](../classics.md)."
    return "\n\n".join([*parts, closing])


def library_page() -> str:
    """The tables of the study of everything, one for each problem, from docs/library."""
    parts = ["# The library, problem by problem"]
    parts.append("What [the study of everything](../library.md) found.")
    if not (LIBRARY / study_tables.PAIRS).is_file():
        return "\n\n".join([*parts, "Nothing is there: run `nsdyn study studies/library.toml`."])
    told = read_json(LIBRARY / study_tables.ORIGIN)
    parts.append(study_tables.provenance_text(told))
    with (LIBRARY / study_tables.PAIRS).open(newline="", encoding="utf-8") as file:
        head, *rows = csv.reader(file)
    for problem in dict.fromkeys(row[0] for row in rows):
        own = [row for row in rows if row[0] == problem]
        reasons = dict.fromkeys(row[-1] for row in own if row[-1])
        numbers = {reason: f" ({k})" for k, reason in enumerate(reasons, 1)}
        lines = [(*row[1:-2], row[-2] + numbers.get(row[-1], "")) for row in own]
        notes = [f"({k}) {as_line(reason)}" for k, reason in enumerate(reasons, 1)]
        notes += [x for x in told["notes"] if x.startswith("Reference of") and f"{problem}," in x]
        table = Table(f"## {problem}", tuple(head[1:-1]), lines, notes, names=2)
        parts.append(table.markdown())
    return "\n\n".join(parts)


def as_line(text: str) -> str:
    return f"`{text}`" if "`" not in text else text


def as_page(text: str) -> str:
    """A text file as paragraphs; what is laid out as a table stays so."""
    parts = []
    for part in re.split(r"\n\s*\n|\n(?=Figure \d)", text.strip()):
        is_table = re.search(r"^-{3}", part, re.MULTILINE)
        parts.append(f"```text\n{part}\n```" if is_table else escaped(part))
    return "\n\n".join(parts)


def escaped(text: str) -> str:
    """Plain text for Markdown."""
    return re.sub(r"([*_`|<>$\[\]\\^~#])", r"\\\1", " ".join(text.split()))


PAGES: dict[str, Callable[[], str]] = {
    "library": library_page,
    "gallery": gallery_page,
    "papers": paper_page,
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
