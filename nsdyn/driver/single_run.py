"""`simulate`: a run for people. It checks first, compiles once, and turns a status into an error
that helps."""

import dataclasses
from collections import OrderedDict
from typing import Any

import equinox as eqx
import jax
import numpy as np

from nsdyn._compiler import warn_if_untuned
from nsdyn._jitted import split
from nsdyn.analysis.coarse import warn_if_coarse
from nsdyn.analysis.singular import warn_if_singular
from nsdyn.analysis.singular_position import singular_position
from nsdyn.checks import problem_check
from nsdyn.driver import again
from nsdyn.driver import backend as backends
from nsdyn.driver.arguments import (
    MAX_EVENTS,
    Setup,
    Values,
    plain_values,
    refuse_tracers,
    setup,
    shown,
)
from nsdyn.driver.blocks import Programs
from nsdyn.driver.collect import Collected, collect, sampled
from nsdyn.driver.dense import kept_steps, with_cut_grid
from nsdyn.driver.grid import CHUNK, Grid
from nsdyn.driver.verdicts import unless_known
from nsdyn.errors import SimulationError
from nsdyn.laws.base import AbstractLaw, as_status
from nsdyn.mechanics.model import Point
from nsdyn.problem import Problem, as_arrays
from nsdyn.results.events import Events, warn_if_full
from nsdyn.results.solution import Solution, plain
from nsdyn.status import Status
from nsdyn.stepping.integrator import IntegratorLike
from nsdyn.tolerances import Tolerances

# What a scheme ends with at a singular position, among other places.
MAY_BE_SINGULAR = (Status.NOT_CONVERGED, Status.NONFINITE, Status.CONSTRAINTS_LOST)
# What a step that is far too long may lead to, among other reasons.
MAY_BE_TOO_LONG = (*MAY_BE_SINGULAR, Status.NOT_LOCATED, Status.LEADS_BACK, Status.NO_MODE)
FINER = 16  # how much smaller the step is with which that is found out
SHORT_RUN = 10_000  # steps of a run for which it is found out


def simulate(
    problem: Problem,
    integrator: IntegratorLike,
    *,
    step: float,
    law: AbstractLaw | None = None,
    params: Any = None,
    q0=None,
    v0=None,
    t_end: float | None = None,
    save_every: int = 1,
    save_at: Any = None,
    max_events: int = MAX_EVENTS,
    tolerances: Tolerances | None = None,
    check: bool = True,
) -> Solution:
    """Simulate a problem. Raises ProblemError before anything is compiled, SimulationError where a
    run stops early.

    integrator: such as `EventDriven(RK4())`, `NSGA()`, `MoreauJean()`.
    step: its time step; with error control the distance of the samples.
    law: the impulse law, which decides the velocity after a mode change; `PostSwitchGradient()`, or
        with `Contacts` `Newton()`, if there is none.
    params, q0, v0, t_end: take the place of the problem's own.
    save_every: samples are taken on the grid, after so many steps each,
    save_at: or at these times, in any order: they come sorted, by dense output between the steps
        or, with error control, from steps that end there (`nsdyn.driver.dense`).
    max_events: how many events the table has room for; the run stops with LOG_FULL at one more.
    tolerances: what counts as zero, see `nsdyn.Tolerances`.
    check: whether the start is verified before the run, and events and steps are looked at after
        it, for warnings.

    Other values of params, start, step, end, samples or `max_events` compile nothing anew.
    """
    warn_if_untuned()
    settings, start = (integrator, law, tolerances), (params, q0, v0)
    known = again.find(problem, *settings) if save_at is None else None
    if known is not None:
        found = known.run(step, start, t_end, save_every, max_events, check)
        if found is not None:
            if known.has_contacts:
                warn_if_full(found.events, problem.constraint, max_events)
            return _looked_at(known, params, found) if check else found
    run = setup(
        problem,
        integrator,
        law,
        step=step,
        t_end=t_end,
        save_every=save_every,
        save_at=save_at,
        max_events=max_events,
        tolerances=tolerances,
    )
    refuse_tracers("simulate", problem, run, *start)
    values = plain_values(problem, *start)
    solution = _checked_run(problem, run, values) if check else _finished(problem, run, values)
    warn_if_full(solution.events, problem.constraint, run.max_events)
    if solution.backend == "native" and save_at is None:
        known = again.remember(problem, run, values, *settings) if known is None else known
        if check:
            known.remember_sound(*start)
    return solution


def _finished(problem: Problem, run: Setup, values: Values) -> Solution:
    """The solution of a run that reached its end; else SimulationError."""
    return raise_if_failed(advised(problem, run, values, computed(problem, run, values)))


def _checked_run(problem: Problem, run: Setup, values: Values) -> Solution:
    """The same between a check of its start and a look at its events and steps."""
    places = lambda x: (x.params, x.q0, x.v0)
    started = eqx.tree_at(places, problem, values[:3], is_leaf=lambda x: x is None)
    _check_once(started)
    solution = _finished(problem, run, values)
    _look_at_events(started, solution)
    if again.may_be_coarse(problem, run.integrator):
        warn_if_coarse(solution, problem.system.kinematics is None)
    return solution


def _looked_at(known: again.Known, params: Any, solution: Solution) -> Solution:
    """A run whose like was made before, after the same looks at its events and steps."""
    if known.may_be_singular:
        own = None if params is None else lambda k: as_arrays(params)
        warn_if_singular(known.problem, solution.events, own)
    if known.may_be_coarse:
        warn_if_coarse(solution, known.problem.system.kinematics is None)
    return solution


_checked: OrderedDict[tuple, None] = OrderedDict()  # starts that were sound
REMEMBERED = 64


