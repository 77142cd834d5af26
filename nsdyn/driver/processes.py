"""Processes on this machine that call functions, as an executor: `submit` gives a future.

They are new interpreters that import nsdyn, never forks: JAX in a forked process can wait for ever.
They do not run the user's script again, so it needs no `if __name__ == "__main__"`, and notebooks
work. Functions and arguments travel as pickles, by cloudpickle where it is installed: then also
functions that are defined in scripts and notebooks.

A process that dies is replaced, and what it was doing is tried again, TRIES times in all. One that
takes more than `patience` CPU seconds for a call, or WAITING times as long by the clock, is ended,
and its call is given up. When the process that started them ends, however it ends, they finish what
they are doing and end, too.
"""

import importlib.util
import os
import pickle
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Thread, Timer, local
from typing import Any, BinaryIO

from nsdyn.errors import NsdynError, ProblemError

TRIES = 3
LENGTH = struct.Struct("<Q")  # in front of each message
WAITING, AT_LEAST = 10, 60  # times the patience, and seconds, by the clock: machines are shared
CHILD = "from nsdyn.driver.processes import serve; serve({patience})"
OUT_OF_TIME = 124  # the exit code of a process that took too long
LOOK = 0.2  # seconds between two looks at its CPU time
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class WorkerDied(NsdynError, RuntimeError):
    """The processes that were given a task died of it."""


def packed(what: str, thing: Any) -> bytes:
    """A pickle of something that goes to another process."""
    if importlib.util.find_spec("cloudpickle") is not None:
        import cloudpickle as pickler
    else:
        pickler = pickle
    try:
        return pickler.dumps(thing)
    except Exception as error:  # pickles raise what they like
        raise ProblemError(
            f"{what}: expected objects that other processes can get, found one that has no pickle: "
            f"{error}. Define functions and classes at module level, or install cloudpickle"
        ) from error


class TookTooLong(NsdynError, TimeoutError):
    """A call took longer than was allowed."""


class Processes(Executor):
    """So many processes, each started when it is first needed.

    patience: CPU seconds that a call may take; None: any.
    calls: a process is replaced by a new one after so many; None: never. What a process has
        compiled stays in its memory.
    """

    def __init__(self, count: int, *, patience: float | None = None, calls: int | None = None):
        self._patience = patience
        self._calls = calls
        self._threads = ThreadPoolExecutor(count, "process")  # each thread waits for one process
        self._own = local()
        self._all: list[_Process] = []
        self._over = False

    def submit(self, function: Callable, /, *args: Any, **keywords: Any) -> Future:
        return self._threads.submit(self._call, packed("submit", (function, args, keywords)))

    def _call(self, message: bytes) -> Any:
        code = 0
        for _ in range(TRIES):
            if self._over:
                break
            process = self._process()
            try:
                good, result = pickle.loads(process.answer(message))
            except (EOFError, OSError) as error:
                code = process.end()
                if process.is_late or code == OUT_OF_TIME:
                    raise TookTooLong(f"took more than {self._patience:g} CPU s") from error
                continue
            if good:
                return result
            raise result
        raise WorkerDied(f"{TRIES} processes in a row died, the last one with exit code {code}")

    def _process(self) -> "_Process":
        """The process of this thread, a new one if it has none or has worn it out."""
        process: _Process | None = getattr(self._own, "process", None)
        worn = process is not None and (process.is_late or process.answered == self._calls)
        if process is not None and worn and not process.has_ended:
            process.end()
        if process is None or process.has_ended:
            process = self._own.process = _Process(self._patience)
            self._all.append(process)
        return process

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all processes. If `wait`, they finish first what they were given."""
        if wait:
            self._threads.shutdown(cancel_futures=cancel_futures)
        self._over = True
        for process in self._all:
            process.end()
        self._threads.shutdown(cancel_futures=True)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.shutdown(wait=error is None, cancel_futures=True)


class _Process:
    """A process that waits for messages, and answers each."""

    def __init__(self, patience: float | None) -> None:
        self.patience = patience
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self.child = subprocess.Popen(
            [sys.executable, "-c", CHILD.format(patience=patience)],
            env=os.environ | ONE_THREAD | {"PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.answered = 0
        self.is_late = False
        self.has_ended = False

    def answer(self, message: bytes) -> bytes:
        """EOFError if it dies; after some time it is made to."""
        most = self.patience
        timer = None if most is None else Timer(max(WAITING * most, AT_LEAST), self._give_up)
        if timer is not None:
            timer.daemon = True
            timer.start()
        try:
            _send(_pipe(self.child.stdin), message)
            found = _received(_pipe(self.child.stdout))
        finally:
            if timer is not None:
                timer.cancel()
        self.answered += 1
        return found

    def _give_up(self) -> None:
        self.is_late = True
        self.child.kill()

    def end(self) -> int:
        self.has_ended = True
        self.child.kill()
        code = self.child.wait()
        for pipe in (self.child.stdin, self.child.stdout):
            with suppress(OSError):  # what was not yet sent cannot be
                _pipe(pipe).close()
        return code


def _pipe(pipe: Any) -> BinaryIO:
    return pipe


def serve(patience: float | None = None) -> None:
    """In a process: answer messages until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us is told, and ends us
    source = os.fdopen(os.dup(0), "rb")
    target = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what functions print is no answer
    watch = None if patience is None else _Watch(patience)
    while True:
        try:
            message = _received(source)
        except EOFError:
            return
        if watch is not None:
            watch.began = _cpu_time()
        answer = _answer(message)
        if watch is not None:
            watch.began = None
        _send(target, answer)


class _Watch:
    """Ends this process if it uses more CPU time for a call than it may, compilers included. A
    limit of the system would do so, too, but makes the clock of the process coarse."""

    def __init__(self, patience: float):
        self.patience = patience
        self.began: float | None = None  # None: it waits for a call
        Thread(target=self._look, daemon=True).start()

    def _look(self) -> None:
        while True:
            time.sleep(LOOK)
            began = self.began
            if began is not None and _cpu_time() > began + self.patience:
                os._exit(OUT_OF_TIME)


def _cpu_time() -> float:
    """Of this process and of those that it started and that have ended."""
    found = os.times()
    return found.user + found.system + found.children_user + found.children_system


def _answer(message: bytes) -> bytes:
    try:
        function, args, keywords = pickle.loads(message)
        return packed("result", (True, function(*args, **keywords)))
    except Exception as error:
        try:
            answer = packed("error", (False, error))
            pickle.loads(answer)  # some errors can be packed, but not unpacked
        except Exception:
            return pickle.dumps((False, NsdynError(f"{type(error).__name__}: {error}")))
        return answer


def _send(pipe: BinaryIO, message: bytes) -> None:
    pipe.write(LENGTH.pack(len(message)))
    pipe.write(message)
    pipe.flush()


def _received(pipe: BinaryIO) -> bytes:
    """The next message; EOFError if there is none, or only a part of one."""
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        raise EOFError
    length = LENGTH.unpack(head)[0]
    message = pipe.read(length)
    if len(message) < length:
        raise EOFError
    return message
