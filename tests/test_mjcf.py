"""Mechanisms from MJCF files: the same numbers as MuJoCo, closures that switch hard, and an error
for each thing that cannot be represented."""

import sys

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from mechanisms import run
from robot_files import checkout, files

import nsdyn
from nsdyn import laws, problems
from nsdyn.constraints.mode_rows import Lock
from nsdyn.errors import FileError, NsdynError, ProblemError
from nsdyn.integrators import NSGA, RK4, EventDriven
from nsdyn.multibody import tree_dynamics, world_momentum

EVENT_DRIVEN = EventDriven(RK4())
pytestmark = pytest.mark.filterwarnings("ignore::nsdyn.LeftOutWarning")


@pytest.fixture
def written(tmp_path):
    """Writes an MJCF file from the text inside <mujoco>."""

    def write(text, name="model.xml"):
        path = tmp_path / name
        path.write_text(f'<mujoco model="tested">{text}</mujoco>')
        return path

    return write


# Dynamics.


@jax.jit
def evaluated(tree, q, v):
    M, bias = tree_dynamics.mass_matrix(tree, q), tree_dynamics.bias(tree, q, v)
    return M, bias, tree_dynamics.accelerations(tree, q, v)


def by_mujoco(model, q, v):
    """M, bias forces, accelerations without contacts, limits and drives."""
    bits = mujoco.mjtDisableBit
    model.opt.disableflags |= bits.mjDSBL_CONSTRAINT | bits.mjDSBL_ACTUATION
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = q, v
    mujoco.mj_forward(model, data)
    M = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(model, data, M)
    return M, data.qfrc_bias.copy(), data.qacc_smooth.copy()


def differences(problem, model, count=5):
    """The largest relative differences from MuJoCo at random states; what is zero is measured by
    the forces and accelerations of such velocities."""
    rng = np.random.default_rng(model.nv)
    worst = np.zeros(3)
    for _ in range(count):
        q, v = model.qpos0 + rng.normal(size=model.nq), rng.normal(size=model.nv)
        mujoco.mj_normalizeQuat(model, q)
        expected = by_mujoco(model, q, v)
        usual = np.array([1.0, np.abs(expected[0]).max(), 1.0]) * np.abs(v).max() ** 2
        usual[0] = 0.0
        for i, ours in enumerate(evaluated(problem.params["tree"], q, v)):
            size = max(np.abs(expected[i]).max(), usual[i])
            worst[i] = max(worst[i], np.abs(ours - expected[i]).max() / size)
    return worst


INERTIAL = '<inertial pos="0.1 -0.2 0.3" mass="1.5" fullinertia="0.3 0.4 0.5 0.01 -0.02 0.03"/>'
MIXED = f"""
<option gravity="1 -2 -9"/>
<worldbody>
  <body name="post" pos="0.1 0.2 0.3" euler="10 20 30">
    <geom size="0.1"/>
    <body name="arm" pos="0 0.1 0" euler="40 0 5">
      <joint name="lift" type="slide" pos="1 2 3" axis="1 1 0" ref="0.3" armature="2" damping="2"/>
      <joint name="swing" pos="0.1 0 0.2" axis="0 1 1" ref="25" stiffness="3" springref="10"/>
      <joint name="roll" pos="0 0.3 0" axis="1 0 0" damping="0.4"/>
      {INERTIAL}
      <body name="plate" pos="0.3 0 0" euler="0 0 50"><geom type="box" size="0.1 0.2 0.3"/></body>
      <body name="head" pos="0.2 0.2 0">
        <joint name="neck" type="ball" pos="0 0 -0.1" damping="0.1" armature="0.05"/>
        <geom type="capsule" fromto="0 0 0 0.3 0.1 0" size="0.05"/>
      </body>
    </body>
  </body>
  <body name="cart" pos="1 0 1" euler="0 30 0">
    <freejoint/>
    {INERTIAL}
    <body name="wheel" pos="0.2 0 0">
      <joint axis="0 0 1"/>
      <geom type="cylinder" size="0.2 0.05"/>
    </body>
  </body>
</worldbody>
"""


