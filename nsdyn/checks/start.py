"""Numerical checks of a start: mass matrix, mass solve, momentum, and rows of the constraints.

Dependent rows contradict each other if, for the unit rows h_i of `nsdyn.numerics.rank`,

    w^T h = 0   but   w^T r != 0,   r_i = g_i / (w_i L)                                        (1)
"""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from nsdyn._expect import finite, listed, pasted
from nsdyn._jitted import compiled_quickly
from nsdyn._types import Configuration, Params, Velocity
from nsdyn.checks.report import Report
from nsdyn.checks.sample import Sample, columns, nearest_root, sample
from nsdyn.errors import ProblemError, RedundancyWarning, warn
from nsdyn.mechanics.model import Model, Point
from nsdyn.mechanics.system import System
from nsdyn.numerics import rank

CONSISTENT = 1e-8  # residual of a row at the start, relative to its size (`checks.sample`)
SYMMETRIC = 1e-10  # difference of M_ij and M_ji, relative to sqrt(M_ii M_jj)
DEFINITE = 1e-13  # smallest eigenvalue of M scaled to a unit diagonal, per coordinate
SAME = 1e-8  # error of solve and momentum, relative to their largest terms
INVOLVED = 1e-6  # share of a row in a dependence, relative to the largest share
NUDGE = 1e-3  # relative to the length of the mechanism, to leave a singular position


def mass_matrix(report: Report, M: np.ndarray, names: Sequence[str] = ()) -> None:
    """M must be finite, symmetric and positive definite; `names` are those of the velocities."""
    finite("System(mass=...)", M, " at q0")
    roots = np.sqrt(np.abs(np.diagonal(M)))
    skew = np.abs(M - M.T)
    if np.any(skew > SYMMETRIC * np.outer(roots, roots)):
        i, j = (int(k) for k in np.unravel_index(np.argmax(skew), M.shape))
        raise ProblemError(
            f"System(mass=...): expected a symmetric matrix, found M[{i}, {j}] = {M[i, j]:.6g} and "
            f"M[{j}, {i}] = {M[j, i]:.6g} at q0, which differ by {skew[i, j]:.3g}"
            + (f" ({names[i]} and {names[j]})" if names else "")
        )
    report.add("mass matrix symmetric", f"|M - M^T| = {np.max(skew, initial=0.0):.1e}")
    roots = np.where(roots > 0, roots, 1.0)
    least = np.min(np.linalg.eigvalsh(M / np.outer(roots, roots)), initial=1.0)
    smallest = np.min(np.linalg.eigvalsh(M), initial=np.inf)
    bound = DEFINITE * max(1, len(M))
    if least <= bound:
        kind = "an indefinite" if least < -bound else "a singular"
        raise ProblemError(
            f"System(mass=...): expected a positive definite matrix, found {kind} one at q0: "
            f"smallest eigenvalue {smallest:.3g}{_massless(M, names)}. Give every coordinate a "
            "mass or remove it, or start away from the singular position"
        )
    report.add("mass matrix positive definite", f"smallest eigenvalue {smallest:.3g}")


def _massless(M: np.ndarray, names: Sequence[str]) -> str:
    """The velocities that have least mass, by name."""
    if not names:
        return ""
    share = np.abs(np.linalg.eigh(M)[1][:, 0])
    light = np.flatnonzero(share > 0.5 * share.max()).tolist()
    return f" for {', '.join(names[i] for i in light)}"


def mass_solve(report: Report, s: Sample) -> None:
    """solve(q, b, p) must be M^-1 b."""
    if s.solved is None:
        return
    finite("System(solve=...)", s.solved, " at q0")
    b = np.asarray(columns(len(s.M)))
    error = np.abs(s.M @ s.solved - b)
    if np.any(error > SAME * (_largest_product(s.M, s.solved) + b)):
        k = int(np.argmax(np.max(error, axis=0)))
        raise ProblemError(
            "System(solve=...): expected solve(q, b, p) = M^-1 b, found M solve(b) - b = "
            f"{np.max(error):.3g} at q0 for b = {pasted(b[:, k])}"
        )
    report.add("solve is M^-1 b", f"|M solve(b) - b| = {np.max(error):.1e}")


def _largest_product(M: np.ndarray, x: np.ndarray) -> np.ndarray:
    """A bound of |M x|, as |M_ij| <= sqrt(M_ii M_jj). |M| |x| would be none for round-off where M
    or x has zeros that a recursion does not know of."""
    roots = np.sqrt(np.diagonal(M))
    return np.multiply.outer(roots, roots @ np.abs(x))


