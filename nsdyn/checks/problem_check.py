"""Verification of a problem, before anything large is compiled.

`check_start` verifies what a run needs at its beginning (`simulate` calls it):

    shapes,  M = M^T > 0,  solve = M^-1 b,  momentum = M v,
    g(q0, t0) = 0,  G v0 + g_t = 0,  exactly one mode,  gaps and guards >= 0                     (1)

`check` verifies this and the technical conditions of switching, see `nsdyn.checks.switching` and
`nsdyn.checks.guards`.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from nsdyn._signature import label
from nsdyn.checks.guards import guard_conditions, guards_at_start
from nsdyn.checks.shapes import finite, inputs, shapes
from nsdyn.checks.start import (
    as_list,
    begin,
    mass_matrix,
    mass_product,
    mass_solve,
    rows_at_start,
    sample,
)
from nsdyn.checks.switching import Search, switching_conditions
from nsdyn.constraints.contact import Contact
from nsdyn.constraints.fixed import Nonholonomic
from nsdyn.constraints.switching import Switching
from nsdyn.errors import ProblemError
from nsdyn.mechanics.model import Model, Point
from nsdyn.problem import Problem


class Line(NamedTuple):
    """What was verified, what was found, and "ok", "note" (nothing to verify there) or
    "warning"."""

    what: str
    found: str
    verdict: str


class Report:
    """What was verified, line by line; print it. What is wrong is raised, so `ok` tells whether
    there were warnings."""

    def __init__(self, title: str):
        self.title = title
        self.lines: list[Line] = []

    def add(self, what: str, found: str, verdict: str = "ok"):
        self.lines.append(Line(what, found, verdict))

    @property
    def ok(self) -> bool:
        return all(line.verdict != "warning" for line in self.lines)

    def __str__(self) -> str:
        wide = max((len(line.what) for line in self.lines), default=0)
        return "\n".join(
            [self.title, *(f"  {x.verdict:<8}{x.what:<{wide}}  {x.found}" for x in self.lines)]
        )

    __repr__ = __str__


def check_start(problem: Problem, q0=None, v0=None, params=None) -> Report:
    """Verify a problem at its start, with its own q0, v0 and params or with others of the same
    shapes."""
    return _start(problem, q0, v0, params)[0]


def check(problem: Problem) -> Report:
    """Verify a problem at its start and where it switches."""
    report, search = _start(problem, None, None, None)
    switching_conditions(report, search)
    guard_conditions(report, search)
    return report


def _start(problem, q0, v0, params):
    if not isinstance(problem, Problem):
        raise ProblemError(f"problem: expected nsdyn.Problem(...), found {problem!r}")
    report = Report(f"{problem.name} at t0 = {problem.t0:g}")
    q, v, p = inputs(problem, q0, v0, params)
    t = jnp.asarray(np.float64(problem.t0))
    model = shapes(problem, q, v, t, p)
    report.add(
        "shapes",
        f"{q.shape[0]} coordinates, {v.shape[0]} velocities, {model.m} rows, {model.k} guards",
    )
    point, values = begin(model, q, v, t, p)
    for part, mode, value in zip(model.parts, model.split_mode(point.mode), values, strict=True):
        if isinstance(part, Switching):
            _one_mode(report, np.asarray(value), int(mode))
        elif isinstance(part, Contact):
            _gaps(report, part, np.asarray(value))
    s = sample(model, p, q, v, t, point.mode, point.held)
    mass_matrix(report, s.M)
    mass_solve(report, s)
    mass_product(report, s)
    finite("System(force=...)", s.f, " at q0, v0")
    finite("System(potential=...)", s.V, " at q0")
    rows_at_start(report, model, point, p, s, _names(model, point, p))
    _affine(report, model, point, p, s)
    search = Search(model, point, p, problem.t_end)
    guards_at_start(report, search, s)
    return report, search


def _names(model: Model, point: Point, p) -> list[str]:
    names = []
    each = zip(model.parts, model.split_mode(point.mode), model.row_counts, strict=True)
    for k, (part, mode, height) in enumerate(each):
        prefix = f"constraint[{k}] " if len(model.parts) > 1 else ""
        names += [prefix + name for name in part.row_names(point.q, point.t, p, mode, height)]
    return names


def _one_mode(report, z, mode: int):
    finite("Switching(switches=...)", z, " at q0")
    above = np.flatnonzero(z > 1e-9 * max(1.0, np.max(np.abs(z))))
    found = f"z = {as_list(z, 4)} at q0"
    if len(above) > 1:
        raise ProblemError(
            "Switching(switches=...): expected one mode whose switching function is positive, "
            f"found {found}, "
            f"positive in modes {above.tolist()}. Switching functions must not overlap"
        )
    if mode < 0:
        raise ProblemError(
            "Switching(switches=...): expected one mode whose switching function is positive (or "
            "zero and rising), "
            f"found {found}: q0 is in no mode. Move q0, or let the switching functions cover it"
        )
    report.add("one mode at the start", f"mode {mode}, {found}")


def _gaps(report, part: Contact, gap):
    name = label(part.gap)
    finite("Contact(gap=...)", gap, " at q0")
    i = int(np.argmin(gap))
    if gap[i] < -1e-9:
        raise ProblemError(
            f"Contact(gap={name}): expected gaps >= 0 at q0, found {name}[{i}] = {gap[i]:.6g}: the "
            "start penetrates by "
            f"{-gap[i]:.6g}. Move q0 out by that much"
        )
    report.add("gaps open or closed", f"smallest {name}[{i}] = {gap[i]:.3g}")


def _affine(report, model: Model, point: Point, p, s):
    """Rows at velocity level must be affine in v: then G does not depend on v."""
    if not any(isinstance(part, Nonholonomic) for part in model.parts):
        return
    other = np.asarray(point.v) + 1.0 + np.cos(np.arange(point.v.shape[0]))
    change = np.abs(sample(model, p, point.q, other, point.t, point.mode, point.held).G - s.G)
    if np.max(change, initial=0.0) > 1e-8 * max(1.0, np.max(np.abs(s.G))):
        row = int(np.argmax(np.max(change, axis=1)))
        name = _names(model, point, p)[row]
        raise ProblemError(
            f"Nonholonomic(c=...): expected c affine in v, found that dc/dv of the row {name} "
            "changes with v, "
            f"by {np.max(change):.3g}"
        )
    report.add("rows affine in v", f"change of G with v = {np.max(change, initial=0.0):.1e}")
