"""What a function looks like from outside: how many arguments it accepts, what it closes over, its
name."""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax

from nsdyn._user_file import defined_at
from nsdyn.errors import ProblemError


def accepts_positional(function: Callable, count: int) -> bool:
    """Whether `function` can be called with `count` positional arguments."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def takes_mode(force: Callable) -> bool:
    """Whether a force is to be called with the mode as its fifth argument: because it requires five
    arguments, or because its fifth parameter is called `mode`, whatever its default. A fifth
    parameter with a default and another name is left alone."""
    if not accepts_positional(force, 5):
        return False
    if not accepts_positional(force, 4):
        return True
    try:
        return "mode" in list(inspect.signature(force).parameters)[4:5]
    except ValueError:  # a function without a signature: a plain force
        return False


def require_function(owner: str, name: str, function: Any, count: int, signature: str) -> None:
    if not callable(function):
        raise ProblemError(
            f"{owner}({name}=...): expected a function {signature}, found {function!r}"
        )
    if not accepts_positional(function, count):
        place = defined_at(function)
        found = f"{label(function)}{inspect.signature(function)}{f' in {place}' * bool(place)}"
        raise ProblemError(f"{owner}({name}=...): expected a function {signature}, found {found}")


def label(function: Any) -> str:
    return getattr(function, "__name__", type(function).__name__)


def located(function: Any) -> str:
    """The name of a function and, if it comes from a user's file, its place."""
    place = defined_at(function)
    return label(function) if place is None else f"{label(function)} ({place})"


def closed_over_tracer(model: Any) -> str | None:
    """The name of a function anywhere in `model` that closes over a traced value; None if there is
    none."""
    for function in _functions(model):
        cells = getattr(function, "__closure__", None) or ()
        values = [cell.cell_contents for cell in cells] + list(
            getattr(function, "__defaults__", None) or ()
        )
        values += list(getattr(function, "args", ())) + list(
            (getattr(function, "keywords", None) or {}).values()
        )
        if any(isinstance(x, jax.core.Tracer) for value in values for x in jax.tree.leaves(value)):
            return getattr(function, "__qualname__", repr(function))
    return None


def _functions(x: Any) -> list[Callable]:
    """All functions in an equinox module, in its fields (static ones too), in tuples of them, and
    in methods bound to modules."""
    if isinstance(x, tuple | list):
        return [function for item in x for function in _functions(item)]
    if isinstance(x, eqx.Module):
        return _functions(list(vars(x).values()))
    if not callable(x) or isinstance(x, type):
        return []
    return [x, *_functions([getattr(x, "__self__", None), getattr(x, "__wrapped__", None)])]
