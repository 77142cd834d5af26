"""A digest of the code of functions, so that archived data record the code that produced them.

The digest of a function covers its bytecode, constants, defaults and closure, and the globals it
reads: numbers and arrays by value, functions and classes recursively. Of modules of nsdyn, also
those that a function imports when it is called, it covers what the function names; other modules
count by the text of their file and by everything in them. Docstrings and comments do not count.
Installed libraries are not included, except packages that bring problems, integrators or laws; the
versions of libraries are recorded with the data. So editing a constant or a helper changes the
digest, even in a notebook, which has no file, and editing one integrator changes it only where that
one is used.

Two things of nsdyn are left out: rooms that only check and show (PRESENT), and caches, which are
containers with lower-case names.
"""

import dataclasses
import hashlib
import importlib
import inspect
import sys
import sysconfig
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from nsdyn import _named

OURS = "nsdyn"
PRESENT = (
    "nsdyn.checks",
    "nsdyn.cli",
    "nsdyn.errors",
    "nsdyn.results.netcdf",
    "nsdyn.results.plot",
)
KINDS = ("problems", "integrators", "laws")
LIBRARIES = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib"))


def code_digest(*things: Any) -> str:
    """The digest of all functions in these objects: functions, classes, instances with fields."""
    reader = _Reader()
    for thing in things:
        reader.read(thing)
    return reader.digest.hexdigest()


class _Reader:
    """Walks through objects and feeds them to one digest, each object once."""

    def __init__(self) -> None:
        self.digest = hashlib.sha256()
        self.seen: set[int] = set()
        self.alive: list[Any] = []  # an id is unique only while its object lives

    def read(self, thing: Any) -> None:
        if _is_number(thing):
            self._put(repr(np.asarray(thing).tolist()))
            return
        if isinstance(thing, str | bytes | None):
            self._put(repr(thing))
            return
        if id(thing) in self.seen:
            return
        self.seen.add(id(thing))
        self.alive.append(thing)
        self._read_new(thing)

    def _read_new(self, thing: Any) -> None:
        if isinstance(thing, FunctionType):
            self._read_function(thing)
        elif isinstance(thing, CodeType):
            self._read_code(thing)
        elif isinstance(thing, ModuleType):
            self._read_file(thing)
        elif isinstance(thing, type):
            self._read_class(thing)
        elif isinstance(thing, dict):
            self._read_all(x for key in sorted(thing, key=repr) for x in (repr(key), thing[key]))
        elif isinstance(thing, tuple | list | frozenset | set):
            self._read_all(sorted(thing, key=repr) if isinstance(thing, set | frozenset) else thing)
        elif dataclasses.is_dataclass(thing):
            self.read(type(thing))
            self._read_all(getattr(thing, field.name) for field in dataclasses.fields(thing))
        elif callable(thing):
            self._read_wrapped(thing)

    def _read_all(self, things: Iterable[Any]) -> None:
        for thing in things:
            self.read(thing)

    def _read_function(self, function: FunctionType) -> None:
        if _is_library(function):
            self._put(f"{function.__module__}.{function.__qualname__}")
            return
        code = function.__code__
        self._read_code(code, function.__doc__)
        self._read_all(function.__defaults__ or ())
        self._read_all((function.__kwdefaults__ or {}).values())
        self._read_all(_contents(cell) for cell in function.__closure__ or ())
        names = _names(code)
        for name in sorted(names):
            self._read_global(name, names, function.__globals__)

    def _read_global(self, name: str, names: set[str], known: dict[str, Any]) -> None:
        """What a name in a function stands for: a global, or a module of nsdyn imported inside."""
        found = known.get(name)
        if name not in known and _is_ours(name):
            found = importlib.import_module(name)
        elif name not in known or (_is_ours(known.get("__name__", "")) and _is_cache(name, found)):
            return
        self._put(name)
        if isinstance(found, ModuleType) and _is_ours(found.__name__):
            self._read_names(found, names)
        else:
            self.read(found)

    def _read_names(self, module: ModuleType, names: set[str]) -> None:
        """Those of these names that a module of nsdyn has."""
        for name in sorted(names - {OURS}):
            found = getattr(module, name, None)
            if isinstance(found, ModuleType):
                if _is_ours(found.__name__) and found.__name__.startswith(f"{module.__name__}."):
                    self._read_names(found, names - {name})
            elif found is not None and not _is_cache(name, found):
                self._put(name)
                self.read(found)

    def _read_code(self, code: CodeType, described: str | None = None) -> None:
        self.digest.update(code.co_code)
        self._put(repr(code.co_names))
        told = described is not None and code.co_consts[:1] == (described,)
        self._read_all(code.co_consts[1:] if told else code.co_consts)

    def _read_file(self, module: ModuleType) -> None:
        if _is_library(module):
            self._put(module.__name__)
        elif module.__name__.partition(".")[0] != OURS:
            with suppress(OSError, TypeError):  # no source file; what is in it is read all the same
                self._put(inspect.getsource(module))
            held = {k: v for k, v in vars(module).items() if not k.startswith("__")}
            self._read_all(held[name] for name in sorted(held))

    def _read_class(self, cls: type) -> None:
        if _is_library(cls):
            self._put(f"{cls.__module__}.{cls.__qualname__}")
        else:  # not by its module: a folder may be moved
            self._put(cls.__qualname__)
            methods = {k: v for k, v in vars(cls).items() if _is_written(k, v)}
            self._read_all(_function(methods[name]) for name in sorted(methods))
            self._read_all(base for base in cls.__bases__ if base is not object)

    def _read_wrapped(self, thing: Callable) -> None:
        """Bound methods, partial functions, jitted functions, objects of classes with a call."""
        self.read(type(thing))
        names = ("__func__", "__self__", "__wrapped__", "func", "function", "args", "keywords")
        self._read_all(getattr(thing, name) for name in names if hasattr(thing, name))

    def _put(self, text: str) -> None:
        self.digest.update(text.encode())
        self.digest.update(b"\0")


