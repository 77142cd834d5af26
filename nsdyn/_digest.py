"""A digest of everything that a traced program depends on, so that a program compiled in another
process can serve without being traced again.

    digest("some words", function, Traced(arguments))

A function counts by its bytecode, constants, defaults and closure, and by the globals it reads:
numbers and arrays by value, functions, classes and modules as far as their names occur in the
bytecode, recursively. An object counts by its class and its state. In a `Traced` pytree arrays
count by shape and type alone; what is static in it counts by value. Libraries count by version.

What is read is what was loaded, not files: an edited global is noticed, an edited file that was not
loaded again is not. Where anything cannot be read in full (state inside compiled extensions, code
that asks the world outside while it is traced), `Unknown` is raised: then there is no digest, and
the caller must do its work.
"""

import abc
import collections
import dataclasses
import dis
import enum
import functools
import hashlib
import importlib
import importlib.metadata
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.tree_util import default_registry

from nsdyn._digest_graph import Graph

# Pure as far as tracing goes, and told apart by their versions.
LIBRARIES = ("jax", "jaxlib", "equinox", "jaxtyping", "numpy", "scipy")
PURE = {"abc", "cmath", "collections", "contextlib", "dataclasses", "enum", "fractions"} | {
    "functools", "itertools", "math", "numbers", "operator", "types", "typing", "warnings"
}  # fmt: skip
# Names in users' functions through which anything may come in.
OPEN = {"__import__", "compile", "delattr", "eval", "exec", "getattr", "globals", "input"} | {
    "locals", "open", "setattr", "vars", "__dict__", "__getattribute__", "__getattr__",
    "attrgetter", "methodcaller",
}  # fmt: skip
IMPURE_NUMPY = {"random", "load", "loadtxt", "genfromtxt", "fromfile", "memmap"}
OWN = Path(__file__).resolve().parent
BESIDE = ("integrators", "problems")  # in a source tree
ASIDE = ("nsdyn._digest", "nsdyn._watched")  # take no part in what is traced, and have memories
PASSED_OVER = {"__dict__", "__weakref__", "__doc__", "__module__", "__qualname__"} | {
    "__annotations__", "__dataclass_fields__", "__dataclass_params__", "__match_args__",
    "__abstractmethods__", "_abc_impl", "__parameters__", "__orig_bases__", "__slots__",
    "__annotate__", "__annotate_func__", "__annotations_cache__", "__firstlineno__",
    "__static_attributes__", "__slotnames__", "__wrapped__",
}  # fmt: skip
PLAIN = (str, bytes, bool, int, float, complex, type(None), type(Ellipsis), type(NotImplemented))
GENERATED = "<string>"  # the file of methods that dataclasses write


class Pair(typing.NamedTuple):
    """An example of its kind."""

    first: Any


class Unknown(Exception):
    """Something that a digest cannot cover."""


@dataclasses.dataclass(frozen=True)
class Traced:
    """A pytree whose arrays count by shape and type."""

    tree: Any


@dataclasses.dataclass(frozen=True)
class Code:
    """A pytree whose arrays do not count."""

    tree: Any


def digest(*things: Any, shallow: bool = False) -> str:
    """The digest of these things, or Unknown. If `shallow`, our own code counts by its names alone,
    for comparisons inside one process."""
    try:
        return Reader(shallow).digest([_world(), *things])
    except Unknown:
        raise
    except Exception as error:  # whatever foreign objects do when they are looked at
        raise Unknown(repr(error)) from error


def _world() -> tuple:
    """What every traced program depends on: versions, settings of JAX, and our own text."""
    # Not where JAX keeps its programs.
    settings = {k: repr(v) for k, v in jax.config.values.items() if "cache" not in k}
    return sys.version, _versions(), tuple(sorted(settings.items())), _own_text()


@functools.cache
def _versions() -> tuple:
    return tuple((name, importlib.metadata.version(name)) for name in LIBRARIES)


@functools.cache
def _own_text() -> str:
    """The digest of the text of this package: modules that are imported when they are needed."""
    found = hashlib.sha256()
    beside = [OWN.parent / name for name in BESIDE]
    for folder in (OWN, *beside):
        for file in sorted(folder.rglob("*.py")) if (folder / "__init__.py").exists() else ():
            found.update(file.name.encode() + file.read_bytes())
    return found.hexdigest()


