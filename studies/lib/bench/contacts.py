"""Contacts with friction: one warm solution for four of them, and steps of bodies beside MuJoCo's.

MuJoCo's contacts are soft: bodies sink in, by an amount that depends on its settings, and friction
creeps. Its step is one evaluation and one convex problem; that of nsdyn is implicit and its
contacts are rigid. So times of a step are compared, not results. Both take the same step size, and
the same bodies from the same start: a box with eight corners that falls on a floor, bounces and
comes to rest, and a heap of spheres within a rim that settles.

Siconos, whose contacts are rigid, takes the same box with the same step in a process of its own, if
one of the Pythons named in `PYTHONS` has it (`siconos_box`)."""

import json
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nsdyn
from nsdyn import problems
from nsdyn.integrators import MoreauJean
from nsdyn.multibody import free_bodies, surfaces
from nsdyn.numerics import cone
from nsdyn.studies.lib.bench.measure import Line, cores, fastest, line

STEP = 2e-3
STEPS = 1000  # of the box
HEAP, HEAP_STEPS = 16, 100
BATCH = 64
WARM = 20.0  # us at most
ALONE, TOGETHER = 3.0, 1.0  # at most so many steps of MuJoCo
SOLUTIONS = 2000
HALF = (0.15, 0.1, 0.05)
G, MASS, MU, E = 9.81, 1.0, 0.5, 0.3
HEIGHT, TURN = 0.3, 0.3
PYTHONS = ("python3", "/usr/bin/python3")  # that of the shell, and that of Debian's packages
PATIENCE = 120.0  # s
NO_SICONOS = "no comparison of contacts with Siconos: not installed (on Debian: python3-siconos)"
NO_MUJOCO = "no comparison of contacts with mujoco: not installed (extra `peers`)"


def falling_box() -> nsdyn.Problem:
    """A box, turned about a horizontal axis, above a floor."""
    square = np.array(HALF) ** 2
    floor = surfaces.Plane()
    corners = [(corner, floor) for corner in surfaces.box(0, HALF)]
    turned = jnp.array([[np.cos(TURN / 2), np.sin(TURN / 2), 0.0, 0.0]])
    place = jnp.array([[0.0, 0.0, HEIGHT]])
    return nsdyn.Problem(
        "falling_box",
        free_bodies.SYSTEM,
        surfaces.contacts(corners, mu=MU, e=E),
        q0=free_bodies.configuration(place, turned),
        v0=np.array([0.5, 0.0, 0.0, 0.0, 0.0, 1.0]),
        t_end=STEP * STEPS,
        params={
            "m": np.array([MASS]),
            "J": MASS / 3 * (np.sum(square) - square)[None],
            "g": np.array([0.0, 0.0, -G]),
        },
    )


def contacts(repeats: int) -> dict:
    """Steps with contacts, and one solution."""
    lines: list[Line] = [line("4 contacts, one warm solution [us]", 1e6 * warm(repeats), WARM)]
    box = 1e6 * _seconds(falling_box(), STEPS, repeats)
    heap = 1e6 * _seconds(problems.sphere_pile(HEAP), HEAP_STEPS, 1)
    batch = 1e6 * _batch_seconds(repeats)
    lines += [
        line("box with 8 corners: nsdyn, MoreauJean step [us]", box),
        line(f"box, {BATCH} trajectories on one core: nsdyn, MoreauJean step [us]", batch),
        line(f"heap of {HEAP} spheres: nsdyn, MoreauJean step [us]", heap),
    ]
    found, missing = _beside_siconos(box, repeats), []
    if not found:
        missing.append(NO_SICONOS)
    if find_spec("mujoco") is None:
        missing.append(NO_MUJOCO)
    else:
        found = [*_beside_mujoco(box, batch, heap, repeats), *found]
    note = {"note": "; ".join(missing)} if missing else {}
    return {"contacts": {"lines": [*lines, *found]} | note}


def _beside_mujoco(box: float, batch: float, heap: float, repeats: int) -> list[Line]:
    """Steps of MuJoCo, and those of nsdyn [us] over them."""
    soft = 1e6 * fastest(_mujoco(_box_text(), STEPS), repeats) / STEPS
    soft_heap = 1e6 * fastest(_mujoco(_heap_text(), HEAP_STEPS), repeats) / HEAP_STEPS
    over = "step over that of MuJoCo, whose contacts are soft"
    return [
        line("box with 8 corners: MuJoCo, step [us]", soft),
        line(f"box with 8 corners: {over}", box / soft, ALONE),
        line(f"box, {BATCH} trajectories on one core: {over}", batch / soft, TOGETHER),
        line(f"heap of {HEAP} spheres: MuJoCo, step [us]", soft_heap),
        line(f"heap of {HEAP} spheres: {over}", heap / soft_heap),
    ]


def _beside_siconos(box: float, repeats: int) -> list[Line]:
    """A step of Siconos, and that of nsdyn [us] over it; nothing if it is not there."""
    found = siconos(repeats)
    if found is None:
        return []
    rigid = 1e6 * found["seconds"]
    return [
        line("box, contacts by Bullet: Siconos, Moreau-Jean step [us]", rigid),
        line("box with 8 corners: step over that of Siconos, with contacts by Bullet", box / rigid),
    ]


