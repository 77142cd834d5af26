"""Contacts at one point, with the rows of all other constraints eliminated.

H are the gradients of the contact rows, d psi/dv, and P the impulses that act on the mechanism
along +H, while live rows G of other constraints hold:

    M dv + G^T dLam = H^T P,   G dv = 0    ->    dv = B P,   dLam = C P                        (1)
    u = psi + E psi(w) = W P + b,   W = H B,   b = psi(v_b) + E psi(w)                         (2)

with the velocity v_b that the other constraints alone would leave, and the velocity w at the
beginning of the step; E holds e and e_T. P follows from the laws of contact, by
`nsdyn.numerics.cone`. Then

    v = v_b + B P,   Lam = Lam_b + C P,   and Lam = -P in the rows of contacts                 (3)

so that M (v - v_before) + G^T Lam = 0 for all rows, with one sign.

Positions are pushed out, never pulled in: for the normal rows N = H_N, the smallest motion x in the
mass metric near the motion x_b of the other constraints is

    x = x_b + B_N kap,   0 <= c_N + N x,   kap >= 0,   kap (c_N + N x) = 0                     (4)

Where a given force presses (`nsdyn.Friction`) nothing moves along the normal: its row of H is zero.
The normal impulse c_N of that force becomes the solution of the same laws of contact with

    u_N = w (P_N - c_N),   w the mean of W over the tangential rows of the place               (5)

since 0 <= u_N, P_N >= 0, u_N P_N = 0 means P_N = max(0, c_N); w > 0 only gives u_N its unit.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from nsdyn._types import Jacobian, Params, Rows, Velocity
from nsdyn.constraints.contact_modes import ContactModes
from nsdyn.constraints.contacts import AbstractContacts, Contacts, slipping
from nsdyn.constraints.friction import Friction
from nsdyn.mechanics.model import Model, Point, split
from nsdyn.mechanics.saddle_point import SaddlePoint
from nsdyn.numerics import cone, small
from nsdyn.numerics.cone_problem import STICK


class Coefficients(eqx.Module):
    """mu (k,) and the restitution E (k, d) of all contacts."""

    mu: Float[Array, " k"]
    E: Float[Array, "k d"]


def _counts(model: Model) -> list[tuple[int, int]]:
    """(contacts, rows of each) of the parts; (0, 0) for other constraints."""
    each = zip(model.parts, model.row_counts, model.mode_shapes, strict=True)
    return [
        (shape[0], rows // shape[0]) if part.unilateral and shape[0] else (0, 0)
        for part, rows, shape in each
    ]


def _contacts(model: Model) -> list[tuple[AbstractContacts, int, int]]:
    """The parts that are contacts, with their numbers of contacts and of rows of each."""
    plain = [part.contacts if isinstance(part, ContactModes) else part for part in model.parts]
    each = zip(plain, _counts(model), strict=True)
    return [(part, k, d) for part, (k, d) in each if isinstance(part, AbstractContacts)]


def have_modes(model: Model) -> bool:
    """Whether the modes of contacts say how the mechanism moves, as in event-driven runs; in time
    stepping they are a result."""
    return any(isinstance(part, ContactModes) for part in model.parts)


def size(model: Model) -> tuple[int, int]:
    """The number of contacts, and the largest number of rows of one; others are padded."""
    counts = _counts(model)
    return sum(k for k, _ in counts), max(d for _, d in counts)


def padded(model: Model, rows: Array) -> Array:
    """The contact rows among all rows (m, ...) as (k, d, ...); missing rows are zero."""
    _, most = size(model)
    found = []
    pieces = zip(split(rows, model.row_counts), _counts(model), strict=True)
    for piece, (k, d) in pieces:
        if k:
            block = piece.reshape(k, d, *piece.shape[1:])
            width = [(0, 0), (0, most - d)] + [(0, 0)] * (block.ndim - 2)
            found.append(jnp.pad(block, width) if d < most else block)
    return jnp.concatenate(found)


def spread(model: Model, P: Float[Array, "k d"]) -> Rows:
    """Numbers (k, d) of contacts in the places of their rows; zero in the other rows."""
    found = []
    first = 0
    for count, (k, d) in zip(model.row_counts, _counts(model), strict=True):
        found.append(P[first : first + k, :d].reshape(-1) if k else jnp.zeros(count))
        first += k
    return jnp.concatenate(found)


def is_contact(model: Model) -> np.ndarray:
    """Which rows are those of contacts, shape (m,)."""
    mask = np.ones(model.m, bool)
    mask[model.bilateral] = False
    return mask


def gaps(model: Model, point: Point, p: Params) -> Float[Array, " k"]:
    """The distances; 0 where a given force presses."""
    found = []
    for part, k, _ in _contacts(model):
        found.append(part.gaps(point.q, point.t, p) if isinstance(part, Contacts) else jnp.zeros(k))
    return jnp.concatenate(found)


def is_pressed(model: Model) -> np.ndarray:
    """Where given forces press, shape (k,) bool."""
    return np.concatenate([np.full(k, part.is_pressed) for part, k, _ in _contacts(model)])


def normal_forces(model: Model, point: Point, p: Params) -> Float[Array, " k"]:
    """The given normal forces; 0 where there are gaps."""
    found = []
    for part, k, _ in _contacts(model):
        here = (point.q, point.v, point.t, p)
        found.append(part.normal_forces(*here) if isinstance(part, Friction) else jnp.zeros(k))
    return jnp.concatenate(found)


def gap_slopes(model: Model, point: Point, p: Params) -> Float[Array, "k nq"]:
    """d gap/dq."""
    return jax.jacfwd(lambda q: gaps(model, point.replace(q=q), p))(point.q)


def sizes_of_gaps(
    model: Model, point: Point, p: Params, slope: Float[Array, "k nq"] | None = None
) -> Float[Array, " k"]:
    """The sizes of the terms of the gaps, of which round-off and tolerances are fractions, from
    their `gap_slopes` if these are known."""
    slope = jax.lax.stop_gradient(gap_slopes(model, point, p) if slope is None else slope)
    return jnp.abs(slope) @ (model.scale.q + jnp.abs(point.q))


def coefficients(model: Model, p: Params, speeds: Float[Array, " k"] | None = None) -> Coefficients:
    """mu and E; with these speeds of slip, if a coefficient follows them."""
    _, most = size(model)
    found = []
    first = 0
    for part, k, _ in _contacts(model):
        share = None if speeds is None else speeds[first : first + k]
        found.append(part.coefficients(p, k, share))
        first += k
    mu, e, e_T = (jnp.concatenate(x) for x in zip(*found, strict=True))
    E = jnp.concatenate([e[:, None], jnp.repeat(e_T[:, None], most - 1, axis=1)], axis=1)
    return Coefficients(mu, E)


def speeds(
    model: Model, rates: Float[Array, "k d"], mode: Int[Array, " k"]
) -> Float[Array, " k"] | None:
    """The speeds of slip from the rates psi, exactly 0 where contacts stick; None if no coefficient
    follows them."""
    if all(part.follows is None for part, _, _ in _contacts(model)):
        return None
    speed = small.root(jnp.sum(rates[:, 1:] ** 2, axis=1))
    return jnp.where(mode == STICK, 0.0, speed)


def laws(
    model: Model, p: Params, rates: Float[Array, "k d"], still: Bool[Array, " k"]
) -> Coefficients:
    """mu and E of contacts with the rates psi; those that are still have the mu of rest."""
    return coefficients(model, p, slipping(rates[:, 1:], still))


def modes(model: Model, point: Point) -> Int[Array, " k"]:
    """The modes of all contacts."""
    each = zip(model.split_mode(point.mode), _counts(model), strict=True)
    return jnp.concatenate([mode for mode, (k, _) in each if k])


def with_modes(model: Model, point: Point, mode: Int[Array, " k"]) -> Point:
    """The point with these modes of its contacts."""
    all_modes = []
    first = 0
    for old, (k, _) in zip(model.split_mode(point.mode), _counts(model), strict=True):
        all_modes.append(mode[first : first + k].astype(old.dtype) if k else old)
        first += k
    return point.replace(mode=model.join_modes(all_modes))


def held_directions(model: Model, point: Point) -> tuple[Float[Array, "k t"], Bool[Array, "k 1"]]:
    """The directions of slip that the contacts hold, and which of them do not turn."""
    _, d = size(model)
    each = zip(model.parts, point.held, strict=True)
    held = jnp.concatenate([held for part, held in each if part.unilateral])
    return held[:, : d - 1], held[:, -1:] > 0


def with_directions(
    model: Model, point: Point, t: Float[Array, "k t"], fixed: Bool[Array, "k 1"] | None = None
) -> Point:
    """The point whose contacts hold these directions of slip; None: none of them turns."""
    fixed = jnp.ones((t.shape[0], 1), bool) if fixed is None else fixed
    held = []
    first = 0
    for part, old in zip(model.parts, point.held, strict=True):
        if part.unilateral:
            k, width = old.shape
            new = t[first : first + k]
            new = jnp.pad(new, [(0, 0), (0, width - 1 - new.shape[1])])
            old = jnp.concatenate([new, fixed[first : first + k].astype(float)], axis=1)
            first += k
        held.append(old)
    return point.replace(held=tuple(held))


def shares_of_guards(model: Model, values: Array) -> tuple[Array, Array]:
    """Of the guards of all parts, those of contacts: the normal and the tangential ones, (k,) each;
    zero where there is no friction."""
    normal, tangential = [], []
    pieces = zip(split(values, model.guard_counts), _counts(model), strict=True)
    for piece, (k, d) in pieces:
        if k:
            normal.append(piece[:k])
            tangential.append(piece[k:] if d > 1 else jnp.zeros_like(piece))
    return jnp.concatenate(normal), jnp.concatenate(tangential)


class ContactProblem(eqx.Module):
    """The numbers of (2), and which contacts take part."""

    W: Float[Array, "kd kd"]
    b: Float[Array, "k d"]
    mu: Float[Array, " k"]
    on: Bool[Array, " k"]

    def solve(
        self, P0: Float[Array, "k d"], careful: bool = False, thorough: bool = False
    ) -> cone.Answer:
        given = (self.W, self.b, self.mu, self.on, P0)
        return cone.solve(*given, careful=careful, thorough=thorough)


class RowProblem(eqx.Module):
    """The same as a `ContactProblem`, with W = H B + diag(D), or H B, not yet computed: nothing is,
    if no contact takes part."""

    H: Float[Array, "kd n"]
    B: Float[Array, "n kd"]
    D: Float[Array, " kd"] | None
    b: Float[Array, "k d"]
    mu: Float[Array, " k"]
    on: Bool[Array, " k"]

    def solve_from(self, before: cone.Answer, thorough: bool = False) -> cone.Answer:
        wanted = jnp.any(self.on)
        rest = (self.b, self.mu, self.on, before, wanted, thorough)
        return cone.solve_product(self.H, self.B, self.D, *rest)

    def known(self, answer: cone.Answer) -> cone.Answer:
        """An answer that was found before, with its derivative."""
        return cone.known_product(answer, self.H, self.B, self.D, self.b, self.mu, self.on)

    def solve(self, P0: Float[Array, "k d"], careful: bool = False) -> cone.Answer:
        W = cone.product(self.H, self.B, self.D)
        return cone.solve(W, self.b, self.mu, self.on, P0, careful=careful)


class ContactRows:
    """The contacts of a model at the point of `here`; H is that of another point if given. W is
    there unless only the problems below are wanted, which may not need it."""

    def __init__(
        self, here: SaddlePoint, H: Float[Array, "k d n"] | None = None, with_W: bool = True
    ) -> None:
        model = here.model
        self.here = here
        rows = padded(model, here.gradients) if H is None else H
        self.shape = rows.shape[:2]
        self.H: Jacobian = rows.reshape(-1, rows.shape[2])
        self.B, self.C = here.respond(self.H.T)  # (1)
        self.pressed = is_pressed(model)
        self.D: Float[Array, " kd"] | None = None
        if np.any(self.pressed):
            self.D = self._in_normal_rows(self._units()).reshape(-1)
        if with_W:
            self.W = cone.product(self.H, self.B, self.D)

    @property
    def diagonal(self) -> Float[Array, "k d"]:
        """That of W."""
        return self._with_D(jnp.sum(self.H * self.B.T, axis=1), 1.0).reshape(self.shape)

    def _with_D(self, x: Array, factor: Array | float) -> Array:
        return x if self.D is None else x + self.D * factor

    def _units(self) -> Float[Array, " k"]:
        """w of (5); 0 where there are gaps."""
        tangential = jnp.sum(self.H * self.B.T, axis=1).reshape(self.shape)[:, 1:]
        rows = jnp.maximum(jnp.sum(tangential > 0, axis=1), 1)
        return jnp.where(self.pressed, jnp.sum(tangential, axis=1) / rows, 0.0)

    def _in_normal_rows(self, x: Float[Array, " k"]) -> Float[Array, "k d"]:
        return jnp.pad(x[:, None], ((0, 0), (0, self.shape[1] - 1)))

    def given(self, c: Float[Array, " k"]) -> Float[Array, "k d"]:
        """What b contains for given normal impulses, or forces, c: -w c of (5)."""
        if not np.any(self.pressed):
            return jnp.zeros(self.shape)
        w = self.diagonal[:, 0]
        return self._in_normal_rows(jnp.where(self.pressed, -w * c, 0.0))

    def moving(self, P: Float[Array, "k d"]) -> Float[Array, "k d"]:
        """P without given normal impulses: nothing moves along them, so they do no work."""
        if not np.any(self.pressed):
            return P
        return P.at[:, 0].set(jnp.where(self.pressed, 0.0, P[:, 0]))

    def landed(
        self, v: Velocity, Lam: Rows, direction: Jacobian, P: Float[Array, "k d"]
    ) -> tuple[Velocity, Rows, Jacobian]:
        """A jump to v with the impulses of the contacts added, (3)."""
        model = self.here.model
        flat = P.reshape(-1)
        Lam = Lam - spread(model, P)
        if len(model.bilateral):
            Lam = Lam + small.matvec(self.C, flat)
        direction = jnp.where(is_contact(model)[:, None], self._directions(P), direction)
        return v + small.matvec(self.B, flat), Lam, direction

    def _directions(self, P: Float[Array, "k d"]) -> Jacobian:
        """H in the places of its rows; 0 for contacts without an impulse."""
        k, d = self.shape
        acts = jnp.any(P != 0, axis=1)
        columns = jnp.where(acts[:, None, None], self.H.reshape(k, d, -1), 0.0)
        return jax.vmap(lambda x: spread(self.here.model, x), in_axes=2, out_axes=1)(columns)

    def rates(self, x: Velocity) -> Float[Array, "k d"]:
        """H x."""
        return small.matvec(self.H, x).reshape(self.shape)

    def normal_rates(self, x: Velocity) -> Float[Array, " k"]:
        """N x."""
        return small.matvec(self.H[:: self.shape[1]], x)

    def response(self, P: Float[Array, "k d"]) -> Float[Array, "k d"]:
        """W P."""
        flat = P.reshape(-1)
        rates = small.matvec(self.H, small.matvec(self.B, flat))
        return self._with_D(rates, flat).reshape(self.shape)

    def push_problem(
        self, x: Velocity, c: Float[Array, " k"], on: Bool[Array, " k"]
    ) -> "PushProblem":
        """That of (4)."""
        d = self.shape[1]
        b = c + self.normal_rates(x)
        return PushProblem(H=self.H[::d], B=self.B[:, ::d], b=b, on=on)


class PushProblem(eqx.Module):
    """The problem (4) for kap, with b = c_N + N x_b."""

    H: Float[Array, "k n"]
    B: Float[Array, "n k"]
    b: Float[Array, " k"]
    on: Bool[Array, " k"]

    @property
    def _args(self) -> tuple:
        zero = jnp.zeros_like(self.b)
        return self.H, self.B, None, self.b[:, None], zero, self.on

    def solve_from(self, before: cone.Answer, thorough: bool = False) -> cone.Answer:
        wanted = jnp.any(self.on & (self.b < 0))
        given = (*self._args, before, wanted, thorough)
        return cone.solve_product(*given)

    def known(self, answer: cone.Answer) -> cone.Answer:
        """An answer that was found before, with its derivative."""
        return cone.known_product(answer, *self._args)

    def pushed_out(self, x: Velocity, kap: Float[Array, " k"]) -> Velocity:
        """x of (4)."""
        return x + small.matvec(self.B, kap)  # (4)
