"""Closed forms that problems bring: against independent references, and as references of
studies."""

import dataclasses

import numpy as np
import pytest
from references.point_on_track import motion as on_polygon

import nsdyn
from nsdyn import laws, problems
from nsdyn.errors import ProblemError
from nsdyn.integrators import RK4, DormandPrince, EventDriven
from nsdyn.problems.bouncing_ball import exact as bounced
from nsdyn.problems.bouncing_ball import impacts
from nsdyn.studies import study
from nsdyn.studies.lib import study_cells, study_file, study_references

FINE = EventDriven(DormandPrince(order=8, rtol=1e-12, atol=1e-14))
AFTER = laws.PostSwitchGradient()


def known(name, t, law=AFTER, **settings):
    return problems.closed_form(name).at(np.asarray(t), problems.get(name, **settings), law)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("knife_edge", {"w": 1.5, "pull": 3.0}),
        ("simple_pendulum", {"L": 0.7, "t_end": 3.0}),
    ],
)
def test_smooth_motions(name, settings):
    """With settings that are not the default ones, against a run of order 8."""
    problem = problems.get(name, **settings)
    run = nsdyn.simulate(problem, FINE, step=problem.t_end / 20)
    exact = known(name, run.t, **settings)
    np.testing.assert_allclose(run.q, exact.q, atol=1e-10)
    np.testing.assert_allclose(run.v, exact.v, atol=1e-10)
    assert np.max(exact.error_q) < 1e-14 and np.max(exact.error_v) < 1e-13


@pytest.mark.parametrize("a", [0.5, -0.8])
@pytest.mark.parametrize(
    ("law", "E"),
    [
        (laws.PostSwitchGradient(), 1.0),
        (laws.MuellerTransition(), 1.0),
        (laws.GrassmannMidGradient(), 0.5),
        (laws.IntermediateGradient(position=0.8), 0.8),
    ],
)
def test_a_corner(law, E, a):
    t = np.linspace(0, 0.5, 41)  # none at the corner, which is at 0.48/3.7
    exact = known("point_on_track", t, law, a=a, l=0.48, v0=3.7)
    x = np.array([0.0, 0.48, 9.0])
    q, v, _ = on_polygon(t, x, a * (x - 0.48) * (x > 0.48), 0.0, 3.7, E=E)
    np.testing.assert_allclose(exact.q, q, atol=1e-14)
    np.testing.assert_allclose(exact.v, v, atol=1e-13)


def test_where_nothing_is_known_there_is_no_closed_form():
    t = np.linspace(0, 0.5, 5)
    assert known("point_on_track", t, laws.Restitution(0.5)) is None
    assert known("point_on_track", t, my=2.0) is None
    assert known("point_on_track", t, shape="wedge") is None
    assert known("point_on_track", np.linspace(0, 3, 5)) is None  # back at the corner
    assert known("bouncing_ball", t, laws.MuellerTransition()) is None
    assert known("bouncing_ball", t, e=0.5) is None  # Contacts
    assert problems.closed_form("andrews") is None


def test_the_ball_bounces_and_rests():
    t = np.linspace(0, 3, 61)
    exact = known("bouncing_ball", t, laws.Restitution(0.9))
    expected = np.array([bounced(time) for time in t])
    np.testing.assert_allclose(exact.q[:, 0], expected[:, 0], atol=1e-14)
    np.testing.assert_allclose(exact.v[:, 0], expected[:, 1], atol=1e-14)
    half = known("bouncing_ball", t, laws.Restitution(0.5))
    over = t > 3 * impacts(1)[0]  # (1 + e)/(1 - e) times the first: they accumulate
    assert over.any() and not half.q[over].any() and not half.v[over].any()
    between = (t > impacts(2, 0.5)[0]) & (t < impacts(2, 0.5)[1])
    np.testing.assert_allclose(half.q[between, 0], [bounced(x, 0.5)[0] for x in t[between]])
    plastic = known("bouncing_ball", t)
    assert not plastic.q[t > impacts(1)[0]].any()


def test_a_closed_form_of_something_else_is_refused():
    form = problems.closed_form("knife_edge")
    problem = problems.knife_edge()
    moved = dataclasses.replace(problem, q0=problem.q0 + 1.0)
    with pytest.raises(ProblemError, match=r"closed form of knife_edge: expected q = \[1.0"):
        form.at(np.zeros(1), moved, AFTER)
    flat = nsdyn.ClosedForm(lambda t, problem, law: (t, t), "wrong")
    with pytest.raises(ProblemError, match=r"expected q and v of shapes \(1, 3\) and \(1, 3\)"):
        flat.at(np.zeros(1), problem, AFTER)


