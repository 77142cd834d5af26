"""Threads with large stacks. A native program that is compiled quickly keeps all of its numbers on
the stack, in eight lanes: eight megabytes of them, in a program of a robot with six joints."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

STACK = 2**28  # bytes; only what is used takes memory


@contextmanager
def roomy_threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """So many threads. (The size of stacks is one setting for all threads that begin meanwhile.)"""
    usual = threading.stack_size(STACK)
    try:
        with ThreadPoolExecutor(count) as threads:
            yield threads
    finally:
        threading.stack_size(usual)
