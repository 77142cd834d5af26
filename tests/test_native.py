"""The native backend: every primitive against XLA, loops and branches in lanes, the cache, machines
without a compiler, and whole runs."""

import os
import shutil
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from mechanisms import pegged_swing

import nsdyn
from nsdyn import problems
from nsdyn.driver import batch_run
from nsdyn.driver.arguments import batch_values, setup
from nsdyn.integrators import NSGA, RK4, DormandPrince, EventDriven, RadauIIA
from nsdyn.laws import grassmann
from nsdyn.native import build, functions, uniform
from nsdyn.native.lowering import PRIMITIVES
from nsdyn.native.program import AXIS, Source, traced, translate
from nsdyn.native.unsupported import Unsupported
from nsdyn.numerics import small

LANES = (1, 4)
SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, -2.5, 2.5, 1e300, 1e-300]
)  # XLA counts subnormal numbers as zero


class Args:
    """The arguments of one lane, filled with random numbers."""

    def __init__(self, seed: int):
        rng = np.random.default_rng(seed)
        self.x = rng.normal(size=(12,))
        self.y = rng.normal(size=(12,))
        self.special = rng.permutation(SPECIAL)
        self.other = rng.permutation(SPECIAL)
        self.unit = rng.uniform(-1, 1, size=(12,))
        self.angle = rng.normal(size=(12,)) * 10.0 ** rng.integers(-8, 9, size=12)
        self.i = rng.integers(-9, 10, size=(12,))
        self.j = rng.integers(-3, 4, size=(12,))
        self.above = 1.0 + rng.exponential(size=(12,))
        self.short = rng.integers(-(2**31), 2**31, size=(12,)).astype(np.int32)
        self.b = rng.uniform(size=(12,)) < 0.5
        self.c = rng.uniform(size=(12,)) < 0.5
        self.m = rng.normal(size=(6, 6))
        self.n = rng.normal(size=(6, 6))
        self.large = rng.normal(size=(40, 9))
        self.k = rng.integers(-2, 9)
        self.places = rng.integers(0, 40, size=(20,))


NAMES = list(vars(Args(0)))
FLOATS = (
    "sin cos tan asin acos atan sinh cosh tanh asinh exp exp2 expm1 log log1p sqrt cbrt erf erfc "
    "abs neg sign floor"
)
UNARY = {
    **{name: (lambda f: lambda a: f(a.x))(getattr(lax, name)) for name in FLOATS.split()},
    "special": lambda a: jnp.stack(
        [lax.abs(a.special), lax.sign(a.special), lax.sqrt(a.special), jnp.sin(a.special)]
    ),
    "finite": lambda a: lax.is_finite(a.special),
    "round": lambda a: jnp.stack([jnp.round(a.special), lax.ceil(a.special)]),
    "angle": lambda a: jnp.stack([jnp.sin(a.angle), jnp.cos(a.angle)]),
    "angles of angles": lambda a: jnp.sin(
        a.x + jnp.cos(a.y * jnp.sin(a.angle)) + jnp.sin(jnp.cos(a.angle[::-1]))
    ),
    "asin of unit": lambda a: jnp.stack(
        [jnp.arcsin(a.unit), jnp.arccos(a.unit), lax.atanh(a.unit)]
    ),
    "acosh": lambda a: lax.acosh(a.above),
    "roundings": lambda a: jnp.stack(
        [lax.round(a.special, lax.RoundingMethod.AWAY_FROM_ZERO), jnp.trunc(a.special)]
    ),
    "special inverses": lambda a: jnp.stack(
        [lax.asinh(a.special), lax.erf(a.special), lax.erfc(a.special), lax.exp2(a.special)]
    ),
    "the same": lambda a: jnp.stack(
        [lax.stop_gradient(a.x), jnp.copy(a.x), lax.reduce_precision(a.x, 11, 52)]
    ),
    "kept in order": lambda a: lax.optimization_barrier(a.x) + jax.device_put(a.y),
    "powers": lambda a: jnp.stack([a.x**2, a.x**3, a.x**-2, a.x**7, a.i**3]),
    "square": lambda a: lax.square(a.x),
    "rsqrt": lambda a: lax.rsqrt(jnp.abs(a.x)),
    "logistic": lambda a: jax.nn.sigmoid(a.x),
    "not": lambda a: ~a.b,
    "not of integers": lambda a: ~a.i,
    "to float": lambda a: jnp.stack([a.i.astype(float), a.b.astype(float)]),
    "to integer": lambda a: jnp.stack([(1e3 * a.x).astype(int), a.b.astype(int)]),
    "to short": lambda a: jnp.stack([a.i.astype(jnp.int32), (9 * a.x).astype(jnp.int32)]),
    "to bool": lambda a: jnp.stack([a.x.astype(bool), a.j.astype(bool)]),
    "short arithmetic": lambda a: jnp.stack([a.short + a.short, a.short * 3, -a.short]),
    "unsigned arithmetic": lambda a: _unsigned(a.short.astype(jnp.uint32), a.j.astype(jnp.uint32)),
    "special signs": lambda a: jnp.stack([jnp.signbit(a.special), jnp.signbit(-a.x)]),
    "special copysign": lambda a: jnp.copysign(a.special, a.other),
    "frexp": lambda a: jnp.stack([*jnp.frexp(a.angle), jnp.ldexp(a.x, a.j)]),
    "unsigned to float": lambda a: a.short.astype(jnp.uint32).astype(float),
}


