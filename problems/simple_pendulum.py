"""Simple pendulum: a point mass on a massless bar, released from the horizontal.

Problem A01 of the IFToMM benchmark library of multibody dynamics: m = 1 kg, L = 1 m, g =
9.81 m/s^2, for 10 s, in the coordinates q = (x, y) of the mass, which starts at rest at (-L, 0).
Equations as in `pendulum`, with one mass. The angle theta from the hanging position has the closed
form, in Jacobi's elliptic functions of the modulus k = sin(theta_0/2), theta_0 = 90 degrees,

    sin(theta/2) = k cd(w t),   theta' = -2 k w sqrt(1 - k^2) sd(w t),   w = sqrt(g/L)           (1)
    q = -L (sin(theta), cos(theta))                                                              (2)
"""

import jax.numpy as jnp
import numpy as np

import nsdyn
from nsdyn._types import Number
from nsdyn.problems.pendulum import ROD, SYSTEM, shape

ABOUT = nsdyn.About(tags=("smooth", "planar"), source="IFToMM A01")


def exact(t: np.ndarray, L: float = 1.0, g: float = 9.81) -> tuple[np.ndarray, np.ndarray]:
    """q and v at the times t, shapes (k, 2)."""
    from scipy.special import ellipj

    w, k = np.sqrt(g / L), np.sin(np.pi / 4)
    sn, cn, dn, _ = ellipj(w * t, k**2)
    theta = 2 * np.arcsin(k * cn / dn)
    rate = -2 * k * w * np.sqrt(1 - k**2) * sn / dn  # (1)
    q = -L * np.stack([np.sin(theta), np.cos(theta)], axis=-1)
    v = -L * (rate * np.stack([np.cos(theta), -np.sin(theta)])).T
    return q, v  # (2)


def motion(
    t: np.ndarray, problem: nsdyn.Problem, law: nsdyn.AbstractLaw
) -> tuple[np.ndarray, np.ndarray]:
    return exact(t, float(problem.params["L"]), float(problem.params["g"]))


CLOSED_FORM = nsdyn.ClosedForm(motion, "elliptic functions, (1) and (2) of its file")
REFERENCE = nsdyn.Reference(
    q=(-0.2750874625761195, -0.9614192050991243),
    v=(4.17559810095177, -1.1947490545604997),
    source="closed form",
    tolerance=1e-7,
    agrees=(
        nsdyn.Agreement("EventDriven(RK4())", 4000, 1e-08),
        nsdyn.Agreement("EventDriven(DormandPrince(order=8, rtol=1e-11, atol=1e-13))", 50, 1e-09),
        nsdyn.Agreement("NSGA()", 400000, 1e-7),
        nsdyn.Agreement("GeneralizedAlpha(index=2)", 400000, 1e-7),
        nsdyn.Agreement("GeneralizedAlpha(index=3)", 400000, 1e-7),
    ),
)


def simple_pendulum(
    m: Number = 1.0, L: Number = 1.0, g: Number = 9.81, t_end: float = 10.0
) -> nsdyn.Problem:
    """The pendulum, released horizontally to the left. params: mx and my (both m), L, g."""
    values = {"mx": m, "my": m, "L": L, "g": g}
    params = {name: jnp.asarray(value, float) for name, value in values.items()}
    q0 = jnp.stack([-params["L"], jnp.zeros(())])
    return nsdyn.Problem(
        "simple_pendulum",
        SYSTEM,
        ROD,
        q0=q0,
        v0=jnp.zeros(2),
        t_end=t_end,
        params=params,
        coordinates=("x [m]", "y [m]"),
        shape=shape,
    )
