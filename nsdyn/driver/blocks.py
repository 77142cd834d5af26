"""The loop over the steps with a traced grid: another step, t_end, save_every or max_events runs
through the same compiled program.

A program marches one block: as many steps as lead to BLOCK samples. Python drives it from block to
block and collects samples and events; neither their number nor that of the steps is part of the
program. Inside, the loop goes over chunks of `nsdyn.driver.march`. With `kept`, the numbers of the
steps that are recorded, a chunk of n steps from step k fills

    slot + j  <-  the state after step kept[slot + j],    k < kept[slot + j] <= k + n            (1)

The event log has a small capacity. A chunk that has more events than fit is not counted: the block
ends before it, the log is emptied, and the next block begins with that chunk. `max_events` is the
limit of the log over all blocks.

The same code serves a single run and a batch, whose runs lie along the first axis of `own` and of
the state (`vmap`); they share the grid, so that the loop is one for all.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nsdyn.constraints.base import Scale
from nsdyn.driver.arguments import Setup, Values
from nsdyn.driver.grid import CHUNK, WINDOW
from nsdyn.driver.march import Sample, chunk, empty_log, start
from nsdyn.driver.outcome import (
    Ending,
    Facts,
    Verdict,
    at_times,
    ending,
    facts,
    known,
    least_norm_impulses,
)
from nsdyn.driver.program import Program
from nsdyn.numerics.newton import Effort
from nsdyn.status import Status
from nsdyn.stepping.integrator import State
from nsdyn.stepping.log import Event, Log

BLOCK = 2048  # samples in a block of a single run under XLA
BLOCK_OF_BATCH = 128
PIECE = 64  # samples that are looked at together
RECORDS = 32  # events in a block, or more if a step can have more
NEVER = np.iinfo(np.int64).max


class Progress(eqx.Module):
    """Where a run, or a batch of runs, stands between two blocks."""

    state: State
    log: Log
    verdict: Verdict
    scale: Scale


class Block(eqx.Module):
    """What a block leaves: the samples and events in it, of which the first `count` and
    `event_count` are filled, and how things stand."""

    samples: Sample  # NaN from a failure on
    energy: Any
    count: Any
    records: Event
    event_count: Any
    ending: Ending
    effort: Effort
    step: Any  # number of the last step


def begin(run: Setup, own: Values, shared: Values) -> Progress:
    """The beginning of a run or, if leaves of `own` have one more axis, of a batch."""

    def one(own: Values) -> Progress:
        values = eqx.combine(own, shared)
        model, state = start(run, values)
        capacity = max(RECORDS, run.integrator.max_events_in_step)
        log = empty_log(run, model, state, capacity, run.max_events, values.params)
        return _typed(Progress(state, log, Verdict.none(state), model.scale))

    return _for_each_run(own)(one)(own)


def advance(
    run: Setup,
    own: Values,
    shared: Values,
    progress: Progress,
    kept,
    first,
    length,
    together: Callable | None = None,
) -> tuple[Block, Progress]:
    """One block: from the step number `first` to the last one in `kept`, in chunks of `length`
    steps. `kept` ends with CHUNK entries or more that are NEVER.

    With `together`, runs lie side by side as lanes of one program, which shows only one of them;
    together(flag) tells whether it is true of all. Samples and records are then looked at one by
    one, since such programs are fast at that."""
    each = _for_each_run(own)
    last = jnp.max(jnp.where(kept == NEVER, first, kept))

    def body(carry):
        k, slot, state, log, buffer, _ = carry
        count = jnp.minimum(length, last - k)
        wanted = jax.lax.dynamic_slice_in_dim(kept, slot, CHUNK)
        place = jnp.clip(wanted - k - 1, 0, CHUNK - 1)

        def one(own, scale, state, log, buffer):
            values = eqx.combine(own, shared)
            model = run.model(values, scale)
            times = run.grid.time(k + jnp.arange(1, CHUNK + 1), values.phase)
            state, log, samples = chunk(run, model, state, log, times, count, 1, values.params)
            put = lambda all_, x: jax.lax.dynamic_update_slice_in_dim(all_, x[place], slot, 0)
            return state, log, jax.tree.map(put, buffer, samples)  # (1)

        new, new_log, buffer = each(one)(own, progress.scale, state, log, buffer)
        fits = jnp.all(new_log.count <= _capacity(new_log))
        fits = fits if together is None else together(fits)
        choose = lambda a, b: jnp.where(fits, a, b)
        log = Log(new_log.records, choose(new_log.count, log.count), log.limit)
        number = jnp.sum(wanted <= k + count)
        ahead = choose(k + count, k), choose(slot + number, slot)
        return *ahead, jax.tree.map(choose, new, state), log, buffer, fits

    repeat = lambda x: jnp.broadcast_to(x, (len(kept), *jnp.shape(x)))
    state, log = progress.state, progress.log
    buffer = each(lambda state: jax.tree.map(repeat, Sample.of(state)))(state)
    slot = jnp.sum(kept[0] == first)  # the first sample of a run is its start
    carry = (first, slot, state, log, buffer, jnp.ones((), bool))
    going = lambda carry: carry[-1] & (carry[0] < last)
    k, slot, state, log, buffer, _ = jax.lax.while_loop(going, body, carry)

    def result(own, progress: Progress, buffer):
        several = together is None
        return _result(run, eqx.combine(own, shared), progress, buffer, kept, slot, several)

    progress = Progress(state, log, progress.verdict, progress.scale)
    parts, progress = each(result)(own, progress, buffer)
    return Block(**parts, count=slot, step=k), progress


def _for_each_run(own: Values) -> Callable:
    return jax.vmap if is_batch(own) else lambda function: function


def is_batch(own: Values) -> bool:
    return bool(jax.tree.leaves(own))


def _capacity(log: Log) -> int:
    return log.records.t.shape[-1]


def _result(
    run: Setup, values: Values, progress: Progress, buffer: Sample, kept, number, several: bool
):
    """Samples and events of one run, and its progress with the log emptied. Samples are looked at
    one by one, or `several` at a time."""
    each = jax.vmap if several else _one_by_one
    p = values.params
    model = run.model(values, progress.scale)
    state, log = progress.state, progress.log
    samples = at_times(buffer, run.grid.time(kept, values.phase))
    find = lambda samples: facts(run, model, samples, p, each)
    found = _facts_in_pieces(find, samples, number, PIECE if several else 1)
    filled = jnp.arange(len(kept)) < number
    verdict, good = progress.verdict.with_samples(samples, found, filled)
    samples, energy = known(samples, found, good)
    parts = {
        "samples": samples,
        "energy": energy,
        "records": least_norm_impulses(model, log, values.q0, p, each),
        "event_count": jnp.minimum(log.count, log.limit),
        "ending": ending(state, verdict, run.grid.t_end),
        "effort": state.effort,
    }
    emptied = Log(log.records, jnp.zeros_like(log.count), log.limit - log.count)
    return parts, _typed(Progress(state, emptied, verdict, progress.scale))


def _typed(progress: Progress) -> Progress:
    """The same arrays without weak types: the program is made once for those of `begin` and
    `advance`."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, x.dtype), progress)


