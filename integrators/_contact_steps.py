"""What time-stepping schemes share about contacts: how their law enters a step, and their impacts.

psi- are the rates of the contact rows at the start of a step. The law shifts the rates at its end
by s(psi-) (`nsdyn.laws.impact`). With restitution a body would hop for ever, by less than a step at
last. There a scheme that ends hops sets

    s_N = 0   where   |s_N| < h/2 |gap_q| |q''|,   q'' from the forces alone                   (1)

An impact is an event: a contact that presses in the step, P_N > 0, and approached faster than

    psi_N- < -(h/2 |gap_q| |q''| + QUIET |N|_(M^-1) V + QUIET d/h),   V = sqrt(2 T)            (2)

faster than a body that rests or rolls does by round-off and by the forces of a step, also where
these act along the surface; d is the reach (3). Its record is the jump from the free velocity of
the step to that at its end. The law has created energy if it has with respect to both the rates of
the free velocity and psi-, (3) of `nsdyn.laws.impact`.

Reactions turn forces into any direction. Whatever they do, in a step from rest no gap changes by
more than about

    h^2 |gap_q|_(M^-1) |q''|_M,   of which an upper bound is used                              (3)
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from nsdyn._types import Number, Params, Scalar
from nsdyn.laws.base import AbstractLaw, Jump
from nsdyn.laws.impact import AbstractImpactLaw, AbstractShiftedLaw, gains_energy
from nsdyn.laws.newton import impact_law
from nsdyn.mechanics import contact_rows as contacts
from nsdyn.mechanics.model import Model, Point
from nsdyn.numerics.cone_problem import OPEN

QUIET = 1e-6  # of the speed of the mechanism, and of that which forces give it in a step


def refusal(law: AbstractLaw, parts: tuple) -> str | None:
    """Why the law does not fit the steps of a problem with these constraints; None if it does."""
    if not any(part.unilateral for part in parts):
        return None
    found = impact_law(law)
    if found.unfit_for_time_steps is not None:
        return found.unfit_for_time_steps
    if not isinstance(found, AbstractShiftedLaw):
        return "a time step solves one problem for all contacts, with rates that the law shifts"
    return None


def shifted_law(law: AbstractLaw) -> AbstractShiftedLaw:
    """The law of the contacts; laws that are not of this kind were refused before the run."""
    found = impact_law(law)
    assert isinstance(found, AbstractShiftedLaw)
    return found


class Approach(eqx.Module):
    """The contacts at the start of a step.

    rates: psi-. mu: the coefficients of friction. shift: s(psi-).
    slow: the speeds of (1). speed: V of (2).
    reach: how far contacts that touch elsewhere may make forces move this one in a step, (3).
    quiet: the last term of (2).
    """

    rates: Float[Array, "k d"]
    mu: Float[Array, " k"]
    shift: Float[Array, "k d"]
    slow: Float[Array, " k"]
    speed: Scalar
    reach: Float[Array, " k"]
    quiet: Float[Array, " k"]

    @staticmethod
    def of(
        model: Model,
        point: Point,
        rates: Float[Array, "k d"],
        near: Bool[Array, " k"],
        law: AbstractShiftedLaw,
        ends_hops: bool,
        h: Number,
        p: Params,
        slope: Float[Array, "k nq"] | None = None,
    ) -> "Approach":
        """`near` are the contacts that take part in the step, as far as is known at its start. If
        one of them closes in it, not slower than (1), all of them take part in an impact. slope:
        the slopes of the gaps, if they are known."""
        mode = contacts.modes(model, point)
        own = contacts.coefficients(model, p, contacts.speeds(model, rates, mode))
        slow, reach = _hops(model, point, h, p, slope)
        closes = near & (mode == OPEN) & (rates[:, 0] < -slow)
        shift = law.shift(rates, own.E, near & jnp.any(closes))
        if ends_hops:
            short = jnp.abs(shift[:, 0]) < slow
            shift = shift.at[:, 0].set(jnp.where(short, 0.0, shift[:, 0]))  # (1)
        speed = jnp.sqrt(2 * model.system.kinetic(point.q, point.v, p))
        return Approach(
            rates=rates,
            mu=own.mu,
            shift=shift,
            slow=slow,
            speed=speed,
            reach=reach,
            quiet=QUIET * reach / h,
        )

    def with_landing(self, lands: Bool[Array, " k"], shift: Float[Array, " k"]) -> "Approach":
        """The same with these shifts of the normal rates of contacts that land."""
        normal = jnp.where(lands, shift, self.shift[:, 0])
        return eqx.tree_at(lambda x: x.shift, self, self.shift.at[:, 0].set(normal))

    def strikes(self, rows: contacts.ContactRows, P: Float[Array, "k d"]) -> Bool[Array, " k"]:
        """Which contacts have an impact, (2)."""
        sizes = jnp.sqrt(jnp.maximum(rows.diagonal[:, 0], 0.0))
        fast = self.rates[:, 0] < -(self.slow + QUIET * sizes * self.speed + self.quiet)
        return fast & (P[:, 0] > 0)


def _hops(
    model: Model, point: Point, h: Number, p: Params, slope: Float[Array, "k nq"] | None
) -> tuple[Float[Array, " k"], Float[Array, " k"]]:
    """h/2 |gap_q| |q''|, and (3)."""
    slope = contacts.gap_slopes(model, point, p) if slope is None else slope
    slope = jnp.abs(jax.lax.stop_gradient(slope))
    system = model.system
    f = model.force(point, p)
    a = system.solver(point.q, p)(f)
    scale = model.scale
    widths = scale.q / jnp.where(scale.length > 0, scale.length, 1.0)  # of the ball |q|_M <= 1
    size = jnp.sqrt(jax.lax.stop_gradient(jnp.vdot(f, a)))
    return 0.5 * h * (slope @ jnp.abs(system.rate(point.q, a, p))), h * h * size * (slope @ widths)


class ContactStep(eqx.Module):
    """The contacts in a step.

    problem: what was solved for their impulses. solved: whether that was found.
    jump: from the free velocity of the step to that at its end, with all impulses.
    struck: whether a contact had an impact. gained: whether the law created energy in it, although
        that is not allowed.
    """

    problem: contacts.ContactProblem | contacts.RowProblem
    solved: Bool[Array, ""]
    jump: Jump
    struck: Bool[Array, ""]
    gained: Bool[Array, ""]

    @staticmethod
    def of(
        problem: contacts.ContactProblem | contacts.RowProblem,
        solved: Bool[Array, ""],
        jump: Jump,
        rows: contacts.ContactRows,
        free: Float[Array, "k d"],
        P: Float[Array, "k d"],
        approach: Approach,
        law: AbstractImpactLaw,
    ) -> "ContactStep":
        """The rows, the rates that the step would have without impulses of the contacts, and the
        latter, decide about energy."""
        struck = jnp.any(approach.strikes(rows, P))
        gained = jnp.zeros((), bool)
        if not law.allow_energy_gain:
            gained = struck & gains_energy(P, free, approach.rates, free + rows.response(P))
        return ContactStep(problem, solved, jump, struck, gained)
