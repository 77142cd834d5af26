"""Constraints that never switch: on positions (`Fixed`) and on velocities only (`Nonholonomic`)."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp

from nsdyn._signature import label, require_function
from nsdyn.constraints.base import AbstractConstraint


class Fixed(AbstractConstraint):
    """g(q, t, p) -> (m,), always on."""

    g: Callable = eqx.field(static=True)

    def __check_init__(self):
        require_function("Fixed", "g", self.g, 3, "g(q, t, p) -> (m,)")

    @property
    def guards_use_lam(self):
        return False

    def rows(self, q, t, p, mode, held):
        return jnp.ravel(self.g(q, t, p))

    def persists(self, q, t, p, mode_before, mode_after):
        return jnp.ones(jnp.size(self.rows(q, t, p, mode_after, ())), bool)

    @property
    def title(self):
        return label(self.g)


class Nonholonomic(AbstractConstraint):
    """c(q, v, t, p) -> (m,), affine in v, always on, at velocity level only."""

    c: Callable = eqx.field(static=True)

    def __check_init__(self):
        require_function("Nonholonomic", "c", self.c, 4, "c(q, v, t, p) -> (m,)")

    @property
    def positional(self):
        return False

    @property
    def guards_use_lam(self):
        return False

    def rows(self, q, t, p, mode, held):
        raise NotImplementedError("a non-holonomic constraint has no position level")

    def rate(self, q, qdot, v, t, p, mode, held):
        return jnp.ravel(self.c(q, v, t, p))

    @property
    def title(self):
        return label(self.c)