def siconos(repeats: int, steps: int = STEPS) -> dict[str, float] | None:
    """Seconds of a step and the last height of the box in Siconos; None if it is not there."""
    box = falling_box()
    given: dict[str, Any] = {
        "step": STEP,
        "steps": steps,
        "repeats": repeats,
        "mass": MASS,
        "g": G,
        "mu": MU,
    }
    given |= {"e": E, "half": HALF, "q": np.asarray(box.q0).tolist()}
    given |= {"v": np.asarray(box.v0).tolist()}
    script = str(Path(__file__).with_name("siconos_box.py"))
    for python in filter(None, map(shutil.which, PYTHONS)):
        command = [python, "-I", script, json.dumps(given)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0:
            return json.loads(done.stdout.splitlines()[-1])
    return None


def warm(repeats: int) -> float:
    """The time of one solution for the legs of a table that slides, from one that is near, within a
    compiled loop."""
    legs = np.array([[x, y, -0.3] for x in (-0.4, 0.4) for y in (-0.3, 0.3)])
    normal_first = np.eye(3)[[2, 0, 1]]
    skew = lambda r: np.cross(np.eye(3), r)
    H = np.concatenate([normal_first @ np.hstack([np.eye(3), -skew(r)]) for r in legs])
    W = jnp.asarray(H @ np.diag([0.1, 0.1, 0.1, 1.0, 1.0, 0.6]) @ H.T)
    b = jnp.asarray(np.tile([-0.02, 1.0, 0.4], (4, 1)))
    mu, on = jnp.full(4, 0.3), jnp.ones(4, bool)

    @jax.jit
    def many(P: jax.Array) -> jax.Array:
        changed = lambda i: b * (1.0 + 1e-4 * jnp.sin(0.1 * i))
        following = lambda i, P: cone.solve(W, changed(i), mu, on, P).P
        return jax.lax.fori_loop(0, SOLUTIONS, following, P)

    P = cone.solve(W, b, mu, on, jnp.zeros((4, 3)), careful=True).P
    run = lambda: many(P).block_until_ready()
    run()  # compiles
    return fastest(run, repeats) / SOLUTIONS


def _seconds(problem: nsdyn.Problem, steps: int, repeats: int) -> float:
    """The time of one step of one trajectory."""
    run = partial(nsdyn.simulate, problem, MoreauJean(), step=STEP, save_every=steps, check=False)
    run = partial(run, t_end=STEP * steps)
    with cores(1):
        for _ in range(1 + 30_000 // steps if steps == STEPS else 1):
            run()  # compiles, at last well
        return fastest(run, repeats) / steps


def _batch_seconds(repeats: int) -> float:
    """The time of one step of one box in a batch."""
    box = falling_box()
    v0 = np.asarray(box.v0) * np.linspace(0.5, 1.0, BATCH)[:, None]
    steps = partial(nsdyn.sweep, box, MoreauJean(), step=STEP, save_every=STEPS)
    run = partial(steps, v0=v0, t_end=STEP * STEPS)
    with cores(1):
        for _ in range(5):
            run()  # compiles, at last well
        return fastest(run, repeats) / (BATCH * STEPS)


def _mujoco(text: str, steps: int) -> Callable[[], Any]:
    """A run from the start."""
    import mujoco

    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)

    def run() -> None:
        mujoco.mj_resetData(model, data)
        mujoco.mj_step(model, data, steps)

    return run


def _box_text() -> str:
    turned = f"{np.cos(TURN / 2)} {np.sin(TURN / 2)} 0 0"
    size = " ".join(map(str, HALF))
    body = (
        f'<body pos="0 0 {HEIGHT}" quat="{turned}"><freejoint/>'
        f'<geom type="box" size="{size}" mass="{MASS}" friction="{MU} 0 0"/></body>'
    )
    return _world(f'<geom type="plane" size="5 5 1" friction="{MU} 0 0"/>{body}')


def _heap_text() -> str:
    heap = problems.sphere_pile(HEAP)
    places = np.asarray(heap.q0).reshape(HEAP, 7)[:, :3]
    R, mu = float(heap.params["R"]), float(heap.params["mu"])
    surface = f'friction="{mu} 0 0"'
    reach = float(np.max(-places[:, 1])) + R * (1 + 2 * float(heap.params["rim"]))
    walls = ""
    for angle in 2 * np.pi / 3 * np.arange(3):
        normal = np.array([np.sin(angle), np.cos(angle), 0.0])
        place = " ".join(f"{x:.9g}" for x in -reach * normal)
        axis = " ".join(f"{x:.9g}" for x in normal)
        walls += f'<geom type="plane" size="5 5 1" pos="{place}" zaxis="{axis}" {surface}/>'
    balls = "".join(
        f'<body pos="{x:.9g} {y:.9g} {z:.9g}"><freejoint/>'
        f'<geom type="sphere" size="{R}" mass="{float(heap.params["m"][0])}" {surface}/></body>'
        for x, y, z in places
    )
    return _world(f'<geom type="plane" size="5 5 1" {surface}/>{walls}{balls}')


def _world(inside: str) -> str:
    return (
        f'<mujoco><option timestep="{STEP}" gravity="0 0 {-G}"/>'
        f"<worldbody>{inside}</worldbody></mujoco>"
    )
