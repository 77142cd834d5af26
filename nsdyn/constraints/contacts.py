"""`Contacts`: many one-sided distances at once, with Coulomb friction and restitution.

For each of k contacts, with its distance gap and the velocities slip along its surface,

    psi_N = d/dt gap(q, t),    psi_T = slip(q, v, t), affine in v                              (1)

Over a step of the integrator, or in an impact, contacts that touch obey, with the velocity w before
and the impulses P that act ON the mechanism (P_N >= 0 presses),

    u_N = psi_N + e psi_N(w),  u_T = psi_T + e_T psi_T(w)                                      (2)
    0 <= u_N,  P_N >= 0,  u_N P_N = 0                                                          (3)
    |P_T| <= mu P_N, and P_T = -mu P_N u_T/|u_T| where u_T is not zero                         (4)

The coefficient may depend on how fast a contact slips (`SpeedDependent`: Stribeck, or one number
for rest and another for sliding),

    mu = mu(s),   s = |psi_T|,   s = 0 exactly where the contact sticks                        (5)

with the speed s that the contact has when a step begins, or where a scheme is of order 2 the mean
of mu over the step. At places that are pressed by a given force N(q, v, t) there is no gap, and
(3) gives way to (`Friction`)

    P_N = the integral over the step of max(0, N)                                              (6)

All contacts are resolved together (`nsdyn.numerics.cone`), so that a corner never pulls. The rows
of one contact are (normal, tangential ...), contact after contact. They are never live: other parts
of a run see the reaction only as the multipliers that the scheme reports, lam = -P/h, with the sign
of every other row (M v' + G^T lam = f). The mode is an output, one integer per contact: 0 open, 1
it sticks, 2 it slips.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from nsdyn import _expect as expect
from nsdyn._jitted import compiled_quickly
from nsdyn._signature import label, located, require_function
from nsdyn._types import (
    Abstract,
    AnyConfiguration,
    AnyMode,
    AnyTime,
    Configuration,
    Held,
    Mode,
    Params,
    Rows,
    Time,
    Velocity,
)
from nsdyn.constraints.base import AbstractConstraint, AbstractReport, Scale, Start
from nsdyn.constraints.fixed import AFFINE
from nsdyn.errors import ProblemError
from nsdyn.numerics import small
from nsdyn.numerics.cone_problem import OPEN, SLIP, STICK

NAMES = {OPEN: "open", STICK: "stick", SLIP: "slip"}
BOUNDS = {"mu": (0.0, np.inf), "e": (0.0, 1.0), "e_T": (0.0, 1.0)}
DIRECTIONS = ("N", "T", "T2", "T3")


class SpeedDependent(eqx.Module):
    """A coefficient of friction that depends on the speed of slip, (5).

    function: function(speed, p) -> (k,), at least 0, for the speeds (k,) of the contacts, at least
        0 and exactly 0 for a contact that sticks. So `jnp.where(speed > 0, kinetic, static)` is
        Coulomb's law with two coefficients.
    """

    function: Callable = eqx.field(static=True)

    def __check_init__(self) -> None:
        require_function("SpeedDependent", "function", self.function, 2, "(speed, p) -> (k,)")


class AbstractContacts(AbstractConstraint):
    """What `Contacts` and `Friction` have in common: rows of slip, and coefficients.

    slip: the velocities along the surfaces; None for none.
    numbers, functions: mu, e and e_T as numbers or as functions of p, by their names.
    follows: mu as a function of the speed, if it is one.
    """

    slip: eqx.AbstractVar[Callable | None]
    numbers: eqx.AbstractVar[dict[str, Any]]
    functions: eqx.AbstractVar[tuple[tuple[str, Callable], ...]]
    follows: eqx.AbstractVar[SpeedDependent | None]

    @property
    @abstractmethod
    def is_pressed(self) -> bool:
        """Whether given forces press, and there are no gaps."""

    @property
    def unilateral(self) -> bool:
        return True

    @property
    def positional(self) -> bool:
        return False  # gaps are held by the scheme, not as rows

    @property
    def drifts(self) -> bool:
        return False

    @property
    def guards_use_lam(self) -> bool:
        return False

    def coefficients(
        self, p: Params, k: int, speeds: Float[Array, " k"] | None = None
    ) -> tuple[Array, Array, Array]:
        """mu, e and e_T, each of shape (k,); mu for these speeds of slip, (5)."""
        found = {**self.numbers, **{name: function(p) for name, function in self.functions}}
        if self.follows is not None:
            if speeds is None:
                raise ProblemError(
                    f"{type(self).__name__}(mu=SpeedDependent(...)): expected an integrator that "
                    "follows the speed of slip; use MoreauJean(), NSGA() or EventDriven(RK4())"
                )
            found["mu"] = self.follows.function(speeds, p)
        each = lambda name: jnp.broadcast_to(jnp.asarray(found[name], float), (k,))
        return each("mu"), each("e"), each("e_T")

    def slips(self, q: Configuration, v: Velocity, t: Time, p: Params, k: int) -> Array:
        """psi_T, shape (k, d - 1)."""
        if self.slip is None:
            return jnp.zeros((k, 0))
        return jnp.reshape(jnp.asarray(self.slip(q, v, t, p), float), (k, -1))

    def rows(self, q: Configuration, t: Time, p: Params, mode: Mode, held: Held) -> Rows:
        raise NotImplementedError("contacts have no rows at position level")

    def modes_to_search(self, mode: np.ndarray) -> list:
        return []

    def row_names(
        self, q: AnyConfiguration, t: AnyTime, p: Params, mode: AnyMode, m: int
    ) -> list[str]:
        k = int(np.size(mode))
        return [f"{self.title}[{i}] {DIRECTIONS[j]}" for i in range(k) for j in range(m // k)]

    def mode_name(self, mode: AnyMode) -> str:
        return ", ".join(NAMES[int(x)] for x in np.ravel(np.asarray(mode)))


class Contacts(AbstractContacts):
    """One-sided distances with friction and restitution, all resolved together.

    gap: gap(q, t, p) -> scalar or (k,): distances, positive if open.
    slip: slip(q, v, t, p) -> (k,) in the plane, (k, 2) in space, (k, 3) in space with spin: the
        velocities along the surfaces, affine in v. For a single contact with a scalar gap the first
        axis is left out. None: no friction.
    mu: coefficient of friction, at least 0; also `SpeedDependent(function)`.
    e: coefficient of restitution, from 0 to 1: a contact that closes leaves with e times the
        speed.
    e_T: the same along the surface; 0 as a rule.
    names: what the contacts are called in messages, one text for each; may be left out.

    mu, e and e_T are numbers, one for each contact, or functions of p. Contacts whose mode the run
    reports as 0 are open, 1 stick, 2 slip. Use an integrator that resolves contacts, such as
    `MoreauJean()` or `EventDriven(RK4())`.
    """

    rows_argument: ClassVar[str] = "(gap=...)"
    guards_argument: ClassVar[str] = "(gap=...)"

    gap: Callable = eqx.field(static=True)
    slip: Callable | None = eqx.field(static=True)
    numbers: dict[str, Any]
    functions: tuple[tuple[str, Callable], ...] = eqx.field(static=True)
    follows: SpeedDependent | None
    names: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        gap: Callable,
        slip: Callable | None = None,
        mu: Any = 0.0,
        e: Any = 0.0,
        e_T: Any = 0.0,
        names: Sequence[str] = (),
    ) -> None:
        require_function("Contacts", "gap", gap, 3, "gap(q, t, p) -> (k,)")
        if slip is not None:
            require_function("Contacts", "slip", slip, 4, "slip(q, v, t, p) -> (k, 1 to 3)")
        self.gap = gap
        self.slip = slip
        self.names = tuple(names)
        given = given_coefficients("Contacts", {"mu": mu, "e": e, "e_T": e_T})
        self.numbers, self.functions, self.follows = given
        if slip is None and np.any(np.asarray(self.numbers.get("mu", 1.0)) != 0):
            raise ProblemError(
                f"Contacts(mu=...): expected slip(q, v, t, p) too, as friction needs it, found "
                f"mu = {mu!r} and slip = None"
            )

    @property
    def is_pressed(self) -> bool:
        return False

    def gaps(self, q: Configuration, t: Time, p: Params) -> Float[Array, " k"]:
        return jnp.ravel(self.gap(q, t, p))

    def start(
        self, q: Configuration, qdot: Configuration, t: Time, p: Params, scale: Scale
    ) -> Mode:
        return jnp.full(self.gaps(q, t, p).shape, OPEN)  # an output: nothing has pressed yet

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
        gaps = lambda q, t: self.gaps(q, t, p)
        normal = jax.jvp(gaps, (q, t), (qdot, jnp.ones_like(t)))[1]
        tangential = self.slips(q, v, t, p, normal.shape[0])
        return jnp.concatenate([normal[:, None], tangential], axis=1).reshape(-1)  # (1)

    def check_shapes(
        self, q: Configuration, qdot: Abstract, v: Velocity, t: Time, p: Params
    ) -> None:
        k = expect.vector("Contacts(gap=...)", self.gap, q, t, p)
        scalar = expect.returned("Contacts(gap=...)", self.gap, q, t, p).shape == ()
        if self.slip is not None:
            check_slip(self, "gap", k, scalar, q, v, t, p)
        check_counts(self, k, p)
        if self.names and len(self.names) != k:
            raise ProblemError(
                f"Contacts(names=...): expected {k} names, one for each gap, found "
                f"{len(self.names)}"
            )

    def start_margins(self, q: Configuration, v: Velocity, t: Time, p: Params) -> Array:
        gaps = self.gaps(q, t, p)
        return jnp.concatenate([gaps, coefficient_margins(self, gaps.size, v, p)])

    def check_start(self, report: AbstractReport, start: Start) -> None:
        """Coefficients within their bounds, no overlap, slip affine in v."""
        gap, slope = map(np.asarray, _gap_and_slope(self, start.q, start.t, start.p))
        check_values(self, gap.size, start)
        name = label(self.gap)
        expect.finite("Contacts(gap=...)", gap, " at q0")
        for i in np.flatnonzero(gap < -np.asarray(start.scale.near_zero(slope, start.q))):
            who = f" ({self.names[i]})" if self.names else ""
            raise ProblemError(
                f"Contacts(gap={name}): expected gaps >= 0 at q0, found {name}[{i}] = "
                f"{gap[i]:.6g}: contact {i}{who} overlaps by {-gap[i]:.6g} at the start. Move q0 "
                "out by that much"
            )
        if gap.size:
            least = int(np.argmin(gap))
            report.add("gaps not negative", f"smallest {name}[{least}] = {gap[least]:.3g}")
        if self.slip is not None:
            check_affine(self, report, start)

    @property
    def title(self) -> str:
        return label(self.gap)


def slipping(slip: Float[Array, "k t"], still: Bool[Array, " k"]) -> Float[Array, " k"]:
    """The speeds for (5) of contacts with these velocities: 0 for those that are still, else more,
    also at the instant at which a slip begins."""
    speed = small.root(jnp.sum(slip * slip, axis=1))
    return jnp.where(still, 0.0, jnp.maximum(speed, small.SMALLEST))


def given_coefficients(
    owner: str, given: dict[str, Any]
) -> tuple[dict[str, Any], tuple[tuple[str, Callable], ...], SpeedDependent | None]:
    """Coefficients as numbers, as functions of p, and as a function of the speed."""
    mu = given["mu"]
    follows = mu if isinstance(mu, SpeedDependent) else None
    rest = {name: x for name, x in given.items() if not isinstance(x, SpeedDependent)}
    for name, value in rest.items():
        if callable(value):
            require_function(owner, name, value, 1, f"{name}(p) -> scalar or (k,)")
    functions = tuple((name, x) for name, x in rest.items() if callable(x))
    numbers = {name: _number(owner, name, x) for name, x in rest.items() if not callable(x)}
    return numbers, functions, follows


def check_slip(
    part: AbstractContacts,
    other: str,
    k: int,
    scalar: bool,
    q: Configuration,
    v: Velocity,
    t: Time,
    p: Params,
) -> None:
    """The shape of slip, for k entries of gap or normal, or a scalar of them."""
    name = f"{type(part).__name__}(slip=...)"
    slip = part.slip
    assert slip is not None
    shape = expect.returned(name, slip, q, v, t, p).shape
    first = (1, *shape) if scalar and len(shape) < 2 else shape
    if len(first) not in (1, 2) or first[0] != k:
        raise ProblemError(
            f"{name}: the function {located(slip)} returned shape {shape}, "
            f"expected ({k},), ({k}, 2) or ({k}, 3), as {other} has {k} entries"
        )
    if len(first) == 2 and not 1 <= first[1] <= 3:
        raise ProblemError(
            f"{name}: the function {located(slip)} returned shape {shape}, "
            "expected 1 (plane), 2 (space) or 3 (space with spin) velocities per contact"
        )


def check_counts(part: AbstractContacts, k: int, p: Params) -> None:
    """The shapes of the coefficients."""
    owner = type(part).__name__
    for name, function in part.functions:
        shape = expect.returned(f"{owner}({name}=...)", function, p).shape
        _check_count(owner, name, shape, k)
    for name, number in part.numbers.items():
        _check_count(owner, name, np.shape(number), k)
    if part.follows is not None:
        function = part.follows.function
        found = expect.returned(f"{owner}(mu=SpeedDependent(...))", function, jnp.zeros(k), p)
        _check_count(owner, "mu", found.shape, k)


def check_values(part: AbstractContacts, k: int, start: Start) -> None:
    """Coefficients that are functions, within their bounds."""
    owner = type(part).__name__
    for name, function in part.functions:
        _check_bounds(owner, name, function(start.p))
    if part.follows is not None:
        top = float(np.max(np.abs(np.asarray(start.scale.v)), initial=0.0)) or 1.0
        for speed in (0.0, 1e-3 * top, top):
            _check_bounds(owner, "mu", part.follows.function(jnp.full(k, speed), start.p))


def coefficient_margins(part: AbstractContacts, k: int, v: Velocity, p: Params) -> Array:
    """How far coefficients that are functions are within their bounds."""
    found = [(name, function(p)) for name, function in part.functions]
    if part.follows is not None:
        fast = jnp.full(k, jnp.max(jnp.abs(v), initial=0.0))
        found += [("mu", part.follows.function(speed, p)) for speed in (0 * fast, fast)]
    margins = [jnp.zeros(0)]
    for name, value in found:
        low, high = BOUNDS[name]
        margins += [jnp.ravel(value - low), jnp.ravel(high - value)]
    return jnp.concatenate(margins)


def check_affine(part: AbstractContacts, report: AbstractReport, start: Start) -> None:
    """d slip/dv must be the same at other velocities."""
    name = f"{type(part).__name__}(slip="
    speeds = np.asarray(start.scale.v)
    speeds = np.where(speeds > 0, speeds, 1.0)
    other = start.v + speeds * (1.0 + np.cos(np.arange(len(speeds))))
    here = np.asarray(_slip_slope(part, start.q, start.v, start.t, start.p))
    there = np.asarray(_slip_slope(part, start.q, other, start.t, start.p))
    expect.finite(f"{name}...)", here, " in d slip/dv at q0, v0")
    size = np.maximum(np.abs(here), np.abs(there)) @ speeds
    relative = np.abs(there - here) @ speeds / np.where(size > 0, size, 1.0)
    worst = int(np.argmax(relative))
    if relative[worst] > AFFINE:
        raise ProblemError(
            f"{name}{label(part.slip)}): expected slip affine in v, found that d "
            f"slip/dv of entry {worst} changes with v, by {relative[worst]:.3g} of its size"
        )
    report.add("slip affine in v", f"relative change with v = {np.max(relative):.1e}")


def _number(owner: str, name: str, value: Any) -> Array:
    try:
        number = value if isinstance(value, jax.Array) else jnp.asarray(np.asarray(value, float))
    except (TypeError, ValueError) as error:
        raise ProblemError(
            f"{owner}({name}=...): expected a number, one for each contact, or a function of p, "
            f"found {value!r}"
        ) from error
    _check_bounds(owner, name, number)
    return number


def _check_bounds(owner: str, name: str, value: Any) -> None:
    if isinstance(value, jax.core.Tracer):
        return
    low, high = BOUNDS[name]
    x = np.ravel(np.asarray(value, float))
    for i in np.flatnonzero(~((x >= low) & (x <= high))):
        wanted = "at least 0" if high == np.inf else "from 0 to 1"
        place = f" for contact {i}" if x.size > 1 else ""
        raise ProblemError(f"{owner}({name}=...): expected numbers {wanted}, found {x[i]:g}{place}")


def _check_count(owner: str, name: str, shape: tuple, k: int) -> None:
    if shape not in ((), (1,), (k,)):
        raise ProblemError(
            f"{owner}({name}=...): expected one number or {k}, one for each contact, found shape "
            f"{shape}"
        )


@compiled_quickly
def _gap_and_slope(part: Contacts, q: Configuration, t: Time, p: Params) -> tuple[Array, Array]:
    gaps = lambda q: part.gaps(q, t, p)
    return gaps(q), jax.jacfwd(gaps)(q)


@compiled_quickly
def _slip_slope(
    part: AbstractContacts, q: Configuration, v: Velocity, t: Time, p: Params
) -> Float[Array, "m n"]:
    slip = part.slip
    assert slip is not None
    return jax.jacfwd(lambda v: jnp.ravel(slip(q, v, t, p)))(v)
