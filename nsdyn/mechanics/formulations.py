"""Three forms of the equations of motion M v' + G^T lam = f, G v' = -gamma (Mueller, section 3).

lagrange, his eq. (5), solved by its Schur complement:

    [[M, G^T], [G, 0]] (v', lam) = (f, -gamma)                                                 (1)

projected, his eq. (7), with G+ = M^-1 G^T (G M^-1 G^T)^-1 and N = I - G+ G:

    v' = M^-1 N^T f - G+ gamma                                                                 (2)

minimal, his eqs. (10)-(13) (Voronets), v = F v_s - P^T T psi_0 with F from `complement`, v' = F
v_s' + c, c = -P^T T gamma:

    (F^T M F) v_s' = F^T (f - M c)                                                             (3)

where the dependent velocities follow from the independent ones at every evaluation. (F' v_s of the
paper is contained in c.) The multipliers of (3) come from the equations of the dependent
coordinates: lam = T^T P (f - M v').

Contacts with friction, in given modes, add their forces to (1): `nsdyn.mechanics.closed_contacts`.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from nsdyn._jitted import traced_once
from nsdyn._types import Jacobian, Params, RowMask, Rows, Solve, Velocity
from nsdyn.mechanics.closed_contacts import ClosedContacts
from nsdyn.mechanics.contact_rows import have_modes
from nsdyn.mechanics.model import Model, Point
from nsdyn.numerics import kkt, small
from nsdyn.numerics.null_space import complement

GROWTH_LIMIT = 20.0  # largest entry of F, beyond which independent coordinates are chosen again


class Slope(eqx.Module):
    """Velocity v, acceleration a and multipliers lam at a point; `dependent` is the choice of
    dependent coordinates in the minimal form. It can serve as the memory of an explicit method;
    `effort` is None because nothing is iterated."""

    v: Float[Array, " n"]
    a: Float[Array, " n"]
    lam: Float[Array, " m"]
    dependent: Bool[Array, " n"] | None = None
    effort: None = eqx.field(static=True, default=None)


def _terms(
    model: Model, point: Point, p: Params
) -> tuple[Solve, Velocity, Jacobian, Rows, RowMask]:
    """M^-1 (as a function), f, G, gamma and live. The barrier keeps the compiler from computing the
    entries of M and f again in every kernel that uses one; it halves the time of a batch."""
    system = model.system
    M = None if system.solve else system.mass(point.q, p)
    live = model.live(point, p)
    gamma = jnp.where(live, model.gamma(point, p), 0.0)
    terms = (M, model.force(point, p), model.jacobian(point, p), gamma, live)
    M, f, G, gamma, live = jax.lax.optimization_barrier(terms)
    return system.solver(point.q, p) if M is None else small.factor(M), f, G, gamma, live


@traced_once
def lagrange(
    model: Model, point: Point, p: Params, dependent: Bool[Array, " n"] | None = None
) -> Slope:
    """v' and lam of (1). `dependent` is passed on."""
    if have_modes(model):
        motion = ClosedContacts(model, point, p).motion()
        return Slope(v=point.v, a=motion.a, lam=motion.lam, dependent=dependent)
    solve, f, G, gamma, live = _terms(model, point, p)
    definite = model.rows_independent
    a, lam = kkt.masked_kkt(solve, G, live, f, -gamma, definite=definite)  # (1)
    return Slope(v=point.v, a=a, lam=lam, dependent=dependent)


@traced_once
def projected(
    model: Model, point: Point, p: Params, dependent: Bool[Array, " n"] | None = None
) -> Slope:
    """v' and lam of (2). `dependent` is passed on."""
    solve, f, G, gamma, live = _terms(model, point, p)
    if model.m == 0:
        return Slope(v=point.v, a=solve(f), lam=jnp.zeros(0), dependent=dependent)
    Gm, Y, inverse = kkt.schur(solve, G, live, model.rows_independent)
    pseudo = inverse(Y.T).T  # G+
    N = jnp.eye(f.shape[0]) - small.matmul(pseudo, Gm)
    a = solve(small.matvec(N.T, f)) - small.matvec(pseudo, gamma)  # (2)
    lam = small.matvec(pseudo.T, f) + inverse(gamma)
    return Slope(v=point.v, a=a, lam=lam, dependent=dependent)


@traced_once
def minimal(model: Model, point: Point, p: Params, dependent: Bool[Array, " n"]) -> Slope:
    """v' and lam of (3), with the given choice of dependent coordinates."""
    live = model.live(point, p)
    M = model.system.mass(point.q, p)
    G = model.jacobian(point, p)
    c = complement(G, kkt.independent_rows(small.factor(M), G, live), dependent)
    psi0 = model.psi(point.replace(v=jnp.zeros_like(point.v)), p)
    v = c.F @ point.v - c.P.T @ (c.T @ jnp.where(live, psi0, 0.0))
    here = point.replace(v=v)
    gamma = jnp.where(live, model.gamma(here, p), 0.0)
    f = model.force(here, p)
    particular = -c.P.T @ (c.T @ gamma)
    reduced = c.F.T @ M @ c.F + jnp.diag(jnp.where(c.dependent, 1.0, 0.0))
    a = c.F @ small.factor(reduced)(c.F.T @ (f - M @ particular)) + particular  # (3)
    lam = c.T.T @ (c.P @ (f - M @ a))
    return Slope(v=v, a=a, lam=lam, dependent=dependent)


FORMULATIONS: dict[str, Callable] = {
    "lagrange": lagrange,
    "projected": projected,
    "minimal": minimal,
}


@traced_once
def choose(
    model: Model, point: Point, p: Params, previous: Bool[Array, " n"] | None = None
) -> Bool[Array, " n"]:
    """Dependent coordinates by full pivoting, or the previous ones as long as they are
    well-conditioned."""
    G = model.jacobian(point, p)
    rows = kkt.independent_rows(model.system.solver(point.q, p), G, model.live(point, p))
    best = complement(G, rows, jnp.ones(point.v.shape[0], bool)).dependent
    if previous is None:
        return best
    kept = complement(G, rows, previous)
    usable = (kept.growth < GROWTH_LIMIT) & (jnp.sum(kept.dependent) == jnp.sum(best))
    return jnp.where(usable, previous, best)