def _is_number(thing: Any) -> bool:
    if isinstance(thing, bool | int | float | complex | np.generic):
        return True
    return hasattr(thing, "dtype") and hasattr(thing, "shape") and not isinstance(thing, type)


def _is_ours(name: str) -> bool:
    """Whether a module of nsdyn has this name, and computes."""
    return name.partition(".")[0] == OURS and not name.startswith(PRESENT)


def _is_cache(name: str, found: Any) -> bool:
    return isinstance(found, dict | list | set) and not name.isupper()


def _is_written(name: str, found: Any) -> bool:
    """Whether an attribute of a class was written in it, and not made by Python or a decorator."""
    if not name.startswith("__"):
        return name != "_abc_impl"
    return isinstance(found, FunctionType) and not found.__code__.co_filename.startswith("<")


@cache
def _packages() -> frozenset[str]:
    """The installed packages whose code counts."""
    points = (point for kind in KINDS for point in _named.installed(kind).values())
    return frozenset({OURS, *(point.value.partition(".")[0] for point in points)})


def _is_library(thing: Any) -> bool:
    module = thing if isinstance(thing, ModuleType) else sys.modules.get(thing.__module__)
    name = getattr(module, "__name__", "")
    if name.startswith(PRESENT):
        return True
    if name.partition(".")[0] in _packages():
        return False
    file = getattr(module, "__file__", None)
    if file is None:  # built into the interpreter, or a notebook
        return name in sys.builtin_module_names
    return file.startswith(LIBRARIES) or "site-packages" in file


def _names(code: CodeType) -> set[str]:
    """Global names that the code, or a function inside it, reads."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= _names(constant)
    return found


def _function(attribute: Any) -> Any:
    """The function behind a property, a class method or a static method."""
    attribute = getattr(attribute, "fget", attribute)
    return getattr(attribute, "__func__", attribute)


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet filled
        return None
