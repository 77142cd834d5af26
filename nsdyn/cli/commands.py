"""The command line: `nsdyn list`, `check`, `run`, `compare`, `study`, `sweep`, `figures`, `redraw`,
`info`, `report`, `bench`.

Exit codes: 0 all went well, 1 a run stopped early, 2 the input was wrong. Messages go to stderr.
Slow imports are inside the commands, so that help appears immediately.
"""

import dataclasses
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nsdyn.cli import bench as bench_command
from nsdyn.cli import listing, paper
from nsdyn.cli import study as study_commands
from nsdyn.cli.console import (
    busy,
    counted,
    progress,
    reported,
    show_comparison,
    show_end,
    show_events,
    show_pairs,
    show_reports,
    show_statuses,
    show_table,
)
from nsdyn.cli.options import (
    Client,
    ComparedFolder,
    EndTime,
    Film,
    ForceArchived,
    Formulation,
    JobsOrThreads,
    Latin,
    Laws,
    LawText,
    Methods,
    MethodText,
    OutFile,
    PartsFolder,
    Plot,
    ProblemName,
    Random,
    Ranges,
    ReferenceText,
    Refine,
    SaveEvery,
    Seed,
    Settings,
    ShowEvents,
    Speed,
    Step,
    Steps,
)
from nsdyn.cli.parse import command_line, made_by, parse_samples, parse_settings, parse_steps
from nsdyn.errors import FileError, NsdynError, ProblemError, SimulationError
from nsdyn.studies.lib import written

if TYPE_CHECKING:  # slow to import
    import nsdyn

