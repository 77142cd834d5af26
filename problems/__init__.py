"""Mechanisms, one per file. A file that defines a function of its own name is a problem; that
function makes it.

problems.three_r_pendulum(L=0.5)                the same as
problems.get("three_r_pendulum", L=0.5)
problems.names(), problems.summary(name)        what there is; nothing is imported for it
problems.from_urdf("arm.urdf")                  the same as
problems.get("from_urdf", path="arm.urdf")      your own robot; not in the list, as it needs a file
"""

import ast
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from importlib.resources import files
from types import ModuleType
from typing import Any

from nsdyn.errors import ProblemError, unknown

IMPORTERS = {"from_urdf": "urdf"}  # functions that make problems from files, and where they are


def names() -> list[str]:
    """All problems, sorted."""
    return sorted(name for name, tree in _sources() if _defines(tree, name))


def get(name: str, **parameters: Any) -> Any:
    """The problem `name` with these parameters."""
    make = function(name)
    try:
        inspect.signature(make).bind(**parameters)
    except TypeError as error:
        known = ", ".join(inspect.signature(make).parameters)
        raise ProblemError(f"problem {name}: {error}; its parameters are {known}") from error
    return make(**parameters)


def function(name: str) -> Callable:
    """The function that makes the problem `name`."""
    known = names()
    if name not in known and name not in IMPORTERS:
        raise unknown("problem", name, [*known, *IMPORTERS])
    return getattr(importlib.import_module(f"{__name__}.{IMPORTERS.get(name, name)}"), name)


def summary(name: str) -> str:
    """The first line of the file's description."""
    return next(
        (_first_line(tree) for found, tree in _sources() if found == IMPORTERS.get(name, name)), ""
    )


def _sources() -> Iterator[tuple[str, ast.Module]]:
    for file in files(__name__).iterdir():
        if file.name.endswith(".py") and file.name != "__init__.py":
            yield file.name.removesuffix(".py"), ast.parse(file.read_text("utf-8"))


def _defines(tree: ast.Module, name: str) -> bool:
    return any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body)


def _first_line(tree: ast.Module) -> str:
    return (ast.get_docstring(tree) or "").partition("\n")[0]


def __getattr__(name: str) -> Callable:
    if not name.startswith("_") and (name in IMPORTERS or name in names()):
        return function(name)
    raise AttributeError(
        f"module {__name__!r} has no attribute {name!r}; its problems are {', '.join(names())}"
    )


def __dir__() -> list[str]:
    return [*globals(), *IMPORTERS, *names()]


class _Package(ModuleType):
    """An import of problems.x binds the module to the name x of this package; people mean the
    function x."""

    def __setattr__(self, name, value):
        if isinstance(value, ModuleType) and callable(getattr(value, name, None)):
            value = getattr(value, name)
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
