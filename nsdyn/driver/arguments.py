"""The arguments of `simulate`, `rollout` and `sweep`: checked here, once, and nowhere else.

What comes out is a `Setup`, everything but numbers that change from run to run, and the values of
(params, q0, v0), which are the arguments of the compiled programs.
"""

from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nsdyn._watched import watch
from nsdyn.checks.problem_check import check_shapes
from nsdyn.constraints.base import AbstractConstraint, Scale
from nsdyn.driver.grid import Grid
from nsdyn.errors import ProblemError
from nsdyn.laws.base import AbstractLaw
from nsdyn.laws.impact import AbstractImpactLaw
from nsdyn.laws.post_switch import PostSwitchGradient
from nsdyn.mechanics import contact_rows
from nsdyn.mechanics.model import Model
from nsdyn.mechanics.system import System
from nsdyn.problem import Problem, as_arrays
from nsdyn.results.drawing import Drawing
from nsdyn.stepping.event_driven import EventDriven
from nsdyn.stepping.integrator import (
    AbstractIntegrator,
    AbstractSmoothMethod,
    IntegratorLike,
    as_integrator,
)
from nsdyn.tolerances import Tolerances

MAX_EVENTS = 128


class Values(NamedTuple):
    """Parameters and initial state of a run, and by which fraction of the step its first step is
    shorter (None: by nothing)."""

    params: Any
    q0: Any
    v0: Any
    phase: Any = None


class Setup(eqx.Module):
    """What is run: all but the parameters and the initial state."""

    system: System
    parts: tuple[AbstractConstraint, ...]
    integrator: AbstractIntegrator
    law: AbstractLaw
    tolerances: Tolerances
    grid: Grid
    max_events: Any
    # times of the samples; None for those of the grid
    save_at: tuple[float, ...] | None = eqx.field(static=True, default=None)

    @property
    def times(self) -> np.ndarray:
        """The times of the samples."""
        return self.grid.times() if self.save_at is None else np.array(self.save_at)

    def model(self, values: Values, scale: Scale | None = None) -> Model:
        """System and constraints, for states and parameters of these shapes; `scale` says how large
        the motion is."""
        model = Model.of(
            self.system,
            self.parts,
            values.q0,
            values.v0,
            jnp.asarray(self.grid.t0, float),
            values.params,
            tolerances=self.tolerances,
            step=self.grid.step,
        )
        return model if scale is None else eqx.tree_at(lambda x: x.scale, model, scale)

    def about(self, problem: Problem) -> dict[str, Any]:
        """What a `Solution` keeps of the settings."""
        return {
            "problem": problem.name,
            "integrator": repr(self.integrator),
            "law": repr(self.law),
            "law_reasons": self.law.reasons,
            "step": self.grid.step,
            "save_every": self.grid.save_every if self.save_at is None else None,
            "t0": self.grid.t0,
            "t_end": self.grid.t_end,
            "has_potential": problem.system.potential is not None,
        }


def shown(problem: Problem) -> dict[str, Any]:
    """How a `Solution` is shown; apart, as it must not take part in compilation."""
    return {
        "coordinates": problem.coordinates,
        "velocities": problem.velocities,
        "drawing": Drawing.of(problem),
    }


def setup(
    problem: Problem,
    integrator: IntegratorLike,
    law: AbstractLaw | None,
    *,
    step: float,
    t_end: float | None = None,
    save_every: int = 1,
    save_at: Any = None,
    max_events: int = MAX_EVENTS,
    tolerances: Tolerances | None = None,
) -> Setup:
    """The arguments that `simulate`, `rollout` and `sweep` have in common, checked."""
    if not isinstance(problem, Problem):
        raise ProblemError(f"problem: expected nsdyn.Problem(...), found {problem!r}")
    law = PostSwitchGradient() if law is None else law
    driven = _check_pair(problem, integrator, law)
    if not isinstance(tolerances, Tolerances | None):
        raise ProblemError(
            f"tolerances: expected nsdyn.Tolerances(...) or None, found {tolerances!r}"
        )
    grid = _grid(problem, step, t_end, save_every)
    watch(driven, law)
    return Setup(
        system=problem.system,
        parts=_parts(problem, driven),
        integrator=driven,
        law=law,
        tolerances=_default_tolerances() if tolerances is None else tolerances,
        grid=grid,
        max_events=_whole("max_events", max_events),
        save_at=None if save_at is None else _save_at(save_at, grid),
    )


def _parts(problem: Problem, driven: AbstractIntegrator) -> tuple[AbstractConstraint, ...]:
    """The constraints as the integrator sees them. Shapes are checked later, so that only an
    integrator whose contacts have modes asks for the model here."""
    contacts = any(part.unilateral for part in problem.constraint)
    modes = contacts and isinstance(driven, EventDriven)
    return driven.constraints_of(_model(problem)) if modes else problem.constraint


