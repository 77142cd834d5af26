"""What an impact law is: the law that decides the impulses of `Contacts`.

The rows of all other constraints are eliminated. psi are the rates of the contact rows, of each
contact first the normal one, psi_N < 0 where it approaches, then the tangential ones psi_T. With
the impulses P that act ON the mechanism (P_N >= 0 presses),

    psi+ = psi_free + W P                                                                      (1)

where psi_free are the rates that all else would leave: in an event-driven run those after the jump
of the other constraints, in a time step those of the free velocity. The law compares psi+ with the
rates psi- before, which are those at the start of a time step.

Many laws solve one problem of `nsdyn.numerics.cone`, in which the rates before enter as a shift:

    u = psi+ + s(psi-),   0 <= u_N,  P_N >= 0,  u_N P_N = 0,
    |P_T| <= mu P_N,  and P_T = -mu P_N u_T/|u_T| where u_T is not zero                        (2)

The impulses change the kinetic energy by

    sum over contacts of P . (psi_free + psi+)/2                                               (3)

and what the contacts take from the motion relative to their surfaces is -sum P . (psi- + psi+)/2.
Both differ only in a time step, by what the forces do in it. Where both are gains, beyond
round-off, the law created energy.
"""

from abc import abstractmethod
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nsdyn._types import Code, Scalar
from nsdyn.errors import ProblemError
from nsdyn.laws.base import AbstractLaw, Jump, ModeChange
from nsdyn.laws.post_switch import PostSwitchGradient
from nsdyn.numerics import cone, small
from nsdyn.status import Status

ROUND_OFF = 1e-9  # of the energies of an impact; its impulses are solved to that


class Impact(eqx.Module):
    """An impact as an impact law sees it, of k contacts with d rows each.

    W: the Delassus matrix of (1).
    before: psi-, the rates before.
    free: psi_free, the rates that all but the contacts would leave.
    mu: the coefficients of friction.
    E: the coefficients of restitution, e in the first column and e_T in the others; e is 0 for a
        contact that closes so slowly that it comes to rest.
    on: which contacts take part, as they touch.
    kept: which of them were closed before. They keep their e however slow they are: others may
        press them in this impact.
    P0: where the search for the impulses begins.
    slow: the contacts that close so slowly that they come to rest; None if there are none.
    """

    W: Float[Array, "kd kd"]
    before: Float[Array, "k d"]
    free: Float[Array, "k d"]
    mu: Float[Array, " k"]
    E: Float[Array, "k d"]
    on: Bool[Array, " k"]
    kept: Bool[Array, " k"]
    P0: Float[Array, "k d"]
    slow: Bool[Array, " k"] | None = None

    def after(self, P: Float[Array, "k d"]) -> Float[Array, "k d"]:
        """psi+ of (1)."""
        return self.free + small.matvec(self.W, P.reshape(-1)).reshape(P.shape)


class Pressed(NamedTuple):
    """The answer of an impact law.

    P: the impulses of the contacts on the mechanism, normal first.
    solved: whether they were found.
    mode: open, stick or slip of each contact, as the last problem of the form (2) says.
    """

    P: Float[Array, "k d"]
    solved: Bool[Array, ""]
    mode: Int[Array, " k"]


def _bilateral(law: Any) -> AbstractLaw:
    if not isinstance(law, AbstractLaw) or isinstance(law, AbstractImpactLaw):
        raise ProblemError(
            "bilateral: expected a law for constraints that are not contacts, such as "
            f"PostSwitchGradient(), found {law!r}"
        )
    return law


class AbstractImpactLaw(AbstractLaw):
    """The law that decides the impulses of `Contacts`; another one, `bilateral`, decides those of
    all other constraints.

    To write one, implement `impulses`, and say in class variables whether it can gain energy and
    why it does not fit time steps. Most laws solve one problem only: derive them from
    `AbstractShiftedLaw`.
    """

    can_gain_energy: eqx.AbstractClassVar[bool]
    """Whether the law can create kinetic energy."""

    unfit_for_time_steps: eqx.AbstractClassVar[str | None]
    """Why the law answers events only, and not the steps of time-stepping schemes; None if it
    answers both."""

    bilateral: AbstractLaw = eqx.field(
        converter=_bilateral, default_factory=PostSwitchGradient, kw_only=True
    )
    allow_energy_gain: bool = eqx.field(static=True, default=False, kw_only=True)

    @abstractmethod
    def impulses(self, impact: Impact, careful: bool = False) -> Pressed:
        """The impulses of the contacts. With `careful`, they are searched for with every method
        there is, which takes long to compile."""

    @property
    def fits_time_steps(self) -> bool:
        return self.unfit_for_time_steps is None

    def gain_code(self, impact: Impact, P: Float[Array, "k d"]) -> Code:
        """`Status.ENERGY_GAIN` if the impulses create energy and that is not allowed."""
        if self.allow_energy_gain:
            return Status.OK
        return jnp.where(gains_energy(impact, P), Status.ENERGY_GAIN, Status.OK)

    @property
    def reasons(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.bilateral.reasons

    @property
    def satisfies_new_constraints(self) -> bool:
        return self.bilateral.satisfies_new_constraints

    @property
    def needs_equal_rank(self) -> bool:
        return self.bilateral.needs_equal_rank

    def decide(self, change: ModeChange) -> Jump:
        return self.bilateral.decide(change)

    def failure_code(self, change: ModeChange) -> Code:
        return self.bilateral.failure_code(change)


class AbstractShiftedLaw(AbstractImpactLaw):
    """An impact law that solves one problem, (2). To write one, implement `shift`."""

    @abstractmethod
    def shift(self, before: Float[Array, "k d"], E: Float[Array, "k d"]) -> Float[Array, "k d"]:
        """s(psi-) of (2)."""

    def impulses(self, impact: Impact, careful: bool = False) -> Pressed:
        before = impact.before
        if impact.slow is not None:
            before = before.at[:, 0].set(jnp.where(impact.slow, 0.0, before[:, 0]))
        b = impact.free + self.shift(before, impact.E)
        found = cone.solve(impact.W, b, impact.mu, impact.on, impact.P0, careful=careful)  # (2)
        return Pressed(found.P, found.solved, found.mode)


def work(P: Float[Array, "k d"], one: Array, other: Array) -> Float[Array, "k d"]:
    """P (psi + psi')/2, row by row: what the impulses do between two rates."""
    return 0.5 * P * (one + other)


def gains_energy(impact: Impact, P: Float[Array, "k d"]) -> Bool[Array, ""]:
    """Whether the impulses create energy, (3)."""
    after = impact.after(P)
    total = lambda rates: jnp.sum(work(P, rates, after))
    least = jnp.minimum(total(impact.free), total(impact.before))
    return least > ROUND_OFF * _size(impact, P, after)


def _size(impact: Impact, P: Float[Array, "k d"], after: Float[Array, "k d"]) -> Scalar:
    """The size of the terms of (3)."""
    rates = jnp.abs(impact.free) + jnp.abs(impact.before) + jnp.abs(after)
    return jnp.sum(jnp.abs(P) * rates)
