"""Random contact problems u = W P + b of several kinds, for tests of the solver.

Each family returns W (k d, k d), b (k, d) and mu (k,), with W = H M^-1 H^T and b = H v, where v is
the velocity of a body, or of several, that presses its contacts. Where rows are redundant b is in
the range of H, so that the contacts do not contradict each other.
"""

import numpy as np


def delassus(H, M, v, mu, d):
    k = len(H) // d
    return H @ np.linalg.solve(M, H.T), (H @ v).reshape(k, d), np.broadcast_to(mu, (k,)).copy()


def cross(a):
    return np.array([[0, -a[2], a[1]], [a[2], 0, -a[0]], [-a[1], a[0], 0]])


def frame(n):
    """Rows n, t1, t2: an orthonormal frame."""
    n = n / np.linalg.norm(n)
    t = np.cross(n, np.eye(3)[np.argmin(np.abs(n))])
    t /= np.linalg.norm(t)
    return np.stack([n, t, np.cross(n, t)])


def point_rows(r, n):
    """Velocity of the point r of a rigid body, (v, omega), in the frame of the normal n."""
    return frame(n) @ np.hstack([np.eye(3), -cross(r)])


def body(rng):
    m = rng.uniform(0.5, 3)
    return np.diag([m, m, m, *(m * rng.uniform(0.05, 0.5, 3))])


def full(rng, k, d):
    n = k * d + 2
    H = rng.normal(size=(k * d, n))
    M = np.diag(rng.uniform(0.3, 3, n))
    return delassus(H, M, rng.normal(size=n), rng.uniform(0, 1.2, k), d)


def redundant(rng, k):
    """Points of one body, with normals in a half-space: moving up opens them all."""
    rows = []
    for _ in range(k):
        n = rng.normal(size=3)
        n[2] = abs(n[2]) + 0.2
        rows.append(point_rows(rng.uniform(-1, 1, 3), n))
    v = rng.normal(size=6) - [0, 0, 1.0, 0, 0, 0]
    return delassus(np.vstack(rows), body(rng), v, rng.uniform(0, 1, k), 3)


def table(rng, legs):
    turn = 2 * np.pi * np.arange(legs) / legs
    feet = np.stack([np.cos(turn), np.sin(turn), np.full(legs, -rng.uniform(0.3, 1.5))], 1)
    H = np.vstack([point_rows(r, np.array([0.0, 0, 1])) for r in feet])
    v = rng.normal(size=6) * [1, 1, 1, 0.3, 0.3, 1] - [0, 0, 1.0, 0, 0, 0]
    return delassus(H, body(rng), v, rng.uniform(0.1, 1), 3)


def box(rng, walls):
    """The corners of a box on the floor and on walls with these normals."""
    half = rng.uniform(0.3, 1.5, 3)
    corners = half * np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    rows = []
    for n in walls:
        n = np.array(n, float)
        rows += [point_rows(r, n) for r in corners if r @ n < 0]
    k = len(rows)
    v = rng.normal(size=6) - np.append(np.sum(walls, axis=0), np.zeros(3))
    return delassus(np.vstack(rows), body(rng), v, rng.uniform(0.1, 1, k), 3)


def rod_rows(angle, half):
    """Normal and tangential velocity of the lower end of a planar rod, in (x', y', phi')."""
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[0, 1, -half * c], [1, 0, half * s]])


def painleve(rng, rods=1):
    """Sliding rods with high friction; several of them stand on one carriage."""
    n = 3 * rods
    M = np.zeros((n + 1, n + 1)) if rods > 1 else np.zeros((n, n))
    H = np.zeros((2 * rods, len(M)))
    for i in range(rods):
        m = rng.uniform(0.5, 2)
        own = slice(3 * i, 3 * i + 3)
        M[own, own] = np.diag([m, m, m / 3])
        H[2 * i : 2 * i + 2, own] = rod_rows(rng.uniform(0.2, 1.4), 1.0)
    if rods > 1:
        M[n, n] = rng.uniform(0.5, 3)
        H[1::2, n] = -1
    v = rng.normal(size=len(M))
    v[1:n:3] -= 1
    return delassus(H, M, v, rng.uniform(1.3, 8, rods), 2)


