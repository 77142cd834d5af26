"""What every constraint is to the rest of nsdyn.

A constraint has a mode (integers), and for each mode rows that hold:

    g(q, t; mode, held) = 0                           position level (holonomic)       (1)
    psi(q, v, t) = g_q q' + g_t = G v + g_t = 0       velocity level                   (2)

`held` is what the constraint stored when it last switched. A guard that falls through zero fires;
`after` then names the new mode. Rows not `live` in a mode are padding. The arguments are the same
everywhere: configuration q, velocity v, time t, parameters p, mode, held.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp

NO_MODE = -1  # what `after` answers when no mode can be entered


class AbstractConstraint(eqx.Module):
    """One constraint, switching or not."""

    @property
    def positional(self) -> bool:
        """Whether the rows hold at position level too."""
        return True

    @property
    def drifts(self) -> bool:
        """Whether integration of the accelerations leaves an error in the rows that a projection
        must remove."""
        return True

    @property
    def mode_depends_on_impact(self) -> bool:
        """Whether the velocity after an impact decides the mode (`settle`)."""
        return False

    @abstractmethod
    def rows(self, q, t, p, mode, held):
        """The position-level residual g, shape (m,)."""

    def rate(self, q, qdot, v, t, p, mode, held):
        """The velocity-level residual psi, shape (m,)."""
        rows = lambda q, t: self.rows(q, t, p, mode, held)
        return jax.jvp(rows, (q, t), (qdot, jnp.ones_like(t)))[1]  # (2)

    def live(self, q, t, p, mode):
        """Which rows hold in this mode, shape (m,); None: all of them."""
        return None

    def start(self, q, qdot, t, p):
        """The mode at the beginning of a run."""
        return jnp.zeros((), int)

    def guards(self, q, v, lam, t, p, mode, held):
        return jnp.zeros(0)

    def after(self, fired, q, qdot, v, t, p, mode):
        return mode

    def mode_after_impact(self, rate, mode_before, mode):
        """The mode after an impact, from the rates G v+ + g_t of the rows."""
        return mode

    def hold(self, q, t, p):
        return ()

    def row_names(self, q, t, p, mode, m: int) -> list[str]:
        """A name for each of the m rows, for messages."""
        return [f"{self.title}[{i}]" for i in range(m)]

    @property
    def title(self) -> str:
        return type(self).__name__
