"""`Solution`: the result of `simulate`, `rollout` and `sweep`, the same class for one run and for a
batch."""

import dataclasses
import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np

from nsdyn._coordinates import name_of, unit_of
from nsdyn._types import Params
from nsdyn._version import __version__
from nsdyn.errors import ProblemError
from nsdyn.laws.base import FIRST_REASON
from nsdyn.numerics.newton import Effort
from nsdyn.results.drawing import Drawing
from nsdyn.results.events import Events, counted
from nsdyn.status import MESSAGES, Status
from nsdyn.stepping.log import Event

if TYPE_CHECKING:  # slow to import
    import matplotlib.figure
    import xarray

    from nsdyn.problem import Problem

Values = Any  # a numpy array, or a JAX array while a run is traced


def _samples(text: str, *dims: str) -> Any:
    return eqx.field(metadata={"text": text, "dims": ("time", *dims)})


def _required() -> Any:
    return eqx.field()


def _ending(text: str, *dims: str, default: Any) -> Any:
    return eqx.field(metadata={"text": text, "dims": dims}, default_factory=default)


def _about(default: Any = dataclasses.MISSING) -> Any:
    return eqx.field(static=True, default=default, metadata={"about": True})


class Solution(eqx.Module):
    """The samples of a run, its events, how it ended, and its settings. A pytree.

    Samples lie on the grid t0 + k step save_every and at t_end, or at the times of `save_at`; a
    sample at the instant of an event holds the state after it. `simulate` returns numpy arrays
    without padding. From `rollout`, which may be traced, and in a batch, samples after a failure
    are NaN and the event table has empty records at its end.

    t, q, v, lam, mode, energy: the samples. `lam` are reactions [forces]; `energy` is T + V if
        `has_potential`, else T.
    events: the table of events; their `Lam` are impulses.
    status, t_stop, mode_stop: how, when and in which mode the run ended; `meaning(status)` explains
        the status, and `note` says more about the place. law_reasons: the reasons that the law may
        give for a failure.
    effort: the work of Newton's method.
    problem, integrator, law, params, step, save_every, t0, t_end, nsdyn_version: the settings.
    backend: the compiler of the run, "xla" or "native".
    coordinates, velocities: names and units of q and v, as in the problem; () if it has none.
    drawing: how the problem is drawn, for `animate`; not saved.

    In a batch (from `sweep`, or from `rollout` under vmap) all arrays have one more axis in front,
    except that `t` may be shared; `len` is the number of runs and `solution[i]` the i-th run.
    """

    t: Values = _samples("time")
    q: Values = _samples("configuration q", "coordinate")
    v: Values = _samples("velocity v", "velocity")
    lam: Values = _samples("constraint force lam (multiplier)", "row")
    mode: Values = _samples("mode", "*mode")
    energy: Values = _samples("energy")
    events: Events = _required()
    status: Values = _ending("status code of the run, 0 is OK", default=lambda: np.array(0))
    t_stop: Values = _ending("time at which the run ended", default=lambda: np.array(np.nan))
    mode_stop: Values = _ending("mode at the end", "*mode", default=lambda: np.array(-1))
    effort: Effort = dataclasses.field(default_factory=Effort.none)
    params: Any = None  # None from `rollout`, whose caller has them
    problem: str = _about("")
    integrator: str = _about("")
    law: str = _about("")
    law_reasons: tuple[str, ...] = eqx.field(static=True, default=())
    step: float = _about(0.0)
    save_every: int | None = _about(None)  # None if `save_at` was given
    t0: float = _about(0.0)
    t_end: float = _about(0.0)
    has_potential: bool = _about(True)  # whether `energy` is T + V or only T
    backend: str = _about("xla")
    nsdyn_version: str = _about(__version__)
    note: str = _about("")  # what more is known about the place where the run stopped
    coordinates: tuple[str, ...] = _about(())
    velocities: tuple[str, ...] = _about(())
    drawing: Drawing | None = None

    @property
    def is_batch(self) -> bool:
        return np.ndim(self.status) > 0

    @property
    def ok(self) -> Values:
        """Whether the run reached t_end; for each run of a batch."""
        return self.status == int(Status.OK)

    @property
    def iterations(self) -> Values:
        """Newton iterations of all steps; 0 for explicit methods."""
        return _number(self.effort.total)

    @property
    def iterations_worst(self) -> Values:
        """The largest number of Newton iterations in one step."""
        return _number(self.effort.worst)

    @property
    def energy_name(self) -> str:
        if self.has_potential:
            return "energy T + V"
        return "kinetic energy T (the system has no potential)"

    @property
    def failed(self) -> str:
        """The failures, grouped by status, with the first few runs of each; empty if there are
        none."""
        status = np.atleast_1d(self.status)
        t_stop = np.atleast_1d(self.t_stop)
        lines = []
        for code in np.unique(status[status != Status.OK]):
            which = np.flatnonzero(status == code)
            some = ", ".join(f"{i} (t = {t_stop[i]:.6g})" for i in which[:5])
            more = ", ..." if len(which) > 5 else ""
            kind = ": ".join(self.meaning(code))
            if not self.is_batch:
                return f"{kind} (t = {t_stop[0]:.6g})"
            lines.append(f"{len(which)} of {len(status)} {kind}. Runs {some}{more}")
        return "\n".join(lines)

    def meaning(self, code: Any) -> tuple[str, str]:
        """The name of a status code and its meaning. Codes of the law itself are explained by its
        `reasons`."""
        k = int(code) - FIRST_REASON
        if k < 0:
            return Status(int(code)).name, MESSAGES[Status(int(code))]
        unsaid = f"the law objects with its reason {k}, which is not in its list of reasons"
        known = k < len(self.law_reasons)
        return f"objection of {self.law}", self.law_reasons[k] if known else unsaid

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        if not self.is_batch:
            raise TypeError("a single run has no len; len(solution.t) counts its samples")
        return len(self.status)

    def __getitem__(self, index: Any) -> "Solution":
        """A run of a batch, or with a slice or mask a smaller batch."""
        if not self.is_batch:
            raise TypeError(
                "solution[...] selects a run of a batch, but this is a single run; its arrays are "
                ".t, .q, .v, .lam, .mode, .energy"
            )
        if isinstance(index, int | np.integer) and not -len(self) <= index < len(self):
            raise IndexError(f"solution[{index}]: there are {len(self)} runs")
        rest = dataclasses.replace(self, t=None)
        picked = jax.tree.map(lambda x: x[index] if _is_array(x) else x, rest)
        return dataclasses.replace(picked, t=self.t if np.ndim(self.t) == 1 else self.t[index])

    def trimmed(self) -> "Solution":
        """A single run without the samples and events after a failure, in numpy arrays."""
        run = jax.tree.map(lambda x: np.asarray(x) if _is_array(x) else x, self)
        finite = np.all(np.isfinite(run.q), axis=1) & np.all(np.isfinite(run.v), axis=1)
        good = len(finite) if run.ok else int(np.argmin(np.append(finite, False)))
        # A failure may be noticed only some steps later, so the run ends at its first lost sample
        # and later events are dropped.
        t_stop = np.minimum(run.t_stop, np.append(run.t, np.inf)[good])
        events = run.events.trimmed() if run.ok else run.events[run.events.t <= t_stop]
        samples = {name: np.array(getattr(run, name)[:good]) for name in SAMPLES}
        return dataclasses.replace(run, **samples, events=events, t_stop=t_stop)

    def __repr__(self) -> str:
        if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves(self)):
            return f"Solution({self.problem}: {np.shape(self.t)[-1]} samples, traced{self._by()})"
        if self.is_batch:
            size = f"{len(self)} runs of {np.shape(self.t)[-1]} samples"
            return f"Solution({self.problem}: {size}, {np.sum(~self.ok)} failed{self._by()})"
        span = f"t = {self.t[0]:g} to {self.t[-1]:g}" if len(self.t) else "t = none"
        sizes = f"n = {self.v.shape[1]}, m = {self.lam.shape[1]}"
        size = f"{len(self.t)} samples, {sizes}, {counted(self.events)}"
        how = self.meaning(self.status)[0]
        end = "" if self.ok else f", {how} at t = {float(self.t_stop):g}"
        return f"Solution({self.problem}: {span}, {size}{end}{self._by()})"

    def _by(self) -> str:
        return f"; {self.integrator}, {self.law}"

    def to_xarray(self) -> "xarray.Dataset":
        """An xarray.Dataset with named dimensions; `lam` holds forces, `Lam` impulses. A batch has
        the dimension "run" in front, and run i has `event_count[i]` events."""
        import xarray

        variables = self.variables()
        coords: dict[str, tuple] = {"event_time": variables.pop("event_time")}
        coords["time"] = (["time"], self._shared_times(), {"long_name": "time"})
        coords |= self._labels()
        attributes = {name: getattr(self, name) for name in METADATA if name not in IN_ARRAYS}
        attributes = {name: x for name, x in attributes.items() if x is not None}
        return xarray.Dataset(variables, coords, attributes | {"params": _text(plain(self.params))})

    def _labels(self) -> dict[str, tuple]:
        """Names of coordinates and velocities, and their units, for the axes of the dataset."""
        found: dict[str, tuple] = {}
        for axis, names in (("coordinate", self.coordinates), ("velocity", self.velocities)):
            if names:
                found[axis] = ([axis], [name_of(x) for x in names], {"long_name": axis})
                found[f"{axis}_unit"] = ([axis], [unit_of(x) for x in names])
        return found

    def variables(self) -> dict[str, tuple]:
        """{name: (dimensions, array, attributes)} of all but the times of the samples."""
        run = ["run"] if self.is_batch else []
        spread = _spread(np.ndim(self.mode) - 1 - len(run))
        own = lambda dims, x, text: (run + spread(dims), np.asarray(x), {"long_name": text})
        found: dict[str, tuple] = {}
        for name, (dims, text) in SAMPLES.items():
            if name != "t":
                found[name] = own(dims, getattr(self, name), text)
        found["energy"][2]["long_name"] = self.energy_name
        events = self.events.trimmed()
        for name, (dims, text) in EVENTS.items():
            found[VARIABLES.get(name, name)] = own(dims, getattr(events, name), text)
        if self.is_batch:
            found["event_count"] = own((), events.count, "number of events")
        for name, (dims, text) in ENDINGS.items():
            found[name] = own(dims, getattr(self, name), text)
        for name, text in EFFORT.items():
            found[f"newton_{name}"] = own((), getattr(self.effort, name), text)
        return found

    def _shared_times(self) -> np.ndarray:
        t = np.asarray(self.t)
        if t.ndim == 1:
            return t
        if not np.all(t == t[:1]):
            raise ProblemError(
                "to_xarray: expected runs with the same times, found different ones; convert "
                "single runs, solution[i].to_xarray()"
            )
        return t[0]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a netCDF file that `nsdyn.load` reads back exactly."""
        from nsdyn.results.netcdf import save

        save(self, path)

    def plot(self) -> "matplotlib.figure.Figure":
        """A matplotlib Figure of q, v, lam and energy over time, with events as thin vertical
        lines; coordinates with different units have axes of their own. Of a batch, a hundred of
        its runs, without events. Opens no window."""
        from nsdyn.results.plot import figure

        return figure(self)

    def animate(
        self,
        path: str | os.PathLike[str],
        problem: "Problem | None" = None,
        *,
        speed: float | None = None,
        rate: int = 25,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Write the motion as a film, `path` ending in .gif, or in .mp4 where ffmpeg is installed.
        Events flash.

        problem: whose `shape` and structure of parameters are used; a run that was loaded from a
            file, or comes from `rollout`, does not know them.
        speed: seconds of the motion in a second of the film; 1 is real time. By default real time
            for runs of 2 to 20 s, otherwise so that the film takes 6 s.
        rate: frames in a second of the film.
        progress: progress(done, total) is called after each frame.
        """
        from nsdyn.results.film import write

        write(self, path, problem, speed, rate, progress)


