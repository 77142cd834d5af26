"""Constraints written twice or mixed change no motion, with any integrator and law; multipliers are
those of least norm."""

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from mechanisms import SWING, below_peg, circle, run

import nsdyn
from nsdyn import laws
from nsdyn.integrators import NSGA, RK4, EventDriven, GeneralizedAlpha, MoreauJean
from nsdyn.laws import (
    GrassmannMidGradient,
    IntermediateGradient,
    MuellerTransition,
    PostSwitchGradient,
)

# The first row of the second is the constraint itself: Coulomb's law measures the normal impulse by
# it.
MIX, SIDE_MIX = np.array([1.0, -0.7, 2.0]), np.array([1.0, 0.5, 1.3])


def side(q, t, p):
    return 0.5 * ((q[0] - 0.3) ** 2 + (q[1] + 0.6) ** 2 - 0.25)


def along_side(q, t, p):
    return jnp.array([[q[1] + 0.6, 0.3 - q[0]]])


def mixed_circle(q, t, p):
    return MIX * circle(q, t, p)


def mixed_side(q, t, p):
    return SIDE_MIX * side(q, t, p)


def kink(*modes):
    """From one circle to another that crosses it, with a jump."""
    constraint = nsdyn.Switching(modes=modes, switches=(below_peg,))
    params = {"m": 1.0, "g": 9.81}
    return nsdyn.Problem(
        "kink", SWING, constraint, q0=[0.8, -0.6], v0=[0.0, 0.0], t_end=0.6, params=params
    )


ONCE, THRICE = kink(circle, side), kink(mixed_circle, mixed_side)
RK4_EVENTS = EventDriven(RK4())


def least(rows, total):
    """The shortest multipliers of `rows` times one constraint whose multiplier is `total`."""
    return total[..., None] * rows / np.sum(rows**2)


def same_motion(integrator, law):
    one, three = (run(x, integrator, law=law, step=5e-3, max_events=2) for x in (ONCE, THRICE))
    assert (
        int(one.status) == int(three.status) == 0
        and int(one.events.count) == int(three.events.count) == 1
    )
    assert np.abs(one.q - three.q).max() < 1e-9 and np.abs(one.v - three.v).max() < 1e-9
    old = np.asarray(one.mode) == 0
    for rows, part in ((MIX, old), (SIDE_MIX, ~old)):
        expected = least(rows, np.asarray(one.lam)[part, 0])
        assert np.abs(np.asarray(three.lam)[part] - expected).max() < 1e-9 * np.abs(expected).max()
    impulse = lambda out: np.asarray(out.events.direction[0]).T @ np.asarray(out.events.Lam[0])
    assert np.abs(impulse(one) - impulse(three)).max() < 1e-12


@pytest.mark.slow
def test_event_driven():
    same_motion(RK4_EVENTS, PostSwitchGradient())


@pytest.mark.slow
@pytest.mark.parametrize(
    "integrator",
    [
        EventDriven(RK4("projected")),
        EventDriven(RK4("minimal")),
        EventDriven(GeneralizedAlpha(index=2)),
        *(GeneralizedAlpha(index=index) for index in (1, 2, 3)),
        *(NSGA(variant=variant) for variant in ("three-level", "velocity", "decoupled")),
        *(MoreauJean(projection=projection) for projection in (True, False)),
    ],
    ids=str,
)
def test_every_integrator(integrator):
    same_motion(integrator, PostSwitchGradient())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("integrator", "law"),
    [
        (RK4_EVENTS, MuellerTransition("redundant")),
        (RK4_EVENTS, MuellerTransition("minimal")),
        (RK4_EVENTS, GrassmannMidGradient()),
        (RK4_EVENTS, IntermediateGradient(0.75, metric="euclidean")),
        (RK4_EVENTS, laws.ZeroVelocity()),
        (RK4_EVENTS, laws.NonIdeal(along_side, mu=0.2)),
        (NSGA(), IntermediateGradient(0.75)),
        (NSGA(), laws.NonIdeal(along_side, mu=0.2)),
    ],
    ids=str,
)
def test_every_law(integrator, law):
    same_motion(integrator, law)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", [RK4_EVENTS, NSGA()], ids=["RK4", "NSGA"])
def test_derivatives_are_those_without_redundancy(integrator):
    def end(x, problem):
        out = nsdyn.rollout(
            problem, integrator, step=1e-2, params={"m": x[0], "g": x[1]}, max_events=2
        )
        return jnp.concatenate([out.q[-1], out.v[-1], out.events.v_after[0]])

    x = jnp.array([1.3, 9.81])
    one, three = (
        jax.jit(jax.jacfwd(lambda x, problem=problem: end(x, problem)))(x)
        for problem in (ONCE, THRICE)
    )
    assert np.abs(one).max() > 1e-2 and np.abs(one - three).max() < 1e-9


# One-sided contacts: a bar that falls on two feet, and on three in a line, of which one is too
# many.

BAR = nsdyn.System(
    mass=lambda q, p: jnp.diag(jnp.array([1.0, 0.4])),
    force=lambda q, v, t, p: jnp.stack([-9.81, p["torque"] * t]),
)


def two_feet(q, t, p):
    return q[0] + jnp.sin(q[1]) * jnp.array([-1.0, 1.0])


def three_feet(q, t, p):
    return q[0] + jnp.sin(q[1]) * jnp.array([-1.0, 0.0, 1.0])


