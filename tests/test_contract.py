"""The public contract, line by line: what other people's scripts call."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import (
    PARTICLE,
    corner,
    level,
    plane_force,
    plane_mass,
    plane_potential,
    slope,
    track,
)

import nsdyn
from nsdyn import integrators, laws, problems

RK4 = integrators.EventDriven(integrators.RK4())


@pytest.fixture(scope="module")
def trajectory():
    return nsdyn.simulate(track(), RK4, step=1e-2)


def test_constructors():
    system = nsdyn.System(mass=plane_mass, force=plane_force, potential=plane_potential)
    nsdyn.System(
        mass=plane_mass,
        force=plane_force,
        solve=lambda q, b, p: b / p["m"],
        kinematics=lambda q, v, p: v,
    )
    nsdyn.System.from_lagrangian(
        lambda q, v, p: 0.5 * jnp.vdot(v, v), lambda q, p: q[1], applied=None
    )
    forms = [
        None,
        nsdyn.Fixed(level),
        nsdyn.Nonholonomic(lambda q, v, t, p: v[1:]),
        nsdyn.Switching(modes=(level, slope), switches=(corner,)),
        nsdyn.Switching(modes=(level, slope), switches=(lambda q, p: -corner(q, p), corner)),
        nsdyn.Scheduled(times=(0.8, 1.3), stages=(None, nsdyn.lock(1), nsdyn.lock(0, 1))),
        nsdyn.Scheduled(times=lambda p: p["times"], stages=(None, (level, nsdyn.lock(0)))),
        nsdyn.Contact(lambda q, t, p: q[1:]),
        (
            nsdyn.Fixed(level),
            nsdyn.Scheduled(times=(0.1,), stages=(None, nsdyn.lock(lambda q, p: q[0]))),
        ),
        nsdyn.Transitions(
            rows=lambda q, t, p, mode, held: q[1:] - held,
            guards=lambda q, v, lam, t, p, mode, held: q[:1],
            after=lambda fired, q, v, t, p, mode: mode + 1,
            live=lambda mode, p: (mode == 1)[None],
            hold=lambda q, t, p: q[1:],
            mode0=0,
        ),
    ]
    params = {"m": 1.0, "g": 1.0, "a": 0.5, "l": 0.5, "times": jnp.array([0.1])}
    for constraint in forms:
        problem = nsdyn.Problem(
            name="form",
            system=system,
            constraint=constraint,
            q0=[0.1, 0.0],
            v0=[1.0, 0.0],
            t0=0.0,
            t_end=2.0,
            params=params,
        )
        assert problem.name == "form" and problem.t_end == 2.0


def test_trajectory_fields(trajectory):
    assert trajectory.t.shape == (41,) and trajectory.q.shape == trajectory.v.shape == (41, 2)
    assert trajectory.lam.shape == (41, 1) and trajectory.mode.shape == trajectory.energy.shape == (
        41,
    )
    assert trajectory.t[0] == 0.0 and trajectory.t[-1] == 0.4


def test_event_records(trajectory):
    events = trajectory.events
    assert len(events) == 1 and len(list(events)) == 1 and events.v_after.shape == (1, 2)
    record = events[0]
    assert record.mode_before == 0 and record.mode_after == 1 and events.t[0] == record.t
    assert record.q.shape == record.v_before.shape == record.v_after.shape == (2,)
    assert record.Lam.shape == (1,) and record.direction.shape == (1, 2)
    balance = record.v_after - record.v_before + record.direction.T @ record.Lam
    assert np.abs(balance).max() < 1e-14
    lost = record.kinetic_before - record.kinetic_after
    assert np.isclose(lost, 0.5 * 16 * np.sin(np.arctan(0.5)) ** 2)


def test_save_load_xarray_plot(trajectory, tmp_path):
    trajectory.save(tmp_path / "run.nc")
    again = nsdyn.load(tmp_path / "run.nc")
    assert np.array_equal(again.q, trajectory.q) and np.array_equal(
        again.events.Lam, trajectory.events.Lam
    )
    assert trajectory.to_xarray().sizes
    trajectory.plot().savefig(tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 1000


def test_rollout_is_pure_and_its_events_have_fixed_capacity():
    problem = track()
    arguments = {
        "step": 1e-2,
        "law": laws.PostSwitchGradient(),
        "params": problem.params,
        "save_every": 10,
        "max_events": 7,
    }
    out = jax.jit(lambda q0, v0: nsdyn.rollout(problem, RK4, q0=q0, v0=v0, **arguments))(
        problem.q0, problem.v0
    )
    assert out.events.t.shape == (7,) and int(out.events.count) == 1 and int(out.status) == 0
    assert out.t.shape == (5,)


def test_sweep():
    problem = track()
    speeds = jnp.stack([jnp.array([4.0, 0.0]), jnp.array([5.0, 0.0]), jnp.array([1.0, 0.0])])
    out = nsdyn.sweep(
        problem,
        RK4,
        step=1e-2,
        law=laws.PostSwitchGradient(),
        params=problem.params,
        v0=speeds,
        save_every=40,
    )
    assert out.q.shape == (3, 2, 2) and np.asarray(out.events.count).tolist() == [1, 1, 0]


def test_integrators_and_laws_take_their_settings():
    for formulation in ("lagrange", "projected", "minimal"):
        integrators.EventDriven(integrators.RK4(formulation=formulation))
    for form in ("lagrange", "redundant", "minimal"):
        laws.MuellerTransition(form=form)
    assert isinstance(laws.ZeroVelocity(), laws.AbstractLaw) and isinstance(
        laws.PostSwitchGradient(), laws.AbstractLaw
    )
    for index in (1, 2, 3):
        integrators.EventDriven(integrators.GeneralizedAlpha(index=index, rho_inf=0.5))
    for variant in ("three-level", "velocity", "decoupled"):
        integrators.NSGA(rho_inf=0.8, variant=variant)
    integrators.MoreauJean(theta=0.5, projection=False)
    defaults = (integrators.GeneralizedAlpha(), integrators.NSGA(), integrators.MoreauJean())
    assert [float(jax.tree.leaves(x)[0]) for x in defaults] == [0.8, 0.8, 0.5]
    for metric in ("mass", "euclidean"):
        laws.GrassmannMidGradient(metric=metric)
        laws.IntermediateGradient(position=0.75, metric=metric)
    # numbers in laws and integrators are traced leaves
    e = laws.Restitution(0.5)
    assert len(jax.tree.leaves(e)) == 1 and jax.tree.structure(e) == jax.tree.structure(
        laws.Restitution(0.6)
    )


def test_law_jump_signature():
    jump = laws.Restitution(0.5).jump(
        M=jnp.eye(2),
        G_before=jnp.zeros((0, 2)),
        G_after=jnp.array([[0.0, 1.0], [1.0, 0.0]]),
        v_before=jnp.array([1.0, -2.0]),
        gt_after=None,
        U=None,
        on_before=None,
        on_after=jnp.array([True, False]),
        solve=None,
    )
    assert (
        np.allclose(jump.v_after, [1.0, 1.0])
        and np.allclose(jump.Lam, [-3.0, 0.0])
        and np.all(jump.direction[1] == 0)
    )


def test_non_ideal_law():
    """The record balances with the tangential impulse in it: M (v+ - v-) + direction^T Lam = U."""
    arguments = (jnp.eye(2), jnp.zeros((0, 2)), jnp.array([[0.0, 1.0]]), jnp.array([3.0, -4.0]))
    jump = laws.NonIdeal(tangents=jnp.array([[1.0, 0.0]]), mu=0.5).jump(*arguments)
    assert np.allclose(jump.v_after, [1.0, 0.0]) and np.allclose(jump.Lam, [-4.0])
    assert np.abs(jump.v_after - arguments[3] + jump.direction.T @ jump.Lam).max() < 1e-14
    assert np.allclose(
        laws.NonIdeal(tangents=[[1.0, 0.0]], beta=[-2.0]).jump(*arguments).v_after, jump.v_after
    )


def test_transition_report(trajectory):
    found = nsdyn.transition_report(track(), trajectory.events[0])
    plain = nsdyn.transition_report(np.eye(2), [[0.0, 1.0]], [[-0.5, 1.0]], [4.0, 0.0])
    assert np.allclose(found.P_c, plain.P_c) and found.xi == pytest.approx(
        plain.xi
    ) == pytest.approx(0.2)
    assert "xi = T_c/T" in str(found)


def test_problem_registry():
    assert "three_r_pendulum" in problems.names()
    assert problems.get("three_r_pendulum", m=50.0).params["m"] == 50.0
    assert problems.three_r_pendulum().name == "three_r_pendulum"


@pytest.mark.parametrize(
    "name",
    [
        "point_on_track",
        "wheel_over_pothole",
        "segmented_track",
        "pendulum",
        "rx130l",
        "emergency_stop",
        "rimless_wheel",
        "compass_walker",
        "simplest_walker",
        "metamorphic_palm",
        "overbraiding",
    ],
)
def test_problem_is_registered(name):
    assert (
        name in problems.names()
        and problems.get(name).name == name == getattr(problems, name)().name
    )


def test_problem_factories_share_functions():
    """Nothing recompiles: two problems of one factory differ in arrays only."""
    a, b = problems.three_r_pendulum(), problems.three_r_pendulum(m=1.0, locks=(0.1, 0.2))
    assert jax.tree.structure(a) == jax.tree.structure(b)


def test_a_model_that_closes_over_a_traced_value_is_refused():
    def energy(a):
        bent = nsdyn.Fixed(lambda q, t, p: q[1] - a * q[0])
        problem = nsdyn.Problem(
            "bent",
            PARTICLE,
            bent,
            q0=[0.0, 0.0],
            v0=[1.0, a],
            t_end=0.1,
            params={"m": 1.0, "g": 1.0},
        )
        return nsdyn.rollout(problem, RK4, step=0.1).energy[-1]

    with pytest.raises(nsdyn.ProblemError, match="params"):
        jax.grad(energy)(0.5)


def test_float64_is_enabled():
    assert jnp.zeros(1).dtype == jnp.float64
