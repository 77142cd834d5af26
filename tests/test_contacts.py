"""Contacts with friction in Moreau-Jean: closed forms, other constraints beside them, derivatives,
bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import (
    DISC,
    along_disc,
    below_disc,
    block,
    carts,
    disc,
    floor,
    friction,
    restitution,
)

import nsdyn
from nsdyn.integrators import NSGA, RK4, EventDriven, MoreauJean

G = 9.81
OPEN, STICK, SLIP = 0, 1, 2


def test_rocking_block_loses_what_housner_says():
    """It tilts about its left corner, and lands on the right one: the left one lifts off and does
    not pull. Housner: omega+/omega- = 1 - 3/2 sin^2 alpha = 31/34, if mu >= 12/65."""
    b, c = 0.1, 0.4
    angle, omega = 1e-9, -1.0
    x = -b * np.cos(angle) + c * np.sin(angle)  # the left corner, which is on the floor
    y = -b * np.sin(angle) - c * np.cos(angle)
    start = block([0.0, -y, angle], [y * omega, -x * omega, omega], 1e-3, b=b, c=c)
    found = nsdyn.simulate(start, MoreauJean(forecast=1.0), step=1e-6, t_end=3e-6)
    ratio = found.v[-1, 2] / omega
    assert ratio == pytest.approx(31 / 34, rel=1e-4)  # the weight acts for 1e-6 s
    assert found.mode[-1].tolist() == [OPEN, STICK]
    slippery = nsdyn.simulate(
        start,
        MoreauJean(forecast=1.0),
        step=1e-6,
        t_end=3e-6,
        params={**start.params, "mu": 0.18},
    )
    assert slippery.mode[-1].tolist() == [OPEN, SLIP]
    assert abs(slippery.v[-1, 2] / omega - 31 / 34) > 1e-3


def test_block_on_a_slope_stays_or_slides():
    mu = 0.5
    stays = block([0.0, 0.1, 0.0], np.zeros(3), 1.0, slope=np.arctan(mu) - 0.01)
    found = nsdyn.simulate(stays, MoreauJean(), step=1e-3)
    assert np.all(found.mode[1:] == STICK)
    assert np.max(np.abs(found.q - found.q[0])) < 1e-12
    slope = np.arctan(mu) + 0.1
    slides = {**stays.params, "slope": slope}
    found = nsdyn.simulate(stays, MoreauJean(), step=1e-3, params=slides)
    a = G * (np.sin(slope) - mu * np.cos(slope))
    assert np.all(found.mode[1:] == SLIP)
    np.testing.assert_allclose(found.v[:, 0], a * found.t, rtol=1e-9, atol=1e-12)
    # theta = 1/2 is exact for constant forces
    np.testing.assert_allclose(found.q[-1, 0], a / 2, rtol=1e-9)
    np.testing.assert_allclose(found.q[:, 1:], found.q[:1, 1:].repeat(1001, 0), atol=1e-12)
    # the sign is that of every row: M v' + G^T lam = f
    pressing = np.sum(-found.lam[-1, [0, 2]])
    rubbing = np.sum(-found.lam[-1, [1, 3]])
    assert pressing == pytest.approx(G * np.cos(slope), rel=1e-9)
    assert rubbing == pytest.approx(-mu * pressing, rel=1e-9)


def test_a_sliding_ball_begins_to_roll():
    found = nsdyn.simulate(disc([0.1, 0, 0], [0, 1, 0], 0.3), MoreauJean(), step=1e-4)
    np.testing.assert_allclose(found.v[-1], [0, 5 / 7, -50 / 7], atol=1e-12)
    rolls = found.t[np.argmax(found.mode[:, 0] == STICK)]
    assert abs(rolls - 0.1456239988350080) < 2e-4
    x = 0.1248205704300069 + 5 / 7 * (0.3 - 0.1456239988350080)
    assert abs(found.q[-1, 1] - x) < 1e-6


@pytest.mark.parametrize(
    ("omega", "vx", "after", "mode"),
    [(50.0, -0.8404284621548701, 28.98928844612825, SLIP), (10.0, -2 / 7, 20 / 7, STICK)],
)
def test_a_rotating_ball_falls(omega, vx, after, mode):
    """Capobianco, Harsch, Eugster and Leine 2021, section 10.1; velocities after the impact."""
    start = disc([1.0, 0, 0], [0, 0, omega], 1.1)
    step = 0.4283529368781193 / 500  # an impact at the end of a step
    found = nsdyn.simulate(start, MoreauJean(), step=step, t_end=503 * step)
    hit = int(np.argmax(found.mode[:, 0] != OPEN))
    assert abs(found.t[hit] - 0.4283529368781193) <= 2 * step
    assert found.mode[hit].tolist() == [mode]
    speed = G * found.t[hit]  # at which it hits the floor in this step
    exact = 4.202142310774351
    if mode == STICK:
        np.testing.assert_allclose(found.v[hit], [0, vx, after], rtol=0, atol=1e-12)
    else:
        np.testing.assert_allclose(found.v[hit, 1] * exact / speed, vx, rtol=1e-12)


# A ball in space: position, unit quaternion; velocities in world axes.


def times(a, b):
    """The product of two quaternions."""
    s = a[0] * b[0] - jnp.dot(a[1:], b[1:])
    return jnp.concatenate([s[None], a[0] * b[1:] + b[0] * a[1:] + jnp.cross(a[1:], b[1:])])


def space_mass(q, p):
    return jnp.diag(jnp.array([1.0] * 3 + [0.4 * 0.01] * 3))


def space_weight(q, v, t, p):
    return jnp.array([0.0, 0, -G, 0, 0, 0])


def space_rate(q, v, p):
    w = jnp.concatenate([jnp.zeros(1), v[3:]])
    return jnp.concatenate([v[:3], 0.5 * times(w, q[3:])])


def exponential(q, dx, p):
    w = dx[3:]
    square = jnp.sum(w * w)
    some = square > 1e-12
    angle = jnp.sqrt(jnp.where(some, square, 1.0))
    share = jnp.where(some, jnp.sin(angle / 2) / angle, 0.5 - square / 48)
    cosine = jnp.where(some, jnp.cos(angle / 2), 1 - square / 8)
    turned = times(jnp.concatenate([cosine[None], share * w]), q[3:])
    return jnp.concatenate([q[:3] + dx[:3], turned])


def twice_exponential(q, dx, p):
    return exponential(q, 2 * dx, p)


def above_floor(q, t, p):
    return q[2] - 0.1


def along_floor(q, v, t, p):
    return jnp.array([v[0] - 0.1 * v[4], v[1] + 0.1 * v[3]])


def spatial_ball(retract):
    return nsdyn.Problem(
        "ball in space",
        nsdyn.System(mass=space_mass, force=space_weight, kinematics=space_rate, retract=retract),
        nsdyn.Contacts(above_floor, along_floor, mu=0.3),
        q0=[0, 0, 0.1, 1, 0, 0, 0],
        v0=[2, 0, 0, 10, 20, 30],
        t_end=0.2,
    )


@pytest.mark.slow
def test_a_ball_in_space_begins_to_roll():
    """v = (5 v0 + 2 R omega0 x n)/7 when it rolls; the slip keeps its direction till then."""
    found = nsdyn.simulate(spatial_ball(exponential), MoreauJean(), step=1e-3)
    np.testing.assert_allclose(found.v[-1, :3], [2, -2 / 7, 0], atol=1e-11)
    rolls = found.t[1 + np.argmax(found.mode[1:, 0] == STICK)]
    assert abs(rolls - 0.09708266589) < 2e-3
    np.testing.assert_allclose(np.linalg.norm(found.q[:, 3:], axis=1), 1.0, rtol=1e-13)
    with pytest.raises(nsdyn.ProblemError, match=r"retract=.*d kinematics/dv"):
        nsdyn.simulate(spatial_ball(twice_exponential), MoreauJean(), step=1e-3)


def cradle_gaps(q, t, p):
    return q[1:] - q[:-1] - 1.0


def one(q, p):
    return jnp.eye(q.shape[0])


def none(q, v, t, p):
    return jnp.zeros(q.shape)


def test_newtons_cradle_with_newtons_law():
    """Newton's law at several contacts at once: all other balls leave together."""
    contacts = nsdyn.Contacts(cradle_gaps, e=restitution)
    n = 5
    problem = nsdyn.Problem(
        "cradle",
        nsdyn.System(mass=one, force=none),
        contacts,
        q0=np.arange(n) - 0.01 * (np.arange(n) == 0),
        v0=np.eye(n)[0],
        t_end=0.05,
        params={"e": np.ones(n - 1)},
    )
    found = nsdyn.simulate(problem, MoreauJean(), step=1e-3)
    np.testing.assert_allclose(found.v[-1], [-0.6, 0.4, 0.4, 0.4, 0.4], atol=1e-12)
    np.testing.assert_allclose(found.energy[-1], 0.5, rtol=1e-12)
    uneven = {"e": np.array([0.3, 0.9, 0.0, 0.0])}
    # (1 + e) times the plastic velocities, for the first contact: with the others at rest before
    found = nsdyn.simulate(problem, MoreauJean(), step=1e-3, params=uneven)
    first = 1 - 1.3 * 0.8
    np.testing.assert_allclose(found.v[-1], [first, *[(1 - first) / 4] * 4], atol=1e-12)


