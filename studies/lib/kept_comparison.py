"""What `compare` leaves beside its data, so that its tables and figures can be made again without
running anything: which runs there are, under which names in the archive, and what was refused."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from xarray import Dataset

from nsdyn._files import read_json, write_json
from nsdyn.errors import FileError
from nsdyn.studies.compare import TIMES, Comparison, Run, slug
from nsdyn.studies.lib import archive

FILE = "comparison.json"
WORDS = ("problem", "step", "span", "reference_step")


def is_there(folder: Path) -> bool:
    return (folder / "data" / FILE).is_file()


def write(data: Path, found: Comparison, names: Mapping[int, str]) -> None:
    """Keep a comparison; `names` are those of its runs in the archive, by their ids."""
    names = dict(names)
    for law in found.closed_forms:
        run = found.references[law]
        names[id(run)] = _write_exact(data, f"closed form, {law}", run.data)
    told = lambda run: {
        "integrator": run.integrator,
        "law": run.law,
        "reason": run.reason,
        "data": names.get(id(run)),
    }
    write_json(
        data / FILE,
        {name: getattr(found, name) for name in WORDS}
        | {"closed_forms": dict(found.closed_forms)}
        | {"runs": [told(run) for run in found.runs]}
        | {"references": {law: told(run) for law, run in found.references.items()}},
    )


def _write_exact(data: Path, name: str, exact: Dataset) -> str:
    """A closed form in the place of a run; returns its name in the archive."""
    name = slug(name)
    values = {
        str(k): (x.dims, x.values, x.attrs) for k, x in exact.data_vars.items() if k not in TIMES
    }
    content = hashlib.sha256(
        b"".join(np.ascontiguousarray(x[1]).tobytes() for x in values.values())
    )
    settings = {"closed form": name, "content": content.hexdigest()}
    if not archive.exists(data, name, settings):
        archive.write(data, name, values, settings)
    archive.write_timing(data, name, {k: float(exact[k]) for k in TIMES if k in exact})
    return name


def read(folder: Path) -> Comparison:
    """The comparison in a folder. Missing or damaged data are an error."""
    data = folder / "data"
    told = read_json(data / FILE)
    if not told:
        raise FileError(f"redraw: {data / FILE} cannot be read; compare again")
    return Comparison(
        **{name: told[name] for name in WORDS} | {"span": tuple(told["span"])},
        closed_forms=told["closed_forms"],
        runs=[_run(data, x) for x in told["runs"]],
        references={law: _run(data, x) for law, x in told["references"].items()},
    )


def _run(data: Path, told: Mapping[str, Any]) -> Run:
    if told["data"] is None:
        return Run(told["integrator"], told["law"], Dataset(), told["reason"])
    found, _ = archive.read(data, told["data"])
    key = archive.read_index(data)["names"].get(told["data"], told["data"])
    times = dict.fromkeys(TIMES, np.nan) | archive.read_timing(data, key)
    return Run(told["integrator"], told["law"], found.assign(times), told["reason"])