def _one_by_one(function: Callable) -> Callable:
    return lambda *trees: jax.lax.map(lambda x: function(*x), trees)


def _facts_in_pieces(find: Callable, samples: Sample, number, size: int) -> Facts:
    """The facts about the first `number` samples: a block is seldom full. (The last piece may begin
    earlier, to end with the block; it then finds the same again.)"""
    shapes = jax.eval_shape(find, samples)
    blank = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
    size = min(size, samples.status.shape[0])

    def piece(i, found):
        cut = lambda x: jax.lax.dynamic_slice_in_dim(x, i * size, size)
        put = lambda all_, x: jax.lax.dynamic_update_slice_in_dim(all_, x, i * size, 0)
        return jax.tree.map(put, found, find(jax.tree.map(cut, samples)))

    return jax.lax.fori_loop(0, -(-number // size), piece, blank)


class Parts(NamedTuple):
    """A block, and its arrays in plain lists, which are faster than modules."""

    block: Block
    samples: list[np.ndarray]  # and energy
    records: list[np.ndarray]
    totals: list[np.ndarray]  # ending and effort

    @staticmethod
    def of(block: Block) -> "Parts":
        lists = (block.samples, block.energy), block.records, (block.ending, block.effort)
        return Parts(block, *map(jax.tree.leaves, lists))


class Programs(NamedTuple):
    """`begin` and `advance`, compiled when first called, and the samples in a block. Or `march`:
    the blocks of runs that record such steps, each in the memory of the one before."""

    begin: Any
    advance: Any
    size: int = 0
    march: Callable[[Values, np.ndarray], Iterator[Parts]] | None = None


BEGIN = Program(begin)
ADVANCE = Program(advance)
PROGRAMS = Programs(BEGIN, ADVANCE)


def traced(run: Setup, first: int = 0) -> Setup:
    """The setup with the numbers of the grid as arguments of the program, which begins with the
    step `first`."""
    grid = run.grid.traced(first)
    return dataclasses.replace(run, grid=grid, max_events=np.asarray(run.max_events), save_at=None)


def blocks(
    run: Setup, own: Values, shared: Values, kept: np.ndarray, programs: Programs
) -> Iterator[Block]:
    """The blocks of a run or a batch that record the steps `kept`, in numpy arrays, one after the
    other. They end early if no run goes on."""
    if programs.march is not None and not run.grid.is_cut:
        yield from (_copied(parts.block) for parts in programs.march(own, kept))
        return
    size = programs.size or (BLOCK_OF_BATCH if is_batch(own) else BLOCK)
    here = traced(run)
    progress = programs.begin(here, own, shared)
    done = step = 0
    length = CHUNK
    while done < len(kept):
        part = np.full(size + CHUNK, NEVER)
        wanted = kept[done : done + size]
        if run.grid.is_cut:
            here = traced(run, step)
            wanted = wanted[wanted <= step + WINDOW]
        part[: len(wanted)] = wanted
        numbers = (part, np.asarray(step), np.asarray(length))
        block, progress = programs.advance(here, own, shared, progress, *numbers)
        block = jax.tree.map(np.asarray, block)
        yield block
        if np.all(block.ending.status != Status.OK):
            return
        # More events in one chunk than the log holds: then step by step.
        length = 1 if int(block.step) == step else CHUNK
        done += int(block.count)
        step = int(block.step)


def _copied(block: Block) -> Block:
    """A block in memory of its own, without what is not filled."""
    count, batch = int(block.count), block.event_count.ndim
    most = int(np.max(block.event_count, initial=0))
    first = lambda number: lambda x: x[(slice(None),) * batch + (slice(number),)].copy()
    return Block(
        samples=jax.tree.map(first(count), block.samples),
        energy=first(count)(block.energy),
        count=count,
        records=jax.tree.map(first(most), block.records),
        event_count=block.event_count.copy(),
        ending=jax.tree.map(np.copy, block.ending),
        effort=jax.tree.map(np.copy, block.effort),
        step=int(block.step),
    )