def falls(gap, law, integrator, height=0.2, torque=0.0):
    params = {"torque": torque}
    problem = nsdyn.Problem(
        "bar", BAR, nsdyn.Contact(gap), q0=[height, 0.0], v0=[0.0, 0.0], t_end=0.5, params=params
    )
    return run(problem, integrator, law=law, step=1e-2, max_events=4)


def thirds(three, total):
    count = len(total)
    assert int(three.status) == 0 and int(three.events.count) == count
    assert (
        total.max() < -0.5 and np.abs(three.events.Lam[:count] - total[:, None] / 3).max() < 1e-12
    )


@pytest.mark.parametrize("e", [0.5, 0.0])
def test_a_foot_too_many(e):
    out = falls(three_feet, laws.Restitution(e), RK4_EVENTS)
    lands = np.sqrt(0.4 / 9.81)
    thirds(out, np.array([-(1 + e) * e**k * 9.81 * lands for k in range(2 if e else 1)]))
    t = np.asarray(out.t)
    flight = np.where(
        t < lands,
        0.2 - 4.905 * t**2,
        e * 9.81 * lands * (t - lands) - 4.905 * (t - lands) ** 2 * (e > 0),
    )
    once = t < lands * (1 + 2 * e) if e else t < np.inf
    assert (
        np.abs(np.asarray(out.q)[once, 0] - flight[once]).max() < 1e-12
        and np.abs(out.q[:, 1]).max() < 1e-12
    )
    if e == 0.0:  # at rest, every foot carries a third
        assert np.abs(np.asarray(out.lam[-1]) + 9.81 / 3).max() < 1e-9 and np.all(
            np.asarray(out.mode[-1]) == 1
        )


def test_the_bar_tips_over_its_outermost_foot():
    """One foot opens while the others still hold its gap at zero, and the middle one where the bar
    really tips."""
    out = falls(three_feet, laws.Restitution(0.0), RK4_EVENTS, height=0.0, torque=30.0)
    assert int(out.status) == 0 and int(out.events.count) == 2
    assert np.abs(out.events.t[:2] - np.array([6.54, 9.81]) / 30).max() < 1e-12
    assert np.array_equal(out.events.mode_after[:2], [[1, 1, 0], [1, 0, 0]]) and out.q[-1, 1] > 0.01
    gap = jax.vmap(lambda q: three_feet(q, 0.0, None))(out.q)
    assert np.abs(gap[:, 0]).max() < 1e-12 and np.all(np.diff(np.asarray(gap[34:, 2])) > 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "integrator", [RK4_EVENTS, NSGA(), MoreauJean()], ids=["RK4", "NSGA", "Moreau-Jean"]
)
def test_the_bar_tips_as_on_two_feet(integrator):
    two, three = (
        falls(gap, laws.Restitution(0.0), integrator, 0.0, 30.0) for gap in (two_feet, three_feet)
    )
    assert int(two.status) == int(three.status) == 0 and two.q[-1, 1] > 0.01
    assert np.abs(two.q - three.q).max() < 1e-12 and np.abs(two.v - three.v).max() < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("integrator", [NSGA(), MoreauJean()], ids=["NSGA", "Moreau-Jean"])
@pytest.mark.parametrize("e", [0.5, 0.0])
def test_a_foot_too_many_in_time_steps(integrator, e):
    two, three = (falls(gap, laws.Restitution(e), integrator) for gap in (two_feet, three_feet))
    thirds(three, np.sum(two.events.Lam[: int(two.events.count)], axis=1))
    assert np.abs(two.q - three.q).max() < 1e-12 and np.abs(two.v - three.v).max() < 1e-12


# The laws by themselves: m constraints of n = 5 coordinates, written as five mixed rows.


@st.composite
def switches(draw):
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    m = draw(st.sampled_from([1, 2, 3]))
    A = rng.normal(size=(5, 5))
    before, after = rng.normal(size=(2, m, 5))
    mix = lambda rows: rng.normal(size=(5, m)) @ rows
    v = rng.normal(size=5)
    M = A @ A.T + np.eye(5)
    v = v - np.linalg.solve(M, before.T) @ np.linalg.solve(
        before @ np.linalg.solve(M, before.T), before @ v
    )
    return M, before, after, mix(before), mix(after), v


@given(
    switches(),
    st.sampled_from([PostSwitchGradient(), laws.Restitution(0.4), IntermediateGradient(0.75)]),
)
def test_mixed_rows_in_laws(switch, law):
    M, before, after, mixed_before, mixed_after, v = switch
    pad = lambda rows: (np.vstack([rows, np.zeros((5 - len(rows), 5))]), np.arange(5) < len(rows))
    (G0, on0), (G1, on1) = pad(before), pad(after)
    plain = law.jump(M, G0, G1, v, on_before=on0, on_after=on1)
    mixed = law.jump(M, mixed_before, mixed_after, v)
    scale = max(np.abs(plain.v_after).max(), 1.0)
    assert np.abs(plain.v_after - mixed.v_after).max() < 1e-8 * scale
    D, Lam = np.asarray(mixed.direction), np.asarray(mixed.Lam)
    shortest = np.linalg.pinv(D.T, rcond=1e-9) @ (D.T @ Lam)
    assert np.abs(shortest - Lam).max() < 1e-8 * max(np.abs(Lam).max(), 1.0)
