"""A sweep in a folder, in parts that are complete or not there.

    sweep.json           what is computed, and by which code
    parts/00000040.npz   the runs from number 40 on
    log.txt              which part was computed where, and in how many seconds; a line for each
    q.npy, v.npy, ...    all runs, one after the other, when all parts are there
    solution.json        settings and parameters, as in a netCDF file; it is written last, then the
                         parts are removed

Arrays are mapped, not read: a run of a large sweep costs the memory of this run.
"""

import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from nsdyn._files import read_json, replace, write_json
from nsdyn.errors import FileError
from nsdyn.results.netcdf import EVENT_VARIABLES, metadata_of, solution_of
from nsdyn.results.solution import Solution
from nsdyn.status import Status

FORMAT = "nsdyn sweep"
FORMAT_VERSION = 1
ABOUT, WHOLE, LOG, PARTS = "sweep.json", "solution.json", "log.txt", "parts"
COUNT = "event_count"
EVENT_NAMES = set(EVENT_VARIABLES.values())  # parts may have more or fewer records of events
BLANK = {"status": int(Status.LOST), COUNT: 0, "newton_failed": True}  # of runs that are lost
HIDDEN = ("code", "numbers")  # words that say nothing to people


class SweepFolder:
    """The files of one sweep."""

    def __init__(self, path: str | os.PathLike[str]):
        try:
            self.path = Path(path)
        except TypeError:
            raise FileError(f"folder: expected a path, found {path!r}") from None

    def claim(self, words: Mapping[str, Any]) -> None:
        """Take a folder that is new, or go on in one of the same sweep, described by `words`."""
        if self.path.exists() and not self.path.is_dir():
            raise FileError(f"folder: expected a folder, found the file {self.path}")
        described = {"format": FORMAT, "format_version": FORMAT_VERSION, **words}
        found = read_json(self.path / ABOUT)
        if not found:
            if self.path.is_dir() and any(self.path.iterdir()):
                raise FileError(
                    f"folder: expected a new or empty folder, or one of this sweep, found other "
                    f"files in {self.path}. Name another folder"
                )
            write_json(self.path / ABOUT, described)
        elif found != described:
            raise FileError(
                f"folder: {self.path} holds another sweep: {_difference(found, described)}. Name "
                "another folder, or delete this one"
            )

    @property
    def is_complete(self) -> bool:
        """Whether all runs are there."""
        return read_json(self.path / WHOLE).get("lost") == []

    # Parts

    def part(self, first: int) -> Path:
        return self.path / PARTS / f"{first:08d}.npz"

    def has(self, first: int) -> bool:
        return self.part(first).exists()

    @contextmanager
    def turn(self, first: int) -> Iterator[None]:
        """Only one process at a time has the turn to compute a part: another one waits, and finds
        it done. The system takes the turn from a process that dies."""
        (self.path / PARTS).mkdir(parents=True, exist_ok=True)
        with open(self.path / PARTS / f".{first:08d}.lock", "w") as file:
            with suppress(ImportError, OSError):  # Windows, or a file system without locks
                from fcntl import LOCK_EX, flock

                flock(file, LOCK_EX)
            yield

    def write_part(self, first: int, arrays: Mapping[str, np.ndarray], seconds: float) -> None:
        def write(path: Path) -> None:
            with open(path, "wb") as file:
                np.savez(file, **arrays)  # type: ignore[arg-type]
                file.flush()
                os.fsync(file.fileno())

        replace(self.part(first), write)
        worker = f"{platform.node()} process {os.getpid()}"
        with open(self.path / LOG, "a", encoding="utf-8") as file:
            file.write(f"part {first:08d}: {seconds:.3f} s, {worker}\n")

    def read_part(self, first: int, *names: str) -> dict[str, np.ndarray]:
        """The arrays of a part, or some of them."""
        path = self.part(first)
        try:
            with np.load(path) as arrays:
                return {name: arrays[name] for name in names or arrays.files}
        except Exception as error:  # a damaged file can fail anywhere in the reader
            raise FileError(
                f"folder: {path} cannot be read ({type(error).__name__}: {error}). Delete it and "
                "call the sweep again. Workers on other machines must see the same folder"
            ) from error

    # The whole

    def finish(self, settings: Solution, total: int, firsts: list[int], lost: list[int]) -> None:
        """Put all parts together. `settings` has the times, the parameters and all settings, but
        no results; the parts `lost` are left blank."""
        (self.path / WHOLE).unlink(missing_ok=True)
        there = [first for first in firsts if first not in lost]
        most = max(int(np.max(self.read_part(k, COUNT)[COUNT])) for k in there)
        arrays = _Arrays(self.path, total, most)
        for first in there:
            arrays.put(first, self.read_part(first))
        shapes = arrays.finish() | {"time": list(np.shape(settings.t))}
        replace(self.path / "time.npy", lambda path: _save(path, settings.t))
        about = {"lost": lost, **metadata_of(settings, shapes)}
        write_json(self.path / WHOLE, about)
        if not lost:
            shutil.rmtree(self.path / PARTS, ignore_errors=True)

    def solution(self) -> Solution:
        """The whole sweep, its arrays mapped."""
        metadata = read_json(self.path / WHOLE)
        if not metadata:
            raise FileError(self._unfinished())
        names = [name for name, shape in metadata["shapes"].items() if 0 not in shape]
        try:
            arrays = {name: np.load(self.path / f"{name}.npy", mmap_mode="c") for name in names}
            return solution_of(arrays, metadata)
        except Exception as error:
            raise FileError(
                f"load(path): {self.path} is damaged ({type(error).__name__}: {error}). Take "
                "another copy, or compute the sweep again"
            ) from error

    def _unfinished(self) -> str:
        if not read_json(self.path / ABOUT):
            return f"load(path): cannot read {self.path}: it is a folder, but not of a sweep"
        there = len(list((self.path / PARTS).glob("[0-9]*.npz")))
        return (
            f"load(path): the sweep in {self.path} is not complete, it has {there} parts. Call it "
            "again with the same folder: it goes on where it was"
        )


