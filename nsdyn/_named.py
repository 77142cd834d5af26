"""Things named by a text, "package:name" or "file.py:name": problems, integrators, laws.

A package brings them by an entry point of the group nsdyn.problems, nsdyn.integrators or nsdyn.laws
whose value is a module:

    [project.entry-points."nsdyn.problems"]
    cranks = "cranks.problems"                # then "cranks:slotted" is a problem
"""

import inspect
import traceback
from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any

from nsdyn._user_file import load
from nsdyn.errors import ProblemError, unknown

WANTED = {  # what a file should have in it
    "problems": "a problem is a function that returns nsdyn.Problem(...); if it calls another one "
    "that does, annotate it: -> nsdyn.Problem",
    "integrators": "an integrator is a class derived from nsdyn.AbstractIntegrator or "
    "nsdyn.AbstractSmoothMethod",
    "laws": "a law is a class derived from nsdyn.AbstractLaw",
}


def split(text: str) -> tuple[str, str]:
    """Package or file, and the name in it; the name is empty if a file stands alone."""
    source, colon, name = text.rpartition(":")
    if text.endswith(".py") or not colon:  # a path may contain a colon of its own
        return text, ""
    return source, name


def installed(kind: str) -> dict[str, EntryPoint]:
    """The packages that bring problems, integrators or laws."""
    return {found.name: found for found in entry_points(group=f"nsdyn.{kind}")}


def module_of(kind: str, source: str) -> ModuleType:
    """The module of a file, or of an installed package that brings things of this kind."""
    if source.endswith(".py"):
        return load(source)
    known = installed(kind)
    if source not in known:
        raise _unknown_package(kind, source, known)
    try:
        module = known[source].load()
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise ProblemError(
            f"package {source!r}: {known[source].value} cannot be imported: "
            f"{last.filename}, line {last.lineno}: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(module, ModuleType):
        raise ProblemError(
            f"package {source!r}: expected a module as entry point nsdyn.{kind}, found "
            f"{known[source].value}"
        )
    return module


def _unknown_package(kind: str, source: str, known: dict[str, EntryPoint]) -> ProblemError:
    if known:
        return unknown(f"package with {kind}", source, known)
    return ProblemError(
        f"package {source!r} is not known; no installed package has an entry point nsdyn.{kind}. "
        f"Write {source}.py:NAME for a file"
    )


def public(module: ModuleType) -> dict[str, Any]:
    """What a module shows: the names in its `__all__`; else what it, or a module inside it, has
    defined under a name without underscore."""
    if (listed := getattr(module, "__all__", None)) is not None:
        return {name: getattr(module, name) for name in listed}
    home = module.__name__
    coded = lambda x: inspect.isfunction(x) or inspect.isclass(x)
    own = lambda x: not coded(x) or f"{x.__module__}.".startswith(f"{home}.")
    named = {name: x for name, x in vars(module).items() if not name.startswith("_")}
    return {name: x for name, x in named.items() if own(x) and not isinstance(x, ModuleType)}


def find(kind: str, text: str, belongs: Callable[[Any], bool]) -> Any:
    """What a text names. Without a name, the only thing of this kind in the file."""
    source, name = split(text)
    module = module_of(kind, source)
    known = {key: x for key, x in public(module).items() if belongs(x)}
    if name:
        if not hasattr(module, name):
            raise _missing(kind, source, name, known)
        return getattr(module, name)
    if len(known) != 1:
        listed = ", ".join(f"{source}:{key}" for key in known) or f"none; {WANTED[kind]}"
        raise ProblemError(f"{source}: expected one of its {kind}, found {listed}")
    return next(iter(known.values()))


def _missing(kind: str, source: str, name: str, known: dict[str, Any]) -> ProblemError:
    if known:
        return unknown(f"{source}: {kind.removesuffix('s')}", name, known)
    return ProblemError(f"{source}: {name!r} is not in it, and neither are other {kind}")
