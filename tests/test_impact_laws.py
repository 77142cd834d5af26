"""Impact laws for contacts: closed forms, statements about energy, what time-stepping schemes make
of them, and the ledger of their impacts."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from study_files import TABLES
from test_contacts import block

import nsdyn
from nsdyn import laws, testing
from nsdyn.integrators import NSGA, MoreauJean
from nsdyn.laws import Fremond, GeneralizedNewton, Impact, Newton, Poisson, Sequential
from nsdyn.studies import impact_laws, woodpecker
from nsdyn.studies.lib import archive

ROUND_OFF = 1e-13
TOGETHER = [Newton(), Poisson(), Fremond()]
ALL = [*TOGETHER, Sequential()]


def slow(law):
    return pytest.param(law, marks=pytest.mark.slow)


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=0, atol=ROUND_OFF)


# Closed forms


def row_of_balls(n):
    """The gradients of the distances in a row of n balls."""
    H = np.zeros((n - 1, 1, n))
    for i in range(n - 1):
        H[i, 0, i : i + 2] = -1.0, 1.0
    return H


def cradle(law, e, masses=(1.0, 1.0, 1.0)):
    """The first ball of a row, with the velocity 1, hits the others, which touch each other."""
    n = len(masses)
    return law.collide(np.diag(masses), row_of_balls(n), np.eye(n)[0], e=e).v_after


@pytest.mark.parametrize("law", ALL, ids=repr)
def test_two_balls(law):
    m1, m2, e = 1.0, 3.0, 0.7
    H = row_of_balls(3)
    H[1] = 0.0  # the third ball is not there
    found = law.collide(np.diag([m1, m2, 1.0]), H, [1.0, 0.0, 0.0], e=e).v_after
    close(found, [(m1 - e * m2) / (m1 + m2), (1 + e) * m1 / (m1 + m2), 0.0])


@pytest.mark.parametrize("law", TOGETHER, ids=repr)
def test_newtons_cradle_of_three(law):
    close(cradle(law, 1.0), [-1 / 3, 2 / 3, 2 / 3])
    close(cradle(law, 0.5), [0.0, 0.5, 0.5])
    close(cradle(law, 0.8, (1.0, 2.0, 3.0)), [-0.5, 0.3, 0.3])


def test_newtons_cradle_of_five():
    close(cradle(Newton(), 1.0, np.ones(5)), [-0.6, 0.4, 0.4, 0.4, 0.4])


def test_newton_and_poisson_differ_where_coefficients_do():
    close(cradle(Newton(), (0.3, 0.9)), [2 / 15, 13 / 30, 13 / 30])
    close(cradle(Poisson(), (0.3, 0.9)), [2 / 15, 7 / 30, 19 / 30])


def test_a_wave_through_the_cradle():
    """The last ball leaves with the speed of the first, as everyone has seen."""
    close(cradle(Sequential(), 1.0), [0.0, 0.0, 1.0])
    close(cradle(Sequential(), 1.0, np.ones(5)), [0.0, 0.0, 0.0, 0.0, 1.0])
    close(cradle(GeneralizedNewton([[0.0, 1.0], [1.0, 0.0]]), 0.0), [0.0, 0.0, 1.0])


@pytest.mark.parametrize("e", [1.0, 0.5])
def test_a_cue_ball_hits_two_that_touch(e):
    """Cue: 1 - 3/5 (1 + e); each of the others (1 + e) sqrt(3)/5, at 30 degrees."""
    c, s = np.sqrt(3) / 2, 0.5
    H = np.array([[[-c, -s, c, s, 0.0, 0.0]], [[-c, s, 0.0, 0.0, c, -s]]])
    for law in (Newton(), Poisson()):
        v = law.collide(np.eye(6), H, np.eye(6)[0], e=e).v_after
        speed = (1 + e) * np.sqrt(3) / 5
        close(v, [1 - 0.6 * (1 + e), 0.0, c * speed, s * speed, c * speed, -s * speed])


ROD_MASS = np.diag([1.0, 1.0, 1 / 3])
ROD = np.array([[[0.0, 1.0, -np.cos(0.9)], [1.0, 0.0, np.sin(0.9)]]])
ROD_FALLS = np.array([0.4830550656165783, -1.0, 0.0])


def energy_ratio(M, before, after):
    return (after @ M @ after) / (before @ M @ before)


def test_a_rod_gains_energy_by_friction():
    """Newton's law with e = 1 and e_T = 0: friction opposes the slip after the impact, and pushes
    along that before. Fremond's does not."""
    start = (ROD_MASS, ROD, ROD_FALLS)
    with pytest.raises(nsdyn.ProblemError, match=r"Newton.collide: the law creates kinetic energy"):
        Newton().collide(*start, mu=0.6, e=1.0)
    ratio = lambda law, e_T: energy_ratio(
        ROD_MASS, ROD_FALLS, np.asarray(law.collide(*start, mu=0.6, e=1.0, e_T=e_T).v_after)
    )
    assert ratio(Newton(allow_energy_gain=True), 0.0) == pytest.approx(1.18393807473, abs=2e-12)
    assert ratio(Newton(), 1.0) == pytest.approx(1.0, abs=ROUND_OFF)
    assert ratio(Fremond(), 0.0) == pytest.approx(1.0, abs=ROUND_OFF)
    found = Newton(allow_energy_gain=True).collide(*start, mu=0.6, e=1.0)
    normal, friction = np.asarray(found.work)[0]
    assert abs(normal) < ROUND_OFF and friction > 0.1


