"""Files that are complete or not there."""

import json
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def replace(path: Path, write: Callable[[Path], Any]) -> Path:
    """Let `write` create a file under a temporary name in the same folder, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.stem}-{secrets.token_hex(4)}{path.suffix}")
    try:
        write(part)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


def write_json(path: str | Path, content: Mapping[str, Any]) -> Path:
    text = json.dumps(content, indent=2) + "\n"
    return replace(Path(path), lambda part: part.write_text(text, "utf-8"))


def read_json(path: Path) -> dict[str, Any]:
    """The content of a file; empty if there is none that can be read."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
