"""Analysis of one transition between constraints, after Font-Llagunes and Kovecses, whose equation
numbers are in brackets.

The rows of G+, which hold after the transition, split velocities into constrained and admissible
parts, orthogonal in the mass metric, and impulses likewise:

    P_c = M^-1 G+^T (G+ M^-1 G+^T)^-1 G+,    P_a = I - P_c,    P_a^T M P_c = 0            (1) [4, 5]
    v = v_c + v_a,    v_c = P_c v,    v_a = P_a v                                         (2) [6]
    T = T_c + T_a,    T_c = 1/2 v_c^T M v_c,    T_a = 1/2 v_a^T M v_a                     (3) [7]
    f = f_c + f_a,    f_c = P_c^T f,    f_a = P_a^T f,    f_c^T M^-1 f_a = 0              (4) [8]

At the transition, with our signs (Lam acts along -G+) and the non-ideal impulse f_N, which is B^T
beta where tangents B are known,

    M (v+ - v-) = f_R + f_N + U,  f_R = -G+^T Lam                                        (5) [9, 10]
    constrained:  M (v_c+ - v_c-) = -G+^T (Lam + Lam_N) + P_c^T U,
                  G+^T Lam_N = -P_c^T f_N                                       (6) [12, 14]
    admissible:  M (v_a+ - v_a-) = P_a^T f_N + P_a^T U                                      (7) [13]
    2 T_c- = (v-)^T G+^T (Lam + Lam_N)  if U = 0 and v_c+ = 0                           (8) [15, 16]

Only the admissible part (7) of f_N can be seen in the velocities; its constrained part follows from
beta, the least-norm solution of (7). Without tangents f_N = P_a^T (M (v+ - v-) - U), and any
impulse along the constraints is attributed to the constraints.

    xi = T_c- / T-                                                                          (9) [18]

is the fraction of the energy that an ideal transition removes. Among the velocities that the old
constraints allow, G- v = 0, its stationary values solve the eigenvalue problem

    F^T P_c^T M P_c F y = xi F^T M F y,    v = F y,    columns of F spanning G- v = 0           (10)

Without constraints before, xi is 1 (v = v_c) or 0 (v = v_a). Otherwise the values in between are
sin^2 of the principal angles between the old and the new constraints, in the mass metric.

The energy that an impulse f supplies is its work at the mean velocity; summed over all impulses
this is the change of T:

    W = f^T (v- + v+) / 2                                                                       (11)

Rows may be dependent: everything is computed from orthonormal bases of the row spaces, and the
impulses of the rows have least norm.
"""

import dataclasses
from functools import cached_property
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from nsdyn.errors import ProblemError
from nsdyn.numerics import rank

