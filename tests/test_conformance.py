"""The library passes its own suites (`nsdyn.testing`): every integrator, every law, every problem,
and the product of integrators and problems. And the suites find what is wrong.

What takes long to compile is marked slow.
"""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from mechanisms import PARTICLE, SWING, ball, circle, level, run
from test_forms import (
    body_force,
    body_mass,
    body_rate,
    rotation,
    stick_after,
    stick_force,
    stick_guards,
)

import nsdyn
from nsdyn import laws, problems, testing
from nsdyn._repr import format_object
from nsdyn.integrators import (
    NSGA,
    RK4,
    DormandPrince,
    EventDriven,
    GeneralizedAlpha,
    MoreauJean,
    RadauIIA,
)
from nsdyn.testing import ConformanceError
from nsdyn.testing.findings import Findings
from nsdyn.testing.impact_law import check_impacts
from nsdyn.testing.law import Change
from nsdyn.testing.problem import Exact

EXACT = EventDriven(RK4())
VELOCITY, DECOUPLED = NSGA(variant="velocity"), NSGA(variant="decoupled")
INDEX1, INDEX2, INDEX3 = (GeneralizedAlpha(index=index) for index in (1, 2, 3))
CLASSICAL = {"order": 2, "jumps": False}


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def named(thing):
    if isinstance(thing, tuple | dict):
        return ""
    return thing if isinstance(thing, str) else format_object(thing)


# Integrators

INTEGRATORS = [
    (EXACT, {"order": 4}),
    slow(NSGA(), {"order": 2}),
    slow(MoreauJean(), {"order": 1}),
    slow(VELOCITY, {"order": 2}),
    slow(DECOUPLED, {"order": 2}),
    slow(MoreauJean(projection=False), {"order": 1}),
    slow(INDEX1, CLASSICAL),
    slow(INDEX2, CLASSICAL),
    slow(INDEX3, CLASSICAL),
    slow(EventDriven(RK4("projected")), {"order": 4}),
    slow(EventDriven(RK4("minimal")), {"order": 4}),
    slow(EventDriven(INDEX2), {"order": 2}),
    slow(EventDriven(DormandPrince()), {}),
    slow(EventDriven(RadauIIA()), {}),
]


@pytest.mark.parametrize(("scheme", "promises"), INTEGRATORS, ids=named)
def test_integrator(scheme, promises):
    testing.check_integrator(scheme, **promises, derivatives=False)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [EXACT, NSGA(), MoreauJean(), EventDriven(INDEX2)], ids=named)
def test_derivatives_of_an_integrator(scheme):
    testing.check_integrator(scheme)


class Broken(EventDriven):
    """Event-driven RK4 that is told to take no notice of events."""

    def step_smooth(self, model, state, t_next, law, p):
        state, _ = super().step_smooth(model, state, t_next, law, p)
        return state, jnp.zeros((), bool)


def test_an_integrator_that_misses_what_it_promises():
    with pytest.raises(ConformanceError, match=r"swing: q, order: expected at least 4.88, found 3"):
        testing.check_integrator(EXACT, order=5)
    with pytest.raises(ConformanceError, match=r"corner: events: expected one in each run, found"):
        testing.check_integrator(Broken(RK4()), derivatives=False)
    with pytest.raises(ConformanceError, match="wrap a smooth method"):
        testing.check_integrator(RK4())


# Laws

SPACE = ("rows", "coordinates")
LAWS = [
    (laws.PostSwitchGradient(), ()),
    *((laws.MuellerTransition(form), ()) for form in ("lagrange", "redundant", "minimal")),
    (laws.GrassmannMidGradient(), ()),
    (laws.GrassmannMidGradient(metric="euclidean"), ("coordinates",)),
    (laws.IntermediateGradient(0.7), ()),
    (laws.Restitution(0.5), ()),
    (laws.NonIdeal([[1.0, 0.0, 0.0]], mu=0.3), SPACE),
    (laws.NonIdeal([[1.0, 0.0, 0.0]], beta=[0.3]), ("units", *SPACE)),
    (laws.ZeroVelocity(), ("coordinates",)),
    (laws.Fremond(), ()),
    (laws.Sequential(), ("rows",)),
    slow(laws.Newton(), ()),
    slow(laws.Poisson(), ()),
    slow(laws.GeneralizedNewton([[0.5, 0.1, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 0.5]]), ("rows",)),
]
DEPENDENT = [x for x in LAWS if type(x) is tuple and x[1]]


