"""Numbers at a point: what is evaluated there, and what must hold at the start.

All functions of a mechanism are evaluated together by one small compiled program (`sample`), which
serves the start, the searches for consistent and for switching points, and every later check of the
same problem. The rest is numpy.

With rows G = d psi / dv, their rates g_t = psi at v = 0, and q' = B v, the searches look for r(q,
t) = 0 by damped Gauss-Newton steps of least norm

    min |dx|^2 + dt^2  subject to  J (dx, dt) = -r,  J = [G, g_t],  q <- q + B dx,  t <- t + dt  (1)

(with time fixed, or in the mass metric |dx|^2 = dx^T M dx, where that is wanted). Rank is that of
`nsdyn.numerics.rank`. Dependent rows contradict each other if

    w^T G = 0   but   w^T g != 0                                                                 (2)
"""

import warnings
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nsdyn.checks.shapes import finite
from nsdyn.constraints.contact import Contact
from nsdyn.constraints.switching import Switching
from nsdyn.errors import ProblemError, RedundancyWarning
from nsdyn.mechanics.model import Model, Point
from nsdyn.numerics.rank import least_change, left_null, row_lengths

CONSISTENT = 1e-8
ITERATIONS = 60


class Sample(NamedTuple):
    """A mechanism at a point. z and Z: the switching functions of all Switching parts and their
    gradients d z / dx."""

    M: Any
    f: Any
    B: Any
    g: Any
    G: Any
    gt: Any
    psi: Any
    live: Any
    guards: Any
    z: Any
    Z: Any
    V: Any
    solved: Any
    momenta: Any


@eqx.filter_jit
def begin(model: Model, q, v, t, p) -> tuple[Point, list]:
    """The start, with the switching functions or gaps of each part."""
    values = {
        Switching: lambda part: part.z(q, p),
        Contact: lambda part: jnp.ravel(part.gap(q, t, p)),
    }
    return model.start(q, v, t, p), [
        values[type(part)](part) if type(part) in values else None for part in model.parts
    ]


@eqx.filter_jit
def _sample(model: Model, q, v, t, p, mode, held) -> Sample:
    system = model.system
    point = Point(t, q, v, mode, held)
    B = (
        jnp.eye(v.shape[0])
        if system.kinematics is None
        else jax.jacfwd(lambda v: system.rate(q, v, p))(v)
    )
    g, G, gt = _rows(model, point, p, B)
    switching = [part for part in model.parts if isinstance(part, Switching)]
    z, Z = _with_slope(
        lambda q: jnp.concatenate([part.z(q, p) for part in switching] or [jnp.zeros(0)]), q
    )
    return Sample(
        M=system.mass(q, p),
        f=model.force(point, p),
        B=B,
        g=g,
        G=G,
        gt=gt,
        psi=G @ v + gt,
        live=model.live(point, p),
        guards=model.guards(point, jnp.zeros(model.m), p),
        z=z,
        Z=Z @ B,
        V=jnp.zeros(()) if system.potential is None else system.potential(q, p),
        solved=None if system.solve is None else system.solver(q, p)(_columns(v.shape[0])),
        momenta=None if system.momentum is None else system.momentum(q, jnp.ones(v.shape[0]), p),
    )


def _rows(model, point, p, B):
    """g, G and g_t; in one sweep where all rows have a position level."""
    if all(part.positional for part in model.parts):
        rows = lambda x: model.rows(point.replace(q=x[:-1], t=x[-1]), p)
        g, slope = _with_slope(rows, jnp.append(point.q, point.t))
        return g, slope[:, :-1] @ B, slope[:, -1]
    psi, G = _with_slope(lambda v: model.psi(point.replace(v=v), p), point.v)
    return model.rows(point, p), G, psi - G @ point.v


def _with_slope(function, x):
    twice = lambda x: (function(x),) * 2
    slope, value = jax.jacfwd(twice, has_aux=True)(x)
    return value, slope


def _columns(n: int):
    """Test vectors for `solve`: unit vectors and one of all ones."""
    return jnp.concatenate([jnp.eye(n)[:, : min(n, 8)], jnp.ones((n, 1))], axis=1)


def sample(model: Model, p, q, v, t, mode, held) -> Sample:
    q, v, t = (np.asarray(x, float) for x in (q, v, t))
    return jax.tree.map(np.asarray, _sample(model, q, v, t, p, np.asarray(mode, int), held))


def nearest_root(evaluate, q, t=0.0, chol=None, free_time=False):
    """A root (q, t) of r near a start by (1), or None. evaluate(q, t) gives r, J, B; `chol` is the
    L of M = L L^T."""
    r, J, B = evaluate(q, t)
    for _ in range(ITERATIONS):
        if not np.any(r) or not np.all(np.isfinite(J)):
            break
        A = J if free_time else J[:, :-1]
        if chol is not None:
            A = np.linalg.solve(chol, A.T).T
        dx = -np.linalg.lstsq(A, r, rcond=1e-12)[0]  # (1)
        if chol is not None:
            dx = np.linalg.solve(chol.T, dx)
        dq, dt = B @ dx[: B.shape[1]], dx[-1] if free_time else 0.0
        for cut in 0.5 ** np.arange(10):
            new = evaluate(q + cut * dq, t + cut * dt)
            if np.linalg.norm(new[0]) < np.linalg.norm(r):
                break
        else:
            break
        q, t, (r, J, B) = q + cut * dq, t + cut * dt, new
    scale = row_lengths(J) * max(1.0, np.max(np.abs(q), initial=0.0))
    return (q, t) if np.all(np.abs(r) <= 1e-10 * scale) else None


