"""Gradients between those before and after a switch: the energy theorem, closed forms, invariances,
derivatives, objections.

Most cases are built from their principal planes, so that the velocity after the switch is known in
closed form. With M = root root^T and w = root^T v let a_k and b_k, unit vectors at the angle th_k,
span the rows G- and G+ in w; d_k completes a_k to a basis of their plane, and (b_k, db_k) is (a_k,
d_k) turned by th_k.
"""

from collections import namedtuple

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nsdyn
from nsdyn import laws, problems
from nsdyn.integrators import RK4, EventDriven
from nsdyn.laws import ModeChange
from nsdyn.status import Status

STEEPEST = 85.0
seeds = st.integers(0, 2**32 - 1)
positions = st.floats(0.0, 1.0)


class Case(namedtuple("Case", "M before after v root a d th rows")):  # G+ = rows b
    @property
    def w(self):
        return self.root.T @ self.v

    def turned(self):
        """b and db."""
        c, s = np.cos(self.th)[:, None], np.sin(self.th)[:, None]
        return c * self.a + s * self.d, c * self.d - s * self.a

    def velocity(self, E, beta=0.0):
        """v+ in closed form for any v-, if b . w+ = beta."""
        b, db = self.turned()
        alpha, om = self.a @ self.w, self.d @ self.w
        rest = self.w - self.a.T @ alpha - self.d.T @ om
        sine, cosine = np.sin((1 - E) * self.th), np.cos((1 - E) * self.th)
        om_after = (om * np.cos(E * self.th) - alpha * np.sin(E * self.th) - beta * sine) / cosine
        return np.linalg.solve(
            self.root.T, rest + b.T @ (beta * np.ones(len(self.th))) + db.T @ om_after
        )


def conditioned(rng, rows, columns, condition):
    """A random matrix with singular values between 1 and `condition`, both taken."""
    u, _ = np.linalg.qr(rng.standard_normal((rows, rows)))
    v, _ = np.linalg.qr(rng.standard_normal((columns, columns)))
    s = np.exp(rng.uniform(0, np.log(condition), min(rows, columns)))
    s[:2] = [condition, 1.0][: len(s)]
    return u[:, : len(s)] * s @ v[: len(s)]


def case(seed, m, n, th=None, consistent=True, condition=100.0):
    """n >= 2 m. Angles up to STEEPEST; some are zero, some equal. v- obeys G- v- = 0 if
    `consistent`."""
    rng = np.random.default_rng(seed)
    if th is None:
        th = np.radians(rng.uniform(0, STEEPEST, m))
        th[rng.random(m) < 0.15] = 0.0
        th[rng.random(m) < 0.15] = np.radians(STEEPEST)
    q, _ = np.linalg.qr(rng.standard_normal((n, n)))
    root = conditioned(rng, n, n, np.sqrt(condition))
    a, d = q[:m], q[m : 2 * m]
    rows = conditioned(rng, m, m, condition)
    before = conditioned(rng, m, m, condition) @ a @ root.T
    w = rng.standard_normal(n)
    v = np.linalg.solve(root.T, w - consistent * (a.T @ (a @ w)))
    found = Case(root @ root.T, before, before, v, root, a, d, np.asarray(th, float), rows)
    return found._replace(after=rows @ found.turned()[0] @ root.T)


def kinetic(M, v):
    return 0.5 * v @ M @ v


def program(make):
    """The law that make(E) gives, compiled once for each shape: what is not given is filled in."""
    run = jax.jit(lambda E, *args: make(E).decide(ModeChange.of(*args)))

    def call(E, M, before, after, v, gt=None, U=None, on_before=None, on_after=None):
        fill = lambda x, size, value: np.full(size, value) if x is None else x
        masks = fill(on_before, len(before), True), fill(on_after, len(after), True)
        return run(E, M, before, after, v, fill(gt, len(after), 0.0), fill(U, len(v), 0.0), *masks)

    return call