def test_a_tree_is_what_mujoco_reads(written):
    """Several joints on one body, anchors and references of joints, bodies without joints, inertias
    of geoms, springs, dampers and armatures, a ball, a free body in turned axes."""
    path = written(MIXED)
    problem = problems.get(str(path))
    tree = problem.params["tree"]
    assert tree.names == ("lift", "swing", "roll", "neck", "cart", "wheel")
    assert problem.name == "tested"
    model = mujoco.MjModel.from_xml_path(str(path))
    assert np.array_equal(problem.q0, model.qpos0)
    assert differences(problem, model).max() < 1e-13


# Closures.

LINK = '<geom type="capsule" fromto="0 0 0 0.5 0 0" size="0.05" mass="1"/>'
CLOSED = f"""
<worldbody>
  <body name="a" pos="0 0 1">
    <freejoint/>{LINK}
    <body name="b" pos="0.5 0 0">
      <joint name="ab" type="ball"/>{LINK}<site name="tip" pos="0.5 0 0" euler="10 20 30"/>
    </body>
    <body name="c" pos="0 0.4 0">
      <joint name="ac" axis="0 1 0" ref="20"/>{LINK}
      <body name="d" pos="0.5 0 0">
        <joint name="cd" axis="0 0 1"/>{LINK}<site name="hand" pos="0.3 0 0" euler="5 0 0"/>
        <body name="e" pos="0.5 0 0">
          <joint name="de" type="slide"/>{LINK}
          <body name="g"><joint name="eg" axis="0 1 0" ref="5"/>{LINK}</body>
        </body>
        <body name="tool" pos="0.4 0 0" euler="0 0 15"/>
      </body>
    </body>
  </body>
  <body name="f" pos="0 -1 1"><freejoint/>{LINK}</body>
</worldbody>
<equality>
  <connect name="pin" body1="b" body2="tool" anchor="0.1 0.2 0.1"/>
  <connect site1="hand" site2="tip" active="false"/>
  <weld name="hold" body1="b" body2="f" relpose="0.1 0.2 0.3 0.9 0.1 0.2 0.3" anchor="0.1 0 0"/>
  <weld name="sites" site1="hand" site2="tip" active="false"/>
  <joint joint1="de" joint2="ac" polycoef="0.05 0.5 0.1 0.2 0"/>
  <joint name="stop" joint1="eg" polycoef="0.03 0 0 0 0"/>
</equality>
<keyframe>
  <key name="bent" qpos="0 0 1 1 0 0 0 0.96 0.1 0.2 0.1 0.3 0 0 0.1 0.3 -0.5 1 0.8 0.1 -0.3 0.5"
       qvel="1 0 0 0 0.5 0 0 0 0.3 1 0 0 0 0 0 1 0 0 0"/>
</keyframe>
"""


def rows_by_mujoco(model, q, active):
    data = mujoco.MjData(model)
    model.opt.jacobian = mujoco.mjtJacobian.mjJAC_DENSE
    model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_CONTACT
    data.qpos[:], data.eq_active[:] = q, active
    mujoco.mj_fwdPosition(model, data)
    return data.efc_pos.copy(), data.efc_J.reshape(-1, model.nv).copy()


def test_closures_are_those_of_mujoco(written):
    """At a closed position all rows vanish, in both, and forbid the same velocities. The start is
    moved there from a keyframe with few digits."""
    path = written(CLOSED)
    problem = problems.from_mjcf(path, keyframe="bent")
    names = list(problem.params["closures"])
    assert sorted(names) == ["de : ac", "hand - tip", "hold", "pin", "sites", "stop"]
    closures = problem.constraint[0].g.closures
    assert [closure.name for closure in closures] == ["pin", "hold", "de : ac", "stop"]
    model = mujoco.MjModel.from_xml_path(str(path))
    q, v, p = np.asarray(problem.q0), np.asarray(problem.v0), problem.params
    assert 1e-3 < np.abs(q - model.key_qpos[0]).max() < 1.0
    residual = problem.constraint[0].g

    @jax.jit
    def evaluate(q, v):
        rows = lambda q: residual(q, 0.0, p)
        rate = lambda v: jax.jvp(rows, (q,), (tree_dynamics.kinematics(p["tree"], q, v),))[1]
        return rows(q), jax.jacfwd(rate)(v)

    rows, G = evaluate(q, v)
    g, J = rows_by_mujoco(model, q, model.eq_active0)
    assert np.abs(rows).max() < 1e-12 and np.abs(g).max() < 1e-12
    assert np.abs(G @ v).max() < 1e-12 and np.abs(v).max() > 0.1
    ranks = [np.linalg.matrix_rank(rows, tol=1e-8) for rows in (G, J, np.vstack([G, J]))]
    assert ranks == [11, 11, 11]


