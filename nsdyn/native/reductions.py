"""Primitives that combine entries: sums, products of matrices, orders, factorisations."""

import itertools

import numpy as np

from nsdyn.native.graph import BOOL, DTYPES, FLOAT, INT, SHORT, Node
from nsdyn.native.lowering import SMALL, Lowering, Value, kind_in, kind_out, primitive
from nsdyn.native.unsupported import Unsupported
from nsdyn.native.writer import Memory, Storage

REDUCTIONS = {
    "reduce_sum": ("add", 0),
    "reduce_prod": ("mul", 1),
    "reduce_max": ("max", -np.inf),
    "reduce_min": ("min", np.inf),
    "reduce_or": ("or", False),
    "reduce_and": ("and", True),
}
LARGEST_SORT = 32
FULL = 64  # products of two numbers from which on a product of matrices is a loop


def neutral(lower: Lowering, op: str, kind: str) -> Node:
    start = dict(REDUCTIONS.values())[op]
    if op in ("max", "min") and kind not in (FLOAT, BOOL):
        bounds = np.iinfo(DTYPES[kind])
        start = bounds.min if op == "max" else bounds.max
    return lower.graph.const(start, kind)


def accumulated(lower: Lowering, op: str, kind: str, count: int, term, total: Node) -> Node:
    """total op term(0) op ... op term(count - 1), by a loop."""
    counter, name = lower.name("i"), lower.name()
    with lower.block() as probe:  # whether the result is one number for all lanes
        uniform = term(lower.graph.named(counter, INT, True)).uniform
    del probe
    with lower.block() as inside:
        here = lower.graph.named(name, kind, uniform)
        new = lower.graph.make(op, kind, (here, term(lower.graph.named(counter, INT, True))))
        text = lower.value(new)
    lower.line(f"{lower.type(kind, uniform)} {name} = {lower.value(total, not uniform)};")
    lower.line(f"for (i8 {counter} = 0; {counter} < {count}; {counter}++) {{")
    lower.lines += inside
    lower.line(f"{name} = {text}; }}")
    return lower.graph.named(name, kind, uniform)


def _reduce(op: str):
    def method(lower: Lowering, equation, x: Value) -> Value:
        kind, axes = kind_out(equation), equation.params["axes"]
        keep = [a for a in range(len(x.shape)) if a not in axes]
        shape = equation.outvars[0].aval.shape
        if isinstance(x, np.ndarray) or not lower.loops(x.size, x):
            inner = int(np.prod([x.shape[a] for a in axes], dtype=int))
            rows = np.transpose(lower.nodes(x), [*keep, *axes]).reshape(*shape, inner)
            return _folded(lower, op, kind, rows, shape)
        if op in ("max", "min") and kind == BOOL:
            raise Unsupported(f"{op} of truth values in memory")
        return _reduced_in_memory(lower, op, kind, x, axes, keep, shape)

    return method


for _name, (_op, _) in REDUCTIONS.items():
    primitive(_name)(_reduce(_op))


def _folded(lower: Lowering, op: str, kind: str, rows: np.ndarray, shape) -> Value:
    count = int(np.prod(shape, dtype=int))
    make = lower.graph.make
    out = np.empty(count, object)
    if rows.size == 0:
        out[:] = [neutral(lower, op, kind)] * count
        return out.reshape(shape)
    found = []
    for row in rows.reshape(count, rows.shape[-1]).tolist():
        total = row[0]
        for node in row[1:]:
            total = make(op, kind, (total, node))
        found.append(total)
    out[:] = found
    return out.reshape(shape)


def _reduced_in_memory(lower: Lowering, op: str, kind: str, x: Memory, axes, keep, shape) -> Value:
    sizes = [x.shape[a] for a in axes]
    count = int(np.prod(sizes, dtype=int))
    make, integer = lower.graph.make, lower.graph.integer

    def entry(index: list[Node]) -> Node:
        def term(k: Node) -> Node:
            place: list = [None] * len(x.shape)
            for a, i in zip(keep, index, strict=True):
                place[a] = i
            rest = k
            for a, n in reversed(list(zip(axes, sizes, strict=True))):
                place[a] = make("rem", INT, (rest, integer(n))) if len(axes) > 1 else rest
                rest = make("div", INT, (rest, integer(n))) if len(axes) > 1 else rest
            return lower.at(x, place, kind)

        return accumulated(lower, op, kind, count, term, neutral(lower, op, kind))

    loops = lower.loops(int(np.prod(shape, dtype=int)), x)
    return lower.filled(shape, kind, entry, loops)


