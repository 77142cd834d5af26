"""Linear algebra of the small, dense systems that every step solves.

Systems of up to UNROLL unknowns (UNROLL_DEFINITE if they are positive definite) are factored by an
unrolled LDL^T: inside a compiled loop one LAPACK call costs more than a whole unrolled step. Larger
ones use LAPACK's Cholesky factorisation.

Semidefinite matrices can be factored too: a row that depends on the rows before it (as defined in
`nsdyn.numerics.rank`) leaves a pivot that is zero to round-off, and its unknown is set to zero.
"""

import functools
import operator
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core
from jax.interpreters import batching, mlir
from jaxtyping import Array, Bool, Float

from nsdyn._jitted import traced_once
from nsdyn._types import Matrix, Scalar, Solve, Velocity
from nsdyn.numerics.rank import SMALLEST_PIVOT

UNROLL = 5
UNROLL_DEFINITE = 6  # for positive definite matrices, such as the mass matrix of a 6R robot
SMALLEST = jnp.finfo(float).tiny
IN_LOOP = 16  # unknowns for elimination with pivoting in a loop
ROUND_OFF = 10 * jnp.finfo(float).eps  # of products of unit rows
WELL_APART = 1e-2  # squared sine above which an angle costs no digits


def matvec(a: Float[Array, "m n"], x: Float[Array, " n"]) -> Float[Array, " m"]:
    """a @ x, unrolled if small, so that the compiler can fuse it with the code around it."""
    if a.shape[1] > UNROLL:
        return a @ x
    return sum((a[:, j] * x[j] for j in range(a.shape[1])), jnp.zeros(a.shape[0], a.dtype))


def matmul(a: Float[Array, "m n"], b: Float[Array, "n k"]) -> Float[Array, "m k"]:
    """a @ b, unrolled if small."""
    if a.shape[1] > UNROLL:
        return a @ b
    terms = (a[:, j, None] * b[None, j, :] for j in range(a.shape[1]))
    return sum(terms, jnp.zeros((a.shape[0], b.shape[1]), a.dtype))


def factor(a: Float[Array, "n n"], semidefinite: bool = False) -> Callable:
    """A function b -> a^-1 b for symmetric positive definite a; b is a vector or a matrix of
    columns."""
    n = a.shape[0]
    if n == 0:
        return lambda b: b
    if n <= (UNROLL if semidefinite else UNROLL_DEFINITE):
        return Unrolled(entries(a), semidefinite)
    if semidefinite:
        return _masked_cholesky(a)
    return _cholesky(a)


class Unrolled:
    """LDL^T of a small matrix with every entry a separate scalar, which the compiler turns into a
    few kernels."""

    def __init__(self, a: list[list], semidefinite: bool = False) -> None:
        n = len(a)
        low: list = [[None] * n for _ in range(n)]
        d: list = [None] * n
        inv: list = [None] * n
        for j in range(n):
            d[j] = a[j][j] - total(low[j][k] * low[j][k] * d[k] for k in range(j))
            if semidefinite:
                keep = d[j] > SMALLEST_PIVOT * a[j][j]
                inv[j] = jnp.where(keep, 1.0 / jnp.where(keep, d[j], 1.0), 0.0)
            else:
                inv[j] = 1.0 / d[j]
            for i in range(j + 1, n):
                rest = a[i][j] - total(low[i][k] * low[j][k] * d[k] for k in range(j))
                low[i][j] = rest * inv[j]
        self.n = n
        self.low = low
        self.inv = inv

    def entries(self, b: list) -> list:
        """a^-1 b for a list of entries (scalars, or rows of a matrix of columns)."""
        n = self.n
        low = self.low
        x = list(b)
        for i in range(n):
            x[i] = x[i] - total(low[i][k] * x[k] for k in range(i))
        x = [x[i] * self.inv[i] for i in range(n)]
        for i in reversed(range(n)):
            x[i] = x[i] - total(low[k][i] * x[k] for k in range(i + 1, n))
        return x

    def __call__(self, b: Array) -> Array:
        return jnp.stack(self.entries([b[i] for i in range(self.n)]))


