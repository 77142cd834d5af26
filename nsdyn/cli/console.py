"""Output of the command line: tables, progress, messages, exit codes."""

import sys
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

if TYPE_CHECKING:  # slow to import
    import nsdyn
    import nsdyn.studies.lib.compare_table
    import nsdyn.studies.lib.pairs

PIPED_WIDTH = 120  # of tables if stdout is not a terminal
WIDE = 200  # of tables with many columns, rather than wrapped lines


@contextmanager
def reported() -> Iterator[None]:
    """Errors and warnings become messages on stderr, errors an exit code, too: 1 for a run that
    stopped early, 2 for bad input."""
    from nsdyn.errors import NsdynError, SimulationError

    try:
        with warnings.catch_warnings():
            warnings.showwarning = _told(warnings.showwarning)
            yield
    except (NsdynError, OSError) as error:
        print(f"nsdyn: {error}", file=sys.stderr)
        raise typer.Exit(1 if isinstance(error, SimulationError) else 2) from None


def _told(usual: Callable[..., None]) -> Callable[..., None]:
    """Our warnings without a line of source: on the command line it is none of the user's."""

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if category.__module__ == "nsdyn.errors":
            print(f"nsdyn: warning: {message}", file=sys.stderr)
        else:
            usual(message, category, *place, **more)

    return show


def show_table(
    title: str,
    columns: tuple[str, ...],
    rows: Iterable[tuple],
    numbers: bool | Collection[int] = False,
    width: int = PIPED_WIDTH,
    whole: bool = False,
) -> None:
    """Print an aligned table.

    numbers: True to align all columns right, or the indices of the columns to align right.
    width: used if stdout is not a terminal.
    whole: never wrap or drop columns.
    """
    right = range(len(columns)) if numbers is True else numbers or ()
    table = Table(box=None, header_style="dim", pad_edge=False)
    for i, column in enumerate(columns):
        fixed = whole or i == 0 or i in right
        table.add_column(
            escape(column),
            no_wrap=fixed,
            overflow="fold",
            justify="right" if i in right else "left",
        )
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    console = Console()
    console = console if console.is_terminal and not whole else Console(width=width)
    console.print(title, style="bold", highlight=False, markup=False)
    console.print(table, soft_wrap=whole)
    console.print()


def show_events(events: "nsdyn.Events") -> None:
    columns = ("#", "t", "mode", "impulse Lam", "kinetic energy before", "after")
    rows = []
    for i, event in enumerate(events):
        energies = (f"{event.kinetic_before:.6g}", f"{event.kinetic_after:.6g}")
        modes = f"{event.mode_before} -> {event.mode_after}"
        rows.append(
            (i, f"{event.t:.9g}", modes, "  ".join(f"{x:.6g}" for x in event.Lam), *energies)
        )
    show_table("events", columns, rows, numbers=True)


def show_reports(
    problem: "nsdyn.Problem", events: "nsdyn.Events", law: "nsdyn.laws.AbstractLaw"
) -> None:
    """The analysis of each event."""
    import nsdyn

    names = [f"{i + 1} of {len(events)}" for i in range(len(events))]
    found = [
        nsdyn.transition_report(problem, events[i], law)
        for i, _ in enumerate(progress(names, "event"))
    ]
    has_contacts = any(part.unilateral for part in problem.constraint)
    for i, report in enumerate(found):
        print(f"event {i}: {report}\n")
        if has_contacts:
            print(f"{nsdyn.ledger(problem, events[i])}\n")


def show_end(trajectory: "nsdyn.Solution") -> None:
    """The last sample of a trajectory."""
    from nsdyn.results.events import counted as events_text

    q, v = ([f"{x:.9g}" for x in row[-1]] for row in (trajectory.q, trajectory.v))
    v += [""] * (len(q) - len(v))  # quasi-velocities may be fewer
    names = trajectory.coordinates or range(len(q))
    head = "coordinate" if trajectory.coordinates else "i"
    last = f"mode {trajectory.mode[-1]}, energy {trajectory.energy[-1]:.9g}"
    title = (
        f"state at t = {trajectory.t[-1]:g} ({last}, {events_text(trajectory.events)} until then)"
    )
    show_table(title, (head, "q", "v"), list(zip(names, q, v, strict=True)), numbers=(1, 2))


def show_comparison(table: "nsdyn.studies.lib.tables.Table") -> None:
    """The table of a comparison and its notes; in several parts if the terminal is narrow."""
    console = Console()
    limit = console.width if console.is_terminal else WIDE
    names = list(range(table.names))
    columns = zip(table.head, *table.rows, strict=True)
    lengths = [max(len(x) for x in "\n".join(cells).split("\n")) + 2 for cells in columns]
    parts: list[list[int]] = [[]]
    for i in (i for i in range(len(lengths)) if i not in names):
        if parts[-1] and sum(lengths[k] for k in (*names, *parts[-1], i)) > limit:
            parts.append([])
        parts[-1].append(i)
    for k, part in enumerate(parts):
        chosen = [*names, *part]
        cells = lambda row, chosen=chosen: tuple(row[i] for i in chosen)
        numbers = [k for k, i in enumerate(chosen) if i in part and table.head[i] != "status"]
        show_table(
            table.title if k == 0 else "", cells(table.head), map(cells, table.rows), numbers, WIDE
        )
    print("\n".join(table.notes))


def show_pairs(title: str, table: "nsdyn.studies.lib.pairs.Table") -> None:
    """A table written for markdown, without the markup."""
    plain = lambda cells: tuple(cell.replace("`", "") for cell in cells)
    head = tuple(cell.replace("(", "\n(") for cell in plain(table.head))
    show_table(title, head, map(plain, table.rows), width=WIDE, whole=True)
    for i, note in enumerate(table.notes, 1):
        print(f"({i}) {note}")
    print("\n" * bool(table.notes), end="")


def show_statuses(result: "nsdyn.Solution") -> None:
    """The number of runs of a sweep for each status."""
    import numpy as np

    codes, counts = np.unique(result.status, return_counts=True)
    meanings = [result.meaning(code) for code in codes]
    rows = [(name, count, text) for (name, text), count in zip(meanings, counts, strict=True)]
    show_table(f"{len(result.status)} trajectories", ("status", "count", "meaning"), rows)


def _bar() -> Progress:
    text = TextColumn("{task.description}")
    times = (TimeElapsedColumn(), TextColumn("left:"), TimeRemainingColumn())
    columns = (SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), *times)
    return Progress(*columns, console=Console(stderr=True), transient=True)


def progress(names: Iterable[str], what: str) -> Iterator[str]:
    """Yield the names, with a progress bar on stderr."""
    names = list(names)
    with _bar() as bar:
        task = bar.add_task(what, total=len(names))
        for name in names:
            bar.update(task, description=f"{what} {name}")
            yield name
            bar.advance(task)


@contextmanager
def counted(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function report(done, total) that moves a progress bar on stderr."""
    with _bar() as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def busy(what: str) -> AbstractContextManager:
    """A spinner on stderr."""
    return Console(stderr=True).status(what)


def show_origin(rows: Iterable[tuple[str, str]]) -> None:
    """Lines that are never wrapped: commands are to be copied."""
    before = ""
    for word, text in rows:
        print(f"{word if word != before else '':<9} {text}")
        before = word
