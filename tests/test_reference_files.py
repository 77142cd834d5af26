"""Moreau-Jean with contacts, row by row, against the scheme written out for each example
(`references.siconos`) and against the files that Siconos publishes with its examples.

The files are those of siconos-tutorials, examples/mechanics; they are not part of nsdyn, only the
last row of each is. Where the environment variable NSDYN_REFERENCE_FILES names a folder that holds
them, all their rows are compared too.
"""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from references import siconos

import nsdyn
from nsdyn.integrators import MoreauJean
from nsdyn.laws import Newton

FOLDER = os.environ.get("NSDYN_REFERENCE_FILES", "")
G = 9.81
CLOSE = 1e-11


class Table(NamedTuple):
    """Columns of all rows, where each is in the file, and what it is there in these units; and the
    run they come from."""

    found: np.ndarray
    places: list[int]
    units: Any = 1.0
    run: Any = None


class Example(NamedTuple):
    """run: what nsdyn finds. expected: the same columns, by the scheme written out. last: some of
    them in the last row of the file."""

    file: str
    run: Callable[[], Table]
    expected: Callable[[], siconos.Rows]
    last: dict[int, float]


def run(problem, step, law=None, **options):
    integrator = MoreauJean(projection=False, **options)
    return nsdyn.simulate(problem, integrator, step=step, law=law, max_events=2048, check=False)


def unit_mass(q, p):
    return jnp.eye(q.shape[0])


def weight(q, v, t, p):
    return jnp.full(q.shape, -G)


def height(q, t, p):
    return q


def bouncing_ball():
    system = nsdyn.System(mass=unit_mass, force=weight)
    contacts = nsdyn.Contacts(height, e=0.9)
    numbers = {"q0": [1.0], "v0": [0.0], "t_end": 10.0}
    found = run(nsdyn.Problem("ball", system, contacts, **numbers), 0.005)
    return Table(np.hstack([found.q, found.v, -0.005 * found.lam]), [1, 2, 3])


def above_plane(q, t, p):
    return q[:1] - q[1:]


def driven(q, v, t, p):
    return v[1] - jnp.where(t > 0, 2 + jnp.cos(jnp.pi * t / 2), 0.0)


def ball_on_moving_plane():
    """The plane is a body with a given velocity, which is 0 at the start."""
    system = nsdyn.System(mass=unit_mass, force=weight)
    parts = (nsdyn.Nonholonomic(driven), nsdyn.Contacts(above_plane, e=0.9))
    numbers = {"q0": [1.0, 0.0], "v0": [0.0, 0.0], "t_end": 10.0}
    found = run(nsdyn.Problem("moving plane", system, parts, **numbers), 0.005)
    q, v, P = found.q, found.v, -0.005 * found.lam[:, 1]
    return Table(np.column_stack([q[:, 0], v[:, 0], q[:, 1], v[:, 1], P]), [1, 2, 7, 8, 3])


def between_beads(q, t, p):
    return jnp.concatenate([q[:1] - 0.1, q[1:] - q[:-1] - 0.2])


def column_of_beads():
    system = nsdyn.System(mass=unit_mass, force=weight)
    contacts = nsdyn.Contacts(between_beads, e=0.9)
    numbers = {"q0": 1 + 0.25 * np.arange(10), "v0": np.zeros(10), "t_end": 2.0}
    found = run(nsdyn.Problem("beads", system, contacts, **numbers), 5e-4)
    return Table(np.hstack([found.q, found.v]), [*range(1, 21, 2), *range(2, 21, 2)])


def disk_mass(q, p):
    return jnp.diag(jnp.array([1.0, 1.0, 0.4 * 0.5**2]))


def disk_weight(q, v, t, p):
    return jnp.array([-G, 0.0, 0.0])


def below_disk(q, t, p):
    return q[:1] - 0.5


def rolling(q, v, t, p):
    return v[1:2] - 0.5 * v[2:3]


def disk_with_friction():
    system = nsdyn.System(mass=disk_mass, force=disk_weight)
    contacts = nsdyn.Contacts(below_disk, rolling, mu=0.1, e=0.9)
    numbers = {"q0": [1.0, 0.0, 0.0], "v0": [0.0, 0.0, 2.0], "t_end": 10.0}
    found = run(nsdyn.Problem("disk", system, contacts, **numbers), 0.005, forecast=1.0)
    P = -0.005 * found.lam
    return Table(np.hstack([found.q, found.v, P]), [1, 6, 7, 2, 8, 3, 4, NOWHERE])


NOWHERE = -1  # a column that the file does not have


def rod_mass(q, p):
    return jnp.diag(jnp.array([1.0, 1.0, 1 / 12]))


def rod_weight(q, v, t, p):
    return jnp.array([0.0, -10.0, 0.0])


def below_rod(q, t, p):
    return q[1:2] - 0.5 * jnp.cos(q[2:3])


def along_floor(q, v, t, p):
    return -v[:1] - 0.5 * jnp.cos(q[2:3]) * v[2:3]


