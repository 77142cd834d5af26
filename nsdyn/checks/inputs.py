"""The state and the parameters of a run: those of the problem, or others of the same shapes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nsdyn import _expect as expect
from nsdyn._types import Configuration, Numbers, Params, Velocity
from nsdyn.errors import ProblemError
from nsdyn.problem import Problem, as_arrays


def inputs(
    problem: Problem, q0: Numbers | None, v0: Numbers | None, params: Params
) -> tuple[Configuration, Velocity, Params]:
    """q, v and p of a run, all finite numbers."""
    q = _state("q0", q0, problem.q0)
    v = _state("v0", v0, problem.v0)
    if problem.system.kinematics is None and q.shape != v.shape:
        raise ProblemError(
            f"q0, v0: expected the same size, since q' = v, found {q.shape[0]} and {v.shape[0]} "
            "entries; for quasi-velocities give System(kinematics=...)"
        )
    p = problem.params if params is None else _params(as_arrays(params), problem.params)
    for key, leaf in _leaves(p).items():
        _number(f"params{key}", leaf)
    expect.finite("q0", q)
    expect.finite("v0", v)
    return q, v, p


def _leaves(tree: Params) -> dict[str, Any]:
    """The leaves of a tree by their names."""
    found = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {jax.tree_util.keystr(path): leaf for path, leaf in found}


def _number(name: str, leaf: Any) -> None:
    if not isinstance(leaf, jax.Array):
        raise ProblemError(
            f"{name}: expected a number or an array, found {leaf!r}; remove it from params"
        )
    _concrete(name, leaf)
    if jnp.issubdtype(leaf.dtype, jnp.inexact):
        expect.finite(name, leaf)


def _concrete(name: str, value: Any) -> None:
    if isinstance(value, jax.core.Tracer):
        raise ProblemError(
            f"{name}: expected numbers, found a traced value; inside jit, vmap or grad call "
            "nsdyn.rollout, not simulate"
        )


def _state(name: str, value: Numbers | None, own: jax.Array) -> jax.Array:
    _concrete(name, own if value is None else value)
    if value is None:
        return own
    try:
        array = jnp.asarray(value, float)
    except (TypeError, ValueError) as error:
        raise ProblemError(f"{name}: expected {own.shape[0]} numbers, found {value!r}") from error
    if array.shape != own.shape:
        raise ProblemError(
            f"{name}: expected shape {own.shape}, as in the problem, found {array.shape}"
        )
    return array


def _params(p: Params, own: Params) -> Params:
    found = _leaves(p)
    wanted = _leaves(own)
    _same_structure(p, own, found, wanted)
    for key, leaf in found.items():
        if np.shape(leaf) != np.shape(wanted[key]):
            raise ProblemError(
                f"params{key}: expected shape {np.shape(wanted[key])}, as in the problem, found "
                f"{np.shape(leaf)}; for a batch of values use nsdyn.sweep"
            )
    return p


def _same_structure(p: Params, own: Params, found: dict, wanted: dict) -> None:
    structure = str(jax.tree.structure(p))
    known = str(jax.tree.structure(own))
    if structure == known:
        return
    missing = ", ".join(sorted(wanted.keys() - found.keys()))
    unknown = ", ".join(sorted(found.keys() - wanted.keys()))
    named = {"missing": missing, "unknown": unknown}
    differ = "; ".join(f"{kind}: {keys}" for kind, keys in named.items() if keys)
    raise ProblemError(
        f"params: expected the same structure as in the problem, {known}, found "
        f"{structure}{f' ({differ})' if differ else ''}"
    )
