"""The rows of a constraint with listed modes: which functions and locks make up each mode, and
which rows belong to them.

A mode is None, a function g(q, t, p), a `lock(...)`, or a tuple of these. Two layouts, chosen
statically:

- union: every function has rows of its own and only the mask depends on the mode. Used if that
  needs no more rows than the largest mode, as with brakes that lock one after another; the Jacobian
  then does not depend on the mode at all.
- padded: the rows of the mode are selected by the traced mode and padded to the largest mode.
"""

import inspect
import operator
from collections.abc import Callable, Iterable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from nsdyn import _expect as expect
from nsdyn._signature import accepts_positional, label
from nsdyn._types import (
    AnyArray,
    AnyConfiguration,
    AnyMode,
    AnyTime,
    Held,
    Mode,
    Params,
    RowMask,
    Rows,
)
from nsdyn.errors import ProblemError


class Lock(eqx.Module):
    """One held quantity: the coordinate with the index `target`, or the function target(q, p) ->
    scalar or (k,); the rows are its difference from the held value."""

    target: int | Callable = eqx.field(static=True)
    difference: Callable = eqx.field(static=True, default=operator.sub)

    @property
    def linear(self) -> bool:
        return not callable(self.target) and self.difference is operator.sub

    def value(self, q: AnyConfiguration, p: Params) -> AnyArray:
        if callable(self.target):
            return jnp.ravel(self.target(q, p))
        if not -q.shape[0] <= self.target < q.shape[0]:
            raise ProblemError(
                f"lock({self.target}): expected a coordinate index below {q.shape[0]}"
            )
        return q[self.target][None]

    def name(self) -> str:
        return f"lock({label(self.target) if callable(self.target) else self.target})"


def lock(*targets: int | Callable, difference: Callable = operator.sub) -> tuple[Lock, ...]:
    """Hold coordinates or functions at the values they have when the stage or mode begins. For the
    modes of `Switching` and the stages of `Scheduled`.

    targets: indices of coordinates, or functions f(q, p) -> scalar or (k,). A vector-valued
        function is held in all its k components, so `lock(f)` stands for k rows
        f(q, p) - f(q, p at the mode change) = 0.
    difference: difference(value, held) -> (m,), the rows for a quantity that is not a vector, such
        as an attitude; by default value - held.
    """
    if not targets:
        raise ProblemError("lock(): expected at least one coordinate index or function c(q, p)")
    for target in targets:
        if not callable(target) and (
            isinstance(target, bool) or not isinstance(target, int | np.integer)
        ):
            raise ProblemError(
                f"lock({target!r}): expected a coordinate index or a function c(q, p)"
            )
    if not accepts_positional(difference, 2):
        raise ProblemError(
            "lock(difference=...): expected a function of (value, held), found the signature "
            f"{inspect.signature(difference)}"
        )
    return tuple(
        Lock(target if callable(target) else int(target), difference) for target in targets
    )


def flatten(mode: Any, owner: str) -> tuple:
    """The items of one mode: functions and Locks."""
    if mode is None:
        return ()
    if isinstance(mode, tuple | list):
        return tuple(item for part in mode for item in flatten(part, owner))
    if isinstance(mode, Lock):
        return (mode,)
    if callable(mode):
        if not accepts_positional(mode, 3):
            raise ProblemError(
                f"{owner}: expected functions g(q, t, p) -> (m,), which {label(mode)} is not"
            )
        return (mode,)
    raise ProblemError(
        f"{owner}: expected None, a function, lock(...) or a tuple of these, found {mode!r}"
    )


