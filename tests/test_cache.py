"""Where compiled programs are kept."""

import jax
import pytest

from nsdyn import _cache


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
