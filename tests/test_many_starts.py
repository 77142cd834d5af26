"""Sweeps look at the starts of all their runs, and name the one that contacts refuse."""

import jax.numpy as jnp
import numpy as np
import pytest

import nsdyn
from nsdyn.driver import many_starts
from nsdyn.driver.arguments import batch_values
from nsdyn.integrators import MoreauJean

RUNS = 5


def unit_mass(q, p):
    return jnp.eye(2)


def weight(q, v, t, p):
    return jnp.array([0.0, -9.81])


def gap(q, t, p):
    return q[1:]


def slip(q, v, t, p):
    return v[:1]


def friction(p):
    return p["mu"]


def rebound(p):
    return p["e"]


def slower_when_fast(speed, p):
    return p["mu"] - 0.1 * speed


def pressing(q, v, t, p):
    return jnp.ones(1)


FLOOR = nsdyn.Contacts(gap, slip, mu=friction, e=rebound)
PARTS = {
    "floor": FLOOR,
    "speed": nsdyn.Contacts(gap, slip, mu=nsdyn.SpeedDependent(slower_when_fast)),
    "brake": nsdyn.Friction(slip, pressing, mu=friction),
}


def particle(part="floor"):
    params = {"mu": jnp.asarray(0.5), "e": jnp.asarray(0.2)}
    system = nsdyn.System(mass=unit_mass, force=weight)
    numbers = {"q0": [0.0, 0.1], "v0": [1.0, 0.0], "t_end": 0.01, "params": params}
    return nsdyn.Problem("particle", system, PARTS[part], **numbers)


def sweep(part="floor", **values):
    problem = particle(part)
    params = {**problem.params, **{x: values.pop(x) for x in ("mu", "e") if x in values}}
    return nsdyn.sweep(problem, MoreauJean(), step=1e-2, params=params, **values)


def one_of(usual, wrong, run=3):
    """The usual value in all runs but one."""
    found = np.array([usual] * RUNS, float)
    found[run] = wrong
    return found


@pytest.mark.parametrize(
    ("part", "values", "words"),
    [
        ("floor", {"mu": one_of(0.5, -0.25)}, r"trajectory 3: Contacts\(mu=.*found -0.25"),
        ("floor", {"e": one_of(0.5, 1.5)}, r"trajectory 3: Contacts\(e=.*from 0 to 1, found 1.5"),
        ("floor", {"e": one_of(0.5, -0.5, 0)}, r"trajectory 0: Contacts\(e=.*found -0.5"),
        (
            "floor",
            {"q0": one_of([0.0, 0.1], [0.0, -0.02], 4)},
            r"trajectory 4: Contacts\(gap=gap\).*gap\[0\] = -0.02: contact 0 overlaps by 0.02",
        ),
        ("floor", {"mu": one_of(0.5, np.nan)}, "trajectory 3: .*nan"),
        (
            "speed",
            {"v0": one_of([1.0, 0.0], [20.0, 0.0])},
            r"trajectory 3: Contacts\(mu=.*found -1",
        ),
        ("brake", {"mu": one_of(0.5, -0.25)}, r"trajectory 3: Friction\(mu=.*found -0.25"),
    ],
)
def test_a_start_that_contacts_refuse_is_named_with_its_run(part, values, words):
    with pytest.raises(nsdyn.ProblemError, match=words):
        sweep(part, **values)


def test_the_worst_run_is_named(monkeypatch):
    """Also if there are more runs than are looked at at a time, whose last chunk is filled up."""
    monkeypatch.setattr(many_starts, "AT_A_TIME", 4)
    mu = one_of(0.5, -0.25)
    mu[4] = -0.5
    with pytest.raises(nsdyn.ProblemError, match=r"trajectory 4: .*found -0.5"):
        sweep(mu=mu)


def test_round_off_is_no_overlap():
    """Bodies that touch have gaps of 0 up to round-off, at either side: these are looked at."""
    problem = particle()
    runs = batch_values(problem, None, one_of([0.0, 0.0], [0.0, -1e-17]), None)
    assert many_starts._suspects(problem, FLOOR, runs) == [3]
    many_starts.check_starts(problem, runs)
