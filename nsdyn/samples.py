"""Values for `nsdyn.sweep`: grids, random samples and Latin hypercubes over any parameters and
initial values.

    ranges = {"m": (80, 140), "locks[0]": (0.6, 0.9), "q0[1]": (-0.1, 0.1)}
    values = samples.latin_hypercube(pendulum, ranges, 1000, seed=1)
    batch = nsdyn.sweep(pendulum, integrator, step=1e-3, **values)

A name is that of a parameter, with an index where it is an array: "m", "locks[0]", "inertia[0, 2]".
Parameters inside others are found by their paths: "links[1].m". The initial state has the names
"q0[i]" and "v0[i]". What is not named is that of the problem, for all runs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from nsdyn.errors import ProblemError, unknown
from nsdyn.problem import Problem

START = ("q0", "v0")


def grid(problem: Problem, values: Mapping[str, Any]) -> dict[str, Any]:
    """All combinations of the values given for each name; the last name varies fastest.
    {"m": (80, 110, 140), "q0[1]": np.linspace(0, 1, 5)} are 15 runs."""
    axes = [_vector(name, x) for name, x in values.items()]
    crossed = np.meshgrid(*axes, indexing="ij")
    columns = {name: x.ravel() for name, x in zip(values, crossed, strict=True)}
    return table(problem, columns)


def random(
    problem: Problem, ranges: Mapping[str, Sequence[float]], count: int, *, seed: int = 0
) -> dict[str, Any]:
    """`count` runs with independent values, uniform between the two ends given for each name."""
    _check_count(count)
    points = np.random.default_rng(seed).uniform(size=(count, len(ranges)))
    return _spread(problem, ranges, points)


def latin_hypercube(
    problem: Problem, ranges: Mapping[str, Sequence[float]], count: int, *, seed: int = 0
) -> dict[str, Any]:
    """`count` runs such that, for each name, there is one value in each of `count` equal pieces of
    its range: the ranges are covered more evenly than by `random`."""
    from scipy.stats import qmc  # slow to import

    _check_count(count)
    sampler = qmc.LatinHypercube(len(ranges), seed=np.random.default_rng(seed))
    return _spread(problem, ranges, sampler.random(count))


def table(problem: Problem, columns: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments `params`, `q0` and `v0` of `sweep` that give each name the values of a column,
    one for each run."""
    vectors = {name: _vector(name, x) for name, x in columns.items()}
    sizes = {name: len(x) for name, x in vectors.items()}
    if len(set(sizes.values())) != 1:
        found = ", ".join(f"{name}: {size}" for name, size in sizes.items()) or "none"
        raise ProblemError(f"samples: expected columns of one length, found {found}")
    paths, tree = jax.tree_util.tree_flatten_with_path(problem.params)
    known = {_name(path): x for path, x in paths} | {"q0": problem.q0, "v0": problem.v0}
    varied: dict[str, np.ndarray] = {}
    for name, x in vectors.items():
        leaf, index = _leaf(problem, name, known)
        like = np.asarray(known[leaf], float)
        array = varied.setdefault(leaf, np.repeat(like[None], len(x), axis=0))
        _assign(name, array, index, x)
    arguments: dict[str, Any] = {name: varied.pop(name) for name in START if name in varied}
    if varied:
        leaves = [varied.get(_name(path), x) for path, x in paths]
        arguments["params"] = jax.tree.unflatten(tree, leaves)
    return arguments


def _spread(problem: Problem, ranges: Mapping[str, Any], points: np.ndarray) -> dict[str, Any]:
    """Points of the unit cube, spread over the ranges."""
    columns = {}
    for (name, ends), x in zip(ranges.items(), points.T, strict=True):
        found = _vector(name, ends)
        if found.shape != (2,) or not np.all(np.isfinite(found)):
            raise ProblemError(f"samples: {name}: expected a range (low, high), found {ends!r}")
        columns[name] = found[0] + (found[1] - found[0]) * x
    return table(problem, columns)


def _check_count(count: Any) -> None:
    if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
        raise ProblemError(f"count: expected a positive whole number of runs, found {count!r}")


def _vector(name: str, values: Any) -> np.ndarray:
    try:
        found = np.asarray(values, float)
    except (TypeError, ValueError):
        found = np.zeros(())
    if found.ndim != 1 or not len(found):
        raise ProblemError(f"samples: {name}: expected a list of numbers, found {values!r}")
    return found


# Names


def _name(path: tuple) -> str:
    """A path in a pytree as one would write it: links[1].m."""
    text = ""
    for entry in path:
        if hasattr(entry, "idx"):
            text += f"[{entry.idx}]"
        else:
            text += f".{getattr(entry, 'key', getattr(entry, 'name', entry))}"
    return text.removeprefix(".") or "params"


def _leaf(problem: Problem, name: str, known: Mapping[str, Any]) -> tuple[str, tuple[int, ...]]:
    """The array that a name belongs to, and the index in it."""
    leaf = name
    index: tuple[int, ...] = ()
    while leaf not in known and leaf.endswith("]"):
        leaf, _, inside = leaf[:-1].rpartition("[")
        try:
            index = (*(int(k) for k in inside.split(",")), *index)
        except ValueError:
            raise ProblemError(f"samples: {name}: expected whole numbers as index") from None
    if leaf not in known:
        raise unknown(f"samples: parameter of {problem.name}", leaf, known)
    return leaf, index


def _assign(name: str, array: np.ndarray, index: tuple[int, ...], values: np.ndarray) -> None:
    shape = array.shape[1:]
    fits = len(index) == len(shape) and all(
        -size <= k < size for k, size in zip(index, shape, strict=True)
    )
    if not fits:
        wanted = f"an index within {shape}" if shape else "no index, as it is one number"
        raise ProblemError(f"samples: {name}: expected {wanted}, found {list(index) or 'none'}")
    place: Any = (slice(None), *index)
    array[place] = values
