"""Parsing of command-line arguments: NAME=VALUE, NAME=LOW:HIGH:N, 2e-2,1e-2; and the way back."""

import ast
import inspect
import shlex
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer

from nsdyn.errors import ProblemError, unknown

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


def parse_ranges(texts: Iterable[str]) -> "dict[str, np.ndarray]":
    """NAME=LOW:HIGH:N: all combinations of the ranges, as one vector per name."""
    import numpy as np  # here: the command line shows its help without it

    found = {}
    for text in texts:
        name, value = _assignment("--vary", text, "NAME=LOW:HIGH:N")
        try:
            low, high, count = value.split(":")
            found[name] = np.linspace(float(low), float(high), int(count))
        except ValueError:
            raise ProblemError(f"--vary: expected NAME=LOW:HIGH:N, found {text!r}") from None
    if not found:
        raise ProblemError("--vary: expected at least one NAME=LOW:HIGH:N")
    grid = np.meshgrid(*found.values(), indexing="ij")
    return {name: values.ravel() for name, values in zip(found, grid, strict=True)}


def sweep_arguments(problem: "nsdyn.Problem", values: "dict[str, np.ndarray]") -> dict[str, Any]:
    """The arguments of `nsdyn.sweep` that give the named parameters (m, locks[0], q0[1], ...) these
    values."""
    import numpy as np

    own = dict(problem.params) if isinstance(problem.params, dict) else {}
    known = {**own, "q0": problem.q0, "v0": problem.v0}
    found: dict[str, Any] = {}
    for name, x in values.items():
        key, bracket, index = name.partition("[")
        if key not in known:
            raise unknown(f"--vary: parameter of {problem.name}", key, known)
        array = found.setdefault(
            key, np.repeat(np.asarray(known[key], float)[None], len(x), axis=0)
        )
        try:
            place = (slice(None), int(index.rstrip("]"))) if bracket else (slice(None),)
            if array[place].ndim != 1:
                raise IndexError(f"expected an index; {key} has shape {array.shape[1:]}")
            array[place] = x
        except (IndexError, ValueError) as error:
            raise ProblemError(f"--vary {name}: {error}") from error
    start = {key: found.pop(key) for key in ("q0", "v0") if key in found}
    return start | ({"params": own | found} if own else {})


def signature(cls: type) -> str:
    """The call that creates an object of the class, with the defaults of its settings."""
    parts = []
    for parameter in inspect.signature(cls).parameters.values():
        default = parameter.default
        parts.append(
            parameter.name if default is parameter.empty else f"{parameter.name}={default!r}"
        )
    return f"{cls.__name__}({', '.join(parts)})"


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
