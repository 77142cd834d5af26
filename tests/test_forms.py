"""Every form of constraint and system, one small mechanism each."""

import jax
import jax.numpy as jnp
import numpy as np
from mechanisms import PARTICLE, SWING, circle, level, run

import nsdyn
from nsdyn import integrators

RK4 = integrators.EventDriven(integrators.RK4())


# A joint that sticks: sliding friction held by the mode, guards on rate and on holding force.


def stick_force(q, v, t, p, mode):
    sliding = jnp.array([-1.0, 1.0, 0.0])[mode] * p["mu"]
    return (sliding + jnp.sin(t))[None]


def stick_guards(q, v, lam, t, p, mode, held):
    margin = p["mu"] - jnp.abs(lam[0])
    return jnp.where(mode == 0, v[0], jnp.where(mode == 1, -v[0], margin))[None]


def stick_after(fired, q, v, t, p, mode):
    return jnp.where(mode == 2, jnp.where(jnp.sin(t) > 0, 0, 1), 2)


def test_velocity_guard_sticks_and_breaks_loose():
    brake = nsdyn.Transitions(
        rows=lambda q, t, p, mode, held: q - held,
        guards=stick_guards,
        after=stick_after,
        live=lambda mode, p: (mode == 2)[None],
        hold=lambda q, t, p: q,
    )
    system = nsdyn.System(mass=lambda q, p: jnp.eye(1), force=stick_force)
    mu = 0.8
    problem = nsdyn.Problem(
        "brake", system, brake, q0=[0.0], v0=[1.0], t_end=8.0, params={"mu": mu}
    )
    out = run(problem, RK4, step=1e-2)
    n = int(out.events.count)
    assert int(out.status) == 0 and n == 4
    assert np.asarray(out.events.mode_after[:4]).tolist() == [2, 1, 2, 0]
    t = np.asarray(out.events.t[:4])
    # slides until 2 - cos t - mu t = 0; breaks loose where |sin t| = mu; and again, mirrored in
    # time
    assert abs(2 - np.cos(t[0]) - mu * t[0]) < 1e-9
    assert (
        abs(t[1] - (np.pi + np.arcsin(mu))) < 1e-9
        and abs(t[3] - (2 * np.pi + np.arcsin(mu))) < 1e-9
    )
    stuck = (np.asarray(out.t) > t[0]) & (np.asarray(out.t) < t[1])
    assert (
        np.ptp(np.asarray(out.q)[stuck]) < 1e-14 and np.abs(np.asarray(out.v)[stuck]).max() < 1e-15
    )


# A table of modes: cost must not grow with their number.


def table_rows(q, t, p, mode, held):
    return (q[1] - p["y"][mode] - p["slope"][mode] * (q[0] - p["x"][mode]))[None]


def table_guards(q, v, lam, t, p, mode, held):
    return (p["x"][mode + 1] - q[0])[None]


def table_after(fired, q, v, t, p, mode):
    return mode + 1


def table_track(count):
    x = 0.1 * np.arange(count + 1)
    slope = 0.3 * np.sin(np.arange(count + 1))
    y = np.concatenate([[0.0], np.cumsum(slope[:-1] * 0.1)])
    constraint = nsdyn.Transitions(rows=table_rows, guards=table_guards, after=table_after)
    params = {"x": x, "y": y, "slope": slope, "m": 1.0, "g": 0.0}
    return nsdyn.Problem(
        "table", PARTICLE, constraint, q0=[0.0, 0.0], v0=[1.0, slope[0]], t_end=1.5, params=params
    )


