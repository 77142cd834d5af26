"""Primitives that act on every entry alone, and those that only move entries."""

import math
from typing import Any

import numpy as np
from jax.lax import GatherScatterMode

from nsdyn.native.graph import BOOL, FLOAT, INT, SHORT, UNSIGNED, Node
from nsdyn.native.lowering import FEW, SMALL, Lowering, Value, kind_in, kind_out, primitive
from nsdyn.native.unsupported import Unsupported
from nsdyn.native.writer import Memory

SAME = [
    "add",
    "sub",
    "mul",
    "div",
    "max",
    "min",
    "lt",
    "le",
    "gt",
    "ge",
    "eq",
    "ne",
    "and",
    "or",
    "xor",
    "neg",
    "abs",
    "sqrt",
    "floor",
    "ceil",
    "sign",
    "is_finite",
    "not",
    "rem",
    "sin",
    "cos",
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
    "log",
    "cbrt",
    "erf",
    "erfc",
    "atan2",
    "nextafter",
    "expm1",
    "log1p",
]


def entrywise(lower: Lowering, kind: str, make, *values: Value) -> Value:
    """make(*nodes) for every entry; axes of length one go with all."""
    shapes = [v.shape for v in values]
    same = all(s == shapes[0] for s in shapes)
    shape = shapes[0] if same else np.broadcast_shapes(*shapes)
    size = math.prod(shape)
    if not lower.loops(size, *values):
        arrays = [lower.nodes(v) for v in values]
        arrays = arrays if same else list(np.broadcast_arrays(*arrays))
        out = np.empty(size, object)
        out[:] = [make(*nodes) for nodes in zip(*(a.ravel().tolist() for a in arrays), strict=True)]
        return out.reshape(shape)
    zero = lower.graph.integer(0)

    def place(v: Value, index: list[Node]) -> list[Node]:
        own = index[len(index) - len(v.shape) :]
        return [i if n > 1 else zero for i, n in zip(own, v.shape, strict=True)]

    if same:  # one loop
        values = tuple(_reshaped(v, (size,)) for v in values)
    sources = [v if v.size == 1 else lower.in_memory(v, _kind(v)) for v in values]
    entry = lambda index: make(*(lower.at(v, place(v, index), kind) for v in sources))
    out = lower.filled((size,) if same else shape, kind, entry, loops=True)
    return Memory(out.storage, shape)


def _kind(value: Value) -> str:
    return value.storage.kind if isinstance(value, Memory) else value.ravel()[0].kind


def _elementwise(op: str):
    def lower_one(lower: Lowering, equation, *values: Value) -> Value:
        kind = kind_out(equation)
        make = lower.graph.make
        return entrywise(lower, kind, lambda *nodes: make(op, kind, nodes), *values)

    return lower_one


for _name in SAME:
    primitive(_name)(_elementwise(_name))
primitive("add_any")(_elementwise("add"))


@primitive("select_n")
def select_n(lower: Lowering, equation, *values: Value) -> Value:
    kind = kind_out(equation)
    return entrywise(lower, kind, lambda *x: lower.graph.make("select", kind, x), *values)


@primitive("convert_element_type")
def convert(lower: Lowering, equation, x: Value) -> Value:
    kind, of = kind_out(equation), kind_in(equation)
    if kind == of:
        return x
    return entrywise(lower, kind, lambda a: lower.graph.make("convert", kind, (a,)), x)


@primitive("shift_left", "shift_right_logical", "shift_right_arithmetic")
def shift(lower: Lowering, equation, x: Value, by: Value) -> Value:
    if kind_out(equation) != INT:
        raise Unsupported("shifts of other integers than those of 64 bits")
    op, make = equation.primitive.name, lower.graph.make
    return entrywise(lower, INT, lambda a, b: make(op, INT, (a, b)), x, by)


@primitive("bitcast_convert_type")
def bitcast(lower: Lowering, equation, x: Value) -> Value:
    """As in `jnp.copysign` and `jnp.frexp`."""
    kind, of = kind_out(equation), kind_in(equation)
    if {kind, of} != {FLOAT, INT}:
        raise Unsupported("the bits of numbers other than those of 64 bits")
    op = "bits" if of == FLOAT else "of_bits"
    return entrywise(lower, kind, lambda a: lower.graph.make(op, kind, (a,)), x)


