"""One coarse run with the real driver, whose events show where a mechanism changes its mode.

The explicit midpoint rule

    y_1 = y_0 + h F(t_0 + h/2, y_0 + h/2 F(t_0, y_0)),     y = (q, v)                          (1)

is accurate enough for that: events are located and the drift of the constraints is removed as in
any other run. Constraints that do not meet do not stop it, so that their event is on record.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import numpy as np

from nsdyn._types import Number, Params, Velocity
from nsdyn.checks.report import Report
from nsdyn.checks.sample import STEPS
from nsdyn.mechanics.formulations import Slope, lagrange
from nsdyn.mechanics.model import Model, Point
from nsdyn.problem import Problem
from nsdyn.results.solution import Solution
from nsdyn.status import MESSAGES, Status
from nsdyn.stepping.event_driven import EventDriven
from nsdyn.stepping.integrator import AbstractSmoothMethod
from nsdyn.tolerances import Tolerances

SAVE_EVERY = 10
MAX_EVENTS = 64
NEVER = 1e100  # a tolerance that no residual exceeds; finite, because it is multiplied by zero
WRONG_PROBLEM = (Status.GUARD_NEGATIVE, Status.NO_MODE, Status.DO_NOT_MEET)
"""What no smaller step and no other law would change."""


class Midpoint(AbstractSmoothMethod):
    def init(self, model: Model, point: Point, p: Params) -> tuple[Point, Slope]:
        return point, lagrange(model, point, p)

    def step(
        self,
        model: Model,
        point: Point,
        memory: Any,
        h: Number,
        p: Params,
        finish: Callable | None = None,
    ) -> tuple[Point, Any]:
        half = self._moved(model, point, point, memory.a, h / 2, p)
        a = lagrange(model, half, p).a
        end = self._moved(model, point, half, a, h, p)  # (1)
        return self.init(model, end if finish is None else finish(end), p)

    def _moved(
        self, model: Model, point: Point, slope_at: Point, a: Velocity, h: Number, p: Params
    ) -> Point:
        q = point.q + h * model.qdot(slope_at, p)
        return point.replace(t=point.t + h, q=q, v=point.v + h * a)


def coarse_run(report: Report, problem: Problem, rollout: Callable) -> Any:
    """What `rollout` returns, in numpy; the report tells how far it came."""
    run = jax.tree.map(np.asarray, _run(rollout, problem))
    status = Status(int(run.status))
    count = int(run.events.count)
    events = f"{count} event{'' if count == 1 else 's'}"
    if status is Status.OK:
        report.add("coarse run", f"{STEPS} steps to t = {problem.t_end:g}, {events}")
        return run
    report.add(
        "coarse run",
        f"{events}; not verified beyond t = {run.t_stop:.6g}, where it stopped in mode "
        f"{run.mode_stop.tolist()} ({status.name}): {MESSAGES[status]}",
        "warning" if status in WRONG_PROBLEM else "note",
    )
    return run


@eqx.filter_jit
def _run(rollout: Callable, problem: Problem) -> Solution:
    return rollout(
        problem,
        EventDriven(Midpoint()),
        step=(problem.t_end - problem.t0) / STEPS,
        save_every=SAVE_EVERY,
        max_events=MAX_EVENTS,
        tolerances=Tolerances(meet=NEVER),
    )
