"""Tables as text, Markdown, LaTeX (booktabs) and comma-separated values."""

import csv
import io
from typing import NamedTuple

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
    rows: list[tuple[str, ...]]
    notes: list[str]
    names: int = 1

    def __str__(self) -> str:
        heads = [x.split("\n") for x in self.head]
        depth = max(map(len, heads))
        above = [[""] * (depth - len(x)) + x for x in heads]
        lines = [*zip(*above, strict=True), *self.rows]
        widths = [max(len(line[k]) for line in lines) for k in range(len(self.head))]
        fit = lambda k, x: x.ljust(widths[k]) if k < self.names else x.rjust(widths[k])
        shown = ["  ".join(fit(k, x) for k, x in enumerate(line)).rstrip() for line in lines]
        rule = "  ".join("-" * width for width in widths)
        parts = [self.title, *shown[:depth], rule, *shown[depth:], *self.notes]
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
            *(f"% {text}" for text in (self.title, *self.notes)),
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


def _escaped(text: str) -> str:
    return "".join(SPECIAL.get(c, c) for c in text)
