"""The momentum-consistent transition condition of A. Mueller, "Forward dynamics of variable
topology mechanisms".

J_1 are the rows that persist through the change, J_2 the new ones, J_+ = (J_1, J_2).

lagrange, his eqs. (22) and (24):

    [[M, J_+^T], [J_+, 0]] (dv, Lam) = (U, -(J_+ v- + g_t))                                     (1)

redundant, his eq. (32), with N = I - M^-1 J_1^T (J_1 M^-1 J_1^T)^-1 J_1:

    [[M, N^T J_2^T], [J_2 N, 0]] (dv, Lam_2) = (N^T U, -(J_2 v- + g_t))                         (2)

minimal, his eq. (37), with dv = F_1 ds, J_1 F_1 = 0:

    [[F_1^T M F_1, F_1^T J_2^T], [J_2 F_1, 0]] (ds, Lam_2) = (F_1^T U, -(J_2 v- + g_t))         (3)

The paper prints U on the right of (32) and (37); its own (28) and (35) have N^T U and F_1^T U, and
only with these do the three forms agree. (3) writes J_2 v- for the printed J_2 F_1 s'-: the same
for consistent velocities, v- = F_1 s'-. The rheonomic g_t is ours; persistent rows keep their rate,
so it enters for the new rows only.

All forms answer with the impulses of all rows along D = J_+: Lam_1 follows from Lam_2 by

    (J_1 M^-1 J_1^T) Lam_1 = J_1 (M^-1 (U - J_2^T Lam_2) - dv)                                  (4)
"""

from typing import Literal

import equinox as eqx
import jax.numpy as jnp

from nsdyn.errors import ProblemError
from nsdyn.laws.base import AbstractLaw, Jump, ModeChange
from nsdyn.laws.post_switch import PostSwitchGradient
from nsdyn.numerics import kkt, small
from nsdyn.numerics.null_space import complement

FORMS = ("lagrange", "redundant", "minimal")


class MuellerTransition(AbstractLaw):
    form: Literal["lagrange", "redundant", "minimal"] = eqx.field(static=True, default="lagrange")

    def __check_init__(self):
        if self.form not in FORMS:
            raise ProblemError(
                f"MuellerTransition(form=...): expected one of {FORMS}, found {self.form!r}"
            )

    @property
    def requires_consistent_velocity(self):
        if self.form == "lagrange":
            return None
        return (
            "the reduced forms take velocities before a switch that satisfy the old constraints; "
            "use form='lagrange'"
        )

    def decide(self, change: ModeChange) -> Jump:
        if self.form == "lagrange":
            return PostSwitchGradient().decide(change)  # (1), the same equations
        dv, Lam2 = _redundant(change) if self.form == "redundant" else _minimal(change)
        return Jump(change.v_before + dv, _all_impulses(change, dv, Lam2), change.G_after)


def _new(change: ModeChange):
    return change.live_after & ~change.kept


def _redundant(change: ModeChange):
    new = _new(change)
    J1, Y, inverse = kkt.schur(change.solve, change.G_after, change.kept)
    pseudo = inverse(Y.T).T
    N = jnp.eye(change.v_before.shape[0]) - small.matmul(pseudo, J1)
    N = N - small.matmul(
        pseudo, small.matmul(J1, N)
    )  # J_1 N = 0 to round-off also where J_1 is badly conditioned
    J2N = small.matmul(change.G_after, N)
    rhs = -(small.matvec(change.G_after, change.v_before) + change.gt_after)
    return kkt.masked_kkt(
        change.solve, J2N, new, small.matvec(N.T, change.U), rhs, refinements=1
    )  # (2)


def _minimal(change: ModeChange):
    new = _new(change)
    rows = kkt.independent_rows(change.solve, change.G_after, change.kept)
    c = complement(change.G_after, rows, jnp.ones(change.v_before.shape[0], bool))
    reduced = c.F.T @ change.M @ c.F + jnp.diag(jnp.where(c.dependent, 1.0, 0.0))
    rhs = -(small.matvec(change.G_after, change.v_before) + change.gt_after)
    ds, Lam2 = kkt.masked_kkt(
        small.factor(reduced), change.G_after @ c.F, new, c.F.T @ change.U, rhs, 1
    )  # (3)
    return c.F @ ds, Lam2


def _all_impulses(change: ModeChange, dv, Lam2):
    J1, _, inverse = kkt.schur(change.solve, change.G_after, change.kept)
    new = jnp.where(_new(change)[:, None], change.G_after, 0.0)
    free = change.solve(change.U - small.matvec(new.T, Lam2)) - dv
    return Lam2 + inverse(jnp.where(change.kept, small.matvec(J1, free), 0.0))  # (4)
