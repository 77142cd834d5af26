"""Mass and live constraint rows at one configuration, factored once for everything an implicit step
asks of them.

accelerate(f, c):   M x + G^T lam = f,  G x = c                                                (1)
reach(c):           M x + G^T mu = 0,   G x = c      the smallest motion in the mass metric    (2)
direct(f, c, D):    M x + D^T lam = f,  G x = c      the rows act along other directions D     (3)
"""

import jax.numpy as jnp

from nsdyn.mechanics.model import Model, Point
from nsdyn.numerics import kkt, small


class SaddlePoint:
    def __init__(self, model: Model, point: Point, p):
        self.model, self.point, self.p = model, point, p
        args = (point.q, point.v, point.t, p, point.mode, point.held)
        self.solve_mass = model.system.solver(point.q, p)
        self.live = model.live(point.q, point.t, p, point.mode)
        self.G, self.Y, self._inverse = kkt.schur(self.solve_mass, model.jacobian(*args), self.live)

    def solve(self, f, c):
        x0 = self.solve_mass(f)
        lam = self._inverse(jnp.where(self.live, small.matvec(self.G, x0) - c, 0.0))
        return x0 - small.matvec(self.Y, lam), lam  # (1)

    def smallest_motion(self, c):
        mu = -self._inverse(jnp.where(self.live, c, 0.0))
        return -small.matvec(self.Y, mu), mu  # (2)

    def solve_along(self, f, c, D):
        x0, Y = self.solve_mass(f), self.solve_mass(D.T)
        B = small.matmul(self.G, Y)
        dead = jnp.diag(jnp.where(self.live, 0.0, 1.0))
        inverse = small.factor(small.matmul(B, B.T) + dead, semidefinite=True)
        lam = jnp.zeros_like(c)
        for _ in range(2):  # the second time for the digits that B B^T costs
            left = small.matvec(self.G, x0 - small.matvec(Y, lam)) - c
            lam = lam + small.matvec(B.T, inverse(jnp.where(self.live, left, 0.0)))
        return x0 - small.matvec(
            Y, lam
        ), lam  # (3), in the least squares sense where rows depend on each other

    def smallest_motion_of_positions(self, c):
        """`reach` for the rows that have a position level."""
        if all(part.positional for part in self.model.parts):
            return self.smallest_motion(c)[0]
        mask = self.live & self.model.positional()
        _, Y, inverse = kkt.schur(self.solve_mass, self.G, mask)
        return small.matvec(Y, inverse(jnp.where(mask, c, 0.0)))

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
