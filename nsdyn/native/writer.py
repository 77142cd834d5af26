"""C++ text: nested blocks, a variable for every node that is asked for, and storage for arrays."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from nsdyn.native.graph import BOOL, FLOAT, INT, SHORT, SUMS, UNSIGNED, Graph, Node
from nsdyn.native.prelude import PACK
from nsdyn.native.unsupported import Unsupported

ON_STACK = 4096  # bytes of an array at most that lives on the stack
STACK = 1 << 18  # bytes of all of them
ALIGN = 64
SCALAR_TYPES = {FLOAT: "double", INT: "i8", SHORT: "i8", UNSIGNED: "i8", BOOL: "bool"}
VECTOR_TYPES = {FLOAT: "vd", INT: "vl", SHORT: "vl", UNSIGNED: "vl", BOOL: "vl"}
NARROW = {SHORT: "short_", UNSIGNED: "word_"}  # what keeps the bits of these
INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "eq": "==",
    "ne": "!=",
    "and": "&",
    "or": "|",
    "xor": "^",
}
CALLS = {
    "max": "max_",
    "min": "min_",
    "abs": "abs_",
    "sqrt": "sqrt_",
    "floor": "floor_",
    "ceil": "ceil_",
    "round": "round_",
    "even": "even_",
    "sign": "sign_",
    "is_finite": "finite_",
    "rem": "rem_",
    "shift_left": "shl_",
    "shift_right_logical": "shr_",
    "shift_right_arithmetic": "sar_",
    "bits": "bits_",
    "of_bits": "of_bits_",
    **{
        name: name
        for name in [
            "tan",
            "asin",
            "acos",
            "atan",
            "sinh",
            "cosh",
            "tanh",
            "asinh",
            "acosh",
            "atanh",
            "exp",
            "exp2",
            "expm1",
            "log",
            "log1p",
            "cbrt",
            "erf",
            "erfc",
            "atan2",
            "pow",
            "nextafter",
        ]
    },
}


class Storage:
    """An array in memory: a C++ pointer. `refs` counts the variables of open jaxprs that hold it;
    one that nobody holds may be written over. `mask` is that of the block it was made in."""

    def __init__(self, name: str, size: int, kind: str, uniform: bool, mask, writable=True):
        self.name = name
        self.size = size
        self.kind = kind
        self.uniform = uniform
        self.mask = mask
        self.writable = writable
        self.refs = 0


class Memory:
    """An array in memory, row by row."""

    def __init__(self, storage: Storage, shape: tuple):
        self.storage = storage
        self.shape = tuple(shape)
        self.size = math.prod(shape)


class Writer:
    """The text of one function."""

    def __init__(self, lanes: int):
        self.lanes = lanes
        self.graph = Graph(lanes)
        self.lines: list[str] = []
        self.named: list[list[Node]] = [[]]
        self.mask: str | None = None  # variable with the lanes that take part; None for all
        self.count = 100  # so that no name is that of a type
        self.work = 0  # bytes of memory that the function needs
        self.stack = 0  # bytes of arrays on the stack

    # Blocks

    def name(self, letter: str = "x") -> str:
        self.count += 1
        return f"{letter}{self.count}"

    def line(self, text: str) -> None:
        self.lines.append(text)

    @contextmanager
    def block(self, mask: str | None = None) -> Iterator[list[str]]:
        """Text that the caller puts into its place; names given inside end with it."""
        outer, outer_mask = self.lines, self.mask
        inner: list[str] = []
        self.lines = inner
        self.mask = outer_mask if mask is None else mask
        self.graph.tables.append({})
        self.named.append([])
        try:
            yield inner
        finally:
            self.lines, self.mask = outer, outer_mask
            self.graph.tables.pop()
            for node in self.named.pop():
                node.name = None

    # Numbers

    def type(self, kind: str, uniform: bool) -> str:
        return (SCALAR_TYPES if uniform or self.lanes == 1 else VECTOR_TYPES)[kind]

    def variable(self, kind: str, uniform: bool, text: str) -> Node:
        """A new variable with this value."""
        name = self.name()
        self.line(f"const {self.type(kind, uniform)} {name} = {text};")
        return self.graph.named(name, kind, uniform)

    def value(self, root: Node, lanes: bool = False) -> str:
        """The text of a number; as a vector if `lanes`."""
        if root.op != "const" and root.name is None:
            self.angles([root])
            self._write_tree(root)
        text = literal(root) if root.op == "const" else root.name
        return f"S({text})" if lanes and root.uniform and self.lanes > 1 else text

    def _write_tree(self, root: Node) -> None:
        """Write a number, after all that it needs."""
        stack = [root]
        while stack:
            node = stack[-1]
            if node.op == "const" or node.name is not None:
                stack.pop()
                continue
            waiting = [a for a in terms(node) if a.op != "const" and a.name is None]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            self._write(node)

    def _write(self, node: Node) -> None:
        type_ = self.type(node.kind, node.uniform)
        lanes = not node.uniform
        args = [self.value(a, lanes) for a in terms(node)]
        if node.op in ("sin", "cos"):
            node.name = self._trig(node, args[0], type_)
        else:
            node.name = self.name()
            self.line(f"const {type_} {node.name} = {operation(node, args)};")
        self.named[-1].append(node)

    def _trig(self, node: Node, arg: str, type_: str) -> str:
        """Sine and cosine come together."""
        known = self._known_trig(node)
        if known is None:
            known = self.name(), self.name()
            self.line(f"{type_} {known[0]}, {known[1]}; trig({arg}, {known[0]}, {known[1]});")
            self.graph.tables[-1]["trig", id(node.args[0])] = known
        return known[node.op == "cos"]

    def angles(self, roots: Sequence[Node]) -> None:
        """Write the sines and cosines that these numbers need, those side by side that do not need
        each other. With lanes, all are side by side already."""
        if self.lanes > 1:
            return
        for group in self._angle_levels(roots):
            for k in range(0, len(group), PACK):
                if len(group[k : k + PACK]) > 1:
                    self._pack(group[k : k + PACK])

    def _pack(self, angles: list[Node]) -> None:
        """Sines and cosines of a few angles."""
        for angle in angles:
            self._write_tree(angle)
        s, c = self.name("s"), self.name("s")
        entries = ", ".join(literal(x) if x.known else str(x.name) for x in angles)
        self.line(f"vd {s}, {c}; trig((vd){{{entries}}}, {s}, {c});")
        for k, angle in enumerate(angles):
            names = self.name(), self.name()
            self.line(f"const double {names[0]} = {s}[{k}], {names[1]} = {c}[{k}];")
            self.graph.tables[-1]["trig", id(angle)] = names

    def _angle_levels(self, roots: Sequence[Node]) -> list[list[Node]]:
        """The angles whose sines or cosines are not known yet; an angle in a list depends on those
        in the lists before."""
        level: dict[int, int] = {}  # of a node: how many of the lists it depends on
        found: list[dict[int, Node]] = []
        stack = list(roots)
        while stack:
            node = stack[-1]
            if id(node) in level:
                stack.pop()
                continue
            if node.op == "const" or node.name is not None:
                level[id(node)] = 0
                stack.pop()
                continue
            waiting = [a for a in node.args if id(a) not in level]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            level[id(node)] = here = max((level[id(a)] for a in node.args), default=0)
            if node.op in ("sin", "cos") and not self._known_trig(node):
                if here == len(found):
                    found.append({})
                found[here][id(node.args[0])] = node.args[0]
                level[id(node)] = here + 1
        return [list(group.values()) for group in found]

    def _known_trig(self, node: Node) -> tuple[str, str] | None:
        """The names of the sine and the cosine of this angle, if they have been written."""
        key = ("trig", id(node.args[0]))
        return next((t[key] for t in reversed(self.graph.tables) if key in t), None)

    # Arrays

    def storage(self, size: int, kind: str, uniform: bool) -> Storage:
        uniform = uniform or self.lanes == 1
        type_ = self.type(kind, uniform)
        name = self.name("m")
        each = (1 if kind == BOOL else 8) if uniform else 8 * self.lanes
        if size * each <= ON_STACK and self.stack + size * each <= STACK:
            self.stack += size * each
            self.line(f"{type_} {name}_[{max(size, 1)}]; {type_} *const {name} = {name}_;")
        else:
            self.line(f"{type_} *const {name} = ({type_} *)(work + {self.work});")
            self.work += -(-size * each // ALIGN) * ALIGN
        return Storage(name, size, kind, uniform, self.mask)

    def load(self, storage: Storage, index: Node) -> Node:
        if index.uniform:
            text = f"{storage.name}[{self.value(index)}]"
        else:
            text = f"gather_({storage.name}, {self.value(index)})"
        return self.variable(storage.kind, storage.uniform and index.uniform, text)

    def store(self, storage: Storage, index: Node, value: Node, guard: Node | None = None) -> None:
        """Write a number, in the lanes that take part, where `guard` holds."""
        lanes = not storage.uniform
        masked = lanes and self.mask is not storage.mask
        text = self.value(value, lanes)
        if index.uniform and (guard is None or guard.uniform):
            place = f"{storage.name}[{self.value(index)}]"
            if masked:
                text = f"choose({self.mask}, {text}, {place})"
            condition = "" if guard is None else f"if ({self.value(guard)}) "
            self.line(f"{condition}{place} = {text};")
            return
        mask = self.mask if masked else "S(true)"
        if guard is not None:
            mask = f"({mask} & {self.value(guard, True)})"
        self.line(f"scatter_({storage.name}, {self.value(index, True)}, {text}, {mask});")

    def copy(self, to: Storage, source: Storage, size: int) -> None:
        mask = "" if to.uniform or self.mask is to.mask else f", {self.mask}"
        self.line(f"copy_({to.name}, {source.name}, {size}{mask});")

    def fits(self, storage: Storage, uniform: bool) -> bool:
        """Whether numbers may be written into a storage here, in some of its places."""
        if not storage.writable or storage.refs:
            return False
        return not storage.uniform or (uniform and self.mask is storage.mask)


def literal(node: Node) -> str:
    value: Any = node.const
    if node.kind == BOOL:
        return "true" if value else "false"
    if node.kind != FLOAT:
        value = int(value)
        return f"{value}L" if value > -(2**63) else "(-0x7fffffffffffffffL - 1)"
    value = float(value)
    if value != value:
        return '__builtin_nan("")'
    if value in (float("inf"), float("-inf")):
        return "__builtin_inf()" if value > 0 else "(-__builtin_inf())"
    return repr(value) if value >= 0 else f"({value!r})"


def product(node: Node) -> int | None:
    """Which of two terms is a product that the sum takes in, rounded once for both."""
    if node.op not in SUMS or node.kind != FLOAT or node.args[0] is node.args[1]:
        return None  # what is subtracted from itself leaves nothing
    a, b = (x.op == "mul" and x.only_added for x in node.args)
    return 1 if b else 0 if a else None


def terms(node: Node) -> tuple[Node, ...]:
    """What the text of an operation needs: its arguments, or x, y, z of x y + z."""
    which = product(node)
    if which is None:
        return node.args
    return (*node.args[which].args, node.args[1 - which])


def operation(node: Node, args: list[str]) -> str:
    """The text of one operation on its terms."""
    op, kind, lanes = node.op, node.kind, not node.uniform
    of = node.args[0].kind
    which = product(node)
    if which is not None:
        x, y, z = args
        if op == "add":
            return f"mad({x}, {y}, {z})"
        return f"mad({x}, {y}, -{z})" if which == 0 else f"mad(-{x}, {y}, {z})"
    if op in INFIX:
        if lanes and of == BOOL and op in ("eq", "ne"):
            text = f"{args[0]} ^ {args[1]}"
            return f"~({text})" if op == "eq" else text
        text = f"{args[0]} {INFIX[op]} {args[1]}"
        return _narrow(kind, text)
    if op == "div":
        if kind == FLOAT:
            return f"{args[0]} / {args[1]}"
        return _narrow(kind, f"div_({args[0]}, {args[1]})")
    if op == "neg":
        return _narrow(kind, f"-{args[0]}")
    if op == "not":
        return f"!{args[0]}" if kind == BOOL and not lanes else _narrow(kind, f"~{args[0]}")
    if op == "select":
        return _selection(node, args)
    if op == "convert":
        return _conversion(of, kind, lanes, args[0])
    if op in CALLS:
        return f"{CALLS[op]}({', '.join(args)})"
    raise Unsupported(op)


def _narrow(kind: str, text: str) -> str:
    return f"{NARROW[kind]}({text})" if kind in NARROW else text


def _selection(node: Node, args: list[str]) -> str:
    which, *cases = args
    if node.args[0].kind == BOOL:
        return f"choose({which}, {cases[1]}, {cases[0]})"
    text = cases[-1]
    for k in reversed(range(len(cases) - 1)):
        text = f"choose({which} <= {k}, {cases[k]}, {text})"
    return text


def _conversion(of: str, kind: str, lanes: bool, x: str) -> str:
    if of == BOOL:
        number = f"({x} & 1)" if lanes else f"(i8){x}"
        return f"to_float({number})" if kind == FLOAT else number
    if kind == BOOL:
        return f"({x} != 0)"
    if kind == FLOAT:
        return f"to_float({x})"
    if of == FLOAT:
        if kind == UNSIGNED:
            raise Unsupported("fractions as unsigned integers")
        return f"to_int({x})" if kind == INT else f"to_short({x})"
    return _narrow(kind, x)
