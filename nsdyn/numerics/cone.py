"""Many contacts with Coulomb friction at once: the solution of (1) and (2) of
`nsdyn.numerics.cone_problem`, and its derivative.

No method solves all of these problems, so several are tried, one after the other:

    0  semismooth Newton from P0, the impulses of the step before
    1  interior points, then Newton
    2  proximal points from the best x so far, then Newton
    3  Newton from a few fixed, pseudo-random starts

`solve` tries 0 alone, which is what nearly all steps of a simulation need; `thorough=True` tries 0
to 2, for steps that are repeated, and `careful=True` all of them. A solution whose error exceeds
ACCEPTED, or whose impulses are without bound, is reported as not solved: there may be none (a body
squeezed between closing walls).

Of problems with many contacts, such as heaps, 0 leaves a sixth unsolved while bodies strike, and 1
and 2 solve these. So beyond MANY rows, with friction, a step tries 0 to 2 at once.

With F(x; W, b, mu) = 0 and its Jacobian J on the branch that x is on,

    dx = -J^-1 dF/d(W, b, mu)                                                                  (1)

The scaling drops out, as F = 0 holds for any. J is singular where contacts are redundant; then
(J + 1e-9)^-1 with refinements gives one of the many dx, and the change of u = W P + b that all of
them have in common, if u is unique at all. On the edge between two branches the derivative is that
of one side.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from nsdyn._jitted import traced_once
from nsdyn._types import Scalar
from nsdyn.numerics import small
from nsdyn.numerics.cone_interior import interior_point
from nsdyn.numerics.cone_newton import WORTHLESS, newton, proximal_points
from nsdyn.numerics.cone_problem import (
    ConeProblem,
    ContactMask,
    Impulses,
    PerContact,
    Scaling,
)

TOLERANCE = 1e-13  # of the error that the iterations aim at
GOOD = 1e-12  # with which no further method is tried, but for random starts
MANY = 48  # rows beyond which a step does not rely on Newton's method alone
ACCEPTED = 1e-9  # and that is accepted in the end
UNBOUNDED = 1e8  # impulses, without units, that mean that there is no solution
FIRST, LATER = 10, 25  # largest numbers of Newton's iterations, from P0 and later
POINTS = 40  # largest number of proximal points
GUESSES = 12  # fixed starts
SPREAD = 3.0  # their size
REGULAR = 1e-9  # added to J in (1)
REFINEMENTS = 3
WORTH_CUTTING = 4  # contacts from which on those that take part are taken out, if they are few


class Answer(eqx.Module):
    """A solution.

    P: the impulses, normal first. mode: OPEN, STICK or SLIP for each contact.
    error: the residual without units. solved: whether it is small enough.
    attempts: how many methods were tried. iterations: those of Newton's method, in all of them.
    """

    P: Impulses
    mode: Int[Array, " k"]
    error: Scalar
    solved: Bool[Array, ""]
    attempts: Int[Array, ""]
    iterations: Int[Array, ""]

    @staticmethod
    def none(P: Impulses) -> "Answer":
        """That of a problem that need not be solved, with these impulses."""
        zero = jnp.zeros((), int)
        mode = jnp.zeros(P.shape[:1], int)
        return Answer(P, mode, jnp.zeros(()), jnp.ones((), bool), zero, zero)


def solve(
    W: Float[Array, "kd kd"],
    b: Impulses,
    mu: PerContact,
    on: ContactMask,
    P0: Float[Array, "*starts k d"],
    careful: bool = False,
    thorough: bool = False,
) -> Answer:
    """The impulses P of k contacts with u = W P + b, each with d rows, normal first; `mu` and `on`
    for each contact. P0 is where the search begins; it has no derivative. With several P0, one more
    axis in front, Newton's method goes from one after the other until it succeeds."""
    method = _carefully if careful else _thoroughly if thorough else _quickly
    return _solution(_in_turn if P0.ndim == 3 else method, W, b, mu, on, P0)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _solution(method: Callable, W, b, mu, on, P0) -> Answer:
    scaling = Scaling.of(W, b, on)
    problem = scaling.apply(W, b, mu)
    begin = lambda P0: jnp.where(scaling.rows, P0 / scaling.size, 0.0)
    x0 = jax.vmap(begin)(P0) if P0.ndim == 3 else begin(P0)
    x, error, attempts, iterations = method(problem, x0)
    bounded = jnp.max(jnp.abs(x), initial=0.0) < UNBOUNDED
    return Answer(
        P=jnp.where(scaling.rows, scaling.size * x, 0.0),
        mode=problem.modes(x),
        error=error,
        solved=(error <= ACCEPTED) & bounded,
        attempts=attempts,
        iterations=iterations,
    )


