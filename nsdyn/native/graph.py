"""Scalar expressions as a graph: equal nodes are one node, constants are folded, and what nobody
asks for is never written.

Nodes live in nested scopes, those of the blocks of the C++ text; a node gets its name in the block
that first asks for its value, and loses it where that block ends.
"""

from typing import Any

import numpy as np

from nsdyn.native.unsupported import Unsupported

FLOAT, INT, SHORT, UNSIGNED, BOOL = "f", "i", "w", "u", "b"
DTYPES: dict[str, np.dtype[Any]] = {
    FLOAT: np.dtype("float64"),
    INT: np.dtype("int64"),
    SHORT: np.dtype("int32"),
    UNSIGNED: np.dtype("uint32"),
    BOOL: np.dtype("bool"),
}
KINDS = {dtype.str: kind for kind, dtype in DTYPES.items()}  # numpy composes names each time
NOTHING = np.dtype([("float0", "V")])  # the type of tangents of integers, which are never used
SUMS = {"add", "sub"}
COMMUTATIVE = {"add", "mul", "max", "min", "and", "or", "xor", "eq", "ne"}


def kind_of(dtype: Any) -> str:
    kind = BOOL if dtype == NOTHING else KINDS.get(getattr(dtype, "str", ""))
    if kind is None:
        raise Unsupported(f"numbers of type {dtype}")
    return kind


class Node:
    """One number. `uniform` if all lanes share it; `name` is its C++ variable once it has one;
    `only_added` as long as other numbers only add it or subtract it."""

    __slots__ = ("args", "const", "kind", "name", "only_added", "op", "uniform")

    def __init__(self, op: str, kind: str, args: tuple, const=None, name=None, uniform=True):
        self.op = op
        self.kind = kind
        self.args = args
        self.const = const
        self.name = name
        self.uniform = uniform
        self.only_added = True
        if op not in SUMS:
            for arg in args:
                arg.only_added = False

    @property
    def known(self) -> bool:
        return self.op == "const"


FOLD = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "max": np.maximum,
    "min": np.minimum,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "neg": np.negative,
    "abs": np.abs,
    "sqrt": np.sqrt,
    "floor": np.floor,
    "ceil": np.ceil,
    "not": np.invert,
    "sign": np.sign,
    "is_finite": np.isfinite,
    "sin": np.sin,
    "cos": np.cos,
    "exp": np.exp,
    "log": np.log,
}


class Graph:
    """Makes nodes. `tables` are those of the open scopes, the innermost last."""

    def __init__(self, lanes: int):
        self.lanes = lanes
        self.tables: list[dict] = [{}]
        self.constants: dict = {}

    def const(self, value: Any, kind: str) -> Node:
        value = DTYPES[kind].type(value)
        key = (kind, value.tobytes())
        node = self.constants.get(key)
        if node is None:
            node = self.constants[key] = Node("const", kind, (), const=value)
        return node

    def integer(self, value: int) -> Node:
        return self.const(value, INT)

    def named(self, name: str, kind: str, uniform: bool) -> Node:
        """A number that the text already holds in a variable."""
        return Node("variable", kind, (), name=name, uniform=uniform or self.lanes == 1)

    def make(self, op: str, kind: str, args: tuple) -> Node:
        found = self._folded(op, kind, args)
        if found is not None:
            return found
        ids = [id(a) for a in args]
        if op in COMMUTATIVE:
            ids.sort()
        key = (op, kind, *ids)
        for table in reversed(self.tables):
            node = table.get(key)
            if node is not None:
                return node
        uniform = all(a.uniform for a in args)
        node = self.tables[-1][key] = Node(op, kind, args, uniform=uniform)
        return node

    def _folded(self, op: str, kind: str, args: tuple) -> Node | None:
        known = [a.const for a in args if a.op == "const"]
        if not known:
            return self._simpler(op, args)
        if len(known) == len(args):
            return self._evaluated(op, kind, args, known)
        rule: Any = IDENTITIES.get(op)
        return None if rule is None else rule(self, kind, *args)

    def _simpler(self, op: str, args: tuple) -> Node | None:
        """Identities without constants."""
        if op == "select":
            cases = args[1:]
            if all(x is cases[0] for x in cases):
                return cases[0]
        elif op in ("neg", "not") and args[0].op == op:
            return args[0].args[0]
        elif op in ("and", "or") and args[0] is args[1]:
            return args[0]
        return None

    def _evaluated(self, op: str, kind: str, args: tuple, known: list) -> Node | None:
        if op == "select":
            which = int(np.clip(int(known[0]), 0, len(args) - 2))
            return args[1 + which]
        if op == "convert":
            return self._converted(known[0], kind)
        if op == "div" and kind != FLOAT:
            return self.const(_quotient(int(known[0]), int(known[1]), kind), kind)
        if op == "rem" and kind != FLOAT:
            a, b = int(known[0]), int(known[1])
            return self.const(a if b == 0 else int(np.fmod(a, b)), kind)
        fold = FOLD.get(op)
        if fold is None:
            return None
        with np.errstate(all="ignore"):
            return self.const(fold(*known), kind)

    def _converted(self, value: Any, kind: str) -> Node | None:
        if kind in (INT, SHORT, UNSIGNED) and not np.isfinite(value):
            return None
        return self.const(np.asarray(value).astype(DTYPES[kind])[()], kind)


