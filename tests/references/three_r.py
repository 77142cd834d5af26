r"""Reference solution of the planar 3R pendulum with locking joints, in absolute link angles.

Shares nothing with the package: other coordinates, other integrator, and no multipliers (a lock
removes coordinates).

Model. Three equal bars (length L, mass m, central inertia I) hang from the origin one after
another; theta_k is the angle of bar k from the horizontal, counter-clockwise; gravity acts along
-y. With e(a) = (cos a, sin a) the centre of mass of bar k is

    r_k = L (sum_{j<k} e(theta_j) + e(theta_k) / 2).                                             (1)

As e'(a).e'(b) = cos(a - b), the kinetic energy T = sum_k (m |r_k'|^2 + I theta_k'^2) / 2 = theta'^T
A theta' / 2 has

    A_ij = m L^2 B_ij cos(theta_i - theta_j) + I delta_ij.                                       (2)

Here B_ij collects the bars that both rates move, with weight 1 (bar further out) or 1/2 (the bar
itself):

    B_ii = 1/4 + (3 - i),
    B_ij = 1/2 + (3 - max(i, j)) for i != j:  B = [9 6 2; 6 5 2; 2 2 1] / 4.                   (3)

Likewise V = m g sum_k y_k gives

    V = m g L sum_i c_i sin(theta_i),   c = (5/2, 3/2, 1/2).                                     (4)

Lagrange's equations. d/dt (A theta')_i contributes -m L^2 sum_j B_ij sin(theta_i - theta_j)
(theta_i' - theta_j') theta_j', and dT/dtheta_i = -m L^2 sum_j B_ij sin(theta_i - theta_j) theta_i'
theta_j'; the mixed products cancel:

    A theta'' + h = 0,
    h_i = m L^2 sum_j B_ij sin(theta_i - theta_j) theta_j'^2 + m g L c_i cos(theta_i).         (5)

Locked joints. Locking joint k welds bar k to bar k - 1 (bar 0 is the ground). Bars welded together
form one rigid body with one angular rate, so with one coordinate s_b per free body and F the
constant 0/1 incidence of bars and bodies

    theta = theta_0 + F s,   F^T A F s'' + F^T h = 0                                             (6)

(no further velocity term, F being constant). The impulses of a weld are internal to the composite
body and do no work on s', hence the momentum conjugate to s is continuous, which fixes the rates of
the new model alone:

    (F^T A F) s'(+) = F^T A theta'(-),   theta'(+) = F s'(+).                                    (7)

Relative joint coordinates are q = (theta_1, theta_2 - theta_1, theta_3 - theta_2).
"""

from dataclasses import dataclass, field
from math import pi

import numpy as np
from scipy.integrate import solve_ivp

B = np.array([[9.0, 6.0, 2.0], [6.0, 5.0, 2.0], [2.0, 2.0, 1.0]]) / 4  # (3)
C = np.array([2.5, 1.5, 0.5])


def relative(theta):
    return np.diff(theta, prepend=0.0)


@dataclass(frozen=True)
class Pendulum:
    m: float = 108.0
    L: float = 1.0
    inertia: float = 9.36
    g: float = 9.81

    def mass(self, theta):  # (2)
        d = theta[:, None] - theta
        return self.m * self.L**2 * B * np.cos(d) + self.inertia * np.eye(3)

    def bias(self, theta, rate):  # (5)
        d = theta[:, None] - theta
        return self.m * self.L**2 * (
            B * np.sin(d)
        ) @ rate**2 + self.m * self.g * self.L * C * np.cos(theta)

    def energy(self, q, v):
        theta, rate = np.cumsum(q), np.cumsum(v)
        return 0.5 * rate @ self.mass(theta) @ rate + self.m * self.g * self.L * C @ np.sin(theta)


def incidence(locked):
    """F of (6): a free joint starts a new body, bars ahead of the first free joint belong to the
    ground."""
    body = np.cumsum([k not in locked for k in range(3)])
    return (body[:, None] == np.arange(1, body[-1] + 1)).astype(float)


@dataclass
class Phase:
    start: float
    theta0: np.ndarray
    F: np.ndarray
    state: object  # t -> (s, s')

    def at(self, t):
        s, ds = np.split(self.state(t), 2)
        return self.theta0 + self.F @ s, self.F @ ds


@dataclass
class Solution:
    model: Pendulum
    t_end: float
    phases: list = field(default_factory=list)
    events: list = field(default_factory=list)  # (t, q, v_before, v_after)

    def at(self, t):
        """(q, v) in relative joint coordinates; at a lock time the state after the jump."""
        if not self.phases[0].start <= t <= self.t_end:
            raise ValueError(f"t = {t} outside [0, {self.t_end}]")
        phase = [p for p in self.phases if p.start <= t][-1]
        theta, rate = phase.at(t)
        return relative(theta), relative(rate)

    def energy(self, t):
        return self.model.energy(*self.at(t))


def integrate(model, start, end, theta0, rate0, F, rtol, atol, max_step):
    r = F.shape[1]
    # The columns of F are disjoint, so F^T / (bars per body) recovers the body rates from the bar
    # rates.
    y0 = np.concatenate([np.zeros(r), (F / F.sum(0)).T @ rate0])
    if r == 0 or end <= start:
        return Phase(start, theta0, F, lambda t: y0)

    def rhs(t, y):  # (6)
        theta, rate = theta0 + F @ y[:r], F @ y[r:]
        return np.concatenate(
            [y[r:], -np.linalg.solve(F.T @ model.mass(theta) @ F, F.T @ model.bias(theta, rate))]
        )

    out = solve_ivp(
        rhs,
        (start, end),
        y0,
        method="DOP853",
        dense_output=True,
        rtol=rtol,
        atol=atol,
        max_step=max_step,
    )
    if not out.success:
        raise RuntimeError(out.message)
    return Phase(start, theta0, F, out.sol)


def solve(
    t_end=2.0,
    locks=((0.8, 1), (1.3, 2)),
    m=108.0,
    L=1.0,
    I=9.36,
    g=9.81,
    q0=(pi / 6,) * 3,
    v0=(0.0, 0.0, 0.0),
    consistent=True,
    rtol=1e-13,
    atol=1e-14,
    max_step=5e-3,  # dense output is one order below the steps: this keeps both at round-off
):
    """Integrate to t_end, locking joint k (zero-based) at time t for each (t, k) in locks.

    consistent=False replaces (7) by zeroing the relative rate of the locked joint and keeping the
    other relative rates.
    """
    model = Pendulum(m, L, I, g)
    sol = Solution(model, t_end)
    theta, rate = np.cumsum(np.asarray(q0, float)), np.cumsum(np.asarray(v0, float))
    locked = set()
    start = 0.0
    times = sorted({t for t, _ in locks if t <= t_end})
    if times and times[0] < 0:
        raise ValueError("lock times must not be negative")
    for end in [*times, None]:
        stop = t_end if end is None else end
        phase = integrate(model, start, stop, theta, rate, incidence(locked), rtol, atol, max_step)
        sol.phases.append(phase)
        if end is None:
            return sol
        theta, before = phase.at(end)
        new = {k for t, k in locks if t == end}
        locked |= new
        if consistent:
            F, A = incidence(locked), model.mass(theta)
            rate = F @ np.linalg.solve(F.T @ A @ F, F.T @ A @ before)  # (7)
        else:
            rate = np.cumsum(np.where(np.isin(range(3), list(new)), 0.0, relative(before)))
        sol.events.append((end, relative(theta), relative(before), relative(rate)))
        start = end
