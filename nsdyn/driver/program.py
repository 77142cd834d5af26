"""Functions compiled for the arrays among their arguments."""

from collections.abc import Callable
from typing import Any

import jax

from nsdyn._jitted import split, unsplit


class Program:
    """A function compiled for the arrays among its arguments; all else is static and must be
    hashable. Like `equinox.filter_jit`, with half its cost for each call: a short run takes two
    milliseconds in all."""

    def __init__(self, function: Callable):
        self.function = function
        self._jitted = jax.jit(self._call, static_argnums=0)

    def _call(self, static: tuple, arrays: list) -> Any:
        return self.function(*unsplit(static, arrays))

    def __call__(self, *args) -> Any:
        return self._jitted(*split(args))

    def compiled(self, *args) -> tuple[Callable, str]:
        """The program for such arguments, and its text before compilation."""
        lowered = self._jitted.lower(*split(args))
        program = lowered.compile()
        return lambda *args: program(split(args)[1]), lowered.as_text()
