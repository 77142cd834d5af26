"""The pegged swing of `mechanisms`, by scipy and without nsdyn."""

import numpy as np
from scipy.integrate import solve_ivp


def swing_reference(times):
    """The pegged swing in its angle: theta from the vertical about the current centre, string
    length L.

    T = 1/2 (m cos^2 + 2 m sin^2) L^2 w^2, V = -2 m g L cos(theta) + const. At the vertical only the
    x-velocity exists, which both circles allow: no jump of v, but of w by the ratio of the lengths.
    """

    def swing(length):
        def rate(_, y):
            th, w = y
            inertia = np.cos(th) ** 2 + 2 * np.sin(th) ** 2
            # d/dt(inertia w) = w^2/2 d(inertia)/dth - 2 g/L sin th
            return [w, (-0.5 * w**2 * np.sin(2 * th) - 2 * 9.81 / length * np.sin(th)) / inertia]

        return rate

    vertical = lambda _, y: y[0]
    vertical.terminal = True
    settings = {"method": "DOP853", "rtol": 1e-13, "atol": 1e-14}
    first = solve_ivp(
        swing(1.0), (0, times[-1]), [np.arctan2(0.8, 0.6), 0.0], events=vertical, **settings
    )
    t_switch, w = first.t_events[0][0], first.y_events[0][0][1]
    second = solve_ivp(swing(0.5), (t_switch, times[-1]), [0.0, 2 * w], t_eval=times, **settings)
    th, w = second.y
    q = np.stack([0.5 * np.sin(th), -0.5 - 0.5 * np.cos(th)], axis=1)
    return t_switch, q, 0.5 * w[:, None] * np.stack([np.cos(th), np.sin(th)], axis=1)
