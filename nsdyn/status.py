"""Status codes, which traced code returns where other code would raise. A trajectory keeps its
first failure."""

from enum import IntEnum


class Status(IntEnum):
    """How a run ended. `nsdyn.status.MESSAGES` says what each status means and what to try. A
    trajectory keeps its first failure."""

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
    SINGULAR_POSITION = 16
    TOO_MANY_STEPS = 17
    CONTACT_UNSOLVED = 18
    LOST = 19
    PAINLEVE = 20


MESSAGES = {
    Status.OK: "the run reached t_end",
    Status.NONFINITE: (
        "the state became infinite or NaN. Try a smaller step, and check that the mass matrix and "
        "the constraints are not singular there"
    ),
    Status.LEADS_BACK: (
        "the velocity after an event leads straight back through the zero of the guard that fired "
        "(for Switching: Z v+ has the wrong sign). Try another law. With Switching, choose a "
        "switching function that changes along the motion, or set latch=True if the new constraint "
        "keeps it at zero (a capture). With Transitions, let a guard that does not matter in a "
        "mode be positive there. Laws that compare subspaces, such as GrassmannMidGradient, "
        "mistake a corner of more than 90 degrees for its supplement and send the mechanism back"
    ),
    Status.TOO_MANY_SWITCHES: (
        "more events than allowed inside one step: event times accumulate (Zeno), or two modes "
        "chatter. Try a larger rest_speed in Contact, for Contacts a larger `rest` in "
        "tolerances=Tolerances(rest=...), a smaller step, or a larger max_switches in EventDriven"
    ),
    Status.LOG_FULL: "the event log is full. Raise max_events",
    Status.GUARD_NEGATIVE: (
        "a guard is already negative at the start, so its fall through zero would never be seen. "
        "Start where the guards of the initial mode are positive, or in another mode"
    ),
    Status.NOT_LOCATED: (
        "a guard fell through zero inside a step, but the time of the event could not be located "
        "to round-off. Try a smaller step, and check that the guard is smooth"
    ),
    Status.NO_MODE: (
        "a mode was left, but no other mode can be entered there: no switching function rises, or "
        "`after` returned -1. Check that the switching functions cover the whole motion"
    ),
    Status.DO_NOT_MEET: (
        "the constraints of the new mode do not hold at the event (g+ != 0). Choose modes whose "
        "constraints both hold where one follows the other; problem.check() verifies this"
    ),
    Status.LAW_VIOLATES: (
        "the velocity that the law gave after an event violates the new constraints (G+ v+ != "
        "-g_t+). Restitution with e > 0 is for Contact, which opens again; choose another law for "
        "locks and for Switching. If rows contradict each other, as when one constraint locks a "
        "coordinate that another drives, no law has an answer"
    ),
    Status.CONSTRAINTS_LOST: (
        "the constraints no longer hold (|g| grew large). Try a smaller step first. If that does "
        "not help, they may have no solution any more, be singular here, or drift without "
        "projection: try EventDriven(..., project=True), and check the constraints"
    ),
    Status.CUT_LOCUS: (
        "the constraints before and after an event are orthogonal in the metric of the law (a "
        "principal angle of 90 degrees): two shortest paths lead from the old gradients to the new "
        "ones, and the law cannot choose. Try PostSwitchGradient"
    ),
    Status.RANK_CHANGES: (
        "the number of independent constraints changes at an event, and gradients between the old "
        "and the new ones are not defined. If constraints are added, try PostSwitchGradient or "
        "MuellerTransition"
    ),
    Status.ENERGY_GAIN: (
        "the law creates kinetic energy. Between the old and the new gradients a position E < 1/2 "
        "does so: choose E >= 1/2. In an impact of Contacts friction may do so if e > 0 and e_T is "
        "another number: try law=Fremond(), or e_T = e for all contacts. Or permit it with "
        "allow_energy_gain=True, for Contacts law=Newton(allow_energy_gain=True)"
    ),
    Status.BAD_POSITION: (
        "the position E of the impulse lies outside [0, 1]. Choose E between 0 (the old gradients) "
        "and 1 (the new ones)"
    ),
    Status.TOO_MANY_STEPS: (
        "error control needed more steps between two samples than allowed. Try larger rtol and "
        "atol, a smaller step (the distance of the samples) or a larger max_steps; if the motion "
        "is stiff, try EventDriven(RadauIIA())"
    ),
    Status.CONTACT_UNSOLVED: (
        "no impulses were found that satisfy all contacts together. There may be none, as for a "
        "body between walls that close or between contacts and constraints that drive it; else try "
        "a smaller step"
    ),
    Status.PAINLEVE: (
        "no forces exist with which the contacts could go on, and no impulse either that would "
        "stop their slip (Painleve's paradox: friction presses a sliding contact harder than the "
        "load would lift it). Try a smaller mu, or MoreauJean(), which needs no forces"
    ),
    Status.LOST: (
        "the processes of the sweep that were to compute this run died, one after the other: they "
        "may need more memory than there is. Call the sweep again with the same folder to try what "
        "is missing again; a smaller `memory` or fewer jobs may help"
    ),
    Status.SINGULAR_POSITION: (
        "the rank of the constraints drops here, a singular position of the mechanism, and the "
        "scheme did not get through: other motions branch off, and reactions may be unbounded. "
        "Implicit schemes stop if a step ends almost exactly there; a smaller step does not help "
        "by being smaller, but one that is longer or shorter by a percent passes over. "
        "EventDriven(RK4()) passes even then. If the run starts there, start beside it. "
        "docs/singular_positions.md compares the schemes"
    ),
    Status.NOT_CONVERGED: (
        "Newton's method did not converge. If it was that of an implicit step, try a smaller step "
        "or more iterations, Newton(max_iterations=...); if it was that for the impulse that a "
        "function given to NonIdeal asks for, check that function"
    ),
}
