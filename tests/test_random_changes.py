"""Every law on random mode changes, against answers in extended precision: rows that are exact
combinations of others, rheonomic rows, applied impulses, and the awkward corners."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from references import jumps
from references.random_changes import CATEGORIES, random_changes

from nsdyn import laws
from nsdyn.laws import ModeChange
from nsdyn.status import Status

BATCH = 64  # larger batches of LAPACK calls in one program may wait for each other for ever
E, MU, BOUNCE = 0.75, 0.3, 0.4
IDEAL = {
    "PostSwitchGradient": laws.PostSwitchGradient(),
    **{
        f"MuellerTransition({form})": laws.MuellerTransition(form)
        for form in ("lagrange", "redundant", "minimal")
    },
}
BETWEEN = {
    "GrassmannMidGradient": laws.GrassmannMidGradient(),
    "IntermediateGradient": laws.IntermediateGradient(E),
    "GrassmannMidGradient(euclidean)": laws.GrassmannMidGradient("euclidean"),
}


def answers(M, before, after, v, gt, steady, U, live, kept, tangent):
    """v+ and the objection of each law."""
    of = lambda gt: ModeChange.of(M, before, after, v, gt, U, live, live, kept=kept)
    change = of(gt)
    found = {name: law.answer(change) for name, law in (IDEAL | BETWEEN).items()}
    found["ZeroVelocity"] = laws.ZeroVelocity().answer(change)
    found["Restitution"] = laws.Restitution(BOUNCE).answer(of(steady))
    found["NonIdeal(beta)"] = laws.NonIdeal(tangent, beta=[0.7]).answer(change)
    found["NonIdeal(mu)"] = laws.NonIdeal(tangent, mu=MU).answer(of(steady))
    return {name: (jump.v_after, code) for name, (code, jump) in found.items()}


many = jax.jit(jax.vmap(answers))


def computed(changes):
    count = len(changes.M)
    parts = []
    for start in range(0, count, BATCH):
        rows = np.minimum(np.arange(start, start + BATCH), count - 1)
        parts.append(jax.device_get(many(*(x[rows] for x in changes))))
    return {
        name: [np.concatenate([part[name][i] for part in parts])[:count] for i in (0, 1)]
        for name in parts[0]
    }


def expected(x):
    """v+ of each law in extended precision, and where it is to be compared."""
    of = lambda gt, U: jumps.Change(x.M, x.G_before, x.G_after, x.v, gt, U, x.kept)
    change, steady = of(x.gt, x.U), of(x.gt_steady, x.U)
    clear = change.after.clear & jumps.Rows(jumps.wide(x.G_after)).clear
    known = dict.fromkeys(IDEAL, (jumps.ideal(change), clear))
    known["ZeroVelocity"] = jumps.zero_velocity(change), clear
    known["Restitution"] = jumps.restitution(steady, BOUNCE), clear
    # Without a new direction there is no contact, and the law lets nothing act along the tangent.
    touches = change.after.rank > jumps.Rows(change.after.h * x.kept[:, :, None]).rank
    pushed = jumps.ideal(of(x.gt, x.U + 0.7 * x.tangent[:, 0]))
    known["NonIdeal(beta)"] = pushed, clear & touches
    # How much of the normal impulse dependent rows carry is theirs to decide.
    single = np.all(change.after.keep | ~x.live, axis=1)
    known["NonIdeal(mu)"] = jumps.coulomb(steady, x.tangent, MU), clear & touches & single
    between = clear & change.before.clear & (change.before.rank == change.after.rank)
    for name, position in (("GrassmannMidGradient", 0.5), ("IntermediateGradient", E)):
        v, angle = jumps.intermediate(change, position)
        known[name] = v, between & (np.cos(angle) > 1.01e-4)
    v, angle, distance = jumps.intermediate_euclidean(change, 0.5)
    defined = between & (np.cos(angle) > 1.01e-4) & (distance > 1e-3)
    known["GrassmannMidGradient(euclidean)"] = v, defined
    return known


def errors(x):
    """The relative error of each law, in the mass metric, and how many answers it refused."""
    found, size = computed(x), lambda v: np.sqrt(np.einsum("ki,kij,kj->k", v, x.M, v))
    report = {}
    for name, (exact, compare) in expected(x).items():
        v, code = found[name]
        wrong = size((v - exact).astype(float)) / (size(x.v) + size(exact.astype(float)))
        refused = compare & (code != Status.OK)
        answered = compare & ~refused
        report[name] = np.where(np.isnan(wrong), np.inf, wrong)[answered], int(refused.sum())
    return report
