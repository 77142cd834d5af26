"""What `problem.check()` finds where a mechanism switches."""

import jax.numpy as jnp
import numpy as np
import pytest

from nsdyn import (
    Fixed,
    Nonholonomic,
    Problem,
    ProblemError,
    Scheduled,
    Switching,
    System,
    Transitions,
    lock,
)
from nsdyn.problems.three_r_pendulum import three_r_pendulum

SLOPE, CORNER = 0.5, 0.5


def refused(problem, *words):
    with pytest.raises(ProblemError) as caught:
        problem.check()
    for word in words:
        assert word in str(caught.value), str(caught.value)


def found(report, *words):
    """The lines that have all the words."""
    return [line for line in report.lines if all(word in " ".join(line) for word in words)]


# A particle in the plane whose track has a corner at x = l.

PLANE = System(lambda q, p: jnp.eye(2), lambda q, v, t, p: jnp.array([0.0, -9.81]))


def flat(q, t, p):
    return q[1:]


def ramp(q, t, p):
    return q[1:] - SLOPE * (q[:1] - CORNER) + p


def past_corner(q, p):
    return q[0] - CORNER


def track(
    modes=(flat, ramp),
    switches=(past_corner,),
    latch=False,
    offset=0.0,
    q0=(0.0, 0.0),
    v0=(4.0, 0.0),
    more=(),
):
    constraint = (Switching(modes, switches, latch=latch), *more)
    return Problem("track", PLANE, constraint, q0=q0, v0=v0, t_end=0.5, params=offset)


def test_good_track_is_reported_in_both_directions():
    report = track().check()
    assert report.ok
    assert found(report, "ok", "from mode 0 (flat) to mode 1 (ramp)", "[0.5, 0]")
    assert found(report, "ok", "from mode 1 (ramp) to mode 0 (flat)", "[0.5, 0]")


APART = (lambda q, p: CORNER - q[0], lambda q, p: q[0] - 2 * CORNER)  # positive in no mode between


@pytest.mark.parametrize("v0", [(4.0, 0.0), (0.0, 0.0)])
def test_modes_that_do_not_meet(v0):
    words = (
        "Switching(modes=..., switches=...)",
        "expected that another mode continues",
        "[0.5, 0]",
    )
    refused(track(offset=0.1, v0=v0), *words, "ramp[0] is 0.1, expected 0")
    refused(
        track(switches=APART, v0=v0),
        *words,
        "no other switching function vanishes",
        "z = [0, -0.5]",
    )


def test_tangent_switching_function():
    refused(
        track(modes=(flat, flat), switches=(lambda q, p: q[1] + (q[0] - CORNER) ** 3,)),
        "tangent to the constraint",
    )


def test_capture_wants_a_latch():
    drop = {"modes": (None, flat), "switches": (lambda q, p: -q[1],), "q0": (0.0, 1.0)}
    refused(
        track(**drop),
        "Switching(latch=...)",
        "capture",
        "mode 1 (flat) itself",
        "Use latch=True",
        "mode 0 (free)",
    )
    assert found(track(**drop, latch=True).check(), "ok", "from mode 0 (free) to mode 1 (flat)")


def test_no_switching_point_is_a_note():
    report = track(switches=(lambda q, p: -1.0 - q[0] ** 2,), v0=(1.0, 0.0)).check()
    assert report.ok
    assert found(report, "note", "mode 0 (flat)", "no switching point found")


def test_tuple_of_constraints_and_locks():
    more = (Fixed(lambda q, t, p: 0.0 * q[:0]), Scheduled((0.4,), (None, lock(0))))
    assert found(track(more=more).check(), "ok", "from mode 0 (flat) to mode 1 (ramp)")
    held = {"modes": (flat, (flat, lock(0))), "switches": (past_corner,)}
    refused(track(**held), "Switching(latch=...)", "mode 1 (flat, lock(0)) itself")
    assert found(track(**held, latch=True).check(), "ok", "to mode 1 (flat, lock(0))")


