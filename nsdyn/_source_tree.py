"""In a source tree `integrators`, `problems` and `studies` are folders beside `nsdyn`; here they
become parts of it.

An installed nsdyn has them inside, and then nothing happens here.
"""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

BESIDE = ("integrators", "problems", "studies")


class FoldersBeside:
    """A finder that knows exactly three packages by name."""

    def __init__(self, root: Path):
        self.folders = {f"nsdyn.{name}": root / name for name in BESIDE}

    def find_spec(self, fullname: str, path=None, target=None) -> ModuleSpec | None:
        folder = self.folders.get(fullname)
        if folder is None:
            return None
        start = folder / "__init__.py"
        return spec_from_file_location(fullname, start, submodule_search_locations=[str(folder)])


def find_folders_beside(package: Path) -> None:
    """Let Python find the three packages beside the folder `package`, if it lies in a source
    tree."""
    root = package.parent
    if (root / "pyproject.toml").is_file() and all((root / name).is_dir() for name in BESIDE):
        # In front: another copy of nsdyn may be installed, and its parts must not mix with these.
        sys.meta_path.insert(0, FoldersBeside(root))
