"""Mass and live constraint rows at one configuration, factored once for everything an implicit step asks of them.

accelerate(f, c):   M x + G^T lam = f,  G x = c                                                (1)
reach(c):           M x + G^T mu = 0,   G x = c      the smallest motion in the mass metric    (2)
direct(f, c, D):    M x + D^T lam = f,  G x = c      the rows act along other directions D     (3)
"""

import jax.numpy as jnp

from nsdyn import linalg
from nsdyn.model import Model, Point


class Reaction:
    def __init__(self, model: Model, point: Point, p):
        self.model, self.point, self.p = model, point, p
        args = (point.q, point.v, point.t, p, point.mode, point.held)
        self.solve = model.system.solver(point.q, p)
        self.live = model.live(point.q, point.t, p, point.mode)
        self.G, self.Y, self._inverse = linalg.schur(self.solve, model.jacobian(*args), self.live)

    def accelerate(self, f, c):
        x0 = self.solve(f)
        lam = self._inverse(jnp.where(self.live, linalg.matvec(self.G, x0) - c, 0.0))
        return x0 - linalg.matvec(self.Y, lam), lam  # (1)

    def reach(self, c):
        mu = -self._inverse(jnp.where(self.live, c, 0.0))
        return -linalg.matvec(self.Y, mu), mu  # (2)

    def direct(self, f, c, D):
        x0, Y = self.solve(f), self.solve(D.T)
        B = linalg.matmul(self.G, Y)
        dead = jnp.diag(jnp.where(self.live, 0.0, 1.0))
        inverse = linalg.factor(linalg.matmul(B, B.T) + dead, semidefinite=True)
        lam = jnp.zeros_like(c)
        for _ in range(2):  # the second time for the digits that B B^T costs
            left = linalg.matvec(self.G, x0 - linalg.matvec(Y, lam)) - c
            lam = lam + linalg.matvec(B.T, inverse(jnp.where(self.live, left, 0.0)))
        return x0 - linalg.matvec(Y, lam), lam  # (3), in the least squares sense where rows depend on each other

    def reach_position(self, c):
        """`reach` for the rows that have a position level."""
        if all(part.positional for part in self.model.parts):
            return self.reach(c)[0]
        mask = self.live & self.model.positional()
        _, Y, inverse = linalg.schur(self.solve, self.G, mask)
        return linalg.matvec(Y, inverse(jnp.where(mask, c, 0.0)))

    # The three levels of the rows, and the force.

    @property
    def _args(self):
        point = self.point
        return point.t, self.p, point.mode, point.held

    def g(self):
        return self.model.rows(self.point.q, *self._args)

    def psi(self, v):
        return self.model.psi(self.point.q, v, *self._args)

    def gamma(self, v):
        return self.model.gamma(self.point.q, v, *self._args)

    def f(self, v):
        point = self.point
        return self.model.system.forces(point.q, v, point.t, self.p, point.mode)