def _first_best(compare: str):
    """The first place of the largest (smallest) entry; NaN counts as such."""

    def method(lower: Lowering, equation, x: Value) -> Value:
        (axis,), kind, of = equation.params["axes"], kind_out(equation), kind_in(equation)
        if isinstance(x, Memory) and x.size > SMALL:
            return _first_in_memory(lower, compare, equation, x)
        make, graph = lower.graph.make, lower.graph
        rows = np.moveaxis(lower.nodes(x), axis, -1)
        out = np.empty(rows.shape[:-1], object)
        for index in np.ndindex(out.shape):
            best, where = rows[index][0], graph.const(0, kind)
            for k, node in enumerate(rows[index][1:], start=1):
                better = _better(lower, compare, of, node, best)
                best = make("select", of, (better, best, node))
                where = make("select", kind, (better, where, graph.const(k, kind)))
            out[index] = where
        return out

    return method


def _better(lower: Lowering, compare: str, of: str, node: Node, best: Node) -> Node:
    make = lower.graph.make
    if of == BOOL:
        more, less = (node, best) if compare == "gt" else (best, node)
        return make("and", BOOL, (more, make("not", BOOL, (less,))))
    better = make(compare, BOOL, (node, best))
    if of != FLOAT:
        return better
    nan = lambda a: make("ne", BOOL, (a, a))
    new = make("and", BOOL, (nan(node), make("not", BOOL, (nan(best),))))
    better = make("and", BOOL, (better, make("not", BOOL, (nan(best),))))
    return make("or", BOOL, (better, new))


def _first_in_memory(lower: Lowering, compare: str, equation, x: Memory) -> Value:
    if len(x.shape) != 1:
        raise Unsupported("argmax along an axis of a large array")
    graph, kind, of = lower.graph, kind_out(equation), kind_in(equation)
    uniform, counter = x.storage.uniform, lower.name("i")
    best = lower.name()
    lower.line(f"{lower.type(of, uniform)} {best} = {x.storage.name}[0];")
    where = lower.name()
    zero = lower.value(graph.const(0, kind), not uniform)
    lower.line(f"{lower.type(kind, uniform)} {where} = {zero};")
    with lower.block() as inside:
        entry = lower.load(x.storage, graph.named(counter, INT, True))
        old = graph.named(best, of, uniform)
        better = lower.value(_better(lower, compare, of, entry, old))
        at = counter if uniform else f"S({counter})"
        lower.line(f"{where} = choose({better}, {at}, {where});")
        lower.line(f"{best} = choose({better}, {entry.name}, {best});")
    lower.line(f"for (i8 {counter} = 1; {counter} < {x.size}; {counter}++) {{")
    lower.lines += inside
    lower.line("}")
    return np.array([graph.named(where, kind, uniform)], object).reshape(())


primitive("argmax")(_first_best("gt"))
primitive("argmin")(_first_best("lt"))


def _cumulative(op: str):
    def method(lower: Lowering, equation, x: Value) -> Value:
        if x.size > SMALL:
            raise Unsupported("a cumulative sum of a large array")
        kind, axis = kind_out(equation), equation.params["axis"]
        rows = np.moveaxis(lower.nodes(x), axis, 0).copy()
        order = list(range(len(rows)))
        order = order[::-1] if equation.params["reverse"] else order
        for before, k in itertools.pairwise(order):
            for index in np.ndindex(rows.shape[1:]):
                pair = (rows[(before, *index)], rows[(k, *index)])
                rows[(k, *index)] = lower.graph.make(op, kind, pair)
        return np.moveaxis(rows, 0, axis)

    return method


for _name, _op in (("cumsum", "add"), ("cumprod", "mul"), ("cummax", "max"), ("cummin", "min")):
    primitive(_name)(_cumulative(_op))


