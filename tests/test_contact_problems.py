"""Problems with contacts against closed forms: impacts, jamming, leaving a surface, and bodies that
must stay where they are."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import G, block
from scipy.integrate import solve_ivp

import nsdyn
from nsdyn import problems
from nsdyn.integrators import NSGA, RK4, EventDriven, MoreauJean

OPEN, STICK, SLIP = 0, 1, 2
BOTH = pytest.mark.parametrize("integrator", [NSGA(), MoreauJean()], ids=["NSGA", "MoreauJean"])


@BOTH
def test_painleves_rod_stops_by_an_impulse(integrator):
    """Impact without collision: P = (0.3, 0.4), in the first step; sliding to the right nothing
    happens."""
    h = 1e-6
    rod = problems.painleve_rod()
    found = nsdyn.simulate(rod, integrator, step=h, t_end=3 * h, check=False)
    after = [-0.6, 0.3, 0.670820393249937]
    np.testing.assert_allclose(found.v[1], after, atol=2 * G * h)
    np.testing.assert_allclose(-h * found.lam[1], [0.3, 0.4], atol=2 * G * h)
    assert found.mode[1].tolist() == [STICK]
    found = nsdyn.simulate(rod, integrator, step=h, t_end=3 * h, v0=[1.0, 0, 0], check=False)
    assert np.max(np.abs(found.v - [1.0, 0, 0])) < 1e2 * h


# Three discs of radius 1/2 in the plane, without friction.


def unit_mass(q, p):
    return jnp.eye(q.shape[0])


def no_force(q, v, t, p):
    return jnp.zeros(q.shape)


def between_discs(q, t, p):
    place = q.reshape(3, 2)
    pairs = jnp.array([[0, 1], [0, 2], [1, 2]])
    difference = place[pairs[:, 0]] - place[pairs[:, 1]]
    return jnp.sqrt(jnp.sum(difference**2, axis=1)) - 1.0


def restitution(p):
    return p["e"]


@pytest.mark.parametrize("e", [0.0, 0.5, 1.0])
def test_cue_ball_on_two_touching_balls(e):
    """Cue 1 - 0.6 (1 + e), others (1 + e) sqrt(3)/5 along the lines of centres, in one impact."""
    line = np.array([np.sqrt(3) / 2, 0.5])
    start = nsdyn.Problem(
        "cue",
        nsdyn.System(mass=unit_mass, force=no_force),
        nsdyn.Contacts(between_discs, e=restitution),
        q0=[0.0, 0.0, *line, line[0], -line[1]],
        v0=[1.0, 0, 0, 0, 0, 0],
        t_end=1e-3,
        params={"e": 0.0},
    )
    found = nsdyn.simulate(start, MoreauJean(), step=1e-6, t_end=2e-6, params={"e": e})
    v = found.v[1].reshape(3, 2)
    np.testing.assert_allclose(v[0], [1 - 0.6 * (1 + e), 0], atol=2e-6)  # it moved by 1e-6
    np.testing.assert_allclose(v[1:] @ np.stack([line, line * [1, -1]]).T, _speeds(e), atol=2e-6)


def _speeds(e):
    """Along its own line of centres, and along that of the other ball (60 degrees away)."""
    speed = (1 + e) * np.sqrt(3) / 5
    return speed * np.array([[1.0, 0.5], [0.5, 1.0]])


def on_sphere(q, t, p):
    return jnp.sqrt(q[0] ** 2 + q[1] ** 2) - p["R"]


def weight(q, v, t, p):
    return jnp.zeros(q.shape).at[1].set(-G)


def test_a_particle_leaves_a_sphere():
    """Where cos(th) = 2/3, from rest at the top."""
    first = 0.3
    speed = np.sqrt(2 * G * (1 - np.cos(first)))
    problem = nsdyn.Problem(
        "sphere",
        nsdyn.System(mass=unit_mass, force=weight),
        nsdyn.Contacts(on_sphere),
        q0=[np.sin(first), np.cos(first)],
        v0=[speed * np.cos(first), -speed * np.sin(first)],
        t_end=0.4,
        params={"R": 1.0},
    )
    found = nsdyn.simulate(problem, NSGA(), step=1e-3)
    left = np.argmax(found.mode[1:, 0] == OPEN)
    angle = np.arctan2(found.q[left, 0], found.q[left, 1])
    assert angle == pytest.approx(np.arccos(2 / 3), abs=4e-3)  # two steps
    assert np.all(found.mode[left + 1 :, 0] == OPEN)


def roller_mass(q, p):
    return jnp.diag(jnp.array([1.0, 1.0, 0.4 * 0.04]))


def roller_slip(q, v, t, p):
    """A ball of radius 0.2 on a sphere of radius 0.8 about the origin."""
    around = (q[1] * v[0] - q[0] * v[1]) / jnp.sqrt(q[0] ** 2 + q[1] ** 2)
    return around - 0.2 * v[2]


def roller(mu=100.0):
    """It rolls down from near the top."""
    first = 0.3
    speed = np.sqrt(10 / 7 * G * (1 - np.cos(first)))
    return nsdyn.Problem(
        "roller",
        nsdyn.System(mass=roller_mass, force=weight),
        nsdyn.Contacts(on_sphere, roller_slip, mu=mu),
        q0=[np.sin(first), np.cos(first), 0.0],
        v0=[speed * np.cos(first), -speed * np.sin(first), speed / 0.2],
        t_end=0.6,
        params={"R": 1.0},
    )


def test_a_rolling_ball_leaves_a_sphere():
    """Where cos(th) = 10/17, from rest at the top; friction is large, so that it rolls until it
    hardly presses any more."""
    found = nsdyn.simulate(roller(), NSGA(), step=1e-3)
    left = np.argmax(found.mode[1:, 0] == OPEN)
    angle = np.arctan2(found.q[left, 0], found.q[left, 1])
    assert angle == pytest.approx(np.arccos(10 / 17), abs=8e-3)
    assert np.all(found.mode[1 : left - 10, 0] == STICK)


def test_a_ball_follows_a_vibrating_table():
    """Once in each period, for ten of them, with the speed g T/2."""
    found = nsdyn.simulate(problems.ball_on_table(), NSGA(), step=1e-4)
    hits = np.flatnonzero((found.v[:-1, 0] < 0) & (found.v[1:, 0] > 0))
    assert len(hits) == 10
    np.testing.assert_allclose(np.diff(found.t[hits]), 0.1, atol=4e-4)
    np.testing.assert_allclose(found.v[hits + 1, 0], 0.4905, atol=4e-3)


@pytest.mark.slow
def test_a_slider_rattles_in_its_guide():
    """Two corners hit at once, the first time near 2.7 ms."""
    found = nsdyn.simulate(problems.clearance_slider_crank(), MoreauJean(), step=2e-5, t_end=4e-3)
    first = np.argmax(found.mode[:, 0] != OPEN)
    assert found.t[first] == pytest.approx(2.7e-3, abs=1e-4)
    assert np.all((found.mode[first] != OPEN) == [True, True, False, False])
    assert np.max(np.abs(found.q[:, 2])) < 1e-12


def crank_and_rod(p):
    """Mass matrix and acceleration of crank and rod, with the slider at the end of the rod, written
    out; the slider does not turn."""
    l1, l2 = p["l_1"], p["l_2"]
    m1, m2, m3 = p["m_1"], p["m_2"], p["m_3"]
    both = (m2 / 2 + m3) * l1 * l2

    def mass(th):
        across = both * np.cos(th[0] - th[1])
        crank = p["J_1"] + m1 * l1**2 / 4 + (m2 + m3) * l1**2
        rod = p["J_2"] + m2 * l2**2 / 4 + m3 * l2**2
        return np.array([[crank, across], [across, rod]])

    def slope(t, y):
        th, w = y[:2], y[2:]
        turn = both * np.sin(th[0] - th[1]) * np.array([-(w[1] ** 2), w[0] ** 2])
        loads = np.array([l1 * (m1 / 2 + m2 + m3), l2 * (m2 / 2 + m3)])
        weight = -p["g"] * loads * np.cos(th)
        return np.concatenate([w, np.linalg.solve(mass(th), turn + weight)])

    return mass, slope


@pytest.mark.slow
def test_the_first_impact_of_a_slider_in_its_guide():
    """Event-driven. Both upper corners at once: they leave with e times their speed while friction
    pushes back, and the slider does not turn, as the corner ahead takes the moment of friction."""
    problem = problems.clearance_slider_crank()
    p = {name: float(x) for name, x in problem.params.items()}
    mass, slope = crank_and_rod(p)
    height = lambda th: p["l_1"] * np.sin(th[0]) + p["l_2"] * np.sin(th[1])
    touches = lambda t, y: p["c"] - height(y[:2])
    touches.terminal, touches.direction = True, -1
    start = [0.0, 0.0, *np.asarray(problem.v0)[:2]]
    options = {"method": "DOP853", "rtol": 1e-12, "atol": 1e-13}
    exact = solve_ivp(slope, (0, 0.01), start, events=touches, **options)
    t, y = exact.t[-1], exact.y[:, -1]
    assert t == pytest.approx(2.7e-3, abs=1e-4)
    integrator = EventDriven(RK4())
    found = nsdyn.simulate(problem, integrator, step=1e-5, t_end=3e-3, check=False)
    event = found.events[0]
    assert event.t == pytest.approx(t, abs=1e-11)
    np.testing.assert_allclose(event.v_before, [*y[2:], 0.0], rtol=1e-8, atol=1e-9)
    assert np.all((np.asarray(event.Lam).reshape(4, 2)[:, 0] < 0) == [True, True, False, False])
    # rows of th_1, th_2: the pin along the guide and across it
    lengths = np.array([p["l_1"], p["l_2"]])
    along, up = -lengths * np.sin(y[:2]), lengths * np.cos(y[:2])
    side = np.sign(along @ y[2:])
    push = np.linalg.solve(mass(y[:2]), -up - side * p["mu"] * along)
    P = -(1 + p["e"]) * (up @ y[2:]) / (up @ push)
    np.testing.assert_allclose(event.v_after, [*(y[2:] + P * push), 0.0], rtol=1e-8, atol=1e-9)
    normal = -np.asarray(event.Lam).reshape(4, 2)[:2, 0]
    assert np.sum(normal) == pytest.approx(P, rel=1e-8)
    # friction acts at the upper side, b away from the pin
    assert p["a"] * abs(normal[1] - normal[0]) == pytest.approx(p["b"] * p["mu"] * P, rel=1e-6)


@pytest.mark.slow
def test_every_impact_of_the_slider_is_a_double_one():
    """Of one side of the guide, and they accumulate: the slider comes to rest against it."""
    problem = problems.clearance_slider_crank()
    found = nsdyn.simulate(problem, EventDriven(RK4()), step=1e-5, t_end=0.01, max_events=256)
    events = found.events
    P = -np.asarray(events.Lam).reshape(-1, 4, 2)[:, :, 0]
    pressed = (P / np.max(P) > 1e-9).reshape(-1, 2, 2)
    hits = pressed[np.any(pressed, axis=(1, 2))]
    assert len(hits) > 3
    assert np.all(hits[:, :, 0] == hits[:, :, 1])
    assert np.all(np.sum(hits[:, :, 0], axis=1) == 1)
    assert np.all(np.any((found.mode[-1] != OPEN).reshape(2, 2), axis=1) == [True, False])


@pytest.mark.slow
def test_the_woodpecker_repeats_its_motion():
    """The published period is 0.146 s; one beak stroke in each."""
    found = nsdyn.simulate(problems.woodpecker(t_end=1.0), MoreauJean(), step=2e-5)
    beak = found.mode[:, 0] != OPEN
    strokes = found.t[1:][beak[1:] & ~beak[:-1]]
    strokes = strokes[np.insert(np.diff(strokes) > 0.05, 0, True)]
    assert len(strokes) >= 6
    np.testing.assert_allclose(np.diff(strokes)[1:], 0.146, atol=3e-3)
    falls = np.interp(strokes, found.t, found.q[:, 0])
    assert np.all(np.diff(falls) < -1e-3)


# Statics.


@pytest.mark.slow
def test_a_block_on_a_slope_stays_for_long():
    """1e5 steps below the angle of friction."""
    start = block(slope=np.arctan(0.5) - 0.01)
    for integrator in (MoreauJean(), NSGA()):
        found = nsdyn.simulate(start, integrator, step=1e-3, t_end=100.0, save_every=100)
        assert np.all(found.mode[1:] == STICK)
        assert np.max(np.abs(found.q - found.q[0])) < 1e-9


@pytest.mark.slow
def test_a_table_stands_and_slides():
    table = problems.four_legged_table()
    stands = nsdyn.simulate(table, MoreauJean(), step=2e-3, v0=np.zeros(6))
    assert np.max(np.abs(stands.q - stands.q[0])) < 1e-11
    assert np.all(stands.mode[1:] == STICK)
    np.testing.assert_allclose(-stands.lam[-1, ::3].sum(), 10 * G, rtol=1e-10)
    slides = nsdyn.simulate(table, MoreauJean(), step=2e-3)
    assert slides.q[-1, 0] == pytest.approx(1.5**2 / (2 * 0.3 * G), abs=2e-3)
    np.testing.assert_allclose(slides.v[-1], 0.0, atol=1e-11)
    np.testing.assert_allclose(slides.q[-1, 1:], stands.q[-1, 1:], atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "rim"), [(4, None), (20, 0.01)])
def test_a_pile_of_spheres_settles_and_stays(n, rim):
    """It lies still in its layers from 0.6 s until 3 s, and no two spheres overlap, neighbours or
    not. Nothing strikes any more."""
    pile = problems.sphere_pile(n, rim=rim)
    found = nsdyn.simulate(pile, MoreauJean(), step=2e-3, t_end=3.0, check=False)
    assert found.ok
    later = found.t >= 0.6
    assert np.max(np.abs(found.v[later])) < 1e-6
    assert np.max(np.abs(found.q[later] - found.q[-1])) < 1e-6
    assert np.max(found.events.t) < 0.6
    places = found.q[-1].reshape(n, 7)[:, :3]
    layers = np.repeat(np.arange(4), [10, 6, 3, 1]) if n == 20 else np.array([0, 0, 0, 1])
    heights = 0.05 + np.sqrt(2 / 3) * 0.1 * layers
    np.testing.assert_allclose(np.sort(places[:, 2]), heights, atol=8e-3)
    apart = np.linalg.norm(places[:, None] - places[None], axis=2)[np.triu_indices(n, 1)]
    assert np.min(apart) > 0.1 - 1e-8
    assert np.min(np.asarray(found_gaps(pile, found.q[-1]))) > -1e-8


def found_gaps(problem, q):
    return problem.constraint[0].gap(q, 0.0, problem.params)


def gaps_and_rates(problem, found):
    """Of all contacts in all rows."""

    def both(q, v):
        along = problem.system.rate(q, v, problem.params)
        return jax.jvp(lambda q: found_gaps(problem, q), (q,), (along,))

    return map(np.asarray, jax.jit(jax.vmap(both))(found.q, found.v))


@pytest.mark.slow
def test_a_box_comes_to_rest_in_a_corner():
    """It strikes both walls, never gains energy, and stands still near them. A corner that
    approaches a wall overlaps by at most what it moves in half a step, the forecast; one that
    bounces by what it leaves in the next step. At rest there is no overlap."""
    box = problems.box_in_corner()
    found = nsdyn.simulate(box, MoreauJean(), step=1e-3, t_end=0.6)
    assert found.ok
    assert np.all(np.any(found.mode.reshape(-1, 3, 4) != OPEN, axis=(0, 2)))
    assert np.max(np.diff(found.energy)) < 1e-12
    gaps, rates = gaps_and_rates(box, found)
    assert np.all(gaps > -1e-3 * np.where(rates < 0, -rates / 2, rates) - 1e-8)
    assert np.min(gaps[-1]) > -1e-8
    later = found.t >= 0.4
    assert np.max(np.abs(found.q[later] - found.q[-1])) < 1e-9
    assert np.max(gaps[-1]) < 5e-3
    np.testing.assert_allclose(-found.lam[-1].reshape(12, 3)[:4, 0].sum(), G, rtol=1e-8)


# A stack of boxes in the plane, each 0.2 wide and 0.1 high: x, y, angle. Every second weighs 1000
# times as much, the top one too.

BOXES = 10
B, C = 0.1, 0.05
MASSES = np.where(np.arange(BOXES) % 2, 1000.0, 1.0)


def stack_mass(q, p):
    return jnp.diag(jnp.asarray(np.outer(MASSES, [1.0, 1.0, (B**2 + C**2) / 3]).ravel()))


def stack_weight(q, v, t, p):
    return jnp.asarray(np.outer(MASSES, [0.0, -G, 0.0]).ravel())


def corner_heights(q, t, p):
    """Both lower corners of each box above the top of the one below it."""
    each = q.reshape(BOXES, 3)
    s, c = jnp.sin(each[:, 2])[:, None], jnp.cos(each[:, 2])[:, None]
    x = jnp.array([[-B, B]])
    place = each[:, :2, None] + jnp.stack([x * c + C * s, x * s - C * c], axis=1)
    below = jnp.concatenate([jnp.array([[0.0, -C, 0.0]]), each[:-1]])
    s, c = jnp.sin(below[:, 2])[:, None], jnp.cos(below[:, 2])[:, None]
    apart = place - below[:, :2, None]
    return (c * apart[:, 1] - s * apart[:, 0] - C).ravel()


def corner_slips(q, v, t, p):
    """To first order in the angles: velocities along x."""
    each, rates = q.reshape(BOXES, 3), v.reshape(BOXES, 3)
    lower = rates[:, 0] + C * rates[:, 2]
    upper = jnp.concatenate([jnp.zeros(1), (rates[:, 0] - C * rates[:, 2])[:-1]])
    return jnp.repeat(lower - upper, 2) + 0.0 * each[0, 0]


STACK = nsdyn.Problem(
    "stack",
    nsdyn.System(mass=stack_mass, force=stack_weight),
    nsdyn.Contacts(corner_heights, corner_slips, mu=0.5),
    q0=np.stack([np.zeros(BOXES), C + 2 * C * np.arange(BOXES), np.zeros(BOXES)], axis=1).ravel(),
    v0=np.zeros(3 * BOXES),
    t_end=1.0,
)


@pytest.mark.slow
def test_a_stack_of_boxes_does_not_sink():
    """Ten boxes with the mass ratio 1000."""
    found = nsdyn.simulate(STACK, MoreauJean(), step=2e-3)
    assert np.max(np.abs(found.q - np.asarray(STACK.q0))) < 1e-9
    pressing = -found.lam[-1].reshape(BOXES, 2, 2)[:, :, 0].sum(axis=1)
    np.testing.assert_allclose(pressing, G * np.cumsum(MASSES[::-1])[::-1], rtol=1e-8)
