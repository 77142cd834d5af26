"""`Contacts` and `Friction` with modes that the motion obeys, as event-driven runs see them.

Along a smooth motion each contact is in one of three modes, with the force r on the mechanism,

    open     r = 0                                     until gap falls through 0               (1)
    stick    psi_N' = 0,  psi_T' = 0                   until r_N falls through 0,              (2)
                                                       or mu^2 r_N^2 - |r_T|^2 does            (3)
    slip     psi_N' = 0,  r_T = -mu r_N t              until r_N falls through 0,              (4)
                                                       or psi_T . t_0 does                     (5)

t is the direction of slip, psi_T/|psi_T|, and t_0 what the contact holds: t at the last event, or
at the beginning of the step in space, where it turns. |psi_T| itself would touch zero, not fall
through it. Where the slip is so slow that a step could not follow its direction, t = t_0: the
contact holds a fourth number, 1 if that is so (`nsdyn.mechanics.closed_contacts`). A contact
without friction slips, in (4) with mu = 0, and (5) does not matter. What follows an event is the
matter of `nsdyn.stepping.contact_change`.

Where a given force N presses (`Friction`) nothing is open unless N is negative: in place of gap and
r_N, -N and N fall through 0. A coefficient that follows the speed of slip is mu(0) in (3), and
mu(|psi_T|) in (4), with the limit mu(0+) at the instant at which a slip begins.
"""

import equinox as eqx
import jax.numpy as jnp

from nsdyn._types import (
    AnyConfiguration,
    AnyMode,
    AnyTime,
    Configuration,
    Guards,
    Held,
    Mode,
    Params,
    Rows,
    Time,
    Velocity,
)
from nsdyn.constraints.base import AbstractConstraint, Scale
from nsdyn.constraints.contacts import AbstractContacts, Contacts, slipping
from nsdyn.constraints.friction import Friction
from nsdyn.numerics.cone_problem import OPEN, STICK

MOST_TANGENTS = 3  # directions along a surface, with spin


class ContactModes(AbstractConstraint):
    """The contacts of a `Contacts` or `Friction` with their modes. A run makes it; users give
    those. count: how many there are."""

    contacts: AbstractContacts
    count: int = eqx.field(static=True)

    @property
    def unilateral(self) -> bool:
        return True

    @property
    def positional(self) -> bool:
        return False  # gaps are held apart from the rows of other constraints

    def rows(self, q: Configuration, t: Time, p: Params, mode: Mode, held: Held) -> Rows:
        return self.contacts.rows(q, t, p, mode, held)

    def rate(
        self,
        q: Configuration,
        qdot: Configuration,
        v: Velocity,
        t: Time,
        p: Params,
        mode: Mode,
        held: Held,
    ) -> Rows:
        return self.contacts.rate(q, qdot, v, t, p, mode, held)

    def start(
        self, q: Configuration, qdot: Configuration, t: Time, p: Params, scale: Scale
    ) -> Mode:
        return self.contacts.start(q, qdot, t, p, scale)

    def hold(self, q: AnyConfiguration, t: AnyTime, p: Params) -> Held:
        """t_0, padded, and whether t = t_0; zero where that is not known."""
        return jnp.zeros((self.count, MOST_TANGENTS + 1))

    def guards(
        self, q: Configuration, v: Velocity, lam: Rows, t: Time, p: Params, mode: Mode, held: Held
    ) -> Guards:
        """(1), (2) or (4) of each contact, then, with friction, (3) or (5) of each."""
        k = mode.shape[0]
        r = -lam.reshape(k, -1)
        normal = self._normal_guards(q, v, t, p, mode, r[:, 0])
        if r.shape[1] == 1:
            return normal
        slip = self.contacts.slips(q, v, t, p, k)
        mu = self.contacts.coefficients(p, k, slipping(slip, mode == STICK))[0]
        sticks = (mu * r[:, 0]) ** 2 - jnp.sum(r[:, 1:] ** 2, axis=1)  # (3)
        slips = jnp.sum(slip * held[:, : slip.shape[1]], axis=1)  # (5)
        slips = jnp.where(mu > 0, slips, 1.0)
        tangential = jnp.where(mode == STICK, sticks, slips)
        return jnp.concatenate([normal, jnp.where(mode == OPEN, 1.0, tangential)])

    def _normal_guards(
        self, q: Configuration, v: Velocity, t: Time, p: Params, mode: Mode, r_N: Rows
    ) -> Guards:
        if isinstance(self.contacts, Friction):
            N = self.contacts.normal_forces(q, v, t, p)
            return jnp.where(mode == OPEN, -N, N)
        assert isinstance(self.contacts, Contacts)
        return jnp.where(mode == OPEN, self.contacts.gaps(q, t, p), r_N)

    @property
    def title(self) -> str:
        return self.contacts.title

    def row_names(
        self, q: AnyConfiguration, t: AnyTime, p: Params, mode: AnyMode, m: int
    ) -> list[str]:
        return self.contacts.row_names(q, t, p, mode, m)

    def mode_name(self, mode: AnyMode) -> str:
        return self.contacts.mode_name(mode)