intermediate = program(lambda E: laws.IntermediateGradient(E, allow_energy_gain=True))
euclidean = program(lambda E: laws.IntermediateGradient(E, "euclidean", allow_energy_gain=True))
post_switch = program(lambda E: laws.PostSwitchGradient())
many = jax.jit(
    jax.vmap(lambda *args: laws.GrassmannMidGradient().decide(ModeChange.of(*args)).v_after)
)


@pytest.mark.parametrize("m", [1, 2, 3, 4, 5])
@settings(max_examples=20)
@given(seeds)
def test_the_mid_gradient_preserves_energy(m, seed):
    """1,000 cases in all: 20 batches of 10 for each m."""
    batch = [case([seed, i], m, 10) for i in range(10)]
    after = np.asarray(
        many(
            *(np.stack([getattr(x, name) for x in batch]) for name in ("M", "before", "after", "v"))
        )
    )
    for x, v in zip(batch, after, strict=True):
        assert abs(kinetic(x.M, v) / kinetic(x.M, x.v) - 1) < 1e-12
        assert np.abs(x.after @ v).max() < 1e-12 * np.abs(x.after).max() * np.abs(x.v).max()


@given(seeds, positions)
def test_velocity_after_in_closed_form(seed, E):
    x = case(seed, 3, 6)
    out = intermediate(E, *x[:4])
    assert distance(out.v_after, x.velocity(E)) < 1e-11
    ratio = np.cos(E * x.th) / np.cos((1 - E) * x.th)  # of the speed in each plane
    expected = ratio * (x.d @ x.w)
    assert distance(x.turned()[1] @ x.root.T @ out.v_after, expected) < 1e-10
    gain = 0.5 * np.sum(expected**2 - (x.d @ x.w) ** 2)
    T = kinetic(x.M, x.v), kinetic(x.M, out.v_after)
    assert abs(T[1] - T[0] - gain) < 1e-10 * sum(T)


def distance(found, expected):
    return np.linalg.norm(found - expected) / np.linalg.norm(expected)


@settings(max_examples=10)
@given(seeds)
def test_ratio_falls_strictly_with_position(seed):
    x = case(seed, 3, 6, th=np.random.default_rng(seed).uniform(0.05, 1.4, 3))
    ratio = [
        kinetic(x.M, intermediate(E, *x[:4]).v_after) / kinetic(x.M, x.v)
        for E in np.linspace(0, 1, 7)
    ]
    assert np.all(np.diff(ratio) < 0)
    assert np.all(np.array(ratio[:3]) > 1) and np.all(np.array(ratio[4:]) < 1)


@given(seeds, positions)
def test_rheonomic_rows(seed, E):
    x, beta = case(seed, 3, 6, consistent=False), np.random.default_rng(seed).standard_normal(3)
    assert distance(intermediate(E, *x[:4], -x.rows @ beta).v_after, x.velocity(E, beta)) < 1e-11


@given(seeds)
def test_rheonomic_energy(seed):
    """The work of the impulse at the mean prescribed speed, and the kinetic energy relative to what
    both rows prescribe."""
    rng = np.random.default_rng(seed)
    x = case(seed, 3, 6, th=rng.uniform(0.3, 1.4, 3), consistent=False)
    alpha, beta, om = x.a @ x.w, rng.standard_normal(3), x.d @ x.w
    after = np.asarray(intermediate(0.5, *x[:4], -x.rows @ beta).v_after)
    scale = kinetic(x.M, x.v) + kinetic(x.M, after)
    half = np.cos(x.th / 2)
    mu = (alpha * np.cos(x.th) + om * np.sin(x.th) - beta) / half
    work = -np.sum(mu * (alpha + beta) / (2 * half))
    assert abs(work) > 1e-6 * scale  # else the next line would say nothing
    assert abs(kinetic(x.M, after) - kinetic(x.M, x.v) - work) < 1e-12 * scale
    u = np.linalg.solve(np.vstack([x.a, x.turned()[0]]) @ x.root.T, np.concatenate([alpha, beta]))
    relative = [kinetic(x.M, v - u) for v in (x.v, after)]
    assert abs(relative[1] - relative[0]) < 1e-12 * relative[0]


