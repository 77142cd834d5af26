"""The unconstrained mechanical system: mass, forces and, optionally, its potential, mass solve and
kinematics.

    q' = v                      or, with quasi-velocities,  q' = kinematics(q, v, p)   (1)
    M(q) v' + G^T lam = f(q, v, t)                                                     (2)

`System.from_lagrangian` derives M and f from T(q, v) and V(q) by automatic differentiation:

    M = d2T/dv2,   f = dT/dq - dV/dq + applied - (d/dq dT/dv) v                        (3)
"""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from nsdyn import _expect as expect
from nsdyn._jitted import traced_once
from nsdyn._signature import accepts_positional, located, takes_mode
from nsdyn._types import Abstract, Configuration, Matrix, Mode, Params, Scalar, Time, Velocity
from nsdyn.errors import ProblemError
from nsdyn.numerics import small


class System(eqx.Module):
    """A mechanism without its constraints, made of functions.

    mass: mass(q, p) -> (n, n).
    force: force(q, v, t, p) -> (n,), the whole right-hand side f of M v' + G^T lam = f, or
        force(q, v, t, p, mode).
    potential: potential(q, p) -> scalar, for energies only; its force must be part of `force`.
    solve: solve(q, b, p) = M^-1 b, if there is a faster way than factoring the mass matrix.
    kinematics: kinematics(q, v, p) = q', for quasi-velocities; without it q' = v.
    momentum: momentum(q, v, p) = M v. With both `solve` and `momentum` a run without constraints
        never forms the mass matrix.
    retract: retract(q, dx, p), the configuration that the finite motion dx leads to from q, such as
        p exp(dx/2) for a unit quaternion p; its derivative at dx = 0 is `kinematics`. Implicit and
        time-stepping schemes use it, so that quaternions keep their length. Explicit methods leave
        the manifold by their error; `EventDriven` returns to it with retract(q, 0, p) after each
        step, so retract should bring what it gives to length 1.
    lagrangian: the functions that the others were derived from; `System.from_lagrangian` fills it
        in.
    """

    mass: Callable = eqx.field(static=True)
    force: Callable = eqx.field(static=True)
    potential: Callable | None = eqx.field(static=True, default=None)
    solve: Callable | None = eqx.field(static=True, default=None)
    kinematics: Callable | None = eqx.field(static=True, default=None)
    momentum: Callable | None = eqx.field(static=True, default=None)
    retract: Callable | None = eqx.field(static=True, default=None)
    lagrangian: "Lagrangian | None" = eqx.field(static=True, default=None, repr=False)

    def __check_init__(self) -> None:
        counts = {"mass": 2, "force": 4, "potential": 2}
        counts |= dict.fromkeys(("solve", "kinematics", "momentum", "retract"), 3)
        for name, count in counts.items():
            function = getattr(self, name)
            if function is None and name not in ("mass", "force"):
                continue
            if not callable(function):
                raise ProblemError(f"System({name}=...): expected a function, found {function!r}")
            if not accepts_positional(function, count) and not (
                name == "force" and accepts_positional(function, 5)
            ):
                wanted = {
                    "force": "(q, v, t, p) or (q, v, t, p, mode)",
                    "solve": "(q, b, p)",
                    "kinematics": "(q, v, p)",
                    "momentum": "(q, v, p)",
                    "retract": "(q, dx, p)",
                }
                raise ProblemError(
                    f"System({name}=...): expected a function of {wanted.get(name, '(q, p)')}, "
                    f"found {located(function)} with the signature {inspect.signature(function)}"
                )

    @staticmethod
    def from_lagrangian(
        kinetic: Callable, potential: Callable | None = None, applied: Callable | None = None
    ) -> "System":
        """A system from its energies T = kinetic(q, v, p) and V = potential(q, p), and from further
        forces applied(q, v, t, p)."""
        terms = Lagrangian(kinetic, potential, applied)
        return System(mass=terms.mass, force=terms.force, potential=potential, lagrangian=terms)

    def __getstate__(self) -> dict[str, Any]:
        """What is pickled. Methods that are bound to a module cannot be, so those of a Lagrangian
        are taken from it again."""
        derived = ("mass", "force") if self.lagrangian is not None else ()
        return {name: value for name, value in vars(self).items() if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        terms = state["lagrangian"]
        derived = {} if terms is None else {"mass": terms.mass, "force": terms.force}
        vars(self).update(state | derived)

    def check_shapes(self, q: Configuration, v: Velocity, t: Time, p: Params) -> None:
        """Raise ProblemError unless the functions return what they should. The force is left to
        `check_force`, since it may need the mode."""
        n = v.shape[0]
        if self.kinematics is not None:
            shape = (q.shape, "the shape of q0")
            expect.shaped("System(kinematics=...)", self.kinematics, *shape, q, v, p)
        if self.retract is not None:
            shape = (q.shape, "the shape of q0")
            expect.shaped("System(retract=...)", self.retract, *shape, q, v, p)
        if self.lagrangian is not None:
            self.lagrangian.check_shapes(q, v, t, p)
        if self.potential is not None:
            expect.shaped("System(potential=...)", self.potential, (), "a scalar", q, p)
        expect.shaped("System(mass=...)", self.mass, (n, n), _why(v), q, p)
        if self.solve is not None:
            expect.shaped("System(solve=...)", self.solve, (n,), "the shape of b", q, v, p)
        if self.momentum is not None:
            expect.shaped("System(momentum=...)", self.momentum, (n,), "the shape of v", q, v, p)

    def check_force(
        self, q: Configuration, v: Velocity, t: Time, p: Params, mode: Abstract
    ) -> None:
        args = (v.shape, _why(v), q, v, t, p, mode)
        expect.shaped("System(force=...)", self.forces, *args, name=located(self.force))

    def rate(self, q: Configuration, v: Velocity, p: Params) -> Configuration:
        return v if self.kinematics is None else self.kinematics(q, v, p)  # (1)

    def _rate_matrix(self, q: Configuration, n: int, p: Params) -> Float[Array, "nq n"]:
        """B with q' = B v."""
        return jax.jacfwd(lambda v: self.rate(q, v, p))(jnp.zeros(n))

    def spread(self, q: Configuration, widths: Velocity, p: Params) -> Configuration:
        """Bounds of the rates q', for velocities within these bounds."""
        if self.kinematics is None:
            return widths
        return jnp.abs(self._rate_matrix(q, widths.shape[0], p)) @ widths

    @traced_once
    def as_motion(self, q: Configuration, p: Params) -> Velocity:
        """The velocity x whose q' = B x is nearest to q: a measure of q in units of a motion."""
        if self.kinematics is None:
            return q
        n = jax.eval_shape(self.mass, q, p).shape[0]
        B = self._rate_matrix(q, n, p)
        return small.factor(B.T @ B, semidefinite=True)(B.T @ q)

    def about_as_motion(self, q: Configuration, p: Params) -> Velocity:
        """The same up to a factor, with the diagonal of B^T B in its place: no matrix is factored,
        so it is for every step. For bodies in space both are the same."""
        if self.kinematics is None:
            return q
        n = jax.eval_shape(self.mass, q, p).shape[0]
        B = self._rate_matrix(q, n, p)
        square = jnp.sum(B * B, axis=0)
        return (q @ B) / jnp.where(square > 0, square, 1.0)

    def moved(self, q: Configuration, dx: Velocity, p: Params) -> Configuration:
        """The configuration reached from q by the finite motion dx: retract(q, dx) if given, else
        q + dx, or with quasi-velocities the flow of q' = kinematics(q, dx) over a unit of time, by
        one Runge-Kutta step (its error is of the fifth power of dx)."""
        if self.retract is not None:
            return self.retract(q, dx, p)
        if self.kinematics is None:
            return q + dx
        k1 = self.rate(q, dx, p)
        k2 = self.rate(q + 0.5 * k1, dx, p)
        k3 = self.rate(q + 0.5 * k2, dx, p)
        k4 = self.rate(q + k3, dx, p)
        return q + (k1 + 2 * k2 + 2 * k3 + k4) / 6

    def restored(self, q: Configuration, p: Params) -> Configuration:
        """The configuration on its manifold near q, which has left it by a small error:
        retract(q, 0)."""
        if self.retract is None:
            return q
        n = jax.eval_shape(self.mass, q, p).shape[0]
        return self.retract(q, jnp.zeros(n), p)

    @traced_once
    def forces(self, q: Configuration, v: Velocity, t: Time, p: Params, mode: Mode) -> Velocity:
        if takes_mode(self.force):
            return self.force(q, v, t, p, mode)
        return self.force(q, v, t, p)

    def solver(self, q: Configuration, p: Params) -> Callable:
        """b -> M(q)^-1 b for vectors and for matrices of columns."""
        if self.solve is None:
            return small.factor(self.mass(q, p))
        vector = lambda b: self.solve(q, b, p)
        return lambda b: vector(b) if b.ndim == 1 else jax.vmap(vector, in_axes=1, out_axes=1)(b)

    def weights(self, q: Configuration, p: Params) -> Array:
        """Factors that give all velocities a common unit, sqrt(kg) m/s: the roots of the masses. A
        system with its own `solve` forms no mass matrix; its velocities are left as they are."""
        if self.solve is not None:
            return jnp.ones(())
        return jnp.sqrt(jnp.diagonal(self.mass(q, p)))

    @traced_once
    def kinetic(self, q: Configuration, v: Velocity, p: Params) -> Scalar:
        momentum = (
            small.matvec(self.mass(q, p), v) if self.momentum is None else self.momentum(q, v, p)
        )
        return 0.5 * jnp.sum(v * momentum)

    @traced_once
    def energy(self, q: Configuration, v: Velocity, p: Params) -> Scalar:
        """T + V, or T if the system has no potential."""
        kinetic = self.kinetic(q, v, p)
        return kinetic if self.potential is None else kinetic + self.potential(q, p)


def _why(v: Array) -> str:
    return f"as v0 has {v.shape[0]} entries"


class Lagrangian(eqx.Module):
    """The functions of (3). It is a module so that two systems made of the same functions are equal
    and share compiled programs."""

    kinetic: Callable = eqx.field(static=True)
    potential: Callable | None = eqx.field(static=True)
    applied: Callable | None = eqx.field(static=True)

    def check_shapes(self, q: Configuration, v: Velocity, t: Time, p: Params) -> None:
        owner = "System.from_lagrangian"
        expect.shaped(f"{owner}(kinetic=...)", self.kinetic, (), "a scalar", q, v, p)
        if self.applied is not None:
            shape = (v.shape, _why(v))
            expect.shaped(f"{owner}(applied=...)", self.applied, *shape, q, v, t, p)

    def mass(self, q: Configuration, p: Params) -> Matrix:
        momentum = lambda v: jax.grad(self.kinetic, argnums=1)(q, v, p)
        return jax.jacfwd(momentum)(jnp.zeros_like(q))

    def force(self, q: Configuration, v: Velocity, t: Time, p: Params) -> Velocity:
        lagrangian = lambda q: (
            self.kinetic(q, v, p) - (0.0 if self.potential is None else self.potential(q, p))
        )
        momentum = lambda q: jax.grad(self.kinetic, argnums=1)(q, v, p)
        f = jax.grad(lagrangian)(q) - jax.jvp(momentum, (q,), (v,))[1]  # (3)
        return f if self.applied is None else f + self.applied(q, v, t, p)
