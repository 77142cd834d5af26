"""Solutions in files: netCDF 3, written with xarray, completely or not at all. Loading a file never
executes anything in it.

Variables and dimensions are those of `Solution.to_xarray`, with the dimension "run" in front for a
batch. The attribute `metadata` holds, as JSON, what netCDF 3 cannot: the settings of the run, the
parameters, and the shape of every variable (empty variables are not written). Integers have 32 bits
in the file.
"""

import io
import json
import os
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nsdyn._files import replace
from nsdyn.errors import FileError, warn
from nsdyn.numerics.newton import Effort
from nsdyn.results.events import Events
from nsdyn.results.solution import (
    EFFORT,
    ENDINGS,
    EVENTS,
    METADATA,
    SAMPLES,
    VARIABLES,
    Solution,
    plain,
)
from nsdyn.stepping.log import Event

if TYPE_CHECKING:  # slow to import
    import xarray

FORMAT = "nsdyn trajectory"
FORMAT_VERSION = 2  # version 1: single runs only, without status
SAMPLE_VARIABLES = {name: "time" if name == "t" else name for name in SAMPLES}
EVENT_VARIABLES = {name: VARIABLES.get(name, name) for name in EVENTS}
WHOLE_NUMBERS = ("mode", "status", "count", "newton_total", "newton_worst")
FOREIGN = {
    b"\x89HDF": "an HDF5 or netCDF 4 file",
    b"PK\x03\x04": "a zip archive (npz?)",
    b"\x93NUM": "a numpy array file",
    b"\x80": "a pickle, which nsdyn never opens",
}


def save(solution: Solution, path: str | os.PathLike[str]) -> None:
    """Write a solution. An existing file is replaced atomically; if anything fails, it is left
    unchanged."""
    if not isinstance(solution, Solution):
        raise FileError(
            f"save(solution, path): expected a Solution, found {type(solution).__name__}"
        )
    target = _path(path, "save").resolve()  # follow a symbolic link, do not replace it
    if target.is_dir():
        raise FileError(f"save(path): {path} is a folder; add a file name")
    if not target.parent.is_dir():
        raise FileError(f"save(path): cannot write {path}: there is no folder {target.parent}")
    content = _content(solution)
    try:
        replace(target, lambda part: _write(part, content))
    except OSError as error:
        raise FileError(f"save(path): cannot write {path}: {error.strerror or error}") from error


