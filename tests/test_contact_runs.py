"""Contacts with friction: derivatives of heaps of spheres, a thousand runs at once, impacts that
accumulate."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import nsdyn
from nsdyn import problems
from nsdyn.integrators import NSGA, RK4, EventDriven, MoreauJean
from nsdyn.multibody import free_bodies, surfaces
from nsdyn.studies.lib.bench.contacts import falling_box

OPEN, STICK, SLIP = 0, 1, 2
EVENTS = EventDriven(RK4())

# Derivatives of a heap: two spheres on the floor, a little apart, and one that falls between them,
# but not in the middle.

SPHERES = 3


def friction(p):
    return p["mu"]


def restitution(p):
    return p["e"]


def heap():
    R = 0.05
    pairs = [(surfaces.Ball(i, R), surfaces.Plane()) for i in (0, 1)]
    pairs += [(surfaces.Ball(i, R), surfaces.Ball(j, R)) for i, j in ((1, 0), (2, 0), (2, 1))]
    params = {
        "m": 0.1 * np.ones(SPHERES),
        "J": 1e-4 * np.ones((SPHERES, 3)),
        "g": np.array([0.0, 0.0, -9.81]),
        "mu": 0.2,
        "e": 0.3,
    }
    return nsdyn.Problem(
        "heap",
        free_bodies.SYSTEM,
        surfaces.contacts(pairs, mu=friction, e=restitution),
        q0=free_bodies.configuration([[0.0, 0.0, R], [0.11, 0.0, R], [0.06, 0.01, R + 0.1]]),
        v0=np.zeros(6 * SPHERES),
        t_end=0.12,
        params=params,
    )


def check_derivatives(problem, step, dots, weights, h):
    """Forward, reverse and central differences of a sum of final places, along one direction of
    all arguments."""

    def value(arguments):
        mu, v0 = arguments
        run = nsdyn.rollout(
            problem,
            MoreauJean(),
            step=step,
            v0=v0,
            params={**problem.params, "mu": mu},
            save_every=1000,
        )
        return jnp.sum(run.q[-1] * weights)

    at = (jnp.asarray(problem.params["mu"], float), jnp.asarray(problem.v0))
    moved = lambda s: jax.tree.map(lambda x, dx: x + s * h * dx, at, dots)
    along = jax.jit(lambda x, dots: jax.jvp(value, (x,), (dots,)))
    forward = along(at, dots)[1]
    slopes = jax.jit(jax.grad(value))(at)
    reverse = sum(jnp.sum(a * b) for a, b in zip(slopes, dots, strict=True))
    far, near = (along(moved(s), dots)[0] - along(moved(-s), dots)[0] for s in (2, 1))
    differences = (8 * near - far) / (12 * h)
    assert float(reverse) == pytest.approx(float(forward), rel=1e-10)
    assert float(forward) == pytest.approx(float(differences), rel=1e-6)
    assert all(np.max(np.abs(slope)) > 1e-3 for slope in slopes)


def directions():
    """A direction of (mu, v0), and weights of places. Spheres on the floor have no velocity across
    it: with one of either sign a contact that rests would close or open, and nothing is smooth."""
    rng = np.random.default_rng(0)
    velocities = rng.normal(size=(SPHERES, 6))
    weights = rng.normal(size=7 * SPHERES)
    velocities[:-1, 2] = 0.0
    return (jnp.asarray(1.0), jnp.asarray(velocities.ravel())), jnp.asarray(weights)


@pytest.mark.slow
def test_derivatives_of_a_heap():
    """The sphere on top hits the others, which slide and roll apart."""
    problem = heap()
    run = nsdyn.simulate(problem, MoreauJean(), step=2e-3)
    assert len(run.events) >= 2
    assert {OPEN, STICK, SLIP} == set(np.unique(run.mode[1:]).tolist())
    check_derivatives(problem, 2e-3, *directions(), h=1e-6)


def scattered_pile():
    """Four spheres, the lower ones a little apart and the upper one not above their middle, so that
    no two contacts close at once; they turn and roll, and friction is too low for some."""
    pile = problems.sphere_pile(4, rim=None, gap=0.05, mu=0.25)
    q0 = np.array(pile.q0).reshape(4, 7)
    q0[:3, :2] *= 1.04
    q0[3, :2] += [0.006, 0.003]
    v0 = np.random.default_rng(2).normal(size=(4, 6)) * ([0.1] * 3 + [1.0] * 3)
    return dataclasses.replace(pile, q0=q0.ravel(), v0=v0.ravel(), t_end=0.12)


@pytest.mark.slow
def test_derivatives_of_a_pile_of_spheres():
    """Through the landings, and the strikes of the upper sphere."""
    problem = scattered_pile()
    run = nsdyn.simulate(problem, MoreauJean(), step=2e-3, check=False)
    struck = np.any(run.mode != OPEN, axis=0)
    assert np.sum(struck[:3]) == 3 and np.sum(struck[3:]) >= 2
    assert {OPEN, STICK, SLIP} == set(np.unique(run.mode[1:]).tolist())
    rng = np.random.default_rng(3)
    dots = (jnp.asarray(1.0), jnp.asarray(rng.normal(size=24)))
    check_derivatives(problem, 2e-3, dots, jnp.asarray(rng.normal(size=28)), h=1e-6)


# A thousand runs at once.

MANY = 1000


def compare(batch, single, i):
    """Run i of a batch and the same run by itself. Different compilers made their programs, so that
    round-off differs."""
    count = len(single.events)
    assert batch.events.count[i] == count
    assert np.array_equal(batch.mode[i], single.mode)
    pairs = [(getattr(batch, name)[i], getattr(single, name)) for name in ("q", "v", "lam")]
    pairs += [
        (getattr(batch.events, name)[i, :count], getattr(single.events, name))
        for name in ("t", "q", "v_before", "v_after", "Lam")
    ]
    for many, one in pairs:
        np.testing.assert_allclose(many, one, rtol=1e-9, atol=1e-10)


@pytest.mark.slow
def test_a_thousand_woodpeckers():
    """Each from another state, with a friction of its own, through impacts, jamming and sliding."""
    toy = problems.woodpecker(t_end=0.15)
    rng = np.random.default_rng(1)
    v0 = np.asarray(toy.v0) * (1 + 0.05 * rng.uniform(-1, 1, (MANY, 3)))
    params = {**toy.params, "mu": 0.3 + 0.02 * rng.uniform(-1, 1, MANY)}
    many = nsdyn.sweep(toy, EVENTS, step=2e-4, v0=v0, params=params, save_every=10)
    assert np.all(many.status == nsdyn.Status.OK)
    assert np.min(many.events.count) >= 5
    for i in range(MANY):
        own = {**toy.params, "mu": params["mu"][i]}
        options = {"step": 2e-4, "save_every": 10, "check": False}
        one = nsdyn.simulate(toy, EVENTS, v0=v0[i], params=own, **options)
        compare(many, one, i)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", [EVENTS, NSGA()], ids=["EventDriven", "NSGA"])
def test_a_batch_of_tippe_tops(integrator):
    """In the end the slower ones stand on their stems, the faster ones not yet."""
    top = problems.tippe_top(t_end=1.4)
    spins = np.linspace(0.9, 1.1, 16)[:, None]
    options = {"step": 1e-3, "save_every": 20}
    many = nsdyn.sweep(top, integrator, v0=spins * np.asarray(top.v0), **options)
    assert np.all(many.status == nsdyn.Status.OK)
    assert many.mode[0, -1].tolist() == [OPEN, SLIP]
    assert many.mode[-1, -1].tolist() == [SLIP, OPEN]
    for i, spin in enumerate(spins):
        one = nsdyn.simulate(top, integrator, v0=spin * top.v0, check=False, **options)
        compare(many, one, i)


# Impacts that accumulate. The particle falls from the height 1 while it slides to the side.

G = 9.81
ZENO = 8.578949178728887  # for e = 0.9


def unit_masses(q, p):
    return jnp.eye(2)


def falls(q, v, t, p):
    return jnp.array([0.0, -G])


def above(q, t, p):
    return q[1]


def sideways(q, v, t, p):
    return v[0]


HOPS = nsdyn.Problem(
    "hops",
    nsdyn.System(mass=unit_masses, force=falls),
    nsdyn.Contacts(above, sideways, mu=friction, e=restitution),
    q0=[0.0, 1.0],
    v0=[20.0, 0.0],
    t_end=9.0,
    params={"mu": 0.2, "e": 0.9},
)


@pytest.mark.parametrize("rest", [0.1, 0.01])
@pytest.mark.parametrize("step", [0.02, 0.01])
def test_a_ball_rests_a_little_before_its_impacts_are_over(step, rest):
    """It neglects hops of less than g (rest h)^2/2, for less than 2 rest h/(1 - e), and goes on
    as if it had made them: x = v0 t - mu (g t^2/2 - height) in the end."""
    found = nsdyn.simulate(HOPS, EVENTS, step=step, tolerances=nsdyn.Tolerances(rest=rest))
    settles = found.events.t[-1]
    assert found.events.mode_after[-1].tolist() == [SLIP]
    early = ZENO - settles
    assert 0.9 * 2 * rest * step / 0.1 <= early <= 2 * rest * step / 0.1 * (1 + 1e-9)
    later = found.t > settles
    assert np.max(np.abs(found.q[later, 1])) < 1e-13
    flight = found.t[~later][-1]
    assert flight > settles - step
    speed = 0.9 * abs(found.events.v_before[-1, 1])  # of the first hop that is left out
    assert speed**2 / (2 * G) <= G * (rest * step) ** 2 / 2
    x = 20 * 9.0 - 0.2 * (G * 81 / 2 - 1)
    assert found.q[-1, 0] == pytest.approx(x, rel=1e-12)
    assert found.v[-1, 0] == pytest.approx(20 - 0.2 * G * 9, rel=1e-12)
    np.testing.assert_allclose(nsdyn.accumulation(HOPS, found.events), [ZENO], rtol=1e-9)


def test_without_a_rest_speed_a_run_stops_where_impacts_accumulate():
    with pytest.raises(nsdyn.SimulationError, match=r"Tolerances\(rest=") as error:
        nsdyn.simulate(
            HOPS, EVENTS, step=0.01, max_events=400, tolerances=nsdyn.Tolerances(rest=0.0)
        )
    assert error.value.status is nsdyn.Status.TOO_MANY_SWITCHES
    assert error.value.t == pytest.approx(ZENO, abs=0.01)


@pytest.mark.slow
def test_the_limit_is_known_before_it_is_reached_and_has_derivatives():
    """t_inf = sqrt(2 h/g) (1 + e)/(1 - e), from the first four impacts."""

    def limit(values):
        run = nsdyn.rollout(
            HOPS,
            EVENTS,
            step=0.05,
            t_end=3.0,
            q0=jnp.zeros(2).at[1].set(values[0]),
            params={**HOPS.params, "e": values[1]},
            max_events=8,
        )
        return nsdyn.accumulation(HOPS, run.events)[0]

    values = jnp.array([1.0, 0.9])
    fall = np.sqrt(2 / G)
    assert float(jax.jit(limit)(values)) == pytest.approx(ZENO, rel=1e-12)
    exact = [fall * 19 / 2, fall * 2 / 0.01]
    np.testing.assert_allclose(jax.jit(jax.jacfwd(limit))(values), exact, rtol=1e-9)
    early = nsdyn.simulate(HOPS, EVENTS, step=0.05, t_end=2.0)
    assert len(early.events) == 3
    assert np.all(np.isnan(nsdyn.accumulation(HOPS, early.events)))


def rocking_limit(b=0.1, h=0.4):
    """When a block comes to rest that starts at half the angle at which it would fall: Housner's
    pendulum from impact to impact; the last ones, which shrink by one ratio, are summed."""
    R, alpha, r = np.hypot(b, h), np.arctan(b / h), 31 / 34
    slope = lambda t, y: [y[1], -3 * G / (4 * R) * np.sin(alpha - y[0])]
    lands = lambda t, y: y[0]
    lands.terminal, lands.direction = True, -1
    swing = lambda y: solve_ivp(slope, (0, 9), y, events=lands, rtol=1e-12, atol=1e-14)
    total, y = 0.0, [alpha / 2, 0.0]
    for _ in range(60):
        found = swing(y)
        total += found.t[-1]
        y = [0.0, -r * found.y[1, -1]]
    return total + found.t[-1] * r / (1 - r)


@pytest.mark.parametrize(("rest", "near"), [(0.1, 1e-4), (1e-3, 1e-7)])
def test_a_block_rocks_faster_and_faster(rest, near):
    """Impacts of two corners in turns. Each corner alone has the limit of both: all intervals
    shrink by r = 31/34, those of one corner by r^2, the more exactly the smaller they are."""
    block = problems.rocking_block(mu=0.5, t_end=6.0)
    step = 0.005
    tolerances = nsdyn.Tolerances(rest=rest)
    found = nsdyn.simulate(block, EVENTS, step=step, tolerances=tolerances, check=False)
    assert found.mode[-1].tolist() == [STICK, STICK]
    limits = np.asarray(nsdyn.accumulation(block, found.events))
    np.testing.assert_allclose(limits, rocking_limit(), atol=near)
    early = limits[0] - found.events.t[-1]
    assert 0 < early < 2 * rest * step / (3 / 34) / (1 - 31 / 34)  # a/c = 3/34


def test_accumulation_needs_contacts():
    found = nsdyn.simulate(HOPS, EVENTS, step=0.02)
    with pytest.raises(nsdyn.ProblemError, match="with Contacts, found none in rocking_block"):
        nsdyn.accumulation(problems.rocking_block(), found.events)
    with pytest.raises(nsdyn.ProblemError, match="expected the events of one run"):
        nsdyn.accumulation(HOPS, found)


@pytest.mark.parametrize(
    ("problem", "t_end"),
    [
        pytest.param(problems.sphere_pile(4), 0.1, id="pile", marks=pytest.mark.slow),
        pytest.param(problems.rotating_ball(), 0.6, id="ball"),
    ],
)
def test_a_batch_with_contacts_is_native_and_equals_its_runs(monkeypatch, problem, t_end):
    monkeypatch.setenv("NSDYN_BACKEND", "native")
    v0 = np.asarray(problem.v0) * np.ones((9, 1))
    v0[:, 2::6] -= np.linspace(0.0, 0.3, 9)[:, None]
    options = {"step": 2e-3, "t_end": t_end, "save_every": 10}
    batch = nsdyn.sweep(problem, MoreauJean(), v0=v0, **options)
    assert batch.backend == "native" and np.all(batch.events.count > 0)
    for k, v in enumerate(v0):
        one = nsdyn.simulate(problem, MoreauJean(), v0=v, check=False, **options)
        assert batch.status[k] == one.status
        assert batch.events.count[k] == len(one.events)
        np.testing.assert_allclose(batch.q[k], one.q, rtol=0, atol=1e-8)


@pytest.mark.slow
def test_all_contact_problems_of_bouncing_boxes_are_solved():
    """Where four corners touch a floor together Newton's method alone fails now and then."""
    box = falling_box()
    v0 = np.linspace(0.5, 1.0, 512)[:, None] * np.asarray(box.v0)
    found = nsdyn.sweep(box, MoreauJean(), step=2e-3, v0=v0, save_every=1000)
    assert found.ok.all()


