"""Models in installed packages (extra `robots`) and in checkouts. Only their files are read,
nothing is imported."""

import os
from importlib import metadata
from pathlib import Path

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


def checkout(variable, name):
    """A test parameter for a file of a checkout, whose folder an environment variable tells."""
    folder = os.environ.get(variable)
    why = f"no {variable}, the folder of a checkout with {name}"
    marks = () if folder else pytest.mark.skip(reason=why)
    return [pytest.param(Path(folder or "") / name, id=name, marks=marks)]
