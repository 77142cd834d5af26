r"""The recursion of Alexiou (2023) as it is printed, in numpy, with the misprints outside (15)-(29)
put right.

Shares nothing with the package: twists and wrenches in world axes about the origin of the world, no
X_i, the 6 x 6 matrices Phi_i instead of one wrench, rotations by scipy. The corrections: (2) uses
the distance to this joint; (6) uses the axis in the world; (8) R_i^T; (18) s_1. Prismatic joints
and rotors are added.
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial.transform import Rotation


def skew(a):
    return np.array([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]])


@dataclass
class Body:
    s: np.ndarray
    inertia: np.ndarray
    rotor: float
    R: np.ndarray
    r: np.ndarray


def bodies(chain, q):
    """(1)-(9)."""
    R, r, out = np.eye(3), np.zeros(3), []
    for i in range(len(q)):
        axis, slides = chain["axis"][i], chain["slides"][i]
        r = r + R @ chain["place"][i]
        R = R @ chain["turn"][i]
        z = R @ axis
        if slides:
            r, s = r + z * q[i], np.r_[z, 0, 0, 0]
        else:
            R, s = R @ Rotation.from_rotvec(q[i] * axis).as_matrix(), np.r_[np.cross(r, z), z]
        m, c = chain["mass"][i], skew(r + R @ chain["com"][i])
        inertia = np.block(
            [[m * np.eye(3), -m * c], [m * c, R @ chain["inertia"][i] @ R.T - m * c @ c]]
        )
        out.append(Body(s, inertia, chain["rotor"][i], R, r))
    return out


def inverse_inertias(links):
    """Lambda_i^-1 of (15)-(18)."""
    out, before = [], np.zeros((6, 6))
    for body in links:
        s, inertia = body.s, body.inertia
        d = s @ inertia @ s + body.rotor
        psi = (np.eye(6) - np.outer(s, s @ inertia) / d) @ before
        before = np.linalg.solve(np.eye(6) + psi @ inertia, np.outer(s, s) / d + psi)
        out.append(before)
    return out


def impact(chain, q, v, point, normal, e):
    """Changes of the joint rates and J: (20), (22), (24)-(29)."""
    links = bodies(chain, q)
    last = links[-1]
    n = np.r_[normal, np.cross(last.r + last.R @ point, normal)]
    inverse = inverse_inertias(links)
    twist = sum(body.s * rate for body, rate in zip(links, v, strict=True))
    J = (1 + e) * (n @ twist) / (n @ inverse[-1] @ n)
    phi = [np.eye(6)]
    for body, compliance in zip(reversed(links), reversed(inverse), strict=True):
        phi.insert(0, (np.eye(6) - body.inertia @ compliance) @ phi[0])
    dv, change = np.zeros(6), []
    for body, arriving in zip(links, phi[1:], strict=True):
        s, inertia = body.s, body.inertia
        rate = -(s @ (arriving @ n * J + inertia @ dv)) / (s @ inertia @ s + body.rotor)
        dv = dv + s * rate
        change.append(rate)
    return np.array(change), J