def _unsigned(x, y):
    return jnp.stack(
        [x, y, x + y, y - x, x * y, -x, ~x, lax.div(x, y), lax.rem(x, y), jnp.maximum(x, y)]
        + [jnp.where(x < y, x, y), x.astype(jnp.int32).astype(jnp.uint32), x.max() + 0 * x]
    )


BINARY = {
    "arithmetic": lambda a: jnp.stack([a.x + a.y, a.x - a.y, a.x * a.y, a.x / a.y]),
    "special arithmetic": lambda a: jnp.stack([a.special + a.other, a.special * a.other]),
    "special quotient": lambda a: a.special / a.other,
    "max, min": lambda a: jnp.stack([jnp.maximum(a.special, a.other), jnp.minimum(a.i, a.j)]),
    "min": lambda a: jnp.minimum(a.special, a.other),
    "comparison": lambda a: jnp.stack(
        [a.special < a.other, a.special <= a.other, a.special == a.other, a.special != a.other]
    ),
    "integer comparison": lambda a: jnp.stack([a.i > a.j, a.i >= a.j, a.i == a.j]),
    "bits": lambda a: jnp.stack([a.b & a.c, a.b | a.c, a.b ^ a.c, a.b == a.c, a.b != a.c]),
    "integer bits": lambda a: jnp.stack([a.i & a.j, a.i | a.j, a.i ^ a.j]),
    "shifts": lambda a: jnp.stack(
        [a.i << 3, a.i >> 2, lax.shift_right_logical(a.i, jnp.abs(a.j)), a.i << 70, a.i >> 70]
    ),
    "division": lambda a: jnp.stack([lax.div(a.i, a.j), lax.rem(a.i, a.j)]),
    "floor division": lambda a: jnp.stack([a.i // a.j, a.i % a.j]),
    "rem": lambda a: lax.rem(a.x, a.y),
    "mod": lambda a: a.x % a.y,
    "atan2": lambda a: jnp.stack([lax.atan2(a.x, a.y), lax.atan2(a.special, a.other)]),
    "pow": lambda a: jnp.abs(a.x) ** a.y,
    "pow of integers": lambda a: jnp.abs(a.x) ** a.i,
    "nextafter": lambda a: lax.nextafter(a.x, a.y),
    "select": lambda a: jnp.where(a.b, a.special, a.y),
    "select by number": lambda a: lax.select_n(
        jnp.clip(a.j, 0, 2).astype(jnp.int32), a.x, a.y, -a.x
    ),
    "clamp": lambda a: lax.clamp(-0.5, a.x, 0.5),
}
MOVEMENT = {
    "shapes": lambda a: a.m.T.reshape(4, 9)[:, ::-1][1:3, 2:8:2],
    "large shapes": lambda a: a.large.T[:, ::-1][2:7, 3:30:3],
    "concatenate": lambda a: jnp.concatenate([a.m, a.n[:2]], 0),
    "concatenate large": lambda a: jnp.concatenate([a.large, a.large[:, :2]], 1),
    "stack": lambda a: jnp.stack([a.large, 2 * a.large], 1),
    "split": lambda a: jnp.split(a.m, 3)[1],
    "pad memory": lambda a: jnp.pad(
        jnp.outer(a.x, a.special), ((2, 9), (5, 3)), constant_values=7.0
    ),
    "crop memory": lambda a: lax.pad(
        jnp.outer(jnp.tile(a.x, 2), a.y), a.x[0], ((-3, 2, 0), (4, -5, 0))
    ),
    "unstack": lambda a: jax.grad(
        lambda x: jnp.sum(jnp.stack([x[0] * x[1], x[2]]) ** 2) + jnp.sum(jnp.stack([x, x], 1) ** 3)
    )(a.x),
    "unstack memory": lambda a: jax.grad(
        lambda x: jnp.sum(jnp.stack([jnp.outer(x, a.y).ravel()] * 2, axis=1) ** 3)
    )(a.x),
    "pad": lambda a: lax.pad(a.m, 7.0, ((1, 2, 1), (0, -1, 0))),
    "tile": lambda a: jnp.tile(a.x, 2),
    "broadcast": lambda a: a.x[:, None] * jnp.ones((12, 40)) + a.y[:, None],
    "iota": lambda a: lax.broadcasted_iota(float, (30, 9), 0) + a.x[0],
    "dynamic slice": lambda a: lax.dynamic_slice(a.m, (a.k, a.k - 2), (2, 3)),
    "dynamic slice of memory": lambda a: lax.dynamic_slice(a.large, (a.k * 5, 0), (20, 9)),
    "update": lambda a: lax.dynamic_update_slice(a.m, a.n[:2, :3], (a.k, 1)),
    "update of memory": lambda a: lax.dynamic_update_slice(a.large, a.n, (a.k * 5, 2)),
    "index": lambda a: a.x[a.k],
    "take": lambda a: a.large[a.places],
    "take filled": lambda a: jnp.take(a.x, a.places, mode="fill", fill_value=jnp.nan),
    "windows": lambda a: jax.vmap(lambda k: lax.dynamic_slice(a.x, (k,), (3,)))(a.j),
    "diagonal": lambda a: jnp.diagonal(a.m),
    "set": lambda a: a.m.at[:, a.k].set(a.x[:6]),
    "set dropped": lambda a: a.x.at[a.k + 8].set(1.0),
    "add at": lambda a: a.x.at[jnp.array([1, 1, 3])].add(a.y[:3]),
    "max at": lambda a: a.b.at[a.k].max(True),
    "min at": lambda a: jnp.stack([a.x, a.y]).at[:, jnp.array([1, 1, 3])].min(a.unit[:3]),
    "max at numbers": lambda a: a.x.at[a.places[:5] % 12].max(a.y[:5]),
    "times at": lambda a: a.x.at[jnp.array([1, 1, 3])].mul(a.y[:3]),
    "minus at": lambda a: a.x.at[a.k].subtract(a.y[0]),
    "set clipped": lambda a: jnp.stack([a.x.at[k].set(0.5, mode="clip") for k in (a.k + 9, -30)]),
    "window clipped": lambda a: lax.scatter(
        a.x, a.k[None] + 3, a.y[:4], lax.ScatterDimensionNumbers((0,), (), (0,)), mode="clip"
    ),
}
REDUCTIONS = {
    "sum": lambda a: jnp.stack([a.m.sum(0), a.m.sum(1)]),
    "product": lambda a: a.m.prod(1),
    "large sum": lambda a: a.large.sum(0),
    "large maximum": lambda a: jnp.stack([a.large.max(), a.large.min()]),
    "maximum": lambda a: jnp.stack([a.m.max(0), a.m.min(1)]),
    "maximum of NaN": lambda a: jnp.stack([a.special.max(), a.special.min()]),
    "integer maximum": lambda a: jnp.stack([a.i.max(), a.i.min(), a.i.sum()]),
    "any, all": lambda a: jnp.stack(
        [a.b.any(), a.b.all(), (a.large > 0).any(), (a.large > 9).all()]
    ),
    "argmax": lambda a: jnp.stack([jnp.argmax(a.x), jnp.argmin(a.x), jnp.argmax(a.special)]),
    "argmax of bool": lambda a: jnp.stack([jnp.argmax(a.b), jnp.argmax(a.large.ravel() > 1.5)]),
    "argmax of memory": lambda a: jnp.argmin(a.large.ravel()),
    "cumulative": lambda a: jnp.stack([jnp.cumsum(a.x), lax.cummax(a.x), jnp.cumsum(a.x[::-1])]),
    "cumulative products": lambda a: jnp.stack([jnp.cumprod(a.x), lax.cummin(a.x, reverse=True)]),
    "sort": lambda a: jnp.sort(a.special),
    "search": lambda a: jnp.searchsorted(jnp.sort(a.special), a.other),
    "search from the right": lambda a: jnp.searchsorted(jnp.sort(a.x), a.y, side="right"),
    "interpolation": lambda a: jnp.interp(a.x, jnp.sort(a.y), a.unit),
    "argsort": lambda a: jnp.argsort(a.i),
    "product of matrices": lambda a: a.m @ a.n @ a.x[:6],
    "large product": lambda a: a.large @ a.large.T,
    "many products": lambda a: jnp.einsum(
        "aij,ajk->aik", a.large.reshape(10, 6, 6), a.large.reshape(10, 6, 6)
    ),
    "outer": lambda a: jnp.outer(a.x, a.y),
    "cholesky": lambda a: jnp.linalg.cholesky(a.m @ a.m.T + jnp.eye(6)),
    "cholesky fails": lambda a: jnp.linalg.cholesky(a.m @ a.m.T - 9 * jnp.eye(6)),
    "solve": lambda a: jnp.linalg.solve(a.m, a.n),
    "solve many": lambda a: jax.vmap(jnp.linalg.solve)(
        a.large.reshape(10, 6, 6), a.large.reshape(10, 6, 6)[:, :2].mT
    ),
    "solve with pivoting": lambda a: small.solve_pivoted(a.m, a.x[:6]),
    "solve, rows alone": lambda a: small.solve_pivoted(
        jnp.where(a.b[:6, None], 2 * jnp.eye(6), a.m), a.x[:6]
    ),
    "solve, large": lambda a: small.solve_pivoted(
        jnp.eye(20) + jnp.where(a.places[:, None] % 3 == 0, 0.0, a.large[:20] @ a.large[20:].T),
        a.large[:20, 0],
    ),
    "product with a vector": lambda a: a.large @ a.large[7],
    "inverse": lambda a: jnp.linalg.inv(a.m),
    "triangular": lambda a: jax.scipy.linalg.solve_triangular(a.m, a.n, trans=1, lower=True),
    "triangular, unit": lambda a: jax.scipy.linalg.solve_triangular(a.m, a.n, unit_diagonal=True),
    "triangular, from the right": lambda a: lax.linalg.triangular_solve(
        a.m, a.n[:3], left_side=False, lower=True, transpose_a=True
    ),
    "cholesky of many": lambda a: jax.vmap(lambda m: jnp.linalg.cholesky(m @ m.T + jnp.eye(6)))(
        a.large.reshape(10, 6, 6)
    ),
    "cho_solve": lambda a: jax.scipy.linalg.cho_solve((a.m, True), a.n),
    "eigenvalues": lambda a: jnp.linalg.eigvalsh(a.m),
    "eigenvalues, upper": lambda a: jnp.linalg.eigvalsh(a.m, UPLO="U", symmetrize_input=False),
    "eigenvectors": lambda a: _sine(a.m),
    "eigenvectors, equal values": lambda a: _sine(jnp.outer(a.x, a.x)),
    "eigenvectors, zero": lambda a: _sine(a.b[:4, None] * a.c[None, :4] * 1e-200),
    "eigenvectors fail": lambda a: _sine(a.m.at[0, 1].set(jnp.nan)),
    "eigenvectors of many": lambda a: _sine(a.large.reshape(10, 6, 6)),
}


def _sine(m):
    """A function of a symmetric matrix, which the signs of its eigenvectors do not change, and
    their products with each other."""
    w, v = jnp.linalg.eigh(m)
    turned = jnp.swapaxes(v, -1, -2)
    return jnp.stack([(v * jnp.sin(w)[..., None, :]) @ turned, turned @ v])


def _while(a):
    """Lanes stop at different times; an array is written on the way."""

    def body(c):
        i, x, seen = c
        return i + 1, 0.7 * x + a.y[0], seen.at[i].set(x[0])

    return lax.while_loop(lambda c: c[0] < a.k + 3, body, (0, a.x, jnp.zeros(30)))


def _scan(a):
    def body(c, row):
        return c * 0.5 + row.sum(), (c, row[::-1])

    end, (seen, rows) = lax.scan(body, a.x[0], a.large, reverse=True)
    return jnp.concatenate([end[None], seen, rows.ravel()])


def _cond(a):
    up = lambda x, big: (x + 1, big.at[a.k + 2].set(0.0))
    down = lambda x, big: (jnp.sin(x), big)
    x, big = lax.cond(a.x[0] > 0, up, down, a.x, a.large)
    return jnp.concatenate([x, big.ravel()])


def _nested(a):
    def inner(c):
        return c[0] + 1, c[1] + lax.cond(c[1] > 0, lambda x: -x / 2, lambda x: x * x + 0.1, c[1])

    def outer(k, x):
        return lax.while_loop(lambda c: (c[0] < 5) & (jnp.abs(c[1]) < 2), inner, (a.j[0], x))[1]

    return lax.fori_loop(0, jnp.maximum(a.k, 1), outer, a.x[0])


def _swap(a):
    """Numbers and arrays that change places."""
    x, y, u, v = lax.fori_loop(
        0, 5, lambda k, c: (c[1], c[0], c[3], c[2].at[k].add(1.0)), (a.x, a.y, a.large, 2 * a.large)
    )
    return jnp.concatenate([x, y, u.ravel(), v.ravel()])


def _once(a):
    """A loop that runs once or not at all."""

    def redo(c):
        x, big, _ = c
        return x * 2, big.at[a.k + 1, 3].set(x[0]), jnp.zeros((), bool)

    x, big, _ = lax.while_loop(lambda c: c[2], redo, (a.x, a.large + 1.0, a.x[1] > 0))
    return jnp.concatenate([x, big.ravel()])


@jax.custom_jvp
def _own_tangent(x):
    return jnp.sin(x)


_own_tangent.defjvp(lambda x, v: (jnp.sin(x[0]), 3.0 * v[0]))


@jax.custom_vjp
def _own_gradient(x):
    return jnp.sin(x)


_own_gradient.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (3.0 * g * x,))


CONTROL = {
    "rules for derivatives": lambda a: jnp.stack(
        [_own_tangent(a.x), jax.jvp(_own_tangent, (a.x,), (a.y,))[1], _own_gradient(a.x)]
    ),
    "rules for gradients": lambda a: jax.grad(lambda x: jnp.sum(_own_gradient(x)))(a.x),
    "checkpoint": lambda a: jnp.stack(
        [jax.checkpoint(jnp.sin)(a.x), jax.grad(lambda x: jax.checkpoint(jnp.sin)(x).sum())(a.x)]
    ),
    "platform": lambda a: lax.platform_dependent(
        a.x, cpu=lambda x: 2.0 * x, cuda=lambda x: 3.0 * x, default=lambda x: 4.0 * x
    ),
    "while": lambda a: jnp.concatenate([jnp.ravel(x).astype(float) for x in _while(a)]),
    "scan": _scan,
    "cond": _cond,
    "switch": lambda a: lax.switch(a.k, [lambda x: x, lambda x: 2 * x, lambda x: -x], a.x),
    "nested": _nested,
    "swap": _swap,
    "once": _once,
    "old value": lambda a: a.large.at[a.k].set(0.0).sum() + a.large.sum(),
    "derivative": lambda a: jax.jacfwd(lambda x: jnp.sin(x) * x[0])(a.x),
    "structural zeros": lambda a: jax.hessian(lambda x: jnp.sum(x[:3] ** 3))(a.x),
}
CASES = {**UNARY, **BINARY, **MOVEMENT, **REDUCTIONS, **CONTROL}


def arguments(values) -> Args:
    args = Args(0)
    for name, value in zip(NAMES, values, strict=True):
        setattr(args, name, value)
    return args


@pytest.fixture(scope="module", params=LANES)
def results(request) -> dict:
    """What both backends find for all cases at once: native is one program."""
    lanes = request.param
    every = [list(vars(Args(seed)).values()) for seed in range(lanes)]
    function = lambda *values: [case(arguments(values)) for case in CASES.values()]
    program = translate(function, every[0], None, lanes)
    stacked = [np.stack(column) for column in zip(*every, strict=True)]
    found = program(stacked if lanes > 1 else every[0])
    found = found if lanes > 1 else [x[None] for x in found]
    expected = [np.asarray(x) for x in jax.jit(jax.vmap(function))(*stacked)]
    return {name: (a, b) for name, a, b in zip(CASES, found, expected, strict=True)}


@pytest.mark.parametrize("name", CASES)
def test_primitives_agree_with_xla(results, name):
    native, xla = results[name]
    assert native.dtype == xla.dtype and native.shape == xla.shape
    if native.dtype.kind == "f":
        scale = np.max(np.abs(xla), where=np.isfinite(xla), initial=1.0)
        exact = name.startswith(("special", "max", "min", "select", "comparison"))
        np.testing.assert_allclose(native, xla, rtol=1e-12, atol=0 if exact else 1e-13 * scale)
    else:
        np.testing.assert_array_equal(native, xla)


@pytest.mark.parametrize("lanes", LANES)
def test_the_geodesic_between_row_spaces(lanes):
    """Eigenvectors have other signs than those of XLA, and others where angles are equal; what a
    law makes of them does not."""

    def middle(G):
        found = grassmann.pair(lambda b: b, G, jnp.ones(G.shape[:2], bool))
        rows = found.after + grassmann.geodesic(found, grassmann.between(0.3)) @ found.H
        return [found.coordinates(G[1]) @ rows, found.frame.cosines]

    G = np.random.default_rng(5).normal(size=(lanes, 2, 3, 5))
    G[:, 1, 1:] = G[:, 0, 1:]  # two of three angles are zero
    program = translate(middle, [G[0]], None, lanes)
    native = program([G if lanes > 1 else G[0]])
    for found, xla in zip(native, jax.jit(jax.vmap(middle))(G), strict=True):
        np.testing.assert_allclose(found.reshape(xla.shape), xla, rtol=1e-11, atol=1e-12)


def used_in(jaxpr) -> set[str]:
    """The names of all primitives."""
    inside = (used_in(inner) for e in jaxpr.eqns for inner in uniform.inner_jaxprs(e))
    return set().union((e.primitive.name for e in jaxpr.eqns), *inside)


def test_every_primitive_in_the_table_has_a_case():
    """So there are no names in it that JAX does not know, either."""
    function = lambda *values: [case(arguments(values)) for case in CASES.values()]
    found = used_in(traced(function, list(vars(Args(0)).values()), 1)[0].jaxpr)
    apart = {"pmin", "pmax"}  # of lanes: below
    assert set(PRIMITIVES) - found == apart


def test_what_is_unknown_is_named():
    with pytest.raises(Unsupported, match="the primitive lgamma"):
        translate(lambda x: [lax.lgamma(x)], [np.ones(4)])
    with pytest.raises(Unsupported, match="float32"):
        translate(lambda x: [x + 1], [np.ones(4, np.float32)])


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda x: x.at[1].apply(jnp.sin), "scatter by a function"),
        (lambda x: lax.reduce_precision(x, 8, 23), "a reduced precision"),
        (lambda x: x.astype(jnp.uint32), "fractions as unsigned integers"),
        (lambda x: jnp.abs(x + 1j), "complex128"),
        (lambda x: jnp.linalg.svd(jnp.outer(x, x), compute_uv=False), "the primitive svd"),
        (lambda x: jnp.cumsum(jnp.outer(jnp.tile(x, 9), x), 0), "cumulative sum of a large"),
    ],
    ids=["apply", "precision", "unsigned", "complex", "svd", "cumsum"],
)
def test_what_is_not_translated_is_refused(function, reason):
    """Rather than wrong."""
    with pytest.raises(Unsupported, match=reason):
        translate(lambda x: [function(x)], [np.ones(8)])


