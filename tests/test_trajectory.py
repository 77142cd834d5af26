"""`simulate` and the trajectory it gives, on a bouncing ball: h'' = -g + c h'^3, which has no end
in time for c > 0."""

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nsdyn
from nsdyn import Events, Solution, laws
from nsdyn.driver.arguments import canonical_dtype
from nsdyn.driver.single_run import raise_if_failed
from nsdyn.integrators import RK4, EventDriven
from nsdyn.results.plot import with_jumps
from nsdyn.results.solution import plain

STEP, EVENTS, E = 1e-2, 4, 0.5
G, HEIGHT = 9.81, 1.0
IMPACT = np.sqrt(2 * HEIGHT / G)  # then 2 E IMPACT of flight
traces = []


def mass(q, p):
    return p["m"] * jnp.eye(2)


def force(q, v, t, p):
    if isinstance(q, jax.core.Tracer):
        traces.append(t)
    return p["m"] * (jnp.array([0.0, -p["g"]]) + p["blow"][0] * v**3)


def potential(q, p):
    return p["m"] * p["g"] * q[1]


def gap(q, t, p):
    return q[1:]


def ball(potential=potential, params=None, **changes):
    params = params or {"m": 2.0, "g": G, "blow": (0.0,)}
    system = nsdyn.System(mass=mass, force=force, potential=potential)
    return nsdyn.Problem(
        "ball",
        system,
        nsdyn.Contact(gap),
        q0=[0.0, HEIGHT],
        v0=[1.0, 0.0],
        t_end=1.0,
        params=params,
        **changes,
    )


def bounce(**changes) -> Solution:
    arguments = {"step": STEP, "law": laws.Restitution(E), "max_events": EVENTS} | changes
    return nsdyn.simulate(arguments.pop("problem", ball()), EventDriven(RK4()), **arguments)


@pytest.fixture(scope="module")
def run() -> Solution:
    return bounce()


def test_rows(run):
    assert all(type(x) is np.ndarray for x in (run.t, run.q, run.v, run.lam, run.mode, run.energy))
    np.testing.assert_allclose(run.t, np.linspace(0, 1, 101), rtol=1e-15)
    assert (run.q.shape, run.v.shape, run.lam.shape, run.mode.shape) == (
        (101, 2),
        (101, 2),
        (101, 1),
        (101,),
    )
    falling = run.t < IMPACT
    np.testing.assert_allclose(run.q[falling, 1], HEIGHT - G * run.t[falling] ** 2 / 2, atol=1e-12)
    np.testing.assert_allclose(
        run.energy, 2.0 * (np.sum(run.v**2, axis=1) / 2 + G * run.q[:, 1]), rtol=1e-14
    )


def test_events(run):
    assert len(run.events) == 2
    np.testing.assert_allclose(run.events.t, [IMPACT, IMPACT * (1 + 2 * E)], rtol=1e-12)
    first = run.events[0]
    assert (first.mode_before, first.mode_after) == (0, 0)  # it bounced
    assert isinstance(first.t, float)
    assert isinstance(first.kinetic_after, float)
    np.testing.assert_allclose(first.v_before, [1.0, -G * IMPACT], rtol=1e-12)
    np.testing.assert_allclose(first.v_after, [1.0, E * G * IMPACT], rtol=1e-12)
    np.testing.assert_allclose(first.Lam, [-2.0 * (1 + E) * G * IMPACT], rtol=1e-12)
    np.testing.assert_array_equal(first.direction, [[0.0, 1.0]])
    np.testing.assert_allclose(first.kinetic_after, 1.0 + (E * G * IMPACT) ** 2, rtol=1e-12)
    assert first.q.shape == (2,)


