"""Functions that run once are native where they can be, and else the same by XLA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nsdyn.native import once
from nsdyn.native.once import natively

X = np.array([0.3, -1.2, 2.0])


def twice(x, power, parts):
    return {"x": jnp.sin(x) ** power, "y": [parts[0] @ x, parts[1]]}


@pytest.mark.parametrize("backend", ["auto", "xla"])
def test_both_backends_find_the_same(backend, monkeypatch):
    monkeypatch.setenv("NSDYN_BACKEND", backend)
    found = natively(twice)(X, 3, parts=(2 * X, np.asarray(True)))
    np.testing.assert_allclose(found["x"], np.sin(X) ** 3, rtol=1e-14)
    np.testing.assert_allclose(found["y"][0], 2 * X @ X, rtol=1e-14)
    assert found["y"][1]
    assert isinstance(found["x"], np.ndarray if backend == "auto" else jax.Array)


def test_what_is_unknown_natively_is_left_to_xla(monkeypatch):
    monkeypatch.setenv("NSDYN_BACKEND", "auto")
    found = natively(lambda x: jax.lax.lgamma(x))(np.array([5.0]))
    np.testing.assert_allclose(found, np.log(24.0))


def test_inside_a_traced_function(monkeypatch):
    monkeypatch.setenv("NSDYN_BACKEND", "auto")
    found = jax.jacfwd(natively(lambda x: jnp.sum(x**2)))(jnp.asarray(X))
    np.testing.assert_allclose(found, 2 * X)


def test_one_program_for_arguments_of_a_kind(monkeypatch):
    monkeypatch.setenv("NSDYN_BACKEND", "auto")
    function = natively(lambda x, n: x * n)
    before = once._program.cache_info().misses
    for x in (X, 2 * X, X[:2]):
        np.testing.assert_array_equal(function(x, 2), 2 * x)
    assert once._program.cache_info().misses == before + 2