app = typer.Typer(
    help="Nonsmooth dynamics of mechanisms whose constraints switch.",
    epilog="Start with: nsdyn list",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

PLOTS = (".png", ".pdf", ".svg")
FILMS = (".gif", ".mp4")


@app.callback(invoke_without_command=True)
def main(
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        import nsdyn

        print(f"nsdyn {nsdyn.__version__}")
        raise typer.Exit


@app.command("list", epilog="Example: nsdyn list --long; nsdyn list mechanisms.py")
def list_(
    source: Annotated[
        str,
        typer.Argument(metavar="[FILE.py]", help="A file, or a package: only what is in it."),
    ] = "",
    long: Annotated[
        bool, typer.Option("--long", help="Show sizes, modes and references of the problems.")
    ] = False,
    pairs: Annotated[
        bool, typer.Option("--pairs", help="Show which laws each integrator accepts.")
    ] = False,
) -> None:
    """Show all problems, integrators, laws and studies, also those of installed packages."""
    with reported():
        from nsdyn import studies

        if pairs:
            _list_pairs()
            return
        if long:
            with busy("looking at the problems"):
                rows = listing.long_rows(source)
            show_table("problems", listing.LONG, rows)
            return
        if source:
            listing.show_source(source)
            return
        listing.show_problems()
        for kind, known in (("integrators", written.integrators()), ("laws", written.laws())):
            listing.show_classes(kind, known)
        show_table(
            "studies", ("name", "description"), [(n, studies.summary(n)) for n in studies.names()]
        )


@app.command(epilog="Example: nsdyn check mechanisms.py:crank --set L=0.3")
def check(problem: ProblemName, settings: Settings = []) -> None:  # noqa: B006
    """Verify a problem: signatures, shapes, initial state and, in a coarse run, its mode changes.
    The exit code is 1 if there are warnings."""
    with reported():
        chosen = _problem(problem, settings)
        with busy("checking"):
            report = chosen.check()
        print(report)
        if not report.ok:
            raise typer.Exit(1)


@app.command(
    epilog="Example: nsdyn run three_r_pendulum --law MuellerTransition --step 1e-3 --events "
    "--out run.nc"
)
def run(
    context: typer.Context,
    problem: ProblemName,
    law: LawText = "PostSwitchGradient",
    integrator: MethodText = "RK4",
    formulation: Formulation = "",
    step: Step = 1e-3,
    t_end: EndTime = None,
    save_every: SaveEvery = 1,
    settings: Settings = [],  # noqa: B006  typer copies it
    out: OutFile = None,
    plot: Plot = None,
    animate: Film = None,
    speed: Speed = None,
    events: ShowEvents = False,
) -> None:
    """Simulate one problem and show its final state. A run that stops early writes what it has, and
    the exit code is 1."""
    with reported():
        from nsdyn.studies.lib import stamps

        chosen = _problem(problem, settings)
        method = _integrator(integrator, formulation)
        rule = written.law(law)
        for option, path, suffixes in (
            ("out", out, ()),
            ("plot", plot, PLOTS),
            ("animate", animate, FILMS),
        ):
            _require_target(f"--{option}", path, suffixes)
        options = {"step": step, "law": rule, "t_end": t_end, "save_every": save_every}
        trajectory, stopped = _simulated(chosen, method, options)
        if events and len(trajectory.events):
            show_events(trajectory.events)
            show_reports(chosen, trajectory.events, rule)
        if len(trajectory.t):
            show_end(trajectory)
        if out is not None:
            trajectory.save(out)
            _describe(out, context)
        if plot is not None and len(trajectory.t):
            said = stamps.metadata(plot.suffix[1:].lower(), made_by(context))
            trajectory.plot().savefig(plot, metadata=said)
            print(f"wrote {plot}")
        if animate is not None and len(trajectory.t):
            with counted("frames") as report:
                trajectory.animate(animate, chosen, speed=speed, progress=report)
            stamps.stamp_film(animate, made_by(context))
            print(f"wrote {animate}")
        if stopped is not None:
            raise stopped


def _simulated(
    problem: "nsdyn.Problem", method: Any, options: dict[str, Any]
) -> tuple["nsdyn.Solution", SimulationError | None]:
    """A run, and the error that ended it early: what there is until then is shown and written."""
    import nsdyn

    with busy("compiling and running"):
        try:
            return nsdyn.simulate(problem, method, **options), None
        except SimulationError as error:
            if error.partial is None:
                raise
            return error.partial, error


def _describe(out: Path, context: typer.Context) -> None:
    """Beside a file, where it comes from: `nsdyn info` reads this."""
    from nsdyn.studies.lib import archive

    archive.write_json(out.with_suffix(".json"), made_by(context))
    print(f"wrote {out} and {out.with_suffix('.json')}")


@app.command(
    epilog="Example: nsdyn compare point_on_track --integrator NSGA --integrator RK4 --step 1e-2 "
    "--out compared"
)
def compare(
    context: typer.Context,
    problem: ProblemName,
    integrator: Methods = [],  # noqa: B006
    law: Laws = [],  # noqa: B006
    step: Steps = "1e-3",
    t_end: EndTime = None,
    save_every: SaveEvery = 1,
    settings: Settings = [],  # noqa: B006
    reference: ReferenceText = "EventDriven(RK4)",
    refine: Refine = 8,
    out: ComparedFolder = None,
    force: ForceArchived = False,
) -> None:
    """Compare integrators and laws: errors, residuals, energy, effort, times; with several steps,
    errors with the smallest one and observed orders. The exit code is 1 if all runs fail."""
    with reported():
        from nsdyn import problems
        from nsdyn.studies import compare as comparison
        from nsdyn.studies import study as study_runs
        from nsdyn.studies.lib import archive, compare_figures, compare_table

        chosen = _problem(problem, settings)
        exact = problems.closed_form(problem)
        methods = [_integrator(text, "") for text in integrator] or comparison.DEFAULTS
        rules = [written.law(text) for text in law or ["PostSwitchGradient"]]
        steps = parse_steps(step)
        if len(steps) > 1:
            chosen = chosen if t_end is None else dataclasses.replace(chosen, t_end=t_end)
            if save_every != 1:
                raise ProblemError("--save-every: expected one step, found several: " + step)
            plan = _over_steps(chosen, (methods, rules), steps, reference, refine, exact)
            with counted("integrators and laws") as report:
                found_all = study_runs.run(plan, out, force=force, progress=report)
            study_commands.show(found_all, out, context)
            return
        entries = comparison.pairs(methods, rules)
        found = comparison.compare(
            chosen,
            entries,
            steps[0],
            t_end=t_end,
            save_every=save_every,
            folder=out,
            force=force,
            refine=refine,
            closed_form=exact,
            reference=None if reference == "none" else _integrator(reference, ""),
            progress=lambda names: progress(names, "running"),
        )
        show_comparison(compare_table.table(found))
        if out is not None:
            if (out / "data").is_dir():  # there is none if nothing ran
                archive.remember_command(out / "data", command_line(context))
            print("\n".join(str(file) for file in compare_figures.write(found, out)))
        if not any(run.ok for run in found.runs):
            raise typer.Exit(1)


@app.command(
    epilog="Example: nsdyn sweep three_r_pendulum --vary m=80:140:7 --vary locks[0]=0.6:0.9:4 "
    "--out sweep.nc; nsdyn sweep three_r_pendulum --vary m=80:140 --vary q0[1]=0:0.1 --latin 1000 "
    "--jobs 2 --folder sweep"
)
def sweep(
    context: typer.Context,
    problem: ProblemName,
    vary: Ranges = [],  # noqa: B006
    random: Random = 0,
    latin: Latin = 0,
    seed: Seed = 0,
    law: LawText = "PostSwitchGradient",
    integrator: MethodText = "RK4",
    formulation: Formulation = "",
    step: Step = 1e-3,
    t_end: EndTime = None,
    save_every: SaveEvery = 100,
    settings: Settings = [],  # noqa: B006
    jobs: JobsOrThreads = None,
    client: Client = None,
    folder: PartsFolder = None,
    out: OutFile = None,
) -> None:
    """Simulate all combinations of the values, or samples of them. The exit code is 1 if all runs
    fail."""
    with reported():
        import nsdyn
        from nsdyn.studies.lib import archive
        from nsdyn.studies.lib.study_tables import ORIGIN

        _require_target("--out", out, (".nc",))
        chosen = _problem(problem, settings)
        method = _integrator(integrator, formulation)
        rule = written.law(law)
        options = parse_samples(chosen, vary, random, latin, seed)
        options |= {"t_end": t_end, "save_every": save_every}
        options |= {"jobs": jobs, "client": client, "folder": folder}
        with counted("trajectories") as report:
            result = nsdyn.sweep(chosen, method, step=step, law=rule, progress=report, **options)
        show_statuses(result)
        if folder is not None:
            archive.write_json(folder / ORIGIN, made_by(context))
            print(f"wrote {folder}")
        if out is not None:
            result.save(out)
            _describe(out, context)
        if not result.ok.any():
            raise typer.Exit(1)


def _over_steps(
    problem: "nsdyn.Problem",
    pairs: tuple[Iterable[Any], Iterable[Any]],
    steps: list[float],
    reference: str,
    refine: int,
    exact: "nsdyn.ClosedForm | None",
) -> "nsdyn.studies.lib.study_file.Plan":
    """Several steps: a study of one problem."""
    from nsdyn.studies import compare as comparison
    from nsdyn.studies import study as studies

    if reference == "none":
        raise ProblemError(
            "--reference: expected an integrator where there are several steps, found 'none'"
        )
    named = [dict(zip(comparison.names(list(x)), x, strict=True)) for x in pairs]
    return studies.plan(
        {problem.name: problem},
        *named,
        steps=steps,
        reference=reference,
        refine=refine,
        closed_forms={} if exact is None else {problem.name: exact},
        title=problem.name,
    )


def _list_pairs() -> None:
    from nsdyn.studies.lib import pairs

    show_pairs("integrators and laws, for switching constraints and for Contact", pairs.pairs())
    show_pairs(
        "laws and kinds of mode changes: constraints are exchanged or added, a contact closes",
        pairs.switches(),
    )
    show_pairs("impact laws, for Contacts", pairs.impacts())


def _require_target(option: str, path: Path | None, suffixes: Collection[str]) -> None:
    """Report a file that cannot be written before the run, not after it."""
    if path is not None and not path.absolute().parent.is_dir():
        raise FileError(f"{option} {path}: expected a folder that exists, found no {path.parent}")
    if path is not None and suffixes and path.suffix.lower() not in suffixes:
        raise FileError(
            f"{option} {path}: expected a name that ends in {', '.join(suffixes)}, found "
            f"{path.suffix!r}"
        )


# Objects from arguments


def _problem(name: str, settings: Iterable[str]) -> "nsdyn.Problem":
    from nsdyn import problems

    try:
        return problems.get(name, **parse_settings(settings))
    except NsdynError:
        raise
    except (TypeError, ValueError) as error:
        raise ProblemError(f"problem {name} with {', '.join(settings)}: {error}") from error


def _integrator(text: str, formulation: str) -> "nsdyn.AbstractIntegrator":
    if formulation and text != "RK4":
        raise ProblemError(
            f"--formulation: expected --integrator RK4, found {text!r}; give settings in "
            "parentheses, as in 'RK4(formulation=minimal)'"
        )
    return written.integrator(f"RK4(formulation={formulation!r})" if formulation else text)


# Commands that have files of their own

for function, example in (
    (study_commands.study, "nsdyn study corner.toml --jobs 2; nsdyn study corner.toml --dry-run"),
    (study_commands.figures, "nsdyn figures joint_locking --out figures; nsdyn figures --verify"),
    (
        paper.redraw,
        "nsdyn redraw joint_locking --width 88mm --font 'DejaVu Sans' --format pdf,svg",
    ),
    (paper.info, "nsdyn info figures/joint_locking/figure_3.pdf; nsdyn info run.nc"),
    (paper.report, "nsdyn report figures --out report.html"),
    (bench_command.bench, "nsdyn bench --quick --out bench.json"),
):
    app.command(epilog=f"Example: {example}")(function)