@primitive("round")
def round_(lower: Lowering, equation, x: Value) -> Value:
    op = "even" if int(equation.params["rounding_method"]) == 1 else "round"
    return entrywise(lower, FLOAT, lambda a: lower.graph.make(op, FLOAT, (a,)), x)


@primitive("pow")
def pow_(lower: Lowering, equation, x: Value, y: Value) -> Value:
    """The exponent may be an integer, as in powers of a constant by a counter."""
    kind, make = kind_out(equation), lower.graph.make
    number = lambda b: b if b.kind == kind else make("convert", kind, (b,))
    return entrywise(lower, kind, lambda a, b: make("pow", kind, (a, number(b))), x, y)


@primitive("integer_pow")
def integer_pow(lower: Lowering, equation, x: Value) -> Value:
    kind = kind_out(equation)
    make = lower.graph.make
    one = lower.graph.const(1, kind)

    def power(a: Node) -> Node:
        n, total = abs(equation.params["y"]), None
        while n:
            if n & 1:
                total = a if total is None else make("mul", kind, (total, a))
            n >>= 1
            if n:
                a = make("mul", kind, (a, a))
        total = one if total is None else total
        return total if equation.params["y"] >= 0 else make("div", kind, (one, total))

    return entrywise(lower, kind, power, x)


@primitive("square")
def square(lower: Lowering, equation, x: Value) -> Value:
    kind = kind_out(equation)
    return entrywise(lower, kind, lambda a: lower.graph.make("mul", kind, (a, a)), x)


@primitive("rsqrt")
def rsqrt(lower: Lowering, equation, x: Value) -> Value:
    make, one = lower.graph.make, lower.graph.const(1.0, FLOAT)
    return entrywise(
        lower, FLOAT, lambda a: make("div", FLOAT, (one, make("sqrt", FLOAT, (a,)))), x
    )


@primitive("logistic")
def logistic(lower: Lowering, equation, x: Value) -> Value:
    make, one = lower.graph.make, lower.graph.const(1.0, FLOAT)

    def entry(a: Node) -> Node:
        e = make("exp", FLOAT, (make("neg", FLOAT, (a,)),))
        return make("div", FLOAT, (one, make("add", FLOAT, (one, e))))

    return entrywise(lower, FLOAT, entry, x)


@primitive("clamp")
def clamp(lower: Lowering, equation, low: Value, x: Value, high: Value) -> Value:
    kind = kind_out(equation)
    make = lower.graph.make
    entry = lambda l, a, h: make("min", kind, (make("max", kind, (a, l)), h))
    return entrywise(lower, kind, entry, low, x, high)


@primitive("stop_gradient", "copy")
def same(lower: Lowering, equation, x: Value) -> Value:
    return x


@primitive("reduce_precision")
def reduce_precision(lower: Lowering, equation, x: Value) -> Value:
    bits = equation.params["exponent_bits"], equation.params["mantissa_bits"]
    if bits != (11, 52):
        raise Unsupported("numbers of a reduced precision")
    return x


@primitive("optimization_barrier", "device_put")
def all_same(lower: Lowering, equation, *values: Value) -> list[Value]:
    return list(values)


@primitive("le_to", "lt_to")
def in_order(lower: Lowering, equation, x: Value, y: Value) -> Value:
    """In the order that `jnp.searchsorted` goes by: NaN is last. (It has made all zeros
    positive.)"""
    op, make = equation.primitive.name[:2], lower.graph.make
    is_nan = lambda a: make("ne", BOOL, (a, a))

    def entry(a: Node, b: Node) -> Node:
        is_last = is_nan(b)
        if op == "lt":
            is_last = make("and", BOOL, (is_last, make("not", BOOL, (is_nan(a),))))
        return make("or", BOOL, (make(op, BOOL, (a, b)), is_last))

    return entrywise(lower, BOOL, entry, x, y)


# Movement: on nodes numpy does it; in memory an entry is read from its old place.


def _reshaped(x: Value, shape) -> Value:
    return x.reshape(shape) if isinstance(x, np.ndarray) else Memory(x.storage, shape)


@primitive("reshape", "squeeze")
def reshape(lower: Lowering, equation, x: Value) -> Value:
    if equation.params.get("dimensions") and equation.primitive.name == "reshape":
        raise Unsupported("reshape with an order of its own")
    return _reshaped(x, equation.outvars[0].aval.shape)