def eliminate(a: Float[Array, "n n"], b: Float[Array, " n"]) -> Float[Array, " n"]:
    """a^-1 b for a matrix near the identity: Gaussian elimination, unrolled and without pivoting if
    small."""
    n = a.shape[0]
    if n > 2 * UNROLL:
        return jnp.linalg.solve(a, b)
    rows = [[*row, b[i]] for i, row in enumerate(entries(a))]
    for j in range(n):
        scale = 1.0 / rows[j][j]
        for i in range(j + 1, n):
            factor = rows[i][j] * scale
            rows[i] = rows[i][: j + 1] + [
                rows[i][k] - factor * rows[j][k] for k in range(j + 1, n + 1)
            ]
    x: list = [None] * n
    for i in reversed(range(n)):
        x[i] = (rows[i][n] - total(rows[i][k] * x[k] for k in range(i + 1, n))) / rows[i][i]
    return jnp.stack(x)


def inverse(a: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """a^-1 of any regular matrix, by Gauss-Jordan elimination with partial pivoting, in a loop: no
    LAPACK call, and little to compile."""
    n = a.shape[0]
    rows = jnp.arange(n)

    def column(j, both):
        below = jnp.where(rows >= j, jnp.abs(both[:, j]), -1.0)
        k = jnp.argmax(below)
        upper, pivot = both[j], both[k] / both[k, j]
        both = both.at[k].set(upper).at[j].set(pivot)
        factors = jnp.where(rows == j, 0.0, both[:, j])
        return both - factors[:, None] * pivot[None, :]

    both = jnp.concatenate([a, jnp.eye(n, dtype=a.dtype)], axis=1)
    return lax.fori_loop(0, n, column, both)[:, n:]


def lu(a: Float[Array, "n n"]) -> Callable:
    """A function b -> a^-1 b for any regular matrix, by LU factors with partial pivoting. In native
    code 12 unknowns take 0.39 us and 0.24 us for each b; `inverse` takes 1.37 us."""
    factors, _, order = lax.linalg.lu(a)
    back = functools.partial(lax.linalg.triangular_solve, factors, left_side=True)

    def solve(b: Float[Array, " n"]) -> Float[Array, " n"]:
        lower = back(b[order][:, None], lower=True, unit_diagonal=True)
        return back(lower, lower=False)[:, 0]

    return solve


def solve_pivoted(a: Float[Array, "n n"], b: Float[Array, " n"]) -> Float[Array, " n"]:
    """a^-1 b of any regular matrix, with partial pivoting: up to IN_LOOP unknowns by Gauss-Jordan
    elimination in a loop, with no LAPACK call, so that it batches; beyond by LU factors, with a
    third of the operations. A pivot of zero leaves numbers that are not finite. It has no
    derivative.

    It is a primitive of its own, since native programs have a function for it that leaves out rows
    with nothing beside the diagonal, such as those of contacts that take no part."""
    return _solve_pivoted.bind(a, b)


def _eliminated(a: Float[Array, "n n"], b: Float[Array, " n"]) -> Float[Array, " n"]:
    n = a.shape[0]
    if n > IN_LOOP:
        return jnp.linalg.solve(a, b)
    rows = jnp.arange(n)
    row = lambda both, i: lax.dynamic_index_in_dim(both, i, 0, keepdims=False)
    put = lambda both, new, i: lax.dynamic_update_index_in_dim(both, new, i, 0)

    def column(j, both):
        entries = lax.dynamic_index_in_dim(both, j, 1, keepdims=False)
        k = jnp.argmax(jnp.where(rows >= j, jnp.abs(entries), -1.0))
        pivot = row(both, k) / entries[k]
        both = put(put(both, row(both, j), k), pivot, j)
        left = lax.dynamic_index_in_dim(both, j, 1, keepdims=False)
        factors = jnp.where(rows == j, 0.0, left)
        return both - factors[:, None] * pivot[None, :]

    return lax.fori_loop(0, n, column, jnp.concatenate([a, b[:, None]], axis=1))[:, n]


def _in_batches(args: tuple, axes: tuple) -> tuple[Array, int]:
    return jax.vmap(_eliminated, in_axes=axes)(*args), 0


_solve_pivoted = core.Primitive("solve_pivoted")
_solve_pivoted.def_impl(jax.jit(_eliminated))
_solve_pivoted.def_abstract_eval(lambda a, b: b)
mlir.register_lowering(_solve_pivoted, mlir.lower_fun(_eliminated, multiple_results=False))
batching.primitive_batchers[_solve_pivoted] = _in_batches


@jax.custom_jvp
def solve_consistent(a: Float[Array, "n n"], b: Float[Array, " n"]) -> Float[Array, " n"]:
    """x of least norm with a x = b, for a matrix of any rank, symmetric or not, if there is such an
    x. Its rows should be of size 1."""
    return generalised_inverse(a) @ b


@solve_consistent.defjvp
def _rule(primals: tuple, tangents: tuple) -> tuple[Array, Array]:
    a, b = primals
    da, db = tangents
    inverse = generalised_inverse(a)
    x = inverse @ b
    return x, inverse @ (db - da @ x)


@traced_once
def generalised_inverse(a: Float[Array, "n n"]) -> Float[Array, "n n"]:
    """The matrix that makes x = Z b the solution of a x = b of least norm, if there is one: by
    Gauss-Jordan elimination with partial pivoting in a loop. Columns j without a pivot, those of
    free unknowns, are left out; each has a solution n_j of a n = 0, with n_j = 1 and 0 for other
    free unknowns, and what x has in common with these is taken away."""
    n = a.shape[0]
    rows = jnp.arange(n)

    def column(j, carry):
        both, taken, place = carry
        entries = lax.dynamic_index_in_dim(both, j, 1, keepdims=False)
        k = jnp.argmax(jnp.where(taken, -1.0, jnp.abs(entries)))
        found = ~taken[k] & (jnp.abs(entries[k]) > SMALLEST_PIVOT)
        pivot = lax.dynamic_index_in_dim(both, k, 0, keepdims=False)
        pivot = pivot / jnp.where(found, entries[k], 1.0)
        factors = jnp.where(rows == k, entries - 1.0, entries)
        both = both - jnp.where(found, factors[:, None] * pivot[None, :], 0.0)
        taken = taken | (found & (rows == k))
        place = jnp.where(rows == j, jnp.where(found, k, n), place)
        return both, taken, place

    both = jnp.concatenate([a, jnp.eye(n, dtype=a.dtype)], axis=1)
    start = (both, jnp.zeros(n, bool), jnp.full(n, n))
    both, _, place = lax.fori_loop(0, n, column, start)
    pick = (place[:, None] == rows[None, :]).astype(a.dtype)
    reduced = pick @ both
    free = place == n
    null = jnp.where(free[None, :], jnp.eye(n) - reduced[:, :n], 0.0)
    square = null.T @ null + jnp.diag(jnp.where(free, 0.0, 1.0))
    basic = reduced[:, n:]
    return basic - null @ (inverse(square) @ (null.T @ basic))


def total(terms: Iterable) -> Any:
    """The sum of the terms, without an array of zeros to start from, which the compiler would have
    to remove; 0 if there are none."""
    terms = list(terms)
    return functools.reduce(operator.add, terms) if terms else 0.0


def root(square: Array) -> Array:
    """The square root, with the derivative 0 at 0.

    A compiler may evaluate `square` twice, in another order of operations: once exactly 0, once
    round-off. In place of 0 the root of SMALLEST is therefore taken, not that of 1, so that two
    answers to `square > 0` do not make a length of 1 out of nothing."""
    some = square > 0
    return jnp.where(some, jnp.sqrt(jnp.where(some, square, SMALLEST)), 0.0)


def entries(a: Float[Array, "m n"]) -> list[list[Scalar]]:
    """The entries of a matrix as a list of rows."""
    return [[a[i, j] for j in range(a.shape[1])] for i in range(a.shape[0])]


def _cholesky(a: Matrix) -> Solve:
    """As `jax.scipy.linalg.cho_solve`, whose import takes a fifth of a second."""
    factor = lax.linalg.cholesky(a, symmetrize_input=False)
    back = functools.partial(lax.linalg.triangular_solve, factor, left_side=True, lower=True)
    return lambda b: back(back(b), transpose_a=True)


def _masked_cholesky(a: Matrix) -> Solve:
    """Cholesky of a with its dependent rows replaced by identity rows (their unknowns come out as
    zero)."""
    n = a.shape[0]
    scale = _lengths(a)
    unit = a / scale[:, None] / scale[None, :]
    keep = spanning(a)
    masked = jnp.where(keep[:, None] & keep[None, :], unit, jnp.eye(n, dtype=a.dtype))
    inverse = _cholesky(masked)

    def solve(b):
        column = (lambda w: w[:, None]) if b.ndim == 2 else (lambda w: w)
        rhs = jnp.where(column(keep), b / column(scale), 0.0)
        return jnp.where(column(keep), inverse(rhs), 0.0) / column(scale)

    return solve


def independent(products: Float[Array, "n n"]) -> Bool[Array, " n"]:
    """Which rows do not depend on the rows before them, given all products of two rows: the rows
    that `factor` keeps."""
    n = products.shape[0]
    if not 0 < n <= UNROLL:
        return spanning(products)
    return jnp.stack(Unrolled(entries(lax.stop_gradient(products)), semidefinite=True).inv) > 0


def spanning(
    products: Float[Array, "n n"], preferred: Bool[Array, " n"] | None = None
) -> Bool[Array, " n"]:
    """Independent rows with the span of all rows: `preferred` ones first, then earlier ones, but no
    row at a small angle to those already chosen as long as there is a better one.

    Row i less its projection on the rows chosen so far is t_i, a combination of unit rows, and its
    square t_i K t_i^T with the products K. Elimination in K gives the same squares with an error of
    1e-16 over the product of all earlier ones; here errors of t_i count squared, and those of K are
    known: a square below 1e-16 |t_i|^2 may be zero."""
    n = products.shape[0]
    if n == 0:
        return jnp.zeros(0, bool)
    products = lax.stop_gradient(products)
    scale = _lengths(products)
    unit = products / scale[:, None] / scale[None, :]
    rank = jnp.arange(n, 0.0, -1.0) + (0.0 if preferred is None else jnp.where(preferred, n, 0.0))

    def take(_, carry):
        rests, squares, taken = carry
        j = jnp.argmax(jnp.where(squares > WELL_APART, 1.0 + rank, squares))
        image = unit @ rests[j]
        square = rests[j] @ image
        noise = ROUND_OFF * jnp.sum(jnp.abs(rests[j])) ** 2
        found = square > jnp.maximum(SMALLEST_PIVOT, noise)
        column = jnp.where(found, rests @ image / jnp.where(found, square, 1.0), 0.0)
        squares = (squares - column**2 * square).at[j].set(0.0)
        return rests - column[:, None] * rests[j][None, :], squares, taken.at[j].max(found)

    start = (jnp.eye(n), jnp.diagonal(unit), jnp.zeros(n, bool))
    return lax.fori_loop(0, n, take, start)[2]


def _lengths(products: Matrix) -> Velocity:
    return jnp.sqrt(jnp.maximum(jnp.diagonal(products), jnp.finfo(products.dtype).tiny))
