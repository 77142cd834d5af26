"""Small copies of the figures of `make figures`, with their captions and tables, in docs/previews.
The gallery and the page of papers show them where `figures/` is not there, as in a fresh clone.

    python docs/previews.py figures      makes them again from that folder
"""

import argparse
import json
import re
import shutil
from pathlib import Path

from PIL import Image

from nsdyn.studies.lib.report.collect import Study, studies

FOLDER = Path(__file__).resolve().parent / "previews"
ORIGIN = "origin.json"
COLUMNS = 2160  # pixels of a figure over two columns
WIDTH = 900  # of its copy
COLOURS = 64  # enough for lines, and a quarter of the size


def copy(study: Study, folder: Path) -> None:
    """Copy what one study shows."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "captions.txt").write_text(study.captions, "utf-8")
    for name, text in study.texts.items():
        (folder / f"{name}.txt").write_text(text, "utf-8")
    for table in sorted(study.folder.glob("*.md")):
        shutil.copyfile(table, folder / table.name)
    for figure in study.figures:
        drawn = figure.with_suffix(".png")
        shrink(drawn if drawn.exists() else figure, folder / f"{figure.stem}.png")


def shrink(figure: Path, target: Path) -> None:
    """A figure with fewer pixels and colours; of a film, the first picture."""
    with Image.open(figure) as image:
        size = [round(x * WIDTH / COLUMNS) for x in image.size]
        small = image.convert("RGB").resize(size, Image.Resampling.LANCZOS)
        few = small.quantize(COLOURS, dither=Image.Dither.NONE)
        few.save(target, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("figures", nargs="+", help="folders of `nsdyn figures`")
    origin = json.loads((FOLDER / ORIGIN).read_text("utf-8")) if FOLDER.is_dir() else {}
    for folder in parser.parse_args().figures:
        for study in studies(folder):
            copy(study, FOLDER / study.name)
            version = re.search(r"nsdyn [^,]+", study.origin.get("versions", "")) or ["nsdyn"]
            origin[study.name] = {"date": study.origin.get("date", ""), "version": version[0]}
    (FOLDER / ORIGIN).write_text(json.dumps(origin, indent=1, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