@pytest.mark.parametrize(
    "law", [Newton(), slow(Poisson()), slow(Fremond()), slow(Sequential())], ids=repr
)
def test_housner(law):
    """A rocking block, b = 0.1, h = 0.4, turns about its left corner and lands on the right one.
    The left one lifts: omega+/omega- = 31/34, with friction of 12/65 or more."""
    b, h = 0.1, 0.4
    M = np.diag([1.0, 1.0, (b**2 + h**2) / 3])
    H = np.array([[[0.0, 1.0, x], [1.0, 0.0, h]] for x in (-b, b)])
    before = np.array([h, -b, -1.0])  # about the left corner
    found = law.collide(M, H, before, mu=0.2)
    close(found.v_after[2] / before[2], 31 / 34)
    close(found.P[0], [0.0, 0.0])
    close(abs(found.P[1, 1]) / found.P[1, 0], 12 / 65)
    close(energy_ratio(M, before, np.asarray(found.v_after)), (31 / 34) ** 2)
    enough, too_little = (law.collide(M, H, before, mu=12 / 65 + x) for x in (1e-9, -1e-3))
    close(enough.v_after[2] / before[2], 31 / 34)
    assert abs(too_little.v_after[2] / before[2] - 31 / 34) > 1e-3
    assert too_little.mode.tolist() == [0, 2]


# Energy, over random impacts of two contacts in the plane

MANY, K, D, N = 3200, 2, 2, 4
LEFT = 200  # room for those that Newton's method from P = 0 does not solve


@functools.cache
def random_impacts():
    """W, the rates of contacts that all approach, kinetic energies, mu and e."""
    rng = np.random.default_rng(0)
    root = np.eye(N) + rng.uniform(-0.5, 0.5, (MANY, N, N))
    H = rng.standard_normal((MANY, K, D, N))
    v = rng.standard_normal((MANY, N))
    closing = np.einsum("akn,an->ak", H[:, :, 0], v) < 0
    H[:, :, 0] *= np.where(closing, 1.0, -1.0)[:, :, None]
    H = H.reshape(MANY, K * D, N)
    rows = np.linalg.solve(root, np.swapaxes(H, 1, 2))
    W = np.einsum("ani,anj->aij", rows, rows)
    rates = np.einsum("ain,an->ai", H, v).reshape(MANY, K, D)
    T = 0.5 * np.sum(np.einsum("anm,an->am", root, v) ** 2, axis=1)
    return W, rates, T, rng.uniform(0, 0.8, (MANY, K)), rng.uniform(0, 1, (MANY, K))


