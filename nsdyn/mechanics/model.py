"""System and constraints put together: what an integrator sees.

Velocity-level rows of all constraints, with q' from the system,

    psi(q, v, t) = G v + psi_0,    G = d psi / dv                                             (1)
    d psi / dt = G v' + gamma,     gamma = psi_q q' + psi_t  (v fixed)                        (2)

For holonomic rows psi = g_q q' + g_t, so gamma = d/dt(G) v + 2 g_qt v + g_tt. Everything comes from
jvp; no third-order tensor is formed. The parts of a tuple of constraints keep their own modes and
held values; the mode of the whole is their concatenation.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn.constraints.base import AbstractConstraint
from nsdyn.mechanics.system import System
from nsdyn.numerics import kkt


class Point(eqx.Module):
    """Where a mechanism is: time, configuration, velocity, mode and what its constraints hold."""

    t: Float[Array, ""]
    q: Float[Array, " nq"]
    v: Float[Array, " n"]
    mode: Array
    held: tuple


class Model(eqx.Module):
    """A system with its constraints, bound to the shapes of a problem (`Model.of`)."""

    system: System
    parts: tuple[AbstractConstraint, ...]
    row_counts: tuple[int, ...] = eqx.field(static=True)  # rows of each part
    guard_counts: tuple[int, ...] = eqx.field(static=True)  # guards of each part
    mode_shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)  # shape of each part's mode
    guards_use_lam: bool = eqx.field(static=True)  # whether guards look at multipliers

    @staticmethod
    def of(system: System, parts: tuple[AbstractConstraint, ...], q, v, t, p) -> "Model":
        row_counts, guard_counts, mode_shapes, guards_use_lam = [], [], [], False
        for part in parts:

            def sample(q, v, t, p, part=part):
                qdot = system.rate(q, v, p)
                mode, held = part.start(q, qdot, t, p), part.hold(q, t, p)
                return mode, held, part.rate(q, qdot, v, t, p, mode, held)

            def guards(lam, q, v, t, p, mode, held, part=part):
                return part.guards(q, v, lam, t, p, mode, held)

            mode, held, psi = jax.eval_shape(sample, q, v, t, p)
            traced, found = jax.make_jaxpr(guards, return_shape=True)(psi, q, v, t, p, mode, held)
            row_counts.append(psi.shape[0])
            guard_counts.append(found.shape[0])
            mode_shapes.append(mode.shape)
            guards_use_lam = guards_use_lam or _reads_first(traced.jaxpr)
        return Model(
            system,
            parts,
            tuple(row_counts),
            tuple(guard_counts),
            tuple(mode_shapes),
            guards_use_lam,
        )

    @property
    def m(self) -> int:
        return sum(self.row_counts)

    @property
    def k(self) -> int:
        return sum(self.guard_counts)

    @property
    def drifts(self) -> bool:
        return any(part.drifts for part in self.parts)

    @property
    def may_depend(self) -> bool:
        """Whether rows may depend on each other, or vanish. Coordinates locked by one constraint do
        not."""
        return self.drifts or len(self.parts) > 1

    @property
    def mode_depends_on_impact(self) -> bool:
        return any(part.mode_depends_on_impact for part in self.parts)

    # The parts and their shares of mode, rows and guards.

    def _join(self, modes):
        if len(modes) == 1:
            return modes[0]
        return jnp.concatenate([jnp.ravel(mode) for mode in modes]) if modes else jnp.zeros((), int)

    def split_mode(self, mode):
        if len(self.parts) == 1:
            return [mode]
        sizes = [_size(shape) for shape in self.mode_shapes]
        return [
            part.reshape(shape)
            for part, shape in zip(_split(mode, sizes), self.mode_shapes, strict=True)
        ]

    def _each(self, mode, held):
        return zip(self.parts, self.split_mode(mode), held, strict=True)

    # Rows and guards.

    def start(self, q, v, t, p) -> Point:
        qdot = self.system.rate(q, v, p)
        mode = self._join([part.start(q, qdot, t, p) for part in self.parts])
        return Point(t, q, v, mode, tuple(part.hold(q, t, p) for part in self.parts))

    def rows(self, q, t, p, mode, held):
        """Position-level residual; zero in rows that have no position level."""
        parts = zip(self._each(mode, held), self.row_counts, strict=True)
        return _concatenate(
            [
                c.rows(q, t, p, k, x) if c.positional else jnp.zeros(height)
                for (c, k, x), height in parts
            ]
        )

    def positional(self) -> np.ndarray:
        """Which rows have a position level, shape (m,)."""
        pairs = zip(self.parts, self.row_counts, strict=True)
        return np.concatenate(
            [np.full(h, part.positional) for part, h in pairs] or [np.zeros(0, bool)]
        )

    def psi(self, q, v, t, p, mode, held):
        qdot = self.system.rate(q, v, p)
        return _concatenate(
            [c.rate(q, qdot, v, t, p, k, x) for c, k, x in self._each(mode, held)]
        )  # (1)

    def live(self, q, t, p, mode):
        masks = [
            jnp.ones(height, bool) if (mask := part.live(q, t, p, k)) is None else mask
            for part, k, height in zip(
                self.parts, self.split_mode(mode), self.row_counts, strict=True
            )
        ]
        return jnp.concatenate(masks) if masks else jnp.zeros(0, bool)

    def jacobian(self, q, v, t, p, mode, held):
        """G, shape (m, n)."""
        if self.m == 0:
            return jnp.zeros((0, v.shape[0]))
        if self.system.kinematics is None and all(part.positional for part in self.parts):
            return _jacobian(
                lambda q: self.rows(q, t, p, mode, held), q, self.m
            )  # cheaper than (1), and equal
        return _jacobian(lambda v: self.psi(q, v, t, p, mode, held), v, self.m)  # (1)

    def gamma(self, q, v, t, p, mode, held):
        if self.m == 0:
            return jnp.zeros(0)
        psi = lambda q, t: self.psi(q, v, t, p, mode, held)
        return jax.jvp(psi, (q, t), (self.system.rate(q, v, p), jnp.ones_like(t)))[1]  # (2)

    def guards(self, point: Point, lam, p):
        """The guards of all parts. They see the multipliers of least norm: which of several
        dependent rows a solver lets carry the load must not decide what opens."""
        if self.guards_use_lam and self.m > 1 and self.may_depend:
            G = self.jacobian(point.q, point.v, point.t, p, point.mode, point.held)
            live = self.live(point.q, point.t, p, point.mode)
            lam = kkt.least_norm_multipliers(
                self.system.solver(point.q, p), jnp.where(live[:, None], G, 0.0), lam
            )
        shares = _split(lam, self.row_counts)
        each = zip(self._each(point.mode, point.held), shares, strict=True)
        return _concatenate(
            [c.guards(point.q, point.v, part, point.t, p, k, x) for (c, k, x), part in each]
        )

    # Switching.

    def after(self, fired, point: Point, p) -> Point:
        """The same point in the mode that follows; the parts that fired hold anew."""
        qdot = self.system.rate(point.q, point.v, p)
        modes, held = [], []
        for (part, mode, kept), share in zip(
            self._each(point.mode, point.held), _split(fired, self.guard_counts), strict=True
        ):
            any_fired = jnp.any(share)
            new = part.after(share, point.q, qdot, point.v, point.t, p, mode)
            modes.append(jnp.where(any_fired, new, mode))
            fresh = part.hold(point.q, point.t, p)
            held.append(
                jax.tree.map(lambda new, old, hit=any_fired: jnp.where(hit, new, old), fresh, kept)
            )
        return Point(point.t, point.q, point.v, self._join(modes), tuple(held))

    def mode_after_impact(self, before: Point, after: Point, v, p):
        """The mode after an impact that left the velocity v."""
        rates = _split(self.psi(after.q, v, after.t, p, after.mode, after.held), self.row_counts)
        pairs = zip(
            self.parts,
            self.split_mode(before.mode),
            self.split_mode(after.mode),
            rates,
            strict=True,
        )
        return self._join(
            [part.mode_after_impact(rate, old, new) for part, old, new, rate in pairs]
        )


def _concatenate(values):
    return jnp.concatenate(values) if values else jnp.zeros(0)


def _split(x, sizes):
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [x[end - size : end] for end, size in zip(ends, sizes, strict=True)]


def _reads_first(jaxpr) -> bool:
    """Whether a traced function uses its first argument."""
    used = [*jaxpr.outvars, *(x for equation in jaxpr.eqns for x in equation.invars)]
    return any(x is jaxpr.invars[0] for x in used)


def _size(shape):
    size = 1
    for extent in shape:
        size *= extent
    return size


def _jacobian(function, x, m):
    """Forward mode compiles to less code for the usual few coordinates; reverse mode wins for few
    rows of many."""
    return (jax.jacrev if x.shape[0] > 8 * m else jax.jacfwd)(function)(x)


def project_velocity(model: Model, point: Point, p):
    """The velocity nearest in the mass metric that satisfies psi = 0, and the impulse that takes it
    there."""
    args = (point.q, point.v, point.t, p, point.mode, point.held)
    solve, live = model.system.solver(point.q, p), model.live(point.q, point.t, p, point.mode)
    step, impulse = kkt.masked_kkt(
        solve, model.jacobian(*args), live, jnp.zeros_like(point.v), -model.psi(*args)
    )
    return point.v + step, impulse
