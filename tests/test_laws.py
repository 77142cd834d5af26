"""Impulse laws against each other and against what every law must satisfy."""

import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nsdyn
from nsdyn import laws
from nsdyn.integrators import RK4, EventDriven
from nsdyn.status import MESSAGES, Status

N, PERSISTENT, NEW = 5, 2, 2
FORMS = ("lagrange", "redundant", "minimal")


def well_conditioned(rng, rows, columns, condition):
    """A random matrix with singular values between 1 and `condition`."""
    u, _ = np.linalg.qr(rng.standard_normal((rows, rows)))
    v, _ = np.linalg.qr(rng.standard_normal((columns, columns)))
    k = min(rows, columns)
    s = np.exp(rng.uniform(0, np.log(condition), k))
    return u[:, :k] * s @ v[:k]


def random_switch(seed, condition=100.0):
    """SPD M, J_1, J_2 of full rank together, v- on J_1, and an applied impulse."""
    rng = np.random.default_rng(seed)
    root = well_conditioned(rng, N, N, np.sqrt(condition))
    J = well_conditioned(rng, PERSISTENT + NEW, N, condition)
    J1 = J[:PERSISTENT]
    v = rng.standard_normal(N)
    v = v - np.linalg.pinv(J1) @ (J1 @ v)
    return root @ root.T, J1, J, v, rng.standard_normal(N)


def compiled(law):
    """One program for each shape: what is not given is filled in."""
    run = jax.jit(lambda *args: law.jump(*args))

    def call(M, before, after, v, gt=None, U=None, *masks):
        gt = np.zeros(len(after)) if gt is None else gt
        return run(M, before, after, v, gt, np.zeros(len(v)) if U is None else U, *masks)

    return call


jump = {form: compiled(laws.MuellerTransition(form)) for form in FORMS}
post_switch = compiled(laws.PostSwitchGradient())
bounce = compiled(laws.Restitution(0.3))
seeds = st.integers(0, 2**32 - 1)


def exact_jump(M, J, v, U):
    """(22) with residuals in extended precision."""
    A = np.block([[M, J.T], [J, np.zeros((len(J), len(J)))]])
    b = np.concatenate([U, -J @ v])
    x = np.linalg.solve(A, b).astype(np.longdouble)
    for _ in range(3):
        x = x + np.linalg.solve(A, (b - A.astype(np.longdouble) @ x).astype(float))
    return x[:N].astype(float), x[N:].astype(float)


@given(seeds)
def test_three_forms_of_the_transition_agree(seed):
    M, J1, J, v, U = random_switch(seed)
    dv, Lam = exact_jump(M, J, v, U)
    for form in FORMS:
        answer = jump[form](M, J1, J, v, None, U)
        error = np.linalg.norm(np.asarray(answer.v_after) - v - dv)
        assert error < 1e-12 * np.linalg.norm(dv), (form, error / np.linalg.norm(dv))
        assert np.allclose(answer.Lam, Lam, rtol=0, atol=1e-10 * np.abs(Lam).max()), form


@given(seeds)
def test_momentum_balance_and_constraints_hold(seed):
    M, J1, J, v, U = random_switch(seed)
    for e, law in ((0.0, jump["redundant"]), (0.0, post_switch), (0.3, bounce)):
        out = law(M, J1, J, v, None, U)
        balance = (
            M @ (np.asarray(out.v_after) - v)
            + np.asarray(out.direction).T @ np.asarray(out.Lam)
            - U
        )
        assert np.abs(balance).max() < 1e-9 * (1 + np.abs(M).max())
        rates = J @ np.asarray(out.v_after)
        wanted = np.concatenate([np.zeros(PERSISTENT), -e * (J[PERSISTENT:] @ v)])
        assert np.abs(rates - wanted).max() < 1e-9 * (1 + np.abs(J @ v).max())


@given(seeds)
def test_an_ideal_transition_never_gains_energy(seed):
    M, J1, J, v, _ = random_switch(seed)
    after = np.asarray(post_switch(M, J1, J, v).v_after)
    assert after @ M @ after <= v @ M @ v * (1 + 1e-12)