def test_who_asks_for_native_programs_is_told_why_there_are_none(monkeypatch):
    monkeypatch.setenv("NSDYN_BACKEND", "native")
    system = nsdyn.System(
        mass=lambda q, p: jnp.eye(1), force=lambda q, v, t, p: -q * jnp.exp(lax.lgamma(1.0 + v**2))
    )
    problem = nsdyn.Problem("x", system, None, q0=[1.0], v0=[0.0], t_end=0.1)
    with pytest.raises(nsdyn.ProblemError, match=r"NSDYN_BACKEND=native.*the primitive lgamma"):
        nsdyn.simulate(problem, EventDriven(RK4()), step=1e-2, check=False)


def test_a_question_to_all_lanes():
    """What is the same in all lanes stays one number, and loops on it do not need masks."""

    def function(x):
        go = lambda c: lax.pmin((c[1] < 4.0).astype(int), AXIS) == 1
        return list(lax.while_loop(go, lambda c: (c[0] + 1, c[1] + x), (0, x)))

    x = np.array([1.0, 0.5, 2.0, 0.1])
    count, end = translate(function, [x[0]], None, 4)([x])
    assert count.tolist() == [1, 1, 1, 1] and end.tolist() == (2 * x).tolist()


@pytest.mark.parametrize("lanes", LANES)
def test_functions_called_more_than_once(lanes, monkeypatch):
    """Numbers, arrays in memory, constants, loops and masks in functions; arguments that come back
    as results."""
    monkeypatch.setattr(functions, "LARGE", 1)
    monkeypatch.setattr(functions, "LARGE_IN_LONG_STEPS", 1)

    @jax.jit
    def fine(x, y, n):
        grow = lambda c: (c[0] + 1, c[1] * 1.1 + jnp.sin(x))
        count, y = lax.while_loop(lambda c: c[0] < n, grow, (0, y))
        return x, y, count, jnp.zeros(2), jnp.outer(y, y)

    @jax.jit
    def wide(table, x):
        return table * x, table, jnp.cumsum(table[:20]) * x

    def function(x, n):
        start = (x[:2], x[2:])
        first = fine(*start, n)
        again = fine(*start, n)  # an equal call
        fixed = fine(jnp.array([1.0, 2.0]), x[2:], n)
        swapped = fine(x[2:], x[2:], n)
        once = lambda: fine(x[:2] + 1.0, x[2:], n + 2)
        maybe = lax.cond(n > 1, once, lambda: fine(*start, n))
        table, same, total = wide(jnp.outer(jnp.arange(300.0), x).ravel(), x[0])
        table, _, more = wide(table, x[1])
        turn = lambda i, c: fine(c[0], c[1] / 4, n)[:2]
        looped = lax.fori_loop(0, n, turn, start)
        return [*first, *again, *fixed, *swapped, *maybe, table, same, total, more, *looped]

    rng = np.random.default_rng(0)
    args = rng.normal(size=(lanes, 4)), np.arange(lanes)
    one = [x[0] for x in args]
    found = translate(function, one, None, lanes)(args if lanes > 1 else one)
    expected = jax.vmap(function)(*args)
    for native, xla in zip(found, expected, strict=True):
        np.testing.assert_allclose(native if lanes > 1 else native[None], xla, rtol=1e-12)