def mass_product(report: Report, s: Sample) -> None:
    """momentum(q, v, p) must be M v."""
    if s.momenta is None:
        return
    finite("System(momentum=...)", s.momenta, " at q0")
    ones = np.ones(len(s.M))
    error = np.abs(s.momenta - s.M @ ones)
    if np.any(error > SAME * _largest_product(s.M, ones)):
        raise ProblemError(
            "System(momentum=...): expected momentum(q, v, p) = M v, found a difference of "
            f"{np.max(error):.3g} at q0 for v = {pasted(ones)}"
        )
    report.add("momentum is M v", f"|momentum - M v| = {np.max(error):.1e}")


def retraction(report: Report, system: System, s: Sample, p: Params) -> None:
    """retract(q, 0, p) must be q, and its derivative by dx there that of the kinematics."""
    if system.retract is None:
        return
    there, slope = map(np.asarray, _retracted(system, jnp.asarray(s.q), jnp.asarray(s.v), p))
    tests = {
        "retract(q, 0, p) = q": np.abs(there - s.q),
        "d retract/d dx at dx = 0 to be d kinematics/dv": np.abs(slope - s.B),
    }
    for wanted, error in tests.items():
        if np.max(error) > SAME * (1.0 + np.max(np.abs(s.q))):
            raise ProblemError(
                f"System(retract=...): expected {wanted}, found a difference of "
                f"{np.max(error):.3g} at q0"
            )
    worst = max(float(np.max(error)) for error in tests.values())
    report.add("retract agrees with kinematics", f"largest difference {worst:.1e}")


@compiled_quickly
def _retracted(system: System, q: Configuration, v: Velocity, p: Params) -> tuple[Array, Array]:
    retract = system.retract
    assert retract is not None
    still = jnp.zeros_like(v)
    return retract(q, still, p), jax.jacfwd(lambda dx: retract(q, dx, p))(still)


class Level(NamedTuple):
    """Rows that must hold at position or at velocity level, their residuals, and the size of the
    state."""

    argument: str  # the argument to correct, q0 or v0
    rows: np.ndarray
    residual: np.ndarray
    size: float


