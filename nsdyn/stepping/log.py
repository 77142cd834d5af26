"""The event log: an array of records of fixed capacity, and a count. An event that does not fit
ends the run with a status; it is never dropped silently."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, Int

from nsdyn._types import Code, Flag


def _described(text: str, *dims: str) -> Any:
    """A field with a description and the names of its axes; "*mode" stands for the axes of one
    mode, of which a single integer has none."""
    return eqx.field(metadata={"text": text, "dims": dims})


class Event(eqx.Module):
    """The record of one event. The same class, with one more axis in front, holds the records of
    many events: as JAX arrays while a run is traced, as numpy arrays afterwards.

    t: the time of the event.
    mode_before, mode_after: the modes before and after it.
    q: the configuration, which does not change.
    v_before, v_after: the velocities before and after the jump.
    Lam: the impulse of each row of the constraints: an impulse, not a force.
    direction: one row for each entry of Lam, the direction in which that impulse acts (see
        `nsdyn.laws.Jump`).
    kinetic_before, kinetic_after: the kinetic energies.
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
    """Records of events, the first `count` of which are filled. `limit` is the largest number of
    events that may be recorded; it is at most the capacity of the arrays, and may be traced."""

    records: Event
    count: Int[Array, "*batch"]
    limit: Int[Array, "*batch"]

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
    def is_full(self) -> Bool[Array, ""]:
        """Whether there is no room for another event."""
        return self.count >= self.limit

    def append(self, record: Event, wanted: Flag) -> "Log":
        """The log with one more record if it is `wanted`. Records beyond the capacity are only
        counted."""
        if not self.capacity:  # a model without guards
            return self
        fits = wanted & (self.count < self.capacity)
        return Log(
            records=put(self.records, record, self.count, fits),
            count=self.count + wanted,
            limit=self.limit,
        )

    def without_last(self, wanted: Flag) -> "Log":
        """The log without its last record, if that is `wanted`."""
        return Log(records=self.records, count=self.count - wanted, limit=self.limit)


def put(records: Any, record: Any, slot: Code, wanted: Flag) -> Any:
    """`records` with `record` at `slot` if `wanted`. (A scatter would work too, but takes long to
    compile.)"""

    def one(all_, new):
        old = jax.lax.dynamic_index_in_dim(all_, slot, keepdims=False)
        return jax.lax.dynamic_update_index_in_dim(all_, jnp.where(wanted, new, old), slot, 0)

    return jax.tree.map(one, records, record)