@_solution.defjvp
def _rule(method: Callable, primals: tuple, tangents: tuple) -> tuple[Answer, Answer]:
    W, b, mu, on, _ = primals
    answer = _solution(method, *primals)
    return answer, _derivative(answer, (W, b, mu), tangents[:3], on)


def _derivative(answer: Answer, given: tuple, dots: tuple, on: ContactMask) -> Answer:
    """(1), for given W, b and mu and their derivatives."""
    W, b, mu = given
    scaling = Scaling.of(W, b, on)
    x = jnp.where(scaling.rows, answer.P / scaling.size, 0.0)

    def residual(W, b, mu):
        problem = scaling.apply(W, b, mu)
        return problem.residual(x, problem.velocity(x)).reshape(-1)

    dF = jax.jvp(residual, given, dots)[1]
    problem = scaling.apply(W, b, mu)
    J = problem.jacobian(x, problem.velocity(x))
    dx = _regular_solution(J, -dF).reshape(b.shape)  # (1)
    none: Any = lambda a: np.zeros(a.shape, jax.dtypes.float0)
    return Answer(
        P=jnp.where(scaling.rows, scaling.size * dx, 0.0),
        mode=none(answer.mode),
        error=jnp.zeros_like(answer.error),
        solved=none(answer.solved),
        attempts=none(answer.attempts),
        iterations=none(answer.iterations),
    )


def solve_product(
    H: Float[Array, "kd n"],
    B: Float[Array, "n kd"],
    D: Float[Array, " kd"] | None,
    b: Impulses,
    mu: PerContact,
    on: ContactMask,
    before: Answer,
    wanted: Bool[Array, ""],
    thorough: bool = False,
) -> Answer:
    """The same for W = H B + diag(D), from the impulses of an answer `before` and, if that fails,
    from none; by methods 0 to 2 if it shall be `thorough`, or with friction and more than MANY
    rows. If it is not `wanted`, since there is nothing to solve, it costs nothing: there are no
    impulses."""
    args = lax.stop_gradient((H, B, D, b, mu, before.P))

    def among_all(_: Any, answer: Answer) -> Answer:
        return _found(*args[:5], on, args[5], thorough)

    def among_few(_: Any, answer: Answer) -> Answer:
        few = Few.of(on)
        return few.spread(_found(*few.cut(*args)))

    # Loops, not branches, which the native backend takes for code that runs seldom.
    none = Answer.none(jnp.zeros_like(args[3]))
    if on.shape[0] < WORTH_CUTTING or thorough:
        found = lax.fori_loop(0, wanted.astype(int), among_all, none)
    else:
        many = jnp.sum(on) > on.shape[0] // 2
        found = lax.fori_loop(0, (wanted & ~many).astype(int), among_few, none)
        found = lax.fori_loop(0, (wanted & many).astype(int), among_all, found)
    return known_product(found, H, B, D, b, mu, on)


def _found(H, B, D, b, mu, on, P0, thorough: bool = False) -> Answer:
    """The solution of one of these problems. From P0 or from nothing: a step that has to be
    repeated with all methods costs a hundred others."""
    W = product(H, B, D)
    if thorough or (len(W) > MANY and b.shape[1] > 1):
        return _solution(_thoroughly, W, b, mu, on, P0)
    return _solution(_in_turn, W, b, mu, on, jnp.stack([P0, jnp.zeros_like(P0)]))


class Few(NamedTuple):
    """At most half of k contacts, in places of their own, so that the problem has a quarter of the
    numbers.

    which: the contacts in these places, (k // 2,); any, if there are fewer. taken: which of the
        places are. place: that of each contact. on: which contacts have one.
    """

    which: Int[Array, " places"]
    taken: Bool[Array, " places"]
    place: Int[Array, " k"]
    on: Bool[Array, " k"]

    @staticmethod
    def of(on: ContactMask) -> "Few":
        k = on.shape[0]
        size = k // 2
        count = jnp.cumsum(on.astype(int))
        place = jnp.where(on, count - 1, size)
        which = jnp.zeros(size, int).at[place].set(jnp.arange(k), mode="drop")
        return Few(which, jnp.arange(size) < count[-1], place, on)

    def _rows(self, x: Array) -> Array:
        """The entries of these contacts."""
        return x.at[self.which].get(mode="clip")

    def cut(self, H: Array, B: Array, D: Array | None, b: Array, mu: Array, P0: Array) -> tuple:
        """The problem of these contacts alone."""
        k, d = b.shape
        apart = lambda x: self._rows(x.reshape(k, d, *x.shape[1:])).reshape(-1, *x.shape[1:])
        rest = (self._rows(b), self._rows(mu), self.taken, self._rows(P0))
        return apart(H), apart(B.T).T, None if D is None else apart(D), *rest

    def spread(self, answer: Answer) -> Answer:
        """The answer for all contacts; the others have no impulses."""
        at_home = lambda x: x.at[self.place].get(mode="fill", fill_value=0)
        return eqx.tree_at(
            lambda x: (x.P, x.mode), answer, (at_home(answer.P), at_home(answer.mode))
        )


