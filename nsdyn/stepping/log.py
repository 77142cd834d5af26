"""The event log: arrays of fixed capacity and a count. An event that finds it full is a status,
never silence."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


class Record(eqx.Module):
    """One switch: time, modes, configuration, velocities, impulse with its directions, kinetic
    energies."""

    t: Float[Array, "*batch"]
    mode_before: Int[Array, "*batch_mode"]
    mode_after: Int[Array, "*batch_mode"]
    q: Float[Array, "*batch nq"]
    v_before: Float[Array, "*batch n"]
    v_after: Float[Array, "*batch n"]
    Lam: Float[Array, "*batch m"]
    direction: Float[Array, "*batch m n"]
    kinetic_before: Float[Array, "*batch"]
    kinetic_after: Float[Array, "*batch"]


class Log(eqx.Module):
    records: Record
    count: Int[Array, ""]

    @staticmethod
    def empty(record: Record, capacity: int) -> "Log":
        """A log for records of the shapes of `record` (arrays or shape structs)."""
        blank = lambda x: jnp.full(
            (capacity, *x.shape), jnp.nan if jnp.issubdtype(x.dtype, jnp.inexact) else -1, x.dtype
        )
        return Log(jax.tree.map(blank, record), jnp.zeros((), int))

    @property
    def capacity(self) -> int:
        return self.records.t.shape[0]

    def append(self, record: Record, wanted) -> "Log":
        """The log with one more record if it is `wanted` and there is room."""
        return Log(
            put(self.records, record, self.count, wanted & (self.count < self.capacity)),
            self.count + wanted,
        )


def put(records, record, slot, wanted):
    """`records` with `record` at `slot` if `wanted`. (A scatter would do, but takes long to
    compile.)"""

    def one(all_, new):
        old = jax.lax.dynamic_index_in_dim(all_, slot, keepdims=False)
        return jax.lax.dynamic_update_index_in_dim(all_, jnp.where(wanted, new, old), slot, 0)

    return jax.tree.map(one, records, record)
