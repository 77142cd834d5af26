"""Which arguments of a jaxpr are read or written at places that are not known: they belong in
memory."""

from jax.extend import core

from nsdyn.native.uniform import inner_jaxprs

INDEXED = ("dynamic_update_slice", "dynamic_slice", "gather", "scatter")


class Indexed:
    """Each question is answered once: loops in loops ask again and again."""

    def __init__(self) -> None:
        self.known: dict = {}

    def places(self, jaxpr) -> frozenset[int]:
        """The numbers of such arguments."""
        key = id(jaxpr)
        if key not in self.known:
            self.known[key] = self._places(jaxpr), jaxpr
        return self.known[key][0]

    def _places(self, jaxpr) -> frozenset[int]:
        place = {v: k for k, v in enumerate(jaxpr.invars)}
        found: set[int] = set()
        for equation in jaxpr.eqns:
            inputs = [x for x in self._inputs(equation) if not isinstance(x, core.Literal)]
            found.update(place[x] for x in inputs if x in place)
        return frozenset(found)

    def _inputs(self, equation) -> list:
        """What an equation indexes, itself or inside."""
        name, params, inputs = equation.primitive.name, equation.params, equation.invars
        if name in INDEXED:
            rest = inputs[1 if name in ("gather", "dynamic_slice") else 2 :]
            return [] if all(isinstance(x, core.Literal) for x in rest) else inputs[:1]
        if name == "while":
            n = params["cond_nconsts"]
            return [inputs[n + k] for k in self.places(params["body_jaxpr"].jaxpr)]
        if name == "cond":
            inner = [self.places(branch.jaxpr) for branch in params["branches"]]
            return [inputs[1 + k] for k in frozenset().union(*inner)]
        jaxprs = list(inner_jaxprs(equation))
        if name == "custom_linear_solve" or len(jaxprs) != 1:
            return []
        return [inputs[k] for k in self.places(jaxprs[0]) if k < len(inputs)]