@primitive("broadcast_in_dim")
def broadcast_in_dim(lower: Lowering, equation, x: Value) -> Value:
    shape, dims = equation.params["shape"], equation.params["broadcast_dimensions"]
    if x.size == math.prod(shape):
        return _reshaped(x, shape)
    size = math.prod(shape)
    if not lower.loops(size, x):
        middle = [x.shape[dims.index(d)] if d in dims else 1 for d in range(len(shape))]
        return np.broadcast_to(lower.nodes(x).reshape(middle), shape)
    zero = lower.graph.integer(0)
    old = lambda index: [index[d] if x.shape[k] > 1 else zero for k, d in enumerate(dims)]
    kind = kind_out(equation)
    source = x if x.size == 1 and isinstance(x, np.ndarray) else lower.in_memory(x, kind)
    return lower.filled(shape, kind, lambda index: lower.at(source, old(index), kind), loops=True)


def _moved(lower: Lowering, equation, x: Value, numpy, old) -> Value:
    """Entries of x in other places: by numpy(array), or from the index old(index)."""
    if isinstance(x, np.ndarray):
        return numpy(x)
    shape, kind = equation.outvars[0].aval.shape, kind_out(equation)
    loops = lower.loops(math.prod(shape), x)
    return lower.filled(shape, kind, lambda index: lower.at(x, old(index), kind), loops)


@primitive("transpose")
def transpose(lower: Lowering, equation, x: Value) -> Value:
    order = equation.params["permutation"]
    back = np.argsort(order)
    return _moved(
        lower, equation, x, lambda a: np.transpose(a, order), lambda i: [i[k] for k in back]
    )


@primitive("rev")
def rev(lower: Lowering, equation, x: Value) -> Value:
    axes = equation.params["dimensions"]
    make, integer = lower.graph.make, lower.graph.integer
    flip = lambda i, d: make("sub", INT, (integer(x.shape[d] - 1), i)) if d in axes else i
    return _moved(
        lower,
        equation,
        x,
        lambda a: np.flip(a, axes),
        lambda index: [flip(i, d) for d, i in enumerate(index)],
    )


@primitive("slice")
def slice_(lower: Lowering, equation, x: Value) -> Value:
    first, last = equation.params["start_indices"], equation.params["limit_indices"]
    steps = equation.params["strides"] or (1,) * len(first)
    return _sliced(lower, equation, x, first, last, steps)


def _sliced(lower: Lowering, equation, x: Value, first, last, steps, number: int = 0) -> Value:
    if isinstance(x, np.ndarray):
        return x[tuple(slice(a, b, s) for a, b, s in zip(first, last, steps, strict=True))]
    make, integer = lower.graph.make, lower.graph.integer

    def old(i: Node, a: int, s: int) -> Node:
        return make("add", INT, (make("mul", INT, (i, integer(s))), integer(a)))

    kind = kind_out(equation, number)
    entry = lambda index: lower.at(
        x, [old(i, a, s) for i, a, s in zip(index, first, steps, strict=True)], kind
    )
    shape = equation.outvars[number].aval.shape
    return lower.filled(shape, kind, entry, lower.loops(math.prod(shape), x))


@primitive("split")
def split(lower: Lowering, equation, x: Value) -> list[Value]:
    sizes, axis = equation.params["sizes"], equation.params["axis"]
    ends = np.cumsum(sizes)
    found = []
    for number, (end, size) in enumerate(zip(ends, sizes, strict=True)):
        first = [int(end) - size if d == axis else 0 for d in range(len(x.shape))]
        last = [int(end) if d == axis else n for d, n in enumerate(x.shape)]
        found.append(_sliced(lower, equation, x, first, last, [1] * len(first), number))
    return found


@primitive("unstack")
def unstack(lower: Lowering, equation, x: Value) -> list[Value]:
    axis, kind = equation.params["axis"], kind_out(equation)
    if isinstance(x, np.ndarray):
        return [np.asarray(part, object) for part in np.moveaxis(x, axis, 0)]

    def part(k: int, shape: tuple) -> Value:
        at = lower.graph.integer(k)
        entry = lambda index: lower.at(x, [*index[:axis], at, *index[axis:]], kind)
        return lower.filled(shape, kind, entry, lower.loops(math.prod(shape), x))

    return [part(k, variable.aval.shape) for k, variable in enumerate(equation.outvars)]