def test_a_function_is_written_once_for_constants_and_once_for_each_pattern(monkeypatch):
    monkeypatch.setattr(functions, "LARGE", 1)
    monkeypatch.setattr(functions, "LARGE_IN_LONG_STEPS", 1)
    inner = jax.jit(lambda x, y: jnp.sin(x) * y)
    outer = lambda x, y: [inner(x, y), inner(y, x), inner(x, x), inner(x, 2.0), inner(y, 2.0)]
    text = Source(traced(outer, [np.ones(2)] * 2, 1)[0], [False] * 2, 1).text
    assert text.count("static __attribute__((noinline)) void f") == 3


def test_a_function_gets_only_the_arguments_that_it_uses(monkeypatch):
    """Those that only an inner function ignores, and arrays, among them; all may come back."""
    monkeypatch.setattr(functions, "LARGE", 1)
    monkeypatch.setattr(functions, "LARGE_IN_LONG_STEPS", 1)
    deeper = jax.jit(lambda x, unused, table: (x * x + 1.0, table))
    inner = jax.jit(lambda x, unused, table: (*deeper(3.0 * x, unused, table), unused))

    def function(x, y, table):
        return [*inner(x, y, table), *inner(y, x + y, table), *deeper(x, y, table)]

    args = np.array(2.0), np.array(5.0), np.arange(300.0)
    text = Source(traced(function, args, 1)[0], [False] * 3, 1).text
    start = "static __attribute__((noinline)) void f"
    heads = [line for line in text.splitlines() if line.startswith(start)]
    assert len(heads) == 2 and all(head.count(",") == 2 for head in heads), heads
    for native, xla in zip(translate(function, args)(args), function(*args), strict=True):
        np.testing.assert_array_equal(native, xla)


