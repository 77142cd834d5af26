"""Small mechanisms with known motions, on which integrators are tried.

swing: a pendulum whose pivot is carried along x by s(t) = a sin(w t). With the angle th from the
vertical, q = (s + sin th, -cos th) and

    th'' = -g sin th - s'' cos th,     lam = th'^2 + g cos th - s'' sin th                     (1)

corner: a particle on a track that turns upwards by the angle th at x = l. The speed falls by
cos th, then it slows down:

    t_s = l/v0,     x = l + cos th (v0 cos th tau - g sin th tau^2/2),     tau = t - t_s       (2)

locks: three coupled coordinates with springs; two of them lock, one after another. The momenta of
free coordinates go on:

    M_ff (v+_f - v-_f) + M_fl (0 - v-_l) = 0,     M_ff v_f' = f_f                              (3)

ball: it bounces, at t_k = t_0 (1 + 2 e + ... + 2 e^k), t_0 = sqrt(2 h/g).
skate: a blade that cannot slip sideways goes round a circle.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from nsdyn.constraints.contact import Contact
from nsdyn.constraints.fixed import Fixed, Nonholonomic
from nsdyn.constraints.mode_rows import lock
from nsdyn.constraints.scheduled import Scheduled
from nsdyn.constraints.switching import Switching
from nsdyn.mechanics.system import System
from nsdyn.problem import Problem

GRAVITY = 9.81


class Motion(NamedTuple):
    """A known motion at some times."""

    q: np.ndarray
    v: np.ndarray
    lam: np.ndarray


def unit_mass(q: Any, p: Any) -> Any:
    return jnp.eye(2)


def weight(q: Any, v: Any, t: Any, p: Any) -> Any:
    return jnp.stack([0.0 * p["g"], -p["g"]])


PARTICLE = System(mass=unit_mass, force=weight)

# swing

CARRIED, RATE, ANGLE, TURN = 0.3, 2.0, 1.0, 0.5


def carried_circle(q: Any, t: Any, p: Any) -> Any:
    x = q[0] - p["a"] * jnp.sin(p["w"] * t)
    return 0.5 * (x**2 + q[1] ** 2 - 1.0)


def swing(t_end: float = 0.4) -> Problem:
    """(1)"""
    params = {"g": GRAVITY, "a": CARRIED, "w": RATE}
    q0 = [np.sin(ANGLE), -np.cos(ANGLE)]
    v0 = [CARRIED * RATE + TURN * np.cos(ANGLE), TURN * np.sin(ANGLE)]
    circle = Fixed(carried_circle)
    return Problem("swing", PARTICLE, circle, q0=q0, v0=v0, t_end=t_end, params=params)


def swing_motion(t: np.ndarray) -> Motion:
    """(1), integrated in the angle by a method of order 8."""
    from scipy.integrate import solve_ivp

    push = lambda t: -CARRIED * RATE**2 * np.sin(RATE * t)
    slope = lambda t, y: [y[1], -GRAVITY * np.sin(y[0]) - push(t) * np.cos(y[0])]
    options = {"method": "DOP853", "rtol": 1e-12, "atol": 1e-13, "t_eval": t}
    th, w = solve_ivp(slope, (t[0], t[-1]), [ANGLE, TURN], **options).y
    s, c = np.sin(th), np.cos(th)
    q = np.stack([CARRIED * np.sin(RATE * t) + s, -c], axis=1)
    v = np.stack([CARRIED * RATE * np.cos(RATE * t) + c * w, s * w], axis=1)
    return Motion(q, v, (w**2 + GRAVITY * c - push(t) * s)[:, None])


# corner

SLOPE, SPEED = 0.5, 4.0


def level(q: Any, t: Any, p: Any) -> Any:
    return q[1]


def ramp(q: Any, t: Any, p: Any) -> Any:
    return q[1] - SLOPE * (q[0] - p["l"])


def beyond(q: Any, p: Any) -> Any:
    return q[0] - p["l"]


TRACK = Switching(modes=(level, ramp), switches=(beyond,))


def corner(l: float = 0.5, t_end: float = 0.3) -> Problem:
    params = {"g": GRAVITY, "l": l}
    start: dict[str, Any] = {"q0": [0.0, 0.0], "v0": [SPEED, 0.0]}
    return Problem("corner", PARTICLE, TRACK, **start, t_end=t_end, params=params)


def corner_end(l: np.ndarray, t: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(2): the time of the switch, and q and v on the ramp at the time t, for several l."""
    angle = np.arctan(SLOPE)
    fall = GRAVITY * np.sin(angle)
    tau = t - l / SPEED
    along = SPEED * np.cos(angle) * tau - fall * tau**2 / 2
    speed = SPEED * np.cos(angle) - fall * tau
    direction = np.array([np.cos(angle), np.sin(angle)])
    q = np.stack([l, 0.0 * l], axis=1) + along[:, None] * direction
    return l / SPEED, q, speed[:, None] * direction


