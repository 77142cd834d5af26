"""The palm against known ratios of its exchange, its loop, and a sum over points of mass."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import run
from study_files import TABLES

import nsdyn
from nsdyn import integrators, laws, studies
from nsdyn.problems.metamorphic_palm import (
    ARCS,
    DRIVES,
    REST,
    SYSTEM,
    carried,
    closed,
    closure,
    frames,
    metamorphic_palm,
)
from nsdyn.studies import palm
from nsdyn.studies.lib import archive

RK4 = integrators.EventDriven(integrators.RK4())


class AnyGradient(laws.AbstractLaw):
    """The gradient at any position, in either metric, by traced choice: one program for all."""

    position: jax.Array
    euclidean: jax.Array

    def __init__(self, position, euclidean=False):
        self.position, self.euclidean = jnp.asarray(position, float), jnp.asarray(euclidean)

    def decide(self, switch):
        mass, flat = (
            laws.IntermediateGradient(self.position, metric=x).decide(switch)
            for x in ("mass", "euclidean")
        )
        return jax.tree.map(lambda a, b: jnp.where(self.euclidean, b, a), mass, flat)


CASES = [
    (1.0, False, 0.9061),
    (0.5, False, 1.0),
    (0.75, False, 0.9522),
    (0.5, True, 0.9849),
    (0.75, True, 0.9428),
]


@jax.jit
def jumped(problem, law):
    """The velocity before and after the exchange, by the law alone, and M."""
    p = problem.params
    q = closed(jnp.asarray(DRIVES), jnp.asarray(REST), p)
    loop, unit = jax.jacfwd(lambda q: closure(q, 0.0, p))(q), jnp.eye(4)
    before, after = (jnp.concatenate([loop, unit[i : i + 1]]) for i in (0, 1))
    M, v = SYSTEM.mass(q, p), carried(q, jnp.array([0.0, 1.0]), p)
    return v, law.jump(M, before, after, v).v_after, M


@pytest.mark.parametrize(("E", "euclidean", "ratio"), CASES)
def test_law_at_the_exchange(E, euclidean, ratio):
    before, after, M = jumped(metamorphic_palm("exchange"), AnyGradient(E, euclidean))
    found = (after @ M @ after) / (before @ M @ before)
    assert abs(found - ratio) < (1e-12 if ratio == 1.0 else 5e-5) and abs(after[1]) < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize(("E", "euclidean", "ratio"), CASES)
def test_exchange_of_two_locks(E, euclidean, ratio):
    problem = metamorphic_palm("exchange")
    out = run(problem, RK4, step=5e-3, law=AnyGradient(E, euclidean))
    assert int(out.status) == 0 and int(out.events.count) == 1
    event = jax.tree.map(lambda x: np.asarray(x)[0], out.events.records)
    assert np.abs(np.rad2deg(event.q) - [40.0, -60.0, 122.43581401, 20.17922409]).max() < 1e-6
    assert abs(event.kinetic_after / event.kinetic_before - ratio) < 5e-5
    if ratio == 1.0:
        assert abs(event.kinetic_after / event.kinetic_before - 1.0) < 1e-12
    gaps = np.asarray(jax.vmap(lambda q: closure(q, 0.0, problem.params))(out.q))
    assert np.abs(gaps).max() < 1e-10
    locked = np.where(np.asarray(out.mode)[:, -1] == 0, out.v[:, 0], out.v[:, 1])
    assert np.abs(locked).max() < 1e-10
    # no forces, no gravity: between the switches energy is constant
    for part in (out.t < event.t, out.t > event.t):
        assert np.ptp(np.asarray(out.energy)[np.asarray(part)]) < 1e-7 * event.kinetic_before


@pytest.mark.slow
def test_closure_through_the_lock():
    problem = metamorphic_palm("lock")
    out = run(problem, RK4, step=5e-3, law=laws.MuellerTransition())
    assert (
        int(out.status) == 0
        and int(out.events.count) == 1
        and abs(float(out.events.t[0]) - 0.1) < 1e-14
    )
    rows = lambda q, v: jax.jvp(lambda q: closure(q, 0.0, problem.params), (q,), (v,))
    gaps, rates = jax.vmap(rows)(out.q, out.v)
    assert np.abs(gaps).max() < 1e-10 and np.abs(rates).max() < 1e-10
    after = np.asarray(out.t) > 0.1
    assert (
        np.ptp(np.asarray(out.q)[after, 0]) < 1e-12 and np.ptp(np.asarray(out.q)[after, 1]) > 0.05
    )
    record = jax.tree.map(lambda x: np.asarray(x)[0], out.events.records)
    assert record.v_before[0] > 1.0 and record.kinetic_after < record.kinetic_before
    # Mueller's balance: M (v+ - v-) along the rows that hold after the lock, and nothing else
    problem_rows = np.concatenate(
        [jax.jacfwd(lambda q: closure(q, 0.0, problem.params))(record.q), np.eye(4)[:1]]
    )
    momentum = SYSTEM.mass(record.q, problem.params) @ (record.v_after - record.v_before)
    rest = momentum - problem_rows.T @ np.linalg.lstsq(problem_rows.T, momentum, rcond=None)[0]
    assert np.abs(rest).max() < 1e-12 * np.abs(momentum).max()


def test_kinetic_energy_is_that_of_points_along_the_links():
    problem = metamorphic_palm("lock")
    p, n = problem.params, 2000
    q, v = problem.q0, jnp.array([0.7, -1.1, 0.4, 1.3])

    def places(q):
        s = p["arcs"][:4, None] * (jnp.arange(n) + 0.5)[None] / n
        return p["rho"] * jnp.einsum(
            "kij,knj->kni", frames(q, p)[1:], jnp.stack([0 * s, jnp.sin(s), jnp.cos(s)], axis=-1)
        )

    speeds = jax.jit(lambda q, v: jax.jvp(places, (q,), (v,))[1])(q, v)
    points = p["mu"] * p["arcs"][:4] / n
    expected = 0.5 * np.sum(np.asarray(points)[:, None] * np.sum(np.asarray(speeds) ** 2, axis=-1))
    assert abs(SYSTEM.kinetic(q, v, p) - expected) < 1e-6 * expected
    # and the forces are those of this energy
    lagrangian = nsdyn.System.from_lagrangian(lambda q, v, p: SYSTEM.kinetic(q, v, p))
    wanted = jax.jit(lambda q, v: lagrangian.force(q, v, 0.0, p))(q, v)
    assert np.abs(SYSTEM.force(q, v, 0.0, p) - wanted).max() < 1e-12 * np.abs(wanted).max()


@pytest.mark.slow
def test_the_flat_palm_is_singular_and_the_check_says_so():
    problem = metamorphic_palm("lock")
    assert problem.check().ok and metamorphic_palm("exchange").check().ok
    flat = eqx.tree_at(lambda x: (x.q0, x.v0), problem, (jnp.zeros(4), jnp.zeros(4)))
    assert (
        abs(np.sum(ARCS) - 2 * np.pi) < 1e-15
        and np.abs(closure(flat.q0, 0.0, flat.params)).max() < 1e-15
    )
    with pytest.warns(nsdyn.RedundancyWarning, match="rank 1 for 2 rows"):
        report = flat.check()
    assert not report.ok and "has no gradient" in str(report)


def test_other_pose_and_drawing():
    p = metamorphic_palm().params
    q = closed(jnp.deg2rad(jnp.array([60.0, -40.0])), jnp.deg2rad(jnp.array([49.0, 37.5])), p)
    assert np.abs(np.rad2deg(q[2:]) - [49.3243, 37.5132]).max() < 1e-3
    line = np.concatenate(metamorphic_palm().shape(q, p))
    assert (
        np.allclose(np.linalg.norm(line, axis=1), 1.0) and np.abs(line[0] - line[-1]).max() < 1e-12
    )  # a closed line
    assert np.linalg.norm(np.diff(line, axis=0), axis=1).max() < 0.2
    with pytest.raises(nsdyn.ProblemError, match="exchange"):
        metamorphic_palm("exchang")


@pytest.mark.slow
def test_study_of_the_palm(tmp_path):
    files = palm.run(tmp_path, step=1e-2)
    names = {f"figure_{i}.{kind}" for i in (1, 2) for kind in ("pdf", "png")}
    assert {file.name for file in files} == names | {"captions.txt", *TABLES}
    assert "palm" in studies.names() and "Assumed:" in (tmp_path / "captions.txt").read_text()
    for name, ratio in (("exchange_1", 0.9061), ("exchange_half", 1.0), ("exchange_flat", 0.9849)):
        data = archive.read(tmp_path / "data", name)[0]
        assert abs(float(data.energy_after[0] / data.energy_before[0]) - ratio) < 5e-5
