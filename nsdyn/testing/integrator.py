"""The suite for integrators, on the mechanisms of `nsdyn.testing.mechanisms`: orders against known
motions, constraints held, events found wherever in a step they fall, batches, derivatives."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nsdyn._types import Number
from nsdyn.analysis.residuals import residuals
from nsdyn.driver.many_runs import sweep
from nsdyn.driver.pure_run import rollout
from nsdyn.driver.single_run import simulate
from nsdyn.laws.base import AbstractLaw
from nsdyn.laws.post_switch import PostSwitchGradient
from nsdyn.laws.restitution import Restitution
from nsdyn.problem import Problem
from nsdyn.results.solution import Solution
from nsdyn.stepping.event_driven import EventDriven
from nsdyn.stepping.integrator import AbstractIntegrator, IntegratorLike, as_integrator
from nsdyn.testing import mechanisms
from nsdyn.testing.findings import ConformanceError, Findings, relative
from nsdyn.testing.run import refusal

STEPS = (0.01, 0.005)  # for orders
SKATE_STEPS = (0.025, 0.0125)  # it turns by 2 rad/s: longer steps miss the minimal form's change
STEP = 2e-3  # for events
EXACT_ENOUGH = 1e-9  # an error so small says nothing about orders
MISSED = 0.12  # of an order
HELD = 1e-10  # residuals of constraints that an integrator promises to hold
LOCATED = 1e-10  # the time of an event that is located within its step
SAME = 1e-9  # a batch and its single runs, relative
PHASES = 8  # places of the corner within a step
DERIVATIVES = 1e-5  # relative, against differences
BOUNCE = 0.5


def check_integrator(
    integrator: IntegratorLike,
    *,
    order: float | None = None,
    order_lam: float | None = None,
    jumps: bool = True,
    derivatives: bool = True,
    error: float = 1e-6,
) -> Findings:
    """Verify an integrator.

    order: its order in q and v on smooth motions, and in lam unless `order_lam` says otherwise;
        None: 1.
    error: in place of orders, the largest error of an integrator that chooses its steps itself.
    jumps: whether it lets the impulse law decide about velocities. Classical schemes do not.
    derivatives: whether to verify them too; to compile them takes half a minute.
    """
    driven = as_integrator(integrator)
    if driven is None:
        raise ConformanceError(
            f"{integrator!r}: expected an integrator that runs by itself, found none; wrap a "
            "smooth method in EventDriven"
        )
    findings = Findings(repr(driven))
    first = 1.0 if order is None else order
    bound = error if driven.controls_error else None
    _check_orders(findings, driven, first, first if order_lam is None else order_lam, bound)
    _check_corner(findings, driven, jumps)
    _check_locks(findings, driven, jumps)
    _check_ball(findings, driven)
    _check_skate(findings, driven, first, bound)
    if derivatives:
        _check_derivatives(findings, driven)
    return findings


def _run(
    findings: Findings,
    problem: Problem,
    integrator: AbstractIntegrator,
    step: float,
    law: AbstractLaw | None = None,
) -> Solution | None:
    """A run; None, and a note, if the integrator declares that it cannot do it."""
    if (reason := refusal(problem, integrator, law)) is not None:
        findings.skip(problem.name, reason)
        return None
    with findings.during(problem.name):
        return simulate(problem, integrator, step=step, law=law, check=False)


def _check_orders(
    findings: Findings,
    integrator: AbstractIntegrator,
    order: float,
    order_lam: float,
    bound: float | None,
) -> None:
    problem = mechanisms.swing()
    found = [_run(findings, problem, integrator, step) for step in STEPS]
    runs = [run for run in found if run is not None]
    if len(runs) < len(STEPS):
        return
    errors: dict[str, list[float]] = {"q": [], "v": [], "lam": []}
    for run in runs:
        exact = mechanisms.swing_motion(run.t)
        for name in errors:
            errors[name].append(np.abs(getattr(run, name) - getattr(exact, name)).max())
    for name, (coarse, fine) in errors.items():
        wanted = order_lam if name == "lam" else order
        _check_order(findings, f"swing: {name}", coarse, fine, wanted, bound)
    if integrator.holds_position:
        findings.at_most("swing: |g|", residuals(problem, runs[1]).position, HELD)


def _check_order(
    findings: Findings, what: str, coarse: float, fine: float, order: float, bound: float | None
) -> None:
    """The order that two errors show; where steps are chosen by error control they show none, and
    must be below a bound."""
    if bound is not None:
        findings.at_most(f"{what}, error", max(coarse, fine), bound)
        return
    if coarse <= EXACT_ENOUGH:
        findings.at_most(f"{what}, error", coarse, EXACT_ENOUGH)
        return
    found = float(np.log2(coarse / fine))
    text = f"{found:.3g}, from errors {coarse:.3g} and {fine:.3g}"
    wanted = f"at least {order - MISSED:g}"
    findings.require(f"{what}, order", found >= order - MISSED, text, wanted)


def _check_corner(findings: Findings, integrator: AbstractIntegrator, jumps: bool) -> None:
    """The corner at all places of a step, also on the grid; in a batch, and one of them alone."""
    problem = mechanisms.corner()
    law = PostSwitchGradient()
    if (reason := refusal(problem, integrator, law)) is not None:
        findings.skip(problem.name, reason)
        return
    l = 0.5 + mechanisms.SPEED * STEP * np.arange(PHASES) / PHASES
    params = {**problem.params, "l": jnp.asarray(l)}
    with findings.during("corner"):
        batch = sweep(problem, integrator, step=STEP, law=law, params=params)
        single = simulate(
            problem, integrator, step=STEP, law=law, params={**problem.params, "l": l[3]}
        )
    findings.require("corner: runs", bool(batch.ok.all()), f"{batch.status}", "status 0")
    counts = np.asarray(batch.events.count)
    findings.require("corner: events", bool((counts == 1).all()), f"{counts}", "one in each run")
    found = {name: relative(getattr(batch, name)[3], getattr(single, name)) for name in "qv"}
    findings.at_most("corner: in a batch and alone", max(found.values()), SAME)
    t, q, _ = mechanisms.corner_end(l, problem.t_end)
    late = np.abs(batch.events.t[:, 0] - t)
    located = isinstance(integrator, EventDriven)
    findings.at_most("corner: time of the event", late, LOCATED if located else 1.001 * STEP)
    if integrator.holds_position:
        left = batch.q[:, -1, 1] - mechanisms.SLOPE * (batch.q[:, -1, 0] - l)
        findings.at_most("corner: |g| on the ramp", left, HELD)
    if jumps:
        _check_jump(findings, batch)
        findings.at_most("corner: q at the end", batch.q[:, -1] - q, 3 * STEP * mechanisms.SPEED)


def _check_jump(findings: Findings, batch: Solution) -> None:
    """The law takes what moves along the normal of the ramp, and nothing else."""
    before, after = batch.events.v_before[:, 0], batch.events.v_after[:, 0]
    normal = np.array([-mechanisms.SLOPE, 1.0]) / np.hypot(mechanisms.SLOPE, 1.0)
    expected = before - (before @ normal)[:, None] * normal
    findings.at_most("corner: jump of the law", relative(after, expected), HELD)


def _check_locks(findings: Findings, integrator: AbstractIntegrator, jumps: bool) -> None:
    """Locked coordinates stay where they are; free momenta do not jump."""
    problem = mechanisms.locks()
    run = _run(findings, problem, integrator, STEP)
    if run is None:
        return
    count = len(run.events)
    findings.require("locks: events", count == 2, f"{count}", "2")
    findings.at_most("locks: times", run.events.t - mechanisms.LOCKED, 1.001 * STEP)
    held = run.t > mechanisms.LOCKED[1] + STEP
    if integrator.holds_position:
        findings.at_most("locks: motion while locked", np.ptp(run.q[held, 1:], axis=0), HELD)
    if not jumps:
        return
    q, v = mechanisms.locks_end()
    near = STEP**2 * 50 if isinstance(integrator, EventDriven) else 2 * STEP
    findings.at_most("locks: q at the end", relative(run.q[-1], q), near)
    findings.at_most("locks: v at the end", relative(run.v[-1], v), near)
    for event, free in zip(run.events, ([0, 2], [0]), strict=True):
        M = np.asarray(mechanisms.coupled_mass(event.q, None))
        change = M @ (event.v_after - event.v_before)
        findings.at_most("locks: free momenta", change[free] / np.abs(change).max(), HELD)


def _check_ball(findings: Findings, integrator: AbstractIntegrator) -> None:
    """It bounces and comes to rest."""
    problem = mechanisms.ball()
    run = _run(findings, problem, integrator, STEP, Restitution(BOUNCE))
    if run is None:
        return
    first = np.sqrt(2 / mechanisms.GRAVITY)
    count = len(run.events)
    findings.require("ball: bounces", count >= 4, f"{count}", "at least 4")
    exact = first * np.array([1.0, 2.0, 2.5])
    findings.at_most("ball: times of bounces", run.events.t[:3] - exact, 5 * STEP)
    speeds = mechanisms.GRAVITY * first * BOUNCE ** np.arange(1, 4)
    findings.at_most("ball: speeds", run.events.v_after[:3, 0] / speeds - 1, 0.05)
    findings.at_most("ball: below the floor", np.minimum(run.q, 0.0), HELD)
    findings.at_most("ball: at rest in the end", run.q[-1], HELD)
    findings.at_most("ball: force", run.lam[-1] + mechanisms.GRAVITY, 1e-8)
    _check_pulled(findings, problem, integrator)


def _check_pulled(findings: Findings, problem: Problem, integrator: AbstractIntegrator) -> None:
    """A contact that closes while a force pulls it open opens again: x = 0.1 - t + t^2/2."""
    start: dict[str, Any] = {"params": {"g": -1.0}, "q0": [0.1], "v0": [-1.0]}
    law = Restitution(0.0)
    with findings.during("ball, pulled"):
        run = simulate(problem, integrator, step=STEP, law=law, check=False, **start)
    touches = 1 - np.sqrt(0.8)
    count = len(run.events)
    findings.require("ball, pulled: events", count == 2, f"{count}", "it closes and opens")
    findings.at_most("ball, pulled: times", run.events.t - touches, 2.5 * STEP)
    findings.at_most("ball, pulled: v", run.v[-1] - (problem.t_end - touches), 2.5 * STEP)


def _check_skate(
    findings: Findings, integrator: AbstractIntegrator, order: float, bound: float | None
) -> None:
    problem = mechanisms.skate()
    errors = []
    for step in SKATE_STEPS:
        run = _run(findings, problem, integrator, step)
        if run is None:
            return
        errors.append(np.abs(run.q - mechanisms.skate_motion(run.t)).max())
        if integrator.holds_position:
            slip = residuals(problem, run).velocity
            findings.at_most("skate: velocity sideways", slip, HELD)
    _check_order(findings, "skate: q", errors[0], errors[1], order, bound)


def _check_derivatives(findings: Findings, integrator: AbstractIntegrator) -> None:
    """With respect to the place of the corner: forward, reverse, and by differences."""
    problem = mechanisms.corner()
    if refusal(problem, integrator) is not None:
        return
    l = 0.5 + 0.37 * mechanisms.SPEED * STEP

    def end(l: Number) -> Any:
        params = {**problem.params, "l": l}
        return rollout(problem, integrator, step=STEP, t_end=0.2, params=params).q[-1]

    def plain(l: float) -> np.ndarray:
        params = {**problem.params, "l": l}
        return simulate(problem, integrator, step=STEP, t_end=0.2, params=params).q[-1]

    nudge = 1e-6
    expected = (plain(l + nudge) - plain(l - nudge)) / (2 * nudge)
    forward = np.asarray(jax.jit(jax.jacfwd(end))(l))
    findings.at_most("derivative forward", relative(forward, expected), DERIVATIVES)
    reverse = np.asarray(jax.jit(jax.grad(lambda l: jnp.sum(end(l))))(l))
    findings.at_most("derivative in reverse", relative(reverse, np.sum(expected)), DERIVATIVES)
