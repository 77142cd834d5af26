"""The same mechanism in other units, and with its rows multiplied by a number, gets the same
verdicts."""

import jax.numpy as jnp
import pytest

from nsdyn import Contact, Fixed, Problem, ProblemError, Scheduled, Switching, System, lock
from nsdyn.checks.problem_check import check_start

# The unit of length in metres (km, m, mm, and m for a mechanism of 1 mm), that of time in seconds,
# and the number that the rows are multiplied by.
METRES = {"length": 1.0, "time": 1.0, "row": 1.0}
UNITS = {
    "mm": METRES | {"length": 1e-3},
    "km": METRES | {"length": 1e3},
    "ms": METRES | {"time": 1e-3},
    "small rows": METRES | {"row": 1e-6},
    "large rows": METRES | {"row": 1e6},
}
R = 0.5  # m
GRAVITY = 9.81


def mass(q, p):
    return 2.0 * jnp.eye(2)


def weight(q, v, t, p):
    return jnp.array([0.0, -2.0 * GRAVITY]) * p["time"] ** 2 / p["length"]


PARTICLE = System(mass, weight)


def mechanism(name, constraint, q0, v0, units, **values):
    """Numbers in metres and seconds, written in other units."""
    length, time = units["length"], units["time"]
    return Problem(
        name,
        PARTICLE,
        constraint,
        q0=[x / length for x in q0],
        v0=[x / length * time for x in v0],
        t_end=0.5 / time,
        params=units | {"r": R / length, "error": 0.0} | values,
    )


# A track that turns from a line into an arc; with an error the arc begins above the line.


def line(q, t, p):
    return p["row"] * q[1:]


def arc(q, t, p):
    r = p["r"]
    y = q[1] - p["error"] * r - r
    return p["row"] * (q[:1] ** 2 + y**2 - r**2)


def past_the_line(q, p):
    return p["row"] * q[0]


def track(units, error=0.0):
    constraint = Switching((line, arc), (past_the_line,))
    return mechanism("track", constraint, (-R, 0.0), (2.0, 0.0), units, error=error)


# A ball that falls to the ground; with an error it starts inside.


def gap(q, t, p):
    return p["row"] * q[1:]


def ball(units, error=0.0):
    height = R if error == 0 else -error * R
    return mechanism("ball", Contact(gap), (0.3 * R, height), (0.1, -0.2), units)


# A bead on a ring whose x is locked at last; with an error it starts off the ring.


def ring(q, t, p):
    return p["row"] * (q @ q - p["r"] ** 2)


def sideways(q, p):
    return p["row"] * q[0]


def lock_time(p):
    return jnp.array([0.2]) / p["time"]


def bead(units, error=0.0):
    late = Scheduled(lock_time, (None, lock(sideways)))
    q0 = (0.6 * R * (1 + error), -0.8 * R * (1 + error))
    return mechanism("bead", (Fixed(ring), late), q0, (0.8, 0.6), units)


MECHANISMS = {"switching": track, "contact": ball, "lock": bead}
WRONG = {
    "switching": "arc[0] is ",
    "contact": "expected gaps >= 0",
    "lock": "q0: expected a state",
}


def verdicts(report):
    return [(line.what, line.verdict) for line in report.lines]


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_same_verdicts_in_all_units(name):
    make = MECHANISMS[name]
    wanted = make(METRES).check()
    assert wanted.ok and any("mode" in line.what for line in wanted.lines)
    for units in UNITS.values():
        assert verdicts(make(units).check()) == verdicts(wanted)


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_same_refusals_in_all_units(name):
    for units in (METRES, *UNITS.values()):
        with pytest.raises(ProblemError) as caught:
            MECHANISMS[name](units, error=1e-4).check()
        assert WRONG[name] in str(caught.value)


@pytest.mark.parametrize("name", ["contact", "lock"])
def test_round_off_is_no_error_in_any_unit(name):
    for units in (METRES, *UNITS.values()):
        assert check_start(MECHANISMS[name](units, error=1e-14)).ok


@pytest.mark.parametrize("row", [1e-6, 1.0, 1e6])
def test_a_mechanism_of_a_millimetre_that_does_not_meet_is_refused(row):
    """In metres, where the residual of its arc is of the order of 1e-10."""
    small = METRES | {"row": row}
    shrink = lambda **values: mechanism(
        "track", Switching((line, arc), (past_the_line,)), (-1e-3, 0), (4e-3, 0), small, **values
    )
    with pytest.raises(ProblemError, match="another mode continues"):
        shrink(r=1e-3, error=1e-4).check()
    assert shrink(r=1e-3).check().ok
