"""`Friction`: dry friction at places that are pressed by a given force.

With the velocities psi_T = slip(q, v, t) and a given normal force N(q, v, t), over a step

    |P_T| <= mu P_N,  P_N = the integral of max(0, N),  and P_T = -mu P_N psi_T/|psi_T| where it
    slips                                                                                        (1)

It is (4) and (6) of `nsdyn.constraints.contacts`, and is resolved together with all other
contacts. There is no gap: brakes, clutches, guides and joints with friction, a block on a belt. The
rows of one place are (normal, tangential ...), as those of a contact; nothing moves along the
normal, so its multiplier only reports the force, -N.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from nsdyn import _expect as expect
from nsdyn._signature import label, require_function
from nsdyn._types import Abstract, Configuration, Held, Mode, Params, Rows, Time, Velocity
from nsdyn.constraints.base import AbstractReport, Scale, Start
from nsdyn.constraints.contacts import (
    AbstractContacts,
    SpeedDependent,
    check_affine,
    check_counts,
    check_slip,
    check_values,
    coefficient_margins,
    given_coefficients,
)
from nsdyn.numerics.cone_problem import OPEN


class Friction(AbstractContacts):
    """Dry friction where a given force presses.

    slip: slip(q, v, t, p) -> (k,) in the plane, (k, 2) in space: the velocities along the surfaces,
        affine in v. For a single place the first axis may be left out.
    normal: normal(q, v, t, p) -> scalar or (k,): the forces that press, in newton; where one is
        negative nothing presses.
    mu: coefficient of friction, at least 0: a number, one for each place, a function of p, or
        `SpeedDependent(function)`.

    The mode that a run reports is 0 where nothing presses, 1 for stick, 2 for slip. Use an
    integrator that resolves contacts: `MoreauJean()`, `NSGA()` or `EventDriven(RK4())`.
    """

    rows_argument: ClassVar[str] = "(slip=...)"
    guards_argument: ClassVar[str] = "(slip=...)"

    slip: Callable = eqx.field(static=True)
    normal: Callable = eqx.field(static=True)
    numbers: dict[str, Any]
    functions: tuple[tuple[str, Callable], ...] = eqx.field(static=True)
    follows: SpeedDependent | None

    def __init__(self, slip: Callable, normal: Callable, mu: Any) -> None:
        require_function("Friction", "slip", slip, 4, "slip(q, v, t, p) -> (k, 1 to 3)")
        require_function("Friction", "normal", normal, 4, "normal(q, v, t, p) -> (k,)")
        self.slip = slip
        self.normal = normal
        given = given_coefficients("Friction", {"mu": mu, "e": 0.0, "e_T": 0.0})
        self.numbers, self.functions, self.follows = given

    @property
    def is_pressed(self) -> bool:
        return True

    def normal_forces(
        self, q: Configuration, v: Velocity, t: Time, p: Params
    ) -> Float[Array, " k"]:
        return jnp.ravel(jnp.asarray(self.normal(q, v, t, p), float))

    def start(
        self, q: Configuration, qdot: Configuration, t: Time, p: Params, scale: Scale
    ) -> Mode:
        places = jax.eval_shape(self.normal_forces, q, scale.v, t, p).shape
        return jnp.full(places, OPEN)  # an output

    def rate(
        self,
        q: Configuration,
        qdot: Configuration,
        v: Velocity,
        t: Time,
        p: Params,
        mode: Mode,
        held: Held,
    ) -> Rows:
        slips = self.slips(q, v, t, p, mode.shape[0])
        return jnp.pad(slips, ((0, 0), (1, 0))).reshape(-1)  # nothing moves along the normal

    def check_shapes(
        self, q: Configuration, qdot: Abstract, v: Velocity, t: Time, p: Params
    ) -> None:
        k = expect.vector("Friction(normal=...)", self.normal, q, v, t, p)
        scalar = expect.returned("Friction(normal=...)", self.normal, q, v, t, p).shape == ()
        check_slip(self, "normal", k, scalar, q, v, t, p)
        check_counts(self, k, p)

    def start_margins(self, q: Configuration, v: Velocity, t: Time, p: Params) -> Array:
        return coefficient_margins(self, self.normal_forces(q, v, t, p).size, v, p)

    def check_start(self, report: AbstractReport, start: Start) -> None:
        """Coefficients within their bounds, slip affine in v."""
        forces = np.asarray(self.normal_forces(start.q, start.v, start.t, start.p))
        expect.finite("Friction(normal=...)", forces, " at q0, v0")
        check_values(self, forces.size, start)
        report.add("normal forces", expect.listed(forces))
        check_affine(self, report, start)

    @property
    def title(self) -> str:
        return label(self.slip)
