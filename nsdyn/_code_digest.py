"""A digest of the code of functions, so that archived data record the code that produced them.

It is read as in `nsdyn._digest`, but for keeping: nothing is refused, and only that counts which
the numbers depend on. A function counts by its bytecode, constants, defaults and closure, and by
the globals it reads: numbers and arrays by value, functions and classes recursively. Of modules of
nsdyn, also those that a function imports when it is called, the digest covers what the function
names; other modules count by the text of their file and by everything in them. Docstrings and
comments do not count, nor do names of modules and functions, nor the folder in which files lie.
Installed libraries are not included, except packages that bring problems, integrators or laws; the
versions of libraries are recorded with the data. So editing a constant or a helper changes the
digest, even in a notebook, which has no file, and editing one integrator changes it only where that
one is used.

Two things of nsdyn are left out: what only checks, shows, keeps and sends work to others (ASIDE),
and caches, which are containers with lower-case names.
"""

import dataclasses
import importlib
import inspect
import sys
import sysconfig
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pkgutil import iter_modules
from types import FunctionType, ModuleType
from typing import Any

import numpy as np

from nsdyn import _named
from nsdyn._digest import Reader, is_own

ASIDE = (
    *("nsdyn.checks", "nsdyn.cli", "nsdyn.errors", "nsdyn.results.netcdf", "nsdyn.results.plot"),
    *("nsdyn._cache", "nsdyn._code_digest", "nsdyn._compiler", "nsdyn._digest", "nsdyn._kept"),
    *("nsdyn._watched", "nsdyn.driver.processes", "nsdyn.driver.workers"),
)
KINDS = ("problems", "integrators", "laws")
FOLDERS = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib"))
BUILT_IN, INSTALLED = "builtins", "a library"
# Where objects of libraries keep functions: bound methods, partial and jitted functions.
HELD = ("__func__", "__self__", "__wrapped__", "func", "function", "args", "keywords")


def code_digest(*things: Any) -> str:
    """The digest of all functions in these objects: functions, classes, instances with fields."""
    return CodeReader().digest(things)


class CodeReader(Reader):
    """Reads what can be read of the code, and goes on where there is more."""

    def read(self, thing: Any) -> None:
        if _is_number(thing):
            self.put(repr(np.asarray(thing).tolist()))
        else:
            super().read(thing)

    def library(self, module: str) -> str | None:
        """Names of libraries count, and nothing else of them."""
        if module.startswith(ASIDE):
            return INSTALLED
        if module.partition(".")[0] in _packages():
            return None
        if module in sys.builtin_module_names:
            return BUILT_IN
        file = _file(module)  # a notebook has none
        return INSTALLED if file.startswith(FOLDERS) or "site-packages" in file else None

    def is_pure(self, library: str) -> bool:
        return True

    def title(self, kind: str, module: str, name: str) -> None:
        """Code that is read may be moved to another folder; the class of an object has a name."""
        if self.library(module) is not None:
            self.put(kind, module, name)
        elif kind == "class":
            self.put(kind, name)

    def held(self, thing: Any) -> dict[str, Any]:
        """Without caches of ours."""
        found = super().held(thing)
        if dataclasses.is_dataclass(thing) or not is_own(type(thing).__module__):
            return found
        return {name: x for name, x in found.items() if not _is_cache(name, x)}

    def unknown(self, thing: Any, words: str) -> None:
        """Of what hides something, that which can be seen."""
        if isinstance(thing, ModuleType):
            self._text(thing)
        elif not isinstance(thing, FunctionType | str):
            self.read(type(thing))
            self._mapping({k: getattr(thing, k) for k in HELD if hasattr(thing, k)})

    def _mapping(self, x: Any) -> None:
        super()._mapping({repr(key): x[key] for key in sorted(x, key=repr)})

    def _member(self, kind: str, name: str, scope: dict, names: frozenset) -> None:
        own = is_own(scope.get("__name__", ""))
        if name != "__file__" and not (own and _is_cache(name, scope[name])):
            super()._member(kind, name, scope, names)

    def _imported(self, modules: tuple, names: frozenset) -> None:
        self.trusts, outer = False, self.trusts  # also what our own functions import
        super()._imported(tuple(x for x in modules if self.library(x) is None), names)
        self.trusts = outer

    def _module(self, module: ModuleType, names: frozenset) -> None:
        if self.library(module.__name__) is None and not is_own(module.__name__):
            self.read(module)
        else:
            super()._module(module, names)

    def _members(self, module: ModuleType, names: frozenset) -> None:
        """What a module of ours has under these names, imported or not; modules only if they are
        inside of it."""
        known = vars(module).keys() | set(getattr(module, "__all__", ())) | _inside(module)
        for name in sorted(names & known):
            found = getattr(module, name, None)
            if found is None and name in _inside(module):
                found = importlib.import_module(f"{module.__name__}.{name}")
            within = not isinstance(found, ModuleType) or name in _inside(module)
            if within and found is not None:
                self._member("member", name, {name: found, "__name__": module.__name__}, names)

    def _text(self, module: ModuleType) -> None:
        if is_own(module.__name__):
            return
        with suppress(OSError, TypeError):  # no source file; what is in it is read all the same
            self.put(inspect.getsource(module))
        self._mapping({k: v for k, v in vars(module).items() if not k.startswith("__")})


@cache
def _inside(module: ModuleType) -> frozenset[str]:
    """The modules in a package, imported or not."""
    return frozenset(found.name for found in iter_modules(getattr(module, "__path__", ())))


def _file(module: str) -> str:
    """The file of a module, or of its package if it is not imported yet; empty if there is none."""
    top = module.partition(".")[0]
    loaded = sys.modules.get(module) or sys.modules.get(top)
    if loaded is not None:
        return getattr(loaded, "__file__", None) or ""
    with suppress(ImportError, ValueError):
        return getattr(find_spec(top), "origin", None) or ""
    return ""


def _is_number(thing: Any) -> bool:
    if isinstance(thing, bool | int | float | complex | np.generic):
        return True
    return hasattr(thing, "dtype") and hasattr(thing, "shape") and not isinstance(thing, type)


def _is_cache(name: str, found: Any) -> bool:
    return isinstance(found, dict | list | set) and not name.isupper()


@cache
def _packages() -> frozenset[str]:
    """The installed packages whose code counts."""
    points = (point for kind in KINDS for point in _named.installed(kind).values())
    return frozenset({"nsdyn", *(point.value.partition(".")[0] for point in points)})