# locks

LOCKED = (0.1, 0.1537)  # on and between the grid times of a step of 2e-3


def coupled_mass(q: Any, p: Any) -> Any:
    M = jnp.array([[3.0, 1.0, 0.5], [1.0, 2.0, 0.8], [0.5, 0.8, 1.3]])
    return M + jnp.diag(0.2 * jnp.sin(q))


def springs(q: Any, v: Any, t: Any, p: Any) -> Any:
    return -20.0 * jnp.tanh(q)


SPRINGS = System(mass=coupled_mass, force=springs)
LOCKS = Scheduled(times=LOCKED, stages=(None, lock(1), lock(1, 2)))


def locks() -> Problem:
    start: dict[str, Any] = {"q0": [0.5, -0.3, 0.2], "v0": [1.0, 2.0, -1.0]}
    return Problem("locks", SPRINGS, LOCKS, **start, t_end=0.2)


def locks_end() -> tuple[np.ndarray, np.ndarray]:
    """(3): q and v at the end."""
    from scipy.integrate import solve_ivp

    mass = lambda q: (
        np.array([[3, 1, 0.5], [1, 2, 0.8], [0.5, 0.8, 1.3]]) + np.diag(0.2 * np.sin(q))
    )
    y = np.array([0.5, -0.3, 0.2, 1.0, 2.0, -1.0])
    times = (0.0, *LOCKED, 0.2)
    for k, free in enumerate(([0, 1, 2], [0, 2], [0])):
        q, v = y[:3], y[3:]
        after = np.zeros(3)
        after[free] = np.linalg.solve(mass(q)[np.ix_(free, free)], (mass(q) @ v)[free])

        def slope(_: float, y: np.ndarray, free: list[int] = free) -> np.ndarray:
            a = np.zeros(3)
            f = -20.0 * np.tanh(y[:3])
            a[free] = np.linalg.solve(mass(y[:3])[np.ix_(free, free)], f[free])
            return np.concatenate([y[3:], a])

        start = np.concatenate([q, after])
        span = (times[k], times[k + 1])
        y = solve_ivp(slope, span, start, method="DOP853", rtol=1e-11, atol=1e-12).y[:, -1]
    return y[:3], y[3:]


# ball


def one_mass(q: Any, p: Any) -> Any:
    return jnp.eye(1)


def fall(q: Any, v: Any, t: Any, p: Any) -> Any:
    return -jnp.stack([p["g"]])


def floor(q: Any, t: Any, p: Any) -> Any:
    return q


BALL = System(mass=one_mass, force=fall)
FLOOR = Contact(floor, rest_speed=1e-3)


def ball() -> Problem:
    params = {"g": GRAVITY}
    return Problem("ball", BALL, FLOOR, q0=[1.0], v0=[0.0], t_end=3.0, params=params)


# skate


def skate_mass(q: Any, p: Any) -> Any:
    return jnp.diag(jnp.array([1.0, 1.0, 0.2]))


def no_force(q: Any, v: Any, t: Any, p: Any) -> Any:
    return jnp.zeros(3)


def sideways(q: Any, v: Any, t: Any, p: Any) -> Any:
    return v[0] * jnp.sin(q[2]) - v[1] * jnp.cos(q[2])


SKATE = System(mass=skate_mass, force=no_force)
BLADE = Nonholonomic(sideways)


def skate() -> Problem:
    start: dict[str, Any] = {"q0": [0.0, 0.0, 0.0], "v0": [1.0, 0.0, 2.0]}
    return Problem("skate", SKATE, BLADE, **start, t_end=1.0)


def skate_motion(t: np.ndarray) -> np.ndarray:
    return np.stack([np.sin(2 * t) / 2, (1 - np.cos(2 * t)) / 2, 2 * t], axis=1)
