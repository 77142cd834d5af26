"""What an impulse law is. At a mode change

    M (v+ - v-) + D^T Lam = U,        G+ v+ = -g_t+                                            (1)

with the applied impulse U, the impulse Lam of the constraints and the directions D in which it
acts. The law chooses D and, if it is not ideal, also the velocities after the mode change.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy.typing import ArrayLike

from nsdyn._repr import settings_text
from nsdyn._types import Code, Jacobian, Params, RowMask, Solve, Velocity
from nsdyn.errors import ProblemError
from nsdyn.numerics import kkt, rank, small
from nsdyn.status import MESSAGES, Status

SAME_ROW = 1e-12
FIRST_REASON = 1000  # codes from here on stand for the `reasons` of a law


class Jump(NamedTuple):
    """The answer of a law, which satisfies M (v+ - v-) + D^T Lam = U.

    v_after: the velocity v+ after the mode change.
    Lam: the impulse of each row of the constraints after it (an impulse, not a force); 0 for rows
        that are not live.
    direction: D, one row for each entry of Lam: the direction in which that impulse acts. For many
        laws it is G_after.
    """

    v_after: Float[Array, " n"]
    Lam: Float[Array, " m"]
    direction: Float[Array, "m n"]


class ModeChange(NamedTuple):
    """A mode change as a law sees it, with every default filled in.

    M: the mass matrix. solve: the function b -> M^-1 b, for a vector or a matrix of columns.
    G_after, live_after: the rows of the constraints after the mode change, and which of them are
        live; dead rows are zero.
    kept: which rows of G_after were live before as well.
    v_before: the velocity v- on which the law acts. In time-stepping schemes it is the impulse-free
        velocity at the end of the step.
    gt_after: the rates g_t of the rows after, so that G+ v+ = -g_t+.
    U: the applied impulse.
    G_before, live_before: the rows before the mode change, and which of them are live.
    v_step_start: the velocity at the start of the step in time-stepping schemes (Newton's law of
        restitution compares with it); the same as v_before in event-driven runs.
    q, t, p: configuration, time and parameters in a run; None in a call of `AbstractLaw.jump`.
    """

    M: Float[Array, "n n"]
    solve: Callable
    G_after: Float[Array, "m n"]
    live_after: Bool[Array, " m"]
    kept: Bool[Array, " m"]
    v_before: Float[Array, " n"]
    gt_after: Float[Array, " m"]
    U: Float[Array, " n"]
    G_before: Float[Array, "k n"]
    live_before: Bool[Array, " k"]
    v_step_start: Float[Array, " n"]
    q: Any = None
    t: Any = None
    p: Any = None

    def rates(self, v: Float[Array, " n"]) -> Float[Array, " m"]:
        """G+ v + g_t+: the rates of the rows after, with the velocity v."""
        return small.matvec(self.G_after, v) + self.gt_after

    def jump_by(self, rates: Float[Array, " m"]) -> Jump:
        """The jump along the rows after that changes their rates by this much, including the effect
        of the applied impulse U."""
        args = (self.solve, self.G_after, self.independent(), self.U, rates)
        step, Lam = kkt.masked_kkt(*args, refinements=2)
        return Jump(self.v_before + step, Lam, self.G_after)

    def independent(self, preferred: Bool[Array, " m"] | None = None) -> Bool[Array, " m"]:
        """Independent rows after the change that span all of them; the other rows have no
        impulse."""
        return kkt.spanning_rows(self.solve, self.G_after, self.live_after, preferred)

    @classmethod
    def of(
        cls,
        M: ArrayLike,
        G_before: ArrayLike,
        G_after: ArrayLike,
        v_before: ArrayLike,
        gt_after: ArrayLike | None = None,
        U: ArrayLike | None = None,
        on_before: ArrayLike | None = None,
        on_after: ArrayLike | None = None,
        solve: Solve | None = None,
        q: Any = None,
        t: Any = None,
        p: Params = None,
        w: Velocity | None = None,
        kept: Any = None,
    ) -> "ModeChange":
        """The mode change that the arguments of `AbstractLaw.jump` describe, checked for shapes.

        kept: which rows of G_after, shape (m,), are constraints that held before as well. If it is
        left out, rows are compared, and constraints that happen to have the same gradient count as
        the same.
        """
        M = jnp.asarray(M, float)
        v = jnp.asarray(v_before, float)
        n = _vector_size("v_before", v)
        if M.shape != (n, n):
            raise ProblemError(
                f"jump(M=...): expected shape ({n}, {n}) to go with v_before, found {M.shape}"
            )
        G, live = _rows("G_after", G_after, on_after, n)
        old, on = _rows("G_before", G_before, on_before, n)
        gt = jnp.zeros(G.shape[0]) if gt_after is None else jnp.asarray(gt_after, float)
        force = jnp.zeros(n) if U is None else jnp.asarray(U, float)
        for name, value, size in (("gt_after", gt, G.shape[0]), ("U", force, n)):
            if value.shape != (size,):
                raise ProblemError(
                    f"jump({name}=...): expected shape ({size},), found {value.shape}"
                )
        stay = persistent(old, G, on, live) if kept is None else jnp.asarray(kept, bool) & live
        if stay.shape != live.shape:
            raise ProblemError(
                f"jump(kept=...): expected shape {live.shape}, found {np.shape(kept)}"
            )
        return cls(
            M=M,
            solve=small.factor(M) if solve is None else solve,
            G_after=G,
            live_after=live,
            kept=stay,
            v_before=v,
            gt_after=jnp.where(live, gt, 0.0),
            U=force,
            G_before=old,
            live_before=on,
            v_step_start=v if w is None else w,
            q=q,
            t=t,
            p=p,
        )


class AbstractLaw(eqx.Module):
    """The law that decides the velocity after a mode change.

    To write a law, implement `decide`. If there are mode changes for which it has no answer, also
    implement `failure_code`, which returns a status code, or `nsdyn.laws.reason(k)` for the k-th of
    the law's own `reasons`: sentences that say what is wrong and what to try. Users call `jump`; a
    run calls `answer`.
    """

    reasons: ClassVar[tuple[str, ...]] = ()

    def __repr__(self) -> str:
        return settings_text(self)

    @property
    def satisfies_new_constraints(self) -> bool:
        """Whether v+ satisfies the constraints after the mode change; False for laws with
        rebound."""
        return True

    @property
    def needs_equal_rank(self) -> bool:
        """Whether the law has an answer only where as many independent rows hold after a mode
        change that brings new ones as before it. Such a law is refused at once for a constraint
        that never offers that."""
        return False

    @property
    def always_rebounds(self) -> bool:
        """Whether v+ is certain to violate new constraints that v- violates. Such a law is refused
        at once for constraints that do not open again."""
        return False

    @abstractmethod
    def decide(self, change: ModeChange) -> Jump:
        """The jump at one mode change. It must be finite even if the law objects."""

    def failure_code(self, change: ModeChange) -> Code:
        """Why the law has no answer to this mode change: a status code or `reason(k)`, which may
        be traced; `Status.OK` if it has an answer."""
        return Status.OK

    def answer(self, change: ModeChange) -> tuple[Array, Jump]:
        """The objection and the jump. If directions depend on each other, Lam is one of many
        solutions."""
        return jnp.asarray(self.failure_code(change)), self.decide(change)

    def jump(
        self,
        M: ArrayLike,
        G_before: ArrayLike,
        G_after: ArrayLike,
        v_before: ArrayLike,
        gt_after: ArrayLike | None = None,
        U: ArrayLike | None = None,
        on_before: ArrayLike | None = None,
        on_after: ArrayLike | None = None,
        solve: Solve | None = None,
    ) -> Jump:
        """The jump between the constraints G_before and G_after.

        M: mass matrix, shape (n, n). G_before, G_after: constraint rows, shape (rows, n).
        v_before: velocity, shape (n,). gt_after: the rates g_t of the rows after (default: zero).
        U: applied impulse (default: none). on_before, on_after: masks of the live rows (default:
        all); dead rows give zero rows in the answer. solve: a function b -> M^-1 b, if there is a
        faster one than a factorisation of M.

        Raises ProblemError if the law objects. Traced code cannot raise: check `failure_code`
        there.
        """
        arguments = (M, G_before, G_after, v_before, gt_after, U, on_before, on_after)
        if solve is None and not any(
            isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((self, arguments))
        ):
            _require_solvable(M, G_after, gt_after, on_after)
            code, jump = _compiled(self, [None if x is None else np.asarray(x) for x in arguments])
        else:
            code, jump = _least(self, ModeChange.of(*arguments, solve))
        if not isinstance(code, jax.core.Tracer) and code != Status.OK:
            raise ProblemError(f"{type(self).__name__}: {message(self, code)}")
        return jump


def reason(k: Code) -> Code:
    """The failure code that stands for `reasons[k]` of a law; k may be traced."""
    return FIRST_REASON + k


def as_status(code: Code) -> Status | int:
    """The status with this code; the code of a law's own reason stays a number."""
    return Status(int(code)) if int(code) < FIRST_REASON else int(code)