def _with(cls: type, key: str) -> dict[str, Any]:
    """{field: metadata} of the fields that have this key in their metadata."""
    return {
        field.name: field.metadata for field in dataclasses.fields(cls) if key in field.metadata
    }


# name: (dimensions, description). "*mode" stands for the axes of a mode; an integer has none
_DESCRIBED = {name: (x["dims"], x["text"]) for name, x in _with(Solution, "dims").items()}
SAMPLES = {name: x for name, x in _DESCRIBED.items() if x[0][:1] == ("time",)}
ENDINGS = {name: x for name, x in _DESCRIBED.items() if name not in SAMPLES}
EVENTS = {name: (("event", *x["dims"]), x["text"]) for name, x in _with(Event, "dims").items()}
VARIABLES = {"t": "event_time", "q": "event_q"}  # samples have the same names
EFFORT = {
    "total": "iterations of Newton's method",
    "worst": "largest number of iterations in one step",
    "change": "last update, relative to the tolerance",
    "failed": "whether Newton's method failed",
}
METADATA = tuple(_with(Solution, "about"))
IN_ARRAYS = ("has_potential", "coordinates", "velocities")  # a dataset says these by its arrays


def _spread(axes: int) -> Callable:
    """A function that replaces "*mode" in a list of dimensions by the names of these axes."""
    parts = ["part"] if axes == 1 else [f"part_{i}" for i in range(axes)]
    return lambda dims: [name for dim in dims for name in (parts if dim == "*mode" else [dim])]