@primitive("concatenate", "stack")
def concatenate(lower: Lowering, equation, *values: Value) -> Value:
    shape, kind = equation.outvars[0].aval.shape, kind_out(equation)
    params = equation.params
    axis = params["dimension"] if "dimension" in params else params["axis"]
    if equation.primitive.name == "stack":
        widened = lambda v: (*v.shape[:axis], 1, *v.shape[axis:])
        values = tuple(_reshaped(v, widened(v)) for v in values)
    if not lower.loops(math.prod(shape), *values):
        return np.concatenate([lower.nodes(v) for v in values], axis)
    values = tuple(v for v in values if v.size)
    parts = [lower.in_memory(v, kind) for v in values]
    storage = lower.storage(math.prod(shape), kind, all(p.storage.uniform for p in parts))
    first = 0
    for part in parts:
        _put_window(lower, storage, shape, part, axis, first)
        first += part.shape[axis]
    return Memory(storage, shape)


def _put_window(lower: Lowering, storage, shape, part: Memory, axis: int, first: int) -> None:
    """Copy a part into an array, where it begins at `first` along an axis."""
    inner = math.prod(shape[axis + 1 :])
    outer = math.prod(shape[:axis])
    row, step = part.shape[axis] * inner, shape[axis] * inner
    k, i = lower.name("i"), lower.name("i")
    splat = "" if storage.uniform else "S"
    lower.line(
        f"for (i8 {k} = 0; {k} < {outer}; {k}++) for (i8 {i} = 0; {i} < {row}; {i}++) "
        f"{storage.name}[{k} * {step} + {first * inner} + {i}] = "
        f"{splat}({part.storage.name}[{k} * {row} + {i}]);"
    )


@primitive("tile")
def tile(lower: Lowering, equation, x: Value) -> Value:
    reps = equation.params["reps"]
    make, integer = lower.graph.make, lower.graph.integer
    old = lambda index: [
        make("rem", INT, (i, integer(n))) for i, n in zip(index, x.shape, strict=True)
    ]
    return _moved(lower, equation, x, lambda a: np.tile(a, reps), old)


@primitive("iota")
def iota(lower: Lowering, equation) -> Value:
    params = equation.params
    shape, axis, kind = params["shape"], params["dimension"], kind_out(equation)
    if math.prod(shape) <= SMALL:
        row = np.empty(shape[axis], object)
        row[:] = [lower.graph.const(k, kind) for k in range(shape[axis])]
        row = row.reshape([-1 if d == axis else 1 for d in range(len(shape))])
        return np.broadcast_to(row, shape)
    convert = lambda i: i if kind == INT else lower.graph.make("convert", kind, (i,))
    return lower.filled(shape, kind, lambda index: convert(index[axis]))


@primitive("pad")
def pad(lower: Lowering, equation, x: Value, fill: Value) -> Value:
    config = equation.params["padding_config"]
    shape = equation.outvars[0].aval.shape
    if all(c == (0, 0, 0) for c in config):
        return x
    if math.prod(shape) > SMALL or x.size > SMALL:
        return _padded_in_memory(lower, equation, x, fill)
    out = np.empty(shape, object)
    out[...] = lower.nodes(fill)[()]
    places, sources = [], []
    for (low, _, inner), n, m in zip(config, x.shape, shape, strict=True):
        pairs = [(k, low + k * (inner + 1)) for k in range(n)]
        pairs = [(k, at) for k, at in pairs if 0 <= at < m]
        sources.append([k for k, _ in pairs])
        places.append([at for _, at in pairs])
    if all(places):
        out[np.ix_(*places)] = lower.nodes(x)[np.ix_(*sources)]
    return out


def _padded_in_memory(lower: Lowering, equation, x: Value, fill: Value) -> Value:
    config, kind = equation.params["padding_config"], kind_out(equation)
    if x.size == 0 or any(inner for _, _, inner in config):
        raise Unsupported("pad between the entries of a large array")
    make, integer = lower.graph.make, lower.graph.integer
    source = lower.in_memory(x, kind)
    outside: Node = lower.nodes(fill).ravel()[0]
    lower.value(outside)

    def entry(index: list[Node]) -> Node:
        inside, places = lower.graph.const(True, BOOL), []
        for i, (low, _, _), n in zip(index, config, x.shape, strict=True):
            at = make("sub", INT, (i, integer(low)))
            places.append(clipped(lower, at, n - 1))
            for test in (make("ge", BOOL, (at, integer(0))), make("lt", BOOL, (at, integer(n)))):
                inside = make("and", BOOL, (inside, test))
        return make("select", kind, (inside, outside, lower.at(source, places, kind)))

    return lower.filled(equation.outvars[0].aval.shape, kind, entry, loops=True)


