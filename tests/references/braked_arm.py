"""A braked robot in joint coordinates: dynamics of the library `pin`, integration and events by
scipy."""

import numpy as np
from scipy.integrate import solve_ivp


def locks(arm, angles, rates, torque, t_end=1.0):
    """[(time, joint), ...] in order: each joint slides against its torque until it is at rest and
    is held from then on."""
    n = len(angles)
    sign, held, found = np.sign(rates), np.zeros(n, bool), []
    t, y = 0.0, np.concatenate([angles, rates])

    def rate(_, y):
        free = ~held
        a = np.zeros(n)
        pull = -arm.bias(y[:n], y[n:]) - sign * torque
        a[free] = np.linalg.solve(arm.mass(y[:n])[np.ix_(free, free)], pull[free])
        return np.concatenate([np.where(held, 0.0, y[n:]), a])

    def at_rest(joint):
        event = lambda _, y: sign[joint] * y[n + joint]
        event.terminal, event.direction = True, -1
        return event

    while not held.all():
        sliding = np.flatnonzero(~held)
        events = [at_rest(joint) for joint in sliding]
        part = solve_ivp(
            rate, (t, t_end), y, method="DOP853", events=events, rtol=1e-11, atol=1e-12
        )
        first = int(np.argmin([times[0] if len(times) else np.inf for times in part.t_events]))
        t, y = part.t_events[first][0], part.y_events[first][0].copy()
        joint = sliding[first]
        held[joint], y[n + joint] = True, 0.0
        found.append((t, int(joint)))
    return found
