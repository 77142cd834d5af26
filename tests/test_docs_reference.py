"""The reference is complete: every public name, every environment variable."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

from nsdyn import problems

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference"
PACKAGES = ("", ".integrators", ".laws", ".multibody", ".problems", ".testing")  # with __all__
MODULES = (".samples", ".studies", ".studies.compare", ".studies.gaits", ".studies.study")
INNER = {".studies.compare.names", ".studies.compare.slug", ".studies.study.archived"}  # for nsdyn


def pages():
    return {name: (REFERENCE / f"{name}.md").read_text("utf-8") for name in ("api", "constraints")}


def described():
    """The names on the pages, from the directives that describe them."""
    found = [re.findall(r"^\.\. auto\w+:: (nsdyn\S*)", x, re.MULTILINE) for x in pages().values()]
    return [name for names in found for name in names]


def public(path):
    """The public names of a package, or of a module: what is defined there."""
    module = importlib.import_module(f"nsdyn{path}")
    if path in PACKAGES:
        return module, list(module.__all__)
    own = [x for x, value in vars(module).items() if is_defined_in(module, value)]
    return module, [x for x in own if not x.startswith("_")]


def is_defined_in(module, value):
    return getattr(value, "__module__", None) == module.__name__


def is_described(module, name, names):
    """By itself or where it is also found (nsdyn.laws.AbstractLaw is nsdyn.AbstractLaw)."""
    value = getattr(module, name)
    elsewhere = [x for x in names if x.rpartition(".")[2] == name]
    return any(value is resolved(x) for x in elsewhere)


def resolved(name):
    module, _, last = name.rpartition(".")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return getattr(importlib.import_module(module), last)


@pytest.mark.parametrize("path", [*PACKAGES, *MODULES])
def test_every_public_name_is_described(path):
    """The mechanisms of the library are on a page made from their list."""
    module, names = public(path)
    known = described()
    text = pages()["api"]
    others = {*INNER, *(f".problems.{x}" for x in problems.names())}
    for name in names:
        if f"{path}.{name}" in others:
            continue
        is_named = f"`nsdyn.{name}`" in text and path == ""  # an alias, the version
        assert is_named or is_described(module, name, known), f"nsdyn{path}.{name}"


def test_what_is_described_exists_and_says_what_it_is():
    for name in described():
        assert inspect.getdoc(resolved(name)), name
    assert len(set(described())) == len(described())


def test_every_environment_variable_is_listed():
    page = (REFERENCE / "environment.md").read_text("utf-8")
    folders = ("nsdyn", "integrators", "problems", "studies", "tests")
    files = [ROOT / "Makefile", *(x for f in folders for x in (ROOT / f).rglob("*.py"))]
    used = {
        x for file in files for x in re.findall(r"\bNSDYN_[A-Z][A-Z_]+", file.read_text("utf-8"))
    }
    listed = set(re.findall(r"\bNSDYN_[A-Z_]+", page))
    assert used == listed
