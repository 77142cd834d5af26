"""The command line: `nsdyn list`, `run`, `sweep`, `figures`, `bench`.

Exit codes: 0 all went well, 1 a run stopped early, 2 the input was wrong. Messages go to stderr. What takes long to
import is imported inside the commands, so that help comes at once.
"""

import ast
import difflib
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from nsdyn.console import busy, first_sentence, progress, reported, show_end, show_events, show_table, use_cache
from nsdyn.errors import FileError, ProblemError

app = typer.Typer(
    help="Nonsmooth dynamics of mechanisms whose constraints switch.",
    epilog="Start with: nsdyn list",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

ProblemName = Annotated[str, typer.Argument(metavar="PROBLEM", help="A name from `nsdyn list`.")]
LawText = Annotated[str, typer.Option("--law", help="Impulse law, with settings as in Python: 'Restitution(e=0.5)'.")]
MethodText = Annotated[str, typer.Option("--integrator", help="Integrator, with settings: 'RK4(formulation=minimal)'.")]
Formulation = Annotated[str, typer.Option(help="Shorthand for RK4: lagrange, projected or minimal.")]
Settings = Annotated[list[str], typer.Option("--set", metavar="NAME=VALUE", help="Problem parameter; repeatable.")]
Ranges = Annotated[list[str], typer.Option("--vary", metavar="NAME=LOW:HIGH:N", help="Range of values; repeatable.")]
Studies = Annotated[list[str], typer.Argument(metavar="[STUDY]...", help="Names from `nsdyn list`; none: all.")]
Step = Annotated[float, typer.Option(help="Step size.")]
EndTime = Annotated[float | None, typer.Option(help="End time, if not the problem's own.")]
OutFile = Annotated[Path | None, typer.Option(help="Write the results to this netCDF file.")]


@app.callback(invoke_without_command=True)
def main(version: Annotated[bool, typer.Option("--version", help="Show the version and leave.")] = False):
    if version:
        import nsdyn

        print(f"nsdyn {nsdyn.__version__}")
        raise typer.Exit


@app.command("list", epilog="Example: nsdyn list")
def list_():
    """Show all problems, integrators, laws and studies."""
    with reported():
        from nsdyn import problems, studies

        show_table("problems", ("name", "description"), [(n, problems.summary(n)) for n in problems.names()])
        for title, known in (("integrators", _integrators()), ("laws", _laws())):
            rows = [(_signature(cls), first_sentence(cls)) for cls in known.values()]
            show_table(title, ("name and settings", "description"), rows)
        show_table("studies", ("name", "description"), [(n, studies.summary(n)) for n in studies.names()])


@app.command(epilog="Example: nsdyn run three_r_pendulum --law MuellerTransition --step 1e-3 --events --out run.nc")
def run(
    problem: ProblemName,
    law: LawText = "PostSwitchGradient",
    integrator: MethodText = "RK4",
    formulation: Formulation = "",
    step: Step = 1e-3,
    t_end: EndTime = None,
    save_every: Annotated[int, typer.Option(help="Steps between rows.")] = 1,
    settings: Settings = [],  # noqa: B006  typer copies it
    out: OutFile = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the trajectory into this file (png, pdf, svg).")] = None,
    events: Annotated[bool, typer.Option("--events", help="Show the table of events.")] = False,
):
    """Simulate one problem and show its final state."""
    with reported():
        import nsdyn

        use_cache()
        chosen, method, rule = _problem(problem, settings), _integrator(integrator, formulation), _law(law)
        with busy("compiling and running"):
            trajectory = nsdyn.simulate(chosen, method, step=step, law=rule, t_end=t_end, save_every=save_every)
        if events:
            show_events(trajectory.events)
        show_end(trajectory)
        if out is not None:
            trajectory.save(out)
            print(f"wrote {out}")
        if plot is not None:
            _draw(trajectory, plot)
            print(f"wrote {plot}")


@app.command(epilog="Example: nsdyn figures joint_locking --out figures")
def figures(
    study: Studies = [],  # noqa: B006
    out: Annotated[Path, typer.Option(help="Folder for data and figures.")] = Path("figures"),
    force: Annotated[bool, typer.Option("--force", help="Compute again what is archived already.")] = False,
):
    """Compute the data of studies, archive them, draw their figures."""
    with reported():
        from nsdyn import studies

        use_cache()
        chosen = {name: studies.get(name) for name in study or studies.names()}
        files: list[Path] = []
        for name in progress(chosen, "study"):
            files += chosen[name].run(out / name, force=force)
        print("\n".join(str(file) for file in files))


@app.command(epilog="Example: nsdyn bench --quick --out bench.json")
def bench(
    out: Annotated[Path | None, typer.Option(help="Write the measurements to this JSON file.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer repetitions, no memory test.")] = False,
):
    """Time the 3R pendulum beside C on this machine; takes about a minute, with --quick less."""
    with reported():
        from nsdyn.studies import archive, benchmark

        results: dict[str, Any] = {}
        stages = benchmark.stages(quick)
        for name in progress(stages, "measuring"):
            results.update(stages[name]())
        show_table("3R pendulum", ("quantity", "measured", "target", "aim"), benchmark.rows(results))
        for note in benchmark.notes(results):
            print(note)
        if out is not None:
            archive.write_json(out, {"results": results, "machine": benchmark.machine(), **archive.provenance()})
            print(f"wrote {out}")


def _draw(trajectory, path: Path):
    try:
        trajectory.plot().savefig(path)
    except ValueError as error:  # a suffix that matplotlib cannot write
        raise FileError(f"--plot {path}: {error}") from error


# What the words on the command line mean


def _problem(name: str, settings: Iterable[str]):
    from nsdyn import problems

    parameters = {}
    for text in settings:
        key, value = _assignment("--set", text, "NAME=VALUE")
        try:
            parameters[key] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            parameters[key] = value
    try:
        return problems.get(name, **parameters)
    except ProblemError:
        raise
    except (TypeError, ValueError) as error:
        raise ProblemError(f"problem {name} with {', '.join(settings)}: {error}") from error


def _assignment(option: str, text: str, form: str) -> tuple[str, str]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals and value):
        raise ProblemError(f"{option}: expected {form}, found {text!r}")
    return name, value