def test_sites_connect_where_they_are(written):
    path = written(CLOSED)
    problem = problems.from_mjcf(path, toggle=(("hand - tip", 0.1, True), ("sites", 0.2, True)))
    model = mujoco.MjModel.from_xml_path(str(path))
    g, _ = rows_by_mujoco(model, problem.q0, np.arange(6) == 1)
    point = problems.mjcf.mechanism(problems.mjcf.read_file(path), None).closures["hand - tip"]
    assert np.abs(point.given(problem.q0, 0.0, problem.params) + g).max() < 1e-14
    assert np.abs(g).max() > 0.1


# Closures that switch.

PLANE = '<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/><joint axis="0 0 1"/>'
TWO = f"""
<option gravity="0 0 0"/>
<worldbody>
  <body name="a"><geom type="box" size="0.2 0.3 0.1" pos="0.1 0 0"/>{PLANE}</body>
  <body name="b" pos="1 0.5 0"><geom type="box" size="0.4 0.1 0.1"/>{PLANE}</body>
</worldbody>
<equality><weld name="grip" body1="a" body2="b" active="false"/></equality>
"""
SPEEDS = (1.0, 0.2, 3.0, -1.0, 0.3, -2.0)
TOGGLE = (("grip", 0.05, True), ("grip", 0.12, False), ("grip", 0.16, True))


def momenta(problem, q, v):
    return np.asarray(jax.vmap(lambda q, v: world_momentum(problem.params["tree"], q, v))(q, v))


def check_jumps(problem, out, tolerance=1e-12):
    """Momentum, and `law.jump` of the mass matrix and the rates of the relative pose."""
    events, tree = out.events, problem.params["tree"]
    count = int(events.count)
    q, before, after = (np.asarray(x)[:count] for x in (events.q, events.v_before, events.v_after))
    change = momenta(problem, q, after) - momenta(problem, q, before)
    assert np.abs(change).max() < tolerance
    target = problem.constraint[0].mode_rows.items[0]

    @jax.jit
    def rates(q):
        """G, the rates of the relative pose, and M."""
        held = target.value(q, problem.params)
        rows = lambda x: target.difference(target.value(x, problem.params), held)
        rate = lambda v: jax.jvp(rows, (q,), (tree_dynamics.kinematics(tree, q, v),))[1]
        return jax.jacfwd(rate)(jnp.zeros(tree.nv)), tree_dynamics.mass_matrix(tree, q)

    for i in range(count):
        if i % 2:
            assert np.abs(after[i] - before[i]).max() < tolerance
            continue
        assert np.abs(after[i] - before[i]).max() > 0.01
        G, M = (np.asarray(x) for x in rates(q[i]))
        jump = laws.PostSwitchGradient().jump(M, np.zeros((0, len(M))), G, before[i])
        assert np.abs(after[i] - jump.v_after).max() < tolerance
        assert np.abs(G @ after[i]).max() < tolerance


