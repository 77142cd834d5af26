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
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from numpy.typing import ArrayLike

from nsdyn._types import Code
from nsdyn.errors import ProblemError
from nsdyn.laws.base import AbstractLaw, Jump, ModeChange
from nsdyn.laws.post_switch import PostSwitchGradient
from nsdyn.numerics import cone, small
from nsdyn.status import MESSAGES, Status

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

    bilateral: the law for the other constraints.
    allow_energy_gain: whether a run goes on after an impact that creates energy. Without, it stops
        with `Status.ENERGY_GAIN`.
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
        gains = gains_energy(P, impact.free, impact.before, impact.after(P))
        return jnp.where(gains, Status.ENERGY_GAIN, Status.OK)

    def objection(self, k: int) -> str | None:
        """Why the law has no answer for k contacts; None if it has."""
        return None

    def collide(
        self,
        M: ArrayLike,
        H: ArrayLike,
        v_before: ArrayLike,
        mu: ArrayLike = 0.0,
        e: ArrayLike = 0.0,
        e_T: ArrayLike = 0.0,
    ) -> "Collision":
        """The impact of k contacts that all touch, without a run.

        M: mass matrix, shape (n, n). H: the gradients of the contact rows, shape (k, d, n), of each
        contact first that of its distance, then those of the velocities along its surface (none
        if d = 1). v_before: velocity, shape (n,). mu, e, e_T: one number, or one for each contact.

        Raises ProblemError if the law has no answer, or if it creates energy and that is not
        allowed. Traced code cannot raise: look at `solved` there.
        """
        arguments = _collision(self, M, H, v_before, mu, e, e_T)
        if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((self, arguments))):
            return _collided(self, arguments, True)[1]
        code, found = _collided(self, arguments, False)
        if not found.solved:  # all that can be tried takes long to compile
            code, found = _collided(self, arguments, True)
        if code != Status.OK:
            raise ProblemError(f"{type(self).__name__}.collide: {MESSAGES[Status(int(code))]}")
        return found

    @property
    def reasons(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.bilateral.reasons

    @property
    def satisfies_new_constraints(self) -> bool:
        return self.bilateral.satisfies_new_constraints

    @property
    def needs_equal_rank(self) -> bool:
        return self.bilateral.needs_equal_rank

    @property
    def always_rebounds(self) -> bool:
        return self.bilateral.always_rebounds

    def decide(self, change: ModeChange) -> Jump:
        return self.bilateral.decide(change)

    def failure_code(self, change: ModeChange) -> Code:
        return self.bilateral.failure_code(change)


class Collision(NamedTuple):
    """The impact that `AbstractImpactLaw.collide` computed.

    v_after: the velocity after it. P: the impulses of the contacts on the mechanism, shape (k, d),
    normal first. work: P (psi- + psi+)/2 of the same shape, whose sum is the change of kinetic
    energy. mode: 0 open, 1 stick, 2 slip. solved: whether the impulses were found.
    """

    v_after: Float[Array, " n"]
    P: Float[Array, "k d"]
    work: Float[Array, "k d"]
    mode: Int[Array, " k"]
    solved: Bool[Array, ""]


class AbstractShiftedLaw(AbstractImpactLaw):
    """An impact law that solves one problem, (2). To write one, implement `shift`. Such laws fit
    time steps too.

    bilateral: the law for the other constraints.
    allow_energy_gain: whether a run goes on after an impact that creates energy.
    """

    @abstractmethod
    def shift(
        self, before: Float[Array, "k d"], E: Float[Array, "k d"], hit: Bool[Array, " k"]
    ) -> Float[Array, "k d"]:
        """s(psi-) of (2), from the rates before and the coefficients of restitution.

        hit: which contacts take part in an impact. In a time step in which no contact closes there
        is none; contacts rest and slide.
        """

    def impulses(self, impact: Impact, careful: bool = False) -> Pressed:
        before = impact.before
        if impact.slow is not None:
            before = before.at[:, 0].set(jnp.where(impact.slow, 0.0, before[:, 0]))
        b = impact.free + self.shift(before, impact.E, impact.on)
        found = cone.solve(impact.W, b, impact.mu, impact.on, impact.P0, careful=careful)  # (2)
        return Pressed(found.P, found.solved, found.mode)


def work(P: Float[Array, "k d"], one: Array, other: Array) -> Float[Array, "k d"]:
    """P (psi + psi')/2, row by row: what the impulses do between two rates."""
    return 0.5 * P * (one + other)


def gains_energy(
    P: Float[Array, "k d"],
    free: Float[Array, "k d"],
    before: Float[Array, "k d"],
    after: Float[Array, "k d"],
) -> Bool[Array, ""]:
    """Whether the impulses create energy, (3), with the rates psi_free, psi- and psi+."""
    least = jnp.minimum(jnp.sum(work(P, free, after)), jnp.sum(work(P, before, after)))
    sizes = jnp.abs(free) + jnp.abs(before) + jnp.abs(after)
    return least > ROUND_OFF * jnp.sum(jnp.abs(P) * sizes)


def _collision(
    law: AbstractImpactLaw,
    M: ArrayLike,
    H: ArrayLike,
    v: ArrayLike,
    mu: ArrayLike,
    e: ArrayLike,
    e_T: ArrayLike,
) -> tuple[Array, ...]:
    """The arguments of `collide`, checked."""
    M, H, v = (jnp.asarray(x, float) for x in (M, H, v))
    n = v.shape[0] if v.ndim == 1 else -1
    if n < 0 or M.shape != (n, n) or H.ndim != 3 or H.shape[2] != n:
        raise ProblemError(
            f"{type(law).__name__}.collide: expected M (n, n), H (k, d, n) and v_before (n,), "
            f"found shapes {M.shape}, {H.shape} and {v.shape}"
        )
    k = H.shape[0]
    objection = law.objection(k)
    if objection is not None:
        raise ProblemError(f"{type(law).__name__}.collide: {objection}")
    given = (("mu", mu, np.inf), ("e", e, 1.0), ("e_T", e_T, 1.0))
    return M, H, v, *(_per_contact(law, name, x, most, k) for name, x, most in given)


def _per_contact(law: AbstractImpactLaw, name: str, given: ArrayLike, most: float, k: int) -> Array:
    x = jnp.asarray(given, float)
    inside = isinstance(x, jax.core.Tracer) or bool(np.all((np.asarray(x) >= 0) & (x <= most)))
    if x.shape not in ((), (1,), (k,)) or not inside:
        bounds = "at least 0" if most == np.inf else "from 0 to 1"
        raise ProblemError(
            f"{type(law).__name__}.collide({name}=...): expected one number {bounds}, or one for "
            f"each of {k} contacts, found {given!r}"
        )
    return jnp.broadcast_to(x, (k,))


@eqx.filter_jit
def _collided(
    law: AbstractImpactLaw, arguments: tuple[Array, ...], careful: bool
) -> tuple[Array, Collision]:
    """A status and the impact."""
    M, H, v, mu, e, e_T = arguments
    k, d, n = H.shape
    rows = H.reshape(k * d, n)
    Y = small.factor(M)(rows.T)
    rates = small.matvec(rows, v).reshape(k, d)
    impact = Impact(
        W=small.matmul(rows, Y),
        before=rates,
        free=rates,
        mu=mu,
        E=jnp.concatenate([e[:, None], jnp.repeat(e_T[:, None], d - 1, axis=1)], axis=1),
        on=jnp.ones(k, bool),
        kept=rates[:, 0] >= 0,
        P0=jnp.zeros((k, d)),
    )
    P, solved, mode = law.impulses(impact, careful)
    code = jnp.where(solved, law.gain_code(impact, P), Status.CONTACT_UNSOLVED)
    found = Collision(
        v_after=v + small.matvec(Y, P.reshape(-1)),
        P=P,
        work=work(P, rates, impact.after(P)),
        mode=mode,
        solved=solved,
    )
    return code, found
