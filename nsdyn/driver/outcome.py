"""What is found out about a run from its samples: multipliers of least norm, energy, and whether it
can be trusted.

A sample is lost if it is not finite, if the run had failed before, or if it or one before it no
longer satisfies the constraints (`nsdyn.tolerances`: `lost`). Samples know best when something went
wrong: the loop looks only at the end of a chunk of steps.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from nsdyn.driver.arguments import Setup
from nsdyn.driver.march import Sample
from nsdyn.mechanics.model import Model, Point
from nsdyn.numerics import kkt
from nsdyn.status import Status
from nsdyn.stepping.integrator import State
from nsdyn.stepping.log import Event, Log


class Facts(eqx.Module):
    """What is computed about samples afterwards."""

    lam: Float[Array, "*samples m"]  # of least norm where constraint rows depend on each other
    energy: Float[Array, "*samples"]
    is_broken: Bool[Array, "*samples"]  # whether the constraints are no longer satisfied


def facts(setup: Setup, model: Model, samples: Sample, p, each: Callable = jax.vmap) -> Facts:
    """The facts about samples along the first axis. `each` turns a function of one sample into one
    of many."""

    def one(sample: Sample) -> Facts:
        point = sample.point
        energy = model.system.energy(point.q, point.v, p)
        if model.m == 0:
            return Facts(sample.lam, energy, jnp.zeros((), bool))
        solve = model.system.solver(point.q, p)
        G = jnp.where(model.live(point, p)[:, None], model.jacobian(point, p), 0.0)
        lam = sample.lam
        if not model.rows_independent:
            lam = _least_norm(model, solve, G, lam)
        broken = jnp.zeros((), bool)
        if setup.integrator.holds_position:
            broken = _is_broken(model, point, G, solve(G.T), p)
        return Facts(lam, energy, broken)

    return each(one)(samples)


def _least_norm(model: Model, solve: Callable, G, lam):
    """The multipliers of least norm; those of contacts, which must press, stay as they are."""
    if not model.has_contacts:
        return kkt.least_norm_multipliers(solve, G, lam)
    rows = model.bilateral
    return lam.at[rows].set(kkt.least_norm_multipliers(solve, G[rows], lam[rows]))


def _is_broken(model: Model, point: Point, G, Y, p) -> Bool[Array, ""]:
    """Whether a residual is large beside the size of the mechanism."""
    G, Y, point = jax.lax.stop_gradient((G, Y, point))
    sizes = jnp.sqrt(jnp.maximum(jnp.sum(G * Y.T, axis=1), 0.0))
    allowed = model.tolerances.lost * sizes * model.length(point, p)
    # a row without a gradient cannot be judged
    return jnp.any((sizes > 0) & (jnp.abs(model.rows(point, p)) > allowed))


def at_times(samples: Sample, t) -> Sample:
    """Samples with the times of the grid: a state that failed may have kept an older one."""
    return Sample(samples.point.replace(t=t), samples.lam, samples.status)


def known(samples: Sample, found: Facts, good) -> tuple[Sample, Float[Array, " n"]]:
    """Samples and energies, with NaN for those that are not good."""
    blank = lambda x: jnp.where(good[:, None], x, jnp.nan)
    point = samples.point.replace(q=blank(samples.point.q), v=blank(samples.point.v))
    sample = Sample(point, blank(found.lam), samples.status)
    return sample, jnp.where(good, found.energy, jnp.nan)


class Verdict(eqx.Module):
    """When samples first went wrong; infinite if they did not."""

    t_infinite: Float[Array, ""]
    t_broken: Float[Array, ""]
    mode_broken: Int[Array, "*mode"]

    @staticmethod
    def none(state: State) -> "Verdict":
        never = jnp.full((), jnp.inf)
        return Verdict(never, never, state.point.mode)

    def with_samples(
        self, samples: Sample, found: Facts, filled=True
    ) -> tuple["Verdict", Bool[Array, " n"]]:
        """The verdict after further samples, and which of those are good. Only `filled` ones
        count."""
        point = samples.point
        finite = jnp.all(jnp.isfinite(point.q), axis=1) & jnp.all(jnp.isfinite(point.v), axis=1)
        finite = finite | jnp.logical_not(filled)
        sound = (samples.status == Status.OK) & finite
        broken = sound & found.is_broken & filled
        first = jnp.argmax(broken)
        new = jnp.any(broken) & jnp.isinf(self.t_broken)
        verdict = Verdict(
            t_infinite=jnp.minimum(self.t_infinite, jnp.min(jnp.where(finite, jnp.inf, point.t))),
            t_broken=jnp.where(new, point.t[first], self.t_broken),
            mode_broken=jnp.where(new, point.mode[first], self.mode_broken),
        )
        return verdict, sound & (point.t < verdict.t_broken)


class Ending(eqx.Module):
    """How a run ended, and where."""

    status: Int[Array, ""]
    t_stop: Float[Array, ""]
    mode_stop: Int[Array, "*mode"]


def ending(state: State, verdict: Verdict, t_end) -> Ending:
    """The ending of a run whose last state this is."""
    good = state.status == Status.OK
    t_stop = jnp.where(good, t_end, jnp.minimum(state.t_stop, verdict.t_infinite))
    is_broken = verdict.t_broken <= jnp.where(good, jnp.inf, t_stop)
    is_broken = is_broken & jnp.isfinite(verdict.t_broken)
    mode = jnp.where(good, state.point.mode, state.mode_stop)
    return Ending(
        status=jnp.where(is_broken, Status.CONSTRAINTS_LOST, state.status),
        t_stop=jnp.where(is_broken, verdict.t_broken, t_stop),
        mode_stop=jnp.where(is_broken, verdict.mode_broken, mode),
    )


def least_norm_impulses(model: Model, log: Log, q0, p, each: Callable = jax.vmap) -> Event:
    """The records, with the impulses of least norm where directions depend on each other. `each`
    turns a function of one record into one of many."""
    records = log.records
    if model.rows_independent or log.capacity == 0 or records.Lam.shape[1] < 2:
        return records

    def one(used, record):  # what is not used is NaN, which derivatives must not see
        q = jnp.where(used, record.q, q0)
        D = jnp.where(used, record.direction, 0.0)
        Lam = jnp.where(used, record.Lam, 0.0)
        shortest = _least_norm(model, model.system.solver(q, p), D, Lam)
        return jnp.where(used, shortest, record.Lam)

    impulses = each(one)(jnp.arange(log.capacity) < log.count, records)
    return eqx.tree_at(lambda x: x.Lam, records, impulses)