@pytest.mark.parametrize(
    ("law", "depends_on"), LAWS, ids=lambda x: "" if type(x) is tuple else named(x)
)
def test_law(law, depends_on):
    report = testing.check_law(law, depends_on=depends_on)
    assert sum(line.verdict == "ok" for line in report.lines) >= 20


@pytest.mark.parametrize(
    ("law", "depends_on"),
    DEPENDENT,
    ids=lambda x: "" if type(x) is tuple else named(x),
)
def test_a_law_that_depends_on_units_is_found(law, depends_on):
    with pytest.raises(
        ConformanceError, match=rf"v\+ with other ({'|'.join(depends_on)}): expected"
    ):
        testing.check_law(law)


class WrongAtContacts(laws.AbstractImpactLaw):
    """The right law for all but contacts."""

    can_gain_energy = False
    unfit_for_time_steps = None
    what: str = eqx.field(static=True)

    def impulses(self, impact, careful=False):
        found = laws.Newton().impulses(impact, careful)
        match self.what:
            case "a contact that pulls":
                return found._replace(P=-found.P)
            case "approach after":
                return found._replace(P=0.5 * found.P)
            case "gain of energy":
                bouncy = eqx.tree_at(lambda x: x.E, impact, jnp.full_like(impact.E, 1.5))
                return laws.Newton().impulses(bouncy, careful)
        return found._replace(P=found.P.at[:, 0].add(jnp.where(impact.on, 0.0, 1.0)))


@pytest.mark.parametrize(
    "what", ["a contact that pulls", "approach after", "gain of energy", "impulse without touch"]
)
def test_a_wrong_impact_law_is_found(what):
    with pytest.raises(ConformanceError, match=rf"impacts: {what}: expected"):
        check_impacts(Findings("wrong"), WrongAtContacts(what), (), np.random.default_rng(0))


class Wrong(laws.AbstractLaw):
    """The right law with one thing wrong."""

    what: str = eqx.field(static=True)

    def decide(self, change):
        jump = laws.PostSwitchGradient().decide(change)
        match self.what:
            case "momentum balance":
                return jump._replace(Lam=1.001 * jump.Lam)
            case "new constraints":
                v = jump.v_after + 1e-6 * change.solve(change.G_after.T @ change.live_after)
                Lam = jump.Lam - 1e-6 * change.live_after
                return jump._replace(v_after=v, Lam=Lam)
            case "impulse of dead rows":
                return jump._replace(Lam=jnp.where(change.live_after, jump.Lam, 1.0))
            case "a row written twice":
                count = jnp.sum(change.live_after) - 1.0
                return laws.Restitution(0.1 * count).decide(change)
        return jump._replace(v_after=jnp.nan * jump.v_after)

    @property
    def satisfies_new_constraints(self):
        return self.what != "a row written twice"


@pytest.mark.parametrize(
    "what",
    [
        "momentum balance",
        "new constraints",
        "impulse of dead rows",
        "a row written twice",
        "answer",
    ],
)
def test_a_wrong_law_is_found(what):
    with pytest.raises(ConformanceError, match=f"{what}: expected"):
        testing.check_law(Wrong(what))


def test_the_forms_of_muellers_law_agree_on_velocities_that_time_steps_propose():
    """The second brake locks while the first is locked: a velocity that a step proposes does not
    satisfy the persistent row, so the forms have to remove its rate too."""
    from nsdyn.testing.law import _answer, _random

    rng = np.random.default_rng(1)
    changes = [_random(rng, 1) for _ in range(6)]
    assert any(abs(c.G_before[0] @ c.v) > 0.1 for c in changes)
    for change in changes:
        assert isinstance(change, Change)
        found = [
            _answer(laws.MuellerTransition(form), change).v
            for form in ("lagrange", "redundant", "minimal")
        ]
        assert np.ptp(found, axis=0).max() < 1e-12


# Problems

QUICK = ("pendulum", "point_on_track")
STIFF = {"flyball_governor": 0.01, "slider_crank": 1e-3}  # the steps of a short run are parts of it
CONSERVATIVE = ("pendulum", "point_on_track", "three_r_pendulum", "compass_walker", "bricard")


