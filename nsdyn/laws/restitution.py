"""Newton's restitution, bilateral:

    M (v+ - v-) + G+^T Lam = U,
    G v+ + g_t = -e (G w + g_t) on new rows, = 0 on persistent ones                            (1)

whatever the sign of the approach; one-sidedness is the business of `Contact`. e = 0 is
`PostSwitchGradient`. In event-driven runs w = v-. In a time step that captures the impact w is the
velocity at the start of the step, as in Moreau's scheme: v- already contains a whole step of
gravity, and with it a ball would keep hopping indefinitely.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from nsdyn.errors import ProblemError
from nsdyn.laws.base import AbstractLaw, Jump, ModeChange


def _coefficient(e: Any) -> Array:
    try:
        number = jnp.asarray(e, float)
        right = isinstance(number, jax.core.Tracer) or bool(
            np.all((np.asarray(number) >= 0) & (np.asarray(number) <= 1))
        )
    except (TypeError, ValueError):
        right = False
    if not right:
        raise ProblemError(
            "Restitution(e=...): expected a number between 0 (plastic) and 1 (elastic), found "
            f"{e!r}"
        )
    return number


class Restitution(AbstractLaw):
    """Newton's law of restitution: new rows leave with -e times the rate at which they approached.

    e: coefficient of restitution, from 0 (plastic, the same as `PostSwitchGradient`) to 1
        (elastic). One number for all rows, or one for each row.

    Rows that held before the mode change keep the rate zero. With e > 0 the new rows are violated
    after the jump, so use it with `Contact`, which opens again; locks and `Switching` need another
    law.
    """

    e: Any = eqx.field(converter=_coefficient)

    @property
    def satisfies_new_constraints(self) -> bool:
        return False

    @property
    def always_rebounds(self) -> bool:
        return not isinstance(self.e, jax.core.Tracer) and bool(np.all(np.asarray(self.e) > 0))

    def decide(self, change: ModeChange) -> Jump:
        rebound = jnp.where(change.kept, 0.0, self.e) * change.rates(change.v_step_start)
        return change.jump_by(-(change.rates(change.v_before) + rebound))  # (1)