def test_events_are_a_sequence(run):
    events = run.events
    assert [event.t for event in events] == events.t.tolist() == [events[i].t for i in (0, 1)]
    assert events[-1].t == events[np.int64(1)].t == events.t[1]
    assert events[-2].t == events.t[0]
    part = events[1:]
    assert isinstance(part, Events)
    assert len(part) == 1
    assert part[0].t == events.t[1]
    assert events[events.t > 0.5].t.tolist() == events.t[1:].tolist()
    assert events.v_after.shape == (2, 2)
    assert events.direction.shape == (2, 1, 2)
    for index in (2, -3):
        with pytest.raises(IndexError, match="there are 2 events"):
            events[index]
    with pytest.raises(TypeError):
        events["t"]
    assert "mode 0 -> 0" in repr(events)


def test_what_was_run_is_kept(run):
    assert (run.problem, run.step, run.save_every, run.t0, run.t_end) == ("ball", STEP, 1, 0.0, 1.0)
    assert run.integrator == "EventDriven(method=RK4())"
    assert run.law == "Restitution(e=0.5)"  # the number, not its type
    assert run.nsdyn_version == nsdyn.__version__
    assert run.has_potential
    assert run.params["m"] == 2.0
    assert run.params["blow"] == [np.array(0.0)]
    assert repr(run).startswith(
        "Solution(ball: t = 0 to 1, 101 samples, n = 2, m = 1, 2 events; EventDriven("
    )


def test_other_values_compile_nothing_new(run):
    count = len(traces)
    params = {"m": 3, "g": np.float32(5.0), "blow": (jnp.array(0.0),)}  # other types, too
    other = bounce(
        params=params, q0=np.array([1, 2]), v0=(0.0, 0.0), law=laws.Restitution(0.25), check=False
    )
    assert len(traces) == count
    np.testing.assert_allclose(other.events.t[0], np.sqrt(2 * 2 / 5.0), rtol=1e-12)
    np.testing.assert_allclose(
        other.events.v_after[0], -0.25 * other.events.v_before[0], rtol=1e-12
    )
    bounce(problem=ball(params={"m": np.array(1.0), "g": 1.0, "blow": (0.0,)}), check=False)
    assert len(traces) == count


def test_values_keep_their_digits():
    strong = canonical_dtype
    assert strong(np.array(3), jnp.array(1.0)).dtype == float
    assert strong(np.array(0.1), jnp.array(1, np.float32)).dtype == float
    assert strong(np.array(2.5), jnp.array(1)) == 2.5
    assert not strong(jnp.asarray(1.0)).weak_type
    assert strong(jax.random.key(0)).dtype == jax.random.key(0).dtype


def test_a_full_log_is_an_error_with_the_rows_until_then(run, tmp_path):
    with pytest.raises(
        nsdyn.SimulationError, match=r"ball: stopped at t = .* in mode 0 .*Raise max_events"
    ) as caught:
        bounce(q0=[0.0, 0.02])
    error = caught.value
    impacts = np.sqrt(2 * 0.02 / G) * (1 + 2 * np.cumsum(np.append(0, E ** np.arange(1, 6))))
    assert error.status is nsdyn.Status.LOG_FULL
    assert error.mode == 0
    np.testing.assert_allclose(error.partial.events.t, impacts[:EVENTS], rtol=1e-9)
    assert impacts[EVENTS - 1] <= error.t <= impacts[EVENTS]
    assert error.partial.t[-1] <= error.t < error.partial.t[-1] + STEP
    assert np.all(np.isfinite(error.partial.q))
    error.partial.save(tmp_path / "partial.nc")
    assert nsdyn.load(tmp_path / "partial.nc").q.shape == error.partial.q.shape


def test_a_blow_up_is_an_error(run):
    with pytest.raises(nsdyn.SimulationError, match=r"infinite or NaN.*smaller step") as caught:
        bounce(params={"m": 1.0, "g": 0.0, "blow": (4.0,)}, v0=[1.0, 0.0])  # v = (1 - 8 t)^(-1/2)
    error = caught.value
    assert error.status is nsdyn.Status.NONFINITE
    assert 0.125 - STEP < error.t < 0.125 + 10 * STEP
    rows = error.partial
    assert len(rows.t) == len(rows.q) == len(rows.mode) == len(rows.energy)
    assert 0.125 - 2 * STEP < rows.t[-1] < error.t + 1e-12
    assert np.all(np.isfinite(rows.q))
    assert np.all(np.isfinite(rows.v))