def _model(problem: Problem) -> Model:
    """The model of a problem with contacts. Wrong shapes, which are looked for before a run starts,
    would be found here as errors of JAX."""
    try:
        return problem.model()
    except Exception:
        check_shapes(problem)
        raise


@cache
def _default_tolerances() -> Tolerances:
    with jax.ensure_compile_time_eval():  # numbers, also where the first call is traced
        return Tolerances()


def _check_pair(problem: Problem, integrator: Any, law: Any) -> AbstractIntegrator:
    driven = as_integrator(integrator)
    if driven is None:
        smooth = isinstance(integrator, AbstractSmoothMethod)
        hint = "; wrap a smooth method: EventDriven(RK4())" if smooth else ""
        raise ProblemError(
            "integrator: expected an integrator such as EventDriven(RK4()), found "
            f"{integrator!r}{hint}"
        )
    if not isinstance(law, AbstractLaw):
        raise ProblemError(
            f"law: expected an impulse law such as PostSwitchGradient(), found {law!r}"
        )
    reason = refusal(problem, integrator, law)
    if reason is not None:
        raise ProblemError(reason)
    return driven


def refusal(problem: Problem, integrator: IntegratorLike, law: AbstractLaw) -> str | None:
    """Why a problem, an integrator that runs by itself and a law do not go together; None if they
    do. Nothing is compiled."""
    driven = as_integrator(integrator)
    assert driven is not None, "the integrator was checked"
    return (
        _contacts_refused(problem, driven, integrator)
        or _impact_law_refused(problem, law)
        or _pair_refused(problem, driven, integrator, law)
        or _mode_changes_refused(problem, law)
    )


def _contacts_refused(problem: Problem, driven: AbstractIntegrator, given: Any) -> str | None:
    parts = problem.constraint
    if not any(part.unilateral for part in parts):
        return None
    if not driven.resolves_contacts:
        return (
            f"integrator: {given!r} does not resolve Contacts, whose forces depend on each other. "
            "Use NSGA(), MoreauJean(), EventDriven(RK4()) or EventDriven(DormandPrince()), or "
            "Contact (without friction) in place of Contacts"
        )
    if any(part.mode_depends_on_impact for part in parts):
        return (
            "Problem(constraint=...): expected Contact or Contacts, found both; their impacts "
            "would not know of each other. Put all gaps into Contacts"
        )
    return None


def _impact_law_refused(problem: Problem, law: AbstractLaw) -> str | None:
    """For an impact law that the contacts of the problem cannot obey."""
    if not isinstance(law, AbstractImpactLaw):
        return None
    name = type(law).__name__
    parts = problem.constraint
    if any(part.mode_depends_on_impact for part in parts):
        return (
            f"law: {name} is a law for Contacts, and would leave Contact to "
            f"{type(law.bilateral).__name__}. Use Contacts, or Restitution(e) with Contact"
        )
    if not any(part.unilateral for part in parts):
        return None
    objection = law.objection(contact_rows.size(_model(problem))[0])
    return None if objection is None else f"law: {name} does not fit {problem.name}: {objection}"


def _pair_refused(
    problem: Problem, driven: AbstractIntegrator, given: Any, law: AbstractLaw
) -> str | None:
    reason = driven.incompatibility(law, problem.constraint)
    if reason is None:
        return None
    pair = f"{type(given).__name__} and {type(law).__name__}"
    return (
        f"integrator and law: {pair} do not go together: {reason}. EventDriven(...) takes every law"
    )


def _mode_changes_refused(problem: Problem, law: AbstractLaw) -> str | None:
    """For a law that would have no answer to any mode change that brings new rows, or whose answer
    would violate these rows at any mode change."""
    name = type(law).__name__
    parts = [part for part in problem.constraint if not part.keeps_mode]
    if law.needs_equal_rank and len(parts) == 1 and parts[0].rank_always_changes:
        return (
            f"law: {name} needs as many independent constraints after a mode change as before it, "
            f"but each mode change of {parts[0].title} that brings a constraint changes their "
            "number. Use PostSwitchGradient(), for instance"
        )
    if law.always_rebounds and parts and all(part.always_brings_rows for part in parts):
        titles = " and ".join(part.title for part in parts)
        return (
            f"law: with {name} new constraints are left at once, but each mode change of {titles} "
            "brings constraints that cannot open. Use PostSwitchGradient(), for instance, or "
            "Contact in place of constraints that may open"
        )
    return None


