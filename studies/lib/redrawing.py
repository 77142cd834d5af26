"""Figures drawn again from archived data, without computing anything."""

from pathlib import Path

from nsdyn import studies
from nsdyn.errors import FileError


def archived(folder: Path) -> list[str]:
    """The studies whose data are in a folder."""
    found = [name for name in studies.names() if (folder / name / "data").is_dir()]
    if not found:
        raise FileError(
            f"redraw: no data of a study in {folder}; make some with: nsdyn figures --out {folder}"
        )
    return found


def drawn(name: str, folder: Path) -> list[Path]:
    """Draw a study of ours in its folder, or a study file in the folder that is named after it."""
    if not name.endswith(".toml"):
        return studies.get(name).draw(folder / name)
    from nsdyn.studies import study
    from nsdyn.studies.lib import study_file

    plan, place = study_file.read(name), Path(Path(name).stem)
    found = study.collect(plan, place / "data")
    if not found.ok.any():
        raise FileError(f"redraw: {place / 'data'} has no run of {name} that reached its end")
    return found.save(place)
