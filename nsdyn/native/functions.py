"""Functions of the C++ text: a large jaxpr that a program calls more than once is written once.

Numbers are passed one by one, arrays as pointers. Constants among the arguments are not passed but
belong to what is written, since much is folded with them: calls with other constants, or with
another pattern of equal arguments, get a function of their own. Nor is passed what the text does
not use, such as the tolerances in a model: the equations of motion would get more of that than of
their own. A function that only rare code calls is compiled like rare code. Sines and cosines of
numbers that are passed are passed, too: one and the same serves several calls, such as the stages
of a step.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from nsdyn.native.graph import Node
from nsdyn.native.uniform import inner_jaxprs
from nsdyn.native.writer import Memory, Storage

# Numbers that a jaxpr computes, from which on it is a function. Smaller ones share much with what
# calls them, sines first of all, and are fewer lines if they are written out there.
LARGE = 2000
# The same for the long steps of error control, which have many stages: written out, they are slower
# (3R pendulum 98 instead of 78 us for a run to 1e-6, four-bar linkage 219 instead of 181).
LARGE_IN_LONG_STEPS = 400
MOST = 64  # numbers that one equation counts for at most
MASK = "mask"
CALLS = ("jit",)
WORD = re.compile(r"\ba\d+\b")  # the name of an argument


class Function:
    """One function: its text, and what it does with its results.

    numbers, arrays: its arguments, as the function sees them. used: the names of those that its
        text uses; no others are passed. angles: which numbers are passed with sine and cosine, and
        the parameters of these.
    parameters: those of the mask and of results, in front of and behind the arguments.
    callers: who calls it: other functions or None for the program, and whether from rare code.
    """

    def __init__(self, name: str):
        self.name = name
        self.lines: list[str] = []
        self.parameters: tuple[list[str], list[str]] = [], []
        self.results: list = []
        self.numbers: list[Node] = []
        self.arrays: list[Storage] = []
        self.used: set[str] = set()
        self.angles: dict[int, list[str]] = {}
        self.callers: list[tuple[Function | None, bool]] = []

    @property
    def is_cold(self) -> bool:
        return all(rare or (by is not None and by.is_cold) for by, rare in self.callers)

    def sine_and_cosine(self, inner: Any, angle: Node) -> tuple[str, str] | None:
        """Their names, if the angle is one of the numbers that are passed."""
        place = next((k for k, node in enumerate(self.numbers) if node is angle), None)
        if place is None:
            return None
        names = inner.name("a"), inner.name("a")
        type_ = inner.type(angle.kind, angle.uniform)
        self.angles[place] = [f"const {type_} {name}" for name in names]
        return names

    def written(self, inner: Any) -> None:
        """Take over the text, and see which arguments it uses."""
        self.lines = inner.lines
        self.used = {word for line in self.lines for word in WORD.findall(line)}
        type_ = lambda x: inner.type(x.kind, x.uniform)
        front = self.parameters[0]
        front += [f"const {type_(x)} {x.name}" for x in self.passed(self.numbers, self.numbers)]
        front += [f"const {type_(x)} *{x.name}" for x in self.passed(self.arrays, self.arrays)]

    def passed(self, own: Sequence[Any], items: Sequence[Any]) -> list[Any]:
        """Those of the items, arguments of a call, that belong to arguments of its `own` that the
        text uses."""
        return [item for x, item in zip(own, items, strict=True) if x.name in self.used]

    @property
    def text(self) -> str:
        kind = "static COLD" if self.is_cold else "static __attribute__((noinline))"
        front, back = self.parameters
        angles = [text for pair in self.angles.values() for text in pair]
        parameters = ", ".join(["char *work", *front, *back, *angles])
        return "\n".join([f"{kind} void {self.name}({parameters})", "{", *self.lines, "}", ""])


class Arguments:
    """The arguments of a call, taken apart into what is passed and what is known.

    key: what a function must have been made for to serve this call.
    """

    def __init__(self, values: Sequence[Any], masked: bool):
        self.values = values
        self.numbers: list[Node] = []  # passed one by one
        self.arrays: list[Storage] = []
        self.places: dict[int, int] = {}  # of numbers and arrays, by their ids
        self.key = (masked, *(self._pattern(value) for value in values))

    def _pattern(self, value: Any) -> tuple:
        if isinstance(value, Memory):
            storage = value.storage
            return self._place(self.arrays, storage), value.shape, storage.kind, storage.uniform
        return (value.shape, *(self._number(node) for node in value.ravel()))

    def _number(self, node: Node) -> tuple:
        if node.known:
            return node.kind, node.const.tobytes()
        return self._place(self.numbers, node), node.kind, node.uniform

    def _place(self, passed: list, item: Any) -> int:
        if id(item) not in self.places:
            self.places[id(item)] = len(passed)
            passed.append(item)
        return self.places[id(item)]

    def inside(self, inner: Any, value: Any, numbers: list, arrays: list) -> Any:
        """An argument as the function sees it, given all that is passed."""
        if isinstance(value, Memory):
            return Memory(arrays[self.places[id(value.storage)]], value.shape)
        out = np.empty(value.size, object)
        out[:] = [
            inner.graph.const(node.const, node.kind)
            if node.known
            else numbers[self.places[id(node)]]
            for node in value.ravel()
        ]
        return out.reshape(value.shape)


class Signature:
    """Which arguments a jaxpr reads, and which it only hands back: result number -> argument."""

    def __init__(self, jaxpr: Any):
        read = {id(x) for equation in jaxpr.eqns for x in equation.invars}
        self.reads = [id(x) in read for x in jaxpr.invars]
        place = {id(x): k for k, x in enumerate(jaxpr.invars)}
        self.handed = {j: place[id(x)] for j, x in enumerate(jaxpr.outvars) if id(x) in place}


class Functions:
    """The functions of a program: jaxprs that are called more than once and are large."""

    def __init__(self, jaxpr: Any, in_long_steps: bool = False):
        self.large = LARGE_IN_LONG_STEPS if in_long_steps else LARGE
        self.made: dict[tuple, Function] = {}
        self.order: list[Function] = []
        self.count = 0
        self.weights: dict[int, int] = {}
        self.kept: list = []  # so that no other object gets the id of one of these
        self.calls: Counter = Counter()
        self._count(jaxpr)

    def _count(self, jaxpr: Any) -> int:
        """The numbers that a jaxpr computes; counts calls on the way."""
        key = id(jaxpr)
        if key not in self.weights:
            self.kept.append(jaxpr)
            self.weights[key] = sum(self._weight(equation) for equation in jaxpr.eqns)
        return self.weights[key]

    def _weight(self, equation: Any) -> int:
        inner = list(inner_jaxprs(equation))
        if equation.primitive.name in CALLS:
            self.calls[id(inner[0])] += 1
        own = sum(min(math.prod(v.aval.shape), MOST) for v in equation.outvars)
        return sum(map(self._count, inner)) if inner else own

    def wants(self, jaxpr: Any) -> bool:
        return self.calls[id(jaxpr)] > 1 and self.weights[id(jaxpr)] >= self.large

    @property
    def text(self) -> str:
        return "".join(function.text for function in self.order)

    def call(self, lower: Any, closed: Any, values: Sequence[Any]) -> list[Any]:
        """The results of a call. Arguments that are not read are no part of it, so that calls that
        differ in them alone share a function."""
        signature = Signature(closed.jaxpr)
        read = [v for v, flag in zip(values, signature.reads, strict=True) if flag]
        lower.together(read)
        args = Arguments(read, lower.mask is not None)
        key = (id(closed.jaxpr), *map(id, closed.consts), args.key)
        function = self.made.get(key)
        if function is None:
            function = self.made[key] = self._written(lower, closed, args, signature)
            self.kept.append(closed)
        function.callers.append((lower.function, lower.is_rare))
        found = iter(_called(lower, function, args))
        handed = signature.handed
        return [
            values[handed[j]] if j in handed else next(found)
            for j in range(len(closed.jaxpr.outvars))
        ]

    def _written(self, lower: Any, closed: Any, args: Arguments, signature: Signature) -> Function:
        self.count += 1
        function = Function(f"f{self.count}")
        inner = lower.beside(function)
        masked = lower.mask is not None
        if masked:
            inner.mask = MASK
            function.parameters[0].append(f"const vl {MASK}")
        numbers, arrays = function.numbers, function.arrays
        for node in args.numbers:
            numbers.append(inner.graph.named(inner.name("a"), node.kind, node.uniform))
        for known in args.arrays:
            name = inner.name("a")
            storage = Storage(name, known.size, known.kind, known.uniform, inner.mask, False)
            arrays.append(storage)
        own = iter([args.inside(inner, value, numbers, arrays) for value in args.values])
        blank = lambda x: np.empty(x.aval.shape, object)
        given = zip(closed.jaxpr.invars, signature.reads, strict=True)
        every = inner.closed(closed, [next(own) if flag else blank(x) for x, flag in given])
        found = [value for j, value in enumerate(every) if j not in signature.handed]
        inner.together(found)
        places = {id(item): k for passed in (numbers, arrays) for k, item in enumerate(passed)}
        function.results = [_result(inner, function, value, places) for value in found]
        function.written(inner)
        lower.returned(inner)
        self.order.append(function)
        return function


def _result(inner: Any, function: Function, value: Any, places: dict) -> tuple:
    """Write a result to where the caller wants it, and say what it is: (shape, what, in memory).
    Numbers are constants, the places of arguments, or (kind, uniform); what is in memory is the
    place of an argument or (size, kind, uniform)."""
    if isinstance(value, Memory):
        storage = value.storage
        if id(storage) in places:
            return value.shape, places[id(storage)], True
        name = inner.name("o")
        function.parameters[1].append(f"{inner.type(storage.kind, storage.uniform)} *{name}")
        target = Storage(name, value.size, storage.kind, storage.uniform, inner.mask)
        inner.copy(target, storage, value.size)
        return value.shape, (value.size, storage.kind, storage.uniform), True
    entries: list = []
    for node in value.ravel():
        if node.known:
            entries.append(node)
        elif id(node) in places:
            entries.append(places[id(node)])
        else:
            name = inner.name("o")
            text = inner.value(node)
            function.parameters[1].append(f"{inner.type(node.kind, node.uniform)} &{name}")
            inner.line(f"{name} = {text};")
            entries.append((node.kind, node.uniform))
    return value.shape, entries, False


def _called(lower: Any, function: Function, args: Arguments) -> list[Any]:
    """The results of a call, or of an equal call before it."""
    if function.passed(function.arrays, args.arrays):  # which may have changed since
        return _call_text(lower, function, args)
    key = (function.name, *map(id, args.numbers))
    for table in reversed(lower.graph.tables):
        if key in table:
            return table[key][0]
    found = _call_text(lower, function, args)
    if not any(isinstance(value, Memory) for value in found):
        lower.graph.tables[-1][key] = found, args.numbers
    return found


def _call_text(lower: Any, function: Function, args: Arguments) -> list[Any]:
    """Write the call, and return its results."""
    passed = [lower.mask] if lower.mask is not None else []
    passed += [lower.value(node) for node in function.passed(function.numbers, args.numbers)]
    passed += [storage.name for storage in function.passed(function.arrays, args.arrays)]
    found: list[Any] = []
    for shape, what, in_memory in function.results:
        if in_memory:
            if isinstance(what, int):
                found.append(Memory(args.arrays[what], shape))
                continue
            storage = lower.storage(*what)
            passed.append(storage.name)
            found.append(Memory(storage, shape))
            continue
        out = np.empty(len(what), object)
        for k, entry in enumerate(what):
            if isinstance(entry, Node):
                out[k] = lower.graph.const(entry.const, entry.kind)
            elif isinstance(entry, int):
                out[k] = args.numbers[entry]
            else:
                kind, uniform = entry
                name = lower.name("o")
                lower.line(f"{lower.type(kind, uniform)} {name};")
                passed.append(name)
                out[k] = lower.graph.named(name, kind, uniform)
        found.append(out.reshape(shape))
    passed += _sines_and_cosines(lower, [args.numbers[k] for k in function.angles])
    lower.line(f"{function.name}({', '.join(['work', *passed])});")
    return found


def _sines_and_cosines(lower: Any, angles: Sequence[Node]) -> list[str]:
    """The names of both for each angle."""
    make = lower.graph.make
    nodes = [make(name, angle.kind, (angle,)) for angle in angles for name in ("sin", "cos")]
    lower.angles(nodes)
    return [lower.value(node) for node in nodes]