def _check_once(problem: Problem) -> None:
    """Check a start, unless the same one was sound before: a study runs one problem many times."""
    static, arrays = split((problem,))
    if any(jax.dtypes.issubdtype(x.dtype, jax.dtypes.extended) for x in arrays):  # random keys
        _start_is_sound(problem)
        return
    key = (static, *((x.dtype, x.shape, np.asarray(x).tobytes()) for x in arrays))
    if key not in _checked:
        unless_known(_start_is_sound, problem)
        _checked[key] = None
        if len(_checked) > REMEMBERED:
            _checked.popitem(last=False)


def _start_is_sound(problem: Problem) -> bool:
    return problem_check.check_start(problem).ok


def _look_at_events(problem: Problem, solution: Solution) -> None:
    """Warn of a singular event, unless the same events were found regular before."""
    parts = problem.constraint
    if not len(solution.events) or (len(parts) == 1 and parts[0].rows_independent):
        return
    unless_known(_events_are_regular, problem, solution.events)


def _events_are_regular(problem: Problem, events: Events) -> bool:
    return not warn_if_singular(problem, events)


def attempt(problem: Problem, integrator: IntegratorLike, **options: Any) -> Solution:
    """A run with the default law that is not checked and does not raise, for `problem.check()`."""
    run = setup(problem, integrator, None, **options)
    return computed(problem, run, plain_values(problem, None, None, None))


def computed(problem: Problem, run: Setup, values: Values) -> Solution:
    """The solution of a run whose arguments were checked, trimmed, however it ended."""
    run = with_cut_grid(run)
    nothing: Any = jax.tree.map(lambda _: None, values)
    kept = kept_steps(run)
    programs, backend = backends.programs(run, nothing, values)
    found = collect(run, nothing, values, kept, programs)
    params = plain(values.params, other=lambda name, x: x)
    about = {**run.about(problem), **shown(problem), "backend": backend}
    solution = found.solution(run.grid.times_of(kept), params, about)
    if not solution.ok:
        solution = solution.trimmed()
        cause = _cause(run, values, found, solution, programs)
        solution = dataclasses.replace(solution, **cause)
    if run.save_at is None:
        return solution
    at_times = sampled(run, nothing, values, found).solution(run.times, params, about).trimmed()
    how = {name: getattr(solution, name) for name in ("events", "t_stop", "status", "note")}
    return dataclasses.replace(at_times, **how)


def advised(problem: Problem, run: Setup, values: Values, solution: Solution) -> Solution:
    """A run that stopped, with a note if a much smaller step gets past that point."""
    grid = run.grid
    may_help = as_status(solution.status) in MAY_BE_TOO_LONG and not run.integrator.controls_error
    if not may_help or float(grid.number_at(float(solution.t_stop))) > SHORT_RUN:
        return solution
    step = grid.step / FINER
    t_end = min(grid.t_end, float(solution.t_stop) + grid.step)
    finer = Grid(grid.t0, t_end, step, save_every=FINER)
    fine = computed(problem, dataclasses.replace(run, grid=finer, save_at=None), values)
    if not fine.ok:
        return solution
    note = (
        f"With step = {step:.3g} the run gets past this point, so step = {grid.step:g} is too "
        "long: try a smaller step"
    )
    return dataclasses.replace(solution, note=f"{solution.note}. {note}" if solution.note else note)


def _cause(
    run: Setup, values: Values, found: Collected, stopped: Solution, programs: Programs
) -> dict[str, Any]:
    """The status SINGULAR_POSITION and a note about the place, if that is why a run stopped."""
    if as_status(stopped.status) not in MAY_BE_SINGULAR:
        return {}
    grid = run.grid
    nothing: Any = jax.tree.map(lambda _: None, values)
    k = int(grid.number_at(float(stopped.t_stop)))
    # The same programs once more, to see the last steps, which need not have been recorded.
    kept = np.union1d(grid.landmarks(k), np.arange(max(0, k - CHUNK), k + 1))
    before = collect(run, nothing, values, kept, programs)
    pick = lambda point, n: jax.tree.map(lambda x: x[_sound(point, stopped.mode_stop)][-n:], point)
    last = pick(before.samples.point, 2)
    along = pick(found.samples.point, len(stopped.t))
    place = singular_position(run.model(values), along, last, grid.step, values.params)
    if place is None:
        return {}
    note = (
        f"The singular position is at t = {place.t:.6g}: there the smallest relative pivot of "
        f"G M^-1 G^T is {place.pivot:.2g} on the way, against {place.usual:.2g} elsewhere"
    )
    return {"status": np.asarray(int(Status.SINGULAR_POSITION)), "note": note}


def _sound(point: Point, mode: np.ndarray) -> np.ndarray:
    """Which of these points are finite and in this mode."""
    same = point.mode == mode
    same = np.all(same.reshape(len(same), -1), axis=1)
    return same & np.all(np.isfinite(point.q), axis=1) & np.all(np.isfinite(point.v), axis=1)


def raise_if_failed(solution: Solution) -> Solution:
    """The solution, or the error that its run ended with."""
    status = as_status(solution.status)
    if status is Status.OK:
        return solution
    t = float(solution.t_stop)
    mode = solution.mode_stop.tolist()
    name, words = solution.meaning(status)
    text = f"{solution.problem}: stopped at t = {t:.9g} in mode {mode} ({name}): {words}."
    if status is Status.NOT_CONVERGED:
        tries, left = solution.iterations_worst, float(solution.effort.change)
        text += f" After {tries} iterations the last change was {left:.3g} times what is allowed."
    if solution.note:
        text += f" {solution.note}."
    text += f" The error's .partial holds the {len(solution.t)} samples until then"
    raise SimulationError(text, status=status, t=t, mode=mode, partial=solution)