STUDY = """\
title = "A corner, and a stage that falls"
metrics = ["error_q", "error_v"]
[problems]
ramp = { use = "point_on_track", set = { a = 0.7 } }
fall = "own.py"
[integrators]
moreau = "MoreauJean()"
event = "EventDriven(RK4())"
[laws]
after = "PostSwitchGradient()"
zero = "ZeroVelocity()"
[steps]
values = [0.01, 0.005]
"""
OWN = """\
import jax.numpy as jnp
import nsdyn

def mass(q, p):
    return p * jnp.eye(1)

def force(q, v, t, p):
    return -9.81 * p * jnp.ones(1)


def exact(t, problem, law):
    return (2.0 - 9.81 * t**2 / 2)[:, None], (-9.81 * t)[:, None]

CLOSED_FORM = nsdyn.ClosedForm(exact, "Galileo")

def fall() -> nsdyn.Problem:
    system = nsdyn.System(mass, force)
    return nsdyn.Problem("fall", system, q0=[2.0], v0=[0.0], t_end=0.4, params=1.5)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("closed")
    (found / "own.py").write_text(OWN)
    (found / "study.toml").write_text(STUDY)
    return found


def test_references_of_a_study(folder):
    """Errors are against the closed form where there is one, and the table says so."""
    result = study.run(folder / "study.toml", folder / "out")
    kinds = {key: origin.kind for key, origin in result.references.items()}
    assert kinds == {
        ("ramp", "after"): "closed form",
        ("ramp", "zero"): "finer run",
        ("fall", "after"): "closed form",
    }
    assert not result.given_up and result.ok[:, :, 0].all()  # the fall has no constraints at all
    corner = result.references["ramp", "after"]
    assert 0 < corner.error_q < 1e-15 and 0 < corner.error_v < 1e-14
    assert "constant accelerations, (5) of its file; round-off changes q by" in corner.text
    assert "The finer run is within" in corner.text and "closed form, Galileo;" in str(result)
    row = next(x for x in result.table.rows if x[:3] == ("ramp", "after", "moreau"))
    place = result.table.head.index("reference")
    assert row[place] == "closed form" and float(row[place + 1]) == pytest.approx(
        corner.error_q, rel=0.1
    )
    # Moreau-Jean against the closed form itself
    plan = result.plan
    found = nsdyn.simulate(plan.problems["ramp"], plan.integrators["moreau"], step=0.005)
    exact = plan.closed_forms["ramp"].at(found.t, plan.problems["ramp"], AFTER)
    error = result.data.error_q.sel(problem="ramp", integrator="moreau", law="after").values[-1, 0]
    assert error == pytest.approx(np.max(np.abs(found.q - exact.q)), rel=1e-12)
    assert result.data.reference_error_q.sel(problem="ramp", law="after") == corner.error_q
    # the study can do without
    text = f'{STUDY}[reference]\nprefer = ["stored", {{ refine = 8 }}]\n'
    plan = study_file.parse(text, folder=folder)
    others = study.collect(plan, folder / "out" / "data").references
    assert {origin.kind for origin in others.values()} == {"finer run"}


def test_a_file_with_something_else_as_closed_form(folder):
    (folder / "odd.py").write_text(OWN.replace('nsdyn.ClosedForm(exact, "Galileo")', "exact"))
    with pytest.raises(ProblemError, match=r"CLOSED_FORM: expected nsdyn.ClosedForm\(motion, s"):
        study_file.parse(STUDY.replace("own.py", "odd.py"), folder=folder)


def test_a_stored_reference_belongs_to_its_law():
    """That of the ball is for e = 0.9: it says nothing about other laws."""
    chosen = {"ball": "bouncing_ball", "rod": "simple_pendulum"}
    rules = {"own": "Restitution(e=0.9)", "other": "Restitution(e=0.5)"}
    plan = study.plan(chosen, {"rk": EventDriven(RK4())}, rules, steps=[0.1])
    stored = lambda *names: study_references.stored(plan, study_cells.Pair(*names))
    assert stored("ball", "rk", "own") is problems.reference("bouncing_ball")
    assert stored("ball", "rk", "other") is None
    assert stored("rod", "rk", "other") is problems.reference("simple_pendulum")  # no impulses
