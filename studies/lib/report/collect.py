"""What studies have left in their folders: figures, captions, tables and where the data come from."""

import csv
import json
from pathlib import Path
from typing import NamedTuple

from nsdyn.errors import FileError

FIGURES = (".svg", ".png", ".gif")  # the first that exists is shown


class Table(NamedTuple):
    """A table of a study: its name, its rows, the head first, and what is said above and below."""

    name: str
    rows: list[list[str]]
    title: str
    notes: list[str]


class Study(NamedTuple):
    """A folder of a study, and what is in it."""

    folder: Path
    name: str
    figures: list[Path]
    captions: str
    texts: dict[str, str]  # tables that are laid out as text
    tables: list[Table]
    origin: dict[str, str]  # versions, commit, date


def studies(folder: str | Path) -> list[Study]:
    """The studies in a folder, or the folder itself if it is one."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileError(
            f"report: {folder} is no folder; make one with: nsdyn figures --out {folder}"
        )
    places = [folder, *sorted(x for x in folder.iterdir() if x.is_dir())]
    found = [_study(place) for place in places if (place / "captions.txt").is_file()]
    if not found:
        raise FileError(
            f"report: no study in {folder} (a folder with captions.txt); make some with: "
            f"nsdyn figures --out {folder}"
        )
    return found


def _study(folder: Path) -> Study:
    texts = {x.stem: x.read_text("utf-8") for x in sorted(folder.glob("*.txt"))}
    captions = texts.pop("captions")
    tables = [_table(x) for x in sorted(folder.glob("*.csv"))]
    for table in tables:  # which need not be shown twice
        texts.pop(table.name, None)
    name = folder.resolve().name
    return Study(folder, name, _figures(folder), captions, texts, tables, _origin(folder))


def _table(path: Path) -> Table:
    """A table, and the words of the Markdown beside it."""
    markdown = path.with_suffix(".md")
    parts = markdown.read_text("utf-8").split("\n\n") if markdown.is_file() else [""]
    above, *below = [x.strip() for x in parts if not x.lstrip().startswith(("|", "<!--"))] or [""]
    return Table(path.stem, _rows(path), above, below)


def _figures(folder: Path) -> list[Path]:
    stems = sorted({x.stem for x in folder.iterdir() if x.suffix in FIGURES})
    kinds = {stem: [folder / f"{stem}{kind}" for kind in FIGURES] for stem in stems}
    return [next(x for x in paths if x.is_file()) for paths in kinds.values()]


def _rows(path: Path) -> list[list[str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if row]


def _origin(folder: Path) -> dict[str, str]:
    """Where the newest data come from."""
    found: dict[str, str] = {}
    for path in sorted((folder / "data").glob("*.json")):
        told = json.loads(path.read_text("utf-8"))
        if told.get("date", "") > found.get("date", ""):
            versions = ", ".join(f"{k} {x}" for k, x in told.get("versions", {}).items())
            found = {"date": told["date"], "commit": told.get("commit") or "unknown"}
            found |= {"platform": told.get("platform", ""), "versions": versions}
    return found