@given(seeds)
def test_rheonomic_rows(seed):
    M, J1, J, v, U = random_switch(seed)
    gt = np.random.default_rng(seed + 1).standard_normal(4)
    v = v - np.linalg.pinv(J1) @ gt[:PERSISTENT]
    answers = [jump[form](M, J1, J, v, gt, U).v_after for form in FORMS]
    for after in answers:
        assert np.abs(J @ np.asarray(after) + gt).max() < 1e-9 * (1 + np.abs(J).max())
        assert np.allclose(after, answers[0], rtol=0, atol=1e-10 * np.abs(answers[0]).max())


@given(seeds)
def test_dead_rows_change_nothing_and_answer_zero(seed):
    M, J1, J, v, U = random_switch(seed)
    junk = np.random.default_rng(seed + 2).standard_normal((2, N))
    padded_before = np.vstack([J1, junk, junk])
    padded_after = np.vstack([J, junk])
    on_before = np.array([True] * 2 + [False] * 4)
    on_after = np.array([True] * 4 + [False] * 2)
    for form in FORMS:
        plain = jump[form](M, J1, J, v, None, U)
        masked = jump[form](M, padded_before, padded_after, v, None, U, on_before, on_after)
        assert np.linalg.norm(masked.v_after - plain.v_after) < 1e-12 * np.linalg.norm(
            plain.v_after - v
        ), form
        assert np.all(np.asarray(masked.Lam)[4:] == 0) and np.all(
            np.asarray(masked.direction)[4:] == 0
        )


@given(seeds)
def test_release_leaves_velocities_unchanged(seed):
    M, _, J, v, _ = random_switch(seed)
    v = v - np.linalg.pinv(J) @ (J @ v)
    out = jump["lagrange"](M, J, J[:1], v)
    assert np.abs(np.asarray(out.v_after) - v).max() < 1e-13 * (1 + np.abs(v).max())
    assert np.abs(out.Lam).max() < 1e-11 * np.abs(M).max()


def test_without_rows_only_the_applied_impulse_acts():
    M = np.diag([1.0, 2.0])
    out = laws.MuellerTransition().jump(
        M, np.zeros((0, 2)), np.zeros((0, 2)), [1.0, 1.0], None, [1.0, 1.0]
    )
    assert np.allclose(out.v_after, [2.0, 1.5]) and out.Lam.shape == (0,)


def test_zero_velocity_zeroes_the_locked_rate_only():
    M, *_ = random_switch(3)
    v = np.arange(1.0, N + 1)
    out = laws.ZeroVelocity().jump(M, np.zeros((0, N)), np.eye(N)[[1]], v)
    assert np.allclose(out.v_after, [1, 0, 3, 4, 5], atol=1e-15)
    balance = M @ (np.asarray(out.v_after) - v) + np.asarray(out.direction).T @ np.asarray(out.Lam)
    assert np.abs(balance).max() < 1e-12
    momentum = M @ np.asarray(out.v_after) - M @ v
    assert np.abs(np.delete(momentum, 1)).max() > 1e-3  # what makes it inconsistent


def test_momenta_of_free_coordinates_are_kept_by_a_lock():
    M, *_ = random_switch(4)
    v = np.arange(1.0, N + 1)
    out = laws.MuellerTransition().jump(M, np.zeros((0, N)), np.eye(N)[[1, 3]], v)
    change = M @ (np.asarray(out.v_after) - v)
    assert np.abs(np.delete(change, [1, 3])).max() < 1e-12 * np.abs(M @ v).max()


def test_dependent_rows_give_the_same_velocity():
    M, J1, J, v, _ = random_switch(5)
    doubled = np.vstack([J, J[:1], J[1:2] - 2 * J[2:3]])
    out = laws.PostSwitchGradient().jump(M, J1, J, v)
    for rows in (doubled, doubled[::-1]):
        same = laws.PostSwitchGradient().jump(M, J1, rows, v)
        assert np.allclose(same.v_after, out.v_after, rtol=0, atol=1e-9)


