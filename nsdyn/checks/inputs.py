"""The state and the parameters of a problem: finite numbers."""

import jax
import jax.numpy as jnp

from nsdyn import _expect as expect
from nsdyn.errors import ProblemError
from nsdyn.problem import Problem


def check_inputs(problem: Problem) -> None:
    """Refuse q0, v0 and params that no run can start from."""
    expect.finite("q0", problem.q0)
    expect.finite("v0", problem.v0)
    for path, leaf in jax.tree_util.tree_flatten_with_path(problem.params)[0]:
        name = f"params{jax.tree_util.keystr(path)}"
        if not isinstance(leaf, jax.Array):
            raise ProblemError(
                f"{name}: expected a number or an array, found {leaf!r}; remove it from params"
            )
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            expect.finite(name, leaf)
