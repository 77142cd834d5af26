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


class Film(NamedTuple):
    """A run to be shown: samples over time, and what is known of its events, in words."""

    label: str
    t: np.ndarray
    q: np.ndarray
    params: Any
    energy: np.ndarray | None
    events: list[dict[str, Any]]


TWO_LOCKS = ((RK4, laws.MuellerTransition()), (RK4, laws.ZeroVelocity()))
CORNER = ((RK4, PLASTIC), (RK4, laws.GrassmannMidGradient()), (integrators.NSGA(), PLASTIC))
TWO_SCHEMES = ((RK4, PLASTIC), (integrators.NSGA(), PLASTIC), (integrators.MoreauJean(), PLASTIC))
SHOWN = (
    Motion("three_r_pendulum", {}, TWO_LOCKS),
    Motion("rx130l", {}, TWO_LOCKS),
    Motion("point_on_track", {}, CORNER),
    Motion("wheel_over_pothole", {}, TWO_SCHEMES),
    Motion("compass_walker", {}, ((RK4, PLASTIC),)),
    Motion("metamorphic_palm", {}, ((RK4, PLASTIC),)),
    Motion("overbraiding", {}, ((RK4, PLASTIC),)),
    Motion("andrews", {}, ((RK4, PLASTIC),)),
)


def beside(archived: Sequence[dict[str, Any]]) -> list[Motion]:
    """The motions to be computed: those of which no archived one shows the events, and those that
    compare integrators, which archived ones may not."""
    have = {x["problem"] for x in archived if any(run["events"] for run in x["runs"])}
    schemes = lambda motion: len({format_object(integrator) for integrator, _ in motion.entries})
    return [motion for motion in SHOWN if motion.name not in have or schemes(motion) > 1]


def computed(motion: Motion) -> dict[str, Any]:
    """The runs of a motion, as the player reads them."""
    problem = problems.get(motion.name, **motion.settings)
    runs = [(_label(*entry), _run(problem, *entry)) for entry in motion.entries]
    return shown(problem, runs)


def shown(problem: nsdyn.Problem, runs: Sequence[tuple[str, nsdyn.Solution]]) -> dict[str, Any]:
    """Solutions of a problem with their labels, as the player reads them."""
    return packed(problem, problem.name, [_film(label, run) for label, run in runs])


def packed(problem: nsdyn.Problem, title: str, films: Sequence[Film]) -> dict[str, Any]:
    """Runs of a problem, as the player reads them. All have the same curves: the energy where it is
    known, and the coordinates that move most."""
    drawing = Drawing.of(problem)
    if drawing is None:
        raise ProblemError(
            f"report: problem {problem.name!r} has no shape; give it Problem(shape=shape)"
        )
    moves = np.max([np.ptp(film.q, axis=0) for film in films], axis=0)
    most = sorted(np.argsort(-moves, kind="stable")[:CURVES])
    names = problem.coordinates or tuple(f"q[{i}]" for i in range(len(moves)))
    has_energy = all(film.energy is not None for film in films)
    runs = []
    for film in films:
        curves = {"energy [J]": film.energy} if has_energy else {}
        curves |= {names[i]: film.q[:, i] for i in most}
        runs.append(_packed(drawing, film, curves))
    return {"title": title, "problem": problem.name, "runs": runs}


def _label(integrator: IntegratorLike, law: laws.AbstractLaw) -> str:
    return f"{format_object(integrator)}, {format_object(law)}"


def _run(problem: nsdyn.Problem, integrator: IntegratorLike, law: laws.AbstractLaw) -> Any:
    span = problem.t_end - problem.t0
    every = STEPS // FRAMES
    return nsdyn.simulate(problem, integrator, step=span / STEPS, law=law, save_every=every)


def _film(label: str, run: nsdyn.Solution) -> Film:
    events = [_told(event) for event in run.events]
    return Film(label, run.t, run.q, run.params, run.energy, events)


def _packed(drawing: Drawing, film: Film, curves: dict[str, Any]) -> dict[str, Any]:
    lines = drawing.polylines(film.q, film.params)
    start = float(film.t[0])
    numbers = [film.t - start, *(x.ravel() for x in lines), *curves.values()]
    return {
        "label": film.label,
        "frames": len(film.t),
        "lines": [list(x.shape[1:]) for x in lines],
        "series": list(curves),
        "events": [event | {"t": event["t"] - start} for event in film.events],
        "data": _text(np.concatenate(numbers)),
    }


def _told(event: Any) -> dict[str, Any]:
    modes = [",".join(str(k) for k in np.ravel(x)) for x in (event.mode_before, event.mode_after)]
    return {
        "t": float(event.t),
        "mode": " to ".join(modes),
        "before": numbers_text(event.v_before),
        "after": numbers_text(event.v_after),
        "impulse": numbers_text(event.Lam),
        "energy": f"T {event.kinetic_before:.6g} to {event.kinetic_after:.6g} J",
    }


def numbers_text(values: Any) -> str:
    return ", ".join(f"{x:.5g}" for x in np.ravel(values))


def _text(numbers: np.ndarray) -> str:
    raw = np.ascontiguousarray(numbers, "<f4").tobytes()
    return base64.b64encode(gzip.compress(raw, 9, mtime=0)).decode()