# Other constraints beside contacts.


def test_contacts_live_with_joints_and_locks():
    """Two carts joined by a rod, the second loaded; the load's weight makes friction. At t = 0.5
    the first cart is locked."""
    found = nsdyn.simulate(carts(), MoreauJean(), step=1e-3)
    rub = 0.1 * 3 * G
    a = (10.0 - rub) / 3
    half = np.argmin(np.abs(found.t - 0.499))
    np.testing.assert_allclose(found.v[half], [a * 0.499, a * 0.499, 0], rtol=1e-9, atol=1e-12)
    assert found.lam[half, 0] == pytest.approx(-(2 * a + rub), rel=1e-9)  # the rod pulls
    assert found.lam[half, 1:3] == pytest.approx([-3 * G, rub], rel=1e-9)
    np.testing.assert_allclose(found.v[-1], 0, atol=1e-12)
    # locked: the rod must not carry the pull, and friction is undetermined but within its bounds
    assert len(found.events) == 1
    event = found.events[0]
    momentum = np.array([1.0, 2.0, 3.0]) * (event.v_after - event.v_before)
    np.testing.assert_allclose(momentum + event.direction.T @ event.Lam, 0, atol=1e-9)


# Derivatives, batches.


@pytest.mark.slow
def test_derivatives_of_a_block_that_slides_to_rest():
    """x = v0^2/(2 mu g) at rest; through sliding, the stop and rest, in both modes."""
    start = block([0.0, 0.1, 0.0], [1.0, 0.0, 0.0], 0.4)
    last = lambda v0, mu: nsdyn.rollout(
        start,
        MoreauJean(),
        step=4e-3,
        v0=jnp.array([1.0, 0.0, 0.0]) * v0,
        params={**start.params, "mu": mu},
    ).q[-1, 0]
    at = (jnp.asarray(1.0), jnp.asarray(0.5))
    forward = jax.jit(jax.jacfwd(last, argnums=(0, 1)))(*at)
    reverse = jax.jit(jax.grad(last, argnums=(0, 1)))(*at)
    np.testing.assert_allclose(forward, reverse, rtol=1e-10)
    value = jax.jit(last)
    d = 1e-5
    differences = [
        (value(1 + d, 0.5) - value(1 - d, 0.5)) / (2 * d),
        (value(1.0, 0.5 + d) - value(1.0, 0.5 - d)) / (2 * d),
    ]
    np.testing.assert_allclose(forward, differences, rtol=1e-6)
    exact = [1 / (0.5 * G), -1 / (2 * 0.25 * G)]
    np.testing.assert_allclose(forward, exact, rtol=2e-2)  # order 1