def test_jump_is_differentiable_and_batches():
    """With three coordinates, a row that stays and one that is added."""
    M, J1, J, v, U = random_switch(6)
    M, J1, J, v, U = (jnp.asarray(x) for x in (M[:3, :3], J1[:1, :3], J[::2, :3], v[:3], U[:3]))
    for form in FORMS:
        law = laws.MuellerTransition(form)
        after = lambda v, law=law: law.jump(M, J1, J, v, None, U).v_after
        every = jax.jit(
            lambda v, f=after: (
                jax.jacfwd(f)(v),
                jax.jacrev(f)(v),
                jax.vmap(f)(jnp.stack([v, 2 * v])),
                f(2 * v),
            )
        )
        forward, reverse, batch, single = every(v)
        assert np.allclose(forward, reverse, atol=1e-12) and np.allclose(
            batch[1], single, atol=1e-13
        )


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ((np.eye(3), np.zeros((0, 2)), np.zeros((1, 2)), [1.0, 2.0]), r"M=.*\(3, 3\)"),
        ((np.eye(2), np.zeros((0, 2)), np.zeros((1, 3)), [1.0, 2.0]), r"G_after=.*\(1, 3\)"),
        ((np.eye(2), np.zeros((0, 2)), np.zeros((1, 2)), [[1.0, 2.0]]), "v_before=.*vector"),
        ((np.eye(2), np.zeros((0, 2)), np.zeros((1, 2)), [1.0, 2.0], [1.0, 2.0]), "gt_after"),
    ],
)
def test_wrong_shapes_are_named(arguments, found):
    with pytest.raises(nsdyn.ProblemError, match=found):
        laws.PostSwitchGradient().jump(*arguments)


def test_unknown_form():
    with pytest.raises(nsdyn.ProblemError, match=r"form=.*reduced"):
        laws.MuellerTransition("reduced")


@pytest.mark.parametrize("e", [1.5, -0.5, float("nan"), "a", None])
def test_restitution_outside_its_range(e):
    with pytest.raises(
        nsdyn.ProblemError,
        match=re.escape("Restitution(e=...): expected a number between 0 (plastic) and 1"),
    ):
        laws.Restitution(e)


@pytest.mark.parametrize("lengths", [(1e6, 1e-6, 1.0), (1e-6, 1e6, 1e-6)])
def test_lengths_of_rows_do_not_count(lengths):
    """The same constraints in other units: the same velocities, impulses in those units."""
    rng, scale = np.random.default_rng(4), np.array(lengths)
    A, G, v = rng.normal(size=(5, 5)), rng.normal(size=(3, 5)), rng.normal(size=5)
    M, old = A @ A.T + np.eye(5), G[:2]
    v = v - np.linalg.solve(M, old.T) @ np.linalg.solve(old @ np.linalg.solve(M, old.T), old @ v)
    for form in ("lagrange", "redundant", "minimal"):
        jumps = [
            laws.MuellerTransition(form).jump(M, x, x, v, on_before=[True, True, False])
            for x in (G, scale[:, None] * G)
        ]
        assert np.abs(jumps[0].v_after - jumps[1].v_after).max() < 1e-12
        assert np.abs(jumps[0].Lam - scale * jumps[1].Lam).max() < 1e-11


@pytest.mark.parametrize("unit", [1.0, 1e-5, 3e-7, 1e-9])
def test_units_of_coordinates_do_not_count(unit):
    """Two rows that only the second coordinate tells apart, whatever it is measured in."""
    M, G = np.diag([1.0, unit**2]), [[1.0, 0.0], [1.0, unit]]
    jump = laws.PostSwitchGradient().jump(M, np.zeros((0, 2)), G, [1.0, 1.0 / unit])
    assert np.abs(jump.Lam - np.array([0.0, 1.0])).max() < 1e-9


def test_rows_that_contradict_each_other_are_named():
    jump = laws.PostSwitchGradient().jump
    with pytest.raises(
        nsdyn.ProblemError, match=re.escape("the rows [0, 2] contradict each other")
    ):
        jump(
            np.eye(2),
            np.zeros((0, 2)),
            [[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]],
            [1.0, 1.0],
            gt_after=[0.0, 0.5, 1.0],
        )
    dead = jump(
        np.eye(2), np.zeros((0, 2)), [[1.0, 0.0]], [1.0, 1.0], gt_after=[0.5], on_after=[False]
    )
    assert np.allclose(dead.v_after, [1.0, 1.0])
    with pytest.raises(nsdyn.ProblemError, match="mask of G_after"):
        jump(
            np.eye(2),
            np.zeros((0, 2)),
            [[1.0, 0.0]],
            [1.0, 1.0],
            gt_after=[0.5],
            on_after=[True, True],
        )
    found = jump(
        np.eye(2), np.zeros((0, 2)), [[1.0, 0.0], [2.0, 0.0]], [1.0, 1.0], gt_after=[0.5, 1.0]
    )
    assert np.allclose(found.v_after, [-0.5, 1.0], rtol=0, atol=1e-12)


