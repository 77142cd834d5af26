"""A sweep in parts, which other threads, processes or machines compute.

A part is one chunk or several; its size depends on the sweep alone, so that any number of workers
finds the parts of any other. What all parts share is a `Job`, which travels with each part but is
unpacked, and compiled, once in each process.

Without a folder the results come back to where the sweep was called. With one, workers write them
into files there (`SweepFolder`), and a part that is there is not computed again.
"""

import hashlib
import pickle
import time
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import metadata
from threading import Lock
from typing import Any, NamedTuple

import equinox as eqx
import jax
import numpy as np

from nsdyn._cache import keep_compiled
from nsdyn._code_digest import code_digest
from nsdyn._repr import format_object, settings_text
from nsdyn._watched import watch
from nsdyn.driver import backend as backends
from nsdyn.driver import workers
from nsdyn.driver.arguments import Batch, Values
from nsdyn.driver.batch_run import Layout, Prepared, own_values, prepared
from nsdyn.driver.collect import Collected
from nsdyn.driver.filling import Results
from nsdyn.driver.processes import packed
from nsdyn.driver.roomy_threads import roomy_threads
from nsdyn.errors import ProblemError
from nsdyn.native.build import circumstances, compiler
from nsdyn.native.unsupported import Unsupported
from nsdyn.problem import Problem
from nsdyn.results.solution import Solution
from nsdyn.results.sweep_folder import SweepFolder

MOST = 256  # parts, unless they would be too large
LARGE = 3.2e7  # bytes of results
LIBRARIES = ("jax", "jaxlib", "equinox", "numpy")
# Settings of JAX that change what is traced: workers have those of the process that calls.
TRACING = (
    "jax_numpy_rank_promotion",
    "jax_numpy_dtype_promotion",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
)


class Part(NamedTuple):
    """The runs `first`, ..., `first` + `size` - 1."""

    first: int
    size: int


