"""Time-stepping schemes through a switch: what the nonsmooth ones get right in one step, and how
the classical ones fail."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import run

import nsdyn
from nsdyn import laws, problems
from nsdyn.integrators import NSGA, EventDriven, GeneralizedAlpha, MoreauJean
from nsdyn.status import Status

STEP, SLOPE, SPEED = 0.01, 0.5, 3.0
ANGLE = np.arctan(SLOPE)
NONSMOOTH = {
    "three-level": NSGA(),
    "velocity": NSGA(variant="velocity"),
    "decoupled": NSGA(variant="decoupled"),
    "Moreau-Jean": MoreauJean(),
    "Moreau-Jean, no projection": MoreauJean(projection=False),
    "event-driven": EventDriven(GeneralizedAlpha(index=2)),
}
# The corner early, in the middle and late in a step of 0.03, and on the grid itself.
PLACES = (0.4801, 0.4862, 0.495, 0.5098, 0.51)


@eqx.filter_jit
def single(integrator, law, params, t_end):
    own = problems.point_on_track(a=SLOPE, v0=SPEED, t_end=t_end)
    return nsdyn.rollout(own, integrator, step=STEP, law=law, params=params, max_events=4)


def batch(cases, t_end):
    """Runs for (integrator, E, l, my, g), stacked. Not a vmap: one program run many times compiles
    in half the time."""
    own = problems.point_on_track(a=SLOPE)
    runs = []
    for integrator, position, *values in cases:
        params = {
            **own.params,
            **{k: jnp.asarray(x) for k, x in zip(("l", "my", "g"), values, strict=True)},
        }
        runs.append(single(integrator, laws.IntermediateGradient(position=position), params, t_end))
    return jax.tree.map(lambda *x: np.stack(x), *runs)


def combinations(*columns):
    """All combinations, as one vector for each column."""
    return [x.ravel() for x in np.meshgrid(*map(np.array, columns), indexing="ij")]


@jax.jit
@jax.vmap
def jumps(position, my, v):
    mass = jnp.diag(jnp.stack([jnp.ones_like(my), my]))
    G_before, G_after = jnp.array([[0.0, 1.0]]), jnp.array([[-SLOPE, 1.0]])
    return laws.IntermediateGradient(position=position).jump(mass, G_before, G_after, v).v_after


RELATED = ("velocity", "Moreau-Jean, no projection")  # each has a sibling among the ordinary tests


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.slow] * (x in RELATED)) for x in NONSMOOTH]
)
def test_the_law_holds_from_the_first_step_after_the_switch(name):
    """|v+| = v0 cos(E th)/cos((1 - E) th) wherever in the step the corner falls; with M = diag(1,
    4) what `law.jump` says."""
    E, l, my, g = combinations((0.5, 0.75, 1.0), PLACES, (1.0, 4.0), (0.0, 9.81))
    out = batch([(NONSMOOTH[name], *case) for case in zip(E, l, my, g, strict=True)], 0.35)
    assert np.all(out.status == 0) and np.all(out.events.count == 1)
    event = jax.tree.map(lambda x: x[:, 0], out.events.records)
    expected = np.asarray(jumps(*map(jnp.asarray, (E, my, event.v_before))))
    assert np.abs(expected - event.v_after).max() < 1e-12 * SPEED
    momentum = np.stack([np.ones_like(my), my], axis=1) * (event.v_after - event.v_before)
    assert (
        np.abs(momentum + np.einsum("kmn,km->kn", event.direction, event.Lam)).max() < 1e-12 * SPEED
    )
    normal = np.array([-SLOPE, 1.0])
    for k in range(len(E)):
        after = out.mode[k] == 1
        assert 0 < np.argmax(after) < len(after) - 1
        v, q = out.v[k][after], out.q[k][after]
        assert np.abs(v @ normal).max() < 1e-13 * SPEED
        gap = np.abs(q @ normal + SLOPE * l[k]).max()
        assert gap < (1e-13 if name != "Moreau-Jean, no projection" else STEP * SPEED * SLOPE)
        if g[k] == 0.0:  # no force: the free velocity is the velocity before, and the speed stays
            assert np.abs(event.v_before[k] - [SPEED, 0.0]).max() < 1e-13
            assert np.abs(v - expected[k]).max() < 1e-12 * SPEED
            if my[k] == 1.0:
                exact = SPEED * np.cos(E[k] * ANGLE) / np.cos((1 - E[k]) * ANGLE)
                assert np.abs(np.linalg.norm(v, axis=1) - exact).max() < 1e-12 * SPEED


def classical(index, *columns):
    """Without gravity; what there is of g+, G+ v and speed after the switch, run by run."""
    rho, E, l = combinations(*columns)
    scheme = lambda rho: GeneralizedAlpha(index=index, rho_inf=float(rho))
    out = batch([(scheme(r), e, x, 1.0, 0.0) for r, e, x in zip(rho, E, l, strict=True)], 0.7)
    assert np.all(out.status == 0)
    after = [mode == 1 for mode in out.mode]
    pick = lambda x: [row[a] for row, a in zip(x, after, strict=True)]
    normal = np.array([-SLOPE, 1.0])
    Gv = [v @ normal / SPEED for v in pick(out.v)]
    g = [q @ normal + SLOPE * corner for q, corner in zip(pick(out.q), l, strict=True)]
    return (rho, E, l), pick(out.t), Gv, g, [np.linalg.norm(v, axis=1) / SPEED for v in pick(out.v)]


def test_index_1_feels_no_switch_and_drifts_linearly():
    (_, _, l), t, Gv, g, speed = classical(1, (0.8,), (0.5, 1.0), (0.6, 0.605))
    for k in range(len(l)):
        assert np.abs(Gv[k] + SLOPE).max() < 1e-12  # as before the switch, for ever
        assert np.abs(g[k] + SLOPE * (SPEED * t[k] - l[k])).max() < 1e-12
        assert np.abs(speed[k] - 1.0).max() < 1e-12
    assert abs(g[0][-1] + 0.75) < 1e-12


def test_index_2_keeps_a_gap_and_has_the_wrong_speed_for_E_below_1():
    radii, positions = (0.2, 0.5, 0.8, 1.0), (0.5, 0.8, 1.0)
    (rho, E, l), _, Gv, g, speed = classical(2, radii, positions, (0.49, 0.502))
    am, af = (2 * rho - 1) / (rho + 1), rho / (rho + 1)
    k = (0.5 + af - am) * (1 - af) / (1 - am)
    law = np.cos(E * ANGLE) / np.cos((1 - E) * ANGLE)
    wrong = law + (1 / k - 1) * np.sin(ANGLE) * np.tan((1 - E) * ANGLE)
    for i in range(len(l)):
        assert np.abs(Gv[i]).max() < 1e-13
        assert np.abs(g[i]).min() > 0 and np.abs(g[i]).max() < 1.001 * STEP * SPEED * SLOPE
        if rho[i] < 1.0:  # without damping the memory of the step never fades
            assert abs(speed[i][-1] - wrong[i]) < 1e-12
    at_half = np.isclose(E, 0.5) & np.isclose(rho, 0.8)
    assert np.allclose(
        [s[-1] for s, yes in zip(speed, at_half, strict=True) if yes], 1.1017, atol=5e-5
    )


def test_index_3_rings():
    (rho, _, l), _, Gv, g, speed = classical(
        3, (0.0, 0.5, 0.8), (0.5, 1.0), np.linspace(0.4801, 0.5099, 8)
    )
    residuals = {
        r: max(np.abs(Gv[k][0]) for k in range(len(l)) if rho[k] == r) for r in (0.0, 0.5, 0.8)
    }
    assert all(np.abs(x).max() < 1e-13 for x in g)
    assert residuals[0.8] > 0.9 * SLOPE  # up to all of what it should remove
    k = int(np.argmax([abs(x[0]) if r == 0.8 else 0.0 for x, r in zip(Gv, rho, strict=True)]))
    ringing = Gv[k][:20]
    assert (
        np.all(ringing[:-1] * ringing[1:] < 0) and abs(ringing[19]) > 0.01 * SLOPE
    )  # alternates, fades slowly
    damped = [k for k in range(len(l)) if rho[k] == 0.0]
    assert all(np.abs(Gv[k][4:]).max() < 1e-10 for k in damped)
    assert np.ptp([s[-1] for s in speed]) > 0.1  # where the corner falls decides, not the law


def test_a_corner_that_turns_back_ends_the_run():
    """Beyond the tip of the wedge neither line is there: no mode agrees with its own switching
    function."""
    problem = problems.point_on_track(shape="wedge", g=0.0, t_end=0.5)
    out = run(problem, NSGA(), step=STEP, law=laws.GrassmannMidGradient(), max_events=4)
    assert Status(int(out.status)) is Status.LEADS_BACK
    assert abs(float(out.t_stop) - 0.125) < 2.5 * STEP


def test_a_step_too_long_for_newton_ends_with_time_and_size_and_keeps_what_it_had():
    def sinking(q, t, p):
        return q[0] ** 2 + t - 1.004  # no solution after t = 1.004

    def mass(q, p):
        return jnp.eye(2)

    def force(q, v, t, p):
        return jnp.zeros(2)

    system = nsdyn.System(mass=mass, force=force)
    problem = nsdyn.Problem(
        "sinking",
        system,
        nsdyn.Fixed(sinking),
        q0=[np.sqrt(1.004), 0.0],
        v0=[-0.5 / np.sqrt(1.004), 1.0],
        t_end=2.0,
    )
    with pytest.raises(
        nsdyn.SimulationError, match=r"NOT_CONVERGED.*smaller step.*last change"
    ) as caught:
        nsdyn.simulate(problem, NSGA(), step=0.01)
    error = caught.value
    assert error.status is Status.NOT_CONVERGED and 0.9 < error.t <= 1.00404
    assert abs(error.partial.t[-1] - error.t) < 1e-12 and np.all(np.isfinite(error.partial.q))
    assert np.abs(error.partial.q[:, 0] ** 2 + error.partial.t - 1.004).max() < 1e-10
    assert error.partial.iterations > 0
