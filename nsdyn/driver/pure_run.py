"""`rollout`: initial state in, trajectory out; pure, so that jit, vmap, jacfwd and grad work on
it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from nsdyn.driver.grid import Grid
from nsdyn.driver.march import Row, march
from nsdyn.errors import ProblemError
from nsdyn.laws.base import AbstractLaw, Jump, ModeChange
from nsdyn.laws.post_switch import PostSwitchGradient
from nsdyn.mechanics.model import Model, Point
from nsdyn.numerics import kkt
from nsdyn.numerics.newton import Effort
from nsdyn.problem import Problem, as_arrays
from nsdyn.status import Status
from nsdyn.stepping.integrator import AbstractIntegrator, AbstractSmoothMethod
from nsdyn.stepping.log import Log, Record
from nsdyn.tolerances import Tolerances

MAX_EVENTS = 128


class Events(eqx.Module):
    """The event log of a rollout: arrays of fixed capacity, of which the first `count` are
    filled."""

    records: Record
    count: Array

    def __getattr__(self, name):
        if name.startswith("_") or name == "records":
            raise AttributeError(name)
        return getattr(self.records, name)


class Rollout(eqx.Module):
    """Rows on the grid, events and status. Rows after a failure are NaN; `t_stop` and `mode_stop`
    say where it happened."""

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
    effort: Effort


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
    tolerances: Tolerances | None = None,
) -> Rollout:
    """Simulate, purely. `step`, `t_end`, `save_every` and `max_events` are static."""
    grid, law = settings(problem, integrator, step, law, t_end, save_every, max_events)
    p = problem.params if params is None else as_arrays(params)
    if isinstance(p, dict) and isinstance(problem.params, dict):
        check_names(problem.params, p)
    q, v = _state("q0", q0, problem.q0), _state("v0", v0, problem.v0)
    t = jnp.asarray(grid.t0, float)
    own = (problem.system, problem.constraint, q, v, t, p)
    model, point = Model.of(*own, tolerances=tolerances, step=grid.step).begin(q, v, t, p)
    state = integrator.start(model, point, p)
    log = _empty_log(model, state, law, max_events, p)

    (state, log), rows = march(integrator, model, state, log, grid, law, p)
    return _collect(model, state, log, rows, grid, integrator.holds_position, p)


def _state(name: str, value, own):
    if value is None:
        return own
    state = jnp.asarray(value, float)
    if own is not None and state.shape != own.shape:
        raise ProblemError(
            f"{name}: expected shape {own.shape} as in the problem, found {state.shape}"
        )
    return state


def check_names(own: dict, given: dict):
    missing, unknown = (
        [key for key in own if key not in given],
        [key for key in given if key not in own],
    )
    if missing or unknown:
        found = [f"no {key!r}" for key in missing] + [f"an unknown {key!r}" for key in unknown]
        raise ProblemError(
            f"params: expected the names {list(own)}, found {' and '.join(found)}. "
            "To change one value: params={**problem.params, name: value}"
        )


def settings(
    problem, integrator, step, law, t_end, save_every, max_events
) -> tuple[Grid, AbstractLaw]:
    """Static arguments, checked."""
    if not isinstance(problem, Problem):
        raise ProblemError(f"problem: expected nsdyn.Problem(...), found {problem!r}")
    if not isinstance(integrator, AbstractIntegrator):
        hint = (
            "; wrap a smooth method: EventDriven(RK4())"
            if isinstance(integrator, AbstractSmoothMethod)
            else ""
        )
        raise ProblemError(
            "integrator: expected an integrator such as EventDriven(RK4()), found "
            f"{integrator!r}{hint}"
        )
    law = PostSwitchGradient() if law is None else law
    if not isinstance(law, AbstractLaw):
        raise ProblemError(
            f"law: expected an impulse law such as PostSwitchGradient(), found {law!r}"
        )
    reason = integrator.incompatibility(law, problem.constraint)
    if reason is not None:
        pair = f"{type(integrator).__name__} and {type(law).__name__}"
        raise ProblemError(
            f"integrator and law: {pair} do not go together: {reason}. EventDriven(...) takes "
            "every law"
        )
    for name, value in (("step", step), ("t_end", problem.t_end if t_end is None else t_end)):
        if isinstance(value, jax.core.Tracer):
            raise ProblemError(
                f"{name}: expected a plain number, found a traced value; the grid is static"
            )
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


def _empty_log(model, state, law, capacity, p) -> Log:
    """A log for the records of `switch`. Of these only the law's answer has shapes of its own
    choice."""
    point, m = state.point, model.m

    def jump(v):
        n = v.shape[0]
        G, on = jnp.zeros((m, n)), jnp.zeros(m, bool)
        identity = lambda b: b
        return law.decide(
            ModeChange.of(jnp.eye(n), G, G, v, None, None, on, on, identity, point.q, point.t, p)
        )

    found = jax.eval_shape(jump, point.v)
    if not isinstance(found, Jump):
        raise ProblemError(
            f"{type(law).__name__}.decide: expected a Jump(v_after, Lam, direction), found {found}"
        )
    _, Lam, direction = found
    energy = point.t
    record = Record(
        point.t, point.mode, point.mode, point.q, point.v, point.v, Lam, direction, energy, energy
    )
    return Log.empty(record, capacity if model.k else 0)


class RowFacts(eqx.Module):
    """What is found out about each row after the run."""

    lam: Array  # of least norm where rows of the constraints depend on each other
    lost: Array  # whether the constraints are no longer satisfied
    energy: Array


def _facts(model: Model, rows: Row, grid: Grid, holds_position: bool, p) -> RowFacts:
    def one(t, row):
        point = Point(t, row.q, row.v, row.mode, row.held)
        energy = model.system.energy(row.q, row.v, p)
        if model.m == 0:
            return RowFacts(row.lam, jnp.zeros((), bool), energy)
        solve = model.system.solver(row.q, p)
        G = jnp.where(model.live(point, p)[:, None], model.jacobian(point, p), 0.0)
        lam = row.lam if model.rows_independent else kkt.least_norm_multipliers(solve, G, row.lam)
        lost = _is_lost(model, point, G, solve(G.T), p) if holds_position else jnp.zeros((), bool)
        return RowFacts(lam, lost, energy)

    return jax.vmap(one)(jnp.asarray(grid.rows()), rows)


def _is_lost(model: Model, point: Point, G, Y, p):
    """Whether a residual is large beside the size of the mechanism (`nsdyn.tolerances`)."""
    G, Y, point = jax.lax.stop_gradient((G, Y, point))
    sizes = jnp.sqrt(jnp.maximum(jnp.sum(G * Y.T, axis=1), 0.0))
    allowed = model.tolerances.lost * sizes * model.length(point, p)
    # a row without a gradient cannot be judged
    return jnp.any((sizes > 0) & (jnp.abs(model.rows(point, p)) > allowed))


def _shortest_impulses(model, log: Log, q0, p) -> Record:
    """The records, with the impulses of least norm where directions depend on each other."""
    records = log.records
    if model.rows_independent or log.capacity == 0 or records.Lam.shape[1] < 2:
        return records

    def one(used, record):  # what is not used is NaN, which derivatives must not see
        q, D, Lam = (
            jnp.where(used, x, y)
            for x, y in ((record.q, q0), (record.direction, 0.0), (record.Lam, 0.0))
        )
        return jnp.where(
            used, kkt.least_norm_multipliers(model.system.solver(q, p), D, Lam), record.Lam
        )

    impulses = jax.vmap(one)(jnp.arange(log.capacity) < log.count, records)
    return eqx.tree_at(lambda x: x.Lam, records, impulses)


def _collect(model, state, log, rows, grid, holds_position, p) -> Rollout:
    """The result: rows after a failure are NaN."""
    t = jnp.asarray(grid.rows())
    finite = jnp.all(jnp.isfinite(rows.q), axis=1) & jnp.all(jnp.isfinite(rows.v), axis=1)
    facts = _facts(model, rows, grid, holds_position, p)
    sound = (rows.status == Status.OK) & finite
    lost = sound & facts.lost
    good = sound & (jnp.cumsum(lost) == 0)
    blank = lambda x: jnp.where(good[:, None], x, jnp.nan)
    # Rows know best when something went wrong: the loop looks only at the end of a chunk of steps.
    first = jnp.argmax(lost)
    t_bad = jnp.min(jnp.where(finite, jnp.inf, t))
    t_lost = jnp.where(jnp.any(lost), t[first], jnp.inf)
    t_stop = jnp.where(state.status == Status.OK, grid.t_end, jnp.minimum(state.t_stop, t_bad))
    drifted = t_lost <= jnp.where(state.status == Status.OK, jnp.inf, t_stop)
    drifted = drifted & jnp.any(lost)
    mode_stop = jnp.where(state.status == Status.OK, state.point.mode, state.mode_stop)
    return Rollout(
        t=t,
        q=blank(rows.q),
        v=blank(rows.v),
        lam=blank(facts.lam),
        mode=rows.mode,
        energy=jnp.where(good, facts.energy, jnp.nan),
        events=Events(_shortest_impulses(model, log, rows.q[0], p), log.count),
        status=jnp.where(drifted, Status.CONSTRAINTS_LOST, state.status),
        t_stop=jnp.where(drifted, t_lost, t_stop),
        mode_stop=jnp.where(drifted, rows.mode[first], mode_stop),
        effort=state.effort,
    )