def stopped(run, status, first_lost: int, t_stop: float) -> nsdyn.SimulationError:
    """The error of a run with the samples and events of `run` that is said to have failed."""
    q = run.q.copy()
    q[first_lost:] = np.nan
    ending = {"status": np.array(int(status)), "t_stop": np.array(t_stop)}
    with pytest.raises(nsdyn.SimulationError) as caught:
        raise_if_failed(dataclasses.replace(run, q=q, **ending).trimmed())
    return caught.value


def test_what_follows_a_failure_does_not_count(run):
    error = stopped(run, nsdyn.Status.DO_NOT_MEET, first_lost=51, t_stop=0.5)
    assert (error.t, len(error.partial.t), error.partial.t[-1]) == (0.5, 51, 0.5)
    assert error.partial.events.t.tolist() == run.events.t[:1].tolist()
    assert "(DO_NOT_MEET)" in str(error)
    late = stopped(
        run, nsdyn.Status.NONFINITE, first_lost=20, t_stop=0.32
    )  # noticed at the end of a chunk only
    assert (late.t, len(late.partial.t), len(late.partial.events)) == (run.t[20], 20, 0)
    at_once = stopped(run, nsdyn.Status.GUARD_NEGATIVE, first_lost=0, t_stop=0.0)
    assert (at_once.t, len(at_once.partial.t)) == (0.0, 0)
    assert "t = none, 0 samples" in repr(at_once.partial)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"q0": [1.0]}, r"q0: expected shape \(2,\).*found \(1,\)"),
        ({"v0": [[1.0, 0.0]]}, r"v0: expected shape \(2,\).*found \(1, 2\)"),
        ({"q0": ["a", 1.0]}, "q0: expected numbers"),
        ({"params": {"m": 1.0, "g": 1.0}}, r"no 'blow'.*\*\*problem.params"),
        ({"params": {"m": 1.0, "g": 1.0, "blow": (0.0,), "h": 1.0}}, "an unknown 'h'"),
        ({"step": 0.0}, "step: expected a positive number"),
        ({"t_end": -1.0}, "t_end"),
        ({"save_every": 0}, "save_every"),
        ({"max_events": 2.0}, "max_events"),
        ({"law": "plastic"}, "law: expected an impulse law"),
        ({"q0": [0.0, -1.0]}, "gap"),
    ],
)
def test_wrong_arguments_are_told_before_compiling(changes, words):
    count = len(traces)
    with pytest.raises(nsdyn.ProblemError, match=words):
        bounce(step=changes.pop("step", STEP / 7), **changes)  # a grid that no test compiled
    assert len(traces) == count or "gap" in words  # the check of the start evaluates the forces


def test_traced_values_are_sent_to_rollout():
    with pytest.raises(nsdyn.ProblemError, match=r"simulate: .*nsdyn.rollout"):
        jax.grad(lambda h: bounce(q0=jnp.stack([0.0, h])).q[-1, 1])(1.0)


def test_without_constraints_and_potential():
    system = nsdyn.System(mass=mass, force=force)
    problem = nsdyn.Problem(
        "free", system, q0=[0.0, 0.0], v0=[1.0, 0.0], t_end=0.05, params=ball().params
    )
    free = nsdyn.simulate(problem, EventDriven(RK4()), step=STEP, save_every=2)
    assert (free.lam.shape, free.mode.shape, len(free.events)) == ((4, 0), (4,), 0)
    np.testing.assert_allclose(free.t, [0.0, 0.02, 0.04, 0.05])
    np.testing.assert_allclose(free.energy, 1.0 + (G * free.t) ** 2)
    assert not free.has_potential
    assert list(free.events) == []
    assert free.to_xarray().energy.long_name.startswith("kinetic")
    assert len(free.plot().axes) == 3  # no panel for multipliers that are not there


