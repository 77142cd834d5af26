"""Mass and live constraint rows at one point, factored once for everything that a step needs.

solve(f, c):            M x + G^T lam = f,  G x = c                                            (1)
smallest_motion(c):     M x + G^T mu = 0,   G x = c    the smallest in the mass metric         (2)
solve_along(f, c, D):   M x + D^T lam = f,  G x = c    reactions along other directions D      (3)
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn._types import Jacobian, Params, RowMask, Rows, Solve, Velocity
from nsdyn.mechanics.model import Model, Point
from nsdyn.numerics import kkt, small

ROUND_OFF = 1e-9  # of a speed, after an impact


class SaddlePoint:
    """The saddle-point system of a model at a point. `G` has zero rows where rows are not live;
    `gradients` has them all."""

    def __init__(self, model: Model, point: Point, p: Params) -> None:
        self.model = model
        self.point = point
        self.p = p
        self.solve_mass = model.system.solver(point.q, p)
        self.live = model.live(point, p)
        self.gradients = model.jacobian(point, p)
        self.G, self.Y, self._inverse = self._schur(self.gradients, self.live)

    def _schur(self, G: Jacobian, live: RowMask) -> tuple[Jacobian, Array, Solve]:
        """The masked G, Y = M^-1 G^T and S^-1. Rows of contacts, which are dead, are left out of
        the elimination."""
        definite = self.model.rows_independent
        if not self.model.has_contacts:
            return kkt.schur(self.solve_mass, G, live, definite)
        rows = self.model.bilateral
        m, n = G.shape
        if not len(rows):
            return jnp.zeros((m, n)), jnp.zeros((n, m)), jnp.zeros_like
        wide = jnp.asarray(np.eye(m)[:, rows])
        Gm, Y, inverse = kkt.schur(self.solve_mass, G[rows], live[rows], definite)
        return wide @ Gm, Y @ wide.T, lambda c: wide @ inverse(c[rows])

    @property
    def row_sizes(self) -> Float[Array, " m"]:
        """|G_i| in the metric M^-1, the size of a row; 0 where rows are not live."""
        return jnp.sqrt(jnp.maximum(jnp.sum(self.G * self.Y.T, axis=1), 0.0))

    def rest_speeds(self) -> Float[Array, " m"]:
        """The rates up to which rows count as being at rest: a fraction of what the forces take
        away in one step, plus the round-off of the motion."""
        v = self.point.v
        model = self.model
        pull = small.matvec(self.G, self.solve_mass(self.f(v))) + self.gamma(v)
        speed = jnp.sqrt(2 * model.system.kinetic(self.point.q, v, self.p))
        forces = model.tolerances.rest * model.step * jnp.abs(pull)
        return forces + ROUND_OFF * self.row_sizes * speed

    def solve(self, f: Float[Array, " n"], c: Float[Array, " m"]) -> tuple[Velocity, Rows]:
        """x and lam of (1)."""
        x0 = self.solve_mass(f)
        lam = self._inverse(jnp.where(self.live, small.matvec(self.G, x0) - c, 0.0))
        return x0 - small.matvec(self.Y, lam), lam  # (1)

    def smallest_motion(self, c: Float[Array, " m"]) -> tuple[Velocity, Rows]:
        """x and mu of (2)."""
        mu = -self._inverse(jnp.where(self.live, c, 0.0))
        return -small.matvec(self.Y, mu), mu  # (2)

    def solve_along(
        self, f: Float[Array, " n"], c: Float[Array, " m"], D: Float[Array, "m n"]
    ) -> tuple[Velocity, Rows]:
        """x and lam of (3), in the least-squares sense where rows depend on each other."""
        x0 = self.solve_mass(f)
        Y = self.solve_mass(D.T)
        B = small.matmul(self.G, Y)
        dead = jnp.diag(jnp.where(self.live, 0.0, 1.0))
        inverse = small.factor(small.matmul(B, B.T) + dead, semidefinite=True)
        lam = jnp.zeros_like(c)
        for _ in range(2):  # the second pass restores the digits that B B^T costs
            left = small.matvec(self.G, x0 - small.matvec(Y, lam)) - c
            lam = lam + small.matvec(B.T, inverse(jnp.where(self.live, left, 0.0)))
        return x0 - small.matvec(Y, lam), lam  # (3)

    def smallest_motion_of_positions(self, c: Float[Array, " m"]) -> Velocity:
        """x of (2) for the rows that have a position level."""
        if self.model.all_positional:
            return self.smallest_motion(c)[0]
        mask = self.live & self.model.positional
        _, Y, inverse = self._schur(self.G, mask)
        return small.matvec(Y, inverse(jnp.where(mask, c, 0.0)))

    def respond(
        self, forces: Float[Array, "n c"]
    ) -> tuple[Float[Array, "n c"], Float[Array, "m c"]]:
        """x and lam of (1) with c = 0 for many columns f."""
        x = self.solve_mass(forces)
        if not len(self.model.bilateral):
            return x, jnp.zeros((self.G.shape[0], x.shape[1]))
        lam = self._inverse(small.matmul(self.G, x))
        return x - small.matmul(self.Y, lam), lam

    # The three levels of the rows, and the force, at the same configuration with another velocity.

    def g(self) -> Float[Array, " m"]:
        return self.model.rows(self.point, self.p)

    def psi(self, v: Float[Array, " n"]) -> Float[Array, " m"]:
        return self.model.psi(self.point.replace(v=v), self.p)

    def gamma(self, v: Float[Array, " n"]) -> Float[Array, " m"]:
        return self.model.gamma(self.point.replace(v=v), self.p)

    def f(self, v: Float[Array, " n"]) -> Float[Array, " n"]:
        return self.model.force(self.point.replace(v=v), self.p)
