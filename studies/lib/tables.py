"""Tables as text, Markdown, LaTeX (booktabs) and comma-separated values.

Those in Markdown and LaTeX carry in a comment which table of which study they are (`nsdyn info`).
"""

import csv
import io
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from nsdyn.studies.lib import archive, stamps

KINDS = ("txt", "md", "tex", "csv")

SPECIAL = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
}


class Table(NamedTuple):
    """A title, the heads of the columns (which may have several lines), rows of texts, and notes.
    The first `names` columns are words, the others numbers."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: list[str]
    names: int = 1

    def __str__(self) -> str:
        heads = [x.split("\n") for x in self.head]
        depth = max(map(len, heads))
        filled = [[""] * (depth - len(x)) + x for x in heads]
        lines = [*zip(*filled, strict=True), *self.rows]
        widths = [max(len(line[k]) for line in lines) for k in range(len(self.head))]
        fit = lambda k, x: x.ljust(widths[k]) if k < self.names else x.rjust(widths[k])
        shown = ["  ".join(fit(k, x) for k, x in enumerate(line)).rstrip() for line in lines]
        rule = "  ".join("-" * width for width in widths)
        above = [self.title, ""] if "\n" in self.title else [self.title]
        below = ["", *self.notes] if any("\n" in note for note in self.notes) else self.notes
        parts = [*above, *shown[:depth], rule, *shown[depth:], *below]
        return "\n".join(parts)

    def markdown(self) -> str:
        """A table of GitHub's Markdown, with the notes below."""
        flat = [x.replace("\n", " ") for x in self.head]
        align = [":--" if k < self.names else "--:" for k in range(len(flat))]
        lines = [flat, align, *self.rows]
        text = "\n".join(f"| {' | '.join(x.replace('|', '/') for x in line)} |" for line in lines)
        return "\n\n".join([self.title, text, *self.notes]) + "\n"

    def latex(self) -> str:
        """A tabular of the package booktabs; the notes are comments."""
        columns = "l" * self.names + "r" * (len(self.head) - self.names)
        flat = tuple(x.replace("\n", " ") for x in self.head)
        line = lambda cells: " & ".join(_escaped(x) for x in cells) + r" \\"
        parts = [
            *(f"% {line}" for text in (self.title, *self.notes) for line in text.split("\n")),
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            line(flat),
            r"\midrule",
            *map(line, self.rows),
            r"\bottomrule",
            r"\end{tabular}",
        ]
        return "\n".join(parts) + "\n"

    def csv(self) -> str:
        """Comma-separated values, without title and notes."""
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(x.replace("\n", " ") for x in self.head)
        lines.writerows(self.rows)
        return text.getvalue()


def write(
    folder: str | Path, table: Table, name: str = "table", kinds: Collection[str] = KINDS
) -> list[Path]:
    """Write a table of a study in all kinds, or some of them; returns the files."""
    texts = {"txt": f"{table}\n", "md": table.markdown(), "tex": table.latex(), "csv": table.csv()}
    about = archive.about(folder, "table", name)
    files = []
    for kind in kinds:
        comment = stamps.comment(kind, about)
        text = texts[kind] + comment if kind == "md" else comment + texts[kind]
        put = lambda part, text=text: part.write_text(text, "utf-8")
        files.append(archive.replace(Path(folder) / f"{name}.{kind}", put))
    return files


def _escaped(text: str) -> str:
    return "".join(SPECIAL.get(c, c) for c in text)
