"""Checks of values and of what functions return, with errors that name the argument, what was found
and what was expected.

Functions are evaluated abstractly: nothing is computed or compiled.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nsdyn._signature import located
from nsdyn._user_file import place_of
from nsdyn.errors import ProblemError

HINTS = (
    (jax.errors.TracerArrayConversionError, "; use jax.numpy where the function uses numpy"),
    (
        jax.errors.ConcretizationTypeError,
        "; use jnp.where or jax.lax.cond where the function uses if on a value",
    ),
)
ROUND_OFF = 1e-8  # entries of a list smaller than this, relative to the largest, are written as 0


def finite(name: str, value: Any, where: str = "") -> None:
    """Raise if an entry of `value` is infinite or NaN."""
    value = np.asarray(value)
    if np.all(np.isfinite(value)):
        return
    index = tuple(int(i) for i in np.argwhere(~np.isfinite(value))[0])
    entry = f"{value[index]} at index {list(index)}" if index else f"{value[()]}"
    raise ProblemError(f"{name}: expected finite numbers{where}, found {entry}")


def returned(argument: str, function: Callable, *args: Any, name: str | None = None) -> Any:
    """What `function` returns, abstractly; what it raises becomes a ProblemError."""
    try:
        return jax.eval_shape(function, *args)
    except ProblemError:
        raise
    except Exception as error:
        hints = [text for kind, text in HINTS if isinstance(error, kind)]
        hint = hints[0] if hints else _about_params(error, args)
        first = (str(error).strip().splitlines() or [""])[0]
        place = place_of(error)
        raise ProblemError(
            f"{f'{place}: ' * bool(place)}{argument}: the function {name or located(function)} "
            f"raised {type(error).__name__}: {first}{hint}"
        ) from error


def _about_params(error: Exception, args: tuple) -> str:
    """A hint if the error looks as if a name were missing in the parameters."""
    if isinstance(error, KeyError):
        names = next((list(x) for x in reversed(args) if isinstance(x, dict)), None)
        return "" if names is None else f"; params has the names {names}"
    missing = isinstance(error, TypeError) and any(x is None for x in args)
    return "; params is None" if missing else ""


def _array(
    argument: str, function: Callable, *args: Any, name: str | None = None
) -> jax.ShapeDtypeStruct:
    out = returned(argument, function, *args, name=name)
    if not isinstance(out, jax.ShapeDtypeStruct):
        raise ProblemError(
            f"{argument}: the function {name or located(function)} returned a "
            f"{type(out).__name__}, expected an array; put its entries together with jnp.stack or "
            "jnp.concatenate"
        )
    return out


def shaped(
    argument: str, function: Callable, shape: tuple, why: str, *args: Any, name: str | None = None
) -> None:
    """Raise unless `function` returns an array of this shape."""
    out = _array(argument, function, *args, name=name)
    if out.shape != shape:
        raise ProblemError(
            f"{argument}: the function {name or located(function)} returned shape {out.shape}, "
            f"expected {shape}, {why}"
        )


def scalar(argument: str, function: Callable, *args: Any) -> None:
    """Raise unless `function` returns one number."""
    out = _array(argument, function, *args)
    if out.shape not in ((), (1,)):
        raise ProblemError(
            f"{argument}: the function {located(function)} returned shape {out.shape}, expected a "
            "scalar"
        )


def vector(argument: str, function: Callable, *args: Any, name: str | None = None) -> int:
    """The number of rows of a function that returns a vector; a scalar is one row."""
    out = _array(argument, function, *args, name=name)
    if len(out.shape) > 1:
        raise ProblemError(
            f"{argument}: the function {name or located(function)} returned shape {out.shape}, "
            "expected a vector (m,), one entry for each row"
        )
    if not any(jnp.issubdtype(out.dtype, kind) for kind in (jnp.integer, jnp.floating)):
        raise ProblemError(
            f"{argument}: the function {name or located(function)} returned values of type "
            f"{out.dtype}, expected real numbers"
        )
    return out.shape[0] if out.shape else 1


def listed(x: Any, digits: int = 6) -> str:
    """Numbers as a list to read; entries that are round-off relative to the largest are written as
    0."""
    x = np.ravel(np.asarray(x, float))
    small = ROUND_OFF * np.max(np.abs(x), initial=0.0)
    return "[" + ", ".join(f"{0.0 if abs(y) < small else y:.{digits}g}" for y in x) + "]"


def pasted(x: Any) -> str:
    """Numbers as a list with all digits, to be pasted into a program."""
    x = np.ravel(np.asarray(x, float))
    small = np.finfo(float).eps * np.max(np.abs(x), initial=0.0)
    return "[" + ", ".join(repr(0.0 if abs(y) < small else float(y)) for y in x) + "]"
