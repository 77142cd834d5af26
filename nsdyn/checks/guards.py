"""The guards of `Transitions`, verified at the start and where they vanish.

With the multipliers of the accelerations, M a + G^T lam = f and G a + gamma = 0,

    (G M^-1 G^T) lam = G M^-1 f + gamma                                                          (1)

a guard must not be negative at the start. Where the rows of the initial mode hold and a guard z
that depends on q (and perhaps t, but not on v and lam) vanishes, it must cross zero along the
motion:

    rank [G; Z] = rank G + 1   where   g(q) = 0,  z(q) = 0                                       (2)
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from nsdyn.checks.shapes import finite
from nsdyn.checks.start import as_list
from nsdyn.checks.switching import Place, Search, angle
from nsdyn.constraints.contact import Contact
from nsdyn.constraints.scheduled import Scheduled
from nsdyn.constraints.switching import Switching
from nsdyn.constraints.transitions import Transitions
from nsdyn.errors import ProblemError
from nsdyn.mechanics.model import Model, Point
from nsdyn.numerics import rank

NEGATIVE = 1e-9


class Guards(NamedTuple):
    """Guards and their derivatives, and the gamma of (1)."""

    value: Any
    q: Any
    v: Any
    lam: Any
    t: Any
    gamma: Any


@eqx.filter_jit
def _guards(model: Model, q, v, lam, t, p, mode, held) -> Guards:
    guards = lambda q, v, lam, t: model.guards(Point(t, q, v, mode, held), lam, p)
    dq, dv, dlam, dt = jax.jacfwd(guards, argnums=(0, 1, 2, 3))(q, v, lam, t)
    gamma = model.gamma(Point(t, q, v, mode, held), p)
    return Guards(guards(q, v, lam, t), dq, dv, dlam, dt, gamma)


def _evaluate(search: Search, x: Place, lam=None) -> Guards:
    lam = np.zeros(search.model.m) if lam is None else lam
    q, v, lam, t = (np.asarray(y, float) for y in (x.q, x.v, lam, x.t))
    return jax.tree.map(
        np.asarray, _guards(search.model, q, v, lam, t, search.p, search.mode(x), x.held)
    )


def _owners(model: Model, kinds) -> list[tuple[int, int, int]]:
    """(guard, part, number in the part) for the guards of the parts that are `kinds`."""
    each = [(k, i) for k, width in enumerate(model.guard_counts) for i in range(width)]
    return [(n, k, i) for n, (k, i) in enumerate(each) if kinds(model.parts[k])]


def guards_at_start(report, search: Search, s):
    """No guard may be negative; those of the other constraints are looked at elsewhere."""
    model, x = search.model, search.start
    owners = _owners(model, lambda part: not isinstance(part, Switching | Contact | Scheduled))
    if not owners:
        return
    G = s.G[s.live]
    gamma = _evaluate(search, x).gamma[s.live]
    stopped = rank.least_change(G, s.M, G @ np.linalg.solve(s.M, s.f) + gamma)
    lam = np.zeros(model.m)
    lam[s.live] = rank.least_multipliers(G, s.M, s.M @ stopped)  # (1)
    values = _evaluate(search, x, lam).value
    for n, k, i in owners:
        name = f"{model.parts[k].title}(guards=...)"
        finite(name, values[n], " at the start")
        if values[n] < -NEGATIVE:
            raise ProblemError(
                f"{name}: expected guards >= 0 at the start, found guard {i} = {values[n]:.6g} in "
                "mode "
                f"{x.modes[k].tolist()}: its fall through zero would never be seen. Start on its "
                "positive side or with "
                "another mode0"
            )
    report.add("guards not negative", f"smallest {min(values[n] for n, _, _ in owners):.3g}")


def guard_conditions(report, search: Search):
    """Verify (2) for the guards of Transitions in the initial mode."""
    owners = _owners(search.model, lambda part: isinstance(part, Transitions))
    if not owners:
        return
    depends = _dependence(search)
    for n, _, i in owners:
        what = f"guard {i} crosses zero"
        on_q, on_motion = (bool(on[n]) for on in depends)
        if on_motion or not on_q:
            report.add(
                what,
                "not verified: it depends on v or lam" if on_motion else "it does not depend on q",
                "note",
            )
        else:
            _crosses(report, search, n, i, what)


def _dependence(search: Search):
    """Which guards depend on q, and which on v or lam, as seen at a few places."""
    x, m = search.start, search.model.m
    on_q = on_motion = np.zeros(search.model.k, bool)
    for shift in (0.0, 0.1, -0.2):
        wave = lambda size, shift=shift: shift * np.cos(1.0 + np.arange(size))
        at = _evaluate(
            search, x._replace(q=x.q + wave(x.q.size), v=x.v + wave(x.v.size)), 1.0 + wave(m)
        )
        on_q = on_q | np.any(at.q != 0, axis=1)
        on_motion = on_motion | np.any(at.v != 0, axis=1) | np.any(at.lam != 0, axis=1)
    return on_q, on_motion


def _crosses(report, search: Search, n, i, what):
    def guard(x, s):
        at = _evaluate(search, x)
        return at.value[n], np.append(at.q[n] @ s.B, at.t[n])

    roots = search.roots(search.starts(search.start), guard)
    if not roots:
        report.add(what, "no point found where it vanishes", "note")
        return
    samples = [search.sample(x) for x in roots]
    sines = [angle(s, guard(x, s)[1]) for x, s in zip(roots, samples, strict=True)]
    best = int(np.argmax(sines))
    at = f"q = {as_list(roots[best].q, 6)}"
    if sines[best] <= rank.DEPENDENT:
        raise ProblemError(
            f"Transitions(guards=...): guard {i} is tangent to the constraint at {at}, where it "
            "vanishes: its gradient "
            f"Z lies in the row space of G (sine of the angle {sines[best]:.1e}, expected above "
            f"{rank.DEPENDENT:g}): it "
            "touches zero without crossing it. Choose a guard that changes along the motion"
        )  # (2)
    report.add(what, f"at {at}: sine of (Z, G) = {sines[best]:.2g}")