def _quotient(a: int, b: int, kind: str) -> int:
    """Towards zero, without the round-off of a division; by zero it has all bits set."""
    if b == 0:
        return int(np.iinfo(np.uint32).max) if kind == UNSIGNED else -1
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _is(node: Node, value) -> bool:
    return node.op == "const" and node.kind != BOOL and node.const == value


def _add(graph: Graph, kind: str, a: Node, b: Node) -> Node | None:
    return b if _is(a, 0) else a if _is(b, 0) else None


def _sub(graph: Graph, kind: str, a: Node, b: Node) -> Node | None:
    return a if _is(b, 0) else graph.make("neg", kind, (b,)) if _is(a, 0) else None


def _mul(graph: Graph, kind: str, a: Node, b: Node) -> Node | None:
    for x, y in ((a, b), (b, a)):
        if _is(x, 0):
            return x
        if _is(x, 1):
            return y
        if _is(x, -1):
            return graph.make("neg", kind, (y,))
        if kind == FLOAT and _is_power(x) and y.op == "mul":
            return _product_of_powers(graph, x, y)
    return None


def _is_power(node: Node) -> bool:
    """Whether it is a power of two near 1, by which products are exact."""
    return node.known and bool(0.25 <= node.const <= 4 and np.frexp(node.const)[0] == 0.5)


def _product_of_powers(graph: Graph, x: Node, y: Node) -> Node | None:
    """x y for powers of two x and y = a b: one product less, as in half of the derivative of a
    square."""
    for a, b in (y.args, y.args[::-1]):
        if _is_power(a):
            return graph.make("mul", FLOAT, (graph.const(x.const * a.const, FLOAT), b))
    return None


def _div(graph: Graph, kind: str, a: Node, b: Node) -> Node | None:
    if _is(b, 1) or _is(a, 0):
        return a
    if b.known and kind == FLOAT and b.const and abs(np.frexp(b.const)[0]) == 0.5:
        return graph.make("mul", kind, (a, graph.const(1.0 / b.const, kind)))  # exact
    return None


def _and(graph: Graph, kind: str, a: Node, b: Node) -> Node | None:
    for x, y in ((a, b), (b, a)):
        if kind == BOOL and x.known:
            return y if x.const else x
    return None


def _or(graph: Graph, kind: str, a: Node, b: Node) -> Node | None:
    for x, y in ((a, b), (b, a)):
        if kind == BOOL and x.known:
            return x if x.const else y
    return None


def _select(graph: Graph, kind: str, which: Node, *cases: Node) -> Node | None:
    if which.known:
        return cases[int(np.clip(int(which.const), 0, len(cases) - 1))]
    if all(x is cases[0] for x in cases):
        return cases[0]
    if kind == BOOL and len(cases) == 2 and all(x.known for x in cases):
        return which if cases[1].const else graph.make("not", BOOL, (which,))
    return None


IDENTITIES = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "and": _and,
    "or": _or,
    "select": _select,
}