@functools.partial(jax.jit, static_argnums=(0, 1))
def all_impacts(law, careful, W, rates, mu, E):
    """The change of energy of each impact, and whether it was solved."""

    def one(W, rates, mu, E):
        on = jnp.ones(K, bool)
        start = jnp.zeros((K, D))
        impact = Impact(W=W, before=rates, free=rates, mu=mu, E=E, on=on, kept=~on, P0=start)
        found = law.impulses(impact, careful)
        change = jnp.sum(laws.impact.work(found.P, rates, impact.after(found.P)))
        return change, found.solved, law.gain_code(impact, found.P)

    return jax.vmap(one)(W, rates, mu, E)


def energy_ratios(law, mu, e, e_T, careful=False):
    """T+/T- of the impacts that are solved, which are 3,000 or more, and with `careful` all but a
    few without a solution. A status says which of them gain energy."""
    W, rates, T, *_ = random_impacts()
    E = np.stack([np.broadcast_to(e, (MANY, K)), np.broadcast_to(e_T, (MANY, K))], axis=2)
    change, solved, code = map(np.array, all_impacts(law, False, W, rates, mu, E))
    if careful:
        left = np.flatnonzero(~solved)
        assert len(left) <= LEFT
        left = np.resize(left, LEFT)
        found = all_impacts(law, True, W[left], rates[left], mu[left], E[left])
        for all_, new in zip((change, solved, code), found, strict=True):
            all_[left] = new
    assert np.sum(solved) >= (0.998 * MANY if careful else 3000)
    ratio = ((T + change) / T)[solved]
    assert np.array_equal(code[solved] == nsdyn.Status.ENERGY_GAIN, ratio > 1 + 1e-9)
    return ratio


def test_fremond_never_gains_energy():
    _, _, _, mu, e = random_impacts()
    assert not Fremond.can_gain_energy
    assert 0.99 < np.max(energy_ratios(Fremond(), mu, e, 0.0)) < 1.0


def test_newton_gains_energy_with_friction_but_not_without_nor_with_one_e():
    _, _, _, mu, e = random_impacts()
    assert 0.99 < np.max(energy_ratios(Newton(), 0.0 * mu, e, 0.0)) < 1.0
    same = e[:, :1]
    assert 0.99 < np.max(energy_ratios(Newton(), mu, same, same)) < 1.0
    assert Newton.can_gain_energy
    assert np.max(energy_ratios(Newton(), mu, e, 0.0)) > 1.5


@pytest.mark.slow
def test_the_same_with_the_impacts_that_are_hard_to_solve():
    _, _, _, mu, e = random_impacts()
    same = e[:, :1]
    assert np.max(energy_ratios(Fremond(), mu, e, 0.0, careful=True)) < 1.0
    assert np.max(energy_ratios(Newton(), mu, same, same, careful=True)) < 1.0
    assert np.max(energy_ratios(Newton(), mu, e, 0.0, careful=True)) > 1.5
    # of Poisson's law nothing is proved here
    assert np.max(energy_ratios(Poisson(), 0.0 * mu, e, 0.0, careful=True)) < 1.0
    assert np.max(energy_ratios(Poisson(), mu, same, 0.0, careful=True)) < 1.0


# What is refused


def test_bad_input_is_named():
    cases = [
        (lambda: GeneralizedNewton([1.0, 2.0]), r"matrix=...\): expected finite numbers of shape"),
        (lambda: Sequential(rounds=0), r"rounds=...\): expected a whole number >= 1, found 0"),
        (lambda: Newton(bilateral=Poisson()), r"bilateral: expected a law for constraints that"),
        (lambda: cradle(Newton(), 1.5), r"collide\(e=...\): expected one number from 0 to 1"),
        (lambda: cradle(Newton(), (0.1, 0.2, 0.3)), r"or one for each of 2 contacts, found"),
        (lambda: cradle(GeneralizedNewton([[1.0]]), 0.0), r"has 1 rows, but there are 2 contacts"),
        (lambda: Newton().collide(np.eye(3), np.eye(3), np.ones(3)), r"expected M \(n, n\), H"),
        (
            lambda: Newton().collide(ROD_MASS, ROD, ROD_FALLS, mu=-0.1),
            r"collide\(mu=...\): expected one number at least 0",
        ),
    ]
    for make, text in cases:
        with pytest.raises(nsdyn.ProblemError, match=text):
            make()


