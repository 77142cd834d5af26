"""Status codes that travel out of traced code; the first failure of a trajectory is the one
kept."""

from enum import IntEnum


class Status(IntEnum):
    """How a run ended. `MESSAGES` says what each means and what to try; the first failure of a
    trajectory is the one kept."""

    OK = 0
    NONFINITE = 1
    LEADS_BACK = 2
    TOO_MANY_SWITCHES = 3
    LOG_FULL = 4
    GUARD_NEGATIVE = 5
    NOT_LOCATED = 6
    NO_MODE = 7
    DO_NOT_MEET = 8
    NOT_CONVERGED = 9
    LAW_VIOLATES = 10
    CONSTRAINTS_LOST = 11
    CUT_LOCUS = 12
    RANK_CHANGES = 13
    ENERGY_GAIN = 14
    BAD_POSITION = 15


MESSAGES = {
    Status.OK: "the run reached t_end",
    Status.NONFINITE: (
        "the state became infinite or NaN. Try a smaller step; look for a singular mass matrix or "
        "constraint"
    ),
    Status.LEADS_BACK: (
        "the velocity after a switch leads straight back through the surface of its guard (for "
        "Switching: Z v+ has the wrong "
        "sign). Try another law; with Switching a switching function transversal to the motion, or "
        "latch=True for a capture. "
        "Laws that see subspaces, such as GrassmannMidGradient, take a corner that turns by more "
        "than 90 degrees for its "
        "supplement and send the point back"
    ),
    Status.TOO_MANY_SWITCHES: (
        "more switches than allowed inside one step: switching times accumulate (Zeno) or two "
        "modes chatter. "
        "Try a larger rest speed in Contact, a smaller step, or EventDriven(..., max_switches=...)"
    ),
    Status.LOG_FULL: "the event log is full. Raise max_events",
    Status.GUARD_NEGATIVE: (
        "a guard is already negative at the start, so its crossing would never be seen. "
        "Start on the side where the guards of the initial mode are positive"
    ),
    Status.NOT_LOCATED: (
        "a switch seen inside a step could not be located to round-off. Try a smaller step"
    ),
    Status.NO_MODE: (
        "a mode was left but no switching function rises there. Look at the switching functions"
    ),
    Status.DO_NOT_MEET: (
        "the constraints of the new mode are not satisfied at the switching point (g+ != 0 there). "
        "Look at problem.check()"
    ),
    Status.LAW_VIOLATES: (
        "the velocity that the law gave after a switch violates the new constraints (G+ v+ != "
        "-g_t+). Restitution with e > 0 "
        "suits Contact, which opens again; for locks and switching constraints choose another law. "
        "Rows that contradict each "
        "other, such as the lock of a coordinate that another constraint drives, leave every law "
        "without an answer"
    ),
    Status.CONSTRAINTS_LOST: (
        "the constraints are no longer satisfied (|g| grew large): they may have no solution any "
        "more, be singular here, or "
        "drift without projection. Try a smaller step, EventDriven(..., project=True), or look at "
        "the constraints"
    ),
    Status.CUT_LOCUS: (
        "constraints before and after a switch are orthogonal in the metric of the law (a "
        "principal angle of 90 degrees), so "
        "two ways lead from the one gradient to the other and the law cannot choose. Try "
        "PostSwitchGradient"
    ),
    Status.RANK_CHANGES: (
        "the number of independent constraints changes at a switch, and a gradient between those "
        "before and after is not "
        "defined. Where constraints are added try PostSwitchGradient or MuellerTransition"
    ),
    Status.ENERGY_GAIN: (
        "position E < 1/2 of the impulse between the gradients makes kinetic energy out of "
        "nothing. Take E >= 1/2, or say "
        "allow_energy_gain=True"
    ),
    Status.BAD_POSITION: (
        "position E of the impulse lies outside [0, 1], which is from the old gradient to the new "
        "one"
    ),
    Status.NOT_CONVERGED: (
        "Newton's iteration did not converge: that of a step, where a smaller step may help, or "
        "that for the impulse which a "
        "function given to NonIdeal asks for"
    ),
}
