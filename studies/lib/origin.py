"""Where a file comes from: which data of which study it shows, with which settings, versions and
commit these were computed, and the command that makes it again.

Figures and tables carry the name of their study and the keys of their data, plots, films and pages the
command that made them (`stamps`); settings and versions are beside the data (`archive`).
"""

import json
import shlex
from pathlib import Path
from typing import Any

from nsdyn import studies
from nsdyn._files import read_json
from nsdyn.errors import FileError
from nsdyn.results.netcdf import FORMAT
from nsdyn.results.sweep_folder import ABOUT as SWEEP
from nsdyn.results.sweep_folder import FORMAT as SWEEP_FORMAT
from nsdyn.results.sweep_folder import WHOLE
from nsdyn.studies.lib import archive, stamps
from nsdyn.studies.lib.study_tables import ORIGIN

Rows = list[tuple[str, str]]
MOST = 300  # characters of a setting that are shown


def origin(path: str | Path) -> Rows:
    """What is known about a file, or a folder: (word, text)."""
    file = Path(path)
    if not file.exists():
        raise FileError(f"info: {file} does not exist")
    folder = file if file.is_dir() else file.parent
    if (folder / SWEEP).is_file() and read_json(folder / SWEEP).get("format") == SWEEP_FORMAT:
        return _of_sweep(folder)
    if file.is_dir() and not (folder / "data").is_dir() and (folder / ORIGIN).is_file():
        return _said(folder, read_json(folder / ORIGIN))
    if file.is_dir():
        return _of_study(file)
    told = stamps.read(file) or {}
    if "data" in told and "study" in told:
        return _of_figure(file, told)
    if "command" in told:
        return _said(file, told)
    if file.parent.name == "data" and (file.parent / archive.INDEX).is_file():
        return _of_data(file)
    if file.suffix == ".nc" and (found := _attributes(file)).get("format") == FORMAT:
        return _of_run(file, json.loads(found["metadata"]))
    if file.suffix == ".json" and "command" in (described := read_json(file)):
        return _said(file, described)
    if (folder / "data").is_dir():
        return [("file", f"{file.name}, of the study in {folder}"), *_of_study(folder)]
    if "command" in (described := read_json(folder / ORIGIN)):
        return _said(file, described)
    raise FileError(
        f"info: {file} is nothing that nsdyn writes: expected a figure, film, table, page or "
        "netCDF file, or the folder of a study or a sweep"
    )


def _said(file: Path, told: dict[str, Any]) -> Rows:
    """A file that was stamped with its command, or that has a description beside it."""
    return [("file", file.name), *_provenance(told), ("command", told["command"])]


def _of_sweep(folder: Path) -> Rows:
    """A sweep in a folder, complete or not; the command line leaves its command there."""
    described, said = read_json(folder / SWEEP), read_json(folder / ORIGIN)
    rows = [("sweep", f"{folder.resolve().name}, {_state(folder)}")]
    rows += [("setting", f"{name} = {_short(x)}") for name, x in described["settings"].items()]
    known = {"versions": described["versions"]} | said
    command = said.get("command", "unknown: made in Python, or interrupted")
    return [*rows, *_provenance(known), ("command", command)]


def _state(folder: Path) -> str:
    whole = read_json(folder / WHOLE)
    if whole:
        return f"{len(whole['lost'])} parts were lost" if whole.get("lost") else "complete"
    return "not complete: the same command goes on where it was"


def _of_figure(file: Path, told: dict[str, Any]) -> Rows:
    kind = "figure" if "figure" in told else "table"
    rows = [(kind, f"{told[kind]} of the study {told['study']}")]
    rows += [("data", f"{name} ({key})") for name, key in told["data"].items()]
    folder = file.parent
    if not (folder / "data").is_dir():
        known = told["study"] in studies.names()
        makes = f"nsdyn figures {told['study']}" if known else "unknown: its data are not beside it"
        return [*rows, ("command", makes)]
    now = archive.read_index(folder / "data")["names"]
    if now != told["data"]:
        rows.append(("note", "the data beside it are newer than the figure; draw it again"))
    return [*rows, *_made(folder / "data", told["data"].values()), *_command(folder)]


def _of_study(folder: Path) -> Rows:
    index = archive.read_index(folder / "data")
    if not index["names"]:
        raise FileError(f"info: no archived data in {folder / 'data'}")
    rows = [("study", folder.resolve().name)]
    rows += [("data", f"{name} ({key})") for name, key in index["names"].items()]
    return [*rows, *_made(folder / "data", index["names"].values()), *_command(folder)]


def _of_data(file: Path) -> Rows:
    folder, key = file.parent, file.name.partition(".")[0]
    meaning = archive.read_index(folder)["keys"].get(key, {})
    described = read_json(folder / f"{key}.json")
    if not described:
        raise FileError(f"info: {folder / f'{key}.json'}, which describes {file.name}, is missing")
    rows = [("data", f"{meaning.get('name', 'of no name')} ({key})")]
    rows += [("setting", f"{name} = {_short(x)}") for name, x in described["settings"].items()]
    return [*rows, *_made(folder, [key]), *_command(folder.parent)]


def _of_run(file: Path, told: dict[str, Any]) -> Rows:
    """A run or a sweep that was saved; the command line leaves a description beside it."""
    names = ("problem", "integrator", "law", "step", "save_every", "t0", "t_end", "backend", "note")
    rows = [("setting", f"{name} = {_short(told[name])}") for name in names if told.get(name)]
    rows.append(("setting", f"params = {_short(told.get('params'))}"))
    described = read_json(file.with_suffix(".json"))
    if "command" in described:
        return [*rows, *_provenance(described), ("command", described["command"])]
    rows.append(("versions", f"nsdyn {told.get('nsdyn_version', 'unknown')}"))
    words = ["nsdyn", "run", str(told["problem"]), "--integrator", str(told["integrator"])]
    words += ["--law", str(told["law"]), "--step", f"{told['step']:g}", "--out", file.name]
    note = "  (with the parameters above)" if told.get("params") else ""
    return [*rows, ("command", shlex.join(words) + note)]


def _made(folder: Path, keys: Any) -> Rows:
    """Versions, commit and date of data; those of the newest."""
    found = [read_json(folder / f"{key}.json") for key in keys]
    found = [x for x in found if "date" in x]
    return _provenance(max(found, key=lambda x: x["date"])) if found else []


def _provenance(described: dict[str, Any]) -> Rows:
    versions = ", ".join(f"{k} {x}" for k, x in described.get("versions", {}).items())
    rows = [("versions", versions), ("platform", described.get("platform", ""))]
    rows += [("commit", described.get("commit") or "unknown"), ("date", described.get("date", ""))]
    return [row for row in rows if row[1]]


def _command(folder: Path) -> Rows:
    """The command that makes the data and figures of a folder."""
    name = folder.resolve().name
    known = archive.read_index(folder / "data").get("command")
    if known is None and name in studies.names():
        known = shlex.join(["nsdyn", "figures", name, "--out", str(folder.parent)])
    return [("command", known or "unknown: made in Python, or by an older nsdyn")]


def _attributes(file: Path) -> dict[str, Any]:
    import xarray

    try:
        with xarray.open_dataset(file, engine="scipy", decode_cf=False) as dataset:
            return dict(dataset.attrs)
    except Exception:  # not a netCDF file, or a damaged one
        return {}


def _short(x: Any) -> str:
    text = x if isinstance(x, str) else json.dumps(x)
    return text if len(text) <= MOST else f"{text[:MOST]} ..."
