"""Parsing of command-line arguments: NAME=VALUE, NAME=LOW:HIGH:N, 2e-2,1e-2; and the way back."""

import ast
import dataclasses
import inspect
import shlex
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import typer

from nsdyn.errors import ProblemError

if TYPE_CHECKING:  # slow to import
    import numpy as np

    import nsdyn


def parse_settings(texts: Iterable[str]) -> dict[str, Any]:
    """NAME=VALUE: numbers, tuples and lists as in Python; anything else is a string."""
    found: dict[str, Any] = {}
    for text in texts:
        name, value = _assignment("--set", text, "NAME=VALUE")
        try:
            found[name] = ast.literal_eval(value)
        except (SyntaxError, ValueError):
            found[name] = value
    return found


def parse_steps(text: str) -> list[float]:
    """One step, or several with commas between them."""
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ProblemError(f"--step: expected a number or 2e-2,1e-2,5e-3, found {text!r}") from None


def _assignment(option: str, text: str, form: str) -> tuple[str, str]:
    name, equals, value = (part.strip() for part in text.partition("="))
    if not (name and equals and value):
        raise ProblemError(f"{option}: expected {form}, found {text!r}")
    return name, value


def parse_samples(
    problem: "nsdyn.Problem", texts: Iterable[str], random: int, latin: int, seed: int
) -> dict[str, Any]:
    """The arguments of `nsdyn.sweep` for NAME=LOW:HIGH:N, all combinations of the ranges, or, if
    there is a number of random or Latin samples, for NAME=LOW:HIGH."""
    from nsdyn import samples  # here: the command line shows its help without it

    if random and latin:
        raise ProblemError("--random and --latin: expected one of the two, found both")
    if not random and not latin:
        return samples.grid(problem, _parsed(texts, "NAME=LOW:HIGH:N", _points))
    ranges = _parsed(texts, "NAME=LOW:HIGH", _ends)
    if random:
        return samples.random(problem, ranges, random, seed=seed)
    return samples.latin_hypercube(problem, ranges, latin, seed=seed)


def _parsed(texts: Iterable[str], form: str, parse: Callable[[str], Any]) -> dict[str, Any]:
    found = {}
    for text in texts:
        name, value = _assignment("--vary", text, form)
        if name in found:
            raise ProblemError(f"--vary: expected one range for {name}, found another: {text!r}")
        try:
            found[name] = parse(value)
        except ValueError:
            raise ProblemError(f"--vary: expected {form}, found {text!r}") from None
    if not found:
        raise ProblemError(f"--vary: expected at least one {form}")
    return found


def _ends(text: str) -> tuple[float, float]:
    low, high = text.split(":")
    return float(low), float(high)


def _points(text: str) -> "np.ndarray":
    import numpy as np

    low, high, count = text.split(":")
    if int(count) < 1:
        raise ValueError(count)
    return np.linspace(float(low), float(high), int(count))


def signature(cls: type) -> str:
    """The call that creates an object of the class, with the defaults of its settings."""
    fields = dataclasses.fields(cls)
    made = {x.name: x.default_factory for x in fields if callable(x.default_factory)}
    parts = []
    for parameter in inspect.signature(cls).parameters.values():
        default = parameter.default
        if parameter.name in made:
            default = made[parameter.name]()
        parts.append(
            parameter.name if default is parameter.empty else f"{parameter.name}={default!r}"
        )
    return f"{cls.__name__}({', '.join(parts)})"


def made_by(context: typer.Context) -> dict[str, Any]:
    """What files that a command writes say of themselves: the command, versions, commit, date."""
    from nsdyn.studies.lib import archive  # slow to import

    return {"command": command_line(context), **archive.provenance()}


def command_line(context: typer.Context) -> str:
    """The command that is being carried out, as one would type it."""
    words = ["nsdyn", context.info_name or ""]
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if source is None or source.name != "COMMANDLINE":
            continue
        value = context.params[name]
        values = value if isinstance(value, list | tuple) else [value]
        if parameter.param_type_name == "argument":
            words += map(str, values)
        elif isinstance(value, bool):
            words += parameter.opts[:1] if value else parameter.secondary_opts[:1]
        else:
            words += [word for x in values for word in (parameter.opts[0], str(x))]
    return shlex.join(words)
