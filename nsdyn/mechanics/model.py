"""System and constraints combined: what an integrator sees.

Velocity-level rows of all constraints, with q' from the system,

    psi(q, v, t) = G v + psi_0,    G = d psi / dv                                             (1)
    d psi / dt = G v' + gamma,     gamma = psi_q q' + psi_t  (v fixed)                        (2)

For holonomic rows psi = g_q q' + g_t, so gamma = d/dt(G) v + 2 g_qt v + g_tt. Everything is
computed by jvp; no third-order tensor is formed. The parts of a tuple of constraints keep their own
modes and held values; the mode of the model is their concatenation.
"""

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from nsdyn._jitted import traced_once
from nsdyn._types import Configuration, Mode, Number, Params, Time, Velocity
from nsdyn._watched import watch
from nsdyn.constraints.base import AbstractConstraint, Scale, rows_of
from nsdyn.mechanics.system import System
from nsdyn.numerics import kkt
from nsdyn.tolerances import Tolerances


class Point(eqx.Module):
    """Where a mechanism is.

    t, q, v: time, configuration and velocity.
    mode: which constraints hold, an integer or several.
    held: what each constraint stored at its last mode change, such as the angle of a lock.

    The same class, with one more axis in front, holds many points. A run has arrays of JAX; checks
    and reports may also put arrays of numpy here.
    """

    t: Float[Any, "*batch"]
    q: Float[Any, "*batch nq"]
    v: Float[Any, "*batch n"]
    mode: Any
    held: tuple

    def replace(self, **fields: Any) -> "Point":
        """The same point with other values of these fields."""
        return dataclasses.replace(self, **fields)


