"""Where a file comes from: which data of which study it shows, with which settings, versions and
commit these were computed, and the command that makes it again.

Figures carry the name of their study and the keys of their data, so that a figure tells where it
comes from wherever it lies; settings and versions are beside the data (`archive`).
"""

import json
import re
import shlex
from html import unescape
from pathlib import Path
from typing import Any

from nsdyn import studies
from nsdyn.errors import FileError
from nsdyn.results.netcdf import FORMAT
from nsdyn.studies.lib import archive

Rows = list[tuple[str, str]]
PDF = re.compile(rb"/Subject \((.*?)(?<!\\)\)", re.DOTALL)
SVG = re.compile(r"<dc:description>(.*?)</dc:description>", re.DOTALL)
MOST = 300  # characters of a setting that are shown


def origin(path: str | Path) -> Rows:
    """What is known about a file, or a folder of a study: (word, text)."""
    file = Path(path)
    if not file.exists():
        raise FileError(f"info: {file} does not exist")
    if file.is_dir():
        return _of_study(file)
    if (told := _in_figure(file)) is not None:
        return _of_figure(file, told)
    if file.parent.name == "data" and (file.parent / archive.INDEX).is_file():
        return _of_data(file)
    if file.suffix == ".nc" and (found := _attributes(file)).get("format") == FORMAT:
        return _of_run(file, json.loads(found["metadata"]))
    if (file.parent / "data").is_dir():
        return [("file", f"{file.name}, of the study in {file.parent}"), *_of_study(file.parent)]
    raise FileError(
        f"info: {file} is nothing that nsdyn writes: expected a figure, table or netCDF file, or "
        "the folder of a study"
    )


def _in_figure(file: Path) -> dict[str, Any] | None:
    """What a figure says about itself."""
    text: str | None = None
    if file.suffix == ".pdf" and (found := PDF.search(file.read_bytes())):
        text = re.sub(rb"\\(.)", rb"\1", found[1]).decode("latin-1")
    elif file.suffix == ".svg" and (said := SVG.search(file.read_text("utf-8"))):
        text = unescape(said[1])
    elif file.suffix == ".png":
        from PIL import Image  # comes with matplotlib

        with Image.open(file) as image:
            text = image.info.get("Description")
    try:
        told = json.loads(text or "")
    except ValueError:
        return None
    return told if isinstance(told, dict) and "figure" in told else None


def _of_figure(file: Path, told: dict[str, Any]) -> Rows:
    rows = [("figure", f"{told['figure']} of the study {told['study']}")]
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
    described = archive.read_json(folder / f"{key}.json")
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
    described = archive.read_json(file.with_suffix(".json"))
    if "command" in described:
        return [*rows, *_provenance(described), ("command", described["command"])]
    rows.append(("versions", f"nsdyn {told.get('nsdyn_version', 'unknown')}"))
    words = ["nsdyn", "run", str(told["problem"]), "--integrator", str(told["integrator"])]
    words += ["--law", str(told["law"]), "--step", f"{told['step']:g}", "--out", file.name]
    note = "  (with the parameters above)" if told.get("params") else ""
    return [*rows, ("command", shlex.join(words) + note)]


def _made(folder: Path, keys: Any) -> Rows:
    """Versions, commit and date of data; those of the newest."""
    found = [archive.read_json(folder / f"{key}.json") for key in keys]
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
