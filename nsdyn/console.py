"""What the command line shows, and where it keeps compiled programs: tables, progress, messages, exit codes, cache."""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

PIPED_WIDTH = 120  # of tables that do not go to a terminal


@contextmanager
def reported():
    """Errors become a message on stderr and an exit code: 1 for a run that stopped early, 2 for bad input."""
    from nsdyn.errors import NsdynError, SimulationError

    try:
        yield
    except (NsdynError, OSError) as error:
        print(f"nsdyn: {error}", file=sys.stderr)
        raise typer.Exit(1 if isinstance(error, SimulationError) else 2) from None


def show_table(title: str, columns: tuple[str, ...], rows: Iterable[tuple], numbers: bool = False):
    """An aligned table on stdout; all columns to the right if they are `numbers`."""
    table = Table(box=None, header_style="dim", pad_edge=False)
    for i, column in enumerate(columns):
        table.add_column(column, no_wrap=i == 0 or numbers, overflow="fold", justify="right" if numbers else "left")
    for row in rows:
        table.add_row(*(escape(str(cell)) for cell in row))
    console = Console()
    console = console if console.is_terminal else Console(width=PIPED_WIDTH)
    console.print(title, style="bold", highlight=False, markup=False)
    console.print(table)
    console.print()


def show_events(events):
    columns = ("#", "t", "mode", "impulse Lam", "kinetic energy before", "after")
    rows = []
    for i, event in enumerate(events):
        energies = (f"{event.kinetic_before:.6g}", f"{event.kinetic_after:.6g}")
        modes = f"{event.mode_before} -> {event.mode_after}"
        rows.append((i, f"{event.t:.9g}", modes, "  ".join(f"{x:.6g}" for x in event.Lam), *energies))
    show_table("events", columns, rows, numbers=True)


def show_end(trajectory):
    """The last row of a trajectory."""
    t, mode, energy = trajectory.t[-1], trajectory.mode[-1], trajectory.energy[-1]
    q, v = ([f"{x:.9g}" for x in row[-1]] for row in (trajectory.q, trajectory.v))
    v += [""] * (len(q) - len(v))  # quasi-velocities may be fewer
    count = len(trajectory.events)
    events = "1 event" if count == 1 else f"{count} events"
    title = f"state at t = {t:g} (mode {mode}, energy {energy:.9g}, {events} until then)"
    show_table(title, ("i", "q", "v"), list(zip(range(len(q)), q, v, strict=True)), numbers=True)


def first_sentence(cls: type) -> str:
    """The first sentence of the description of the file that a class is in."""
    text = " ".join((sys.modules[cls.__module__].__doc__ or "").partition("\n\n")[0].split())
    return re.split(r"(?<=[\w)\"]{3})[.](?:\s|$)", text)[0].rstrip(".:")


def progress(names: Iterable[str], what: str) -> Iterator[str]:
    """The names one by one, with a bar on stderr."""
    text = TextColumn("{task.description}")
    columns = (SpinnerColumn(), text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    names = list(names)
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=len(names))
        for name in names:
            bar.update(task, description=f"{what} {name}")
            yield name
            bar.advance(task)


def busy(what: str):
    """A sign of life on stderr."""
    return Console(stderr=True).status(what)


def use_cache():
    """Keep compiled programs in the user's cache folder, unless JAX was told of one or the folder cannot be written."""
    import jax

    if told_of_cache():
        return
    try:
        folder = _cache_root() / "nsdyn" / "jax"
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            return
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def told_of_cache() -> bool:
    import jax

    return bool(jax.config.jax_compilation_cache_dir)


def _cache_root() -> Path:
    if os.environ.get("XDG_CACHE_HOME"):
        return Path(os.environ["XDG_CACHE_HOME"])
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")