@given(seeds)
def test_at_one_it_is_the_post_switch_gradient(seed):
    x, rng = case(seed, 3, 6, consistent=False), np.random.default_rng(seed)
    rest = (
        rng.standard_normal(3),
        rng.standard_normal(6),
        rng.random(3) < 0.7,
        rng.random(3) < 0.7,
    )  # any ranks
    wanted = post_switch(1.0, *x[:4], *rest)
    for law in (intermediate, euclidean):
        out = law(1.0, *x[:4], *rest)
        assert np.array_equal(out.direction, wanted.direction)
        assert distance(out.v_after, wanted.v_after) < 1e-12
        np.testing.assert_allclose(out.Lam, wanted.Lam, atol=1e-9 * np.abs(wanted.Lam).max())


@given(seeds, positions)
def test_impulses_are_those_of_the_post_switch_gradient(seed, E):
    x, force = case(seed, 3, 6, consistent=False), np.random.default_rng(seed).standard_normal(6)
    out = intermediate(E, *x[:4], None, force)
    wanted = post_switch(1.0, *x[:4], None, force).Lam
    np.testing.assert_allclose(out.Lam, wanted, atol=1e-9 * np.abs(wanted).max())
    balance = x.M @ (out.v_after - x.v) + np.asarray(out.direction).T @ np.asarray(out.Lam) - force
    assert np.abs(balance).max() < 1e-11 * np.abs(x.M @ x.v).max()


@given(seeds, positions)
def test_only_row_spaces_matter(seed, E):
    rng = np.random.default_rng(seed)
    x = case(seed, 3, 6, th=rng.uniform(0, 1, 3), condition=3.0)
    scale = lambda: np.diag(rng.choice([-1.0, 1.0], 3) * np.exp(rng.uniform(-7, 7, 3)))
    K, L = (scale() @ conditioned(rng, 3, 3, 10.0) for _ in range(2))
    for law in (intermediate, euclidean):
        out, same = law(E, *x[:4]), law(E, x.M, K @ x.before, L @ x.after, x.v)
        assert distance(same.v_after, out.v_after) < 1e-9
        assert distance(np.linalg.solve(L, same.direction), out.direction) < 1e-9
        assert distance(L.T @ same.Lam, out.Lam) < 1e-9


@given(seeds, positions)
def test_the_mass_metric_knows_no_coordinates(seed, E):
    x = case(seed, 3, 6)
    T = conditioned(np.random.default_rng(seed), 6, 6, 10.0)
    after = intermediate(E, *x[:4]).v_after
    assert distance(T @ intermediate(E, *in_coordinates(x, T)).v_after, after) < 1e-10


def in_coordinates(x, T):
    """The same switch in coordinates v' with v = T v'."""
    return T.T @ x.M @ T, x.before @ T, x.after @ T, np.linalg.solve(T, x.v)


def test_the_euclidean_metric_knows_units():
    x = case(7, 3, 6)
    T = np.diag([1.0, 1.0, 1.0, 1e-3, 1e-3, 1e-3])  # millimetres for three of the coordinates
    after = euclidean(0.5, *x[:4]).v_after
    assert distance(T @ euclidean(0.5, *in_coordinates(x, T)).v_after, after) > 1e-2
    assert abs(kinetic(x.M, after) / kinetic(x.M, x.v) - 1) > 1e-2


def test_counterexample_of_the_euclidean_metric():
    """M = diag(1, 4): the Euclidean midpoint loses energy, the one in the mass metric does not."""
    M, v = np.diag([1.0, 4.0]), np.array([1.0, 0.0])
    expected = {"mass": (-0.309017, 0.447214, 0.5), "euclidean": (-0.414214, 0.376385, 0.354164)}
    for metric, (slope, speed, T) in expected.items():
        out = laws.GrassmannMidGradient(metric).jump(M, [[0.0, 1.0]], [[-1.0, 1.0]], v)
        np.testing.assert_allclose(out.direction[0] / out.direction[0, 1], [slope, 1.0], atol=5e-7)
        np.testing.assert_allclose(out.v_after, [speed, speed], atol=5e-7)
        np.testing.assert_allclose(kinetic(M, out.v_after), T, atol=5e-7)