def _is_array(x: Any) -> bool:
    return isinstance(x, np.ndarray | np.generic | jax.Array)


def _number(x: Values) -> Values:
    return x.item() if isinstance(x, np.ndarray) and x.ndim == 0 else x


# Parameters


def _leaf_text(name: str, x: Any) -> str:
    return getattr(x, "__qualname__", repr(x))


def plain(tree: Params, other: Callable[[str, Any], Any] = _leaf_text, name: str = "params") -> Any:
    """A pytree as nested dicts and lists of numpy arrays, with the same names. Text and None stay;
    a leaf that cannot become an array becomes `other(name, x)`, by default its text."""
    if tree is None or isinstance(tree, str):
        return tree
    inner = lambda key, child: plain(child, other, f"{name}[{key!r}]")
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = [field.name for field in dataclasses.fields(tree)]
        return {key: plain(getattr(tree, key), other, f"{name}.{key}") for key in names}
    if isinstance(tree, dict):  # keeps its order; JAX would sort
        return {str(key): inner(key, child) for key, child in tree.items()}
    children = jax.tree_util.tree_flatten_with_path(tree, is_leaf=lambda x: x is not tree)[0]
    if any(not path for path, _ in children):
        return _leaf(tree, other, name)
    if isinstance(tree, list | tuple) and not hasattr(tree, "_fields"):
        return [inner(i, child) for i, (_, child) in enumerate(children)]
    return {_key(path[0]): inner(_key(path[0]), child) for path, child in children}


def _leaf(x: Any, other: Callable, name: str) -> Any:
    try:
        array = np.asarray(x)
    except Exception:  # foreign array types may raise anything
        return other(name, x)
    return array if array.dtype.kind in "biufc" else other(name, x)


def _key(entry: Any) -> str:
    """The name in a path entry: a key, an attribute or an index."""
    return str(
        next(getattr(entry, name) for name in ("key", "name", "idx") if hasattr(entry, name))
    )


def _text(params: Any) -> str:
    return json.dumps(
        params, default=lambda x: x.tolist() if x.dtype.kind != "c" else str(x.tolist())
    )
