"""Every structure of mechanism through the time-stepping schemes: pairs, not the full product, one
tiny problem each.

The bounds are those of a scheme of order 1 across a switch (errors of the size of the step) and of
order 2 without one.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import PARTICLE, SWING, ball, circle, level, run
from test_forms import (
    body_force,
    body_mass,
    body_rate,
    rotation,
    skate,
    stick_after,
    stick_force,
    stick_guards,
)

import nsdyn
from nsdyn import laws, problems
from nsdyn.integrators import NSGA, RK4, EventDriven, GeneralizedAlpha, MoreauJean, RadauIIA

EXACT = EventDriven(RK4())
VELOCITY, DECOUPLED = NSGA(variant="velocity"), NSGA(variant="decoupled")
INDEX2, INDEX3 = GeneralizedAlpha(index=2), GeneralizedAlpha(index=3)


def scheme_name(scheme):
    return " ".join(
        str(x)
        for x in (
            type(scheme).__name__,
            getattr(scheme, "variant", ""),
            getattr(scheme, "index", ""),
        )
    )


def slow(scheme):
    return pytest.param(scheme, marks=pytest.mark.slow)


def schemes(*each):
    return pytest.mark.parametrize("scheme", each, ids=scheme_name)


def coupled_mass(q, p):
    return jnp.array([[3.0, 1.0, 0.5], [1.0, 2.0, 0.8], [0.5, 0.8, 1.0 + 0.3]]) + jnp.diag(
        0.2 * jnp.sin(q)
    )


def springs(q, v, t, p):
    return -20.0 * jnp.tanh(q)


LOCKS = nsdyn.Scheduled(times=(0.1, 0.1537), stages=(None, nsdyn.lock(1), nsdyn.lock(1, 2)))


@schemes(NSGA(), slow(INDEX3), MoreauJean(), EventDriven(INDEX2), EventDriven(RadauIIA()))
def test_scheduled_locks(scheme):
    """Locks on and off the grid: locked joints stay where they are, free momenta are continuous."""
    system = nsdyn.System(mass=coupled_mass, force=springs)
    problem = nsdyn.Problem(
        "springs", system, LOCKS, q0=[0.5, -0.3, 0.2], v0=[1.0, 2.0, -1.0], t_end=0.2
    )
    out = run(problem, scheme, step=2e-3)
    exact = run(problem, EXACT, step=2e-3)
    assert int(out.status) == 0 and np.asarray(out.mode[-1]).tolist() == 2
    assert np.abs(np.asarray(out.events.t[:2]) - [0.1, 0.1537]).max() < 2e-3
    locked = np.asarray(out.t) > 0.156
    assert np.ptp(np.asarray(out.q)[locked][:, 1:], axis=0).max() < 1e-12
    if isinstance(scheme, GeneralizedAlpha):
        return  # index 3 rings after a jump
    bound = 2e-5 if isinstance(scheme, EventDriven) else 4e-3
    assert np.abs(np.asarray(out.v[-1] - exact.v[-1])).max() < bound * np.abs(exact.v[-1]).max()
    assert np.abs(np.asarray(out.v)[locked][:, 1:]).max() < 1e-12
    for k, free in ((0, [0, 2]), (1, [0])):
        event = jax.tree.map(lambda x, k=k: x[k], out.events.records)
        P = np.asarray(problem.system.mass(event.q, problem.params)) @ np.asarray(
            event.v_after - event.v_before
        )
        assert np.abs(P[free]).max() < 1e-10 * np.abs(P).max()


@schemes(NSGA(), MoreauJean())
def test_contact_bounces_and_comes_to_rest(scheme):
    out = run(ball(t_end=3.0), scheme, law=laws.Restitution(0.5), step=1e-3)
    fall = np.sqrt(2 / 9.81)
    count = int(out.events.count)
    assert (
        int(out.status) == 0 and 5 <= count <= 13
    )  # hops that are shorter than a step end in rest
    t, v = np.asarray(out.events.t[:3]), np.asarray(out.events.v_after[:3, 0])
    bounces = fall * np.array([1.0, 2.0, 2.5])
    assert np.abs(t - bounces).max() < 5e-3
    assert np.abs(v / (9.81 * fall * 0.5 ** np.arange(1, 4)) - 1).max() < 0.02
    assert (
        np.asarray(out.q).min() > -1e-12
        and abs(float(out.q[-1, 0])) < 1e-12
        and int(out.mode[-1]) == 1
    )
    assert abs(float(out.lam[-1, 0]) + 9.81) < 1e-9
    # A contact that closes and is pulled open opens again, a step later.
    out = run(
        ball(t_end=3.0),
        scheme,
        law=laws.Restitution(0.0),
        step=1e-3,
        params={"g": -1.0},
        q0=[0.1],
        v0=[-1.0],
    )
    touches = 1 - np.sqrt(0.8)
    assert (
        int(out.status) == 0
        and int(out.events.count) == 2
        and np.abs(out.events.t[:2] - touches).max() < 5e-3
    )
    assert abs(float(out.v[-1, 0]) - (3.0 - touches)) < 5e-3


@pytest.mark.slow
@schemes(DECOUPLED)
def test_a_joint_that_sticks_and_breaks_loose(scheme):
    brake = nsdyn.Transitions(
        rows=lambda q, t, p, mode, held: q - held,
        guards=stick_guards,
        after=stick_after,
        live=lambda mode, p: (mode == 2)[None],
        hold=lambda q, t, p: q,
    )
    system = nsdyn.System(mass=lambda q, p: jnp.eye(1), force=stick_force)
    problem = nsdyn.Problem(
        "brake", system, brake, q0=[0.0], v0=[1.0], t_end=8.0, params={"mu": 0.8}
    )
    out, exact = run(problem, scheme, step=1e-2), run(problem, EXACT, step=1e-2)
    assert int(out.status) == 0 and int(out.events.count) == 4
    assert np.asarray(out.events.mode_after[:4]).tolist() == [2, 1, 2, 0]
    assert np.abs(np.asarray(out.events.t[:4] - exact.events.t[:4])).max() < 0.0201
    assert np.abs(np.asarray(out.q - exact.q)).max() < 0.02


@schemes(NSGA(), slow(INDEX3))
def test_rolling_without_position_level(scheme):
    system = nsdyn.System(
        mass=lambda q, p: jnp.diag(jnp.array([1.0, 1.0, 0.2])),
        force=lambda q, v, t, p: jnp.zeros(3),
    )
    problem = nsdyn.Problem(
        "skate", system, nsdyn.Nonholonomic(skate), q0=[0.0, 0, 0], v0=[1.0, 0, 2.0], t_end=1.0
    )
    errors = []
    for h in (0.02, 0.01):
        out = run(problem, scheme, step=h)
        t = np.asarray(out.t)
        exact = np.stack([np.sin(2 * t) / 2, (1 - np.cos(2 * t)) / 2, 2 * t], axis=1)
        errors.append(np.abs(np.asarray(out.q) - exact).max())
        assert max(abs(float(skate(q, v, 0, 0))) for q, v in zip(out.q, out.v, strict=True)) < 1e-12
    assert errors[1] < 1e-2 and np.log2(errors[0] / errors[1]) > 1.9


def carried(q, t, p):
    """On a circle that is carried along x with a varying speed."""
    return 0.5 * ((q[0] - 0.3 * jnp.sin(2 * t)) ** 2 + q[1] ** 2 - 1.0)


@schemes(NSGA(), slow(DECOUPLED), INDEX2, slow(INDEX3))
def test_moving_constraint(scheme):
    """g depends on time: order 2 in q, v and lam, against RK4."""
    params = {"m": 1.0, "g": 9.81}
    problem = nsdyn.Problem(
        "carried",
        SWING,
        nsdyn.Fixed(carried),
        q0=[1.0, 0.0],
        v0=[0.6, 0.5],
        t_end=0.4,
        params=params,
    )
    exact = run(problem, EXACT, step=1e-3)
    errors = []
    for h in (4e-3, 2e-3):
        out = run(problem, scheme, step=h)
        every = round(h / 1e-3)
        pairs = ((out.q, exact.q), (out.v, exact.v), (out.lam, exact.lam))
        errors.append([np.abs(np.asarray(a) - np.asarray(b)[::every]).max() for a, b in pairs])
    orders = np.log2(np.array(errors[0]) / np.array(errors[1]))
    assert orders.min() > 1.9, orders


@pytest.mark.slow
@schemes(INDEX2, MoreauJean())
def test_quasi_velocities(scheme):
    """A body that turns freely keeps its momentum in space, to the order of the scheme."""
    system = nsdyn.System(mass=body_mass, force=body_force, kinematics=body_rate)
    inertia, v0 = np.array([1.0, 2.0, 3.5]), np.array([0.3, 2.0, 0.1])
    problem = nsdyn.Problem(
        "body", system, None, q0=[1.0, 0, 0, 0], v0=v0, t_end=1.0, params={"I": inertia}
    )
    errors = []
    for h in (0.02, 0.01):
        out = run(problem, scheme, step=h)
        momentum = [
            rotation(np.asarray(q)) @ (inertia * np.asarray(v))
            for q, v in zip(out.q, out.v, strict=True)
        ]
        errors.append(np.abs(np.array(momentum) - (inertia * v0)[None]).max())
    assert errors[1] < 1e-2 and np.log2(errors[0] / errors[1]) > 1.9


@pytest.mark.slow
@schemes(VELOCITY)
def test_tuple_with_lock_and_release(scheme):
    parts = (
        nsdyn.Fixed(circle),
        nsdyn.Scheduled(times=(0.2, 0.3), stages=(None, nsdyn.lock(0), None)),
    )
    params = {"m": 1.0, "g": 9.81}
    problem = nsdyn.Problem(
        "both", SWING, parts, q0=[0.8, -0.6], v0=[0.0, 0.0], t_end=0.5, params=params
    )
    out, exact = run(problem, scheme, step=1e-3), run(problem, EXACT, step=1e-3)
    assert int(out.status) == 0 and np.asarray(out.mode[-1]).tolist() == [0, 2]
    held = (np.asarray(out.t) >= 0.2 - 1e-9) & (np.asarray(out.t) < 0.3 - 1e-9)
    assert np.abs(np.asarray(out.v)[held]).max() < 1e-12
    assert np.abs(np.asarray(out.q - exact.q)).max() < 5e-3
    gap = [float(circle(q, 0, 0)) for q in out.q]
    assert np.abs(gap).max() < 1e-13


@pytest.mark.slow
@schemes(INDEX3)
def test_capture(scheme):
    constraint = nsdyn.Switching(modes=(None, level), switches=(lambda q, p: -q[1],), latch=True)
    params = {"m": 1.0, "g": 9.81}
    problem = nsdyn.Problem(
        "capture", PARTICLE, constraint, q0=[0.0, 1.0], v0=[1.0, 0.0], t_end=1.0, params=params
    )
    out = run(problem, scheme, step=1e-2)
    assert (
        int(out.status) == 0
        and int(out.events.count) == 1
        and np.allclose(out.q[-1], [1.0, 0.0], atol=1e-12)
    )


@pytest.mark.parametrize("scheme", [NSGA(), MoreauJean()], ids=repr)
def test_the_forms_of_muellers_law_agree_in_time_steps(scheme):
    """The second brake locks while the first is locked: a velocity that a step proposes does not
    satisfy the persistent row, so the forms have to remove its rate too."""
    problem = problems.three_r_pendulum()
    found = [
        nsdyn.simulate(problem, scheme, step=2e-2, law=laws.MuellerTransition(form), check=False)
        for form in ("lagrange", "redundant", "minimal")
    ]
    assert len(found[0].events) == 2
    for other in found[1:]:
        assert np.abs(other.v - found[0].v).max() < 1e-12


def test_refused_pairs_say_why():
    problem = problems.pendulum()
    with pytest.raises(nsdyn.ProblemError, match="rebounds"):
        nsdyn.simulate(problem, INDEX3, step=1e-2, law=laws.Restitution(0.5))
    with pytest.raises(nsdyn.ProblemError, match="projection=True"):
        nsdyn.simulate(ball(), MoreauJean(projection=False), step=1e-2)


def test_settings_are_checked_and_traced():
    for wrong in (
        lambda: NSGA(rho_inf=1.2),
        lambda: GeneralizedAlpha(rho_inf=-0.1),
        lambda: MoreauJean(theta=0.3),
    ):
        with pytest.raises(nsdyn.ProblemError, match="expected a number from"):
            wrong()
    for wrong in (lambda: NSGA(variant="fast"), lambda: GeneralizedAlpha(index=4)):
        with pytest.raises(nsdyn.ProblemError, match="expected"):
            wrong()
    assert (
        len(jax.tree.leaves(NSGA()))
        == len(jax.tree.leaves(GeneralizedAlpha()))
        == len(jax.tree.leaves(MoreauJean()))
        == 2  # the number of its own, and Newton's tolerance
    )
    assert jax.tree.structure(NSGA(0.2)) == jax.tree.structure(NSGA(0.9))