def test_wheel_in_a_pothole():
    """R = 0.35, m = 10, I = m R^2/2, hole 0.3 wide, half-way between its edges; padded to three
    rows of six."""
    R, m, half = 0.35, 10.0, 0.15
    y = np.sqrt(R**2 - half**2)
    M = np.diag([m, m, m * R**2 / 2, 1.0, 1.0, 1.0])
    about = lambda x: np.array(
        [[2 * x, 2 * y, 0, 0, 0, 0], [-y / R**2, x / R**2, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]]
    )
    v = np.array([y, -half, 1.0, 0.0, 0.0, 0.0])  # turns about the near edge at unit rate
    rate = lambda law, E: law(E, M, about(half), about(-half), v).v_after[2]
    found = [rate(intermediate, 1.0), rate(intermediate, 0.75), rate(euclidean, 0.75)]
    np.testing.assert_allclose(found, [0.755102, 0.873554, 0.870183], atol=5e-7)
    np.testing.assert_allclose([rate(intermediate, 0.5), rate(euclidean, 0.5)], 1.0, atol=1e-14)


@given(seeds, positions)
def test_one_row_exchanged_among_shared_ones(seed, E):
    """As in the palm: two rows of three stay, in other places, and the third turns."""
    rng = np.random.default_rng(seed)
    x = case(seed, 3, 6, th=[0.0, 0.0, rng.uniform(0.1, 1.4)])
    shared = conditioned(rng, 2, 2, 10.0) @ x.a[:2] @ x.root.T
    old, new = (rng.uniform(1, 2) * row[None] @ x.root.T for row in (x.a[2], x.turned()[0][2]))
    out = intermediate(E, x.M, np.vstack([shared, old]), np.vstack([new, shared]), x.v)
    assert distance(out.v_after, x.velocity(E)) < 1e-11
    assert distance(out.direction[1:], shared) < 1e-11


@given(seeds, positions)
def test_dead_rows_change_nothing_and_answer_zero(seed, E):
    """Live rows at different places, different numbers of rows, and junk in the dead ones."""
    x, rng = case(seed, 2, 6, consistent=False), np.random.default_rng(seed)
    beta = rng.standard_normal(2)
    on_before, on_after = np.array([0, 1, 0, 0, 1], bool), np.array([1, 0, 1], bool)
    before, after, gt = (
        rng.standard_normal((5, 6)),
        rng.standard_normal((3, 6)),
        rng.standard_normal(3),
    )
    before[on_before], after[on_after], gt[on_after] = x.before, x.after, -x.rows @ beta
    out = intermediate(E, x.M, before, after, x.v, gt, None, on_before, on_after)
    assert distance(out.v_after, x.velocity(E, beta)) < 1e-11
    assert not np.asarray(out.Lam)[1] and not np.asarray(out.direction)[1].any()


@given(seeds)
def test_dependent_rows_change_nothing(seed):
    x = case(seed, 2, 6)
    before, after = (np.vstack([rows[:1], 3 * rows[:1], rows[1:]]) for rows in (x.before, x.after))
    assert distance(intermediate(0.5, x.M, before, after, x.v).v_after, x.velocity(0.5)) < 1e-9


