"""The momentum-consistent transition condition of A. Mueller, "Forward dynamics of variable topology mechanisms".

J_1 are the rows that persist through the switch, J_2 the new ones, J_+ = (J_1, J_2).

lagrange, his eqs. (22) and (24):

    [[M, J_+^T], [J_+, 0]] (dv, Lam) = (U, -(J_+ v- + g_t))                                     (1)

redundant, his eq. (32), with N = I - M^-1 J_1^T (J_1 M^-1 J_1^T)^-1 J_1:

    [[M, N^T J_2^T], [J_2 N, 0]] (dv, Lam_2) = (N^T U, -(J_2 v- + g_t))                         (2)

minimal, his eq. (37), with dv = F_1 ds, J_1 F_1 = 0:

    [[F_1^T M F_1, F_1^T J_2^T], [J_2 F_1, 0]] (ds, Lam_2) = (F_1^T U, -(J_2 v- + g_t))         (3)

The paper prints U on the right of (32) and (37); its own (28) and (35) have N^T U and F_1^T U, and only with these do the
three forms agree. (3) writes J_2 v- for the printed J_2 F_1 s'-: the same for consistent velocities, v- = F_1 s'-. The
rheonomic g_t is ours; persistent rows keep their rate, so it enters for the new rows only.

All forms answer with the impulses of all rows along D = J_+: Lam_1 follows from Lam_2 by

    (J_1 M^-1 J_1^T) Lam_1 = J_1 (M^-1 (U - J_2^T Lam_2) - dv)                                  (4)
"""

from typing import Literal

import equinox as eqx
import jax.numpy as jnp

from nsdyn import linalg
from nsdyn.complement import complement
from nsdyn.errors import ProblemError
from nsdyn.law import AbstractLaw, Jump, Switch
from nsdyn.laws.post_switch import PostSwitchGradient

FORMS = ("lagrange", "redundant", "minimal")


class MuellerTransition(AbstractLaw):
    form: Literal["lagrange", "redundant", "minimal"] = eqx.field(static=True, default="lagrange")

    def __check_init__(self):
        if self.form not in FORMS:
            raise ProblemError(f"MuellerTransition(form=...): expected one of {FORMS}, found {self.form!r}")

    @property
    def needs_consistent(self):
        if self.form == "lagrange":
            return None
        return "the reduced forms take velocities before a switch that satisfy the old constraints; use form='lagrange'"

    def decide(self, switch: Switch) -> Jump:
        if self.form == "lagrange":
            return PostSwitchGradient().decide(switch)  # (1), the same equations
        dv, Lam2 = _redundant(switch) if self.form == "redundant" else _minimal(switch)
        return Jump(switch.v + dv, _all_impulses(switch, dv, Lam2), switch.G)


def _new(switch: Switch):
    return switch.live & ~switch.kept


def _redundant(switch: Switch):
    new = _new(switch)
    J1, Y, inverse = linalg.schur(switch.solve, switch.G, switch.kept)
    pseudo = inverse(Y.T).T
    N = jnp.eye(switch.v.shape[0]) - linalg.matmul(pseudo, J1)
    N = N - linalg.matmul(pseudo, linalg.matmul(J1, N))  # J_1 N = 0 to round-off also where J_1 is badly conditioned
    J2N = linalg.matmul(switch.G, N)
    rhs = -(linalg.matvec(switch.G, switch.v) + switch.gt)
    return linalg.masked_kkt(switch.solve, J2N, new, linalg.matvec(N.T, switch.U), rhs, refinements=1)  # (2)


def _minimal(switch: Switch):
    new = _new(switch)
    c = complement(switch.G, switch.kept, jnp.ones(switch.v.shape[0], bool))
    reduced = c.F.T @ switch.M @ c.F + jnp.diag(jnp.where(c.dependent, 1.0, 0.0))
    rhs = -(linalg.matvec(switch.G, switch.v) + switch.gt)
    ds, Lam2 = linalg.masked_kkt(linalg.factor(reduced), switch.G @ c.F, new, c.F.T @ switch.U, rhs, 1)  # (3)
    return c.F @ ds, Lam2


def _all_impulses(switch: Switch, dv, Lam2):
    J1, _, inverse = linalg.schur(switch.solve, switch.G, switch.kept)
    new = jnp.where(_new(switch)[:, None], switch.G, 0.0)
    free = switch.solve(switch.U - linalg.matvec(new.T, Lam2)) - dv
    return Lam2 + inverse(jnp.where(switch.kept, linalg.matvec(J1, free), 0.0))  # (4)
