"""N four-bar windows side by side: one degree of freedom, and N more where all rods lie flat.

Problem A02 of the IFToMM benchmark library of multibody dynamics (M. Gonzalez, N = 40; an extension
of the two windows of E. Bayo and A. Avello): N + 1 rods A_i B_i stand on the ground, L apart, and N
rods join the tops B_0 ... B_N. Natural coordinates, the places of the tops:

    q = (x_0, y_0, ..., x_N, y_N),   A_i = (i L, 0)                                              (1)
    (|B_i - A_i|^2 - L^2)/2 = 0,   (|B_i - B_(i-1)|^2 - L^2)/2 = 0       N + 1 and N rows        (2)

A uniform rod between the points P and Q, whose velocities vary linearly in between, has

    T = m/6 (|P'|^2 + P'.Q' + |Q'|^2),     V = m g (y_P + y_Q)/2                                 (3)

so M is constant. The tops move alike, B_i - A_i = L (sin theta, cos theta), which makes the
mechanism a compound pendulum: (3) gives, with N rods that do not turn,

    ((N + 1)/3 + N) L theta'' = ((N + 1)/2 + N) g sin(theta)                                     (4)

Where theta = 90 degrees all gradients in (2) point along x: 2 N + 1 rows in N + 1 directions. For
N > 1 the tops in the middle, on which more hangs, would fall more slowly there than those at the
ends: to keep them level the reactions grow without bound as 1/cos(theta), although the motion (4)
is smooth. The library prints m = 1 kg, L = 1 m, g = 9.81 m/s^2 along -y, and 1 m/s along x for B_0
at the start, with the rods upright as drawn; it runs for 20 s, most of those who compute it for 10.
"""

import jax.numpy as jnp
import numpy as np

import nsdyn
from nsdyn.errors import ProblemError

ABOUT = nsdyn.About(tags=("smooth", "loops", "singular"), source="IFToMM A02")

REFERENCE = nsdyn.Reference(
    q=(
        0.3284581115361,
        0.9445185381802,
        1.3284581115361,
        0.9445185381802,
        2.3284581115361,
        0.9445185381802,
    ),
    v=(
        1.4230514701964,
        -0.4948688454754,
        1.4230514701964,
        -0.4948688454754,
        1.4230514701964,
        -0.4948688454754,
    ),
    source="own: the pendulum (4) by DOP853 of scipy, rtol 1e-13",
    tolerance=1e-6,
    agrees=(
        nsdyn.Agreement("EventDriven(RK4())", 4000, 1e-6),
        nsdyn.Agreement("EventDriven(DormandPrince(order=8, rtol=1e-11, atol=1e-13))", 50, 1e-8),
        nsdyn.Agreement("NSGA()", 110000, 1e-6),  # one of 100,000 ends at a singular position
        nsdyn.Agreement("GeneralizedAlpha(index=2)", 100000, 1e-6),
        nsdyn.Agreement("GeneralizedAlpha(index=3)", 100000, 1e-6),
    ),
)


def _tops(q):
    return q.reshape(-1, 2)


def _feet(q, p):
    tops = q.shape[0] // 2
    return p["L"] * jnp.stack([jnp.arange(float(tops)), jnp.zeros(tops)], axis=1)


def unit_mass(tops):
    """M of (3) along one axis, for m = 1: it is tridiagonal, and the same along x and y."""
    M = np.diag(np.full(tops, 1 / 3))  # the standing rods, one end at rest
    for i in range(tops - 1):
        M[i : i + 2, i : i + 2] += np.array([[2, 1], [1, 2]]) / 6
    return M


def mass(q, p):
    return p["m"] * np.kron(unit_mass(q.shape[0] // 2), np.eye(2))


def solve(q, b, p):
    """M is constant, so that its inverse is known when the program is compiled, but for m. Few of
    its entries differ, so that it is better divided by m than the product."""
    unit = jnp.asarray(np.kron(np.linalg.inv(unit_mass(q.shape[0] // 2)), np.eye(2)))
    return (unit / p["m"]) @ b


def _shares(tops):
    """The weight that each top carries, in units of that of a rod."""
    shares = np.full(tops, 1.5)
    shares[[0, -1]] = 1.0
    return shares


def force(q, v, t, p):
    weights = -p["m"] * p["g"] * _shares(q.shape[0] // 2)
    return jnp.stack([jnp.zeros_like(weights), weights], axis=1).ravel()


def potential(q, p):
    return p["m"] * p["g"] * jnp.sum(_shares(q.shape[0] // 2) * _tops(q)[:, 1])  # (3)


def rods(q, t, p):
    B = _tops(q)
    ends = jnp.concatenate([B - _feet(q, p), B[1:] - B[:-1]])
    return 0.5 * (jnp.sum(ends**2, axis=1) - p["L"] ** 2)  # (2)


def shape(q, p):
    """The standing rods, and the line of the tops."""
    B = _tops(q)
    standing = jnp.stack([_feet(q, p), B], axis=1)
    return (*standing, B)


SYSTEM = nsdyn.System(mass=mass, force=force, potential=potential, solve=solve)
RODS = nsdyn.Fixed(rods)


def angle(q, p):
    """theta of each standing rod, in (-pi, pi]."""
    B = _tops(q) - _feet(q, p)
    return jnp.arctan2(B[:, 0], B[:, 1])


def pendulum_rate(windows, p):
    """theta''/sin(theta) of the pendulum that the mechanism is."""
    return ((windows + 1) / 2 + windows) / ((windows + 1) / 3 + windows) * p["g"] / p["L"]  # (4)


def n_four_bar(windows=2, m=1.0, L=1.0, g=9.81, v0=1.0, t_end=10.0) -> nsdyn.Problem:
    """The rods upright, the tops moving to the right with v0. params: m, L, g."""
    if not (isinstance(windows, int) and windows >= 1):
        raise ProblemError(
            f"n_four_bar(windows=...): expected a whole number >= 1, found {windows!r}"
        )
    for name, value in (("m", m), ("L", L)):
        if isinstance(value, int | float) and not value > 0:
            raise ProblemError(f"n_four_bar({name}=...): expected a positive number, found {value}")
    params = {name: jnp.asarray(value, float) for name, value in (("m", m), ("L", L), ("g", g))}
    q = jnp.zeros(2 * windows + 2)
    q0 = (_feet(q, params) + params["L"] * jnp.array([[0.0, 1.0]])).ravel()
    v0 = jnp.tile(jnp.stack([jnp.asarray(v0, float), jnp.zeros(())]), windows + 1)
    return nsdyn.Problem(
        "n_four_bar",
        SYSTEM,
        RODS,
        q0=q0,
        v0=v0,
        t_end=t_end,
        params=params,
        coordinates=[f"{axis}_{i} [m]" for i in range(windows + 1) for axis in "xy"],
        shape=shape,
    )