def mass_matrix(report, M):
    """M must be finite, symmetric and positive definite."""
    finite("System(mass=...)", M, " at q0")
    size, skew = np.max(np.abs(M), initial=0.0), np.abs(M - M.T)
    if np.max(skew, initial=0.0) > 1e-10 * size:
        i, j = (int(k) for k in np.unravel_index(np.argmax(skew), M.shape))
        raise ProblemError(
            f"System(mass=...): expected a symmetric matrix, found M[{i}, {j}] = {M[i, j]:.6g} and "
            f"M[{j}, {i}] = {M[j, i]:.6g} at q0, which differ by {skew[i, j]:.3g}"
        )
    report.add("mass matrix symmetric", f"|M - M^T| = {np.max(skew, initial=0.0):.1e}")
    smallest = float(np.min(np.linalg.eigvalsh(M), initial=np.inf))
    d = np.diagonal(M)
    scaled = np.linalg.eigvalsh(M / np.sqrt(np.outer(d, d))) if np.all(d > 0) else np.array([-1.0])
    if np.min(scaled, initial=1.0) <= 1e-13 * max(1, len(d)):
        kind = "an indefinite" if smallest < -1e-13 * size else "a singular"
        raise ProblemError(
            f"System(mass=...): expected a positive definite matrix, found {kind} one at q0: "
            "smallest eigenvalue "
            f"{smallest:.3g}. Give every coordinate a mass or remove it, or start off a singular "
            "position"
        )
    report.add("mass matrix positive definite", f"smallest eigenvalue {smallest:.3g}")


def mass_solve(report, s: Sample):
    """solve(q, b, p) must be M^-1 b."""
    if s.solved is None:
        return
    finite("System(solve=...)", s.solved, " at q0")
    b = np.asarray(_columns(s.M.shape[0]))
    error = np.max(np.abs(s.M @ s.solved - b))
    if error > 1e-8 * max(1.0, np.max(np.abs(s.M)) * np.max(np.abs(s.solved))):
        k = int(np.argmax(np.max(np.abs(s.M @ s.solved - b), axis=0)))
        raise ProblemError(
            "System(solve=...): expected solve(q, b, p) = M^-1 b, found M solve(b) - b = "
            f"{error:.3g} at q0 for "
            f"b = {as_list(b[:, k])}"
        )
    report.add("solve is M^-1 b", f"|M solve(b) - b| = {error:.1e}")


def mass_product(report, s: Sample):
    """momentum(q, v, p) must be M v."""
    if s.momenta is None:
        return
    finite("System(momentum=...)", s.momenta, " at q0")
    error = np.max(np.abs(s.momenta - np.sum(s.M, axis=1)))
    if error > 1e-8 * np.max(np.sum(np.abs(s.M), axis=1)):
        raise ProblemError(
            "System(momentum=...): expected momentum(q, v, p) = M v, found a difference of "
            f"{error:.3g} at q0 for v = "
            f"{as_list(np.ones(len(s.M)))}"
        )
    report.add("momentum is M v", f"|momentum - M v| = {error:.1e}")


def rows_at_start(report, model: Model, point: Point, p, s: Sample, names):
    """Live rows must be finite, not contradict each other, and hold at q0 and v0."""
    for i in np.flatnonzero(s.live):
        for what, value in (("value", s.g[i]), ("gradient", s.G[i]), ("rate", s.psi[i])):
            finite(f"Problem(constraint=...), {what} of the row {names[i]}", value, " at q0, v0")
    contact = np.repeat([isinstance(part, Contact) for part in model.parts], model.row_counts)
    live = np.flatnonzero(
        s.live & ~np.asarray(contact, bool)
    )  # contacts are closed within a tolerance
    position = live[model.positional[live]]
    _hold(report, "q0", s.g, position, model, point, p, s, names)
    _hold(report, "v0", s.psi, live, model, point, p, s, names)
    null = left_null(s.G[live], s.M)
    if null.shape[1]:
        _keep_together(model, point, p, s, live, null, names)
        rows = live[np.max(np.abs(null), axis=1) > 1e-6]
        involved = _listed(names, rows) + (
            " depend on each other" if len(rows) > 1 else " has no gradient"
        )
        rank = f"rank {len(live) - null.shape[1]} for {len(live)} rows"
        report.add("rows independent", f"{rank}: {involved}", "warning")
        warnings.warn(
            f"Problem(constraint=...): expected independent rows, found {rank} at q0: {involved}. "
            "They are "
            "consistent: the motion is unique, the multipliers are not",
            RedundancyWarning,
            stacklevel=5,
        )
    elif len(live):
        report.add("rows independent", f"rank {len(live)} for {len(live)} rows")