def test_too_many_collisions_have_no_answer():
    """A row of three balls needs two collisions."""
    H = row_of_balls(3)[:, 0]
    rates = (H @ np.eye(3)[0])[:, None]
    on = np.ones(2, bool)
    numbers = {"mu": np.zeros(2), "E": np.ones((2, 1)), "P0": np.zeros((2, 1))}
    impact = Impact(W=H @ H.T, before=rates, free=rates, on=on, kept=~on, **numbers)
    impact = jax.tree.map(jnp.asarray, impact)
    solved = lambda rounds: bool(Sequential(rounds).impulses(impact).solved)
    assert [solved(rounds) for rounds in (1, 2)] == [False, True]


BOX = block([0.0, 0.5, 0.3], [1.0, 0.0, 2.0], 0.5, mu=0.3, e=0.4)


@pytest.mark.parametrize("scheme", [MoreauJean(), NSGA()], ids=lambda x: type(x).__name__)
@pytest.mark.parametrize("law", [Poisson(), Sequential()], ids=repr)
def test_time_steps_refuse_laws_for_events(scheme, law):
    with pytest.raises(nsdyn.ProblemError, match="do not go together: "):
        nsdyn.simulate(BOX, scheme, step=1e-3, law=law)


def test_laws_that_contacts_cannot_obey_are_refused():
    with pytest.raises(nsdyn.ProblemError, match="does not fit block: its matrix has 3 rows"):
        nsdyn.simulate(BOX, MoreauJean(), step=1e-3, law=GeneralizedNewton(np.eye(3)))
    bounces = testing.mechanisms.ball()
    with pytest.raises(nsdyn.ProblemError, match="Fremond is a law for Contacts, and would leave"):
        nsdyn.simulate(bounces, MoreauJean(), step=1e-3, law=Fremond())


# Runs


@pytest.mark.parametrize("scheme", [MoreauJean(), slow(NSGA())], ids=lambda x: type(x).__name__)
def test_impacts_of_a_box_and_their_ledger(scheme):
    """A box falls on its corner, and so on, until it rests. Each impact is recorded; what each
    contact took and brought explains the change of energy to round-off."""
    found = nsdyn.simulate(BOX, scheme, step=1e-3)
    events = found.events
    assert 3 < len(events) < 20
    assert events.t[0] == pytest.approx(0.187, abs=2e-3)  # the corner reaches the floor
    assert np.all(events.t == np.unique(events.t))
    entries = nsdyn.ledger(BOX, events, step=found.step)
    assert np.max(np.abs(entries.missing)) < 1e-14
    assert np.all(entries.normal >= 0) and np.any(entries.normal > 0, axis=1).all()
    assert np.all(np.abs(entries.friction[:, :, 0]) <= 0.3 * entries.normal + 1e-9)
    first = nsdyn.ledger(BOX, events[0])
    assert first.normal_loss[0] > 1.0 and first.friction_loss[0] == 0.0
    assert 0.2 < first.gain[0] < 0.3  # friction pushed along the slip before; less than was lost
    assert "below_block[0]  1.77" in str(first) and "normal loss" in str(first)
    change = events.kinetic_after - events.kinetic_before
    np.testing.assert_allclose(entries.change, change, rtol=1e-12)


@pytest.mark.slow
def test_newtons_law_with_a_diagonal_matrix():
    by_itself = nsdyn.simulate(BOX, MoreauJean(), step=1e-3)
    law = GeneralizedNewton(0.4 * np.eye(2))
    found = nsdyn.simulate(BOX, MoreauJean(), step=1e-3, law=law)
    np.testing.assert_allclose(found.q, by_itself.q, rtol=0, atol=1e-12)


@pytest.mark.slow
def test_newton_is_what_contacts_obey_by_themselves():
    for scheme in (MoreauJean(), NSGA()):
        by_itself = nsdyn.simulate(BOX, scheme, step=1e-3)
        found = nsdyn.simulate(BOX, scheme, step=1e-3, law=Newton())
        assert np.array_equal(found.q, by_itself.q) and np.array_equal(found.v, by_itself.v)


