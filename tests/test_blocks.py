"""Runs in blocks: another grid compiles nothing, and where a block ends leaves no trace in the
result."""

import equinox as eqx
import jax
import numpy as np
import pytest
from mechanisms import BALL, SWING, floor_gap, pegged_swing, run

import nsdyn
from nsdyn import laws
from nsdyn.driver import blocks
from nsdyn.integrators import NSGA, RK4, EventDriven
from nsdyn.native.program import Program

COMPILED = "/jax/core/compile/backend_compile_duration"
METHODS = {"event-driven": EventDriven(RK4()), "time-stepping": NSGA()}


class Compilations:
    """How many programs are made inside a `with`: by XLA, and native ones, compiled or from the
    cache. `native` is the number of the latter."""

    def __enter__(self):
        self.count = self.native = 0
        jax.monitoring.register_event_duration_secs_listener(self._listen)
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(Program, "__init__", self._counted(Program.__init__))
        return self

    def _listen(self, event, duration, **_):
        self.count += event == COMPILED

    def _counted(self, make):
        def counted(*args):
            self.count += 1
            self.native += 1
            make(*args)

        return counted

    def __exit__(self, *_):
        self._patch.undo()
        jax.monitoring.unregister_event_duration_listener(self._listen)


@pytest.mark.parametrize("name", METHODS)
def test_a_convergence_study_compiles_each_integrator_once(name, monkeypatch):
    monkeypatch.setenv("NSDYN_CACHE", "0")  # a kept verdict on the events would put off its program
    mass, force = (lambda q, p: SWING.mass(q, p)), (lambda q, v, t, p: SWING.force(q, v, t, p))
    own = nsdyn.System(mass=mass, force=force)  # functions that no other test has compiled
    problem = eqx.tree_at(lambda x: x.system, pegged_swing(), own)
    steps = 0.02 / 2.0 ** np.arange(8)
    with Compilations() as first:
        runs = [nsdyn.simulate(problem, METHODS[name], step=steps[0])]
    assert first.count > 0 and (first.native > 0 or runs[0].backend == "xla")
    with Compilations() as others:
        runs += [nsdyn.simulate(problem, METHODS[name], step=h) for h in steps[1:]]
        nsdyn.simulate(problem, METHODS[name], step=0.01, t_end=0.33, save_every=7, max_events=3)
    assert others.count == 0
    errors = [np.abs(run.q[-1] - runs[-1].q[-1]).max() for run in runs[:-1]]
    assert len(runs[-1].t) == 40 * 2**7 + 1 and errors[-1] < 0.05 * errors[0]


def test_rollout_outside_jit_compiles_once():
    once = lambda **options: nsdyn.rollout(
        pegged_swing(), METHODS["event-driven"], step=0.05, t_end=0.2, **options
    )
    here = once(save_at=[0.07])
    with Compilations() as others:
        again = once(save_at=[0.07])
        other = once(save_at=[0.07], v0=np.array([0.1, 0.0]))
    assert others.count == 0
    assert np.array_equal(again.q, here.q) and not np.array_equal(other.q, here.q)


def test_another_grid_compiles_no_new_sweep():
    problem = pegged_swing()
    sweep = lambda **options: nsdyn.sweep(
        problem,
        METHODS["event-driven"],
        params={"m": np.linspace(1.0, 2.0, 3), "g": 9.81},
        **options,
    )
    sweep(step=0.02)
    with Compilations() as others:
        sweep(step=0.01)
        sweep(step=0.01, t_end=0.5, save_every=3, max_events=5)
    assert others.count == 0


def bouncing(t_end):
    return nsdyn.Problem(
        "ball",
        BALL,
        nsdyn.Contact(floor_gap, rest_speed=1e-3),
        [0.05],
        [0.0],
        0.0,
        t_end,
        {"g": 9.81},
    )


def impacts(e, height=0.05, g=9.81, count=200):
    """Times of the impacts of a ball dropped from a height."""
    fall = np.sqrt(2 * height / g)
    return fall * (1 + 2 * np.cumsum(np.append(0.0, e ** np.arange(1, count))))


def test_a_run_of_many_blocks_is_that_of_one():
    problem = pegged_swing()
    step = 0.8 / (2.3 * blocks.BLOCK)
    single = nsdyn.simulate(problem, METHODS["event-driven"], step=step)
    whole = run(problem, METHODS["event-driven"], step=step)
    assert len(single.t) == len(whole.t) > 2 * blocks.BLOCK
    for name in ("t", "q", "v", "lam", "mode", "energy"):
        np.testing.assert_allclose(
            getattr(single, name), getattr(whole, name), rtol=1e-11, atol=1e-11
        )
    assert len(single.events) == len(whole.events) == 1


@pytest.mark.parametrize("step", [1e-2, 0.5])
def test_more_events_than_a_block_holds(step):
    """With the large step even a single chunk has more."""
    e, t_end = 0.97, 5.0
    exact = impacts(e)
    exact = exact[exact < t_end]
    assert len(exact) > blocks.RECORDS
    found = nsdyn.simulate(
        bouncing(t_end), METHODS["event-driven"], step=step, law=laws.Restitution(e)
    )
    np.testing.assert_allclose(found.events.t, exact, rtol=1e-9)
    assert found.ok and found.t[-1] == t_end


def test_the_limit_of_events_holds_over_all_blocks():
    e, t_end = 0.97, 5.0
    exact = impacts(e)
    count = int(np.sum(exact < t_end))
    options = {"step": 1e-2, "law": laws.Restitution(e)}
    full = nsdyn.simulate(bouncing(t_end), METHODS["event-driven"], max_events=count, **options)
    assert len(full.events) == count
    with pytest.raises(nsdyn.SimulationError, match="Raise max_events") as caught:
        nsdyn.simulate(bouncing(t_end), METHODS["event-driven"], max_events=count - 1, **options)
    assert caught.value.status is nsdyn.Status.LOG_FULL
    assert len(caught.value.partial.events) == count - 1
    assert exact[count - 2] <= caught.value.t <= exact[count - 1]


def test_a_sweep_in_blocks_gives_the_single_runs():
    """More samples and more events than fit into a block, at other times in each run."""
    problem = bouncing(5.0)
    heights = np.array([[0.05], [0.02], [0.5]])
    options = {"step": 5e-3, "law": laws.Restitution(0.97), "max_events": 90}
    together = nsdyn.sweep(problem, METHODS["event-driven"], q0=heights, **options)
    assert len(together.t) > 2 * blocks.BLOCK_OF_BATCH
    assert together.ok.tolist() == [True, False, True]  # the lowest one fills its log
    assert together.status[1] == nsdyn.Status.LOG_FULL and together.events.count[1] == 90
    for i in (0, 2):
        single = nsdyn.simulate(problem, METHODS["event-driven"], q0=heights[i], **options)
        mine = together[i]
        assert len(mine.events) == len(single.events) == together.events.count[i]
        np.testing.assert_allclose(mine.q, single.q, atol=1e-11)
        np.testing.assert_allclose(mine.events.trimmed().t, single.events.t, rtol=1e-12)


def test_rollout_takes_the_last_step_short_without_padding_in_its_samples():
    problem = pegged_swing()
    whole = run(problem, METHODS["event-driven"], step=0.013, save_every=37)
    single = nsdyn.simulate(problem, METHODS["event-driven"], step=0.013, save_every=37)
    assert whole.t[-1] == single.t[-1] == 0.8
    np.testing.assert_allclose(whole.q, single.q, atol=1e-12)
