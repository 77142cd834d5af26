"""Small tables of a study to keep beside a text: what was found over all problems, one row for each
pair, and where the numbers come from."""

import csv
import io
import re
from pathlib import Path

from nsdyn.studies.lib import archive, schemes, study_counts, study_summary
from nsdyn.studies.lib.study_cells import NOT_ASKED
from nsdyn.studies.lib.study_result import StudyResult
from nsdyn.studies.lib.tables import Table

REASON = re.compile(r"\((\d+)\) (.*)", re.DOTALL)  # a note that a row points to
SUMMARY, PAIRS, COUNTS, ORIGIN = "summary", "pairs.csv", "counts.md", "origin.json"


def write(result: StudyResult, folder: str | Path, command: str) -> list[Path]:
    """summary.md and summary.csv: a row for each integrator and law, over all problems. pairs.csv:
    a row for each pair that was run, given up or refused. counts.md: how many those are, and the
    orders that they show. origin.json: the command, the versions and the commit. Returns the
    files."""
    folder = Path(folder)
    told_by = {"title": result.plan.title, "command": command, "shape": result.plan.shape}
    origin = told_by | archive.provenance()
    summary = study_summary.summary(result)
    told = summary._replace(notes=[*summary.notes, provenance_text(origin)])
    rows = pairs(result.table)
    files = [
        schemes.write(folder / f"{SUMMARY}.md", told.markdown()),
        schemes.write(folder / f"{SUMMARY}.csv", summary.csv()),
        schemes.write(folder / PAIRS, rows),
        schemes.write(folder / COUNTS, study_counts.text(rows, result.plan.shape)),
    ]
    return [*files, archive.write_json(folder / ORIGIN, origin | {"notes": _notes(result.table)})]


def provenance_text(origin: dict) -> str:
    """Where numbers come from, in a sentence."""
    versions = ", ".join(f"{name} {text}" for name, text in origin["versions"].items())
    return (
        f"Written by `{origin['command']}` on {origin['date'][:10]}, commit "
        f"{origin['commit'] or 'unknown'}, {origin['platform']}, {versions}."
    )


def pairs(table: Table) -> str:
    """The rows of a table as comma-separated values, with the reasons in words; without those that
    were not computed, or need not run."""
    reasons = {found[1]: found[2] for x in table.notes if (found := REASON.fullmatch(x))}
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow([*_heads(table), "reason"])
    for row in table.rows:
        status, _, number = row[-1].partition(" (")
        reason = reasons.get(number.rstrip(")"), "")
        if status != "0% computed" and not reason.startswith(NOT_ASKED):
            lines.writerow([*row[:-1], status, reason])
    return text.getvalue()


def _heads(table: Table) -> list[str]:
    """The heads in one line each; an order and a median say of what."""
    found: list[str] = []
    of = ""
    for head in (x.replace("\n", " ") for x in table.head):
        is_told = head in ("order", "median")
        of = of if is_told else head
        found.append(f"{head} of {of}" if is_told else head)
    return found


def _notes(table: Table) -> list[str]:
    return [x for x in table.notes if not REASON.fullmatch(x)]
