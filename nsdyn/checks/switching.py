"""The conditions of mode changes, verified at the points where the mode changes.

At a point where the guard z of mode i falls through zero, g_i(q) = 0 and z(q) = 0, with gradients G
and Z,

    the new mode j continues:            g_j = 0                                               (1)
    z crosses zero along the motion:     rank [G_i; Z_i] = rank G_i + 1                        (2)
    and does not stay there:             rank [G_j; Z_j] = rank G_j + 1                        (3)

(Patil and Bruls). If (3) fails, z is the constraint of the new mode itself: a capture, which must
latch. (2) and (3) apply to guards that depend on q, and perhaps t, only. Rows that depend on time
are rows over (dx, V dt).

Points are found in two ways. Every event of a coarse run must satisfy the conditions. For guards
that do not fire in it, points are searched by Gauss-Newton from several starts; a motion may never
reach such a point, so it suffices if one of them satisfies (1).

Where z is tangent to the constraint, g = z = 0 has a double root, accurate only to the square root
of round-off; `rank.DEPENDENT`, the bound on the sine of the angle between Z and the rows, is well
above that.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np

from nsdyn._expect import listed
from nsdyn._types import AnyMode, Params
from nsdyn.checks.coarse_run import coarse_run
from nsdyn.checks.report import Report
from nsdyn.checks.sample import Guards, Sample, guards, nearest_root, sample
from nsdyn.errors import ProblemError
from nsdyn.mechanics.model import Model, Point, split
from nsdyn.numerics import rank
from nsdyn.problem import Problem
from nsdyn.results.solution import Solution

SEARCHED = 16  # largest number of modes searched for each constraint
STEPS_AWAY = (0.02, -0.02, 0.2, -0.2, 1.0, -1.0)  # of starts, relative to the extent
DIRECTIONS = 3  # largest number of free directions for starts
SAME_POINT = 1e-5  # distance of equal points, relative to the extent
SAME_TIME = 1e-9  # relative to t_end - t0
SHIFTS = (0.0, 0.1, -0.2)  # relative to the extent: probes of what a guard depends on


class Guard(NamedTuple):
    """Guard number n of the model, which is number i of part k."""

    n: int
    k: int
    i: int


@dataclasses.dataclass
class Places:
    """Samples, guards and mode changes of a model at points."""

    model: Model
    start: Point
    p: Params
    t_end: float

    def __post_init__(self) -> None:
        meet = self.model.tolerances.meet
        self.here = self.sample(self.start)
        self.meet = float(meet)
        self.scale = eqx.tree_at(lambda x: x.touch, self.model.scale, meet)

    def sample(self, point: Point) -> Sample:
        return sample(self.model, point, self.p)

    def guards(self, point: Point, more_lam: float = 0.0) -> Guards:
        return guards(self.model, point, self.p, more_lam)

    def mode(self, point: Point, k: int) -> np.ndarray:
        """The mode of part k."""
        return np.asarray(self.model.split_mode(point.mode)[k])

    def entered(self, point: Point, mode: AnyMode) -> Point:
        """The point in another mode; constraints that change refresh their held values."""
        old = self.model.split_mode(point.mode)
        new = self.model.split_mode(mode)
        held = list(point.held)
        for k, part in enumerate(self.model.parts):
            if np.any(old[k] != new[k]):
                held[k] = part.hold(point.q, point.t, self.p)
        return point.replace(mode=mode, held=tuple(held))

    def with_mode(self, point: Point, k: int, mode: AnyMode) -> Point:
        """The point with part k in another mode."""
        modes = list(map(jnp.asarray, self.model.split_mode(point.mode)))
        modes[k] = jnp.asarray(mode)
        return self.entered(point, np.asarray(self.model.join_modes(modes)))

    def guards_of(self, k: int) -> list[Guard]:
        numbers = split(range(self.model.k), self.model.guard_counts)[k]
        return [Guard(n, k, i) for i, n in enumerate(numbers)]

    def vanishing(self, point: Point, k: int) -> list[Guard]:
        """The guards of part k that are zero here and depend on q but not on v or lam."""
        at = self.guards(point)
        zero = np.abs(at.value) <= self.meet * at.sizes(self.sample(point))
        wanted = zero & at.read_q & ~at.read_motion
        return [guard for guard in self.guards_of(k) if wanted[guard.n]]

    def sine(self, point: Point, guard: Guard) -> float:
        """The sine of the angle between the gradient of a guard and the live rows."""
        s = self.sample(point)
        rows = s.rows_over_time[s.live]
        Z = self.guards(point).slope(guard.n, s)
        finite = np.all(np.isfinite(rows)) and np.all(np.isfinite(Z))
        return rank.sine(Z, rows, s.M) if finite else np.nan

    def miss(self, point: Point, k: int) -> str | None:
        """None if part k holds here (1), else the reason."""
        s = self.sample(point)
        rows = split(np.arange(self.model.m), self.model.row_counts)[k]
        g = np.where(s.live[rows], s.g[rows], 0.0)
        over = np.abs(g) / (self.meet * s.length * s.row_sizes(s.G[rows]))
        if np.max(over, initial=0.0) <= 1:
            return None
        worst = int(np.argmax(over))
        part = self.model.parts[k]
        mode = self.mode(point, k)
        name = part.row_names(point.q, point.t, self.p, mode, len(rows))[worst]
        return (
            f"{part.mode_name(mode)} does not hold there: its row {name} is {g[worst]:.6g}, "
            "expected 0"
        )

    # Names.

    def owner(self, k: int) -> str:
        return f"constraint[{k}] " if len(self.model.parts) > 1 else ""

    def mode_name(self, point: Point, k: int) -> str:
        return self.model.parts[k].mode_name(self.mode(point, k))

    def where(self, point: Point, k: int) -> str:
        name = f"{self.owner(k)}{self.mode_name(point, k)}"
        return f"at the switching point q = {listed(point.q)} of {name}"


def check_mode_changes(
    report: Report, problem: Problem, model: Model, start: Point, attempt: Callable
) -> None:
    """Verify (1) to (3) in a coarse run, and for guards of modes that it does not leave."""
    if model.k == 0:
        report.add("mode changes", "none: there are no guards")
        return
    if model.has_contacts:
        text = "not verified: contacts are resolved by the integrator of a run, which none is here"
        report.add("mode changes", text, "note")
        return
    places = Places(model, start, problem.params, problem.t_end)
    crossed: set = set()
    after = [start]
    for before, point in _events(coarse_run(report, problem, attempt), start, places):
        crossed |= _check_event(report, places, before, point)
        after.append(point)
    for k in range(len(model.parts)):
        _search_part(report, places, k, crossed, after)


def _events(run: Solution, start: Point, places: Places) -> Iterator[tuple[Point, Point]]:
    """The points before and after each event of a run."""
    point = start
    events = run.events
    for e in range(int(events.count)):
        arrived = point.replace(t=events.t[e], q=events.q[e], v=events.v_before[e])
        before = arrived.replace(mode=events.mode_before[e])
        point = places.entered(before, events.mode_after[e]).replace(v=events.v_after[e])
        yield before, point


def _key(places: Places, guard: Guard, point: Point) -> tuple:
    """Identifies a guard in a mode of its part."""
    return (guard.n, *np.ravel(places.mode(point, guard.k)).tolist())


def _check_event(report: Report, places: Places, before: Point, after: Point) -> set:
    """Verify one event; returns the keys of the guards that crossed zero."""
    crossed = set()
    for k in range(len(places.model.parts)):
        if np.all(places.mode(before, k) == places.mode(after, k)):
            continue
        miss = places.miss(after, k)
        if miss is not None:
            raise _does_not_continue(places, before, k, miss)
        fired = places.vanishing(before, k)
        for guard in fired:
            _check_crossing(report, places, guard, before, after)
            crossed.add(_key(places, guard, before))
        what = f"{places.owner(k)}mode change {_from_to(places, before, after, k)}"
        if not fired and not report.has(what):
            report.add(what, f"at t = {float(before.t):.6g}: the new rows hold")
    return crossed


def _from_to(places: Places, before: Point, after: Point, k: int) -> str:
    return f"from {places.mode_name(before, k)} to {places.mode_name(after, k)}"


def _does_not_continue(places: Places, point: Point, k: int, miss: str) -> ProblemError:
    part = places.model.parts[k]
    return ProblemError(
        f"{type(part).__name__}{part.rows_argument}: expected that another mode continues "
        f"{places.where(point, k)}, found that {miss}. Constraints that replace each other must "
        "both hold where the mode changes"
    )  # (1)


def _check_crossing(
    report: Report, places: Places, guard: Guard, before: Point, after: Point | None
) -> None:
    """Verify (2), and (3) where the point after is known."""
    k = guard.k
    name = places.model.parts[k].guard_name(guard.i)
    leaving = places.sine(before, guard)
    staying = [] if after is None else _sines(places, after, k)
    sines = [leaving, *staying]
    what = f"{places.owner(k)}{name} crosses zero in {places.mode_name(before, k)}"
    found = f"at q = {listed(before.q)}: sine of (Z, G) = {', '.join(f'{x:.2g}' for x in sines)}"
    if after is not None:
        what = f"{places.owner(k)}switching {_from_to(places, before, after, k)}"
        found = f"{found}, both hold, {name} crosses zero"
    verdict = "ok"
    if not np.all(np.isfinite(sines)):
        found = f"not verified: gradients are not finite at q = {listed(before.q)}"
        verdict = "note"
    elif min(sines) <= rank.DEPENDENT:
        captive = before if after is None or leaving <= rank.DEPENDENT else after
        found = _capture(places, guard, before, captive, sines)
        verdict = "note"
    if not report.has(what):
        report.add(what, found, verdict)


def _sines(places: Places, point: Point, k: int) -> list[float]:
    """The sines for the guards of part k that are zero here."""
    return [places.sine(point, guard) for guard in places.vanishing(point, k)]


def _capture(places: Places, guard: Guard, before: Point, captive: Point, sines: list) -> str:
    """Raise if a guard cannot leave zero; otherwise a message about the capture, which the
    constraint allows."""
    part = places.model.parts[guard.k]
    name = part.guard_name(guard.i)
    where = places.where(before, guard.k)
    bound = f"(sine of the angle {min(sines):.1e}, expected above {rank.DEPENDENT:g})"
    found = (
        f"{name} is the constraint of {places.mode_name(captive, guard.k)} itself {where} {bound}: "
        "it stays zero in that mode, a capture"
    )
    error = part.capture_error(places.mode(captive, guard.k), found)
    if captive is before and (error is None or max(sines) <= rank.DEPENDENT):
        raise ProblemError(
            f"{type(part).__name__}{part.guards_argument}: {name} is tangent to the constraint "
            f"{where}, where it vanishes: its gradient Z lies in the row space of G {bound}, so "
            "that it touches zero without crossing it. Choose one that changes along the motion"
        )  # (2)
    if error is not None:
        raise error  # (3)
    return found


# The search.


def _search_part(report: Report, places: Places, k: int, crossed: set, after: list[Point]) -> None:
    """Search points that the run did not reach where guards of part k vanish."""
    part = places.model.parts[k]
    modes = part.modes_to_search(places.mode(places.start, k))
    for mode in modes[:SEARCHED]:
        start = places.with_mode(places.start, k, mode)
        near = [point for point in after if np.all(places.mode(point, k) == mode)]
        for guard in places.guards_of(k):
            if _key(places, guard, start) not in crossed:
                _search_guard(report, places, guard, start, near)
    if modes[SEARCHED:]:
        names = ", ".join(part.mode_name(mode) for mode in modes[SEARCHED:])
        report.add(f"{places.owner(k)}guards", f"not searched in {names}", "note")


def _search_guard(
    report: Report, places: Places, guard: Guard, start: Point, near: list[Point]
) -> None:
    part = places.model.parts[guard.k]
    name = f"{places.owner(guard.k)}{part.guard_name(guard.i)}"
    what = f"{name} of {places.mode_name(start, guard.k)}"
    reason = _not_searchable(places, guard, start)
    if reason is not None:
        report.add(what, reason, "note")
        return
    roots = _roots(places, guard, [*near, *_starts(places, start)])
    if not roots:
        report.add(what, "no point found where it vanishes, so no switching point found", "note")
        return
    continued = [_continued(places, guard, root) for root in roots]
    if all(miss for _, miss in continued):
        raise _does_not_continue(places, roots[0], guard.k, continued[0][1])
    for root, (after, miss) in zip(roots, continued, strict=True):
        if miss:
            found = f"no other mode continues at q = {listed(root.q)}, if a motion gets there"
            report.add(what, found, "note")
        else:
            _check_crossing(report, places, guard, root, after)


def _continued(places: Places, guard: Guard, point: Point) -> tuple[Point | None, str]:
    """The point in the next mode, or None if it depends on the motion; and the reason if there is
    no next mode."""
    part = places.model.parts[guard.k]
    mode = places.mode(point, guard.k)
    found = part.successors(point.q, places.p, mode, places.scale)
    if found is None:
        return None, ""
    modes, reason = found
    for mode in modes:
        after = places.with_mode(point, guard.k, mode)
        miss = places.miss(after, guard.k)
        if miss is None:
            return after, ""
        reason = miss
    return None, reason


def _not_searchable(places: Places, guard: Guard, start: Point) -> str | None:
    """Why a guard cannot be searched, judged at a few points; None if it can."""
    s = places.here
    reads_q = False
    for shift in SHIFTS:
        step = shift * np.cos(1.0 + np.arange(max(len(s.q), len(s.v))))
        q = s.q + step[: len(s.q)] * s.extent * s.spread
        v = s.v + step[: len(s.v)] * s.speed * s.widths
        at = places.guards(start.replace(q=q, v=v), more_lam=1.0 + shift)
        if at.read_motion[guard.n]:
            return "not verified: it depends on v or lam"
        reads_q = reads_q or bool(at.read_q[guard.n])
    return None if reads_q else "not verified: it does not depend on q"


def _starts(places: Places, point: Point) -> Iterator[Point]:
    """The point itself, and others along its velocity and the free directions of its rows."""
    yield point
    s = places.sample(point)
    G = s.G[s.live]
    if not np.all(np.isfinite(G)):
        return
    directions = list(rank.free_directions(G, s.M)[:DIRECTIONS])
    speed = s.norm(s.v)
    if speed > 0:
        directions.insert(0, s.v / speed)
    for direction in directions:
        for part in STEPS_AWAY:
            yield point.replace(q=s.q + part * s.extent * s.B @ direction)


def _roots(places: Places, guard: Guard, starts: list[Point]) -> list[Point]:
    """The distinct points where rows and guard vanish, nearest to the start first."""
    s = places.here
    apart = lambda a, b: float(np.max(np.abs(a.q - b.q) / s.spread) / s.extent)
    found: list[Point] = []
    for start in starts:
        root = _root(places, guard, start)
        if root is not None and all(apart(root, other) > SAME_POINT for other in found):
            found.append(root)
    return sorted(found, key=lambda root: apart(root, places.start))


def _root(places: Places, guard: Guard, start: Point) -> Point | None:
    def evaluate(point: Point) -> tuple[np.ndarray, np.ndarray, Sample]:
        s = places.sample(point)
        rows = s.live & places.model.positional
        at = places.guards(point)
        residual = np.append(s.g[rows], at.value[guard.n])
        return residual, np.vstack([s.rows_over_time[rows], at.slope(guard.n, s)]), s

    found = nearest_root(evaluate, start, free_time=True)
    slack = SAME_TIME * places.here.span
    if found is None:
        return None
    in_time = float(places.start.t) - slack <= found.t <= places.t_end + slack
    return found if in_time else None
