"""Impacts one after the other: of all contacts the one that approaches fastest collides alone,

    u_N = (1 + e) psi_N + (W P)_N,   u_T = (1 + e_T) psi_T + (W P)_T                           (1)

in (2) of `nsdyn.laws.impact`, with the rates psi that the collisions before it left; then again the
fastest, until none approaches by more than the round-off of the first rates. Of contacts that
approach equally fast the first collides first, which breaks symmetries.

In a row of equal balls with e = 1 the last one leaves with the speed of the first, as in Newton's
cradle. The number of collisions is bounded by `rounds`; it may be infinite, and the law then has no
answer.

In a time step a body at rest would collide with its support without end. So this law answers events
only.

A. Ivanov: On multiple impact. J. Appl. Math. Mech. 59 (1995) 887-902.
"""

from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nsdyn.errors import ProblemError
from nsdyn.laws.impact import AbstractImpactLaw, Impact, Pressed
from nsdyn.numerics import cone
from nsdyn.numerics.cone_problem import OPEN

STANDS = 1e-12  # of the first rates: a contact that approaches more slowly does not


def _rounds(x: Any) -> int:
    if isinstance(x, bool) or not isinstance(x, int) or x < 1:
        raise ProblemError(f"Sequential(rounds=...): expected a whole number >= 1, found {x!r}")
    return x


class Sequential(AbstractImpactLaw):
    """Contacts collide one at a time, the fastest first, each by Newton's law, until none
    approaches. Waves run through rows of balls; where contacts approach equally fast, the order in
    which they are listed decides.

    rounds: the largest number of collisions in one impact.
    bilateral: the law for the other constraints.
    allow_energy_gain: whether a run goes on after an impact that creates energy, as friction with
        e_T = 0 and e > 0 may do. Without, it stops with `Status.ENERGY_GAIN`.

    It answers events. Time-stepping schemes refuse it, since a body at rest would collide with its
    support in every step.
    """

    can_gain_energy: ClassVar[bool] = True
    unfit_for_time_steps: ClassVar[str | None] = (
        "bodies that rest on each other would collide one after the other in every step, without "
        "end"
    )

    rounds: int = eqx.field(converter=_rounds, static=True, default=64)

    def impulses(self, impact: Impact, careful: bool = False) -> Pressed:
        k, d = impact.free.shape
        columns = impact.W.reshape(k * d, k, d)
        small = STANDS * jnp.max(jnp.abs(impact.free), initial=0.0)

        def collide(c: "Collisions", _: None) -> tuple["Collisions", None]:
            i, approaches = _fastest(c.rates, impact.on, small)
            own = jax.lax.dynamic_index_in_dim(columns, i, axis=1, keepdims=False)
            W = jax.lax.dynamic_slice_in_dim(own, i * d, d)
            b = ((1 + impact.E[i]) * c.rates[i])[None]  # (1)
            found = cone.solve(
                W, b, impact.mu[i][None], approaches[None], jnp.zeros((1, d)), careful=careful
            )
            mode = jnp.where(approaches, found.mode[0], c.mode[i])
            after = Collisions(
                rates=c.rates + (own @ found.P[0]).reshape(k, d),
                P=c.P.at[i].add(found.P[0]),
                mode=c.mode.at[i].set(mode),
                solved=c.solved & found.solved,
            )
            return after, None

        yes = jnp.ones((), bool)
        none = jnp.zeros((k, d))
        first = Collisions(impact.free, none, jnp.full(k, OPEN), yes)
        last, _ = jax.lax.scan(collide, first, None, length=self.rounds)
        over = ~_fastest(last.rates, impact.on, small)[1]
        return Pressed(last.P, last.solved & over, last.mode)


class Collisions(NamedTuple):
    """The rates of the contacts after some collisions, the impulses in them, the mode in which each
    contact was in its last one, and whether all were solved."""

    rates: Float[Array, "k d"]
    P: Float[Array, "k d"]
    mode: Int[Array, " k"]
    solved: Bool[Array, ""]


def _fastest(
    rates: Float[Array, "k d"], on: Bool[Array, " k"], small: Float[Array, ""]
) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """The contact that approaches fastest, and whether it does."""
    speed = jnp.where(on, rates[:, 0], jnp.inf)
    i = jnp.argmin(speed)
    return i, speed[i] < -small
