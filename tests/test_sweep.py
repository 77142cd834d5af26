"""Sweeps give what single runs give, in chunks that share one program; a failure marks its own
trajectory only."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nsdyn
from nsdyn.driver import arguments, many_runs
from nsdyn.driver import batch_run as module
from nsdyn.driver.batch_run import Prepared
from nsdyn.driver.filling import Results
from nsdyn.integrators import RK4, EventDriven

STEP, T_END, MAX_EVENTS = 2e-2, 0.5, 2
METHOD = EventDriven(RK4())
traces = []


def mass(q, p):
    return jnp.diag(p["masses"])


def force(q, v, t, p):
    traces.append(t)
    return -p["k"] * q + p["blow"] * v**3


def potential(q, p):
    return 0.5 * p["k"] * jnp.sum(q**2)


def times(p):
    return p["locks"]


# Two oscillators; the second is held from locks[0] to locks[1].
PROBLEM = nsdyn.Problem(
    "oscillators",
    nsdyn.System(mass=mass, force=force, potential=potential),
    nsdyn.Scheduled(times=times, stages=(None, nsdyn.lock(1), None)),
    q0=[1.0, 0.5],
    v0=[0.0, 1.0],
    t_end=T_END,
    params={"masses": jnp.array([1.0, 2.0]), "k": 4.0, "blow": 0.0, "locks": jnp.array([0.2, 0.3])},
)
SIZE = 11


def batch(size=SIZE):
    spread = np.linspace(0.0, 1.0, size)
    locks = np.stack([0.1 + 0.1 * spread, 0.25 + 0.2 * spread], axis=1)
    params = {**PROBLEM.params, "k": 3.0 + spread, "locks": locks, "blow": np.zeros(size)}
    return {"params": params, "q0": np.stack([1 + spread, spread], axis=1)}


def run(size=SIZE, trajectories=2, **changes):
    """A sweep in chunks of `trajectories`, two at a time: memory for no more."""
    each = module.WORK * module._bytes(PROBLEM, round(T_END / STEP) + 1, MAX_EVENTS)
    arguments = {
        "step": STEP,
        "max_events": MAX_EVENTS,
        "memory": 2.5 * trajectories * each,
    } | batch(size)
    return nsdyn.sweep(PROBLEM, METHOD, **arguments | changes)


@pytest.fixture(scope="module", autouse=True)
def two_cores():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "WORTH_A_THREAD", 2)
        patch.setattr(module.os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
        yield


@pytest.fixture(scope="module")
def result():
    return run()


def values(i):
    given = batch()
    params = {
        name: x[i] if np.ndim(x) > np.ndim(PROBLEM.params[name]) else x
        for name, x in given["params"].items()
    }
    return {"params": params, "q0": given["q0"][i]}


def test_shapes(result):
    rows = 26
    assert len(result) == SIZE
    assert result.t.shape == (rows,)
    assert result.q.shape == result.v.shape == (SIZE, rows, 2)
    assert result.lam.shape == (SIZE, rows, 1)
    assert result.mode.shape == result.energy.shape == (SIZE, rows)
    assert result.events.v_after.shape == (SIZE, MAX_EVENTS, 2)
    assert result.events.count.shape == result.status.shape == result.t_stop.shape == (SIZE,)
    assert all(
        type(x) is np.ndarray for x in jax.tree.leaves((result.q, result.events, result.status))
    )
    assert result.ok.all()
    assert result.failed == ""
    assert np.all(result.t_stop == T_END)
    assert repr(result).startswith("Solution(oscillators: 11 runs of 26 samples, 0 failed; Event")


def test_each_trajectory_is_that_of_a_single_run(result):
    for i in (0, 5, SIZE - 1):  # the last chunk is filled up
        single = nsdyn.simulate(
            PROBLEM, METHOD, step=STEP, max_events=MAX_EVENTS, check=False, **values(i)
        )
        np.testing.assert_array_equal(result.t, single.t)
        np.testing.assert_allclose(result.q[i], single.q, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(result.v[i], single.v, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(result.lam[i], single.lam, rtol=1e-11, atol=1e-11)
        np.testing.assert_allclose(result.energy[i], single.energy, rtol=1e-12)
        np.testing.assert_array_equal(result.mode[i], single.mode)
        assert result.events.count[i] == len(single.events) == 2
        np.testing.assert_allclose(result.events.t[i], batch()["params"]["locks"][i], rtol=1e-14)
        np.testing.assert_allclose(
            result.events.v_after[i], single.events.v_after, rtol=1e-12, atol=1e-12
        )
    assert not np.allclose(result.q[0], result.q[1])


def test_all_sizes_share_one_program(result):
    count, programs = len(traces), list(module._compiled.values())
    other = run(size=7, params=jax.tree.map(lambda x: 2 * x, batch(7)["params"]))
    again = run(size=4, q0=np.ones((4, 2)))
    assert len(traces) == count
    assert all(
        now is before for now, before in zip(module._compiled.values(), programs, strict=True)
    )
    assert (len(other), len(again)) == (7, 4)


def test_a_failure_marks_its_own_trajectory(result):
    given = batch()
    given["params"]["blow"][[3, 4, -1]] = 1e3
    given["params"]["locks"][[3, 4, -1]] = [2 * T_END, 3 * T_END]
    mixed = run(**given)
    failed = np.flatnonzero(~mixed.ok)
    assert failed.tolist() == [3, 4, SIZE - 1]
    assert np.all(mixed.status[failed] == nsdyn.Status.NONFINITE)
    assert np.all(mixed.t_stop[failed] < T_END)
    assert np.all(np.isnan(mixed.q[failed, -1]))
    np.testing.assert_array_equal(
        mixed.q[mixed.ok], result.q[mixed.ok]
    )  # the neighbours are as they were
    assert mixed.failed.startswith("3 of 11 NONFINITE: the state became infinite or NaN")
    assert "Runs 3 (t = " in mixed.failed
    assert "11 runs of 26 samples, 3 failed" in repr(mixed)


def test_progress_and_threads(result, monkeypatch):
    calls, threads = [], set()
    put = Prepared.put

    def watched(self, *args):
        threads.add(threading.current_thread().name)
        meet.wait(timeout=10)
        return put(self, *args)

    meet = threading.Barrier(2)  # passes only if two chunks are under way at a time
    monkeypatch.setattr(Prepared, "put", watched)
    run(size=7, progress=lambda *args: calls.append(args))
    assert [total for _, total in calls] == [7] * 4
    done = [done for done, _ in calls]
    assert done == sorted(done)
    assert done[-1] == 7
    assert len(threads) == 2


def test_an_error_in_progress_stops_the_sweep(result, monkeypatch):
    chunks = []
    put = Prepared.put
    monkeypatch.setattr(
        Prepared,
        "put",
        lambda self, results, first: chunks.append(first) or put(self, results, first),
    )

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(size=200, progress=stop)
    assert len(chunks) < 100


def test_layout():
    """Trajectories in a chunk, and chunks at a time: whatever the number of cores."""
    layout = lambda total, memory=1e9, each=1.0: module._layout(total, each, memory)
    assert layout(1) == (1, 1)
    assert layout(3) == (4, 1)
    assert layout(4) == (2, 2)
    assert layout(10**6)[0] == module.CHUNK
    assert layout(10**6, memory=float("inf"))[0] == module.CHUNK
    assert layout(100, memory=9.0) == (4, 2)
    assert layout(100, memory=1.5) == (1, 1)
    with pytest.raises(
        nsdyn.ProblemError, match=r"memory: one trajectory needs about 1e\+06 bytes.*save_every"
    ):
        layout(10, memory=1e5, each=1e6)
    for wrong in (0, -1.0, "1 GB", float("nan")):
        with pytest.raises(nsdyn.ProblemError, match="memory: expected a positive number"):
            layout(10, memory=wrong)


def test_a_batch_of_which_only_later_chunks_have_events():
    """Chunks without events have no room for any."""
    locks = np.full((16, 2), [2 * T_END, 3 * T_END])
    locks[8:] = [0.1, 0.2]
    out = nsdyn.sweep(PROBLEM, METHOD, step=STEP, params={**PROBLEM.params, "locks": locks})
    assert out.events.count.tolist() == [0] * 8 + [2] * 8
    np.testing.assert_allclose(out.events.t[8:, :2], locks[8:])
    assert np.isnan(out.events.t[:8]).all() and (out.events.mode_after[:8] == -1).all()


def test_the_size_of_results_is_foreseen(result):
    arrays = [
        result.q,
        result.v,
        result.lam,
        result.mode,
        result.energy,
        *jax.tree.leaves(result.events.records),
    ]
    assert sum(x.nbytes for x in arrays) == SIZE * module._bytes(PROBLEM, len(result.t), MAX_EVENTS)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"q0": np.ones((5, 2))}, r"one batch size .*params\['k'\]: 11.*q0: 5"),
        ({"q0": np.ones((SIZE, 3))}, r"q0: expected shape \(2,\), or \(B, 2\).*found \(11, 3\)"),
        ({"v0": np.ones((1, SIZE, 2))}, r"v0: expected shape \(2,\)"),
        ({"v0": "fast"}, "v0: expected numbers"),
        (
            {"params": {**PROBLEM.params, "locks": np.ones((SIZE, 3))}},
            r"params\['locks'\]: expected shape \(2,\), or",
        ),
        (
            {"params": {**PROBLEM.params, "k": np.ones((SIZE, 1))}},
            r"params\['k'\]: expected shape \(\), or \(B,\)",
        ),
        ({"params": {**PROBLEM.params, "k": "stiff"}}, r"params\['k'\]: expected numbers"),
        ({"params": {"k": np.ones(SIZE)}}, r"params: .*no 'masses'.*\*\*problem.params"),
        ({"params": {**PROBLEM.params, "k": [1.0, 2.0]}}, "params: expected the structure"),
        ({"params": None, "q0": None}, "found none.*nsdyn.simulate"),
        ({"params": None, "q0": np.ones((0, 2))}, "q0: expected at least one"),
        ({"step": "small"}, "step"),
    ],
)
def test_wrong_arguments(changes, words):
    count = len(traces)
    with pytest.raises(nsdyn.ProblemError, match=words):
        run(**changes)
    assert len(traces) == count


def test_traced_values_are_sent_to_rollout():
    with pytest.raises(nsdyn.ProblemError, match=r"sweep: .*nsdyn.rollout"):
        jax.jit(lambda q0: run(q0=q0).q)(np.ones((SIZE, 2)))


@pytest.mark.parametrize(("n", "threads"), [(7, 1), (2, 2)])
def test_programs_that_call_lapack_run_one_at_a_time(n, threads, monkeypatch):
    """Side by side they can wait for each other for ever. (Native programs do not call it.)"""
    monkeypatch.setenv("NSDYN_BACKEND", "xla")
    found = []
    threads_of = many_runs.roomy_threads
    monkeypatch.setattr(
        many_runs, "roomy_threads", lambda count: found.append(count) or threads_of(count)
    )
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    system = nsdyn.System(mass=lambda q, p: jnp.eye(n) + 0.1, force=lambda q, v, t, p: -q)
    problem = nsdyn.Problem("springs", system, q0=np.zeros(n), v0=np.ones(n), t_end=0.1)
    out = nsdyn.sweep(
        problem, METHOD, step=0.05, v0=np.ones((64, n)) * np.linspace(0.0, 1.0, 64)[:, None]
    )
    assert found == [threads] and out.ok.all() and np.abs(out.v[0]).max() == 0.0


def test_rows_filled_by_blocks_are_those_of_whole_chunks(monkeypatch):
    """Several blocks, events in some of them, a group that fails as a whole, a last group that is
    filled up: the bits are those of chunks that are put together first."""
    monkeypatch.setenv("NSDYN_BACKEND", "native")
    size = 19
    given = batch(size)
    given["params"]["blow"][:8] = 1e3
    options = {"step": T_END / 160, "t_end": T_END}
    found = nsdyn.sweep(PROBLEM, METHOD, **given, **options)
    values = arguments.batch_values(PROBLEM, given["params"], given["q0"], None)
    layout = module.laid_out(PROBLEM, arguments.setup(PROBLEM, METHOD, None, **options), values)
    ready, results = module.prepared(layout), Results(size)
    assert layout.size == module.LANES and ready.programs.march is not None
    for first in ready.firsts:
        results.put(first, ready.chunk(first))
    whole = results.whole
    assert not found.ok[:8].any() and found.ok[8:].all()
    assert np.isnan(found.q[:8, -1]).all() and (found.events.count[8:] == 2).all()
    for name, value in whole.named().items():
        jax.tree.map(np.testing.assert_array_equal, getattr(found, name), value)


def test_an_error_in_one_thread_ends_the_others(monkeypatch):
    chunks = []

    def fails(self, results, first):
        chunks.append(first)
        raise ZeroDivisionError

    monkeypatch.setattr(Prepared, "put", fails)
    with pytest.raises(ZeroDivisionError):
        run(size=200)
    assert len(chunks) <= 2