@primitive("sort")
def sort(lower: Lowering, equation, *values: Value) -> list[Value]:
    """Insertion by comparison and exchange, stable; NaN is last."""
    axis, keys = equation.params["dimension"], equation.params["num_keys"]
    n = values[0].shape[axis]
    if n > LARGEST_SORT or values[0].size > SMALL or keys != 1:
        raise Unsupported("sort of a large array")
    make = lower.graph.make
    kinds = [kind_in(equation, k) for k in range(len(values))]
    rows = [np.moveaxis(lower.nodes(v), axis, -1).copy() for v in values]
    for index in np.ndindex(rows[0].shape[:-1]):
        for last in range(1, n):
            for k in range(last, 0, -1):
                low, high = (*index, k - 1), (*index, k)
                swap = _above(lower, kinds[0], rows[0][low], rows[0][high])
                for row, kind in zip(rows, kinds, strict=True):
                    a, b = row[low], row[high]
                    row[low] = make("select", kind, (swap, a, b))
                    row[high] = make("select", kind, (swap, b, a))
    return [np.moveaxis(row, -1, axis) for row in rows]


def _above(lower: Lowering, kind: str, a: Node, b: Node) -> Node:
    make = lower.graph.make
    if kind == BOOL:
        return make("and", BOOL, (a, make("not", BOOL, (b,))))
    if kind != FLOAT:
        return make("gt", BOOL, (a, b))
    nan = make("and", BOOL, (make("ne", BOOL, (a, a)), make("eq", BOOL, (b, b))))
    return make("or", BOOL, (make("gt", BOOL, (a, b)), nan))


# Products of matrices


@primitive("dot_general")
def dot_general(lower: Lowering, equation, a: Value, b: Value) -> Value:
    """Written out if there are constants in it, or if it is small; else a function of the
    prelude."""
    (ca, cb), (ba, bb) = equation.params["dimension_numbers"]
    free = lambda x, c, batch: [d for d in range(len(x.shape)) if d not in c and d not in batch]
    orders = [*ba, *free(a, ca, ba), *ca], [*bb, *free(b, cb, bb), *cb]
    kind, shape = kind_out(equation), equation.outvars[0].aval.shape
    count = lambda x, dims: int(np.prod([x.shape[d] for d in dims], dtype=int))
    groups, inner = count(a, ba), count(a, ca)
    sizes = count(a, free(a, ca, ba)), count(b, free(b, cb, bb))
    if not _is_full(lower, a, b, groups * sizes[0] * sizes[1] * inner) or kind != FLOAT:
        left = np.transpose(lower.nodes(a), orders[0]).reshape(groups, sizes[0], inner)
        right = np.transpose(lower.nodes(b), orders[1]).reshape(groups, sizes[1], inner)
        return _products(lower, kind, left, right).reshape(shape)
    natural = [*bb, *cb, *free(b, cb, bb)]  # as it is in a b; else a b^T
    is_natural = sizes[1] > 1 and natural == list(range(len(natural)))
    name, order = ("matmul_", natural) if is_natural else ("dot_", orders[1])
    first, second = _ordered(lower, a, orders[0]), _ordered(lower, b, order)
    uniform = first.storage.uniform and second.storage.uniform
    out = lower.storage(groups * sizes[0] * sizes[1], kind, uniform)
    lower.line(
        f"{name}<{lower.type(kind, uniform)}, {sizes[0]}, {sizes[1]}, {inner}>"
        f"({first.storage.name}, {second.storage.name}, {out.name}, {groups});"
    )
    return Memory(out, shape)


