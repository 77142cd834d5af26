"""Studies, one per file: `compute` archives data, `draw` makes figures from them, `run` does both.

A file that defines these three functions is a study: studies.names(), studies.summary(name),
studies.get(name).
"""

import ast
import importlib
from collections.abc import Iterator
from importlib.resources import files
from types import ModuleType

from nsdyn.errors import unknown

FUNCTIONS = {"compute", "draw", "run"}


def names() -> list[str]:
    """All studies, sorted; none is imported for it."""
    return sorted(name for name, tree in _sources() if _functions(tree) >= FUNCTIONS)


def get(name: str) -> ModuleType:
    """The study `name`: a module with compute(folder, ...), draw(folder) and run(folder, ...)."""
    known = names()
    if name not in known:
        raise unknown("study", name, known)
    return importlib.import_module(f"{__name__}.{name}")


def summary(name: str) -> str:
    """The first line of the file's description."""
    tree = next((tree for found, tree in _sources() if found == name), None)
    return ((tree and ast.get_docstring(tree)) or "").partition("\n")[0]


def _sources() -> Iterator[tuple[str, ast.Module]]:
    for file in files(__name__).iterdir():
        if file.name.endswith(".py") and file.name != "__init__.py":
            yield file.name.removesuffix(".py"), ast.parse(file.read_text("utf-8"))


def _functions(tree: ast.Module) -> set[str]:
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