class Model(eqx.Module):
    """A system with its constraints, for states of given shapes: what an integrator sees.
    `Problem.model` builds it; its methods expect a `Point` and the parameters p.

    system, parts: the system, and its constraints one by one.
    row_counts, guard_counts, mode_shapes: rows and guards of each part, and the shape of its mode.
    tolerances, step: those of the run. scale: how large the motion is at its start.
    """

    system: System
    parts: tuple[AbstractConstraint, ...]
    row_counts: tuple[int, ...] = eqx.field(static=True)
    guard_counts: tuple[int, ...] = eqx.field(static=True)
    mode_shapes: tuple[tuple[int, ...], ...] = eqx.field(static=True)
    tolerances: Tolerances
    step: Float[Array, ""]
    scale: Scale

    @staticmethod
    def of(
        system: System,
        parts: tuple[AbstractConstraint, ...],
        q: Any,
        v: Any,
        t: Any,
        p: Params,
        tolerances: Tolerances | None = None,
        step: Number = 0.0,
    ) -> "Model":
        """The model for states of these shapes; nothing is computed."""
        watch(system, parts)
        shapes = [_part_shapes(system, part, q, v, t, p) for part in parts]
        return Model(
            system=system,
            parts=parts,
            row_counts=tuple(rows for rows, _, _ in shapes),
            guard_counts=tuple(guards for _, guards, _ in shapes),
            mode_shapes=tuple(mode for _, _, mode in shapes),
            tolerances=Tolerances() if tolerances is None else tolerances,
            step=jnp.asarray(step, float),
            scale=Scale.unknown(q, v),
        )

    @property
    def m(self) -> int:
        """The number of rows, padding included."""
        return sum(self.row_counts)

    @property
    def k(self) -> int:
        """The number of guards."""
        return sum(self.guard_counts)

    @property
    def drifts(self) -> bool:
        """Whether integration leaves an error in the rows that a projection must remove."""
        return any(part.drifts for part in self.parts)

    @property
    def rows_independent(self) -> bool:
        """Whether it is certain that rows never depend on each other and never vanish; those of
        contacts do not count."""
        others = [part for part in self.parts if not part.unilateral]
        return not len(self.bilateral) or (len(others) == 1 and others[0].rows_independent)

    @property
    def guards_use_lam(self) -> bool:
        """Whether a guard uses the multipliers."""
        return any(part.guards_use_lam for part in self.parts)

    @property
    def mode_depends_on_impact(self) -> bool:
        """Whether the velocity after an impact decides the mode of a part."""
        return any(part.mode_depends_on_impact for part in self.parts)

    @property
    def all_positional(self) -> bool:
        """Whether every row has a position level."""
        return all(part.positional for part in self.parts)

    @property
    def positional(self) -> np.ndarray:
        """Which rows have a position level, shape (m,)."""
        return self._per_row(lambda part: part.positional)

    @property
    def bilateral(self) -> np.ndarray:
        """The numbers of the rows that are not those of contacts."""
        return np.flatnonzero(~self._per_row(lambda part: part.unilateral))

    @property
    def has_contacts(self) -> bool:
        return any(part.unilateral for part in self.parts)

    @property
    def may_have_events(self) -> bool:
        """Whether a step may have to be repeated carefully: because a guard fires, or for the sake
        of contacts."""
        return self.k > 0 or self.has_contacts

    # The parts and their shares of mode, rows and guards.

    def split_mode(self, mode: Any) -> list[Any]:
        """The modes of the parts."""
        if len(self.parts) == 1:
            return [mode]
        flat = split(mode, [math.prod(shape) for shape in self.mode_shapes])
        return [x.reshape(shape) for x, shape in zip(flat, self.mode_shapes, strict=True)]

    def join_modes(self, modes: list[Array]) -> Array:
        """The mode of the model: that of its only part, or those of all parts in one vector."""
        if len(modes) == 1:
            return modes[0]
        return jnp.concatenate([jnp.ravel(mode) for mode in modes]) if modes else jnp.zeros((), int)

    def _each(self, point: Point) -> Iterator[tuple[AbstractConstraint, Array, Any]]:
        return zip(self.parts, self.split_mode(point.mode), point.held, strict=True)

    def _per_row(self, value: Callable[[AbstractConstraint], bool]) -> np.ndarray:
        counts = zip(self.parts, self.row_counts, strict=True)
        masks = [np.full(count, value(part)) for part, count in counts]
        return np.concatenate(masks or [np.zeros(0, bool)])

    # Motion.

    def begin(self, q: Configuration, v: Velocity, t: Time, p: Params) -> tuple["Model", Point]:
        """The model with the scale of the motion filled in, and the point at the start of a run."""
        scale = jax.lax.stop_gradient(self._scale_at(q, v, t, p))
        model = eqx.tree_at(lambda x: x.scale, self, scale)
        qdot = self.system.rate(q, v, p)
        modes = [part.start(q, qdot, t, p, scale) for part in self.parts]
        return model, self.point_at(t, q, v, self.join_modes(modes), p)

    def start(self, q: Configuration, v: Velocity, t: Time, p: Params) -> Point:
        """The point at the start of a run."""
        return self.begin(q, v, t, p)[1]

    def point_at(self, t: Time, q: Configuration, v: Velocity, mode: Mode, p: Params) -> Point:
        """A point in a given mode; held values are those at this point."""
        held = tuple(part.hold(q, t, p) for part in self.parts)
        return Point(t=t, q=q, v=v, mode=mode, held=held)

    def qdot(self, point: Point, p: Params) -> Float[Array, " nq"]:
        return self.system.rate(point.q, point.v, p)

    @traced_once
    def force(self, point: Point, p: Params) -> Float[Array, " n"]:
        return self.system.forces(point.q, point.v, point.t, p, point.mode)

    # Sizes that say what is small (`nsdyn.tolerances`).

    def _scale_at(self, q: Configuration, v: Velocity, t: Time, p: Params) -> Scale:
        """L = |q|_M + h |v|_M + h^2 |M^-1 f|_M, and the other sizes of the motion."""
        first = self.join_modes([jnp.zeros(shape, int) for shape in self.mode_shapes])
        solve = self.system.solver(q, p)
        f = self.system.forces(q, v, t, p, first)
        push = self.step * jnp.sqrt(jnp.sum(f * solve(f)))
        length = self.length(Point(t=t, q=q, v=v, mode=first, held=()), p) + self.step * push
        widths = self._widths(solve, v)
        spread = self.system.spread(q, widths, p)
        return Scale(
            length=length,
            q=length * spread,
            v=(jnp.sqrt(2 * self.system.kinetic(q, v, p)) + push) * widths,
            push=push * spread,
            touch=self.tolerances.touch,
            rest=self.tolerances.rest,
        )

    def _widths(self, solve: Callable, v: Velocity) -> Float[Array, " n"]:
        """The half-widths of the ball |x|_M <= 1 along the velocities."""
        n = v.shape[0]
        if self.system.solve is None:
            return jnp.sqrt(jnp.diagonal(solve(jnp.eye(n))))
        # For a long chain an n x n matrix may not fit into memory.
        unit = lambda i: jnp.zeros(n).at[i].set(1.0)
        return jnp.sqrt(jax.lax.map(lambda i: solve(unit(i))[i], jnp.arange(n)))

    def length(self, point: Point, p: Params) -> Float[Array, ""]:
        """L = |q|_M + h |v|_M, plus its value at the start."""
        size = lambda x: jnp.sqrt(2 * self.system.kinetic(point.q, x, p))
        motion = self.system.as_motion(point.q, p)
        return size(motion) + self.step * size(point.v) + self.scale.length

    # Rows.

    @traced_once
    def rows(self, point: Point, p: Params) -> Float[Array, " m"]:
        """g, the residual at position level; zero in rows that have no position level."""
        values = []
        for (part, mode, held), count in zip(self._each(point), self.row_counts, strict=True):
            if part.positional:
                values.append(rows_of(part, point.q, point.t, p, mode, held))
            else:
                values.append(jnp.zeros(count))
        return _concatenate(values)

    @traced_once
    def psi(self, point: Point, p: Params) -> Float[Array, " m"]:
        """psi = G v + psi_0, the residual at velocity level."""
        qdot = self.qdot(point, p)
        rates = [
            part.rate(point.q, qdot, point.v, point.t, p, mode, held)
            for part, mode, held in self._each(point)
        ]
        return _concatenate(rates)  # (1)

    @traced_once
    def live(self, point: Point, p: Params) -> Bool[Array, " m"]:
        """Which rows hold in the mode of the point."""
        masks = []
        for (part, mode, _), count in zip(self._each(point), self.row_counts, strict=True):
            if part.unilateral:
                masks.append(jnp.zeros(count, bool))
                continue
            mask = part.live(point.q, point.t, p, mode)
            masks.append(jnp.ones(count, bool) if mask is None else mask)
        return jnp.concatenate(masks) if masks else jnp.zeros(0, bool)

    @traced_once
    def jacobian(self, point: Point, p: Params) -> Float[Array, "m n"]:
        """G, including the rows that are not live."""
        if self.m == 0:
            return jnp.zeros((0, point.v.shape[0]))
        if self.system.kinematics is None and self.all_positional:
            # Cheaper than (1), and equal.
            return _jacobian(lambda q: self.rows(point.replace(q=q), p), point.q, self.m)
        return _jacobian(lambda v: self.psi(point.replace(v=v), p), point.v, self.m)  # (1)

    @traced_once
    def gamma(self, point: Point, p: Params) -> Float[Array, " m"]:
        """The part of the acceleration level that does not contain v'."""
        if self.m == 0:
            return jnp.zeros(0)
        psi = lambda q, t: self.psi(point.replace(q=q, t=t), p)
        along = (self.qdot(point, p), jnp.ones_like(point.t))
        return jax.jvp(psi, (point.q, point.t), along)[1]  # (2)

    # Guards and mode changes.

    @traced_once
    def guards(self, point: Point, lam: Float[Array, " m"], p: Params) -> Float[Array, " k"]:
        """The guards of all parts. They receive least-norm multipliers, so the result does not
        depend on which of several redundant rows the solver happened to drop."""
        if self.guards_use_lam and self.m > 1 and not self.rows_independent:
            G = jnp.where(self.live(point, p)[:, None], self.jacobian(point, p), 0.0)
            solve = self.system.solver(point.q, p)
            if self.has_contacts:
                rows = self.bilateral
                least = kkt.least_norm_multipliers(solve, G[rows], lam[rows])
                wide = jnp.asarray(np.eye(self.m)[:, rows])
                lam = lam + wide @ (least - lam[rows])
            else:
                lam = kkt.least_norm_multipliers(solve, G, lam)
        shares = split(lam, self.row_counts)
        return _concatenate(
            [
                part.guards(point.q, point.v, share, point.t, p, mode, held)
                for (part, mode, held), share in zip(self._each(point), shares, strict=True)
            ]
        )

    def after(self, fired: Bool[Array, " k"], point: Point, p: Params) -> Point:
        """The same point in the mode that follows. Parts whose guards fired also refresh their held
        values."""
        qdot = self.qdot(point, p)
        shares = split(fired, self.guard_counts)
        modes = []
        held = []
        for (part, mode, kept), share in zip(self._each(point), shares, strict=True):
            hit = jnp.any(share)
            new = part.after(share, point.q, qdot, point.v, point.t, p, mode, self.scale)
            fresh = part.hold(point.q, point.t, p)
            modes.append(jnp.where(hit, new, mode))
            choose = lambda new, old, hit=hit: jnp.where(hit, new, old)
            held.append(jax.tree.map(choose, fresh, kept))
        return point.replace(mode=self.join_modes(modes), held=tuple(held))

    def persists(
        self, before: Point, after: Point, p: Params
    ) -> tuple[Bool[Array, " m"], np.ndarray]:
        """Which rows of the mode after are the same constraints as before, and for which rows the
        constraint declares this at all."""
        modes = zip(self.split_mode(before.mode), self.split_mode(after.mode), strict=True)
        masks = []
        known = []
        for part, (old, new), count in zip(self.parts, modes, self.row_counts, strict=True):
            mask = part.persists(after.q, after.t, p, old, new)
            known.append(np.full(count, mask is not None))
            masks.append(jnp.zeros(count, bool) if mask is None else mask)
        if not masks:
            return jnp.zeros(0, bool), np.zeros(0, bool)
        return jnp.concatenate(masks), np.concatenate(known)

    def mode_after_impact(self, point: Point, rest_speeds: Float[Array, " m"], p: Params) -> Array:
        """The mode after an impact; `point` has the velocity after it. A row whose rate is at most
        its rest speed may count as being at rest."""
        rates = split(self.psi(point, p), self.row_counts)
        rest = split(rest_speeds, self.row_counts)
        modes = self.split_mode(point.mode)
        each = zip(self.parts, rates, rest, modes, strict=True)
        return self.join_modes([part.mode_after_impact(*arguments) for part, *arguments in each])


