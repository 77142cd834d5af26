"""Motions that studies have archived, for the player: any data of a run with `t`, `q` and the name and
parameters of a problem of ours that has a shape.

Studies name what belongs to an event in their own words, and may keep some of it only.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from xarray import Dataset

import nsdyn
from nsdyn import problems
from nsdyn.errors import FileError, ProblemError
from nsdyn.results.drawing import restored
from nsdyn.results.solution import plain
from nsdyn.studies.lib import archive
from nsdyn.studies.lib.report.motions import FRAMES, Film, numbers_text, packed

TIMES = ("event_t", "t_switch", "t_lock", "t_event")
WORDS = {
    "before": ("event_v_before", "v_before"),
    "after": ("event_v_after", "v_after"),
    "impulse": ("event_Lam", "Lam"),
}
ENERGIES = (("event_kinetic_before", "energy_before"), ("event_kinetic_after", "energy_after"))


def motions(folder: Path) -> list[dict[str, Any]]:
    """The motions in the folder of a study, one for each problem, as the player reads them."""
    films: dict[str, tuple[nsdyn.Problem, list[Film]]] = {}
    for name in archive.read_index(folder / "data")["names"]:
        try:
            data, described = archive.read(folder / "data", name)
        except FileError:  # incomplete data are for `nsdyn figures` to tell
            continue
        problem = _problem(described["settings"])
        film = None if problem is None else _film(name, problem, data, described["settings"])
        if problem is not None and film is not None:
            films.setdefault(problem.name, (problem, []))[1].append(film)
    title = folder.resolve().name.replace("_", " ")
    return [packed(x, f"{title}: {name}", found) for name, (x, found) in films.items()]


def _problem(settings: Mapping[str, Any]) -> nsdyn.Problem | None:
    """The problem of ours that was run, if it can be drawn."""
    name = settings.get("problem")
    if name not in problems.names() or "params" not in settings:
        return None
    problem = problems.get(name)
    return None if problem.shape is None else problem


def _film(
    name: str, problem: nsdyn.Problem, data: Dataset, settings: Mapping[str, Any]
) -> Film | None:
    """A run with its parameters; None if the data are no run of this problem."""
    if "t" not in data or "q" not in data or data.q.shape != (data.t.size, problem.q0.size):
        return None
    try:
        found = restored(settings["params"], jax.tree.structure(problem.params))
    except ProblemError:  # it was made with settings that change its parameters
        return None
    params = plain(jax.tree.map(lambda _, x: np.asarray(x), problem.params, found))
    t, rows = data.t.values, _rows(data.t.values)
    energy = data.energy.values[rows] if "energy" in data else None
    return Film(_label(name), t[rows], data.q.values[rows], params, energy, _events(data))


def _rows(t: np.ndarray) -> np.ndarray:
    """About FRAMES of the rows, and all at which two follow each other at once."""
    some = np.linspace(0, len(t) - 1, min(len(t), FRAMES)).round().astype(int)
    jumps = np.flatnonzero(np.diff(t) == 0)
    return np.unique(np.concatenate([some, jumps, jumps + 1]))


def _events(data: Dataset) -> list[dict[str, Any]]:
    times = _first(data, TIMES)
    if times is None:
        return []
    columns = {word: _first(data, names) for word, names in WORDS.items()}
    before, after = (_first(data, names) for names in ENERGIES)
    found = []
    for k, t in enumerate(np.ravel(times)):
        told = _limits(data, float(t))
        told |= {word: numbers_text(x[k]) for word, x in columns.items() if x is not None}
        if before is not None and after is not None:
            told["energy"] = f"energy {before[k]:.6g} to {after[k]:.6g} J"
        found.append({"t": float(t), **told})
    return found


def _limits(data: Dataset, t: float) -> dict[str, str]:
    """The limits from both sides, if rows at this time hold them."""
    rows = np.flatnonzero(data.t.values == t)
    if len(rows) < 2:
        return {}
    left, right = rows[[0, -1]]
    told = {}
    if "v" in data:
        v = data.v.values
        told = {"before": numbers_text(v[left]), "after": numbers_text(v[right])}
    if "energy" in data:
        energy = data.energy.values
        told["energy"] = f"energy {energy[left]:.6g} to {energy[right]:.6g} J"
    return told


def _first(data: Dataset, names: tuple[str, ...]) -> np.ndarray | None:
    return next((data[name].values for name in names if name in data), None)


def _label(name: str) -> str:
    return name.replace("_", " ")
