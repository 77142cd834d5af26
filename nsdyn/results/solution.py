"""What a run leaves behind: `Trajectory`, its rows on the grid, and `EventTable`, its switches; in
numpy arrays."""

import dataclasses
import json
import operator
from typing import Any

import jax
import numpy as np

from nsdyn.stepping.log import Record

# name: (dims, what it is). "*mode" stands for the axes of one mode: none for a single integer.
ROWS = {
    "q": (("time", "coordinate"), "configuration q"),
    "v": (("time", "velocity"), "velocity v"),
    "lam": (("time", "row"), "constraint force lam (multiplier)"),
    "mode": (("time", "*mode"), "mode"),
    "energy": (("time",), "energy"),
}
EVENTS = {
    "t": (("event",), "time of the switch"),
    "mode_before": (("event", "*mode"), "mode before the switch"),
    "mode_after": (("event", "*mode"), "mode after the switch"),
    "q": (("event", "coordinate"), "configuration at the switch"),
    "v_before": (("event", "velocity"), "velocity before the switch"),
    "v_after": (("event", "velocity"), "velocity after the switch"),
    "Lam": (("event", "row"), "constraint impulse Lam (not a force)"),
    "direction": (("event", "row", "velocity"), "direction in which the impulse acts"),
    "kinetic_before": (("event",), "kinetic energy before the switch"),
    "kinetic_after": (("event",), "kinetic energy after the switch"),
}
VARIABLES = {
    "t": "event_time",
    "q": "event_q",
}  # names that rows and events share; the others keep theirs


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Event:
    """One switch. `Lam` is an impulse; `direction` has the directions it acts in as rows."""

    t: float
    mode_before: Any
    mode_after: Any
    q: np.ndarray
    v_before: np.ndarray
    v_after: np.ndarray
    Lam: np.ndarray
    direction: np.ndarray
    kinetic_before: float
    kinetic_after: float

    def __repr__(self):
        return (
            f"Event(t={self.t:.9g}, mode {_short(self.mode_before)} -> {_short(self.mode_after)})"
        )


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class EventTable:
    """The switches of a run: an index gives an `Event`, a slice (or a mask) a table, an attribute
    the stacked array."""

    t: np.ndarray
    mode_before: np.ndarray
    mode_after: np.ndarray
    q: np.ndarray
    v_before: np.ndarray
    v_after: np.ndarray
    Lam: np.ndarray
    direction: np.ndarray
    kinetic_before: np.ndarray
    kinetic_after: np.ndarray

    @staticmethod
    def of(records: Record, count) -> "EventTable":
        """The first `count` records of a log."""
        return EventTable(*(np.array(getattr(records, name)[: int(count)]) for name in EVENTS))

    def __len__(self):
        return len(self.t)

    def __getitem__(self, index):
        if isinstance(index, slice | list | np.ndarray):
            return EventTable(*(getattr(self, name)[index] for name in EVENTS))
        place = operator.index(index)
        if not -len(self) <= place < len(self):
            raise IndexError(f"events[{place}]: there are {len(self)} events")
        one = (getattr(self, name)[place] for name in EVENTS)
        return Event(*(x.item() if np.ndim(x) == 0 else x for x in one))

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __repr__(self):
        shown = [repr(event) for event in self[:8]] + (["..."] if len(self) > 8 else [])
        return f"EventTable({_count(self)}{': ' if shown else ''}{', '.join(shown)})"


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Trajectory:
    """Rows on the grid t0 + k step save_every and at t_end, the switches between them, and what was
    run."""

    t: np.ndarray
    q: np.ndarray
    v: np.ndarray
    lam: np.ndarray
    mode: np.ndarray
    energy: np.ndarray
    events: EventTable
    problem: str
    integrator: str
    law: str
    step: float
    save_every: int
    t0: float
    t_end: float
    params: Any
    has_potential: bool  # whether `energy` is T + V; else it is T alone
    nsdyn_version: str
    iterations: int = 0  # of Newton's method, in all steps; 0 for explicit methods
    iterations_worst: int = 0  # the most in one step

    def __repr__(self):
        n, m = self.v.shape[1], self.lam.shape[1]
        size = f"{len(self.t)} rows, n = {n}, m = {m}, {_count(self.events)}"
        span = f"t = {self.t[0]:g} to {self.t[-1]:g}" if len(self.t) else "t = none"
        return f"Trajectory({self.problem}: {span}, {size}; {self.integrator}, {self.law})"

    def to_xarray(self):
        """An xarray.Dataset with named dimensions; `lam` holds forces, `Lam` impulses."""
        import xarray

        shape = self.mode.shape[1:]
        parts = ["part"] if len(shape) == 1 else [f"part_{i}" for i in range(len(shape))]
        spread = lambda dims: [
            name for dim in dims for name in (parts if dim == "*mode" else [dim])
        ]
        data = {}
        for name, (dims, text) in ROWS.items():
            data[name] = (spread(dims), getattr(self, name), {"long_name": text})
        for name, (dims, text) in EVENTS.items():
            data[VARIABLES.get(name, name)] = (
                spread(dims),
                getattr(self.events, name),
                {"long_name": text},
            )
        data["energy"][2]["long_name"] = self.energy_name
        coords = {
            "time": ("time", self.t, {"long_name": "time"}),
            "event_time": data.pop("event_time"),
        }
        attributes = {name: getattr(self, name) for name in METADATA if name != "has_potential"}
        return xarray.Dataset(data, coords, attributes | {"params": _text(self.params)})

    @property
    def energy_name(self) -> str:
        return (
            "energy T + V"
            if self.has_potential
            else "kinetic energy T (the system has no potential)"
        )

    def save(self, path) -> None:
        """Write a netCDF file that `nsdyn.load` reads back exactly."""
        from nsdyn.results.netcdf import save

        save(self, path)

    def plot(self):
        """A matplotlib Figure: q, v, lam and energy over time, switches as thin vertical lines. No
        window is opened."""
        from nsdyn.results.plot import figure

        return figure(self)


