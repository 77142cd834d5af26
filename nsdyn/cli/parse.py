"""Parsing of command-line arguments: NAME=VALUE, NAME=LOW:HIGH:N, Restitution(e=0.5),
my.py:Fading(rate=2)."""

import ast
import inspect
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from nsdyn.errors import ProblemError, unknown

if TYPE_CHECKING:  # slow to import
    import numpy as np

    import nsdyn

# file.py:Name, also with a folder in front of it, or package:Name
ELSEWHERE = re.compile(r"(?:[^\s(),=:'\"][^(),=:'\"]*\.py|(?<![\w.])\w+):[A-Za-z_]\w*")


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


def parse_object(what: str, text: str, known: dict[str, type], base: tuple[type, ...] = ()) -> Any:
    """The object described by a text such as Restitution(e=0.5). Calls may be nested; an unknown
    word is a string. Classes derived from one of `base` may be in a file or an installed
    package: my.py:Fading(rate=2)."""
    from nsdyn.numerics.newton import Newton  # here: the command line shows its help without JAX

    found: list[type] = []

    def placeholder(match: re.Match) -> str:
        found.append(_class_elsewhere(what, match[0], base))
        return f"elsewhere_{len(found) - 1}"

    plain = ELSEWHERE.sub(placeholder, text.strip()) if base else text.strip()
    inside = known | {"Newton": Newton} | {f"elsewhere_{i}": cls for i, cls in enumerate(found)}
    short = {name.lower(): name for name in inside}

    def find(name: str) -> type:
        if name.lower() not in short:
            raise unknown(what, name, known)
        return inside[short[name.lower()]]

    def value(node: ast.expr) -> Any:
        match node:
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                settings = {k.arg: value(k.value) for k in keywords if k.arg}
                return _made(find(name), [value(x) for x in args], settings)
            case ast.Name(id=name):
                return _made(find(name), [], {}) if name.lower() in short else name
        return ast.literal_eval(node)

    try:
        node = ast.parse(plain, mode="eval").body
        return _made(find(node.id), [], {}) if isinstance(node, ast.Name) else value(node)
    except ProblemError:
        raise
    except (SyntaxError, TypeError, ValueError) as error:
        raise ProblemError(
            f"{what} {text!r}: expected NAME or NAME(setting=value, ...): {error}"
        ) from error


def _class_elsewhere(what: str, text: str, base: tuple[type, ...]) -> type:
    """The class in a file or a package that a text names."""
    from nsdyn import _named
    from nsdyn._user_file import defined_at

    belongs = lambda x: isinstance(x, type) and issubclass(x, base)
    cls = _named.find(f"{what}s", text, belongs)
    if not belongs(cls):
        names = " or ".join(f"nsdyn.{each.__name__}" for each in base)
        place = defined_at(cls) or text
        raise ProblemError(f"{place}: expected a class derived from {names}, found {cls!r}")
    return cls


def _made(cls: type, arguments: list, settings: dict[str, Any]) -> Any:
    """An object of a class; errors in a user's file name file and line."""
    from nsdyn._user_file import defined_at, faults_in, folder_of

    folder = folder_of(cls)
    if folder is None:
        return cls(*arguments, **settings)
    try:
        inspect.signature(cls).bind(*arguments, **settings)
    except TypeError as error:
        known = ", ".join(inspect.signature(cls).parameters) or "none"
        raise ProblemError(
            f"{defined_at(cls)}: {cls.__name__}: {error}; its settings are {known}"
        ) from error
    with faults_in(folder):
        return cls(*arguments, **settings)


def signature(cls: type) -> str:
    """The call that creates an object of the class, with the defaults of its settings."""
    parts = []
    for parameter in inspect.signature(cls).parameters.values():
        default = parameter.default
        parts.append(
            parameter.name if default is parameter.empty else f"{parameter.name}={default!r}"
        )
    return f"{cls.__name__}({', '.join(parts)})"
