"""Settings for all tests: float64, no silent broadcasting between ranks, the same random examples
in every run."""

import gc
import os

os.environ.setdefault("MPLBACKEND", "Agg")  # before matplotlib is imported: no windows
os.environ.setdefault("NSDYN_CACHE", "0")  # the user's folder is not ours

from pathlib import Path

import hypothesis
import jax
import jaxtyping
import pytest

# If wanted, shapes and types in signatures are checked at run time. Before nsdyn is imported.
if os.environ.get("NSDYN_CHECK_TYPES") == "1":
    jaxtyping.install_import_hook("nsdyn", "beartype.beartype")

import nsdyn  # noqa: F401  importing it enables float64

# (n,) + (n, 1) is (n, n): nearly always a mistake. Dtype promotion stays standard: int * float is
# wanted.
jax.config.update("jax_numpy_rank_promotion", "raise")

# Compilation makes the first example slow, hence no deadline.
hypothesis.settings.register_profile("nsdyn", deadline=None, derandomize=True, max_examples=30)
hypothesis.settings.load_profile("nsdyn")

# Tests make many objects, and most of them live on: to look for garbage among them takes a tenth of
# the time.
gc.set_threshold(20_000, 20, 50)


def pytest_collection_finish(session):
    gc.freeze()


# Every compiled program maps some memory. Linux allows a process 65,530 maps: beyond, XLA aborts.
MAPS = Path("/proc/self/maps")
MANY = 20_000


@pytest.fixture(autouse=True, scope="module")
def forget_programs():
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY:
        jax.clear_caches()
