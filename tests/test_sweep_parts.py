"""Sweeps in threads, in other processes and on clusters have the same bits; what is interrupted
goes on where it was, and nothing is computed twice."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import nsdyn
from nsdyn import laws, samples
from nsdyn.cli.commands import app
from nsdyn.driver import batch_run, blocks, many_runs, sweep_parts, workers
from nsdyn.driver.arguments import batch_values, setup
from nsdyn.driver.processes import Processes, TookTooLong, WorkerDied
from nsdyn.integrators import RK4, EventDriven

ROOT = Path(__file__).resolve().parents[1]
METHOD = EventDriven(RK4())
RUNS = 20  # three parts of 8 lanes
MEMORY = 1e5  # so little that parts are as small with XLA alone


def mass(q, p):
    return jnp.eye(1) * p["m"]


def force(q, v, t, p):
    return -p["m"] * p["g"] * jnp.ones(1)


def gap(q, t, p):
    return q


BALL = nsdyn.Problem(
    "ball",
    nsdyn.System(mass=mass, force=force),
    nsdyn.Contact(gap),
    q0=[1.0],
    v0=[0.0],
    t_end=0.8,
    params={"m": jnp.asarray(1.0), "g": jnp.asarray(9.81)},
)
STEP = 0.05
CLOSED_OVER = """
import jax.numpy as jnp
import numpy as np
import nsdyn
from nsdyn import integrators

