"""Poisson's law of impact: compression, then expansion. With P_C and P_E, the impulses of both,

    compression:  psi_C = psi_free + W P_C,   0 <= psi_CN,  P_CN >= 0,  psi_CN P_CN = 0        (1)
    expansion:    psi+ = psi_C + W P_E,   x = P_EN - e P_CN,   0 <= psi_N+,  x >= 0,
                  psi_N+ x = 0                                                                 (2)

and Coulomb friction in each of them: |P_T| <= mu P_N, opposite to the slip at its end. So the
impulse of the expansion is e times that of the compression, and more only where a contact would
otherwise close again. e_T has no part in it.

(2) is a problem of `nsdyn.numerics.cone` with twice as many contacts: those with (x, X_T), and
others at the same places whose normal impulse is known, e P_CN, and acts through psi_C already,
with friction Y_T. In sum |X_T + Y_T| <= mu (x + e P_CN), as (2) demands: balls of two radii add up
to a ball with the sum of them.

In a time step P_C would contain the weight of a body at rest, and e times it would throw it up. So
this law answers events only.

S. D. Poisson: Traite de mecanique, 2nd edition 1833. C. Glocker, F. Pfeiffer: Multiple impacts with
friction in rigid multibody systems. Nonlinear Dynamics 7 (1995) 471-497.
"""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array, Float

from nsdyn.laws.impact import AbstractImpactLaw, Impact, Pressed
from nsdyn.numerics import cone
from nsdyn.numerics.cone_problem import OPEN

LEAVES = 1e-9  # of the rates before: a contact that leaves more slowly does not


class Poisson(AbstractImpactLaw):
    """Poisson's law for `Contacts`: each contact gives back e times the impulse of its compression,
    also one that was closed before. Two balls part as with `Newton`; several contacts with
    different e, or with friction, do not.

    bilateral: the law for the other constraints.
    allow_energy_gain: whether a run goes on after an impact that creates energy, as friction may
        do. Without, it stops with `Status.ENERGY_GAIN`.

    It answers events. Time-stepping schemes refuse it, since they would give back the weight of a
    body at rest as well.
    """

    can_gain_energy: ClassVar[bool] = True
    unfit_for_time_steps: ClassVar[str | None] = (
        "the impulse of a time step contains the weight of bodies at rest, and Poisson's law would "
        "give back a part of it"
    )

    def impulses(self, impact: Impact, careful: bool = False) -> Pressed:
        on = impact.on
        squeezed = cone.solve(
            impact.W, impact.free, impact.mu, on, impact.P0, careful=careful
        )  # (1)
        given = jnp.where(on, impact.E[:, 0] * squeezed.P[:, 0], 0.0)
        so_far = squeezed.P.at[:, 0].add(given)
        more = _expanded(impact, impact.after(so_far), given, careful)  # (2)
        P = so_far + more.P
        rates = impact.after(P)[:, 0]
        leaves = rates > LEAVES * jnp.max(jnp.abs(impact.free), initial=0.0)
        plastic = jnp.where(leaves, OPEN, squeezed.mode)
        mode = jnp.where(more.mode == OPEN, plastic, more.mode)
        return Pressed(P, squeezed.solved & more.solved, mode)


def _expanded(
    impact: Impact, b: Float[Array, "k d"], given: Float[Array, " k"], careful: bool
) -> Pressed:
    """x and the friction of (2), with b = psi_C + W (e P_CN, 0) and the given e P_CN."""
    k, d = b.shape
    start = jnp.zeros((k, d))
    if d == 1:  # no friction, no companions
        alone = cone.solve(impact.W, b, impact.mu, impact.on, start, careful=careful)
        return Pressed(alone.P, alone.solved, alone.mode)
    W = impact.W.reshape(k, d, k, d)
    own = jnp.diagonal(W[:, 0, :, 0])
    top = jnp.concatenate([W, W.at[:, :, :, 0].set(0.0)], axis=2)
    below = top.at[:, 0].set(0.0).at[:, 0, k:, 0].set(jnp.diag(own))
    found = cone.solve(
        jnp.concatenate([top, below]).reshape(2 * k * d, 2 * k * d),
        jnp.concatenate([b, b.at[:, 0].set(-own * given)]),
        jnp.concatenate([impact.mu, impact.mu]),
        jnp.concatenate([impact.on, impact.on & (given > 0)]),
        jnp.concatenate([start, start.at[:, 0].set(given)]),
        careful=careful,
    )
    P = found.P[:k].at[:, 1:].add(found.P[k:, 1:])
    return Pressed(P, found.solved, found.mode[:k])
