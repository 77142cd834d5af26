"""Programs and verdicts of earlier processes: used when everything is the same, never when anything
differs."""

import subprocess
import sys
import threading
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nsdyn
from nsdyn import _digest, _kept, _watched
from nsdyn._digest import Traced, Unknown, digest
from nsdyn.driver import backend, single_run, verdicts
from nsdyn.integrators import RK4, EventDriven

TEXT = """
import jax.numpy as jnp
import numpy as np
import helper_of_the_warm_start as helper
from helper_of_the_warm_start import offset

GRAVITY = 9.81

class Spring:
    def __init__(self, k):
        self.k = k
    def __call__(self, q):
        return -self.k * q

def made(weight):
    def force(q, v, t, p, extra=0.0):
        half = lambda x: 0.5 * x
        return jnp.full(2, -GRAVITY * weight + 1.25) + half(helper.push(q)) + offset + extra
    return force

force = made(2.0)
spring = Spring(3.0)
pulled = lambda q, v, t, p: spring(q)
"""
HELPER = """
import math
STIFFNESS = 4.0
offset = 0.5
def push(q):
    return -STIFFNESS * q * math.cos(0.25)
"""
PLACES = {
    "number": ("1.25", "1.5"),
    "inner function": ("0.5 * x", "0.25 * x"),
    "global": ("9.81", "1.62"),
    "closure": ("made(2.0)", "made(2.5)"),
    "default": ("extra=0.0", "extra=0.1"),
    "state": ("Spring(3.0)", "Spring(3.5)"),
    "method": ("-self.k", "-2 * self.k"),
}
HELPERS = {
    "helper's global": ("STIFFNESS = 4.0", "STIFFNESS = 4.5"),
    "helper's function": ("0.25", "0.125"),
    "imported number": ("offset = 0.5", "offset = 0.75"),
}


@pytest.fixture
def written(monkeypatch):
    """Modules from text."""

    def write(edit=("", ""), helper_edit=("", "")):
        name = "helper_of_the_warm_start"
        helper, user = types.ModuleType(name), types.ModuleType("user_of_the_warm_start")
        monkeypatch.setitem(sys.modules, name, helper)
        monkeypatch.setitem(sys.modules, user.__name__, user)
        exec(compile(HELPER.replace(*helper_edit), "helper.py", "exec"), vars(helper))
        exec(compile(TEXT.replace(*edit), "user.py", "exec"), vars(user))
        return user

    return write


def both(module):
    return digest(module.force, module.pulled)


def test_the_same_code_has_the_same_digest(written):
    assert both(written()) == both(written())


@pytest.mark.parametrize("edit", PLACES.values(), ids=PLACES)
def test_an_edit_is_noticed(written, edit):
    assert edit[0] in TEXT
    assert both(written()) != both(written(edit))


@pytest.mark.parametrize("edit", HELPERS.values(), ids=HELPERS)
def test_an_edit_of_a_helper_is_noticed(written, edit):
    assert edit[0] in HELPER
    assert both(written()) != both(written(helper_edit=edit))


def test_an_edited_global_is_noticed(written):
    module = written()
    before = both(module)
    module.GRAVITY = 1.62
    assert both(module) != before
    module.GRAVITY = 9.81
    assert both(module) == before
    module.helper.STIFFNESS = 5.0
    assert both(module) != before


def test_arrays_count_by_value_or_if_traced_by_shape():
    x, y = jnp.ones(3), jnp.zeros(3)
    assert digest(x) != digest(y)
    assert digest(Traced({"a": x, "b": 1.0})) == digest(Traced({"a": y, "b": 1.0}))
    for other in ({"a": x, "b": 2.0}, {"a": jnp.ones(4), "b": 1.0}, {"a": x, "b": 1}):
        assert digest(Traced({"a": x, "b": 1.0})) != digest(Traced(other))
    held = lambda array: lambda q: q + array
    assert digest(held(x)) != digest(held(y))
    assert digest(held(np.ones(3))) != digest(held(x))


def test_settings_of_jax_and_our_own_code_count(monkeypatch):
    before = digest(RK4(), backend.begin)
    with jax.default_matmul_precision("float32"):
        assert digest(RK4(), backend.begin) != before
    from nsdyn.driver import blocks

    monkeypatch.setattr(blocks, "RECORDS", 3)
    assert digest(RK4(), backend.begin) != before


@pytest.mark.parametrize("name", ["three_r_pendulum", "wheel_over_pothole", "rx130l"])
def test_our_own_problems_can_be_read(name):
    """Else they would be traced, and checked, in every process."""
    problem = nsdyn.problems.get(name)
    assert digest(problem, EventDriven(RK4())) == digest(problem, EventDriven(RK4()))


class Hidden(dict):
    """Has content that its attributes do not show."""


def asks(name):
    scope = {"np": np, "jnp": jnp}
    exec(
        f"def force(q, v, t, p):\n    import {name.partition('.')[0]}\n    return q + {name}", scope
    )
    return scope["force"]


