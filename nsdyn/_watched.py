"""Whether code is still what it was when it was first traced in this process.

JAX keeps what it has traced and does not notice that a global has been edited since: a program that
is made afterwards may contain both the old and the new value. Such a program must not be kept for
other processes under the digest of the new value. So code is watched from before it is traced.
"""

from typing import Any

from nsdyn._digest import Code, Unknown, digest
from nsdyn._jitted import split

MOST = 1000
_first: dict[tuple, str | None] = {}


def watch(*tree: Any) -> None:
    """Remember the functions in these objects as they are now, if they are new."""
    try:
        static = split(tree)[0]
        if static not in _first and len(_first) < MOST:
            _first[static] = _digest(tree)
    except TypeError:  # not hashable
        return


def is_unchanged(*tree: Any) -> bool:
    """Whether the functions in these objects were watched, and are as they were then."""
    try:
        before = _first.get(split(tree)[0])
    except TypeError:
        return False
    return before is not None and before == _digest(tree)


def _digest(tree: Any) -> str | None:
    try:
        return digest(Code(tree), shallow=True)
    except Unknown:
        return None
