"""Problems by text: files, packages, robots; what is wrong with them is said with file and line."""

import importlib
import pickle
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import nsdyn
from nsdyn import integrators, laws, problems
from nsdyn._code_digest import code_digest
from nsdyn.cli.commands import _integrator, app
from nsdyn.errors import FileError, ProblemError
from nsdyn.studies import compare
from nsdyn.studies.lib.written import law as _law

ROOT = Path(__file__).resolve().parents[1]
ARM = ROOT / "tests" / "data" / "arm.urdf"
FALLING = """
import jax.numpy as jnp
import nsdyn
{imports}

def mass(q, p):
    return jnp.eye(1)

def force(q, v, t, p):
    return -{weight} * p["k"] * jnp.ones(1)

SYSTEM = nsdyn.System(mass=mass, force=force)

def falling(k=1.0):
    '''A stone that falls.'''
    return nsdyn.Problem("falling", SYSTEM, q0=[0.0], v0=[0.0], t_end=1.0, params={{"k": k}})
"""
STONE = FALLING.format(imports="", weight="9.81")
RUN = integrators.EventDriven(integrators.RK4())


@pytest.fixture
def write(tmp_path, monkeypatch):
    """write(name, text) writes a file into an empty folder, which is the current one."""
    monkeypatch.chdir(tmp_path)

    def written(name, text):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
        return tmp_path / name

    return written


