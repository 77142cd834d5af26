"""Particle on a polygon with any number of segments, in both directions.

`point_on_track` with many modes: the same particle on a polygon with the corners (x_k, y_k), k = 0
... n, x_0 < x_1 < ... On segment k (the mode), from corner k to k + 1,

    g = y - y_k - (x - x_k) (y_{k+1} - y_k) / (x_{k+1} - x_k)                                    (1)
    z = x - x_k  (left end),   x_{k+1} - x  (right end)                                          (2)

and the first and last segments continue beyond their ends. Only the current segment is looked up in
the tables, so a step costs the same for any n. The tables hold corners, not slopes, so the segments
always meet.

A turn of more than a right angle ends a run with Status.LEADS_BACK, as in the wedge of
`point_on_track`.

This problem is ours. Default: a bowl, y = x^2 / 2 at ten corners, in which the particle starts at
rest and returns.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import nsdyn
from nsdyn._types import (
    AnyMode,
    AnyTime,
    Configuration,
    GuardMask,
    Guards,
    Held,
    Mode,
    Number,
    Numbers,
    Params,
    Rows,
    Velocity,
)
from nsdyn.problems.point_on_track import SYSTEM

ABOUT = nsdyn.About(tags=("switching", "many modes"), source="own")

BOWL = np.linspace(-0.9, 0.9, 10)


def line(q: Configuration, t: AnyTime, p: Params, segment: AnyMode, held: Held) -> Rows:
    x, y = p["x"], p["y"]
    rise = (y[segment + 1] - y[segment]) / (x[segment + 1] - x[segment])
    return q[1:] - y[segment] - rise * (q[0] - x[segment])  # (1)


def ends(
    q: Configuration,
    v: Velocity,
    lam: Rows,
    t: AnyTime,
    p: Params,
    segment: AnyMode,
    held: Held,
) -> Guards:
    """Guard k mod 2 belongs to corner k on both sides, so that the guard that fired is also the one
    that would fall if the motion led back."""
    left = jnp.where(segment == 0, 1.0, q[0] - p["x"][segment])
    right = jnp.where(segment == p["x"].shape[0] - 2, 1.0, p["x"][segment + 1] - q[0])
    return jnp.where(segment % 2 == 0, jnp.stack([left, right]), jnp.stack([right, left]))  # (2)


def neighbour(
    fired: GuardMask, q: Configuration, v: Velocity, t: AnyTime, p: Params, segment: AnyMode
) -> Mode:
    return jnp.where(fired[(segment + 1) % 2], segment + 1, segment - 1)


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """The polygon, and the particle."""
    return (jnp.stack([p["x"], p["y"]], axis=1), q[None])


def segmented_track(
    x: Numbers = BOWL,
    y: Numbers = BOWL**2 / 2,
    m: Number = 1.0,
    my: Number | None = None,
    g: Number = 9.81,
    x0: Number = -0.8,
    v0: Number = 0.0,
    t_end: float = 2.0,
) -> nsdyn.Problem:
    """Corners x, y; the particle starts at x0 with the velocity v0 along the track, positive to the
    right.

    params: x, y, m, my (None: m), g.
    """
    x = jnp.asarray(x, float)
    y = jnp.asarray(y, float)
    if x.ndim != 1 or x.shape != y.shape or x.shape[0] < 2:
        raise nsdyn.ProblemError(
            "segmented_track(x=..., y=...): expected two vectors of the same length, at least 2, "
            f"found shapes {x.shape} and {y.shape}"
        )
    if not isinstance(x, jax.core.Tracer) and np.any(np.diff(x) <= 0):
        raise nsdyn.ProblemError(
            f"segmented_track(x=...): expected increasing corners, found {np.asarray(x).tolist()}"
        )
    values = {"m": m, "my": m if my is None else my, "g": g}
    params = {"x": x, "y": y} | {name: jnp.asarray(value, float) for name, value in values.items()}
    segment = jnp.clip(jnp.searchsorted(x, x0, side="right") - 1, 0, x.shape[0] - 2)
    rise = (y[segment + 1] - y[segment]) / (x[segment + 1] - x[segment])
    q0 = jnp.stack([x0, y[segment] + rise * (x0 - x[segment])])
    ahead = v0 / jnp.hypot(1.0, rise)
    polygon = nsdyn.Transitions(rows=line, guards=ends, after=neighbour, mode0=segment)
    v0 = jnp.stack([ahead, ahead * rise])
    return nsdyn.Problem(
        "segmented_track",
        SYSTEM,
        polygon,
        q0=q0,
        v0=v0,
        t_end=t_end,
        params=params,
        coordinates=("x [m]", "y [m]"),
        shape=shape,
    )
