"""The loop over the steps: it owns the grid, the recording, the event log and the status, and knows
nothing of methods and laws.

The grid is cut into short chunks. A chunk is first attempted without a thought of events; only if
something fires in it is it redone carefully. So the loop that nearly all steps run through is bare:
it carries no event log (whose size alone would make the compiled loop run its kernels through a
scheduler, at twice the cost), and in a batch a chunk without events costs nothing extra. With error
control a step to the next time is long already, and events are handled as they come.

Derivatives go through `nsdyn.driver.derivatives`, chunk by chunk; reverse mode keeps the state and
the plan of each step (a few kilobytes) and recomputes the rest.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Float, Int

from nsdyn.driver.arguments import Setup, Values
from nsdyn.driver.derivatives import with_replay
from nsdyn.errors import ProblemError
from nsdyn.laws.base import Jump, ModeChange
from nsdyn.mechanics.contact_rows import have_modes
from nsdyn.mechanics.model import Model, Point
from nsdyn.status import Status
from nsdyn.stepping.integrator import State
from nsdyn.stepping.log import Event, Log


class Sample(eqx.Module):
    """What is recorded of a state, or of many along the first axes."""

    point: Point
    lam: Float[Any, "*samples m"]
    status: Int[Any, "*samples"]

    @staticmethod
    def of(state: State) -> "Sample":
        return Sample(state.point, state.memory.lam, state.status)


def march(setup: Setup, model: Model, state: State, log: Log, p) -> tuple[State, Log, Sample]:
    """All steps of a run on a static grid: the last state, the log and the samples."""
    grid = setup.grid
    groups, chunks, length = grid.layout()
    span = length if chunks == 1 else grid.save_every
    every = grid.save_every if chunks == 1 else length
    padded = groups * span != grid.steps or chunks * length != span

    def one_chunk(carry, first_last):
        first, last = first_last
        k = jnp.minimum(first + jnp.arange(1, length + 1), last)
        count = jnp.minimum(last, grid.steps) - first if padded else None
        state, log = carry
        state, log, samples = chunk(setup, model, state, log, grid.time(k), count, every, p)
        return (state, log), samples

    def group(carry, g):
        starts = g * span + jnp.arange(chunks) * length
        ends = jnp.minimum(starts + length, (g + 1) * span)
        if chunks == 1:
            return one_chunk(carry, (starts[0], ends[0]))
        carry, samples = jax.lax.scan(one_chunk, carry, (starts, ends))
        return carry, jax.tree.map(lambda x: x[-1], samples)

    (end, log), samples = jax.lax.scan(group, (state, log), jnp.arange(groups))
    join = lambda first, rest: jnp.concatenate(
        [first[None], rest.reshape(rest.shape[0] * rest.shape[1], *rest.shape[2:])]
    )[: len(grid.saved)]
    return end, log, jax.tree.map(join, Sample.of(state), samples)


def chunk(
    setup: Setup, model: Model, state: State, log: Log, times, count, every: int, p
) -> tuple[State, Log, Sample]:
    """The steps to these times, and a sample after `every` so many of them. With a `count` (traced)
    only the first so many are taken, and samples beyond repeat the last one."""
    args = (setup.integrator, model, state, log, times, count, setup.law, p)
    state, log, samples = with_replay(_fast, _planned, _replay, args, (every,))
    point = jax.lax.stop_gradient(state.point)
    finite = jnp.all(jnp.isfinite(point.q)) & jnp.all(jnp.isfinite(point.v))
    return state.with_failure(~finite, Status.NONFINITE, state.point), log, samples


def _fast(integrator, model, state, log, times, count, law, p, every):
    if integrator.controls_error and model.k > 0:
        careful = lambda carry, t: integrator.step_without_plan(model, *carry, t, law, p)
        (end, log), samples = _steps(careful, (state, log), times, count, every)
        return end, log, samples
    if model.has_contacts and not have_modes(model):
        return _step_by_step(integrator, model, state, log, times, count, law, p, every)
    end, samples, fired = _attempts(integrator, model, state, times, count, law, p, every)
    if not model.may_have_events:
        return end, log, samples
    outside = eqx.partition((integrator, model, state, times, count, law, p), eqx.is_array)

    def redo(carry):
        # The barrier ties what comes from outside to the carry: otherwise the compiler moves what
        # depends on it alone in front of the loop, where every chunk pays for it although hardly
        # any has an event.
        (_, log, _, _), arrays = jax.lax.optimization_barrier((carry, outside[0]))
        integrator, model, state, times, count, law, p = eqx.combine(arrays, outside[1])

        def one(carry, t_next):
            state, log = carry
            return integrator.step_without_plan(model, state, log, t_next, law, p)

        (end, log), samples = _steps(one, (state, log), times, count, every)
        return end, log, samples, jnp.zeros((), bool)

    # A loop that runs once or not at all: in a batch, unlike a conditional, it is skipped when no
    # trajectory has an event.
    return jax.lax.while_loop(lambda c: c[3], redo, (end, log, samples, fired))[:3]


def _step_by_step(integrator, model, state, log, times, count, law, p, every):
    """The same, with only those steps redone whose events the fast step cannot record. Impacts of
    contacts are frequent: nearly every chunk would be redone, and in a batch every trajectory would
    wait for the impacts of the others. The price is that each step keeps what was before it."""
    total = jnp.asarray(len(times) if count is None else count)
    outside = eqx.partition((integrator, model, times, law, p), eqx.is_array)
    running = lambda state: state.status == Status.OK

    def put(samples, state, i):
        one = lambda all_, x: jax.lax.dynamic_update_index_in_dim(all_, x, i, 0)
        return jax.tree.map(one, samples, Sample.of(state))

    def attempt(carry):
        i, state, log, samples, _ = carry
        new, log, flag = integrator.step_recording(model, state, log, times[i], law, p)
        flag = flag & running(state)
        samples = put(samples, new, i)
        new = jax.tree.map(lambda a, b: jnp.where(flag, a, b), state, new)
        return jnp.where(flag, i, i + 1), new, log, samples, flag

    def redo(carry):
        # The barrier as in `_fast`.
        (i, state, log, samples, _), arrays = jax.lax.optimization_barrier((carry, outside[0]))
        integrator, model, times, law, p = eqx.combine(arrays, outside[1])
        state, log = integrator.step_without_plan(model, state, log, times[i], law, p)
        return i + 1, state, log, put(samples, state, i), jnp.zeros((), bool)

    def stretch(carry):
        """Steps up to an event, and the step with it."""
        going = lambda c: (c[0] < total) & ~c[4]
        event = jax.lax.while_loop(going, attempt, (*carry, jnp.zeros((), bool)))
        return jax.lax.while_loop(lambda c: c[4], redo, event)[:4]

    repeat = lambda x: jnp.broadcast_to(x, (len(times), *jnp.shape(x)))
    samples = jax.tree.map(repeat, Sample.of(state))
    first = (jnp.zeros_like(total), state, log, samples)
    _, end, log, samples = jax.lax.while_loop(lambda c: c[0] < total, stretch, first)
    last = jnp.minimum(jnp.arange(every - 1, len(times), every), total - 1)
    return end, log, samples if every == 1 else jax.tree.map(lambda x: x[last], samples)


def _attempts(integrator, model, state, times, count, law, p, every):
    def one(carry, t_next):
        state, seen = carry
        new, flag = integrator.step_smooth(model, state, t_next, law, p)
        return new, seen | flag

    start = (state, jnp.zeros((), bool))
    (end, seen), samples = _steps(one, start, times, count, every)
    return end, samples, seen & (state.status == Status.OK)


def _steps(one, carry, times, count, every: int):
    """Repeat `one(carry, t_next)` for the times, or for the first `count` of them."""
    if count is None:

        def step(carry, t_next):
            carry = one(carry, t_next)
            return carry, Sample.of(carry[0])

        carry, samples = jax.lax.scan(step, carry, times)
        return carry, jax.tree.map(lambda x: x[every - 1 :: every], samples)

    repeat = lambda x: jnp.broadcast_to(x, (len(times), *jnp.shape(x)))
    samples = jax.tree.map(repeat, Sample.of(carry[0]))

    def body(i, state):
        carry, samples = state
        carry = one(carry, times[i])
        put = lambda all_, x: jax.lax.dynamic_update_index_in_dim(all_, x, i, 0)
        return carry, jax.tree.map(put, samples, Sample.of(carry[0]))

    carry, samples = jax.lax.fori_loop(0, count, body, (carry, samples))
    if every == 1:
        return carry, samples
    last = jnp.minimum(jnp.arange(every - 1, len(times), every), count - 1)
    return carry, jax.tree.map(lambda x: x[last], samples)


# For derivatives: scans of fixed length, in which padding leaves the carry alone.


def _padded_steps(one, carry, times, plans, padded: bool, every: int):
    """Scan `one(carry, t_next, plan)` over the times; a time that was reached already is
    padding."""

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
        return carry, (Sample.of(carry[0]), extra)

    carry, (samples, extra) = jax.lax.scan(step, carry, (times, plans))
    return carry, jax.tree.map(lambda x: x[every - 1 :: every], samples), extra


def _planned(integrator, model, state, log, times, count, law, p, every):
    """What `_fast` does, with the plan of the events, and of the pieces, of every step."""
    if not model.may_have_events and not integrator.controls_error:
        return _fast(integrator, model, state, log, times, count, law, p, every), None

    def one(carry, t_next, _):
        state, log = carry
        state, log, plan = integrator.step_with_events(model, state, log, t_next, law, p)
        return (state, log), plan

    padded = count is not None
    (end, log), samples, plans = _padded_steps(one, (state, log), times, None, padded, every)
    return (end, log, samples), plans


def _replay(integrator, model, state, log, times, count, law, p, every, plans):
    @jax.checkpoint
    def one(carry, t_next, plan):
        state, log = carry
        if plan is None:
            return (integrator.step_smooth(model, state, t_next, law, p)[0], log), None
        return integrator.step_differentiable(model, state, log, t_next, law, p, plan), None

    padded = count is not None
    (end, log), samples, _ = _padded_steps(one, (state, log), times, plans, padded, every)
    return end, log, samples


def start(run: Setup, values: Values) -> tuple[Model, State]:
    """The model that knows how large the motion is, and the state at the beginning of a run."""
    t = jnp.asarray(run.grid.t0, float)
    model, point = run.model(values).begin(values.q0, values.v0, t, values.params)
    return model, run.integrator.start(model, point, values.params)


def empty_log(setup: Setup, model: Model, state: State, capacity: int, limit, p) -> Log:
    """A log for the events of a run. Of a record only the law's answer has shapes of its own
    choice."""
    point, m = state.point, model.m

    def jump(v):
        n = v.shape[0]
        G = jnp.zeros((m, n))
        on = jnp.zeros(m, bool)
        change = ModeChange.of(
            M=jnp.eye(n),
            G_before=G,
            G_after=G,
            v_before=v,
            on_before=on,
            on_after=on,
            solve=lambda b: b,
            q=point.q,
            t=point.t,
            p=p,
        )
        return setup.law.decide(change)

    found = jax.eval_shape(jump, point.v)
    if not isinstance(found, Jump):
        name = type(setup.law).__name__
        raise ProblemError(
            f"{name}.decide: expected a Jump(v_after, Lam, direction), found {found}"
        )
    record = Event(
        t=point.t,
        mode_before=point.mode,
        mode_after=point.mode,
        q=point.q,
        v_before=point.v,
        v_after=point.v,
        Lam=found.Lam,
        direction=found.direction,
        kinetic_before=point.t,
        kinetic_after=point.t,
    )
    return Log.empty(record, capacity if model.may_have_events else 0, limit)
