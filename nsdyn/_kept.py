"""Small results kept in the cache folder, by a digest of all that they depend on.

A file begins with the digest of its content: one that does not match it, or that cannot be read,
counts as missing. Files appear complete (`os.replace`), so processes may work side by side.
"""

import contextlib
import hashlib
import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

from nsdyn._cache import cache_folder

SEAL = 64  # characters of the digest in front


def kept(kind: str, key: str) -> Any:
    """What was kept under a key, or None."""
    folder = cache_folder(kind)
    if folder is None:
        return None
    try:
        content = (folder / key).read_bytes()
        seal, body = content[:SEAL], content[SEAL:]
        if seal != _seal(body):
            return None
        return pickle.loads(body)
    except Exception:  # whatever an entry of another kind may lead to
        return None


def keep(kind: str, key: str, thing: Any) -> None:
    """Keep something, other than None, for later processes, if it can be."""
    folder = cache_folder(kind)
    if folder is None:
        return
    # pickle raises what it likes
    with contextlib.suppress(Exception):
        body = pickle.dumps(thing)
        with tempfile.TemporaryDirectory(prefix="new-", dir=folder) as here:
            new = Path(here) / "new"
            new.write_bytes(_seal(body) + body)
            os.replace(new, folder / key)


def _seal(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode("ascii")