def parts(layout: Layout, begin: int = 0) -> list[Part]:
    """The parts of a sweep, from the run `begin` on."""
    chunks = -(-layout.batch.total // layout.size)
    fit = int(LARGE // (layout.size * layout.each + 1))
    size = layout.size * max(1, min(-(-chunks // MOST), fit))
    total = layout.batch.total
    return [Part(first, min(size, total - first)) for first in range(begin, total, size)]


# In a worker


class Work:
    """A sweep in one process, ready to compute its parts in any thread."""

    def __init__(self, ready: Prepared):
        self.ready = ready
        self.turn = nullcontext() if ready.side_by_side else Lock()

    def part(self, own: Values, part: Part, folder: str | None) -> Collected | None:
        """The results of a part with these values; None if they go to the folder, or are there."""
        if folder is None:
            return self._results(own, part)
        place = SweepFolder(folder)
        with place.turn(part.first):
            if not place.has(part.first):
                began = time.perf_counter()
                results = self._results(own, part)
                variables = Solution(t=None, **results.named()).variables()
                arrays = {name: variable[1] for name, variable in variables.items()}
                place.write_part(part.first, arrays, time.perf_counter() - began)
        return None

    def _results(self, own: Values, part: Part) -> Collected:
        ready = self.ready.of(Batch(own, self.ready.layout.batch.shared, part.size))
        results = Results(part.size)
        for first in ready.firsts:
            with self.turn:
                ready.put(results, first)
        return results.whole


def compute(job: bytes, own: Values, part: Part, folder: str | None) -> Collected | None:
    """`Work.part` in another process. To find this function it has imported nsdyn, so the arrays in
    the job arrive with 64 bits."""
    with roomy_threads(1) as threads:
        return threads.submit(_work(job).part, own, part, folder).result()


def packed_job(ready: Prepared) -> bytes:
    """What all parts share, for other processes: the sweep with the values of its first chunk."""
    layout = ready.layout
    own = own_values(layout.batch, 0, layout.size)
    example = layout._replace(batch=Batch(own, layout.batch.shared, layout.size))
    settings = {name: jax.config.values[name] for name in TRACING}
    return packed("jobs, client", (example, ready.backend, settings))


_known: dict[bytes, Work] = {}
_lock = Lock()


def _work(job: bytes) -> Work:
    """The last job is kept, so that each is unpacked and compiled once."""
    with _lock:
        if job not in _known:
            layout, backend, settings = pickle.loads(job)
            keep_compiled()
            for name, value in settings.items():
                jax.config.update(name, value)
            watch(layout.run.system, layout.run.parts)
            watch(layout.run.integrator, layout.run.law)
            ready = prepared(layout)
            if ready.backend != backend:
                raise ProblemError(
                    f"client: expected workers with the backend {backend!r}, found one with "
                    f"{ready.backend!r}: it may lack a C++ compiler. Set {backends.SETTING} to "
                    f"{ready.backend!r} where the sweep is called"
                )
            _known.clear()
            _known[job] = Work(ready)
        return _known[job]


# Where the sweep is called


def finished(
    client: Any, call: tuple, layout: Layout, todo: list[Part], folder: str | None
) -> Iterator[tuple[Part, Any]]:
    """Let a client compute parts; yields each with its result, or with the error of a worker that
    died. Other errors are raised. `call` is a function and its first arguments."""
    own = lambda part: own_values(layout.batch, part.first, part.size)
    calls = ((part, (*call, own(part), part, folder)) for part in todo)
    for part, future in workers.finished(client, calls):
        yield part, _result(future)


def _result(future: Any) -> Any:
    try:
        return future.result()
    except Exception as error:
        if type(error).__name__ in workers.DEATHS:
            return error
        raise


def described(problem: Problem, layout: Layout, size: int) -> dict[str, Any]:
    """What a sweep is, and by which code: two with the same words have the same results."""
    run, batch = layout.run, layout.batch
    about = run.about(problem)
    names = ("problem", "step", "save_every", "t0", "t_end")
    settings = {name: about[name] for name in names} | {
        "integrator": format_object(run.integrator, always="*"),
        "law": format_object(run.law, always="*"),
        "tolerances": settings_text(run.tolerances),
        "max_events": int(run.max_events),
        "runs": batch.total,
        "chunk": layout.size,
        "part": size,
        "NSDYN_BACKEND": backends.choice(),
    }
    arrays, rest = eqx.partition((run, batch, layout.kept), eqx.is_array_like)
    return {
        "settings": settings,
        "versions": {name: metadata.version(name) for name in LIBRARIES} | _compiler(),
        "numbers": _digest(jax.tree.leaves(arrays), run.save_at),
        "code": code_digest(
            *(prepared, Prepared), run.system, run.parts, run.integrator, run.law, rest[1]
        ),
    }


def _compiler() -> dict[str, str]:
    """With which flags the native backend compiles, if it can."""
    if backends.choice() == "xla":
        return {}
    try:
        return {"C++": circumstances(compiler())[0]}
    except Unsupported:
        return {}


def _digest(arrays: list[Any], *words: Any) -> str:
    found = hashlib.sha256(repr(words).encode())
    for x in arrays:
        is_key = eqx.is_array(x) and jax.numpy.issubdtype(x.dtype, jax.dtypes.extended)
        plain = np.asarray(jax.random.key_data(x) if is_key else x)
        found.update(f"{plain.dtype} {plain.shape}".encode() + plain.tobytes())
    return found.hexdigest()


def values_text(batch: Batch, which: int) -> str:
    """The values that a run has of its own."""
    found = []
    for path, x in jax.tree_util.tree_flatten_with_path(batch.own)[0]:
        name = path[0].name + jax.tree_util.keystr(path[1:])
        found.append(f"{name} = {np.asarray(x)[which].tolist()}")
    return ", ".join(found)
