"""Python files of users as modules: `load("mechanisms.py")`.

A folder of files is a package with a name of its own, "folder:" and the path. So `from . import x`
works in a file, files of the same name in two folders do not meet, and a pickle finds its functions
again in another process, as the name says where they are.

Errors in a file become a `ProblemError` with the file, the line and the fault.
"""

import ast
import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from nsdyn.errors import FileError, NsdynError, ProblemError

PREFIX = "folder:"
INSTALLED = ("site-packages", "dist-packages")  # an environment may lie inside a user's folder

_texts: dict[str, tuple[Path, bytes]] = {}  # of modules in users' folders: file, text when loaded


class UserFolders:
    """A finder for folders of users as packages."""

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if not _is_folder(fullname):
            return None
        folder = fullname.removeprefix(PREFIX).replace("%2E", ".").replace("%25", "%")
        if folder not in sys.path:
            sys.path.append(folder)  # for `import x`, also inside functions that run later
        spec = ModuleSpec(fullname, None, is_package=True)
        spec.submodule_search_locations = [folder]
        return spec


def find_user_folders() -> None:
    """Let Python find modules that `load` has named, in this and in other processes."""
    sys.meta_path.append(UserFolders())


def load(path: str | Path) -> ModuleType:
    """The module in a file; it is executed again only if the file, or one next to it that it
    imports, has been edited."""
    file = Path(path).expanduser().resolve()
    if not file.is_file():
        raise FileError(f"{path}: expected a Python file, found none; the folder is {Path.cwd()}")
    if "." in file.stem:
        raise FileError(f"{path}: expected a name without further dots, found {file.stem!r}")
    folder = file.parent
    _forget_edited(folder)
    package = PREFIX + str(folder).replace("%", "%25").replace(".", "%2E")
    with faults_in(folder):
        module = importlib.import_module(f"{package}.{file.stem}")
    _check_neighbours(folder)
    return module


@contextmanager
def faults_in(folder: Path) -> Iterator[None]:
    """Run code of a folder: it can import its neighbours, and its errors name file and line."""
    before = set(sys.modules)
    bytecode = sys.dont_write_bytecode
    sys.path.insert(0, str(folder))
    sys.dont_write_bytecode = True  # it is kept by seconds: a quick edit would go unnoticed
    importlib.invalidate_caches()
    try:
        yield
    except SyntaxError as error:
        file = Path(error.filename or folder)
        line = f"{shown(file)}, line {error.lineno}"
        found = f": {error.text.strip()}" if error.text else ""
        raise ProblemError(f"{line}: {type(error).__name__}: {error.msg}{found}") from error
    except (Exception, SystemExit) as error:
        place = place_of(error)
        if place is None:
            raise
        raise ProblemError(f"{place}: {_said(error)}") from error
    finally:
        sys.dont_write_bytecode = bytecode
        sys.path.remove(str(folder))
        _remember(folder, set(sys.modules) - before)


def folder_of(function: Any) -> Path | None:
    """The user's folder that a function or class was loaded from; None for all others."""
    package = (getattr(function, "__module__", None) or "").partition(".")[0]
    module = sys.modules.get(package)
    return Path(module.__path__[0]) if package.startswith(PREFIX) and module else None


def place_of(error: BaseException) -> str | None:
    """File and line of the innermost call in a user's file, or None."""
    found = None
    folders = [Path(m.__path__[0]) for name, m in list(sys.modules.items()) if _is_folder(name)]
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        package = trace.tb_frame.f_globals.get("__name__", "").partition(".")[0]
        if package != "nsdyn" and any(_lies_in(folder, file) for folder in folders):
            found = f"{shown(file)}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return found


def _is_folder(name: str) -> bool:
    return name.startswith(PREFIX) and "." not in name


def defined_at(function: Any) -> str | None:
    """File and line of a function or class from a user's file; None for all others."""
    if folder_of(function) is None:
        return None
    try:
        line = inspect.getsourcelines(inspect.unwrap(function))[1]
        return f"{shown(Path(inspect.getfile(inspect.unwrap(function))))}, line {line}"
    except (OSError, TypeError):  # an object that was called, not a function or a class
        return shown(Path(sys.modules[function.__module__].__file__ or ""))


def shown(file: Path) -> str:
    """A path as short as possible."""
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)


def _said(error: BaseException) -> str:
    if isinstance(error, NsdynError):
        return str(error)
    if isinstance(error, SystemExit):
        return "it ends Python; put what runs under `if __name__ == '__main__':`"
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"


def _lies_in(folder: Path, file: Path) -> bool:
    if not file.is_relative_to(folder):
        return False
    return not set(INSTALLED) & set(file.relative_to(folder).parts)


def _remember(folder: Path, new: set[str]) -> None:
    for name in new - {"__main__"}:
        file = getattr(sys.modules[name], "__file__", None)
        if file and name.partition(".")[0] != "nsdyn" and _lies_in(folder, Path(file)):
            _texts[name] = (Path(file), Path(file).read_bytes())


def _forget_edited(folder: Path) -> None:
    """If a file has changed, all modules of its folder are imported again."""
    ours = {name: kept for name, kept in _texts.items() if _lies_in(folder, kept[0])}
    if all(file.is_file() and file.read_bytes() == text for file, text in ours.values()):
        return
    for name in ours:
        sys.modules.pop(name, None)
        sys.modules.pop(name.partition(".")[0], None)  # the folder: it holds its modules too
        del _texts[name]


def _check_neighbours(folder: Path) -> None:
    """`import x` must not have found the x of another folder that was loaded before."""
    for file, text in [(f, t) for f, t in _texts.values() if f.parent == folder]:
        for line, name in _imports(text):
            beside = [folder / f"{name}.py", folder / name / "__init__.py"]
            other = getattr(sys.modules.get(name), "__file__", None)
            if not any(each.is_file() for each in beside) or other is None:
                continue
            if not Path(other).is_relative_to(folder):
                raise ProblemError(
                    f"{shown(file)}, line {line}: expected to import {name!r} from the same "
                    f"folder, found {other}, which was imported before; rename it, or write "
                    f"`from . import {name}`"
                )


def _imports(text: bytes) -> Iterator[tuple[int, str]]:
    """Line and first name of each absolute import."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.lineno, node.module.partition(".")[0]
