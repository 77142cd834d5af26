"""The folder in which compiled programs are kept from one process to the next.

It is the user's cache folder; NSDYN_CACHE names another one, and NSDYN_CACHE=0 keeps nothing. If
JAX was told of a folder for its programs, JAX keeps them there. A relative name counts from where
the process was when it used it first: a later change of folder leaves the cache where it is.
"""

import functools
import os
import sys
from pathlib import Path

import jax

SETTING = "NSDYN_CACHE"
WORTH_KEEPING = 0.05  # seconds of compilation


def cache_folder(name: str) -> Path | None:
    """The folder for programs of one kind, made if missing; None if nothing should or can be
    kept."""
    if os.environ.get(SETTING) == "0":
        return None
    try:
        folder = _root() / name
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):  # RuntimeError: there is no home
        return None
    return folder if os.access(folder, os.W_OK) else None


def keep_compiled() -> None:
    """Let JAX keep its compiled programs."""
    if getattr(jax.config, "jax_compilation_cache_dir", None):
        return
    folder = cache_folder("jax")
    if folder is not None:
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING)


def _root() -> Path:
    given = os.environ.get(SETTING)
    if given:
        return _absolute(given)
    if os.environ.get("XDG_CACHE_HOME"):
        return _absolute(os.environ["XDG_CACHE_HOME"]) / "nsdyn"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "nsdyn"
    return Path.home() / ("Library/Caches" if sys.platform == "darwin" else ".cache") / "nsdyn"


@functools.cache
def _absolute(name: str) -> Path:
    return Path(name).absolute()
