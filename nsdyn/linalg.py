"""Linear algebra of the small, dense, masked systems that every step solves.

Saddle-point system with masked rows. For rows r that are live

    M x + G^T lam = b                                                              (1)
    G_r x = c_r                                                                    (2)

and lam_r = 0 for rows that are dead. With Y = M^-1 G^T, x0 = M^-1 b and the dead rows of G set to zero

    S = G Y + diag(dead),   S lam = (G x0 - c) on live rows, 0 on dead ones        (3)
    x = x0 - Y lam                                                                 (4)

so a dead row is an identity row of S, and this is the only place where that happens.

A row that depends on the rows before it leaves a pivot of S that is zero to round-off; its multiplier is set to zero. x is
then still the unique solution as long as the rows are consistent. Where multipliers are shown, `shortest` takes their part in the
null space of G^T away: with K = G M^-1 G^T, the generalised inverse K^- of the same pivoting and N = 1 - K^- K, of which only the
columns of dependent rows are not zero,

    lam - N (N^T N)^-1 N^T lam                                                     (5)

Systems up to UNROLL unknowns are factored by written-out LDL^T: inside a compiled loop one LAPACK call costs more than a
whole unrolled step. Larger ones go to LAPACK's Cholesky.
"""

import functools
import operator
from collections.abc import Callable

import jax.numpy as jnp
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
        return Unrolled(_entries(a), semidefinite)
    if semidefinite:
        return _masked_cholesky(a)
    return _cholesky(a)


class Unrolled:
    """LDL^T of a small matrix, every entry a scalar of its own: the compiler turns the whole of it into few kernels."""

    def __init__(self, a, semidefinite: bool = False):
        n = len(a)
        low: list = [[None] * n for _ in range(n)]
        d: list = [None] * n
        inv: list = [None] * n
        for j in range(n):
            d[j] = a[j][j] - _sum(low[j][k] * low[j][k] * d[k] for k in range(j))
            if semidefinite:
                keep = d[j] > DEPENDENT * a[j][j]
                inv[j] = jnp.where(keep, 1.0 / jnp.where(keep, d[j], 1.0), 0.0)
            else:
                inv[j] = 1.0 / d[j]
            for i in range(j + 1, n):
                low[i][j] = (a[i][j] - _sum(low[i][k] * low[j][k] * d[k] for k in range(j))) * inv[j]
        self.n, self.low, self.inv = n, low, inv

    def entries(self, b: list) -> list:
        """a^-1 b for a list of entries (scalars, or rows of a matrix of columns)."""
        n, low = self.n, self.low
        x = list(b)
        for i in range(n):
            x[i] = x[i] - _sum(low[i][k] * x[k] for k in range(i))
        x = [x[i] * self.inv[i] for i in range(n)]
        for i in reversed(range(n)):
            x[i] = x[i] - _sum(low[k][i] * x[k] for k in range(i + 1, n))
        return x

    def __call__(self, b):
        return jnp.stack(self.entries([b[i] for i in range(self.n)]))


def eliminate(a: Float[Array, "n n"], b: Float[Array, " n"]) -> Float[Array, " n"]:
    """a^-1 b for a matrix near the identity: Gaussian elimination, written out without pivoting when small."""
    n = a.shape[0]
    if n > 2 * UNROLL:
        return jnp.linalg.solve(a, b)
    rows = [[*row, b[i]] for i, row in enumerate(_entries(a))]
    for j in range(n):
        scale = 1.0 / rows[j][j]
        for i in range(j + 1, n):
            factor = rows[i][j] * scale
            rows[i] = rows[i][: j + 1] + [rows[i][k] - factor * rows[j][k] for k in range(j + 1, n + 1)]
    x: list = [None] * n
    for i in reversed(range(n)):
        x[i] = (rows[i][n] - _sum(rows[i][k] * x[k] for k in range(i + 1, n))) / rows[i][i]
    return jnp.stack(x)


def _sum(terms):
    """The sum of some terms; 0 if there are none (no array of zeros that the compiler would have to fold)."""
    terms = list(terms)
    return functools.reduce(operator.add, terms) if terms else 0.0


def _entries(a):
    return [[a[i, j] for j in range(a.shape[1])] for i in range(a.shape[0])]