def product(
    H: Float[Array, "kd n"], B: Float[Array, "n kd"], D: Float[Array, " kd"] | None
) -> Float[Array, "kd kd"]:
    """H B + diag(D)."""
    W = small.matmul(H, B)
    return W if D is None else W + jnp.diag(D)


@jax.custom_jvp
def known_product(answer: Answer, H, B, D, b, mu, on) -> Answer:
    """The answer that `solve_product` has found before, with its derivative."""
    return answer


@known_product.defjvp
def _known_rule(primals: tuple, tangents: tuple) -> tuple[Answer, Answer]:
    answer, *rows, b, mu, on = primals
    _, *dots, db, dmu, _ = tangents
    W, dW = jax.jvp(product, rows, dots)
    return answer, _derivative(answer, (W, b, mu), (dW, db, dmu), on)


@traced_once
def _regular_solution(J: Float[Array, "n n"], c: Float[Array, " n"]) -> Float[Array, " n"]:
    """x with J x = c, also for a singular J if the equations are consistent."""
    n = J.shape[0]
    inverse = small.inverse(J + REGULAR * jnp.eye(n))
    x = inverse @ c
    for _ in range(REFINEMENTS):
        x = x + inverse @ (c - J @ x)
    return x


@traced_once
def _quickly(problem: ConeProblem, x0: Impulses) -> tuple[Impulses, Scalar, Any, Any]:
    found = newton(problem, x0, True, FIRST, TOLERANCE)
    return found.x, found.error, jnp.ones((), int), found.rounds


@traced_once
def _in_turn(
    problem: ConeProblem, starts: Float[Array, "starts k d"]
) -> tuple[Impulses, Scalar, Any, Any]:
    """Newton from each start, until one succeeds."""

    def attempt(c: tuple) -> tuple:
        best, error, i, count = c
        start = lax.dynamic_index_in_dim(starts, i, keepdims=False)
        found = newton(problem, start, True, FIRST, TOLERANCE)
        better = found.error < error
        return (
            jnp.where(better, found.x, best),
            jnp.where(better, found.error, error),
            i + 1,
            count + found.rounds,
        )

    zero = jnp.zeros((), int)
    first = (starts[0], jnp.full((), WORTHLESS), zero, zero)
    going = lambda c: (c[1] > ACCEPTED) & (c[2] < len(starts))
    return lax.while_loop(going, attempt, first)


@traced_once
def _thoroughly(problem: ConeProblem, x0: Impulses) -> tuple[Impulses, Scalar, Any, Any]:
    """The methods 0 to 2, each only if it is needed."""
    return _one_by_one(problem, x0, None, GOOD)


@traced_once
def _carefully(problem: ConeProblem, x0: Impulses) -> tuple[Impulses, Scalar, Any, Any]:
    """All methods, each only if it is needed: interior points also where Newton's error is small,
    but not as small as it could be."""
    guesses = SPREAD * np.random.default_rng(0).normal(size=(GUESSES, *problem.shape))
    return _one_by_one(problem, x0, guesses, TOLERANCE)


def _one_by_one(
    problem: ConeProblem,
    x0: Impulses,
    guesses: Float[np.ndarray, "guesses k d"] | None,
    enough: float,
) -> tuple[Impulses, Scalar, Any, Any]:
    """One method after the other, and from one guess after the other, until the error is accepted.
    `enough` is that with which Newton's method from x0 is the only one."""
    last = 3 + (0 if guesses is None else len(guesses))

    def going(c: tuple) -> Array:
        _, error, i, _ = c
        further = ((i == 1) & (error > enough)) | ((i == 2) & (error > GOOD))
        return (i == 0) | further | ((error > ACCEPTED) & (i < last))

    def attempt(c: tuple) -> tuple:
        best, error, i, count = c
        inner = interior_point(problem, i == 1)
        near = proximal_points(problem, best, i == 2, POINTS, TOLERANCE)
        start = jnp.where(i == 0, x0, jnp.where(i == 1, inner, near))
        if guesses is not None:
            number = jnp.maximum(i - 3, 0)
            guess = lax.dynamic_index_in_dim(jnp.asarray(guesses), number, keepdims=False)
            start = jnp.where(i < 3, start, guess)
        found = newton(problem, start, True, jnp.where(i == 0, FIRST, LATER), TOLERANCE)
        better = found.error < error
        return (
            jnp.where(better, found.x, best),
            jnp.where(better, found.error, error),
            i + 1,
            count + found.rounds,
        )

    zero = jnp.zeros((), int)
    first = (x0, jnp.full((), WORTHLESS), zero, zero)
    return lax.while_loop(going, attempt, first)