def _write(path: Path, content: bytes | memoryview) -> None:
    with open(path, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def load(path: str | os.PathLike[str]) -> Solution:
    """Read a solution written by `Solution.save`, or a sweep from its folder. The arrays of a sweep
    are mapped into memory: what is not looked at is not read."""
    name = _path(path, "load")
    if name.is_dir():
        from nsdyn.results.sweep_folder import SweepFolder

        return SweepFolder(name).solution()
    try:
        data = name.read_bytes()
    except OSError as error:
        raise FileError(f"load(path): cannot read {path}: {error.strerror or error}") from error
    if not data.startswith((b"CDF\x01", b"CDF\x02")):
        kind = next(
            (kind for magic, kind in FOREIGN.items() if data.startswith(magic)),
            "not a netCDF 3 file",
        )
        kind = kind if data else "empty"
        raise FileError(f"load(path): {path} is {kind}; expected a file written by Solution.save")
    try:
        return solution_of(*_read(data, path))
    except FileError:
        raise
    except Exception as error:  # a damaged file can fail anywhere in the reader
        raise FileError(
            f"load(path): {path} is cut off or damaged ({type(error).__name__}: {error}). "
            "Take another copy, or simulate again"
        ) from error


def _path(path: str | os.PathLike[str], function: str) -> Path:
    try:
        return Path(os.fspath(path))
    except TypeError:
        raise FileError(f"{function}(path): expected a path, found {path!r}") from None


def _content(solution: Solution) -> bytes | memoryview:
    dataset = solution.to_xarray()
    shapes = {str(name): list(variable.shape) for name, variable in dataset.variables.items()}
    kept = {
        name: _narrow(name, variable)
        for name, variable in dataset.variables.items()
        if variable.size
    }

    import xarray

    metadata = json.dumps(metadata_of(solution, shapes), allow_nan=False)
    attributes = {"format": FORMAT, "format_version": FORMAT_VERSION, "metadata": metadata}
    return xarray.Dataset(kept, attrs=attributes).to_netcdf(engine="scipy", format="NETCDF3_64BIT")


def metadata_of(solution: Solution, shapes: dict[str, Any]) -> dict[str, Any]:
    """What a file says besides arrays, which have these shapes."""
    about = {name: getattr(solution, name) for name in METADATA}
    return about | {"params": _encode(plain(solution.params, _saved_as_text)), "shapes": shapes}


def _saved_as_text(name: str, x: Any) -> str:
    text = getattr(x, "__qualname__", repr(x))
    warn(
        f"save: {name} cannot become an array, so only its text is saved: {text!r}",
        UserWarning,
    )
    return text


def _narrow(name: Hashable, variable: "xarray.Variable") -> "xarray.Variable":
    """Integers in 32 bits."""
    if variable.dtype.kind not in "iu":
        return variable
    limits = np.iinfo(np.int32)
    if variable.values.min() < limits.min or variable.values.max() > limits.max:
        raise FileError(
            f"save: {name}: expected integers of at most 32 bits (netCDF 3 has no longer ones), "
            "found larger ones; number modes from 0"
        )
    return variable.astype(np.int32)


def _read(
    data: bytes, path: str | os.PathLike[str]
) -> tuple[dict[Hashable, np.ndarray], dict[str, Any]]:
    """The arrays and the metadata in a file."""
    import xarray

    if len(data) % 4:
        raise ValueError("expected a length that is a multiple of 4, as in every netCDF 3 file")
    with xarray.open_dataset(io.BytesIO(data), engine="scipy", decode_cf=False) as dataset:
        found = dataset.attrs.get("format")
        if found != FORMAT:
            raise FileError(
                f"load(path): {path} is a netCDF file, but not from nsdyn; expected one written by "
                "Solution.save"
            )
        version = int(dataset.attrs["format_version"])
        if version > FORMAT_VERSION:
            raise FileError(
                f"load(path): {path} has format version {version}, written by a newer nsdyn; "
                f"expected at most {FORMAT_VERSION}. Update nsdyn"
            )
        metadata = json.loads(dataset.attrs["metadata"])
        return {
            name: np.array(variable.values) for name, variable in dataset.variables.items()
        }, metadata


def solution_of(variables: Mapping[Any, np.ndarray], metadata: dict[str, Any]) -> Solution:
    """The solution with these arrays. Those that have the right type are not copied."""
    shapes = {name: tuple(shape) for name, shape in metadata["shapes"].items()}

    def array(name: str) -> np.ndarray:
        kind = np.int64 if any(word in name for word in WHOLE_NUMBERS) else np.float64
        if 0 in shapes[name]:
            return np.zeros(shapes[name], kind)
        if variables[name].shape != shapes[name]:
            raise ValueError(
                f"{name}: expected shape {shapes[name]}, found {variables[name].shape}"
            )
        return variables[name].astype(kind, copy=False)

    samples: dict[str, Any] = {name: array(variable) for name, variable in SAMPLE_VARIABLES.items()}
    records = Event(**{name: array(variable) for name, variable in EVENT_VARIABLES.items()})
    about = {name: metadata[name] for name in METADATA if name in metadata}
    about |= {name: tuple(about.get(name, ())) for name in ("coordinates", "velocities")}
    return Solution(
        **samples,
        events=Events(records, array("event_count"))
        if "event_count" in shapes
        else Events.of(records),
        **_ending(array, shapes, metadata),
        params=_decode(metadata["params"]),
        **about,
    )


def _ending(array: Callable[[str], np.ndarray], shapes: dict, metadata: dict) -> dict:
    """How the run ended. Files of version 1 store at most the number of iterations."""
    if "status" not in shapes:
        counts = (metadata.get(name, 0) for name in ("iterations", "iterations_worst"))
        numbers: list = [*map(np.array, counts), np.array(0.0), np.array(False)]
        return {"effort": Effort(*numbers)}
    numbers = [array(f"newton_{name}") for name in EFFORT]
    numbers[-1] = numbers[-1].astype(bool)
    return {name: array(name) for name in ENDINGS} | {"effort": Effort(*numbers)}


# Parameters: a dict becomes {"dict": ...}, a list stays a list, an array becomes its type, shape
# and numbers; text and None stay. A value shared by all runs of a batch (a view with stride 0) is
# written once.


def _encode(tree: Any) -> Any:
    if tree is None or isinstance(tree, str):
        return tree
    if isinstance(tree, dict):
        return {"dict": {name: _encode(child) for name, child in tree.items()}}
    if isinstance(tree, list):
        return [_encode(child) for child in tree]
    if tree.size and tree.ndim and tree.shape[0] > 1 and tree.strides[0] == 0:
        return {"runs": tree.shape[0], "shared": _encode(tree[0])}
    flat = tree.ravel()
    numbers = flat.view(flat.real.dtype) if flat.dtype.kind == "c" else flat
    return {
        "dtype": tree.dtype.name,
        "shape": list(tree.shape),
        "data": [_number(x) for x in numbers.tolist()],
    }


def _number(x: float) -> float | str:
    return x if np.isfinite(x) else repr(x)  # JSON has no NaN; finite floats are restored exactly


def _decode(tree: Any) -> Any:
    if tree is None or isinstance(tree, str):
        return tree
    if isinstance(tree, list):
        return [_decode(child) for child in tree]
    if "dict" in tree:
        return {name: _decode(child) for name, child in tree["dict"].items()}
    if "runs" in tree:
        shared = _decode(tree["shared"])
        return np.broadcast_to(shared, (tree["runs"], *shared.shape))
    dtype = np.dtype(tree["dtype"])
    if dtype.kind not in "biufc":
        raise ValueError(f"a parameter of type {tree['dtype']}")
    numbers = [float(x) if isinstance(x, str) else x for x in tree["data"]]
    real = np.zeros(0, dtype).real.dtype
    return np.array(numbers, real).view(dtype).reshape(tree["shape"])
