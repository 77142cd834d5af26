"""Calls, branches and loops.

A branch or loop whose condition all lanes share is an ordinary one. Otherwise a branch runs if any
lane wants it, a loop as long as any lane goes on; the lanes that take part are in a mask, numbers
are chosen by it afterwards, and arrays in memory are written by it alone.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from jax.extend import core

from nsdyn.native.graph import BOOL, INT, Node, kind_of
from nsdyn.native.lowering import SMALL, Lowering, Value, primitive
from nsdyn.native.uniform import size
from nsdyn.native.writer import Memory, Storage

UNROLL = 64  # equations of a loop of fixed length that is written out
CALLING = 2000  # the same if the work is done by functions, as in the stages of a method
RARE = 200  # equations of a branch from which on it gets a function of its own


# Calls


@primitive("jit", "custom_jvp_call", "custom_vjp_call", "remat2")
def call(lower: Lowering, equation, *args: Value) -> list[Value]:
    names = ("jaxpr", "call_jaxpr")
    inner = next(equation.params[name] for name in names if name in equation.params)
    if hasattr(inner, "consts"):
        if lower.functions.wants(inner.jaxpr):
            return lower.functions.call(lower, inner, args)
        return lower.closed(inner, args)
    return lower.run(inner, [], args)


@primitive("custom_linear_solve")
def custom_linear_solve(lower: Lowering, equation, *args: Value) -> list[Value]:
    lengths, jaxprs = equation.params["const_lengths"], equation.params["jaxprs"]
    first = lengths.matvec + lengths.vecmat
    total = first + lengths.solve + lengths.transpose_solve
    return lower.closed(jaxprs.solve, [*args[first : first + lengths.solve], *args[total:]])


@primitive("platform_index")
def platform_index(lower: Lowering, equation) -> Value:
    platforms = equation.params["platforms"]
    index = next(k for k, names in enumerate(platforms) if names is None or "cpu" in names)
    return lower.known(np.int32(index))


@primitive("pmin", "pmax")
def over_lanes(lower: Lowering, equation, x: Value) -> Value:
    """The smallest or largest number of all lanes that take part."""
    (node,) = lower.nodes(x).ravel()
    if node.uniform or lower.lanes == 1:
        return x
    op = "<" if equation.primitive.name == "pmin" else ">"
    name, value = lower.name(), lower.value(node)
    lower.line(f"i8 {name} = {value}[0];")
    lower.line(f"for (int l = 1; l < L; l++) if ({value}[l] {op} {name}) {name} = {value}[l];")
    return np.array([lower.graph.named(name, INT, True)], object).reshape(())


def flags_of(values: Sequence[Value]) -> list[bool]:
    return [
        v.storage.uniform if isinstance(v, Memory) else all(n.uniform for n in v.ravel())
        for v in values
    ]


# Numbers and arrays carried through a loop


class Carry:
    """What a loop carries: variables for numbers, storage for arrays."""

    def __init__(self, lower: Lowering, values: Sequence[Value], avals, uniform, in_memory):
        self.lower = lower
        self.parts: list[Value] = []
        self.adopted: set[int] = set()
        for k, value in enumerate(values):
            kind = kind_of(avals[k].dtype)
            if (isinstance(value, Memory) and value.size > 3) or k in in_memory:
                self.parts.append(self._stored(value, kind, uniform[k]))
            else:
                self.parts.append(self._declared(lower.nodes(value), kind, uniform[k]))

    def _stored(self, value: Value, kind: str, uniform: bool) -> Memory:
        lower = self.lower
        uniform = uniform or lower.lanes == 1
        if isinstance(value, Memory):
            storage = value.storage
            free = id(storage) not in self.adopted and lower.fits(storage, uniform)
            if free and storage.uniform == uniform:
                self.adopted.add(id(storage))
                return value
        if uniform == all(flags_of([value])) or lower.lanes == 1:
            return lower.in_memory(value, kind, fresh=True)
        storage = lower.storage(value.size, kind, uniform)
        source = lower.in_memory(value, kind)
        lower.copy(storage, source.storage, value.size)
        return Memory(storage, value.shape)

    def _declared(self, nodes: np.ndarray, kind: str, uniform: bool) -> np.ndarray:
        lower = self.lower
        uniform = uniform or lower.lanes == 1
        out = np.empty(nodes.size, object)
        names = []
        for k, node in enumerate(nodes.ravel()):
            name = lower.name("c")
            lower.line(f"{lower.type(kind, uniform)} {name} = {lower.value(node, not uniform)};")
            names.append(name)
            out[k] = lower.graph.named(name, kind, uniform)
        return out.reshape(nodes.shape)

    def update(self, new: Sequence[Value], mask: str | None) -> None:
        """The assignments at the end of a turn."""
        lower = self.lower
        new = self._apart(new)
        lower.together(new)
        pairs: list[tuple[Node, Node, str]] = []
        for part, value in zip(self.parts, new, strict=True):
            if isinstance(part, Memory):
                if not (isinstance(value, Memory) and value.storage is part.storage):
                    value = lower.in_memory(value, part.storage.kind)
                    lower.copy(part.storage, value.storage, part.size)
                continue
            for old, node in zip(part.ravel(), lower.nodes(value).ravel(), strict=True):
                if old is not node:
                    pairs.append((old, node, lower.value(node, not old.uniform)))
        names = {old.name for old, *_ in pairs}
        for k, (old, node, text) in enumerate(pairs):
            if node.name in names:  # assigned to as well: keep its value of before
                kept = lower.name()
                lower.line(f"const {lower.type(old.kind, old.uniform)} {kept} = {text};")
                pairs[k] = old, node, kept
        for old, _, text in pairs:
            masked = mask is not None and not old.uniform
            lower.line(f"{old.name} = {f'choose({mask}, {text}, {old.name})' if masked else text};")

    def _apart(self, new: Sequence[Value]) -> list[Value]:
        """Arrays that come from another place of the carry are copied before that changes."""
        own = {id(p.storage) for p in self.parts if isinstance(p, Memory)}
        found = []
        for part, value in zip(self.parts, new, strict=True):
            moved = isinstance(value, Memory) and id(value.storage) in own
            if moved and not (isinstance(part, Memory) and value.storage is part.storage):
                value = self.lower.in_memory(value, value.storage.kind, fresh=True)
            found.append(value)
        return found


def emit(lower: Lowering, values: Sequence[Value], jaxpr=None, first: int = 0) -> None:
    """Give names to numbers that are used inside blocks that follow, and put arrays in memory that
    are indexed there; they are the arguments of `jaxpr` from the place `first` on."""
    places = lower.indexed.places(jaxpr) if jaxpr is not None else frozenset()
    lower.together(values)
    for k, value in enumerate(values):
        if isinstance(value, np.ndarray):
            for node in value.ravel():
                lower.value(node)
            if first + k in places and value.size > 3:
                lower.in_memory(value, value.ravel()[0].kind)


# Loops


class Loop:
    """What a loop needs around its body: numbers that stay the same, and the carry."""

    def __init__(self, lower: Lowering, body, consts: Sequence[Value], start: list, uniform):
        """`consts` come before the carry, which begins as `start`, in the arguments of the body."""
        n = len(consts)
        jaxpr = body.jaxpr
        stays = [jaxpr.outvars[k] is jaxpr.invars[n + k] for k in range(len(start))]
        self.moving = [k for k, fixed in enumerate(stays) if not fixed]
        self.start = start
        self.held = [*consts, *(start[k] for k, fixed in enumerate(stays) if fixed)]
        emit(lower, consts, jaxpr)
        emit(lower, self.held[n:])
        places = {k - n for k in lower.indexed.places(jaxpr)}
        self.hold(1)
        self.carry = Carry(
            lower,
            [start[k] for k in self.moving],
            [body.out_avals[k] for k in self.moving],
            [uniform[k] for k in self.moving],
            {j for j, k in enumerate(self.moving) if k in places and start[k].size > 2},
        )

    def hold(self, change: int) -> None:
        """Keep arrays that the next turn reads again from being written over, or let them go."""
        for value in self.held:
            if isinstance(value, Memory):
                value.storage.refs += change

    def values(self) -> list[Value]:
        """All that the loop carries."""
        out = list(self.start)
        for k, value in zip(self.moving, self.carry.parts, strict=True):
            out[k] = value
        return out

    def update(self, found: Sequence[Value], mask: str | None = None) -> None:
        self.carry.update([found[k] for k in self.moving], mask)


@primitive("while")
def while_(lower: Lowering, equation, *args: Value) -> list[Value]:
    params = equation.params
    n, m = params["cond_nconsts"], params["body_nconsts"]
    cond, body = params["cond_jaxpr"], params["body_jaxpr"]
    cond_consts, body_consts, start = args[:n], args[n : n + m], list(args[n + m :])
    place = _runs_once(cond.jaxpr, body.jaxpr, n)
    if place is not None:
        stay = lambda: list(start)
        go = lambda: lower.closed(body, [*body_consts, *start])
        which = lower.nodes(start[place]).ravel()[0]
        emit(lower, [*body_consts, *start])
        return branches(lower, which, [stay, go], [False, True])
    emit(lower, cond_consts)
    test = cond.jaxpr, flags_of(cond_consts)
    uniform = lower.uniform.carry(body.jaxpr, flags_of(body_consts), flags_of(start), [], test)
    loop = Loop(lower, body, body_consts, start, uniform)
    _hold(cond_consts, 1)
    _while_text(lower, lambda: lower.closed(cond, [*cond_consts, *loop.values()]), body, loop, m)
    _hold(cond_consts, -1)
    loop.hold(-1)
    return loop.values()


def _hold(values: Sequence[Value], change: int) -> None:
    for value in values:
        if isinstance(value, Memory):
            value.storage.refs += change


def _while_text(lower: Lowering, going: Callable, body, loop: Loop, consts: int) -> None:
    with lower.block() as test:
        node = lower.nodes(going()[0]).ravel()[0]
        text = lower.value(node)
    mask = None
    if not node.uniform:
        mask = lower.name("k")
        lower.line(f"vl {mask} = {lower.mask or 'S(true)'};")
    with lower.block(mask) as inside:
        loop.update(lower.closed(body, [*loop.held[:consts], *loop.values()]), mask)
    lower.line("for (;;) {")
    lower.lines += test
    if mask is None:
        lower.line(f"if (!({text})) break;")
    else:
        lower.line(f"{mask} = {mask} & {text}; if (!any({mask})) break;")
    lower.lines += inside
    lower.line("}")


def _runs_once(cond, body, cond_consts: int) -> int | None:
    """The place in the carry of a truth value that alone decides on another turn, if a turn always
    makes it false: such a loop is a branch."""
    (going,) = cond.outvars
    if cond.eqns or going not in cond.invars:
        return None
    place = cond.invars.index(going) - cond_consts
    last = body.outvars[place]
    known = body_constant(body, last)
    return place if place >= 0 and known is not None and not known else None


def body_constant(jaxpr, variable):
    """The value of a variable that depends on nothing, if it is that simple."""
    if isinstance(variable, core.Literal):
        return variable.val
    for equation in jaxpr.eqns:
        if variable in equation.outvars:
            simple = equation.primitive.name in ("broadcast_in_dim", "convert_element_type")
            return body_constant(jaxpr, equation.invars[0]) if simple else None
    return None


@primitive("scan")
def scan(lower: Lowering, equation, *args: Value) -> list[Value]:
    params = equation.params
    n, m, length = params["num_consts"], params["num_carry"], params["length"]
    body, reverse = params["jaxpr"], params["reverse"]
    consts, start, xs = args[:n], list(args[n : n + m]), args[n + m :]
    if length <= 1 or length * size(body.jaxpr) <= UNROLL or _mostly_calls(lower, body, length):
        return _written_out(lower, body, consts, start, xs, length, reverse)
    tables = [
        lower.in_memory(x, kind_of(v.aval.dtype))
        for x, v in zip(xs, body.jaxpr.invars[n + m :], strict=True)
    ]
    flags = flags_of(consts), flags_of(xs)
    uniform = lower.uniform.carry(body.jaxpr, flags[0], flags_of(start), flags[1])
    kept = lower.uniform.results(body.jaxpr, [*flags[0], *uniform, *flags[1]])[m:]
    loop = Loop(lower, body, consts, start, uniform)
    _hold(tables, 1)
    results = _results(lower, body.out_avals[m:], length, kept)
    counter = lower.name("i")
    with lower.block() as inside:
        at = lower.graph.named(counter, INT, True)
        rows = [row_of(lower, table, at) for table in tables]
        found = lower.closed(body, [*consts, *loop.values(), *rows])
        for result, value in zip(results, found[m:], strict=True):
            put_row(lower, result, value, at)
        loop.update(found)
    order = f"{length - 1}; {counter} >= 0; {counter}--"
    order = order if reverse else f"0; {counter} < {length}; {counter}++"
    lower.line(f"for (i8 {counter} = {order}) {{")
    lower.lines += inside
    lower.line("}")
    _hold(tables, -1)
    loop.hold(-1)
    return [*loop.values(), *results]


def _mostly_calls(lower: Lowering, body, length: int) -> bool:
    """Whether a loop calls functions and does little else: written out, it knows its constants."""
    own = size(body.jaxpr, lower.functions.wants)
    return own < size(body.jaxpr) and length * own <= CALLING


def _results(lower: Lowering, avals, length: int, uniform: list[bool]) -> list[Memory]:
    found = []
    for aval, flag in zip(avals, uniform, strict=True):
        entries = length * math.prod(aval.shape)
        storage = lower.storage(entries, kind_of(aval.dtype), flag)
        found.append(Memory(storage, (length, *aval.shape)))
    return found


def row_of(lower: Lowering, table: Memory, at: Node) -> Value:
    """table[at]: as nodes if small."""
    shape = table.shape[1:]
    entries = math.prod(shape)
    base = lower.graph.make("mul", INT, (at, lower.graph.integer(entries)))
    if lower.loops(entries, table):
        type_ = lower.type(table.storage.kind, table.storage.uniform)
        name = lower.name("m")
        lower.line(f"const {type_} *const {name} = {table.storage.name} + {lower.value(base)};")
        part = Storage(name, entries, table.storage.kind, table.storage.uniform, lower.mask, False)
        return Memory(part, shape)
    out = np.empty(entries, object)
    place = lambda k: lower.graph.make("add", INT, (base, lower.graph.integer(k)))
    out[:] = [lower.load(table.storage, place(k)) for k in range(entries)]
    return out.reshape(shape)


def put_row(lower: Lowering, table: Memory, value: Value, at: Node) -> None:
    """table[at] = value."""
    entries = math.prod(table.shape[1:])
    base = lower.graph.make("mul", INT, (at, lower.graph.integer(entries)))
    if isinstance(value, Memory):
        target = f"{table.storage.name} + {lower.value(base)}"
        lower.line(f"copy_({target}, {value.storage.name}, {entries});")
        return
    lanes = not table.storage.uniform
    for k, node in enumerate(value.ravel()):
        place = lower.graph.make("add", INT, (base, lower.graph.integer(k)))
        lower.line(f"{table.storage.name}[{lower.value(place)}] = {lower.value(node, lanes)};")


def _written_out(lower: Lowering, body, consts, carry, xs, length: int, reverse: bool):
    """A short loop without a loop."""
    m = len(carry)
    rows: list = [None] * length
    _hold([*consts, *xs], 1)
    for k in reversed(range(length)) if reverse else range(length):
        at = lower.graph.integer(k)
        item = lambda x: row_of(lower, x, at) if isinstance(x, Memory) else _row(x, k)  # noqa: B023
        found = lower.closed(body, [*consts, *carry, *map(item, xs)])
        carry, rows[k] = found[:m], found[m:]
    _hold([*consts, *xs], -1)
    stacked: list[Value] = []
    for j, aval in enumerate(body.out_avals[m:]):
        parts = [row[j] for row in rows]
        total = length * math.prod(aval.shape)
        if total <= SMALL and length:
            stacked.append(np.stack([lower.nodes(p) for p in parts]))
            continue
        flag = all(flags_of(parts))
        (table,) = _results(lower, [aval], length, [flag])
        for k, part in enumerate(parts):
            put_row(lower, table, part, lower.graph.integer(k))
        stacked.append(table)
    return [*carry, *stacked]


def _row(nodes: np.ndarray, k: int) -> np.ndarray:
    return nodes[k : k + 1].reshape(nodes.shape[1:])


# Branches


@primitive("cond")
def cond(lower: Lowering, equation, which: Value, *args: Value) -> list[Value]:
    inner = equation.params["branches"]
    node = lower.nodes(which).ravel()[0]
    if node.known:
        return lower.closed(inner[int(np.clip(int(node.const), 0, len(inner) - 1))], args)
    emit(lower, args)
    choices = [lambda b=b: lower.closed(b, args) for b in inner]
    return branches(lower, node, choices, [size(b.jaxpr) > RARE for b in inner])


def branches(lower: Lowering, which: Node, choices: list, rare: list[bool]) -> list[Value]:
    """The results of the branch that `which` (a truth value or a number) points to."""
    texts, results, masks = [], [], []
    for k, choice in enumerate(choices):
        wanted = _wanted(lower, which, k, len(choices))
        mask = None
        if not wanted.uniform:
            mask = lower.name("k")
            outer = f" & {lower.mask}" if lower.mask else ""
            lower.line(f"const vl {mask} = {lower.value(wanted)}{outer};")
            test = f"any({mask})"
        else:
            test = lower.value(wanted)
        masks.append(mask)
        outer_rare = lower.is_rare
        lower.is_rare = outer_rare or rare[k]
        with lower.block(mask) as inside:
            found = choice()
            lower.together(found)
            results.append([_Case(lower, value) for value in found])
        lower.is_rare = outer_rare
        texts.append((test, inside, rare[k]))
    joined = [_Joined(lower, list(cases), masks) for cases in zip(*results, strict=True)]
    for k, (test, inside, is_rare) in enumerate(texts):
        ends = [line for j in joined for line in j.assignments[k]]
        outs = [name for j in joined for name in j.names]
        if is_rare:
            captured = "".join(f", &{name}" for name in outs)
            opening = f"if (__builtin_expect({test}, 0)) {{ [={captured}]() COLD {{"
            lower.lines += [opening, *inside, *ends, "}(); }"]
        elif inside or ends:
            lower.lines += [f"if ({test}) {{", *inside, *ends, "}"]
    return [j.value for j in joined]


def _wanted(lower: Lowering, which: Node, k: int, count: int) -> Node:
    make, graph = lower.graph.make, lower.graph
    if which.kind == BOOL:
        return which if k else make("not", BOOL, (which,))
    op = "le" if k == 0 else "ge" if k == count - 1 else "eq"
    return make(op, BOOL, (which, graph.const(k, which.kind)))


class _Case:
    """One result of one branch, with the texts that its numbers have there."""

    def __init__(self, lower: Lowering, value: Value):
        self.value = value
        self.nodes = [] if isinstance(value, Memory) else list(value.ravel())
        self.texts = [lower.value(node) for node in self.nodes]

    def text(self, k: int, lanes: bool) -> str:
        splat = lanes and self.nodes[k].uniform
        return f"S({self.texts[k]})" if splat else self.texts[k]


class _Joined:
    """One result of all branches: variables in front of them, assignments inside."""

    def __init__(self, lower: Lowering, cases: list[_Case], masks: list[str | None]):
        self.lower = lower
        self.cases = cases
        self.masks = masks
        self.names: list[str] = []
        self.assignments: list[list[str]] = [[] for _ in cases]
        first = cases[0].value
        if any(isinstance(c.value, Memory) for c in cases):
            self.value: Value = self._memory(first.size, first.shape)
            return
        out = np.empty(first.size, object)
        out[:] = [self._number(k) for k in range(first.size)]
        self.value = out.reshape(first.shape)

    def _number(self, k: int) -> Node:
        lower = self.lower
        nodes = [case.nodes[k] for case in self.cases]
        if all(node is nodes[0] for node in nodes):
            return nodes[0]
        uniform = lower.lanes == 1 or (
            all(m is None for m in self.masks) and all(node.uniform for node in nodes)
        )
        kind, name = nodes[0].kind, lower.name("o")
        lower.line(f"{lower.type(kind, uniform)} {name} = {{}};")
        self.names.append(name)
        for lines, case, mask in zip(self.assignments, self.cases, self.masks, strict=True):
            text = case.text(k, not uniform)
            lines.append(f"{name} = {f'choose({mask}, {text}, {name})' if mask else text};")
        return lower.graph.named(name, kind, uniform)

    def _memory(self, size: int, shape: tuple) -> Memory:
        lower = self.lower
        values = [case.value for case in self.cases]
        stored = [v.storage for v in values if isinstance(v, Memory)]
        if len(stored) == len(values) and all(s is stored[0] for s in stored):
            return Memory(stored[0], shape)
        uniform = all(m is None for m in self.masks) and all(flags_of(values))
        storage = lower.storage(size, stored[0].kind, uniform)
        lanes = not storage.uniform
        for lines, case, mask in zip(self.assignments, self.cases, self.masks, strict=True):
            if isinstance(case.value, Memory):
                last = "" if mask is None else f", {mask}"
                source = case.value.storage.name
                lines.append(f"copy_({storage.name}, {source}, {size}{last});")
                continue
            for k in range(size):
                place, text = f"{storage.name}[{k}]", case.text(k, lanes)
                lines.append(f"{place} = {f'choose({mask}, {text}, {place})' if mask else text};")
        return Memory(storage, shape)
