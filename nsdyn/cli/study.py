"""Commands that run studies: `nsdyn study` those of a file, `nsdyn figures` our own."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nsdyn.cli.console import counted, progress, reported, show_comparison, show_table
from nsdyn.cli.options import (
    Client,
    Collect,
    DryRun,
    Force,
    Jobs,
    Only,
    Retry,
    Studies,
    StudyFile,
    StudyFolder,
    TablesFolder,
)
from nsdyn.cli.parse import command_line

if TYPE_CHECKING:  # slow to import
    import nsdyn


def study(
    context: typer.Context,
    file: StudyFile,
    out: StudyFolder = None,
    jobs: Jobs = None,
    client: Client = None,
    only: Only = [],  # noqa: B006  typer copies it
    dry_run: DryRun = False,
    collect: Collect = False,
    force: Force = False,
    retry: Retry = False,
    tables: TablesFolder = None,
) -> None:
    """Run a study: problems x integrators x laws x steps x phases, declared in a file. An
    interrupted study goes on where it was. A pair that ends with an error, or takes longer than the
    file allows, is given up, and its row says why. The exit code is 1 if no run reached its end."""
    with reported():
        from nsdyn.studies import study as studies
        from nsdyn.studies.lib import study_file, study_tables

        plan = study_file.read(file)
        folder = Path(file.stem) if out is None else out
        if dry_run:
            _show_survey(plan, studies.survey(plan, folder / "data", only, force, retry))
            return
        if collect:
            found = _collected(plan, folder, file)
        else:
            again = {"force": force, "retry": retry}
            with counted("pairs") as report:
                found = studies.run(
                    plan, folder, jobs=jobs, client=client, only=only, progress=report, **again
                )
        if tables is not None:
            made = study_tables.write(found, tables, command_line(context))
            print("\n".join(str(path) for path in made))
        show(found, folder, context)


def _collected(
    plan: "nsdyn.studies.lib.study_file.Plan", folder: Path, file: Path
) -> "nsdyn.studies.lib.study_result.StudyResult":
    """What there is of a study. Nothing at all is told, and writes no tables."""
    from nsdyn.errors import FileError
    from nsdyn.studies import study as studies

    found = studies.collect(plan, folder / "data")
    if not found.is_begun:
        raise FileError(
            f"--collect: {folder / 'data'} has nothing of this study, or of this code; compute it "
            f"with: nsdyn study {file} --out {folder}"
        )
    return found


def show(
    found: "nsdyn.studies.lib.study_result.StudyResult", out: Path | None, context: typer.Context
) -> None:
    """The table of a study, and its files."""
    from nsdyn.studies.lib import archive

    show_comparison(found.table)
    if out is not None:
        archive.remember_command(out / "data", command_line(context))
        print("\n".join(str(file) for file in found.save(out)))
    if not found.ok.any():
        raise typer.Exit(1)


def _show_survey(
    plan: "nsdyn.studies.lib.study_file.Plan", work: "nsdyn.studies.study.Work"
) -> None:
    """What a run of a study would do."""
    words = ("problems", "integrators", "laws", "steps", "phases")
    sizes = " x ".join(f"{n} {word}" for n, word in zip(plan.shape, words, strict=True))
    total = 1
    for n in plan.shape:
        total *= n
    print(f"{plan.title}\n{sizes} = {total} runs")
    cells = f"{work.done} of {work.cells} cells (a step with its phases, or a reference)"
    given_up = f", {work.given_up} were given up" if work.given_up else ""
    print(f"{cells} are there{given_up}; {len(work.refused)} pairs are refused")
    print(f"to do: {len(work.todo)} programs, {work.missing} cells")
    if work.missing:
        guessed = f"about {work.seconds:.0f} CPU s, a guess from the sizes of the mechanisms"
        print(f"time: {guessed if work.is_guess else f'at most about {work.seconds:.0f} CPU s'}")


def figures(
    study: Studies = [],  # noqa: B006
    out: Annotated[Path, typer.Option(help="Folder for data and figures.")] = Path("figures"),
    force: Annotated[bool, typer.Option("--force", help="Recompute archived data.")] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify", help="Draw nothing: recompute archived data of each study and compare."
        ),
    ] = False,
) -> None:
    """Compute and archive the data of studies and draw their figures. Data are computed again only
    if their settings or the code that computes them have changed. With --verify, one set of data of
    each study, chosen at random, is computed again; the exit code is 1 if it differs."""
    with reported():
        from nsdyn import studies
        from nsdyn.studies.lib import archive, redrawing
        from nsdyn.studies.lib import verify as verification

        chosen = {name: studies.get(name) for name in study or studies.names()}
        if verify:
            found = [
                row
                for name in progress(chosen, "verifying")
                for row in verification.verified(chosen[name], name, out / name)
            ]
            show_table("archived data", ("study", "data", "verdict"), [row[:3] for row in found])
            if not all(row.ok for row in found):
                raise typer.Exit(1)
            return
        files: list[Path] = []
        for name in progress(chosen, "study"):
            files += redrawing.made(chosen[name], out / name, force)
            made_by = shlex.join(["nsdyn", "figures", name, "--out", str(out)])
            archive.remember_command(out / name / "data", made_by)
        print("\n".join(str(file) for file in files))
