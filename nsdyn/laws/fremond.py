"""Fremond's law of impact: friction opposes the mean of the slip before and after,

    u_N = psi_N+ + e psi_N-,   u_T = psi_T+ + psi_T-                                           (1)

in (2) of `nsdyn.laws.impact`. So friction never creates energy: P_T . (psi_T+ + psi_T-)/2 <= 0, and
P_N (psi_N+ + psi_N-)/2 = (1 - e) P_N psi_N-/2 <= 0 where a contact approached. It holds for any e
in [0, 1] and any mu, contact by contact.

In a time step without an impact u_T = psi_T+: with the mean a body that stops sliding would swing
to and fro, by psi_T+ = -psi_T-, for ever.

M. Fremond: Rigid bodies collisions. Physics Letters A 204 (1995) 33-41.
"""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from nsdyn.laws.impact import AbstractShiftedLaw


class Fremond(AbstractShiftedLaw):
    """Fremond's law for `Contacts`: e as in `Newton`, while friction opposes the mean of the slip
    before and after the impact. It never creates energy. A contact that sticks in this sense leaves
    with the opposite slip, as with e_T = 1; the e_T of `Contacts` is not used.

    bilateral: the law for the other constraints.
    allow_energy_gain: without meaning here.
    """

    can_gain_energy: ClassVar[bool] = False
    unfit_for_time_steps: ClassVar[str | None] = None

    def shift(
        self, before: Float[Array, "k d"], E: Float[Array, "k d"], hit: Bool[Array, " k"]
    ) -> Float[Array, "k d"]:
        slip = jnp.where(hit[:, None], before[:, 1:], 0.0)
        return jnp.concatenate([E[:, :1] * before[:, :1], slip], axis=1)  # (1)