# Rows that depend on others, before and after.


def test_a_row_written_again_changes_nothing():
    M, J, v = np.diag([1.0, 2.0, 3.0]), np.array([0.3, 0.7, 0.1]), np.array([0.7, -0.3, 0.0])
    for form in FORMS:
        out = laws.MuellerTransition(form).jump(M, [J], [J, -4 * J], v)
        assert np.abs(out.v_after - v).max() < 1e-15, form


def test_a_row_that_stays_may_be_driven_at_another_rate():
    M, J, v = np.diag([1.0, 2.0, 3.0]), np.array([0.3, 0.7, 0.1]), np.array([0.7, -0.3, 0.0])
    K = J @ np.linalg.solve(M, J)
    for form in FORMS:
        out = laws.MuellerTransition(form).jump(M, [J], [J, 2 * J], v, gt_after=[1.0, 2.0])
        assert np.abs(out.v_after - (v - np.linalg.solve(M, J) / K)).max() < 1e-15, form
        assert np.abs(out.Lam - np.array([1.0, 2.0]) / (5 * K)).max() < 1e-14, form


@pytest.mark.slow
def test_forms_are_differentiable_where_rows_depend_on_each_other():
    M, J1, J, v, U = random_switch(7)
    before = jnp.vstack([J1, J1[:1] - 2 * J1[1:]])
    after = jnp.vstack([before, J[2:], J[:1] + J[3:]])
    gt = after @ jnp.arange(1.0, N + 1)
    own = gt[jnp.array([0, 1, 3, 4])]
    for form in FORMS:
        law = laws.MuellerTransition(form)
        f = lambda x, law=law: law.jump(x[0], before, after, x[1], gt, x[2]).v_after
        plain = lambda x, law=law: law.jump(x[0], J1, J, x[1], own, x[2]).v_after
        x = (jnp.asarray(M), jnp.asarray(v), jnp.asarray(U))
        found, wanted = (
            jax.jit(jax.jacfwd(f))(x),
            jax.jit(jax.jacrev(plain))(x),
        )
        for a, b in zip(found, wanted, strict=True):
            a, b = (y + jnp.swapaxes(y, 1, 2) if y.ndim == 3 else y for y in (a, b))  # M = M^T
            assert np.abs(a - b).max() < 1e-9 * np.abs(b).max(), form


def test_kept_rows_can_be_declared():
    """Two constraints may have the same gradient; only who made them knows that they are two."""
    M, G, v = np.diag([1.0, 2.0]), np.array([[1.0, 1.0]]), np.array([1.0, 0.0])
    of = lambda **kept: laws.ModeChange.of(M, G, G, v, **kept)
    assert of().kept.tolist() == [True] and of(kept=[False]).kept.tolist() == [False]
    law = laws.Restitution(1.0)
    assert np.allclose(G @ law.decide(of(kept=[False])).v_after, -1.0, atol=1e-15)
    assert np.allclose(G @ law.decide(of()).v_after, 0.0, atol=1e-15)
    dead = laws.ModeChange.of(M, G, G, v, on_after=[False], kept=[True])
    assert dead.kept.tolist() == [False]
    with pytest.raises(nsdyn.ProblemError, match="kept"):
        of(kept=[True, False])


# A law of one's own.


class Timid(laws.AbstractLaw):
    """Acts on slow approaches and on none that come from behind."""

    limit: float
    reasons = ("the approach is too fast for this law; try a smaller speed", "it comes from behind")

    def decide(self, change):
        return laws.PostSwitchGradient().decide(change)

    def failure_code(self, change):
        rate = change.rates(change.v_before)[0]
        fast = jnp.where(rate < -self.limit, laws.reason(0), Status.OK)
        return jnp.where(rate > 0, laws.reason(1), fast)


def test_a_law_objects_in_its_own_words():
    law, M, G = Timid(1.0), np.eye(2), np.array([[0.0, 1.0]])
    none = np.zeros((0, 2))
    assert np.allclose(law.jump(M, none, G, [1.0, -0.5]).v_after, [1.0, 0.0])
    with pytest.raises(nsdyn.ProblemError, match="Timid: the approach is too fast for this law"):
        law.jump(M, none, G, [1.0, -2.0])
    with pytest.raises(nsdyn.ProblemError, match="Timid: it comes from behind"):
        law.jump(M, none, G, [1.0, 2.0])
    assert laws.message(law, laws.reason(1)) == "it comes from behind"
    assert laws.message(law, Status.CUT_LOCUS) == MESSAGES[Status.CUT_LOCUS]
    assert "reason 7" in laws.message(law, laws.reason(7))
    assert max(Status) < laws.reason(0)


