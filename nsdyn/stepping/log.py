"""The event log: records of fixed capacity and a count. An event that finds it full is a status,
never silence."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Int


def _described(text: str, *dims: str) -> Any:
    """A field with the names of its axes and what it is; "*mode" stands for the axes of one mode:
    none for a single integer."""
    return eqx.field(metadata={"text": text, "dims": dims})


class Event(eqx.Module):
    """One event: time, modes, configuration, velocities, impulse with its directions, kinetic
    energies. The same class, with one more axis in front, holds the records of many; in arrays of
    JAX while a run is traced, of numpy afterwards.

    `Lam` is an impulse, not a force; `direction` has the directions it acts in as rows.
    """

    t: Float[Any, "*batch"] = _described("time of the event")
    mode_before: Int[Any, "*batch_mode"] = _described("mode before the event", "*mode")
    mode_after: Int[Any, "*batch_mode"] = _described("mode after the event", "*mode")
    q: Float[Any, "*batch nq"] = _described("configuration at the event", "coordinate")
    v_before: Float[Any, "*batch n"] = _described("velocity before the event", "velocity")
    v_after: Float[Any, "*batch n"] = _described("velocity after the event", "velocity")
    Lam: Float[Any, "*batch m"] = _described("constraint impulse Lam (not a force)", "row")
    direction: Float[Any, "*batch m n"] = _described(
        "direction in which the impulse acts", "row", "velocity"
    )
    kinetic_before: Float[Any, "*batch"] = _described("kinetic energy before the event")
    kinetic_after: Float[Any, "*batch"] = _described("kinetic energy after the event")

    def __repr__(self) -> str:
        if isinstance(self.t, jax.core.Tracer) or np.ndim(self.t) > 0:
            return f"Event(records of shape {np.shape(self.t)})"
        before, after = (np.asarray(x).tolist() for x in (self.mode_before, self.mode_after))
        return f"Event(t={float(self.t):.9g}, mode {before} -> {after})"


class Log(eqx.Module):
    """The first `count` of the records are filled. At most `limit` may ever be; it is at most the
    capacity of the arrays, and may be a traced number."""

    records: Event
    count: Int[Array, ""]
    limit: Int[Array, ""]

    @staticmethod
    def empty(record: Event, capacity: int, limit: ArrayLike | None = None) -> "Log":
        """A log for records of the shapes of `record` (arrays or shape structs)."""
        blank = lambda x: jnp.full(
            (capacity, *x.shape), jnp.nan if jnp.issubdtype(x.dtype, jnp.inexact) else -1, x.dtype
        )
        return Log(
            records=jax.tree.map(blank, record),
            count=jnp.zeros((), int),
            limit=jnp.asarray(capacity if limit is None else limit, int),
        )

    @property
    def capacity(self) -> int:
        return jax.tree.leaves(self.records)[0].shape[0]

    @property
    def is_full(self):
        """Whether the next event may not be recorded any more."""
        return self.count >= self.limit

    def append(self, record: Event, wanted) -> "Log":
        """The log with one more record if it is `wanted`. Beyond the capacity records are counted
        only."""
        fits = wanted & (self.count < self.capacity)
        return Log(
            records=put(self.records, record, self.count, fits),
            count=self.count + wanted,
            limit=self.limit,
        )


def put(records, record, slot, wanted):
    """`records` with `record` at `slot` if `wanted`. (A scatter would do, but takes long to
    compile.)"""

    def one(all_, new):
        old = jax.lax.dynamic_index_in_dim(all_, slot, keepdims=False)
        return jax.lax.dynamic_update_index_in_dim(all_, jnp.where(wanted, new, old), slot, 0)

    return jax.tree.map(one, records, record)
