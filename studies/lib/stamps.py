"""What files say about themselves, as JSON: figures in their metadata, films behind their pictures,
tables and pages in a comment. So a file tells where it comes from wherever it lies (`nsdyn info`)."""

import json
import re
import struct
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any

# Where a figure says what it is, and what of it changes with the time of day.
ABOUT = {"pdf": "Subject", "svg": "Description", "png": "Description"}
CLOCK = {"pdf": "CreationDate", "svg": "Date", "png": "Software"}
COMMENTS = {
    "md": "\n<!-- nsdyn: {} -->\n",
    "html": "\n<!-- nsdyn: {} -->\n",
    "tex": "% nsdyn: {}\n",
}

PDF = re.compile(rb"/Subject \((.*?)(?<!\\)\)", re.DOTALL)
SVG = re.compile(r"<dc:description>(.*?)</dc:description>", re.DOTALL)
COMMENT = re.compile(r"^(?:<!--|%) nsdyn: (\{.*\})(?: -->)?$", re.MULTILINE)
# The last box of a film, which players skip.
MP4 = re.compile(rb"free(\{.*\})\Z", re.DOTALL)
PIECE = 255  # bytes of a comment in a GIF


def text_of(about: Mapping[str, Any]) -> str:
    """In letters that all formats have; comments in HTML end with the first "--"."""
    return json.dumps(about, ensure_ascii=True).replace("--", "-\\u002d")


def metadata(kind: str, about: Mapping[str, Any]) -> dict[str, str | None]:
    """For matplotlib's `savefig`: the same figure gives the same bytes."""
    return {ABOUT[kind]: text_of(about), CLOCK[kind]: None}


def comment(kind: str, about: Mapping[str, Any]) -> str:
    """The lines to be put into a table or a page; none where comments are not known."""
    return COMMENTS.get(kind, "").format(text_of(about))


def stamp_film(path: Path, about: Mapping[str, Any]) -> None:
    """Append to a GIF or MP4 file."""
    text, film = text_of(about).encode(), path.read_bytes()
    if path.suffix.lower() == ".gif":
        pieces = [text[k : k + PIECE] for k in range(0, len(text), PIECE)]
        said = b"".join(bytes([len(piece)]) + piece for piece in pieces)
        film = film[:-1] + b"\x21\xfe" + said + b"\x00\x3b"
    else:
        film += struct.pack(">I4s", 8 + len(text), b"free") + text
    path.write_bytes(film)


def read(file: Path) -> dict[str, Any] | None:
    """What a file says about itself; None if it says nothing."""
    read_kind = READERS.get(file.suffix.lower())
    try:
        told = json.loads((read_kind(file) if read_kind else None) or "")
    except (ValueError, OSError):  # damaged, or of another program
        return None
    return told if isinstance(told, dict) else None


def _in_pdf(file: Path) -> str | None:
    found = PDF.search(file.read_bytes())
    return re.sub(rb"\\(.)", rb"\1", found[1]).decode("latin-1") if found else None


def _in_svg(file: Path) -> str | None:
    found = SVG.search(file.read_text("utf-8"))
    return unescape(found[1]) if found else None


def _in_png(file: Path) -> str | None:
    from PIL import Image  # comes with matplotlib

    with Image.open(file) as image:
        return image.info.get("Description")


def _in_gif(file: Path) -> str | None:
    data = file.read_bytes()
    place = data.rfind(b"\x21\xfe")
    if place < 0:
        return None
    said, place = b"", place + 2
    while place < len(data) and data[place]:
        said += data[place + 1 : place + 1 + data[place]]
        place += 1 + data[place]
    return said.decode("ascii", "replace")


def _in_mp4(file: Path) -> str | None:
    found = MP4.search(file.read_bytes())
    return found[1].decode("ascii", "replace") if found else None


def _in_text(file: Path) -> str | None:
    found = COMMENT.findall(file.read_text("utf-8"))
    return found[-1] if found else None


READERS = {
    ".pdf": _in_pdf,
    ".svg": _in_svg,
    ".png": _in_png,
    ".gif": _in_gif,
    ".mp4": _in_mp4,
    ".md": _in_text,
    ".tex": _in_text,
    ".html": _in_text,
}
