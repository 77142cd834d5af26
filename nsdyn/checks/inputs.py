"""The state and the parameters of a problem: finite numbers of sizes that go together."""

import jax
import jax.numpy as jnp

from nsdyn import _expect as expect
from nsdyn.errors import ProblemError
from nsdyn.problem import Problem


def check_inputs(problem: Problem) -> None:
    """Refuse q0, v0 and params that no run can start from."""
    q, v = problem.q0, problem.v0
    if problem.system.kinematics is None and q.shape != v.shape:
        raise ProblemError(
            f"q0, v0: expected the same size, since q' = v, found {q.shape[0]} and {v.shape[0]} "
            "entries; for quasi-velocities give System(kinematics=...)"
        )
    expect.finite("q0", q)
    expect.finite("v0", v)
    for path, leaf in jax.tree_util.tree_flatten_with_path(problem.params)[0]:
        name = f"params{jax.tree_util.keystr(path)}"
        if not isinstance(leaf, jax.Array):
            raise ProblemError(
                f"{name}: expected a number or an array, found {leaf!r}; remove it from params"
            )
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            expect.finite(name, leaf)
