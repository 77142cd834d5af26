"""The tippe top while its big sphere slides: accelerations solved for by hand (index reduction),
in numpy, integrated by scipy's DOP853."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.integrate import solve_ivp

M, J1, J3, G, MU = 6e-3, 8e-7, 7e-7, 9.81, 0.3
A1, R1 = 3e-3, 1.5e-2
RHO = 3 * np.pi / 16 * 5e-4
INERTIA = np.array([J1, J1, J3])
MASSES = np.array([M, M, M, J1, J1, J3])
UP = np.array([0.0, 0.0, 1.0])


def rotation(a: np.ndarray) -> np.ndarray:
    s, x, y, z = a / np.linalg.norm(a)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - s * z), 2 * (x * z + s * y)],
            [2 * (x * y + s * z), 1 - 2 * (x * x + z * z), 2 * (y * z - s * x)],
            [2 * (x * z - s * y), 2 * (y * z + s * x), 1 - 2 * (x * x + y * y)],
        ]
    )


def skew(r: np.ndarray) -> np.ndarray:
    return np.array([[0, -r[2], r[1]], [r[2], 0, -r[0]], [-r[1], r[0], 0]])


def slope(_: float, y: np.ndarray) -> np.ndarray:
    """(q', v'): the normal force follows from gap'' = 0, friction is opposite to the slip."""
    a, v = y[3:7], y[7:]
    w = v[3:]
    R = rotation(a)
    arm = A1 * R[:, 2] - R1 * UP
    rows = np.hstack([np.eye(3), -skew(arm) @ R])
    N = rows[2]
    T = np.vstack([rows[:2], np.concatenate([np.zeros(3), RHO * R[2]])])
    slip = T @ v
    D = N - MU * (slip / np.linalg.norm(slip)) @ T
    free = np.concatenate([-G * UP, -np.cross(w, INERTIA * w) / INERTIA])
    bent = A1 * (R @ np.cross(w, np.cross(w, UP)))[2]
    normal = -(N @ free + bent) / (N @ (D / MASSES))
    turning = 0.5 * np.concatenate([[-a[1:] @ w], a[0] * w + np.cross(a[1:], w)])
    return np.concatenate([v[:3], turning, free + D / MASSES * normal])


def state(q0: ArrayLike, v0: ArrayLike, t: float) -> tuple[np.ndarray, np.ndarray]:
    """(q, v) at the time t."""
    start = np.concatenate([np.asarray(q0), np.asarray(v0)])
    found = solve_ivp(slope, (0, t), start, method="DOP853", rtol=1e-12, atol=1e-15)
    return found.y[:7, -1], found.y[7:, -1]
