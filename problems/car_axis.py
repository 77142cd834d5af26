"""Car axis on a bumpy road: two wheels on springs, the left end of the axis driven along a circle.

From the test set for initial value problems (CWI, Bari; after S. Schneider). The axis joins the
points (x_l, y_l) and (x_r, y_r), on springs of length L0 above the wheels: the left wheel stays at
the origin, the right one goes over bumps of height r,

    y_b = r sin(w t),   x_b = sqrt(L^2 - y_b^2)                                                  (1)

In the units of the test set the springs have stiffness 1 and half the car has the mass and weight
k = M eps^2 / 2:

    k x'' = (L0 - l) e - (0, k),   l e from each wheel to its end of the axis                    (2)
    x_b x_l + y_b y_l = 0                          the left spring stands upright on the ground  (3)
    ((x_l - x_r)^2 + (y_l - y_r)^2 - L^2) / 2 = 0                                                (4)

(4) is half of what the test set writes.
"""

import jax.numpy as jnp
from jaxtyping import Array

import nsdyn
from nsdyn._types import AnyTime, Configuration, Matrix, Number, Params, Rows, Velocity

ABOUT = nsdyn.About(tags=("smooth", "moving rows", "planar"), source="IVP test set")

REFERENCE = nsdyn.Reference(
    q=(
        0.493455784275402809122e-1,
        0.496989460230171153861,
        0.104174252488542151681e1,
        0.373911027265361256927,
    ),
    v=(
        -0.770583684040972357970e-1,
        0.744686658723778553466e-2,
        0.175568157537232222276e-1,
        0.770341043779251976443,
    ),
    source="test set for IVP solvers, GAMD in quadruple precision",
    tolerance=1e-8,
    agrees=(
        nsdyn.Agreement("EventDriven(RK4())", 16000, 1e-08),
        nsdyn.Agreement("EventDriven(DormandPrince(order=8, rtol=1e-11, atol=1e-13))", 50, 1e-09),
        nsdyn.Agreement("NSGA()", 5000000, 1e-8),
        nsdyn.Agreement("GeneralizedAlpha(index=2)", 5000000, 1e-8),
        nsdyn.Agreement("GeneralizedAlpha(index=3)", 5000000, 1e-8),
    ),
)


def wheel(t: AnyTime, p: Params) -> Array:
    """The right wheel."""
    height = p["r"] * jnp.sin(p["w"] * t)
    return jnp.stack([jnp.sqrt(p["L"] ** 2 - height**2), height])  # (1)


def mass(q: Configuration, p: Params) -> Matrix:
    return p["k"] * jnp.eye(4)


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params) -> Velocity:
    def spring(x: Array) -> Array:
        length = jnp.sqrt(jnp.sum(jnp.square(x)))
        return (p["L0"] / length - 1.0) * x

    weight = jnp.stack([jnp.zeros(()), p["k"]])
    return jnp.concatenate([spring(q[:2]) - weight, spring(q[2:] - wheel(t, p)) - weight])  # (2)


def rows(q: Configuration, t: AnyTime, p: Params) -> Rows:
    upright = jnp.sum(wheel(t, p) * q[:2])  # (3)
    axis = 0.5 * (jnp.sum(jnp.square(q[:2] - q[2:])) - p["L"] ** 2)  # (4)
    return jnp.stack([upright, axis])


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """The axis, and the line from the left wheel to its end of the axis. The right wheel is not
    drawn: where it is depends on the time."""
    return (jnp.stack([q[:2], q[2:]]), jnp.stack([jnp.zeros(2), q[:2]]))


SYSTEM = nsdyn.System(mass=mass, force=force)
AXIS = nsdyn.Fixed(rows)


def car_axis(
    eps: Number = 0.01,
    M: Number = 10.0,
    L: Number = 1.0,
    L0: Number = 0.5,
    r: Number = 0.1,
    w: Number = 10.0,
    t_end: float = 3.0,
) -> nsdyn.Problem:
    """The car axis. params: k, L, L0, r, w."""
    numbers = {"k": M * eps**2 / 2, "L": L, "L0": L0, "r": r, "w": w}
    params = {name: jnp.asarray(value, float) for name, value in numbers.items()}
    L, L0, drive = params["L"], params["L0"], params["r"] * params["w"]
    zero = jnp.zeros(())
    # The rates that the moving rows (3) and (4) ask for: y_b' = r w at t = 0.
    slide = -drive * L0 / L
    return nsdyn.Problem(
        "car_axis",
        SYSTEM,
        AXIS,
        q0=jnp.stack([zero, L0, L, L0]),
        v0=jnp.stack([slide, zero, slide, zero]),
        t_end=t_end,
        params=params,
        coordinates=("x_l", "y_l", "x_r", "y_r"),  # without units, as in the test set
        shape=shape,
    )
