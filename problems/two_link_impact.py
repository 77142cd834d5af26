"""Two links in a row whose end hits a fixed wall: the example of Alexiou's section 3, with its
closed form.

Two equal slender links of length L and mass m, I = m L^2/12, lie along the x-axis and turn about z
with the joint rates w_1, w_2. Their end, moving along +y, has reached the wall y = 0: gap = -y.
Nothing else acts. His closed form, n = +y,

    v_imp = L (2 w_1 + w_2)                                                                    (34)
    J = (1 + e) (7 m/24) L (2 w_1 + w_2)                                                       (36)
    dw_1 = (1 + e) (1/4) (2 w_1 + w_2)                                                         (38)
    dw_2 = -(1 + e) (3/2) (2 w_1 + w_2)                                                        (39)
    v_bounce = -e v_imp                                                                        (40)

holds with the law `Restitution(e)`. The row of the gap is -n, so the impulse of the event is Lam =
-J. The source leaves masses, lengths and rates open; the values here are ours.
"""

import jax.numpy as jnp
from jaxtyping import Array

import nsdyn
from nsdyn._types import Configuration, Number, Numbers, Params
from nsdyn.multibody.chain import Chain
from nsdyn.multibody.chain_dynamics import chain_system
from nsdyn.multibody.skeleton import chain_shape
from nsdyn.problems.serial_chain import gap

ABOUT = nsdyn.About(tags=("contact", "chain"), source="Alexiou")


def shape(q: Configuration, p: Params) -> tuple[Array, ...]:
    """Both links, in the plane in which they move, and the wall."""
    links = chain_shape(q, p)[0][:, :2]
    reach = 2 * p["tip"][0]
    wall = jnp.stack([reach * jnp.array([0.8, 1.2]), jnp.zeros(2)], axis=1)
    return (links, wall)


def two_link_impact(
    m: Number = 1.0,
    L: Number = 1.0,
    w: Numbers = (1.0, 0.5),
    q0: Numbers = (0.0, 0.0),
    t_end: float = 0.2,
) -> nsdyn.Problem:
    """The run starts at the impact. params: chain, tip, normal, offset."""
    along = jnp.array([L, 0.0, 0.0])
    rod = m * L**2 / 12 * jnp.diag(jnp.array([0.0, 1.0, 1.0]))
    chain = Chain(
        axis=[(0.0, 0.0, 1.0)] * 2,
        place=jnp.stack([jnp.zeros(3), along]),
        mass=[m, m],
        com=jnp.stack([along, along]) / 2,
        inertia=jnp.stack([rod, rod]),
        gravity=(0.0, 0.0, 0.0),
    )
    params = {"chain": chain, "tip": along, "normal": jnp.array([0.0, -1.0, 0.0]), "offset": 0.0}
    return nsdyn.Problem(
        "two_link_impact",
        chain_system(2),
        nsdyn.Contact(gap),
        q0=q0,
        v0=w,
        t_end=t_end,
        params=params,
        coordinates=("q_1 [rad]", "q_2 [rad]"),
        shape=shape,
    )