class _Arrays:
    """The arrays of all runs, filled part by part, in files with temporary names until the end."""

    def __init__(self, folder: Path, total: int, most: int):
        self.folder, self.total, self.most = folder, total, most
        self.found: dict[str, np.ndarray] = {}
        self.shapes: dict[str, list[int]] = {}

    def put(self, first: int, part: Mapping[str, np.ndarray]) -> None:
        for name, x in part.items():
            if name not in self.shapes:
                self._begin(name, x)
            if name in self.found:
                rows = self.found[name][first : first + len(x)]
                if name in EVENT_NAMES:
                    rows[:, : x.shape[1]] = x
                else:
                    rows[...] = x

    def _begin(self, name: str, like: np.ndarray) -> None:
        tail = (self.most, *like.shape[2:]) if name in EVENT_NAMES else like.shape[1:]
        shape = (self.total, *tail)
        self.shapes[name] = list(shape)
        if 0 not in shape:  # what is empty has no file
            path = self._draft(name)
            made = np.lib.format.open_memmap(path, "w+", dtype=like.dtype, shape=shape)
            made[...] = BLANK.get(name, np.nan if like.dtype.kind == "f" else -1)
            self.found[name] = made

    def finish(self) -> dict[str, list[int]]:
        """Give the files their names; the shapes of all arrays."""
        for name, array in self.found.items():
            array.flush()  # type: ignore[attr-defined]
            os.replace(self._draft(name), self.folder / f"{name}.npy")
        return self.shapes

    def _draft(self, name: str) -> Path:
        return self.folder / f".{name}.npy"


def _save(path: Path, x: np.ndarray) -> None:
    with open(path, "wb") as file:
        np.save(file, x)


def _difference(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    """In which words two sweeps differ."""
    texts = []
    for name, value in wanted.items():
        other = found.get(name)
        if isinstance(value, dict) and isinstance(other, dict):
            texts += [
                f"{key} {other.get(key)} instead of {x}"
                for key, x in value.items()
                if other.get(key) != x
            ]
        elif other != value:
            texts.append(
                f"other {name}" if name in HIDDEN else f"{name} {other} instead of {value}"
            )
    return ", ".join(texts)
