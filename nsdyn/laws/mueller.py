"""The momentum-consistent transition condition of A. Mueller, "Forward dynamics of variable
topology mechanisms".

J_1 are the rows that persist through the change, J_2 the new ones, J_+ = (J_1, J_2). The rates of
all of them have to change by

    r = -(J_+ v- + g_t),    r_1 for J_1, r_2 for J_2

lagrange, his eqs. (22) and (24):

    [[M, J_+^T], [J_+, 0]] (dv, Lam) = (U, r)                                                   (1)

redundant, his eq. (32), with N = I - M^-1 J_1^T (J_1 M^-1 J_1^T)^-1 J_1:

    dv_1 = M^-1 J_1^T (J_1 M^-1 J_1^T)^-1 r_1,    dv = dv_1 + dx                                (2)
    [[M, N^T J_2^T], [J_2 N, 0]] (dx, Lam_2) = (N^T U, r_2 - J_2 dv_1)                          (3)

minimal, his eq. (37), with F_1, J_1 F_1 = 0, and P, T of `nsdyn.numerics.null_space`:

    dv_1 = P^T T r_1,    dv = dv_1 + F_1 ds                                                     (4)
    [[F_1^T M F_1, F_1^T J_2^T], [J_2 F_1, 0]] (ds, Lam_2)
        = (F_1^T (U - M dv_1), r_2 - J_2 dv_1)                                                  (5)

The paper prints U on the right of (32) and (37); its own (28) and (35) have N^T U and F_1^T U, and
only with these do the three forms agree. (5) writes J_2 v- for the printed J_2 F_1 s'-: the same
for consistent velocities, v- = F_1 s'-. g_t and dv_1 are ours: the paper has scleronomic
constraints and consistent velocities, for which r_1 = 0. A persistent row that is driven at another
rate from now on, or was violated, has r_1 != 0.

Rows that depend on others are left out, new ones rather than persistent ones; this changes no
velocity. Dependence is judged by the angles between the rows themselves. It cannot be judged from
J_2 N or J_2 F_1: of a row that depends on J_1 they leave only round-off, with an arbitrary
direction.

All forms answer with the impulses of all rows along D = J_+: Lam_1 follows from Lam_2 by

    (J_1 M^-1 J_1^T) Lam_1 = J_1 (M^-1 (U - J_2^T Lam_2) - dv)                                  (6)
"""

from typing import Literal

import equinox as eqx
import jax.numpy as jnp

from nsdyn._types import Rows, Velocity
from nsdyn.errors import ProblemError
from nsdyn.laws.base import AbstractLaw, Jump, ModeChange
from nsdyn.laws.post_switch import PostSwitchGradient
from nsdyn.numerics import kkt, small
from nsdyn.numerics.null_space import complement

FORMS = ("lagrange", "redundant", "minimal")


class MuellerTransition(AbstractLaw):
    """The momentum-consistent transition condition of A. Mueller, in one of his three forms.

    form: "lagrange" (the default) solves for the jump of all velocities together with the impulses;
        these are the same equations as those of `PostSwitchGradient`. "redundant" and "minimal"
        solve for the jump within the motions that the persistent constraints allow, in all
        coordinates or in independent ones. All three give the same v+. The reduced forms are
        meant for velocities v- that satisfy the old constraints, and are refused by time-stepping
        schemes, whose velocities do not.
    """

    form: Literal["lagrange", "redundant", "minimal"] = eqx.field(static=True, default="lagrange")

    def __check_init__(self) -> None:
        if self.form not in FORMS:
            raise ProblemError(
                f"MuellerTransition(form=...): expected one of {FORMS}, found {self.form!r}"
            )

    @property
    def requires_consistent_velocity(self) -> str | None:
        if self.form == "lagrange":
            return None
        return (
            "the reduced forms need velocities before the mode change that satisfy the old "
            "constraints; use form='lagrange'"
        )

    def decide(self, change: ModeChange) -> Jump:
        if self.form == "lagrange":
            return PostSwitchGradient().decide(change)  # (1), the same equations
        parts = _Parts(change)
        dv, Lam2 = parts.redundant() if self.form == "redundant" else parts.minimal()
        return Jump(change.v_before + dv, parts.impulses(dv, Lam2), change.G_after)


class _Parts:
    """A mode change split into its independent persistent rows J_1 and new rows J_2."""

    def __init__(self, change: ModeChange) -> None:
        G = change.G_after
        kept = change.kept
        self.change = change
        self.r = -change.rates(change.v_before)
        independent = change.independent(preferred=kept)
        self.old = independent & kept
        self.new = independent & ~kept
        self.J1, self.Y, self.inverse = kkt.schur(change.solve, G, self.old)

    def redundant(self) -> tuple[Velocity, Rows]:
        """dv and Lam_2."""
        change = self.change
        J1 = self.J1
        given = jnp.zeros_like(change.v_before)
        pseudo = self.inverse(self.Y.T).T
        N = jnp.eye(len(given))
        for _ in range(2):  # the second pass removes round-off, if J_1 is ill-conditioned
            left = jnp.where(self.old, self.r - small.matvec(J1, given), 0.0)
            given = given + small.matvec(self.Y, self.inverse(left))  # (2)
            N = N - small.matmul(pseudo, small.matmul(J1, N))
        J2N = small.matmul(change.G_after, N)
        rates = self.r - small.matvec(change.G_after, given)
        U = small.matvec(N.T, change.U)
        dx, Lam2 = kkt.masked_kkt(change.solve, J2N, self.new, U, rates, refinements=2)  # (3)
        return given + dx, Lam2

    def minimal(self) -> tuple[Velocity, Rows]:
        """dv and Lam_2."""
        change = self.change
        n = self.change.v_before.shape[0]
        space = complement(change.G_after, self.old, jnp.ones(n, bool))
        F = space.F
        M = change.M
        given = space.P.T @ (space.T @ jnp.where(self.old, self.r, 0.0))  # (4)
        reduced = F.T @ M @ F + jnp.diag(jnp.where(space.dependent, 1.0, 0.0))
        rates = self.r - small.matvec(change.G_after, given)
        U = F.T @ (change.U - M @ given)
        ds, Lam2 = kkt.masked_kkt(
            small.factor(reduced), change.G_after @ F, self.new, U, rates, refinements=2
        )  # (5)
        return given + F @ ds, Lam2

    def impulses(self, dv: Velocity, Lam2: Rows) -> Rows:
        """Lam of all rows."""
        change = self.change
        free = change.solve(change.U - small.matvec(change.G_after.T, Lam2)) - dv
        return Lam2 + self.inverse(jnp.where(self.old, small.matvec(self.J1, free), 0.0))  # (6)
