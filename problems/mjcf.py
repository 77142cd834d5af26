"""Robots and mechanisms from MJCF files, with closures that switch.

    problem = problems.from_mjcf("cassie.xml", keyframe="home")
    problem = problems.from_mjcf("hand.xml", toggle=(("grip", 0.4, True), ("grip", 0.9, False)))

MuJoCo (extra `mjcf`) reads the file; `nsdyn.problems.mjcf_tree` says what is made of it,
`nsdyn.problems.mjcf_file` what is not. Closures (`<equality>`: connect, weld, joint) are rows that
hold exactly, not springs. One that is switched on at a given time takes away the relative velocity
by the impulse law of the run, and holds what it finds at that time.

A start at which closures are open, as by rounding in a keyframe, is moved until they hold: by
Newton's method with the smallest motion in the mass metric, and v to the nearest velocity,

    min dx^T M dx  with  J dx = -g                                                             (1)
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import nsdyn
from nsdyn._types import Numbers, Params
from nsdyn.constraints.scheduled import check_times
from nsdyn.errors import ProblemError, unknown
from nsdyn.multibody.closures import Connect, Together, Weld
from nsdyn.multibody.skeleton import TreeShape, tree_coordinates
from nsdyn.multibody.tree_dynamics import tree_system
from nsdyn.problems.mjcf_file import File, named, read_file
from nsdyn.problems.mjcf_tree import Closure, Mechanism, mechanism

CLOSED = 1e-13  # residual of closures at the start, in metres and radians
ITERATIONS = 50
DEPENDENT = 1e-9  # relative size of gradients that count as zero


def from_mjcf(
    path: str | Path,
    toggle: Iterable[tuple[str, float, bool]] = (),
    keyframe: str | int | None = None,
    gravity: Numbers | None = None,
    q0: Numbers | None = None,
    v0: Numbers | None = None,
    t_end: float = 1.0,
    ignore: Iterable[str] = (),
) -> nsdyn.Problem:
    """The mechanism of an MJCF file; toggle=((closure, time, on), ...) in ascending order switches
    closures of the file by name.

    The motion starts at rest where the file draws the mechanism, or at a keyframe, by name or
    number; closures that are open there are closed, and v0 is made consistent with them. q0 and v0
    are MuJoCo's qpos and qvel; a q0 that is given is taken as it is. gravity: instead of that of
    the file.
    ignore: what to leave out though it acts on the motion, such as "fluid" or "tendon"; without it
    a file with such elements is refused.

    params: tree, torque (a force for each velocity, zero), closures (the numbers of each), toggle
    (the times).
    """
    toggle = tuple(toggle)
    try:
        file = read_file(path, ignore)
        found = mechanism(file, gravity)
        times, stages = _stages(found.closures, toggle)
        start = _start(file, found, keyframe, q0, v0)
    except ProblemError as error:
        if str(error).startswith("from_mjcf"):
            raise
        raise ProblemError(f"from_mjcf({str(path)!r}): {error}") from error
    switched = {name for name, _, _ in toggle}
    fixed = tuple(
        closure.given
        for name, closure in found.closures.items()
        if closure.active and name not in switched
    )
    parts: tuple = (nsdyn.Fixed(Together(fixed)),) if fixed else ()
    if toggle:
        parts += (nsdyn.Scheduled(times=toggle_times, stages=stages),)
    params = {
        "tree": found.tree,
        "torque": np.zeros(found.tree.nv),
        "closures": {name: closure.numbers for name, closure in found.closures.items()},
        "toggle": np.array(times, float),
    }
    return nsdyn.Problem(
        file.name,
        tree_system(found.tree),
        parts,
        q0=start[0],
        v0=start[1],
        t_end=t_end,
        params=params,
        coordinates=tree_coordinates(found.tree),
        shape=TreeShape(_held(found.closures)),
    )


def _held(closures: dict[str, Closure]) -> tuple[tuple[int, str, str], ...]:
    """The frames of closures between bodies, for the drawing."""
    between = [c.given for c in closures.values() if isinstance(c.given, Connect | Weld)]
    return tuple(end for g in between for end in ((g.a, g.name, "a"), (g.b, g.name, "b")))


def toggle_times(p: Params) -> Any:
    return p["toggle"]


def _stages(closures: dict[str, Closure], toggle: tuple) -> tuple[list[float], tuple]:
    """The times, and what holds before, between and after them."""
    for entry in toggle:
        if not isinstance(entry, tuple | list) or len(entry) != 3:
            raise ProblemError(
                "toggle: expected ((closure, time, on), ...), as in (('grip', 0.4, True),), found "
                f"{entry!r}"
            )
        if entry[0] not in closures:
            raise unknown("toggle: closure", str(entry[0]), closures)
    times = [float(time) for _, time, _ in toggle]
    check_times(np.array(times), len(times) + 1)
    now: dict[str, Any] = {
        name: closures[name].given for name, _, _ in toggle if closures[name].active
    }
    stages: list[tuple] = [tuple(now.values())]
    for name, time, on in toggle:
        if bool(on) == (name in now):
            raise ProblemError(
                f"toggle: expected that {name!r} is switched {'off' if on else 'on'} at "
                f"t = {time:g}, as it is {'on' if on else 'off'} then, found {on!r}"
            )
        if on:
            now[name] = closures[name].held
        else:
            del now[name]
        stages.append(tuple(now.values()))
    return times, tuple(stages)


# The start.


def _start(
    file: File, found: Mechanism, keyframe: str | int | None, q0: Any, v0: Any
) -> tuple[np.ndarray, np.ndarray]:
    """q0 and v0 as given, else those of the keyframe or of the file, closed."""
    m = file.model
    q, v = m.qpos0.copy(), np.zeros(m.nv)
    if keyframe is not None:
        key = _keyframe(file, keyframe)
        q, v = m.key_qpos[key].copy(), m.key_qvel[key].copy()
    for argument, value, size in (("q0", q0, m.nq), ("v0", v0, m.nv)):
        if value is not None and np.shape(value) != (size,):
            raise ProblemError(
                f"{argument}: expected {size} numbers for {', '.join(found.tree.names)}, found "
                f"shape {np.shape(value)}"
            )
    given = q0 is not None
    q, v = (q if q0 is None else np.array(q0, float)), (v if v0 is None else np.array(v0, float))
    active = [closure.active for closure in found.closures.values()]
    return (q, v) if given or not any(active) else _closed(file, q, v)


def _keyframe(file: File, keyframe: str | int) -> int:
    count = file.model.nkey
    names = [named(file, "KEY", i) or str(i) for i in range(count)]
    if isinstance(keyframe, str):
        if keyframe not in names:
            raise unknown("keyframe", keyframe, names or ("none",))
        return names.index(keyframe)
    if not 0 <= keyframe < count:
        raise ProblemError(f"keyframe: expected 0 ... {count - 1} or a name, found {keyframe}")
    return int(keyframe)


def _closed(file: File, q: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The start on the closures: (1). MuJoCo evaluates them, as it costs no compilation."""
    m, mujoco = file.model, file.mujoco
    bits = mujoco.mjtDisableBit
    m.opt.disableflags |= bits.mjDSBL_CONTACT | bits.mjDSBL_LIMIT | bits.mjDSBL_FRICTIONLOSS
    m.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    data = mujoco.MjData(m)
    data.qpos[:] = q
    for _ in range(ITERATIONS):
        g, J, M = _rows(file, data)
        if np.max(np.abs(g), initial=0.0) <= CLOSED:
            break
        step = _least(J, M, -g)
        if not np.max(np.abs(step)) > 0:
            break
        mujoco.mj_integratePos(m, data.qpos, step, 1.0)
    left = np.max(np.abs(g), initial=0.0)
    if left > np.sqrt(CLOSED):
        raise ProblemError(
            f"expected a start at which all closures hold, found none near it ({left:.3g} is "
            "left); give q0=..., or another keyframe"
        )
    return data.qpos.copy(), v - _least(J, M, J @ v)


def _rows(file: File, data: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Residuals and gradients of the closures, and the mass matrix."""
    m, mujoco = file.model, file.mujoco
    mujoco.mj_fwdPosition(m, data)
    M = np.zeros((m.nv, m.nv))
    mujoco.mj_fullM(m, data, M)
    rows = data.efc_type == mujoco.mjtConstraint.mjCNSTR_EQUALITY
    return data.efc_pos[rows], data.efc_J.reshape(-1, m.nv)[rows], M


def _least(J: np.ndarray, M: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The x with J x = b that is least in the metric of M."""
    L = np.linalg.cholesky(M)
    scaled = np.linalg.solve(L, J.T).T
    return np.linalg.solve(L.T, np.linalg.pinv(scaled, rcond=DEPENDENT) @ b)