@dataclasses.dataclass
class StartRows:
    """The live rows at the start: they must be finite, hold at q0 and v0, and not contradict each
    other."""

    model: Model
    point: Point
    p: Params
    s: Sample
    names: list[str]

    def __post_init__(self) -> None:
        exact = np.array([part.holds_at_start for part in self.model.parts], bool)
        self.rows = np.flatnonzero(self.s.live & np.repeat(exact, self.model.row_counts))

    def check_finite(self) -> None:
        s = self.s
        for i in np.flatnonzero(s.live):
            for what, value in (("value", s.g[i]), ("gradient", s.G[i]), ("rate", s.psi[i])):
                name = f"Problem(constraint=...), {what} of the row {self.names[i]}"
                finite(name, value, " at q0, v0")

    def check(self, report: Report) -> None:
        if not len(self.rows):
            return
        positional = self.rows[self.model.positional[self.rows]]
        self._hold(report, Level("q0", positional, self.s.g[positional], self.s.length))
        self._hold(report, Level("v0", self.rows, self.s.psi[self.rows], self.s.speed))
        self._independent(report)

    def _hold(self, report: Report, level: Level) -> None:
        if not len(level.rows):
            return
        residual = level.residual
        bounds = CONSISTENT * level.size * self.s.row_sizes(self.s.G[level.rows])
        worst = int(np.argmax(np.abs(residual) / bounds))
        if np.abs(residual[worst]) <= bounds[worst]:
            found = f"largest residual {np.max(np.abs(residual)):.1e}"
            report.add(f"rows hold at {level.argument}", found)
            return
        offer = self._offer(level)
        if offer is None:
            self._refuse_contradiction(level, residual / bounds)
        row = "row" if level.argument == "q0" else "rate G v + g_t of the row"
        raise ProblemError(
            f"{level.argument}: expected a state that satisfies the constraint, found "
            f"{residual[worst]:.6g} in the {row} {self.names[level.rows[worst]]} (expected 0 "
            f"to within {bounds[worst]:.1g}). "
            f"{offer or 'No consistent state was found near it.'}"
        )

    def _refuse_contradiction(self, level: Level, relative: np.ndarray) -> None:
        guilty = self._clash(level.rows, relative, 1.0)
        if not np.any(guilty):
            return
        where = "at q0" if level.argument == "q0" else "at velocity level at v0"
        raise ProblemError(
            "Problem(constraint=...): expected rows that can hold together, found that "
            f"{self._listed(level.rows[guilty])} contradict each other {where}: their gradients "
            f"are dependent, but their residuals {listed(level.residual[guilty])} are not. Remove "
            "one of them, or start away from the singular position"
        )

    def _clash(self, rows: np.ndarray, relative: np.ndarray, bound: float) -> np.ndarray:
        """Which rows have dependent gradients but contradictory right-hand sides `relative`."""
        null = self._dependences(rows)
        clash = np.abs(null @ (null.T @ relative))  # (1)
        largest = np.max(clash, initial=0.0)
        return (clash > INVOLVED * largest) & (largest > bound)

    def _dependences(self, rows: np.ndarray) -> np.ndarray:
        """Columns w of (1)."""
        unit = rank.in_mass_metric(self.s.G[rows], self.s.M)
        return rank.left_null(unit, np.eye(unit.shape[1]))

    def _independent(self, report: Report) -> None:
        null = self._dependences(self.rows)
        count = len(self.rows)
        found = f"rank {count - null.shape[1]} for {count} rows"
        if not null.shape[1]:
            report.add("rows independent", found)
            return
        self._keep_together()
        rows = self.rows[np.max(np.abs(null), axis=1) > INVOLVED]
        what = "depend on each other" if len(rows) > 1 else "has no gradient"
        involved = f"{self._listed(rows)} {what}"
        report.add("rows independent", f"{found}: {involved}", "warning")
        warn(
            f"Problem(constraint=...): expected independent rows, found {found} at q0: {involved}. "
            "They are consistent: the motion is unique, the multipliers are not",
            RedundancyWarning,
        )

    def _keep_together(self) -> None:
        """Dependent rows that hold now must also require the same acceleration."""
        gamma = np.asarray(_gamma(self.model, self.point, self.p))[self.rows]
        relative = gamma / self.s.row_sizes(self.s.G[self.rows])
        bound = CONSISTENT * (self.s.push + np.max(np.abs(relative)))
        guilty = self._clash(self.rows, relative, bound)
        if np.any(guilty):
            raise ProblemError(
                "Problem(constraint=...): expected rows that can hold together, found that "
                f"{self._listed(self.rows[guilty])} contradict each other from t0 on: they hold at "
                "q0 and v0 with dependent gradients, but their second derivatives differ. Remove "
                "one of them, or start away from the singular position"
            )

    def _offer(self, level: Level) -> str | None:
        """A message with the nearest consistent state, or None."""
        if level.argument == "v0":
            v = self._nearest_velocity(self.point)
            return None if v is None else f"The nearest consistent state: v0 = {pasted(v)}"
        there = self._nearest_position(level.rows)
        if there is None:
            return None
        position = f"q0 = {pasted(there.q)}"
        v = self._nearest_velocity(there)
        if v is None:
            return f"A consistent position near it: {position}"
        if self.s.norm(v - self.s.v) <= CONSISTENT * self.s.speed:
            return f"The nearest consistent state: {position}"
        return f"The nearest consistent state: {position}, v0 = {pasted(v)}"

    def _nearest_position(self, rows: np.ndarray) -> Point | None:
        def evaluate(point: Point) -> tuple[np.ndarray, np.ndarray, Sample]:
            s = sample(self.model, point, self.p)
            return s.g[rows], s.rows_over_time[rows], s

        q = np.asarray(self.point.q)
        nudge = NUDGE * self.s.length * self.s.spread * np.cos(np.arange(len(q)))
        roots = (nearest_root(evaluate, self.point.replace(q=q + dq)) for dq in (0.0, nudge))
        return next((root for root in roots if root is not None), None)

    def _nearest_velocity(self, point: Point) -> np.ndarray | None:
        s = sample(self.model, point, self.p)
        G = s.G[s.live]
        v = s.v - rank.least_change(G, s.M, s.psi[s.live])
        left = G @ v + s.gt[s.live]
        return v if np.all(np.abs(left) <= CONSISTENT * s.speed * s.row_sizes(G)) else None

    def _listed(self, rows: np.ndarray) -> str:
        return ", ".join(self.names[i] for i in rows)


_gamma = compiled_quickly(Model.gamma)