def test_products_by_powers_of_two_become_one():
    """Which changes no bit."""
    function = lambda x: [0.5 * (2.0 * x), 2.0 * (2.0 * x), 0.5 * (3.0 * x), (x * 0.25) * 4.0]
    x = np.array(0.1)
    text = Source(traced(function, [x], 1)[0], [False], 1).text
    main = text[text.index('extern "C" void program') :]
    assert main.count(" * x") + main.count("x * ") <= 4 and "4.0 * " in main
    found = translate(function, [x])([x])
    assert [float(y) for y in found] == [0.1, 4.0 * 0.1, 0.5 * (3.0 * 0.1), 0.1]


@pytest.mark.parametrize("lanes", LANES)
def test_sums_take_in_the_products_that_only_they_use(lanes):
    """Rounded once, where the machine can; and x y - x y is 0 all the same."""
    function = lambda x, y: [x * y + 3.0, 3.0 - x * y, x * y - y, y - y * y, jnp.sin(y * y), x - x]
    nothing = lambda x, y: [x * y - x * y]
    rng = np.random.default_rng(0)
    args = rng.normal(size=lanes), rng.normal(size=lanes)
    one = [x[0] for x in args]
    text = Source(traced(function, one, lanes)[0], [lanes > 1] * 2, lanes).text
    main = text[text.index('extern "C" void program') :]
    assert main.count("mad(") == 3  # y y is the argument of a sine too
    given = args if lanes > 1 else one
    for of in function, nothing:
        for native, xla in zip(translate(of, one, None, lanes)(given), of(*args), strict=True):
            np.testing.assert_allclose(native, xla if lanes > 1 else xla[0], rtol=1e-13, atol=1e-16)
    assert not np.any(translate(nothing, one, None, lanes)(given)[0])


