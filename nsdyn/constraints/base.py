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
from jaxtyping import Array, Float

NO_MODE = -1  # what `after` answers when no mode can be entered


class Scale(eqx.Module):
    """How large a motion is at its start (`nsdyn.tolerances`). What is small beside it counts as
    zero, also later, where the motion passes through q = 0 or rests.

    length: L in the mass metric.
    q, v: the change of each coordinate over this length, and of each velocity at this speed.
    push: how much of its rate each coordinate gains from the forces in one step.
    touch, rest: the tolerances of these names.
    """

    length: Float[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    push: Float[Array, " nq"]
    touch: Float[Array, ""]
    rest: Float[Array, ""]

    @staticmethod
    def unknown(q, v) -> "Scale":
        """Nothing is known to be large, so only zero is small."""
        zero, still = jnp.zeros(()), jnp.zeros(jnp.shape(q))
        return Scale(
            length=zero, q=still, v=jnp.zeros(jnp.shape(v)), push=still, touch=zero, rest=zero
        )

    def near_zero(self, slope: Float[Array, "k nq"], q) -> Float[Array, " k"]:
        """Values at q of functions with these slopes that count as zero."""
        return self.touch * (jnp.abs(slope) @ (self.q + jnp.abs(q)))

    def at_rest(self, slope: Float[Array, "k nq"]) -> Float[Array, " k"]:
        """Their rates that count as zero."""
        return self.rest * (jnp.abs(slope) @ self.push)


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

    @property
    def rows_independent(self) -> bool:
        """Whether the rows can never depend on each other, or vanish; False where nobody knows."""
        return False

    @property
    def guards_use_lam(self) -> bool:
        """Whether a guard reads the multipliers. True is always safe; False saves time."""
        return True

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

    def start(self, q, qdot, t, p, scale: Scale):
        """The mode at the beginning of a run."""
        return jnp.zeros((), int)

    def guards(self, q, v, lam, t, p, mode, held):
        return jnp.zeros(0)

    def after(self, fired, q, qdot, v, t, p, mode, scale: Scale):
        """The mode after these guards fired."""
        return mode

    def persists(self, q, t, p, mode_before, mode_after):
        """Which rows of the mode after were live before as the same rows, shape (m,). None: not
        declared; rows at the same place with the same gradient are then taken for the same."""
        return None

    def mode_after_impact(self, rate, rest_speed, mode):
        """The mode after an impact, from the rates G v+ + g_t of the rows and the speeds below
        which they count as at rest."""
        return mode

    def hold(self, q, t, p):
        return ()

    def row_names(self, q, t, p, mode, m: int) -> list[str]:
        """A name for each of the m rows, for messages."""
        return [f"{self.title}[{i}]" for i in range(m)]

    @property
    def title(self) -> str:
        return type(self).__name__
