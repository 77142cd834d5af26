"""Calls of a program that repeat: arguments and results keep their places in memory, so that a call
costs little more than the program itself."""

from typing import Any

import numpy as np

from nsdyn.native.program import Program

LINE = 64  # bytes to which memory is aligned


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _aligned(size: int) -> np.ndarray:
    room = np.empty(size + LINE, np.uint8)
    first = -_address(room) % LINE
    return room[first : first + size]


class Call:
    """A program with its arguments. What was `set` stays; `results` are arrays that each call
    writes anew. For one thread at a time."""

    def __init__(self, program: Program):
        inputs, outputs = program.interface.inputs, program.layout
        self._function = program.function
        self._dtypes = [dtype for _, dtype in inputs]
        self._held: list[Any] = [None] * len(inputs)  # so that they live as long as this
        self._places = np.zeros(len(inputs), np.uint64)
        self.memory = _aligned(program.bytes)
        self.results = [np.ndarray(shape, dtype, self.memory, k) for shape, dtype, k in outputs]
        self._targets = np.array([_address(x) for x in self.results], np.uint64)
        self._work = _aligned(program.interface.work)
        self._addresses = tuple(_address(x) for x in (self._places, self._targets, self._work))

    def set(self, number: int, array: Any) -> None:
        """Let the argument of this number be the array, or a copy of another type."""
        held = np.ascontiguousarray(array, self._dtypes[number])
        self._held[number] = held
        self._places[number] = _address(held)

    def held(self, number: int) -> np.ndarray:
        """The argument of this number."""
        return self._held[number]

    def __call__(self) -> None:
        self._function(*self._addresses)
