"""The archive of a study: arrays in netCDF files, each with a JSON file that describes its origin.

Files are named by a key, the digest of everything that the arrays depend on: the settings, the code
that computes them (`code_digest`) and the keys of other data that they are made from. What was
computed with other settings or other code has another key, so it is never taken for the same, and
nothing is computed twice. `index.json` tells which key a name stands for, and what the keys mean.
Times are not among the arrays (`write_timing`), so these are the same bytes each time.

`key.nc` is written first, `key.json` with its checksum last, each under a temporary name until it is
complete. So an interrupted study leaves no partial data, and a mismatch of data and description is
detected.
"""

import hashlib
import json
import platform
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr

import nsdyn
from nsdyn._code_digest import code_digest
from nsdyn._files import read_json, replace, write_json
from nsdyn.errors import FileError
from nsdyn.results.solution import plain

INDEX, TIMING = "index.json", "timing.json"
KEY_LENGTH = 20  # hexadecimal digits
CLOSE = 1e-9  # of the largest value: what another machine may give
PACKAGES = ("jax", "jaxlib", "equinox", "numpy", "scipy", "xarray", "matplotlib")


def update(
    folder: str | Path,
    name: str,
    settings: Mapping[str, Any],
    make: Callable[[], Mapping[str, tuple]],
    *,
    uses: Iterable[Any] = (),
    after: Iterable[str] = (),
    force: bool = False,
) -> Path:
    """Archive make() under a name, unless the archive has it for these settings and this code.
    `after` are the names of archived data that make() reads. Returns the file.

    The code is that of make and of everything it refers to; what it knows only by a name, such as
    a problem, is given in `uses`.
    """
    folder = Path(folder)
    index = read_index(folder)
    words = _plain(settings) | {"code": code_digest(make, *uses)}
    words |= {"after": {x: index["names"].get(x) for x in after}} if after else {}
    key = key_of(words)
    if visited(folder, name, key, words, make):
        return folder / f"{key}.nc"
    if force or not exists(folder, key, words):
        write(folder, key, make(), words)
    if index["names"].get(name) != key:
        _enter(folder, index, name, key, words)
    return folder / f"{key}.nc"


def key_of(words: Mapping[str, Any]) -> str:
    """The key of data with this description."""
    text = json.dumps(_plain(words), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]


def read_index(folder: Path) -> dict[str, Any]:
    """{"names": {name: key}, "keys": {key: what it means}}, and the command that makes them, if it
    is known."""
    return {"names": {}, "keys": {}} | read_json(folder / INDEX)


def remember_command(folder: Path, command: str) -> None:
    """Keep the command that makes the data of a folder, for `nsdyn info`."""
    index = read_index(folder)
    if index.get("command") != command:
        write_json(folder / INDEX, index | {"command": command})


def about(folder: str | Path, kind: str, name: str) -> dict[str, Any]:
    """What a figure or a table says about itself: its study, and the data it shows."""
    folder = Path(folder)
    names = read_index(folder / "data")["names"]
    return {"study": folder.resolve().name, kind: name, "data": names}


def _enter(folder: Path, index: dict[str, Any], name: str, key: str, words: dict) -> None:
    """Let a name stand for this key, and drop data that differ only in the code."""
    old = enter(index, name, key, words)
    write_json(folder / INDEX, index)
    drop(folder, old)


def enter(index: dict[str, Any], name: str, key: str, words: Mapping[str, Any]) -> list[str]:
    """Let a name stand for this key in an index; returns the keys of data that differ only in the
    code, which it no longer has."""
    said = {k: x for k, x in _plain(words).items() if k not in ("code", "after")}
    meaning = {"name": name, "settings": said}
    old = [k for k, known in index["keys"].items() if known == meaning and k != key]
    index["names"][name] = key
    index["keys"] = {k: x for k, x in index["keys"].items() if k not in old} | {key: meaning}
    return old


def drop(folder: Path, keys: Iterable[str]) -> None:
    """Remove data."""
    for key in keys:
        for file in folder.glob(f"{key}.*"):
            file.unlink(missing_ok=True)


def write(
    folder: str | Path, name: str, variables: Mapping[str, tuple], settings: Mapping[str, Any]
) -> Path:
    """Write {variable: (dimensions, array) or (dimensions, array, attributes)} and the settings
    that produced them to name.nc and name.json."""
    folder = Path(folder)
    dataset = xr.Dataset(
        {key: (value[0], np.asarray(value[1]), *value[2:]) for key, value in variables.items()}
    )
    path = replace(folder / f"{name}.nc", lambda part: dataset.to_netcdf(part, engine="scipy"))
    described = {"settings": _plain(settings), "sha256": _checksum(path), **provenance()}
    write_json(folder / f"{name}.json", described)
    return path