def test_toggles_become_stages(written):
    """A closure of the file holds as the file says until it is switched off, and what it finds when
    it is switched on again."""
    path = written(CLOSED)
    toggle = (("pin", 0.1, False), ("sites", 0.2, True), ("pin", 0.3, True), ("sites", 0.4, False))
    problem = problems.from_mjcf(path, toggle=toggle)
    always, switched = problem.constraint
    assert [closure.name for closure in always.g.closures] == ["hold", "de : ac", "stop"]
    names = [[item.name() for item in mode if isinstance(item, Lock)] for mode in modes(switched)]
    assert names == [[], [], ["lock(sites)"], ["lock(sites)", "lock(pin)"], ["lock(pin)"]]
    assert [len(mode) for mode in modes(switched)] == [1, 0, 1, 2, 1]
    assert np.asarray(problem.params["toggle"]).tolist() == [0.1, 0.2, 0.3, 0.4]


def modes(scheduled):
    return scheduled.mode_rows.modes


@pytest.mark.slow
def test_a_weld_is_toggled_between_moving_bodies(written):
    problem = problems.from_mjcf(written(TWO), toggle=TOGGLE, v0=SPEEDS, t_end=0.2)
    out = run(problem, EVENT_DRIVEN, step=0.01)
    assert np.allclose(out.events.t[:3], [0.05, 0.12, 0.16], atol=1e-15, rtol=0)
    check_jumps(problem, out)
    along = momenta(problem, out.q, out.v)
    assert np.abs(along - along[0]).max() < 1e-8  # RK4 between the events


@pytest.mark.slow
def test_a_weld_is_toggled_in_space(written):
    problem = problems.from_mjcf(
        written(TWO.replace(PLANE, "<freejoint/>")),
        toggle=TOGGLE,
        v0=(1.0, 0.2, 0.1, 0.5, 1.0, -2.0, -1.0, 0.2, 0.0, 1.0, 0.1, 0.3),
        t_end=0.2,
    )
    out = run(problem, EVENT_DRIVEN, step=0.01)
    assert int(out.events.count) == 3
    check_jumps(problem, out)


@pytest.mark.slow
def test_derivatives_with_respect_to_the_times_of_toggles(written):
    problem = problems.from_mjcf(written(TWO), toggle=TOGGLE[:2], v0=SPEEDS, t_end=0.2)

    def end(times):
        p = problem.params | {"toggle": times}
        out = nsdyn.rollout(problem, EVENT_DRIVEN, step=0.02, params=p, max_events=4)
        return jnp.concatenate([out.q[-1], out.v[-1]])

    both = jax.jit(lambda times, along: jax.jvp(end, (times,), (along,)))  # one program for all
    times = jnp.array([0.053, 0.127])
    h = 1e-5
    for e in np.eye(2):
        found = both(times, e)[1]
        expected = (both(times + h * e, e)[0] - both(times - h * e, e)[0]) / (2 * h)
        assert np.abs(found - expected).max() < 1e-6 * np.abs(expected).max()
        assert np.abs(expected).max() > 0.1


# Closed loops.

# Two four-bars on one crank, and a coupler rod in space with balls at its ends: three connects.
LOOPS = """
<default><geom type="capsule" size="0.03" mass="1"/></default>
<worldbody>
  <body name="crank">
    <joint axis="0 1 0"/><geom fromto="0 0 0 0 0 0.3"/>
    <body name="rod" pos="0 0 0.3"><joint axis="0 1 0"/><geom fromto="0 0 0 1 0 0.2"/></body>
    <body name="link" pos="0 0 0.2"><joint axis="0 1 0"/><geom fromto="0 0 0 -0.8 0 0.1"/></body>
    <body name="bar" pos="0 0.1 0.3"><joint type="ball"/><geom fromto="0 0 0 0.5 0.6 0"/></body>
  </body>
  <body name="rocker" pos="1 0 0"><joint axis="0 1 0"/><geom fromto="0 0 0 0 0 0.5"/></body>
  <body name="arm" pos="-0.8 0 0"><joint axis="0 1 0"/><geom fromto="0 0 0 0 0 0.3"/></body>
  <body name="lever" pos="0.5 0.7 0"><joint axis="0 1 0"/><geom fromto="0 0 0 0 0 0.3"/></body>
</worldbody>
<equality>
  <connect body1="rod" body2="rocker" anchor="1 0 0.2"/>
  <connect body1="link" body2="arm" anchor="-0.8 0 0.1"/>
  <connect body1="bar" body2="lever" anchor="0.5 0.6 0"/>
</equality>
"""