def _integrators() -> dict[str, type]:
    from nsdyn import integrators

    return {name: getattr(integrators, name) for name in integrators.__all__}


def _laws() -> dict[str, type]:
    from nsdyn import laws

    classes = {name: getattr(laws, name) for name in laws.__all__}
    return {name: c for name, c in classes.items() if issubclass(c, laws.AbstractLaw) and c is not laws.AbstractLaw}


def _law(text: str):
    return _built("law", text, _laws())


def _integrator(text: str, formulation: str):
    from nsdyn.integrator import AbstractSmoothMethod

    known = _integrators()
    if formulation and text != "RK4":
        raise ProblemError(f"--formulation is for --integrator RK4 alone; give {text!r} its settings in parentheses")
    made = known["RK4"](formulation=formulation) if formulation else _built("integrator", text, known)
    return known["EventDriven"](made) if isinstance(made, AbstractSmoothMethod) else made


def _built(what: str, text: str, known: dict[str, type]):
    """The object that a text such as Restitution(e=0.5) describes. Calls may nest; an unknown word is a string."""
    short = {name.lower(): name for name in known}

    def find(name: str) -> type:
        if name.lower() in short:
            return known[short[name.lower()]]
        close = difflib.get_close_matches(name.lower(), short, n=1)
        hint = f"did you mean {short[close[0]]}? " if close else ""
        raise ProblemError(f"{what} {name!r} is not known; {hint}There are: {', '.join(known)}")

    def value(node: ast.expr) -> Any:
        match node:
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                return find(name)(*map(value, args), **{k.arg: value(k.value) for k in keywords if k.arg})
            case ast.Name(id=name):
                return find(name)() if name.lower() in short else name
        return ast.literal_eval(node)

    try:
        node = ast.parse(text.strip(), mode="eval").body
        return find(node.id)() if isinstance(node, ast.Name) else value(node)
    except ProblemError:
        raise
    except (SyntaxError, TypeError, ValueError) as error:
        raise ProblemError(f"{what} {text!r}: expected NAME or NAME(setting=value, ...): {error}") from error


def _signature(cls: type) -> str:
    """The class as one would write it, with the defaults of its settings."""
    parts = []
    for parameter in inspect.signature(cls).parameters.values():
        default = parameter.default
        parts.append(parameter.name if default is parameter.empty else f"{parameter.name}={default!r}")
    return f"{cls.__name__}({', '.join(parts)})"