REGULAR = "regular"
SINGULAR = "singular"
UNDECIDED = "undecided"


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Subspace:
    """The live rows G of the constraints, their rank, and the projector P onto the velocities that
    they forbid."""

    G: np.ndarray
    rank: int
    P: np.ndarray
    basis: np.ndarray  # rows: an orthonormal basis of the row space of G L^-T, M = L L^T


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Impulse:
    """An impulse f, its parts in both subspaces (4), and the energy that it supplies (11)."""

    total: np.ndarray
    constrained: np.ndarray
    admissible: np.ndarray
    work: float


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TransitionReport:
    """The analysis of a transition as data; `print` shows it as tables.

    M: the mass matrix.
    before, after: the live rows before and after, with their rank and the projector onto the
        velocities that they forbid.
    v_before, v_after: the velocities.
    constraint, non_ideal, applied: the impulses f_R of the constraints, f_N of friction and the
        like, and U from outside, each with its constrained and admissible part and its work.
    Lam: the impulses of the live rows after, of least norm.
    Lam_N: the contribution of f_N to Lam in the constrained directions.
    beta: the impulses along the tangents, if these are known.
    xi_values, xi_directions: the stationary values of xi = T_c/T, from the largest, and the
        velocities at which they occur, as rows of kinetic energy 1.
    angles: the principal angles between the rows before and after in the mass metric, in radians,
        from the largest.
    kind: "regular", "singular" or "undecided" (A. Mueller, Definition 1).
    title: the heading of the table.
    """

    M: np.ndarray
    before: Subspace
    after: Subspace
    v_before: np.ndarray
    v_after: np.ndarray
    constraint: Impulse
    non_ideal: Impulse
    applied: Impulse
    Lam: np.ndarray
    Lam_N: np.ndarray
    beta: np.ndarray
    xi_values: np.ndarray  # (10)
    xi_directions: np.ndarray
    angles: np.ndarray
    kind: str
    title: str = "transition"

    @property
    def P_c(self) -> np.ndarray:
        return self.after.P  # (1)

    @property
    def P_a(self) -> np.ndarray:
        return np.eye(len(self.M)) - self.after.P  # (1)

    def split(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """v_c and v_a."""
        return self.P_c @ v, self.P_a @ v  # (2)

    def energies(self, v: np.ndarray) -> tuple[float, float, float]:
        """T, T_c and T_a."""
        T, T_c, T_a = (float(0.5 * u @ self.M @ u) for u in (v, *self.split(v)))  # (3)
        return T, T_c, T_a

    @cached_property
    def energy_before(self) -> tuple[float, float, float]:
        return self.energies(self.v_before)

    @cached_property
    def energy_after(self) -> tuple[float, float, float]:
        return self.energies(self.v_after)

    @property
    def xi(self) -> float:
        """(9); NaN for a mechanism at rest."""
        T, T_c, _ = self.energy_before
        return T_c / T if T > 0 else float("nan")

    @property
    def impulses(self) -> dict[str, Impulse]:
        return {
            "constraint": self.constraint,
            "non-ideal": self.non_ideal,
            "applied": self.applied,
        }

    @property
    def ledger(self) -> dict[str, float]:
        """The energy that each impulse supplied; the sum is the change of kinetic energy."""
        return {name: impulse.work for name, impulse in self.impulses.items()}

    def __str__(self) -> str:
        from nsdyn.analysis.transition_text import text

        return text(self)

    def __repr__(self) -> str:
        ranks = f"rank {self.before.rank} -> {self.after.rank}"
        return f"TransitionReport({self.title}: {self.kind}, {ranks}, xi = {self.xi:.6g})"


def report(
    M: ArrayLike,
    G_before: ArrayLike,
    G_after: ArrayLike,
    v_before: ArrayLike,
    v_after: ArrayLike | None = None,
    gt_after: ArrayLike | None = None,
    U: ArrayLike | None = None,
    on_before: ArrayLike | None = None,
    on_after: ArrayLike | None = None,
    tangents: ArrayLike | None = None,
    kind: str | None = None,
    title: str = "transition",
) -> TransitionReport:
    """The report of a transition given by matrices; see `nsdyn.transition_report`."""
    M = np.asarray(M, float)
    v = np.asarray(v_before, float)
    n = len(v)
    if v.shape != (n,) or M.shape != (n, n):
        raise ProblemError(
            f"transition_report: expected M (n, n) and v_before (n,), found {M.shape} and {v.shape}"
        )
    L = np.linalg.cholesky(M)
    before = _subspace("G_before", L, G_before, on_before)
    after = _subspace("G_after", L, G_after, on_after)
    U = np.zeros(n) if U is None else np.asarray(U, float)
    u = (
        _ideal(L, after, v, _live_part(gt_after, on_after, after), U)
        if v_after is None
        else np.asarray(v_after, float)
    )
    push = M @ (u - v) - U
    B = np.zeros((0, n)) if tangents is None else np.asarray(tangents, float)
    f_N, beta = _non_ideal(L, after, push, B)
    made = lambda f: Impulse(
        total=f,
        constrained=after.P.T @ f,
        admissible=f - after.P.T @ f,
        work=float(0.5 * f @ (u + v)),
    )  # (4), (11)
    values, directions = _stationary(L, before, after)
    return TransitionReport(
        M=M,
        before=before,
        after=after,
        v_before=v,
        v_after=u,
        constraint=made(push - f_N),
        non_ideal=made(f_N),
        applied=made(U),
        Lam=rank.least_multipliers(after.G, M, -(push - f_N)),
        Lam_N=rank.least_multipliers(after.G, M, -after.P.T @ f_N),
        beta=beta,
        xi_values=values,
        xi_directions=directions,
        angles=_angles(before, after),
        kind=_kind(before, after) if kind is None else kind,
        title=title,
    )


def _subspace(name: str, L: np.ndarray, G: ArrayLike, live: ArrayLike | None) -> Subspace:
    n = len(L)
    G = np.asarray(G, float)
    G = G.reshape(0, n) if G.size == 0 else G
    if G.ndim != 2 or G.shape[1] != n:
        raise ProblemError(
            f"transition_report({name}=...): expected shape (rows, {n}), found {G.shape}"
        )
    G = G if live is None else G[np.asarray(live, bool)]
    rows = scipy.linalg.solve_triangular(L, G.T, lower=True).T
    basis = rank.row_space(rows / rank.row_lengths(rows)[:, None])
    P = scipy.linalg.solve_triangular(L.T, basis.T @ (basis @ L.T))  # (1) = L^-T Q^T Q L^T
    return Subspace(G=G, rank=len(basis), P=P, basis=basis)


def _live_part(gt: ArrayLike | None, live: ArrayLike | None, after: Subspace) -> np.ndarray:
    gt = np.zeros(len(after.G)) if gt is None else np.asarray(gt, float)
    return gt[np.asarray(live, bool)] if live is not None and len(gt) != len(after.G) else gt


def _ideal(
    L: np.ndarray, after: Subspace, v: np.ndarray, gt: np.ndarray, U: np.ndarray
) -> np.ndarray:
    """The velocity after an ideal transition, as `PostSwitchGradient` gives it."""
    free = v + scipy.linalg.cho_solve((L, True), U)
    driven = rank.least_change(after.G, L @ L.T, -gt) if np.any(gt) else 0.0
    return free - after.P @ free + driven


def _non_ideal(
    L: np.ndarray, after: Subspace, push: np.ndarray, B: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """f_N and beta of (7)."""
    B_a = B - B @ after.P
    push_a = push - after.P.T @ push
    scaled = lambda f: scipy.linalg.solve_triangular(L, f, lower=True)  # the metric M^-1
    beta = rank.least_norm(scaled(B_a.T), scaled(push_a), rank.row_lengths(scaled(B.T).T))
    return push_a + after.P.T @ (B.T @ beta), beta


def _stationary(L: np.ndarray, before: Subspace, after: Subspace) -> tuple[np.ndarray, np.ndarray]:
    """(10), with v = sqrt(2) L^-T w for unit vectors w."""
    F = scipy.linalg.null_space(before.basis) if before.rank else np.eye(len(L))
    if not F.shape[1]:
        return np.zeros(0), np.zeros((0, len(L)))
    _, s, Y = np.linalg.svd(after.basis @ F)
    values = np.concatenate([s, np.zeros(F.shape[1] - len(s))]) ** 2
    return values, np.sqrt(2) * scipy.linalg.solve_triangular(L.T, F @ Y.T).T


def _angles(before: Subspace, after: Subspace) -> np.ndarray:
    if not before.rank or not after.rank:
        return np.zeros(0)
    return scipy.linalg.subspace_angles(before.basis.T, after.basis.T)


def _kind(*spaces: Subspace) -> str:
    """Independent rows mean a regular point. Dependent rows may be redundant or singular; matrices
    alone cannot decide which."""
    return REGULAR if all(space.rank == len(space.G) for space in spaces) else UNDECIDED


def require_event(event: Any) -> None:
    wanted = ("t", "q", "v_before", "v_after", "mode_before", "mode_after", "direction")
    if not all(hasattr(event, name) for name in wanted) or np.ndim(event.t):
        raise ProblemError(
            "transition_report(problem, event): expected one event of a trajectory, found "
            f"{event!r}"
        )