def check_loops(problem, integrator, step):
    """Runs, and returns the largest residual of the closures."""
    out = nsdyn.simulate(problem, integrator, step=step)
    rows = jax.jit(jax.vmap(lambda q: problem.constraint[0].g(q, 0.0, problem.params)))
    assert out.t[-1] == 1.0 and np.abs(out.q[-1] - out.q[0]).max() > 0.01
    return np.abs(rows(out.q)).max()


BOTH = pytest.mark.parametrize("integrator", [EVENT_DRIVEN, NSGA()], ids=["event-driven", "NSGA"])


@pytest.mark.slow
@BOTH
@pytest.mark.filterwarnings("ignore::nsdyn.RedundancyWarning")  # hinges hold two loops in a plane
def test_loops_stay_closed(written, integrator):
    problem = problems.from_mjcf(written(LOOPS), gravity=(3.0, 0.0, -9.0), t_end=1.0)
    assert check_loops(problem, integrator, 1e-3) < 1e-10


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("path", files("genesis-world", "four_bar_linkage.xml"))
@pytest.mark.filterwarnings("ignore::nsdyn.RedundancyWarning")
def test_a_public_loop_stays_closed(path, integrator):
    problem = problems.from_mjcf(path, gravity=(0.0, 1.0, -9.81), t_end=1.0)
    assert check_loops(problem, integrator, 1e-3) < 1e-10


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("path", checkout("NSDYN_MENAGERIE", "agility_cassie/cassie.xml"))
@pytest.mark.filterwarnings("ignore::nsdyn.RedundancyWarning")  # hinges hold its rods in a plane
def test_cassie_stays_closed(path, integrator):
    """Agility's Cassie of the MuJoCo Menagerie: 32 velocities, four rods that close loops."""
    problem = problems.from_mjcf(path, keyframe="home", t_end=1.0)
    assert (len(problem.v0), len(problem.constraint[0].g.closures)) == (32, 4)
    assert check_loops(problem, integrator, 1e-3) < 1e-10


# Files of packages.

FLUID = "no fluid acts on the bodies"
MODELS = [*files("gymnasium", ".xml"), *files("brax", ".xml")]


@pytest.mark.slow
@pytest.mark.parametrize("path", MODELS)
def test_the_dynamics_of_a_model_are_those_of_mujoco(path):
    """Without contact, 1e-8 relative. MuJoCo takes centres of mass within nanometres of the origin
    of a body as lying there."""
    spec = mujoco.MjSpec.from_file(str(path))
    try:
        model = spec.compile()
    except ValueError:  # a free joint that is not on the world
        with pytest.raises(FileError, match="free joint can only be used on top level"):
            problems.from_mjcf(path)
        return
    ignore = ()
    if model.opt.density or model.opt.viscosity:
        with pytest.raises(ProblemError, match=rf"<option density=.*{FLUID}.*ignore=\('fluid',\)"):
            problems.from_mjcf(path)
        model.opt.density = model.opt.viscosity = 0.0
        ignore = ("fluid",)
    problem = problems.from_mjcf(path, ignore=ignore)
    assert differences(problem, model).max() < 1e-8


# What is left out, what is refused.


@pytest.mark.filterwarnings("default::nsdyn.LeftOutWarning")
def test_what_is_left_out_is_listed(written):
    hinge = '<joint name="h" range="-1 1" limited="true" frictionloss="0.1"/>'
    text = f"""
    <worldbody>
      <geom type="plane" size="1 1 1"/><body>{hinge}{LINK}</body>
      <body mocap="true"><geom size="1" contype="0" conaffinity="0"/></body>
    </worldbody>
    <tendon><fixed><joint joint="h" coef="1"/></fixed></tendon>
    <actuator><motor joint="h"/></actuator>
    """
    expected = (
        r"model\.xml: left out: 2 geoms that could touch, 1 actuator, 1 joint limit, "
        r"1 joint's frictionloss, 1 tendon without forces, 1 mocap body's motion$"
    )
    with pytest.warns(nsdyn.LeftOutWarning, match=expected):
        problems.from_mjcf(written(text))