@pytest.mark.parametrize("lanes", LANES)
def test_the_caller_of_a_function_computes_sines_of_what_it_passes(lanes, monkeypatch):
    """Once for several calls, and not at all if the function may do without."""
    monkeypatch.setattr(functions, "LARGE", 1)
    monkeypatch.setattr(functions, "LARGE_IN_LONG_STEPS", 1)

    @jax.jit
    def deeper(p, q):
        return jnp.sin(p) * jnp.cos(q) + jnp.cos(p + q)

    @jax.jit
    def inner(p, q):
        rare = lambda: jnp.sin(3.0 * q) + jnp.cos(q)
        return deeper(p, q) + deeper(p, 2.0 * q) + lax.cond(q > 1.0, rare, lambda: q)

    def function(p, q):
        return [inner(p, q), inner(p, q + 1.0), inner(p, q + 2.0)]

    rng = np.random.default_rng(0)
    args = rng.normal(size=lanes), rng.normal(size=lanes)
    one = [x[0] for x in args]
    text = Source(traced(function, one, lanes)[0], [lanes > 1] * 2, lanes).text
    main = text[text.index('extern "C" void program') :]
    angles = 4 if lanes > 1 else 3  # p, q, q + 1 and q + 2; of a single run the first two together
    assert main.count("trig(") == angles
    found = translate(function, one, None, lanes)(args if lanes > 1 else one)
    for native, xla in zip(found, jax.vmap(function)(*args), strict=True):
        np.testing.assert_allclose(native if lanes > 1 else native[None], xla, rtol=1e-13)


