"""`repr` of settings objects: prints values (`rho_inf=0.8`) where equinox prints array types
(`f64[]`)."""

import dataclasses
from collections.abc import Collection
from typing import Any

import equinox as eqx
import jax
import numpy as np


def settings_text(module) -> str:
    known = lambda x: eqx.is_array(x) and not isinstance(x, jax.core.Tracer)
    numbers = jax.tree.map(lambda x: np.asarray(x).tolist() if known(x) else x, module)
    return eqx.tree_pformat(numbers, width=10**6)


def format_object(module: Any, always: Collection[str] = ()) -> str:
    """An integrator or a law as one would write it, the reverse of `parse_object`: with the
    settings that are not at their defaults, and with those of these names ("*": all)."""
    parts = []
    for field in dataclasses.fields(module):
        value, required = getattr(module, field.name), field.default is dataclasses.MISSING
        nested = dataclasses.is_dataclass(value)
        text = (
            format_object(value, always)
            if nested
            else repr(value.tolist() if hasattr(value, "tolist") else value)
        )
        if required and nested:
            parts.append(text)
        elif required or text != repr(field.default) or field.name in always or "*" in always:
            parts.append(f"{field.name}={text}")
    return f"{type(module).__name__}({', '.join(parts)})" if parts else type(module).__name__