# Places that are not known


def clipped(lower: Lowering, index: Node, last: int) -> Node:
    """An index moved into 0 ... last."""
    graph = lower.graph
    if index.kind != INT:
        index = graph.make("convert", INT, (index,))
    if last == 0:
        return graph.integer(0)
    return graph.make(
        "min", INT, (graph.make("max", INT, (index, graph.integer(0))), graph.integer(last))
    )


def _scalar(lower: Lowering, value: Value) -> Node:
    return lower.nodes(value).ravel()[0]


@primitive("dynamic_slice")
def dynamic_slice(lower: Lowering, equation, x: Value, *starts: Value) -> Value:
    sizes, kind = equation.params["slice_sizes"], kind_out(equation)
    first = [
        clipped(lower, _scalar(lower, s), n - m)
        for s, n, m in zip(starts, x.shape, sizes, strict=True)
    ]
    if all(f.known for f in first) and isinstance(x, np.ndarray):
        begin = [int(f.const) for f in first]
        return x[tuple(slice(b, b + m) for b, m in zip(begin, sizes, strict=True))]
    for f in first:
        lower.value(f)
    make = lower.graph.make
    entry = lambda index: lower.at(
        x, [make("add", INT, (f, i)) for f, i in zip(first, index, strict=True)], kind
    )
    if isinstance(x, np.ndarray):
        chosen = _chosen(lower, x, first, sizes, kind)
        if chosen is not None:
            return chosen
        x = lower.in_memory(x, kind)
    return lower.filled(sizes, kind, entry, math.prod(sizes) > FEW)


def _chosen(lower: Lowering, x: np.ndarray, first: list[Node], sizes, kind: str):
    """A window of a small array by comparison, if only one start is unknown and has few places."""
    open_ = [d for d, f in enumerate(first) if not f.known]
    places = x.shape[open_[0]] - sizes[open_[0]] + 1
    if (
        len(open_) > 1
        or places > 3
        or not all(f.known and f.const == 0 for d, f in enumerate(first) if d != open_[0])
    ):
        return None
    axis = open_[0]
    whole = [slice(0, m) for m in sizes]
    make, graph = lower.graph.make, lower.graph
    at = lambda k: x[tuple(slice(k, k + sizes[d]) if d == axis else s for d, s in enumerate(whole))]
    out = at(places - 1)
    for k in reversed(range(places - 1)):
        here = make("eq", BOOL, (first[axis], graph.integer(k)))
        out = entrywise(lower, kind, lambda a, b: make("select", kind, (here, a, b)), out, at(k))  # noqa: B023
    return out


@primitive("dynamic_update_slice")
def dynamic_update_slice(lower: Lowering, equation, x: Value, new: Value, *starts: Value) -> Value:
    kind = kind_out(equation)
    first = [
        clipped(lower, _scalar(lower, s), n - m)
        for s, n, m in zip(starts, x.shape, new.shape, strict=True)
    ]
    if isinstance(x, np.ndarray):
        if all(f.known for f in first):
            out = x.copy()
            begin = [int(f.const) for f in first]
            at = tuple(slice(b, b + m) for b, m in zip(begin, new.shape, strict=True))
            out[at] = lower.nodes(new)
            return out
        if x.size <= 3 and new.size == 1:
            return _replaced(lower, x, lower.nodes(new).ravel()[0], first, kind)
    target = written_over(lower, x, kind, _is_uniform(lower, new, first))
    _write_window(lower, target, new, first, kind)
    return target


def _replaced(lower: Lowering, x: np.ndarray, new: Node, first: list[Node], kind: str) -> Value:
    make = lower.graph.make
    place = lower.flat_index(x.shape, first)
    out = np.empty(x.size, object)
    out[:] = [
        make("select", kind, (make("eq", BOOL, (place, lower.graph.integer(k))), old, new))
        for k, old in enumerate(x.ravel())
    ]
    return out.reshape(x.shape)


