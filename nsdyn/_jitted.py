"""Functions of modules and arrays under `jax.jit`, in two ways that save time.

traced_once         for what programs contain many times: the functions of a mechanism come back in
                    every stage and projection, once more for each derivative. Tracing is what users
                    wait for longest, so what was traced is kept and put in again. Compiled programs
                    are the same, since compilers inline.
compiled_quickly    for programs that run a few times, such as checks: a quarter of the compilation,
                    several times the run time.

Arrays among the arguments are traced; all else is static and must be hashable.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

Function = TypeVar("Function", bound=Callable)
# The second option belongs to the compiler's newer code generator, which not every version has.
PLAIN = {"xla_backend_optimization_level": 0}
PLAINER = {**PLAIN, "xla_cpu_use_fusion_emitters": False}


def split(args: tuple) -> tuple[tuple, list]:
    """The arrays among the arguments, and all else, which must be hashable."""
    leaves, structure = jax.tree.flatten(args)
    is_array = tuple(isinstance(x, jax.Array | np.ndarray) for x in leaves)
    others = tuple(x for x, known in zip(leaves, is_array, strict=True) if not known)
    arrays = [x for x, known in zip(leaves, is_array, strict=True) if known]
    return (structure, is_array, others), arrays


def unsplit(static: tuple, arrays: Sequence) -> tuple:
    """The arguments that `split` took apart."""
    structure, is_array, others = static
    rest, traced = iter(others), iter(arrays)
    leaves = [next(traced) if known else next(rest) for known in is_array]
    return jax.tree.unflatten(structure, leaves)


def of_parts(function: Callable) -> Callable:
    """The function with its arguments as `split` leaves them."""

    def call(static: tuple, arrays: list) -> Any:
        args, named = unsplit(static, arrays)
        return function(*args, **named)

    call.__name__ = call.__qualname__ = function.__name__
    return call


def traced_once(function: Function) -> Function:
    """The function, traced once for arguments of a kind, for use inside programs."""
    jitted = jax.jit(of_parts(function), static_argnums=0)

    @functools.wraps(function)
    def once(*args: Any, **named: Any) -> Any:
        return jitted(*split((args, named)))

    return once  # type: ignore[return-value]


def compiled_quickly(function: Function) -> Function:
    """The function, compiled with little optimisation."""
    call = of_parts(function)

    @functools.wraps(function)
    def quickly(*args: Any, **named: Any) -> Any:
        return _quick(call)(*split((args, named)))

    return quickly  # type: ignore[return-value]


@functools.cache
def _quick(call: Callable) -> Callable:
    return jax.jit(call, static_argnums=0, compiler_options=_options())


@functools.cache
def _options() -> dict:
    try:
        jax.jit(lambda x: x, compiler_options=PLAINER)(0.0)
    except jax.errors.JaxRuntimeError:
        return PLAIN
    return PLAINER
