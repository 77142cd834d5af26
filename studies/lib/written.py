"""Integrators and laws from texts: Restitution(e=0.5), my.py:Fading(rate=2), EventDriven(RK4)."""

import ast
import inspect
import re
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from nsdyn.errors import ProblemError, unknown

if TYPE_CHECKING:  # slow to import
    import nsdyn

# file.py:Name, also with a folder in front of it, or package:Name
ELSEWHERE = re.compile(r"(?:[^\s(),=:'\"][^(),=:'\"]*\.py|(?<![\w.])\w+):[A-Za-z_]\w*")


def integrators() -> dict[str, type]:
    """The integrators of nsdyn by name."""
    from nsdyn import integrators as found

    return {name: getattr(found, name) for name in found.__all__}


def laws() -> dict[str, type]:
    """The laws of nsdyn by name."""
    from nsdyn import laws as found

    public = {name: getattr(found, name) for name in found.__all__}
    classes = {name: c for name, c in public.items() if isinstance(c, type)}
    whole = {name: c for name, c in classes.items() if not inspect.isabstract(c)}
    return {name: c for name, c in whole.items() if issubclass(c, found.AbstractLaw)}


def law(text: str) -> "nsdyn.laws.AbstractLaw":
    """The law that a text describes."""
    from nsdyn.laws import AbstractLaw

    return parse_object("law", text, laws(), (AbstractLaw,))


def integrator(text: str) -> "nsdyn.AbstractIntegrator":
    """The integrator that a text describes. A smooth method that cannot run alone gets a driver."""
    from nsdyn.stepping.integrator import AbstractIntegrator, AbstractSmoothMethod, as_integrator

    known = integrators()
    made = parse_object("integrator", text, known, (AbstractIntegrator, AbstractSmoothMethod))
    return known["EventDriven"](made) if as_integrator(made) is None else made


def parse_object(what: str, text: str, known: dict[str, type], base: tuple[type, ...] = ()) -> Any:
    """The object described by a text such as Restitution(e=0.5). Calls may be nested; an unknown
    word is a string. Classes derived from one of `base` may be in a file or an installed
    package: my.py:Fading(rate=2)."""
    from nsdyn.numerics.newton import Newton  # here: the command line shows its help without it

    found: list[type] = []

    def placeholder(match: re.Match) -> str:
        found.append(_class_elsewhere(what, match[0], base))
        return f"elsewhere_{len(found) - 1}"

    plain = ELSEWHERE.sub(placeholder, text.strip()) if base else text.strip()
    inside = {"Newton": Newton} | known | {f"elsewhere_{i}": cls for i, cls in enumerate(found)}
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
        why = error.msg if isinstance(error, SyntaxError) else error
        raise ProblemError(
            f"{what} {text!r}: expected NAME or NAME(setting=value, ...): {why}"
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
    known = inspect.signature(cls).parameters
    try:
        inspect.signature(cls).bind(*arguments, **settings)
    except TypeError as error:
        needed = [name for name, x in known.items() if x.default is x.empty]
        example = f"{cls.__name__}({', '.join(f'{name}=...' for name in needed)})"
        hint = f". Write {example}" if needed else ""
        given = ", ".join([*map(repr, arguments), *(f"{k}={x!r}" for k, x in settings.items())])
        title = f"{cls.__name__}({given})"
        title = title if folder is None else f"{defined_at(cls)}: {cls.__name__}"
        raise ProblemError(
            f"{title}: {error}; its settings are {', '.join(known) or 'none'}{hint}"
        ) from error
    with nullcontext() if folder is None else faults_in(folder):
        return cls(*arguments, **settings)
