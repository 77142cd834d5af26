"""Moreau's time stepping written out for the examples of Siconos, one function each, in numpy.

With theta = 1/2, rows N (normal) and T (tangential) of one contact and u = (N, T) v,

    M (v_1 - v) = h f + N^T P_N + T^T P_T,   q_1 = q + h (v + v_1)/2                           (1)
    0 <= u_N1 + e u_N _|_ P_N >= 0,  |P_T| <= mu P_N,  P_T u_T1 = -mu P_N |u_T1|               (2)

where the contact takes part if gap + s h u_N <= 0 at the start of the step. Each function gives all
rows, one for each time of the grid.
"""

from collections.abc import Callable, Iterator

import numpy as np

G = 9.81
Rows = tuple[np.ndarray, ...]


def pressed(W: np.ndarray, b: np.ndarray, mu: float) -> np.ndarray:
    """(P_N, P_T) of (2) with u = W P + b, by looking at all cases: open, sticking, sliding to
    either side."""
    if b[0] >= 0:
        return np.zeros(2)
    stick = np.linalg.solve(W, -b)
    if abs(stick[1]) <= mu * stick[0]:
        return stick
    for side in (-1.0, 1.0):  # of P_T
        along = np.array([1.0, side * mu])
        P = -b[0] / (W[0] @ along) * along
        if P[0] >= 0 and side * (W[1] @ P + b[1]) <= 0:
            return P
    raise AssertionError("no case fits")


def stepped(
    q: np.ndarray,
    v: np.ndarray,
    masses: np.ndarray,
    f: np.ndarray,
    gap: Callable[[np.ndarray], float],
    rows: Callable[[np.ndarray], np.ndarray],
    h: float,
    steps: int,
    e: float,
    mu: float = 0.0,
    s: float = 0.5,
) -> Rows:
    """All q, v and P of (1) and (2), with constant masses and forces and rows at the start of the
    step."""
    found = [(q, v, np.zeros(2))]
    for _ in range(steps):
        H, P = rows(q), np.zeros(2)
        free = v + h * f / masses
        if gap(q) + s * h * (H[0] @ v) <= 0:
            b = H @ free + np.array([e * (H[0] @ v), 0.0])
            P = pressed((H / masses) @ H.T, b, mu)
        after = free + H.T @ P / masses  # (1)
        q, v = q + h / 2 * (v + after), after
        found.append((q, v, P))
    return table(found)


def table(found: list[tuple]) -> Rows:
    return tuple(map(np.array, zip(*found, strict=True)))


def bouncing_ball() -> Rows:
    """q, v, P."""
    h, q, v, P = 0.005, 1.0, 0.0, 0.0
    found = [(q, v, P)]
    for _ in range(2000):
        free = v - h * G
        P = max(0.0, -(free + 0.9 * v)) if q + h / 2 * v <= 0 else 0.0
        q, v = q + h / 2 * (v + free + P), free + P
        found.append((q, v, P))
    return table(found)


def ball_on_moving_plane() -> Rows:
    """q and v of the ball, q and v of the plane, P."""
    h, ball, plane = 0.005, (1.0, 0.0), (0.0, 0.0)
    found = [(*ball, *plane, 0.0)]
    for k in range(2000):
        (q, v), (x, w) = ball, plane
        later = 2 + np.cos(np.pi * (k + 1) * h / 2)
        free = v - h * G
        on = q - x + h / 2 * (v - w) <= 0
        P = max(0.0, -(free - later + 0.9 * (v - w))) if on else 0.0
        ball = q + h / 2 * (v + free + P), free + P
        plane = x + h / 2 * (w + later), later
        found.append((*ball, *plane, P))
    return table(found)


def column_of_beads() -> Rows:
    """q, v."""
    return table(list(_beads(5e-4, 4000)))


def _beads(h: float, steps: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    H = np.eye(10) - np.eye(10, k=-1)
    q, v = 1 + 0.25 * np.arange(10), np.zeros(10)
    yield q, v
    for _ in range(steps):
        free = v - h * G
        on = np.flatnonzero(H @ q - np.r_[0.1, np.full(9, 0.2)] + h / 2 * H @ v <= 0)
        N = H[on]
        after = free + N.T @ least_pressed(N @ N.T, N @ (free + 0.9 * v))
        q, v = q + h / 2 * (v + after), after
        yield q, v


def least_pressed(W: np.ndarray, b: np.ndarray) -> np.ndarray:
    """P of 0 <= W P + b _|_ P >= 0, by exchanging the last row that is wrong (Murty's method, which
    ends for every positive definite W)."""
    active = np.zeros(len(b), bool)
    while True:
        P = np.zeros(len(b))
        P[active] = np.linalg.solve(W[np.ix_(active, active)], -b[active])
        wrong = np.where(active, P < 0, W @ P + b < -1e-16)
        if not np.any(wrong):
            return P
        active[np.flatnonzero(wrong)[-1]] ^= True


def disk_with_friction() -> Rows:
    """q = (height, x, angle), v, P."""
    H = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, -0.5]])
    return stepped(
        q=np.array([1.0, 0.0, 0.0]),
        v=np.array([0.0, 0.0, 2.0]),
        masses=np.array([1.0, 1.0, 0.4 * 0.5**2]),
        f=np.array([-G, 0.0, 0.0]),
        gap=lambda q: q[0] - 0.5,
        rows=lambda q: H,
        h=0.005,
        steps=2000,
        e=0.9,
        mu=0.1,
        s=1.0,
    )


def impacting_stick() -> Rows:
    """q = (x, y, angle), v, P."""
    a = np.pi / 4
    return stepped(
        q=np.array([0.5 * np.sin(a), 0.5 * np.cos(a) + 0.01, a]),
        v=np.array([-0.5, 0.1, 0.1]),
        masses=np.array([1.0, 1.0, 1 / 12]),
        f=np.array([0.0, -10.0, 0.0]),
        gap=lambda q: q[1] - 0.5 * np.cos(q[2]),
        rows=lambda q: np.array([[0.0, 1.0, 0.5 * np.sin(q[2])], [-1.0, 0.0, -0.5 * np.cos(q[2])]]),
        h=1e-4,
        steps=2000,
        e=1.0,
        mu=0.01,
    )


def friction_oscillator() -> Rows:
    """x, v and the impulse h r of friction: x'' = -x + r, -r in Sgn(x'), x at the mean of both ends
    of a step."""
    h, x, v, r = 0.01, 12.0, 6.0, 0.0
    found = [(x, v, r)]
    for _ in range(9999):
        # v_1 = v - h (x + x_1)/2 + h r with x_1 = x + h (v + v_1)/2
        scale = 1 + h * h / 4
        free = (v * (1 - h * h / 4) - h * x) / scale
        r = float(np.clip(-free * scale / h, -1.0, 1.0))
        after = free + h * r / scale
        x, v = x + h / 2 * (v + after), after
        found.append((x, v, h * r))
    return table(found)