def message(law: AbstractLaw | None, code: Code) -> str:
    """What a failure code means: the message of the status, or the law's own reason."""
    k = int(code) - FIRST_REASON
    if k < 0:
        return MESSAGES[Status(int(code))]
    if law is None or k >= len(law.reasons):
        return f"the law objects with its reason {k}, which is not in its list of reasons"
    return law.reasons[k]


@eqx.filter_jit
def _compiled(law: AbstractLaw, arguments: list) -> tuple[Array, Jump]:
    """Objection and answer in one compiled program: run operation by operation, the first call
    would take several times as long."""
    return _least(law, ModeChange.of(*arguments))


def _least(law: AbstractLaw, change: ModeChange) -> tuple[Array, Jump]:
    """Objection and answer; if directions depend on each other, with the impulses of least norm."""
    code, jump = law.answer(change)
    return code, jump._replace(
        Lam=kkt.least_norm_multipliers(change.solve, jump.direction, jump.Lam)
    )


def _require_solvable(
    M: ArrayLike, G_after: ArrayLike, gt_after: ArrayLike | None, on_after: ArrayLike | None
) -> None:
    """G+ v+ = -g_t+ must have a solution; wrong shapes are reported later."""
    G = np.asarray(G_after, float)
    gt = None if gt_after is None else np.asarray(gt_after, float)
    if (
        gt is None
        or G.ndim != 2
        or gt.shape != G.shape[:1]
        or np.shape(M) != (G.shape[1],) * 2
        or not np.any(gt)
    ):
        return
    live = np.ones(len(G), bool) if on_after is None else np.asarray(on_after, bool)
    if live.shape != gt.shape or not np.any(live):
        return
    try:
        null = rank.left_null(G[live], np.asarray(M, float))
    except np.linalg.LinAlgError:  # M is not a mass matrix: the answer will show it
        return
    rates = gt[live] / rank.row_lengths(G[live])
    clash = null @ (null.T @ rates)
    if np.max(np.abs(clash)) > rank.DEPENDENT * np.max(np.abs(rates)):
        guilty = np.abs(clash) > rank.DEPENDENT * np.max(np.abs(clash))
        which = np.flatnonzero(live)[guilty].tolist()
        raise ProblemError(
            "jump(G_after=..., gt_after=...): expected rows that can hold together, found that "
            f"the rows {which} contradict each "
            "other: they depend on each other, but their rates gt_after do not"
        )


