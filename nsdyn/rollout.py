"""The driver: initial state in, trajectory out; pure, so that jit, vmap, jacfwd and grad work on it.

It owns the grid, the recording, the event log and the status, and knows nothing of methods and laws. Grid times are
t_k = t_0 + k h, never accumulated; the last step is shortened to meet t_end. Steps are scanned in blocks of `save_every`;
reverse mode keeps one state per block and recomputes the rest.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from nsdyn.errors import ProblemError
from nsdyn.integrator import AbstractIntegrator
from nsdyn.law import AbstractLaw
from nsdyn.laws.post_switch import PostSwitchGradient
from nsdyn.log import Log, Record
from nsdyn.model import Model
from nsdyn.problem import Problem, as_arrays
from nsdyn.status import Status
from nsdyn.switch import switch

MAX_EVENTS = 128


class Events(eqx.Module):
    """The event log of a rollout: arrays of fixed capacity, of which the first `count` are filled."""

    records: Record
    count: Array

    def __getattr__(self, name):
        if name.startswith("_") or name == "records":
            raise AttributeError(name)
        return getattr(self.records, name)


class Rollout(eqx.Module):
    """Rows on the grid, events and status. Rows after a failure are NaN; `t_stop` and `mode_stop` say where it happened."""

    t: Array
    q: Array
    v: Array
    lam: Array
    mode: Array
    energy: Array
    events: Events
    status: Array
    t_stop: Array
    mode_stop: Array


class Grid(eqx.Module):
    """Step counts of a run; all static."""

    t0: float = eqx.field(static=True)
    t_end: float = eqx.field(static=True)
    step: float = eqx.field(static=True)
    save_every: int = eqx.field(static=True)

    @property
    def steps(self) -> int:
        # A last step shorter than a billionth of a step is round-off in (t_end - t0)/step, not a step.
        return max(1, int(np.ceil((self.t_end - self.t0) / self.step - 1e-9)))

    @property
    def blocks(self) -> int:
        return self.steps // self.save_every

    @property
    def rest(self) -> int:
        return self.steps % self.save_every

    def time(self, k):
        return jnp.where(k == self.steps, self.t_end, self.t0 + k * self.step)

    def rows(self):
        k = np.arange(self.blocks + 1) * self.save_every
        k = np.append(k, self.steps) if self.rest else k
        return np.where(k == self.steps, self.t_end, self.t0 + k * self.step)


def rollout(
    problem: Problem,
    integrator: AbstractIntegrator,
    *,
    step: float,
    law: AbstractLaw | None = None,
    params: Any = None,
    q0=None,
    v0=None,
    t_end: float | None = None,
    save_every: int = 1,
    max_events: int = MAX_EVENTS,
) -> Rollout:
    """Simulate, purely. `step`, `t_end`, `save_every` and `max_events` are static."""
    grid, law = settings(problem, integrator, step, law, t_end, save_every, max_events)
    p = problem.params if params is None else as_arrays(params)
    q = problem.q0 if q0 is None else jnp.asarray(q0, float)
    v = problem.v0 if v0 is None else jnp.asarray(v0, float)
    t = jnp.asarray(grid.t0, float)
    model = Model.of(problem.system, problem.constraint, q, v, t, p)
    state = integrator.start(model, model.start(q, v, t, p), jnp.asarray(grid.step), p)
    log = _empty_log(model, state, law, p, max_events)

    def one(k, carry):
        state, log = carry
        return integrator.advance(model, state, log, grid.time(k + 1), law, p)

    def block(carry, start, steps=grid.save_every):
        state, log = one(start, carry) if steps == 1 else jax.lax.fori_loop(0, steps, lambda i, c: one(start + i, c), carry)
        state = _checked(state)
        return (state, log), _row(state)

    carry, rows = jax.lax.scan(jax.checkpoint(block, prevent_cse=False), (state, log), jnp.arange(grid.blocks) * grid.save_every)
    rows = jax.tree.map(lambda first, rest: jnp.concatenate([first[None], rest]), _row(state), rows)
    if grid.rest:
        carry, last = block(carry, grid.blocks * grid.save_every, grid.rest)
        rows = jax.tree.map(lambda rows, last: jnp.concatenate([rows, last[None]]), rows, last)
    return _collect(model, grid, carry, rows, p)


def settings(problem, integrator, step, law, t_end, save_every, max_events) -> tuple[Grid, AbstractLaw]:
    """Static arguments, checked."""
    if not isinstance(problem, Problem):
        raise ProblemError(f"problem: expected nsdyn.Problem(...), found {problem!r}")
    if not isinstance(integrator, AbstractIntegrator):
        hint = "; wrap a smooth method: EventDriven(RK4())" if hasattr(integrator, "refresh") else ""
        raise ProblemError(f"integrator: expected an integrator such as EventDriven(RK4()), found {integrator!r}{hint}")
    law = PostSwitchGradient() if law is None else law
    if not isinstance(law, AbstractLaw):
        raise ProblemError(f"law: expected an impulse law such as PostSwitchGradient(), found {law!r}")
    for name, value in (("step", step), ("t_end", problem.t_end if t_end is None else t_end)):
        if isinstance(value, jax.core.Tracer):
            raise ProblemError(f"{name}: expected a plain number, found a traced value; the grid is static")
        if not isinstance(value, int | float | np.number) or not np.isfinite(value):
            raise ProblemError(f"{name}: expected a finite number, found {value!r}")
    if not step > 0:
        raise ProblemError(f"step: expected a positive number, found {step!r}")
    end = problem.t_end if t_end is None else float(t_end)
    if not end > problem.t0:
        raise ProblemError(f"t_end: expected a time after t0 = {problem.t0:g}, found {end:g}")
    for name, value in (("save_every", save_every), ("max_events", max_events)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ProblemError(f"{name}: expected a positive whole number, found {value!r}")
    return Grid(problem.t0, end, float(step), int(save_every)), law


def _empty_log(model, state, law, p, capacity) -> Log:
    fired = jnp.zeros(model.k, bool)
    record = jax.eval_shape(lambda point, p: switch(model, point, fired, law, p)[1], state.point, p)
    return Log.empty(record, capacity if model.k else 0)


def _row(state):
    ok = state.status == Status.OK
    blank = lambda x: jnp.where(ok, x, jnp.nan)
    point = state.point
    return blank(point.q), blank(point.v), blank(state.memory.lam), point.mode, state.status


def _checked(state):
    finite = jnp.all(jnp.isfinite(state.point.q)) & jnp.all(jnp.isfinite(state.point.v))
    bad = (state.status == Status.OK) & ~finite
    return eqx.tree_at(lambda x: x.status, state, jnp.where(bad, Status.NONFINITE, state.status))


def _collect(model, grid, carry, rows, p) -> Rollout:
    state, log = carry
    q, v, lam, mode, _ = rows
    energy = jax.vmap(lambda q, v: model.system.energy(q, v, p))(q, v)
    events = Events(log.records, log.count)
    return Rollout(
        t=jnp.asarray(grid.rows()),
        q=q,
        v=v,
        lam=lam,
        mode=mode,
        energy=energy,
        events=events,
        status=state.status,
        t_stop=state.point.t,
        mode_stop=state.point.mode,
    )