# The cache


TEXT = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NSDYN_CACHE", str(tmp_path))
    return tmp_path / "native"


def test_an_entry_is_made_once(cache, monkeypatch):
    assert build.library(TEXT).answer() == 42
    names = sorted(path.suffix for path in cache.iterdir())
    assert names == [".so", ".sum"]
    monkeypatch.setattr(build, "_compiled", None)
    assert build.library(TEXT).answer() == 42


@pytest.mark.parametrize("suffix", [".so", ".sum"])
@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_a_corrupt_entry_is_made_again(cache, suffix, content):
    text = TEXT.replace("42", str(43 + len(suffix)))  # a library that is not loaded yet
    folder = build.cache_folder("native")
    entry = folder / f"{build.name_of(text)}{suffix}"
    if content is not None:
        entry.write_bytes(content)
    assert build.library(text).answer() == 43 + len(suffix)
    assert build._is_sound(entry.with_suffix(".so"))


@pytest.mark.parametrize("damage", ["cut short", "of another name", "of another machine"])
def test_an_entry_that_is_not_what_it_should_be_is_made_again(cache, damage):
    """A library that was cut short; an intact one, with its seal, under another name; and one with
    a right seal that this machine cannot load."""
    number = 50 + len(damage)
    text, other = TEXT.replace("42", str(number)), TEXT.replace("42", "49")
    entry = build.cache_folder("native") / f"{build.name_of(text)}.so"
    seal = entry.with_suffix(".sum")
    made = cache / f"{build.name_of(other)}.so"
    assert build.library(other).answer() == 49
    assert build.kept_library(made.stem).answer() == 49
    if damage == "cut short":
        assert build.library(text).answer() == number
        content = entry.read_bytes()
        entry.unlink()  # it is loaded
        entry.write_bytes(content[:-100])
    elif damage == "of another name":
        shutil.copy(made, entry)
        shutil.copy(made.with_suffix(".sum"), seal)
    else:
        entry.write_bytes(b"no library")
        seal.write_text(build._seal(entry.stem, entry), "ascii")
    assert build.kept_library(entry.stem) is None
    assert build.library(text).answer() == number
    assert build.kept_library(entry.stem).answer() == number