class Reader:
    """Walks through objects and writes them into a graph, each object once."""

    def __init__(self, shallow: bool = False) -> None:
        self.shallow = shallow  # whether our own code counts by its names alone
        self.graph = Graph()
        self.put = self.graph.put
        self.queue: list[tuple[int, bool, Callable[[], None]]] = []  # nodes to be written
        self.alive: list[Any] = []  # an id is unique only while its object lives
        self.trusts = False  # whether what is read belongs to our own code

    def digest(self, things: Iterable[Any]) -> str:
        self.all(things)
        while self.queue:
            self.graph.here, self.trusts, write = self.queue.pop()
            write()
        return self.graph.hexdigest()

    def all(self, things: Iterable[Any]) -> None:
        things = list(things)
        self.put("(", len(things))
        for thing in things:
            self.read(thing)

    def read(self, thing: Any) -> None:
        if type(thing) in PLAIN:
            self.put(type(thing).__name__, repr(thing))
            return
        self.alive.append(thing)
        self.node(id(thing), lambda: self.write(thing))

    def node(self, key: Any, write: Callable[[], None]) -> None:
        """A node of its own, written later: what is ours may name more than others may."""
        place = self.graph.link((key, self.trusts))
        if place is not None:
            self.queue.append((place, self.trusts, write))

    def write(self, thing: Any) -> None:
        reader = READERS.get(type(thing))
        if reader is not None:
            getattr(self, reader)(thing)
        elif isinstance(thing, type):
            self._class(thing)
        else:
            self._object(thing)

    # What is read how; a reader for another purpose may differ here

    def library(self, module: str) -> str | None:
        """The library, or the part of Python, that a module belongs to; None for other code."""
        return _library(module)

    def is_pure(self, library: str) -> bool:
        """Whether a library is told by its version, and asks nothing while it is traced."""
        return library in LIBRARIES or library in PURE

    def title(self, kind: str, module: str, name: str) -> None:
        """What a function or a class is called."""
        self.put(kind, module, name)

    def held(self, thing: Any) -> dict[str, Any]:
        """The attributes of an object."""
        return dict(getattr(thing, "__dict__", {}))

    def unknown(self, thing: Any, words: str) -> None:
        """Something that cannot be read in full."""
        raise Unknown(words)

    def refuse(self, thing: Any, words: str) -> None:
        """Something from outside, which our own code may name: it does not ask it while traced."""
        if not self.trusts:
            self.unknown(thing, words)

    # Numbers and containers

    def _array(self, x: Any) -> None:
        if x.dtype.hasobject:
            self.unknown(x, "an array of objects")
            return
        x = np.asarray(x)
        self.put("array", x.dtype.str, x.shape)
        self.graph.put_bytes(np.ascontiguousarray(x).tobytes())

    def _jax_array(self, x: Any) -> None:
        if isinstance(x, jax.core.Tracer) or jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended):
            self.unknown(x, f"{x}")
            return
        self.put("weak" if x.weak_type else "strong", x.dtype)
        self._array(np.asarray(x))

    def _sequence(self, x: Any) -> None:
        self.put(type(x).__name__)
        self.all(x)

    def _mapping(self, x: Any) -> None:
        self.put("mapping", type(x).__name__)
        self.all(k for pair in x.items() for k in pair)

    def _set(self, x: Any) -> None:
        self.put("set", *sorted(type(self)().digest([item]) for item in x))

    def _traced(self, x: Traced) -> None:
        self._tree(x.tree, lambda array: self.put("traced", array.dtype, array.shape))

    def _only_code(self, x: Code) -> None:
        self._tree(x.tree, lambda array: None)

    def _tree(self, x: Any, look: Callable) -> None:
        if isinstance(x, jax.Array | np.ndarray):
            look(x)
            return
        level = default_registry.flatten_one_level(x)
        if level is None or type(x) in PLAIN:
            self.read(x)
            return
        if not isinstance(x, eqx.Module | tuple | list | dict):
            self.unknown(x, f"the pytree {type(x)}")
            return
        children, static = list(level[0]), level[1]
        self.put("tree", len(children))
        self.read(type(x))
        self.read(static)
        for child in children:
            self._tree(child, look)

    # Code

    def _function(self, f: types.FunctionType) -> None:
        module = f.__globals__.get("__name__", "")
        library = self.library(module)
        self.title("function", module, f.__qualname__)
        if module in ASIDE or (self.shallow and _is_core(module) and not f.__closure__):
            return
        if library is None:
            code, names, imported = _code(f.__code__, f.__doc__)
            self.put(code)
            if not (self.shallow and _is_core(module)):
                self._globals(f, names, imported)
        elif not self.is_pure(library):
            self.refuse(f, f"{module}.{f.__qualname__}")
            return
        outer, self.trusts = self.trusts, is_own(module)
        self.all((f.__defaults__, f.__kwdefaults__))
        self.trusts = outer
        self.all(_contents(cell) for cell in f.__closure__ or ())
        if library is None:
            held = {k: v for k, v in f.__dict__.items() if k not in PASSED_OVER}
            self._mapping(held)

    def _globals(self, f: types.FunctionType, names: frozenset, imported: tuple) -> None:
        outer, self.trusts = self.trusts, is_own(f.__globals__.get("__name__", ""))
        if names & OPEN and not self.trusts:
            self.unknown(f, f"{f.__qualname__} uses {', '.join(sorted(names & OPEN))}")
        self._imported(imported, names)
        for name in sorted(names & f.__globals__.keys()):
            self._member("global", name, f.__globals__, names)
        self.trusts = outer

    def _imported(self, modules: tuple, names: frozenset) -> None:
        """Modules that a function imports when it is called. Our own text counts anyway."""
        for name in () if self.trusts else modules:
            try:
                module = importlib.import_module(name)
            except Exception as error:
                self.unknown(name, f"import {name}: {error}")
            else:
                self._module(module, names)

    def _member(self, kind: str, name: str, scope: dict, names: frozenset) -> None:
        """What a name stands for in a module, of which code may use what bears `names`."""
        thing = scope[name]
        self.put(kind, name)
        if isinstance(thing, types.ModuleType):
            self._module(thing, names)
        else:
            self.read(thing)

    def _module(self, module: types.ModuleType, names: frozenset) -> None:
        """A module, of which code may use what bears one of these names."""
        self.put("module", module.__name__)
        library = self.library(module.__name__)
        if library is not None:
            if not self.is_pure(library) or (library == "numpy" and names & IMPURE_NUMPY):
                self.refuse(module, f"the module {module.__name__}")
            return
        self.node((id(module), names), lambda: self._members(module, names))

    def _members(self, module: types.ModuleType, names: frozenset) -> None:
        for name in sorted(names & vars(module).keys()):
            self._member("member", name, vars(module), names)

    def _held_module(self, module: types.ModuleType) -> None:
        """A module as an argument or in a list: anything in it may be used."""
        library = self.library(module.__name__)
        self.title("module", module.__name__, "")
        if library is None or not self.is_pure(library) or (library == "numpy" and not self.trusts):
            self.unknown(module, f"the module {module.__name__}")

    def _class(self, cls: type) -> None:
        self.title("class", cls.__module__, cls.__qualname__)
        library = self.library(cls.__module__)
        if library is not None:
            pure = self.is_pure(library) or library == "builtins"
            if "<locals>" in cls.__qualname__ or not pure:
                self.refuse(cls, f"{cls}")
            return
        if self.shallow and _is_core(cls.__module__):
            return
        self.read(type(cls))
        self.all(cls.__bases__)
        for name in sorted(vars(cls)):
            if name not in PASSED_OVER:
                self._attribute(name, vars(cls)[name])
        fields = vars(cls).get("__dataclass_fields__", {})
        for field in fields.values():
            missing = dataclasses.MISSING
            default = None if field.default is missing else field.default
            factory = None if field.default_factory is missing else field.default_factory
            self.all((field.name, field.init, default, factory, dict(field.metadata)))

    def _attribute(self, name: str, thing: Any) -> None:
        self.put("attribute", name)
        if isinstance(thing, types.FunctionType) and thing.__code__.co_filename == GENERATED:
            self.put(_code(thing.__code__)[0])  # its globals are the types of the fields
            return
        if isinstance(thing, types.MemberDescriptorType | types.GetSetDescriptorType):
            return  # a slot
        if type(thing) is type(Pair.first):
            return  # a field, which `_fields` names
        self.read(thing)

    # Objects

    def _object(self, thing: Any) -> None:
        if isinstance(thing, jax.Array):
            self._jax_array(thing)
            return
        cls = type(thing)
        if self._by_name(thing):
            return
        if isinstance(thing, enum.Enum):
            self.put("enum", thing.name)
            self.read(cls)
            self.read(thing.value)
            return
        if isinstance(thing, np.dtype) and not thing.hasobject:
            self.put("dtype", thing.descr)
            return
        if isinstance(thing, np.generic):
            self.put(type(thing).__name__, thing.dtype.str)
            self.graph.put_bytes(thing.tobytes())
            return
        if cls.__module__.startswith("jaxlib") and hasattr(thing, "__wrapped__"):
            self._jitted(thing.__wrapped__)
            return
        if cls.__module__ == "typing" or cls in (types.GenericAlias, types.UnionType):
            self.put("type", repr(thing))
            return
        self._state(thing)

    def _jitted(self, f: Any) -> None:
        """A function under `jax.jit`. JAX may have traced it already: then what it reads from
        outside may have been edited since, unseen."""
        self.put("jitted")
        plain = isinstance(f, types.FunctionType)
        module = f.__globals__.get("__name__", "") if plain else ""
        if not plain or not (_library(module) or is_own(module)):
            known = lambda x: _library(getattr(x, "__module__", None) or x.__name__) is not None
            names = _code(f.__code__)[1] & f.__globals__.keys() if plain else ()
            if not plain or f.__closure__ or not all(known(f.__globals__[k]) for k in names):
                self.unknown(f, f"{f} under jax.jit, which reads more than its arguments")
        self.read(f)

    def _by_name(self, thing: Any) -> bool:
        """Something that a library offers under a name."""
        module = getattr(thing, "__module__", None)
        name = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", None)
        if not isinstance(module, str) or not isinstance(name, str):
            return False
        library = self.library(module)
        if library is None or not (self.is_pure(library) or library == "builtins"):
            return False
        if getattr(sys.modules.get(module), name, None) is not thing:
            return False
        self.put("named", module, name)
        return True

    def _state(self, thing: Any) -> None:
        """An object of a class that is written in Python: the class and what the object holds."""
        cls = type(thing)
        for base in cls.__mro__:
            library = _library(base.__module__)
            inside = library in ("jaxlib", "numpy", "scipy") or library not in (None, *LIBRARIES)
            known = base in STATELESS or base.__module__ == "collections.abc"
            if (inside and not known) or (library is None and not _is_python(base)):
                self.unknown(thing, f"an object of {cls}")
                return
        self.put("object")
        self.read(cls)
        if isinstance(thing, tuple):
            self.all(thing)
        self._mapping(self.held(thing))
        slots = [name for base in cls.__mro__ for name in _slots(base)]
        self._mapping({k: getattr(thing, k) for k in slots if hasattr(thing, k)})

    def _parts(self, thing: Any) -> None:
        """Something that is told by these attributes."""
        self.put(type(thing).__name__)
        self.all(getattr(thing, name) for name in PARTS[type(thing)])

    def _builtin(self, f: Any) -> None:
        owner = f.__self__
        if not isinstance(owner, types.ModuleType | type | None):
            self.unknown(f, f"{f}")
            return
        name = owner.__module__ if isinstance(owner, type) else f.__module__ or "builtins"
        library = _library(name)
        if library not in ("builtins", *LIBRARIES) and library not in PURE | {"_operator"}:
            self.refuse(f, f"{f}")
        self.put("builtin", name, f.__qualname__)

    def _descriptor(self, thing: Any) -> None:
        self.put("descriptor", thing.__name__)
        self.read(thing.__objclass__)

    def _signature(self, thing: inspect.Signature) -> None:
        self.put("signature", *thing.parameters)  # of a function that is read too

    def _structure(self, thing: jax.tree_util.PyTreeDef) -> None:
        self.put("structure", thing.num_leaves)
        self.all(thing.node_data() or ())
        self.all(thing.children())

    def _written(self, thing: Any) -> None:
        self.put(type(thing).__name__, thing)


