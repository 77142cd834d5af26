"""In a source tree `integrators`, `problems` and `studies` are folders next to `nsdyn`; this module
lets them be imported as parts of it.

An installed nsdyn contains them; this module then does nothing.
"""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

BESIDE = ("integrators", "problems", "studies")


class FoldersBeside:
    """A finder for exactly these three packages."""

    def __init__(self, root: Path) -> None:
        self.folders = {f"nsdyn.{name}": root / name for name in BESIDE}

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        folder = self.folders.get(fullname)
        if folder is None:
            return None
        start = folder / "__init__.py"
        return spec_from_file_location(fullname, start, submodule_search_locations=[str(folder)])


def find_folders_beside(package: Path) -> None:
    """Let Python find the three packages next to the folder `package`, if that is in a source
    tree."""
    root = package.parent
    if (root / "pyproject.toml").is_file() and all((root / name).is_dir() for name in BESIDE):
        # At the front: another copy of nsdyn may be installed, and its parts must not be mixed in.
        sys.meta_path.insert(0, FoldersBeside(root))
