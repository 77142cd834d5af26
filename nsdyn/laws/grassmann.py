"""The geodesic between the row spaces of two Jacobians, smooth in both (Grassmann manifold;
Amsallem and Farhat 2008).

Rows are measured by W = M^-1, or by the identity. In orthonormal bases Y- of the rows of G- and Y+
of those of G+ let

    X = Y+ W Y-^T = C Q,    C = (X X^T)^(1/2),    Q Q^T = I                                     (1)

C has the cosines of the principal angles th as eigenvalues. The point E on the geodesic from G- (0)
to G+ (1) is spanned by

    Y_E = sin((1-E) Th)/sin(Th) Q Y- + sin(E Th)/sin(Th) Y+,    Th = arccos C                   (2)

Any other basis will do as well. (2) has Y_E W Y+^T = cos((1-E) Th); a multiple of it has the same
products with Y+ as Y+ itself:

    D = Y+ + T(C) (Q Y- - C Y+),    T(cos th) = tan((1-E) th) / sin th                          (3)

T is 0 at E = 1 and 1 / (1 + cos th) at E = 1/2; the bracket is orthogonal to Y+ and vanishes with
the angles. In bases H-, H+ that are not orthonormal, with S = H W H^T for each and X = H+ W H-^T,
this reads

    D = H+ + T(C) C^-1 B (H- - A H+),    B = X S-^-1,    A = X^T S+^-1,    C = (B A)^(1/2)       (4)

Other rows H- with the same span change nothing; rows K H+ give K D.

How it is computed. Constant matrices P make H = P G orthonormal, and X X^T diagonal, up to
round-off: P- from the Cholesky factor of G- W G-^T, P+ from that of G+ W G+^T and from eigenvectors
of X X^T. The factors are computed twice, since the first pass costs nearly dependent rows half of
their digits. A row that is dead, or depends on rows before it (`nsdyn.numerics.rank`), has no part
in H; C has identity rows where rows of H+ are missing. The sines of the angles come from the part
of H+ outside the span of H-: for small angles 1 - cos^2 would be round-off.

P is held constant in derivatives as well. This is right, because (4) holds for any P, and it is
necessary, because derivatives of eigenvectors are singular if angles are equal. All derivatives
come from (4), whose S and C are diagonal, with entries d and c, up to terms that are round-off but
have derivatives. So

    x <- x + (b - A x)_ij / d_i   for A x = b,       C <- C + (B A - C^2)_ij / (c_i + c_j)      (5)

converge, and each pass makes one more order of derivatives right. T is the quotient of sin((1-E)
th)/sin th and cos((1-E) th), which are analytic functions of cos th except at cos th = -1; a few
Chebyshev polynomials represent them on [0, 1].
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from nsdyn._types import Number

# Smallest cosine of a principal angle, 89.994 degrees; nearer to 90 the matching direction is
# noise.
CUT = 1e-4
MISSING = 4.0  # eigenvalue that stands for a missing row; those of X X^T are at most 1
ORDERS = 2  # of derivatives that (5) makes right
NODES = 24  # the remainder of a Chebyshev series falls by 5.8 with each


class Frame(NamedTuple):
    """The constants: P- and P+, padded to r rows and columns each, and the angles and missing rows
    found on the way."""

    P: Float[Array, "2 r r"]
    cosines: Float[Array, " r"]  # of the principal angles, ascending; 1 where `missing`
    sines: Float[Array, " r"]  # of the same; 0 where `missing`
    missing: Bool[Array, "2 r"]  # rows of H that are zero

    @property
    def ranks(self) -> Int[Array, " 2"]:
        return jnp.sum(~self.missing, axis=1)


class Pair(NamedTuple):
    """Bases of two row spaces: H- above H+, W H^T and H W H^T."""

    frame: Frame
    H: Float[Array, "rr n"]
    dual: Float[Array, "n rr"]
    products: Float[Array, "rr rr"]

    @property
    def after(self) -> Float[Array, "r n"]:
        return self.H[len(self.H) // 2 :]

    @property
    def dual_after(self) -> Float[Array, "n r"]:
        return self.dual[:, len(self.H) // 2 :]

    def coordinates(self, G: Float[Array, "m n"]) -> Float[Array, "m r"]:
        """L with G+ = L H+: constant like P, of which it is the inverse."""
        L = G @ self.dual_after
        r = len(self.H) // 2
        return jax.lax.stop_gradient(2 * L - L @ self.products[r:, r:])


def frame(solve: Callable, G: Float[Array, "2 r n"], independent: Bool[Array, "2 r"]) -> Frame:
    """P for Jacobians before and after, from their independent rows, in the metric that `solve`
    applies."""
    constant = lambda b: jax.lax.stop_gradient(solve(b))
    G = jax.lax.stop_gradient(jnp.where(independent[:, :, None], G, 0.0))
    square = jnp.diagonal(_products(constant, G), axis1=1, axis2=2)
    length = jnp.sqrt(jnp.where(independent, square, 1.0))
    P = _diagonal(jnp.where(independent, 1.0 / length, 0.0))
    for _ in range(2):  # each pass brings the products of H = P G nearer to the identity
        S = _products(constant, P @ G) + _diagonal(jnp.where(independent, 0.0, 1.0))
        P = jax.lax.linalg.triangular_solve(jnp.linalg.cholesky(S), P, left_side=True, lower=True)
    before, after = P @ G
    X = after @ constant(before.T)  # (1)
    squares = X @ X.T + jnp.diag(jnp.where(independent[1], 0.0, MISSING))
    squares, V = (squares[0], jnp.eye(1)) if len(X) == 1 else jnp.linalg.eigh(squares)
    missing = squares > MISSING / 2
    turn = jnp.where(missing[:, None], 0.0, V.T)
    outside = turn @ (after - X @ before)
    sines = jnp.sqrt(jnp.maximum(jnp.sum(outside * constant(outside.T).T, axis=1), 0.0))
    cosines = jnp.where(missing, 1.0, jnp.sqrt(jnp.maximum(squares, 0.0)))
    gone = jnp.stack([~independent[0], missing])
    return Frame(P=jnp.stack([P[0], turn @ P[1]]), cosines=cosines, sines=sines, missing=gone)


def _products(solve: Callable, H: Float[Array, "2 r n"]) -> Float[Array, "2 r r"]:
    """The rows before with each other, and the rows after with each other."""
    r, n = H.shape[1:]
    dual = solve(H.reshape(-1, n).T)
    return jnp.stack([H[0] @ dual[:, :r], H[1] @ dual[:, r:]])


def _diagonal(d: Float[Array, "2 r"]) -> Float[Array, "2 r r"]:
    return jnp.eye(d.shape[-1])[None] * d[:, :, None]


def pair(solve: Callable, G: Float[Array, "2 r n"], independent: Bool[Array, "2 r"]) -> Pair:
    found = frame(solve, G, independent)
    H = (found.P @ G).reshape(-1, G.shape[-1])
    dual = solve(H.T)
    return Pair(found, H, dual, H @ dual)


def geodesic(found: Pair, T: Callable) -> Float[Array, "r rr"]:
    """F, so that D = H+ + F H is (4). T(C, B) gives matrices whose quotient is T(C) C^-1 B: see
    `midway` and `between`."""
    constant = found.frame
    K = found.products
    r = len(constant.cosines)
    X = K[r:, :r]
    both = jnp.stack([X, X.T])
    S = jnp.stack([K[:r, :r], K[r:, r:]]) + _diagonal(jnp.where(constant.missing, 1.0, 0.0))
    B, A = corrected(lambda x: x @ S, both, jnp.ones(()))
    squares = B @ A + jnp.diag(jnp.where(constant.missing[1], 1.0, 0.0))
    c = jnp.maximum(constant.cosines, CUT)
    C = jnp.diag(c)
    for _ in range(ORDERS):
        C = C + (squares - C @ C) / (c[:, None] + c[None, :])  # (5)
    above, below = T(C, B)
    F = corrected(lambda x: below @ x, above, jax.lax.stop_gradient(jnp.diagonal(below))[:, None])
    return jnp.concatenate([F, -F @ A], axis=1)  # (4)


def corrected(apply: Callable, b: Array, d: Array) -> Array:
    """x with apply(x) = b, where apply multiplies by d up to round-off and derivatives."""
    x = b / d
    for _ in range(ORDERS):
        x = x + (b - apply(x)) / d  # (5)
    return x


def midway(
    C: Float[Array, "r r"], B: Float[Array, "r r"]
) -> tuple[Float[Array, "r r"], Float[Array, "r r"]]:
    """T(C) C^-1 B at E = 1/2, as numerator and denominator."""
    return B, C + C @ C


def between(E: Number) -> Callable:
    """The same at E."""
    angle = (1.0 - E) * jnp.asarray(THETA)
    values = jnp.stack([jnp.sin(angle) / np.sin(THETA), jnp.cos(angle)])

    def T(C: Array, B: Array) -> tuple[Array, Array]:
        sines, cosines = _chebyshev(values, C)
        return sines @ B, C @ cosines

    return T


# The nodes in [0, 1], as th = arccos of them, and the matrix that turns values there into
# coefficients.
_TURNS = (np.arange(NODES) + 0.5) * np.pi / NODES
THETA = np.arccos((1 + np.cos(_TURNS)) / 2)
COEFFICIENTS = (
    np.cos(np.outer(np.arange(NODES), _TURNS))
    * np.where(np.arange(NODES) > 0, 2, 1)[:, None]
    / NODES
)


def _chebyshev(values: Float[Array, "f nodes"], C: Float[Array, "r r"]) -> Float[Array, "f r r"]:
    """Functions of C with these values at the nodes, by Clenshaw's recurrence."""
    eye = jnp.eye(len(C))[None]
    x = 2 * C[None] - eye
    parts = (COEFFICIENTS @ values.T)[:, :, None, None]
    step = lambda b, part: ((part * eye + 2 * x @ b[0] - b[1], b[0]), None)
    zero = jnp.zeros((len(values), *C.shape))
    (b, b_next), _ = jax.lax.scan(step, (zero, zero), parts[:0:-1])
    return parts[0] * eye + x @ b - b_next
