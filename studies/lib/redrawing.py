"""Figures drawn from archived data: again without computing anything, or only if they are not what
would be drawn."""

import shlex
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import nsdyn
from nsdyn import studies
from nsdyn._code_digest import code_digest
from nsdyn._files import read_json, write_json
from nsdyn.errors import FileError
from nsdyn.results.sweep_folder import WHOLE as SWEEP
from nsdyn.studies.lib import archive, compare_figures, kept_comparison, style
from nsdyn.studies.lib.study_tables import ORIGIN

DRAWN = "drawn.json"  # beside the data: what the figures show, and which files they are


def _run_drawn(path: Path) -> list[Path]:
    """The plot of a saved run or sweep, beside it. It says what the run says of itself."""
    run = nsdyn.load(path)
    beside = path / ORIGIN if path.is_dir() else path.with_suffix(".json")
    own = {"command": shlex.join(["nsdyn", "redraw", str(path)]), **archive.provenance()}
    return style.save_plot(run.plot, path, read_json(beside) or own)


def archived(folder: Path) -> list[str]:
    """The studies whose data are in a folder."""
    found = [name for name in studies.names() if (folder / name / "data").is_dir()]
    if not found:
        raise FileError(
            f"redraw: no data of a study in {folder}; make some with: nsdyn figures --out {folder}"
        )
    return found


def made(study: ModuleType, folder: Path, force: bool) -> list[Path]:
    """The files of a study, drawn if its data, the code that draws them or matplotlib changed."""
    study.compute(folder, force=force)
    record = folder / "data" / DRAWN
    shown = {
        "code": code_digest(study.draw),
        "data": archive.read_index(folder / "data")["names"],
        "matplotlib": metadata.version("matplotlib"),
    }
    known: dict[str, Any] = read_json(record)
    files = [folder / name for name in known.pop("files", [])]
    if not force and known == shown and all(file.is_file() for file in files):
        return files
    files = study.draw(folder)
    write_json(record, shown | {"files": [str(file.relative_to(folder)) for file in files]})
    return files


def drawn(name: str, folder: Path) -> list[Path]:
    """Draw a study of ours in its folder, a study file in the folder that is named after it, what
    `compare` has left in a folder, or a saved run or sweep."""
    path = Path(name)
    if kept_comparison.is_there(path):
        return compare_figures.write(kept_comparison.read(path), path)
    if path.suffix == ".nc" or (path / SWEEP).is_file():
        return _run_drawn(path)
    if not name.endswith(".toml"):
        (folder / name / "data" / DRAWN).unlink(missing_ok=True)  # they may look otherwise now
        return studies.get(name).draw(folder / name)
    from nsdyn.studies import study
    from nsdyn.studies.lib import study_file

    plan, place = study_file.read(name), Path(Path(name).stem)
    found = study.collect(plan, place / "data")
    if not found.ok.any():
        raise FileError(
            f"redraw: {place / 'data'} has no run of {name} that reached its end; for data in "
            f"another folder: nsdyn study {name} --collect --out FOLDER"
        )
    return found.save(place)