def _part_shapes(
    system: System, part: AbstractConstraint, q: Any, v: Any, t: Any, p: Params
) -> tuple[int, int, tuple[int, ...]]:
    """(rows, guards, shape of the mode) of one constraint."""
    find = functools.partial(_rows_guards_and_mode, system, part)
    psi, guards, mode = jax.eval_shape(find, q, v, t, p)
    return psi.shape[0], guards.shape[0], mode.shape


@traced_once
def _rows_guards_and_mode(
    system: System,
    part: AbstractConstraint,
    q: Configuration,
    v: Velocity,
    t: Time,
    p: Params,
) -> tuple[Array, Array, Array]:
    qdot = system.rate(q, v, p)
    mode = part.start(q, qdot, t, p, Scale.unknown(q, v))
    held = part.hold(q, t, p)
    psi = part.rate(q, qdot, v, t, p, mode, held)
    return psi, part.guards(q, v, jnp.zeros(psi.shape), t, p, mode, held), mode


def _concatenate(values: list[Array]) -> Array:
    return jnp.concatenate(values) if values else jnp.zeros(0)


def split(x: Any, sizes: Sequence[int]) -> list:
    """Consecutive pieces of x of these sizes: the shares of the parts of a model."""
    ends = itertools.accumulate(sizes, initial=0)
    return [x[a:b] for a, b in itertools.pairwise(ends)]


def _jacobian(function: Callable, x: Array, m: int) -> Array:
    """The Jacobian of a function with m values. Forward mode compiles to less code for the usual
    few coordinates; reverse mode wins for few rows of many coordinates."""
    return (jax.jacrev if x.shape[0] > 8 * m else jax.jacfwd)(function)(x)
