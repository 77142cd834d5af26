"""Impacts that accumulate: the instant at which infinitely many of them are over.

A ball that bounces, or a block that rocks from corner to corner, has infinitely many impacts in a
finite time. While the forces are nearly constant the intervals between the impacts t_k of a contact
shrink by one ratio, so that

    d_k = t_k - t_(k-1),   rho = d_k/d_(k-1) < 1,   t_inf = t_k + d_k rho/(1 - rho)            (1)

A run lets contacts rest before, at the first impact after which they would leave with less than a
part of the speed that the forces take away in a step, (1) of `nsdyn.stepping.contact_change`. With
the speed v of that hop, with `rest` of `Tolerances`, with the acceleration c at which the forces
would close the contact, and the one a at which the other contacts let them,

    v <= rest h c:   heights v^2/(2 a) are neglected for t_inf - t_k = 2 v/(a (1 - rho))       (2)

a = c for a contact alone: heights of at most c (rest h)^2/2, for at most 2 rest h/(1 - rho). For a
corner of a slender block that rocks a is smaller by 3/2 sin(alpha)^2, and both are larger by that.

The force of a contact at rest has the impulse of the impacts that it stands for, and so has its
integral over time: where forces are constant and a contact slides in one direction, the motion from
t_inf on is the exact one.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from nsdyn._types import Params
from nsdyn.errors import ProblemError
from nsdyn.mechanics import contact_rows as contacts
from nsdyn.problem import Problem, as_arrays
from nsdyn.results.events import Events

EQUAL = 1e-3  # ratios of intervals that differ by less count as one
IMPACTS = 4  # which have two ratios


def accumulation(problem: Problem, events: Events, params: Params = None) -> Float[Array, " k"]:
    """When the impacts of each contact accumulate: the limit (1) of the times of its last four
    impacts, of which the run may contain as many or all. NaN for a contact with fewer impacts, or
    whose intervals do not shrink by one ratio, as in time-stepping schemes, which know the times of
    impacts only up to a step.

    Give `params` if the run used other parameters than the problem. Pure: the events of `rollout`
    may be traced, and the limit has derivatives.
    """
    if not isinstance(events, Events) or events.is_batch:
        raise ProblemError(
            "accumulation(problem, events): expected the events of one run, found "
            f"{events!r}. For a sweep take solution.events[i]"
        )
    model = problem.model(problem.params if params is None else as_arrays(params))
    if not model.has_contacts:
        raise ProblemError(
            "accumulation(problem, events): expected a problem with Contacts, found none in "
            f"{problem.name}"
        )
    t, Lam = (jnp.asarray(x) for x in (events.records.t, events.records.Lam))
    filled = jnp.arange(t.shape[0]) < events.count
    pressing = jax.vmap(lambda x: -contacts.padded(model, x)[:, 0], out_axes=1)(Lam)
    return jax.vmap(lambda P: _limit(t, filled & (P > 0)))(pressing)


def _limit(t: Float[Array, " events"], is_impact: Bool[Array, " events"]) -> Float[Array, ""]:
    """t_inf of the last impacts, or NaN."""
    places = jnp.where(is_impact, jnp.arange(t.shape[0]), -1)
    places = jnp.pad(places, (IMPACTS, 0), constant_values=-1)  # there may be fewer events
    last = jnp.sort(places)[-IMPACTS:]
    times = jnp.where(last >= 0, t[last], jnp.arange(IMPACTS))
    d = jnp.diff(times)
    before, rho = d[1] / d[0], d[2] / d[1]
    shrinks = (last[0] >= 0) & (rho < 1) & (jnp.abs(rho - before) <= EQUAL)
    rho = jnp.where(shrinks, rho, 0.0)
    return jnp.where(shrinks, times[-1] + d[2] * rho / (1 - rho), jnp.nan)  # (1)