third = jnp.array([1 / 3])
width = lambda: str(third.dtype)
system = nsdyn.System(mass=lambda q, p: jnp.eye(1), force=lambda q, v, t, p: third * p["f"])
point = nsdyn.Problem(
    "point", system, None, q0=[0.0], v0=[0.0], t_end=0.5, params={"f": jnp.asarray(1.0)}
)
run = lambda **more: nsdyn.sweep(
    point, integrators.EventDriven(integrators.RK4()), step=0.05,
    params={"f": np.linspace(1.0, 2.0, 9)}, **more,
)
"""
# The first ones do not reach the floor.
HEIGHTS = np.concatenate([np.linspace(5.0, 6.0, 8), np.linspace(0.5, 1.5, RUNS - 8)])[:, None]


def run(**options):
    given = {"step": STEP, "law": laws.Restitution(0.5), "q0": HEIGHTS, "max_events": 8}
    return nsdyn.sweep(BALL, METHOD, memory=MEMORY, **given | options)


def bits(solution):
    """All results; `t` apart, as it may be shared."""
    found = {name: variable[1] for name, variable in solution.variables().items()}
    return {"t": np.asarray(solution.t)} | found


def assert_same_bits(one, other):
    one, other = bits(one), bits(other)
    assert one.keys() == other.keys()
    for name, x in one.items():
        y = other[name]
        assert (x.shape, x.dtype) == (y.shape, y.dtype), name
        assert np.ascontiguousarray(x).tobytes() == np.ascontiguousarray(y).tobytes(), name


def computed(folder):
    """The first runs of the parts in the order in which they were computed."""
    return [int(x) for x in re.findall(r"^part (\d+):", (folder / "log.txt").read_text(), re.M)]


class Mortal:
    """A client whose workers die of some parts."""

    def __init__(self, *deadly):
        self.deadly, self.count = deadly, 0

    def submit(self, function, job, own, part, folder):
        future = Future()
        self.count += 1
        if part.first in self.deadly:
            future.set_exception(WorkerDied("3 processes in a row died"))
        else:
            future.set_result(function(job, own, part, folder))
        return future


@pytest.fixture(scope="module", autouse=True)
def two_cores():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_run, "WORTH_A_THREAD", 4)
        patch.setattr(batch_run.os, "sched_getaffinity", lambda process: {0, 1}, raising=False)
        yield


@pytest.fixture(scope="module")
def plain():
    return run()


def test_the_runs_differ_in_their_events(plain):
    assert plain.ok.all() and (plain.events.count[:8] == 0).all()
    assert (plain.events.count[8:] > 0).all() and np.all(plain.events.Lam[8:, 0] != 0)


# In a folder


def test_a_folder_holds_the_same_bits(plain, tmp_path):
    calls = []
    kept = run(folder=tmp_path / "sweep", progress=lambda *args: calls.append(args))
    assert_same_bits(plain, kept)
    assert calls[0] == (0, RUNS) and calls[-1] == (RUNS, RUNS)
    back = nsdyn.load(tmp_path / "sweep")
    assert_same_bits(plain, back)
    assert isinstance(back.q, np.memmap) and repr(back) == repr(plain)
    assert back.params["m"].tolist() == [1.0] * RUNS
    parts = computed(tmp_path / "sweep")
    assert len(parts) == len(set(parts)) >= 2
    assert not (tmp_path / "sweep" / "parts").exists()


def test_what_comes_from_a_folder_is_a_solution_like_others(plain, tmp_path):
    kept = run(folder=tmp_path / "sweep")
    data = kept.to_xarray()
    assert data.q.dims == ("run", "time", "coordinate")
    q = data.q.variable._data  # not read yet
    while getattr(q, "base", None) is not None and not isinstance(q, np.memmap):
        q = q.base
    assert isinstance(q, np.memmap)
    np.testing.assert_array_equal(data.event_time.values[8:, 0], plain.events.t[8:, 0])
    kept.save(tmp_path / "sweep.nc")
    np.testing.assert_array_equal(nsdyn.load(tmp_path / "sweep.nc").events.Lam, kept.events.Lam)
    assert len(kept.plot().axes[0].lines) == RUNS
    assert len(kept[9].events) == plain.events.count[9]


def test_a_complete_sweep_is_opened_not_computed(tmp_path, monkeypatch):
    run(folder=tmp_path / "sweep")
    monkeypatch.setattr(many_runs, "prepared", None)
    assert run(folder=tmp_path / "sweep").ok.all()


def test_an_interrupted_sweep_goes_on_where_it_was(plain, tmp_path):
    folder = tmp_path / "sweep"

    def stop(done, total):
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(folder=folder, progress=stop)
    with pytest.raises(nsdyn.FileError, match="not complete, it has"):
        nsdyn.load(folder)
    (folder / "parts" / ".00000000-draft.npz").write_bytes(
        b"cut off"
    )  # of a process that was killed
    assert_same_bits(plain, run(folder=folder))
    parts = computed(folder)
    assert len(parts) == len(set(parts)) >= 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"step": 0.04}, "step 0.05 instead of 0.04"),
        ({"q0": HEIGHTS + 1}, "other numbers"),
        (
            {"law": laws.Restitution(0.6)},
            r"law Restitution\(e=0.5\) instead of Restitution\(e=0.6\)",
        ),
        ({"max_events": 9}, "max_events 8 instead of 9"),
        ({"q0": HEIGHTS[:16]}, "runs 20 instead of 16"),
    ],
)
def test_a_folder_of_another_sweep_is_refused(tmp_path_factory, changes, words):
    folder = tmp_path_factory.getbasetemp() / "claimed"
    run(folder=folder)
    with pytest.raises(nsdyn.FileError, match=f"holds another sweep: .*{words}.*another folder"):
        run(folder=folder, **changes)


def test_a_folder_of_other_code_is_refused(tmp_path, monkeypatch):
    run(folder=tmp_path / "sweep")
    edited = dict(globals())
    exec("def heavier(q, v, t, p):\n    return -2 * p['m'] * p['g'] * jnp.ones(1)", edited)
    other = nsdyn.Problem(
        "ball",
        nsdyn.System(mass=mass, force=edited["heavier"]),
        nsdyn.Contact(gap),
        q0=[1.0],
        v0=[0.0],
        t_end=0.8,
        params=BALL.params,
    )
    monkeypatch.setitem(globals(), "BALL", other)
    with pytest.raises(nsdyn.FileError, match="holds another sweep: other code"):
        run(folder=tmp_path / "sweep")


def test_our_own_code_is_code_too(monkeypatch):
    """Here, how a step is taken and how samples are collected."""
    values = batch_values(BALL, None, HEIGHTS, None)
    layout = batch_run.laid_out(BALL, setup(BALL, METHOD, None, step=STEP), values)
    code = lambda: sweep_parts.described(BALL, layout, 8)["code"]
    before = code()
    assert before == code()
    for module, name in ((blocks, "chunk"), (batch_run, "collect")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, lambda *_: None)
            assert code() != before


def test_folders_that_cannot_be_used(tmp_path):
    (tmp_path / "mine.txt").write_text("keep me")
    with pytest.raises(nsdyn.FileError, match=r"expected a new or empty folder.*other files"):
        run(folder=tmp_path)
    with pytest.raises(nsdyn.FileError, match="expected a folder, found the file"):
        run(folder=tmp_path / "mine.txt")
    with pytest.raises(nsdyn.FileError, match="folder: expected a path, found 3"):
        run(folder=3)


# Workers


def test_an_executor_gives_the_same_bits(plain, tmp_path):
    with ThreadPoolExecutor(2) as threads:
        assert_same_bits(plain, run(client=threads))
        assert_same_bits(plain, run(client=threads, folder=tmp_path / "sweep"))


def test_processes_give_the_same_bits(plain, tmp_path):
    assert_same_bits(plain, run(jobs=2, folder=tmp_path / "sweep"))
    log = (tmp_path / "sweep" / "log.txt").read_text()
    assert str(os.getpid()) not in re.findall(r"process (\d+)", log)
    parts = computed(tmp_path / "sweep")
    assert len(parts) == len(set(parts)) >= 2


def test_a_dask_client_gives_the_same_bits(plain, tmp_path):
    distributed = pytest.importorskip("distributed")
    options = {"processes": False, "n_workers": 1, "threads_per_worker": 2}
    with (
        distributed.LocalCluster(**options, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert_same_bits(plain, run(client=client, folder=tmp_path / "sweep"))
    parts = computed(tmp_path / "sweep")
    assert len(parts) == len(set(parts)) >= 2


def test_a_scheduler_is_named_on_the_command_line(tmp_path):
    distributed = pytest.importorskip("distributed")
    words = ["sweep", "point_on_track", "--vary", "a=0.4:0.6:9", "--step", "0.05"]
    options = {"processes": False, "n_workers": 1, "threads_per_worker": 1}
    found = {}
    with distributed.LocalCluster(**options, dashboard_address=None) as cluster:
        for name, more in {"here": [], "there": ["--client", cluster.scheduler_address]}.items():
            out = tmp_path / f"{name}.nc"
            done = CliRunner().invoke(app, [*words, *more, "--out", str(out)])
            assert done.exit_code == 0, done.stderr
            found[name] = nsdyn.load(out)
    assert found["here"].ok.all() and len(found["here"]) == 9
    assert_same_bits(found["here"], found["there"])


@pytest.mark.slow
def test_numbers_have_64_bits_on_a_dask_worker():
    """Also those that functions of a script close over: in a worker that has not imported nsdyn
    they would arrive with 32."""
    distributed = pytest.importorskip("distributed")
    names = {"__name__": "__main__"}  # so that its functions travel by value
    exec(CLOSED_OVER, names)
    plain = names["run"]()
    assert plain.q.dtype == np.float64 and plain.q[0, -1, 0] != np.float32(plain.q[0, -1, 0])
    options = {"n_workers": 1, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        assert client.submit(names["width"]).result() == "float32"  # the trap
        client.restart()
        assert_same_bits(plain, names["run"](client=client))


def test_runs_that_kill_their_workers_are_given_up(plain, tmp_path):
    folder = tmp_path / "sweep"
    words = r"1 of 3 parts were given up.*runs 8 to 15, the first with q0 = \[0.5\].*LOST"
    with pytest.warns(nsdyn.LostRunsWarning, match=words):
        mixed = run(client=Mortal(8), folder=folder)
    assert np.flatnonzero(~mixed.ok).tolist() == list(range(8, 16))
    assert (mixed.status[8:16] == nsdyn.Status.LOST).all() and np.isnan(mixed.q[8:16]).all()
    assert "8 of 20 LOST" in mixed.failed
    with pytest.warns(nsdyn.LostRunsWarning):
        assert_same_bits(mixed, run(client=Mortal(8)))
    healthy = Mortal()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same_bits(plain, run(client=healthy, folder=folder))
    assert healthy.count == 1 and sorted(computed(folder)) == [0, 8, 16]


def test_if_all_workers_die_that_is_an_error():
    with pytest.raises(nsdyn.NsdynError, match="all workers died"):
        run(client=Mortal(0, 8, 16))


def test_errors_of_workers_are_raised(monkeypatch):
    monkeypatch.setattr(sweep_parts.Work, "part", lambda *_: 1 / 0)
    with ThreadPoolExecutor(1) as threads, pytest.raises(ZeroDivisionError):
        run(client=threads)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"jobs": 0}, "jobs: expected a positive whole number of processes, found 0"),
        ({"jobs": 1.5}, "jobs: .*found 1.5"),
        ({"jobs": True}, "jobs: .*found True"),
        ({"jobs": 2, "client": Mortal()}, "jobs and client: expected one of the two"),
        ({"client": 3}, "client: expected the address of a Dask scheduler.*submit.*found 3"),
    ],
)
def test_wrong_workers(options, words):
    with pytest.raises(nsdyn.ProblemError, match=words):
        run(**options)


def test_a_scheduler_that_is_not_there(monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setattr(workers, "CONNECTION", 0.1)
    with pytest.raises(nsdyn.ProblemError, match=r"client: .*found none at 'tcp://127.0.0.1:9'"):
        run(client="tcp://127.0.0.1:9")


def test_what_cannot_travel_is_named(monkeypatch):
    """A generator, for instance."""
    monkeypatch.setattr(sweep_parts, "prepared", None)
    with pytest.raises(nsdyn.ProblemError, match="client: expected objects that other processes"):
        sweep_parts.packed("client", (x for x in ()))


def test_long_sweeps_under_lapack_take_processes(plain, monkeypatch):
    """The first chunk is computed here, and tells that the others are worth it."""
    taken = []

    class Here(Mortal):
        def __init__(self, count):
            super().__init__()
            taken.append(count)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            taken.append(self.count)

    monkeypatch.setattr(batch_run.Prepared, "side_by_side", False, raising=False)
    monkeypatch.setattr(many_runs, "Processes", Here)
    assert_same_bits(plain, run())
    assert taken == []
    monkeypatch.setattr(many_runs, "WORTH_PROCESSES", 0.0)
    assert_same_bits(plain, run())
    assert taken == [2, 2]


# Processes


def busy(seconds):
    began = time.process_time()
    while time.process_time() < began + seconds:
        pass
    return os.getpid()


def test_a_call_that_takes_too_long_is_given_up():
    """By CPU time; the next call gets a new process. So does one after `calls` of them."""
    with Processes(1, patience=1, calls=2) as processes:
        first, slow, *others = [processes.submit(busy, x) for x in (0, 60, 0, 0, 0)]
        with pytest.raises(TookTooLong, match="took more than 1 CPU s"):
            slow.result()
        found = [first.result(), *(x.result() for x in others)]
    assert found[1] == found[2] and len(set(found)) == 3


def end_once(path):
    """Die at the first call."""
    if not Path(path).exists():
        Path(path).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    print("no answer")
    return os.getpid()


def test_a_process_that_dies_is_replaced(tmp_path):
    with Processes(1) as pool:
        first = pool.submit(os.getpid).result()
        second = pool.submit(end_once, str(tmp_path / "died")).result()
        assert len({first, second, os.getpid()}) == 3
        with pytest.raises(ZeroDivisionError):
            pool.submit(divmod, 1, 0).result()
        assert pool.submit(os.getpid).result() == second
        deadly = pool.submit(os._exit, 7)
        with pytest.raises(WorkerDied, match=r"3 processes in a row died.*exit code 7"):
            deadly.result()


# Many wheels over a pothole

WHEELS = """
import os, re, signal, sys
import numpy as np
import nsdyn
from nsdyn import integrators, problems, samples