@eqx.filter_jit
def _gamma(model: Model, point: Point, p):
    return model.gamma(point, p)


def _keep_together(model, point, p, s: Sample, live, null, names):
    """Dependent rows that hold now must also ask for the same acceleration, w^T gamma = 0."""
    gamma = np.asarray(_gamma(model, point, p))[live]
    relative = gamma / row_lengths(s.G[live])
    clash = null @ (null.T @ relative)
    if np.max(np.abs(clash)) > CONSISTENT * max(1.0, np.max(np.abs(relative))):
        guilty = live[np.abs(clash) > 1e-6 * np.max(np.abs(clash))]
        raise ProblemError(
            "Problem(constraint=...): expected rows that can hold together, found that "
            f"{_listed(names, guilty)} contradict "
            "each other from t0 on: they hold at q0 and v0 with dependent gradients, but their "
            "second derivatives differ. "
            "Remove one of them, or start off the singular position"
        )


def _hold(report, argument, residual, rows, model, point, p, s, names):
    if not len(rows):
        return
    state = np.asarray(point.q if argument == "q0" else point.v)
    G, size = s.G[rows], max(1.0, np.max(np.abs(state), initial=0.0))
    relative = residual[rows] / row_lengths(G) / size
    null = left_null(G, s.M)
    clash = null @ (null.T @ relative)  # (2)
    offer = None
    if np.max(np.abs(relative)) > CONSISTENT:
        offer = _offer(model, point, p, s, rows if argument == "q0" else None)
    if np.max(np.abs(clash)) > CONSISTENT and offer is None:
        guilty = rows[np.abs(clash) > 1e-6 * np.max(np.abs(clash))]
        level = "" if argument == "q0" else " at velocity level"
        raise ProblemError(
            "Problem(constraint=...): expected rows that can hold together, found that "
            f"{_listed(names, guilty)} "
            f"contradict each other{level} at {argument}: their gradients are dependent, but their "
            "residuals "
            f"{as_list(residual[guilty], 6)} are not. Remove one of them, or start off the "
            "singular position"
        )
    if np.max(np.abs(relative)) > CONSISTENT:
        worst = rows[np.argmax(np.abs(relative))]
        what = "row" if argument == "q0" else "rate G v + g_t of the row"
        bound = CONSISTENT * size * row_lengths(s.G[worst][None])[0]
        raise ProblemError(
            f"{argument}: expected a state that satisfies the constraint, found "
            f"{residual[worst]:.6g} in the {what} "
            f"{names[worst]} (expected 0 to within {bound:.1g}). "
            f"{offer or 'No consistent state was found near it.'}"
        )
    level = "rows hold at q0" if argument == "q0" else "rows hold at v0"
    report.add(
        level,
        f"|{'g' if argument == 'q0' else 'G v + g_t'}| = {np.max(np.abs(residual[rows])):.1e}",
    )


def _offer(model, point, p, s, rows):
    """The nearest consistent q0 (if `rows` are given) and v0 in words, or None."""
    q, v, t = np.asarray(point.q), np.asarray(point.v), float(point.t)
    text, at = [], lambda q, v: sample(model, p, q, v, t, point.mode, point.held)
    if rows is not None:
        system = lambda s: (s.g[rows], np.column_stack([s.G[rows], s.gt[rows]]), s.B)
        shifts = (
            0.0,
            1e-3 * max(1.0, np.max(np.abs(q))) * np.cos(np.arange(q.shape[0])),
        )  # off a singular position
        roots = (
            nearest_root(lambda q, t: system(at(q, v)), q + shift, t, np.linalg.cholesky(s.M))
            for shift in shifts
        )
        root = next((root for root in roots if root is not None), None)
        if root is None:
            return None
        q = root[0]
        text.append(f"q0 = {as_list(q)}")
        s = at(q, v)
    live = np.flatnonzero(s.live)
    dv = -least_change(s.G[live], s.M, s.psi[live])
    psi = at(q, v + dv).psi[live]
    if np.max(np.abs(psi) / row_lengths(s.G[live]), initial=0.0) > CONSISTENT * max(
        1.0, np.max(np.abs(v))
    ):
        return None if rows is None else f"A consistent position near it: {text[0]}"
    if rows is None or np.max(np.abs(dv)) > CONSISTENT:
        text.append(f"v0 = {as_list(v + dv)}")
    return f"The nearest consistent state: {', '.join(text)}"


def _listed(names, rows):
    return ", ".join(names[i] for i in rows)


def as_list(x, digits=None) -> str:
    """Numbers as a list that can be pasted; entries that are round-off beside the others are
    written as 0."""
    x = np.ravel(np.asarray(x, float))
    small = (
        1e-16 * np.max(np.abs(x), initial=0.0)
        if digits is None
        else 1e-8 * np.max(np.abs(x), initial=1.0)
    )
    x = np.where(np.abs(x) < small, 0.0, x)
    return "[" + ", ".join(repr(float(y)) if digits is None else f"{y:.{digits}g}" for y in x) + "]"
