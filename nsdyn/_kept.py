"""Small results kept in the cache folder, by a digest of all that they depend on.

A file begins with its seal, the digest of its name and content. A file that its seal does not
match, or that cannot be read, counts as missing: one that was damaged, and one that belongs under
another name. Files appear complete (`os.replace`), so processes may work side by side.
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
        if seal != _seal(kind, key, body):
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
            new.write_bytes(_seal(kind, key, body) + body)
            os.replace(new, folder / key)


def _seal(kind: str, key: str, body: bytes) -> bytes:
    return hashlib.sha256(f"{kind}\0{key}\0".encode() + body).hexdigest().encode("ascii")
