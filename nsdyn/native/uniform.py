"""What is the same in all lanes, variable by variable of a jaxpr."""

from collections.abc import Callable, Iterator, Sequence

from jax.extend import core

# Factorisations are functions of the prelude that work on lanes, whatever they are given.
BY_LANES = frozenset({"cholesky", "triangular_solve", "lu", "solve_pivoted", "eigh"})


def inner_jaxprs(equation) -> Iterator:
    for value in equation.params.values():
        for x in value if isinstance(value, tuple | list) else (value,):
            if isinstance(x, core.ClosedJaxpr):
                yield x.jaxpr
            elif isinstance(x, core.Jaxpr):
                yield x


def size(jaxpr, apart: Callable = lambda jaxpr: False) -> int:
    """Equations in all, but for those of inner jaxprs that are `apart`."""
    inner = lambda e: (j for j in inner_jaxprs(e) if not apart(j))
    return sum(1 + sum(size(j, apart) for j in inner(e)) for e in jaxpr.eqns)


class Uniform:
    """Which results all lanes share, given which arguments they do; each question is answered
    once."""

    def __init__(self) -> None:
        self.known: dict = {}
        self.apart: dict = {}

    def results(self, jaxpr, flags: Sequence[bool]) -> list[bool]:
        if all(flags) and not self.by_lanes(jaxpr):
            return [True] * len(jaxpr.outvars)
        key = id(jaxpr), tuple(flags)
        if key not in self.known:
            self.known[key] = self._results(jaxpr, flags), jaxpr
        return self.known[key][0]

    def by_lanes(self, jaxpr) -> bool:
        """Whether something in it gives each lane a result of its own, even of shared arguments."""
        if id(jaxpr) not in self.apart:
            own = any(e.primitive.name in BY_LANES for e in jaxpr.eqns)
            inner = (x for e in jaxpr.eqns for x in inner_jaxprs(e))
            self.apart[id(jaxpr)] = own or any(map(self.by_lanes, inner)), jaxpr
        return self.apart[id(jaxpr)][0]

    def _results(self, jaxpr, flags: Sequence[bool]) -> list[bool]:
        shared = dict(zip(jaxpr.invars, flags, strict=True))
        read = lambda x: True if isinstance(x, core.Literal) else shared.get(x, True)
        for equation in jaxpr.eqns:
            found = self._equation(equation, [read(x) for x in equation.invars])
            shared.update(zip(equation.outvars, found, strict=True))
        return [read(x) for x in jaxpr.outvars]

    def _equation(self, equation, flags: list[bool]) -> list[bool]:
        name, params = equation.primitive.name, equation.params
        if name in BY_LANES:
            return [False] * len(equation.outvars)
        shared = all(flags) and not any(map(self.by_lanes, inner_jaxprs(equation)))
        if name in ("pmin", "pmax") or shared:
            return [True] * len(equation.outvars)
        if name == "while":
            n = params["cond_nconsts"]
            m = n + params["body_nconsts"]
            test = params["cond_jaxpr"].jaxpr, flags[:n]
            return self.carry(params["body_jaxpr"].jaxpr, flags[n:m], flags[m:], [], test)
        if name == "scan":
            n, m = params["num_consts"], params["num_carry"]
            body, xs = params["jaxpr"].jaxpr, flags[n + m :]
            carry = self.carry(body, flags[:n], flags[n : n + m], xs)
            return carry + self.results(body, [*flags[:n], *carry, *xs])[m:]
        if name == "cond" and flags[0]:
            each = [self.results(b.jaxpr, flags[1:]) for b in params["branches"]]
            return [all(x) for x in zip(*each, strict=True)]
        if name in ("jit", "custom_jvp_call", "custom_vjp_call", "remat2"):
            return self.results(next(inner_jaxprs(equation)), flags)
        return [False] * len(equation.outvars)

    def carry(self, body, consts, carry, xs, test=None) -> list[bool]:
        """Which numbers carried through a loop all lanes share."""
        carry = list(carry)
        while True:
            if test is not None and not self.results(test[0], [*test[1], *carry])[0]:
                return [False] * len(carry)
            new = self.results(body, [*consts, *carry, *xs])[: len(carry)]
            new = [a and b for a, b in zip(carry, new, strict=True)]
            if new == carry:
                return carry
            carry = new