def test_rows_that_are_exact_combinations():
    """The third row is the sum of the first two, before and after; it used to give NaN."""
    M = np.array([[1.0, -2.0, 0.0], [-2.0, 5.0, 0.0], [0.0, 0.0, 1.0]])
    before = np.array([[3.0, 2.0, -1.0], [-3.0, -2.0, 0.0], [0.0, 0.0, -1.0]])
    after = np.array([[-2.0, -1.0, 0.0], [2.0, -1.0, -1.0], [0.0, -2.0, -1.0]])
    v, expected = np.array([2.0, -3.0, 0.0]), [1.27366488, -2.54732976, 5.09465951]
    for law in (laws.GrassmannMidGradient(), laws.IntermediateGradient(0.5)):
        for rows in (after, after[:2]):
            np.testing.assert_allclose(law.jump(M, before, rows, v).v_after, expected, atol=5e-9)


MIX = np.array([[1.0, -2.0], [1.0, 0.0], [0.0, 3.0], [2.0, 1.0]])


def mixed(x, mix):
    """v+ where both sets of rows are combinations of some."""
    M, before, after, v = x
    change = ModeChange.of(0.5 * (M + M.T), mix @ before, mix @ after, v)
    return laws.IntermediateGradient(0.7).decide(change).v_after


MIXED = {f.__name__: jax.jit(f(mixed)) for f in (jax.jacfwd, jax.jacrev)}


@pytest.mark.parametrize("angles", [[0.4, 1.1], [0.8, 0.8], [0.0, 0.8]], ids=str)
def test_derivatives_where_rows_are_combinations(angles):
    """Written with four rows or with two, the law is the same function of its constraints."""
    x = case(17, 2, 4, angles, consistent=False, condition=4.0)[:4]
    wanted = flat(MIXED["jacfwd"](x, np.eye(2)))
    for derivative in MIXED.values():
        assert distance(flat(derivative(x, MIX)), wanted) < 1e-10


def derivatives(metric):
    """Values with derivatives along dx, and its transpose, for x = (M, G-, G+, v-, E) and masks."""

    def run(x, on_before, on_after):
        M, before, after, v, E = x
        law = laws.IntermediateGradient(E, metric, allow_energy_gain=True)
        return law.decide(
            ModeChange.of(0.5 * (M + M.T), before, after, v, None, None, on_before, on_after)
        )

    push = lambda x, dx, *on: jax.jvp(lambda x: run(x, *on), (x,), (dx,))
    pull = lambda x, dy, *on: jax.vjp(lambda x: run(x, *on), x)[1](dy)[0]
    return jax.jit(push), jax.jit(pull)


DERIVATIVES = {metric: derivatives(metric) for metric in ("mass", "euclidean")}
ANGLES = {
    "generic": [0.4, 1.1],
    "equal": [0.8, 0.8],
    "one zero": [0.0, 0.8],
    "zero": [0.0, 0.0],
    "steep": [0.3, 1.45],
}
ALL = np.array([True, True])


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def differences(f, x, dx, h=1e-3):
    at = lambda k: flat(f(jax.tree.map(lambda x, dx: x + k * h * dx, x, dx)))
    return (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * h)


def sample(like, rng, size=1.0):
    return jax.tree.map(lambda leaf: size * rng.standard_normal(np.shape(leaf)), like)


@pytest.mark.parametrize("metric", DERIVATIVES)
@pytest.mark.parametrize("angles", ANGLES)
def test_derivatives_in_both_modes(metric, angles):
    """In the Euclidean metric with M = I, which makes its angles those of the case."""
    condition = 1.0 if metric == "euclidean" else 4.0
    x = (*case(11, 2, 4, ANGLES[angles], consistent=False, condition=condition)[:4], np.array(0.7))
    rng, (push, pull) = np.random.default_rng(12), DERIVATIVES[metric]
    for _ in range(3):
        dx = sample(x, rng, 0.1)
        found = push(x, dx, ALL, ALL)[1]
        expected = differences(lambda x, dx=dx: push(x, dx, ALL, ALL)[0], x, dx)
        assert distance(flat(found), expected) < 1e-8
        dy = sample(found, rng)
        assert flat(pull(x, dy, ALL, ALL)) @ flat(dx) == pytest.approx(
            flat(found) @ flat(dy), rel=1e-10
        )