STATELESS = (object, tuple, abc.ABC, typing.Generic, typing.Protocol)
PARTS: dict[type, tuple[str, ...]] = {
    types.SimpleNamespace: ("__dict__",),
    types.MethodType: ("__func__", "__self__"),
    functools.partial: ("func", "args", "keywords"),
    functools._lru_cache_wrapper: ("__wrapped__",),
    functools.cached_property: ("func",),
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    slice: ("start", "stop", "step"),
    re.Pattern: ("pattern", "flags"),
}
READERS: dict[type, str] = {
    **dict.fromkeys(PARTS, "_parts"),
    **dict.fromkeys((tuple, list), "_sequence"),
    **dict.fromkeys((dict, types.MappingProxyType, collections.OrderedDict), "_mapping"),
    **dict.fromkeys((set, frozenset), "_set"),
    **dict.fromkeys((types.MethodDescriptorType, types.WrapperDescriptorType), "_descriptor"),
    **dict.fromkeys((range, np.ufunc), "_written"),
    np.ndarray: "_array",
    types.ModuleType: "_held_module",
    Traced: "_traced",
    Code: "_only_code",
    types.FunctionType: "_function",
    types.BuiltinFunctionType: "_builtin",
    inspect.Signature: "_signature",
    jax.tree_util.PyTreeDef: "_structure",
}


