"""What `check_start` refuses: every message names the argument, what was found and what was
expected."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nsdyn
from nsdyn import (
    Contact,
    Fixed,
    Nonholonomic,
    Problem,
    ProblemError,
    Scheduled,
    Switching,
    System,
    Transitions,
    lock,
)
from nsdyn.checks.problem_check import check_start
from nsdyn.integrators import RK4, EventDriven
from nsdyn.problems.three_r_pendulum import three_r_pendulum

METHOD = EventDriven(RK4())


def mass(q, p):
    return jnp.eye(2)


def gravity(q, v, t, p):
    return jnp.array([0.0, -9.81])


def on_ground(q, t, p):
    return q[1:]


def on_circle(q, t, p):
    return jnp.sum(q**2, keepdims=True) - 1.0


PARTICLE = System(mass=mass, force=gravity)


def particle(constraint=None, q0=(0.0, 0.0), v0=(1.0, 0.0), system=PARTICLE, params=None):
    return Problem("particle", system, constraint, q0=q0, v0=v0, t_end=1.0, params=params)


def refused(problem, *words, **overrides):
    """The message with which a problem is refused, after a look at the words in it."""
    run = lambda: nsdyn.simulate(problem, METHOD, step=0.1, **overrides)
    with pytest.raises(ProblemError) as caught:
        run() if overrides else check_start(problem)
    message = str(caught.value)
    for word in words:
        assert word in message, message
    return caught.value


def pasted(name, error):
    """The list that a message offers for q0 or v0."""
    return [float(x) for x in re.search(rf"{name} = \[(.*?)\]", str(error))[1].split(",")]


def test_a_good_problem_passes_and_is_reported():
    report = check_start(three_r_pendulum())
    assert report.ok
    assert "positive definite" in str(report)
    assert all(len(line) == 3 for line in report.lines)
    columns = {
        line.index(found)
        for line, (_, found, _) in zip(str(report).splitlines()[1:], report.lines, strict=True)
    }
    assert len(columns) == 1  # aligned


def test_a_scalar_row_is_one_row():
    assert check_start(particle(Fixed(lambda q, t, p: q[1]))).ok


# Shapes.


def wide(q, p):
    return jnp.ones((2, 3))


SHAPES = {
    "mass": (System(wide, gravity), "wide returned shape (2, 3)", "expected (2, 2)"),
    "force": (
        System(mass, lambda q, v, t, p: jnp.ones(3)),
        "(3,)",
        "expected (2,)",
        "v0 has 2 entries",
    ),
    "potential": (
        System(mass, gravity, potential=lambda q, p: q[1:]),
        "(1,)",
        "expected ()",
        "scalar",
    ),
    "solve": (System(mass, gravity, solve=lambda q, b, p: b[:1]), "(1,)", "expected (2,)"),
    "momentum": (System(mass, gravity, momentum=lambda q, v, p: v[:1]), "(1,)", "expected (2,)"),
    "kinematics": (
        System(mass, gravity, kinematics=lambda q, v, p: v[:1]),
        "(1,)",
        "expected (2,)",
        "q0",
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_of_the_system(name):
    system, *words = SHAPES[name]
    refused(particle(system=system), f"System({name}=...)", *words)


def test_kinetic_energy_must_be_a_scalar():
    system = System.from_lagrangian(lambda q, v, p: v**2)
    refused(particle(system=system), "from_lagrangian(kinetic=...)", "(2,)", "expected ()")


def matrix(q, t, p):
    return jnp.ones((1, 2))


def pair(q, t, p):
    return q[0], q[1]


def transitions(**other):
    functions = {
        "rows": lambda q, t, p, mode, held: q[1:],
        "guards": lambda q, v, lam, t, p, mode, held: 1.0 - q[:1],
        "after": lambda fired, q, v, t, p, mode: mode + 1,
    }
    return Transitions(**(functions | other))


ROWS = {
    "fixed": (Fixed(matrix), "Fixed(g=...)", "matrix", "(1, 2)", "a vector (m,)"),
    "tuple": (Fixed(pair), "Fixed(g=...)", "pair", "tuple", "jnp.stack"),
    "nonholonomic": (
        Nonholonomic(lambda q, v, t, p: jnp.ones((1, 2))),
        "Nonholonomic(c=...)",
        "(1, 2)",
        "a vector",
    ),
    "contact": (Contact(matrix), "Contact(gap=...)", "matrix", "(1, 2)"),
    "mode": (
        Switching((on_ground, matrix), (lambda q, p: q[0],)),
        "Switching(modes=...)",
        "matrix",
        "(1, 2)",
    ),
    "switch": (
        Switching((on_ground, None), (lambda q, p: q,)),
        "Switching(switches=...)",
        "(2,)",
        "a scalar",
    ),
    "stage": (Scheduled((0.5,), (None, matrix)), "Scheduled(stages=...)", "matrix", "(1, 2)"),
    "lock": (Scheduled((0.5,), (None, lock(7))), "lock(7)", "below 2"),
    "rows": (
        transitions(rows=lambda q, t, p, mode, held: jnp.eye(2)),
        "Transitions(rows=...)",
        "(2, 2)",
    ),
    "live": (
        transitions(live=lambda mode, p: jnp.ones(3, bool)),
        "Transitions(live=...)",
        "(3,)",
        "expected (1,)",
    ),
    "after": (
        transitions(after=lambda fired, *_: fired),
        "Transitions(after=...)",
        "(1,)",
        "expected ()",
        "mode0",
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_shapes_of_the_constraint(name):
    constraint, *words = ROWS[name]
    refused(particle(constraint), *words)


def test_exceptions_of_user_functions_are_named_and_chained():
    def broken(q, t, p):
        return q @ jnp.ones(5)

    error = refused(particle(Fixed(broken)), "Fixed(g=...)", "broken raised TypeError")
    assert isinstance(error.__cause__, TypeError)
    refused(particle(Fixed(lambda q, t, p: np.sin(q))), "Fixed(g=...)", "use jax.numpy")
    refused(particle(Fixed(lambda q, t, p: q if q[0] > 0 else -q)), "Fixed(g=...)", "jnp.where")


# A constraint of one's own.


class Rail(nsdyn.AbstractConstraint):
    """The line y = 0, which ends at x = 1."""

    wrong: str = eqx.field(static=True, default="")

    def rows(self, q, t, p, mode, held):
        return jnp.outer(q, q) if self.wrong == "rows" else q[1:]

    def live(self, q, t, p, mode):
        return jnp.ones(3 if self.wrong == "live" else 1, bool) & (mode == 0)

    def guards(self, q, v, lam, t, p, mode, held):
        if self.wrong == "guards":
            return {"end": 1.0 - q[0]}
        return jnp.where(mode == 0, 1.0 - q[:1], 1.0)

    def after(self, fired, q, qdot, v, t, p, mode, scale):
        return fired if self.wrong == "after" else mode + 1

    def row_names(self, q, t, p, mode, m):
        return ["height", "too much"] if self.wrong == "names" else ["height of the rail"]


def test_an_own_constraint_is_checked_like_the_others():
    wrong = lambda name: particle(Rail(name))
    refused(wrong("rows"), "Rail.rows", "rows returned shape (2, 2)", "expected a vector")
    refused(wrong("live"), "Rail.live", "returned shape (3,)", "expected (1,)", "1 rows")
    refused(wrong("guards"), "Rail.guards", "returned a dict", "expected an array")
    refused(wrong("after"), "Rail.after", "returned shape (1,)", "expected ()", "mode")
    refused(wrong("names"), "Rail.row_names", "expected 1 names", "'too much'")
    refused(particle(Rail(), q0=[1.5, 0.0]), "Rail.guards", ">= 0", "guard 0 = -0.5", "mode 0")
    refused(particle(Rail(), q0=[0.0, 0.5]), "q0: expected", "0.5 in the row height of the rail")
    assert check_start(particle(Rail())).ok


def test_an_own_constraint_is_followed_through_its_events():
    problem = particle(Rail(), v0=(3.0, 0.0))
    report = problem.check()
    found = [line for line in report.lines if line.what == "switching from mode 0 to mode 1"]
    assert report.ok and found[0].verdict == "ok"
    assert "at q = [1, 0]" in found[0].found and "guard 0 crosses zero" in found[0].found


# Overrides and values.


def test_overrides_have_the_shapes_of_the_problem():
    problem = particle(params={"a": 1.0, "b": jnp.ones(2)})
    refused(problem, "q0", "(3,)", "expected shape (2,)", q0=[0.0, 0.0, 0.0])
    refused(problem, "v0", "(1,)", "expected shape (2,)", v0=[0.0])
    refused(problem, "v0", "expected numbers", "'fast'", v0="fast")
    refused(problem, "params", "no 'b'", "unknown 'c'", params={"a": 1.0, "c": jnp.ones(2)})
    refused(
        problem,
        "params['b']",
        "(3,)",
        "expected shape (2,)",
        "sweep",
        params={"a": 1.0, "b": jnp.ones(3)},
    )
    other = {"q0": [1.0, 2.0], "v0": (0, 1), "params": {"a": 2, "b": np.zeros(2)}}
    assert nsdyn.simulate(problem, METHOD, step=0.1, **other).ok


def test_q0_and_v0_have_one_size_without_kinematics():
    with pytest.raises(ProblemError, match=r"q0=.*v0=.*3 and 2.*System\(kinematics=\.\.\.\)"):
        particle(q0=[0.0, 0.0, 0.0])


def test_params_are_numbers():
    refused(
        particle(params={"name": "wheel"}),
        "params['name']",
        "'wheel'",
        "expected a number or an array",
    )


def test_traced_values_are_sent_to_rollout():
    run = lambda q0: nsdyn.simulate(particle(), METHOD, step=0.1, q0=q0).q
    with pytest.raises(ProblemError, match=r"found traced values.*nsdyn.rollout"):
        jax.jit(run)(jnp.zeros(2))


def nan_force(q, v, t, p):
    return jnp.array([0.0, jnp.nan])


FINITE = {
    "q0": (particle(q0=[0.0, np.nan]), "q0", "nan at index [1]"),
    "v0": (particle(v0=[np.inf, 0.0]), "v0", "inf at index [0]"),
    "params": (particle(params={"a": jnp.inf}), "params['a']", "inf"),
    "mass": (
        particle(system=System(lambda q, p: jnp.eye(2) / q[0], gravity)),
        "System(mass=...)",
        "at q0",
        "inf",
    ),
    "force": (
        particle(system=System(mass, nan_force)),
        "System(force=...)",
        "at q0, v0",
        "nan at index [1]",
    ),
    "rows": (
        particle(Fixed(lambda q, t, p: jnp.log(q[1:]))),
        "Problem(constraint=...)",
        "<lambda>[0]",
        "-inf",
    ),
}


@pytest.mark.parametrize("name", FINITE)
def test_everything_is_finite_at_the_start(name):
    problem, *words = FINITE[name]
    refused(problem, "expected finite numbers", *words)


MASSES = {
    "asymmetric": (
        [[2.0, 0.3], [0.1, 1.0]],
        "symmetric",
        "M[0, 1] = 0.3",
        "M[1, 0] = 0.1",
        "differ by 0.2",
    ),
    "indefinite": (
        [[1.0, 2.0], [2.0, 1.0]],
        "positive definite",
        "indefinite",
        "smallest eigenvalue -1",
    ),
    "singular": (
        [[1.0, 0.0], [0.0, 0.0]],
        "positive definite",
        "singular",
        "smallest eigenvalue 0",
    ),
}


@pytest.mark.parametrize("name", MASSES)
def test_mass_matrix(name):
    M, *words = MASSES[name]
    refused(
        particle(system=System(lambda q, p: jnp.array(M), gravity)),
        "System(mass=...)",
        "expected a",
        *words,
    )


def test_mass_matrix_may_mix_units():
    assert check_start(
        particle(system=System(lambda q, p: jnp.diag(jnp.array([1e9, 1e-9])), gravity))
    ).ok


def test_solve_is_the_inverse_of_mass():
    heavy = lambda q, p: 2.0 * jnp.eye(2)
    wrong, right = (
        System(heavy, gravity, solve=lambda q, b, p: b),
        System(heavy, gravity, solve=lambda q, b, p: b / 2),
    )
    refused(particle(system=wrong), "System(solve=...)", "M^-1 b", "= 1 at q0")
    assert check_start(particle(system=right)).ok


def test_momentum_is_mass_times_velocity():
    heavy = lambda q, p: 2.0 * jnp.eye(2)
    wrong, right = (System(heavy, gravity, momentum=lambda q, v, p, k=k: k * v) for k in (1.0, 2.0))
    refused(particle(system=wrong), "System(momentum=...)", "M v", "of 1 at q0")
    assert check_start(particle(system=right)).ok


# Consistency.


def test_inconsistent_q0_is_told_with_the_projected_one():
    problem = particle(Fixed(on_circle), q0=[0.3, 1.4], v0=[1.0, 0.5])
    error = refused(problem, "q0: expected", "found 1.05", "on_circle[0]", "to within")
    q, v = pasted("q0", error), pasted("v0", error)
    np.testing.assert_allclose(q, np.array([0.3, 1.4]) / np.hypot(0.3, 1.4), rtol=1e-3)
    assert check_start(particle(Fixed(on_circle), q0=q, v0=v)).ok


def test_inconsistent_v0_is_told_with_the_projected_one():
    problem = particle(Fixed(on_ground), v0=[1.0, 0.25])
    error = refused(problem, "v0: expected", "found 0.25", "on_ground[0]")
    assert pasted("v0", error) == [1.0, 0.0]
    assert "q0 =" not in str(error)


def test_a_lock_at_the_start_wants_v0_at_rest():
    started = lambda v0: three_r_pendulum(locks=(-1.0, 1.3), v0=v0)
    error = refused(started((0.1, 0.2, 0.3)), "v0", "found 0.2", "lock(1)[0]")
    assert check_start(started(pasted("v0", error))).ok


def ceiling(q, t, p):
    return q[1:] - 1.0


def rising(q, t, p):
    return q[1:] - t


def test_contradictory_rows():
    refused(
        particle((Fixed(on_ground), Fixed(ceiling))),
        "contradict",
        "on_ground[0]",
        "ceiling[0]",
        "[0, -1]",
        "at q0",
    )
    refused(
        particle((Fixed(on_ground), Fixed(rising))),
        "contradict",
        "on_ground[0]",
        "rising[0]",
        "velocity level",
    )


def test_dependent_but_consistent_rows_are_a_warning():
    problem = particle((Fixed(on_ground), Fixed(lambda q, t, p: 2.0 * q[1:])))
    with pytest.warns(
        nsdyn.RedundancyWarning, match=r"rank 1 for 2 rows.*on_ground\[0\], .*<lambda>\[0\]"
    ):
        report = check_start(problem)
    assert not report.ok
    assert "warning" in str(report)


@pytest.mark.parametrize("method", ["check", "check_start"])
def test_a_warning_points_to_the_line_of_the_user(method):
    problem = particle((Fixed(on_ground), Fixed(on_ground)))
    with pytest.warns(nsdyn.RedundancyWarning) as caught:
        problem.check() if method == "check" else check_start(problem)
    assert caught[0].filename == __file__


def test_nonholonomic_rows_are_affine_in_v():
    refused(
        particle(Nonholonomic(lambda q, v, t, p: v[1:] * v[:1])),
        "Nonholonomic(c=...)",
        "affine",
        "changes with v",
    )
    assert check_start(particle(Nonholonomic(lambda q, v, t, p: v[1:] - q[1] * v[:1]))).ok


# Modes at the start.


def test_schedule_times_that_depend_on_params_are_in_order():
    problem = three_r_pendulum(locks=(1.3, 0.8))
    refused(problem, "Scheduled(times=...)", "ascending", "[1.3, 0.8]", "[0.8, 1.3]")
    refused(
        particle(Scheduled(lambda p: jnp.ones(3), (None, lock(0)))), "2 stages need 1 times", "(3,)"
    )


def test_switching_starts_in_one_mode():
    x = lambda q, p: q[0] + 1.0
    two = Switching((on_ground, on_ground), (x, x))
    refused(
        particle(two), "Switching(switches=...)", "expected one mode", "z = [1, 1]", "modes [0, 1]"
    )
    none = Switching((on_ground, on_ground), (lambda q, p: -x(q, p), lambda q, p: q[0] - 1.0))
    refused(particle(none), "Switching(switches=...)", "z = [-1, -1]", "no mode")
    on_surface = Switching((on_ground, on_ground), (lambda q, p: q[0],))
    assert check_start(particle(on_surface)).ok


def test_contact_does_not_start_inside():
    gap = lambda q, t, p: q - 0.1
    refused(
        particle(Contact(gap), q0=[0.2, 0.0]),
        "Contact(gap=<lambda>)",
        ">= 0",
        "<lambda>[1] = -0.1",
        "by 0.1",
    )
    assert check_start(particle(Contact(gap), q0=[0.2, 0.1], v0=[0.0, 0.0])).ok
    assert check_start(
        particle(Contact(gap), q0=[0.2, 0.1], v0=[0.0, 5e-4])
    ).ok  # at rest within the rest speed


def test_rows_that_part_from_each_other():
    """They hold at the start, rates included, and cannot hold a moment later."""
    parting = Fixed(lambda q, t, p: jnp.stack([q[0], 2 * q[0] - 0.02 * t**2]))
    refused(
        particle(parting, q0=[0.0, 0.0], v0=[0.0, 0.0]),
        "contradict each other",
        "second derivatives",
        "[0]",
        "[1]",
    )


def test_other_wrong_constraints():
    refused(particle(Fixed(lambda q, t, p: q[1:] > 0)), "Fixed(g=...)", "bool", "real numbers")
    missing = Fixed(lambda q, t, p: q[1:] - p["height"])
    refused(
        particle(missing, params={"depth": 0.0}),
        "KeyError",
        "'height'",
        "params has the names ['depth']",
    )
    refused(particle(missing), "params is None")
    for wrong, words in (
        (
            lambda: Switching(modes=on_ground, switches=(lambda q, p: q[0],)),
            "Switching(modes=...): expected a tuple",
        ),
        (
            lambda: Switching(modes=(on_ground, None), switches=lambda q, p: q[0]),
            "Switching(switches=...): expected a tuple",
        ),
        (
            lambda: Contact(lambda q, t, p: q, rest_speed=-1.0),
            "Contact(rest_speed=...): expected a number >= 0, found -1.0",
        ),
        (lambda: Contact(lambda q: q), "gap(q, t, p) -> (m,), found <lambda>(q)"),
    ):
        with pytest.raises(ProblemError, match=re.escape(words)):
            wrong()


def test_modes_count_from_zero():
    with pytest.raises(
        ProblemError,
        match=re.escape("expected modes that count from 0 (-1 is no mode), found [0, -2]"),
    ):
        transitions(mode0=[0, -2])


def test_guards_do_not_start_negative():
    assert check_start(particle(transitions())).ok
    refused(
        particle(transitions(), q0=[1.5, 0.0]),
        "Transitions(guards=...)",
        ">= 0",
        "guard 0 = -0.5",
        "mode 0",
    )
    press = transitions(
        guards=lambda q, v, lam, t, p, mode, held: -lam
    )  # M v' + G^T lam = f: pressing is -lam > 0
    assert check_start(particle(press)).ok
    lifted = System(mass, lambda q, v, t, p: jnp.array([0.0, 2.0]))
    refused(particle(press, system=lifted), "guard 0 = -2")


def test_a_start_is_checked_once_for_the_same_numbers(monkeypatch):
    from nsdyn.checks import problem_check
    from nsdyn.driver import single_run

    seen = []
    check_start = problem_check.check_start
    monkeypatch.setattr(single_run, "_checked", type(single_run._checked)())
    monkeypatch.setenv("NSDYN_CACHE", "0")  # nor was it by an earlier process
    monkeypatch.setattr(
        problem_check, "check_start", lambda problem: seen.append(1) or check_start(problem)
    )
    run = lambda **other: nsdyn.simulate(
        three_r_pendulum(), EventDriven(RK4()), step=1e-2, t_end=0.1, **other
    )
    run(), run()
    assert len(seen) == 1
    run(v0=[0.0, 0.4, 0.0])
    assert len(seen) == 2
    for _ in range(2):  # what is wrong is told every time
        with pytest.raises(nsdyn.ProblemError, match="v0"):
            run(v0=[np.nan, 0.4, 0.0])
