"""The technical conditions of switching, verified where a mechanism switches.

At a point where mode i holds and is left, g_i(q) = 0 and z_i(q) = 0, with gradients G and Z,

    some other mode j continues:         z_j = 0,  g_j = 0                                       (1)
    z_i crosses zero along the motion:
        rank [G_i; Z_i] = rank G_i + 1,  rank [G_j; Z_j] = rank G_j + 1                        (2)

(Patil and Bruls). If (2) fails in one of the modes alone, z is the constraint of that mode itself:
a capture, which has to latch. Rows that depend on time are taken as rows [G, g_t] over (v, 1).

Points are found in two ways. A rehearsal integrates the motion coarsely (projected symplectic Euler
steps) and meets switching points as the motion does; each must satisfy (1) and (2). Modes that it
does not leave are searched by Gauss-Newton from several starts; such a point may lie where no
motion comes, so only one of them needs to satisfy (1).

Where z is tangent to the constraint, g = z = 0 has a double root, known to the square root of
round-off only; `rank.DEPENDENT`, the bound on the sine of the angle between Z and the rows, is well
above that.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from nsdyn._signature import label
from nsdyn.checks.start import as_list, nearest_root, sample
from nsdyn.constraints.mode_rows import Lock
from nsdyn.constraints.switching import Switching
from nsdyn.errors import ProblemError
from nsdyn.mechanics.model import Model, Point
from nsdyn.numerics import rank

STEPS = 250
SEARCHED = 16  # modes searched in each part


class Place(NamedTuple):
    """A point on the way, with one mode and one held value for each part."""

    q: Any
    v: Any
    t: Any
    modes: tuple
    held: tuple


class Search:
    """A model at work: samples and switching points of it."""

    def __init__(self, model: Model, point: Point, p, t_end: float):
        self.model, self.p = model, p
        self.span = float(point.t), t_end
        modes = tuple(np.asarray(mode) for mode in model.split_mode(point.mode))
        self.start = Place(
            np.asarray(point.q), np.asarray(point.v), float(point.t), modes, tuple(point.held)
        )
        self.parts = {k: part for k, part in enumerate(model.parts) if isinstance(part, Switching)}
        self.first: dict[int, int] = {}  # where the z's of each part begin among all
        for k in self.parts:
            self.first[k] = sum(len(self.parts[j].mode_rows.modes) for j in self.parts if j < k)

    def mode(self, x: Place):
        """One integer for each part, or the mode of the only part as it is."""
        if len(x.modes) == 1:
            return x.modes[0]
        return (
            np.concatenate([np.ravel(mode) for mode in x.modes]) if x.modes else np.zeros((), int)
        )

    def sample(self, x: Place):
        return sample(self.model, self.p, x.q, x.v, x.t, self.mode(x), x.held)

    def enter(self, x: Place, k: int, mode: int) -> Place:
        """The same place with part k in another mode, which begins there."""
        held = self.model.parts[k].hold(jnp.asarray(x.q), jnp.asarray(x.t), self.p)
        put = lambda items, item: (*items[:k], item, *items[k + 1 :])
        return x._replace(modes=put(x.modes, np.asarray(mode)), held=put(x.held, held))

    def root(self, x: Place, guard) -> Place | None:
        """The point near x where rows and guard vanish; guard(x, s) gives its value and its
        gradient over (v, 1)."""
        held = self.model.positional

        def evaluate(q, t):
            y = x._replace(q=q, t=t)
            s = self.sample(y)
            rows = held & s.live
            z, Z = guard(y, s)
            J = np.column_stack([s.G[rows], s.gt[rows]])
            return np.append(s.g[rows], z), np.vstack([J, Z]), s.B

        found = nearest_root(evaluate, x.q, x.t, free_time=True)
        slack = 1e-9 * max(1.0, abs(x.t))
        if found is None or not self.span[0] - slack <= found[1] <= self.span[1] + slack:
            return None
        return x._replace(q=found[0], t=found[1])

    def own(self, k, i):
        """The switching function of mode i of part k as a guard."""
        index = self.first[k] + i
        return lambda x, s: (s.z[index], np.append(s.Z[index], 0.0))

    def starts(self, x: Place):
        """Places around x: itself, and moved along its velocity and the directions that its rows
        leave free."""
        s = self.sample(x)
        G = s.G[s.live]
        yield x
        if not np.all(np.isfinite(G)):
            return
        speed = np.linalg.norm(x.v)
        free = rank.free_directions(G, s.M)[:3]
        free = free / rank.row_lengths(free)[:, None]
        for d in ([x.v / speed] if speed > 0 else []) + list(free):
            for length in (0.02, -0.02, 0.2, -0.2, 1.0, -1.0):
                yield x._replace(q=x.q + length * max(1.0, np.max(np.abs(x.q))) * s.B @ d)

    def roots(self, places, guard) -> list[Place]:
        """The different points found from several places, the nearest to the start first."""
        found: list[Place] = []
        for x in places:
            root = self.root(x, guard)
            if root is not None and all(np.max(np.abs(root.q - other.q)) > 1e-5 for other in found):
                found.append(root)
        return sorted(found, key=lambda root: float(np.linalg.norm(root.q - self.start.q)))


def angle(s, Z) -> float:
    """The sine of the angle between the gradient Z over (v, 1) and the live rows, in the mass
    metric."""
    J = np.column_stack([s.G, s.gt])[s.live]
    if not np.any(Z):
        return 0.0
    if not np.all(np.isfinite(J)):
        return np.nan
    return rank.sine(Z, J, s.M)


def switching_conditions(report, search: Search):
    """Verify (1) and (2) for every Switching part."""
    if not search.parts:
        return
    left: dict = {k: set() for k in search.parts}
    places = list(_rehearse(search, report, left))
    for k, part in search.parts.items():
        waiting = [
            i for i in range(len(part.mode_rows.modes)) if i not in left[k] and not part.latch[i]
        ]
        for i in waiting[:SEARCHED]:
            _search_mode(search, report, k, i, places)
        if waiting[SEARCHED:]:
            report.add(
                f"{_owner(search, k)}switching",
                f"modes {waiting[SEARCHED:]} not searched for switching points",
                "note",
            )


def _rehearse(search: Search, report, left):
    """A coarse integration of the motion through its switches, verifying each; yields the places
    after them."""
    x, h = search.start, (search.span[1] - search.span[0]) / STEPS
    risen = dict.fromkeys(search.parts, False)
    widths = search.model.guard_counts
    others = np.repeat(np.array([k not in search.parts for k in range(len(widths))]), widths)
    for _ in range(STEPS):
        s = search.sample(x)
        if not all(np.all(np.isfinite(y)) for y in (s.f, s.G, s.z)) or np.any(s.guards[others] < 0):
            return
        for k in search.parts:
            i = int(x.modes[k])
            z = s.z[search.first[k] + i]
            if z >= 0 or search.parts[k].latch[i]:
                risen[k] = risen[k] or z > 0
                continue
            root = search.root(x, search.own(k, i)) if risen[k] else None
            if root is None:
                return  # it leads back, or the crossing is lost
            x, risen[k] = _verified(search, report, k, i, root), False
            left[k].add(i)
            yield x
            s = search.sample(x)
        try:
            x = _step(x, s, h)
        except np.linalg.LinAlgError:
            return


def _step(x: Place, s, h) -> Place:
    """A symplectic Euler step whose velocity satisfies the rows and whose position drift is
    removed."""
    pull = lambda r: -rank.least_change(s.G[s.live], s.M, r)
    v = x.v + h * np.linalg.solve(s.M, s.f)
    v = v + pull((s.G @ v + s.gt)[s.live])
    return x._replace(q=x.q + s.B @ (h * v + pull(s.g[s.live])), v=v, t=x.t + h)


def _search_mode(search: Search, report, k, i, places):
    """Switching points of a mode that the rehearsal did not leave."""
    x = search.start if i == int(search.start.modes[k]) else search.enter(search.start, k, i)
    near = [search.enter(place, k, i) for place in places if int(place.modes[k]) == i]
    roots = search.roots([*near, *search.starts(x)], search.own(k, i))
    good = [bool(_partners(search, k, i, root)[0]) for root in roots]
    what = f"{_owner(search, k)}switching from {_mode(search, k, i)}"
    if not roots:
        report.add(what, "no switching point found", "note")
    elif not any(good):
        _verified(search, report, k, i, roots[0])  # raises
    for root, meets in zip(roots, good, strict=True):
        if meets:
            _verified(search, report, k, i, root)
        else:
            report.add(
                what,
                f"no other mode continues at q = {as_list(root.q, 6)}, should a motion come there",
                "note",
            )


def _partners(search: Search, k, i, x: Place):
    """The modes that satisfy (1) at x, the fastest first, and a word on the nearest miss."""
    part, first = search.parts[k], search.first[k]
    s = search.sample(x)
    size = 1e-6 * max(1.0, np.max(np.abs(x.q)))
    z, Z = (y[first : first + len(part.mode_rows.modes)] for y in (s.z, s.Z))
    row = sum(search.model.row_counts[:k])
    mine = slice(row, row + search.model.row_counts[k])
    found, miss = [], f"no other switching function vanishes there, z = {as_list(z, 4)}"
    for j in np.flatnonzero(np.abs(z) <= size * rank.row_lengths(Z)):
        if j == i:
            continue
        y = search.enter(x, k, int(j))
        s = search.sample(y)
        g = np.where(s.live, s.g, 0.0)[mine]
        if np.all(np.abs(g) <= size):
            found.append(int(j))
        else:
            worst = int(np.argmax(np.abs(g)))
            name = part.row_names(jnp.asarray(y.q), y.t, search.p, int(j), len(g))[worst]
            miss = (
                f"{_mode(search, k, int(j))} does not hold there: "
                f"its row {name} is {g[worst]:.6g}, expected 0"
            )
    return sorted(found, key=lambda j: -(Z[j] @ x.v)), miss


def _verified(search: Search, report, k, i, x: Place) -> Place:
    """x in the mode that continues; raises where (1) or (2) does not hold."""
    part = search.parts[k]
    found, miss = _partners(search, k, i, x)
    whose = f"{_owner(search, k)}{_mode(search, k, i)}"
    where = f"at the switching point q = {as_list(x.q, 6)} of {whose}, where its z = 0"
    if not found:
        raise ProblemError(
            f"Switching(modes=..., switches=...): expected that another mode continues {where}, "
            f"found that {miss}. "
            "Constraints that replace each other must both hold on z = 0"
        )  # (1)
    j = found[0]
    modes = ((i, x), (j, search.enter(x, k, j)))
    sines = [
        angle(search.sample(y), search.own(k, mode)(y, search.sample(y))[1]) for mode, y in modes
    ]
    tangent = [mode for (mode, _), sine in zip(modes, sines, strict=True) if sine <= rank.DEPENDENT]
    loose = [mode for mode in tangent if not part.latch[mode]]
    bound = f"(sine of the angle {min(sines):.1e}, expected above {rank.DEPENDENT:g})"
    if len(tangent) == 2 and loose:
        raise ProblemError(
            "Switching(switches=...): the switching function is tangent to the constraint "
            f"{where}: its gradient Z "
            f"lies in the row space of G {bound}, so that it touches zero without crossing it. "
            "Choose a z that changes "
            "along the motion"
        )  # (2)
    if loose:
        raise ProblemError(
            "Switching(latch=...): expected a latch, found that the switching function is the "
            "constraint of "
            f"{_mode(search, k, loose[0])} itself {where} {bound}: it stays zero in that mode, a "
            "capture. Use "
            f"latch=True, or a tuple with True for mode {loose[0]}, or choose a z that changes "
            "along the motion"
        )  # (2)
    what = f"{_owner(search, k)}switching from {_mode(search, k, i)} to {_mode(search, k, j)}"
    if all(
        line.what != what for line in report.lines
    ):  # a cyclic motion comes there again and again
        report.add(
            what,
            f"at q = {as_list(x.q, 6)}: both hold, sine of (Z, G) = {sines[0]:.2g}, {sines[1]:.2g}",
        )
    return modes[1][1]


def _owner(search: Search, k) -> str:
    return f"constraint[{k}] " if len(search.model.parts) > 1 else ""


def _mode(search: Search, k, i) -> str:
    items = search.parts[k].mode_rows.modes[i]
    return (
        f"mode {i} "
        f"({', '.join(x.name() if isinstance(x, Lock) else label(x) for x in items) or 'free'})"
    )