def _cholesky(a):
    from jax.scipy.linalg import cho_factor, cho_solve  # takes a while to import, and small systems do without

    c = cho_factor(a, lower=True)
    return lambda b: cho_solve(c, b)


def _masked_cholesky(a):
    """Cholesky of a with its dependent rows replaced by identity rows (their unknowns come out as zero)."""
    n = a.shape[0]
    scale = jnp.sqrt(jnp.maximum(jnp.diagonal(a), jnp.finfo(a.dtype).tiny))
    unit = a / scale[:, None] / scale[None, :]
    keep = _independent(unit)
    masked = jnp.where(keep[:, None] & keep[None, :], unit, jnp.eye(n, dtype=a.dtype))
    inverse = _cholesky(masked)

    def solve(b):
        column = (lambda w: w[:, None]) if b.ndim == 2 else (lambda w: w)
        rhs = jnp.where(column(keep), b / column(scale), 0.0)
        return jnp.where(column(keep), inverse(rhs), 0.0) / column(scale)

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
    refinements: int = 0,
) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
    """x and lam of (1) and (2); `solve` applies M^-1 to a vector or to columns. Each refinement repeats (3) and (4) for what is
    left of (2); worth it where accuracy counts more than time, as in jumps."""
    if G.shape[0] == 0:
        return solve(b), jnp.zeros(0, b.dtype)
    if isinstance(solve, Unrolled) and G.shape[0] <= UNROLL and not refinements:
        return _small_kkt(solve, G, live, b, c)
    Gm = _masked(G, live)
    columns = solve(jnp.concatenate([b[:, None], Gm.T], axis=1))  # together: a recursion makes one pass for all of them
    x, Y, lam = columns[:, 0], columns[:, 1:], jnp.zeros_like(c)
    inverse = _schur(Gm, Y, live)
    for _ in range(1 + refinements):
        change = inverse(jnp.where(live, matvec(Gm, x) - c, 0.0))  # (3)
        x, lam = x - matvec(Y, change), lam + change  # (4)
    return x, lam


def _small_kkt(solve: Unrolled, G, live, b, c):
    """(3) and (4) entry by entry."""
    m, n = G.shape
    rows = _entries(_masked(G, live))
    x0 = solve.entries([b[i] for i in range(n)])
    Y = [solve.entries(row) for row in rows]
    S = [[_sum(rows[r][i] * Y[s][i] for i in range(n)) for s in range(m)] for r in range(m)]
    for r in range(m):
        S[r][r] = S[r][r] + jnp.where(live[r], 0.0, 1.0)
    residual = [jnp.where(live[r], _sum(rows[r][i] * x0[i] for i in range(n)) - c[r], 0.0) for r in range(m)]
    lam = Unrolled(S, semidefinite=True).entries(residual)  # (3)
    x = [x0[i] - _sum(Y[r][i] * lam[r] for r in range(m)) for i in range(n)]  # (4)
    return jnp.stack(x), jnp.stack(lam)


def shortest(solve: Callable, G: Float[Array, "m n"], lam: Float[Array, " m"]) -> Float[Array, " m"]:
    """The multipliers of least norm with the same G^T lam; those of independent rows stay as they are. `solve` applies M^-1: in
    its metric, and no other, it does not depend on units which rows are dependent."""
    m = G.shape[0]
    if m < 2:
        return lam
    K = matmul(G, solve(G.T))
    N = jnp.eye(m) - factor(K, semidefinite=True)(K)
    dependent = jnp.diagonal(N) > 0.5  # 1 up to round-off, or 0
    N = jnp.where(dependent[None, :], N, 0.0)
    square = matmul(N.T, N) + jnp.diag(jnp.where(dependent, 0.0, 1.0))
    return lam - matvec(N, factor(square)(matvec(N.T, lam)))  # (5)


def schur(solve, G, live):
    """The masked G, Y = M^-1 G^T and a solver for S of (3)."""
    Gm = _masked(G, live)
    Y = solve(Gm.T)
    return Gm, Y, _schur(Gm, Y, live)


def _masked(G, live):
    return jnp.where(live[:, None], G, 0.0)


def _schur(Gm, Y, live):
    return factor(matmul(Gm, Y) + jnp.diag(jnp.where(live, 0.0, 1.0)), semidefinite=True)