def call(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def height(problem):
    return float(nsdyn.simulate(problem, RUN, step=0.1).q[-1, 0])


# What is found


def test_a_file_by_name_without_name_and_by_path(write):
    path = write("stone.py", STONE)
    for text in ("stone.py:falling", "stone.py", f"{path}:falling", f"{path}"):
        assert float(problems.get(text, k=2.0).params["k"]) == 2.0
    assert problems.names("stone.py") == ["stone.py:falling"]
    assert problems.summary("stone.py:falling") == "A stone that falls."


def test_functions_stay_the_same_until_the_file_is_edited(write):
    """So that a second problem compiles nothing, and an edit counts at once."""
    write("stone.py", STONE)
    first = problems.get("stone.py")
    assert problems.get("stone.py", k=3.0).system is first.system
    write("stone.py", STONE.replace("9.81", "1.62"))
    assert height(problems.get("stone.py")) == pytest.approx(-1.62 / 2, abs=1e-12)


@pytest.mark.parametrize("imports", ["from heavy import G", "from .heavy import G"])
def test_neighbours_can_be_imported_and_their_edits_count(write, imports):
    name = "heavy"
    write("stone.py", FALLING.format(imports=imports, weight="G"))
    write(f"{name}.py", "G = 9.81")
    before = problems.get("stone.py")
    assert height(before) == pytest.approx(-9.81 / 2, abs=1e-12)
    write(f"{name}.py", "G = 1.62")
    after = problems.get("stone.py")
    assert height(after) == pytest.approx(-1.62 / 2, abs=1e-12)
    assert code_digest(before.system) != code_digest(after.system)
    sys.modules.pop(name, None)


def test_files_of_one_name_in_two_folders(write):
    """With relative imports they do not meet; by absolute ones they would, and that is said."""
    for folder, weight in (("earth", "9.81"), ("moon", "1.62")):
        write(f"{folder}/stone.py", FALLING.format(imports="from . import place", weight="place.G"))
        write(f"{folder}/place.py", f"G = {weight}")
    assert height(problems.get("earth/stone.py")) == pytest.approx(-9.81 / 2, abs=1e-12)
    assert height(problems.get("moon/stone.py")) == pytest.approx(-1.62 / 2, abs=1e-12)
    for folder in ("earth", "moon"):
        write(f"{folder}/other.py", FALLING.format(imports="import place", weight="place.G"))
    problems.get("earth/other.py")
    with pytest.raises(ProblemError, match=r"moon.other\.py, line 4: .*'place'.*from \. import"):
        problems.get("moon/other.py")
    del sys.modules["place"]


def test_what_counts_as_a_problem(write):
    """Functions that make one or say so, and problems that are there; nothing is called."""
    write(
        "set.py",
        STONE
        + """
def same() -> nsdyn.Problem:
    return falling()

def text_says() -> "nsdyn.Problem":
    return falling()

def unsaid():
    return falling()

def _hidden():
    return nsdyn.Problem

def loud() -> None:
    raise RuntimeError("called")

ready = falling(k=4.0)
""",
    )
    listed = ["falling", "same", "text_says", "ready"]
    assert problems.names("set.py") == [f"set.py:{name}" for name in listed]
    assert float(problems.get("set.py:ready").params["k"]) == 4.0
    assert problems.get("set.py:unsaid").name == "falling"
    with pytest.raises(ProblemError, match=r"set\.py:ready: expected no settings.*found k"):
        problems.get("set.py:ready", k=1.0)
    with pytest.raises(ProblemError, match=r"expected one of its problems.*set\.py:falling"):
        problems.get("set.py")


def test_robots_by_their_file():
    problem = problems.get(str(ARM), tip="tool")
    assert problem.name == problems.from_urdf(ARM, tip="tool").name
    with pytest.raises(ProblemError, match="its parameters are base, tip"):
        problems.get(str(ARM), tipp="tool")


@pytest.mark.parametrize("name", ["robot.sdf", "robot.urdf.xacro"])
def test_robots_that_cannot_be_read_yet(name):
    with pytest.raises(FileError, match=r"URDF|urdf"):
        problems.get(name)


# Packages


@pytest.fixture
def package(write, monkeypatch):
    """package(name, module) installs a package of this name, as pip would."""
    write("stones_of_tests.py", STONE + SCHEMES)
    monkeypatch.syspath_prepend(".")

    def install(name, module):
        points = "".join(f"[nsdyn.{kind}]\n{name} = {module}\n" for kind in ("problems", "laws"))
        write(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\n")
        write(f"{name}-1.0.dist-info/entry_points.txt", points)
        importlib.invalidate_caches()

    install("stones", "stones_of_tests")
    yield install
    sys.modules.pop("stones_of_tests", None)


def test_installed_packages(package):
    assert problems.packages() == ["stones"]
    assert problems.names("stones") == ["stones:falling"]
    assert problems.get("stones:falling", k=2.0).name == "falling"
    listed = call("list")
    assert listed.exit_code == 0 and "stones:falling" in listed.stdout
    assert "three_r_pendulum" in listed.stdout
    assert "stones:falling(k=1.0)" in call("list", "stones").stdout
    assert float(_law("stones:Fading(rate=2)").rate) == 2.0
    with pytest.raises(ProblemError, match="'stones' is a package; stones:falling"):
        problems.get("stones")
    with pytest.raises(ProblemError, match="did you mean 'stones'"):
        problems.get("stone:falling")
    with pytest.raises(ProblemError, match="did you mean 'falling'"):
        problems.get("stones:faling")


def test_a_broken_package_is_named_and_the_others_are_listed(package, write):
    write("broken_of_tests.py", "x = 1\ny = 1 / 0\n")
    package("broken", "broken_of_tests")
    with pytest.raises(ProblemError, match=r"broken_of_tests\.py, line 2: ZeroDivisionError"):
        problems.get("broken:any")
    listed = call("list")
    assert listed.exit_code == 0 and "broken:" in listed.stdout
    assert "stones:falling" in listed.stdout and "pendulum" in listed.stdout
    package("odd", "stones_of_tests:falling")
    with pytest.raises(ProblemError, match="expected a module as entry point"):
        problems.get("odd:any")


def test_without_packages_a_file_is_suggested(write):
    with pytest.raises(ProblemError, match=r"Write cranks\.py:NAME"):
        problems.get("cranks:slotted")
    write("crank.py", STONE)
    with pytest.raises(ProblemError, match=r"write crank\.py"):
        problems.get("crank")


# What is wrong: file, line, fault


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\ndef f(:\n    pass\n", "bad.py, line 2: SyntaxError"),
        ("import nsdyn\nimport nowhere_at_all\n", "bad.py, line 2: ModuleNotFoundError"),
        ("x = 1\n\ny = {}['a']\n", "bad.py, line 3: KeyError: 'a'"),
        ("import sys\nsys.exit(3)\n", "bad.py, line 2: it ends Python"),
        (
            "def crank():\n    return {}\n",
            "bad.py, line 1: crank: expected a function that",
        ),
        ("crank = 3\n", "expected a function that returns nsdyn.Problem(...), found int"),
        ("def crunk():\n    return 1\n", "bad.py: 'crank' is not in it"),
        ("import nsdyn\ndef crunk() -> nsdyn.Problem:\n    pass\n", "did you mean 'crunk'"),
        (
            "def crank(L):\n    return L\n",
            "bad.py, line 1: crank: missing a required argument",
        ),
        ("def crank():\n    a = 0\n    return 1 / a\n", "bad.py, line 3: ZeroDivisionError"),
        (
            "import nsdyn\ndef crank():\n    return nsdyn.Problem('a', None)\n",
            "bad.py, line 3: Problem(system=...)",
        ),
        (STONE.replace("mass(q, p)", "mass(q)"), "bad.py, line 12: System(mass=...)"),
        (STONE.replace("mass(q, p)", "mass(q)"), "mass (bad.py, line 6) with the signature (q)"),
    ],
)
def test_a_fault_is_named_with_file_and_line(write, text, expected):
    write("bad.py", text)
    with pytest.raises(ProblemError) as caught:
        problems.get("bad.py:crank")
    assert expected in str(caught.value)
    result = call("check", "bad.py:crank")
    assert result.exit_code == 2 and expected in result.stderr
    assert "Traceback" not in result.stderr and not result.stdout


def test_a_fault_in_a_neighbour_names_the_neighbour(write):
    write("stone.py", FALLING.format(imports="from .beside import G", weight="G"))
    write("beside.py", "\nG = 1 / 0\n")
    with pytest.raises(ProblemError, match=r"^beside\.py, line 2: ZeroDivisionError"):
        problems.get("stone.py")
    write("beside.py", "G = 9.81\n")
    assert problems.get("stone.py").name == "falling"


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ('p["kk"]', r"stone\.py, line 10: System\(force=.*force.*raised KeyError: 'kk'.*\['k'\]"),
        ("jnp.ones(2)", r"force \(stone\.py, line 9\) returned shape"),
    ],
)
def test_a_fault_inside_a_function_of_the_model(write, broken, expected):
    write("stone.py", STONE.replace('p["k"] * jnp.ones(1)', broken))
    with pytest.raises(ProblemError, match=expected):
        problems.get("stone.py").check()