@pytest.mark.parametrize("name", [x if x in QUICK else slow(x) for x in problems.names()])
def test_problem(name):
    conservative = True if name in CONSERVATIVE else None
    make = problems.function(name)
    make = functools.partial(make, t_end=STIFF[name]) if name in STIFF else make
    contacts = any(part.unilateral for part in make().constraint)
    options = {"integrator": NSGA(), "conservative": False} if contacts else {}
    testing.check_problem(make, **{"conservative": conservative, "fresh_process": False, **options})


@pytest.mark.parametrize(
    "names", [(*QUICK, "parallelogram"), slow(tuple(problems.names()))], ids=["quick", "all"]
)
def test_problems_travel(names):
    testing.check_travels(*(problems.get(name) for name in names))


SCHEMES = (EXACT, NSGA(), MoreauJean(), INDEX1, INDEX2, INDEX3)
PRODUCT = [
    (name, scheme) if name == "pendulum" else slow(name, scheme)
    for name in problems.names()
    for scheme in SCHEMES
]


@pytest.mark.parametrize(("name", "scheme"), PRODUCT, ids=named)
def test_product(name, scheme):
    problem = problems.get(name, **({"t_end": STIFF[name]} if name in STIFF else {}))
    if (reason := testing.refusal(problem, scheme)) is not None:
        pytest.skip(reason)
    testing.check_run(problem, scheme)


def skew_mass(q, p):
    return jnp.array([[1.0, 1e-6 * jnp.tanh(1e3 * q[0])], [0.0, 1.0]])


def upwards(q, p):
    return -9.81 * q[1]


def particle(potential=None, mass=None):
    system = PARTICLE
    if mass is not None:
        system = nsdyn.System(mass=mass, force=PARTICLE.force)
    if potential is not None:
        system = nsdyn.System(mass=PARTICLE.mass, force=PARTICLE.force, potential=potential)
    params = {"m": 1.0, "g": 9.81}
    return nsdyn.Problem("thrown", system, q0=[0.0, 0.0], v0=[1.0, 2.0], t_end=1.0, params=params)


def thrown(t):
    q = np.stack([t, 2.0 * t - 9.81 * t**2 / 2], axis=1)
    return q, np.stack([np.ones_like(t), 2.0 - 9.81 * t], axis=1)


def with_closure():
    factor = 1.0
    force = lambda q, v, t, p: factor * PARTICLE.force(q, v, t, p)
    system = nsdyn.System(mass=PARTICLE.mass, force=force)
    return eqx.tree_at(lambda x: x.system, particle(), system)


def test_a_wrong_problem_is_found():
    check = functools.partial(testing.check_problem, fresh_process=False)
    reference = Exact(thrown, step=0.1, integrator=EXACT, tolerance=1e-12)
    check(particle(), conservative=True, reference=reference)
    with pytest.raises(ConformanceError, match="along the run, relative: expected at most"):
        check(particle(mass=skew_mass))
    with pytest.raises(ConformanceError, match="forces and potential: expected no power"):
        check(particle(potential=upwards), conservative=True)
    wrong = reference._replace(at=lambda t: thrown(1.001 * t))
    with pytest.raises(ConformanceError, match="q against the reference: expected at most 1e-12"):
        check(particle(), reference=wrong)
    with pytest.raises(ConformanceError, match=r"two problems made alike.*new functions in each"):
        check(with_closure)
    with pytest.raises(ConformanceError, match=r"pickle of thrown.*define its functions at module"):
        testing.check_travels(with_closure())
    with pytest.raises(ConformanceError, match="run: "):
        testing.check_run(ball(), MoreauJean(projection=False))


# What the suites leave to tests of their own


@pytest.mark.slow
def test_a_joint_that_sticks_and_breaks_loose():
    brake = nsdyn.Transitions(
        rows=lambda q, t, p, mode, held: q - held,
        guards=stick_guards,
        after=stick_after,
        live=lambda mode, p: (mode == 2)[None],
        hold=lambda q, t, p: q,
    )
    system = nsdyn.System(mass=lambda q, p: jnp.eye(1), force=stick_force)
    problem = nsdyn.Problem(
        "brake", system, brake, q0=[0.0], v0=[1.0], t_end=8.0, params={"mu": 0.8}
    )
    out, exact = run(problem, DECOUPLED, step=1e-2), run(problem, EXACT, step=1e-2)
    assert int(out.status) == 0 and int(out.events.count) == 4
    assert np.asarray(out.events.mode_after[:4]).tolist() == [2, 1, 2, 0]
    assert np.abs(np.asarray(out.events.t[:4] - exact.events.t[:4])).max() < 0.0201
    assert np.abs(np.asarray(out.q - exact.q)).max() < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [INDEX2, MoreauJean()], ids=named)
