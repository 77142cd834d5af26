"""From C++ text to a loaded library, by the machine's compiler, kept in the user's cache folder.

The name of an entry is the digest of all that its content depends on: text, flags, compiler and
processor. Beside the library lies its seal, the digest of its name and content. A library that its
seal does not match, or that cannot be loaded, is made again: one that was damaged, and one that
belongs under another name.
Files appear under their names complete (`os.replace`), so processes may work side by side.

A text is compiled `quick`ly or well. Both libraries give the same bits: no flag lets the compiler
fuse or reorder operations, or compute a function of the C library itself.
"""

import ctypes
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from nsdyn._cache import cache_folder
from nsdyn.errors import PerformanceWarning, warn
from nsdyn.native.unsupported import Unsupported

EXTRA = "NSDYN_CXXFLAGS"  # further flags, after those below
COMPILERS = ("c++", "g++", "clang++")
QUICK = ("-O0",)  # half of the time to compile, four to seven times that of a step
WELL = (
    "-O1",  # the text is already in the shape that higher levels look for, but for loops
    "-ftree-loop-vectorize",
)
FLAGS = (
    "-march=native",
    "-std=c++17",
    "-shared",
    "-fPIC",
    "-w",
    "-fno-math-errno",  # nobody reads errno
    "-fno-trapping-math",  # nor floating-point exceptions; both leave the numbers as they are
    "-ffp-contract=off",
    "-fno-builtin",  # pow and the like are those of the C library at every level
    "-fno-exceptions",
)
# Registers without regard to loops, of which the text has few: a large program compiles in 6/7 of
# the time.
GCC_FLAGS = ("-fira-region=one",)
LIBRARIES = ("-lm",)
# The library of C++ is not used; to link it takes a fifth of the time of a small program.
GCC_LIBRARIES = ("-nodefaultlibs", "-lm", "-lc", "-lgcc")


def _is_gcc(path: str) -> bool:
    name = os.path.basename(path)
    return "g++" in name and "clang" not in name and sys.platform != "darwin"


def _flags(path: str, quick: bool) -> list[str]:
    level = QUICK if quick else (*WELL, *(GCC_FLAGS if _is_gcc(path) else ()))
    return [*level, *FLAGS, *os.environ.get(EXTRA, "").split()]


def _libraries(path: str) -> tuple[str, ...]:
    return GCC_LIBRARIES if _is_gcc(path) else LIBRARIES


def compiler() -> str:
    """The path of a C++ compiler."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else COMPILERS
    found = next((path for path in map(shutil.which, names) if path), None)
    if found is None:
        raise Unsupported("no C++ compiler on this machine")
    return os.path.realpath(found)


@functools.cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("flags", "Features", "model name", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(wanted)}))


def circumstances(path: str, quick: bool = False) -> tuple[str, ...]:
    """What a library depends on besides its text."""
    about = os.stat(path)
    version = f"{path} {about.st_size} {about.st_mtime_ns}"
    flags = " ".join((*_flags(path, quick), *_libraries(path)))
    return flags, version, platform.machine(), _processor()


def _digest(text: str, path: str, quick: bool) -> str:
    return hashlib.sha256("\0".join((text, *circumstances(path, quick))).encode()).hexdigest()


def name_of(text: str, quick: bool = False) -> str:
    """The name under which the library of a text is kept."""
    return _digest(text, compiler(), quick)


def kept_library(name: str) -> ctypes.CDLL | None:
    """The library of this name, if it is in the cache and sound."""
    folder = cache_folder("native")
    entry = folder / f"{name}.so" if folder is not None else None
    if entry is None or not _is_sound(entry):
        return None
    try:
        return ctypes.CDLL(str(entry))
    except OSError:
        return None


def library(text: str, quick: bool = False) -> ctypes.CDLL:
    """The library of a text, from the cache or from the compiler."""
    path = compiler()
    name = _digest(text, path, quick)
    found = kept_library(name)
    if found is not None:
        return found
    folder = cache_folder("native")
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="nsdyn-") as here:
            return _loaded(_compiled(path, text, Path(here), quick))
    entry = folder / f"{name}.so"
    with tempfile.TemporaryDirectory(prefix="new-", dir=folder) as here:
        made = _compiled(path, text, Path(here), quick)
        note = Path(here) / "seal"
        note.write_text(_seal(name, made), "ascii")
        os.replace(made, entry)
        os.replace(note, _seal_beside(entry))
    return _loaded(entry)


def _loaded(path: Path) -> ctypes.CDLL:
    """A library that was just made."""
    try:
        return ctypes.CDLL(str(path))
    except OSError as reason:  # such as a folder from which nothing may be run
        raise Unsupported(f"a library that cannot be loaded: {reason}") from reason


def _seal(name: str, path: Path) -> str:
    return hashlib.sha256(name.encode() + b"\0" + path.read_bytes()).hexdigest()


def _seal_beside(entry: Path) -> Path:
    return entry.with_suffix(".sum")


def _is_sound(entry: Path) -> bool:
    try:
        return _seal(entry.stem, entry) == _seal_beside(entry).read_text("ascii")
    except (OSError, UnicodeDecodeError):
        return False


def _compiled(path: str, text: str, folder: Path, quick: bool) -> Path:
    source, out = folder / "program.cpp", folder / "program.so"
    source.write_text(text, "utf-8")
    run = subprocess.run(
        [path, *_flags(path, quick), "-o", str(out), str(source), *_libraries(path)],
        capture_output=True,
        text=True,
        errors="replace",
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    if run.returncode:
        said = f"{path}: {run.stderr.strip()[:2000]}"
        told = f"the C++ compiler refused a program, which XLA runs instead. {said}"
        warn(told, PerformanceWarning)
        raise Unsupported(said)
    return out