def test_table_of_64_modes():
    """Several switches in one step; the same answer on a fine and on a coarse grid."""
    coarse, fine = (run(table_track(64), RK4, step=h) for h in (0.25, 0.02))
    n = int(fine.events.count)
    assert int(coarse.status) == 0 and int(coarse.events.count) == n > 10
    assert np.abs(np.asarray(coarse.events.t[:n] - fine.events.t[:n])).max() < 1e-13
    assert np.abs(np.asarray(coarse.q[-1] - fine.q[-1])).max() < 1e-13
    speed = 1.0
    slopes = np.asarray(table_track(64).params["slope"])
    for k in range(n):  # the speed loses the cosine of each corner
        speed *= np.sqrt(1 + slopes[0] ** 2) if k == 0 else 1.0
        speed *= np.cos(np.arctan(slopes[k + 1]) - np.arctan(slopes[k]))
    assert abs(np.linalg.norm(fine.v[-1]) - speed) < 1e-12


def test_the_program_does_not_grow_with_the_modes():
    size = lambda count: str(
        jax.make_jaxpr(lambda v: nsdyn.rollout(table_track(count), RK4, step=0.25, v0=v).q)(
            jnp.ones(2)
        )
    )
    assert size(64).count(" = ") == size(2).count(" = ")  # lines are broken by their length


# A free rigid body in quasi-velocities with a quaternion.


def body_mass(q, p):
    return jnp.diag(p["I"])


def body_force(q, v, t, p):
    return -jnp.cross(v, p["I"] * v)


def body_rate(q, v, p):
    """q' = 1/2 q (0, omega), quaternion scalar first, omega in the body frame."""
    s, x = q[0], q[1:]
    return 0.5 * jnp.concatenate([-jnp.vdot(x, v)[None], s * v + jnp.cross(x, v)])


