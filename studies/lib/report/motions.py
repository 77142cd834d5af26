"""Runs as the player of the report shows them: polylines, curves and events, as small as they can
be.

Numbers are 32-bit floats, compressed and written as text: the screen cannot show more digits. What
is said about an event is text made here, from all digits.
"""

import base64
import gzip
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import nsdyn
from nsdyn import integrators, laws, problems
from nsdyn._repr import format_object
from nsdyn.errors import ProblemError
from nsdyn.results.drawing import Drawing
from nsdyn.stepping.integrator import IntegratorLike

FRAMES = 500  # at most, and one more for each event
STEPS = 2000  # of a run
CURVES = 2  # coordinates shown beside the energy

Entry = tuple[IntegratorLike, laws.AbstractLaw]
RK4 = integrators.EventDriven(integrators.RK4())
PLASTIC = laws.PostSwitchGradient()


class Motion(NamedTuple):
    """Runs of one problem: its name, its settings, and pairs of integrator and law."""

    name: str
    settings: dict[str, Any]
    entries: tuple[Entry, ...]


TWO_LOCKS = ((RK4, laws.MuellerTransition()), (RK4, laws.ZeroVelocity()))
TWO_LAWS = ((RK4, PLASTIC), (RK4, laws.GrassmannMidGradient()))
TWO_SCHEMES = ((RK4, PLASTIC), (integrators.NSGA(), PLASTIC), (integrators.MoreauJean(), PLASTIC))
SHOWN = (
    Motion("three_r_pendulum", {}, TWO_LOCKS),
    Motion("rx130l", {}, TWO_LOCKS),
    Motion("point_on_track", {}, TWO_LAWS),
    Motion("wheel_over_pothole", {}, TWO_SCHEMES),
    Motion("compass_walker", {}, ((RK4, PLASTIC),)),
    Motion("metamorphic_palm", {}, ((RK4, PLASTIC),)),
    Motion("overbraiding", {}, ((RK4, PLASTIC),)),
    Motion("andrews", {}, ((RK4, PLASTIC),)),
)


def computed(motion: Motion) -> dict[str, Any]:
    """The runs of a motion, as the player reads them."""
    problem = problems.get(motion.name, **motion.settings)
    runs = [(_label(*entry), _run(problem, *entry)) for entry in motion.entries]
    return shown(problem, runs)


def shown(problem: nsdyn.Problem, runs: Sequence[tuple[str, nsdyn.Solution]]) -> dict[str, Any]:
    """Solutions of a problem with their labels, as the player reads them."""
    drawing = Drawing.of(problem)
    if drawing is None:
        raise ProblemError(
            f"report: problem {problem.name!r} has no shape; give it Problem(shape=shape)"
        )
    return {"title": problem.name, "runs": [_packed(problem, drawing, *run) for run in runs]}


def _label(integrator: IntegratorLike, law: laws.AbstractLaw) -> str:
    return f"{format_object(integrator)}, {format_object(law)}"


def _run(problem: nsdyn.Problem, integrator: IntegratorLike, law: laws.AbstractLaw) -> Any:
    span = problem.t_end - problem.t0
    every = STEPS // FRAMES
    return nsdyn.simulate(problem, integrator, step=span / STEPS, law=law, save_every=every)


def _packed(
    problem: nsdyn.Problem, drawing: Drawing, label: str, run: nsdyn.Solution
) -> dict[str, Any]:
    lines = drawing.polylines(run.q, run.params)
    curves = _curves(problem, run)
    numbers = [run.t - run.t[0], *(x.ravel() for x in lines), *curves.values()]
    return {
        "label": label,
        "frames": len(run.t),
        "lines": [list(x.shape[1:]) for x in lines],
        "series": list(curves),
        "events": [_told(event, run.t[0]) for event in run.events],
        "data": _text(np.concatenate(numbers)),
    }


def _curves(problem: nsdyn.Problem, run: nsdyn.Solution) -> dict[str, np.ndarray]:
    """The energy, and the coordinates that move most."""
    names = problem.coordinates or tuple(f"q[{i}]" for i in range(run.q.shape[1]))
    most = np.argsort(-np.ptp(run.q, axis=0), kind="stable")[:CURVES]
    return {"energy [J]": run.energy} | {names[i]: run.q[:, i] for i in sorted(most)}


def _told(event: Any, start: float) -> dict[str, Any]:
    said = lambda values: ", ".join(f"{x:.5g}" for x in np.ravel(values))
    modes = [",".join(str(k) for k in np.ravel(x)) for x in (event.mode_before, event.mode_after)]
    return {
        "t": float(event.t - start),
        "mode": " to ".join(modes),
        "before": said(event.v_before),
        "after": said(event.v_after),
        "impulse": said(event.Lam),
        "energy": f"{event.kinetic_before:.6g} to {event.kinetic_after:.6g} J",
    }


def _text(numbers: np.ndarray) -> str:
    raw = np.ascontiguousarray(numbers, "<f4").tobytes()
    return base64.b64encode(gzip.compress(raw, 9, mtime=0)).decode()
