"""Small mechanisms that several test files share. Functions at module level, so that programs are
shared as well."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import nsdyn
from nsdyn import laws
from nsdyn.driver.arguments import plain_values, setup
from nsdyn.driver.single_run import computed
from nsdyn.problem import as_arrays


def run(problem, integrator, params=None, q0=None, v0=None, law=None, **options):
    """A run as `simulate` makes it, with the backend of NSDYN_BACKEND, but not checked, and with a
    status instead of an error."""
    found = setup(problem, integrator, law, **options)
    return computed(problem, found, plain_values(problem, params, q0, v0))


_rollout = eqx.filter_jit(nsdyn.rollout)


def rolled_out(problem, integrator, params=None, **options):
    """A compiled rollout, whose samples after a stop are NaN; numbers become arrays first, so that
    a new value does not compile anew."""
    return _rollout(problem, integrator, params=as_arrays(params), **options)


def plane_mass(q, p):
    return p["m"] * jnp.eye(2)


def plane_force(q, v, t, p):
    return jnp.stack([0.0 * p["m"], -p["m"] * p["g"]])


def plane_potential(q, p):
    return p["m"] * p["g"] * q[1]


PARTICLE = nsdyn.System(mass=plane_mass, force=plane_force, potential=plane_potential)


def level(q, t, p):
    return q[1]


def slope(q, t, p):
    return q[1] - p["a"] * (q[0] - p["l"])


def corner(q, p):
    return q[0] - p["l"]


def track(l=0.5, g=9.81, v0=4.0, t_end=0.4):
    """A particle on a track that turns upwards at x = l; closed form in `track_exact`."""
    constraint = nsdyn.Switching(modes=(level, slope), switches=(corner,))
    params = {"m": 1.0, "g": g, "a": 0.5, "l": l}
    return nsdyn.Problem(
        "track", PARTICLE, constraint, q0=[0.0, 0.0], v0=[v0, 0.0], t_end=t_end, params=params
    )


def track_exact(t, l=0.5, g=9.81, v0=4.0, a=0.5):
    """(t_s, q, v) with the post-switch gradient: the speed falls by cos(atan a)."""
    th, ts = np.arctan(a), l / v0
    u, tau = v0 * np.cos(th), t - ts
    along, speed = u * tau - g * np.sin(th) * tau**2 / 2, u - g * np.sin(th) * tau
    direction = np.array([np.cos(th), np.sin(th)])
    return ts, np.array([l, 0.0]) + along * direction, speed * direction


def swing_mass(q, p):
    return jnp.diag(jnp.stack([p["m"], 2.0 * p["m"]]))


def swing_force(q, v, t, p):
    return jnp.stack([0.0 * p["m"], -2.0 * p["m"] * p["g"]])


SWING = nsdyn.System(mass=swing_mass, force=swing_force)


def circle(q, t, p):
    return 0.5 * (q[0] ** 2 + q[1] ** 2 - 1.0)


def peg_circle(q, t, p):
    return 0.5 * (q[0] ** 2 + (q[1] + 0.5) ** 2 - 0.25)


def below_peg(q, p):
    return -q[0]


def pegged_swing():
    """A Cartesian pendulum with M = diag(1, 2) whose string meets a peg half-way down when it
    passes the vertical.

    The switch has a velocity-independent place but a time that must be solved for, and nonlinear
    constraints on both sides.
    """
    constraint = nsdyn.Switching(modes=(circle, peg_circle), switches=(below_peg,))
    params = {"m": 1.0, "g": 9.81}
    return nsdyn.Problem(
        "pegged_swing", SWING, constraint, q0=[0.8, -0.6], v0=[0.0, 0.0], t_end=0.8, params=params
    )


def ball_mass(q, p):
    return jnp.eye(1)


def ball_force(q, v, t, p):
    return -jnp.stack([p["g"]])


def floor_gap(q, t, p):
    return q


BALL = nsdyn.System(mass=ball_mass, force=ball_force)


def ball(rest_speed=1e-3, t_end=5.0):
    contact = nsdyn.Contact(floor_gap, rest_speed=rest_speed)
    return nsdyn.Problem("ball", BALL, contact, q0=[1.0], v0=[0.0], t_end=t_end, params={"g": 9.81})


class Either(laws.AbstractLaw):
    """The consistent law or that of zero rates, by a traced choice: one program for both."""

    consistent: jax.Array

    def __init__(self, consistent):
        self.consistent = jnp.asarray(consistent)

    def decide(self, change):
        right, wrong = laws.MuellerTransition().decide(change), laws.ZeroVelocity().decide(change)
        return jax.tree.map(lambda a, b: jnp.where(self.consistent, a, b), right, wrong)


# With `Contacts`: a disc, a block and carts.

G = 9.81


def friction(p):
    return p["mu"]


def restitution(p):
    return p["e"]


# A ball of radius 0.1 in the plane: height, x, angle.


def disc_mass(q, p):
    return jnp.diag(jnp.array([1.0, 1.0, 0.4 * 0.01]))


def disc_weight(q, v, t, p):
    return jnp.array([-G, 0.0, 0.0])


def below_disc(q, t, p):
    return q[0] - 0.1


def along_disc(q, v, t, p):
    return v[1] + 0.1 * v[2]


DISC = nsdyn.System(mass=disc_mass, force=disc_weight)
UNDER_DISC = nsdyn.Contacts(below_disc, along_disc, mu=friction, e=restitution)


def disc(q0=(1.0, 0.0, 0.0), v0=(0.0, 0.0, 50.0), t_end=1.1, mu=0.2, e=0.0):
    start = {"q0": list(q0), "v0": list(v0), "t_end": t_end}
    return nsdyn.Problem("disc", DISC, UNDER_DISC, params={"mu": mu, "e": e}, **start)


# A block of half width b and half height c on a floor that is inclined by p["slope"]: x along the
# floor, y from it, angle.


def block_mass(q, p):
    return jnp.diag(jnp.array([1.0, 1.0, (p["b"] ** 2 + p["c"] ** 2) / 3]))


def block_weight(q, v, t, p):
    return G * jnp.array([jnp.sin(p["slope"]), -jnp.cos(p["slope"]), 0.0])


def corners(q, p):
    """Both lower corners: their places relative to the centre."""
    s, c = jnp.sin(q[2]), jnp.cos(q[2])
    x = jnp.array([-1.0, 1.0]) * p["b"]
    return x * c + p["c"] * s, x * s - p["c"] * c


def below_block(q, t, p):
    return q[1] + corners(q, p)[1]


def along_block(q, v, t, p):
    return v[0] - corners(q, p)[1] * v[2]


BLOCK = nsdyn.System(mass=block_mass, force=block_weight)
UNDER_BLOCK = nsdyn.Contacts(below_block, along_block, mu=friction, e=restitution)


def block(q0=(0.0, 0.1, 0.0), v0=(0.0, 0.0, 0.0), t_end=1.0, **values):
    params = {"b": 0.4, "c": 0.1, "slope": 0.0, "mu": 0.5, "e": 0.0, **values}
    return nsdyn.Problem(
        "block",
        BLOCK,
        UNDER_BLOCK,
        q0=list(q0),
        v0=list(v0),
        t_end=t_end,
        params=params,
    )


# Two carts joined by a rod, the second with a load on it whose weight makes friction.


def cart_mass(q, p):
    return jnp.diag(jnp.array([1.0, 2.0, 3.0]))


def pulled(q, v, t, p):
    return jnp.array([10.0, 0.0, -3 * G])


def joined(q, t, p):
    return q[1] - q[0] - 1.0


def floor(q, t, p):
    return q[2]


def trailer_slides(q, v, t, p):
    return v[1]


def carts():
    """At t = 0.5 s the first cart is locked."""
    return nsdyn.Problem(
        "carts",
        nsdyn.System(mass=cart_mass, force=pulled),
        (
            nsdyn.Fixed(joined),
            nsdyn.Contacts(floor, trailer_slides, mu=0.1),
            nsdyn.Scheduled(times=(0.5,), stages=(None, nsdyn.lock(0))),
        ),
        q0=[0.0, 1.0, 0.0],
        v0=np.zeros(3),
        t_end=1.0,
    )
