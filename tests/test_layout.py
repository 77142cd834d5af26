"""The layout holds: packages are listed, imports go one way, sources name no machine and stay
short."""

import ast
import dataclasses
import functools
import importlib
import inspect
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
OUTER = ("integrators", "problems", "studies")  # top-level folder x is imported as nsdyn.x
FOLDERS = ("nsdyn", *OUTER)
# The rooms of the core, each with those it may import; what lies directly in nsdyn/ is a room too.
HELPERS = {
    "errors",
    "reference",
    "status",
    "tolerances",
    "_cache",
    "_code_digest",
    "_compiler",
    "_coordinates",
    "_digest",
    "_digest_graph",
    "_expect",
    "_files",
    "_jitted",
    "_kept",
    "_named",
    "_repr",
    "_signature",
    "_source_tree",
    "_types",
    "_user_file",
    "_version",
    "_watched",
}
MECHANICS = HELPERS | {"numerics", "constraints", "mechanics", "problem"}
STEPPING = MECHANICS | {"laws", "stepping"}
RESULTS = STEPPING | {"results"}
CHECKS = RESULTS | {"analysis", "checks"}
ROOMS = {
    **dict.fromkeys(HELPERS, HELPERS),
    "native": HELPERS | {"native"},
    "numerics": HELPERS | {"numerics"},
    "constraints": HELPERS | {"numerics", "constraints"},
    "laws": HELPERS | {"numerics", "laws"},
    "mechanics": HELPERS | {"numerics", "constraints", "mechanics"},
    # problem.check() reaches up for its own report, and hands the checks the driver's `rollout`:
    # they rehearse the motion, but stand below the driver, whose `simulate` calls them
    "problem": MECHANICS | {"checks", "driver"},
    "stepping": STEPPING,
    "results": RESULTS,
    "analysis": RESULTS | {"analysis"},
    "checks": CHECKS | {"native"},
    "driver": CHECKS | {"native", "driver"},
    "multibody": MECHANICS | {"multibody"},
    "samples": MECHANICS,
}
CORE = {*ROOMS, "", "core"}
MAY_IMPORT = {
    **ROOMS,
    "core": CORE,  # nsdyn/__init__.py, and names imported from nsdyn itself
    "integrators": {"integrators", *STEPPING, "core"},
    "problems": {"problems", *MECHANICS, "laws", "multibody", "core"},
    "studies": {"studies", "problems", "integrators", *CORE},
    "testing": {"testing", "integrators", *CORE},
    "cli": {*OUTER, *CORE, "testing", "cli"},
}
FUNCTION_NODES = 700  # syntax nodes; lines would reward long ones
MACHINE_PATH = re.compile(r"(?<![\w.~}])/(?:work|root|home|Users|mnt|tmp)/|[A-Z]:\\\\?Users")
TEXT = {".py", ".c", ".h", ".toml", ".md", ".json", ".yml", ".yaml", ".txt", ".cfg"}


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0] in OUTER:
        parts = ("nsdyn", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


parsed = functools.cache(ast.parse)


def imported(source: str, module: str, is_package: bool = False) -> Iterator[str]:
    """Absolute names of all that `source` imports, at any depth of nesting.

    `from a import b` gives a.b, which may be a module or not; either way its prefix tells the
    package.
    """
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = module.split(".")
            if node.level:  # one dot is the package itself
                base = base[: len(base) - node.level + is_package]
            prefix = (base if node.level else []) + (node.module.split(".") if node.module else [])
            yield from (".".join([*prefix, alias.name]) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            match node.args[0]:  # importlib.import_module("a.b"), __import__("a")
                case ast.Constant(value=str(name)) if "import" in ast.unparse(node.func):
                    yield name


def part(module: str) -> str:
    """The part of the project that a module belongs to; "" for other people's."""
    match module.split("."):
        case ["nsdyn", name, *_] if name in MAY_IMPORT:
            return name
        case ["nsdyn", *_]:
            return "core"
    return ""


def violations(source: str, module: str, is_package: bool = False) -> list[str]:
    here = "cli" if module == "nsdyn.__main__" else part(module)
    allowed = MAY_IMPORT[here] | {"", here}
    return [
        f"{module} imports {name}"
        for name in imported(source, module, is_package)
        if part(name) not in allowed
    ]


def test_every_package_is_listed():
    with open(ROOT / "pyproject.toml", "rb") as file:
        listed = tomllib.load(file)["tool"]["setuptools"]["packages"]
    on_disk = [module_name(path) for path in sources(*FOLDERS) if path.name == "__init__.py"]
    assert sorted(listed) == sorted(on_disk)


def test_the_slow_tests_install_every_extra():
    """So none of them is skipped for want of a package; the models come without what they need."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        known = set(tomllib.load(file)["project"]["optional-dependencies"])
    named = re.search(r"^EXTRAS = (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert {*named[1].split(","), "robots"} == known


def test_every_source_folder_is_a_package():
    folders = {path.parent for path in sources(*FOLDERS)}
    assert not [
        str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").exists()
    ]


def test_imports_go_one_way():
    found = []
    for path in sources(*FOLDERS):
        found += violations(path.read_text("utf-8"), module_name(path), path.name == "__init__.py")
    assert not found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("nsdyn.driver", "from nsdyn import integrators"),
        ("nsdyn.driver", "def f():\n    from .problems import get"),
        ("nsdyn.driver", "import nsdyn.cli"),
        ("nsdyn.laws.ideal", "from .. import studies"),
        ("nsdyn.integrators.rk4", "from ..problems.palm import palm"),
        ("nsdyn.problems.palm", "import importlib\nimportlib.import_module('nsdyn.integrators')"),
        ("nsdyn.problems.palm", "import nsdyn.studies.locking as s"),
        ("nsdyn.studies.locking", "from nsdyn.cli.commands import app"),
    ],
)
def test_wrong_imports_are_found(module, source):
    assert violations(source, module)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("nsdyn.cli", "from nsdyn import integrators, problems, studies"),
        ("nsdyn.__main__", "from .cli import app"),
        ("nsdyn.laws.ideal", "from ..numerics.kkt import schur\nfrom .base import Law"),
        ("nsdyn.integrators.rk4", "import jax\nimport nsdyn\nfrom .base import Method"),
        (
            "nsdyn.studies.locking",
            "from nsdyn import laws\nfrom nsdyn.problems import get\nfrom .. import integrators",
        ),
    ],
)
def test_right_imports_are_not(module, source):
    assert not violations(source, module)


def test_no_import_by_folder_name():
    """At the root `import integrators` works too, but loads a second copy whose classes differ."""
    found = []
    for path in sources(*FOLDERS, "tests"):
        names = imported(path.read_text("utf-8"), module_name(path), path.name == "__init__.py")
        found += [
            f"{path.relative_to(ROOT)}: {name}" for name in names if name.split(".")[0] in OUTER
        ]
    assert not found


@pytest.mark.parametrize("name", OUTER)
def test_one_copy_is_loaded(name):
    module = importlib.import_module(f"nsdyn.{name}")
    assert module.__name__ == f"nsdyn.{name}"
    assert name not in sys.modules


def test_sources_name_no_machine():
    paths = [path for path in ROOT.iterdir() if path.suffix in TEXT] + [
        ROOT / "Makefile",
        ROOT / ".ci" / "run",
    ]
    for folder in (*FOLDERS, "tests"):
        paths += [
            path
            for path in (ROOT / folder).rglob("*")
            if path.suffix in TEXT and path != Path(__file__)
        ]
    found = []
    for path in paths:
        for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
            if MACHINE_PATH.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not found


def test_functions_are_short():
    found = []
    for path in sources(*FOLDERS, "tests"):
        for node in ast.walk(parsed(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef) and (size := nodes(node)) > FUNCTION_NODES:
                found.append(f"{path.relative_to(ROOT)}: {node.name} has {size} syntax nodes")
    assert not found


def nodes(function: ast.FunctionDef) -> int:
    """Syntax nodes, without the docstring: equations in it are welcome."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return sum(1 for statement in body for _ in ast.walk(statement))


def test_a_run_starts_without_scipy():
    """Its import takes a fifth of a second, and a run needs none of it."""
    code = "import sys, nsdyn, nsdyn.integrators; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


# The house: docs/house.md tells a newcomer where everything lives.

HOUSE = (ROOT / "docs" / "house.md").read_text("utf-8")
# For each kind of change, something of that kind that exists, and the module that it must lie in.
EXAMPLES = {
    "a new impulse law": ("nsdyn.laws", "PostSwitchGradient"),
    "a new kind of constraint": ("nsdyn", "Contact"),
    "another trigger for an event": ("nsdyn.stepping.locate", "locate"),
    "a new integrator": ("nsdyn.integrators", "NSGA"),
    "another formulation of the motion equations": ("nsdyn", "lagrange"),
    "an operation that the native backend lacks": ("nsdyn.native.program", "translate"),
    "a faster small solve": ("nsdyn.numerics.small", "factor"),
    "another output format": ("nsdyn.results.netcdf", "save"),
    "another place where sweeps are computed": ("nsdyn.driver.processes", "Processes"),
    "a number to report about an event": ("nsdyn", "transition_report"),
    "an error message for wrong input": ("nsdyn.checks.problem_check", "check_start"),
    "a new mechanism": ("nsdyn.problems.bricard", "bricard"),
    "a new robot file format": ("nsdyn.problems", "from_urdf"),
    "a property that every law, integrator or problem must have": ("nsdyn.testing", "check_law"),
    "another way to name a problem": ("nsdyn.problems.resolver", "function"),
    "a command or an option": ("nsdyn.cli", "app"),
}


def house_table(title: str) -> dict[str, list[str]]:
    """The rows of the table under a heading of the house: first cell, folders in the others."""
    section = HOUSE.split(f"## {title}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return {row[0].strip(): re.findall(r"`(\w+)/`", "|".join(row)) for row in rows[2:]}


def test_a_newcomer_finds_the_room_for_every_change():
    table = house_table("Which room?")
    assert set(table) == set(EXAMPLES)
    for change, (module, name) in EXAMPLES.items():
        thing = getattr(importlib.import_module(module), name)
        home = getattr(thing, "__module__", None) or module
        home = "nsdyn.cli" if home.startswith("typer") else home
        assert home.split(".")[1] in table[change], f"{change}: {name} lives in {home}"


def test_every_room_is_in_the_house_and_says_what_it_is():
    rooms = {path.parent.name for path in (ROOT / "nsdyn").glob("*/__init__.py")}
    assert {name for names in house_table("Rooms").values() for name in names} >= rooms
    assert rooms <= {*ROOMS, "testing", "cli"}
    for room in sorted(rooms):
        described = ast.get_docstring(
            ast.parse((ROOT / "nsdyn" / room / "__init__.py").read_text("utf-8"))
        )
        assert described is not None and "May import:" in described, room


def test_no_module_shares_its_name_with_a_public_function():
    public = importlib.import_module("nsdyn")
    functions = {name for name in public.__all__ if inspect.isfunction(getattr(public, name))}
    assert functions >= {"simulate", "rollout", "sweep", "lock", "load"}
    modules = {path.stem for path in sources("nsdyn")}
    assert not functions & modules


@pytest.mark.parametrize("module", ["nsdyn", "nsdyn.laws", "nsdyn.integrators"])
def test_public_classes_explain_themselves(module):
    """A docstring of their own that names every setting."""
    package = importlib.import_module(module)
    found = []
    for name in package.__all__:
        thing = getattr(package, name)
        if not isinstance(thing, type) or issubclass(thing, BaseException):
            continue
        described = thing.__dict__.get("__doc__") or ""
        if not described or described.startswith(f"{name}("):
            found.append(f"{name} has no docstring")
        settings = inspect.signature(thing).parameters if dataclasses.is_dataclass(thing) else {}
        missing = [s for s in settings if not re.search(rf"\b{s}\b", described)]
        found += [f"{name} does not explain {', '.join(missing)}"] if missing else []
    assert not found
