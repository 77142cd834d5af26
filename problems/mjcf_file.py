"""MJCF files, read by MuJoCo (extra `mjcf`): what they say about bodies, joints and closures, what
of it is left out, and what cannot be.

MuJoCo resolves defaults, includes, frames and the inertias of geoms. A file whose meshes or
textures are missing is read without the geoms of bodies that have an `<inertial>` of their own,
since these geoms only touch and show.

What acts on the motion and has no counterpart here is refused by name, unless the user lists it in
`ignore`; what acts only through contacts, drives and stops is left out and listed in a warning.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nsdyn.errors import FileError, LeftOutWarning, ProblemError, unknown, warn

MUJOCO = 4  # the first version with all the fields that are read here


class File(NamedTuple):
    """The compiled model of a file, its name, and the module that made it."""

    name: str
    model: Any
    mujoco: Any


def read_file(path: str | Path, ignore: Iterable[str] = ()) -> File:
    """Compile a file. Refuses what cannot be represented, and warns once of what is left out."""
    mujoco = _mujoco(path)
    spec = _parsed(mujoco, path)
    try:
        model = spec.compile()
    except ValueError as error:
        spec = _parsed(mujoco, path)  # a spec that failed keeps its error
        model = _without_geoms(mujoco, spec, path, error)
    file = File(spec.modelname, model, mujoco)
    ignored = _ignored(path, ignore)
    left_out = []
    for kind, find in ACTING.items():
        found = find(file)
        if found and kind not in ignored:
            raise ProblemError(
                f"from_mjcf({str(path)!r}): {_listed(found)}: expected none, as {NO_PLACE[kind]}; "
                f"remove it from the file, or leave it out with ignore=({kind!r},)"
            )
        left_out += [f"{kind} ({_listed(found)})"] if found else []
    if file.model.njnt == 0:
        raise ProblemError(f"from_mjcf({str(path)!r}): expected a joint that moves, found none")
    left_out += [text for count in UNHEEDED if (text := count(file))]
    if left_out:
        warn(f"{Path(path).name}: left out: {', '.join(left_out)}", LeftOutWarning)
    return file


def _mujoco(path: str | Path) -> Any:
    way_out = "install it with: pip install 'nsdyn[mjcf]'"
    try:
        import mujoco
    except ImportError:
        raise FileError(
            f"{path}: MJCF files are read by MuJoCo, which is not installed; {way_out}"
        ) from None
    if int(mujoco.__version__.split(".")[0]) < MUJOCO:
        raise FileError(
            f"{path}: expected MuJoCo {MUJOCO} or newer, found {mujoco.__version__}; {way_out}"
        )
    return mujoco


def _parsed(mujoco: Any, path: str | Path) -> Any:
    try:
        head = Path(path).read_bytes()
    except OSError as error:
        raise FileError(
            f"from_mjcf({str(path)!r}): expected a readable MJCF file, found none "
            f"({error.strerror})"
        ) from error
    if b"<mujoco" not in head and b"<robot" in head:
        raise FileError(
            f"from_mjcf({str(path)!r}): expected a <mujoco>, found a <robot>; name the file .urdf"
        )
    try:
        return mujoco.MjSpec.from_file(str(path))
    except ValueError as error:
        raise FileError(f"from_mjcf({str(path)!r}): expected MJCF, found: {_line(error)}") from None


def _without_geoms(mujoco: Any, spec: Any, path: str | Path, first: ValueError) -> Any:
    """The model without geoms that add no mass, for their files may be missing."""
    always = mujoco.mjtInertiaFromGeom.mjINERTIAFROMGEOM_TRUE
    if spec.compiler.inertiafromgeom == always:
        raise FileError(f"from_mjcf({str(path)!r}): {_line(first)}")
    for body in spec.bodies:
        if body.explicitinertial or not _moves(body):
            for geom in body.geoms:
                spec.delete(geom)
    for part in (*spec.skins, *spec.pairs, *spec.sensors):
        spec.delete(part)
    used = {geom.meshname for geom in spec.geoms}
    for shown in (*spec.geoms, *spec.sites, *spec.tendons):
        shown.material = ""
    for asset in (*spec.materials, *spec.textures, *spec.hfields):
        spec.delete(asset)
    for mesh in spec.meshes:
        if mesh.name not in used:
            spec.delete(mesh)
    try:
        return spec.compile()
    except ValueError as error:
        raise FileError(
            f"from_mjcf({str(path)!r}): {_line(error)}; without its geoms a body needs an "
            "<inertial>"
        ) from None


def _moves(body: Any) -> bool:
    """Whether a body or one that carries it has a joint."""
    while body.id != 0:
        if body.joints:
            return True
        body = body.parent
    return False


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _ignored(path: str | Path, ignore: Iterable[str]) -> set[str]:
    kinds = (ignore,) if isinstance(ignore, str) else tuple(ignore)
    for kind in kinds:
        if kind not in ACTING:
            raise unknown(f"from_mjcf({str(path)!r}): ignore:", kind, ACTING)
    return set(kinds)


def _listed(names: list[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def named(file: File, what: str, index: int) -> str:
    """The name of an object, or "" if it has none; what: "BODY", "JOINT", ..."""
    kind = getattr(file.mujoco.mjtObj, f"mjOBJ_{what}")
    return file.mujoco.mj_id2name(file.model, kind, int(index)) or ""


def called(file: File, what: str, index: int) -> str:
    """An object as the file says it: <joint name='x'>, or by its number."""
    name = named(file, what, index)
    return f"<{what.lower()} name={name!r}>" if name else f"<{what.lower()}> number {index}"


# What acts on the motion.


def _any(*arrays: np.ndarray) -> np.ndarray:
    """Where any number of a row is not zero."""
    each = lambda a: np.any(a != 0, axis=tuple(range(1, a.ndim)))
    return np.any([each(a) for a in arrays], axis=0)


def _all_of(file: File, what: str, mask: np.ndarray) -> list[str]:
    return [called(file, what, int(i)) for i in np.flatnonzero(mask)]


def _fluid(file: File) -> list[str]:
    option = file.model.opt
    given = {"density": option.density, "viscosity": option.viscosity}
    return [f"<option {name}='{value:g}'>" for name, value in given.items() if value]


def _gravcomp(file: File) -> list[str]:
    return _all_of(file, "BODY", file.model.body_gravcomp != 0)


def _springs(file: File) -> list[str]:
    """Springs that are not -k (q - q_0)."""
    m = file.model
    turning = np.isin(
        m.jnt_type, [file.mujoco.mjtJoint.mjJNT_BALL, file.mujoco.mjtJoint.mjJNT_FREE]
    )
    return _all_of(file, "JOINT", (turning & (m.jnt_stiffness != 0)) | _any(m.jnt_stiffnesspoly))


def _plastic(file: File) -> list[str]:
    return _all_of(file, "JOINT", file.model.jnt_plasticadr >= 0)


def _dampers(file: File) -> list[str]:
    m = file.model
    joints = sorted({int(j) for j in m.dof_jntid[_any(m.dof_dampingpoly)]})
    return [called(file, "JOINT", j) for j in joints]


def _tendons(file: File) -> list[str]:
    m = file.model
    stiff = _any(m.tendon_stiffness, m.tendon_stiffnesspoly)
    return _all_of(
        file,
        "TENDON",
        stiff | _any(m.tendon_damping, m.tendon_dampingpoly, m.tendon_armature),
    )


def _flexes(file: File) -> list[str]:
    return [called(file, "FLEX", i) for i in range(file.model.nflex)]


def _plugins(file: File) -> list[str]:
    return [called(file, "PLUGIN", i) for i in range(file.model.nplugin)]


def _actuators(file: File) -> list[str]:
    m = file.model
    return _all_of(
        file, "ACTUATOR", _any(m.actuator_armature, m.actuator_damping, m.actuator_dampingpoly)
    )


def _equalities(file: File) -> list[str]:
    kinds = file.mujoco.mjtEq
    known = [kinds.mjEQ_CONNECT, kinds.mjEQ_WELD, kinds.mjEQ_JOINT]
    return _all_of(file, "EQUALITY", ~np.isin(file.model.eq_type, known))


ACTING: dict[str, Callable[[File], list[str]]] = {
    "fluid": _fluid,
    "gravcomp": _gravcomp,
    "spring": _springs,
    "yield": _plastic,
    "damping": _dampers,
    "tendon": _tendons,
    "flex": _flexes,
    "plugin": _plugins,
    "actuator": _actuators,
    "equality": _equalities,
}
NO_PLACE = {
    "fluid": "no fluid acts on the bodies here",
    "gravcomp": "gravity acts on all bodies alike here",
    "spring": "springs here are -k (q - q_0) in hinges and slides",
    "yield": "springs here do not yield",
    "damping": "dampers here are -d v",
    "tendon": "tendons with stiffness, damping or armature have no counterpart here",
    "flex": "bodies are rigid here",
    "plugin": "plugins are not run here",
    "actuator": "drives with armature or damping of their own have no counterpart here; write them "
    "as those of the joint",
    "equality": "closures here are connect, weld and joint",
}


# What acts through contacts, drives and stops.


def _counted(count: int, one: str, many: str | None = None) -> str:
    return f"{count} {one if count == 1 else many or one + 's'}" if count else ""


def _contacts(file: File) -> str:
    m = file.model
    touching = (m.geom_contype | m.geom_conaffinity) != 0
    count = int(np.sum(touching)) if np.sum(touching) > 1 else 0
    return _counted(count + m.npair, "geom or pair that could touch", "geoms that could touch")


def _drives(file: File) -> str:
    return _counted(file.model.nu, "actuator")


def _limits(file: File) -> str:
    return _counted(int(np.sum(file.model.jnt_limited)), "joint limit")


def _friction(file: File) -> str:
    m = file.model
    joints = {int(j) for j in m.dof_jntid[m.dof_frictionloss != 0]}
    return _counted(len(joints), "joint's frictionloss", "joints' frictionloss")


def _slack(file: File) -> str:
    slack = file.model.ntendon - len(_tendons(file))
    return _counted(slack, "tendon without forces", "tendons without forces")


def _mocap(file: File) -> str:
    return _counted(file.model.nmocap, "mocap body's motion", "mocap bodies' motions")


UNHEEDED = (_contacts, _drives, _limits, _friction, _slack, _mocap)