def _grid(problem: Problem, step: Any, t_end: Any, save_every: Any) -> Grid:
    h = _finite("step", step)
    end = _finite("t_end", problem.t_end if t_end is None else t_end)
    if not h > 0:
        raise ProblemError(f"step: expected a positive number, found {step!r}")
    if not end > problem.t0:
        raise ProblemError(f"t_end: expected a time after t0 = {problem.t0:g}, found {end:g}")
    return Grid(problem.t0, end, h, _whole("save_every", save_every))


def _save_at(times: Any, grid: Grid) -> tuple[float, ...]:
    """The times in increasing order."""
    if isinstance(times, jax.core.Tracer):
        raise ProblemError("save_at: expected plain numbers, found traced values")
    if grid.save_every != 1:
        raise ProblemError("save_at and save_every: expected one of the two, found both")
    try:
        t = np.sort(np.asarray(times, float))
    except (TypeError, ValueError) as error:
        raise ProblemError(f"save_at: expected times, found {times!r}") from error
    if t.ndim != 1 or not len(t):
        raise ProblemError(f"save_at: expected a list of times, found shape {t.shape}")
    slack = 1e-9 * grid.step  # round-off
    outside = t[~((t >= grid.t0 - slack) & (t <= grid.t_end + slack))]
    if len(outside):
        raise ProblemError(
            f"save_at: expected times from t0 = {grid.t0:g} to t_end = {grid.t_end:g}, found "
            f"{outside[0]:g}"
        )
    return tuple(t.tolist())


def _finite(name: str, value: Any) -> float:
    if isinstance(value, jax.core.Tracer):
        raise ProblemError(
            f"{name}: expected a plain number, found a traced value; the grid is static"
        )
    if not isinstance(value, int | float | np.number) or not np.isfinite(value):
        raise ProblemError(f"{name}: expected a finite number, found {value!r}")
    return float(value)


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ProblemError(f"{name}: expected a positive whole number, found {value!r}")
    return int(value)


# Parameters and initial state


def traced_values(problem: Problem, params: Any, q0: Any, v0: Any) -> Values:
    """Those of `rollout`, which may be traced."""
    given = problem.params if params is None else as_arrays(params)
    _check_names(problem.params, given)

    def vector(name: str, x: Any, own: Any, names: tuple[str, ...]) -> Any:
        return own if x is None else _shaped(name, jnp.asarray(x, float), own, names)

    q = vector("q0", q0, problem.q0, problem.coordinates)
    return Values(given, q, vector("v0", v0, problem.v0, problem.velocities))


def plain_values(problem: Problem, params: Any, q0: Any, v0: Any) -> Values:
    """Those of `simulate`, which are numbers. Each has the type of the problem's own, so that other
    values compile nothing new."""
    own = problem.params
    given = own if params is None else as_arrays(params)
    _check_structure(own, given)

    def vector(name: str, x: Any, own: Any, names: tuple[str, ...]) -> Any:
        return canonical_dtype(own) if x is None else _shaped(name, _floats(name, x), own, names)

    return Values(
        params=jax.tree_util.tree_map_with_path(_param, given, own),
        q0=vector("q0", q0, problem.q0, problem.coordinates),
        v0=vector("v0", v0, problem.v0, problem.velocities),
    )


def _param(path: tuple, x: Any, like: Any) -> Any:
    if np.shape(x) != np.shape(like):
        raise ProblemError(
            f"params{jax.tree_util.keystr(path)}: expected shape {np.shape(like)} as in the "
            f"problem, found {np.shape(x)}; for a batch of values use nsdyn.sweep"
        )
    return canonical_dtype(x, like) if eqx.is_array(x) else x


def refuse_tracers(function: str, *trees: Any) -> None:
    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(trees)):
        raise ProblemError(
            f"{function}: found traced values, expected numbers. Inside jit, vmap or grad call "
            "nsdyn.rollout"
        )


def canonical_dtype(x: Any, like: Any = None) -> Any:
    """An array of the type of `like` where that loses nothing, else of its own: other values
    compile nothing new."""
    if jnp.issubdtype(x.dtype, jax.dtypes.extended):  # random keys are no numbers
        return x
    if isinstance(x, jax.Array) and not x.weak_type and x.dtype == getattr(like, "dtype", x.dtype):
        return x  # as nearly always
    array = np.asarray(x)
    keep = eqx.is_array(like) and np.can_cast(array.dtype, like.dtype, "safe")
    return jnp.asarray(array, like.dtype if keep else array.dtype)


def _check_names(own: Any, given: Any) -> None:
    if not isinstance(own, dict) or not isinstance(given, dict):
        return
    found = [f"no {key!r}" for key in own if key not in given]
    found += [f"an unknown {key!r}" for key in given if key not in own]
    if found:
        raise ProblemError(
            f"params: expected the names {list(own)}, found {' and '.join(found)}. "
            "To change one value: params={**problem.params, name: value}"
        )


