"""Where compiled programs are kept, and what of it is believed."""

import shutil

import jax
import pytest

from nsdyn import _cache
from nsdyn._kept import keep, kept


@pytest.fixture
def config(monkeypatch):
    """The settings JAX is given; it had none before."""
    seen = {}
    monkeypatch.delenv("NSDYN_CACHE", raising=False)
    monkeypatch.setattr(_cache, "jax", type("Jax", (), {"config": Config(seen)}))
    return seen


class Config:
    jax_compilation_cache_dir = None

    def __init__(self, seen):
        self.update = seen.__setitem__


def test_programs_are_kept_in_the_users_cache_folder(config, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    _cache.keep_compiled()
    assert config["jax_compilation_cache_dir"] == str(tmp_path / "nsdyn" / "jax")
    assert (tmp_path / "nsdyn" / "jax").is_dir()


def test_another_folder_can_be_named(config, monkeypatch, tmp_path):
    monkeypatch.setenv("NSDYN_CACHE", str(tmp_path / "mine"))
    _cache.keep_compiled()
    assert config["jax_compilation_cache_dir"] == str(tmp_path / "mine" / "jax")


def test_nothing_is_kept_if_told_so_or_if_the_folder_cannot_be_written(
    config, monkeypatch, tmp_path
):
    monkeypatch.setenv("NSDYN_CACHE", "0")
    _cache.keep_compiled()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NSDYN_CACHE", str(tmp_path / "file"))  # cannot hold a folder
    _cache.keep_compiled()
    assert not config


def test_a_folder_that_jax_was_told_of_is_left_alone(config, monkeypatch, tmp_path):
    monkeypatch.setattr(Config, "jax_compilation_cache_dir", "theirs")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    _cache.keep_compiled()
    assert not config and not list(tmp_path.iterdir())


def test_without_settings_the_folder_is_the_users_own(config, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert _cache._root().is_absolute()
    assert hasattr(jax.config, "jax_compilation_cache_dir")


def test_a_relative_name_counts_from_where_it_was_used_first(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for setting in ("NSDYN_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv("NSDYN_CACHE", raising=False)
        monkeypatch.setenv(setting, f"mine of {setting}")
        monkeypatch.chdir(tmp_path)
        first = _cache.cache_folder("native")
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        monkeypatch.chdir(elsewhere)
        assert _cache.cache_folder("native") == first and first.is_absolute()
        assert not list(elsewhere.iterdir())
        assert (tmp_path / f"mine of {setting}") in first.parents


@pytest.fixture
def entries(monkeypatch, tmp_path):
    monkeypatch.setenv("NSDYN_CACHE", str(tmp_path))
    keep("programs", "first", {"answer": 42})
    assert kept("programs", "first") == {"answer": 42}
    return tmp_path / "programs"


def test_what_is_kept_is_believed_under_its_own_name_only(entries):
    shutil.copy(entries / "first", entries / "second")
    assert kept("programs", "second") is None
    assert _cache.cache_folder("verdicts") == entries.parent / "verdicts"
    shutil.copy(entries / "first", entries.parent / "verdicts" / "first")
    assert kept("verdicts", "first") is None


@pytest.mark.parametrize(
    "change", [lambda x: x[:-1], lambda x: x[:70] + b"?" + x[71:], lambda x: b""]
)
def test_what_is_damaged_is_not_believed(entries, change):
    entry = entries / "first"
    entry.write_bytes(change(entry.read_bytes()))
    assert kept("programs", "first") is None
    keep("programs", "first", 43)
    assert kept("programs", "first") == 43
    assert [path.name for path in entries.iterdir()] == ["first"]
