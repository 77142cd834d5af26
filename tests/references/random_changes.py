"""Random mode changes of one size, in categories, as arrays with a leading axis of cases.

Before and after, `rank` directions are constrained, of which `shared` stay. Half of the cases have
a row for each direction. The others, and all "combinations", have two rows too many, each a mixture
of directions; one of them is among the rows that stay.
"""

from typing import NamedTuple

import numpy as np

from references import jumps

CATEGORIES = (
    "plain",
    "combinations",
    "mass of condition 1e6",
    "rows scaled by 1e-6 to 1e6",
    "nearly dependent",
    "nearly equal",
    "nearly orthogonal",
)


class Changes(NamedTuple):
    M: np.ndarray
    G_before: np.ndarray
    G_after: np.ndarray
    v: np.ndarray
    gt: np.ndarray  # rows that stay may be driven at another rate after the change
    gt_steady: np.ndarray  # here they are not
    U: np.ndarray
    live: np.ndarray
    kept: np.ndarray
    tangent: np.ndarray


def largest_rank(n):
    return max(1, min(n - 1, 2 * n // 3))


def random_changes(category, n, count, seed) -> Changes:
    rng = np.random.default_rng([seed, n, CATEGORIES.index(category)])
    top = largest_rank(n)
    rank = rng.integers(1, top + 1, count)
    shared = rng.integers(0, rank)
    if category.startswith("nearly"):
        shared[:] = 0
    M = _mass(rng, count, n, 1e6 if category.startswith("mass") else 10.0)
    old, new = _directions(rng, category, M, rank, shared, top)
    mixed = rng.random(count) < (1.0 if category == "combinations" else 0.5)
    before, after, live, kept = _rows(rng, old, new, rank, shared, mixed)
    if category.startswith("rows"):
        length = 10 ** rng.uniform(-6, 6, (2, count, top + 2, 1))
        length[1] = np.where(kept[:, :, None], length[0], length[1])
        before, after = length[0] * before, length[1] * after
    order = rng.permuted(np.tile(np.arange(top + 2), (count, 1)), axis=1)
    before, after = (np.take_along_axis(x, order[:, :, None], 1) for x in (before, after))
    live, kept = (np.take_along_axis(x, order, 1) for x in (live, kept))
    U, tangent = rng.standard_normal((2, count, n))
    v, gt, steady = _velocities(rng, M, before, after, kept)
    return Changes(
        M=M,
        G_before=before,
        G_after=after,
        v=v,
        gt=gt,
        gt_steady=steady,
        U=U,
        live=live,
        kept=kept,
        tangent=tangent[:, None],
    )


def _mass(rng, count, n, condition):
    turn = np.linalg.qr(rng.standard_normal((count, n, n)))[0]
    values = condition ** rng.uniform(0, 1, (count, n))
    values[:, 0] = condition
    values[:, -1] = 1.0
    M = np.einsum("kij,kj,klj->kil", turn, values, turn)
    return (M + np.swapaxes(M, 1, 2)) / 2


def _directions(rng, category, M, rank, shared, top):
    """Directions before and after, shape (count, top, n); zeros beyond the rank."""
    count, n = M.shape[:2]
    old, new = rng.standard_normal((2, count, top, n))
    if category == "nearly equal":
        new = old + 10 ** rng.uniform(-5, -2, (count, 1, 1)) * new
    if category == "nearly orthogonal":
        new = np.concatenate([_nearly_orthogonal(rng, M, old), old[:, 1:]], axis=1)
    number = np.arange(top)
    new = np.where((number < shared[:, None])[:, :, None], old, new)
    there = (number < rank[:, None])[:, :, None]
    old, new = np.where(there, old, 0.0), np.where(there, new, 0.0)
    if category == "nearly dependent":
        old, new = _nearly_dependent(rng, old, rank), _nearly_dependent(rng, new, rank)
    return old, new


def _nearly_orthogonal(rng, M, old):
    """One direction that makes an angle near 90 degrees, in the mass metric, with all of these."""
    L = np.linalg.cholesky(M)
    span = np.linalg.qr(np.linalg.solve(L, np.swapaxes(old, 1, 2)))[0]
    w = rng.standard_normal((*M.shape[:2], 1))
    w = w - span @ (np.swapaxes(span, 1, 2) @ w)
    w = w / np.linalg.norm(w, axis=1, keepdims=True)
    cosine = 10 ** rng.uniform(-3.5, -2, (len(M), 1, 1))
    return np.swapaxes(L @ (w + cosine * span[:, :, :1]), 1, 2)


def _nearly_dependent(rng, rows, rank):
    """The last direction, if it is not the only one, almost in the span of the others."""
    cases, last = np.arange(len(rows)), rank - 1
    own = rows[cases, last]
    others = np.sum(rows, axis=1) - own
    sine = 10 ** rng.uniform(-4.5, -2, (len(rows), 1))
    rows = rows.copy()
    rows[cases, last] = np.where((rank > 1)[:, None], others + sine * own, own)
    return rows


def _rows(rng, old, new, rank, shared, mixed):
    """Rows before and after, which of them are live, and which stay."""
    count, top, _ = old.shape
    m = top + 2
    row = np.arange(m)
    one_each = np.broadcast_to(np.eye(m, top), (2, count, m, top))
    mix = rng.integers(-3, 4, (2, count, m, top)) + one_each
    mix = np.where(mixed[:, None, None], mix, one_each)
    live = row < np.where(mixed, rank + 2, rank)[:, None]
    kept = row < np.where(mixed & (shared > 0), shared + 1, shared)[:, None]
    foreign = kept[:, :, None] & (np.arange(top) >= shared[:, None])[:, None, :]
    mix = np.where(foreign, 0.0, mix)
    before, after = mix[0] @ old, mix[1] @ new
    after = np.where(kept[:, :, None], before, after)
    hidden = lambda rows: np.where(live[:, :, None], rows, 0.0)
    return hidden(before), hidden(after), live, kept


def _velocities(rng, M, before, after, kept):
    """v- that obeys the rows before, and rates after that the rows can have together."""
    x, y, z = rng.standard_normal((3, *M.shape[:2]))
    none = np.zeros(kept.shape)
    along = lambda rows, y: jumps.ideal(
        jumps.Change(M, rows, rows, y, none, np.zeros_like(y), kept)
    ).astype(float)
    rates = lambda x: -np.einsum("kij,kj->ki", after, x)
    staying = np.where(kept[:, :, None], before, 0.0)
    return x + along(before, y), rates(z), rates(x + along(staying, z))
