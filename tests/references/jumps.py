"""Impulse laws in extended precision (80 bits, 19 digits), for many mode changes at once.

Independent of the code under test: with M = L L^T all velocities are written as w = L^T v, in which
the mass matrix is the identity, and rows as h = g L^-T. Gram-Schmidt gives the independent rows
orthonormal vectors b_i and says what w has to be along them,

    h_i = sum_j R_ij b_j,    h_i w = c_i    =>    b_i w = beta_i,    R beta = c                 (1)

so that the velocity nearest to w_0 = w- + L^-1 U that obeys the rows is

    w+ = w_0 - sum_i b_i (b_i w_0 - beta_i)                                                    (2)

Every array has a leading axis of cases. Dependent rows have b_i = 0. A row depends on those before
it if the sine of its angle to them is below SINE.
"""

import numpy as np

SINE = 1e-6
WIDE = np.longdouble
SWEEPS = 4  # of Jacobi's method, which starts from eigenvectors of double precision


def wide(x):
    return np.asarray(x, WIDE)


def times(A, x):
    """A x for each case."""
    return np.sum(A * x[:, None, :], axis=2)


def product(A, B):
    return np.sum(A[:, :, :, None] * B[:, None, :, :], axis=2)


def flipped(A):
    return np.swapaxes(A, 1, 2)


def cholesky(M):
    L = np.zeros_like(M)
    for j in range(M.shape[1]):
        L[:, j, j] = np.sqrt(M[:, j, j] - np.sum(L[:, j, :j] ** 2, axis=1))
        rest = M[:, j + 1 :, j] - np.sum(L[:, j + 1 :, :j] * L[:, None, j, :j], axis=2)
        L[:, j + 1 :, j] = rest / L[:, j, j, None]
    return L


def forward(L, B):
    """L^-1 B, columns of B."""
    X = np.zeros_like(B)
    for i in range(L.shape[1]):
        known = np.sum(L[:, i, :i, None] * X[:, :i], axis=1)
        X[:, i] = (B[:, i] - known) / L[:, i, i, None]
    return X


def backward(L, B):
    """L^-T B, columns of B."""
    X = np.zeros_like(B)
    for i in reversed(range(L.shape[1])):
        known = np.sum(L[:, i + 1 :, i, None] * X[:, i + 1 :], axis=1)
        X[:, i] = (B[:, i] - known) / L[:, i, i, None]
    return X


def eliminated(A, B):
    """A^-1 B by Gauss with row exchanges."""
    A, B = A.copy(), B.copy()
    cases, size = np.arange(len(A)), A.shape[1]
    for j in range(size):
        best = j + np.argmax(np.abs(A[:, j:, j]), axis=1)
        for X in (A, B):
            X[cases, best], X[:, j] = X[:, j].copy(), X[cases, best].copy()
        factor = A[:, j + 1 :, j] / A[:, j, j, None]
        A[:, j + 1 :] -= factor[:, :, None] * A[:, None, j]
        B[:, j + 1 :] -= factor[:, :, None] * B[:, None, j]
    X = np.zeros_like(B)
    for i in reversed(range(size)):
        known = np.sum(A[:, i, i + 1 :, None] * X[:, i + 1 :], axis=1)
        X[:, i] = (B[:, i] - known) / A[:, i, i, None]
    return X


def eigenvectors(A):
    """Columns V with V^T A V diagonal, for symmetric A."""
    V = wide(np.linalg.eigh(A.astype(float))[1])
    for _ in range(2):  # orthonormal to 19 digits
        V = 1.5 * V - 0.5 * product(V, product(flipped(V), V))
    A = product(flipped(V), product(A, V))
    size = A.shape[1]
    for _ in range(SWEEPS):
        for i in range(size):
            for j in range(i + 1, size):
                angle = 0.5 * np.arctan2(2 * A[:, i, j], A[:, j, j] - A[:, i, i])
                c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
                for X in (flipped(A), A, flipped(V)):  # columns of A, rows of A, columns of V
                    X[:, i], X[:, j] = c * X[:, i] - s * X[:, j], s * X[:, i] + c * X[:, j]
    return V