def test_files_that_are_not_there_or_have_odd_names(write):
    with pytest.raises(FileError, match=r"nowhere\.py: expected a Python file, found none"):
        problems.get("nowhere.py:crank")
    write("v1.2.py", STONE)
    with pytest.raises(FileError, match="without further dots"):
        problems.get("v1.2.py")
    write("my-stone.py", STONE)
    assert problems.get("my-stone.py:falling").name == "falling"


# Integrators and laws

SCHEMES = """
import equinox as eqx
import jax
import jax.numpy as jnp
import nsdyn
from nsdyn import laws

class Fading(laws.AbstractLaw):
    rate: jax.Array = eqx.field(converter=jnp.asarray)

    def __check_init__(self):
        if self.rate < 0:
            raise ValueError("rate < 0")

    def decide(self, change):
        return laws.PostSwitchGradient().decide(change)

class Euler(nsdyn.AbstractSmoothMethod):
    def init(self, model, point, p):
        a, lam = nsdyn.lagrange(model, point, p)
        return point, nsdyn.Memory(a, lam)

    def step(self, model, point, memory, h, p, finish=None):
        raise NotImplementedError
"""


def test_integrators_and_laws_of_ones_own(write):
    write("folder one/schemes.py", SCHEMES)
    assert float(_law("folder one/schemes.py:Fading(rate=2)").rate) == 2.0
    for text in ("folder one/schemes.py:Euler", "EventDriven(folder one/schemes.py:Euler)"):
        method = _integrator(text, "")
        assert isinstance(method, integrators.EventDriven)
        assert type(method.method).__name__ == "Euler"
    listed = call("list", "folder one/schemes.py").stdout
    assert "schemes.py:Fading(rate)" in listed and "schemes.py:Euler()" in listed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("schemes.py:Fadin(rate=2)", "did you mean 'Fading'"),
        ("schemes.py:Fading(speed=2)", "schemes.py, line 8: Fading: missing a required argument"),
        ("schemes.py:Fading(rate=-1)", "schemes.py, line 13: ValueError: rate < 0"),
        ("schemes.py:Euler", "schemes.py, line 18: expected a class derived from"),
        ("schemes.py:jnp", "expected a class derived from nsdyn.AbstractLaw"),
        ("nowhere.py:Fading", "nowhere.py: expected a Python file"),
    ],
)
def test_laws_that_are_not(write, text, expected):
    write("schemes.py", SCHEMES)
    with pytest.raises((ProblemError, FileError)) as caught:
        _law(text)
    assert expected in str(caught.value)


