"""`repr` of settings objects: prints values (`rho_inf=0.8`) where equinox prints array types
(`f64[]`)."""

import dataclasses
from collections.abc import Collection
from typing import Any

import jax
import numpy as np


def settings_text(module: Any) -> str:
    """An object with its settings by name; static ones only if they differ from their defaults."""
    parts = []
    for field in dataclasses.fields(module):
        value = getattr(module, field.name)
        text = _text(value)
        choice = field.metadata.get("static", False) or dataclasses.is_dataclass(value)
        if not (choice and text == _default_text(field)):
            parts.append(f"{field.name}={text}")
    return f"{type(module).__name__}({', '.join(parts)})"


def _default_text(field: dataclasses.Field) -> str | None:
    missing = dataclasses.MISSING
    if field.default_factory is not missing:
        return _text(field.default_factory())
    return None if field.default is missing else _text(field.default)


def _text(value: Any) -> str:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return settings_text(value)
    if isinstance(value, tuple | list):
        inner = ", ".join(_text(x) for x in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, jax.core.Tracer):
        return "traced"
    if isinstance(value, jax.Array | np.ndarray):
        return repr(np.asarray(value).tolist())
    return value.__name__ if callable(value) and hasattr(value, "__name__") else repr(value)


def format_object(module: Any, always: Collection[str] = ()) -> str:
    """An integrator or a law as one would write it: with the settings that differ from their
    defaults, and in any case those named in `always` ("*": all)."""
    parts = []
    for field in dataclasses.fields(module):
        value = getattr(module, field.name)
        nested = dataclasses.is_dataclass(value)
        text = format_object(value, always) if nested else _text(value)
        default = _default_text(field)
        required = default is None
        plain = settings_text(value) if nested else text
        if required and nested:
            parts.append(text)
        elif required or plain != default or field.name in always or "*" in always:
            parts.append(f"{field.name}={text}")
    return f"{type(module).__name__}({', '.join(parts)})" if parts else type(module).__name__
