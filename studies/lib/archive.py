"""The archive of a study: arrays in a netCDF file, and a JSON file that describes their origin.

`name.nc` is written first, `name.json` with its checksum last, each under a temporary name until it
is complete. So an interrupted study leaves no partial data, and a mismatch of data and description
is detected.
"""

import hashlib
import json
import os
import platform
import secrets
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr

import nsdyn
from nsdyn.errors import FileError
from nsdyn.results.solution import plain

PACKAGES = ("jax", "jaxlib", "equinox", "numpy", "scipy", "xarray", "matplotlib")


def write(
    folder: str | Path, name: str, variables: Mapping[str, tuple], settings: Mapping[str, Any]
) -> Path:
    """Archive {variable: (dimensions, array) or (dimensions, array, attributes)} with the settings
    that produced them."""
    folder = Path(folder)
    dataset = xr.Dataset(
        {key: (value[0], np.asarray(value[1]), *value[2:]) for key, value in variables.items()}
    )
    path = replace(folder / f"{name}.nc", lambda part: dataset.to_netcdf(part, engine="scipy"))
    described = {"settings": _plain(settings), "sha256": _checksum(path), **provenance()}
    write_json(folder / f"{name}.json", described)
    return path


def read(folder: str | Path, name: str) -> tuple[xr.Dataset, dict]:
    """The archived arrays, in memory, and their description."""
    path = Path(folder) / f"{name}.nc"
    described = _description(Path(folder), name)
    if described is None or not path.is_file():
        raise FileError(f"no archived data {name!r} in {folder}; compute the study first")
    if described.get("sha256") != _checksum(path):
        raise FileError(
            f"{path} is not the file that {name}.json describes; compute the study again"
        )
    with xr.open_dataset(path, engine="scipy") as dataset:
        return dataset.load(), described


def exists(folder: str | Path, name: str, settings: Mapping[str, Any]) -> bool:
    """Whether there are complete data for these settings and this version of nsdyn."""
    path = Path(folder) / f"{name}.nc"
    described = _description(Path(folder), name)
    if described is None or not path.is_file():
        return False
    same = (
        described.get("settings") == _plain(settings)
        and described.get("versions", {}).get("nsdyn") == nsdyn.__version__
    )
    return same and described.get("sha256") == _checksum(path)


def numbers_of(problem: nsdyn.Problem) -> dict[str, Any]:
    """Everything besides functions that the numbers of a run depend on, for `settings`."""
    params = jax.tree.map(lambda x: np.asarray(x).tolist(), plain(problem.params))
    return {
        "problem": problem.name,
        "params": params,
        "q0": problem.q0,
        "v0": problem.v0,
        "t_end": problem.t_end,
    }


def provenance() -> dict[str, Any]:
    """Versions, platform, commit (if known) and date."""
    versions = {"python": platform.python_version(), "nsdyn": nsdyn.__version__}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return {
        "versions": versions,
        "platform": f"{platform.system()} {platform.machine()}",
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def commit() -> str | None:
    """The commit of the source tree that nsdyn runs from, with '+' if files have changed; None if
    unknown."""
    root = Path(nsdyn.__file__).resolve().parents[1]
    if not (root / ".git").exists():  # nsdyn may be installed inside another repository
        return None

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def write_json(path: str | Path, content: Mapping[str, Any]) -> Path:
    text = json.dumps(content, indent=2) + "\n"
    return replace(Path(path), lambda part: part.write_text(text, "utf-8"))


def replace(path: Path, write: Callable[[Path], Any]) -> Path:
    """Let `write` create a file under a temporary name in the same folder, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.stem}-{secrets.token_hex(4)}{path.suffix}")
    try:
        write(part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _description(folder: Path, name: str) -> dict | None:
    try:
        described = json.loads((folder / f"{name}.json").read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return described if isinstance(described, dict) else None


def _plain(settings: Mapping[str, Any]) -> dict:
    """Settings as JSON gives them back."""
    return json.loads(json.dumps(settings, default=lambda x: np.asarray(x).tolist()))


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