# Other processes, archives, imports


def test_a_pickle_finds_its_file_again_in_another_process(write, tmp_path):
    write("stone.py", FALLING.format(imports="import near_stone", weight="near_stone.G"))
    write("near_stone.py", "G = 9.81")
    problem = problems.get("stone.py")
    write("problem.pkl", "")
    (tmp_path / "problem.pkl").write_bytes(pickle.dumps(problem))
    code = (
        "import pickle, sys; p = pickle.load(open(sys.argv[1], 'rb'));"
        "print(p.q0.dtype, float(p.system.force(p.q0, p.v0, 0.0, p.params)[0]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "problem.pkl")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.split() == ["float64", "-9.81"], done.stderr
    sys.modules.pop("near_stone", None)


def test_an_edit_two_modules_away_is_computed_again(write):
    """The archive of a comparison knows the user's file and what it imports, however it does so."""
    write("stone.py", FALLING.format(imports="from . import near", weight="near.weight()"))
    write("near.py", "from . import far\ndef weight():\n    return far.G\n")
    entries = [(RUN, laws.PostSwitchGradient())]

    def fallen(gravity):
        write("far.py", f"G = {gravity}\n")
        arguments = (problems.get("stone.py"), entries, 0.1)
        found = compare.compare(*arguments, reference=None, folder="out")
        return float(found.runs[0].data.q[-1, 0])

    assert fallen(9.81) == pytest.approx(-9.81 / 2, abs=1e-12)
    assert fallen(1.62) == pytest.approx(-1.62 / 2, abs=1e-12)
    changed = Path("out/data").glob("*.nc").__next__().stat().st_mtime_ns
    assert fallen(1.62) == pytest.approx(-1.62 / 2, abs=1e-12)
    assert Path("out/data").glob("*.nc").__next__().stat().st_mtime_ns == changed


def test_a_moved_folder_has_the_same_digest(write):
    found = []
    for folder in ("here", "there"):
        write(f"{folder}/stone.py", FALLING.format(imports="from . import near", weight="near.G"))
        write(f"{folder}/near.py", "G = 9.81\nclass Unused:\n    pass\n")
        found.append(code_digest(problems.get(f"{folder}/stone.py").system))
    assert found[0] == found[1]


def test_importing_problems_imports_none_of_them_and_no_scipy():
    code = """
import sys, nsdyn, nsdyn.problems as problems
print([m for m in sys.modules if m == "scipy" or m.startswith("nsdyn.problems.")])
from nsdyn.problems import three_r_pendulum
from nsdyn.problems.serial_chain import constraints
print(callable(three_r_pendulum), callable(problems.serial_chain), "scipy" in sys.modules)
print(nsdyn.problems.get("pendulum").name)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert lines == ["['nsdyn.problems.resolver']", "True True False", "pendulum"], done.stderr


def test_type_checkers_see_every_problem():
    from nsdyn.problems import resolver

    text = Path(problems.__file__).read_text("utf-8")
    for name, module in resolver.MODULES.items():
        assert f"    from nsdyn.problems.{module} import {name}\n" in text
        assert name in problems.__all__ and np.all(callable(getattr(problems, name)))
