"""From a Python function of arrays to a callable library.

    program = translate(function, examples, own, lanes)
    results = program(arrays)

Arguments that are `own` have one more, leading, axis: the lanes. All results have it, too, if there
is more than one lane; results that all lanes share are repeated.
"""

import ctypes
import gc
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import numpy as np

from nsdyn.native import control, elementwise, reductions
from nsdyn.native.build import kept_library, library, name_of
from nsdyn.native.functions import Functions
from nsdyn.native.graph import BOOL, FLOAT, INT, SHORT, UNSIGNED, kind_of
from nsdyn.native.lowering import Lowering, Value
from nsdyn.native.prelude import prelude
from nsdyn.native.unsupported import Unsupported
from nsdyn.native.writer import NARROW, Memory, Storage

TABLES = (control, elementwise, reductions)  # their import fills PRIMITIVES
AXIS = "lanes"  # the name of the lanes in `jax.lax.pmin` and the like
# Lines of a program; beyond, XLA compiles faster. 74,000 lines of eight lanes take 4 CPU seconds
# quickly and 18 well.
LONGEST = 200_000
LOADED = 16  # entries at most of an argument that is read at once
RAW = {BOOL: "unsigned char", SHORT: "int", UNSIGNED: "unsigned", INT: "i8", FLOAT: "double"}


class Interface(NamedTuple):
    """What the caller of a program must know: shapes and types of arguments and results in one
    lane, and the bytes of memory that a call needs."""

    lanes: int
    inputs: list
    outputs: list
    work: int


class Source:
    """The text of a program, and its interface. If events are `rare`, the compiler does not
    optimise the code for them."""

    def __init__(self, jaxpr: Any, own: Sequence[bool], lanes: int, rare: bool = False):
        inputs = [(v.aval.shape, np.dtype(v.aval.dtype)) for v in jaxpr.jaxpr.invars]
        outputs = [(v.shape, np.dtype(v.dtype)) for v in jaxpr.out_avals]
        functions = Functions(jaxpr.jaxpr, in_long_steps=lanes == 1 and not rare)
        lower = Lowering(lanes, functions)
        args = [
            _argument(lower, k, v.aval, flag or lanes == 1)
            for k, (v, flag) in enumerate(zip(jaxpr.jaxpr.invars, _shared(own, lanes), strict=True))
        ]
        results = lower.closed(jaxpr, args)
        lower.together(results)
        for k, (value, (_, dtype)) in enumerate(zip(results, outputs, strict=True)):
            _result(lower, k, value, kind_of(dtype))
        self.interface = Interface(lanes, inputs, outputs, lower.work)
        lines = len(lower.lines) + sum(len(function.lines) for function in functions.order)
        if lines > LONGEST:
            raise Unsupported(f"a program of {lines} lines, which takes long to compile")
        head = 'extern "C" void program(const void *const *in, void *const *out, char *work)\n{\n'
        start = prelude(lanes, rare)
        self.text = start + functions.text + head + "\n".join(lower.lines) + "\n}\n"

    def program(self, quick: bool = False) -> "Program":
        """The program, compiled quickly or well."""
        return Program(self.interface, library(self.text, quick), name_of(self.text, quick))


def _shared(own: Sequence[bool], lanes: int) -> list[bool]:
    return [lanes == 1 or not flag for flag in own]


def _argument(lower: Lowering, number: int, aval, shared: bool) -> Value:
    """An argument: small ones are read into variables, large ones of lanes are put in order."""
    kind, raw = kind_of(aval.dtype), RAW[kind_of(aval.dtype)]
    size = math.prod(aval.shape)
    name = lower.name("a")
    lower.line(f"const {raw} *const {name} = (const {raw} *)in[{number}];")
    if shared and size > LOADED and kind not in NARROW:
        type_ = lower.type(kind, True)
        lower.line(f"const {type_} *const {name}_ = (const {type_} *){name};")
        storage = Storage(f"{name}_", size, kind, True, None, writable=False)
        return Memory(storage, aval.shape)
    read = (
        (lambda k: f"{name}[{k}]") if shared else (lambda k: _lanes_of(lower, name, k, size, kind))
    )
    if size > LOADED:
        storage = lower.storage(size, kind, shared)
        lower.line(f"for (i8 k = 0; k < {size}; k++) {storage.name}[k] = {read('k')};")
        return Memory(storage, aval.shape)
    out = np.empty(size, object)
    out[:] = [lower.variable(kind, shared, read(k)) for k in range(size)]
    return out.reshape(aval.shape)


