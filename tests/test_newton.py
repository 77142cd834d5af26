"""Newton's and Broyden's methods of implicit steps, on equations with a known solution."""

import jax
import jax.numpy as jnp
import numpy as np

from nsdyn.numerics.newton import Newton

NOISE = 1e-15


def fixed_point(steep, c, by_newton=True):
    """x = f(x) with x + steep x^3 = c; f also finds its cube, and counts evaluations in a row."""

    def function(x, before, args):
        steep, c = args
        cube = x**3
        return c - steep * cube, (cube, before[1] + 1)

    first = (jnp.zeros_like(c), jnp.zeros((), int))
    return Newton().solve_keeping(function, c, first, (steep, c), NOISE, by_newton=by_newton)


def test_broyden_passes_on_what_it_found():
    c = jnp.array([0.3, -0.2, 0.5])
    x, (cube, count), effort = fixed_point(0.01, c)
    np.testing.assert_allclose(x + 0.01 * x**3, c, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(cube, x**3)
    assert not effort.failed
    assert 1 < count == effort.total < 8


def test_newton_takes_over_where_broyden_fails():
    c = jnp.array([3.0, -2.0, 5.0])
    x, (cube, _), effort = fixed_point(30.0, c)
    assert not effort.failed
    np.testing.assert_allclose(x + 30.0 * x**3, c, rtol=0, atol=1e-11)
    np.testing.assert_allclose(cube, x**3, rtol=1e-14)
    assert fixed_point(30.0, c, by_newton=False)[2].failed


def test_derivatives_are_those_of_the_solution():
    c = jnp.array([0.3, -0.2, 0.5])
    for steep in (0.01, 30.0):
        solution = lambda c, steep=steep: fixed_point(steep, c)[0]
        expected = np.diag(1 / (1 + 3 * steep * np.asarray(solution(c)) ** 2))
        for derivative in (jax.jacfwd, jax.jacrev):
            np.testing.assert_allclose(derivative(solution)(c), expected, rtol=0, atol=1e-9)