def _is_uniform(lower: Lowering, value: Value, places: list[Node]) -> bool:
    if not all(p.uniform for p in places):
        return False
    if isinstance(value, Memory):
        return value.storage.uniform
    return all(node.uniform for node in value.ravel())


def written_over(lower: Lowering, x: Value, kind: str, uniform: bool) -> Memory:
    """The array in memory that may be written over: itself if nobody needs it any longer."""
    if isinstance(x, Memory) and lower.fits(x.storage, uniform):
        return x
    was_uniform = x.storage.uniform if isinstance(x, Memory) else all(n.uniform for n in x.ravel())
    if was_uniform and uniform:
        return lower.in_memory(x, kind, fresh=True)
    storage = lower.storage(x.size, kind, uniform=False)
    source = lower.in_memory(x, kind)
    lower.copy(storage, source.storage, x.size)
    return Memory(storage, x.shape)


def _write_window(
    lower: Lowering, target: Memory, new: Value, first: list[Node], kind: str
) -> None:
    make, graph = lower.graph.make, lower.graph
    base = lower.flat_index(target.shape, first)
    lower.value(base)

    def put(index: list[Node]) -> None:
        place = make("add", INT, (base, lower.flat_index(target.shape, index)))
        lower.store(target.storage, place, lower.at(new, index, kind))

    if isinstance(new, np.ndarray):
        for index in np.ndindex(*new.shape):
            put([graph.integer(i) for i in index])
        return
    counters = [lower.name("i") for _ in new.shape]
    with lower.block() as inside:
        put([graph.named(c, INT, True) for c in counters])
    for c, n in zip(counters, new.shape, strict=True):
        lower.line(f"for (i8 {c} = 0; {c} < {n}; {c}++)")
    lower.line("{")
    lower.lines += inside
    lower.line("}")


@primitive("gather")
def gather(lower: Lowering, equation, x: Value, indices: Value) -> Value:
    """out[batch, offset] = x[start(indices[batch]) + offset], with starts clipped, or `fill` for
    windows that stick out."""
    params = equation.params
    d, sizes, mode = params["dimension_numbers"], params["slice_sizes"], params["mode"]
    shape, kind = equation.outvars[0].aval.shape, kind_out(equation)
    of = kind_in(equation, 1)
    batch = [k for k in range(len(shape)) if k not in d.offset_dims]
    kept = [
        a
        for a in range(len(x.shape))
        if a not in (*d.collapsed_slice_dims, *d.operand_batching_dims)
    ]
    make, graph = lower.graph.make, lower.graph
    fills = mode == GatherScatterMode.FILL_OR_DROP
    blank = _blank(lower, kind, params.get("fill_value"))

    def entry(index: list[Node]) -> Node:
        where = [index[k] for k in batch]
        place = [graph.integer(0)] * len(x.shape)
        inside = graph.const(True, BOOL)
        for k, axis in enumerate(d.start_index_map):
            start = lower.at(indices, [*where, graph.integer(k)], of)
            at = clipped(lower, start, x.shape[axis] - sizes[axis])
            if fills:
                wide = start if start.kind == INT else make("convert", INT, (start,))
                inside = make("and", BOOL, (inside, make("eq", BOOL, (wide, at))))
            place[axis] = at
        for axis, k in zip(d.operand_batching_dims, d.start_indices_batching_dims, strict=True):
            place[axis] = where[k]
        for k, axis in zip(d.offset_dims, kept, strict=True):
            place[axis] = make("add", INT, (place[axis], index[k]))
        found = lower.at(x, place, kind)
        return make("select", kind, (inside, blank, found)) if fills else found

    if not all_known(indices) and isinstance(x, np.ndarray):
        few = _looked_up(lower, equation, x, indices, kind)
        if few is not None:
            return few
        x = lower.in_memory(x, kind)
    loops = math.prod(shape) > (SMALL if all_known(indices) else FEW)
    if loops:
        indices = lower.in_memory(indices, of)
        x = lower.in_memory(x, kind)
    return lower.filled(shape, kind, entry, loops)


def all_known(value: Value) -> bool:
    return isinstance(value, np.ndarray) and all(node.known for node in value.ravel())


# What is found outside, if nothing else is said.
OUTSIDE = {FLOAT: np.nan, BOOL: True, INT: -(2**63), SHORT: -(2**31), UNSIGNED: 2**32 - 1}