class ModeRows(eqx.Module):
    """The listed modes of a constraint."""

    modes: tuple[tuple, ...] = eqx.field(static=True)

    @property
    def items(self) -> tuple:
        return tuple(dict.fromkeys(item for mode in self.modes for item in mode))

    @property
    def locks(self) -> tuple[Lock, ...]:
        return tuple(item for item in self.items if isinstance(item, Lock))

    @property
    def linear(self) -> bool:
        return all(isinstance(item, Lock) and item.linear for item in self.items)

    def rank_changes(self, pairs: Iterable[tuple[int, int]]) -> bool:
        """Whether the numbers of rows are certain to differ in all those of these pairs of modes,
        (before, after), whose second one brings new rows, and there is one."""
        brings = [(i, j) for i, j in pairs if self._new(i, j)]
        size = lambda i: len(set(self.modes[i]))
        return self.linear and bool(brings) and all(size(i) != size(j) for i, j in brings)

    def brings_rows(self, pairs: Iterable[tuple[int, int]]) -> bool:
        """Whether in all these pairs of modes the second one is certain to bring new rows."""
        return self.linear and all(self._new(i, j) for i, j in pairs)

    def _new(self, before: int, after: int) -> set:
        return set(self.modes[after]) - set(self.modes[before])

    def hold(self, q: AnyConfiguration, t: AnyTime, p: Params) -> tuple:
        return tuple(item.value(q, p) for item in self.locks)

    def _value(self, item: Any, q: AnyConfiguration, t: AnyTime, p: Params, held: Held) -> Array:
        if isinstance(item, Lock):
            return item.difference(item.value(q, p), held[self.locks.index(item)])
        return jnp.ravel(item(q, t, p))

    def sizes(self, q: AnyConfiguration, t: AnyTime, p: Params) -> dict:
        def size(item: Any) -> int:
            if isinstance(item, Lock) and item.linear:
                return 1  # the common case; the general one traces the function
            value = lambda q, t, p: self._value(item, q, t, p, self.hold(q, t, p))
            return jax.eval_shape(value, q, t, p).shape[0]

        return {item: size(item) for item in self.items}

    def _layout(self, q: AnyConfiguration, t: AnyTime, p: Params) -> tuple[dict, int, bool]:
        sizes = self.sizes(q, t, p)
        largest = max(sum(sizes[item] for item in mode) for mode in self.modes)
        union = sum(sizes.values())
        return sizes, largest, union <= largest

    def table(self, q: AnyConfiguration, t: AnyTime, p: Params) -> np.ndarray:
        """Which rows are live in which mode, shape (modes, m)."""
        sizes, largest, union = self._layout(q, t, p)
        if union:
            return np.array(
                [
                    [item in mode for item in self.items for _ in range(sizes[item])]
                    for mode in self.modes
                ],
                bool,
            )
        return np.array(
            [np.arange(largest) < sum(sizes[item] for item in mode) for mode in self.modes], bool
        )

    def rows(self, q: AnyConfiguration, t: AnyTime, p: Params, mode: Mode, held: Held) -> Rows:
        _, largest, union = self._layout(q, t, p)
        if union:
            return jnp.concatenate(
                [self._value(item, q, t, p, held) for item in self.items] or [jnp.zeros(0)]
            )

        def branch(items: tuple) -> Callable:
            def evaluate(q: AnyConfiguration, t: AnyTime, p: Params, held: Held) -> Rows:
                values = [self._value(item, q, t, p, held) for item in items]
                filled = sum(value.shape[0] for value in values)
                return jnp.concatenate([*values, jnp.zeros(largest - filled)])

            return evaluate

        return jax.lax.switch(mode, [branch(items) for items in self.modes], q, t, p, held)

    def live(self, q: AnyConfiguration, t: AnyTime, p: Params, mode: Mode) -> RowMask:
        return jnp.asarray(self.table(q, t, p))[mode]

    def persists(
        self, q: AnyConfiguration, t: AnyTime, p: Params, before: Mode, after: Mode
    ) -> RowMask:
        """Which rows of the mode `after` belong to items that are in the mode `before` too. A lock
        that stays stores its value again at each mode change, but the value is the same: it is
        the same row."""
        sizes, _, union = self._layout(q, t, p)
        live = self.table(q, t, p)
        if union:
            return jnp.asarray(live)[before] & jnp.asarray(live)[after]
        known = np.zeros((len(self.modes), *live.shape), bool)
        for i, old in enumerate(self.modes):
            for j, new in enumerate(self.modes):
                same = [item in old for item in new for _ in range(sizes[item])]
                known[i, j, : len(same)] = same
        return jnp.asarray(known)[before, after]

    def names(self, q: AnyConfiguration, t: AnyTime, p: Params, mode: AnyMode) -> list[str]:
        sizes, largest, union = self._layout(q, t, p)
        items = self.items if union else self.modes[int(mode)]
        names = [f"{_item_name(item)}[{k}]" for item in items for k in range(sizes[item])]
        return names + ["padding"] * (largest - len(names))

    def mode_name(self, mode: AnyMode) -> str:
        """The number of the mode and what it consists of."""
        items = self.modes[int(mode)]
        return f"mode {int(mode)} ({', '.join(map(_item_name, items)) or 'free'})"

    def check_shapes(
        self, owner: str, argument: str, q: AnyConfiguration, t: AnyTime, p: Params
    ) -> None:
        """Every function and lock must return a vector."""
        for item in self.items:
            if not isinstance(item, Lock):
                expect.vector(f"{owner}({argument}=...)", item, q, t, p)
                continue
            value = item.target if callable(item.target) else item.value
            expect.vector(f"{owner}({argument}=lock(...))", value, q, p, name=item.name())


def _item_name(item: Any) -> str:
    return item.name() if isinstance(item, Lock) else label(item)