class Rows:
    """Rows h with their orthonormal b and the triangular R of (1), for rows of unit length."""

    def __init__(self, h):
        self.h = h
        length = np.sqrt(np.sum(h**2, axis=2))
        self.length = np.where(length > 0, length, 1.0)
        unit = h / self.length[:, :, None]
        cases, m, _ = h.shape
        self.b, self.R = np.zeros_like(h), np.zeros((cases, m, m), WIDE)
        self.keep = np.zeros((cases, m), bool)
        self.sines = np.zeros((cases, m), WIDE)
        for i in range(m):
            rest = unit[:, i]
            for _ in range(2):
                share = times(self.b, rest)
                self.R[:, i] += share
                rest = rest - np.sum(self.b * share[:, :, None], axis=1)
            sine = np.sqrt(np.sum(rest**2, axis=1))
            keep = sine > SINE
            self.sines[:, i], self.keep[:, i] = sine, keep
            self.b[:, i] = np.where(keep[:, None], rest / np.where(keep, sine, 1.0)[:, None], 0.0)
            self.R[:, i, i] = np.where(keep, sine, 1.0)

    @property
    def rank(self):
        return np.sum(self.keep, axis=1)

    @property
    def clear(self):
        """Whether no row is so near the bound that the order of rows would decide about it."""
        return np.all((self.sines < 1e-2 * SINE) | (self.sines > 10 * SINE), axis=1)

    def beta(self, c):
        """beta of (1)."""
        c = np.where(self.keep, c / self.length, 0.0)
        beta = np.zeros_like(c)
        for i in range(c.shape[1]):
            known = np.sum(self.R[:, i, :i] * beta[:, :i], axis=1)
            beta[:, i] = np.where(self.keep[:, i], (c[:, i] - known) / self.R[:, i, i], 0.0)
        return beta

    def multipliers(self, f):
        """Lam of the independent rows with sum_i h_i Lam_i = f, for f in their span."""
        along = times(self.b, f)
        Lam = np.zeros_like(along)
        for i in reversed(range(along.shape[1])):
            known = np.sum(self.R[:, i + 1 :, i] * Lam[:, i + 1 :], axis=1)
            Lam[:, i] = np.where(self.keep[:, i], (along[:, i] - known) / self.R[:, i, i], 0.0)
        return Lam / self.length


class Change:
    """Mode changes with M, G-, G+ (dead rows zero), v-, g_t+, U and the mask of kept rows."""

    def __init__(self, M, G_before, G_after, v, gt, U, kept):
        self.M, self.v, self.gt, self.U = wide(M), wide(v), wide(gt), wide(U)
        self.G_before, self.G_after = wide(G_before), wide(G_after)
        self.kept = np.asarray(kept)
        self.L = cholesky(self.M)
        self.before = Rows(flipped(forward(self.L, flipped(self.G_before))))
        self.after = Rows(flipped(forward(self.L, flipped(self.G_after))))
        self.w = times(flipped(self.L), self.v)
        self.pushed = self.w + forward(self.L, self.U[:, :, None])[:, :, 0]

    def velocity(self, w):
        return backward(self.L, w[:, :, None])[:, :, 0]

    def obeying(self, beta):
        b = self.after.b
        return self.pushed - np.sum(b * (times(b, self.pushed) - beta)[:, :, None], axis=1)  # (2)


def ideal(change: Change):
    return change.velocity(change.obeying(change.after.beta(-change.gt)))


def restitution(change: Change, e):
    rates = times(change.G_after, change.v) + change.gt
    wanted = -change.gt - np.where(change.kept, 0.0, wide(e)) * rates
    return change.velocity(change.obeying(change.after.beta(wanted)))


def zero_velocity(change: Change):
    rows = Rows(change.G_after)
    pushed = change.v + change.velocity(change.pushed - change.w)
    wrong = rows.beta(times(change.G_after, pushed) + change.gt)
    return pushed - np.sum(rows.b * wrong[:, :, None], axis=1)