def _blank(lower: Lowering, kind: str, fill) -> Node:
    return lower.graph.const(OUTSIDE[kind] if fill is None else fill, kind)


def _looked_up(lower: Lowering, equation, x: np.ndarray, indices: Value, kind: str):
    """x[i] of up to three entries by comparison."""
    d = equation.params["dimension_numbers"]
    simple = x.ndim == 1 and indices.size == 1 and d.collapsed_slice_dims == (0,)
    if not simple or x.size > 3 or equation.params["mode"] == GatherScatterMode.FILL_OR_DROP:
        return None
    make, graph = lower.graph.make, lower.graph
    at = clipped(lower, lower.nodes(indices).ravel()[0], x.size - 1)
    out = x[-1]
    for k in reversed(range(x.size - 1)):
        out = make("select", kind, (make("eq", BOOL, (at, graph.integer(k))), out, x[k]))
    return np.array([out], object).reshape(equation.outvars[0].aval.shape)


COMBINE = {
    "scatter": None,
    "scatter-add": "add",
    "scatter-sub": "sub",
    "scatter-max": "max",
    "scatter-min": "min",
    "scatter-mul": "mul",
}
LOGICAL = {"max": "or", "min": "and", None: None}
COMBINE_FLAGS = {name: LOGICAL.get(op, op) for name, op in COMBINE.items()}


def _combination(equation, kind: str, size: int) -> str | None:
    """What becomes of an old and a new number; None if the new one takes the place."""
    op = (COMBINE_FLAGS if kind == BOOL else COMBINE)[equation.primitive.name]
    if op is None and equation.params["update_jaxpr"] is not None:
        raise Unsupported("scatter by a function, as in x.at[i].apply(f)")
    if size > 4 * SMALL:
        raise Unsupported("scatter of a large array")
    return op


@primitive(*COMBINE)
def scatter(lower: Lowering, equation, x: Value, indices: Value, updates: Value) -> Value:
    """x[start(indices[batch]) + window] = updates[batch, window]; windows that stick out are
    dropped, or clipped."""
    params = equation.params
    d, kind, of = params["dimension_numbers"], kind_out(equation), kind_in(equation, 1)
    op = _combination(equation, kind, updates.size)
    batch = [k for k in range(len(updates.shape)) if k not in d.update_window_dims]
    kept = [
        a
        for a in range(len(x.shape))
        if a not in (*d.inserted_window_dims, *d.operand_batching_dims)
    ]
    window = [1] * len(x.shape)
    for k, axis in zip(d.update_window_dims, kept, strict=True):
        window[axis] = updates.shape[k]
    clip = params["mode"] == GatherScatterMode.CLIP
    make, graph = lower.graph.make, lower.graph
    fixed = all_known(indices) and isinstance(x, np.ndarray)
    target: Any = (
        x.copy()
        if fixed
        else written_over(
            lower, x, kind, _is_uniform(lower, updates, list(lower.nodes(indices).ravel()))
        )
    )
    for index in np.ndindex(*updates.shape):
        place = [graph.integer(0)] * len(x.shape)
        inside = graph.const(True, BOOL)
        where = [graph.integer(index[k]) for k in batch]
        for k, axis in enumerate(d.scatter_dims_to_operand_dims):
            start = lower.at(indices, [*where, graph.integer(k)], of)
            at = clipped(lower, start, x.shape[axis] - window[axis])
            if not clip:
                wide = start if start.kind == INT else make("convert", INT, (start,))
                inside = make("and", BOOL, (inside, make("eq", BOOL, (wide, at))))
            place[axis] = at
        for axis, k in zip(d.operand_batching_dims, d.scatter_indices_batching_dims, strict=True):
            place[axis] = where[k]
        for k, axis in zip(d.update_window_dims, kept, strict=True):
            place[axis] = make("add", INT, (place[axis], graph.integer(index[k])))
        new = lower.at(updates, [graph.integer(i) for i in index], kind)
        if op is not None:
            new = make(op, kind, (lower.at(target, place, kind), new))
        if fixed:
            if inside.const:
                target[tuple(int(p.const) for p in place)] = new
        else:
            guard = None if inside.known and inside.const else inside
            lower.store(target.storage, lower.flat_index(x.shape, place), new, guard)
    return target
