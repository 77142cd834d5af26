"""Archived data know the code that made them: an edit anywhere in it changes the digest."""

import functools
import importlib
import os
import pickle
import subprocess
import sys
import textwrap

import jax.numpy as jnp
import numpy as np
import pytest

import nsdyn
from nsdyn import integrators, laws, problems
from nsdyn._code_digest import code_digest
from nsdyn.studies import compare
from nsdyn.studies.lib import study_cells

MECHANISM = """
import jax.numpy as jnp
import nsdyn
from helpers_of_{name} import weight

{constant}

class Drag:
    factor = {factor}

    def __call__(self, v):
        return -self.factor * v

def pull():
    return {pull}

def mass(q, p):
    return jnp.eye(1)

def force(q, v, t, p, gain={gain}):
    return -gain * weight() * jnp.ones(1) * (G + pull()) + Drag()(v)

system = nsdyn.System(mass=mass, force=force)
problem = nsdyn.Problem("falling", system, q0=[0.0], v0=[0.0], t_end=1.0)
"""
FIRST = {"constant": "G = 9.81", "pull": "0.0", "gain": "1.0", "factor": "0.0"}


@pytest.fixture
def written(tmp_path, monkeypatch):
    """written(name, ...) writes a mechanism and a helper module of it, and imports them afresh."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name, weight="1.0", **changes):
        (tmp_path / f"helpers_of_{name}.py").write_text(f"def weight():\n    return {weight}\n")
        text = textwrap.dedent(MECHANISM).format(name=name, **FIRST | changes)
        (tmp_path / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        loaded = [f"helpers_of_{name}", name]
        for module in loaded:
            monkeypatch.delitem(importlib.sys.modules, module, raising=False)
        return importlib.import_module(name).problem

    return write


@pytest.mark.parametrize(
    "edit",
    [
        {"constant": "G = 1.62"},
        {"pull": "0.5"},
        {"gain": "2.0"},
        {"factor": "0.1"},
        {"weight": "2.0"},
    ],
)
def test_an_edit_changes_the_digest(written, edit):
    before = code_digest(written("own_mechanism").system)
    assert before == code_digest(written("own_mechanism").system)
    assert before != code_digest(written("own_mechanism", **edit).system)


def test_a_new_value_of_a_parameter_does_not():
    one, two = problems.point_on_track(l=0.5), problems.point_on_track(l=0.7)
    assert code_digest(one.system, one.constraint) == code_digest(two.system, two.constraint)


def test_closures_partial_functions_and_own_classes_count():
    def scaled(factor):
        return lambda q, p: factor * jnp.eye(1)

    class Law(laws.AbstractLaw):
        def decide(self, change):
            return laws.PostSwitchGradient().decide(change)

    class Other(laws.AbstractLaw):
        def decide(self, change):
            return laws.ZeroVelocity().decide(change)

    assert code_digest(scaled(1.0)) != code_digest(scaled(2.0))
    assert code_digest(scaled(1.0)) == code_digest(scaled(1.0))
    Other.__qualname__ = Law.__qualname__
    assert code_digest(Law()) != code_digest(Other())


def test_equal_objects_count_as_one_object_does():
    """Pickling may make two of one, or one of two."""
    numbers = [1.0, (2, 3)]
    assert code_digest((numbers, numbers)) == code_digest((numbers, [1.0, (2, 3)]))
    assert code_digest((numbers, numbers)) != code_digest((numbers, [1.0, (2, 4)]))
    scaled = lambda factor: lambda q: factor * q
    one, two = scaled(1.0), scaled(2.0)
    assert code_digest(one, two) != code_digest(two, one)
    assert code_digest(one, one) == code_digest(one, scaled(1.0))


def test_what_refers_to_itself_has_a_digest():
    def ring(count, value):
        """`count` lists, each in the one before, the last of which holds the first."""
        first = last = [value]
        for _ in range(count - 1):
            last.append([value])
            last = last[1]
        last.append(first)
        return first

    assert code_digest(ring(1, 0.0)) == code_digest(ring(3, 0.0)) != code_digest(ring(3, 1.0))
    chain = lambda value: functools.reduce(lambda inner, k: [k, inner], range(5000), [value])
    assert code_digest(chain(0.0)) != code_digest(chain(1.0))


def test_sets_and_mappings_have_no_order():
    assert code_digest({"b", "a"}, {"y": 1, "x": 2}) == code_digest({"a", "b"}, {"x": 2, "y": 1})
    assert code_digest({"x": 1, "y": 2}) != code_digest({"x": 2, "y": 1})


TOLD = """
from nsdyn import problems, integrators, laws
from nsdyn._code_digest import code_digest
found = problems.get("three_r_pendulum")
print(code_digest(found.system, found.constraint, integrators.NSGA(), laws.Restitution(0.5)))
"""


def test_another_process_finds_the_same_digest():
    """Compiled afresh, with other hashes of strings, and for what came by pickling."""
    chosen = problems.get("three_r_pendulum"), integrators.NSGA(), laws.Restitution(0.5)
    coded = lambda problem, *rest: code_digest(problem.system, problem.constraint, *rest)
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-X", "pycache_prefix=/dev/null/none", "-c", TOLD]
    told = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert told.stdout.strip() == coded(*chosen)
    assert coded(*pickle.loads(pickle.dumps(chosen))) == coded(*chosen)


def test_where_files_lie_does_not_count(monkeypatch):
    """Data of one checkout are known in another."""
    chosen = problems.get("pendulum").system, integrators.NSGA(), study_cells._timed
    before = code_digest(*chosen)
    files = {
        n: x for n, x in sys.modules.items() if n.startswith("nsdyn") and "__file__" in vars(x)
    }
    for module in files.values():
        monkeypatch.setattr(module, "__file__", module.__file__.replace("/nsdyn/", "/other/nsdyn/"))
    assert any("/other/nsdyn/" in x.__file__ for x in files.values())
    assert code_digest(*chosen) == before


def test_what_is_not_named_does_not_count():
    """The text of one integrator is no part of what another computes."""
    before = code_digest(integrators.MoreauJean()), code_digest(integrators.NSGA())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(integrators.NSGA, "_solved", lambda self, *args: None)
        after = code_digest(integrators.MoreauJean()), code_digest(integrators.NSGA())
    assert after[0] == before[0] and after[1] != before[1]


def test_an_edited_force_is_computed_again(written, tmp_path):
    """The same folder, settings and names, another constant inside a function: new data."""
    entries = [(integrators.EventDriven(integrators.RK4()), laws.PostSwitchGradient())]

    def height(problem):
        found = compare.compare(problem, entries, 0.1, reference=None, folder=tmp_path / "out")
        return float(found.runs[0].data.q[-1, 0])

    assert height(written("moonfall")) == pytest.approx(-9.81 / 2, abs=1e-12)
    assert height(written("moonfall", constant="G = 1.62")) == pytest.approx(-1.62 / 2, abs=1e-12)


def always_given(q, v, t, p, mode=0):
    return jnp.stack([1.0 * mode])


def named_otherwise(q, v, t, p, gain=3.0):
    return jnp.stack([1.0 * gain])


def required(q, v, t, p, m):
    return jnp.stack([1.0 * m])


def unit(q, p):
    return jnp.eye(1)


@pytest.mark.parametrize(
    ("force", "speed"), [(always_given, 0.5), (named_otherwise, 3.0), (required, 0.5)]
)
def test_a_force_gets_the_mode_whatever_its_default(force, speed):
    """Mode 1 from t = 0.5 on: a force that is 1 there and 0 before leaves half a unit of speed."""
    schedule = nsdyn.Scheduled(times=(0.5,), stages=(None, None))
    system = nsdyn.System(mass=unit, force=force)
    problem = nsdyn.Problem("pushed", system, schedule, q0=[0.0], v0=[0.0], t_end=1.0)
    run = nsdyn.simulate(problem, integrators.EventDriven(integrators.RK4()), step=0.1)
    np.testing.assert_allclose(run.v[-1], [speed], atol=1e-12)