def test_a_run_and_a_sweep_end_with_the_words_of_the_law():
    system = nsdyn.System(mass=lambda q, p: jnp.eye(1), force=lambda q, v, t, p: jnp.full(1, -10.0))
    problem = nsdyn.Problem(
        "drop", system, nsdyn.Contact(lambda q, t, p: q), q0=[0.2], v0=[0.0], t_end=0.3, params={}
    )
    integrator = EventDriven(RK4())
    settings = {"step": 0.01, "max_events": 4}
    with pytest.raises(
        nsdyn.SimulationError, match=r"objection of Timid\(limit=1.0\)\): the approach"
    ) as error:
        nsdyn.simulate(problem, integrator, law=Timid(1.0), **settings)
    assert error.value.status == laws.reason(0) and abs(error.value.t - 0.2) < 1e-12
    heights = np.array([[0.001], [0.2]] * 4)  # so many that they are one group of a native program
    out = nsdyn.sweep(problem, integrator, law=Timid(1.0), q0=heights, **settings)
    assert out.ok.tolist() == [True, False] * 4
    assert "4 of 8 objection of Timid(limit=1.0): the approach is too fast" in out.failed


# A run: the loop of a four-bar, whose brakes lock one after the other, and a wheel that its crank
# drags along. Inertias are constant: what matters is the loop, and few operations compile fast.

LENGTHS = np.array([1.0, 2.0, 1.5])
INERTIA = np.array(
    [[2.0, 0.3, 0.1, 0.5], [0.3, 1.0, 0.2, 0.0], [0.1, 0.2, 1.5, 0.0], [0.5, 0.0, 0.0, 0.7]]
)


def loop(q, t, p):
    a, b, c = LENGTHS[:, None] * jnp.stack([jnp.cos(q[:3]), jnp.sin(q[:3])], axis=1)
    return a + b - c - jnp.array([2.2, 0.0])


def four_bar(stages):
    q = np.array([1.0, 0.3, 1.6, 0.2])
    for _ in range(20):
        G = np.asarray(jax.jacfwd(lambda q: loop(q, 0.0, None))(q))
        q[1:3] -= np.linalg.solve(G[:, 1:3], loop(q, 0.0, None))
    v = np.array([1.0, 0.0, 0.0, -1.0])
    v[1:3] = -np.linalg.solve(G[:, 1:3], G[:, 0])
    system = nsdyn.System(
        mass=lambda q, p: jnp.asarray(INERTIA),
        force=lambda q, v, t, p: jnp.append(-jnp.cos(q[:3]), -jnp.sin(q[3])),
    )
    constraint = (nsdyn.Fixed(loop), nsdyn.Scheduled(times=(0.2, 0.4), stages=stages))
    return nsdyn.Problem("four-bar", system, constraint, q0=q, v0=v, t_end=0.6, params={})


@pytest.mark.parametrize(
    "second",
    [(0, 2), *(pytest.param(x, marks=pytest.mark.slow) for x in ((2,), (2, 0)))],
    ids=str,
)
def test_brakes_that_lock_what_is_locked_already(second):
    """The crank stops the whole loop; the brake of the rocker has nothing left to do."""
    problem = four_bar((None, nsdyn.lock(0), nsdyn.lock(*second)))
    integrator = EventDriven(RK4())
    ends = []
    for form in FORMS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = nsdyn.simulate(
                problem, integrator, step=0.01, law=laws.MuellerTransition(form), max_events=4
            )
        assert len(out.events) == 2
        first, then = out.events[0], out.events[1]
        assert first.kinetic_after < 0.95 * first.kinetic_before
        assert abs(then.kinetic_after / then.kinetic_before - 1) < 1e-12
        assert np.abs(then.v_after[:3]).max() < 1e-12 and np.abs(out.v[-1, 3]) > 0.1
        ends.append(np.concatenate([out.q[-1], out.v[-1], first.v_after]))
    assert np.abs(ends - ends[0]).max() < 1e-12
