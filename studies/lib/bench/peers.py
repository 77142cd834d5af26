"""Other people's programs for serial chains, where they are installed (the extra `peers`): MuJoCo's
step with its RK4, and the forward dynamics of Pinocchio. The chain is that of `serial_chain` without
a floor; accelerations are compared, so that all compute the same. The step of the longest chain
stands beside MuJoCo's: one trajectory, and a batch on one core, where MuJoCo takes the trajectories
one after the other."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nsdyn
from nsdyn import problems
from nsdyn.multibody.chain_dynamics import accelerations
from nsdyn.studies.lib.bench.measure import Line, cores, fastest, line
from nsdyn.studies.lib.bench.runs import RK4, step_seconds

LINKS = (6, 7)
LENGTH, MASS, RADIUS, TWIST, G = 1.0, 1.0, 0.05, 0.5, 9.81
STEP = 1e-3
STEPS = 20_000
CALLS = 2000
AGREE = 1e-9  # relative
BATCH, BATCH_STEPS = 64, 1000
ALONE, TOGETHER = 1.5, 1.0  # at most so many steps of MuJoCo


def peers(repeats: int) -> dict:
    """Steps and forward dynamics of short chains."""
    lines: list[Line] = []
    differences = {}
    for n in LINKS:
        rates = np.linspace(0.5, -0.5, n)
        problem = problems.serial_chain(
            n, LENGTH, MASS, RADIUS, TWIST, G, offset=None, v0=rates, t_end=STEP * STEPS
        )
        step = 1e6 * step_seconds(problem, RK4, STEPS, repeats)[0]
        lines.append(line(f"chain of {n} links: nsdyn, RK4 step [us]", step))
        a = _accelerations(problem, rates)
        for name, package, build in (
            ("MuJoCo, RK4 step", "mujoco", _mujoco),
            ("Pinocchio, one forward dynamics from Python", "pinocchio", _pinocchio),
        ):
            if find_spec(package) is None:
                continue
            run, found, count = build(n, rates)
            differences[f"{package} {n}"] = float(np.max(np.abs(found - a)) / np.max(np.abs(a)))
            us = 1e6 * fastest(run, repeats) / count
            lines.append(line(f"chain of {n} links: {name} [us]", us))
            if package == "mujoco" and n == LINKS[-1]:
                lines += _beside(problem, step, us, repeats)
    return {"peers": {"lines": lines, "differences": differences} | _note(differences)}


def _beside(problem: Any, step: float, mujoco: float, repeats: int) -> list[Line]:
    """A step alone and one in a batch, over a step of MuJoCo."""
    n = len(problem.v0)
    batch = 1e6 * _batch_seconds(problem, repeats)
    title = f"chain of {n} links, {BATCH} trajectories on one core"
    over = "RK4 step over that of MuJoCo"
    return [
        line(f"chain of {n} links: {over}", step / mujoco, ALONE),
        line(f"{title}: nsdyn, RK4 step [us]", batch),
        line(f"{title}: {over}", batch / mujoco, TOGETHER),
    ]


def _batch_seconds(problem: Any, repeats: int) -> float:
    """The time of one step of one trajectory in a batch."""
    v0 = np.asarray(problem.v0) * np.linspace(0.5, 1.0, BATCH)[:, None]
    steps = partial(nsdyn.sweep, problem, RK4, step=STEP, save_every=BATCH_STEPS)
    run = partial(steps, v0=v0, t_end=STEP * BATCH_STEPS)
    with cores(1):
        run()  # compiles
        return fastest(run, repeats) / (BATCH * BATCH_STEPS)


def _note(differences: dict[str, float]) -> dict[str, str]:
    missing = [name for name in ("mujoco", "pinocchio") if find_spec(name) is None]
    notes = [f"no comparison with {name}: not installed (extra `peers`)" for name in missing]
    notes += [f"{k}: accelerations differ by {d:.1e}" for k, d in differences.items() if d > AGREE]
    return {"note": "; ".join(notes)} if notes else {}


def _accelerations(problem: Any, rates: np.ndarray) -> np.ndarray:
    v = jnp.asarray(rates)
    dynamics = jax.jit(accelerations)
    return np.asarray(dynamics(problem.params["chain"], problem.q0, v, jnp.zeros_like(v)))


def _inertia() -> np.ndarray:
    across = (3 * RADIUS**2 + LENGTH**2) / 12
    return MASS * np.array([RADIUS**2 / 2, across, across])


def _axis(i: int) -> np.ndarray:
    return np.array([0.0, np.cos(TWIST * i), np.sin(TWIST * i)])


def _mujoco(n: int, rates: np.ndarray) -> tuple[Callable, np.ndarray, int]:
    """Many steps in one call, the accelerations at the start, and the number of steps."""
    import mujoco

    words = lambda x: " ".join(f"{value:.17g}" for value in x)
    bodies = ""
    for i in reversed(range(n)):
        place = words([LENGTH if i else 0.0, 0.0, 0.0])
        bodies = (
            f'<body pos="{place}"><joint type="hinge" axis="{words(_axis(i))}"/>'
            f'<inertial pos="{LENGTH / 2} 0 0" mass="{MASS}" diaginertia="{words(_inertia())}"/>'
            f"{bodies}</body>"
        )
    model = mujoco.MjModel.from_xml_string(
        f'<mujoco><option integrator="RK4" timestep="{STEP}" gravity="0 0 {-G}"/>'
        f"<worldbody>{bodies}</worldbody></mujoco>"
    )
    data = mujoco.MjData(model)
    data.qvel[:] = rates
    mujoco.mj_forward(model, data)
    return partial(mujoco.mj_step, model, data, CALLS), np.array(data.qacc), CALLS


def _pinocchio(n: int, rates: np.ndarray) -> tuple[Callable, np.ndarray, int]:
    """Many calls of the articulated-body algorithm, the accelerations at the start, and the number
    of calls."""
    import pinocchio

    model, joint = pinocchio.Model(), 0
    model.gravity.linear = np.array([0.0, 0.0, -G])
    centre = np.array([LENGTH / 2, 0.0, 0.0])
    for i in range(n):
        place = pinocchio.SE3(np.eye(3), 2 * centre if i else 0 * centre)
        kind = pinocchio.JointModelRevoluteUnaligned(_axis(i))
        joint = model.addJoint(joint, kind, place, f"joint {i}")
        body = pinocchio.Inertia(MASS, centre, np.diag(_inertia()))
        model.appendBodyToJoint(joint, body, pinocchio.SE3.Identity())
    data = model.createData()
    q, torque = np.zeros(n), np.zeros(n)

    def run() -> None:
        for _ in range(CALLS):
            pinocchio.aba(model, data, q, rates, torque)

    return run, np.array(pinocchio.aba(model, data, q, rates, torque)), CALLS