def _lanes_of(lower: Lowering, name: str, k, size: int, kind: str) -> str:
    minus = "-(i8)" if kind == BOOL else ""
    entries = ", ".join(f"{minus}{name}[{l * size} + {k}]" for l in range(lower.lanes))
    return f"({lower.type(kind, False)}){{{entries}}}"


def _result(lower: Lowering, number: int, value: Value, kind: str) -> None:
    """Write a result to its place; one copy for each lane."""
    raw, size = RAW[kind], value.size
    name = lower.name("r")
    lower.line(f"{raw} *const {name} = ({raw} *)out[{number}];")

    def write(place: str, text: str, uniform: bool) -> str:
        if lower.lanes == 1:
            return f"{name}[{place}] = {text};"
        bit = " & 1" if kind == BOOL else ""
        entry = text if uniform else f"{text}[l]"
        return f"for (int l = 0; l < L; l++) {name}[l * {size} + {place}] = {entry}{bit};"

    if isinstance(value, Memory):
        text = write("k", f"{value.storage.name}[k]", value.storage.uniform)
        lower.line(f"for (i8 k = 0; k < {size}; k++) {text}")
        return
    for k, node in enumerate(value.ravel()):
        lower.line(write(str(k), lower.value(node), node.uniform))


class Program:
    """A loaded program: numpy arrays in, numpy arrays out. Several threads may call it.

    function: what was compiled. layout: shapes, types and offsets of the results in memory, which
        takes so many `bytes`. name: that of its library in the cache.
    """

    def __init__(self, interface: Interface, loaded: ctypes.CDLL, name: str):
        self.interface = interface
        self.name = name
        function = loaded.program
        function.argtypes = [ctypes.c_void_p] * 3
        function.restype = None
        self.function = function
        front = () if interface.lanes == 1 else (interface.lanes,)
        self._inputs = [dtype for _, dtype in interface.inputs]
        self.layout, offsets, total = [], [], 0
        for shape, dtype in interface.outputs:
            whole = (*front, *shape)
            self.layout.append((whole, dtype, total))
            offsets.append(total)
            total += -(-math.prod(whole) * dtype.itemsize // 64) * 64
        self._offsets = np.array(offsets, np.uint64)
        self.bytes = total
        self._local = threading.local()

    def _work(self) -> np.ndarray:
        """Memory that a call needs; each thread keeps its own."""
        work = getattr(self._local, "work", None)
        if work is None:
            work = self._local.work = np.empty(self.interface.work + 64, np.uint8)
        return work

    def __call__(self, arrays: Sequence[Any]) -> list[np.ndarray]:
        held = [np.ascontiguousarray(x, t) for x, t in zip(arrays, self._inputs, strict=True)]
        places = np.array([x.__array_interface__["data"][0] for x in held], np.uint64)
        out = np.empty(self.bytes + 64, np.uint8)
        at = lambda x: x.__array_interface__["data"][0]
        targets = self._offsets + np.uint64(at(out))
        self.function(at(places), at(targets), -(-at(self._work()) // 64) * 64)
        return [np.ndarray(shape, t, out, k) for shape, t, k in self.layout]


def traced(function: Callable, examples: Sequence[Any], lanes: int) -> tuple[Any, Any]:
    """The jaxpr of a function for one lane, and the structure of its result."""
    axes = [(AXIS, lanes)] if lanes > 1 else []
    jaxpr, shapes = jax.make_jaxpr(function, axis_env=axes, return_shape=True)(*examples)
    return jaxpr, jax.tree.structure(shapes)


@contextmanager
def _without_collection() -> Iterator[None]:
    """Tracing makes many objects, and nearly all are still needed: looking for garbage among them
    is in vain."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def written(
    function: Callable,
    examples: Sequence[Any],
    own: Sequence[bool] | None = None,
    lanes: int = 1,
    rare: bool = False,
) -> Source:
    """The text of a function of arrays that returns a list of arrays; `examples` have the shapes
    and types of one lane. Raises Unsupported."""
    own = [True] * len(examples) if own is None else own
    with _without_collection():
        jaxpr, _ = traced(function, examples, lanes)
        return Source(jaxpr, own, lanes, rare)


def translate(
    function: Callable, examples: Sequence[Any], own: Sequence[bool] | None = None, lanes: int = 1
) -> Program:
    """The same as a program, compiled well."""
    return written(function, examples, own, lanes).program()


def reloaded(interface: Interface, name: str) -> Program | None:
    """A program that was made before, if its library is still in the cache."""
    loaded = kept_library(name)
    return None if loaded is None else Program(interface, loaded, name)


__all__ = ["AXIS", "Interface", "Program", "Source", "reloaded", "traced", "translate", "written"]