def _vector_size(name: str, v: Array) -> int:
    if v.ndim != 1:
        raise ProblemError(f"jump({name}=...): expected a vector, found shape {v.shape}")
    return v.shape[0]


def _rows(
    name: str, G: ArrayLike, live: ArrayLike | None, n: int
) -> tuple[Float[Array, "rows n"], Bool[Array, " rows"]]:
    G = jnp.asarray(G, float)
    G = G.reshape(0, n) if G.size == 0 else G
    if G.ndim != 2 or G.shape[1] != n:
        raise ProblemError(f"jump({name}=...): expected shape (rows, {n}), found {G.shape}")
    live = jnp.ones(G.shape[0], bool) if live is None else jnp.asarray(live, bool)
    if live.shape != (G.shape[0],):
        raise ProblemError(
            f"jump: the mask of {name} should have shape ({G.shape[0]},), found {live.shape}"
        )
    return jnp.where(live[:, None], G, 0.0), live


def persistent(
    G_before: Float[Array, "k n"],
    G_after: Jacobian,
    on_before: Bool[Array, " k"],
    on_after: RowMask,
) -> RowMask:
    """Which rows of G_after equal the row of G_before with the same index, both being live."""
    shared = min(G_before.shape[0], G_after.shape[0])
    difference = jnp.max(jnp.abs(G_before[:shared] - G_after[:shared]), axis=1, initial=0.0)
    scale = jnp.max(jnp.abs(G_after[:shared]), axis=1, initial=0.0)
    same = on_before[:shared] & on_after[:shared] & (difference <= SAME_ROW * scale)
    return jnp.concatenate([same, jnp.zeros(G_after.shape[0] - shared, bool)])
