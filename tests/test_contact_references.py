"""Moreau-Jean with contacts against files that Siconos publishes with its examples.

Values are the last rows of the `.ref` files in siconos-tutorials, examples/mechanics; the settings
are those of the examples: theta = 1/2, no projection, and a forecast of 1/2 or 1.
"""

import jax.numpy as jnp
import numpy as np
import pytest

import nsdyn
from nsdyn.integrators import MoreauJean
from nsdyn.laws import Newton

G = 9.81


def unit_mass(q, p):
    return jnp.eye(q.shape[0])


def weight(q, v, t, p):
    return jnp.full(q.shape, -G)


def run(system, contacts, q0, v0, t_end, step, law=None, max_events=128, **options):
    problem = nsdyn.Problem("reference", system, contacts, q0=q0, v0=v0, t_end=t_end)
    integrator = MoreauJean(projection=False, **options)
    return nsdyn.simulate(problem, integrator, step=step, law=law, max_events=max_events)


def close(found, digits):
    np.testing.assert_allclose(found, digits, rtol=0, atol=1e-11)


def height(q, t, p):
    return q


def test_bouncing_ball():
    """BouncingBall/BouncingBallTS.ref"""
    found = run(
        nsdyn.System(mass=unit_mass, force=weight),
        nsdyn.Contacts(height, e=0.9),
        [1.0],
        [0.0],
        10.0,
        0.005,
    )
    close(found.q[-1], [-2.288618090550717e-05])
    close(-0.005 * found.lam[-1], [4.905e-02])


def above_plane(q, t, p):
    return q[:1] - q[1:]


def driven(q, v, t, p):
    return v[1] - jnp.where(t > 0, 2 + jnp.cos(jnp.pi * t / 2), 0.0)


def test_ball_on_a_moving_plane():
    """BallOnMovingPlane/BallOnMovingPlane.ref: the plane is a body with a given velocity, 0 at the
    start"""
    found = run(
        nsdyn.System(mass=unit_mass, force=weight),
        (nsdyn.Nonholonomic(driven), nsdyn.Contacts(above_plane, e=0.9)),
        [1.0, 0.0],
        [0.0, 0.0],
        10.0,
        0.005,
    )
    close(found.q[-1, 0], 19.99325651020532)
    close(found.v[-1, 0], 1.082967032474691)


def between_beads(q, t, p):
    return jnp.concatenate([q[:1] - 0.1, q[1:] - q[:-1] - 0.2])


def pressed_beads(W, b):
    """P of 0 <= W P + b, P >= 0, P (W P + b) = 0, by exchanging the last row that is wrong
    (Murty's method, which ends for every positive definite W)."""
    active = np.zeros(len(b), bool)
    while True:
        P = np.zeros(len(b))
        P[active] = np.linalg.solve(W[np.ix_(active, active)], -b[active])
        wrong = np.where(active, P < 0, W @ P + b < -1e-16)
        if not np.any(wrong):
            return P
        active[np.flatnonzero(wrong)[-1]] ^= True


def beads_by_exchange(h, steps):
    """All rows of q and v of the column, by the scheme written out for it."""
    H = np.eye(10) - np.eye(10, k=-1)
    q, v = 1 + 0.25 * np.arange(10), np.zeros(10)
    rows = [(q, v)]
    for _ in range(steps):
        free = v - h * G
        on = np.flatnonzero(H @ q - np.r_[0.1, np.full(9, 0.2)] + h / 2 * H @ v <= 0)
        N = H[on]
        after = free + N.T @ pressed_beads(N @ N.T, N @ (free + 0.9 * v))
        q, v = q + h / 2 * (v + after), after
        rows.append((q, v))
    return map(np.array, zip(*rows, strict=True))


