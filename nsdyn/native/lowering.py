"""Equations of a jaxpr, one after the other.

The value of a variable is either an array of nodes (small: every entry an expression of its own) or
`Memory`. A primitive is a function (lowering, equation, *values) -> value or list of values, found
in the table PRIMITIVES. What an equation uses for the last time is released before it is lowered,
so that it may write over it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from jax.extend import core

from nsdyn.native.functions import Function, Functions
from nsdyn.native.graph import INT, NOTHING, Node, kind_of
from nsdyn.native.indexed import Indexed
from nsdyn.native.uniform import Uniform
from nsdyn.native.unsupported import Unsupported
from nsdyn.native.writer import Memory, Storage, Writer

SMALL = 200  # entries at most of an array that is taken apart

FEW = 12  # entries at most that come from memory one by one
PERIOD = 16  # entries at most after which a repetition is noticed

Value = Any  # np.ndarray of nodes, or Memory
PRIMITIVES: dict[str, Callable] = {}


def primitive(*names: str) -> Callable:
    def enter(function: Callable) -> Callable:
        PRIMITIVES.update(dict.fromkeys(names, function))
        return function

    return enter


class Lowering(Writer):
    """A writer that understands jaxprs.

    functions: those of the program. function: the one that is being written, None for the program
        itself. is_rare: whether the code here runs seldom.
    """

    def __init__(self, lanes: int, functions: Functions):
        super().__init__(lanes)
        self.spilled: list[tuple[Any, Memory]] = []
        self.last_uses: dict[int, tuple] = {}
        self.uniform = Uniform()
        self.indexed = Indexed()
        self.functions = functions
        self.function: Function | None = None
        self.is_rare = False

    def beside(self, function: Function) -> "Lowering":
        """A writer for a function that this one calls."""
        inner = Lowering(self.lanes, self.functions)
        inner.last_uses = self.last_uses
        inner.uniform = self.uniform
        inner.indexed = self.indexed
        inner.function = function
        inner.work, inner.stack = self.work, self.stack
        return inner

    def returned(self, inner: "Lowering") -> None:
        """Go on behind the memory of a function."""
        self.work, self.stack = inner.work, inner.stack

    # Equations

    def closed(self, closed, args: Sequence[Value]) -> list[Value]:
        return self.run(closed.jaxpr, [self.known(c) for c in closed.consts], args)

    def run(self, jaxpr, consts: Sequence[Value], args: Sequence[Value]) -> list[Value]:
        last = self._last_use(jaxpr)
        values: dict = {}

        def bind(variable, value):
            values[variable] = value
            if isinstance(value, Memory):
                value.storage.refs += 1

        def release(variable):
            value = values.pop(variable, None)
            if isinstance(value, Memory):
                value.storage.refs -= 1

        for variable, value in zip(
            [*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True
        ):
            bind(variable, value)
        read = lambda x: self.known(x.val) if isinstance(x, core.Literal) else values[x]
        for number, equation in enumerate(jaxpr.eqns):
            inputs = [read(x) for x in equation.invars]
            for variable in last.get(number, ()):
                release(variable)
            outputs = self.equation(equation, inputs)
            for variable, value in zip(equation.outvars, outputs, strict=True):
                bind(variable, value)
        outputs = [read(x) for x in jaxpr.outvars]
        for variable in list(values):
            release(variable)
        return outputs

    def equation(self, equation, inputs: list[Value]) -> list[Value]:
        name = equation.primitive.name
        lower = PRIMITIVES.get(name)
        if lower is None:
            raise Unsupported(f"the primitive {name}")
        found = lower(self, equation, *inputs)
        found = found if isinstance(found, list) else [found]
        for value, variable in zip(found, equation.outvars, strict=True):
            assert value.shape == variable.aval.shape, (name, value.shape, variable.aval)
        return found

    def _last_use(self, jaxpr) -> dict[int, list]:
        """The variables that each equation uses for the last time."""
        key = id(jaxpr)
        if key not in self.last_uses:
            place: dict = {}
            for number, equation in enumerate(jaxpr.eqns):
                for x in equation.invars:
                    if not isinstance(x, core.Literal):
                        place[x] = number
            for x in jaxpr.outvars:
                if not isinstance(x, core.Literal):
                    place.pop(x, None)
            ends: dict[int, list] = {}
            for x, number in place.items():
                ends.setdefault(number, []).append(x)
            self.last_uses[key] = ends, jaxpr
        return self.last_uses[key][0]

    def _known_trig(self, node: Node) -> tuple[str, str] | None:
        """As in a writer; the caller of a function computes them for what it passes, unless they
        belong to a branch or loop, which may not run."""
        known = super()._known_trig(node)
        if known is None and self.function is not None and len(self.graph.tables) == 1:
            known = self.function.sine_and_cosine(self, node.args[0])
            if known is not None:
                self.graph.tables[0]["trig", id(node.args[0])] = known
        return known

    # Arrays

    def loops(self, size: int, *values: Value) -> bool:
        """Whether an array of so many entries made from these is computed by a loop: a large one,
        and one that comes from memory and has no constants in it."""
        if size > SMALL:
            return True
        if size <= FEW:
            return False
        large = [v for v in values if v.size > 1]
        if not any(isinstance(v, Memory) for v in large):
            return False
        return not any(n.known for v in large if isinstance(v, np.ndarray) for n in v.ravel())

    def known(self, x: Any) -> Value:
        """A constant."""
        kind = kind_of(x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype)
        x = np.zeros(x.shape, bool) if getattr(x, "dtype", None) == NOTHING else np.asarray(x)
        out = np.empty(x.size, object)
        out[:] = [self.graph.const(v, kind) for v in x.ravel()]
        out = out.reshape(x.shape)
        return out if x.size <= SMALL else self.in_memory(out, kind)

    def nodes(self, value: Value) -> np.ndarray:
        """The entries of an array as an array of nodes."""
        if isinstance(value, np.ndarray):
            return value
        out = np.empty(value.size, object)
        integer = self.graph.integer
        out[:] = [self.load(value.storage, integer(k)) for k in range(value.size)]
        return out.reshape(value.shape)

    def together(self, values: Sequence[Value]) -> None:
        """All these are about to be written: begin with the sines and cosines that they need."""
        self.angles([n for v in values if isinstance(v, np.ndarray) for n in v.ravel()])

    def in_memory(self, value: Value, kind: str, fresh: bool = False) -> Memory:
        """The array in memory; one of its own, to write into, if `fresh`."""
        if isinstance(value, Memory):
            if not fresh:
                return value
            storage = self.storage(value.size, kind, value.storage.uniform)
            self.copy(storage, value.storage, value.size)
            return Memory(storage, value.shape)
        if not fresh:
            for array, memory in self.spilled:
                if array is value:
                    return memory
        flat = value.ravel().tolist()
        storage = self._spilled(flat, kind, fresh)
        memory = Memory(storage, value.shape)
        if not fresh:
            storage.writable = False
            self.spilled.append((value, memory))
        return memory

    def _spilled(self, flat: list[Node], kind: str, fresh: bool) -> Storage:
        """Numbers in memory."""
        period = _period(flat)
        if not fresh and period == len(flat) > 1 and all(node.known for node in flat):
            name = self.name("t")
            text = ", ".join(self.value(node) for node in flat)
            self.line(f"static const {self.type(kind, True)} {name}[] = {{{text}}};")
            return Storage(name, len(flat), kind, True, self.mask, writable=False)
        storage = self.storage(len(flat), kind, all(node.uniform for node in flat))
        lanes = not storage.uniform
        self.angles(flat[:period])
        for k, node in enumerate(flat[:period]):
            self.line(f"{storage.name}[{k}] = {self.value(node, lanes)};")
        if period < len(flat):
            self.line(
                f"for (i8 k = {period}; k < {len(flat)}; k++) "
                f"{storage.name}[k] = {storage.name}[k - {period}];"
            )
        return storage

    @contextmanager
    def block(self, mask: str | None = None) -> Iterator[list[str]]:
        outer = len(self.spilled)
        with super().block(mask) as lines:
            yield lines
        del self.spilled[outer:]

    def flat_index(self, shape: Sequence[int], index: Sequence[Node]) -> Node:
        total = self.graph.integer(0)
        stride = 1
        for n, i in zip(reversed(shape), reversed(list(index)), strict=True):
            step = self.graph.make("mul", INT, (i, self.graph.integer(stride)))
            total = self.graph.make("add", INT, (step, total))
            stride *= n
        return total

    def at(self, value: Value, index: Sequence[Node], kind: str) -> Node:
        """One entry, at an index that may not be known."""
        if isinstance(value, np.ndarray):
            if all(i.known for i in index):
                return value[tuple(int(i.const) for i in index)]
            if value.size == 1:
                return value.ravel()[0]
            value = self.in_memory(value, kind)
        return self.load(value.storage, self.flat_index(value.shape, index))

    def filled(
        self,
        shape: Sequence[int],
        kind: str,
        entry: Callable[[list[Node]], Node],
        loops: bool | None = None,
    ) -> Value:
        """An array whose entries are a function of their index: in memory, by `loops`, or nodes."""
        size = math.prod(shape)
        if not (size > SMALL if loops is None else loops):
            out = np.empty(size, object)
            integer = self.graph.integer
            out[:] = [entry([integer(i) for i in index]) for index in np.ndindex(*shape)]
            return out.reshape(shape)
        counters = [self.name("i") for _ in shape]
        with self.block() as inside:
            index = [self.graph.named(c, INT, True) for c in counters]
            node = entry(index)
            place = self.value(self.flat_index(shape, index))
            value = self.value(node)
        storage = self.storage(size, kind, node.uniform)
        heads = " ".join(
            f"for (i8 {c} = 0; {c} < {n}; {c}++)" for c, n in zip(counters, shape, strict=True)
        )
        self.line(f"{heads} {{")
        self.lines += inside
        self.line(f"{storage.name}[{place}] = {value}; }}")
        return Memory(storage, tuple(shape))


def kind_out(equation, number: int = 0) -> str:
    return kind_of(equation.outvars[number].aval.dtype)


def kind_in(equation, number: int = 0) -> str:
    return kind_of(equation.invars[number].aval.dtype)


def _period(flat: list[Node]) -> int:
    """After how many entries a list repeats itself, if it does so soon."""
    for period in range(1, min(len(flat) // 2, PERIOD) + 1):
        if all(a is b for a, b in zip(flat, flat[period:], strict=False)):
            return period
    return len(flat)
