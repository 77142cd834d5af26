"""One problem with one integrator over a few steps."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nsdyn._types import Params
from nsdyn.analysis.residuals import points_of, residuals
from nsdyn.driver import arguments
from nsdyn.driver.single_run import simulate
from nsdyn.errors import ProblemError
from nsdyn.laws.base import AbstractLaw
from nsdyn.laws.post_switch import PostSwitchGradient
from nsdyn.mechanics.model import Model, Point
from nsdyn.problem import Problem
from nsdyn.results.solution import Solution
from nsdyn.stepping.integrator import IntegratorLike, as_integrator
from nsdyn.testing.findings import Findings

STEPS = 1000  # of the whole time span; a few of them are made
RESIDUAL = 1e-8  # of constraints, in units of their rows and of the motion


def refusal(
    problem: Problem, integrator: IntegratorLike, law: AbstractLaw | None = None
) -> str | None:
    """Why a problem, an integrator and a law do not go together; None if they do."""
    if as_integrator(integrator) is None:
        raise ProblemError(f"integrator: expected one that runs by itself, found {integrator!r}")
    return arguments.refusal(problem, integrator, PostSwitchGradient() if law is None else law)


def check_run(
    problem: Problem,
    integrator: IntegratorLike,
    law: AbstractLaw | None = None,
    steps: int = 4,
) -> Findings:
    """A few steps of a thousandth of the time span: they are made, stay finite, move the mechanism
    and, if the integrator promises so, keep it on its constraints.

    Ask `refusal` first: a pair that cannot work fails here.
    """
    driven = as_integrator(integrator)
    findings = Findings(f"{problem.name} with {driven!r}")
    step = (problem.t_end - problem.t0) / STEPS
    with findings.during("run"):
        t_end = problem.t0 + steps * step
        run = simulate(problem, integrator, step=step, law=law, t_end=t_end)
    finite = all(np.all(np.isfinite(x)) for x in (run.q, run.v, run.lam, run.energy))
    findings.require("q, v, lam, energy", finite, "numbers", "finite numbers")
    findings.require("samples", len(run.t) == steps + 1, f"{len(run.t)}", f"{steps + 1}")
    moved = np.any(run.q[-1] != run.q[0]) or np.any(run.v[-1] != run.v[0])
    findings.require("motion", bool(moved), "it moves", "q or v that change")
    if driven is not None and driven.holds_position:
        findings.at_most("|g|", relative_residuals(problem, run)[0], RESIDUAL)
    return findings


def relative_residuals(problem: Problem, run: Solution) -> tuple[np.ndarray, np.ndarray]:
    """Residuals at position and velocity level that do not depend on units: g and G v + g_t over
    the lengths of their rows and the sizes of q and v."""
    left = residuals(problem, run)
    rows = np.asarray(_row_lengths(problem.model(), points_of(problem, run), problem.params))
    rows = np.where(rows > 0, rows, 1.0)
    span = problem.t_end - problem.t0
    q, v = (float(np.max(np.abs(x), initial=0.0)) for x in (run.q, run.v))
    length = max(q, v * span) or 1.0
    return left.position / (rows * length), left.velocity / (rows * max(v, length / span))


@eqx.filter_jit
def _row_lengths(model: Model, points: Point, p: Params) -> Any:
    return jax.vmap(lambda point: jnp.linalg.norm(model.jacobian(point, p), axis=1))(points)