MESHES = """
<asset><texture name="t" type="2d" file="t.png"/><material name="m" texture="t"/>
<mesh name="s" file="s.obj"/></asset>
<worldbody><geom type="mesh" mesh="s"/>
<body><joint/>{}<geom type="mesh" mesh="s" material="m"/></body></worldbody>
"""


def test_meshes_that_are_missing(written):
    """They only show if the body has an inertia of its own."""
    problem = problems.from_mjcf(written(MESHES.format(INERTIAL)))
    assert float(problem.params["tree"].mass[0]) == 1.5
    with pytest.raises(FileError, match=r"s\.obj.*needs an <inertial>"):
        problems.from_mjcf(written(MESHES.format("")))


def one(joint='<joint name="h"/>', after="", body=""):
    return f'<worldbody><body name="b" {body}>{joint}{LINK}</body></worldbody>{after}'


WELD = '<equality><weld name="grip" body1="b" active="false"/></equality>'
FIXED = '<tendon><fixed name="t" {}><joint joint="h" coef="1"/></fixed></tendon>'


@pytest.mark.parametrize(
    ("text", "arguments", "expected"),
    [
        ("<worldbody>", {}, "expected MJCF, found"),
        ("<worldbody/>", {}, "expected a joint that moves, found none"),
        ("<option viscosity='2'/>" + one(), {}, "<option viscosity='2'>: expected none"),
        (one(body='gravcomp="1"'), {}, "<body name='b'>: expected none, as gravity acts"),
        (one('<joint name="h" type="ball" stiffness="1"/>'), {}, "<joint name='h'>: expected none"),
        (one(after=FIXED.format('stiffness="1"')), {}, "<tendon name='t'>: expected none"),
        (one(after=FIXED.format('damping="1"')), {}, "leave it out with ignore=('tendon',)"),
        (one(), {"ignore": ("fluids",)}, "ignore: 'fluids' is not known; did you mean 'fluid'?"),
        (one(), {"keyframe": "home"}, "keyframe 'home' is not known"),
        (one(), {"keyframe": 0}, "keyframe: expected 0 ... -1 or a name, found 0"),
        (one(), {"q0": [1.0, 2.0]}, "q0: expected 1 numbers for h, found shape (2,)"),
        (one(), {"toggle": (("grip", 1, True),)}, "toggle: closure 'grip' is not known"),
        (one(after=WELD), {"toggle": ("grip", 1, True)}, "expected ((closure, time, on), ...)"),
        (one(after=WELD), {"toggle": (("grap", 1, True),)}, "did you mean 'grip'?"),
        (
            one(after=WELD),
            {"toggle": (("grip", 2, True), ("grip", 1, False))},
            "expected times in ascending order",
        ),
        (
            one(after=WELD),
            {"toggle": (("grip", 1, False),)},
            "expected that 'grip' is switched on at t = 1, as it is off then, found False",
        ),
    ],
)
def test_what_is_wrong_is_named(written, text, arguments, expected):
    with pytest.raises(NsdynError) as error:
        problems.from_mjcf(written(text), **arguments)
    assert expected in str(error.value) and "model.xml" in str(error.value)


def test_a_file_that_is_none(tmp_path):
    with pytest.raises(FileError, match=r"nowhere\.xml.*expected a readable MJCF file"):
        problems.from_mjcf(tmp_path / "nowhere.xml")
    path = tmp_path / "robot.xml"
    path.write_text("<robot/>")
    with pytest.raises(FileError, match=r"found a <robot>; name the file \.urdf"):
        problems.from_mjcf(path)


def test_without_mujoco_the_extra_is_named(written, monkeypatch):
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(FileError, match=r"MuJoCo, which is not installed.*nsdyn\[mjcf\]"):
        problems.from_mjcf(written(one()))
