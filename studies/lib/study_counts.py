"""What a study ran and what it did not, and its observed orders, from the rows of `pairs.csv`: text to
include in a page, so that the page agrees with its tables."""

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from statistics import median

from nsdyn.studies.lib.tables import Table

TOGETHER = re.compile(r"integrator and law: (\w+) and (\w+) do not go together: (.*)", re.DOTALL)
ORDERS = ("order of error q", "order of error v")

Row = dict[str, str]


def text(pairs: str, shape: Sequence[int]) -> str:
    """Markdown. `pairs`: the content of pairs.csv; `shape`: how many problems, integrators, laws,
    steps and phases there are."""
    rows = list(csv.DictReader(io.StringIO(pairs)))
    problems, integrators, laws = shape[:3]
    total = problems * integrators * laws
    smooth = len(smooth_problems(rows)) if laws > 1 else 0
    not_asked = smooth * integrators * (laws - 1)
    reasons = _reasons([row["reason"] for row in rows if row["status"] == "refused"])
    refused = sum(reasons.values())
    run = [row for row in rows if row["status"] != "refused"]
    missing = [row for row in run if row["status"] == "given up" or "computed" in row["status"]]
    absent = total - not_asked - len(rows)
    to_run = len(run) + absent
    whole = sum(row["status"] == "OK" for row in run)
    parts = [
        f"Of {total} pairs (with a problem each) {to_run} are to run and {not_asked + refused} are "
        f"not. Of the former {whole} reach the end with every step, {to_run - whole} do not: "
        f"{_listed(_statuses(run), absent)}.",
        _not_run(reasons, not_asked, smooth),
    ]
    if missing or absent:
        names = Counter(row["problem"] for row in missing)
        gone = ", ".join(f"{count} of `{name}`" for name, count in names.items())
        also = [gone] if gone else []
        also += [f"{absent} that were not computed"] if absent else []
        parts.append(f"{len(missing) + absent} pairs are missing: {', '.join(also)}.")
    return "\n\n".join([*parts, _orders(run)]) + "\n"


def smooth_problems(rows: Sequence[Row]) -> list[str]:
    """Those that have rows of one law only: nothing asks for a law there."""
    known: dict[str, set[str]] = {}
    for row in rows:
        known.setdefault(row["problem"], set()).add(row["law"])
    return [name for name, laws in known.items() if len(laws) == 1]


def _reasons(given: Sequence[str]) -> Counter:
    """How often each reason was given; like ones of several laws are one."""
    laws: dict[tuple[str, str], list[str]] = {}
    for reason in given:
        found = TOGETHER.fullmatch(reason)
        integrator, law, why = found.groups() if found else ("", "", reason)
        laws.setdefault((integrator, why), []).append(law)
    counts: Counter = Counter()
    for (integrator, why), names in laws.items():
        who = f"`{integrator}` with {', '.join(f'`{x}`' for x in dict.fromkeys(names))}: "
        counts[f"{who if integrator else ''}{why}"] = len(names)
    return counts


def _statuses(run: Sequence[Row]) -> Counter:
    words = (row["status"].removeprefix("mostly ") for row in run if row["status"] != "OK")
    return Counter(words)


def _listed(statuses: Counter, absent: int) -> str:
    found = [f"{count} {word}" for word, count in statuses.most_common()]
    return ", ".join(found + ([f"{absent} not computed"] if absent else [])) or "none"


def _not_run(reasons: Counter, not_asked: int, smooth: int) -> str:
    rows = [(str(count), reason.replace("\n", " ")) for reason, count in reasons.most_common()]
    if not_asked:
        words = f"{smooth} problems are smooth: no law is asked, so one stands for all"
        rows.insert(0, (str(not_asked), words))
    table = ["| pairs not run | why |", "|--:|:--|", *(f"| {n} | {why} |" for n, why in rows)]
    return "\n".join(table)


def _orders(run: Sequence[Row]) -> str:
    """Medians over all problems and laws."""
    shown = [name for name in ORDERS if run and name in run[0]]
    lines = []
    for integrator in dict.fromkeys(row["integrator"] for row in run):
        own = [row for row in run if row["integrator"] == integrator]
        cells = [_median([row[name] for row in own]) for name in shown]
        lines.append((f"`{integrator}`", *cells))
    heads = ("integrator", *(f"median {name}" for name in shown))
    return Table("Observed orders over all problems and laws:", heads, lines, []).markdown().strip()


def _median(orders: Sequence[str]) -> str:
    known = [float(x.split(" ")[0]) for x in orders if x not in ("-", "")]
    return f"{median(known):.2f}" if known else "-"
