"""The suite for impact laws: random impacts of two contacts with friction, of which one may have
been closed before, and a third one that does not touch. Verified are

    P_N >= 0,   |P_T| <= mu P_N,   psi_N+ >= 0,   and P = 0 where nothing touches,             (1)
    T+ <= T-, if the law says that it cannot gain energy,                                      (2)
    the same v+ in other units of mass and velocity, M -> a M, v -> b v,                       (3)
    and with a factor in front of all rows of a contact, psi -> c psi.                         (4)
"""

from collections.abc import Collection
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from nsdyn.laws.impact import AbstractImpactLaw, Impact, work
from nsdyn.testing.findings import Findings, relative

K, D, N = 3, 2, 4
CASES = 16
EXACT = 1e-9
MASS, SPEED = 1e3, 1e-2  # a, b of (3)
FACTORS = np.array([50.0, 0.3, 2.0])  # c of (4)
NAME = "impacts"


class Case(NamedTuple):
    """The mass matrix, the gradients of the contacts, the velocity, mu, e, and which touch."""

    M: Any
    H: Any
    v: Any
    mu: Any
    e: Any
    on: Any


class Answer(NamedTuple):
    solved: Any
    v: Any
    P: Any
    before: Any
    after: Any


def check_impacts(
    findings: Findings,
    law: AbstractImpactLaw,
    depends_on: Collection[str],
    rng: np.random.Generator,
) -> None:
    """Verify an impact law."""
    objection = law.objection(K)
    if objection is not None:
        findings.skip(NAME, f"the law objects: {objection}")
        return
    for _ in range(CASES):
        case = _random(rng)
        found = _answer(law, case)
        if not found.solved:
            findings.skip(NAME, "the law has no answer to an impact")
            continue
        _check_laws_of_contact(findings, law, case, found)
        others = {"units": _in_units, "rows": _with_factors}
        for name in (x for x in others if x not in depends_on):
            other, unit = others[name](case)
            v = _answer(law, other).v / unit
            findings.at_most(f"{NAME}: v+ with other {name}", relative(v, found.v), EXACT)


def _check_laws_of_contact(
    findings: Findings, law: AbstractImpactLaw, case: Case, found: Answer
) -> None:
    normal, rubbing = found.P[:, 0], np.linalg.norm(found.P[:, 1:], axis=1)
    impulse = np.max(np.abs(found.P)) or 1.0
    speed = np.max(np.abs(found.before))
    wrong = {
        "a contact that pulls": -normal / impulse,
        "friction beyond mu P_N": (rubbing - case.mu * normal) / impulse,
        "approach after": -found.after[case.on, 0] / speed,
    }
    if not law.can_gain_energy:
        gain = np.sum(np.asarray(work(found.P, found.before, found.after)))
        wrong["gain of energy"] = gain / (impulse * speed)
    for name, excess in wrong.items():
        findings.at_most(f"{NAME}: {name}", np.maximum(excess, 0.0), EXACT)
    findings.at_most(f"{NAME}: impulse without touch", found.P[~case.on], 0.0)


def _random(rng: np.random.Generator) -> Case:
    root = rng.uniform(-0.4, 0.4, (N, N)) + np.eye(N)
    H = rng.standard_normal((K, D, N)) + np.eye(K, N)[:, None]
    v = rng.standard_normal(N)
    H[:, 0] *= -np.sign(H[:, 0] @ v)[:, None]  # all approach
    if rng.random() < 0.5:  # or one is closed
        H[1, 0] -= v * (H[1, 0] @ v) / (v @ v)
    on = np.array([True, True, False])
    return Case(root @ root.T, H, v, rng.uniform(0, 0.5, K), rng.uniform(0, 1, K), on)


def _in_units(c: Case) -> tuple[Case, float]:
    """(3); the answer is to be divided by the second value."""
    return c._replace(M=MASS * c.M, v=SPEED * c.v), SPEED


def _with_factors(c: Case) -> tuple[Case, float]:
    """(4)"""
    return c._replace(H=FACTORS[:, None, None] * c.H), 1.0


def _answer(law: AbstractImpactLaw, case: Case) -> Answer:
    return jax.tree.map(np.asarray, _compiled(law, *map(jnp.asarray, case)))


@eqx.filter_jit
def _compiled(law: AbstractImpactLaw, *parts: Any) -> Answer:
    c = Case(*parts)
    rows = c.H.reshape(K * D, N)
    Y = jnp.linalg.solve(c.M, rows.T)
    rates = (rows @ c.v).reshape(K, D)
    impact = Impact(
        W=rows @ Y,
        before=rates,
        free=rates,
        mu=c.mu,
        E=jnp.stack([c.e, jnp.zeros(K)], axis=1),
        on=c.on,
        kept=c.on & (jnp.abs(rates[:, 0]) < EXACT),
        P0=jnp.zeros((K, D)),
    )
    found = law.impulses(impact)
    v = c.v + Y @ found.P.reshape(-1)
    return Answer(found.solved, v, found.P, rates, impact.after(found.P))