def impacting_stick():
    a = np.pi / 4
    system = nsdyn.System(mass=rod_mass, force=rod_weight)
    contacts = nsdyn.Contacts(below_rod, along_floor, mu=0.01, e=1.0)
    q0 = [0.5 * np.sin(a), 0.5 * np.cos(a) + 0.01, a]
    numbers = {"q0": q0, "v0": [-0.5, 0.1, 0.1], "t_end": 0.2}
    problem = nsdyn.Problem("stick", system, contacts, **numbers)
    found = run(problem, 1e-4, law=Newton(allow_energy_gain=True), contact_rows="start")
    P = -1e-4 * found.lam
    return Table(np.hstack([found.q, found.v, P]), [1, 2, 3, 4, 5, 6, 12, 13], run=found)


def spring(q, v, t, p):
    return jnp.array([-q[0], -1.0])


def pressing(q, t, p):
    return q[1:]


def sliding(q, v, t, p):
    return v[:1]


def friction_oscillator():
    """A unit weight presses; the file ends one step before t = 100. It has the force of friction,
    which is its impulse, known to 1e-12, over the step."""
    system = nsdyn.System(mass=unit_mass, force=spring)
    contacts = nsdyn.Contacts(pressing, sliding, mu=1.0)
    numbers = {"q0": [12.0, 0.0], "v0": [6.0, 0.0], "t_end": 100.0}
    found = run(nsdyn.Problem("oscillator", system, contacts, **numbers), 0.01)
    rows = slice(0, 10_000)
    P = -0.01 * found.lam[rows, 1]
    columns = np.column_stack([found.q[rows, 0], found.v[rows, 0], P])
    return Table(columns, [1, 2, 3], units=[1.0, 1.0, 0.01], run=found)


EXAMPLES = {
    "ball": Example(
        "BouncingBallTS.ref",
        bouncing_ball,
        siconos.bouncing_ball,
        {0: -2.288618090550717e-05, 2: 4.905e-02},
    ),
    "plane": Example(
        "BallOnMovingPlane.ref",
        ball_on_moving_plane,
        siconos.ball_on_moving_plane,
        {0: 19.99325651020532, 1: 1.082967032474691},
    ),
    "beads": Example(
        "ColumnOfBeadsTS.ref",
        column_of_beads,
        siconos.column_of_beads,
        {0: 0.09999849387805411, 1: 0.2999888947697228, 9: 1.899974434589526},
    ),
    "disk": Example(
        "Ball2D_kernel_only_with_friction.ref",
        disk_with_friction,
        siconos.disk_with_friction,
        {0: 0.4999671039117577, 1: 2.766428571428595, 4: 0.2857142857142858, 5: 0.5714285714285715},
    ),
    "stick": Example(
        "ImpactingStick.ref",
        impacting_stick,
        siconos.impacting_stick,
        {0: 0.2529172311983667, 1: 0.2471693300826099, 2: 1.081891493988364}
        | {3: -0.5068672606709300, 4: -1.213273932906967, 5: 3.212070578753687},
    ),
    "oscillator": Example(
        "FrictionOscillator.ref",
        friction_oscillator,
        siconos.friction_oscillator,
        {0: 0.6820441351954105},
    ),
}
ALL = [pytest.param(x, marks=pytest.mark.slow if x == "beads" else ()) for x in EXAMPLES]


@cache
def table(name):
    return EXAMPLES[name].run()


def difference(found, expected):
    assert found.shape == expected.shape and len(found) > 2000
    return np.abs(found - expected).max()


@pytest.mark.parametrize("name", ALL)
def test_all_rows_of_the_scheme(name):
    expected = np.hstack([x.reshape(len(x), -1) for x in EXAMPLES[name].expected()])
    assert difference(table(name).found, expected) < CLOSE


@pytest.mark.parametrize("name", ALL)
def test_last_row_of_the_file(name):
    last = EXAMPLES[name].last
    found = table(name).found[-1, list(last)]
    np.testing.assert_allclose(found, list(last.values()), rtol=0, atol=CLOSE)


def test_the_first_impact_of_the_stick_creates_energy():
    """By friction, 0.2 %."""
    found = table("stick").run
    np.testing.assert_allclose(found.events.t, [0.0604, 0.1636])
    ratio = found.events.kinetic_after / found.events.kinetic_before
    np.testing.assert_allclose(ratio, [1.00206, 0.99918], atol=1e-5)
    assert np.flatnonzero(np.abs(found.lam[:, 0]) > 1).tolist() == [604, 1636]


def test_the_oscillator_sticks_in_the_end():
    assert table("oscillator").run.mode[-1] == [1]


@pytest.mark.skipif(not FOLDER, reason="NSDYN_REFERENCE_FILES names no folder with the files")
@pytest.mark.parametrize("name", ALL)
def test_all_rows_of_the_file(name):
    (file,) = Path(FOLDER).rglob(EXAMPLES[name].file)
    published = np.loadtxt(file, skiprows=1)
    found, places, units = table(name)
    told = [i for i, place in enumerate(places) if place != NOWHERE]
    largest = difference(found[:, told], units * published[:, [places[i] for i in told]])
    print(f"{file.name}: {len(found)} rows, largest difference {largest:.1e}")
    assert largest < CLOSE
