"""`nsdyn bench`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from nsdyn.cli.console import progress, reported, show_table


def bench(
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write measurements to this JSON file, figures to a folder of the same name."
        ),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(help="Write a page of results (Markdown, with a figure).")
    ] = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="Fewer repetitions; no large sweeps, no memory, no chains."),
    ] = False,
) -> None:
    """Time nsdyn on this machine against its targets: cold starts, runs and batches against C,
    accuracy per second against scipy and diffrax, chains against MuJoCo and Pinocchio (those that
    are installed). Takes a quarter of an hour, with --quick four minutes."""
    with reported():
        from nsdyn.studies.lib import archive
        from nsdyn.studies.lib.bench import measure, suite
        from nsdyn.studies.lib.bench import page as pages

        machine = measure.machine()
        results: dict[str, Any] = {}
        stages = suite.stages(quick)
        for name in progress(stages, "measuring"):
            results.update(stages[name]())
        show_table("speed", ("quantity", "measured", "target", "met"), suite.rows(results))
        print("\n".join(suite.notes(results)))
        described = {"results": results, "machine": machine, **archive.provenance()}
        files: list[Path] = []
        if out is not None:
            archive.write_json(out, described)
            files += [out, *suite.figures(results, out.with_suffix(""))]
        if page is not None:
            files += pages.write(described, page)
        print("\n".join(f"wrote {file}" for file in files))
