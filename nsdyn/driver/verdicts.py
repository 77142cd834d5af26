"""Verdicts of checks, kept from one process to the next: what was found sound is not examined again
as long as the functions and all numbers are the same."""

from collections.abc import Callable
from typing import Any

from nsdyn._cache import cache_folder
from nsdyn._digest import Unknown, digest
from nsdyn._kept import keep, kept
from nsdyn._watched import is_unchanged
from nsdyn.problem import Problem

FOLDER = "verdicts"


def unless_known(check: Callable[..., bool], problem: Problem, *about: Any) -> None:
    """Call check(problem, *about), which says whether all is well, unless it has said so before."""
    key = _key(check, problem, *about)
    if key is not None and kept(FOLDER, key):
        return
    sound = check(problem, *about)
    if sound and key is not None and is_unchanged(problem.system, problem.constraint):
        keep(FOLDER, key, True)


def _key(*things: Any) -> str | None:
    if cache_folder(FOLDER) is None:
        return None
    try:
        return digest("verdict", *things)
    except Unknown:
        return None
