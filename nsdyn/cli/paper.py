"""Commands for papers: `nsdyn redraw`, `nsdyn info`, `nsdyn report`."""

import re
from pathlib import Path
from typing import Annotated

import typer

from nsdyn.cli.console import progress, reported, show_origin
from nsdyn.cli.parse import made_by
from nsdyn.errors import ProblemError

INCHES = {"in": 1.0, "mm": 1 / 25.4, "cm": 1 / 2.54, "pt": 1 / 72.27}  # points of TeX


def redraw(
    study: Annotated[
        list[str],
        typer.Argument(
            metavar="[STUDY]...",
            help="Names from `nsdyn list`, study files, folders of `nsdyn compare --out`, runs and "
            "sweeps that were saved; default: all studies that are in the folder.",
        ),
    ] = [],  # noqa: B006  typer copies it
    folder: Annotated[
        Path, typer.Option(help="Where `nsdyn figures --out` has written; holds one of each study.")
    ] = Path("figures"),
    width: Annotated[
        str, typer.Option(help="Width of a column: 88mm, 8.8cm, 3.5in, 252pt.")
    ] = "3.5in",
    font: Annotated[str, typer.Option(help="Font family.")] = "STIXGeneral",
    font_size: Annotated[float, typer.Option(help="Size of letters in points.")] = 9.0,
    formats: Annotated[
        str, typer.Option("--format", help="Formats of files: pdf, svg, png.")
    ] = "pdf,png",
) -> None:
    """Draw the figures of studies again from archived data, with the width, font and formats that a
    journal asks for. Nothing is computed; a study whose data are missing is an error. Figures are
    drawn where they are: study files in the folder that is named after them, runs beside their
    files."""
    with reported():
        from nsdyn.studies.lib import redrawing, style

        kinds = tuple(kind.strip().lower() for kind in formats.split(","))
        look = style.Look(_inches(width), font, font_size, kinds)
        files: list[Path] = []
        with style.looking(look):
            for name in progress(study or redrawing.archived(folder), "drawing"):
                files += redrawing.drawn(name, folder)
        print("\n".join(str(file) for file in files))


def info(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A figure, film, table, page or netCDF file; a folder of a study or a sweep.",
        ),
    ],
) -> None:
    """Tell where a file comes from: the study and its data, settings, versions, commit, date, and
    the command that makes it again. Figures, films, pages, and tables in Markdown and LaTeX carry
    it with them; other files are asked where they were written."""
    with reported():
        from nsdyn.studies.lib.origin import origin

        show_origin(origin(file))


def report(
    context: typer.Context,
    folder: Annotated[
        Path,
        typer.Argument(help="What `nsdyn figures --out` or `nsdyn compare --out` has written."),
    ] = Path("figures"),
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("report.html"),
    player: Annotated[
        bool,
        typer.Option(
            help="With mechanisms in motion: those that studies have archived, and some of ours, "
            "whose runs may take a minute."
        ),
    ] = True,
) -> None:
    """Write one self-contained HTML page: figures, tables that can be sorted, where the data come
    from, and a player of motions with their events."""
    with reported():
        from nsdyn.studies.lib.report import archived, collect, motions, page

        studies = collect.studies(folder)
        shown = []
        if player:
            shown = [x for study in studies for x in archived.motions(study.folder)]
            have = {x["problem"] for x in shown if any(run["events"] for run in x["runs"])}
            known = {motion.name: motion for motion in motions.SHOWN if motion.name not in have}
            shown += [motions.computed(known[name]) for name in progress(known, "motion")]
        print(f"wrote {page.write(out, studies, shown, made_by(context))}")


def _inches(text: str) -> float:
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*(in|mm|cm|pt)\s*", text)
    if found is None:
        raise ProblemError(f"--width: expected a length such as 88mm or 3.5in, found {text!r}")
    return float(found[1]) * INCHES[found[2]]