def test_without_a_cache_nothing_is_left(tmp_path, monkeypatch):
    monkeypatch.setenv("NSDYN_CACHE", "0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.library(TEXT.replace("42", "7")).answer() == 7
    assert not list(tmp_path.iterdir())


WAITING = """#!/bin/sh
# A compiler that waits until two of its kind are at work.
echo > "{meeting}/$$"
for k in $(seq 200); do
    [ "$(ls "{meeting}" | wc -l)" -ge 2 ] && break
    sleep 0.05
done
exec "{compiler}" "$@"
"""


@pytest.mark.skipif(os.name != "posix", reason="a shell script")
def test_two_processes_that_compile_the_same_at_once(cache, tmp_path, monkeypatch):
    meeting, script = tmp_path / "meeting", tmp_path / "bin" / "c++"
    meeting.mkdir()
    script.parent.mkdir()
    script.write_text(WAITING.format(meeting=meeting, compiler=build.compiler()), "utf-8")
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    code = f"from nsdyn.native.build import library; assert library({TEXT!r}).answer() == 42"
    run = lambda: subprocess.Popen([sys.executable, "-c", code])
    assert [process.wait() for process in [run(), run()]] == [0, 0]
    assert len(list(meeting.iterdir())) == 2
    assert sorted(path.suffix for path in cache.iterdir()) == [".so", ".sum"]
    monkeypatch.setattr(build, "_compiled", None)
    assert build.kept_library(build.name_of(TEXT)).answer() == 42


def test_no_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(Unsupported, match="compiler"):
        build.library(TEXT)
    monkeypatch.setenv("NSDYN_BACKEND", "auto")
    solution = nsdyn.simulate(problems.pendulum(), EventDriven(RK4()), step=1e-2, t_end=0.1)
    assert solution.backend == "xla"


def test_a_text_that_the_compiler_refuses_is_told():
    with pytest.warns(nsdyn.errors.PerformanceWarning, match="refused"), pytest.raises(Unsupported):
        build.library("this is no C++")


# Whole runs


def both(run):
    found = []
    for name in ("native", "xla"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("NSDYN_BACKEND", name)
            found.append(run())
        assert found[-1].backend == name
    return found


def agree(a, b, tolerance=1e-9):
    assert np.array_equal(a.status, b.status) and np.array_equal(a.mode, b.mode)
    for name in ("q", "v", "energy", "t_stop"):
        x, y = getattr(a, name), getattr(b, name)
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance, equal_nan=True)
    np.testing.assert_allclose(a.events.t, b.events.t, rtol=tolerance, equal_nan=True)
    np.testing.assert_allclose(a.events.Lam, b.events.Lam, rtol=1e-7, atol=1e-9, equal_nan=True)


@pytest.mark.parametrize(
    "integrator", [EventDriven(RK4()), pytest.param(NSGA(), marks=pytest.mark.slow)], ids=repr
)
def test_a_run_is_the_same(integrator):
    agree(*both(lambda: nsdyn.simulate(problems.three_r_pendulum(), integrator, step=2e-3)))


@pytest.mark.slow
@pytest.mark.parametrize("method", [DormandPrince(8), RadauIIA()], ids=repr)
def test_a_run_with_error_control_is_the_same(method):
    """Steps that end at the times of the samples, too."""
    options = {"step": 0.5, "save_at": [0.3, 0.61], "check": False}
    agree(*both(lambda: nsdyn.simulate(pegged_swing(), EventDriven(method), **options)))


def test_a_batch_is_the_same():
    problem = problems.three_r_pendulum()
    q0 = np.asarray(problem.q0) + 0.1 * np.random.default_rng(0).normal(size=(19, 3))
    run = lambda: nsdyn.sweep(problem, EventDriven(RK4()), step=5e-3, q0=q0, save_every=3)
    agree(*both(run))


@pytest.mark.parametrize("count", [1, 3])
def test_a_batch_of_few_runs_is_native_too(count):
    """It is filled up; with those of other sizes it shares its programs."""
    problem = problems.three_r_pendulum()
    q0 = np.asarray(problem.q0) + 0.1 * np.random.default_rng(1).normal(size=(8, 3))
    run = lambda q0: nsdyn.sweep(problem, EventDriven(RK4()), step=5e-3, q0=q0, save_every=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NSDYN_BACKEND", "native")
        few, all_ = run(q0[:count]), run(q0)
    assert few.backend == all_.backend == "native" and few.q.shape == (count, *all_.q.shape[1:])
    for name in ("q", "v", "lam", "energy", "mode", "status"):
        np.testing.assert_array_equal(getattr(few, name), getattr(all_, name)[:count])


def test_a_batch_is_filled_up_only_for_native_programs(monkeypatch):
    """Not where there is no compiler, nor memory for all lanes, which is refused if native programs
    are asked for."""
    problem = problems.pendulum()
    made = setup(problem, EventDriven(RK4()), None, step=1e-2)
    batch = batch_values(problem, None, np.tile(problem.q0, (3, 1)), None, None)
    layout = lambda **options: batch_run.laid_out(problem, made, batch, **options)
    monkeypatch.setenv("NSDYN_BACKEND", "auto")
    assert layout().size == 8
    little = {"memory": 5 * batch_run.WORK * layout().each}
    assert layout(**little).size == 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", "")
        patch.delenv("CXX", raising=False)
        assert layout().size == 4
    monkeypatch.setenv("NSDYN_BACKEND", "native")
    with pytest.raises(nsdyn.ProblemError, match=r"memory: native programs take 8.*room for 5"):
        layout(**little)


@pytest.mark.slow
def test_a_batch_with_more_events_than_a_block_holds():
    """Runs of a group end their blocks together, each with a log of its own."""
    problem = problems.rimless_wheel()
    v0 = np.asarray(problem.v0) * np.linspace(0.8, 1.5, 9)[:, None]
    run = lambda: nsdyn.sweep(
        problem, EventDriven(RK4()), step=1e-2, v0=v0, t_end=45.0, save_every=50
    )
    native, xla = both(run)
    assert native.events.count.max() > 32
    agree(native, xla, 1e-6)


def test_a_wrong_setting_is_refused(monkeypatch):
    monkeypatch.setenv("NSDYN_BACKEND", "fortran")
    with pytest.raises(nsdyn.ProblemError, match="auto, native, xla"):
        nsdyn.simulate(problems.pendulum(), EventDriven(RK4()), step=1e-2, t_end=0.1)


def test_the_text_depends_on_nothing_else():
    """The same program has the same text, so that the cache finds it."""
    from nsdyn.native.program import Source

    function = lambda x: [jnp.linalg.solve(x, x[0]), lax.fori_loop(0, 9, lambda k, y: y * x, x)]
    make = lambda: Source(traced(function, [np.eye(3)], 1)[0], [True], 1).text
    assert make() == make()
    assert os.sep + "tmp" not in make()