def rotation(q):
    s, x, y, z = q
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - s * z), 2 * (x * z + s * y)],
            [2 * (x * y + s * z), 1 - 2 * (x * x + z * z), 2 * (y * z - s * x)],
            [2 * (x * z - s * y), 2 * (y * z + s * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def test_free_rigid_body_in_quasi_velocities():
    system = nsdyn.System(mass=body_mass, force=body_force, kinematics=body_rate)
    inertia = np.array([1.0, 2.0, 3.5])
    q0, v0 = [1.0, 0.0, 0.0, 0.0], [0.3, 2.0, 0.1]
    problem = nsdyn.Problem("body", system, None, q0=q0, v0=v0, t_end=5.0, params={"I": inertia})
    errors = []
    for h in (0.02, 0.01):
        out = run(problem, RK4, step=h)
        momentum = [
            rotation(np.asarray(q)) @ (inertia * np.asarray(v))
            for q, v in zip(out.q, out.v, strict=True)
        ]
        errors.append(np.abs(np.array(momentum) - inertia * np.array(v0)).max())
    assert errors[1] < 1e-6 and np.log2(errors[0] / errors[1]) > 3.9
    assert np.ptp(out.energy) < 1e-7


def spin_axis(q, t, p):
    """The body's z-axis stays in the plane x = 0 of the world."""
    return 2 * (q[1] * q[3] + q[0] * q[2])


def test_constraint_on_a_quaternion():
    """G = g_q d(q')/dv: the constraint holds at both levels, and energy is kept."""
    system = nsdyn.System(mass=body_mass, force=body_force, kinematics=body_rate)
    problem = nsdyn.Problem(
        "hinge",
        system,
        nsdyn.Fixed(spin_axis),
        q0=[1.0, 0, 0, 0],
        v0=[1.0, 0.0, 2.0],
        t_end=2.0,
        params={"I": np.array([1.0, 2, 3])},
    )
    out = run(problem, RK4, step=0.01)
    axis = np.array([rotation(np.asarray(q))[0, 2] for q in out.q])
    assert np.abs(axis).max() < 1e-13 and np.ptp(out.energy) < 1e-7


# Non-holonomic: a skate.


def skate(q, v, t, p):
    return jnp.sin(q[2]) * v[0] - jnp.cos(q[2]) * v[1]


def test_skate_runs_in_a_circle():
    system = nsdyn.System(
        mass=lambda q, p: jnp.diag(jnp.array([1.0, 1.0, 0.2])),
        force=lambda q, v, t, p: jnp.zeros(3),
    )
    problem = nsdyn.Problem(
        "skate",
        system,
        nsdyn.Nonholonomic(skate),
        q0=[0.0, 0.0, 0.0],
        v0=[1.0, 0.0, 2.0],
        t_end=3.0,
    )
    out = run(problem, RK4, step=0.01)
    t = np.asarray(out.t)
    exact = np.stack([np.sin(2 * t) / 2, (1 - np.cos(2 * t)) / 2, 2 * t], axis=1)
    assert np.abs(np.asarray(out.q) - exact).max() < 1e-8
    assert np.ptp(out.energy) < 1e-10


# A tuple: all parts hold together, one mode per part.


def test_tuple_of_loop_and_schedule():
    parts = (
        nsdyn.Fixed(circle),
        nsdyn.Scheduled(times=(0.2, 0.3), stages=(None, nsdyn.lock(0), None)),
    )
    problem = nsdyn.Problem(
        "both", SWING, parts, q0=[0.8, -0.6], v0=[0.0, 0.0], t_end=0.5, params={"m": 1.0, "g": 9.81}
    )
    out = run(problem, RK4, step=0.01)
    assert int(out.status) == 0 and out.mode.shape == (51, 2)
    assert np.asarray(out.mode[-1]).tolist() == [0, 2] and np.asarray(
        out.events.mode_after[:2]
    ).tolist() == [
        [0, 1],
        [0, 2],
    ]
    held = (np.asarray(out.t) >= 0.2 - 1e-12) & (np.asarray(out.t) <= 0.3 + 1e-12)
    assert (
        np.abs(np.asarray(out.v)[held]).max() < 1e-13
    )  # a locked coordinate stops the one-DOF pendulum
    assert (
        np.abs(out.events.v_before[1] - out.events.v_after[1]).max() < 1e-30
    )  # release changes nothing
    assert np.linalg.norm(out.v[-1]) > 0.5


def stops(q, p):
    return q[0] ** 2 + q[1]


def test_lock_of_a_function_of_q():
    problem = nsdyn.Problem(
        "function",
        PARTICLE,
        nsdyn.Scheduled(times=lambda p: p["when"], stages=(None, nsdyn.lock(stops))),
        q0=[0.0, 1.0],
        v0=[1.0, 0.0],
        t_end=0.5,
        params={"m": 1.0, "g": 9.81, "when": [0.105]},
    )
    out = run(problem, RK4, step=0.01)
    after = np.asarray(out.t) > 0.105
    value = np.asarray(out.q[:, 0]) ** 2 + np.asarray(out.q[:, 1])
    assert abs(float(out.events.t[0]) - 0.105) < 1e-16 and np.ptp(value[after]) < 1e-13


def test_capture_is_latched():
    constraint = nsdyn.Switching(modes=(None, level), switches=(lambda q, p: -q[1],), latch=True)
    problem = nsdyn.Problem(
        "capture",
        PARTICLE,
        constraint,
        q0=[0.0, 1.0],
        v0=[1.0, 0.0],
        t_end=1.0,
        params={"m": 1.0, "g": 9.81},
    )
    out = run(problem, RK4, step=1e-2)
    assert (
        int(out.status) == 0
        and int(out.events.count) == 1
        and np.allclose(out.q[-1], [1.0, 0.0], atol=1e-14)
    )


# Lagrangian input.


def double_kinetic(q, v, p):
    x1, x2 = v[0], v[0] + v[1]
    return 0.5 * (2 * x1**2 + x2**2 + 2 * x1 * x2 * jnp.cos(q[1]))


def double_potential(q, p):
    return p["g"] * (2 * jnp.sin(q[0]) + jnp.sin(q[0] + q[1]))


def test_system_from_lagrangian_keeps_its_energy():
    system = nsdyn.System.from_lagrangian(double_kinetic, double_potential)
    problem = nsdyn.Problem(
        "double", system, None, q0=[0.3, 0.4], v0=[0.0, 1.0], t_end=1.0, params={"g": 9.81}
    )
    out = run(problem, RK4, step=1e-3)
    assert np.ptp(out.energy) < 1e-7 and np.ptp(out.q[:, 1]) > 0.1
