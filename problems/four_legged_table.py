"""Four-legged table: a table that is pushed, slides, turns and stops on its four legs.

A free body (`nsdyn.multibody.free_bodies`) with the mass m, which touches the floor with the ends
of four legs at (+-a, +-b, -h) from its centre of mass. Three legs would be enough: how the weight
is shared among four rigid ones, nobody can say, and a run reports one of the many ways. At rest and
in straight sliding the motion does not depend on it. Where it slides and turns at once it does:
then the friction of each leg, and so the motion, depends on which legs carry the weight.

The default is straight sliding: from the speed v along x it stops after v^2/(2 mu g), if the legs
at the back keep touching, mu h <= a. All numbers are assumed.
"""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

import nsdyn
from nsdyn._types import Configuration, Number, Params, Scalar
from nsdyn.multibody import free_bodies, outlines, surfaces

ABOUT = nsdyn.About(tags=("contact", "friction", "spatial"), source="own")

A, B, H = 0.5, 0.3, 0.4
LEGS = tuple((x * A, y * B, -H) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1)))


def friction(p: Params) -> Scalar:
    return p["mu"]


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """The legs, the top, and a piece of the floor."""
    tops = np.array(LEGS) * np.array([1.0, 1.0, 0.0])
    legs = [np.stack([top, np.array(foot)]) for top, foot in zip(tops, LEGS, strict=True)]
    plate = np.concatenate([tops, tops[:1]])
    floor = jnp.array([[-0.6, -0.5, 0.0], [1.2, -0.5, 0.0], [1.2, 0.5, 0], [-0.6, 0.5, 0]])
    return *outlines.placed(q, 0, [*legs, plate]), floor[jnp.array([0, 1, 2, 3, 0])]


FLOOR = surfaces.contacts(
    [(surfaces.Ball(0, 0.0, leg), surfaces.Plane()) for leg in LEGS], mu=friction
)
COORDINATES = ("x [m]", "y [m]", "z [m]", "a0", "a1", "a2", "a3")


def four_legged_table(
    v: Number = 1.5, spin: Number = 0.0, mu: Number = 0.3, m: Number = 10.0, t_end: float = 1.0
) -> nsdyn.Problem:
    """A table slides and stops; v is its speed along x, `spin` its rate about the vertical. params:
    m, J, g, mu."""
    weight = jnp.asarray(m, float)
    params = {
        "m": weight[None],
        "J": (weight * jnp.array([0.04, 0.09, 0.12]))[None],
        "g": jnp.array([0.0, 0.0, -9.81]),
        "mu": jnp.asarray(mu, float),
    }
    return nsdyn.Problem(
        "four_legged_table",
        free_bodies.SYSTEM,
        FLOOR,
        q0=jnp.array([0.0, 0.0, H, 1.0, 0.0, 0.0, 0.0]),
        v0=jnp.zeros(6).at[0].set(v).at[5].set(spin),
        t_end=t_end,
        params=params,
        coordinates=COORDINATES,
        shape=shape,
    )