def read(folder: str | Path, name: str) -> tuple[xr.Dataset, dict]:
    """The arrays of a name, or of a key, in memory, and their description."""
    folder = Path(folder)
    key = read_index(folder)["names"].get(name, name)
    path = folder / f"{key}.nc"
    described = read_json(folder / f"{key}.json")
    if not described or not path.is_file():
        raise FileError(f"no archived data {name!r} in {folder}; compute the study first")
    if described.get("sha256") != _checksum(path):
        raise FileError(
            f"{path} is not the file that {key}.json describes; compute the study again"
        )
    with xr.open_dataset(path, engine="scipy") as dataset:
        return dataset.load(), described


def exists(folder: str | Path, name: str, settings: Mapping[str, Any]) -> bool:
    """Whether there are complete data for these settings in name.nc."""
    path = Path(folder) / f"{name}.nc"
    described = read_json(Path(folder) / f"{name}.json")
    if not described or not path.is_file():
        return False
    same = described.get("settings") == _plain(settings)
    return same and described.get("sha256") == _checksum(path)


# Times


def write_timing(folder: str | Path, key: str, times: Mapping[str, float]) -> None:
    """Keep the times that computing took; they differ from run to run and have a file of their
    own."""
    path = Path(folder) / TIMING
    write_json(path, read_json(path) | {key: dict(times)})


def read_timing(folder: str | Path, key: str) -> dict[str, float]:
    """The times of a key; empty if they are not known."""
    return read_json(Path(folder) / TIMING).get(key, {})


# Verifying


class Verification:
    """A sample of archived data, computed again: (name, verdict, whether it is all right) of each.

    chosen: the names to compute again.
    keys: the key of every name that was visited.
    """

    def __init__(self, chosen: Iterable[str]):
        self.chosen = set(chosen)
        self.keys: dict[str, str] = {}
        self.found: list[tuple[str, str, bool]] = []

    def visit(
        self, folder: Path, name: str, key: str, words: Mapping[str, Any], make: Callable
    ) -> None:
        self.keys[name] = key
        if not exists(folder, key, words):
            text = "the archive has no data for this code and these settings"
            self.found.append((name, text, False))
        elif name in self.chosen:
            self.found.append((name, *_compared(read(folder, key)[0], make())))


def is_verifying() -> bool:
    """Whether archived data are being verified, not computed."""
    return _verifying.get() is not None


def visited(
    folder: Path, name: str, key: str, words: Mapping[str, Any], make: Callable[[], Any]
) -> bool:
    """`is_verifying`; if so, these data are verified."""
    if (verification := _verifying.get()) is not None:
        verification.visit(folder, name, key, words, make)
    return verification is not None


_verifying: ContextVar[Verification | None] = ContextVar("verifying", default=None)


@contextmanager
def verifying(chosen: Iterable[str]) -> Iterator[Verification]:
    """While this lasts, `update` writes nothing: it computes the chosen names again and compares
    them with the archive."""
    verification = Verification(chosen)
    token = _verifying.set(verification)
    try:
        yield verification
    finally:
        _verifying.reset(token)


def _compared(kept: xr.Dataset, made: Mapping[str, tuple]) -> tuple[str, bool]:
    """The verdict on data that were computed again."""
    worst = 0.0
    for name, value in made.items():
        old, new = kept[name].values, np.asarray(value[1])
        if old.shape != new.shape:
            return f"{name} has another shape", False
        if new.dtype.kind not in "biuf":
            if np.any(old.astype(str) != new.astype(str)):
                return f"{name} differs", False
        elif not np.array_equal(old, new, equal_nan=True):
            scale = np.max(np.abs(new[np.isfinite(new)]), initial=1e-300)
            gap = np.max(np.abs(np.nan_to_num(new - old, nan=np.inf)) / scale)
            worst = max(worst, float(gap))
    if worst == 0.0:
        return "identical", True
    return f"largest difference {worst:.1e} of the largest value", worst <= CLOSE


# Provenance


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


@cache
def commit() -> str | None:
    """The commit of the source tree that nsdyn runs from, with '+' if files had changed when it was
    first asked for; None if unknown."""
    root = Path(nsdyn.__file__).resolve().parents[1]
    if not (root / ".git").exists():  # nsdyn may be installed inside another repository
        return None

    def git(*arguments: str) -> str:
        # without locks: one that a killed study leaves would stop the next commit
        command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _plain(settings: Mapping[str, Any]) -> dict:
    """Settings as JSON gives them back."""
    return json.loads(json.dumps(settings, default=lambda x: np.asarray(x).tolist()))


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