@pytest.mark.slow
def test_a_sweep_equals_single_runs():
    start = block([0.0, 0.1, 0.0], [1.0, 0.0, 0.0], 0.1)
    mus = np.linspace(0.1, 0.9, 9)
    many = nsdyn.sweep(start, MoreauJean(), step=1e-3, params={**start.params, "mu": mus})
    for i in (0, 4, 8):
        single = nsdyn.simulate(
            start, MoreauJean(), step=1e-3, params={**start.params, "mu": mus[i]}
        )
        np.testing.assert_allclose(many.q[i], single.q, rtol=1e-12, atol=1e-12)
        assert np.array_equal(many.mode[i], single.mode)


# Bad input.


SCHEMES = (MoreauJean(), NSGA(), EventDriven(RK4()))


def bad(text, contacts, integrators=SCHEMES, q0=(0.1, 0.0, 0.0)):
    def run(integrator):
        start = {"q0": list(q0), "v0": np.zeros(3), "t_end": 1.0}
        problem = nsdyn.Problem("bad", DISC, contacts(), params={"mu": -0.1}, **start)
        nsdyn.simulate(problem, integrator, step=0.1)

    for integrator in integrators:
        with pytest.raises(nsdyn.ProblemError, match=text):
            run(integrator)


def two_slips(q, v, t, p):
    return v[:2]


