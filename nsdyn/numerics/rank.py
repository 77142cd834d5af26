"""Which rows depend on others: one test with one bound, for steps, laws, checks and reports alike.

Rows are compared in the mass metric, so that the answer depends neither on the units of the
coordinates nor on the length of the rows. With M = L L^T the unit rows of G are

    h_i = g_i L^-T / |g_i L^-T|                                                                (1)

and row i depends on the rows before it if the sine of its angle to their span is small,

    |h_i - (projection of h_i on the span of the independent rows before it)| <= DEPENDENT     (2)

A row of zeros is dependent. The rank is the number of independent rows. In compiled code the square
of (2) appears as a pivot: elimination in K = G M^-1 G^T, whose diagonal holds the squared lengths,
leaves for row i

    pivot_i = K_ii sine_i^2 <= K_ii DEPENDENT^2                                                (3)

(`nsdyn.numerics.small`). The functions here use numpy, for code that is not compiled: they apply
(2) itself, with the same result.
"""

import numpy as np

DEPENDENT = 1e-6
"""Sine of the angle (no unit) below which a row counts as a combination of the rows before it. It
is far above what round-off leaves of an exact combination (the square root of 1e-16, since pivots
are squares) and far below the angles in a mechanism that is meant to be regular."""

SMALLEST_PIVOT = DEPENDENT**2  # (3), for unit rows


def row_lengths(rows: np.ndarray) -> np.ndarray:
    """Lengths of the rows, with 1 for a row of zeros, so that one can divide by them."""
    lengths = np.linalg.norm(rows, axis=-1)
    return np.where(lengths > 0, lengths, 1.0)


def in_mass_metric(G: np.ndarray, M: np.ndarray) -> np.ndarray:
    """G L^-T. Columns of G beyond those of M, such as one for time, stay as they are."""
    rows = np.array(G, float)
    n = len(M)
    rows[:, :n] = np.linalg.solve(np.linalg.cholesky(M), rows[:, :n].T).T
    return rows


def unit_rows(G: np.ndarray, M: np.ndarray) -> np.ndarray:
    rows = in_mass_metric(G, M)
    return rows / row_lengths(rows)[:, None]  # (1)


def orthonormal(rows: np.ndarray) -> np.ndarray:
    """An orthonormal row for each of these rows that is independent of those before it, zeros for
    the others. The rows must be unit rows, or divided by another length of the caller's choice."""
    basis = np.zeros_like(rows)
    for i, row in enumerate(rows):
        rest = row - basis.T @ (basis @ row)
        rest = rest - basis.T @ (basis @ rest)  # once more, because of round-off
        sine = np.linalg.norm(rest)
        if sine > DEPENDENT:  # (2)
            basis[i] = rest / sine
    return basis


def sines(rows: np.ndarray) -> np.ndarray:
    """The sines of (2), with the row that is farthest from the span of those before it taken next:
    a falling sequence, whose entries above DEPENDENT count the rank. The rows are those of
    `orthonormal`."""
    rest = np.array(rows, float)
    found = np.zeros(len(rows))
    for i in range(min(rows.shape)):
        lengths = np.linalg.norm(rest, axis=1)
        j = int(np.argmax(lengths))
        found[i] = lengths[j]
        if not found[i] > 0:
            break
        direction = rest[j] / found[i]
        for _ in range(2):  # once more, because of round-off
            rest = rest - np.outer(rest @ direction, direction)
        rest[j] = 0.0
    return found


def independent(G: np.ndarray, M: np.ndarray) -> np.ndarray:
    """Which rows of G are independent of the rows before them."""
    return np.any(orthonormal(unit_rows(G, M)), axis=1)


def row_space(rows: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the span of unit rows; the number of its rows is their rank."""
    basis = orthonormal(rows)
    return basis[np.any(basis, axis=1)]


def sine(row: np.ndarray, G: np.ndarray, M: np.ndarray) -> float:
    """The sine of the angle between one row and the span of the rows of G, in the mass metric."""
    basis = row_space(unit_rows(G, M))
    unit = unit_rows(row[None], M)[0]
    rest = unit - basis.T @ (basis @ unit)
    return float(np.linalg.norm(rest - basis.T @ (basis @ rest)))


def left_null(G: np.ndarray, M: np.ndarray) -> np.ndarray:
    """Columns w with w^T G = 0, for rows of G divided by `row_lengths(G)`."""
    rank = int(np.sum(independent(G, M)))
    if rank == len(G):
        return np.zeros((rank, 0))
    return np.linalg.svd(G / row_lengths(G)[:, None])[0][:, rank:]


def free_directions(G: np.ndarray, M: np.ndarray) -> np.ndarray:
    """Rows x with G x = 0, orthonormal in the mass metric."""
    basis = row_space(unit_rows(G, M))
    free = np.linalg.svd(basis)[2][len(basis) :] if len(basis) else np.eye(len(M))
    return np.linalg.solve(np.linalg.cholesky(M).T, free.T).T


def least_change(G: np.ndarray, M: np.ndarray, c: np.ndarray) -> np.ndarray:
    """The smallest x in the mass metric with G x = c for the independent rows of G."""
    rows = in_mass_metric(G, M)
    lengths = row_lengths(rows)
    unit = rows / lengths[:, None]
    keep = np.any(orthonormal(unit), axis=1)
    x = np.linalg.lstsq(unit[keep], (c / lengths)[keep], rcond=None)[0]
    return np.linalg.solve(np.linalg.cholesky(M).T, x)


def least_multipliers(G: np.ndarray, M: np.ndarray, f: np.ndarray) -> np.ndarray:
    """lam of least norm with G^T lam = f, for f in the span of the rows."""
    rows = in_mass_metric(G, M)
    return least_norm(rows.T, in_mass_metric(f[None], M)[0], row_lengths(rows))


def least_norm(A: np.ndarray, b: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """x of least norm with A x = b; the rank of A is judged by its columns divided by these
    lengths."""
    span = row_space((A / lengths).T)  # a basis of the column space
    return np.linalg.lstsq(span @ A, span @ b, rcond=None)[0]