def falling_mass(q, p):
    return jnp.eye(1)


def fall(q, v, t, p):
    return jnp.array([-10.0])


def height(q, t, p):
    return q


def falling(e):
    return nsdyn.Problem(
        "ball",
        nsdyn.System(mass=falling_mass, force=fall),
        nsdyn.Contacts(height, e=e),
        q0=[1.0],
        v0=[0.0],
        t_end=1.0,
    )


@pytest.mark.slow
def test_derivatives_of_the_record_of_an_impact():
    """A ball falls with v0 = -0.1 and hits the floor in the step from 0.4 to 0.5: it comes with
    v0 - 4, the free velocity at the end of the step is v0 - 5, and it leaves with (4 - v0)/2."""
    problem = falling(0.5)
    scheme = MoreauJean(projection=False)

    def last(v0):
        found = nsdyn.rollout(problem, scheme, step=0.1, t_end=0.6, v0=v0, max_events=4)
        events = found.events
        return jnp.stack([events.v_before[0, 0], events.v_after[0, 0], events.Lam[0, 0]])

    v0 = jnp.array([-0.1])
    with jax.default_matmul_precision("highest"):
        np.testing.assert_allclose(last(v0), [-5.1, 2.05, -7.15], rtol=1e-12)
        np.testing.assert_allclose(jax.jacfwd(last)(v0)[:, 0], [1.0, -0.5, 1.5], rtol=1e-12)
        np.testing.assert_allclose(jax.jacrev(last)(v0)[:, 0], [1.0, -0.5, 1.5], rtol=1e-12)


@pytest.mark.slow
def test_a_full_table_of_impacts_is_told_and_does_not_stop_a_run():
    problem = falling(0.9)
    scheme = MoreauJean(projection=False)
    whole = nsdyn.simulate(problem, scheme, step=1e-2, t_end=3.0)
    times = np.sqrt(0.2) * np.array([1.0, 2.8, 4.42, 5.878])  # 1, 1 + 2 e, 1 + 2 e + 2 e^2, ...
    np.testing.assert_allclose(whole.events.t, times, atol=0.06)
    with pytest.warns(nsdyn.FullTableWarning, match=r"max_events = 2.*Raise max_events"):
        part = nsdyn.simulate(problem, scheme, step=1e-2, t_end=3.0, max_events=2)
    assert part.ok and len(part.events) == 2
    np.testing.assert_array_equal(part.q, whole.q)
    np.testing.assert_array_equal(part.events.t, whole.events.t[:2])


@pytest.mark.slow
def test_a_sweep_has_the_impacts_of_single_runs():
    problem = falling(0.9)
    scheme = MoreauJean(projection=False)
    heights = np.array([[1.0], [0.5], [30.0]])
    batch = nsdyn.sweep(problem, scheme, step=1e-2, t_end=1.5, q0=heights)
    assert batch.events.count.tolist() == [2, 3, 0]
    single = nsdyn.simulate(problem, scheme, step=1e-2, t_end=1.5, q0=heights[1]).events
    one = batch.events[1].trimmed()
    np.testing.assert_allclose(one.t, single.t)
    np.testing.assert_allclose(one.v_after, single.v_after, rtol=1e-12)
    taken = nsdyn.ledger(problem, one, step=1e-2)
    speed, weight = one.v_after / 0.9, 0.1  # of the approach; the impulse of the weight in a step
    np.testing.assert_allclose(taken.normal_loss, 0.05 * speed * (1.9 * speed + weight), rtol=1e-9)
    assert np.max(np.abs(taken.missing)) < 1e-13


@pytest.mark.slow
def test_the_study_of_impact_laws(tmp_path):
    impact_laws.compute(tmp_path, 5)
    data, _ = archive.read(tmp_path / "data", "impacts")
    newton, fremond, poisson, one_by_one = range(4)
    close(data.slender, np.full(4, 31 / 34))
    close(data.last[newton], np.full(5, 1.3 / 3))
    close(data.last[poisson], (1.3 + np.maximum(data.e - 0.3, 0.0)) / 3)
    close(data.last[one_by_one, 1:], 1.3 * (1 + data.e[1:]) / 4)
    assert float(data.chosen[newton].sum()) == pytest.approx(0.18393807473, abs=2e-12)
    close(data.chosen[fremond], [0.0, 0.0])
    files = {file.name for file in impact_laws.draw(tmp_path)}
    assert files == {"figure_1.pdf", "figure_1.png", "captions.txt", *TABLES}


