"""A chain of n links in 3D that falls and hits a floor or a wall with its tip; joints may lock.

Equal cylindrical links, each along its x-axis, connected at their ends; joint 0 is at the origin.
The axis of joint i is normal to the link, at the angle `twist` i, so that the chain leaves every
plane:

    axis_i = (0, cos(twist i), sin(twist i))                                                   (1)
    I = diag(m r^2/2, m (3 r^2 + L^2)/12, m (3 r^2 + L^2)/12) about the middle of the link     (2)
    gap = normal . tip - offset                                                                (3)

At q = 0 the chain lies along the world's x-axis; gravity acts along -z. All numbers are ours.
"""

from collections.abc import Iterable

import jax.numpy as jnp
from jaxtyping import Array, Float

import nsdyn
from nsdyn._types import AnyTime, Configuration, Number, Numbers, Params, Rows
from nsdyn.errors import ProblemError
from nsdyn.multibody.chain import Chain, tip
from nsdyn.multibody.chain_dynamics import chain_system
from nsdyn.multibody.skeleton import chain_coordinates, chain_shape

ABOUT = nsdyn.About(tags=("chain", "contact", "locking"), source="own")

GRAVITY = 9.81


def gap(q: Configuration, t: AnyTime, p: Params) -> Rows:
    return jnp.sum(p["normal"] * tip(p["chain"], q, p["tip"]))[None] - p["offset"]  # (3)


def lock_times(p: Params) -> Float[Array, " locks"]:
    return p["locks"]


def links(n: int, length: Number, mass: Number, radius: Number, twist: Number, g: Number) -> Chain:
    """n equal links in a row."""
    angle = twist * jnp.arange(n)
    axes = jnp.stack([jnp.zeros(n), jnp.cos(angle), jnp.sin(angle)], axis=1)  # (1)
    along = jnp.array([length, 0.0, 0.0])
    across = (3 * radius**2 + length**2) / 12
    inertia = mass * jnp.diag(jnp.array([radius**2 / 2, across, across]))  # (2)
    return Chain(
        axis=axes,
        place=jnp.zeros((n, 3)).at[1:].set(along),
        mass=jnp.full(n, mass),
        com=jnp.broadcast_to(along / 2, (n, 3)),
        inertia=jnp.broadcast_to(inertia, (n, 3, 3)),
        gravity=[0.0, 0.0, -g],
    )


def constraints(rest_speed: float | None, joints: tuple[int, ...]) -> tuple:
    """The contact, and brakes that lock these joints one after another."""
    parts: tuple = () if rest_speed is None else (nsdyn.Contact(gap, rest_speed),)
    if joints:
        stages = (None, *(nsdyn.lock(*joints[: k + 1]) for k in range(len(joints))))
        parts += (nsdyn.Scheduled(times=lock_times, stages=stages),)
    return parts


def serial_chain(
    n: int = 4,
    length: Number = 1.0,
    mass: Number = 1.0,
    radius: Number = 0.05,
    twist: Number = 0.5,
    g: Number = GRAVITY,
    normal: Numbers = (0.0, 0.0, 1.0),
    offset: Number | None = -1.0,
    rest_speed: float = 0.05,
    locks: Iterable[tuple[float, int]] = (),
    q0: Numbers | None = None,
    v0: Numbers | None = None,
    t_end: float = 1.0,
) -> nsdyn.Problem:
    """n links; offset=None: no wall; locks=((time, joint), ...) in ascending order. A tip that
    leaves the wall more slowly than `rest_speed` stays on it; 0.05 m/s is a bounce of a tenth of a
    millimetre.

    params: chain, tip, normal, offset, locks (the times).
    """
    locks = tuple((float(time), int(joint)) for time, joint in locks)
    wrong = [joint for _, joint in locks if not 0 <= joint < n]
    if wrong:
        raise ProblemError(
            f"serial_chain(locks=...): expected joints 0 ... {n - 1}, found {wrong[0]}"
        )
    params = {
        "chain": links(n, length, mass, radius, twist, g),
        "tip": jnp.array([length, 0.0, 0.0]),
        "normal": jnp.asarray(normal, float),
        "offset": jnp.asarray(0.0 if offset is None else offset, float),
        "locks": jnp.array([time for time, _ in locks]),
    }
    q0 = jnp.zeros(n) if q0 is None else q0
    v0 = jnp.zeros(n) if v0 is None else v0
    parts = constraints(None if offset is None else rest_speed, tuple(joint for _, joint in locks))
    return nsdyn.Problem(
        "serial_chain",
        chain_system(n),
        parts,
        q0=q0,
        v0=v0,
        t_end=t_end,
        params=params,
        coordinates=chain_coordinates([f"q_{i + 1}" for i in range(n)]),
        shape=chain_shape,
    )
