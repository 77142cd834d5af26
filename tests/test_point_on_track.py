"""A particle on a track with a corner, on a polygon and on a circle (a pendulum), against
references of their own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import run
from references.point_on_track import motion
from scipy.integrate import solve_ivp

import nsdyn
from nsdyn import Status, integrators, laws
from nsdyn.problems.pendulum import pendulum
from nsdyn.problems.point_on_track import point_on_track
from nsdyn.problems.segmented_track import ends, line, neighbour, segmented_track

RK4 = integrators.EventDriven(integrators.RK4())
POST = laws.PostSwitchGradient()
BETWEEN = laws.IntermediateGradient  # takes a position E
MID = laws.GrassmannMidGradient()


def only_event(out):
    assert int(out.events.count) == 1
    return jax.tree.map(lambda x: np.asarray(x[0]), out.events.records)


# The ramp.


def speed_ratio(E, a):
    th = np.arctan(a)
    return np.cos(E * th) / np.cos((1 - E) * th)


@pytest.mark.parametrize("a", [0.5, -0.3, 2.0])
@pytest.mark.parametrize("E", [1.0, 0.75, 0.5])
def test_speed_after_the_corner(E, a):
    th, speed = np.arctan(a), 4.0 * speed_ratio(E, a)
    out = run(point_on_track(a=a), RK4, step=1e-2, law=BETWEEN(E))
    event = only_event(out)
    assert int(out.status) == 0 and abs(event.t - 0.125) < 1e-14
    assert np.abs(event.v_after - speed * np.array([np.cos(th), np.sin(th)])).max() < 1e-13
    assert abs(event.kinetic_after / event.kinetic_before - (speed / 4.0) ** 2) < 1e-13


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"g": 0.0, "v0": 1.0},
        {"my": 4.0, "a": 1.0, "l": 0.3},
        {"m": 3.0, "my": 1.0, "a": -0.7},
        {"x0": 0.9, "v0": 1.0, "my": 4.0},
    ],
    ids=["default", "free", "heavy in y", "heavy in x", "down the ramp"],
)
@pytest.mark.parametrize("E", [1.0, 0.75, 0.5])
def test_motion_in_closed_form(E, parameters):
    problem = point_on_track(**parameters)
    out = run(problem, RK4, step=1e-2, law=BETWEEN(E))
    p = {name: float(value) for name, value in problem.params.items()}
    x0, speed = float(problem.q0[0]), np.linalg.norm(problem.v0) * np.sign(problem.v0[0])
    corners = {"x": [p["l"] - 1, p["l"], p["l"] + 1], "y": [0.0, 0.0, p["a"]]}
    q, v, events = motion(
        np.asarray(out.t), **corners, x0=x0, u0=speed, m=p["m"], my=p["my"], g=p["g"], E=E
    )
    assert int(out.status) == 0 and int(out.events.count) == len(events)
    assert np.abs(out.q - q).max() < 1e-13 and np.abs(out.v - v).max() < 2e-13


def test_the_midpoint_keeps_energy_for_unequal_masses():
    out = run(point_on_track(my=4.0, a=1.0), RK4, step=1e-2, law=BETWEEN(0.5))
    assert int(out.events.count) == 1 and np.ptp(out.energy) < 1e-13 * out.energy[0]


# The wedge.


@pytest.mark.parametrize(("law", "E"), [(POST, 1.0), (MID, 0.5)], ids=["post", "mid"])
def test_no_way_out_of_the_wedge(law, E):
    for a in (0.5, 3.0):  # the corner turns by 153 and by 108 degrees
        problem = point_on_track(shape="wedge", a=a, g=0.0)
        lines = np.array([[1.0, 0.0], np.array([1.0, a]) / np.hypot(1.0, a)])
        for before, after in ((0, 1), (1, 0)):
            q0 = [1.0, 0.5 * a * before]
            out = run(problem, RK4, step=1e-2, law=law, q0=q0, v0=-4.0 * lines[before])
            assert int(out.status) == Status.LEADS_BACK, (a, before)
            event = only_event(out)
            assert (
                np.abs(event.q - np.array([0.5, 0.0])).max() < 1e-13
                and int(event.mode_after) == after
            )
            # the wedge is on the right
            assert np.abs(event.v_after + 4.0 * speed_ratio(E, a) * lines[after]).max() < 1e-12


def test_the_wedge_is_left_where_it_opens():
    problem = point_on_track(shape="wedge")
    out = run(problem, RK4, step=1e-2, law=POST, q0=problem.q0, v0=[1.0, 0.0])
    assert int(out.status) == 0 and int(out.events.count) == 0 and abs(out.q[-1, 0] - 1.5) < 1e-13


def test_a_start_outside_the_wedge_is_refused():
    with pytest.raises(nsdyn.ProblemError, match="q0"):
        point_on_track(shape="wedge", x0=0.0).check()


def test_unknown_shape():
    with pytest.raises(nsdyn.ProblemError, match="'wedge'"):
        point_on_track(shape="wegde")


# Many segments.

COUNT = 60


def hilly(seed):
    """A valley whose sides are bumpy."""
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.uniform(0.02, 0.1, COUNT))
    x = x - x.mean()
    return x, 0.4 * x**2 + np.cumsum(rng.uniform(-0.01, 0.01, COUNT))


@pytest.mark.parametrize(("E", "my"), [(1.0, None), (0.5, None), (0.7, 4.0)])
def test_many_segments(E, my):
    for seed in range(3):
        x, y = hilly(seed)
        problem = segmented_track(x, y, my=my, x0=-1.0, v0=3.0)
        out = run(problem, RK4, step=1e-2, law=BETWEEN(E))
        q, v, events = motion(np.asarray(out.t), x, y, x0=-1.0, u0=3.0, my=my, E=E)
        assert int(out.status) == 0 and int(out.events.count) == len(events) > 30
        found = out.events.records
        t, before, after = (np.array(column) for column in list(zip(*events, strict=True))[:3])
        assert np.abs(found.t[: len(t)] - t).max() < 1e-12
        assert np.array_equal(found.mode_before[: len(t)], before) and np.array_equal(
            found.mode_after[: len(t)], after
        )
        assert {-1, 1} == set(after - before)  # both directions
        assert np.abs(out.q - q).max() < 1e-12 and np.abs(out.v - v).max() < 1e-11
        if E == 0.5:
            assert np.ptp(out.energy) < 1e-11


def test_sharp_turn_of_a_polygon_leads_back():
    x, _ = hilly(0)
    out = run(segmented_track(x, 3.0 * np.abs(x), x0=-0.5), RK4, step=1e-2, law=BETWEEN(1.0))
    assert (
        int(out.status) == Status.LEADS_BACK
        and abs(out.events.q[int(out.events.count) - 1, 0]) < 0.1
    )


def test_cost_does_not_grow_with_segments():
    def equations(count):
        p = segmented_track(np.arange(count), np.zeros(count), x0=1.5).params
        q, mode = jnp.zeros(2), jnp.asarray(1)
        functions = (
            lambda p, q, mode: line(q, 0.0, p, mode, ()),
            lambda p, q, mode: ends(q, q, q, 0.0, p, mode, ()),
            lambda p, q, mode: neighbour(q > 0, q, q, 0.0, p, mode),
        )
        jaxprs = [jax.make_jaxpr(f)(p, q, mode) for f in functions]
        sizes = [
            np.prod(var.aval.shape) for jaxpr in jaxprs for eqn in jaxpr.eqns for var in eqn.outvars
        ]
        return len(sizes), max(sizes)

    assert equations(5) == equations(5000)


@pytest.mark.parametrize(("x", "y"), [([0, 1, 1], [0, 0, 0]), ([0, 1, 2], [0, 0]), ([0], [0])])
def test_bad_polygon(x, y):
    with pytest.raises(nsdyn.ProblemError, match="segmented_track"):
        segmented_track(x, y)


# The pendulum.


def test_pendulum_against_its_angle():
    """x = L sin th, y = -L cos th: T = 1/2 (m_x cos^2 + m_y sin^2) L^2 w^2, V = -m_y g L cos th."""
    mx, my, L, g = 1.0, 2.0, 0.8, 9.81

    def rate(_, state):
        th, w = state
        inertia = mx * np.cos(th) ** 2 + my * np.sin(th) ** 2
        return [
            w,
            (-(my - mx) * np.sin(th) * np.cos(th) * w**2 - my * g / L * np.sin(th)) / inertia,
        ]

    out = run(pendulum(mx=mx, my=my, L=L, g=g, v0=0.5), RK4, step=1e-3)
    angle = solve_ivp(
        rate, (0, 1), [np.pi / 2, 0.5 / L], method="DOP853", rtol=1e-13, atol=1e-13
    ).y[:, -1]
    exact = L * np.array([np.sin(angle[0]), -np.cos(angle[0])])
    assert np.abs(out.q[-1] - exact).max() < 1e-9
    assert abs(np.linalg.norm(out.q[-1]) - L) < 1e-15 and np.ptp(out.energy) < 1e-8


# All of them.


@pytest.mark.parametrize(
    ("make", "other"),
    [
        (point_on_track, {"m": 2, "a": 1, "l": 0.4, "v0": 1, "g": 0, "x0": 1.0, "my": 3}),
        (lambda **changes: point_on_track(shape="wedge", **changes), {"a": 1, "l": 1}),
        (segmented_track, {"x0": 0.3, "v0": -1, "my": 2}),
        (pendulum, {"mx": 2, "L": 2, "v0": 0}),
    ],
    ids=["ramp", "wedge", "polygon", "pendulum"],
)
def test_problems_are_sound_and_share_functions(make, other):
    one, two = make(), make(**other)
    assert one.check().ok and two.check().ok
    assert jax.tree.structure(one) == jax.tree.structure(two)
    kinds = lambda problem: [(x.shape, x.dtype) for x in jax.tree.leaves(problem)]
    assert kinds(one) == kinds(two)


def test_factories_take_traced_values():
    height = lambda x: (
        segmented_track(jnp.array([0.0, x, 1.0]), [0, 0, 1], x0=0.8).q0[1]
        + point_on_track(x0=1, a=x).q0[1]
    )
    assert np.isclose(jax.grad(height)(0.5), -0.2 / 0.5**2 + 0.5)
