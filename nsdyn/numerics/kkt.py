"""The saddle-point system with masked rows. For rows r that are live

    M x + G^T lam = b                                                              (1)
    G_r x = c_r                                                                    (2)

and lam_r = 0 for rows that are dead. With Y = M^-1 G^T, x0 = M^-1 b and the dead rows of G set to
zero

    S = G Y + diag(dead),   S lam = (G x0 - c) on live rows, 0 on dead ones        (3)
    x = x0 - Y lam                                                                 (4)

so a dead row is an identity row of S.

A row that depends on the rows before it leaves a pivot of S that is zero to round-off; its
multiplier is set to zero. x is then still the unique solution as long as the rows are consistent.
For multipliers that are shown or used by guards, `least_norm_multipliers` removes the part in the
null space of G^T: with K = G M^-1 G^T, its generalised inverse K^- by the same pivoting and
N = 1 - K^- K, of which only the columns of dependent rows are not zero,

    lam - N (N^T N)^-1 N^T lam                                                     (5)
"""

from collections.abc import Callable

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from nsdyn._types import Jacobian, RowMask, Rows, Solve, Velocity
from nsdyn.numerics.small import (
    UNROLL,
    Unrolled,
    entries,
    factor,
    independent,
    matmul,
    matvec,
    spanning,
    total,
)


def masked_kkt(
    solve: Callable,
    G: Float[Array, "m n"],
    live: Bool[Array, " m"],
    b: Float[Array, " n"],
    c: Float[Array, " m"],
    refinements: int = 0,
    definite: bool = False,
) -> tuple[Float[Array, " n"], Float[Array, " m"]]:
    """x and lam of (1) and (2); `solve` applies M^-1 to a vector or to columns. Each refinement
    repeats (3) and (4) for the residual of (2); this is worthwhile where accuracy matters more than
    time, as in jumps. S is `definite` if rows that are live together never depend on each other; no
    row is then tested, which for six takes longer than all else."""
    if G.shape[0] == 0:
        return solve(b), jnp.zeros(0, b.dtype)
    if isinstance(solve, Unrolled) and G.shape[0] <= UNROLL and not refinements:
        return _small_kkt(solve, G, live, b, c)
    Gm = _masked(G, live)
    # Together: a recursive solver makes one pass for all of them.
    columns = solve(jnp.concatenate([b[:, None], Gm.T], axis=1))
    Y = columns[:, 1:]
    inverse = _schur(Gm, Y, live, definite)

    def once(start, _):
        x, lam = start
        change = inverse(jnp.where(live, matvec(Gm, x) - c, 0.0))  # (3)
        return (x - matvec(Y, change), lam + change), None  # (4)

    start = columns[:, 0], jnp.zeros_like(c)
    if not refinements:
        return once(start, None)[0]
    # A loop: written out, the compiler may compute x again where it is used, rounded differently,
    # by 1e-16 / sine^2 for nearly dependent rows; each pass must correct the very x that is
    # returned.
    return lax.scan(once, start, None, length=1 + refinements)[0]


def _small_kkt(
    solve: Unrolled, G: Jacobian, live: RowMask, b: Velocity, c: Rows
) -> tuple[Velocity, Rows]:
    """(3) and (4) entry by entry."""
    m, n = G.shape
    rows = entries(_masked(G, live))
    x0 = solve.entries([b[i] for i in range(n)])
    Y = [solve.entries(row) for row in rows]
    S = [[total(rows[r][i] * Y[s][i] for i in range(n)) for s in range(m)] for r in range(m)]
    for r in range(m):
        S[r][r] = S[r][r] + jnp.where(live[r], 0.0, 1.0)
    residual = [
        jnp.where(live[r], total(rows[r][i] * x0[i] for i in range(n)) - c[r], 0.0)
        for r in range(m)
    ]
    lam = Unrolled(S, semidefinite=True).entries(residual)  # (3)
    x = [x0[i] - total(Y[r][i] * lam[r] for r in range(m)) for i in range(n)]  # (4)
    return jnp.stack(x), jnp.stack(lam)


def least_norm_multipliers(
    solve: Callable, G: Float[Array, "m n"], lam: Float[Array, " m"]
) -> Float[Array, " m"]:
    """The multipliers of least norm with the same G^T lam; those of independent rows stay as they
    are. `solve` applies M^-1: dependence is judged in the mass metric, so it does not change with
    the units of the coordinates."""
    m = G.shape[0]
    if m < 2:
        return lam
    K = matmul(G, solve(G.T))
    N = jnp.eye(m) - factor(K, semidefinite=True)(K)
    dependent = jnp.diagonal(N) > 0.5  # 1 up to round-off, or 0
    N = jnp.where(dependent[None, :], N, 0.0)
    square = matmul(N.T, N) + jnp.diag(jnp.where(dependent, 0.0, 1.0))
    return lam - matvec(N, factor(square)(matvec(N.T, lam)))  # (5)


def independent_rows(
    solve: Callable, G: Float[Array, "m n"], live: Bool[Array, " m"]
) -> Bool[Array, " m"]:
    """The live rows that (3) keeps."""
    Gm = _masked(G, live)
    return live & independent(matmul(Gm, solve(Gm.T)))


def spanning_rows(
    solve: Callable,
    G: Float[Array, "m n"],
    live: Bool[Array, " m"],
    preferred: Bool[Array, " m"] | None = None,
) -> Bool[Array, " m"]:
    """Independent live rows that span all of them, chosen with more care than a step can afford:
    see `small.spanning`."""
    Gm = _masked(G, live)
    return live & spanning(matmul(Gm, solve(Gm.T)), preferred)


def schur(
    solve: Solve, G: Jacobian, live: RowMask, definite: bool = False
) -> tuple[Jacobian, Float[Array, "n m"], Solve]:
    """The masked G, Y = M^-1 G^T and a solver for S of (3)."""
    Gm = _masked(G, live)
    Y = solve(Gm.T)
    return Gm, Y, _schur(Gm, Y, live, definite)


def _masked(G: Jacobian, live: RowMask) -> Jacobian:
    return jnp.where(live[:, None], G, 0.0)


def _schur(Gm: Jacobian, Y: Float[Array, "n m"], live: RowMask, definite: bool) -> Solve:
    S = matmul(Gm, Y) + jnp.diag(jnp.where(live, 0.0, 1.0))
    return factor(S, semidefinite=not definite)
