"""Newton's law with a matrix of restitution: the approach of each contact may make others leave,

    u_N = psi_N+ + E psi_N-,   u_T = psi_T+ + e_T psi_T-                                       (1)

in (2) of `nsdyn.laws.impact`, E of shape (k, k). A diagonal E is `Newton`. In a row of equal balls
that touch, E with ones in the right places sends the wave through the row that Newton's law cannot:
for three balls E = [[0, 1], [1, 0]]. Only the approach of contacts that take part counts.

Which E conserve or dissipate energy depends on the mechanism; others create it.

C. Glocker: An introduction to impacts. CISM 485 (2006) 45-101. U. Aeberhard: Geometrische
Behandlung idealer Stoesse. Dissertation, ETH Zurich 2008.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from nsdyn.errors import ProblemError
from nsdyn.laws.impact import AbstractShiftedLaw
from nsdyn.numerics import small


def _matrix(given: Any) -> Array:
    try:
        E = jnp.asarray(given, float)
    except (TypeError, ValueError):
        E = jnp.zeros(())
    known = not isinstance(E, jax.core.Tracer)
    if E.ndim != 2 or E.shape[0] != E.shape[1] or (known and not np.all(np.isfinite(E))):
        raise ProblemError(
            "GeneralizedNewton(matrix=...): expected finite numbers of shape (k, k), k the number "
            f"of contacts, found {given!r}"
        )
    return E


class GeneralizedNewton(AbstractShiftedLaw):
    """Newton's law for `Contacts` with a matrix of coefficients of restitution in place of their e:
    contact i, if it presses, leaves with the sum over j of matrix[i][j] times the speed at which
    contact j approached.

    matrix: shape (k, k), for all contacts in their order.
    bilateral: the law for the other constraints.
    allow_energy_gain: whether a run goes on after an impact that creates energy, as some matrices
        do. Without, it stops with `Status.ENERGY_GAIN`.
    """

    can_gain_energy: ClassVar[bool] = True
    unfit_for_time_steps: ClassVar[str | None] = None

    matrix: Any = eqx.field(converter=_matrix)

    def objection(self, k: int) -> str | None:
        if len(self.matrix) == k:
            return None
        return f"its matrix has {len(self.matrix)} rows, but there are {k} contacts"

    def shift(
        self, before: Float[Array, "k d"], E: Float[Array, "k d"], hit: Bool[Array, " k"]
    ) -> Float[Array, "k d"]:
        approach = jnp.where(hit, before[:, 0], 0.0)
        normal = small.matvec(self.matrix, approach)
        return jnp.concatenate([normal[:, None], E[:, 1:] * before[:, 1:]], axis=1)  # (1)
