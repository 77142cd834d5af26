"""Constraints with a single mode: on positions (`Fixed`) and on velocities only
(`Nonholonomic`)."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn import _expect as expect
from nsdyn._jitted import compiled_quickly
from nsdyn._signature import label, require_function
from nsdyn._types import Abstract, Configuration, Held, Mode, Params, RowMask, Rows, Time, Velocity
from nsdyn.constraints.base import AbstractConstraint, AbstractReport, Start
from nsdyn.errors import ProblemError

AFFINE = 1e-8  # relative change of dc/dv with v up to which c counts as affine


class Fixed(AbstractConstraint):
    """A holonomic constraint g = 0 that always holds.

    g: g(q, t, p) -> scalar or (m,), the residual. It may depend on time.
    """

    g: Callable = eqx.field(static=True)

    def __check_init__(self) -> None:
        require_function("Fixed", "g", self.g, 3, "g(q, t, p) -> (m,)")

    @property
    def keeps_mode(self) -> bool:
        return True

    @property
    def guards_use_lam(self) -> bool:
        return False

    def rows(self, q: Configuration, t: Time, p: Params, mode: Mode, held: Held) -> Rows:
        return jnp.ravel(self.g(q, t, p))

    def persists(
        self, q: Configuration, t: Time, p: Params, mode_before: Mode, mode_after: Mode
    ) -> RowMask | None:
        return jnp.ones(jnp.size(self.rows(q, t, p, mode_after, ())), bool)

    def check_shapes(
        self, q: Configuration, qdot: Abstract, v: Velocity, t: Time, p: Params
    ) -> None:
        expect.vector("Fixed(g=...)", self.g, q, t, p)

    @property
    def title(self) -> str:
        return label(self.g)


class Nonholonomic(AbstractConstraint):
    """A constraint c = 0 on velocities only, such as rolling, that always holds.

    c: c(q, v, t, p) -> scalar or (m,), the residual; it must be affine in v.
    """

    c: Callable = eqx.field(static=True)

    def __check_init__(self) -> None:
        require_function("Nonholonomic", "c", self.c, 4, "c(q, v, t, p) -> (m,)")

    @property
    def positional(self) -> bool:
        return False

    @property
    def keeps_mode(self) -> bool:
        return True

    @property
    def guards_use_lam(self) -> bool:
        return False

    def rows(self, q: Configuration, t: Time, p: Params, mode: Mode, held: Held) -> Rows:
        raise NotImplementedError("a non-holonomic constraint has no position level")

    def rate(
        self,
        q: Configuration,
        qdot: Configuration,
        v: Velocity,
        t: Time,
        p: Params,
        mode: Mode,
        held: Held,
    ) -> Rows:
        return jnp.ravel(self.c(q, v, t, p))

    def check_shapes(
        self, q: Configuration, qdot: Abstract, v: Velocity, t: Time, p: Params
    ) -> None:
        expect.vector("Nonholonomic(c=...)", self.c, q, v, t, p)

    def check_start(self, report: AbstractReport, start: Start) -> None:
        """c must be affine in v: dc/dv must be the same at another velocity."""
        speeds = np.asarray(start.scale.v)
        speeds = speeds if np.any(speeds) else np.ones_like(speeds)
        other = start.v + speeds * (1.0 + np.cos(np.arange(len(speeds))))
        here = np.asarray(_slope(self, start.q, start.v, start.t, start.p))
        there = np.asarray(_slope(self, start.q, other, start.t, start.p))
        size = np.maximum(np.abs(here), np.abs(there)) @ speeds
        change = np.abs(there - here) @ speeds
        relative = change / np.where(size > 0, size, 1.0)
        worst = np.max(relative, initial=0.0)
        if worst > AFFINE:
            name = self.row_names(start.q, start.t, start.p, start.mode, len(relative))
            raise ProblemError(
                "Nonholonomic(c=...): expected c affine in v, found that dc/dv of the row "
                f"{name[np.argmax(relative)]} changes with v, by {worst:.3g} of its size"
            )
        report.add("rows affine in v", f"relative change of dc/dv with v = {worst:.1e}")

    @property
    def title(self) -> str:
        return label(self.c)


@compiled_quickly
def _slope(
    part: Nonholonomic, q: Configuration, v: Velocity, t: Time, p: Params
) -> Float[Array, "m n"]:
    return jax.jacfwd(lambda v: jnp.ravel(part.c(q, v, t, p)))(v)
