"""How good a run is: its errors against another motion, and what studies make of many errors.

Let r be the reference, sampled at the times of the run. Errors of samples are largest components,

    max |q - q_r|,   max |v - v_r|,   max |lam - lam_r|,   max |H - H_r| / max T_r               (1)

with the energy H (T + V, or T alone) and the kinetic energy T. A jump one sample later than in the
reference should not count as an error of the size of the jump. So samples at which only one of the
two has changed its mode are left out of v, lam and H, and counted. If there are many, the run is
not late but different, and none is left out. Events are compared one by one if both motions have
equally many,

    max |t_k - t_k,r|,   max |Lam_k - Lam_k,r|                                                   (2)

Near a jump v does not converge at a fixed time; its graph does. The graph of a velocity is the set

    {(t/T, v/V)}  with the segments from (t_k/T, v-/V) to (t_k/T, v+/V) of its jumps             (3)

and the distance of two of them is that of Hausdorff (M. D. P. Monteiro Marques, 1987; V. Acary,
Appl. Numer. Math. 62, 2012, doi 10.1016/j.apnum.2012.06.026). T and V are the length of the run and
the largest speed of the reference.

Energy is lost at jumps, by T- - T+ each; what else happens to it without work of other forces is
drift of the scheme,

    lost = sum_k (T- - T+)_k,    drift = (H_end - H_0) + lost                                    (4)

and jump by jump the loss has an error, as times and impulses have in (2).

Errors e_i with the steps h_i show the order p of the line log e = c + p log h fitted to them, and
its standard deviation. Errors below round-off are no part of it.                                (5)

Solvers s on problems i with costs c_is compare by the share of problems that they solve within tau
times the cost of the best (E. D. Dolan, J. J. More, Math. Program. 91, 2002),

    rho_s(tau) = share of i with c_is <= tau min_s c_is                                          (6)
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nsdyn.analysis.residuals import events_before
from nsdyn.results.events import Events
from nsdyn.results.solution import Solution

LATE = 5  # largest delay of a mode change, in samples per event
ROUND_OFF = 1e-11  # smaller errors do not measure an order
ALONG = 65  # points of a jump whose distance is looked at


class Jumps(NamedTuple):
    """The events of a motion: times, velocities before and after, impulses, kinetic energies."""

    t: np.ndarray
    v_before: np.ndarray
    v_after: np.ndarray
    Lam: np.ndarray
    kinetic_before: np.ndarray
    kinetic_after: np.ndarray

    @property
    def lost(self) -> np.ndarray:
        """The kinetic energy that each jump took; negative: gave."""
        return self.kinetic_before - self.kinetic_after

    @staticmethod
    def of(events: Events) -> "Jumps":
        return Jumps(*(np.asarray(getattr(events, name)) for name in Jumps._fields))


class Motion(NamedTuple):
    """What metrics need of a run: its samples, the kinetic energy at these, and its jumps."""

    t: np.ndarray
    q: np.ndarray
    v: np.ndarray
    lam: np.ndarray
    mode: np.ndarray
    energy: np.ndarray
    kinetic: np.ndarray
    jumps: Jumps

    @staticmethod
    def of(run: Solution, kinetic: np.ndarray) -> "Motion":
        """A single run, as `simulate` returns it."""
        samples = {name: getattr(run, name) for name in Motion._fields[:6]}
        return Motion(**samples, kinetic=kinetic, jumps=Jumps.of(run.events))

    def until(self, count: int) -> "Motion":
        """The first so many samples; jumps stay."""
        return self.at(slice(count))

    def at(self, rows: Any) -> "Motion":
        """The samples with these numbers; jumps stay."""
        chosen = {name: getattr(self, name)[rows] for name in Motion._fields[:-1]}
        return Motion(**chosen, jumps=self.jumps)


# Errors of one run


class Differences(NamedTuple):
    """A motion against its reference: differences (1) at the samples that both have, NaN where left
    out."""

    t: np.ndarray
    q: np.ndarray
    v: np.ndarray
    lam: np.ndarray
    energy: np.ndarray
    left_out: int


def common_samples(t: np.ndarray, other: np.ndarray) -> int:
    """The number of samples, from the first on, that have the same times in two motions."""
    count = min(len(t), len(other))
    same = np.isclose(t[:count], other[:count], rtol=1e-9, atol=1e-12)
    return count if same.all() else int(np.argmin(same))


def in_other_mode(run: Motion, reference: Motion) -> np.ndarray:
    """At which samples only one of two motions has changed its mode. Both have the same samples."""
    counts = [events_before(run.t, motion.jumps.t) for motion in (run, reference)]
    differ = (run.mode != reference.mode).reshape(len(run.t), -1).any(axis=1)
    last = [count[-1] if len(count) else 0 for count in counts]
    if last[0] == last[1]:  # else events coincide in one run, and counts mean nothing
        differ = differ | (counts[0] != counts[1])
    many = differ.sum() > LATE * max(1, *last)
    return np.zeros_like(differ) if many else differ


def differences(run: Motion, reference: Motion) -> Differences:
    """(1) along two motions."""
    count = common_samples(run.t, reference.t)
    run, wanted = run.until(count), reference.until(count)
    differ = in_other_mode(run, wanted)
    most = lambda a, b: np.max(np.abs(a - b), axis=1, initial=0.0)
    keep = lambda values: np.where(differ, np.nan, values)
    scale = max(float(np.max(reference.kinetic, initial=0.0)), 1e-300)
    return Differences(
        t=run.t,
        q=most(run.q, wanted.q),
        v=keep(most(run.v, wanted.v)),
        lam=keep(most(run.lam, wanted.lam)),
        energy=keep(np.abs(run.energy - wanted.energy) / scale),
        left_out=int(differ.sum()),
    )


def errors(run: Motion, reference: Motion) -> dict[str, float]:
    """The errors (1) to (3) of a motion by name; NaN where there is nothing to compare."""
    found = differences(run, reference)
    names = ("q", "v", "lam", "energy")
    most = {f"error_{name}": largest(getattr(found, name)) for name in names}
    return most | {
        "rows_left_out": float(found.left_out),
        **event_errors(run.jumps, reference.jumps),
        "graph_v": velocity_graph_distance(run, reference),
    }


def largest(values: np.ndarray) -> float:
    """The largest of the values that are known; NaN if none is."""
    return float(np.nanmax(values)) if np.isfinite(values).any() else np.nan


def event_errors(found: Jumps, wanted: Jumps) -> dict[str, float]:
    """(2), the errors of what jumps took, and how many events there are too many (or, negative, too
    few)."""
    more = len(found.t) - len(wanted.t)
    known = more == 0 and len(found.t) > 0
    most = lambda a, b: float(np.max(np.abs(a - b), initial=0.0)) if known else np.nan
    return {
        "error_t_event": most(found.t, wanted.t),
        "error_Lam": most(found.Lam, wanted.Lam),
        "error_lost": most(found.lost, wanted.lost),
        "events_too_many": float(more),
    }


# Graphs of velocities


def velocity_graph_distance(run: Motion, reference: Motion) -> float:
    """The distance of the graphs (3) over the samples that both have."""
    count = common_samples(run.t, reference.t)
    if count < 2:
        return np.nan
    run, wanted = run.until(count), reference.until(count)
    length = float(run.t[-1] - run.t[0])
    speed = float(np.max(np.linalg.norm(wanted.v, axis=1))) or 1.0
    graphs = [velocity_graph(x, length, speed) for x in (run, wanted)]
    return graph_distance(*graphs)


def velocity_graph(motion: Motion, length: float, speed: float) -> np.ndarray:
    """The graph (3) as segments; jumps after the last sample are no part of it."""
    jumps = motion.jumps
    inside = jumps.t <= motion.t[-1]
    point = lambda t, v: np.column_stack([t / length, v / speed])
    samples = point(motion.t, motion.v)
    ends = [point(jumps.t, v)[inside] for v in (jumps.v_before, jumps.v_after)]
    return np.concatenate([np.stack([samples, samples], axis=1), np.stack(ends, axis=1)])


def graph_distance(one: np.ndarray, two: np.ndarray) -> float:
    """Hausdorff distance of two sets of segments, shape (segments, 2 ends, dimensions); a point is
    a segment of length 0."""
    return max(_directed(one, two), _directed(two, one))


def _directed(one: np.ndarray, two: np.ndarray) -> float:
    """Largest distance of points of `one` (ends and points between) from the segments of `two`."""
    along = np.linspace(0.0, 1.0, ALONG)[:, None, None]
    long = _is_long(one)
    between = one[long, 0] + along * (one[long, 1] - one[long, 0])
    points = np.concatenate([one[~long, 0], between.reshape(-1, one.shape[2])])
    return float(np.max(_distances(points, two)))


def _is_long(segments: np.ndarray) -> np.ndarray:
    return np.any(segments[:, 0] != segments[:, 1], axis=1)


def _distances(points: np.ndarray, segments: np.ndarray) -> np.ndarray:
    """The distance of each point from the nearest segment. Most segments are points, and those are
    found by a tree."""
    from scipy.spatial import KDTree  # here: slow to import

    long = _is_long(segments)
    found = np.full(len(points), np.inf)
    if not long.all():
        found = KDTree(segments[~long, 0]).query(points)[0]
    for a, b in segments[long]:
        d = b - a
        part = np.clip((points - a) @ d / (d @ d), 0.0, 1.0)
        found = np.minimum(found, np.linalg.norm(points - a - part[:, None] * d, axis=1))
    return found


# Energy


class EnergyLedger(NamedTuple):
    """Where the energy of a motion went: times of the jumps, what each took (negative: gave), and
    the drift (4) between them."""

    t: np.ndarray
    lost: np.ndarray
    drift: float


def energy_ledger(motion: Motion) -> EnergyLedger:
    """(4). Where forces without a potential act, their work is part of the drift."""
    jumps, lost = motion.jumps, motion.jumps.lost
    change = motion.energy[-1] - motion.energy[0] if len(motion.energy) else np.nan
    return EnergyLedger(jumps.t, lost, float(change + np.sum(lost)))


# Many runs


class Order(NamedTuple):
    """The observed order (5), its standard deviation, and the number of steps that show it; NaN
    where too few do."""

    order: float
    spread: float
    points: int

    def __str__(self) -> str:
        if np.isnan(self.order):
            return "-"
        spread = "" if np.isnan(self.spread) else f" ± {self.spread:.2f}"
        return f"{round(self.order, 2) + 0.0:.2f}{spread}"  # + 0.0: no minus sign before 0.00


def observed_order(
    steps: Sequence[float] | np.ndarray,
    sizes: Sequence[float] | np.ndarray,
    round_off: float = ROUND_OFF,
) -> Order:
    """(5): the order with which errors of these sizes fall with the step."""
    h, e = np.asarray(steps, float), np.asarray(sizes, float)
    seen = np.isfinite(e) & (np.where(np.isfinite(e), e, 0.0) > round_off)
    count = int(np.sum(seen))
    if count < 2:
        return Order(np.nan, np.nan, count)
    x, y = np.log(h[seen]), np.log(e[seen])
    x = x - np.mean(x)
    around = y - np.mean(y)
    slope = float(np.sum(x * around) / np.sum(x**2))
    rest = float(np.sum((around - slope * x) ** 2))
    spread = float(np.sqrt(rest / (count - 2) / np.sum(x**2))) if count > 2 else np.nan
    return Order(slope, spread, count)


class OverPhases(NamedTuple):
    """A number over many runs that differ in the place of events in their steps: the worst and the
    median of those that ended well, and the share that did not."""

    worst: np.ndarray
    median: np.ndarray
    failed: np.ndarray


def over_phases(values: np.ndarray, ok: np.ndarray) -> OverPhases:
    """Along the last axis. Numbers that are not known do not count; if none is, the result is
    NaN."""
    values = np.where(ok, values, np.nan)
    known = np.isfinite(values)
    any_known = known.any(axis=-1)
    worst = np.max(np.where(known, values, -np.inf), axis=-1, initial=-np.inf)
    safe = np.where(any_known[..., None], values, 0.0)
    return OverPhases(
        worst=np.where(any_known, worst, np.nan),
        median=np.where(any_known, np.nanmedian(safe, axis=-1), np.nan),
        failed=np.mean(~np.asarray(ok), axis=-1),
    )


class Profile(NamedTuple):
    """The performance profile (6): factors tau, and the shares of each solver, one row each."""

    tau: np.ndarray
    share: np.ndarray


def performance_profile(costs: np.ndarray) -> Profile:
    """(6) of costs of shape (problems, solvers); NaN where a solver failed. Problems that nobody
    solves count as not solved."""
    costs = np.where(np.isfinite(costs), costs, np.inf)
    best = np.min(costs, axis=1, keepdims=True)
    solved = np.isfinite(best)
    ratio = np.where(solved, costs / np.where(solved, best, 1.0), np.inf)
    tau = np.unique(np.append(ratio[np.isfinite(ratio)], 1.0))
    share = np.mean(ratio[:, :, None] <= tau, axis=0)
    return Profile(tau, share)