def test_velocity_level_rows_count_too():
    hindered = Nonholonomic(lambda q, v, t, p: v[:1])  # x cannot change, so neither can z
    refused(track(modes=(None, None), v0=(0.0, 0.0), more=(hindered,)), "tangent to the constraint")


def test_prescribed_motion_crosses_by_time():
    def driven(q, t, p):
        return jnp.stack([q[0] - t, q[1]])

    def driven_up(q, t, p):
        return jnp.stack([q[0] - t, q[1] - SLOPE * (q[0] - CORNER)])

    report = track(
        modes=(driven, driven_up), switches=(lambda q, p: q[0] - CORNER / 2,), v0=(1.0, 0.0)
    )
    refused(report, "driven_up[1] is 0.125")
    problem = Problem(
        "driven", PLANE, Switching((driven, driven_up), (past_corner,)), (0, 0), (1, 0), t_end=1.0
    )
    assert found(problem.check(), "ok", "from mode 0 (driven) to mode 1 (driven_up)", "[0.5, 0]")


def test_quasi_velocities():
    turned = System(
        lambda q, p: jnp.eye(2),
        lambda q, v, t, p: jnp.zeros(2),
        kinematics=lambda q, v, p: 2.0 * v[::-1],
    )
    problem = Problem(
        "turned",
        turned,
        Switching((flat, ramp), (past_corner,)),
        (0, 0),
        (0, 2),
        t_end=0.5,
        params=0.0,
    )
    assert len(found(problem.check(), "ok", "switching from")) == 2


def test_a_run_that_stops_is_a_note():
    """What lies behind the place where the run stops was not verified, and the report says so."""
    breaks = System(PLANE.mass, lambda q, v, t, p: PLANE.force(q, v, t, p) / (t < 0.25))
    constraint = Switching((flat, ramp), (lambda q, p: q[0] - 1.5 * CORNER,))
    problem = Problem("breaks", breaks, constraint, (0, 0), (1.0, 0.0), t_end=1.0, params=0.0)
    refused(problem, "expected that another mode continues")  # the search finds it all the same
    constraint = Switching((flat, flat), (lambda q, p: -1.0 - q[0] ** 2,))
    problem = Problem("breaks", breaks, constraint, (0, 0), (1.0, 0.0), t_end=1.0)
    report = problem.check()
    assert report.ok
    assert found(report, "note", "coarse run", "not verified beyond t = 0.2", "NONFINITE")
    assert found(report, "note", "mode 1 (flat)", "no switching point found")


def test_stages_that_do_not_meet():
    late = Scheduled((0.25,), (flat, ramp))
    problem = Problem("late", PLANE, late, (0, 0), (1.0, 0.0), t_end=0.5, params=0.0)
    refused(problem, "Scheduled(stages=...)", "mode 1 (ramp) does not hold", "ramp[0] is 0.125")


# A wheel over a pothole.

R, L, GAP = 0.35, 0.5, 0.3
PSI = float(np.arcsin(GAP / 2 / R))


def road(q, t, p):
    return jnp.stack([q[1] - R, q[2] - q[0] / R])


def near_edge(q, t, p):
    return jnp.stack(
        [(q[0] - L) ** 2 + q[1] ** 2 - R**2, q[2] - L / R - jnp.arctan2(q[0] - L, q[1])]
    )


def far_edge(q, t, p):
    x = q[0] - L - GAP
    return jnp.stack([x**2 + q[1] ** 2 - R**2, q[2] - L / R - 2 * PSI + p - jnp.arctan2(x, q[1])])


def road_again(q, t, p):
    return jnp.stack([q[1] - R, q[2] - L / R - 2 * PSI + p - (q[0] - L - GAP) / R])


POTHOLE = Switching(
    (road, near_edge, far_edge, road_again),
    (
        lambda q, p: L - q[0],
        lambda q, p: -(q[0] - L) * (q[0] - L - GAP / 2),
        lambda q, p: -(q[0] - L - GAP / 2) * (q[0] - L - GAP),
        lambda q, p: q[0] - L - GAP,
    ),
)
WHEEL = System(
    lambda q, p: jnp.diag(jnp.array([10.0, 10.0, 0.6125])),
    lambda q, v, t, p: jnp.array([0.0, -98.1, 0.0]),
)


