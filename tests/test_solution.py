"""One class of results: a batch is made of runs, is saved like a run, and says what it is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import ball, pegged_swing, track

import nsdyn
from nsdyn import laws
from nsdyn.integrators import RK4, EventDriven

METHOD = EventDriven(RK4())
STEP = 0.02
SPEEDS = np.array([[4.0, 0.0], [5.0, 0.0], [1.0, 0.0]])


@pytest.fixture(scope="module")
def batch() -> nsdyn.Solution:
    """Two runs that reach the corner and one that does not."""
    slopes = np.array([0.5, 0.3, 0.5])
    params = {**track().params, "a": slopes}
    return nsdyn.sweep(track(), METHOD, step=STEP, v0=SPEEDS, params=params, max_events=6)


def test_the_three_ways_give_one_class(batch):
    single = nsdyn.simulate(track(), METHOD, step=STEP)
    pure = nsdyn.rollout(track(), METHOD, step=STEP)
    assert type(single) is type(pure) is type(batch) is nsdyn.Solution is nsdyn.Trajectory
    assert type(single.events) is type(pure.events) is type(batch.events) is nsdyn.Events
    np.testing.assert_allclose(single.q, pure.q, atol=1e-13)
    assert pure.ok and pure.failed == "" and pure.params is None
    assert (pure.problem, pure.step, pure.save_every, pure.t_end) == ("track", STEP, 1, 0.4)
    assert len(pure.events) == len(single.events) == 1 and pure.events.t.shape == (128,)
    assert [event.t for event in pure.events] == pytest.approx([event.t for event in single.events])
    assert isinstance(pure.events[0], nsdyn.Event) and isinstance(pure.events[0].t, float)
    assert pure.events[pure.events.t > 0.0].t.shape == (1,)


def test_a_batch_is_made_of_runs(batch):
    assert len(batch) == 3 and batch.is_batch and batch.ok.all()
    one = batch[1]
    assert not one.is_batch and one.ok and one.q.shape == (21, 2)
    assert one.params["a"] == 0.3 and one.params["m"] == 1.0
    single = nsdyn.simulate(
        track(), METHOD, step=STEP, v0=SPEEDS[1], params={**track().params, "a": 0.3}
    )
    np.testing.assert_allclose(one.q, single.q, atol=1e-13)
    assert len(one.events) == 1 and one.events[0].t == pytest.approx(0.1)
    assert [len(run.events) for run in batch] == [1, 1, 0]
    assert len(batch[batch.events.count > 0]) == 2 and len(batch[1:]) == 2
    assert repr(one).startswith("Solution(track: t = 0 to 0.4, 21 samples, n = 2, m = 1, 1 event;")
    with pytest.raises(IndexError, match="there are 3 runs"):
        batch[3]
    with pytest.raises(TypeError, match="single run"):
        one[0]
    with pytest.raises(TypeError, match="single run"):
        len(one)
    assert one and repr(batch.events) == "Events(2 events in 3 runs)"


def test_runs_under_vmap_are_a_batch(batch):
    found = jax.vmap(lambda v0: nsdyn.rollout(track(), METHOD, step=STEP, v0=v0))(SPEEDS)
    assert len(found) == 3 and found.t.shape == (3, 21) and found[0].t.shape == (21,)
    np.testing.assert_allclose(found[0].q, batch[0].q, atol=1e-13)
    assert found.to_xarray().sizes["time"] == 21


def test_a_batch_has_the_dimension_run(batch):
    data = batch.to_xarray()
    assert dict(data.sizes) == {
        "run": 3,
        "time": 21,
        "coordinate": 2,
        "velocity": 2,
        "row": 1,
        "event": 1,
    }
    assert data.q.dims == ("run", "time", "coordinate")
    assert data.event_time.dims == ("run", "event")
    assert data.event_count.values.tolist() == [1, 1, 0]
    assert data.status.dims == ("run",)


def test_a_batch_comes_back_from_a_file(batch, tmp_path):
    batch.save(tmp_path / "batch.nc")
    back = nsdyn.load(tmp_path / "batch.nc")
    for name in ("t", "q", "v", "lam", "mode", "energy", "status", "t_stop", "mode_stop"):
        np.testing.assert_array_equal(getattr(back, name), getattr(batch, name))
    assert back.params["a"].tolist() == [0.5, 0.3, 0.5] and back.params["g"].shape == (3,)
    np.testing.assert_array_equal(back.events.count, batch.events.count)
    assert back[0].events[0].t == batch[0].events[0].t and len(back[2].events) == 0
    text = (tmp_path / "batch.nc").read_bytes()
    assert text.count(b'"shared"') == 3  # m, g and l are written once


def test_a_batch_is_plotted_with_all_its_runs(batch):
    """One line for each run and coordinate, with one name for all runs."""
    positions = batch.plot().axes[0]
    assert len(positions.lines) == 3 * 2
    assert len(positions.get_legend().get_texts()) == 2
    for run in range(3):
        drawn = positions.lines[2 * run].get_ydata()
        assert drawn[0] == batch.q[run, 0, 0] and drawn[-1] == batch.q[run, -1, 0]
    assert "3 of 3 runs" in positions.get_title(loc="left")


def test_a_traced_solution_says_so():
    texts = []

    @jax.jit
    def run(e):
        out = nsdyn.rollout(ball(t_end=0.1), METHOD, step=STEP, law=laws.Restitution(e))
        texts.extend([repr(out), repr(out.events)])
        return out.q

    run(jnp.array(0.5))
    assert texts == [
        "Solution(ball: 6 samples, traced; EventDriven(method=RK4()), Restitution(e=traced))",
        "Events(traced, 128 at most)",
    ]


def test_a_failed_run_says_how():
    out = nsdyn.rollout(track(), METHOD, step=STEP, law=laws.Restitution(0.5))
    assert not out.ok and "LAW_VIOLATES at t = 0.125" in repr(out)
    assert out.failed.startswith("LAW_VIOLATES: the velocity that the law gave")


def test_what_cannot_become_an_array_is_not_saved_in_silence(tmp_path):
    system = nsdyn.System(mass=lambda q, p: jnp.eye(1), force=lambda q, v, t, p: p["pull"](q))
    params = {"pull": jnp.sin, "name": "spring", "k": 1.0}
    problem = nsdyn.Problem("spring", system, q0=[1.0], v0=[0.0], t_end=0.1, params=params)
    run = nsdyn.simulate(problem, METHOD, step=STEP, check=False)
    assert run.params["pull"] is jnp.sin
    with pytest.warns(UserWarning, match=r"save: params\['pull'\] cannot become an array"):
        run.save(tmp_path / "run.nc")
    back = nsdyn.load(tmp_path / "run.nc")
    assert back.params["pull"] == "sin" and back.params["name"] == "spring"


def test_tolerances_go_through_all_ways_to_run():
    """Round-off in the constraints is enough to lose them if nothing is tolerated."""
    strict = {"step": STEP, "tolerances": nsdyn.Tolerances(lost=0.0)}
    with pytest.raises(nsdyn.SimulationError) as caught:
        nsdyn.simulate(pegged_swing(), METHOD, **strict)
    assert caught.value.status is nsdyn.Status.CONSTRAINTS_LOST
    pure = nsdyn.rollout(pegged_swing(), METHOD, **strict)
    many = nsdyn.sweep(pegged_swing(), METHOD, v0=np.zeros((2, 2)), **strict)
    assert pure.status == nsdyn.Status.CONSTRAINTS_LOST and not many.ok.any()
    with pytest.raises(nsdyn.ProblemError, match="tolerances: expected"):
        nsdyn.simulate(track(), METHOD, step=STEP, tolerances=1e-6)