def coulomb(change: Change, B, mu):
    """One tangential direction B, shape (cases, 1, n): sticks, or slips with |beta| = mu N."""
    B, L = wide(B), change.L
    w0 = change.obeying(change.after.beta(-change.gt))
    h = flipped(forward(L, flipped(B)))[:, 0]
    basis = change.after.b
    free = h - np.sum(basis * times(basis, h)[:, :, None], axis=1)
    A, slip = np.sum(free * h, axis=1), np.sum(h * w0, axis=1)
    new = ~change.kept
    Lam0 = np.where(new, change.after.multipliers(change.pushed - w0), 0.0)
    N0 = np.sqrt(np.sum(Lam0**2, axis=1))
    n = Lam0 / np.where(N0 > 0, N0, 1.0)[:, None]
    slope = np.sum(n * change.after.multipliers(h - free), axis=1)
    needed = np.abs(slip) * (1 + mu * np.sign(slip) * slope)
    reach = mu * N0 * A
    x = np.where(reach < needed, reach / np.where(reach < needed, needed, 1.0), 1.0)
    beta = np.where(N0 > 0, -x * slip / A, 0.0)
    return change.velocity(w0 + free * beta[:, None])


def principal(before: Rows, after: Rows):
    """Principal vectors b of the rows after, u orthogonal to them towards the rows before, and the
    angle; zeros where there is no row."""
    X = product(after.b, flipped(before.b))
    V = eigenvectors(product(X, flipped(X)) + 4 * (~after.keep[:, :, None] * np.eye(X.shape[1])))
    b = product(flipped(V), after.b)
    there = np.sum(b**2, axis=2) > 0.5
    b = np.where(there[:, :, None], b, 0.0)
    near = product(product(b, flipped(before.b)), before.b)
    far = b - near
    cosine, sine = (np.sqrt(np.sum(x**2, axis=2)) for x in (near, far))
    a = near / np.where(cosine > 0, cosine, 1.0)[:, :, None]
    toward = a - np.sum(a * b, axis=2)[:, :, None] * b
    size = np.sqrt(np.sum(toward**2, axis=2))
    u = np.where((size > 0)[:, :, None], toward / np.where(size > 0, size, 1.0)[:, :, None], 0.0)
    return V, b, u, np.where(there, np.arctan2(sine, cosine), 0.0), there


def intermediate(change: Change, E):
    """In the mass metric; and the largest principal angle."""
    V, b, u, angle, _ = principal(change.before, change.after)
    D = b + np.tan((1 - wide(E)) * angle)[:, :, None] * u
    beta = times(flipped(V), change.after.beta(-change.gt))
    x = times(b, change.pushed) - beta
    return change.velocity(change.pushed - np.sum(D * x[:, :, None], axis=1)), angle.max(axis=1)


def intermediate_euclidean(change: Change, E):
    """In the Euclidean metric; the largest principal angle, and how far the equation for Lam is
    from being singular."""
    before, after = Rows(change.G_before), Rows(change.G_after)
    V, b, u, angle, there = principal(before, after)
    D = b + np.tan((1 - wide(E)) * angle)[:, :, None] * u
    Y = backward(change.L, forward(change.L, flipped(D)))
    K = product(b, Y) + ~there[:, :, None] * np.eye(b.shape[1])
    beta = times(flipped(V), after.beta(-change.gt))
    free = change.velocity(change.pushed)
    x = eliminated(K, (times(b, free) - beta)[:, :, None])[:, :, 0]
    own = product(b, backward(change.L, forward(change.L, flipped(b))))
    scale = np.sqrt(np.where(there, np.einsum("kii->ki", own), 1.0))
    unit = (K / scale[:, :, None] / scale[:, None, :]).astype(float)
    smallest = np.linalg.svd(unit, compute_uv=False)[:, -1]
    return free - times(Y, x), angle.max(axis=1), smallest
