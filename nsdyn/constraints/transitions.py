"""`Transitions`: the general constraint with modes, made of a user's own functions.

    rows(q, t, p, mode, held) -> (m,)           m static; mode is a traced integer (array), so rows
                                                may index tables by it
    guards(q, v, lam, t, p, mode, held) -> (k,) a guard that falls through zero fires
    after(fired, q, v, t, p, mode) -> mode      fired is (k,) bool, several at once allowed; -1
                                                if no mode can be entered
    live(mode, p) -> (m,) bool                  default: all rows
    hold(q, t, p) -> pytree                     stored at each mode change, passed back as `held`

Modes count from 0. `Transitions` cannot express `Contact`, whose mode after an impact depends on
the velocity that the law leaves.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nsdyn import _expect as expect
from nsdyn._signature import located, require_function
from nsdyn._types import (
    Abstract,
    AnyConfiguration,
    AnyTime,
    Configuration,
    GuardMask,
    Guards,
    Held,
    Mode,
    Params,
    RowMask,
    Rows,
    Time,
    Velocity,
)
from nsdyn.constraints.base import AbstractConstraint, Scale
from nsdyn.errors import ProblemError


class Transitions(AbstractConstraint):
    """A constraint with modes, made of your own functions.

    rows: rows(q, t, p, mode, held) -> (m,), the residual g in this mode.
    guards: guards(q, v, lam, t, p, mode, held) -> (k,). A guard that falls through zero fires. One
        that is already negative when a mode is entered fires at once, so guards that do not matter
        in a mode should be positive there.
    after: after(fired, q, v, t, p, mode) -> the new mode, with fired (k,) bool, several of which
        may be True; -1 if no mode can be entered.
    live: live(mode, p) -> (m,) bool, the rows that hold in this mode; default: all.
    hold: hold(q, t, p) -> any pytree, stored at each mode change and passed as `held` until the
        next one, such as the angle at which a joint locked.
    mode0: the mode at the start: an integer, or an array of them, counted from 0.
    persists: persists(mode_before, mode_after, p) -> (m,) bool, the rows that are the same
        constraints as before. Without it, rows with the same index and the same gradient count as
        the same.
    guards_use_lam: whether a guard uses the multipliers lam. False saves time.
    rows_independent: whether it is certain that rows that are live together never depend on each
        other and never vanish, such as locks of different coordinates. True saves time.
    """

    rows_argument: ClassVar[str] = "(rows=...)"
    guards_argument: ClassVar[str] = "(guards=...)"

    rows_of: Callable = eqx.field(static=True)
    guards_of: Callable = eqx.field(static=True)
    after_of: Callable = eqx.field(static=True)
    live_of: Callable | None = eqx.field(static=True)
    hold_of: Callable | None = eqx.field(static=True)
    persists_of: Callable | None = eqx.field(static=True)
    guards_read_lam: bool = eqx.field(static=True)
    always_independent: bool = eqx.field(static=True)
    mode0: Any

    def __init__(
        self,
        rows: Callable,
        guards: Callable,
        after: Callable,
        live: Callable | None = None,
        hold: Callable | None = None,
        mode0: Any = 0,
        persists: Callable | None = None,
        guards_use_lam: bool = True,
        rows_independent: bool = False,
    ) -> None:
        require_function("Transitions", "rows", rows, 5, "rows(q, t, p, mode, held) -> (m,)")
        require_function(
            "Transitions", "guards", guards, 7, "guards(q, v, lam, t, p, mode, held) -> (k,)"
        )
        require_function("Transitions", "after", after, 6, "after(fired, q, v, t, p, mode) -> mode")
        if live is not None:
            require_function("Transitions", "live", live, 2, "live(mode, p) -> (m,) bool")
        if hold is not None:
            require_function("Transitions", "hold", hold, 3, "hold(q, t, p) -> pytree")
        if persists is not None:
            signature = "persists(mode_before, mode_after, p) -> (m,) bool"
            require_function("Transitions", "persists", persists, 3, signature)
        self.rows_of = rows
        self.guards_of = guards
        self.after_of = after
        self.live_of = live
        self.hold_of = hold
        self.persists_of = persists
        self.guards_read_lam = bool(guards_use_lam)
        self.always_independent = bool(rows_independent)
        self.mode0 = jnp.asarray(mode0, int)
        if not isinstance(self.mode0, jax.core.Tracer) and np.any(np.asarray(self.mode0) < 0):
            found = np.asarray(self.mode0).tolist()
            raise ProblemError(
                "Transitions(mode0=...): expected modes that count from 0 (-1 is no mode), found "
                f"{found}"
            )

    def start(
        self, q: Configuration, qdot: Configuration, t: Time, p: Params, scale: Scale
    ) -> Mode:
        return self.mode0

    def rows(self, q: Configuration, t: Time, p: Params, mode: Mode, held: Held) -> Rows:
        return jnp.ravel(self.rows_of(q, t, p, mode, held))

    def guards(
        self, q: Configuration, v: Velocity, lam: Rows, t: Time, p: Params, mode: Mode, held: Held
    ) -> Guards:
        return jnp.ravel(self.guards_of(q, v, lam, t, p, mode, held))

    def after(
        self,
        fired: GuardMask,
        q: Configuration,
        qdot: Configuration,
        v: Velocity,
        t: Time,
        p: Params,
        mode: Mode,
        scale: Scale,
    ) -> Mode:
        return jnp.asarray(self.after_of(fired, q, v, t, p, mode), mode.dtype)

    def live(self, q: Configuration, t: Time, p: Params, mode: Mode) -> RowMask | None:
        return None if self.live_of is None else jnp.asarray(self.live_of(mode, p), bool)

    @property
    def guards_use_lam(self) -> bool:
        return self.guards_read_lam

    @property
    def rows_independent(self) -> bool:
        return self.always_independent

    def persists(
        self, q: Configuration, t: Time, p: Params, mode_before: Mode, mode_after: Mode
    ) -> RowMask | None:
        if self.persists_of is None:
            return None
        return jnp.asarray(self.persists_of(mode_before, mode_after, p), bool)

    def hold(self, q: AnyConfiguration, t: AnyTime, p: Params) -> Held:
        return () if self.hold_of is None else self.hold_of(q, t, p)

    def check_shapes(
        self, q: Configuration, qdot: Abstract, v: Velocity, t: Time, p: Params
    ) -> None:
        name = "Transitions"
        mode = self.mode0
        held = expect.returned(f"{name}(hold=...)", self.hold_of or self.hold, q, t, p)
        m = expect.vector(f"{name}(rows=...)", self.rows_of, q, t, p, mode, held)
        guarded = (q, v, np.zeros(m), t, p, mode, held)
        k = expect.vector(f"{name}(guards=...)", self.guards_of, *guarded)
        if self.live_of is not None:
            live = lambda mode, p: self.live(q, t, p, mode)
            why = f"as rows has {m} entries"
            given = located(self.live_of)
            expect.shaped(f"{name}(live=...)", live, (m,), why, mode, p, name=given)
        after = lambda *args: jnp.asarray(self.after_of(*args), mode.dtype)
        why = "the shape of mode0"
        fired = (np.zeros(k, bool), q, v, t, p, mode)
        shape = mode.shape
        expect.shaped(f"{name}(after=...)", after, shape, why, *fired, name=located(self.after_of))
