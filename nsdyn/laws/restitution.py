"""Newton's restitution, bilateral:

    M (v+ - v-) + G+^T Lam = U,
    G v+ + g_t = -e (G w + g_t) on new rows, = 0 on persistent ones                            (1)

whatever the sign of the approach; one-sidedness belongs to `Contact`. e = 0 is
`PostSwitchGradient`. w = v-, but in a time step that captures the impact w is the velocity at its
beginning, as in Moreau's scheme: with v-, to which a whole step of gravity has been added, a ball
would hop for ever.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nsdyn.errors import ProblemError
from nsdyn.laws.base import AbstractLaw, Jump, ModeChange


def _coefficient(e):
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
    e: Any = eqx.field(converter=_coefficient)

    @property
    def satisfies_new_constraints(self):
        return False

    def decide(self, change: ModeChange) -> Jump:
        rebound = jnp.where(change.kept, 0.0, self.e) * change.rates(change.v_step_start)
        return change.jump_by(-(change.rates(change.v_before) + rebound))  # (1)
