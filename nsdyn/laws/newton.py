"""Newton's law of impact with Coulomb friction, for several contacts at once in Moreau's form:

    u_N = psi_N+ + e psi_N-,   u_T = psi_T+ + e_T psi_T-                                       (1)

in (2) of `nsdyn.laws.impact`. A contact that presses leaves with e times the speed of its approach;
one that would leave faster is open and has no impulse.

Without friction energy is lost, never gained, for any e in [0, 1]. The same holds with friction if
all e and all e_T are one number. With e_T = 0 and e > 0 friction can create energy: it opposes the
slip after the impact, and may push along that before.

J. J. Moreau: Unilateral contact and dry friction in finite freedom dynamics. CISM 302 (1988) 1-82.
C. Glocker: Set-Valued Force Laws. Springer 2001.
"""

from typing import ClassVar

from jaxtyping import Array, Bool, Float

from nsdyn.laws.base import AbstractLaw
from nsdyn.laws.impact import AbstractImpactLaw, AbstractShiftedLaw


class Newton(AbstractShiftedLaw):
    """Newton's law for `Contacts`: those that press leave with e times the speed of their approach,
    and along the surface with e_T times the speed. All contacts are resolved together, as Moreau
    does; the coefficients are those of `Contacts`.

    bilateral: the law for the other constraints.
    allow_energy_gain: whether a run goes on after an impact that creates energy, as e_T = 0 with
        friction and e > 0 may do. Without, it stops with `Status.ENERGY_GAIN`.

    Contacts obey it if no other impact law is given.
    """

    can_gain_energy: ClassVar[bool] = True
    unfit_for_time_steps: ClassVar[str | None] = None

    def shift(
        self, before: Float[Array, "k d"], E: Float[Array, "k d"], hit: Bool[Array, " k"]
    ) -> Float[Array, "k d"]:
        return E * before  # (1)


def impact_law(law: AbstractLaw) -> AbstractImpactLaw:
    """The law that contacts obey: the law itself if it is one for impacts, else Newton's, with the
    law for all other constraints."""
    return law if isinstance(law, AbstractImpactLaw) else Newton(bilateral=law)