def _is_full(lower: Lowering, a: Value, b: Value, products: int) -> bool:
    """Whether a product of matrices is a loop: a large one, or one without constants."""
    if max(a.size, b.size, products // 36) > SMALL:
        return True
    if products <= FULL:
        return False
    return not any(n.known for x in (a, b) if isinstance(x, np.ndarray) for n in x.ravel())


def _ordered(lower: Lowering, x: Value, order: list[int]) -> Memory:
    """The array in memory with its axes in another order."""
    if order == list(range(len(order))):
        return lower.in_memory(x, FLOAT)
    if isinstance(x, np.ndarray):
        return lower.in_memory(np.transpose(x, order), FLOAT)
    back = np.argsort(order)
    shape = [x.shape[d] for d in order]
    entry = lambda index: lower.at(x, [index[k] for k in back], FLOAT)
    return lower.filled(shape, FLOAT, entry, loops=True)


def _products(lower: Lowering, kind: str, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    make, zero = lower.graph.make, neutral(lower, "add", kind)
    found = []
    for rows, columns in zip(left.tolist(), right.tolist(), strict=True):
        for row in rows:
            for column in columns:
                total = zero
                for x, y in zip(row, column, strict=True):
                    total = make("add", kind, (total, make("mul", kind, (x, y))))
                found.append(total)
    out = np.empty(len(found), object)
    out[:] = found
    return out


# Factorisations: functions of the prelude


def _matrix(lower: Lowering, value: Value, fresh: bool = False) -> Memory:
    """A matrix of lanes in memory."""
    memory = lower.in_memory(value, FLOAT, fresh)
    if memory.storage.uniform and lower.lanes > 1:
        storage = lower.storage(memory.size, FLOAT, uniform=False)
        lower.copy(storage, memory.storage, memory.size)
        memory = Memory(storage, memory.shape)
    return memory


def _batches(value: Value) -> int:
    return int(np.prod(value.shape[:-2], dtype=int))


@primitive("cholesky")
def cholesky(lower: Lowering, equation, a: Value) -> Value:
    n = a.shape[-1]
    source = _matrix(lower, a)
    out = lower.storage(source.size, FLOAT, uniform=False)
    for k in range(_batches(a)):
        at = k * n * n
        lower.line(f"cholesky_({out.name} + {at}, {source.storage.name} + {at}, {n});")
    return Memory(out, a.shape)


@primitive("triangular_solve")
def triangular_solve(lower: Lowering, equation, a: Value, b: Value) -> Value:
    params = equation.params
    n = a.shape[-1]
    rows, columns = b.shape[-2:]
    matrix = _matrix(lower, a)
    x = _matrix(lower, b, fresh=True)
    left, transposed = params["left_side"], params["transpose_a"]
    # x a = b is a^T x^T = b^T
    count, row, column = (columns, columns, 1) if left else (rows, 1, columns)
    flags = (params["lower"], transposed if left else not transposed, params["unit_diagonal"])
    words = ", ".join("true" if flag else "false" for flag in flags)
    for k in range(_batches(a)):
        lower.line(
            f"triangular_({matrix.storage.name} + {k * n * n}, {x.storage.name} + "
            f"{k * rows * columns}, {n}, {count}, {words}, {row}, {column});"
        )
    return x


@primitive("lu")
def lu(lower: Lowering, equation, a: Value) -> list[Value]:
    if a.shape[-1] != a.shape[-2]:
        raise Unsupported("lu of matrices that are not square")
    n, count = a.shape[-1], _batches(a)
    matrix = _matrix(lower, a, fresh=True)
    pivots: Storage = lower.storage(count * n, SHORT, uniform=False)
    order: Storage = lower.storage(count * n, SHORT, uniform=False)
    for k in range(count):
        names = f"{pivots.name} + {k * n}, {order.name} + {k * n}"
        lower.line(f"lu_({matrix.storage.name} + {k * n * n}, {names}, {n});")
    return [matrix, Memory(pivots, a.shape[:-1]), Memory(order, a.shape[:-1])]


@primitive("solve_pivoted")
def solve_pivoted(lower: Lowering, equation, a: Value, b: Value) -> Value:
    n = a.shape[0]
    matrix, right = _matrix(lower, a), _matrix(lower, b)
    out = lower.storage(n, FLOAT, uniform=False)
    rest = lower.storage(n * (n + 1), FLOAT, uniform=False)
    type_ = lower.type(FLOAT, False)
    names = ", ".join(x.name for x in (matrix.storage, right.storage, out, rest))
    lower.line(f"solve_<{type_}, {n}>({names});")
    return Memory(out, (n,))


@primitive("eigh")
def eigh(lower: Lowering, equation, a: Value) -> list[Value]:
    """Eigenvectors may have other signs than those of LAPACK, and others belong to eigenvalues
    that are equal."""
    if equation.params["subset_by_index"] is not None:
        raise Unsupported("some of the eigenvalues of a matrix")
    n, flag = a.shape[-1], "true" if equation.params["lower"] else "false"
    matrix = _matrix(lower, a, fresh=True)
    vectors = lower.storage(matrix.size, FLOAT, uniform=False)
    values = lower.storage(_batches(a) * n, FLOAT, uniform=False)
    for k in range(_batches(a)):
        at, row = k * n * n, k * n
        lower.line(
            f"eigh_({matrix.storage.name} + {at}, {vectors.name} + {at}, "
            f"{values.name} + {row}, {n}, {flag});"
        )
    return [Memory(vectors, a.shape), Memory(values, a.shape[:-1])]