_codes: dict[int, tuple] = {}


def _code(code: types.CodeType, about: str | None = None) -> tuple[str, frozenset, tuple]:
    """The digest of a code object, the names in it and the modules that it imports. `about` is the
    docstring, which does not count."""
    found = _codes.get(id(code))
    if found is None:
        found = _codes[id(code)] = (*_read_code(code, about), code)
    return found[:3]


def _read_code(code: types.CodeType, about: str | None) -> tuple[str, frozenset, tuple]:
    reader = Reader()
    names, imported = set(code.co_names), list(_imports(code))
    reader.put(code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars)
    reader.put(code.co_cellvars, code.co_flags, code.co_argcount, code.co_kwonlyargcount)
    reader.put(code.co_posonlyargcount, getattr(code, "co_exceptiontable", b"").hex())
    constants: list[Any] = []
    told = about is not None and code.co_consts[:1] == (about,)
    for constant in code.co_consts[told:]:
        if isinstance(constant, types.CodeType):
            inner = _code(constant)
            constants.append(inner[0])
            names |= inner[1]
            imported += inner[2]
        else:
            constants.append(constant)
    return reader.digest(constants), frozenset(names), tuple(imported)


def _imports(code: types.CodeType) -> Iterable[str]:
    if dis.opmap["IMPORT_NAME"] not in code.co_code[::2]:
        return
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            yield step.argval


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not yet filled
        return None


