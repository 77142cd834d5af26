"""Emergency stop of a robot: brakes slide until one joint after another comes to rest and locks;
with SURROGATE parameters.

After the introduction of A. Mueller, "Forward dynamics of variable topology mechanisms". The motors
are off; the brake of joint i engages at the time t_i. A sliding brake opposes the rate with the
torque B_i; at rest it holds up to the torque k B_i. In motor coordinates (`geared_chain`), with the
sign s of sliding, which is part of the mode,

    M v' + lam = f(q, v) - s B,   s_i = +1, -1, and 0 for a joint that is free or held           (1)
    q_i = const for a held joint, lam_i the torque that its brake bears                          (2)

Every joint has its own mode, an integer:

    free  until  t = t_i  ->  held if |v_i| <= c_i, else slides with s_i = sign(v_i)             (3)
    slides    until  s_i v_i = c_i     ->  held                                                  (4)
    held      until  lam_i = +k B_i    ->  slips with s_i = +1                                   (5)
              or     lam_i = -k B_i    ->  slips with s_i = -1
    slips     until  s_i v_i = 0       ->  held                                                  (6)

With c = 0 a brake only rubs: it locks at rate zero without an impulse, and all laws agree. A brake
with teeth or a pin catches its joint earlier, at the rate c > 0, by an impulse that the law must
distribute. If this impulse takes the rate of another joint below c, that joint is caught too. A
joint that broke loose slips and is not caught again until it is at rest.

Brakes only take energy, so T + V never grows. Joints that reach their limits together change their
modes together; a joint that comes to rest under a load above k B slips on immediately.

The robot is the surrogate of `rx130l`. Brake torques are assumed equal to the effort limits of the
RX160L; k, c and the initial rates are assumed too.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

import nsdyn
from nsdyn._types import (
    AnyConfiguration,
    AnyMode,
    AnyTime,
    Configuration,
    GuardMask,
    Guards,
    Held,
    Mode,
    Number,
    Numbers,
    Params,
    RowMask,
    Rows,
    Velocity,
)
from nsdyn.errors import ProblemError
from nsdyn.multibody.chain import Chain
from nsdyn.problems import geared_chain
from nsdyn.problems.geared_chain import coordinates, parameters, shape
from nsdyn.problems.rx130l import ANGLES, RATIO, TIP, robot

ABOUT = nsdyn.About(tags=("robot", "locking", "friction"), source="after Mueller")

FREE, HELD, FORWARD, BACKWARD, SLIPS_FORWARD, SLIPS_BACKWARD = range(6)
SIGN = np.array([0.0, 0.0, 1.0, -1.0, 1.0, -1.0])  # s of these modes
BRAKES = (6.92, 5.74, 2.42, 0.58, 0.29, 0.29)  # B at the motor, N m; assumed
RATES = (3.0, 1.0, 2.0, 1.5, -2.0, 3.0)  # of the joints, rad/s; assumed
NEVER = 1.0  # a guard that never fires


def force(q: Configuration, v: Velocity, t: AnyTime, p: Params, mode: AnyMode) -> Velocity:
    return geared_chain.force(q, v, t, p) - jnp.asarray(SIGN)[mode] * p["brake"]  # (1)


def rows(q: Configuration, t: AnyTime, p: Params, mode: AnyMode, held: Held) -> Rows:
    return q - held  # (2)


def live(mode: Mode, p: Params) -> RowMask:
    return mode == HELD


def hold(q: AnyConfiguration, t: AnyTime, p: Params) -> AnyConfiguration:
    return q


def guards(
    q: Configuration, v: Velocity, lam: Rows, t: AnyTime, p: Params, mode: AnyMode, held: Held
) -> Guards:
    s = jnp.asarray(SIGN)[mode]
    catch = jnp.where(mode < SLIPS_FORWARD, p["catch"], 0.0)
    slows = jnp.where(s != 0, s * v - catch, NEVER)  # (4), (6)
    limit = p["grip"] * p["brake"]
    bears = lambda torque: jnp.where(mode == HELD, limit - torque, NEVER)
    return jnp.concatenate(
        [jnp.where(mode == FREE, p["on"] - t, slows), bears(lam), bears(-lam)]
    )  # (3), (5)


def after(
    fired: GuardMask, q: Configuration, v: Velocity, t: AnyTime, p: Params, mode: AnyMode
) -> Mode:
    slows, forward, backward = jnp.split(fired, 3)
    moves = jnp.where(v > 0, FORWARD, BACKWARD)
    braked = jnp.where((mode == FREE) & (jnp.abs(v) > p["catch"]), moves, HELD)
    mode = jnp.where(slows, braked, mode)  # (3), (4), (6)
    return jnp.where(forward, SLIPS_FORWARD, jnp.where(backward, SLIPS_BACKWARD, mode))  # (5)


SYSTEM = nsdyn.System(mass=geared_chain.mass, force=force, potential=geared_chain.potential)


def emergency_stop(
    chain: Chain | None = None,
    ratio: Numbers = RATIO,
    brake: Numbers = BRAKES,
    grip: Number = 1.2,
    catch: Numbers = 0.0,
    on: Numbers = 0.0,
    angles: Numbers = ANGLES,
    rates: Numbers = RATES,
    tip: Numbers = TIP,
    t_end: float = 0.6,
) -> nsdyn.Problem:
    """The stop of `chain`, by default the RX130L. `brake` (B), `catch` (c) and `on` (t_i) are one
    number or one per joint, B and c at the motors; `grip` is k. `angles` and `rates` refer to the
    joints, q0 and v0 to the motors.

    params: chain, ratio, tip, compensation, brake, grip, catch, on.
    """
    chain = robot() if chain is None else chain
    each = lambda name, value: _each(name, value, chain.n)
    ratio = each("ratio", ratio)
    params = parameters(chain, ratio, tip) | {
        "brake": each("brake", brake),
        "grip": grip,
        "catch": each("catch", catch),
        "on": each("on", on),
    }
    brakes = nsdyn.Transitions(
        rows=rows,
        guards=guards,
        after=after,
        live=live,
        hold=hold,
        mode0=np.full(chain.n, FREE),
        rows_independent=True,
    )
    q0, v0 = (ratio * each(name, x) for name, x in (("angles", angles), ("rates", rates)))
    return nsdyn.Problem(
        "emergency_stop",
        SYSTEM,
        brakes,
        q0=q0,
        v0=v0,
        t_end=t_end,
        params=params,
        coordinates=coordinates(chain.n),
        shape=shape,
    )


def _each(name: str, value: Numbers, n: int) -> Float[Any, " n"]:
    """One number for each joint. (By numpy, for which nothing is compiled, where it will do.)"""
    xp: Any = jnp if isinstance(value, jax.Array) else np
    array = xp.asarray(value, float)
    if array.shape not in ((), (n,)):
        raise ProblemError(
            f"emergency_stop({name}=...): expected 1 or {n} numbers, found shape {array.shape}"
        )
    return xp.broadcast_to(array, (n,))
