"""Stiff mechanisms: the implicit method against explicit ones, at the same error.

A mass of 1 kg on a spring of 1e6 N/m oscillates at 1000 rad/s. Users of such a spring want the slow
motion that it follows. An explicit method takes some hundred to a thousand steps in each second of
it, whatever its tolerances, since with longer ones it is unstable. All cases begin on, or close to,
a motion without oscillations of the spring, and last ten seconds.

    follower          a mass on a spring and a damper whose end moves as sin t,
                      m q'' = -k (q - sin t) - c (q' - cos t)                                   (1)
    slider crank      a crank that turns at 1 rad/s and a slider on a line, three constraints, with
                      the spring and the damper for a rod between them
    double pendulum   a mass on a rod, a constraint, and a second mass that hangs from it by the
                      spring; it swings at up to 7 rad/s
    governor          problem A05 of IFToMM, `flyball_governor`: 8e5 N/m, no constraint

The error of a run is the largest of its samples, relative to the largest entry of q and of v, with
`DormandPrince(8)` at the tolerance REFERENCE for a reference. The time to reach an error is the
shortest of all runs whose error is at most that, each method with a series of tolerances
(rtol = atol).
"""

from functools import cache, partial
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import nsdyn
from nsdyn import integrators, problems
from nsdyn._types import AnyTime, Configuration, Params, Velocity
from nsdyn.studies.lib.bench.measure import Line, line
from nsdyn.studies.lib.bench.precision import time_to, timed

STIFFNESS, DAMPING, GRAVITY = 1e6, 2e3, 9.81
SPRING, CRANK = 0.5, 0.5  # lengths
SECONDS = 10.0
SAMPLES = 10
LEVELS = (1e-4, 1e-6)
TARGET = 0.1
TOLERANCES = tuple(10.0 ** -(k / 2) for k in range(4, 16))
REFERENCE = 1e-11
MOST = 1_000_000  # steps between two samples
MADE_WELL = 1001  # samples of a run, from which on its program is compiled well at once
IMPLICIT, EXPLICIT = "RadauIIA", ("DormandPrince(5)", "DormandPrince(8)")


# Mechanisms


def one_mass(q: Configuration, p: Params) -> Array:
    return jnp.eye(1)


