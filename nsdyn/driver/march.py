"""The driver: it owns the grid, the recording, the event log and the status, and knows nothing of
methods and laws.

Grid times are t_k = t_0 + k h, never accumulated; the last step is shortened to meet t_end. The
grid is cut into short chunks. A chunk is first attempted without a thought of switches; only if
something switches in it is it redone carefully. So the loop that nearly all steps run through is
bare: it carries no event log (whose size alone would make the compiled loop run its kernels through
a scheduler, at twice the cost), and in a batch a chunk without switches costs nothing extra.

Derivatives go through `nsdyn.driver.derivatives`, chunk by chunk; reverse mode keeps the state and
the plan of each step (a few kilobytes) and recomputes the rest.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from nsdyn.driver.derivatives import with_replay
from nsdyn.driver.grid import Grid
from nsdyn.laws.base import AbstractLaw
from nsdyn.mechanics.model import Model
from nsdyn.status import Status
from nsdyn.stepping.integrator import AbstractIntegrator, State
from nsdyn.stepping.log import Log

# Residual at which constraints count as lost: far beyond drift, well below a mechanism in pieces


class Row(eqx.Module):
    q: Array
    v: Array
    lam: Array
    mode: Array
    held: tuple
    status: Array


def _row(state: State) -> Row:
    point = state.point
    return Row(point.q, point.v, state.memory.lam, point.mode, point.held, state.status)


def march(
    integrator: AbstractIntegrator,
    model: Model,
    state: State,
    log: Log,
    grid: Grid,
    law: AbstractLaw,
    p,
):
    """All steps of a run: the last state, the log and the rows."""
    groups, chunks, length = grid.layout()
    span = length if chunks == 1 else grid.save_every
    every = grid.save_every if chunks == 1 else length
    padded = groups * span != grid.steps or chunks * length != span

    def chunk(carry, first_last):
        first, last = first_last
        state, log = carry
        k = jnp.minimum(first + jnp.arange(1, length + 1), last)
        out = with_replay(
            _fast,
            _planned,
            _replay,
            (integrator, model, state, log, grid.time(k), law, p),
            (padded, every),
        )
        state, log, rows = out
        state = _checked(state)
        return (state, log), rows

    def group(carry, g):
        starts = g * span + jnp.arange(chunks) * length
        ends = jnp.minimum(starts + length, (g + 1) * span)
        if chunks == 1:
            return chunk(carry, (starts[0], ends[0]))
        carry, rows = jax.lax.scan(chunk, carry, (starts, ends))
        return carry, jax.tree.map(lambda x: x[-1], rows)

    carry, rows = jax.lax.scan(group, (state, log), jnp.arange(groups))
    count = len(grid.saved)
    join = lambda first, rest: jnp.concatenate(
        [first[None], rest.reshape(rest.shape[0] * rest.shape[1], *rest.shape[2:])]
    )[:count]
    return carry, jax.tree.map(join, _row(state), rows)


def _checked(state: State) -> State:
    """Once a chunk: is the state finite?"""
    point = jax.lax.stop_gradient(state.point)
    finite = jnp.all(jnp.isfinite(point.q)) & jnp.all(jnp.isfinite(point.v))
    return state.with_failure(~finite, Status.NONFINITE, state.point)


def _steps(one, carry, times, plans, padded: bool, every: int):
    """Scan `one(carry, t_next, plan)` over the times; a time that was reached already is padding
    and leaves the carry alone."""

    def step(carry, item):
        t_next, plan = item
        if padded:
            # an ordinary step instead of one of size zero, which methods that divide by the step
            # could not take
            t = carry[0].point.t
            ahead = t_next > t
            new, extra = one(carry, jnp.where(ahead, t_next, t + 1.0), plan)
            carry = jax.tree.map(lambda a, b: jnp.where(ahead, a, b), new, carry)
        else:
            carry, extra = one(carry, t_next, plan)
        return carry, (_row(carry[0]), extra)

    carry, (rows, extra) = jax.lax.scan(step, carry, (times, plans))
    return carry, jax.tree.map(lambda x: x[every - 1 :: every], rows), extra


def _attempts(integrator, model, state, times, p, padded, every):
    def one(carry, t_next, _):
        state, seen = carry
        new, flag = integrator.step_smooth(model, state, t_next, p)
        return (new, seen | flag), None

    (end, seen), rows, _ = _steps(one, (state, jnp.zeros((), bool)), times, None, padded, every)
    return end, rows, seen & (state.status == Status.OK)


def _carefully(integrator, model, state, log, times, law, p, padded, every):
    def one(carry, t_next, _):
        state, log = carry
        state, log, plan = integrator.step_with_events(model, state, log, t_next, law, p)
        return (state, log), plan

    return _steps(one, (state, log), times, None, padded, every)


def _fast(integrator, model, state, log, times, law, p, padded, every):
    end, rows, switches = _attempts(integrator, model, state, times, p, padded, every)
    if model.k == 0:
        return end, log, rows
    outside = eqx.partition((integrator, model, state, times, law, p), eqx.is_array)

    def redo(carry):
        # The barrier ties what comes from outside to the carry: otherwise the compiler moves what
        # depends on it alone in front of the loop, where every chunk pays for it although hardly
        # any switches.
        (_, log, _, _), arrays = jax.lax.optimization_barrier((carry, outside[0]))
        integrator, model, state, times, law, p = eqx.combine(arrays, outside[1])
        (end, log), rows, _ = _carefully(
            integrator, model, state, log, times, law, p, padded, every
        )
        return end, log, rows, jnp.zeros((), bool)

    # A loop that runs once or not at all: in a batch, unlike a conditional, it is skipped when no
    # trajectory switches.
    return jax.lax.while_loop(lambda c: c[3], redo, (end, log, rows, switches))[:3]


def _planned(integrator, model, state, log, times, law, p, padded, every):
    """The same with the plan of the switches of every step."""
    if model.k == 0:
        return _fast(integrator, model, state, log, times, law, p, padded, every), None
    (end, log), rows, plans = _carefully(
        integrator, model, state, log, times, law, p, padded, every
    )
    return (end, log, rows), plans


def _replay(integrator, model, state, log, times, law, p, padded, every, plans):
    @jax.checkpoint
    def one(carry, t_next, plan):
        state, log = carry
        if plan is None:
            return (integrator.step_smooth(model, state, t_next, p)[0], log), None
        return integrator.step_differentiable(model, state, log, t_next, law, p, plan), None

    (end, log), rows, _ = _steps(one, (state, log), times, plans, padded, every)
    return end, log, rows