def stack(rng, boxes=4, ratio=1000.0):
    """Planar boxes on each other, with two corners each."""
    masses = np.geomspace(1, ratio, boxes)
    if rng.random() < 0.5:
        masses = masses[::-1]
    M = np.diag(np.concatenate([[m, m, m * 0.2] for m in masses]))
    half, height = rng.uniform(0.5, 1.0), rng.uniform(0.3, 1.0)
    H = np.zeros((4 * boxes, 3 * boxes))
    for i in range(boxes):
        for j, x in enumerate((-half, half)):
            row = 4 * i + 2 * j
            H[row, 3 * i : 3 * i + 3] = 0, 1, x
            H[row + 1, 3 * i : 3 * i + 3] = 1, 0, height
            if i:
                H[row, 3 * i - 3 : 3 * i] = 0, -1, -x
                H[row + 1, 3 * i - 3 : 3 * i] = -1, 0, height
    v = 0.3 * rng.normal(size=3 * boxes)
    v[1::3] -= 1
    return delassus(H, M, v, rng.uniform(0.1, 0.9, 2 * boxes), 2)


def stacked(rows, upper):
    """Places of balls of diameter 1: rows of so many on the floor, each in the gaps of the row
    before, and others above them, each in the dent between the balls (i, j), (i + 1, j) and
    (i, j + 1), with i along a row and j across."""
    along, across = np.array([1.0, 0, 0]), np.array([0.5, np.sqrt(0.75), 0])
    up = np.array([0.5, np.sqrt(1 / 12), np.sqrt(2 / 3)])
    low = [i * along + j * across for j, count in enumerate(rows) for i in range(count)]
    return np.array(low + [i * along + j * across + up for i, j in upper])


def pile(rng, rows, upper, masses=1.0):
    """Balls in two layers: those that touch each other, and the lower ones on the floor."""
    centres = stacked(rows, upper)
    balls = len(centres)
    m = masses ** rng.uniform(-1, 1, balls)
    M = np.diag(np.concatenate([[x, x, x, *(0.1 * x * np.ones(3))] for x in m]))
    up = np.array([0.0, 0, 1])
    found = []
    for i in range(balls):
        if centres[i, 2] == 0:
            row = np.zeros((3, 6 * balls))
            row[:, 6 * i : 6 * i + 6] = point_rows(-0.5 * up, up)
            found.append(row)
        for j in range(i):
            n = centres[i] - centres[j]
            if np.linalg.norm(n) < 1 + 1e-6:
                row = np.zeros((3, 6 * balls))
                row[:, 6 * i : 6 * i + 6] = point_rows(-0.5 * n, n)
                row[:, 6 * j : 6 * j + 6] = -point_rows(0.5 * n, n)
                found.append(row)
    v = 0.2 * rng.normal(size=6 * balls)
    v[2::6] -= 1
    return delassus(np.vstack(found), M, v, rng.uniform(0.2, 0.8, len(found)), 3)


EIGHT = ((4, 3), [(1, 0)])
SIXTEEN = ((4, 4, 4), [(0, 0), (1, 0), (2, 0), (0, 1)])

FAMILIES = {
    "full rank, 1 contact": lambda rng: full(rng, 1, 3),
    "full rank, 4 contacts": lambda rng: full(rng, 4, 3),
    "frictionless, 6 contacts": lambda rng: full(rng, 6, 1),
    "with spin, 3 contacts": lambda rng: full(rng, 3, 4),
    "redundant, 4 contacts": lambda rng: redundant(rng, 4),
    "redundant, 8 contacts": lambda rng: redundant(rng, 8),
    "table, 4 legs": lambda rng: table(rng, 4),
    "table, 8 legs": lambda rng: table(rng, 8),
    "box in a corner": lambda rng: box(rng, [(0, 0, 1), (1, 0, 0)]),
    "box jammed": lambda rng: box(rng, [(0, 0, 1), (1, 0, 0), (-1, 0, 0)]),
    "Painleve rod": lambda rng: painleve(rng),
    "3 rods on a carriage": lambda rng: painleve(rng, 3),
    "stack of boxes": lambda rng: stack(rng),
}
PILES = {
    "8 balls, 21 contacts": lambda rng: pile(rng, *EIGHT),
    "16 balls, 51 contacts": lambda rng: pile(rng, *SIXTEEN),
    "16 balls, 51 contacts, masses 1/30 to 30": lambda rng: pile(rng, *SIXTEEN, 30.0),
}


def batch(family, count, seed=0):
    """`count` problems of a family as arrays."""
    rng = np.random.default_rng(seed)
    found = [family(rng) for _ in range(count)]
    return tuple(np.stack(x) for x in zip(*found, strict=True))
