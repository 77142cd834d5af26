"""Derivatives of a step whose primal uses loops of unknown length.

`with_replay(fast, planned, replay, args, static)` computes `fast(*args, *static)`. Where a
derivative is wanted it computes `planned(*args, *static) -> (out, plan)` instead and differentiates
`replay(*args, *static, plan)`: a function of the same value built of bounded pieces, which both
forward and reverse mode accept. The primal never pays for it. Every array must come in through
`args`.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import numpy as np


def _is_float(x) -> bool:
    return eqx.is_inexact_array(x)


def with_replay(fast: Callable, planned: Callable, replay: Callable, args: tuple, static: tuple):
    arrays, rest = eqx.partition(args, eqx.is_array)
    rebuild = lambda arrays: eqx.combine(arrays, rest)

    @jax.custom_jvp
    def call(arrays):
        return fast(*rebuild(arrays), *static)

    @call.defjvp
    def rule(primals, tangents):
        (arrays,), (dots,) = primals, tangents
        out, plan = planned(*rebuild(arrays), *static)
        floats, others = eqx.partition(arrays, _is_float)
        float_dots = jax.tree.map(lambda x, dot: dot if _is_float(x) else None, arrays, dots)

        def value(floats):
            return eqx.filter(
                replay(*rebuild(eqx.combine(floats, others)), *static, plan), _is_float
            )

        out_dots = jax.jvp(value, (floats,), (float_dots,))[1]
        fill = lambda x, dot: dot if _is_float(x) else np.zeros(x.shape, jax.dtypes.float0)
        return out, jax.tree.map(fill, out, _pad(out, out_dots))

    return call(arrays)


def _pad(out, dots):
    """`dots` with the structure of `out`: None leaves become placeholders."""
    leaves, treedef = jax.tree.flatten(out)
    float_dots = iter(jax.tree.leaves(dots))
    return jax.tree.unflatten(treedef, [next(float_dots) if _is_float(x) else 0.0 for x in leaves])
