"""Options that commands share, or that would make the head of a command long: their types and
their help."""

from pathlib import Path
from typing import Annotated

import typer

ProblemName = Annotated[
    str,
    typer.Argument(
        metavar="PROBLEM",
        help="A name from `nsdyn list`, FILE.py:NAME, PACKAGE:NAME, ROBOT.urdf or MODEL.xml.",
    ),
]
LawText = Annotated[
    str,
    typer.Option(
        "--law",
        help="Impulse law, with settings as in Python: "
        "'Restitution(e=0.5)', 'my.py:Fading(rate=2)'.",
    ),
]
MethodText = Annotated[
    str,
    typer.Option(
        "--integrator",
        help="Integrator, with settings: 'RK4(formulation=minimal)', my.py:Midpoint.",
    ),
]
Methods = Annotated[
    list[str],
    typer.Option(
        "--integrator", help="Integrator, with settings; repeatable. Default: a set of seven."
    ),
]
Laws = Annotated[
    list[str], typer.Option("--law", help="Impulse law; repeatable. Default: PostSwitchGradient.")
]
Formulation = Annotated[
    str, typer.Option(help="Shorthand for RK4: lagrange, projected or minimal.")
]
Settings = Annotated[
    list[str], typer.Option("--set", metavar="NAME=VALUE", help="Problem parameter; repeatable.")
]
Ranges = Annotated[
    list[str],
    typer.Option(
        "--vary",
        metavar="NAME=LOW:HIGH:N",
        help="Range of N values, without N if there is --random or --latin; repeatable. NAME is a "
        "parameter, as in m or locks[0], or q0[i] or v0[i].",
    ),
]
Step = Annotated[float, typer.Option(help="Step size.")]
EndTime = Annotated[float | None, typer.Option(help="End time; default: that of the problem.")]
OutFile = Annotated[Path | None, typer.Option(help="Write the results to this netCDF file.")]
SaveEvery = Annotated[int, typer.Option(help="Steps between rows.")]

# What a run shows and writes

Plot = Annotated[
    Path | None, typer.Option(help="Draw the trajectory into this file (png, pdf, svg).")
]
Film = Annotated[
    Path | None, typer.Option(help="Write the motion as a film to this file (gif, mp4).")
]
Speed = Annotated[
    float | None, typer.Option(help="Seconds of motion in a second of the film; 1: real time.")
]
ShowEvents = Annotated[bool, typer.Option("--events", help="Show the events and analyse each.")]

# Comparisons

Steps = Annotated[str, typer.Option(help="Step size; several, as in 2e-2,1e-2,5e-3, show orders.")]
ReferenceText = Annotated[str, typer.Option(help="Integrator to compare with, or none.")]
Refine = Annotated[int, typer.Option(help="Steps of the reference per step.")]
ComparedFolder = Annotated[Path | None, typer.Option(help="Folder for data, table and figures.")]
ForceArchived = Annotated[
    bool, typer.Option("--force", help="Recompute data that are archived in --out.")
]

# Samples of a sweep

Random = Annotated[int, typer.Option(min=0, help="So many random samples.")]
Latin = Annotated[int, typer.Option(min=0, help="So many samples: a Latin hypercube.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of random samples.")]

# Who computes, and where results are kept

Jobs = Annotated[int | None, typer.Option(help="Processes; default: this one.")]
JobsOrThreads = Annotated[
    int | None, typer.Option(help="Processes; default: threads of this process.")
]
Client = Annotated[
    str | None, typer.Option(help="Address of a Dask scheduler: tcp://127.0.0.1:8786.")
]
PartsFolder = Annotated[
    Path | None,
    typer.Option(
        help="Keep the results here, part by part: an interrupted sweep goes on where it was."
    ),
]

# Studies

StudyFile = Annotated[Path, typer.Argument(metavar="STUDY.toml", help="The study file.")]
StudyFolder = Annotated[
    Path | None, typer.Option(help="Folder for data, tables and figures; default: STUDY.")
]
Only = Annotated[
    list[str],
    typer.Option(
        "--only",
        metavar="WORD=PATTERN",
        help="Only what matches: 'integrator=nsga*', 'problem=ramp', 'law=...'; repeatable.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Tell what there is to do, and do nothing.")
]
Collect = Annotated[
    bool, typer.Option("--collect", help="Run nothing: tables and figures of what is there.")
]
Force = Annotated[bool, typer.Option("--force", help="Compute again what is there (see --only).")]
Retry = Annotated[
    bool,
    typer.Option("--retry", help="Try again pairs that ended with an error or took too long."),
]
TablesFolder = Annotated[
    Path | None,
    typer.Option(help="Folder for small tables (Markdown, CSV) that tell their origin."),
]
Studies = Annotated[
    list[str], typer.Argument(metavar="[STUDY]...", help="Names from `nsdyn list`; default: all.")
]
