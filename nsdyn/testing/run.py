"""One problem with one integrator over a few steps."""

import numpy as np

from nsdyn.analysis.residuals import residuals
from nsdyn.driver.single_run import simulate
from nsdyn.errors import ProblemError
from nsdyn.laws.base import AbstractLaw
from nsdyn.laws.post_switch import PostSwitchGradient
from nsdyn.problem import Problem
from nsdyn.stepping.integrator import IntegratorLike, as_integrator
from nsdyn.testing.findings import Findings

STEPS = 1000  # of the whole time span; a few of them are made
RESIDUAL = 1e-8  # of constraints, relative to the sizes of q and v


def refusal(
    problem: Problem, integrator: IntegratorLike, law: AbstractLaw | None = None
) -> str | None:
    """Why a problem, an integrator and a law do not go together; None if they do."""
    driven = as_integrator(integrator)
    if driven is None:
        raise ProblemError(f"integrator: expected one that runs by itself, found {integrator!r}")
    return driven.incompatibility(PostSwitchGradient() if law is None else law, problem.constraint)


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
        size = 1.0 + float(np.max(np.abs(run.q), initial=0.0))
        findings.at_most("|g|", residuals(problem, run).position / size, RESIDUAL)
    return findings