COUNTER = iter(range(3))
UNREADABLE = {
    "iterator": lambda q: q * next(COUNTER),
    "lock": (lambda lock: lambda q: q if lock.locked() else -q)(threading.Lock()),
    "subclass of dict": (lambda known: lambda q: q * known["a"])(Hidden(a=1.0)),
    "environment": asks("os.environ['HOME']"),
    "clock": asks("time.time()"),
    "random numbers": lambda q: q + np.random.rand(),  # noqa: NPY002
    "file": lambda q: q + np.loadtxt("numbers.txt"),
    "getattr": lambda q: q * getattr(np, "pi"),  # noqa: B009
    "generator": (lambda generator: lambda q: q + generator.random())(np.random.default_rng(1)),
    "random key": (lambda key: lambda q: q)(jax.random.key(0)) and jax.random.key(0),
    "jitted function of a global": jax.jit(lambda q: q * GRAVITY),
    "objects": np.array([object()]),
}


@pytest.mark.parametrize("thing", UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_in_full_has_no_digest(thing):
    with pytest.raises(Unknown):
        digest(thing)


# Runs


GRAVITY = 9.81


def mass(q, p):
    return p["m"] * jnp.eye(1)


def force(q, v, t, p):
    return -p["m"] * GRAVITY * jnp.sin(q)


def floor(q, t, p):
    return q + 0.2


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """As in a new process: a cache of our own, and nothing in memory."""
    monkeypatch.setenv("NSDYN_CACHE", str(tmp_path))
    monkeypatch.setenv("NSDYN_BACKEND", "native")
    monkeypatch.setattr(_watched, "_first", {})  # else full of what other tests traced

    def forget():
        monkeypatch.setattr(single_run, "_checked", type(single_run._checked)())
        monkeypatch.setattr(backend, "_work", type(backend._work)())
        for program in backend.SINGLE.programs:
            monkeypatch.setattr(program, "_made", type(program._made)())
            program._sources.clear()

    forget()
    return forget


def fallen():
    problem = nsdyn.Problem(
        "swing",
        nsdyn.System(mass=mass, force=force),
        nsdyn.Contact(floor),
        q0=[0.3],
        v0=[0.0],
        t_end=1.0,
        params={"m": 2.0},
    )
    return nsdyn.simulate(problem, EventDriven(RK4()), step=1e-2, law=nsdyn.laws.Restitution(0.5))


def refuse(*_):
    raise AssertionError("made again")


def test_a_later_process_traces_nothing(fresh, monkeypatch):
    first = fallen()
    assert len(first.events)
    fresh()
    with monkeypatch.context() as here:
        here.setattr(backend, "written", refuse)
        here.setattr(jax, "make_jaxpr", refuse)
        again = fallen()
    np.testing.assert_array_equal(first.q, again.q)
    np.testing.assert_array_equal(first.events.t, again.events.t)


def test_what_may_hold_old_values_is_not_kept(fresh, tmp_path, monkeypatch):
    """JAX does not trace a function again because a global that it reads was edited."""
    first = fallen()
    entries = lambda: {file.name for file in tmp_path.glob("programs/*")}
    before = entries(), {file.name for file in tmp_path.glob("verdicts/*")}
    fresh()
    monkeypatch.setitem(globals(), "GRAVITY", 1.62)
    fallen()
    assert (entries(), {file.name for file in tmp_path.glob("verdicts/*")}) == before
    # a new process has traced nothing yet, and no program that was kept is one for this number
    fresh()
    monkeypatch.setattr(_watched, "_first", {})
    jax.clear_caches()
    edited = fallen()
    assert np.max(np.abs(edited.q[:20] - first.q[:20])) > 1e-3
    assert len(entries()) == 2 * len(before[0])


def test_a_spoilt_entry_is_made_again(fresh, tmp_path):
    first = fallen()
    for spoilt in (b"", b"0" * 64 + b"not a pickle"):
        for entry in (tmp_path / "programs").iterdir():
            entry.write_bytes(spoilt)
        fresh()
        np.testing.assert_array_equal(fallen().q, first.q)
    names = [_kept.kept("programs", entry.name)[1] for entry in (tmp_path / "programs").iterdir()]
    for name in names:  # the library itself
        (tmp_path / "native" / f"{name}.sum").unlink()
    fresh()
    np.testing.assert_array_equal(fallen().q, first.q)


def test_only_what_was_sound_is_remembered(fresh, monkeypatch):
    seen = []
    monkeypatch.setattr(verdicts, "keep", lambda *entry: (seen.append(entry), _kept.keep(*entry)))
    fallen()
    known = len(seen)
    assert known >= 1
    fresh()
    fallen()
    assert len(seen) == known
    monkeypatch.setitem(globals(), "floor", lambda q, t, p: q - 0.4)
    for _ in range(2):
        fresh()
        with pytest.raises(nsdyn.ProblemError, match="q0"):
            fallen()
    assert len(seen) == known


PROGRAM = """
import nsdyn, numpy as np
from nsdyn import integrators, problems
found = nsdyn.simulate(problems.pendulum(), integrators.EventDriven(integrators.RK4()), step=1e-2)
print(found.backend, found.q[-1].tolist())
"""


def test_two_processes_may_make_the_same_program_at_once(fresh):
    start = lambda: subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    pair = [start(), start()]
    found = [process.communicate(timeout=300) for process in pair]
    assert all(process.returncode == 0 for process in pair), found
    assert found[0][0] == found[1][0]
    assert found[0][0].startswith("native")


def test_nothing_is_kept_without_a_cache(monkeypatch):
    monkeypatch.setenv("NSDYN_CACHE", "0")
    _kept.keep("verdicts", "key", True)
    assert _kept.kept("verdicts", "key") is None
    assert _digest.digest(1) == _digest.digest(1)