def test_xarray(run):
    data = run.to_xarray()
    assert dict(data.sizes) == {"time": 101, "coordinate": 2, "velocity": 2, "row": 1, "event": 2}
    assert data.direction.dims == ("event", "row", "velocity")
    assert float(data.q.sel(time=0.5, method="nearest")[1]) == run.q[50, 1]
    np.testing.assert_array_equal(data.event_time, run.events.t)
    np.testing.assert_array_equal(data.event_q, run.events.q)
    assert "force" in data.lam.long_name
    assert "impulse" in data.Lam.long_name
    assert data.attrs["step"] == STEP
    assert '"m": 2.0' in data.attrs["params"]


def test_xarray_names_the_parts_of_a_mode(run):
    fields = {"mode_before": np.zeros((2, 3), int), "mode_after": np.ones((2, 3), int)}
    events = Events.of(dataclasses.replace(run.events.records, **fields))
    mode = {"mode": np.zeros((101, 3), int), "mode_stop": np.zeros(3, int)}
    data = dataclasses.replace(run, **mode, events=events).to_xarray()
    assert data.mode.dims == ("time", "part")
    assert data.mode_after.dims == ("event", "part")


def test_plot(run, tmp_path):
    figure = run.plot()
    height, speed = (figure.axes[i].lines for i in (0, 1))
    assert [ax.get_ylabel() for ax in figure.axes] == ["q", "v", "lam (forces)", "T + V"]
    marks = [line for line in speed if len(line.get_xdata()) == 2]
    np.testing.assert_allclose(sorted(line.get_xdata()[0] for line in marks), run.events.t)
    curve = next(line for line in speed if line.get_label() == "v[1]")
    at = np.flatnonzero(curve.get_xdata() == run.events.t[0])
    np.testing.assert_allclose(curve.get_ydata()[at[:2]], [-G * IMPACT, E * G * IMPACT])  # upright
    assert len({line.get_color() for line in height if line.get_label().startswith("q")}) == 2
    figure.savefig(tmp_path / "run.pdf")
    assert (tmp_path / "run.pdf").stat().st_size > 1000


def test_jumps_are_drawn_in_order():
    t, x = np.array([0.0, 1.0, 2.0]), np.array([[0.0], [12.0], [20.0]])
    when = np.array([1.0, 1.0, 1.5])
    times, values = with_jumps(
        t, x, when, np.array([[1.0], [11.0], [13.0]]), np.array([[11.0], [12.0], [14.0]])
    )
    assert times.tolist() == [0.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.5, 1.5, 2.0]
    assert values[:, 0].tolist() == [0.0, 1.0, 11.0, 11.0, 12.0, 12.0, 13.0, 14.0, 20.0]


class Pair(NamedTuple):
    left: float
    right: tuple


class Part(eqx.Module):
    length: jax.Array
    name: str = eqx.field(static=True)


def test_parameters_keep_their_names():
    tree = {
        "b": Pair(1, (jnp.arange(2), None)),
        "a": Part(jnp.ones(()), "rod"),
        3: [],
        "f": gap,
        "key": jax.random.key(0),
    }
    found = plain(tree)
    assert list(found) == ["b", "a", "3", "f", "key"]
    assert list(found["b"]) == ["left", "right"]
    assert found["b"]["left"] == np.array(1)
    assert found["b"]["right"][0].tolist() == [0, 1]
    assert found["b"]["right"][1] is None
    assert type(found["a"]["length"]) is np.ndarray
    assert found["a"]["name"] == "rod"
    assert found["3"] == []
    assert found["f"] == "gap"
    assert isinstance(found["key"], str)


def test_importing_loads_no_heavy_packages():
    heavy = ("xarray", "matplotlib", "scipy.io", "pandas")
    program = f"import sys, nsdyn; print([m for m in {heavy} if m in sys.modules])"
    root = Path(__file__).parents[1]
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root
    )
    assert found.stdout.strip() == "[]"