def driven(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    return -p["k"] * (q - jnp.sin(t)) - p["c"] * (v - jnp.cos(t))  # (1)


FOLLOWER = nsdyn.System(mass=one_mass, force=driven)


def followed(t: Any, k: float, c: float) -> tuple[Any, Any]:
    """q and v of the solution of (1) without any oscillation of its own, q = Im(w exp(i t))."""
    w = (k + 1j * c) / (k - 1 + 1j * c) * np.exp(1j * t)
    return w.imag, w.real


def follower(t_end: float = SECONDS, k: float = STIFFNESS, c: float = DAMPING) -> nsdyn.Problem:
    q, v = followed(0.0, k, c)
    numbers = {"k": k, "c": c}
    return nsdyn.Problem("follower", FOLLOWER, q0=[q], v0=[v], t_end=t_end, params=numbers)


def two_masses(q: Configuration, p: Params) -> Array:
    return jnp.eye(4)


def pulled(q: Configuration, v: Velocity, rest: float, p: Params) -> Velocity:
    """A stiff damped spring between two masses."""
    d = q[2:] - q[:2]
    length = jnp.sqrt(d @ d)
    along = d / length
    pull = (p["k"] * (length - rest) + p["c"] * (along @ (v[2:] - v[:2]))) * along
    return jnp.concatenate([pull, -pull])


def hanging(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    return pulled(q, v, SPRING, p) - GRAVITY * jnp.array([0.0, 1.0, 0.0, 1.0])


def rod(q: Configuration, t: AnyTime, p: Params) -> Array:
    return 0.5 * (q[0] ** 2 + q[1] ** 2 - 1.0)


HANGING = nsdyn.System(mass=two_masses, force=hanging)


def double_pendulum(t_end: float = SECONDS, angle: float = 0.6) -> nsdyn.Problem:
    """The first mass on a rod, the second hanging from it by the spring, which is stretched as much
    as at rest: it does not oscillate."""
    along = np.array([np.sin(angle), -np.cos(angle)])
    stretched = 1.0 + SPRING + GRAVITY * np.cos(angle) / STIFFNESS
    return nsdyn.Problem(
        "double pendulum",
        HANGING,
        nsdyn.Fixed(rod),
        q0=np.concatenate([along, stretched * along]),
        v0=np.zeros(4),
        t_end=t_end,
        params={"k": STIFFNESS, "c": DAMPING},
    )


def connected(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    return pulled(q, v, 1.0, p)


def crank_and_line(q: Configuration, t: AnyTime, p: Params) -> Array:
    return jnp.stack([q[0] - CRANK * jnp.cos(t), q[1] - CRANK * jnp.sin(t), q[3]])


CONNECTED = nsdyn.System(mass=two_masses, force=connected)


def slider_crank(t_end: float = SECONDS) -> nsdyn.Problem:
    """From where crank and rod are in line. The slider then has the acceleration -r (1 + r), by
    which the rod is stretched."""
    stretched = 1.0 + CRANK * (1 + CRANK) / STIFFNESS
    return nsdyn.Problem(
        "slider crank",
        CONNECTED,
        nsdyn.Fixed(crank_and_line),
        q0=[CRANK, 0.0, CRANK + stretched, 0.0],
        v0=[0.0, CRANK, 0.0, 0.0],
        t_end=t_end,
        params={"k": STIFFNESS, "c": DAMPING},
    )


def cases() -> dict[str, nsdyn.Problem]:
    return {
        "follower": follower(),
        "slider crank": slider_crank(),
        "double pendulum": double_pendulum(),
        "governor": problems.flyball_governor(t_end=SECONDS),
    }


# Measuring


@cache
def _method(name: str, tolerance: float) -> integrators.EventDriven:
    """Made once, as a user would."""
    allowed = jnp.asarray(tolerance)
    if name == IMPLICIT:
        implicit = integrators.RadauIIA(rtol=allowed, atol=allowed, max_steps=MOST)
        return integrators.EventDriven(implicit)
    order: Literal[5, 8] = 5 if name == EXPLICIT[0] else 8
    explicit = integrators.DormandPrince(order=order, rtol=allowed, atol=allowed, max_steps=MOST)
    return integrators.EventDriven(explicit)


def _run(problem: nsdyn.Problem, name: str, tolerance: float) -> tuple:
    """q and v at the samples."""
    method, apart = _method(name, tolerance), problem.t_end / SAMPLES
    found = nsdyn.simulate(problem, method, step=apart, check=False)
    return found.q, found.v


def _make_well(problem: nsdyn.Problem, method: integrators.EventDriven) -> None:
    """Compile the program of a run as for long ones."""
    t_end = 1e-6 * problem.t_end
    nsdyn.simulate(problem, method, step=t_end / MADE_WELL, t_end=t_end, check=False)


def compared(problem: nsdyn.Problem, repeats: int) -> dict[str, Any]:
    """Errors and seconds by method."""
    exact = _run(problem, EXPLICIT[1], REFERENCE)
    found = {}
    for name in (IMPLICIT, *EXPLICIT):
        _make_well(problem, _method(name, TOLERANCES[0]))
        run = partial(_run, problem, name)
        points = [timed(run, tolerance, exact, repeats) for tolerance in TOLERANCES]
        errors, seconds = zip(*points, strict=True)
        found[name] = {"error": errors, "seconds": seconds}
    return found


# Showing


def stiff(repeats: int) -> dict:
    """All cases: data and lines."""
    found = {name: compared(problem, repeats) for name, problem in cases().items()}
    return {"stiff": {"lines": lines(found), "cases": found}}


def lines(found: dict[str, Any]) -> list[Line]:
    made: list[Line] = []
    for name, methods in found.items():
        for level in LEVELS:
            made += _lines_at(f"{name} to {level:g}", methods, level)
    return made


def _lines_at(head: str, methods: dict[str, Any], level: float) -> list[Line]:
    own = time_to(methods[IMPLICIT], level)
    fastest = min(filter(None, (time_to(methods[name], level) for name in EXPLICIT)), default=None)
    over = lambda other: None if own is None or other is None else own / other
    return [
        line(f"{head}: {IMPLICIT} [ms]", None if own is None else 1e3 * own),
        line(f"{head}: {IMPLICIT} over DormandPrince", over(fastest), at_most=TARGET),
    ]
