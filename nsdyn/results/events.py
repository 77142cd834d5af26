"""The events of a run, or of each run of a batch, as one table."""

import dataclasses
import operator
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np

from nsdyn.errors import FullTableWarning, warn
from nsdyn.stepping.log import Event

FIELDS = tuple(field.name for field in dataclasses.fields(Event))


class Events(eqx.Module):
    """A table of events. An attribute (`events.t`, `events.v_after`, ...) is the array over all
    records; the first `count` records are filled.

    For one run, `len` is the number of events; an index gives an `Event` with plain numbers, a
    slice or a mask a smaller table. For a batch, arrays have one more axis in front, `len` is the
    number of runs, and an index gives the table of one run.
    """

    records: Event
    count: Any  # an integer; for a batch, one per run

    @staticmethod
    def none() -> "Events":
        """The table of a run that is not known yet."""
        axes = {field.name: len(field.metadata["dims"]) for field in dataclasses.fields(Event)}
        blank = {name: np.zeros((0,) * (1 + count)) for name, count in axes.items()}
        modes = {name: np.zeros(0, int) for name in ("mode_before", "mode_after")}
        return Events.of(Event(**(blank | modes)))

    @staticmethod
    def of(records: Event) -> "Events":
        """The table of these records, all filled."""
        return Events(records, np.array(len(np.asarray(records.t))))

    def __getattr__(self, name: str) -> Any:
        if name not in FIELDS:
            raise AttributeError(f"'Events' has no attribute {name!r}")
        return getattr(self.records, name)

    @property
    def is_batch(self) -> bool:
        return np.ndim(self.count) > 0

    def trimmed(self) -> "Events":
        """The table in numpy arrays, without empty records; for a batch, without records that are
        empty in every run."""
        most = int(np.max(np.asarray(self.count), initial=0))
        cut = (slice(None), slice(most)) if self.is_batch else (slice(most),)
        full = np.shape(self.records.t)[-1] == most
        stays = lambda x: full and isinstance(x, np.memmap)  # a table in a file
        part = lambda x: np.asarray(x) if stays(x) else np.array(np.asarray(x)[cut])
        return Events(jax.tree.map(part, self.records), np.asarray(self.count))

    def padded(self, capacity: int) -> "Events":
        """The table of a batch with room for so many records of each run, or as it is if it has
        more. Empty records are NaN, or -1 in whole numbers."""
        missing = capacity - self.records.t.shape[1]
        if missing <= 0:
            return self

        def longer(x: np.ndarray) -> np.ndarray:
            rest = np.full((len(x), missing, *x.shape[2:]), np.nan if x.dtype.kind == "f" else -1)
            return np.concatenate([x, rest.astype(x.dtype)], axis=1)

        return Events(jax.tree.map(longer, self.records), self.count)

    def __len__(self) -> int:
        return len(self.count) if self.is_batch else int(self.count)

    def __iter__(self) -> Iterator:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Any:
        if self.is_batch:
            return jax.tree.map(lambda x: x[index], self)
        if isinstance(index, slice | list | np.ndarray | jax.Array):
            return self._part(index)
        place = operator.index(index)
        if not -len(self) <= place < len(self):
            raise IndexError(f"events[{place}]: there are {len(self)} events")
        place = place % len(self)
        number = lambda x: x.item() if np.ndim(x) == 0 else x
        return jax.tree.map(lambda x: number(np.asarray(x)[place]), self.records)

    def _part(self, index: Any) -> "Events":
        filled = self.trimmed()
        if not isinstance(index, slice):
            index = np.asarray(index)
            # a mask computed from the arrays includes the empty records
            index = index[: len(filled)] if index.dtype == bool else index.astype(int)
        return Events.of(jax.tree.map(lambda x: x[index], filled.records))

    def __repr__(self) -> str:
        if isinstance(self.count, jax.core.Tracer):
            return f"Events(traced, {np.shape(self.records.t)[-1]} at most)"
        if self.is_batch:
            return f"Events({int(np.sum(self.count))} events in {len(self)} runs)"
        shown = [repr(event) for event in self[:8]] + (["..."] if len(self) > 8 else [])
        return f"Events({counted(self)}{': ' if shown else ''}{', '.join(shown)})"


def counted(events: Events) -> str:
    """For example "3 events"."""
    return f"{len(events)} event{'' if len(events) == 1 else 's'}"


def warn_if_full(events: Events, parts: tuple, max_events: int) -> None:
    """Warn if impacts of contacts may be missing: time-stepping schemes go on without them."""
    if not any(part.unilateral for part in parts):
        return
    if int(np.max(events.count, initial=0)) >= max_events:
        warn(
            f"the table of events is full (max_events = {max_events}), and impacts of contacts "
            "after its last entry are not in it. The motion is not affected. Raise max_events to "
            "see them all",
            FullTableWarning,
        )
