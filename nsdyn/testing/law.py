"""The suite for laws: random mode changes of a mechanism with 3 coordinates, of three kinds. Rows
are exchanged, rows are added to those that stay, a contact closes. Verified are

    M (v+ - v-) + D^T Lam = U,                                                                 (1)
    G+ v+ = -g_t+,   if the law says that it satisfies new constraints,                        (2)
    the same v+ in other units of mass and velocity, M -> a M, v -> b v, U -> a b U,           (3)
    with factors in front of rows, g -> c g,                                                   (4)
    and with a unit for each coordinate, x -> s x,                                             (5)
    the same v+ if a row is written twice, and no impulse of rows that are not live.           (6)
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nsdyn.errors import unknown
from nsdyn.laws.base import AbstractLaw, ModeChange, message
from nsdyn.laws.impact import AbstractImpactLaw
from nsdyn.status import Status
from nsdyn.testing.findings import ConformanceError, Findings, relative
from nsdyn.testing.impact_law import check_impacts

N = 3
EXACT = 1e-10  # relative errors
CASES = 4  # random ones of each kind
KINDS = ("rows exchanged", "rows added", "a contact closes")
MASS, SPEED = 1e3, 1e-2  # a, b of (3)
FACTORS = np.array([50.0, 0.3, 50.0])  # c of (4); the spare row repeats the first
SCALES = np.array([1.0, 1e3, 0.02])  # s of (5)
DEPENDS = ("units", "rows", "coordinates")


class Change(NamedTuple):
    """A mode change with three rows after it, of which the last is a spare one."""

    M: Any
    G_before: Any
    G_after: Any
    v: Any
    gt: Any
    U: Any
    on_before: Any
    on_after: Any


class Answer(NamedTuple):
    code: Any
    v: Any
    Lam: Any
    direction: Any


def check_law(law: AbstractLaw, *, depends_on: Collection[str] = (), seed: int = 0) -> Findings:
    """Verify a law. An impact law is also asked about impacts (`nsdyn.testing.impact_law`).

    depends_on: what the law does not promise to be independent of: "units" of mass and velocity
        (3), factors in front of "rows" (4), units of single "coordinates" (5).
    seed: of the random mode changes.
    """
    findings = Findings(repr(law))
    if not isinstance(law, AbstractLaw):
        raise ConformanceError(f"{law!r}: expected a law, an nsdyn.AbstractLaw, found none")
    for name in set(depends_on) - set(DEPENDS):
        raise unknown("check_law(depends_on=...): dependence", name, DEPENDS)
    rng = np.random.default_rng(seed)
    for kind in range(len(KINDS)):
        changes = [_random(rng, kind) for _ in range(CASES)]
        answers = [_answer(law, change) for change in changes]
        codes = sorted({int(answer.code) for answer in answers})
        if codes != [Status.OK]:
            findings.skip(KINDS[kind], "the law objects: " + message(law, codes[-1]))
            continue
        _check_balance(findings, law, KINDS[kind], changes, answers)
        _check_invariance(findings, law, KINDS[kind], changes, answers, depends_on)
    if isinstance(law, AbstractImpactLaw):
        check_impacts(findings, law, depends_on, rng)
    return findings


def _check_balance(
    findings: Findings,
    law: AbstractLaw,
    kind: str,
    changes: list[Change],
    answers: list[Answer],
) -> None:
    for c, found in zip(changes, answers, strict=True):
        finite = all(np.all(np.isfinite(x)) for x in found)
        findings.require(f"{kind}: answer", finite, "numbers", "finite numbers")
        left = c.M @ (found.v - c.v) + found.direction.T @ found.Lam - c.U
        findings.at_most(f"{kind}: momentum balance", left / _momentum(c), EXACT)  # (1)
        dead = found.Lam[~c.on_after]
        findings.at_most(f"{kind}: impulse of dead rows", dead, 0.0)  # (6)
        if law.satisfies_new_constraints:
            rates = (c.G_after @ found.v + c.gt)[c.on_after]
            findings.at_most(f"{kind}: new constraints", rates, EXACT)  # (2)


def _momentum(c: Change) -> float:
    return float(np.max(np.abs(c.M @ c.v)) + np.max(np.abs(c.U)))


def _check_invariance(
    findings: Findings,
    law: AbstractLaw,
    kind: str,
    changes: list[Change],
    answers: list[Answer],
    depends_on: Collection[str],
) -> None:
    others = {"units": _in_units, "rows": _with_factors, "coordinates": _rescaled}
    others = {name: x for name, x in others.items() if name not in depends_on}
    for c, found in zip(changes, answers, strict=True):
        for name, change in {**others, "a row written twice": _written_twice}.items():
            other, unit = change(c)
            v = _answer(law, other).v / unit
            findings.at_most(f"{kind}: v+ with other {name}", relative(v, found.v), EXACT)


def _in_units(c: Change) -> tuple[Change, Any]:
    """(3); the answer is to be divided by the second value."""
    other = c._replace(M=MASS * c.M, U=MASS * SPEED * c.U, v=SPEED * c.v, gt=SPEED * c.gt)
    return other, SPEED


def _with_factors(c: Change) -> tuple[Change, Any]:
    """(4)"""
    before, after = FACTORS[:, None] * c.G_before, FACTORS[:, None] * c.G_after
    return c._replace(G_before=before, G_after=after, gt=FACTORS * c.gt), 1.0


def _written_twice(c: Change) -> tuple[Change, Any]:
    """(6): the spare row repeats the first."""
    G, gt, on = c.G_after.copy(), c.gt.copy(), c.on_after.copy()
    first = int(np.argmax(on))
    G[-1], gt[-1], on[-1] = G[first], gt[first], True
    before, on_before = c.G_before.copy(), c.on_before.copy()
    before[-1], on_before[-1] = before[first], on_before[first]
    rows = {"G_after": G, "gt": gt, "on_after": on}
    return c._replace(G_before=before, on_before=on_before, **rows), 1.0


def _rescaled(c: Change) -> tuple[Change, Any]:
    """(5)"""
    other = c._replace(
        M=c.M / np.outer(SCALES, SCALES),
        U=c.U / SCALES,
        v=c.v * SCALES,
        G_before=c.G_before / SCALES,
        G_after=c.G_after / SCALES,
    )
    return other, SCALES


def _random(rng: np.random.Generator, kind: int) -> Change:
    """A mode change of a kind, in numbers of the size 1."""
    root = rng.uniform(-0.4, 0.4, (N, N)) + np.eye(N)
    rows = rng.standard_normal((2, N)) + np.eye(2, N)
    before, after = np.zeros((3, N)), np.zeros((3, N))
    on_before, on_after = np.zeros(3, bool), np.zeros(3, bool)
    before[0], after[0] = rows[0], rows[int(kind == 0)]
    on_before[0] = kind < 2
    on_after[: 1 + (kind == 1)] = True
    if kind == 1:
        after[1] = rows[1]
    v = rng.standard_normal(N)
    if kind == 0 or (kind == 1 and rng.random() < 0.5):  # time steps propose others too
        v -= before[0] * (before[0] @ v) / (before[0] @ before[0])
    new = on_after & ~(on_before & (kind == 1))
    gt = np.where(new, rng.uniform(-0.3, 0.3, 3), 0.0)
    U = rng.uniform(-0.3, 0.3, N)
    return Change(root @ root.T, before, after, v, gt, U, on_before, on_after)


def _answer(law: AbstractLaw, change: Change) -> Answer:
    return jax.tree.map(np.asarray, _compiled(law, *map(jnp.asarray, change)))


@eqx.filter_jit
def _compiled(law: AbstractLaw, *parts: Any) -> Answer:
    c = Change(*parts)
    change = ModeChange.of(
        c.M, c.G_before, c.G_after, c.v, c.gt, c.U, on_before=c.on_before, on_after=c.on_after
    )
    code, jump = law.answer(change)
    return Answer(code, jump.v_after, jump.Lam, jump.direction)
