"""Whoever computes for others: processes on this machine, a Dask cluster, anything with `submit`.

A client is the address of a Dask scheduler, a Dask client, or any executor whose `submit` returns a
future.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from nsdyn.errors import ProblemError

Task = TypeVar("Task")
CONNECTION = 10  # seconds to wait for a Dask scheduler
PAUSE = 0.02  # seconds between two looks at what is done
DEATHS = ("WorkerDied", "KilledWorker", "BrokenProcessPool")  # of workers; no errors of their work


def check_workers(jobs: Any, client: Any) -> None:
    """Refuse what is no number of processes, and what is no client."""
    if jobs is not None and client is not None:
        raise ProblemError("jobs and client: expected one of the two, found both")
    if jobs is not None and (isinstance(jobs, bool) or not isinstance(jobs, int) or jobs < 1):
        raise ProblemError(f"jobs: expected a positive whole number of processes, found {jobs!r}")
    known = client is None or isinstance(client, str) or callable(getattr(client, "submit", None))
    if not known:
        raise ProblemError(
            "client: expected the address of a Dask scheduler, such as 'tcp://127.0.0.1:8786', or "
            f"an object with `submit`, found {client!r}"
        )


@contextmanager
def connected(client: Any) -> Iterator[Any]:
    """The client itself, or that of a Dask scheduler at an address."""
    if not isinstance(client, str):
        yield client
        return
    with _dask_client(client) as found:
        yield found


def _dask_client(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise ProblemError(
            f"client: {address!r} needs Dask, which is not installed: pip install 'nsdyn[dask]'"
        ) from None
    try:
        return Client(address, timeout=CONNECTION)
    except (OSError, ValueError, TypeError) as error:
        raise ProblemError(
            f"client: expected the address of a Dask scheduler, such as 'tcp://127.0.0.1:8786', "
            f"found none at {address!r}: {error}"
        ) from error


def finished(client: Any, calls: Iterable[tuple[Task, tuple]]) -> Iterator[tuple[Task, Any]]:
    """Let a client make calls, each a function and its arguments; yields each task with its future
    when that is done. What was not begun when this ends early is cancelled."""
    alone = {"pure": False} if type(client).__module__.startswith("distributed") else {}
    pending: dict[Any, Task] = {}
    try:
        for task, call in calls:
            pending[client.submit(*call, **alone)] = task
        while pending:
            done = [future for future in pending if future.done()]
            for future in done:
                yield pending.pop(future), future
            if not done:
                time.sleep(PAUSE)
    finally:
        for future in pending:
            future.cancel()
