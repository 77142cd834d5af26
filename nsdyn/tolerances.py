"""Tolerances: what counts as zero. All of them are dimensionless; they are multiplied by sizes that
come from the motion,

    L = |q|_M + h |v|_M + h^2 |M^-1 f|_M,    V = |v|_M,    |x|_M^2 = x^T M x                   (1)

a length and a speed in the mass metric, with the step h; the last two terms of L matter only near
q = 0. A row g with the gradient G is then small if |g| <= tolerance |G|_(M^-1) L, and its
rate psi if |psi| <= tolerance |G|_(M^-1) V. This does not change with the units of length, time and
mass, nor if a row is multiplied by a number.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nsdyn._types import Scalar
from nsdyn.errors import ProblemError


def _pure_number(x: Any) -> Scalar:
    number = jnp.asarray(x, float)
    if not isinstance(number, jax.core.Tracer) and not np.asarray(number) >= 0:
        raise ProblemError(f"Tolerances: expected numbers >= 0, found {x!r}")
    return number


def _field(default: float) -> Any:
    return eqx.field(converter=_pure_number, default=default)


class Tolerances(eqx.Module):
    """How large a residual may be before a run stops or changes its mode, relative to the size of
    the motion.

    meet: residual g of the new constraints when a mode begins; beyond it DO_NOT_MEET.
    obey: rate G v+ + g_t of the new constraints after a jump; beyond it LAW_VIOLATES.
    lost: residual g along the motion; beyond it CONSTRAINTS_LOST.
    touch: gap up to which a contact counts as closed at the start, and value up to which a
        switching function counts as zero.
    rest: a contact stays closed after an impact if it leaves with less than this fraction of the
        speed that the forces would take away in one step (see `Contact`).
    """

    meet: Any = _field(1e-6)
    obey: Any = _field(1e-6)
    lost: Any = _field(1e-2)
    touch: Any = _field(1e-9)
    rest: Any = _field(0.1)