@pytest.mark.slow
def test_column_of_beads():
    """ColumnOfBeads/ColumnOfBeadsTS.ref: ten contacts. All rows equal those of an exact solution of
    the contacts, which agrees with all rows of the file to 4e-14."""
    found = run(
        nsdyn.System(mass=unit_mass, force=weight),
        nsdyn.Contacts(between_beads, e=0.9),
        1 + 0.25 * np.arange(10),
        np.zeros(10),
        2.0,
        5e-4,
        max_events=2000,
    )
    close(
        found.q[-1][[0, 1, 9]],
        [0.09999849387805411, 0.2999888947697228, 1.899974434589526],
    )
    q, v = beads_by_exchange(5e-4, 4000)
    close(q[-1][[0, 1, 9]], [0.09999849387805411, 0.2999888947697228, 1.899974434589526])
    close(found.q, q)
    close(found.v, v)


def disk_mass(q, p):
    return jnp.diag(jnp.array([1.0, 1.0, 0.4 * 0.5**2]))


def disk_weight(q, v, t, p):
    return jnp.array([-G, 0.0, 0.0])


def below_disk(q, t, p):
    return q[:1] - 0.5


def rolling(q, v, t, p):
    return v[1:2] - 0.5 * v[2:3]


def test_disk_with_friction():
    """2DRigidBodies/Ball2D_kernel_only_with_friction.ref: q = (height, x, angle)"""
    found = run(
        nsdyn.System(mass=disk_mass, force=disk_weight),
        nsdyn.Contacts(below_disk, rolling, mu=0.1, e=0.9),
        [1.0, 0.0, 0.0],
        [0.0, 0.0, 2.0],
        10.0,
        0.005,
        forecast=1.0,
    )
    close(found.q[-1][:2], [0.4999671039117577, 2.766428571428595])
    close(found.v[-1][1:], [0.2857142857142858, 0.5714285714285715])


def rod_mass(q, p):
    return jnp.diag(jnp.array([1.0, 1.0, 1 / 12]))


def rod_weight(q, v, t, p):
    return jnp.array([0.0, -10.0, 0.0])


def below_rod(q, t, p):
    return q[1:2] - 0.5 * jnp.cos(q[2:3])


def along_floor(q, v, t, p):
    return -v[:1] - 0.5 * jnp.cos(q[2:3]) * v[2:3]


def test_impacting_stick():
    """ImpactingStick/ImpactingStick.ref. In its first impact friction creates energy, 0.2 %."""
    a = np.pi / 4
    found = run(
        nsdyn.System(mass=rod_mass, force=rod_weight),
        nsdyn.Contacts(below_rod, along_floor, mu=0.01, e=1.0),
        [0.5 * np.sin(a), 0.5 * np.cos(a) + 0.01, a],
        [-0.5, 0.1, 0.1],
        0.2,
        1e-4,
        law=Newton(allow_energy_gain=True),
        contact_rows="start",
    )
    np.testing.assert_allclose(found.events.t, [0.0604, 0.1636])
    ratio = found.events.kinetic_after / found.events.kinetic_before
    np.testing.assert_allclose(ratio, [1.00206, 0.99918], atol=1e-5)
    impacts = np.flatnonzero(np.abs(found.lam[:, 0]) > 1)
    assert impacts.tolist() == [604, 1636]
    close(found.q[-1], [0.2529172311983667, 0.2471693300826099, 1.081891493988364])
    close(found.v[-1], [-0.5068672606709300, -1.213273932906967, 3.212070578753687])


def spring(q, v, t, p):
    return jnp.array([-q[0], -1.0])


def pressed(q, t, p):
    return q[1:]


def sliding(q, v, t, p):
    return v[:1]


def test_friction_oscillator():
    """FrictionOscillator/FrictionOscillator.ref: x'' = -x - sgn x'; here a unit weight presses"""
    found = run(
        nsdyn.System(mass=unit_mass, force=spring),
        nsdyn.Contacts(pressed, sliding, mu=1.0),
        [12.0, 0.0],
        [6.0, 0.0],
        100.0,
        0.01,
    )
    np.testing.assert_allclose(found.q[-1, 0], 0.6820441351954105, rtol=0, atol=1e-11)
    assert found.mode[-1] == [1]
