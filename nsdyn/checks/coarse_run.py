"""A coarse run with the real driver: its events show where the mode of a mechanism changes.

The explicit midpoint rule

    y_1 = y_0 + h F(t_0 + h/2, y_0 + h/2 F(t_0, y_0)),     y = (q, v)                          (1)

is accurate enough for this: events are located and constraint drift is removed as in any other run.
Constraints that do not meet do not stop it, so their event is recorded.
"""

from collections.abc import Callable

from nsdyn._types import Number, Params, Velocity
from nsdyn.checks.report import Report
from nsdyn.checks.sample import STEPS
from nsdyn.mechanics.formulations import Slope, lagrange
from nsdyn.mechanics.model import Model, Point
from nsdyn.problem import Problem
from nsdyn.results.events import counted
from nsdyn.results.solution import Solution
from nsdyn.status import MESSAGES, Status
from nsdyn.stepping.event_driven import EventDriven
from nsdyn.stepping.integrator import AbstractSmoothMethod
from nsdyn.tolerances import Tolerances

SAVE_EVERY = 10
MAX_EVENTS = 64
NEVER = 1e100  # a tolerance that no residual exceeds; finite, as it may be multiplied by zero
# Failures that neither a smaller step nor another law would prevent.
WRONG_PROBLEM = (Status.GUARD_NEGATIVE, Status.NO_MODE, Status.DO_NOT_MEET)


class Midpoint(AbstractSmoothMethod):
    def init(self, model: Model, point: Point, p: Params) -> tuple[Point, Slope]:
        return point, lagrange(model, point, p)

    def step(
        self,
        model: Model,
        point: Point,
        memory: Slope,
        h: Number,
        p: Params,
        finish: Callable | None = None,
    ) -> tuple[Point, Slope]:
        half = self._moved(model, point, point, memory.a, h / 2, p)
        a = lagrange(model, half, p).a
        end = self._moved(model, point, half, a, h, p)  # (1)
        return self.init(model, end if finish is None else finish(end), p)

    def _moved(
        self, model: Model, point: Point, slope_at: Point, a: Velocity, h: Number, p: Params
    ) -> Point:
        q = point.q + h * model.qdot(slope_at, p)
        return point.replace(t=point.t + h, q=q, v=point.v + h * a)


def coarse_run(report: Report, problem: Problem, attempt: Callable) -> Solution:
    """The run; adds a line to the report about how far it got."""
    run = attempt(
        problem,
        EventDriven(Midpoint()),
        step=(problem.t_end - problem.t0) / STEPS,
        save_every=SAVE_EVERY,
        max_events=MAX_EVENTS,
        tolerances=Tolerances(meet=NEVER),
    )
    status = Status(int(run.status))
    events = counted(run.events)
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