@jax.jit
def twice(x, dx):
    """First and second derivative along dx."""
    mid = lambda x: laws.GrassmannMidGradient().decide(ModeChange.of(*x))
    return jax.jvp(lambda x: jax.jvp(mid, (x,), (dx,))[1], (x,), (dx,))


@pytest.mark.parametrize("angles", ANGLES)
def test_second_derivatives(angles):
    x = case(15, 2, 4, ANGLES[angles], consistent=False, condition=4.0)[:4]
    dx = sample(x, np.random.default_rng(16), 0.1)
    assert distance(flat(twice(x, dx)[1]), differences(lambda x: twice(x, dx)[0], x, dx)) < 1e-8


@pytest.mark.parametrize("metric", DERIVATIVES)
@pytest.mark.parametrize("E", [0.0, 0.5, 1.0])
def test_values_and_derivatives_are_finite_everywhere(metric, E):
    """Also where the law objects: no rows, other ranks, orthogonal rows, rows that vanish or
    repeat."""
    x, (push, pull) = case(13, 2, 4, [0.5, 0.9], consistent=False), DERIVATIVES[metric]
    eye, zero, same = np.eye(4), np.zeros((2, 4)), np.ones((2, 4))
    pairs = [(x.before, x.after), (eye[:2], eye[1:3]), (zero, x.after), (x.before, same)]
    masks = [ALL, ~ALL, np.array([True, False]), np.array([False, True])]
    for before, after in pairs:
        for on in ((a, b) for a in masks for b in masks):
            point = (x.M, before, after, x.v, np.array(E))
            out, tangent = push(point, jax.tree.map(np.ones_like, point), *on)
            assert np.isfinite(flat((out, tangent, pull(point, out, *on)))).all(), (
                before,
                after,
                on,
            )


def test_objections():
    run = jax.jit(lambda E, *args: laws.IntermediateGradient(E).failure_code(ModeChange.of(*args)))
    x, all_, none = case(14, 3, 6, [0.2, 0.5, 0.9]), np.ones(3, bool), np.zeros(3, bool)
    two, one = np.array([True, True, False]), np.array([True, False, False])

    def ask(E, before, after, on=all_, on_after=all_):
        return Status(int(run(E, x.M, before, after, x.v, None, None, on, on_after)))

    assert ask(0.5, x.before, x.after) == ask(1.0, x.before, x.after) == Status.OK
    assert ask(0.499, x.before, x.after) == Status.ENERGY_GAIN
    assert ask(1.001, x.before, x.after) == ask(-0.001, x.before, x.after) == Status.BAD_POSITION
    for on, on_after in ((none, one), (one, two), (two, one)):
        assert ask(0.75, x.before, x.after, on, on_after) == Status.RANK_CHANGES
        assert ask(1.0, x.before, x.after, on, on_after) == Status.OK
    assert (
        ask(0.75, x.before, x.before, two, one)
        == ask(0.75, x.before, x.before, all_, none)
        == Status.OK
    )  # release
    assert (
        ask(0.75, x.before, np.ones((3, 3)) @ x.before, all_, one) == Status.OK
    )  # to a combination of the rows
    for degrees, code in ((89.99, Status.OK), (89.996, Status.CUT_LOCUS), (90.0, Status.CUT_LOCUS)):
        after = x.rows @ x._replace(th=np.radians([10.0, degrees, 20.0])).turned()[0] @ x.root.T
        assert ask(0.75, x.before, after) == code
        assert ask(1.0, x.before, after) == Status.OK
    dependent = np.vstack([x.before[:2], x.before[:1] - x.before[1:2]])
    assert ask(0.75, dependent, x.after) == Status.RANK_CHANGES
    assert ask(0.75, dependent, x.after, all_, two) == Status.OK