def _is_python(cls: type) -> bool:
    """Whether a class is written in Python, so that its objects keep nothing out of sight."""
    inside = (types.GetSetDescriptorType, types.ClassMethodDescriptorType)
    held = {k: v for k, v in vars(cls).items() if k not in ("__dict__", "__weakref__")}
    if any(isinstance(v, inside) or _is_inner(v, cls) for v in held.values()):
        return False
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return file is None or file.endswith((".py", ".pyc"))


def _is_inner(thing: Any, cls: type) -> bool:
    """Whether this is a compiled method of the class itself."""
    kinds = (types.MethodDescriptorType, types.WrapperDescriptorType)
    return isinstance(thing, kinds) and thing.__objclass__ is cls


def _slots(cls: type) -> tuple:
    slots = vars(cls).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


@functools.cache
def _library(module: str) -> str | None:
    """The library, or the part of Python, that a module belongs to; None for other code."""
    top = module.partition(".")[0]
    if top in LIBRARIES or top in sys.stdlib_module_names:
        return top if top != "__main__" else None
    return None


def _is_core(module: str) -> bool:
    """Whether a module belongs to our own code, problems and studies excepted."""
    top, _, rest = module.partition(".")
    return top == "nsdyn" and rest.partition(".")[0] not in ("problems", "studies")


def is_own(module: str) -> bool:
    return str(module).partition(".")[0] == "nsdyn"
