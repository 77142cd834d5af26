"""Archived data know the code that made them: an edit anywhere in it changes the digest."""

import importlib
import textwrap

import jax.numpy as jnp
import numpy as np
import pytest

import nsdyn
from nsdyn import integrators, laws, problems
from nsdyn._code_digest import code_digest
from nsdyn.studies import compare

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