def test_objections_are_errors_outside_traced_code():
    M, v, law = np.diag([1.0, 4.0]), np.array([1.0, 0.0]), laws.GrassmannMidGradient()
    orthogonal = np.array([[1.0, 2.0]]), np.array([[1.0, -2.0]])  # in the mass metric only
    with pytest.raises(
        nsdyn.ProblemError, match=r"GrassmannMidGradient: .*90 degrees.*PostSwitchGradient"
    ):
        law.jump(M, *orthogonal, v)
    with pytest.raises(nsdyn.ProblemError, match="number of independent constraints"):
        law.jump(M, np.zeros((1, 2)), orthogonal[1], v)
    assert np.isfinite(laws.GrassmannMidGradient("euclidean").jump(M, *orthogonal, v).v_after).all()
    assert jax.eval_shape(law.jump, M, *orthogonal, v).v_after.shape == (2,)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((0.4,), r"position=0.4.*allow_energy_gain=True"),
        ((1.1,), r"position=1.1.*outside \[0, 1\]"),
        ((-0.1, "mass", True), r"position=-0.1.*outside \[0, 1\]"),
        ((float("nan"),), r"position=nan.*outside \[0, 1\]"),
        ((0.5, "riemannian"), r"metric=.*riemannian"),
    ],
)
def test_settings_that_make_no_sense(arguments, found):
    with pytest.raises(nsdyn.ProblemError, match=found):
        laws.IntermediateGradient(*arguments)


def test_position_is_traced():
    law, other = (laws.IntermediateGradient(E, allow_energy_gain=True) for E in (0.25, 1))
    assert jax.tree.structure(law) == jax.tree.structure(other) and len(jax.tree.leaves(law)) == 1


NEVER = {
    "lock": (problems.three_r_pendulum, laws.GrassmannMidGradient(), "Scheduled"),
    "contact": (problems.bouncing_ball, laws.IntermediateGradient(0.5), "height"),
    "contact beside a loop": (problems.pantograph, laws.GrassmannMidGradient(), "gap"),
    "rebound": (problems.three_r_pendulum, laws.Restitution(0.5), "Scheduled"),
    "lock beside loops": (problems.metamorphic_palm, laws.Restitution(0.5), "Scheduled"),
}


@pytest.mark.parametrize("name", NEVER)
def test_a_pair_that_can_never_work_is_refused_before_compiling(name):
    problem, law, part = NEVER[name]
    with pytest.raises(nsdyn.ProblemError, match=f"each mode change of {part}"):
        nsdyn.simulate(problem(), EventDriven(RK4()), law=law, step=1e-3)


SWING, TURN = nsdyn.lock(0), nsdyn.lock(1)


@pytest.mark.parametrize(
    ("part", "changes_rank", "brings_rows"),
    [
        (nsdyn.Scheduled([0.1], [SWING, TURN]), False, True),
        (nsdyn.Scheduled([0.1], [SWING, None]), False, False),
        (nsdyn.Scheduled([0.1, 0.2], [None, SWING, None]), True, False),
        (nsdyn.Scheduled([0.1], [None, (SWING, TURN)]), True, True),
        (nsdyn.Switching([None, SWING], [lambda q, p: q[0]]), True, False),
        (nsdyn.Switching([lambda q, t, p: q[0] ** 2, SWING], [lambda q, p: q[0]]), False, False),
    ],
)
def test_what_is_certain_of_mode_changes(part, changes_rank, brings_rows):
    assert part.rank_always_changes == changes_rank and part.always_brings_rows == brings_rows


@pytest.mark.parametrize(
    "law", [laws.IntermediateGradient(1.0), laws.Restitution(0.0), laws.Restitution([0.5, 0.0])]
)
def test_laws_that_may_work_are_not_refused(law):
    assert nsdyn.testing.refusal(problems.metamorphic_palm(), EventDriven(RK4()), law) is None


def test_a_law_that_is_traced_is_not_refused():
    def end(e):
        law = laws.Restitution(e)
        return nsdyn.rollout(problems.three_r_pendulum(), EventDriven(RK4()), law=law, step=1e-3)

    jax.eval_shape(end, 0.5)
