"""Linear algebra of the small, dense, masked systems that every step solves.

Saddle-point system with masked rows. For rows r that are live

    M x + G^T lam = b                                                              (1)
    G_r x = c_r                                                                    (2)

and lam_r = 0 for rows that are dead. With Y = M^-1 G^T, x0 = M^-1 b and the dead rows of G set to zero

    S = G Y + diag(dead),   S lam = (G x0 - c) on live rows, 0 on dead ones        (3)
    x = x0 - Y lam                                                                 (4)

so a dead row is an identity row of S, and this is the only place where that happens.

A row that depends on the rows before it leaves a pivot of S that is zero to round-off; its multiplier is set to zero. x is
then still the unique solution as long as the rows are consistent.

Systems up to UNROLL unknowns are factored by written-out LDL^T: inside a compiled loop one LAPACK call costs more than a
whole unrolled step. Larger ones go to LAPACK's Cholesky.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve
from jaxtyping import Array, Bool, Float

UNROLL = 5
DEPENDENT = 1e-12


def matvec(a: Float[Array, "m n"], x: Float[Array, " n"]) -> Float[Array, " m"]:
    """a @ x, written out when small so that the compiler can fuse it with its surroundings."""
    if a.shape[1] > UNROLL:
        return a @ x
    return sum((a[:, j] * x[j] for j in range(a.shape[1])), jnp.zeros(a.shape[0], a.dtype))


def matmul(a: Float[Array, "m n"], b: Float[Array, "n k"]) -> Float[Array, "m k"]:
    if a.shape[1] > UNROLL:
        return a @ b
    terms = (a[:, j, None] * b[None, j, :] for j in range(a.shape[1]))
    return sum(terms, jnp.zeros((a.shape[0], b.shape[1]), a.dtype))


def factor(a: Float[Array, "n n"], semidefinite: bool = False) -> Callable:
    """A function b -> a^-1 b for symmetric positive definite a; b is a vector or a matrix of columns."""
    n = a.shape[0]
    if n == 0:
        return lambda b: b
    if n <= UNROLL:
        return _unrolled(a, semidefinite)
    if semidefinite:
        return _masked_cholesky(a)
    c = cho_factor(a, lower=True)
    return lambda b: cho_solve(c, b)


def _unrolled(a, semidefinite):
    n = a.shape[0]
    low = [[None] * n for _ in range(n)]
    d, inv = [None] * n, [None] * n
    for j in range(n):
        s = a[j, j]
        for k in range(j):
            s = s - low[j][k] * low[j][k] * d[k]
        if semidefinite:
            keep = s > DEPENDENT * a[j, j]
            inv[j] = jnp.where(keep, 1.0 / jnp.where(keep, s, 1.0), 0.0)
        else:
            inv[j] = 1.0 / s
        d[j] = s
        for i in range(j + 1, n):
            s = a[i, j]
            for k in range(j):
                s = s - low[i][k] * low[j][k] * d[k]
            low[i][j] = s * inv[j]

    def solve(b):
        x = [b[i] for i in range(n)]
        for i in range(n):
            for k in range(i):
                x[i] = x[i] - low[i][k] * x[k]
        x = [x[i] * inv[i] for i in range(n)]
        for i in reversed(range(n)):
            for k in range(i + 1, n):
                x[i] = x[i] - low[k][i] * x[k]
        return jnp.stack(x)

    return solve


def _masked_cholesky(a):
    """Cholesky of a with its dependent rows replaced by identity rows (their unknowns come out as zero)."""
    n = a.shape[0]
    scale = jnp.sqrt(jnp.maximum(jnp.diagonal(a), jnp.finfo(a.dtype).tiny))
    unit = a / scale[:, None] / scale[None, :]
    keep = _independent(unit)
    masked = jnp.where(keep[:, None] & keep[None, :], unit, jnp.eye(n, dtype=a.dtype))
    c = cho_factor(masked, lower=True)

    def solve(b):
        column = (lambda w: w[:, None]) if b.ndim == 2 else (lambda w: w)
        rhs = jnp.where(column(keep), b / column(scale), 0.0)
        return jnp.where(column(keep), cho_solve(c, rhs), 0.0) / column(scale)

    return solve


def _independent(unit):
    """Which rows of a semidefinite matrix with unit diagonal do not depend on the rows before them."""
    from jax import lax

    def eliminate(j, carry):
        rest, keep = carry
        pivot = rest[j, j]
        ok = pivot > DEPENDENT
        column = jnp.where(ok, rest[:, j] / jnp.where(ok, pivot, 1.0), 0.0)
        return rest - column[:, None] * rest[j][None, :], keep.at[j].set(ok)

    start = (lax.stop_gradient(unit), jnp.ones(unit.shape[0], bool))
    return lax.fori_loop(0, unit.shape[0], eliminate, start)[1]


def masked_kkt(
    solve: Callable,
    G: Float[Array, "m n"],
    live: Bool[Array, " m"],
    b: Float[Array, " n"],
    c: Float[Array, " m"],
) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
    """x and lam of (1) and (2); `solve` applies M^-1 to a vector or to columns."""
    x0 = solve(b)
    if G.shape[0] == 0:
        return x0, jnp.zeros(0, b.dtype)
    Gm, Y, inverse = schur(solve, G, live)
    lam = inverse(jnp.where(live, matvec(Gm, x0) - c, 0.0))  # (3)
    return x0 - matvec(Y, lam), lam  # (4)


def schur(solve, G, live):
    """The masked G, Y = M^-1 G^T and a solver for S of (3)."""
    Gm = jnp.where(live[:, None], G, 0.0)
    Y = solve(Gm.T)
    S = matmul(Gm, Y) + jnp.diag(jnp.where(live, 0.0, 1.0))
    return Gm, Y, factor(S, semidefinite=True)