def four_slips(q, v, t, p):
    return jnp.concatenate([v, v[:1]])[None]


def squared(q, v, t, p):
    return v[1] ** 2


def both_gaps(q, t, p):
    return q[:2] - 0.1


def three_slips(q, v, t, p):
    return v


def no_name(q, v, t, p):
    return p["speed"] * v[1]


def pair_of_gaps(q, t, p):
    return q[0], q[1]


def no_gap(q, t, p):
    return jnp.sqrt(q[0] - 1.0)


def three(p):
    return jnp.full(3, 0.1)


def test_bad_input_is_named_before_the_run():
    C = nsdyn.Contacts
    bad(r"Contacts\(mu=.*at least 0, found -0.1", lambda: C(below_disc, along_disc, mu=-0.1))
    bad(r"Contacts\(mu=.*at least 0, found -0.1", lambda: C(below_disc, along_disc, mu=friction))
    bad(r"Contacts\(e=.*from 0 to 1, found 1.5", lambda: C(below_disc, e=1.5))
    bad(
        r"Contacts\(e_T=.*found -1 for contact 1",
        lambda: C(both_gaps, two_slips, e_T=[0.0, -1.0]),
        q0=(1.0, 1.0, 0.0),
    )
    bad(r"Contacts\(e=.*one number or 1", lambda: C(below_disc, e=[0.1, 0.2]))
    bad(r"Contacts\(mu=.*expected slip", lambda: C(below_disc, mu=0.1))
    bad(r"returned shape \(1, 4\), expected 1 \(plane\)", lambda: C(below_disc, four_slips))
    bad(r"as gap has 2 entries", lambda: C(both_gaps, three_slips, mu=0.1))
    bad(r"Contacts\(slip=.*no_name.*raised KeyError.*'mu'", lambda: C(below_disc, no_name))
    bad(r"Contacts\(gap=.*returned a tuple", lambda: C(pair_of_gaps))
    bad(r"Contacts\(gap=.*finite numbers at q0, found nan", lambda: C(no_gap))
    bad(
        r"Contacts\(mu=.*one number or 1.*shape \(3,\)", lambda: C(below_disc, along_disc, mu=three)
    )
    bad(
        r"Contacts\(slip=.*returned shape \(1, 4\), expected \(2,\)",
        lambda: C(both_gaps, four_slips),
    )
    bad(r"slip affine in v", lambda: C(below_disc, squared, mu=0.1))
    bad(
        r"contact 1 overlaps by 0.1 at the start",
        lambda: C(both_gaps, two_slips, mu=0.1),
    )
    bad(
        "does not resolve Contacts",
        lambda: C(below_disc),
        integrators=(EventDriven(RK4("minimal")),),
    )
    bad("expected Contact or Contacts, found both", lambda: (C(below_disc), nsdyn.Contact(floor)))


def test_a_body_between_closing_walls_stops_with_a_status():
    def walls(q, t, p):
        return jnp.array([q[0] + 1 - t, 1 - t - q[0]])

    problem = nsdyn.Problem(
        "squeezed",
        nsdyn.System(mass=one, force=none),
        nsdyn.Contacts(walls),
        q0=[0.0],
        v0=[0.0],
        t_end=2.0,
    )
    with pytest.raises(nsdyn.SimulationError, match="CONTACT_UNSOLVED") as error:
        nsdyn.simulate(problem, MoreauJean(), step=0.01)
    assert abs(error.value.t - 1.0) <= 0.02


def test_the_check_of_a_problem_with_contacts():
    report = str(block([0.0, 0.1, 0.0], np.zeros(3), 1.0).check())
    assert "gaps not negative" in report
    assert "slip affine in v" in report
