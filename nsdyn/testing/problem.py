"""The suite for problems. Besides what `problem.check()` verifies, along a short run:

M = M^T > 0,                                                                               (1)
E = T + V constant between events, if the power of all forces
P = v.f + 1/2 v.(dM/dt) v + dV/dt vanishes and no row moves (g_t = 0),                     (2)
a batch = its single runs,                                                                 (3)
another value of a parameter compiles nothing,                                             (4)
M, f, rows and guards have the same bits in a fresh process.                               (5)
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nsdyn.analysis.residuals import points_of
from nsdyn.checks.coarse_run import Midpoint
from nsdyn.driver.many_runs import sweep
from nsdyn.driver.single_run import simulate
from nsdyn.mechanics.model import Model, Point
from nsdyn.problem import Problem
from nsdyn.results.solution import Solution
from nsdyn.stepping.event_driven import EventDriven
from nsdyn.stepping.integrator import IntegratorLike
from nsdyn.testing.findings import Findings, relative
from nsdyn.testing.run import RESIDUAL, relative_residuals
from nsdyn.testing.travel import check_travels

# The method of problem.check(), so that its programs serve here too. Order 2.
METHOD = EventDriven(Midpoint())
STEPS = 250  # of the whole time span, as there
SHORT = 20  # of them make the short run
BATCH = 8  # starts; fewer would be compiled in another way than large batches
SYMMETRIC = 1e-10  # |M - M^T| relative to |M|
NO_POWER = 1e-9  # relative to the powers that cancel
ROUND_OFF = 1e-9  # of an energy or a state, relative
FALLS = 3.0  # the ratio of errors of a method of order 2 when the step is halved, at least
TRACED = "/jax/core/compile/jaxpr_trace_duration"  # JAX tells that it traces a function anew


class Exact(NamedTuple):
    """A solution to compare with.

    at: a function of the times, shape (k,), that returns q and v, shapes (k, n).
    step, integrator: the run that is compared.
    tolerance: the largest difference allowed, relative to the largest entry.
    """

    at: Callable
    step: float
    integrator: IntegratorLike
    tolerance: float = 1e-6


def check_problem(
    problem: Problem | Callable[[], Problem],
    *,
    conservative: bool | None = None,
    reference: Exact | None = None,
    fresh_process: bool = True,
    integrator: IntegratorLike = METHOD,
) -> Findings:
    """Verify a problem, or the function that makes it.

    conservative: whether energy is constant between events; None if the forces shall tell.
    reference: a solution that the problem must meet.
    fresh_process: whether to send it to another process, which takes some seconds.
    integrator: that of the short runs, of order 2; for `Contacts` one that resolves them.
    """
    made = problem if isinstance(problem, Problem) else problem()
    findings = Findings(made.name)
    if not isinstance(problem, Problem):
        structure: Any = jax.tree.structure(made)
        same = structure == jax.tree.structure(problem())
        expected = "functions at module level, so that the second compiles nothing"
        found = "the same functions" if same else "new functions in each"
        findings.require("two problems made alike", same, found, expected)
    with warnings.catch_warnings(), findings.during("check()"):
        warnings.simplefilter("ignore")  # they are about motions, not about mistakes
        for line in made.check().lines:
            findings.add(*line)
    with findings.during("a short run"):
        run = _short(made, integrator)
    _check_along(findings, made, run)
    with findings.during("a shorter step"):
        _check_energy(findings, made, run, integrator, conservative)
    _check_batch(findings, made, integrator)
    _check_new_value(findings, made, integrator)
    if reference is not None:
        _check_reference(findings, made, reference)
    if fresh_process:
        findings.lines += check_travels(made).lines
    return findings


def _short(
    problem: Problem, integrator: IntegratorLike, refined: int = 1, **other: Any
) -> Solution:
    step = (problem.t_end - problem.t0) / STEPS
    t_end = problem.t0 + SHORT * step
    return simulate(problem, integrator, step=step / refined, t_end=t_end, check=False, **other)


class Along(NamedTuple):
    """At each sample: M, the power of all forces and the largest of its parts, and g_t."""

    M: Any
    power: Any
    parts: Any
    rates: Any


@eqx.filter_jit
def _along(model: Model, points: Point, p: Any) -> Along:
    def at(point: Point) -> Along:
        system = model.system
        qdot = model.qdot(point, p)
        M, turned = jax.jvp(lambda q: system.mass(q, p), (point.q,), (qdot,))
        rise = jnp.zeros(())
        if system.potential is not None:
            potential = system.potential
            rise = jax.jvp(lambda q: potential(q, p), (point.q,), (qdot,))[1]
        v = point.v
        parts = jnp.stack([v @ model.force(point, p), 0.5 * v @ (turned @ v), rise])  # (2)
        still = point.replace(v=jnp.zeros_like(v))
        rates = jnp.where(model.live(point, p), model.psi(still, p), 0.0)
        return Along(M, jnp.sum(parts), jnp.max(jnp.abs(parts)), rates)

    return jax.vmap(at)(points)


def _at_samples(problem: Problem, run: Solution) -> Along:
    found = _along(problem.model(), points_of(problem, run), problem.params)
    return jax.tree.map(np.asarray, found)


def _check_along(findings: Findings, problem: Problem, run: Solution) -> None:
    along = _at_samples(problem, run)
    size = np.max(np.abs(along.M), axis=(1, 2))
    skew = np.max(np.abs(along.M - np.swapaxes(along.M, 1, 2)), axis=(1, 2))
    findings.at_most("|M - M^T| along the run, relative", skew / size, SYMMETRIC)  # (1)
    root = np.sqrt(np.abs(np.einsum("kii->ki", along.M)))
    unit = along.M / (root[:, :, None] * root[:, None, :])  # each coordinate in a unit of its own
    lowest = np.min(np.linalg.eigvalsh(0.5 * (unit + np.swapaxes(unit, 1, 2))))
    findings.require("M along the run", lowest > 0, f"eigenvalue {lowest:.3g}", "positive ones")
    position, velocity = relative_residuals(problem, run)
    findings.at_most("|g| along the run, relative", position, RESIDUAL)
    findings.at_most("|G v + g_t| along the run, relative", velocity, RESIDUAL)


def _check_energy(
    findings: Findings,
    problem: Problem,
    run: Solution,
    integrator: IntegratorLike,
    conservative: bool | None,
) -> None:
    along = _at_samples(problem, run)
    power = np.max(np.abs(along.power)) / max(float(np.max(along.parts)), np.finfo(float).tiny)
    moving = float(np.max(np.abs(along.rates), initial=0.0))
    quiet = power <= NO_POWER and moving == 0.0
    found = f"power {power:.2g} of its parts, rows that move {moving:.2g}"
    if conservative is False or (conservative is None and not quiet):
        findings.skip("energy", f"not conservative: {found}")
        return
    findings.require("forces and potential", quiet, found, "no power and no moving rows")
    work = float(np.max(along.parts) * (run.t[-1] - run.t[0]))
    drifts = [_drift(solution, work) for solution in (run, _short(problem, integrator, 2))]
    if None in drifts:
        findings.skip("energy", "there is an event in the first steps")
        return
    coarse, fine = drifts
    constant = coarse <= ROUND_OFF or fine <= max(coarse / FALLS, ROUND_OFF)
    found = f"{coarse:.3g} and {fine:.3g} of it"
    findings.require("energy", constant, found, "errors that fall with the square of the step")


def _drift(run: Solution, work: float) -> Any:
    """The largest change of the energy before the first event, relative to the energy or to the
    work of single forces; None if the event is too early."""
    end = run.events.t[0] if len(run.events) else np.inf
    energy = run.energy[run.t < end]
    if len(energy) < 4:
        return None
    size = max(work, float(np.max(np.abs(energy))))
    return np.max(np.abs(energy - energy[0])) / (size or 1.0)


def _check_batch(findings: Findings, problem: Problem, integrator: IntegratorLike) -> None:
    """(3), with slower and faster starts where the constraints allow them."""
    model, point = problem.model().begin(
        problem.q0, jnp.zeros_like(problem.v0), jnp.asarray(problem.t0), problem.params
    )
    free = not np.any(np.asarray(model.psi(point, problem.params)))
    factors = np.linspace(0.9, 1.1, BATCH) if free else np.ones(BATCH)
    starts = factors[:, None] * np.asarray(problem.v0)
    step = (problem.t_end - problem.t0) / STEPS
    t_end = problem.t0 + SHORT * step
    with warnings.catch_warnings(), findings.during("a batch"):
        warnings.simplefilter("ignore")
        batch = sweep(problem, integrator, step=step, t_end=t_end, v0=starts)
        for k in range(0, BATCH, 3):
            single = _short(problem, integrator, v0=starts[k])
            for name in ("q", "v"):
                found = relative(getattr(batch, name)[k], getattr(single, name))
                findings.at_most(f"{name} in a batch and alone, run {k}", found, ROUND_OFF)


def _check_new_value(findings: Findings, problem: Problem, integrator: IntegratorLike) -> None:
    """(4). The change is so small that the start stays valid."""
    is_float = lambda x: jnp.issubdtype(jnp.asarray(x).dtype, jnp.floating)
    nudged = lambda x: jnp.asarray(x) * (1 + 1e-12) if is_float(x) else x
    other = jax.tree.map(nudged, problem.params)
    _short(problem, integrator, params=problem.params)
    seen: list[str] = []

    def listen(event: str, duration_secs: float, **about: str | int) -> None:
        if event == TRACED:
            seen.append(str(about.get("fun_name", "a function")))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        _short(problem, integrator, params=other)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
    found = ", ".join(seen) or "nothing"
    findings.require("another value of a parameter", not seen, found, "nothing traced anew")


def _check_reference(findings: Findings, problem: Problem, reference: Exact) -> None:
    with findings.during("the run for the reference"):
        run = simulate(problem, reference.integrator, step=reference.step, check=False)
    q, v = reference.at(run.t)
    findings.at_most("q against the reference", relative(run.q, q), reference.tolerance)
    findings.at_most("v against the reference", relative(run.v, v), reference.tolerance)
