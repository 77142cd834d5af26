"""Independent coordinates and the orthogonal complement of a masked Jacobian (Mueller eq. (10), by
pivoting).

Gauss-Jordan elimination with full pivoting turns the live rows J into R = T J with R_p = I on the
pivot columns p. With P the 0/1 matrix that pairs rows with their pivot columns (one 1 in a live
row, none in a dead one),

    v = F v_s - P^T T psi_0,    F = (I - P^T R) diag(independent)                              (1)

solves J v = -psi_0 for any values v_s of the independent velocities; J F = 0. F is kept square,
with zero columns at the dependent coordinates, so that its shape does not depend on the mode.

Which rows are independent is decided beforehand and in the mass metric (`kkt.independent_rows`),
not here by pivots, which depend on the units of the coordinates.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


class Complement(NamedTuple):
    """The matrices of (1), and which coordinates are dependent."""

    F: Float[Array, "n n"]
    T: Float[Array, "m m"]
    P: Float[Array, "m n"]
    dependent: Bool[Array, " n"]
    growth: Float[Array, ""]  # largest entry of F: large if J_p is close to singular


def complement(
    J: Float[Array, "m n"], independent: Bool[Array, " m"], allowed: Bool[Array, " n"]
) -> Complement:
    """F of (1) for the independent rows of J, with dependent coordinates chosen among those
    `allowed`."""
    m, n = J.shape

    def eliminate(_, carry):
        R, T, P, rows, columns = carry
        weight = jnp.abs(jax.lax.stop_gradient(R)) * (rows[:, None] & columns[None, :])
        flat = jnp.argmax(weight)
        found = weight.reshape(-1)[flat] > 0  # otherwise rows or columns are used up
        r = jax.nn.one_hot(flat // n, m, dtype=J.dtype)
        c = jax.nn.one_hot(flat % n, n, dtype=J.dtype)
        column = R @ c
        inverse = 1.0 / jnp.where(found, r @ column, 1.0)
        change = jnp.where(found, (column - r) * inverse, 0.0)
        R_new = R - jnp.outer(change, r @ R)
        T_new = T - jnp.outer(change, r @ T)
        return (
            R_new,
            T_new,
            P + jnp.where(found, jnp.outer(r, c), 0.0),
            rows & (r == 0),
            columns & (c == 0),
        )

    masked = jnp.where(independent[:, None], J, 0.0)
    size = jnp.max(jnp.abs(jax.lax.stop_gradient(masked)), axis=1, initial=0.0)
    scale = 1.0 / jnp.where(size > 0, size, 1.0)  # the length of a row does not matter
    carry = (masked * scale[:, None], jnp.diag(scale), jnp.zeros_like(masked), independent, allowed)
    R, T, P, _, _ = jax.lax.fori_loop(0, m, eliminate, carry)
    dependent = jnp.sum(P, axis=0) > 0
    F = (jnp.eye(n, dtype=J.dtype) - P.T @ R) * jnp.where(dependent, 0.0, 1.0)[None, :]
    growth = jnp.max(jnp.abs(jax.lax.stop_gradient(F)), initial=0.0)
    return Complement(F=F, T=T, P=P, dependent=dependent, growth=growth)