def faster(count):
    """Speeds of boxes that strike the floor with several corners, one after the other."""
    return np.linspace(0.5, 1.0, count)[:, None] * np.asarray(falling_box().v0)


@pytest.mark.slow
def test_forces_of_corners_need_not_be_unique():
    """NSGA; the first strikes of a box."""
    v0 = faster(2)[0]
    assert nsdyn.simulate(falling_box(), NSGA(), step=2e-3, t_end=0.4, save_every=200, v0=v0).ok


@pytest.mark.slow
@pytest.mark.parametrize("start", ["line", "flat", "any"])
def test_all_boxes_bounce_with_nsga(start):
    """128 that differ in speed, that fall flat, and that fall and turn in any direction."""
    random = np.random.default_rng(1)
    v0 = random.normal(size=(128, 6)) * [1, 1, 1, 3, 3, 3]
    turned = random.normal(size=(128, 4))
    if start == "flat":
        turned = [1.0, 0.0, 0.0, 0.0] + 0.1 * random.normal(size=(128, 4))
        v0 = v0 * [1, 1, 1, 0.1, 0.1, 0.3]
    turned = turned / np.linalg.norm(turned, axis=1)[:, None]
    box = falling_box()
    q0 = np.concatenate([np.tile(np.asarray(box.q0)[:3], (128, 1)), turned], axis=1)
    given = {"v0": faster(128)} if start == "line" else {"v0": v0, "q0": q0}
    found = nsdyn.sweep(box, NSGA(), step=2e-3, save_every=1000, **given)
    assert found.ok.all()
