r"""Motion of a particle on a polygon, in closed form from corner to corner. Shares nothing with the
package.

The particle has the masses m along x and m_y along y, and gravity acts along -y with the force (0,
-m_y g). On a segment with the unit vector d its velocity is u d with a constant

    u' = d.f / d.M d.                                                                            (1)

At the corner between the segments d- and d+ with normals n- and n+, scaled to n.M^-1 n = 1 and
n-.M^-1 n+ = cos(th) >= 0, the impulse acts along the vector at position E of the arc from n- to n+,

    n_E = [sin((1 - E) th) n- + sin(E th) n+] / sin(th),   M (u+ d+ - u- d-) + n_E Lam = 0.      (2)

For M = m I this is u+ = u- cos(E th) / cos((1 - E) th).
"""

import numpy as np


def impact(u, before, after, M, E):
    """u+ of (2) for unit vectors before and after the corner."""
    W = np.linalg.inv(M)
    normals = np.array([[-d[1], d[0]] for d in (before, after)])
    a, b = (n / np.sqrt(n @ W @ n) for n in normals)
    b = b if a @ W @ b >= 0 else -b
    c = a @ W @ b
    th = np.arctan2(
        np.sqrt((b - c * a) @ W @ (b - c * a)), c
    )  # the cosine alone would lose half of the digits
    if th == 0:
        return u
    n = (np.sin((1 - E) * th) * a + np.sin(E * th) * b) / np.sin(th)
    return np.linalg.solve(np.column_stack([M @ after, n]), u * (M @ before))[0]  # (2)


def first_passage(s, u, a, places):
    """(t, place) at which s + u t + a t^2 / 2 first comes to one of the places."""
    found = [(np.inf, None)]
    for place in places:
        square = u**2 - 2 * a * (s - place)
        if square >= 0:
            w = -(u + np.copysign(np.sqrt(square), u))  # no cancellation
            roots = ([w / a] if a != 0 else []) + ([2 * (s - place) / w] if w != 0 else [])
            found += [(t, place) for t in roots if t > 1e-10]
    return min(found, key=lambda each: each[0])


def motion(times, x, y, x0, u0, m=1.0, my=None, g=9.81, E=1.0):
    """q and v at the times, and the events (t, segment before, segment after, u-, u+); ends of the
    polygon run on."""
    corners = np.column_stack([x, y]).astype(float)
    sides = np.diff(corners, axis=0)
    lengths = np.linalg.norm(sides, axis=1)
    d = sides / lengths[:, None]
    M = np.diag([m, m if my is None else my])
    k = int(np.clip(np.searchsorted(x, x0, side="right") - 1, 0, len(d) - 1))
    s, u, t = (x0 - corners[k, 0]) / d[k, 0], u0, 0.0
    q, v, events = np.empty((len(times), 2)), np.empty((len(times), 2)), []
    while True:
        a = -M[1, 1] * g * d[k, 1] / (d[k] @ M @ d[k])  # (1)
        places = ([0.0] if k > 0 else []) + ([lengths[k]] if k < len(d) - 1 else [])
        duration, place = first_passage(s, u, a, places)
        here = (times >= t) & (times < t + duration)
        tau = (times[here] - t)[:, None]
        q[here] = corners[k] + (s + u * tau + a * tau**2 / 2) * d[k]
        v[here] = (u + a * tau) * d[k]
        t = t + duration
        if t > times[-1]:
            return q, v, events
        arrived, old = u + a * duration, k
        k = k - 1 if place == 0.0 else k + 1
        u = impact(arrived, d[old], d[k], M, E)
        if u * arrived < 0:
            raise ValueError(f"the particle cannot pass the corner between segments {old} and {k}")
        s = lengths[k] if k < old else 0.0
        events.append((t, old, k, arrived, u))