METADATA = (
    "problem",
    "integrator",
    "law",
    "step",
    "save_every",
    "t0",
    "t_end",
    "has_potential",
    "iterations",
    "iterations_worst",
    "nsdyn_version",
)


def plain(tree):
    """A pytree as nested dicts and lists of numpy arrays under the same names; what is no array
    stays text or None."""
    if tree is None or isinstance(tree, str):
        return tree
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return {field.name: plain(getattr(tree, field.name)) for field in dataclasses.fields(tree)}
    if isinstance(tree, dict):  # in its own order; JAX would sort
        return {str(key): plain(child) for key, child in tree.items()}
    children = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: x is not tree)[0]
    if any(not path for path, _ in children):
        return _leaf(tree)
    if isinstance(tree, list | tuple) and not hasattr(tree, "_fields"):
        return [plain(child) for _, child in children]
    return {_key(path[0]): plain(child) for path, child in children}


def _leaf(x):
    try:
        array = np.array(x)
    except Exception:  # other people's array types refuse in their own ways
        return repr(x)
    return array if array.dtype.kind in "biufc" else getattr(x, "__qualname__", repr(x))


def _key(entry) -> str:
    """The name in a path entry: of a dict, an attribute or a position, whatever the node's type
    calls it."""
    return str(
        next(getattr(entry, name) for name in ("key", "name", "idx") if hasattr(entry, name))
    )


def _text(params) -> str:
    return json.dumps(
        params, default=lambda x: x.tolist() if x.dtype.kind != "c" else str(x.tolist())
    )


def _count(events) -> str:
    return f"{len(events)} event{'' if len(events) == 1 else 's'}"


def _short(mode) -> str:
    return str(np.asarray(mode).tolist())