def test_quasi_velocities(scheme):
    """A body that turns freely keeps its momentum in space, to the order of the scheme."""
    system = nsdyn.System(mass=body_mass, force=body_force, kinematics=body_rate)
    inertia, v0 = np.array([1.0, 2.0, 3.5]), np.array([0.3, 2.0, 0.1])
    problem = nsdyn.Problem(
        "body", system, None, q0=[1.0, 0, 0, 0], v0=v0, t_end=1.0, params={"I": inertia}
    )
    errors = []
    for h in (0.02, 0.01):
        out = run(problem, scheme, step=h)
        momentum = [
            rotation(np.asarray(q)) @ (inertia * np.asarray(v))
            for q, v in zip(out.q, out.v, strict=True)
        ]
        errors.append(np.abs(np.array(momentum) - (inertia * v0)[None]).max())
    assert errors[1] < 1e-2 and np.log2(errors[0] / errors[1]) > 1.9


@pytest.mark.slow
def test_tuple_with_lock_and_release():
    parts = (
        nsdyn.Fixed(circle),
        nsdyn.Scheduled(times=(0.2, 0.3), stages=(None, nsdyn.lock(0), None)),
    )
    params = {"m": 1.0, "g": 9.81}
    problem = nsdyn.Problem(
        "both", SWING, parts, q0=[0.8, -0.6], v0=[0.0, 0.0], t_end=0.5, params=params
    )
    out, exact = run(problem, VELOCITY, step=1e-3), run(problem, EXACT, step=1e-3)
    assert int(out.status) == 0 and np.asarray(out.mode[-1]).tolist() == [0, 2]
    held = (np.asarray(out.t) >= 0.2 - 1e-9) & (np.asarray(out.t) < 0.3 - 1e-9)
    assert np.abs(np.asarray(out.v)[held]).max() < 1e-12
    assert np.abs(np.asarray(out.q - exact.q)).max() < 5e-3
    gap = [float(circle(q, 0, 0)) for q in out.q]
    assert np.abs(gap).max() < 1e-13


@pytest.mark.slow
def test_capture():
    constraint = nsdyn.Switching(modes=(None, level), switches=(lambda q, p: -q[1],), latch=True)
    params = {"m": 1.0, "g": 9.81}
    problem = nsdyn.Problem(
        "capture", PARTICLE, constraint, q0=[0.0, 1.0], v0=[1.0, 0.0], t_end=1.0, params=params
    )
    out = run(problem, INDEX3, step=1e-2)
    assert (
        int(out.status) == 0
        and int(out.events.count) == 1
        and np.allclose(out.q[-1], [1.0, 0.0], atol=1e-12)
    )


def test_refused_pairs_say_why():
    problem = problems.pendulum()
    with pytest.raises(nsdyn.ProblemError, match="rebounds"):
        nsdyn.simulate(problem, INDEX3, step=1e-2, law=laws.Restitution(0.5))
    with pytest.raises(nsdyn.ProblemError, match="projection=True"):
        nsdyn.simulate(ball(), MoreauJean(projection=False), step=1e-2)


def test_settings_are_checked_and_traced():
    for wrong in (
        lambda: NSGA(rho_inf=1.2),
        lambda: GeneralizedAlpha(rho_inf=-0.1),
        lambda: MoreauJean(theta=0.3),
    ):
        with pytest.raises(nsdyn.ProblemError, match="expected a number from"):
            wrong()
    for wrong in (lambda: NSGA(variant="fast"), lambda: GeneralizedAlpha(index=4)):
        with pytest.raises(nsdyn.ProblemError, match="expected"):
            wrong()
    counts = [len(jax.tree.leaves(x)) for x in (NSGA(), GeneralizedAlpha(), MoreauJean())]
    assert counts == [2, 2, 3]  # rho_inf, or theta and forecast, and Newton's tolerance
    assert jax.tree.structure(NSGA(0.2)) == jax.tree.structure(NSGA(0.9))