def _check_structure(own: Any, given: Any) -> None:
    _check_names(own, given)
    wanted: Any = jax.tree.structure(own)
    found: Any = jax.tree.structure(given)
    if found != wanted:
        raise ProblemError(
            f"params: expected the structure of problem.params, {wanted}, found {found}. "
            "Lists of numbers should be arrays"
        )


def _floats(name: str, value: Any) -> Any:
    try:
        return jnp.asarray(np.asarray(value, float))
    except (TypeError, ValueError) as error:
        raise ProblemError(f"{name}: expected numbers, found {value!r}") from error


def _shaped(name: str, vector: Any, own: Any, names: tuple[str, ...]) -> Any:
    if vector.shape != own.shape:
        entries = f" ({', '.join(names)})" if names else ""
        raise ProblemError(
            f"{name}: expected shape {own.shape} as in the problem{entries}, found {vector.shape}"
        )
    return vector


# Batches


class Batch(NamedTuple):
    """The values of many runs: leaves that have one more, leading, axis, and those that all runs
    share, each with None in the places of the other; and the number of runs."""

    own: Values
    shared: Values
    total: int

    @property
    def has_short_steps(self) -> bool:
        return self.own.phase is not None and bool(np.any(np.asarray(self.own.phase) > 0))

    def params(self) -> Any:
        """The parameters of all runs; shared ones are repeated, which takes no memory."""
        repeat = lambda x: np.broadcast_to(np.asarray(x), (self.total, *np.shape(x)))
        is_number = lambda x: eqx.is_array(x) and not _is_key(x)
        shared = jax.tree.map(lambda x: repeat(x) if is_number(x) else x, self.shared.params)
        return eqx.combine(jax.tree.map(np.asarray, self.own.params), shared)


def _is_key(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.extended)


def batch_values(problem: Problem, params: Any, q0: Any, v0: Any, phase: Any = None) -> Batch:
    """Those of `sweep`, of which some have one more, leading, axis."""
    own = Values(problem.params, problem.q0, problem.v0)
    floats = lambda name, x, mine: mine if x is None else _floats(name, x)
    given = Values(
        params=own.params if params is None else as_arrays(params),
        q0=floats("q0", q0, own.q0),
        v0=floats("v0", v0, own.v0),
    )
    _check_structure(own.params, given.params)
    paths, tree = jax.tree_util.tree_flatten_with_path(given)
    leaves, sizes = [], {}
    for (path, x), like in zip(paths, jax.tree.leaves(own), strict=True):
        name = path[0].name + jax.tree_util.keystr(path[1:])
        leaves.append(_batch_leaf(name, x, like))
        if np.ndim(x) > np.ndim(like):
            sizes[name] = np.shape(x)[0]
    mask = [
        np.ndim(x) > np.ndim(like) for x, like in zip(leaves, jax.tree.leaves(own), strict=True)
    ]
    whole = jax.tree.unflatten(tree, leaves)
    mine, shared = eqx.partition(whole, jax.tree.unflatten(tree, mask))
    if phase is not None:
        mine = mine._replace(phase=_phase(phase))
        sizes["phase"] = len(mine.phase)
    return Batch(mine, shared, total=_total(sizes))


def _phase(phase: Any) -> Any:
    found = _floats("phase", phase)
    given = np.asarray(found)
    if given.ndim != 1 or not (np.all(given == 0) or np.all((given > 0) & (given < 1))):
        raise ProblemError(
            "phase: expected a list of fractions of a step, all between 0 and 1 or all 0, found "
            f"{phase!r}"
        )
    return found


def _batch_leaf(name: str, x: Any, like: Any) -> Any:
    """One number or array of a batch, checked against that of the problem."""
    if not eqx.is_array(like):
        return x
    if not eqx.is_array(x):
        raise ProblemError(f"{name}: expected numbers, found {x!r}")
    shape = np.shape(x)
    if shape != like.shape and (shape[1:] != like.shape or len(shape) != like.ndim + 1):
        wanted = f"{like.shape}, or {('B', *like.shape)} for a batch of B".replace("'", "")
        raise ProblemError(f"{name}: expected shape {wanted}, found {shape}")
    return canonical_dtype(x, like)


def _total(sizes: dict[str, int]) -> int:
    if not sizes:
        raise ProblemError(
            "sweep: expected params, q0 or v0 with one more, leading, axis, or phase, found none. "
            "For a single run call nsdyn.simulate"
        )
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{name}: {size}" for name, size in sizes.items())
        raise ProblemError(f"sweep: expected one batch size along the leading axes, found {found}")
    name, total = next(iter(sizes.items()))
    if total == 0:
        raise ProblemError(f"{name}: expected at least one trajectory, found a batch of none")
    return total
