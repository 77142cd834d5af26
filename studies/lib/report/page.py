"""The page itself: one HTML file with everything in it."""

import base64
import html
import io
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

from PIL import Image

import nsdyn
from nsdyn.studies.lib import archive, stamps
from nsdyn.studies.lib.report.collect import Study, Table

SHOWN_BY = "player"  # the place of the player on the page
WIDTH = 1500  # pixels of a figure
WIDE = 1500  # pixels; figures of one column have fewer
COLOURS = 128  # of a figure: curves and text need no more
PLAYER = """\
<section class="player" aria-label="player">
<div class="controls">
<label>mechanism <select id="motion"></select></label>
<label class="one">run <select id="first"></select></label>
<label class="two">beside it <select id="second"></select></label>
</div>
<div class="stage">
<div><canvas id="scene" tabindex="0" role="img" aria-label="the mechanism; in space, arrow keys turn it"></canvas></div>
<div id="plots"></div>
</div>
<div class="controls">
<button id="play">Play</button><button id="back">Event before</button><button id="next">Next event</button>
<label>speed <select id="speed"><option>1</option><option>0.5</option><option>0.2</option><option>0.05</option><option>2</option></select></label>
<output id="now">t = 0 s</output>
</div>
<input id="time" type="range" min="0" max="1" value="0" aria-label="time">
<div class="marks" id="marks"></div>
<div id="event" class="dim"></div>
</section>
<p class="dim">Space plays, the marks below the time line are events; click a plot to go to that time.</p>
"""


def write(
    path: str | Path,
    studies: Sequence[Study],
    motions: Sequence[dict[str, Any]],
    about: Mapping[str, Any] | None = None,
) -> Path:
    """Write the page, at once or not at all; `about` says who made it (`nsdyn info`)."""
    text = page(studies, motions)
    text += "" if about is None else stamps.comment("html", about)
    return archive.replace(Path(path), lambda part: part.write_text(text, "utf-8"))


def page(studies: Sequence[Study], motions: Sequence[dict[str, Any]]) -> str:
    names = ([SHOWN_BY] if motions else []) + [study.name for study in studies]
    links = "".join(f'<a href="#{name}">{_title(name)}</a>' for name in names)
    now = datetime.now(UTC).strftime("%Y-%m-%d")
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        "<title>nsdyn: report</title>",
        '<link rel="icon" href="data:,">',
        f"<style>{_asset('uPlot.min.css')}{_asset('report.css')}</style></head><body>",
        f'<header><h1>nsdyn: studies</h1><div class="dim">nsdyn {nsdyn.__version__}, {now}</div>',
        f"<nav>{links}</nav></header><main>",
        _motions(motions) if motions else "",
        *(_section(study) for study in studies),
        f"<details><summary>Licences</summary><pre>uPlot\n\n{_asset('uPlot-LICENSE.txt')}</pre>",
        f"</details></main><script>{_asset('uPlot.iife.min.js')}</script>",
        f"<script>{_asset('report.js')}</script></body></html>",
    ]
    return "\n".join(parts)


def _motions(motions: Sequence[dict[str, Any]]) -> str:
    data = json.dumps(list(motions)).replace("<", "\\u003c")
    held = f'<script type="application/json" id="motions">{data}</script>'
    return f'<h2 id="{SHOWN_BY}">Mechanisms in motion</h2>{PLAYER}{held}'


def _section(study: Study) -> str:
    figures = "".join(_figure(path) for path in study.figures)
    texts = "".join(
        f"<details open><summary>{_title(name)}</summary><pre>{html.escape(text)}</pre></details>"
        for name, text in study.texts.items()
    )
    origin = "".join(
        f"<tr><td>{name}</td><td>{html.escape(text)}</td></tr>"
        for name, text in study.origin.items()
    )
    words = f'<pre class="words">{html.escape(study.captions)}</pre>'
    return (
        f'<h2 id="{study.name}">{_title(study.name)}</h2>'
        f'<div class="figures">{figures}</div>'
        f"<details><summary>Captions</summary>{words}</details>"
        f"{texts}{''.join(_table(table) for table in study.tables)}"
        "<details><summary>Where the data come from</summary>"
        f'<table class="origin">{origin}</table></details>'
    )


def _table(table: Table) -> str:
    head, *rows = table.rows
    cell = lambda text: f"<td>{html.escape(text)}</td>"
    heads = "".join(f"<th><button>{html.escape(text)}</button></th>" for text in head)
    body = "".join(f"<tr>{''.join(cell(text) for text in row)}</tr>" for row in rows)
    said = lambda text: f'<p class="dim">{html.escape(text)}</p>' if text else ""
    return (
        f"<h3>{_title(table.name)}</h3>{said(table.title)}"
        f'<div class="scroll"><table class="sortable">'
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
        f"{''.join(map(said, table.notes))}"
    )


def _figure(path: Path) -> str:
    kind, data = _picture(path)
    text = base64.b64encode(data).decode()
    name = _title(path.stem)
    image = f'<img src="data:image/{kind};base64,{text}" alt="{name}"{_room(kind, data)}>'
    size = ' class="wide"' if _is_wide(path) else ""
    return f"<figure{size}>{image}<figcaption>{name}</figcaption></figure>"


def _room(kind: str, data: bytes) -> str:
    """The size of a picture of pixels, so that the page has its place before it is decoded."""
    if kind == "svg+xml":
        return ""
    with Image.open(io.BytesIO(data)) as image:
        return f' width="{image.width}" height="{image.height}"'


def _is_wide(path: Path) -> bool:
    """Whether a figure needs the whole width of the page: it is drawn over two columns, or not
    known to be smaller."""
    if path.suffix == ".svg":
        return True
    with Image.open(path) as image:
        return image.width > WIDE


def _picture(path: Path) -> tuple[str, bytes]:
    """A figure as it is, but a large one of pixels with fewer of them and fewer colours."""
    if path.suffix == ".svg":
        return "svg+xml", path.read_bytes()
    if path.suffix != ".png":
        return path.suffix[1:], path.read_bytes()
    with Image.open(path) as image:
        picture = image.convert("RGB")
    if picture.width > WIDTH:
        height = round(picture.height * WIDTH / picture.width)
        picture = picture.resize((WIDTH, height), Image.Resampling.LANCZOS)
    held = io.BytesIO()
    picture.quantize(COLOURS).save(held, "PNG", optimize=True)
    return "png", held.getvalue()


def _title(name: str) -> str:
    return html.escape(name.replace("_", " ").replace("-", " "))


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text("utf-8")
