"""How a run is drawn: the function `shape` of its problem, at the parameters of the run."""

from collections.abc import Callable, Hashable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nsdyn.errors import ProblemError
from nsdyn.problem import Problem


class Drawing(eqx.Module):
    """The function shape(q, p) and the structure of p, which the arrays of a `Solution` have
    lost. Kept in memory, never in files."""

    shape: Callable = eqx.field(static=True)
    structure: Hashable = eqx.field(static=True)

    @staticmethod
    def of(problem: Problem) -> "Drawing | None":
        """How a problem is drawn; None if it has no shape."""
        if problem.shape is None:
            return None
        return Drawing(problem.shape, jax.tree.structure(problem.params))

    def polylines(self, q: np.ndarray, params: Any) -> list[np.ndarray]:
        """The polylines at the configurations q, shapes (frames, k, 2) or (frames, k, 3); `params`
        as in `Solution`."""
        p = restored(params, self.structure)
        checked = lambda x: _checked(self.shape(x, p))
        try:
            lines = jax.jit(jax.vmap(checked))(jnp.asarray(q))
        except (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError):
            each = [checked(x) for x in q]  # a function that needs numbers
            lines = [np.stack(line) for line in zip(*each, strict=True)]
        return [np.asarray(line) for line in lines]


def restored(params: Any, structure: Any) -> Any:
    """Parameters in the structure of those of the problem, from nested dicts and lists."""
    places = jax.tree.unflatten(structure, range(structure.num_leaves))
    paths, _ = jax.tree_util.tree_flatten_with_path(places)
    return jax.tree.unflatten(structure, [_found(params, path) for path, _ in paths])


def _found(tree: Any, path: tuple) -> Any:
    for entry in path:
        key = next(getattr(entry, name) for name in ("key", "name", "idx") if hasattr(entry, name))
        try:
            tree = tree[key] if isinstance(tree, list) else tree[str(key)]
        except (KeyError, IndexError, TypeError):
            raise ProblemError(
                f"params{jax.tree_util.keystr(path)}: expected the parameters of the problem, "
                "found none of this name; give the problem that was run"
            ) from None
    return tree


def _checked(lines: Any) -> list:
    """The polylines of one configuration."""
    if not isinstance(lines, tuple | list):
        raise ProblemError(
            f"Problem(shape=...): expected a tuple of polylines, found {type(lines).__name__}; "
            "a single one needs a comma, (line,)"
        )
    arrays = [jnp.asarray(line) for line in lines]
    sizes = {array.shape[-1] for array in arrays if array.ndim == 2}
    if not arrays or any(array.ndim != 2 for array in arrays) or sizes not in ({2}, {3}):
        shapes = ", ".join(str(array.shape) for array in arrays) or "none"
        raise ProblemError(
            "Problem(shape=...): expected polylines of shapes (k, 2), or all of shapes (k, 3), "
            f"found {shapes}"
        )
    return arrays
