"""Functions of modules and arrays that run a few times, such as the checks of a start: compiled
with little optimisation, natively if possible. That takes half of the time of XLA for a mechanism
of a few bodies, a third for a robot."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np

from nsdyn._jitted import compiled_quickly, of_parts, split
from nsdyn.native.choice import choice
from nsdyn.native.program import Program, written
from nsdyn.native.unsupported import Unsupported

Function = TypeVar("Function", bound=Callable)
KEPT = 64  # programs kept in memory


def natively(function: Function) -> Function:
    """The function as a native program for arguments of a kind, if there can be one; else as
    `compiled_quickly` has it. Arrays among the arguments are traced; all else is static and must
    be hashable."""
    by_xla = compiled_quickly(function)
    call = of_parts(function)

    @functools.wraps(function)
    def quickly(*args: Any, **named: Any) -> Any:
        static, arrays = split((args, named))
        if choice() == "xla" or any(isinstance(x, jax.core.Tracer) for x in arrays):
            return by_xla(*args, **named)
        made = _program(call, static, tuple((x.shape, x.dtype) for x in arrays))
        if made is None:
            return by_xla(*args, **named)
        program, structure = made
        return jax.tree.unflatten(structure, program([np.asarray(x) for x in arrays]))

    return quickly  # type: ignore[return-value]


@functools.lru_cache(KEPT)
def _program(call: Callable, static: tuple, kinds: tuple) -> tuple[Program, Any] | None:
    """The program and the structure of its result; None if there is no such program."""
    structure: Any = None

    def flat(*values: Any) -> list:
        nonlocal structure
        leaves, structure = jax.tree.flatten(call(static, values))
        return leaves

    examples = [jax.ShapeDtypeStruct(*kind) for kind in kinds]
    try:
        return written(flat, examples).program(quick=True), structure
    except Unsupported:
        return None