def yield_angle(p):
    """The angle of the bird at which the lower edge of the resting sleeve of the woodpecker yields:
    T = mu N, with M_33 a = -c x - m_S g l_G, x = phi_S - phi_M, and the rows of the sleeve."""
    m, l, c, g = p["m_S"], p["l_G"], p["c"], p["g"]
    # What depends on x, and what does not: the acceleration a of the bird, friction T, pressure N.
    bend, weight = np.array([1.0, 0.0]), np.array([0.0, 1.0])
    a = -(c * bend + m * g * l * weight) / (p["J_S"] + m * l**2)
    T = (p["m_M"] + m) * g * weight + m * l * a
    N = (m * p["l_M"] * (l * a + g * weight) - c * bend - p["r_M"] * T) / p["h_M"]
    slope, rest = T - p["mu"] * N
    return -(p["r_M"] - p["r_O"]) / p["h_M"] - rest / slope


@pytest.mark.slow
def test_the_study_of_the_woodpecker(tmp_path):
    """The cycle has the published period, and the motion comes nearer to it as the multiplier
    says. It begins where friction yields, and ends as it began, but lower."""
    woodpecker.compute(tmp_path, t_end=6.0)
    data, _ = archive.read(tmp_path / "data", "cycle")
    assert float(data.period) == pytest.approx(0.146, abs=1e-4)
    m = float(data.multiplier)
    assert m == pytest.approx(-0.839, abs=5e-4)
    steps = np.diff(data.rate.values)[-10:]
    np.testing.assert_allclose(steps[1:] / steps[:-1], m, atol=5e-4)
    first, last = data.q_event.values[[0, -1]]
    sleeve, bird = first[1:]
    assert bird == pytest.approx(float(yield_angle(woodpecker.woodpecker().params)), abs=1e-9)
    np.testing.assert_allclose(last[1:], [sleeve, bird], rtol=0, atol=1e-9)
    assert float(data.falls) == first[0] - last[0] > 0
    assert np.sum(data.strikes.values) == 1
    files = {file.name for file in woodpecker.draw(tmp_path)}
    assert files == {"figure_1.pdf", "figure_1.png", "captions.txt"}


def two_masses(q, p):
    return jnp.eye(2)


def first_falls(q, v, t, p):
    return jnp.array([-10.0, 0.0])


def first_height(q, t, p):
    return q[:1]


def lock_time(p):
    return p["lock"]


def test_impacts_beside_other_events():
    """A ball falls while a cart beside it is locked: before the impact, or in the same step, which
    then has one record of both."""
    problem = nsdyn.Problem(
        "ball and cart",
        nsdyn.System(mass=two_masses, force=first_falls),
        (
            nsdyn.Scheduled(times=lock_time, stages=(None, nsdyn.lock(1))),
            nsdyn.Contacts(first_height, e=0.5),
        ),
        q0=[1.0, 0.0],
        v0=[0.0, 3.0],
        t_end=0.6,
        params={"lock": np.array([0.25])},
    )
    run = lambda **x: nsdyn.simulate(problem, MoreauJean(projection=False), step=0.1, **x).events
    apart = run()
    close(apart.t, [0.3, 0.5])
    close(apart.v_after, [[-3.0, 0.0], [2.0, 0.0]])
    close(apart.Lam, [[3.0, 0.0], [0.0, -7.0]])
    together = run(params={"lock": np.array([0.45])})
    close(together.t, [0.5])
    close(together.v_before, [[-5.0, 3.0]])
    close(together.Lam, [[3.0, -7.0]])
    taken = nsdyn.ledger(problem, together)
    close(taken.others, [-4.5])
    np.testing.assert_allclose(taken.normal_loss, [[7.0 * 1.5]], rtol=1e-13)
