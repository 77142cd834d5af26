"""`Switching`: bilateral constraints exchanged where a switching function z(q) changes sign (Patil
and Bruls).

With the Heaviside step s(x) = 0, 1/2, 1 for x < 0, = 0, > 0 the constraint reads

    two modes, one z:   g = (1 - s(z)) g_1 + s(z) g_2                                        (1)
    k modes, k z's:     g = sum_i [prod_{j != i} (1 - s(z_j))] s(z_i) g_i                    (2)

(1) is (2) with z_1 = -z, z_2 = z, up to the factor 1/2 on the surface itself, where both terms
vanish. The formula gives the mode at the start. From then on the mode is remembered: it is left
when its own z falls through zero, and the mode whose z rises is entered; if there are several, the
one whose z rises fastest. If several z vanish at the start, their rates decide as well.

A z that is the new constraint itself (a capture) stays at zero after the mode change: `latch=True`
keeps every mode but the first once it has been entered; a tuple of booleans decides mode by mode.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn import _expect as expect
from nsdyn._jitted import compiled_quickly
from nsdyn._signature import require_function
from nsdyn._types import (
    Abstract,
    AnyConfiguration,
    AnyMode,
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
from nsdyn.constraints.base import NO_MODE, AbstractConstraint, AbstractReport, Scale, Start
from nsdyn.constraints.mode_rows import ModeRows, flatten
from nsdyn.errors import ProblemError


class Switching(AbstractConstraint):
    """Constraints that replace each other where a switching function changes its sign.

    modes: for each mode None (free), a function g(q, t, p) -> scalar or (m,), lock(...), or a tuple
        of these. At the point where one mode follows another, the rows of both must hold.
    switches: the switching functions: one z(q, p) for two modes, negative in mode 0 and positive in
        mode 1; or one for each mode, positive in that mode. Along the motion z must cross zero, not
        just touch it.
    latch: which modes are never left once they have been entered. A latch is needed if the
        constraint of a mode keeps its own z at zero, as when a moving part is captured at z = 0: z
        then never rises again, and without a latch round-off would decide whether the mode is left.
        False (the default): no mode latches. True: every mode but the first. Or a tuple with a
        boolean for each mode.

    If the velocity after the jump leads straight back through z = 0, the run stops with LEADS_BACK.
    """

    rows_argument: ClassVar[str] = "(modes=..., switches=...)"
    guards_argument: ClassVar[str] = "(switches=...)"

    mode_rows: ModeRows
    switches: tuple[Callable, ...] = eqx.field(static=True)
    latch: tuple[bool, ...] = eqx.field(static=True)

    def __init__(
        self, modes: Sequence, switches: Sequence[Callable], latch: bool | Sequence[bool] = False
    ) -> None:
        for name, value in (("modes", modes), ("switches", switches)):
            if not isinstance(value, tuple | list):
                raise ProblemError(
                    f"Switching({name}=...): expected a tuple with an entry for each mode, found "
                    f"{value!r}"
                )
        modes = tuple(modes)
        switches = tuple(switches)
        for z in switches:
            require_function("Switching", "switches", z, 2, "z(q, p) -> scalar")
        if len(modes) < 2 or len(switches) not in ({1, 2} if len(modes) == 2 else {len(modes)}):
            raise ProblemError(
                "Switching(modes=..., switches=...): expected two modes and one switching "
                "function, or as many of one as of the "
                f"other, found {len(modes)} modes and {len(switches)} switching functions"
            )
        self.mode_rows = ModeRows(tuple(flatten(mode, "Switching(modes=...)") for mode in modes))
        self.switches = switches
        if isinstance(latch, bool):
            self.latch = (False, *[latch] * (len(modes) - 1))
        else:
            self.latch = tuple(latch or (False,) * len(modes))
        if len(self.latch) != len(modes):
            raise ProblemError(
                f"Switching(latch=...): expected a boolean or {len(modes)} of them, found {latch!r}"
            )

    @property
    def drifts(self) -> bool:
        return not self.mode_rows.linear

    @property
    def rows_independent(self) -> bool:
        return self.mode_rows.linear

    @property
    def rank_always_changes(self) -> bool:
        return self.mode_rows.rank_changes(self._mode_changes())

    @property
    def always_brings_rows(self) -> bool:
        return self.mode_rows.brings_rows(self._mode_changes())

    def _mode_changes(self) -> list[tuple[int, int]]:
        return list(itertools.permutations(range(len(self.mode_rows.modes)), 2))

    @property
    def guards_use_lam(self) -> bool:
        return False

    def z(self, q: AnyConfiguration, p: Params) -> Float[Array, " modes"]:
        """All switching functions, positive in their own mode, shape (modes,)."""
        if len(self.switches) == 1:
            z = jnp.reshape(self.switches[0](q, p), ())
            return jnp.stack([-z, z])
        return jnp.stack([jnp.reshape(z(q, p), ()) for z in self.switches])

    def value(self, q: Configuration, t: AnyTime, p: Params) -> Rows:
        """The constraint by the product formula (2), padded to the largest mode; needs no memory,
        so locks are not allowed."""
        if self.mode_rows.locks:
            raise ProblemError(
                "Switching.value: a lock has no value without the memory of where it began"
            )
        s = jnp.heaviside(self.z(q, p), 0.5)
        g = jnp.stack(
            [
                self.mode_rows.rows(q, t, p, jnp.asarray(i), ())
                for i in range(len(self.mode_rows.modes))
            ]
        )
        others = jnp.stack([jnp.prod(jnp.delete(1.0 - s, i)) for i in range(s.shape[0])])
        return jnp.sum((others * s)[:, None] * g, axis=0)  # (2)

    def start(
        self, q: Configuration, qdot: Configuration, t: Time, p: Params, scale: Scale
    ) -> Mode:
        return self._entered(q, qdot, p, jnp.full((), NO_MODE), scale)

    def _entered(
        self, q: Configuration, qdot: Configuration, p: Params, leaving: Mode, scale: Scale
    ) -> Mode:
        """The mode that the motion enters from here; NO_MODE if there is none."""
        z = self.z(q, p)
        Z = jax.jacfwd(lambda q: self.z(q, p))(q)
        dz = Z @ qdot
        surface = jnp.abs(z) <= scale.near_zero(jax.lax.stop_gradient(Z), q)
        score = jnp.where(surface, dz, jnp.where(z > 0, jnp.inf, -jnp.inf))
        score = jnp.where(jnp.arange(z.shape[0]) == leaving, -jnp.inf, score)
        allowed = (score > 0) | (surface & (score >= 0) & (leaving == NO_MODE))
        best = jnp.argmax(jnp.where(allowed, score, -jnp.inf))
        return jnp.where(jnp.any(allowed), best, NO_MODE)

    def rows(self, q: Configuration, t: Time, p: Params, mode: Mode, held: Held) -> Rows:
        return self.mode_rows.rows(q, t, p, jnp.maximum(mode, 0), held)

    def live(self, q: Configuration, t: Time, p: Params, mode: Mode) -> RowMask | None:
        return self.mode_rows.live(q, t, p, jnp.maximum(mode, 0))

    def persists(
        self, q: Configuration, t: Time, p: Params, mode_before: Mode, mode_after: Mode
    ) -> RowMask | None:
        before = jnp.maximum(mode_before, 0)
        after = jnp.maximum(mode_after, 0)
        return self.mode_rows.persists(q, t, p, before, after)

    def hold(self, q: AnyConfiguration, t: AnyTime, p: Params) -> Held:
        return self.mode_rows.hold(q, t, p)

    def guards(
        self, q: Configuration, v: Velocity, lam: Rows, t: Time, p: Params, mode: Mode, held: Held
    ) -> Guards:
        mode = jnp.maximum(mode, 0)
        if len(self.switches) == 1:
            own = jnp.where(mode == 1, 1.0, -1.0) * jnp.reshape(self.switches[0](q, p), ())
        else:
            branch = lambda z: lambda q, p: jnp.reshape(z(q, p), ())
            own = jax.lax.switch(mode, [branch(z) for z in self.switches], q, p)
        return jnp.where(jnp.asarray(self.latch)[mode], 1.0, own)[None]

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
        return self._entered(q, qdot, p, mode, scale).astype(mode.dtype)

    def check_shapes(
        self, q: Configuration, qdot: Abstract, v: Velocity, t: Time, p: Params
    ) -> None:
        self.mode_rows.check_shapes("Switching", "modes", q, t, p)
        for z in self.switches:
            expect.scalar("Switching(switches=...)", z, q, p)

    def check_start(self, report: AbstractReport, start: Start) -> None:
        """q0 must be in exactly one mode."""
        z, zero = _z_and_zero(self, start.q, start.p, start.scale)
        expect.finite("Switching(switches=...)", z, " at q0")
        above = np.flatnonzero(z > zero)
        found = f"z = {expect.listed(z, 4)} at q0"
        if len(above) > 1:
            raise ProblemError(
                "Switching(switches=...): expected one mode whose switching function is positive, "
                f"found {found}, positive in modes {above.tolist()}. Switching functions must not "
                "overlap"
            )
        if start.mode == NO_MODE:
            raise ProblemError(
                "Switching(switches=...): expected one mode whose switching function is positive "
                f"(or zero and rising), found {found}: q0 is in no mode. Move q0, or let the "
                "switching functions cover it"
            )
        report.add("one mode at the start", f"mode {start.mode}, {found}")

    def modes_to_search(self, mode: np.ndarray) -> list:
        return [np.asarray(i) for i, latched in enumerate(self.latch) if not latched]

    def successors(
        self, q: AnyConfiguration, p: Params, mode: AnyMode, scale: Scale
    ) -> tuple[list, str]:
        """The other modes whose switching functions vanish here as well."""
        z, zero = _z_and_zero(self, q, p, scale)
        found = [np.asarray(j) for j in np.flatnonzero(np.abs(z) <= zero) if j != mode]
        return found, f"no other switching function vanishes there, z = {expect.listed(z, 4)}"

    def capture_error(self, mode: AnyMode, found: str) -> ProblemError:
        return ProblemError(
            f"Switching(latch=...): expected a latch, found that {found}. Use latch=True, or a "
            f"tuple with True for mode {mode}, or choose a z that changes along the motion"
        )

    def guard_name(self, i: int) -> str:
        return "the switching function"

    def row_names(
        self, q: AnyConfiguration, t: AnyTime, p: Params, mode: AnyMode, m: int
    ) -> list[str]:
        return self.mode_rows.names(q, t, p, mode)

    def mode_name(self, mode: AnyMode) -> str:
        return self.mode_rows.mode_name(mode)


def _z_and_zero(
    part: Switching, q: AnyConfiguration, p: Params, scale: Scale
) -> tuple[np.ndarray, np.ndarray]:
    """The switching functions, and the values up to which they count as zero."""
    z, zero = _z_and_near_zero(part, q, p, scale)
    return np.asarray(z), np.asarray(zero)


@compiled_quickly
def _z_and_near_zero(
    part: Switching, q: AnyConfiguration, p: Params, scale: Scale
) -> tuple[Array, Array]:
    slope = jax.jacfwd(lambda q: part.z(q, p))(q)
    return part.z(q, p), scale.near_zero(slope, q)