def wheel(shift=0.0, v0=(3.0, 0.0, 3.0 / R)):
    return Problem("wheel", WHEEL, POTHOLE, q0=[0.0, R, 0.0], v0=v0, t_end=0.6, params=shift)


@pytest.mark.parametrize("v0", [(3.0, 0.0, 3.0 / R), (0.0, 0.0, 0.0)])
def test_good_wheel(v0):
    report = wheel(v0=v0).check()
    assert report.ok
    assert found(report, "ok", "from mode 0 (road) to mode 1 (near_edge)", "[0.5, 0.35")
    assert found(report, "ok", "[0.65, 0.316228")
    assert found(report, "ok", "[0.8, 0.35")


def test_wheel_with_a_wrong_constant_on_the_far_edge():
    refused(
        wheel(shift=0.01),
        "of mode 1 (near_edge)",
        "mode 2 (far_edge) does not hold",
        "far_edge[1] is 0.01",
    )


# Two horn gears: a carrier on circles around (-r, 0) and (r, 0) changes over at the origin, moving
# along +y.

RADIUS = 0.06
CARRIER = System(
    lambda q, p: jnp.diag(jnp.array([0.5, 0.5, 2e-4])), lambda q, v, t, p: jnp.zeros(3)
)


def gear(q, side):
    """On the circle around (side r, 0), turning with the gear."""
    x = -side * (q[0] - side * RADIUS)
    return jnp.stack([x**2 + q[1] ** 2 - RADIUS**2, q[2] + side * jnp.arctan2(q[1], x)])


def left_gear(q, t, p):
    return gear(q, -1.0)


def right_gear(q, t, p):
    return gear(q, 1.0)


def across(q, p):
    return q[0]  # along the line of centres: tangent to both circles


def along(q, p):
    return q[1]  # along the travel


def gears(constraint, angle=-1.0, omega=10.0):
    x, y = RADIUS * np.cos(angle), RADIUS * np.sin(angle)
    q0, v0 = [x - RADIUS, y, angle], [-omega * y, omega * x, omega]
    return Problem("gears", CARRIER, constraint, q0=q0, v0=v0, t_end=0.25)


def carried(z):
    return Transitions(
        rows=lambda q, t, p, mode, held: gear(q, 2.0 * mode - 1.0),
        guards=lambda q, v, lam, t, p, mode, held: -z(q, p)[None],
        after=lambda fired, q, v, t, p, mode: 1 - mode,
    )


@pytest.mark.parametrize("omega", [10.0, 0.0])
def test_horn_gears_with_switching(omega):
    report = gears(Switching((left_gear, right_gear), (along,)), omega=omega).check()
    assert len(found(report, "ok", "switching from", "both hold")) == 2
    bad = gears(Switching((left_gear, right_gear), (across,)), omega=omega)
    refused(
        bad,
        "Switching(switches=...)",
        "tangent to the constraint",
        "sine of the angle",
        "expected above 1e-06",
    )


@pytest.mark.slow
def test_horn_gears_with_transitions():
    report = gears(carried(along)).check()
    assert found(report, "ok", "guard 0 crosses zero", "sine of (Z, G)")
    refused(
        gears(carried(across)),
        "Transitions(guards=...)",
        "guard 0 is tangent to the constraint",
        "expected above",
    )


def test_guards_on_velocity_and_time_are_not_searched():
    guards = lambda q, v, lam, t, p, mode, held: jnp.stack(
        [v[2], 1.0 - t, 2.0 + lam[0] ** 2, 1.0 + q[0] ** 2]
    )
    part = Transitions(
        lambda q, t, p, mode, held: gear(q, -1.0), guards, lambda fired, q, v, t, p, mode: mode
    )
    report = gears(part).check()
    assert len(found(report, "note", "depends on v or lam")) == 2
    assert found(report, "note", "guard 1", "does not depend on q")
    assert found(report, "note", "guard 3", "no point found")


def test_schedules_have_no_switching_points():
    report = three_r_pendulum().check()
    assert report.ok
    assert not found(report, "switching")
