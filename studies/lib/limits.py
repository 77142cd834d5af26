"""Samples of a trajectory with both limits at every event, for figures of quantities that jump."""

from typing import NamedTuple

import numpy as np

import nsdyn


class Rows(NamedTuple):
    t: np.ndarray
    q: np.ndarray
    v: np.ndarray
    mode: np.ndarray


def with_limits(trajectory: nsdyn.Trajectory) -> Rows:
    """The samples of a trajectory, with two more at each event: the limits from the left and from
    the right."""
    t, q, v, mode = (np.asarray(getattr(trajectory, name)) for name in ("t", "q", "v", "mode"))
    for event in trajectory.events:
        at = np.searchsorted(t, event.t)  # a sample at the event holds the state after it
        t = np.insert(t, at, [event.t] * 2)
        q = np.insert(q, at, [event.q] * 2, axis=0)
        v = np.insert(v, at, [event.v_before, event.v_after], axis=0)
        mode = np.insert(mode, at, [event.mode_before, event.mode_after], axis=0)
    return Rows(t, q, v, mode)