wheel = problems.wheel_over_pothole()
ranges = {"m": (5, 20), "lp": (0.2, 0.4), "v0[0]": (2.5, 4)}
values = samples.latin_hypercube(wheel, ranges, 10_000, seed=1)
start = np.asarray(wheel.v0) * values["v0"][:, :1] / wheel.v0[0]  # the wheel rolls
options = {"step": 5e-3, "save_every": 20, "max_events": 8, **values, "v0": start}
run = lambda **more: nsdyn.sweep(
    wheel, integrators.EventDriven(integrators.RK4()), **options, **more
)
"""
FATAL = r"""
def end(done, total):
    log = os.path.join(sys.argv[1], "log.txt")
    if done > total / 4 and len(set(re.findall(r"process (\d+)", open(log).read()))) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
run(jobs=2, folder=sys.argv[1], progress=end)
"""


def killing(folder, victims):
    """A progress that kills one of two workers as soon as both have computed, and says which
    one."""
    others = workers_of(folder)

    def progress(*_):
        found = workers_of(folder) - others
        if len(found) == 2 and not victims:
            victims.append(found.pop())
            os.kill(victims[0], signal.SIGKILL)

    return progress


def assert_each_part_once(folder, runs):
    """Every part is there, and none was computed twice."""
    parts = sorted(computed(folder))
    assert len(parts) > 100 and parts == list(range(0, runs, parts[1]))


def workers_of(folder):
    """The processes that computed parts."""
    log = folder / "log.txt"
    return {int(x) for x in re.findall(r"process (\d+)", log.read_text() if log.exists() else "")}


@pytest.fixture(scope="module")
def wheels():
    """The sweep as a function, and its results in one thread."""
    names = {}
    exec(WHEELS, names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(many_runs, "cores", lambda: 1)
        patch.setattr(batch_run, "cores", lambda: 1)
        found = names["run"]()
    assert found.ok.all() and (found.events.count == 3).all()
    return names["run"], found


@pytest.mark.slow
def test_ten_thousand_wheels_in_threads(wheels, monkeypatch):
    run, alone = wheels
    put, seen = batch_run.Prepared.put, []

    def watched(self, results, first):
        seen.append((threading.get_ident(), first))
        return put(self, results, first)

    monkeypatch.setattr(batch_run.Prepared, "put", watched)
    assert_same_bits(alone, run())
    threads, firsts = zip(*seen, strict=True)
    assert len(set(threads)) == 2 and threading.get_ident() not in threads
    assert sorted(firsts) == list(range(0, len(alone), sorted(firsts)[1]))


@pytest.mark.slow
def test_ten_thousand_wheels_in_processes(wheels, tmp_path):
    """First the caller is killed, then a process."""
    run, alone = wheels
    folder, victims = tmp_path / "sweep", []
    done = subprocess.run([sys.executable, "-c", WHEELS + FATAL, str(folder)], cwd=ROOT)
    assert done.returncode == -signal.SIGKILL
    assert 50 < len(computed(folder)) < 200
    found = run(jobs=2, folder=folder, progress=killing(folder, victims))
    assert_same_bits(alone, found)
    assert_each_part_once(folder, len(alone))
    # two of the first call, two of the second, and perhaps one in place of the victim
    assert victims and len(workers_of(folder) - {os.getpid()}) >= 4


@pytest.mark.slow
def test_ten_thousand_wheels_on_a_cluster(wheels, tmp_path):
    """One of two workers is killed, and replaced."""
    distributed = pytest.importorskip("distributed")
    run, alone = wheels
    folder, victims = tmp_path / "sweep", []
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        found = run(client=client, folder=folder, progress=killing(folder, victims))
        assert_same_bits(alone, found)
    assert_each_part_once(folder, len(alone))
    assert victims and len(workers_of(folder) - {os.getpid()}) >= 2


# Samples


def test_a_grid_has_all_combinations():
    values = samples.grid(BALL, {"m": [1, 2, 3], "q0[0]": (0.5, 1.5)})
    assert values["params"]["m"].tolist() == [1, 1, 2, 2, 3, 3]
    assert values["q0"][:, 0].tolist() == [0.5, 1.5] * 3
    assert values["params"]["g"] == 9.81 and "v0" not in values


@pytest.mark.parametrize("kind", [samples.random, samples.latin_hypercube])
def test_samples_fill_their_ranges(kind):
    values = kind(BALL, {"m": (1, 3), "v0[0]": (-1, 0)}, 50, seed=3)
    m, v = values["params"]["m"], values["v0"][:, 0]
    assert m.shape == v.shape == (50,)
    assert 1 <= m.min() < 1.3 and 2.7 < m.max() <= 3 and v.min() >= -1 and v.max() <= 0
    assert abs(np.corrcoef(m, v)[0, 1]) < 0.3
    again = kind(BALL, {"m": (1, 3), "v0[0]": (-1, 0)}, 50, seed=3)
    np.testing.assert_array_equal(again["params"]["m"], m)
    assert kind(BALL, {"m": (1, 3)}, 50, seed=4)["params"]["m"][0] != m[0]


def test_a_latin_hypercube_has_one_value_in_each_piece():
    m = samples.latin_hypercube(BALL, {"m": (0, 50), "g": (1, 2)}, 50)["params"]["m"]
    assert sorted(np.floor(m)) == list(range(50))


def test_names_reach_into_arrays_and_trees():
    params = {"links": [{"m": 1.0}, {"m": 2.0}], "inertia": jnp.eye(3)}
    problem = nsdyn.Problem(
        "links",
        nsdyn.System(mass=mass, force=force),
        None,
        q0=[0.0],
        v0=[0.0],
        t_end=1,
        params=params,
    )
    found = samples.table(problem, {"links[1].m": [5, 6], "inertia[0, 2]": [7, 8]})["params"]
    assert found["links"][1]["m"].tolist() == [5, 6] and found["links"][0]["m"] == 1.0
    assert found["inertia"].shape == (2, 3, 3)
    assert found["inertia"][:, 0, 2].tolist() == [7, 8] and found["inertia"][1, 1, 1] == 1.0
    other = samples.table(problem, {"inertia[0][2]": [7, 8]})["params"]
    np.testing.assert_array_equal(other["inertia"], found["inertia"])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: samples.grid(BALL, {"mm": [1, 2]}), "did you mean 'm'"),
        (lambda: samples.grid(BALL, {"q0": [1, 2]}), r"q0: expected an index within \(1,\)"),
        (
            lambda: samples.grid(BALL, {"q0[1]": [1, 2]}),
            r"q0\[1\]: expected an index within \(1,\)",
        ),
        (lambda: samples.grid(BALL, {"m[0]": [1, 2]}), r"m\[0\]: expected no index"),
        (lambda: samples.grid(BALL, {"q0[x]": [1]}), "expected whole numbers as index"),
        (lambda: samples.grid(BALL, {"m": "heavy"}), "m: expected a list of numbers"),
        (lambda: samples.grid(BALL, {}), "expected columns"),
        (lambda: samples.random(BALL, {"m": (1, 2, 3)}, 5), r"m: expected a range \(low, high\)"),
        (lambda: samples.random(BALL, {"m": (1, 2)}, 0), "count: expected a positive whole"),
        (lambda: samples.table(BALL, {"m": [1, 2], "g": [1]}), "one length, found m: 2, g: 1"),
    ],
)
def test_wrong_samples(call, words):
    with pytest.raises(nsdyn.ProblemError, match=words):
        call()
