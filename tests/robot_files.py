"""Models in installed packages (extra `robots`). Only their files are read, nothing is imported."""

from importlib import metadata

import pytest


def files(package, suffix):
    """A test parameter for each file of a package, or one that skips if it is not installed."""
    try:
        found = metadata.files(package) or []
    except metadata.PackageNotFoundError:
        why = f"{package} is not installed; pip install --no-deps {package}"
        return [pytest.param(None, id=package, marks=pytest.mark.skip(reason=why))]
    chosen = sorted((str(f), f.locate()) for f in found if str(f).endswith(suffix))
    return [pytest.param(path, id=name.split("/robots/")[-1]) for name, path in chosen]
